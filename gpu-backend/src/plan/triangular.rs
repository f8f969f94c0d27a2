//! trmm and trsm with every operand on the device: the triangle of A, then panels of the result along the
//! dimension that A does not have; or, where A is most of the upload, block substitution front by front of
//! A. It must not decide whether the operands fit.

use super::build::{Builder, Held, block, op_block, triangle};
use super::program::{Area, Kernel, Operand, Program, Rectangle, Tuning};
use super::sizes::Sizes;
use call::{Diag, Level3Call, Op, Scalar, Side, Trans, Uplo};
use std::ops::Range;

/// The flags and factor of a trmm or trsm, and its kernels on blocks of A's order.
#[derive(Clone, Copy, Debug)]
pub struct Triangular {
    solve: bool,
    side: Side,
    uplo: Uplo,
    trans: Trans,
    diag: Diag,
    alpha: Scalar,
    /// Order of A.
    pub order: usize,
    /// The other dimension of the result.
    pub other: usize,
}

impl Triangular {
    /// The call's.
    pub fn new(call: &Level3Call<'_>) -> Self {
        let left = call.side == Side::L;
        Self {
            solve: call.op == Op::Trsm,
            side: call.side,
            uplo: call.uplo,
            trans: call.transa,
            diag: call.diag,
            alpha: call.alpha,
            order: if left { call.m } else { call.n },
            other: if left { call.n } else { call.m },
        }
    }

    /// The part of the result at range `own` of A's order and range `other` of the other dimension.
    pub fn part(&self, own: &Range<usize>, other: &Range<usize>) -> Rectangle {
        match self.side {
            Side::L => block(own, other),
            Side::R => block(other, own),
        }
    }

    /// True if a block of the result depends on those before it, false if on those behind it.
    fn needs_before(&self) -> bool {
        let lower = (self.uplo == Uplo::L) == (self.trans == Trans::N);
        lower == (self.side == Side::L)
    }

    /// True for trsm.
    pub fn solves(&self) -> bool {
        self.solve
    }

    /// Blocks in an order in which every block follows those that it needs.
    pub fn by_need(&self, mut blocks: Vec<Range<usize>>) -> Vec<Range<usize>> {
        if !self.needs_before() {
            blocks.reverse();
        }
        blocks
    }

    /// The range of A's order that a block needs besides its own.
    pub fn needed(&self, own: &Range<usize>) -> Range<usize> {
        if self.needs_before() {
            0..own.start
        } else {
            own.end..self.order
        }
    }

    /// The part of A, as stored, that takes range `from` of the result to range `own`.
    pub fn a_part(&self, own: &Range<usize>, from: &Range<usize>) -> Rectangle {
        match self.side {
            Side::L => op_block(self.trans, own, from),
            Side::R => op_block(self.trans, from, own),
        }
    }

    /// The elements of a part of A that may be read: a unit diagonal is not.
    pub fn a_area(&self, part: &Rectangle) -> Area {
        triangle(self.uplo, part, self.diag == Diag::U)
    }

    /// The kernel of a diagonal block: `from` and `c` are the same place for trsm. `scaled`: the block
    /// already has its factor alpha.
    pub fn diagonal(
        &self,
        (own, other): (&Range<usize>, &Range<usize>),
        a: &Held,
        from: &Held,
        c: &Held,
        scaled: bool,
    ) -> Kernel {
        let part = self.part(own, other);
        let (side, uplo, trans, diag) = (self.side, self.uplo, self.trans, self.diag);
        let size = (part.rows, part.cols);
        let alpha = if scaled { Scalar::ONE } else { self.alpha };
        let a = a.place(&block(own, own));
        let (b, c) = (from.place(&part), c.place(&part));
        if self.solve {
            Kernel::Trsm {
                side,
                uplo,
                trans,
                diag,
                size,
                alpha,
                a,
                b,
            }
        } else {
            Kernel::Trmm {
                side,
                uplo,
                trans,
                diag,
                size,
                alpha,
                a,
                b,
                c,
            }
        }
    }

