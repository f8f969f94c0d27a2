//! symm and hemm with every operand on the device: the triangle of A front by front with a first part of B
//! and C, then panels of the rest along the dimension that A does not have. It must not decide whether the
//! operands fit.

use super::build::{Builder, Held, block, triangle};
use super::program::{Area, Kernel, Operand, Place, Program, Rectangle, Tuning};
use super::rates;
use super::sizes::{Sizes, ranges};
use super::update::Update;
use call::{Level3Call, Op, Precision, Scalar, Side, Trans, Uplo};
use std::ops::Range;

/// The flags and factors of a symm or hemm, and its kernels on blocks.
#[derive(Clone, Copy, Debug)]
pub struct Symm {
    hermitian: bool,
    /// Side of A.
    pub side: Side,
    /// Its stored triangle.
    pub uplo: Uplo,
    alpha: Scalar,
    /// Factor of the old result.
    pub beta: Scalar,
}

impl Symm {
    /// The call's.
    pub fn new(call: &Level3Call<'_>) -> Self {
        Self {
            hermitian: call.op == Op::Hemm,
            side: call.side,
            uplo: call.uplo,
            alpha: call.alpha,
            beta: call.beta,
        }
    }

    /// A block of the whole matrix A off its diagonal: the stored part, and what turns it into the block.
    pub fn off_diagonal(&self, rows: &Range<usize>, cols: &Range<usize>) -> (Trans, Rectangle) {
        let below = rows.start >= cols.end;
        match ((self.uplo == Uplo::L) == below, self.hermitian) {
            (true, _) => (Trans::N, block(rows, cols)),
            (false, false) => (Trans::T, block(cols, rows)),
            (false, true) => (Trans::C, block(cols, rows)),
        }
    }

    /// The part of B or C at range `own` of A's order and range `other` of the other dimension.
    pub fn part(&self, own: &Range<usize>, other: &Range<usize>) -> Rectangle {
        match self.side {
            Side::L => block(own, other),
            Side::R => block(other, own),
        }
    }

    /// C := alpha A B + beta C with a diagonal block of A, of order `own`.
    pub fn diagonal_kernel(
        &self,
        (own, other): (usize, usize),
        a: Place,
        b: Place,
        beta: Scalar,
        c: Place,
    ) -> Kernel {
        Kernel::Symm {
            hermitian: self.hermitian,
            side: self.side,
            uplo: self.uplo,
            size: if self.side == Side::L {
                (own, other)
            } else {
                (other, own)
            },
            alpha: self.alpha,
            a,
            b,
            beta,
            c,
        }
    }

    /// C := alpha op(A) B + beta C (or B op(A)) with a block of A off the diagonal: `own` and `inner` are
    /// its ranges of C and of B.
    pub fn off_diagonal_kernel(
        &self,
        (own, inner, other): (usize, usize, usize),
        (trans, a): (Trans, Place),
        b: Place,
        beta: Scalar,
        c: Place,
    ) -> Kernel {
        let alpha = self.alpha;
        match self.side {
            Side::L => {
                let size = (own, other, inner);
                Kernel::Gemm {
                    trans: (trans, Trans::N),
                    size,
                    alpha,
                    a,
                    b,
                    beta,
                    c,
                }
            }
            Side::R => {
                let size = (other, own, inner);
                Kernel::Gemm {
                    trans: (Trans::N, trans),
                    size,
                    alpha,
                    a: b,
                    b: a,
                    beta,
                    c,
                }
            }
        }
    }

    /// The block of A as stored that takes range `inner` of B to range `own` of C, if all of it that is
    /// used is in the stored triangle.
    pub fn stored_block(&self, own: &Range<usize>, inner: &Range<usize>) -> Rectangle {
        match self.side {
            Side::L => block(own, inner),
            Side::R => block(inner, own),
        }
    }

    /// The block of the whole A that takes range `inner` of B to range `own` of C.
    pub fn a_block(&self, own: &Range<usize>, inner: &Range<usize>) -> (Trans, Rectangle) {
        match self.side {
            Side::L => self.off_diagonal(own, inner),
            Side::R => self.off_diagonal(inner, own),
        }
    }
}

/// A symm's operands on the device.
struct Whole {
    symm: Symm,
    order: usize,
    a: Held,
    b: Held,
    c: Held,
    program: Builder,
}

