//! The definitions. Every family is alpha X Y + … + beta C with matrices X and Y that follow from its
//! flags; element (i, j) is one sum of products. Nothing here is blocked, vectorised or clever.

use num_complex::Complex64;

use crate::family::{Family, Kind};
use crate::fill::Image;
use crate::plan::{Operand, Plan};
use crate::scalar::Scalar;
use crate::sum::ComplexSum;

/// What an element must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Within the bound.
    Finite,
    /// Infinite or NaN: which one may depend on the order of the sum.
    NonFinite,
    /// NaN in some part.
    NotANumber,
}

/// An element by definition. For trsm it is an element of the residual op(A) X - alpha B, whose value
/// should be zero.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The value, where it is finite.
    pub value: ComplexSum,
    /// |alpha| |X| |Y|: the same sum of products with moduli.
    pub products: f64,
    /// |beta C|.
    pub old: f64,
    /// What the definition forces.
    pub nature: Nature,
}

/// A matrix by rows, with the moduli of its entries.
struct Dense {
    columns: usize,
    values: Vec<Complex64>,
    moduli: Vec<f64>,
}

impl Dense {
    fn new(rows: usize, columns: usize, entry: impl Fn(usize, usize) -> Complex64) -> Self {
        let entry = &entry;
        let values: Vec<Complex64> = (0..rows)
            .flat_map(|i| (0..columns).map(move |j| entry(i, j)))
            .collect();
        let moduli = values.iter().map(|value| value.norm()).collect();
        Self {
            columns,
            values,
            moduli,
        }
    }

    fn row(&self, i: usize) -> std::ops::Range<usize> {
        i * self.columns..(i + 1) * self.columns
    }
}

/// scale X Y: X by rows, Y by columns.
struct Term {
    scale: Complex64,
    x: Dense,
    y: Dense,
}

/// The definition of one call's result.
pub struct Reference {
    terms: Vec<Term>,
    beta: Complex64,
    complex: bool,
    residual: bool,
    hermitian: bool,
}

/// The entry (i, j) of an operand.
pub fn entry<T: Scalar>(image: &Image<T>, operand: &Operand, i: usize, j: usize) -> Complex64 {
    image[operand.region][operand.at(i, j)].parts()
}

/// The entry (i, j) of op(A).
fn op<T: Scalar>(
    image: &Image<T>,
    operand: &Operand,
    trans: char,
    i: usize,
    j: usize,
) -> Complex64 {
    match trans {
        'N' => entry(image, operand, i, j),
        'T' => entry(image, operand, j, i),
        _ => entry(image, operand, j, i).conj(),
    }
}

/// The entry (i, j) of the symmetric or Hermitian A, of which one triangle is stored.
fn symmetric<T: Scalar>(plan: &Plan, image: &Image<T>, i: usize, j: usize) -> Complex64 {
    let stored = plan.part_a().holds(i, j);
    let value = if stored {
        entry(image, &plan.a, i, j)
    } else {
        entry(image, &plan.a, j, i)
    };
    match plan.family {
        Family::Hemm if i == j => value.re.into(),
        Family::Hemm if !stored => value.conj(),
        _ => value,
    }
}

/// The entry (i, j) of op(A), A triangular.
pub fn triangular<T: Scalar>(plan: &Plan, image: &Image<T>, i: usize, j: usize) -> Complex64 {
    let (row, column) = if plan.op_a() == 'N' { (i, j) } else { (j, i) };
    if i == j && plan.unit() {
        Complex64::ONE
    } else if plan.part_a().holds(row, column) {
        op(image, &plan.a, plan.op_a(), i, j)
    } else {
        Complex64::ZERO
    }
}

/// The matrices of trmm's product or of trsm's residual; `factor` holds B or X in the place of C.
fn triangular_term<T: Scalar>(plan: &Plan, image: &Image<T>, factor: &Image<T>) -> Term {
    let (m, n, depth) = (plan.c.rows, plan.c.columns, plan.depth());
    let scale = if plan.family == Family::Trsm {
        Complex64::ONE
    } else {
        plan.alpha
    };
    if plan.left() {
        Term {
            scale,
            x: Dense::new(m, depth, |i, l| triangular(plan, image, i, l)),
            y: Dense::new(n, depth, |j, l| entry(factor, &plan.c, l, j)),
        }
    } else {
        Term {
            scale,
            x: Dense::new(m, depth, |i, l| entry(factor, &plan.c, i, l)),
            y: Dense::new(n, depth, |j, l| triangular(plan, image, l, j)),
        }
    }
}

