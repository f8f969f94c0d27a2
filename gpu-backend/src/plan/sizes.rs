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
    /// The part of symm that is computed while the triangle comes up, in hundredths of what keeps the
    /// kernels busy for that time.
    pub symm_first_percent: usize,
    /// There is such a part where the kernels take at least so many hundredths of the uploads' time.
    pub symm_first_from_percent: usize,
    /// trmm and trsm go front by front of the triangle, instead of panel by panel of the result, when the
    /// other dimension has at most this many hundredths of the triangle's order: compute starts before the
    /// triangle is there, and most of it is gemm. Beyond, both take as long.
    pub triangle_fronts_percent: usize,
    /// Slots of the ring through which panels pass when the operands do not fit: one in use, one ready,
    /// one on its way.
    pub slots: usize,
    /// Largest inner dimension of such a panel: a kernel's reading and writing of C is then 6 % of its
    /// time, and more would only take room from the tile of C.
    pub inner_max: usize,
    /// Largest order of a block of a triangle that passes through the ring.
    pub block_max: usize,
    /// Hundredths of gemm's inner dimension that are multiplied first, for the whole result, where kernels
    /// take longer than `lead_from_percent` of the uploads. Fronts alone unlock their work with the square
    /// of the bytes, so that kernels wait at first and are late at the end; this part is unlocked evenly.
    pub lead_percent: usize,
    /// See `lead_percent`.
    pub lead_from_percent: usize,
    /// The SVD tries the polar decomposition from this many columns on (rows, if there are fewer). On an H200
    /// with all vectors Xgesvd takes 146 / 453 / 1703 ms at n = 1024 / 2048 / 4096, Xgesvdp 30 / 83 / 278
    /// (2026-12-01); nothing smaller was measured, so this is chosen.
    pub polar_from: usize,
}

impl Sizes {
    /// For an H200 (2026-12-01). Those that nothing else explains have the shortest times in the cost model
    /// of `tests/simulate.rs` for n = 2048 to 16384, in single and double precision; to be measured.
    pub const DEFAULT: Self = Self {
        panel_min_bytes: 4 << 20,
        tile: 128,
        panels_max: 12,
        panels_wanted: 8,
        long_k: 16,
        symm_block: None,
        symm_first_percent: 150,
        symm_first_from_percent: 90,
        triangle_fronts_percent: 400,
        slots: 3,
        inner_max: 1024,
        block_max: 4096,
        lead_percent: 15,
        lead_from_percent: 60,
        polar_from: 256,
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

    /// The widths of panels that are cut one by one, each with kernels over a known part of the result:
    /// around the width of [`Sizes::panels`], so that the kernels fill whole waves of multiprocessors.
    pub fn widths(&self, length: usize, other: usize, row_bytes: usize, sm_count: usize) -> Widths {
        let panels = self.panels(length, other, row_bytes, sm_count);
        let most = panels.first().map_or(length, Range::len);
        let tiles = most.div_ceil(self.tile);
        let least_bytes = self
            .panel_min_bytes
            .div_ceil(row_bytes.max(1))
            .div_ceil(self.tile);
        Widths {
            length,
            tile: self.tile,
            sm_count,
            least: tiles.div_ceil(2).max(least_bytes).min(tiles),
            wanted: tiles,
            most: tiles + tiles / 2,
        }
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

/// A rule for the widths of panels. Widths are in tiles.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    length: usize,
    tile: usize,
    sm_count: usize,
    least: usize,
    wanted: usize,
    most: usize,
}

impl Widths {
    /// The panel that begins at `start`, whose kernels go over `there` rows or columns of the result (and
    /// the panel's own, if `own`); `None` behind the last one.
    pub fn next(&self, start: usize, there: usize, own: bool) -> Option<Range<usize>> {
        let left = self.length.checked_sub(start).filter(|&left| left > 0)?;
        let left_tiles = left.div_ceil(self.tile);
        let waste = |width: usize| {
            let other = there.div_ceil(self.tile) + if own { width } else { 0 };
            let tiles = width.saturating_mul(other.max(1));
            let waves = tiles.div_ceil(self.sm_count.max(1));
            // Idle places in waves, in thousandths of all.
            1000 - (tiles as u128 * 1000 / (waves as u128 * self.sm_count.max(1) as u128)) as usize
        };
        let leaves_enough = |width: usize| width == left_tiles || left_tiles - width >= self.least;
        let width = (self.least..=self.most.min(left_tiles))
            .filter(|&width| leaves_enough(width))
            .min_by_key(|&width| (waste(width), width.abs_diff(self.wanted)))
            .unwrap_or(left_tiles);
        Some(start..self.length.min(start.saturating_add(width * self.tile)))
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
