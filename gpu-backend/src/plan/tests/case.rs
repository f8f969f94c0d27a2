//! One call of the tests: its flags and sizes, host arrays, and what the right result is by definition.

use super::complex::Complex;
use super::interpret::Host;
use super::kernels::{Matrix, op, symmetric, triangular};
use crate::plan::program::Operand;
use call::{Diag, Level3Call, MatMut, MatRef, Op, Precision, Scalar, Side, Trans, Uplo};

/// A call without memory.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub op: Op,
    pub precision: Precision,
    pub side: Side,
    pub uplo: Uplo,
    pub trans: (Trans, Trans),
    pub diag: Diag,
    pub size: (usize, usize, usize),
    pub alpha: Scalar,
    pub beta: Scalar,
}

impl Case {
    /// A family's call with the first of every flag, alpha = 1 and beta = 0.
    pub fn new(op: Op, precision: Precision, (m, n, k): (usize, usize, usize)) -> Self {
        let call = Self {
            op,
            precision,
            side: Side::L,
            uplo: Uplo::L,
            trans: (Trans::N, Trans::N),
            diag: Diag::N,
            size: (m, n, k),
            alpha: Scalar::ONE,
            beta: Scalar::ZERO,
        };
        call.legal()
    }

    /// The same with what the family does not allow replaced by what it does.
    pub fn legal(mut self) -> Self {
        let (mut m, n, mut k) = self.size;
        if self.square() {
            m = n;
        }
        if self.special() {
            k = if self.side == Side::L { m } else { n };
        }
        self.size = (m, n, k);
        let complex = self.precision.is_complex();
        if matches!(self.op, Op::Hemm | Op::Herk | Op::Her2k | Op::Gemm3m) && !complex {
            self.precision = Precision::Z;
        }
        match self.op {
            Op::Syrk | Op::Syr2k if complex && self.trans.0 == Trans::C => self.trans.0 = Trans::T,
            Op::Herk | Op::Her2k if self.trans.0 == Trans::T => self.trans.0 = Trans::C,
            Op::Trmm | Op::Trsm => self.beta = Scalar::ONE,
            _ => {}
        }
        let real = |x: &mut Scalar| x.im = 0.0;
        if !self.precision.is_complex() || self.op == Op::Herk {
            real(&mut self.alpha);
        }
        if !self.precision.is_complex() || matches!(self.op, Op::Herk | Op::Her2k) {
            real(&mut self.beta);
        }
        self
    }

    fn square(&self) -> bool {
        use Op::{Gemmt, Gemmtr, Her2k, Herk, Syr2k, Syrk};
        matches!(self.op, Gemmtr | Gemmt | Syrk | Herk | Syr2k | Her2k)
    }

    /// A is symmetric or triangular.
    fn special(&self) -> bool {
        matches!(self.op, Op::Symm | Op::Hemm | Op::Trmm | Op::Trsm)
    }

    fn hermitian(&self) -> bool {
        matches!(self.op, Op::Hemm | Op::Herk | Op::Her2k)
    }

    fn stored_a(&self) -> (usize, usize) {
        let (m, _, k) = self.size;
        if self.special() {
            return (k, k);
        }
        if self.trans.0 == Trans::N {
            (m, k)
        } else {
            (k, m)
        }
    }

    fn stored_b(&self) -> Option<(usize, usize)> {
        let (m, n, k) = self.size;
        match self.op {
            Op::Gemm | Op::Gemm3m | Op::Gemmtr | Op::Gemmt => Some(if self.trans.1 == Trans::N {
                (k, n)
            } else {
                (n, k)
            }),
            Op::Symm | Op::Hemm => Some((m, n)),
            Op::Syr2k | Op::Her2k => Some(self.stored_a()),
            _ => None,
        }
    }