/// The products of every other family.
fn terms<T: Scalar>(plan: &Plan, image: &Image<T>) -> Vec<Term> {
    let (m, n, depth) = (plan.c.rows, plan.c.columns, plan.depth());
    let b = plan.b.unwrap_or(plan.a);
    let turned = |value: Complex64| {
        if plan.family.hermitian() {
            value.conj()
        } else {
            value
        }
    };
    let op_a = |i, l| op(image, &plan.a, plan.op_a(), i, l);
    // Rank-2k has one trans for both.
    let op_b = |i, l| op(image, &b, plan.op_a(), i, l);
    let term = |scale, x, y| Term { scale, x, y };
    match plan.family.kind() {
        Kind::Product | Kind::TriangleOfProduct => vec![term(
            plan.alpha,
            Dense::new(m, depth, op_a),
            Dense::new(n, depth, |j, l| op(image, &b, plan.op_b(), l, j)),
        )],
        Kind::Symmetric if plan.left() => vec![term(
            plan.alpha,
            Dense::new(m, depth, |i, l| symmetric(plan, image, i, l)),
            Dense::new(n, depth, |j, l| entry(image, &b, l, j)),
        )],
        Kind::Symmetric => vec![term(
            plan.alpha,
            Dense::new(m, depth, |i, l| entry(image, &b, i, l)),
            Dense::new(n, depth, |j, l| symmetric(plan, image, l, j)),
        )],
        Kind::RankK => vec![term(
            plan.alpha,
            Dense::new(n, depth, op_a),
            Dense::new(n, depth, |j, l| turned(op_a(j, l))),
        )],
        Kind::Rank2k => vec![
            term(
                plan.alpha,
                Dense::new(n, depth, op_a),
                Dense::new(n, depth, |j, l| turned(op_b(j, l))),
            ),
            term(
                turned(plan.alpha),
                Dense::new(n, depth, op_b),
                Dense::new(n, depth, |j, l| turned(op_a(j, l))),
            ),
        ],
        Kind::Triangular => vec![triangular_term(plan, image, image)],
    }
}

impl Reference {
    /// The definition for `plan` on the memory `before`; trsm's is the residual of the solution in
    /// `after`.
    pub fn new<T: Scalar>(plan: &Plan, before: &Image<T>, after: &Image<T>) -> Self {
        let reads_inputs = plan.alpha != Complex64::ZERO && plan.depth() > 0;
        let residual = plan.family == Family::Trsm && reads_inputs;
        let terms = if residual {
            vec![triangular_term(plan, before, after)]
        } else if reads_inputs {
            terms(plan, before)
        } else {
            Vec::new()
        };
        let beta = match plan.family.kind() {
            Kind::Triangular if residual => -plan.alpha,
            Kind::Triangular => Complex64::ZERO,
            _ => plan.beta,
        };
        Self {
            terms,
            beta,
            complex: T::COMPLEX,
            residual,
            hermitian: plan.family.hermitian_output(),
        }
    }

    /// Whether it states a residual.
    pub fn is_residual(&self) -> bool {
        self.residual
    }

    /// Whether element (i, j) is real by definition.
    pub fn is_real(&self, i: usize, j: usize) -> bool {
        self.hermitian && i == j
    }

