//! Calls that sum over k and do not fit the device: a tile of the result stays there while thin panels of
//! the operands pass through a ring of slots. While one tile is computed, the one before it goes down and
//! the one behind it comes up.

use super::build::{Builder, Held, block, triangle};
use super::program::{Area, Buffer, Operand, Program, Rectangle};
use super::rates;
use super::sizes::{Sizes, part_counts, ranges};
use super::symm::Symm;
use super::update::{Panels, Update};
use call::{Failure, Level3Call, Op, Scalar, Side, Trans, Uplo};
use std::ops::Range;

/// A tile of the result.
#[derive(Clone, Debug)]
struct Tile {
    rows: Range<usize>,
    cols: Range<usize>,
}

/// Most rows and columns of a tile, and columns of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    rows: usize,
    cols: usize,
    inner: usize,
}

/// What a family puts into a slot, and what it does with it.
trait Family {
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
fn hold(operand: Operand, buffer: usize, part: &Rectangle) -> Held {
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
        let shape = |r: &Rectangle| Buffer {
            rows: r.rows,
            cols: r.cols,
        };
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
            Side::L => (
                Buffer {
                    rows: own,
                    cols: cut.inner,
                },
                Buffer {
                    rows: cut.inner,
                    cols: own,
                },
            ),
            Side::R => (
                Buffer {
                    rows: cut.inner,
                    cols: own,
                },
                Buffer {
                    rows: own,
                    cols: cut.inner,
                },
            ),
        };
        let b = match self.side {
            Side::L => Buffer {
                rows: cut.inner,
                cols: cut.cols,
            },
            Side::R => Buffer {
                rows: cut.rows,
                cols: cut.inner,
            },
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

/// The sizes of a call and what it may use.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    elem_bytes: usize,
    /// Real operations of one multiplication and addition.
    flops: f64,
    budget_bytes: u64,
}

/// The program of a call that sums over k and does not fit.
///
/// # Errors
/// [`Failure::OutOfMemory`] when the smallest tiles pass the budget.
pub fn out_of_core(
    call: &Level3Call<'_>,
    budget_bytes: u64,
    sizes: &Sizes,
) -> Result<Program, Failure> {
    let shape = Shape {
        m: call.m,
        n: call.n,
        k: call.k,
        elem_bytes: call.precision.elem_bytes(),
        flops: rates::flops_of_one(call.precision),
        budget_bytes,
    };
    match call.op {
        Op::Symm | Op::Hemm => tiled(&Symm::new(call), &shape, sizes),
        _ => tiled(&Update::new(call), &shape, sizes),
    }
}

fn tiled(family: &dyn Family, shape: &Shape, sizes: &Sizes) -> Result<Program, Failure> {
    let cut = choose(family, shape, sizes)?;
    let tiles = tiles(family, shape, &cut);
    let steps = ranges(shape.k, cut.inner);
    let mut to = Builder::default();
    let c: Vec<usize> = (0..tiles.len().min(2))
        .map(|_| to.buffer(cut.rows, cut.cols))
        .collect();
    let slots: Vec<Vec<usize>> = (0..slots(sizes, steps.len(), tiles.len()))
        .map(|_| {
            family
                .slot(&cut)
                .iter()
                .map(|b| to.buffer(b.rows, b.cols))
                .collect()
        })
        .collect();
    let traffic = Traffic::new(family, shape, sizes, &cut, (tiles.len(), steps.len()));
    let held = |t: usize| {
        let tile = &tiles[t];
        hold(Operand::C, c[t % c.len()], &block(&tile.rows, &tile.cols))
    };
    for (t, tile) in tiles.iter().enumerate() {
        for (j, inner) in steps.iter().enumerate() {
            let number = t * steps.len() + j;
            to.after((number + 1).saturating_sub(slots.len()));
            for moved in traffic.at(number) {
                let part = moved.part(&tiles[moved.tile]);
                if part.cols > 0 && moved.up {
                    to.after(moved.after);
                    to.upload(&held(moved.tile), part, area(family, &part));
                }
            }
            if j == 0 {
                // The buffer belongs to the tile before the last one until that is all down.
                to.after(traffic.free(t));
            }
            family.step(tile, inner, &slots[number % slots.len()], &held(t), &mut to);
            for moved in traffic.at(number) {
                let part = moved.part(&tiles[moved.tile]);
                if part.cols > 0 && !moved.up {
                    to.download(&held(moved.tile), part, area(family, &part));
                }
            }
            to.next();
        }
    }
    Ok(to.finish(false))
}

/// Slots of the ring: never more than panels.
fn slots(sizes: &Sizes, steps: usize, tiles: usize) -> usize {
    sizes.slots.min(steps.saturating_mul(tiles)).max(1)
}

fn area(family: &dyn Family, part: &Rectangle) -> Area {
    family
        .uplo()
        .map_or(Area::Full, |uplo| triangle(uplo, part, false))
}

/// The tiles in order; those outside a triangular result are left out.
fn tiles(family: &dyn Family, shape: &Shape, cut: &Cut) -> Vec<Tile> {
    let rows = ranges(shape.m, cut.rows);
    let mut tiles = Vec::new();
    for cols in ranges(shape.n, cut.cols) {
        for rows in &rows {
            let inside = match family.uplo() {
                None => true,
                Some(Uplo::L) => rows.start >= cols.start,
                Some(Uplo::U) => rows.start <= cols.start,
            };
            if inside {
                tiles.push(Tile {
                    rows: rows.clone(),
                    cols: cols.clone(),
                });
            }
        }
    }
    tiles
}

/// A run of a tile's columns that goes up or down in some step.
#[derive(Clone, Copy, Debug)]
struct Moved {
    up: bool,
    tile: usize,
    chunk: usize,
    /// Columns of a chunk.
    width: usize,
    /// Steps that must be over first.
    after: usize,
}

impl Moved {
    fn part(&self, tile: &Tile) -> Rectangle {
        let start = tile.cols.start + self.chunk * self.width;
        let end = tile.cols.end.min(start + self.width);
        block(&tile.rows, &(start.min(end)..end))
    }
}

/// When the result's tiles go up and down: in chunks, spread over the steps of the tile that is computed
/// meanwhile, so that they share the link with its panels. Chunk c of tile t goes down in the step in
/// which tile t ends plus c; tile t + 2, which takes its place, comes up as many steps later as there are
/// slots, so that its wait holds nobody back.
struct Traffic {
    tiles: usize,
    steps: usize,
    slots: usize,
    chunks: usize,
    width: usize,
    reads: bool,
}

impl Traffic {
    fn new(
        family: &dyn Family,
        shape: &Shape,
        sizes: &Sizes,
        cut: &Cut,
        (tiles, steps): (usize, usize),
    ) -> Self {
        let slots = slots(sizes, steps, tiles);
        let tile_bytes = cut
            .rows
            .saturating_mul(cut.cols)
            .saturating_mul(shape.elem_bytes);
        let worth = (tile_bytes / sizes.panel_min_bytes.max(1))
            .min(cut.cols)
            .max(1);
        let chunks = (steps + 1).saturating_sub(slots).clamp(1, worth);
        let width = cut.cols.div_ceil(chunks);
        Self {
            tiles,
            steps,
            slots,
            chunks,
            width,
            reads: !family.beta().is_zero(),
        }
    }

