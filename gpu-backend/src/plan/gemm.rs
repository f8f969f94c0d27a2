//! gemm with every operand on the device: the result grows by row fronts and column fronts, or the inner
//! dimension is cut. It must not decide whether the operands fit.

use super::Sizes;
use super::build::{Builder, Held, block, op_block};
use super::program::{Area, Kernel, Operand, Program, Tuning};
use call::{Level3Call, Scalar, Trans};
use std::ops::Range;

/// A gemm's operands on the device.
struct Gemm {
    trans: (Trans, Trans),
    alpha: Scalar,
    beta: Scalar,
    k: usize,
    a: Held,
    b: Held,
    c: Held,
    program: Builder,
}

/// The program of a gemm whose operands fit.
pub fn in_core(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Program {
    let (m, n, k) = (call.m, call.n, call.k);
    let mut program = Builder::default();
    let mut gemm = Gemm {
        trans: (call.transa, call.transb),
        alpha: call.alpha,
        beta: call.beta,
        k,
        a: program.mirror(Operand::A, op_block(call.transa, &(0..m), &(0..k))),
        b: program.mirror(Operand::B, op_block(call.transb, &(0..k), &(0..n))),
        c: program.mirror(Operand::C, block(&(0..m), &(0..n))),
        program,
    };
    let elem_bytes = call.precision.elem_bytes();
    let operands = (m as u128 + n as u128) * k as u128;
    if operands >= sizes.long_k as u128 * (m as u128 * n as u128) {
        let row_bytes = (m + n).saturating_mul(elem_bytes);
        gemm.cut_k(m, n, &sizes.cut(k, row_bytes, sizes.panels_max));
    } else {
        let row_bytes = |other: usize| (k + other).saturating_mul(elem_bytes);
        let a_panels = sizes.panels(m, n, row_bytes(n), tuning.sm_count);
        let b_panels = sizes.panels(n, m, row_bytes(m), tuning.sm_count);
        gemm.fronts(&a_panels, &b_panels);
    }
    gemm.program.finish(false)
}

impl Gemm {
    fn upload_a(&mut self, rows: &Range<usize>, inner: &Range<usize>) {
        let part = op_block(self.trans.0, rows, inner);
        self.program.upload(&self.a, part, Area::Full);
    }

    fn upload_b(&mut self, inner: &Range<usize>, cols: &Range<usize>) {
        let part = op_block(self.trans.1, inner, cols);
        self.program.upload(&self.b, part, Area::Full);
    }

    fn upload_c(&mut self, rows: &Range<usize>, cols: &Range<usize>) {
        if !self.beta.is_zero() {
            self.program.upload(&self.c, block(rows, cols), Area::Full);
        }
    }

    /// C(rows, cols) := alpha op(A)(rows, inner) op(B)(inner, cols) + beta C.
    fn multiply(&mut self, rows: &Range<usize>, cols: &Range<usize>, inner: &Range<usize>) {
        let beta = if inner.start == 0 {
            self.beta
        } else {
            Scalar::ONE
        };
        self.program.kernel(Kernel::Gemm {
            trans: self.trans,
            size: (rows.len(), cols.len(), inner.len()),
            alpha: self.alpha,
            a: self.a.place(&op_block(self.trans.0, rows, inner)),
            b: self.b.place(&op_block(self.trans.1, inner, cols)),
            beta,
            c: self.c.place(&block(rows, cols)),
        });
    }

    /// One block of the result, with its old value up and its new one down.
    fn front(&mut self, rows: &Range<usize>, cols: &Range<usize>) {
        self.upload_c(rows, cols);
        self.multiply(rows, cols, &(0..self.k));
        self.program
            .download(&self.c, block(rows, cols), Area::Full);
        self.program.next();
    }

    /// One panel of A or B a step, always the one that unlocks more flops for its bytes: a panel of A
    /// unlocks as many for each of its rows as columns of B are there, and the other way round.
    fn fronts(&mut self, a_panels: &[Range<usize>], b_panels: &[Range<usize>]) {
        let inner = 0..self.k;
        let (mut a_panels, mut b_panels) = (a_panels.iter(), b_panels.iter());
        let (Some(first_rows), Some(first_cols)) = (a_panels.next(), b_panels.next()) else {
            return;
        };
        self.upload_a(first_rows, &inner);
        self.upload_b(&inner, first_cols);
        self.front(first_rows, first_cols);
        let (mut rows_there, mut cols_there) = (first_rows.end, first_cols.end);
        loop {
            let take_a = b_panels.len() == 0 || cols_there >= rows_there;
            if let Some(rows) = a_panels.as_slice().first().filter(|_| take_a) {
                a_panels.next();
                self.upload_a(rows, &inner);
                self.front(rows, &(0..cols_there));
                rows_there = rows.end;
            } else if let Some(cols) = b_panels.next() {
                self.upload_b(&inner, cols);
                self.front(&(0..rows_there), cols);
                cols_there = cols.end;
            } else {
                return;
            }
        }
    }

    /// Panels of the inner dimension; the result comes back at the end.
    fn cut_k(&mut self, m: usize, n: usize, panels: &[Range<usize>]) {
        let (rows, cols) = (0..m, 0..n);
        for inner in panels {
            self.upload_a(&rows, inner);
            self.upload_b(inner, &cols);
            if inner.start == 0 {
                self.upload_c(&rows, &cols);
            }
            self.multiply(&rows, &cols, inner);
            if inner.end == self.k {
                self.program
                    .download(&self.c, block(&rows, &cols), Area::Full);
            }
            self.program.next();
        }
    }
}
