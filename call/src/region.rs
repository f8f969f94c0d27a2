//! The result as a region that is cut into tiles: each tile has one owner, and no two share an element.
//!
//! Unsafe lives here because a tile is a raw part of the caller's matrix. An [`OutRegion`] is built once
//! from a checked view and consumed by [`OutRegion::partition`], which proves that the tiles lie inside
//! and apart before it makes any. Nothing here reads the matrix or decides how it is cut.

use crate::{MatMut, MatRef};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::collections::BTreeMap;

/// Part of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rectangle {
    /// First row.
    pub row0: usize,
    /// Rows.
    pub rows: usize,
    /// First column.
    pub col0: usize,
    /// Columns.
    pub cols: usize,
}

/// The elements of a rectangle that take part. i and j count from the rectangle's corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// All.
    Full,
    /// Those with i <= j + shift.
    Upper {
        /// Diagonals below the rectangle's own that still belong (-1: without the diagonal).
        shift: isize,
    },
    /// Those with i >= j + shift.
    Lower {
        /// Diagonals above the rectangle's own that do not belong any more (1: without the diagonal).
        shift: isize,
    },
}

impl Area {
    /// The rows of column `j` of a rectangle of `rows` rows, as first row and number.
    pub fn rows_of(self, j: usize, rows: usize) -> (usize, usize) {
        let clamp = |x: isize| usize::try_from(x).unwrap_or(0).min(rows);
        match self {
            Area::Full => (0, rows),
            Area::Upper { shift } => (0, clamp(j as isize + shift + 1)),
            Area::Lower { shift } => {
                let first = clamp(j as isize + shift);
                (first, rows - first)
            }
        }
    }

    /// The same elements, seen from a corner `row0` rows below and `col0` columns to the right.
    pub fn moved(self, row0: usize, col0: usize) -> Self {
        let by = col0 as isize - row0 as isize;
        match self {
            Area::Full => Area::Full,
            Area::Upper { shift } => Area::Upper { shift: shift + by },
            Area::Lower { shift } => Area::Lower { shift: shift + by },
        }
    }
}

/// Why a region was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionError {
    /// The part with this number is not inside the region.
    Outside(usize),
    /// These two parts share a row and a column.
    Shared(usize, usize),
}

/// A result in the hands of one call, not yet cut.
pub struct OutRegion<'a> {
    view: MatMut<'a>,
}

/// A part of the result that belongs to whoever holds it. It can be sent to another thread, not copied.
pub struct TileMut<'a> {
    corner: *mut u8,
    rows: usize,
    cols: usize,
    ld: usize,
    elem_bytes: usize,
    area: Area,
    life: PhantomData<&'a mut [MaybeUninit<u8>]>,
}

// SAFETY: a tile is the only view of the elements it gives out (`partition` has proved that), so moving
// it to another thread moves the right to them.
unsafe impl Send for TileMut<'_> {}

impl<'a> OutRegion<'a> {
    /// The whole of a result.
    pub fn new(view: MatMut<'a>) -> Self {
        Self { view }
    }

    /// Cuts the region into tiles, in the order of `parts`. Costs O(parts log parts).
    ///
    /// # Errors
    /// [`PartitionError`] unless every rectangle is inside and no two share an element.
    pub fn partition(
        self,
        parts: &[(Rectangle, Area)],
    ) -> Result<Vec<TileMut<'a>>, PartitionError> {
        let view = self.view;
        check(parts, view.rows(), view.cols())?;
        let (ld, elem_bytes) = (view.ld(), view.elem_bytes());
        let base = view.into_pointer();
        let tile = |&(r, area): &(Rectangle, Area)| TileMut {
            // Inside the view where the rectangle is not empty (`check`); else never followed.
            corner: base.wrapping_add((r.col0 * ld + r.row0) * elem_bytes),
            rows: r.rows,
            cols: r.cols,
            ld,
            elem_bytes,
            area,
            life: PhantomData,
        };
        Ok(parts.iter().map(tile).collect())
    }
}

/// Every rectangle inside rows x cols, and no two of them sharing an element: a sweep over the columns
/// that keeps the row intervals of the rectangles under it.
fn check(parts: &[(Rectangle, Area)], rows: usize, cols: usize) -> Result<(), PartitionError> {
    // (column, begins, number): at one column what ends goes before what begins.
    let mut edges = Vec::with_capacity(2 * parts.len());
    for (number, (r, _)) in parts.iter().enumerate() {
        let inside = |first: usize, count: usize, all: usize| first <= all && count <= all - first;
        if !inside(r.row0, r.rows, rows) || !inside(r.col0, r.cols, cols) {
            return Err(PartitionError::Outside(number));
        }
        if r.rows > 0 && r.cols > 0 {
            edges.push((r.col0, true, number));
            edges.push((r.col0 + r.cols, false, number));
        }
    }
    edges.sort_unstable();
    let mut active: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (_, begins, number) in edges {
        let r = parts[number].0;
        if !begins {
            active.remove(&r.row0);
            continue;
        }
        // The active intervals are disjoint, so only the last one that starts before our end matters.
        if let Some((_, &(end, other))) = active.range(..r.row0 + r.rows).next_back()
            && end > r.row0
        {
            return Err(PartitionError::Shared(other.min(number), other.max(number)));
        }
        active.insert(r.row0, (r.row0 + r.rows, number));
    }
    Ok(())
}

