//! Every level-3 routine by its definition: loops over complex float64, for small matrices only.

use call::{Diag, Level3Call, MatRef, Op, Precision, Side, Trans, Uplo};

/// A complex number.
pub type Number = [f64; 2];

const ZERO: Number = [0.0; 2];
const ONE: Number = [1.0, 0.0];

fn add(x: Number, y: Number) -> Number {
    [x[0] + y[0], x[1] + y[1]]
}

fn mul(x: Number, y: Number) -> Number {
    [x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]]
}

fn div(x: Number, y: Number) -> Number {
    let d = y[0] * y[0] + y[1] * y[1];
    let [re, im] = mul(x, conj(y));
    [re / d, im / d]
}

fn conj(x: Number) -> Number {
    [x[0], -x[1]]
}

/// The element's number.
pub fn from_bytes(bytes: &[u8], precision: Precision) -> Number {
    let single = |i: usize| {
        f64::from(f32::from_ne_bytes(
            bytes[4 * i..][..4].try_into().expect("4 bytes"),
        ))
    };
    let double = |i: usize| f64::from_ne_bytes(bytes[8 * i..][..8].try_into().expect("8 bytes"));
    match precision {
        Precision::S => [single(0), 0.0],
        Precision::D => [double(0), 0.0],
        Precision::C => [single(0), single(1)],
        Precision::Z => [double(0), double(1)],
    }
}

/// The number as an element.
pub fn to_bytes(number: Number, precision: Precision) -> Vec<u8> {
    let parts = if precision.is_complex() { 2 } else { 1 };
    let part = |x: &f64| match precision.real() {
        Precision::S => (*x as f32).to_ne_bytes().to_vec(),
        _ => x.to_ne_bytes().to_vec(),
    };
    number[..parts].iter().flat_map(part).collect()
}

struct Reader<'a>(Precision, MatRef<'a>);

impl Reader<'_> {
    fn at(&self, i: usize, j: usize) -> Number {
        from_bytes(self.1.column_piece(j, i, 1), self.0)
    }

    fn op(&self, trans: Trans, i: usize, j: usize) -> Number {
        match trans {
            Trans::N => self.at(i, j),
            Trans::T => self.at(j, i),
            Trans::C => conj(self.at(j, i)),
        }
    }

    /// Of a symmetric or Hermitian matrix of which one triangle is stored.
    fn symmetric(&self, uplo: Uplo, hermitian: bool, i: usize, j: usize) -> Number {
        let stored = i == j || (i < j) == (uplo == Uplo::U);
        let value = if stored { self.at(i, j) } else { self.at(j, i) };
        match (hermitian, stored) {
            (true, false) => conj(value),
            (true, true) if i == j => [value[0], 0.0],
            _ => value,
        }
    }

    /// Of op(A), A triangular.
    fn triangular(&self, uplo: Uplo, diag: Diag, trans: Trans, i: usize, j: usize) -> Number {
        let (row, col) = if trans == Trans::N { (i, j) } else { (j, i) };
        if row == col {
            return if diag == Diag::U {
                ONE
            } else {
                self.op(trans, i, j)
            };
        }
        if (row < col) == (uplo == Uplo::U) {
            self.op(trans, i, j)
        } else {
            ZERO
        }
    }
}

fn sum(k: usize, term: impl Fn(usize) -> Number) -> Number {
    (0..k).map(term).fold(ZERO, add)
}

/// True if element (i, j) of the result belongs to the call.
pub fn in_result(g: &Level3Call<'_>, i: usize, j: usize) -> bool {
    match g.result_triangle() {
        None => true,
        Some(Uplo::U) => i <= j,
        Some(Uplo::L) => i >= j,
    }
}

