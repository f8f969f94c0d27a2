//! gemmtr, syrk, herk, syr2k, her2k with every operand on the device: the triangle grows by one front for
//! each panel, or the inner dimension is cut. It must not decide whether the operands fit.

use super::build::{Builder, Held, block, triangle};
use super::program::{Area, Operand, Program, Tuning};
use super::sizes::Sizes;
use super::update::{Panels, Update};
use call::{Level3Call, Uplo};
use std::ops::Range;

/// The operands on the device.
struct RankK {
    update: Update,
    uplo: Uplo,
    k: usize,
    /// Mirrors of A and, where the family has one, B.
    a: Held,
    b: Option<Held>,
    c: Held,
    program: Builder,
}

/// The program of a call whose result is a triangle and whose operands fit.
pub fn in_core(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Program {
    let (n, k) = (call.n, call.k);
    let update = Update::new(call);
    let mut program = Builder::default();
    let a = program.mirror(Operand::A, update.row_part(&(0..n), &(0..k)));
    let b = update.col_operands().contains(&Operand::B).then(|| {
        let stored = update.col_part(&(0..k), &(0..n));
        program.mirror(Operand::B, stored)
    });
    let c = program.mirror(Operand::C, block(&(0..n), &(0..n)));
    let uplo = call.uplo;
    let mut rank_k = RankK {
        update,
        uplo,
        k,
        a,
        b,
        c,
        program,
    };
    let elem_bytes = call.precision.elem_bytes();
    let operands = 1 + usize::from(b.is_some());
    if sizes.cuts_k(n, n, k.saturating_mul(operands)) {
        let row_bytes = n.saturating_mul(elem_bytes * operands);
        let panels = sizes.cut(k, row_bytes, sizes.panels_max);
        rank_k.cut_k(n, &panels, sizes);
    } else {
        let row_bytes =
            (k.saturating_mul(operands).saturating_add(n / 2)).saturating_mul(elem_bytes);
        let widths = sizes.widths(n, n, row_bytes, tuning.sm_count);
        let mut there = 0;
        while let Some(panel) = widths.next(there, there, rank_k.whole_blocks()) {
            there = panel.end;
            rank_k.front(&panel);
        }
    }
    rank_k.program.finish(false)
}

impl RankK {
    /// The operands' rows and columns that a range of the result needs.
    fn upload(&mut self, panel: &Range<usize>, inner: &Range<usize>) {
        let row_part = self.update.row_part(panel, inner);
        self.program.upload(&self.a, row_part, Area::Full);
        if let Some(b) = self.b {
            let col_part = self.update.col_part(inner, panel);
            self.program.upload(&b, col_part, Area::Full);
        }
    }

    fn upload_c(&mut self, rows: &Range<usize>, cols: &Range<usize>) {
        if !self.update.beta.is_zero() {
            let part = block(rows, cols);
            self.program
                .upload(&self.c, part, triangle(self.uplo, &part, false));
        }
    }

    fn download(&mut self, rows: &Range<usize>, cols: &Range<usize>) {
        let part = block(rows, cols);
        self.program
            .download(&self.c, part, triangle(self.uplo, &part, false));
    }

    fn multiply(&mut self, rows: &Range<usize>, cols: &Range<usize>, inner: &Range<usize>) {
        let b = self.b.unwrap_or(self.a);
        let panels = Panels {
            a_rows: self.a,
            b_rows: b,
            a_cols: self.a,
            b_cols: b,
        };
        let kernels = self.update.kernels(rows, cols, inner, &panels, &self.c);
        self.program.kernels(kernels);
    }

    /// True where a front is one gemm, the whole diagonal block included, whose other triangle is never
    /// downloaded: syrk of a block so small leaves most multiprocessors idle. A Hermitian update needs
    /// its own kernel, which keeps the diagonal real.
    fn whole_blocks(&self) -> bool {
        !self.update.hermitian()
    }

    /// The kernels of one front of the triangle.
    fn multiply_front(&mut self, panel: &Range<usize>, inner: &Range<usize>) {
        let (rows, cols) = Update::front(self.uplo, panel);
        if self.whole_blocks() {
            return self.multiply(&rows, &cols, inner);
        }
        let before = 0..panel.start;
        if !before.is_empty() {
            match self.uplo {
                Uplo::L => self.multiply(panel, &before, inner),
                Uplo::U => self.multiply(&before, panel, inner),
            }
        }
        self.multiply(panel, panel, inner);
    }

    fn front(&mut self, panel: &Range<usize>) {
        let inner = 0..self.k;
        let (rows, cols) = Update::front(self.uplo, panel);
        self.upload(panel, &inner);
        self.upload_c(&rows, &cols);
        self.multiply_front(panel, &inner);
        self.download(&rows, &cols);
        self.program.next();
    }

    /// Panels of the inner dimension; the result comes back at the end. Whole rows of gemmtr's blocks
    /// would double its flops, so it goes front by front within each step.
    fn cut_k(&mut self, n: usize, panels: &[Range<usize>], sizes: &Sizes) {
        let all = 0..n;
        let fronts = sizes.cut(n, usize::MAX, sizes.panels_wanted);
        for inner in panels {
            self.upload(&all, inner);
            if inner.start == 0 {
                self.upload_c(&all, &all);
            }
            if self.update.symmetric() {
                self.multiply(&all, &all, inner);
            } else {
                fronts
                    .iter()
                    .for_each(|front| self.multiply_front(front, inner));
            }
            if inner.end == self.k {
                self.download(&all, &all);
            }
            self.program.next();
        }
    }
}