    /// The call; its operands are never read.
    pub fn call(&self) -> Level3Call<'static> {
        let elem_bytes = self.precision.elem_bytes();
        let (m, n, k) = self.size;
        let nowhere = core::ptr::without_provenance_mut::<u8>(1 << 12);
        let view = |(rows, cols): (usize, usize)| {
            // SAFETY: planners look at no element (the pointer is not even mapped).
            unsafe { MatRef::new(nowhere, rows, cols, rows, elem_bytes) }.expect("a valid shape")
        };
        // SAFETY: as above.
        let c = unsafe { MatMut::new(nowhere, m, n, m, elem_bytes) }.expect("a valid shape");
        Level3Call {
            op: self.op,
            precision: self.precision,
            side: self.side,
            uplo: self.uplo,
            transa: self.trans.0,
            transb: self.trans.1,
            diag: self.diag,
            m,
            n,
            k,
            alpha: self.alpha,
            beta: self.beta,
            a: view(self.stored_a()),
            b: self.stored_b().map(view),
            c,
        }
    }

    /// The elements of the result that belong to the call.
    pub fn writable(&self, i: usize, j: usize) -> bool {
        !self.square() || if self.uplo == Uplo::U { i <= j } else { i >= j }
    }

    /// The elements of an operand that the call may read.
    pub fn readable(&self, operand: Operand, i: usize, j: usize) -> bool {
        match operand {
            Operand::A if self.special() => {
                let unit = matches!(self.op, Op::Trmm | Op::Trsm) && self.diag == Diag::U;
                let stored = if self.uplo == Uplo::U { i <= j } else { i >= j };
                stored && !(unit && i == j)
            }
            Operand::A | Operand::B => true,
            Operand::C => self.call().reads_result() && self.writable(i, j),
            Operand::Vector(_) => false,
        }
    }

    /// Operands by chance; what may not be read is NaN.
    pub fn host(&self, seed: u64) -> Host {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut number = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        let complex = self.precision.is_complex();
        let mut matrix = |operand: Operand, (rows, cols): (usize, usize)| {
            let mut x = Matrix::filled(rows, cols, Complex::POISON);
            for j in 0..cols {
                for i in 0..rows {
                    let im = if complex { number() } else { 0.0 };
                    let mut value = Complex { re: number(), im };
                    if self.op == Op::Trsm && operand == Operand::A {
                        // Dominant diagonal: a well-conditioned system.
                        let scale = Complex {
                            re: 1.0 / rows as f64,
                            im: 0.0,
                        };
                        let lift = if i == j {
                            Complex { re: 2.0, im: 0.0 }
                        } else {
                            Complex::ZERO
                        };
                        value = value * scale + lift;
                    }
                    if self.readable(operand, i, j) {
                        x.set(i, j, value);
                    }
                }
            }
            x
        };
        let (m, n, _) = self.size;
        let case = *self;
        Host {
            a: matrix(Operand::A, self.stored_a()),
            b: self.stored_b().map(|shape| matrix(Operand::B, shape)),
            c: matrix(Operand::C, (m, n)),
            readable: Box::new(move |operand, i, j| case.readable(operand, i, j)),
            writable: Box::new(move |i, j| case.writable(i, j)),
        }
    }

    /// The factors X, Y of every product in C := sum of factor X Y + beta C.
    fn products(&self, host: &Host) -> Vec<(Complex, Matrix, Matrix)> {
        let (m, n, k) = self.size;
        let dense = |rows, cols, f: &dyn Fn(usize, usize) -> Complex| {
            let mut x = Matrix::filled(rows, cols, Complex::ZERO);
            for j in 0..cols {
                for i in 0..rows {
                    x.set(i, j, f(i, j));
                }
            }
            x
        };
        let a = |i, j| host.a.at(i, j);
        let b = |i, j| host.b.as_ref().expect("B").at(i, j);
        let c = |i, j| host.c.at(i, j);
        let op_a = |i, j| op(self.trans.0, &a, i, j);
        let conj = |x: Complex| if self.hermitian() { x.conj() } else { x };
        let alpha = Complex::from(self.alpha);
        let special = |i, j| match self.op {
            Op::Symm | Op::Hemm => symmetric(self.hermitian(), self.uplo, &a, i, j),
            _ => op(
                self.trans.0,
                &|i, j| triangular(self.uplo, self.diag, &a, i, j),
                i,
                j,
            ),
        };
        match self.op {
            Op::Gemm | Op::Gemm3m | Op::Gemmtr | Op::Gemmt => {
                let y = dense(k, n, &|i, j| op(self.trans.1, &b, i, j));
                vec![(alpha, dense(m, k, &op_a), y)]
            }
            Op::Syrk | Op::Herk => {
                vec![(
                    alpha,
                    dense(n, k, &op_a),
                    dense(k, n, &|i, j| conj(op_a(j, i))),
                )]
            }
            Op::Syr2k | Op::Her2k => {
                let op_b = |i, j| op(self.trans.0, &b, i, j);
                vec![
                    (
                        alpha,
                        dense(n, k, &op_a),
                        dense(k, n, &|i, j| conj(op_b(j, i))),
                    ),
                    (
                        conj(alpha),
                        dense(n, k, &op_b),
                        dense(k, n, &|i, j| conj(op_a(j, i))),
                    ),
                ]
            }
            _ => {
                let other: &dyn Fn(usize, usize) -> Complex =
                    if host.b.is_some() { &b } else { &c };
                let (x, y) = (dense(k, k, &special), dense(m, n, other));
                match self.side {
                    Side::L => vec![(alpha, x, y)],
                    Side::R => vec![(alpha, y, x)],
                }
            }
        }
    }

    /// Compares with the definition: |C - Cref| <= 8 sqrt(k + 1) eps (|factors| + |beta C|) elementwise
    /// (k products summed in any order, rounding errors of mixed sign; 2.8 for a complex product, and
    /// as much again as a margin). trsm's residual op(A) X - alpha B has the same bound with |A| |X|,
    /// since substitution is backward stable.
    pub fn check(&self, host: &Host, result: &Matrix) -> Result<(), String> {
        let (m, n, k) = self.size;
        let solve = self.op == Op::Trsm;
        let beta = if matches!(self.op, Op::Trmm | Op::Trsm) {
            Scalar::ZERO
        } else {
            self.beta
        };
        let solved;
        let host_of_products = if solve {
            solved = Host {
                a: host.a.clone(),
                b: None,
                c: result.clone(),
                readable: Box::new(|_, _, _| true),
                writable: Box::new(|_, _| true),
            };
            &solved
        } else {
            host
        };
        let mut products = self.products(host_of_products);
        if solve {
            products[0].0 = Complex::ONE;
        }
        for j in 0..n {
            for i in (0..m).filter(|&i| self.writable(i, j)) {
                let mut sum = Complex::ZERO;
                let mut size = 0.0;
                for (factor, x, y) in &products {
                    for l in 0..x.cols {
                        let zero = x.at(i, l) == Complex::ZERO || y.at(l, j) == Complex::ZERO;
                        if !zero {
                            let term = *factor * x.at(i, l) * y.at(l, j);
                            sum = sum + term;
                            size += term.abs();
                        }
                    }
                }
                let real = self.square() && self.hermitian() && i == j;
                let mut expected = sum;
                if !beta.is_zero() {
                    let mut old = host.c.at(i, j);
                    old.im = if real { 0.0 } else { old.im };
                    expected = expected + Complex::from(beta) * old;
                    size += (Complex::from(beta) * old).abs();
                }
                let mut got = result.at(i, j);
                if solve {
                    got = Complex::from(self.alpha) * host.c.at(i, j);
                    size += got.abs();
                } else if real {
                    expected.im = 0.0;
                    if got.im != 0.0 {
                        return Err(format!("C ({i}, {j}) = {got:?} is not real"));
                    }
                }
                let bound = 8.0 * ((k + 1) as f64).sqrt() * f64::EPSILON * size;
                let error = (got - expected).abs();
                if error.is_nan() || error > bound {
                    return Err(format!(
                        "C ({i}, {j}): {got:?}, expected {expected:?}, bound {bound:e}"
                    ));
                }
            }
        }
        Ok(())
    }
}
