//! How finely a call is cut. Every figure lives here, so that the tests can shrink them all; no call,
//! no device.

use std::ops::Range;

/// The planners' constants.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Least bytes that a panel moves, both ways together: 4 MiB take 90 microseconds at 47 GB/s, which
    /// hides the launch of the kernel before (about 20 microseconds; chosen with a margin).
    pub panel_min_bytes: usize,
    /// Rows and columns of the tile that one multiprocessor computes at a time: 128 in cuBLAS's large
    /// kernels. Panels are whole tiles.
    pub tile: usize,
    /// Most panels of one operand.
    pub panels_max: usize,
    /// Panels of one operand that overlap is worth even if their kernels leave multiprocessors idle: the
    /// part of the upload that nothing overlaps is one panel's.
    pub panels_wanted: usize,
    /// The inner dimension is cut, instead of the result, when the operands have this many times the
    /// elements of the result: what then comes back after the last kernel, the whole result, takes less
    /// than one part in `long_k` of the time of the uploads.
    pub long_k: usize,
    /// Order of the diagonal blocks when symm is put together from gemms; `None` makes one symm of each
    /// panel.
    pub symm_block: Option<usize>,
    /// trmm and trsm go front by front of the triangle, instead of panel by panel of the result, when the
    /// other dimension has at most this many hundredths of the triangle's order.
    pub triangle_fronts_percent: usize,
    /// Slots of the ring through which panels pass when the operands do not fit: one in use, one ready,
    /// one on its way.
    pub slots: usize,
    /// Largest inner dimension of such a panel: a kernel's reading and writing of C is then 6 % of its
    /// time, and more would only take room from the tile of C.
    pub inner_max: usize,
    /// Largest order of a block of a triangle that passes through the ring.
    pub block_max: usize,
}

impl Sizes {
    /// For an H200 (2026-12-01): `panels_max`, `panels_wanted` and `long_k` have the shortest times in
    /// the cost model of `tests/simulate.rs` for n = 2048 to 16384.
    pub const DEFAULT: Self = Self {
        panel_min_bytes: 4 << 20,
        tile: 128,
        panels_max: 16,
        panels_wanted: 4,
        long_k: 16,
        symm_block: None,
        triangle_fronts_percent: 50,
        slots: 3,
        inner_max: 1024,
        block_max: 4096,
    };

    /// Cuts `length` rows into panels, each with kernels over at most `other` columns of the result and
    /// with `row_bytes` bytes to move for each row.
    pub fn panels(
        &self,
        length: usize,
        other: usize,
        row_bytes: usize,
        sm_count: usize,
    ) -> Vec<Range<usize>> {
        let wave = sm_count.div_ceil(other.div_ceil(self.tile).max(1));
        let full_waves = length.div_ceil(self.tile) / wave.max(1);
        let most = full_waves.max(self.panels_wanted).min(self.panels_max);
        self.cut(length, row_bytes, most)
    }

    /// True if the inner dimension of an m x n result is cut instead of the result.
    pub fn cuts_k(&self, m: usize, n: usize, k: usize) -> bool {
        let operands = (m as u128 + n as u128) * k as u128;
        operands >= self.long_k as u128 * (m as u128 * n as u128)
    }

    /// Cuts `length` into at most `most` panels of whole tiles with `row_bytes` bytes for each row.
    pub fn cut(&self, length: usize, row_bytes: usize, most: usize) -> Vec<Range<usize>> {
        let by_bytes = length.saturating_mul(row_bytes) / self.panel_min_bytes.max(1);
        let count = by_bytes
            .min(length.div_ceil(self.tile))
            .clamp(1, most.max(1));
        let width = length.div_ceil(count);
        ranges(
            length,
            width.checked_next_multiple_of(self.tile).unwrap_or(width),
        )
    }
}

/// 0..length in ranges of `width`, the last one shorter.
pub fn ranges(length: usize, width: usize) -> Vec<Range<usize>> {
    let width = width.max(1);
    let end = |start: usize| length.min(start.saturating_add(width));
    (0..length)
        .step_by(width)
        .map(|start| start..end(start))
        .collect()
}

/// Numbers of parts worth a try: all small ones, then ever fewer, and the most.
pub fn part_counts(most: usize) -> impl Iterator<Item = usize> {
    let next = move |&parts: &usize| (parts < most).then(|| (parts + 1 + parts / 16).min(most));
    std::iter::successors(Some(1), next)
}
