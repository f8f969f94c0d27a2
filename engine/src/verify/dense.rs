//! Operators that are applied to a vector: matrices, triangles of them, reflectors, interchanges. A product of
//! factors is compared with what it should be by its effect on a vector, which costs n^2 and needs no BLAS.
//!
//! All sums are in float64, complex; the factors are read in their own precision.

use call::MatRef;
use num_complex::Complex64;
use routines::{Precision, Uplo};

/// A complex number of the sums.
pub type Number = Complex64;

/// 0.
pub const ZERO: Number = Number::new(0.0, 0.0);
const ONE: Number = Number::new(1.0, 0.0);

/// What of a matrix counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Full,
    /// One triangle, or trapezoid; `unit`: ones on the diagonal, whatever is stored there.
    Triangle {
        /// Which.
        uplo: Uplo,
        /// The diagonal is not read.
        unit: bool,
    },
    /// One triangle, which stands for the other one too.
    Mirrored {
        /// Which is stored.
        uplo: Uplo,
        /// The other one is its conjugate, and the diagonal is real.
        hermitian: bool,
    },
}

/// A matrix, or the leading part of one.
#[derive(Clone, Copy)]
pub struct Dense<'a> {
    view: MatRef<'a>,
    precision: Precision,
    rows: usize,
    cols: usize,
    part: Part,
}

/// op of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// As it is.
    N,
    /// Transposed.
    T,
    /// Conjugate-transposed.
    C,
}

/// The numbers of a piece of memory.
pub fn numbers(bytes: &[u8], precision: Precision) -> impl Iterator<Item = Number> + '_ {
    let real = precision.real().elem_bytes();
    let part = move |bytes: &[u8]| match *bytes {
        [a, b, c, d] => f64::from(f32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => f64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    };
    bytes
        .chunks_exact(precision.elem_bytes())
        .map(move |bytes| match precision.is_complex() {
            true => Number::new(part(&bytes[..real]), part(&bytes[real..])),
            false => Number::new(part(bytes), 0.0),
        })
}

/// The absolute value, without overflow inside. Not `norm` of the number itself: that is libm's hypot, whose newest
/// version would tie the library to glibc 2.35.
pub fn size(x: Number) -> f64 {
    // Which of two numbers is larger hides that one of them is none.
    if x.is_nan() {
        return f64::NAN;
    }
    let large = x.re.abs().max(x.im.abs());
    if large == 0.0 || large.is_infinite() {
        return large;
    }
    let (re, im) = (x.re / large, x.im / large);
    large * (re * re + im * im).sqrt()
}

/// The sum of the absolute values.
pub fn norm(x: &[Number]) -> f64 {
    x.iter().map(|x| size(*x)).sum()
}

/// a - b.
pub fn less(a: &[Number], b: &[Number]) -> Vec<Number> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// A vector of 1 and -1 without a pattern, so that no error hides behind another one.
pub fn probe(len: usize) -> Vec<Number> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Number::new(if state >> 63 == 0 { 1.0 } else { -1.0 }, 0.0)
        })
        .collect()
}

impl<'a> Dense<'a> {
    /// All of a matrix.
    pub fn new(view: MatRef<'a>, precision: Precision) -> Self {
        Self {
            view,
            precision,
            rows: view.rows(),
            cols: view.cols(),
            part: Part::Full,
        }
    }

