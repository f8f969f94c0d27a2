//! What the families that sum over k put into a slot, and what they do with it. No order of tiles.

use super::super::build::{Builder, Held, block, triangle};
use super::super::program::{Area, Buffer, Operand, Rectangle};
use super::super::sizes::ranges;
use super::super::symm::Symm;
use super::super::update::{Panels, Update};
use super::{Cut, Tile};
use call::{Scalar, Side, Trans, Uplo};
use std::ops::Range;

/// What a family puts into a slot, and what it does with it.
pub trait Family {
    /// Rows and columns of the buffers of one slot.
    fn slot(&self, cut: &Cut) -> Vec<Buffer>;
    /// Uploads one panel into a slot's buffers and launches its kernels.
    fn step(&self, tile: &Tile, inner: &Range<usize>, slot: &[usize], c: &Held, to: &mut Builder);
    /// Factor of the old result.
    fn beta(&self) -> Scalar;
    /// The triangle that the result is.
    fn uplo(&self) -> Option<Uplo>;
    /// Operands that an edge of a tile needs.
    fn operands(&self) -> usize;
    /// The side of a tile that must begin and end at whole panels of k.
    fn aligned(&self) -> Option<Side>;
}

/// A device matrix with a part of an operand at its corner.
pub fn hold(operand: Operand, buffer: usize, part: &Rectangle) -> Held {
    Held {
        operand,
        buffer,
        origin: (part.row0, part.col0),
    }
}

impl Family for Update {
    fn slot(&self, cut: &Cut) -> Vec<Buffer> {
        let inner = 0..cut.inner;
        let rows = self.row_part(&(0..cut.rows), &inner);
        let cols = self.col_part(&inner, &(0..cut.cols));
        let count = (self.row_operands().len(), self.col_operands().len());
        let shape = |r: &Rectangle| Buffer::new(r.rows, r.cols);
        let mut buffers = vec![shape(&rows); count.0];
        buffers.extend(vec![shape(&cols); count.1]);
        buffers
    }

    fn step(&self, tile: &Tile, inner: &Range<usize>, slot: &[usize], c: &Held, to: &mut Builder) {
        let (rows, cols) = (
            self.row_part(&tile.rows, inner),
            self.col_part(inner, &tile.cols),
        );
        let of = |operands: &[Operand], first: usize, part: &Rectangle| -> Vec<Held> {
            let slots = slot.iter().skip(first);
            operands
                .iter()
                .zip(slots)
                .map(|(&x, &buffer)| hold(x, buffer, part))
                .collect()
        };
        let row_held = of(self.row_operands(), 0, &rows);
        let mut col_held = of(self.col_operands(), row_held.len(), &cols);
        let diagonal = self.uplo.is_some() && tile.rows == tile.cols;
        row_held.iter().for_each(|x| to.upload(x, rows, Area::Full));
        if diagonal && self.symmetric() {
            col_held.clone_from(&row_held);
        } else {
            col_held.iter().for_each(|x| to.upload(x, cols, Area::Full));
        }
        let (Some(&a_rows), Some(&a_cols)) = (row_held.first(), col_held.first()) else {
            return;
        };
        let (b_rows, b_cols) = (
            *row_held.last().unwrap_or(&a_rows),
            *col_held.last().unwrap_or(&a_cols),
        );
        let panels = Panels {
            a_rows,
            b_rows,
            a_cols,
            b_cols,
        };
        match self.uplo.filter(|_| diagonal && !self.symmetric()) {
            // gemmtr: a quarter's front at a time, or the flops of the diagonal tile would double.
            Some(uplo) => {
                let quarter = tile.rows.len().div_ceil(4);
                for front in ranges(tile.rows.len(), quarter) {
                    let (r, s) = Update::front(uplo, &front);
                    let shift =
                        |x: Range<usize>| x.start + tile.rows.start..x.end + tile.rows.start;
                    to.kernels(self.kernels(&shift(r), &shift(s), inner, &panels, c));
                }
            }
            None => to.kernels(self.kernels(&tile.rows, &tile.cols, inner, &panels, c)),
        }
    }

