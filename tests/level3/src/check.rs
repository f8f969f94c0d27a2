//! Compares the memory after a call with the definition and with the memory before it. Knows nothing
//! of libraries: memory in, verdict out, so that tests can plant errors.

use std::fmt;

use num_complex::Complex64;

use crate::family::{Family, Kind};
use crate::fill::Image;
use crate::plan::{Operand, Part, Plan};
use crate::reference::{Expected, Nature, Reference, entry};
use crate::scalar::Scalar;

/// Factor on sqrt(k) eps |alpha| |A| |B| and on eps |beta C|. One product, its scaling and one
/// addition have three roundings of eps / 2; the rest is room for the constant of the random walk that
/// the roundings of a sum of k products make.
const FACTOR: f64 = 4.0;
/// A complex product by four real ones is off by up to sqrt(5) roundings of its modulus, which the
/// square root of 2 k real products does not cover; products by FMA and Karatsuba-free kernels stay
/// within twice the real bound.
const COMPLEX_FACTOR: f64 = 2.0;
/// gemm3m's real and imaginary parts are differences of products of sums, so that each alone has no
/// bound relative to itself. By modulus, every one of its three products is at most
/// (|Re a| + |Im a|) (|Re b| + |Im b|) <= 2 |a| |b|, and the imaginary part takes all three.
const GEMM3M_FACTOR: f64 = 6.0;

/// What is wrong with a result.
#[derive(Debug, PartialEq)]
pub enum Trouble {
    /// An element is off.
    Value {
        /// Its row.
        i: usize,
        /// Its column.
        j: usize,
        /// What is there.
        got: Complex64,
        /// What should be (of trsm: the residual, which should be 0).
        expected: Complex64,
        /// How far it is off.
        error: f64,
        /// How far it may be off.
        bound: f64,
    },
    /// An element that is NaN or infinite by definition is not.
    Nature {
        /// Its row.
        i: usize,
        /// Its column.
        j: usize,
        /// What is there.
        got: Complex64,
        /// What the definition forces.
        expected: Nature,
    },
    /// A diagonal element of a Hermitian result is not real.
    NotReal {
        /// Its row and column.
        i: usize,
        /// What is there.
        got: Complex64,
    },
    /// Memory that nothing may change changed.
    Changed {
        /// What lies there.
        place: String,
        /// What was there.
        before: Complex64,
        /// What is there.
        after: Complex64,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value {
                i,
                j,
                got,
                expected,
                error,
                bound,
            } => write!(
                f,
                "element ({i}, {j}) is {got:e}, expected {expected:e}: off by {error:.3e}, allowed {bound:.3e}"
            ),
            Self::Nature {
                i,
                j,
                got,
                expected,
            } => {
                write!(f, "element ({i}, {j}) is {got:e}, must be {expected:?}")
            }
            Self::NotReal { i, got } => write!(f, "element ({i}, {i}) is {got:e}, must be real"),
            Self::Changed {
                place,
                before,
                after,
            } => write!(f, "{place} changed from {before:e} to {after:e}"),
        }
    }
}

/// Judges the memory `after` the call of `plan` on the memory `before`. A right result comes with its
/// largest error, as a share of what is allowed.
pub fn check<T: Scalar>(plan: &Plan, before: &Image<T>, after: &Image<T>) -> Result<f64, Trouble> {
    let mut allowed = before.clone();
    let mut verdict = Ok(0.0);
    if !plan.changes_nothing() {
        let reference = Reference::new(plan, before, after);
        let c = &plan.c;
        for i in 0..c.rows {
            for j in (0..c.columns).filter(|&j| plan.part_c().holds(i, j)) {
                let expected = reference.element(i, j, entry(before, c, i, j));
                let got = entry(after, c, i, j);
                if let Ok(worst) = verdict {
                    let share = check_element::<T>(plan, &reference, (i, j), got, &expected);
                    verdict = share.map(|share| share.max(worst));
                }
                allowed[c.region][c.at(i, j)] = after[c.region][c.at(i, j)];
            }
        }
    }
    // Stray writes are the worse news, so they come first.
    check_rest(plan, before, &allowed, after).and(verdict)
}

