//! One call of any level-3 family, its operands, and what it must give by the definition.

use super::{Matrix, Number, Random, modulus, mul};
use call::{
    Backend, Call, Diag, Failure, Level3Call, MatMut, MatRef, Op, Precision, Scalar, Side, Timing,
    Trans, Uplo,
};
use gpu_backend::Gpu;

/// A call.
#[derive(Clone)]
pub struct Family {
    pub op: Op,
    pub precision: Precision,
    pub side: Side,
    pub uplo: Uplo,
    pub trans: (Trans, Trans),
    pub diag: Diag,
    pub size: (usize, usize, usize),
    pub alpha: Scalar,
    pub beta: Scalar,
    pub a: Matrix,
    pub b: Option<Matrix>,
    pub c: Matrix,
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

fn conj(x: Number) -> Number {
    (x.0, -x.1)
}

impl Family {
    /// True if the family exists in this precision.
    pub fn exists(op: Op, precision: Precision) -> bool {
        let complex_only = matches!(op, Op::Gemm3m | Op::Hemm | Op::Herk | Op::Her2k);
        precision.is_complex() || !complex_only
    }

    /// Random flags, scalars and operands; `edge` is the largest of m, n, k.
    pub fn random(op: Op, precision: Precision, edge: usize, random: &mut Random) -> Self {
        let complex = precision.is_complex();
        let (m, n, k) = (
            1 + random.below(edge),
            1 + random.below(edge),
            1 + random.below(edge),
        );
        let side = pick(random, &[Side::L, Side::R]);
        let hermitian = matches!(op, Op::Herk | Op::Her2k);
        let rank_k = matches!(op, Op::Syrk | Op::Herk | Op::Syr2k | Op::Her2k);
        let one_trans: &[Trans] = match (rank_k, complex, hermitian) {
            (true, true, true) => &[Trans::N, Trans::C],
            (true, true, false) => &[Trans::N, Trans::T],
            _ => &[Trans::N, Trans::T, Trans::C],
        };
        let trans = (
            pick(random, one_trans),
            pick(random, &[Trans::N, Trans::T, Trans::C]),
        );
        let triangular = matches!(op, Op::Trmm | Op::Trsm);
        let order = if side == Side::L { m } else { n };
        let triangle = matches!(op, Op::Gemmtr | Op::Gemmt) || rank_k;
        let size = match op {
            Op::Symm | Op::Hemm | Op::Trmm | Op::Trsm => (m, n, order),
            _ if triangle => (n, n, k),
            _ => (m, n, k),
        };
        let mut scalar = |real: bool| {
            let im = if complex && !real { random.next() } else { 0.0 };
            Scalar {
                re: 0.5 + random.next().abs(),
                im,
            }
        };
        let alpha = scalar(op == Op::Herk);
        let some = scalar(hermitian);
        let beta = match (triangular, random.below(3)) {
            (true, _) | (_, 0) => Scalar::ONE,
            (_, 1) => Scalar::ZERO,
            _ => some,
        };
        let gap = random.below(4);
        let op_shape = |t: Trans, r: usize, c: usize| if t == Trans::N { (r, c) } else { (c, r) };
        let (m, n, k) = size;
        let a_shape = match op {
            Op::Symm | Op::Hemm | Op::Trmm | Op::Trsm => (order, order),
            _ if rank_k => op_shape(trans.0, n, k),
            _ => op_shape(trans.0, m, k),
        };
        let b_shape = match op {
            Op::Trmm | Op::Trsm | Op::Syrk | Op::Herk => None,
            Op::Symm | Op::Hemm => Some((m, n)),
            _ if rank_k => Some(op_shape(trans.0, n, k)),
            _ => Some(op_shape(trans.1, k, n)),
        };
        let mut matrix = |(rows, cols): (usize, usize), gap: usize| {
            Matrix::random(precision, rows, cols, rows + gap, random)
        };
        let mut a = matrix(a_shape, gap);
        let b = b_shape.map(|shape| matrix(shape, 2 * gap));
        let c = matrix((m, n), 3 * gap);
        if op == Op::Trsm {
            // Well conditioned whatever is transposed; a unit diagonal wants small neighbours.
            for j in 0..order {
                for i in 0..order {
                    let (re, im) = a.get(i, j);
                    let scale = 1.0 / order as f64;
                    let value = (re * scale, im * scale);
                    a.set(
                        i,
                        j,
                        if i == j {
                            (2.0 + value.0, value.1)
                        } else {
                            value
                        },
                    );
                }
            }
        }
        Self {
            op,
            precision,
            side,
            uplo: pick(random, &[Uplo::U, Uplo::L]),
            trans,
            diag: pick(random, &[Diag::N, Diag::U]),
            size,
            alpha,
            beta,
            a,
            b,
            c,
        }
    }

