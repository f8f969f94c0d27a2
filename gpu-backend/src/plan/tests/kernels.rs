//! The kernels of a program by their definitions, on matrices of the interpreter. Nothing is read that
//! the real kernel would not read.

use super::complex::Complex;
use crate::plan::program::{Kernel, Place};
use call::{Diag, Scalar, Side, Trans, Uplo};

/// A column-major matrix.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub data: Vec<Complex>,
}

impl Matrix {
    pub fn filled(rows: usize, cols: usize, with: Complex) -> Self {
        Self {
            rows,
            cols,
            data: vec![with; rows * cols],
        }
    }

    pub fn at(&self, i: usize, j: usize) -> Complex {
        assert!(
            i < self.rows && j < self.cols,
            "({i}, {j}) of {} x {}",
            self.rows,
            self.cols
        );
        self.data[j * self.rows + i]
    }

    pub fn set(&mut self, i: usize, j: usize, x: Complex) {
        assert!(
            i < self.rows && j < self.cols,
            "({i}, {j}) of {} x {}",
            self.rows,
            self.cols
        );
        self.data[j * self.rows + i] = x;
    }
}

/// Reads an element (i, j).
pub type Read<'a> = &'a dyn Fn(usize, usize) -> Complex;

/// op(X)(i, j).
pub fn op(trans: Trans, x: Read<'_>, i: usize, j: usize) -> Complex {
    match trans {
        Trans::N => x(i, j),
        Trans::T => x(j, i),
        Trans::C => x(j, i).conj(),
    }
}

/// Element (i, j) of the symmetric or Hermitian matrix whose triangle `uplo` is stored.
pub fn symmetric(hermitian: bool, uplo: Uplo, x: Read<'_>, i: usize, j: usize) -> Complex {
    let stored = if uplo == Uplo::U { i <= j } else { i >= j };
    let value = if stored { x(i, j) } else { x(j, i) };
    match (hermitian, i == j, stored) {
        (false, ..) | (true, false, true) => value,
        (true, true, _) => Complex { im: 0.0, ..value },
        (true, false, false) => value.conj(),
    }
}

/// Element (i, j) of a triangular matrix.
pub fn triangular(uplo: Uplo, diag: Diag, x: Read<'_>, i: usize, j: usize) -> Complex {
    let stored = if uplo == Uplo::U { i <= j } else { i >= j };
    match (i == j, diag) {
        (true, Diag::U) => Complex::ONE,
        _ if stored => x(i, j),
        _ => Complex::ZERO,
    }
}

/// The whole sum of products, in the order of its terms.
pub fn dot(k: usize, x: impl Fn(usize) -> Complex, y: impl Fn(usize) -> Complex) -> Complex {
    (0..k).fold(Complex::ZERO, |sum, l| sum + x(l) * y(l))
}

/// alpha x + beta c, c unread where beta is 0.
pub fn scaled(alpha: Scalar, x: Complex, beta: Scalar, c: impl Fn() -> Complex) -> Complex {
    let product = Complex::from(alpha) * x;
    if beta.is_zero() {
        product
    } else {
        product + Complex::from(beta) * c()
    }
}

fn in_triangle(uplo: Uplo, i: usize, j: usize) -> bool {
    if uplo == Uplo::U { i <= j } else { i >= j }
}

/// A block of a device matrix.
struct Block<'a>(&'a [Matrix], Place);

impl Block<'_> {
    fn at(&self, i: usize, j: usize) -> Complex {
        self.0[self.1.buffer].at(self.1.row0 + i, self.1.col0 + j)
    }
}

/// What a kernel writes: where, and the new values of the block (None: not written).
type Written = (Place, Vec<(usize, usize, Complex)>);

fn write_all(
    c: Place,
    (m, n): (usize, usize),
    keep: impl Fn(usize, usize) -> bool,
    value: impl Fn(usize, usize) -> Complex,
) -> Written {
    let places = (0..n).flat_map(|j| (0..m).map(move |i| (i, j)));
    let kept = places.filter(|&(i, j)| keep(i, j));
    (c, kept.map(|(i, j)| (i, j, value(i, j))).collect())
}

/// Runs one kernel.
pub fn run(device: &mut [Matrix], kernel: &Kernel) {
    let (place, values) = result(device, kernel);
    for (i, j, x) in values {
        device[place.buffer].set(place.row0 + i, place.col0 + j, x);
    }
}

