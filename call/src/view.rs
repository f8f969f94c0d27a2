//! Matrix views: a base pointer with rows, columns and leading dimension, checked once.
//!
//! Unsafe lives here because a BLAS operand is a raw pointer by nature: the caller of an `unsafe`
//! constructor vouches for the memory, and the views give out only pieces inside it. A column holds
//! `rows` elements; the gap between `rows` and `ld` belongs to somebody else and is never touched,
//! and nothing past the last column's last row is assumed to be mapped.

use core::marker::PhantomData;

/// A column-major operand that is read.
#[derive(Clone, Copy)]
pub struct MatRef<'a> {
    data: *const u8,
    rows: usize,
    cols: usize,
    ld: usize,
    elem_bytes: usize,
    life: PhantomData<&'a [u8]>,
}

/// A column-major operand that is written (and read, where the routine says so).
pub struct MatMut<'a> {
    data: *mut u8,
    rows: usize,
    cols: usize,
    ld: usize,
    elem_bytes: usize,
    life: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is a shared borrow of plain numbers; the constructor's caller guarantees that they
// live and are not written through another path for 'a, on whichever thread.
unsafe impl Send for MatRef<'_> {}
// SAFETY: as for Send; reading from several threads is what a shared borrow allows.
unsafe impl Sync for MatRef<'_> {}
// SAFETY: a MatMut is the only view of the memory it covers (constructor's contract).
unsafe impl Send for MatMut<'_> {}
// SAFETY: a shared MatMut only gives out pointers and reads of its own fields.
unsafe impl Sync for MatMut<'_> {}

/// Bytes from the first element to one past the last one, or `None` if that passes `isize::MAX`.
fn span_bytes(rows: usize, cols: usize, ld: usize, elem_bytes: usize) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let elems = ld.checked_mul(cols - 1)?.checked_add(rows)?;
    let bytes = elems.checked_mul(elem_bytes)?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}

macro_rules! common {
    () => {
        /// Rows in elements.
        pub fn rows(&self) -> usize {
            self.rows
        }

        /// Columns in elements.
        pub fn cols(&self) -> usize {
            self.cols
        }

        /// Leading dimension in elements.
        pub fn ld(&self) -> usize {
            self.ld
        }

        /// Bytes of one element.
        pub fn elem_bytes(&self) -> usize {
            self.elem_bytes
        }

        /// Bytes of one column's elements.
        pub fn column_bytes(&self) -> usize {
            self.rows * self.elem_bytes
        }

        /// Bytes of all elements, gaps not counted.
        pub fn packed_bytes(&self) -> usize {
            self.column_bytes() * self.cols
        }

        /// Bytes from the first element to one past the last one, gaps counted.
        pub fn span_bytes(&self) -> usize {
            span_bytes(self.rows, self.cols, self.ld, self.elem_bytes).unwrap_or(0)
        }

        /// Address range from the first element to one past the last one.
        pub fn address_range(&self) -> core::ops::Range<usize> {
            let start = self.data.addr();
            start..start + self.span_bytes()
        }
    };
}

impl<'a> MatRef<'a> {
    /// A view of `rows` x `cols` elements of `elem_bytes` bytes, columns `ld` elements apart.
    /// `None` if `ld < rows` or the span does not fit an address space.
    ///
    /// # Safety
    /// Every element is mapped, initialised, and not written for `'a`.
    pub unsafe fn new(
        data: *const u8,
        rows: usize,
        cols: usize,
        ld: usize,
        elem_bytes: usize,
    ) -> Option<Self> {
        span_bytes(rows, cols, ld, elem_bytes)?;
        (ld >= rows).then_some(Self {
            data,
            rows,
            cols,
            ld,
            elem_bytes,
            life: PhantomData,
        })
    }

    /// A view of the elements at the beginning of a piece of memory; `None` if they do not fit into it.
    pub fn of_bytes(
        bytes: &'a [u8],
        (rows, cols): (usize, usize),
        ld: usize,
        elem_bytes: usize,
    ) -> Option<Self> {
        let fits = span_bytes(rows, cols, ld, elem_bytes)? <= bytes.len();
        // SAFETY: the span lies in the slice, which is borrowed for 'a.
        fits.then(|| unsafe { Self::new(bytes.as_ptr(), rows, cols, ld, elem_bytes) })?
    }

    common!();

    /// The elements of column `j`, rows `row0..row0 + count`, as bytes.
    ///
    /// # Panics
    /// If the piece is not inside the view.
    pub fn column_piece(&self, j: usize, row0: usize, count: usize) -> &'a [u8] {
        assert!(j < self.cols && row0 <= self.rows && count <= self.rows - row0);
        // SAFETY: inside the span, which the constructor's caller guarantees to be readable.
        unsafe {
            let start = self.data.add((j * self.ld + row0) * self.elem_bytes);
            core::slice::from_raw_parts(start, count * self.elem_bytes)
        }
    }
}

impl<'a> MatMut<'a> {
    /// As [`MatRef::new`], for an operand that is written.
    ///
    /// # Safety
    /// Every element is mapped and belongs to this view alone for `'a`. The elements need not be
    /// initialised; whoever reads them through [`MatMut::as_ref`] vouches that they are.
    pub unsafe fn new(
        data: *mut u8,
        rows: usize,
        cols: usize,
        ld: usize,
        elem_bytes: usize,
    ) -> Option<Self> {
        span_bytes(rows, cols, ld, elem_bytes)?;
        (ld >= rows).then_some(Self {
            data,
            rows,
            cols,
            ld,
            elem_bytes,
            life: PhantomData,
        })
    }