impl TileMut<'_> {
    /// Rows of its rectangle.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of its rectangle.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of an element.
    pub fn elem_bytes(&self) -> usize {
        self.elem_bytes
    }

    /// First row and number of rows of column `j` that belong to the tile.
    pub fn rows_of(&self, j: usize) -> (usize, usize) {
        self.area.rows_of(j, self.rows)
    }

    /// Those rows' bytes, to be written. What they hold is not known to be initialised.
    ///
    /// # Panics
    /// If there is no column `j`.
    pub fn column_mut(&mut self, j: usize) -> &mut [MaybeUninit<u8>] {
        assert!(j < self.cols);
        let (first, count) = self.rows_of(j);
        // SAFETY: j < cols and first + count <= rows, so the piece is inside the rectangle, which is
        // inside the region (`check`); no other tile has it, and `&mut self` keeps this one's views apart.
        unsafe {
            let start = self.corner.add((j * self.ld + first) * self.elem_bytes);
            core::slice::from_raw_parts_mut(start.cast(), count * self.elem_bytes)
        }
    }

    /// Where the tile's column is whole and the next one follows without a gap: all columns as one piece.
    pub fn contiguous_mut(&mut self) -> Option<&mut [MaybeUninit<u8>]> {
        if self.area != Area::Full || self.ld != self.rows || self.cols == 0 {
            return None;
        }
        // SAFETY: with ld = rows the rectangle is one run of rows * cols elements, all of this tile.
        Some(unsafe {
            let bytes = self.rows * self.cols * self.elem_bytes;
            core::slice::from_raw_parts_mut(self.corner.cast(), bytes)
        })
    }

    /// Address of the first byte of the rectangle and of one past its last one.
    pub fn address_range(&self) -> core::ops::Range<usize> {
        let start = self.corner.addr();
        let elems = match (self.rows, self.cols) {
            (0, _) | (_, 0) => 0,
            (rows, cols) => self.ld * (cols - 1) + rows,
        };
        start..start + elems * self.elem_bytes
    }
}