    /// Element (i, j), where C held `old`.
    pub fn element(&self, i: usize, j: usize, old: Complex64) -> Expected {
        let mut value = ComplexSum::default();
        let mut products = 0.0;
        for term in &self.terms {
            let (row, column) = (term.x.row(i), term.y.row(j));
            let dot = ComplexSum::dot(
                &term.x.values[row.clone()],
                &term.y.values[column.clone()],
                self.complex,
            );
            value.add_scaled(term.scale, dot);
            let moduli = term.x.moduli[row].iter().zip(&term.y.moduli[column]);
            products += term.scale.norm() * moduli.map(|(x, y)| x * y).sum::<f64>();
        }
        let mut old_size = 0.0;
        if self.beta != Complex64::ZERO {
            let old = if self.is_real(i, j) {
                old.re.into()
            } else {
                old
            };
            value.add_product(self.beta, old);
            old_size = self.beta.norm() * old.norm();
        }
        if self.is_real(i, j) {
            value.im = Default::default();
        }
        // A residual's products hold the result itself, which must not excuse its own NaN.
        let size = if self.residual {
            old_size
        } else {
            products + old_size
        };
        let nature = if size.is_nan() {
            Nature::NotANumber
        } else if size.is_infinite() {
            Nature::NonFinite
        } else {
            Nature::Finite
        };
        Expected {
            value,
            products,
            old: old_size,
            nature,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::{Interface, Precision};
    use crate::plan::Region;

    type Matrix = [[Complex64; 2]; 2];

    fn z(re: f64, im: f64) -> Complex64 {
        Complex64::new(re, im)
    }

    fn a() -> Matrix {
        [[z(1.0, 0.0), z(0.0, 1.0)], [z(2.0, 0.0), z(1.0, 1.0)]]
    }

    fn b() -> Matrix {
        [[z(1.0, 0.0), z(2.0, 0.0)], [z(0.0, 1.0), z(3.0, 0.0)]]
    }

    /// What a 2 x 2 call is.
    struct Small {
        family: Family,
        /// transa, transb, uplo, side, diag.
        letters: [char; 5],
        alpha: Complex64,
        beta: Complex64,
        by_rows: bool,
    }

    impl Small {
        fn new(family: Family, letters: &str) -> Self {
            let letters: Vec<char> = letters.chars().collect();
            Self {
                family,
                letters: letters.try_into().expect("five letters"),
                alpha: Complex64::ONE,
                beta: Complex64::ZERO,
                by_rows: false,
            }
        }

        fn plan(&self) -> Plan {
            let matrix = |region| Operand {
                rows: 2,
                columns: 2,
                region,
                offset: 0,
                ld: 2,
                by_rows: self.by_rows,
            };
            let [trans_a, trans_b, uplo, side, diag] = self.letters;
            Plan {
                index: 0,
                family: self.family,
                precision: Precision::Z,
                interface: Interface::Fortran,
                trans_a,
                trans_b,
                uplo,
                side,
                diag,
                m: 2,
                n: 2,
                k: 2,
                alpha: self.alpha,
                beta: self.beta,
                a: matrix(0),
                b: Some(matrix(1)),
                c: matrix(2),
                regions: vec![
                    Region {
                        length: 4,
                        at_border: false
                    };
                    3
                ],
                non_finite: false,
                nan_canaries: false,
            }
        }

        /// The result on A, B and the old C.
        fn result(&self, a: Matrix, b: Matrix, old: Matrix) -> Matrix {
            let plan = self.plan();
            let mut image = vec![vec![Complex64::ZERO; 4]; 3];
            for (operand, matrix) in [(plan.a, a), (plan.b.unwrap(), b), (plan.c, old)] {
                for (i, row) in matrix.iter().enumerate() {
                    for (j, value) in row.iter().enumerate() {
                        image[operand.region][operand.at(i, j)] = *value;
                    }
                }
            }
            // trsm: B holds the solution here, C the right side.
            let mut after = image.clone();
            after[2] = image[1].clone();
            let reference = Reference::new(&plan, &image, &after);
            [0, 1].map(|i| [0, 1].map(|j| reference.element(i, j, old[i][j]).value.value()))
        }
    }

    const OLD: Matrix = [[Complex64::ONE; 2]; 2];

    #[test]
    fn gemm_by_hand() {
        let mut call = Small::new(Family::Gemm, "NCULN");
        (call.alpha, call.beta) = (z(2.0, 0.0), z(0.0, 1.0));
        let expected = [[z(2.0, 5.0), z(0.0, 5.0)], [z(8.0, 5.0), z(6.0, 3.0)]];
        assert_eq!(call.result(a(), b(), OLD), expected);
        call.by_rows = true;
        assert_eq!(call.result(a(), b(), OLD), expected);
    }

    #[test]
    fn symm_and_hemm_by_hand() {
        let nan = z(f64::NAN, f64::NAN);
        let upper = [[z(1.0, 9.0), z(0.0, 1.0)], [nan, z(2.0, -4.0)]];
        assert_eq!(
            Small::new(Family::Hemm, "NNULN").result(upper, b(), OLD),
            [[z(0.0, 0.0), z(2.0, 3.0)], [z(0.0, 1.0), z(6.0, -2.0)]]
        );
        let lower = [[z(1.0, 0.0), nan], [z(0.0, 1.0), z(2.0, 0.0)]];
        assert_eq!(
            Small::new(Family::Symm, "NNLRN").result(lower, b(), OLD),
            [[z(1.0, 2.0), z(4.0, 1.0)], [z(0.0, 4.0), z(5.0, 0.0)]]
        );
    }

    #[test]
    fn herk_and_syrk_by_hand() {
        let mut call = Small::new(Family::Herk, "nNLLN");
        call.beta = Complex64::ONE;
        let old = [[z(1.0, 5.0), z(0.0, 0.0)], [z(0.0, 0.0), z(0.0, 0.0)]];
        let result = call.result(a(), b(), old);
        assert_eq!(result[0][0], z(3.0, 0.0));
        assert_eq!(result[1], [z(3.0, -1.0), z(6.0, 0.0)]);
        let result = Small::new(Family::Herk, "CNULN").result(a(), b(), OLD);
        assert_eq!(result[0], [z(5.0, 0.0), z(2.0, 3.0)]);
        assert_eq!(result[1][1], z(3.0, 0.0));
        // The rows of A without conjugation: 1 - 1, 2 + i (1 + i), 4 + (1 + i)^2.
        let result = Small::new(Family::Syrk, "NNULN").result(a(), b(), OLD);
        assert_eq!(result[0], [z(0.0, 0.0), z(1.0, 1.0)]);
        assert_eq!(result[1][1], z(4.0, 2.0));
    }

    #[test]
    fn her2k_and_syr2k_by_hand() {
        let mut call = Small::new(Family::Her2k, "NNULN");
        call.alpha = z(0.0, 1.0);
        let result = call.result(a(), b(), OLD);
        assert_eq!(result[0], [z(-4.0, 0.0), z(-4.0, -4.0)]);
        assert_eq!(result[1][1], z(-2.0, 0.0));
        let result = Small::new(Family::Syr2k, "TNULN").result(a(), b(), OLD);
        assert_eq!(result[0], [z(2.0, 4.0), z(7.0, 2.0)]);
        assert_eq!(result[1][1], z(6.0, 10.0));
    }

    #[test]
    fn trmm_by_hand() {
        let nan = z(f64::NAN, f64::NAN);
        let mut call = Small::new(Family::Trmm, "CNLLU");
        call.alpha = z(2.0, 0.0);
        assert_eq!(
            call.result([[nan, nan], [z(0.0, 1.0), nan]], OLD, b()),
            [[z(4.0, 0.0), z(4.0, -6.0)], [z(0.0, 2.0), z(6.0, 0.0)]]
        );
        let upper = [[z(1.0, 0.0), z(0.0, 1.0)], [nan, z(2.0, 0.0)]];
        assert_eq!(
            Small::new(Family::Trmm, "NNURN").result(upper, OLD, b()),
            [[z(1.0, 0.0), z(4.0, 1.0)], [z(0.0, 1.0), z(5.0, 0.0)]]
        );
    }

    #[test]
    fn trsm_states_the_residual() {
        let nan = z(f64::NAN, f64::NAN);
        let upper = [[z(1.0, 0.0), z(0.0, 1.0)], [nan, z(2.0, 0.0)]];
        let solution = [[Complex64::ONE; 2], [Complex64::ONE, z(2.0, 0.0)]];
        let mut right = [[z(1.0, 1.0), z(1.0, 2.0)], [z(2.0, 0.0), z(4.0, 0.0)]];
        let call = Small::new(Family::Trsm, "NNULN");
        let zero = [[Complex64::ZERO; 2]; 2];
        assert_eq!(call.result(upper, solution, right), zero);
        right[0][0] = Complex64::ZERO;
        assert_eq!(call.result(upper, solution, right)[0][0], z(1.0, 1.0));
    }
}