fn result(device: &[Matrix], kernel: &Kernel) -> Written {
    let block = |place: Place| Block(device, place);
    match *kernel {
        Kernel::Gemm {
            trans,
            size: (m, n, k),
            alpha,
            a,
            b,
            beta,
            c,
        } => {
            let (a, b, old) = (block(a), block(b), block(c));
            write_all(
                c,
                (m, n),
                |_, _| true,
                |i, j| {
                    let x = |l| op(trans.0, &|i, j| a.at(i, j), i, l);
                    let y = |l| op(trans.1, &|i, j| b.at(i, j), l, j);
                    scaled(alpha, dot(k, x, y), beta, || old.at(i, j))
                },
            )
        }
        Kernel::Syrk {
            hermitian,
            uplo,
            trans,
            size: (n, k),
            alpha,
            a,
            beta,
            c,
        } => {
            let (a, old) = (block(a), block(c));
            write_all(
                c,
                (n, n),
                |i, j| in_triangle(uplo, i, j),
                |i, j| {
                    rank_k(
                        hermitian,
                        (i, j),
                        beta,
                        || old.at(i, j),
                        |i, j| {
                            let x = |i, l| op(trans, &|i, j| a.at(i, j), i, l);
                            let y = |l| if hermitian { x(j, l).conj() } else { x(j, l) };
                            Complex::from(alpha) * dot(k, |l| x(i, l), y)
                        },
                    )
                },
            )
        }
        Kernel::Syr2k {
            hermitian,
            uplo,
            trans,
            size: (n, k),
            alpha,
            a,
            b,
            beta,
            c,
        } => {
            let (a, b, old) = (block(a), block(b), block(c));
            let alpha = Complex::from(alpha);
            write_all(
                c,
                (n, n),
                |i, j| in_triangle(uplo, i, j),
                |i, j| {
                    rank_k(
                        hermitian,
                        (i, j),
                        beta,
                        || old.at(i, j),
                        |i, j| {
                            let x = |i, l| op(trans, &|i, j| a.at(i, j), i, l);
                            let y = |i, l| op(trans, &|i, j| b.at(i, j), i, l);
                            let conj = |z: Complex| if hermitian { z.conj() } else { z };
                            alpha * dot(k, |l| x(i, l), |l| conj(y(j, l)))
                                + conj(alpha) * dot(k, |l| y(i, l), |l| conj(x(j, l)))
                        },
                    )
                },
            )
        }
        Kernel::Symm {
            hermitian,
            side,
            uplo,
            size: (m, n),
            alpha,
            a,
            b,
            beta,
            c,
        } => {
            let (a, b, old) = (block(a), block(b), block(c));
            let a = |i, j| symmetric(hermitian, uplo, &|i, j| a.at(i, j), i, j);
            write_all(
                c,
                (m, n),
                |_, _| true,
                |i, j| {
                    let sum = match side {
                        Side::L => dot(m, |l| a(i, l), |l| b.at(l, j)),
                        Side::R => dot(n, |l| b.at(i, l), |l| a(l, j)),
                    };
                    scaled(alpha, sum, beta, || old.at(i, j))
                },
            )
        }
        Kernel::Trmm {
            side,
            uplo,
            trans,
            diag,
            size: (m, n),
            alpha,
            a,
            b,
            c,
        } => {
            let (a, b) = (block(a), block(b));
            let a = |i, j| {
                op(
                    trans,
                    &|i, j| triangular(uplo, diag, &|i, j| a.at(i, j), i, j),
                    i,
                    j,
                )
            };
            write_all(
                c,
                (m, n),
                |_, _| true,
                |i, j| {
                    let sum = match side {
                        Side::L => dot_nonzero(m, |l| a(i, l), |l| b.at(l, j)),
                        Side::R => dot_nonzero(n, |l| a(l, j), |l| b.at(i, l)),
                    };
                    Complex::from(alpha) * sum
                },
            )
        }
        Kernel::Trsm {
            side,
            uplo,
            trans,
            diag,
            size: (m, n),
            alpha,
            a,
            b,
        } => {
            let (a, old) = (block(a), block(b));
            let a = |i, j| {
                op(
                    trans,
                    &|i, j| triangular(uplo, diag, &|i, j| a.at(i, j), i, j),
                    i,
                    j,
                )
            };
            let mut x = Matrix::filled(m, n, Complex::ZERO);
            let lower = (uplo == Uplo::L) == (trans == Trans::N);
            // Side R solves the transposed system: its matrix is the other triangle.
            let (order, count) = if side == Side::L { (m, n) } else { (n, m) };
            let forward = lower == (side == Side::L);
            for j in 0..count {
                for step in 0..order {
                    let i = if forward { step } else { order - 1 - step };
                    let at = |i: usize| if side == Side::L { (i, j) } else { (j, i) };
                    let t = |i: usize, l: usize| if side == Side::L { a(i, l) } else { a(l, i) };
                    let (r, c) = at(i);
                    let mut sum = Complex::from(alpha) * old.at(r, c);
                    for earlier in 0..step {
                        let l = if forward {
                            earlier
                        } else {
                            order - 1 - earlier
                        };
                        sum = sum - t(i, l) * x.at(at(l).0, at(l).1);
                    }
                    let solved = if diag == Diag::U { sum } else { sum / t(i, i) };
                    x.set(r, c, solved);
                }
            }
            write_all(b, (m, n), |_, _| true, |i, j| x.at(i, j))
        }
        Kernel::Solver(_) => unreachable!("not of level 3"),
    }
}

/// A sum in which structural zeros of the first factor leave the second one unread.
fn dot_nonzero(k: usize, x: impl Fn(usize) -> Complex, y: impl Fn(usize) -> Complex) -> Complex {
    let terms = (0..k)
        .map(|l| (l, x(l)))
        .filter(|(_, x)| *x != Complex::ZERO);
    terms.fold(Complex::ZERO, |sum, (l, x)| sum + x * y(l))
}

/// An element of a rank-k update; a Hermitian one has a real diagonal and reads only the real part of
/// its old one.
fn rank_k(
    hermitian: bool,
    (i, j): (usize, usize),
    beta: Scalar,
    old: impl Fn() -> Complex,
    product: impl Fn(usize, usize) -> Complex,
) -> Complex {
    let real = |z: Complex| {
        if hermitian && i == j {
            Complex { im: 0.0, ..z }
        } else {
            z
        }
    };
    scaled(Scalar::ONE, real(product(i, j)), beta, || real(old()))
}