/// The result, m x n column-major; what does not belong to the call is of no meaning.
pub fn result(g: &Level3Call<'_>) -> Vec<Number> {
    let alpha = [g.alpha.re, g.alpha.im];
    if g.op == Op::Trsm {
        return solve(g, alpha);
    }
    let c = Reader(g.precision, g.c.as_ref());
    let mut out = Vec::with_capacity(g.m * g.n);
    for j in 0..g.n {
        for i in 0..g.m {
            let mut value = product(g, alpha, i, j);
            if g.op != Op::Trmm && !g.beta.is_zero() {
                value = add(value, mul([g.beta.re, g.beta.im], c.at(i, j)));
            }
            if matches!(g.op, Op::Herk | Op::Her2k) && i == j {
                value[1] = 0.0;
            }
            out.push(value);
        }
    }
    out
}

/// alpha times the product's element.
fn product(g: &Level3Call<'_>, alpha: Number, i: usize, j: usize) -> Number {
    let a = Reader(g.precision, g.a);
    let in_place = Reader(g.precision, g.c.as_ref());
    let b = g.b.map(|b| Reader(g.precision, b));
    let b = b.as_ref().unwrap_or(&in_place);
    // The second factor of a rank-k update, and what becomes of the first one when it stands second.
    let (first, second) = match (g.op, g.transa) {
        (Op::Herk | Op::Her2k, Trans::N) => (Trans::N, Trans::C),
        (Op::Herk | Op::Her2k, _) => (Trans::C, Trans::N),
        (_, Trans::N) => (Trans::N, Trans::T),
        _ => (Trans::T, Trans::N),
    };
    let update =
        |x: &Reader<'_>, y: &Reader<'_>| sum(g.k, |l| mul(x.op(first, i, l), y.op(second, l, j)));
    let hermitian = g.op == Op::Hemm;
    match g.op {
        Op::Syrk | Op::Herk => mul(alpha, update(&a, &a)),
        Op::Syr2k => mul(alpha, add(update(&a, b), update(b, &a))),
        Op::Her2k => add(mul(alpha, update(&a, b)), mul(conj(alpha), update(b, &a))),
        Op::Symm | Op::Hemm if g.side == Side::L => mul(
            alpha,
            sum(g.k, |l| {
                mul(a.symmetric(g.uplo, hermitian, i, l), b.at(l, j))
            }),
        ),
        Op::Symm | Op::Hemm => mul(
            alpha,
            sum(g.k, |l| {
                mul(b.at(i, l), a.symmetric(g.uplo, hermitian, l, j))
            }),
        ),
        Op::Trmm => mul(
            alpha,
            sum(g.k, |l| match g.side {
                Side::L => mul(a.triangular(g.uplo, g.diag, g.transa, i, l), b.at(l, j)),
                Side::R => mul(b.at(i, l), a.triangular(g.uplo, g.diag, g.transa, l, j)),
            }),
        ),
        _ => mul(
            alpha,
            sum(g.k, |l| mul(a.op(g.transa, i, l), b.op(g.transb, l, j))),
        ),
    }
}

/// Solves op(A) X = alpha B or X op(A) = alpha B by substitution.
fn solve(g: &Level3Call<'_>, alpha: Number) -> Vec<Number> {
    let a = Reader(g.precision, g.a);
    let b = Reader(g.precision, g.c.as_ref());
    let left = g.side == Side::L;
    // A row of the transposed equation is a row of the equation from the right.
    let t = |i: usize, l: usize| {
        let (row, col) = if left { (i, l) } else { (l, i) };
        a.triangular(g.uplo, g.diag, g.transa, row, col)
    };
    let backward = ((g.uplo == Uplo::U) == (g.transa == Trans::N)) == left;
    let mut x = vec![ZERO; g.m * g.n];
    for line in 0..(if left { g.n } else { g.m }) {
        let at = |i: usize| if left { line * g.m + i } else { i * g.m + line };
        for step in 0..g.k {
            let i = if backward { g.k - 1 - step } else { step };
            let known = sum(g.k, |l| if l == i { ZERO } else { mul(t(i, l), x[at(l)]) });
            let right = mul(alpha, if left { b.at(i, line) } else { b.at(line, i) });
            x[at(i)] = div(add(right, mul([-1.0, 0.0], known)), t(i, i));
        }
    }
    x
}
