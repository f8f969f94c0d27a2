//! Calls that sum over k and do not fit the device: a tile of the result stays there while thin panels of
//! the operands pass through a ring of slots. While one tile is computed, the one before it goes down and
//! the one behind it comes up.

mod choice;
mod family;

use super::build::{Builder, block, triangle};
use super::program::{Area, Operand, Program, Rectangle};
use super::sizes::{Sizes, ranges};
use super::symm::Symm;
use super::update::Update;
use call::{Failure, Level3Call, Op, Uplo};
use choice::choose;
use family::{Family, hold};
use std::ops::Range;

/// A tile of the result.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Its rows.
    pub rows: Range<usize>,
    /// Its columns.
    pub cols: Range<usize>,
}

/// Most rows and columns of a tile, and columns of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// Columns of a panel.
    pub inner: usize,
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
        flops: call.precision.flops_of_madd(),
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

    /// The step in which a chunk comes up. Its place is free by then: the step waits for its slot, that is
    /// for the step in which the chunk before went down, or it has the tile's first kernel, which waits for
    /// all of them.
    fn up(&self, tile: usize, chunk: usize) -> usize {
        let first_kernel = tile * self.steps;
        let before = if tile < 2 {
            chunk
        } else {
            self.down(tile - 2, chunk)
        };
        (before + self.slots).min(first_kernel)
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
                if reads && self.up(tile, chunk) == number {
                    moved.push(Moved {
                        up: true,
                        tile,
                        chunk,
                        width,
                    });
                }
                if self.down(tile, chunk) == number {
                    moved.push(Moved {
                        up: false,
                        tile,
                        chunk,
                        width,
                    });
                }
            }
        }
        moved
    }
}
