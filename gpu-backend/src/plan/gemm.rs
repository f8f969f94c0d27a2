//! gemm with every operand on the device: the result grows by row fronts and column fronts, or the inner
//! dimension is cut. It must not decide whether the operands fit.

use super::build::{Builder, Held, block};
use super::program::{Area, Operand, Program, Tuning};
use super::sizes::Sizes;
use super::update::{Panels, Update};
use call::Level3Call;
use std::ops::Range;

/// A gemm's operands on the device.
struct Gemm {
    update: Update,
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
    let update = Update::new(call);
    let mut gemm = Gemm {
        update,
        k,
        a: program.mirror(Operand::A, update.row_part(&(0..m), &(0..k))),
        b: program.mirror(Operand::B, update.col_part(&(0..k), &(0..n))),
        c: program.mirror(Operand::C, block(&(0..m), &(0..n))),
        program,
    };
    let elem_bytes = call.precision.elem_bytes();
    if sizes.cuts_k(m, n, k) {
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
        let part = self.update.row_part(rows, inner);
        self.program.upload(&self.a, part, Area::Full);
    }

    fn upload_b(&mut self, inner: &Range<usize>, cols: &Range<usize>) {
        let part = self.update.col_part(inner, cols);
        self.program.upload(&self.b, part, Area::Full);
    }

    fn upload_c(&mut self, rows: &Range<usize>, cols: &Range<usize>) {
        if !self.update.beta.is_zero() {
            self.program.upload(&self.c, block(rows, cols), Area::Full);
        }
    }

    fn multiply(&mut self, rows: &Range<usize>, cols: &Range<usize>, inner: &Range<usize>) {
        let panels = Panels {
            a_rows: self.a,
            b_rows: self.b,
            a_cols: self.a,
            b_cols: self.b,
        };
        let kernels = self.update.kernels(rows, cols, inner, &panels, &self.c);
        self.program.kernels(kernels);
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