    /// The step in which a chunk goes down.
    fn down(&self, tile: usize, chunk: usize) -> usize {
        ((tile + 1) * self.steps - 1 + chunk).min(self.tiles * self.steps - 1)
    }

    /// The step in which a chunk comes up, and the steps that must be over first.
    fn up(&self, tile: usize, chunk: usize) -> (usize, usize) {
        let first_kernel = tile * self.steps;
        if tile < 2 {
            return ((chunk + self.slots).min(first_kernel), 0);
        }
        let down = self.down(tile - 2, chunk);
        ((down + self.slots).min(first_kernel), down + 1)
    }

    /// Steps that must be over before a tile's first kernel.
    fn free(&self, tile: usize) -> usize {
        if tile < 2 {
            0
        } else {
            self.down(tile - 2, self.chunks - 1) + 1
        }
    }

    /// What moves in a step.
    fn at(&self, number: usize) -> Vec<Moved> {
        let now = number / self.steps;
        let (width, reads) = (self.width, self.reads);
        let mut moved = Vec::new();
        for tile in now.saturating_sub(1)..self.tiles.min(now + 3) {
            for chunk in 0..self.chunks {
                let (up, after) = self.up(tile, chunk);
                if reads && up == number {
                    moved.push(Moved {
                        up: true,
                        tile,
                        chunk,
                        width,
                        after,
                    });
                }
                if self.down(tile, chunk) == number {
                    moved.push(Moved {
                        up: false,
                        tile,
                        chunk,
                        width,
                        after: 0,
                    });
                }
            }
        }
        moved
    }
}

/// Device bytes of a cut.
fn bytes(family: &dyn Family, shape: &Shape, sizes: &Sizes, cut: &Cut) -> u64 {
    let tiles = count(family, shape, cut);
    let results = tiles.min(2) as u64;
    let slots = slots(sizes, shape.k.div_ceil(cut.inner), tiles) as u64;
    let c = Buffer {
        rows: cut.rows,
        cols: cut.cols,
    }
    .bytes(shape.elem_bytes);
    let slot_bytes = family
        .slot(cut)
        .iter()
        .fold(0u64, |sum, b| sum.saturating_add(b.bytes(shape.elem_bytes)));
    results
        .saturating_mul(c)
        .saturating_add(slots.saturating_mul(slot_bytes))
}

/// Tiles of a cut.
fn count(family: &dyn Family, shape: &Shape, cut: &Cut) -> usize {
    let (p, q) = (shape.m.div_ceil(cut.rows), shape.n.div_ceil(cut.cols));
    match family.uplo() {
        None => p.saturating_mul(q),
        Some(_) => q.saturating_mul(q + 1) / 2,
    }
}

/// Predicted seconds of a cut: the longer one of uploads and kernels, the first panel and the last tile.
fn seconds(family: &dyn Family, shape: &Shape, cut: &Cut) -> f64 {
    let tiles = count(family, shape, cut) as f64;
    let elem_bytes = shape.elem_bytes as f64;
    let edge = (cut.rows as f64 + cut.cols as f64) * family.operands() as f64;
    let (m, n, k) = (shape.m as f64, shape.n as f64, shape.k as f64);
    // Tiles at the lower and right edge are smaller.
    let used = match family.uplo() {
        None => m * n / (cut.rows as f64 * cut.cols as f64 * tiles),
        Some(_) => (n / (cut.cols as f64 * n.div_euclid(cut.cols as f64).max(1.0))).min(1.0),
    };
    let c_bytes = if family.uplo().is_some() {
        m * n / 2.0
    } else {
        m * n
    } * elem_bytes;
    let c_up_bytes = if family.beta().is_zero() {
        0.0
    } else {
        c_bytes
    };
    let up_s = (tiles * used.sqrt() * edge * k * elem_bytes + c_up_bytes) / rates::BOTH_BYTES_PER_S;
    let down_s = c_bytes / rates::BOTH_BYTES_PER_S;
    let half = if family.uplo().is_some() { 0.5 } else { 1.0 };
    let flops = half * m * n * k * family.operands() as f64 * shape.flops;
    let inner = cut.inner as f64;
    let kernels_s = flops / rates::KERNEL_FLOPS_PER_S * (inner + rates::HALF_RATE_K) / inner;
    let first_s = edge * inner * elem_bytes / rates::UP_BYTES_PER_S;
    let last_s = (cut.rows * cut.cols) as f64 * elem_bytes / rates::DOWN_BYTES_PER_S;
    up_s.max(kernels_s).max(down_s) + first_s + last_s
}

/// The fastest cut that fits.
fn choose(family: &dyn Family, shape: &Shape, sizes: &Sizes) -> Result<Cut, Failure> {
    let mut best: Option<(f64, Cut)> = None;
    let smallest = |length: usize| length.min(sizes.tile.max(1));
    let least = Cut {
        rows: smallest(shape.m),
        cols: smallest(shape.n),
        inner: smallest(shape.k),
    };
    let mut inner = sizes.inner_max.min(shape.k).max(least.inner);
    loop {
        for parts in part_counts(shape.m.div_ceil(least.rows)) {
            let align = |side: Side, least| {
                if family.aligned() == Some(side) {
                    inner
                } else {
                    least
                }
            };
            let rows = whole(shape.m.div_ceil(parts), align(Side::L, least.rows), shape.m);
            let fits = |cols: usize| {
                let cols = whole(cols, align(Side::R, least.cols), shape.n);
                let cut = Cut { rows, cols, inner };
                (bytes(family, shape, sizes, &cut) <= shape.budget_bytes).then_some(cut)
            };
            let cut = match family.uplo() {
                Some(_) => fits(rows),
                None => widest(shape.n, least.cols, &fits),
            };
            if let Some(cut) = cut {
                let time_s = seconds(family, shape, &cut);
                if best.is_none_or(|(best_s, _)| time_s < best_s) {
                    best = Some((time_s, cut));
                }
            }
        }
        if inner <= least.inner {
            break;
        }
        inner = (inner / 2).max(least.inner);
    }
    best.map(|(_, cut)| cut).ok_or(Failure::OutOfMemory {
        needed_bytes: bytes(family, shape, sizes, &least),
        budget_bytes: shape.budget_bytes,
    })
}

/// `length` rounded up to whole `align`, but not past `all`.
fn whole(length: usize, align: usize, all: usize) -> usize {
    length
        .checked_next_multiple_of(align.max(1))
        .unwrap_or(all)
        .min(all)
}

/// The widest cut that fits, in equal parts of `length`.
fn widest(length: usize, least: usize, fits: &dyn Fn(usize) -> Option<Cut>) -> Option<Cut> {
    part_counts(length.div_ceil(least)).find_map(|parts| fits(length.div_ceil(parts)))
}