    /// Runs it on the device and puts the result into `c`.
    pub fn run(&mut self, gpu: &Gpu) -> Result<Timing, Failure> {
        let elem = self.precision.elem_bytes();
        let view = |x: &Matrix| {
            // SAFETY: the bytes hold exactly the matrix's span.
            unsafe { MatRef::new(x.bytes.as_ptr(), x.rows, x.cols, x.ld, elem) }.expect("a view")
        };
        let (m, n, k) = self.size;
        let (a, b) = (view(&self.a), self.b.as_ref().map(view));
        let c = self.c.bytes.as_mut_ptr();
        // SAFETY: as above; nobody else holds it.
        let c = unsafe { MatMut::new(c, m, n, self.c.ld, elem) }.expect("a view");
        let mut call = Call::Level3(Level3Call {
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
            a,
            b,
            c,
        });
        gpu.run(&mut call)
    }

    fn hermitian(&self) -> bool {
        matches!(self.op, Op::Hemm | Op::Herk | Op::Her2k)
    }

    /// True if the old value of the result is read.
    pub fn reads_result(&self) -> bool {
        matches!(self.op, Op::Trmm | Op::Trsm) || !self.beta.is_zero()
    }

    fn inside(&self, i: usize, j: usize) -> bool {
        let triangle = matches!(
            self.op,
            Op::Gemmtr | Op::Gemmt | Op::Syrk | Op::Herk | Op::Syr2k | Op::Her2k
        );
        !triangle || self.stored(i, j)
    }

    fn stored(&self, i: usize, j: usize) -> bool {
        match self.uplo {
            Uplo::U => i <= j,
            Uplo::L => i >= j,
        }
    }

    /// Element of the symmetric or Hermitian A.
    fn symmetric(&self, i: usize, j: usize) -> Number {
        let value = if self.stored(i, j) {
            self.a.get(i, j)
        } else if self.op == Op::Hemm {
            conj(self.a.get(j, i))
        } else {
            self.a.get(j, i)
        };
        if self.op == Op::Hemm && i == j {
            (value.0, 0.0)
        } else {
            value
        }
    }

    /// Element of op(A), A triangular.
    fn triangular(&self, i: usize, j: usize) -> Number {
        let (r, c) = if self.trans.0 == Trans::N {
            (i, j)
        } else {
            (j, i)
        };
        let value = match (r == c, self.diag) {
            (true, Diag::U) => (1.0, 0.0),
            _ if self.stored(r, c) => self.a.get(r, c),
            _ => (0.0, 0.0),
        };
        if self.trans.0 == Trans::C {
            conj(value)
        } else {
            value
        }
    }

    /// Row i of the left factor of a rank-k update.
    fn rank(&self, x: &Matrix, i: usize, l: usize) -> Number {
        x.op(self.trans.0, i, l)
    }

    /// (sum, sum of absolute values) of the products of element (i, j), alpha included; `right` is the
    /// matrix that the triangular A multiplies.
    fn products(&self, right: &Matrix, i: usize, j: usize) -> (Number, f64) {
        let turn = |x: Number| if self.hermitian() { conj(x) } else { x };
        let alpha = (self.alpha.re, self.alpha.im);
        let (mut sum, mut size) = ((0.0, 0.0), 0.0);
        let mut add = |factor: Number, x: Number, y: Number| {
            let p = mul(factor, mul(x, y));
            sum = (sum.0 + p.0, sum.1 + p.1);
            size += modulus(factor) * modulus(x) * modulus(y);
        };
        for l in 0..self.size.2 {
            match (self.op, &self.b, self.side) {
                (Op::Symm | Op::Hemm, Some(b), Side::L) => {
                    add(alpha, self.symmetric(i, l), b.get(l, j));
                }
                (Op::Symm | Op::Hemm, Some(b), Side::R) => {
                    add(alpha, b.get(i, l), self.symmetric(l, j));
                }
                (Op::Syrk | Op::Herk, _, _) => {
                    add(
                        alpha,
                        self.rank(&self.a, i, l),
                        turn(self.rank(&self.a, j, l)),
                    );
                }
                (Op::Syr2k | Op::Her2k, Some(b), _) => {
                    add(alpha, self.rank(&self.a, i, l), turn(self.rank(b, j, l)));
                    add(
                        turn(alpha),
                        self.rank(b, i, l),
                        turn(self.rank(&self.a, j, l)),
                    );
                }
                (Op::Trmm | Op::Trsm, _, Side::L) => {
                    add(alpha, self.triangular(i, l), right.get(l, j));
                }
                (Op::Trmm | Op::Trsm, _, Side::R) => {
                    add(alpha, right.get(i, l), self.triangular(l, j));
                }
                (_, Some(b), _) => {
                    add(
                        alpha,
                        self.a.op(self.trans.0, i, l),
                        b.op(self.trans.1, l, j),
                    );
                }
                _ => unreachable!("a family without its B"),
            }
        }
        (sum, size)
    }

