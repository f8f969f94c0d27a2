//! A level-3 result on both sides, element by element; of trsm the residuals.

use super::dense::{Dense, Number, Op, Part, largest, less, norm, probe, size};
use super::measures::ratio;
use call::{Level3Call, MatRef};
use routines::{Diag, Op as Family, Side, Trans};

/// Terms of a product: the sizes of what each element is a sum of.
struct Term {
    rows: Vec<f64>,
    cols: Vec<f64>,
}

fn op(trans: Trans) -> Op {
    match trans {
        Trans::N => Op::N,
        Trans::T => Op::T,
        Trans::C => Op::C,
    }
}

fn across(of: Op) -> Op {
    match of {
        Op::N => Op::T,
        _ => Op::N,
    }
}

fn term(a: &Dense<'_>, op_a: Op, b: &Dense<'_>, op_b: Op) -> Term {
    Term {
        rows: a.row_norms(op_a),
        cols: b.row_norms(across(op_b)),
    }
}

/// A as its family reads it.
fn special<'a>(call: &Level3Call<'a>) -> Dense<'a> {
    let a = Dense::new(call.a, call.precision);
    let part = match call.op {
        Family::Symm | Family::Hemm => Part::Mirrored {
            uplo: call.uplo,
            hermitian: call.op == Family::Hemm,
        },
        Family::Trmm | Family::Trsm => Part::Triangle {
            uplo: call.uplo,
            unit: call.diag == Diag::U,
        },
        _ => Part::Full,
    };
    a.part(part)
}

/// What each element of the result is a sum of. `old` is the result's value before, where it is an operand.
fn terms(call: &Level3Call<'_>, old: Option<Dense<'_>>) -> Vec<Term> {
    let a = special(call);
    let b = call.b.map(|b| Dense::new(b, call.precision)).or(old);
    let Some(b) = b.or(Some(a)) else {
        return Vec::new();
    };
    let (op_a, op_b) = (op(call.transa), op(call.transb));
    match call.op {
        Family::Syrk | Family::Herk => vec![term(&a, op_a, &a, across(op_a))],
        Family::Syr2k | Family::Her2k => vec![
            term(&a, op_a, &b, across(op_a)),
            term(&b, op_a, &a, across(op_a)),
        ],
        Family::Symm | Family::Hemm => match call.side {
            Side::L => vec![term(&a, Op::N, &b, Op::N)],
            Side::R => vec![term(&b, Op::N, &a, Op::N)],
        },
        Family::Trmm => match call.side {
            Side::L => vec![term(&a, op_a, &b, Op::N)],
            Side::R => vec![term(&b, Op::N, &a, op_a)],
        },
        _ => vec![term(&a, op_a, &b, op_b)],
    }
}

/// The largest difference of the sides, in units of sqrt(k) eps |A| |B| for its own row and column.
pub fn elements(
    call: &Level3Call<'_>,
    before: Option<MatRef<'_>>,
    gpu: MatRef<'_>,
    cpu: MatRef<'_>,
    eps: f64,
) -> f64 {
    let dense = |view| Dense::new(view, call.precision);
    let old = before.map(dense);
    let terms = terms(call, old.filter(|_| call.op == Family::Trmm));
    let alpha = size(Number::new(call.alpha.re, call.alpha.im));
    let beta = match call.op {
        Family::Trmm => 0.0,
        _ => size(Number::new(call.beta.re, call.beta.im)),
    };
    let part = match call.result_triangle() {
        Some(uplo) => Part::Triangle { uplo, unit: false },
        None => Part::Full,
    };
    let root = (call.k.max(1) as f64).sqrt();
    let (gpu, mut worst) = (dense(gpu), 0.0);
    dense(cpu).part(part).each(|i, j, cpu| {
        let product: f64 = terms.iter().map(|t| t.rows[i] * t.cols[j]).sum();
        let kept = match old {
            Some(old) if beta != 0.0 => beta * size(old.at(i, j)),
            _ => 0.0,
        };
        let error = size(gpu.at(i, j) - cpu);
        worst = largest(worst, ratio(error, (alpha * product + kept) * root * eps));
    });
    worst
}

/// The residual of a triangular solution `x` of op(A) X = alpha B or X op(A) = alpha B.
pub fn solution(call: &Level3Call<'_>, before: MatRef<'_>, x: MatRef<'_>, eps: f64) -> f64 {
    let dense = |view| Dense::new(view, call.precision);
    let (a, b, x) = (special(call), dense(before), dense(x));
    let (op_a, y) = (op(call.transa), probe(call.n));
    let alpha = Number::new(call.alpha.re, call.alpha.im);
    let right: Vec<Number> = b.times(Op::N, &y).iter().map(|v| alpha * v).collect();
    let left = match call.side {
        Side::L => a.times(op_a, &x.times(Op::N, &y)),
        Side::R => x.times(Op::N, &a.times(op_a, &y)),
    };
    let scale = match call.side {
        Side::L => a.norm(op_a) * x.norm(Op::N),
        Side::R => x.norm(Op::N) * a.norm(op_a),
    };
    let n = (call.m.max(call.n) as f64).sqrt();
    ratio(norm(&less(&left, &right)), scale * norm(&y) * n * eps)
}
