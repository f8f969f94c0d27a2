//! symm and hemm with every operand on the device: the triangle of A, then panels of B and C along the
//! dimension that A does not have. It must not decide whether the operands fit.

use super::build::{Builder, Held, block, triangle};
use super::program::{Area, Kernel, Operand, Place, Program, Rectangle, Tuning};
use super::sizes::{Sizes, ranges};
use call::{Level3Call, Op, Scalar, Side, Trans, Uplo};
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

/// The program of a symm or hemm whose operands fit.
pub fn in_core(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Program {
    let symm = Symm::new(call);
    let (order, other) = if symm.side == Side::L {
        (call.m, call.n)
    } else {
        (call.n, call.m)
    };
    let mut program = Builder::default();
    let a_part = block(&(0..order), &(0..order));
    let a = program.mirror(Operand::A, a_part);
    let b = program.mirror(Operand::B, symm.part(&(0..order), &(0..other)));
    let c = program.mirror(Operand::C, symm.part(&(0..order), &(0..other)));
    program.upload(&a, a_part, triangle(symm.uplo, &a_part, false));
    let row_bytes = order.saturating_mul(2 * call.precision.elem_bytes());
    for panel in sizes.panels(other, order, row_bytes, tuning.sm_count) {
        let part = symm.part(&(0..order), &panel);
        program.upload(&b, part, Area::Full);
        if !symm.beta.is_zero() {
            program.upload(&c, part, Area::Full);
        }
        program.kernels(panel_kernels(
            &symm,
            order,
            &panel,
            (&a, &b, &c),
            sizes.symm_block,
        ));
        program.download(&c, part, Area::Full);
        program.next();
    }
    program.finish(false)
}

/// The kernels of one panel: one symm, or for each block of A's order two gemms around a small symm.
fn panel_kernels(
    symm: &Symm,
    order: usize,
    panel: &Range<usize>,
    (a, b, c): (&Held, &Held, &Held),
    symm_block: Option<usize>,
) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for own in ranges(order, symm_block.unwrap_or(order)) {
        let place = |x: &Held, range: &Range<usize>| x.place(&symm.part(range, panel));
        let a_place = a.place(&block(&own, &own));
        let size = (own.len(), panel.len());
        let to = place(c, &own);
        kernels.push(symm.diagonal_kernel(size, a_place, place(b, &own), symm.beta, to));
        for inner in [0..own.start, own.end..order] {
            if inner.is_empty() {
                continue;
            }
            let (trans, part) = symm.a_block(&own, &inner);
            let size = (own.len(), inner.len(), panel.len());
            let (a_place, from) = (a.place(&part), place(b, &inner));
            let one = Scalar::ONE;
            kernels.push(symm.off_diagonal_kernel(size, (trans, a_place), from, one, to));
        }
    }
    kernels
}