impl<'a> MatRef<'a> {
    /// Columns `col0..col0 + cols` as one piece, where no gap lies between columns.
    ///
    /// # Panics
    /// If the columns are not inside the view.
    pub fn contiguous(&self, col0: usize, cols: usize) -> Option<&'a [u8]> {
        assert!(col0 <= self.cols() && cols <= self.cols() - col0);
        if self.ld() != self.rows() || cols == 0 {
            return None;
        }
        let first = self.column_piece(col0, 0, self.rows());
        // SAFETY: with ld = rows the columns are one run inside the span, which the view's constructor
        // vouches for.
        Some(unsafe { core::slice::from_raw_parts(first.as_ptr(), first.len() * cols) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One-byte elements, rows x cols with ld, all 0.
    struct Host {
        data: Vec<u8>,
        rows: usize,
        cols: usize,
        ld: usize,
    }

    impl Host {
        fn new(rows: usize, cols: usize, ld: usize) -> Self {
            let data = vec![0; ld * cols];
            Self {
                data,
                rows,
                cols,
                ld,
            }
        }

        /// Adds 1 to every element that a tile gives out. Adding shows what is written twice.
        fn count(&mut self, parts: &[(Rectangle, Area)]) -> Result<(), PartitionError> {
            let pointer = self.data.as_mut_ptr();
            // SAFETY: rows x cols one-byte elements ld apart lie in `data`.
            let view = unsafe { MatMut::new(pointer, self.rows, self.cols, self.ld, 1) };
            for mut tile in OutRegion::new(view.expect("valid")).partition(parts)? {
                for j in 0..tile.cols() {
                    for byte in tile.column_mut(j) {
                        // SAFETY: `data` was initialised with zeros.
                        let before = unsafe { byte.assume_init() };
                        byte.write(before + 1);
                    }
                }
            }
            Ok(())
        }

        fn at(&self, i: usize, j: usize) -> u8 {
            self.data[j * self.ld + i]
        }

        fn assert_gaps(&self) {
            for column in self.data.chunks(self.ld) {
                assert!(column[self.rows..].iter().all(|&gap| gap == 0));
            }
        }
    }

    fn grid(rows: usize, cols: usize, h: usize, w: usize) -> Vec<(Rectangle, Area)> {
        let mut parts = Vec::new();
        for col0 in (0..cols).step_by(w) {
            for row0 in (0..rows).step_by(h) {
                let (rows, cols) = (h.min(rows - row0), w.min(cols - col0));
                let r = Rectangle {
                    row0,
                    rows,
                    col0,
                    cols,
                };
                parts.push((r, Area::Full));
            }
        }
        parts
    }

    /// Column panels of a triangle of order n, each cut to what it holds.
    fn triangle(n: usize, w: usize, upper: bool) -> Vec<(Rectangle, Area)> {
        let panel = |col0: usize| {
            let cols = w.min(n - col0);
            let (row0, rows) = if upper {
                (0, col0 + cols)
            } else {
                (col0, n - col0)
            };
            let whole = if upper {
                Area::Upper { shift: 0 }
            } else {
                Area::Lower { shift: 0 }
            };
            let r = Rectangle {
                row0,
                rows,
                col0,
                cols,
            };
            (r, whole.moved(row0, col0))
        };
        (0..n).step_by(w).map(panel).collect()
    }

    #[test]
    fn grids_and_panels_write_every_element_once() {
        for rows in 1..=64 {
            for cols in [1, 2, 7, 31, 64] {
                for (h, w) in [(rows, 5), (3, cols), (4, 6), (64, 64), (1, 1)] {
                    let mut host = Host::new(rows, cols, rows + rows % 3);
                    host.count(&grid(rows, cols, h, w)).expect("disjoint");
                    for j in 0..cols {
                        assert!((0..rows).all(|i| host.at(i, j) == 1));
                    }
                    host.assert_gaps();
                }
            }
        }
    }

    #[test]
    fn triangles_write_their_triangle_once() {
        for n in 1..=64 {
            for w in 1..=n {
                for upper in [true, false] {
                    let mut host = Host::new(n, n, n + 2);
                    host.count(&triangle(n, w, upper)).expect("disjoint");
                    for j in 0..n {
                        for i in 0..n {
                            let inside = if upper { i <= j } else { i >= j };
                            assert_eq!(host.at(i, j), u8::from(inside), "n {n} w {w} ({i}, {j})");
                        }
                    }
                    host.assert_gaps();
                }
            }
        }
    }

    fn rectangle() -> impl Strategy<Value = Rectangle> {
        (0usize..12, 0usize..6, 0usize..12, 0usize..6).prop_map(|(row0, rows, col0, cols)| {
            Rectangle {
                row0,
                rows,
                col0,
                cols,
            }
        })
    }

    proptest! {
        /// The sweep says what comparing every pair of elements says.
        #[test]
        fn overlaps_are_found_and_nothing_else(
            rectangles in proptest::collection::vec(rectangle(), 0..7),
        ) {
            let (rows, cols) = (14, 14);
            let mut seen = vec![0u8; rows * cols];
            let mut outside = false;
            for r in &rectangles {
                outside |= r.row0 + r.rows > rows || r.col0 + r.cols > cols;
                for j in r.col0..(r.col0 + r.cols).min(cols) {
                    for i in r.row0..(r.row0 + r.rows).min(rows) {
                        seen[j * rows + i] += 1;
                    }
                }
            }
            let parts: Vec<_> = rectangles.iter().map(|&r| (r, Area::Full)).collect();
            let mut host = Host::new(rows, cols, rows + 1);
            let result = host.count(&parts);
            prop_assert_eq!(result.is_ok(), !outside && seen.iter().all(|&count| count <= 1));
            if result.is_ok() {
                for j in 0..cols {
                    for i in 0..rows {
                        prop_assert_eq!(host.at(i, j), seen[j * rows + i]);
                    }
                }
            } else {
                prop_assert!(host.data.iter().all(|&byte| byte == 0), "a refused cut wrote");
            }
        }

        #[test]
        fn a_moved_area_holds_the_same_elements(
            shift in -6isize..6, row0 in 0usize..6, col0 in 0usize..6, upper: bool,
        ) {
            let area = if upper { Area::Upper { shift } } else { Area::Lower { shift } };
            let inside = |area: Area, i: usize, j: usize, rows: usize| {
                let (first, count) = area.rows_of(j, rows);
                i >= first && i < first + count
            };
            for j in 0..6 {
                for i in 0..6 {
                    prop_assert_eq!(
                        inside(area.moved(row0, col0), i, j, 6),
                        inside(area, i + row0, j + col0, 6 + row0)
                    );
                }
            }
        }
    }
}