    /// The gemm that brings range `inner` of the result into range `own`. trsm subtracts it from alpha B
    /// (`first`: from B as it was uploaded), trmm adds alpha times it.
    pub fn off_diagonal(
        &self,
        (own, inner, other): (&Range<usize>, &Range<usize>, &Range<usize>),
        a: &Held,
        from: &Held,
        c: &Held,
        first: bool,
    ) -> Kernel {
        let minus_one = Scalar { re: -1.0, im: 0.0 };
        let (alpha, beta) = match (self.solve, first) {
            (true, true) => (minus_one, self.alpha),
            (true, false) => (minus_one, Scalar::ONE),
            (false, _) => (self.alpha, Scalar::ONE),
        };
        let a = a.place(&self.a_part(own, inner));
        let from = from.place(&self.part(inner, other));
        let c = c.place(&self.part(own, other));
        match self.side {
            Side::L => {
                let (trans, size) = (
                    (self.trans, Trans::N),
                    (own.len(), other.len(), inner.len()),
                );
                Kernel::Gemm {
                    trans,
                    size,
                    alpha,
                    a,
                    b: from,
                    beta,
                    c,
                }
            }
            Side::R => {
                let (trans, size) = (
                    (Trans::N, self.trans),
                    (other.len(), own.len(), inner.len()),
                );
                Kernel::Gemm {
                    trans,
                    size,
                    alpha,
                    a: from,
                    b: a,
                    beta,
                    c,
                }
            }
        }
    }
}

/// The program of a trmm or trsm whose operands fit.
pub fn in_core(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Program {
    let triangular = Triangular::new(call);
    let elem_bytes = call.precision.elem_bytes();
    let (order, other) = (triangular.order, triangular.other);
    if other as u128 * 100 <= order as u128 * sizes.triangle_fronts_percent as u128 {
        // A row of A's front has order / 2 elements on average.
        let row_elements = (order / 2).saturating_add(other.saturating_mul(2));
        let row_bytes = row_elements.saturating_mul(elem_bytes);
        let widths = sizes.widths(order, other, row_bytes, tuning.sm_count);
        let next = |block: &Range<usize>| widths.next(block.end, other, false);
        fronts(
            &triangular,
            std::iter::successors(next(&(0..0)), next).collect(),
        )
    } else {
        let row_bytes = order.saturating_mul(2 * elem_bytes);
        panels(
            &triangular,
            &sizes.panels(other, order, row_bytes, tuning.sm_count),
        )
    }
}

/// The whole triangle, then independent panels of the result.
fn panels(triangular: &Triangular, panels: &[Range<usize>]) -> Program {
    let all = 0..triangular.order;
    let mut program = Builder::default();
    let a_part = block(&all, &all);
    let a = program.mirror(Operand::A, a_part);
    let c = program.mirror(Operand::C, triangular.part(&all, &(0..triangular.other)));
    program.upload_some(&a, a_part, triangular.a_area(&a_part));
    for panel in panels {
        let part = triangular.part(&all, panel);
        program.upload(&c, part, Area::Full);
        program.kernels([triangular.diagonal((&all, panel), &a, &c, &c, false)]);
        program.download(&c, part, Area::Full);
        program.next();
    }
    program.finish(true)
}

/// Block substitution with all of the other dimension, so that the first kernels run long before all of A
/// is there. trmm writes beside its operand: in place it would have to begin with the longest front.
fn fronts(triangular: &Triangular, blocks: Vec<Range<usize>>) -> Program {
    let (all, other) = (0..triangular.order, 0..triangular.other);
    let mut program = Builder::default();
    let a = program.mirror(Operand::A, block(&all, &all));
    let whole = triangular.part(&all, &other);
    let from = program.mirror(Operand::C, whole);
    let one_block = blocks.len() == 1;
    let beside = !triangular.solves() && !one_block;
    let c = if beside {
        program.mirror(Operand::C, whole)
    } else {
        from
    };
    for own in triangular.by_need(blocks) {
        let needed = triangular.needed(&own);
        let a_part = block(&own, &own);
        program.upload_some(&a, a_part, triangular.a_area(&a_part));
        program.upload(&from, triangular.part(&own, &other), Area::Full);
        if !needed.is_empty() {
            program.upload(&a, triangular.a_part(&own, &needed), Area::Full);
        }
        let gemm = (!needed.is_empty())
            .then(|| triangular.off_diagonal((&own, &needed, &other), &a, &from, &c, true));
        let scaled = triangular.solves() && gemm.is_some();
        let diagonal = triangular.diagonal((&own, &other), &a, &from, &c, scaled);
        if triangular.solves() {
            program.kernels(gemm.into_iter().chain([diagonal]));
        } else {
            program.kernels([diagonal].into_iter().chain(gemm));
        }
        program.download(&c, triangular.part(&own, &other), Area::Full);
        program.next();
    }
    program.finish(true)
}