    /// A part of it.
    pub fn part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// The first rows and columns of it, as many as there are.
    pub fn leading(self, rows: usize, cols: usize) -> Self {
        Self {
            rows: rows.min(self.rows),
            cols: cols.min(self.cols),
            ..self
        }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// One element as it is stored.
    pub fn at(&self, i: usize, j: usize) -> Number {
        let bytes = self.view.column_piece(j, i, 1);
        numbers(bytes, self.precision).next().unwrap_or_default()
    }

    /// Every element that counts: row, column, value.
    pub fn each(&self, mut take: impl FnMut(usize, usize, Number)) {
        for j in 0..self.cols {
            let (first, end) = match self.part {
                Part::Full => (0, self.rows),
                Part::Triangle { uplo: Uplo::U, .. } | Part::Mirrored { uplo: Uplo::U, .. } => {
                    (0, self.rows.min(j + 1))
                }
                Part::Triangle { uplo: Uplo::L, .. } | Part::Mirrored { uplo: Uplo::L, .. } => {
                    (j.min(self.rows), self.rows)
                }
            };
            let bytes = self.view.column_piece(j, first, end - first);
            for (i, value) in (first..end).zip(numbers(bytes, self.precision)) {
                match self.part {
                    Part::Triangle { unit: true, .. } if i == j => take(i, j, ONE),
                    Part::Mirrored { hermitian, .. } if i != j => {
                        take(i, j, value);
                        take(j, i, if hermitian { value.conj() } else { value });
                    }
                    Part::Mirrored {
                        hermitian: true, ..
                    } => take(i, j, value.re.into()),
                    _ => take(i, j, value),
                }
            }
        }
    }

    /// op(A) x.
    pub fn times(&self, op: Op, x: &[Number]) -> Vec<Number> {
        let mut y = vec![ZERO; if op == Op::N { self.rows } else { self.cols }];
        self.each(|i, j, value| match op {
            Op::N => y[i] += value * x[j],
            Op::T => y[j] += value * x[i],
            Op::C => y[j] += value.conj() * x[i],
        });
        y
    }

    /// The largest sum of absolute values in a column, or with `op` in a row.
    pub fn norm(&self, op: Op) -> f64 {
        let mut sums = vec![0.0; if op == Op::N { self.cols } else { self.rows }];
        self.each(|i, j, value| sums[if op == Op::N { j } else { i }] += size(value));
        sums.into_iter().fold(0.0, largest)
    }

    /// The Euclidean norm of each row of op(A).
    pub fn row_norms(&self, op: Op) -> Vec<f64> {
        let mut sums = vec![0.0; if op == Op::N { self.rows } else { self.cols }];
        self.each(|i, j, value| sums[if op == Op::N { i } else { j }] += value.norm_sqr());
        sums.into_iter().map(f64::sqrt).collect()
    }

    /// The sum of the diagonal.
    pub fn trace(&self) -> Number {
        (0..self.rows.min(self.cols)).map(|i| self.at(i, i)).sum()
    }
}

/// The larger one, NaN if one is.
pub fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Q of a factorisation, as reflectors below the diagonal of geqrf's result or right of gelqf's.
pub struct Reflectors<'a> {
    /// The factorisation's matrix.
    pub matrix: Dense<'a>,
    /// Its factors.
    pub tau: Vec<Number>,
    /// They lie in rows (gelqf).
    pub in_rows: bool,
}

impl Reflectors<'_> {
    /// Element i of reflector r.
    fn element(&self, r: usize, i: usize) -> Number {
        match (i == r, self.in_rows) {
            (true, _) => ONE,
            (_, true) => self.matrix.at(r, i).conj(),
            (_, false) => self.matrix.at(i, r),
        }
    }

    /// Q x, or Q^H x, where x is as long as the reflectors.
    pub fn times(&self, op: Op, mut x: Vec<Number>) -> Vec<Number> {
        // Q of geqrf is H(1) ... H(k), that of gelqf H(k)^H ... H(1)^H.
        let adjoint = (op == Op::N) == self.in_rows;
        let count = self.tau.len();
        for step in 0..count {
            let r = if (op == Op::N) == self.in_rows {
                step
            } else {
                count - 1 - step
            };
            let v: Vec<Number> = (r..x.len()).map(|i| self.element(r, i)).collect();
            let dot: Number = v.iter().zip(&x[r..]).map(|(v, x)| v.conj() * x).sum();
            let tau = if adjoint {
                self.tau[r].conj()
            } else {
                self.tau[r]
            };
            for (x, v) in x[r..].iter_mut().zip(&v) {
                *x -= tau * dot * v;
            }
        }
        x
    }
}

/// The interchanges of getrf: P x (or P^T x) with P L U = A.
pub fn interchange(pivots: &[i64], op: Op, mut x: Vec<Number>) -> Vec<Number> {
    let mut swap = |i: usize| match usize::try_from(pivots[i] - 1) {
        // Counted from 1.
        Ok(other) if other < x.len() => x.swap(i, other),
        // Nobody could follow it.
        _ => x.fill(Number::new(f64::NAN, 0.0)),
    };
    if op == Op::N {
        (0..pivots.len()).rev().for_each(&mut swap);
    } else {
        (0..pivots.len()).for_each(&mut swap);
    }
    x
}