fn check_element<T: Scalar>(
    plan: &Plan,
    reference: &Reference,
    (i, j): (usize, usize),
    got: Complex64,
    expected: &Expected,
) -> Result<f64, Trouble> {
    let fits = match expected.nature {
        Nature::Finite if reference.is_real(i, j) && got.im != 0.0 => {
            return Err(Trouble::NotReal { i, got });
        }
        Nature::Finite => {
            let error = if reference.is_residual() {
                expected.value.distance_to(Complex64::ZERO)
            } else {
                expected.value.distance_to(got)
            };
            let bound = bound::<T>(plan, reference, expected);
            // Written so that a NaN fails.
            return if error <= bound {
                Ok(if bound > 0.0 { error / bound } else { 0.0 })
            } else {
                Err(Trouble::Value {
                    i,
                    j,
                    got,
                    expected: expected.value.value(),
                    error,
                    bound,
                })
            };
        }
        Nature::NonFinite => !got.is_finite(),
        Nature::NotANumber => got.is_nan(),
    };
    if fits {
        Ok(0.0)
    } else {
        Err(Trouble::Nature {
            i,
            j,
            got,
            expected: expected.nature,
        })
    }
}

/// How far an element may be off, by modulus.
fn bound<T: Scalar>(plan: &Plan, reference: &Reference, expected: &Expected) -> f64 {
    let mut depth = plan.depth().max(1) as f64;
    if plan.family.kind() == Kind::Rank2k {
        depth *= 2.0;
    }
    // Substitution: |op(A) X - alpha B| <= k eps |op(A)| |X| (Higham, theorem 8.5, with a factor for
    // kernels that multiply by inverted diagonal blocks; A is well-conditioned here).
    let growth = if reference.is_residual() {
        depth
    } else {
        depth.sqrt()
    };
    let kind = match (T::COMPLEX, plan.family) {
        (_, Family::Gemm3m) => GEMM3M_FACTOR,
        (true, _) => COMPLEX_FACTOR,
        (false, _) => 1.0,
    };
    FACTOR * kind * T::EPS * (growth * expected.products + expected.old)
}

/// Everything but the elements that the call may write is as it was.
fn check_rest<T: Scalar>(
    plan: &Plan,
    before: &Image<T>,
    allowed: &Image<T>,
    after: &Image<T>,
) -> Result<(), Trouble> {
    for (region, (allowed, after)) in allowed.iter().zip(after).enumerate() {
        let changed = (0..allowed.len()).find(|&at| !allowed[at].same_bits(after[at]));
        if let Some(at) = changed {
            return Err(Trouble::Changed {
                place: place(plan, region, at),
                before: before[region][at].parts(),
                after: after[at].parts(),
            });
        }
    }
    Ok(())
}

/// What lies at a position of a region, in words.
fn place(plan: &Plan, region: usize, at: usize) -> String {
    let output = if plan.family.kind() == Kind::Triangular {
        "B"
    } else {
        "C"
    };
    let mut operands = vec![(output, plan.c, plan.part_c()), ("A", plan.a, Part::Full)];
    operands.extend(plan.b.map(|b| ("B", b, Part::Full)));
    for (name, operand, part) in operands.iter().filter(|(_, o, _)| o.region == region) {
        let Some((i, j)) = position(operand, at) else {
            continue;
        };
        return if part.holds(i, j) {
            format!("{name}({i}, {j}), which the call must leave,")
        } else {
            format!("{name}({i}, {j}) in the other triangle")
        };
    }
    format!("a gap or guard (element {at} of region {region})")
}

/// The (i, j) of a position, if the operand has it.
fn position(operand: &Operand, at: usize) -> Option<(usize, usize)> {
    let from_start = at.checked_sub(operand.offset)?;
    let (inner, outer) = (from_start % operand.ld, from_start / operand.ld);
    let (i, j) = if operand.by_rows {
        (outer, inner)
    } else {
        (inner, outer)
    };
    (i < operand.rows && j < operand.columns).then_some((i, j))
}
