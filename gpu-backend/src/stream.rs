//! How a product is cut: panels of the result, layout on the device, pieces of a transfer.
//!
//! Pure arithmetic, no CUDA and no memory. This first slice uploads one operand whole and streams the
//! other in panels, each followed by its kernel and its download; the full streaming engine (both
//! operands in panels, more than the device's memory) takes this file's place later.

use crate::staging::Rectangle;
use call::MatMut;
use core::ops::Range;

/// Most panels of one product: more make the kernels small and the overlap hardly better (the part
/// that does not overlap is one panel's upload, an eighth of the streamed operand). To be measured by
/// calibration later.
pub const MAX_PANELS: usize = 8;

/// Rows and columns of the tile that one multiprocessor computes at a time: 128 x 128 in cuBLAS's large
/// kernels. A panel of fewer tiles than multiprocessors leaves some of them idle.
const TILE: usize = 128;

/// Least bytes of a streamed panel: 4 MiB take 80 microseconds at 50 GB/s, enough to hide the launch of
/// the panel before (about 20 microseconds, chosen with a margin).
const PANEL_MIN_BYTES: usize = 4 << 20;

/// Columns on the device start at multiples of this many bytes where that costs little.
const COLUMN_ALIGN_BYTES: usize = 256;

/// Along which dimension of C a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Panels of rows: A is streamed, B is uploaded whole.
    Rows,
    /// Panels of columns: B is streamed, A is uploaded whole.
    Columns,
}

/// The panels of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Their direction.
    pub axis: Axis,
    /// Their rows or columns of C, in order.
    pub panels: Vec<Range<usize>>,
}

impl Plan {
    /// Cuts an m x n result with inner dimension k.
    pub fn new(m: usize, n: usize, k: usize, elem_bytes: usize, sm_count: usize) -> Self {
        let (axis, length, other) = if n >= m {
            (Axis::Columns, n, m)
        } else {
            (Axis::Rows, m, n)
        };
        let busy = (sm_count.max(1) * TILE * TILE).div_ceil(other.max(1));
        let bytes = length.saturating_mul(k).saturating_mul(elem_bytes);
        let count = (length / busy.max(1))
            .min(bytes / PANEL_MIN_BYTES)
            .clamp(1, MAX_PANELS);
        let panel = length.div_ceil(count).next_multiple_of(TILE);
        let starts = (0..length).step_by(panel);
        let panels = starts
            .map(|start| start..length.min(start + panel))
            .collect();
        Self { axis, panels }
    }
}

/// Distance of columns on the device in bytes, for columns of `column_bytes`: aligned where that adds
/// at most a sixteenth, packed otherwise.
pub fn device_ld_bytes(column_bytes: usize, elem_bytes: usize) -> usize {
    if column_bytes >= 16 * COLUMN_ALIGN_BYTES {
        column_bytes.next_multiple_of(COLUMN_ALIGN_BYTES)
    } else {
        column_bytes.next_multiple_of(elem_bytes)
    }
}

/// Cuts `rows` x `cols` elements into pieces whose image on the device has at most `piece_bytes` bytes:
/// whole columns where they fit, parts of one column otherwise.
pub fn cut(
    rows: usize,
    cols: usize,
    elem_bytes: usize,
    ld_bytes: usize,
    piece_bytes: usize,
) -> Vec<Rectangle> {
    if rows == 0 || cols == 0 {
        return Vec::new();
    }
    if ld_bytes <= piece_bytes {
        let step = piece_bytes / ld_bytes;
        return (0..cols)
            .step_by(step)
            .map(|col0| Rectangle {
                row0: 0,
                rows,
                col0,
                cols: step.min(cols - col0),
            })
            .collect();
    }
    let step = (piece_bytes / elem_bytes).max(1);
    (0..cols)
        .flat_map(|col0| (0..rows).step_by(step).map(move |row0| (row0, col0)))
        .map(|(row0, col0)| Rectangle {
            row0,
            rows: step.min(rows - row0),
            col0,
            cols: 1,
        })
        .collect()
}

/// Cuts a matrix that is written into the pieces of [`cut`], each owning its own part, in its order.
pub fn cut_mut<'a>(
    view: MatMut<'a>,
    ld_bytes: usize,
    piece_bytes: usize,
) -> Vec<(Rectangle, MatMut<'a>)> {
    let rectangles = cut(
        view.rows(),
        view.cols(),
        view.elem_bytes(),
        ld_bytes,
        piece_bytes,
    );
    let mut pieces = Vec::with_capacity(rectangles.len());
    let mut rest = view;
    // The column that is being cut by rows, and its first row that is not yet given away.
    let mut column: Option<MatMut<'a>> = None;
    for rectangle in rectangles {
        let whole = column
            .take()
            .unwrap_or_else(|| take(&mut rest, |rest| rest.split_columns(rectangle.cols)));
        let (piece, below) = whole.split_rows(rectangle.rows);
        if below.rows() > 0 {
            column = Some(below);
        }
        pieces.push((rectangle, piece));
    }
    pieces
}

