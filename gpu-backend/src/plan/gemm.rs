//! gemm with every operand on the device: the result grows by row fronts and column fronts, or the inner
//! dimension is cut. It must not decide whether the operands fit.

use super::build::{Builder, Held, block};
use super::program::{Area, Operand, Program, Tuning};
use super::rates;
use super::sizes::{Sizes, Widths};
use super::update::{Panels, Update};
use call::{Level3Call, Precision};
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
        let row_bytes = |other: usize| k.saturating_add(other).saturating_mul(elem_bytes);
        let a_widths = sizes.widths(m, n, row_bytes(n), tuning.sm_count);
        let b_widths = sizes.widths(n, m, row_bytes(m), tuning.sm_count);
        let lead = gemm.lead((m, n), call.precision, sizes);
        gemm.fronts(lead, &a_widths, &b_widths);
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
    fn front(&mut self, rows: &Range<usize>, cols: &Range<usize>, inner: &Range<usize>) {
        if inner.start == 0 {
            self.upload_c(rows, cols);
        }
        self.multiply(rows, cols, inner);
        self.program
            .download(&self.c, block(rows, cols), Area::Full);
        self.program.next();
    }

    /// The part of the inner dimension that is multiplied first, for the whole result.
    fn lead(&mut self, (m, n): (usize, usize), precision: Precision, sizes: &Sizes) -> usize {
        let elem_bytes = precision.elem_bytes();
        let lead = (self.k / 100 * sizes.lead_percent) / sizes.tile * sizes.tile;
        let (edges, k) = ((m + n) as f64, self.k as f64);
        let kernels_s =
            m as f64 * n as f64 * k * precision.flops_of_madd() / rates::KERNEL_FLOPS_PER_S;
        let uploads_s = edges * k * elem_bytes as f64 / rates::UP_BYTES_PER_S;
        let downloads_s = m as f64 * n as f64 * elem_bytes as f64 / rates::DOWN_BYTES_PER_S;
        // Nothing comes back meanwhile, so the downloads must not be what takes longest.
        let heavy = kernels_s * 100.0 >= uploads_s * sizes.lead_from_percent as f64
            && (kernels_s >= downloads_s || sizes.lead_from_percent == 0);
        // With an old result its upload would come first, and nothing be unlocked by it.
        if lead == 0 || !heavy || !self.update.beta.is_zero() {
            return 0;
        }
        let (rows, cols) = (0..m, 0..n);
        let row_bytes = (m + n).saturating_mul(elem_bytes);
        for inner in sizes.cut(lead, row_bytes, sizes.panels_max) {
            self.upload_a(&rows, &inner);
            self.upload_b(&inner, &cols);
            self.multiply(&rows, &cols, &inner);
            self.program.next();
        }
        lead
    }

    /// One panel of A or B a step, always the one that unlocks more flops for its bytes: a panel of A
    /// unlocks as many for each of its rows as columns of B are there, and the other way round.
    fn fronts(&mut self, lead: usize, a_widths: &Widths, b_widths: &Widths) {
        let inner = lead..self.k;
        let (mut rows_there, mut cols_there) = (0, 0);
        loop {
            let rows = a_widths.next(rows_there, cols_there, false);
            let cols = b_widths.next(cols_there, rows_there, false);
            match (rows, cols) {
                (Some(rows), Some(cols)) if rows_there == 0 => {
                    self.upload_a(&rows, &inner);
                    self.upload_b(&inner, &cols);
                    self.front(&rows, &cols, &inner);
                    (rows_there, cols_there) = (rows.end, cols.end);
                }
                (Some(rows), cols) if cols.is_none() || cols_there >= rows_there => {
                    self.upload_a(&rows, &inner);
                    self.front(&rows, &(0..cols_there), &inner);
                    rows_there = rows.end;
                }
                (_, Some(cols)) => {
                    self.upload_b(&inner, &cols);
                    self.front(&(0..rows_there), &cols, &inner);
                    cols_there = cols.end;
                }
                (_, None) => return,
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