    fn beta(&self) -> Scalar {
        self.beta
    }

    fn uplo(&self) -> Option<Uplo> {
        self.uplo
    }

    fn operands(&self) -> usize {
        self.row_operands().len()
    }

    fn aligned(&self) -> Option<Side> {
        None
    }
}

impl Family for Symm {
    /// A as stored, A where the other triangle's transpose stands for it, B.
    fn slot(&self, cut: &Cut) -> Vec<Buffer> {
        let own = if self.side == Side::L {
            cut.rows
        } else {
            cut.cols
        };
        let (direct, turned) = match self.side {
            Side::L => (Buffer::new(own, cut.inner), Buffer::new(cut.inner, own)),
            Side::R => (Buffer::new(cut.inner, own), Buffer::new(own, cut.inner)),
        };
        let b = match self.side {
            Side::L => Buffer::new(cut.inner, cut.cols),
            Side::R => Buffer::new(cut.rows, cut.inner),
        };
        vec![direct, turned, b]
    }

    fn step(&self, tile: &Tile, inner: &Range<usize>, slot: &[usize], c: &Held, to: &mut Builder) {
        let &[direct, turned, b_slot] = slot else {
            return;
        };
        let (own, other) = match self.side {
            Side::L => (&tile.rows, &tile.cols),
            Side::R => (&tile.cols, &tile.rows),
        };
        // The tile's range before, on and behind the panel's own diagonal block, which is inside the tile
        // or outside, never across its edge.
        let clamp = |x: usize| x.clamp(own.start, own.end);
        let (first, last) = (clamp(inner.start), clamp(inner.end));
        let (before, on, behind) = (own.start..first, first..last, last..own.end);
        let before_is_stored = (self.uplo == Uplo::L) == (self.side == Side::R);
        let (stored, mirrored) = if before_is_stored {
            (before.start..on.end, &behind)
        } else {
            (on.start..behind.end, &before)
        };
        let stored_part = self.stored_block(&stored, inner);
        let direct = hold(Operand::A, direct, &stored_part);
        if !stored.is_empty() {
            to.upload(
                &direct,
                stored_part,
                triangle(self.uplo, &stored_part, false),
            );
        }
        let mirrored_part = self.a_block(mirrored, inner).1;
        let turned = hold(Operand::A, turned, &mirrored_part);
        if !mirrored.is_empty() {
            to.upload(&turned, mirrored_part, Area::Full);
        }
        let b_part = self.part(inner, other);
        let b = hold(Operand::B, b_slot, &b_part);
        to.upload(&b, b_part, Area::Full);

        let beta = if inner.start == 0 {
            self.beta
        } else {
            Scalar::ONE
        };
        let from = b.place(&b_part);
        let c_place = |range: &Range<usize>| c.place(&self.part(range, other));
        if !on.is_empty() {
            let a = direct.place(&block(&on, &on));
            let size = (on.len(), other.len());
            to.kernels([self.diagonal_kernel(size, a, from, beta, c_place(&on))]);
        }
        for range in [before, behind] {
            if !range.is_empty() {
                let (trans, part) = self.a_block(&range, inner);
                let held = if trans == Trans::N { &direct } else { &turned };
                let size = (range.len(), inner.len(), other.len());
                let a = (trans, held.place(&part));
                to.kernels([self.off_diagonal_kernel(size, a, from, beta, c_place(&range))]);
            }
        }
    }

    fn beta(&self) -> Scalar {
        self.beta
    }

    fn uplo(&self) -> Option<Uplo> {
        None
    }

    fn operands(&self) -> usize {
        1
    }

    fn aligned(&self) -> Option<Side> {
        Some(self.side)
    }
}