    /// Checks `result` against the definition: |C - Cref| <= 4 sqrt(k) eps |alpha| |A| |B| + 4 eps |beta C|
    /// elementwise; for trsm the residual |op(A) X - alpha B| <= 4 sqrt(k) eps (|A| |X| + |alpha B|). What
    /// does not belong to the result is as it was, to the bit.
    pub fn check(&self, result: &Matrix) {
        let eps = match self.precision {
            Precision::S | Precision::C => f64::from(f32::EPSILON),
            Precision::D | Precision::Z => f64::EPSILON,
        };
        let scale = 4.0 * (self.size.2 as f64).sqrt() * eps;
        let mut solved = self.clone();
        solved.alpha = Scalar::ONE;
        for j in 0..self.size.1 {
            for i in 0..self.size.0 {
                let (before, got) = (self.c.get(i, j), result.get(i, j));
                if !self.inside(i, j) {
                    assert_eq!(got, before, "{} wrote ({i}, {j})", self.name());
                    continue;
                }
                let (expected, got, bound) = if self.op == Op::Trsm {
                    let (left, size) = solved.products(result, i, j);
                    let right = mul((self.alpha.re, self.alpha.im), before);
                    (right, left, scale * (size + modulus(right)))
                } else {
                    let (sum, size) = self.products(&self.c, i, j);
                    let mut expected = (sum, scale * size);
                    if self.op != Op::Trmm && !self.beta.is_zero() {
                        let mut old = before;
                        if self.hermitian() && self.op != Op::Hemm && i == j {
                            old.1 = 0.0;
                        }
                        let add = mul((self.beta.re, self.beta.im), old);
                        expected.0 = (sum.0 + add.0, sum.1 + add.1);
                        expected.1 += 4.0 * eps * modulus(add);
                    }
                    (expected.0, got, expected.1)
                };
                let error = modulus((got.0 - expected.0, got.1 - expected.1));
                assert!(
                    error <= bound,
                    "{}: ({i}, {j}) is {got:?}, expected {expected:?}, error {error:e} > {bound:e}",
                    self.name()
                );
            }
        }
        result.assert_gaps_untouched();
    }

    /// A call like [`Family::random`] with m, n and k of at least four fifths of `edge`, and with this
    /// beta where the family has one.
    pub fn sized(
        op: Op,
        precision: Precision,
        edge: usize,
        beta: f64,
        random: &mut Random,
    ) -> Self {
        loop {
            let mut family = Self::random(op, precision, edge, random);
            let (m, n, k) = family.size;
            if m.min(n).min(k) * 5 < edge * 4 {
                continue;
            }
            if !matches!(op, Op::Trmm | Op::Trsm) {
                family.beta = Scalar { re: beta, im: 0.0 };
            }
            return family;
        }
    }

    /// What does not belong to the result is as it was, to the bit, and the operands are.
    pub fn assert_only_result_differs(&self, done: &Self) {
        assert!(done.a.bytes == self.a.bytes, "A was written");
        let b = |family: &Self| family.b.as_ref().map(|b| b.bytes.clone());
        assert!(b(done) == b(self), "B was written");
        for j in 0..self.size.1 {
            for i in 0..self.size.0 {
                let (before, now) = (self.c.get(i, j), done.c.get(i, j));
                assert!(
                    self.inside(i, j) || before == now,
                    "({i}, {j}) was written, which is not of the result"
                );
            }
        }
        done.c.assert_gaps_untouched();
    }

    /// Its flags, for messages.
    pub fn name(&self) -> String {
        format!(
            "{}{} side {:?} uplo {:?} trans {:?} diag {:?} size {:?} alpha {:?} beta {:?}",
            self.precision.letter(),
            self.op.name(),
            self.side,
            self.uplo,
            self.trans,
            self.diag,
            self.size,
            self.alpha,
            self.beta
        )
    }

    /// Runs and checks.
    pub fn run_and_check(&self, gpu: &Gpu) {
        let mut done = self.clone();
        let ran = done.run(gpu);
        assert!(ran.is_ok(), "{}: {ran:?}", self.name());
        self.check(&done.c);
    }
}
