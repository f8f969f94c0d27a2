//! Which tiles: the largest that fit are not always the fastest. No steps.

use super::super::program::Buffer;
use super::super::rates;
use super::super::sizes::{Sizes, part_counts};
use super::family::Family;
use super::{Cut, Shape, slots};
use call::{Failure, Side};

/// Device bytes of a cut.
fn bytes(family: &dyn Family, shape: &Shape, sizes: &Sizes, cut: &Cut) -> u64 {
    let tiles = count(family, shape, cut);
    let results = tiles.min(2) as u64;
    let slots = slots(sizes, shape.k.div_ceil(cut.inner), tiles) as u64;
    let c = Buffer::new(cut.rows, cut.cols).bytes(shape.elem_bytes);
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
    let elem_bytes = shape.elem_bytes as f64;
    let (m, n, k) = (shape.m as f64, shape.n as f64, shape.k as f64);
    let (down, across) = (
        shape.m.div_ceil(cut.rows) as f64,
        shape.n.div_ceil(cut.cols) as f64,
    );
    // Every tile needs its rows and columns of the operands; half of the tiles lie in a triangle.
    let (edges, half) = match family.uplo() {
        None => (across * m + down * n, 1.0),
        Some(_) => ((across + 1.0) * n, 0.5),
    };
    let operands = family.operands() as f64;
    let c_bytes = half * m * n * elem_bytes;
    let c_up_bytes = if family.beta().is_zero() {
        0.0
    } else {
        c_bytes
    };
    let up_s = (edges * operands * k * elem_bytes + c_up_bytes) / rates::BOTH_BYTES_PER_S;
    let steps = half * down * across * (k / cut.inner as f64).ceil();
    let up_s = up_s + steps * rates::STEP_S;
    let down_s = c_bytes / rates::BOTH_BYTES_PER_S;
    let flops = half * m * n * k * operands * shape.flops;
    let inner = cut.inner as f64;
    let kernels_s = flops / rates::KERNEL_FLOPS_PER_S * (inner + rates::HALF_RATE_K) / inner;
    let edge = (cut.rows as f64 + cut.cols as f64) * operands;
    let first_s = edge * inner * elem_bytes / rates::UP_BYTES_PER_S;
    let last_s = cut.rows as f64 * cut.cols as f64 * elem_bytes / rates::DOWN_BYTES_PER_S;
    up_s.max(kernels_s).max(down_s) + first_s + last_s
}

/// The fastest cut that fits.
pub fn choose(family: &dyn Family, shape: &Shape, sizes: &Sizes) -> Result<Cut, Failure> {
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