/// The program of a symm or hemm whose operands fit.
pub fn in_core(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Program {
    let symm = Symm::new(call);
    let (order, other) = if symm.side == Side::L {
        (call.m, call.n)
    } else {
        (call.n, call.m)
    };
    let mut program = Builder::default();
    let all = symm.part(&(0..order), &(0..other));
    let mut whole = Whole {
        symm,
        order,
        a: program.mirror(Operand::A, block(&(0..order), &(0..order))),
        b: program.mirror(Operand::B, all),
        c: program.mirror(Operand::C, all),
        program,
    };
    let elem_bytes = call.precision.elem_bytes();
    let first = first_part(call.precision, (order, other), sizes);
    if first == 0 {
        let a_part = block(&(0..order), &(0..order));
        let area = triangle(symm.uplo, &a_part, false);
        whole.program.upload(&whole.a, a_part, area);
    } else {
        // A row of A's front has order / 2 elements on average.
        let row_elements = (order / 2).saturating_add(first.saturating_mul(2));
        let row_bytes = row_elements.saturating_mul(elem_bytes);
        let widths = sizes.widths(order, first, row_bytes, tuning.sm_count);
        let mut there = 0;
        while let Some(own) = widths.next(there, first, false) {
            there = own.end;
            whole.front(&own, &(0..first));
        }
    }
    let row_bytes = order.saturating_mul(2 * elem_bytes);
    for panel in sizes.panels(other - first, order, row_bytes, tuning.sm_count) {
        let panel = panel.start + first..panel.end + first;
        whole.panel(&panel, sizes.symm_block);
    }
    whole.program.finish(false)
}

/// The part of the other dimension that is computed while the triangle comes up, in whole tiles: as much
/// as takes the kernels about the time of that upload; nothing where the kernels are not what takes longest,
/// since the first part only comes back when the triangle is there.
fn first_part(precision: Precision, (order, other): (usize, usize), sizes: &Sizes) -> usize {
    let elem_bytes = precision.elem_bytes() as f64;
    let (rows, cols) = (order as f64, other as f64);
    // Seconds for each row of the triangle and each row or column of the other dimension.
    let triangle_s = rows / 2.0 * elem_bytes / rates::UP_BYTES_PER_S;
    let kernel_s = rows * precision.flops_of_madd() / rates::KERNEL_FLOPS_PER_S;
    let uploads_s = triangle_s + cols * elem_bytes / rates::UP_BYTES_PER_S;
    if kernel_s * cols * 100.0 < uploads_s * sizes.symm_first_from_percent as f64 {
        return 0;
    }
    let share = sizes.symm_first_percent as f64 / 100.0;
    let tile = sizes.tile.max(1);
    ((triangle_s / kernel_s * share) as usize / tile * tile).min(other)
}

impl Whole {
    /// B and the old C at range `own` of A's order.
    fn upload(&mut self, own: &Range<usize>, other: &Range<usize>) {
        let part = self.symm.part(own, other);
        self.program.upload(&self.b, part, Area::Full);
        if !self.symm.beta.is_zero() {
            self.program.upload(&self.c, part, Area::Full);
        }
    }

    /// One front of the triangle with the first part of B: what it brings to its own rows of C, and what
    /// its mirror image brings to the rows before. C is complete with the last front.
    fn front(&mut self, own: &Range<usize>, other: &Range<usize>) {
        let before = 0..own.start;
        let (rows, cols) = Update::front(self.symm.uplo, own);
        let a_part = block(&rows, &cols);
        let area = triangle(self.symm.uplo, &a_part, false);
        self.program.upload(&self.a, a_part, area);
        self.upload(own, other);
        let kernels = [
            Some(self.diagonal(own, other)),
            (!before.is_empty()).then(|| self.off_diagonal(own, &before, other)),
            (!before.is_empty()).then(|| self.off_diagonal(&before, own, other)),
        ];
        self.program.kernels(kernels.into_iter().flatten());
        if own.end == self.order {
            let part = self.symm.part(&(0..self.order), other);
            self.program.download(&self.c, part, Area::Full);
        }
        self.program.next();
    }

    /// One panel of the other dimension, all of A being there: one symm, or for each block of A's order
    /// two gemms around a small symm.
    fn panel(&mut self, other: &Range<usize>, symm_block: Option<usize>) {
        let all = 0..self.order;
        self.upload(&all, other);
        for own in ranges(self.order, symm_block.unwrap_or(self.order)) {
            let mut kernels = vec![self.diagonal(&own, other)];
            let beside = [0..own.start, own.end..self.order];
            let beside = beside.iter().filter(|inner| !inner.is_empty());
            kernels.extend(beside.map(|inner| self.off_diagonal(&own, inner, other)));
            self.program.kernels(kernels);
        }
        let part = self.symm.part(&all, other);
        self.program.download(&self.c, part, Area::Full);
        self.program.next();
    }

    /// The first kernel on range `own` of C.
    fn diagonal(&self, own: &Range<usize>, other: &Range<usize>) -> Kernel {
        let part = self.symm.part(own, other);
        let a = self.a.place(&block(own, own));
        let (b, c) = (self.b.place(&part), self.c.place(&part));
        self.symm
            .diagonal_kernel((own.len(), other.len()), a, b, self.symm.beta, c)
    }

    /// Adds what range `inner` of B brings to range `own` of C.
    fn off_diagonal(
        &self,
        own: &Range<usize>,
        inner: &Range<usize>,
        other: &Range<usize>,
    ) -> Kernel {
        let (trans, part) = self.symm.a_block(own, inner);
        let size = (own.len(), inner.len(), other.len());
        let b = self.b.place(&self.symm.part(inner, other));
        let c = self.c.place(&self.symm.part(own, other));
        self.symm
            .off_diagonal_kernel(size, (trans, self.a.place(&part)), b, Scalar::ONE, c)
    }
}