/// Splits `rest` and leaves the second half in its place.
fn take<'a>(
    rest: &mut MatMut<'a>,
    split: impl FnOnce(MatMut<'a>) -> (MatMut<'a>, MatMut<'a>),
) -> MatMut<'a> {
    let whole = core::mem::replace(rest, MatMut::empty());
    let (first, second) = split(whole);
    *rest = second;
    first
}

/// Cuts a matrix that is written along an axis.
///
/// # Panics
/// If the panels do not follow one another inside the matrix.
pub fn panels_mut<'a>(view: MatMut<'a>, axis: Axis, panels: &[Range<usize>]) -> Vec<MatMut<'a>> {
    let mut rest = view;
    let mut result = Vec::with_capacity(panels.len());
    let mut start = 0;
    for panel in panels {
        assert_eq!(panel.start, start);
        let length = panel.len();
        result.push(take(&mut rest, |rest| match axis {
            Axis::Columns => rest.split_columns(length),
            Axis::Rows => rest.split_rows(length),
        }));
        start = panel.end;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_products_are_one_panel_and_large_ones_are_eight() {
        let small = Plan::new(512, 512, 512, 8, 132);
        assert_eq!((small.panels.len(), small.panels[0].clone()), (1, 0..512));
        let large = Plan::new(8192, 8192, 8192, 8, 132);
        assert_eq!((large.axis, large.panels.len()), (Axis::Columns, 8));
        assert_eq!(Plan::new(8192, 64, 8192, 8, 132).axis, Axis::Rows);
    }

    /// Never 0, which is what nobody wrote; neighbours differ.
    fn mark_of(number: usize) -> u8 {
        (number % 251) as u8 + 1
    }

    proptest! {
        #[test]
        fn panels_cover_the_result(m in 1usize..20_000, n in 1usize..20_000, k in 1usize..9_000) {
            let plan = Plan::new(m, n, k, 8, 132);
            let length = if plan.axis == Axis::Columns { n } else { m };
            prop_assert!(!plan.panels.is_empty() && plan.panels.len() <= MAX_PANELS);
            let mut next = 0;
            for panel in &plan.panels {
                prop_assert_eq!(panel.start, next);
                prop_assert!(!panel.is_empty());
                next = panel.end;
            }
            prop_assert_eq!(next, length);
        }

        #[test]
        fn pieces_cover_every_element_once_and_fit(
            rows in 1usize..40, cols in 1usize..40, extra in 0usize..3, piece in 8usize..900,
        ) {
            let ld_bytes = rows * 8 + extra * 8;
            let mut seen = vec![0u8; rows * cols];
            for r in cut(rows, cols, 8, ld_bytes, piece) {
                prop_assert!(ld_bytes * (r.cols - 1) + r.rows * 8 <= piece.max(8));
                for j in r.col0..r.col0 + r.cols {
                    for i in r.row0..r.row0 + r.rows {
                        seen[j * rows + i] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
        }

        #[test]
        fn owned_pieces_lie_where_their_rectangles_say(
            rows in 1usize..20, cols in 1usize..20, gap in 0usize..3, piece in 1usize..200,
        ) {
            let ld = rows + gap;
            let mut data = vec![0u8; ld * cols];
            let pointer = data.as_mut_ptr();
            // SAFETY: one-byte elements, cols columns ld apart are exactly `data`.
            let view = unsafe { MatMut::new(pointer, rows, cols, ld, 1) }.expect("valid");
            for (number, (r, mut view)) in cut_mut(view, rows, piece).into_iter().enumerate() {
                let mark = vec![mark_of(number); r.rows];
                for j in 0..r.cols {
                    view.write_column_piece(j, 0, &mark);
                }
            }
            for (number, r) in cut(rows, cols, 1, rows, piece).into_iter().enumerate() {
                for j in r.col0..r.col0 + r.cols {
                    for i in r.row0..r.row0 + r.rows {
                        prop_assert_eq!(data[j * ld + i], mark_of(number));
                    }
                }
            }
            for j in 0..cols {
                prop_assert!(data[j * ld + rows..(j + 1) * ld].iter().all(|&gap| gap == 0));
            }
        }
    }
}