    /// A view of the elements at the beginning of a piece of memory; `None` if they do not fit into it.
    pub fn of_bytes(
        bytes: &'a mut [u8],
        (rows, cols): (usize, usize),
        ld: usize,
        elem_bytes: usize,
    ) -> Option<Self> {
        let fits = span_bytes(rows, cols, ld, elem_bytes)? <= bytes.len();
        // SAFETY: the span lies in the slice, which is borrowed for 'a by nobody else.
        fits.then(|| unsafe { Self::new(bytes.as_mut_ptr(), rows, cols, ld, elem_bytes) })?
    }

    common!();

    /// The operand as it is before it is written.
    pub fn as_ref(&self) -> MatRef<'_> {
        MatRef {
            data: self.data,
            rows: self.rows,
            cols: self.cols,
            ld: self.ld,
            elem_bytes: self.elem_bytes,
            life: PhantomData,
        }
    }

    /// Writes `src` over column `j` from row `row0` on; `src` is a whole number of elements.
    ///
    /// # Panics
    /// If the piece is not inside the view.
    pub fn write_column_piece(&mut self, j: usize, row0: usize, src: &[u8]) {
        let count = src.len() / self.elem_bytes;
        assert!(src.len().is_multiple_of(self.elem_bytes));
        assert!(j < self.cols && row0 <= self.rows && count <= self.rows - row0);
        // SAFETY: inside the span, which belongs to this view alone; `src` cannot overlap a `&mut`.
        unsafe {
            let dst = self.data.add((j * self.ld + row0) * self.elem_bytes);
            core::ptr::copy_nonoverlapping(src.as_ptr(), dst, src.len());
        }
    }

    /// The first element's address, for whoever takes the view's place.
    pub(crate) fn into_pointer(self) -> *mut u8 {
        self.data
    }

    /// Disjoint views of columns `0..j` and `j..cols`.
    ///
    /// # Panics
    /// If `j > cols`.
    pub fn split_columns(self, j: usize) -> (MatMut<'a>, MatMut<'a>) {
        assert!(j <= self.cols);
        // SAFETY: j <= cols; for j == cols the pointer is only kept, never read through, and
        // wrapping_add does not require it to stay inside the allocation.
        let right = self.data.wrapping_add(j * self.ld * self.elem_bytes);
        (
            MatMut { cols: j, ..self },
            MatMut {
                data: right,
                cols: self.cols - j,
                ..self
            },
        )
    }

    /// Disjoint views of rows `0..i` and `i..rows`.
    ///
    /// # Panics
    /// If `i > rows`.
    pub fn split_rows(self, i: usize) -> (MatMut<'a>, MatMut<'a>) {
        assert!(i <= self.rows);
        // For i == rows the pointer is only kept, never read through.
        let below = self.data.wrapping_add(i * self.elem_bytes);
        (
            MatMut { rows: i, ..self },
            MatMut {
                data: below,
                rows: self.rows - i,
                ..self
            },
        )
    }

    /// A view of nothing.
    pub fn empty() -> Self {
        let data = core::ptr::NonNull::dangling().as_ptr();
        Self {
            data,
            rows: 0,
            cols: 0,
            ld: 0,
            elem_bytes: 1,
            life: PhantomData,
        }
    }

    /// A second name for the same operand, as long as the first one is not used.
    pub fn reborrow(&mut self) -> MatMut<'_> {
        MatMut {
            data: self.data,
            rows: self.rows,
            cols: self.cols,
            ld: self.ld,
            elem_bytes: self.elem_bytes,
            life: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_never_reads_past_its_last_row() {
        // 3 x 2 with ld 4 spans 7 elements, not 8.
        assert_eq!(span_bytes(3, 2, 4, 8), Some(7 * 8));
        assert_eq!(span_bytes(0, 2, 4, 8), Some(0));
        assert_eq!(span_bytes(3, 2, usize::MAX, 8), None);
    }

    #[test]
    fn split_covers_every_column_once() {
        let mut data = vec![0u8; 4 * 5];
        let data_ptr = data.as_mut_ptr();
        // SAFETY: 4 x 5 one-byte elements with ld 4 are exactly `data`.
        let whole = unsafe { MatMut::new(data_ptr, 3, 5, 4, 1) }.expect("valid");
        let (mut left, mut right) = whole.split_columns(2);
        for j in 0..2 {
            left.write_column_piece(j, 0, &[1, 1, 1]);
        }
        for j in 0..3 {
            right.write_column_piece(j, 0, &[2, 2, 2]);
        }
        // The gap row (index 3 of each column) is untouched.
        assert_eq!(
            data,
            [1, 1, 1, 0, 1, 1, 1, 0, 2, 2, 2, 0, 2, 2, 2, 0, 2, 2, 2, 0]
        );
    }

    #[test]
    fn split_rows_stays_in_its_rows() {
        let mut data = vec![0u8; 4 * 2];
        let data_ptr = data.as_mut_ptr();
        // SAFETY: 3 x 2 one-byte elements with ld 4 lie inside `data`.
        let whole = unsafe { MatMut::new(data_ptr, 3, 2, 4, 1) }.expect("valid");
        let (mut above, mut below) = whole.split_rows(1);
        for j in 0..2 {
            above.write_column_piece(j, 0, &[1]);
            below.write_column_piece(j, 0, &[2, 2]);
        }
        assert_eq!(data, [1, 2, 2, 0, 1, 2, 2, 0]);
    }

    #[test]
    #[should_panic(expected = "row0")]
    fn a_piece_outside_is_refused() {
        let data = [0u8; 8];
        // SAFETY: 2 x 4 one-byte elements.
        let m = unsafe { MatRef::new(data.as_ptr(), 2, 4, 2, 1) }.expect("valid");
        m.column_piece(0, 1, 2);
    }
}
