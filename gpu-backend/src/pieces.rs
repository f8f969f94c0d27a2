//! How a rectangle of a matrix is cut into pieces that each fit a pinned chunk.
//!
//! Pure arithmetic: no memory, no CUDA.

use call::{Area, Rectangle};

/// What a piece looks like in a chunk and on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Distance of columns in the chunk in bytes.
    pub pitch_bytes: usize,
    /// Bytes in the chunk.
    pub bytes: usize,
    /// The chunk goes to the device as one run, the gaps between columns included.
    pub linear: bool,
}

/// Columns of at least this many bytes start on a cache line in the chunk: it costs them at most 1.6 %.
const ALIGN_FROM_BYTES: usize = 4096;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The image of rows x cols elements. `gap_free_ld_bytes` is the distance of columns on the device where
/// what lies between the columns belongs to nobody.
pub fn image(
    (rows, cols): (usize, usize),
    elem_bytes: usize,
    gap_free_ld_bytes: Option<usize>,
) -> Image {
    let row_bytes = rows * elem_bytes;
    let (pitch_bytes, linear) = match gap_free_ld_bytes {
        Some(ld_bytes) => (ld_bytes, true),
        None if row_bytes >= ALIGN_FROM_BYTES => (row_bytes.next_multiple_of(LINE_BYTES), false),
        None => (row_bytes, false),
    };
    let bytes = match cols {
        0 => 0,
        cols => pitch_bytes * (cols - 1) + row_bytes,
    };
    Image {
        pitch_bytes,
        bytes,
        linear: linear || cols == 1,
    }
}

/// Cuts rows x cols elements, of which `area` take part, into pieces whose images have at most
/// `piece_bytes` bytes (one element at least): runs of whole columns where they fit, parts of one column
/// otherwise. The pieces count rows and columns from the rectangle's corner; each holds only rows that take
/// part somewhere in it, so that a triangle costs half of its square.
pub fn cut(
    (rows, cols): (usize, usize),
    area: Area,
    elem_bytes: usize,
    gap_free_ld_bytes: Option<usize>,
    piece_bytes: usize,
) -> Vec<(Rectangle, Area)> {
    let mut pieces = Vec::new();
    if rows == 0 {
        return pieces;
    }
    let mut col0 = 0;
    while col0 < cols {
        // With all columns of one size the pieces are made of one size too.
        let most = match area {
            Area::Full => {
                let column = image((rows, 2), elem_bytes, gap_free_ld_bytes).pitch_bytes;
                let fit = (piece_bytes / column).max(1);
                cols.div_ceil(cols.div_ceil(fit))
            }
            _ => cols,
        };
        let mut piece = column_of(area, rows, col0);
        let mut count = 1;
        while count < most.min(cols - col0) {
            let wider = joined(piece, column_of(area, rows, col0 + count));
            let size = (wider.1, count + 1);
            if image(
                size,
                elem_bytes,
                gap_free_ld_bytes.filter(|_| wider.1 == rows),
            )
            .bytes
                > piece_bytes
            {
                break;
            }
            piece = wider;
            count += 1;
        }
        push(
            &mut pieces,
            piece,
            (col0, count),
            area,
            elem_bytes,
            piece_bytes,
        );
        col0 += count;
    }
    pieces
}

/// First row and number of rows of one column.
fn column_of(area: Area, rows: usize, j: usize) -> (usize, usize) {
    area.rows_of(j, rows)
}

/// The least interval that holds both; an empty one adds nothing.
fn joined(x: (usize, usize), y: (usize, usize)) -> (usize, usize) {
    match (x.1, y.1) {
        (0, _) => y,
        (_, 0) => x,
        _ => {
            let first = x.0.min(y.0);
            (first, (x.0 + x.1).max(y.0 + y.1) - first)
        }
    }
}

/// Adds a run of columns, or the parts of a single one that is too long.
fn push(
    pieces: &mut Vec<(Rectangle, Area)>,
    (row0, rows): (usize, usize),
    (col0, cols): (usize, usize),
    area: Area,
    elem_bytes: usize,
    piece_bytes: usize,
) {
    if rows == 0 {
        return;
    }
    let fit = (piece_bytes / elem_bytes).max(1);
    let step = match cols {
        1 => rows.div_ceil(rows.div_ceil(fit)),
        _ => rows,
    };
    for part in (0..rows).step_by(step) {
        let rectangle = Rectangle {
            row0: row0 + part,
            rows: step.min(rows - part),
            col0,
            cols,
        };
        // One column's rows all take part: that is how they were chosen.
        let area = match cols {
            1 => Area::Full,
            _ => area.moved(row0, col0),
        };
        pieces.push((rectangle, area));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn area() -> impl Strategy<Value = Area> {
        prop_oneof![
            Just(Area::Full),
            (-9isize..9).prop_map(|shift| Area::Upper { shift }),
            (-9isize..9).prop_map(|shift| Area::Lower { shift }),
        ]
    }

    proptest! {
        #[test]
        fn pieces_hold_every_element_of_the_area_once_and_fit(
            rows in 1usize..40, cols in 1usize..40, area in area(), extra in proptest::option::of(0usize..3),
            piece_bytes in 8usize..900,
        ) {
            let ld_bytes = extra.map(|extra| (rows + extra) * 8);
            let mut seen = vec![0u8; rows * cols];
            for (r, part) in cut((rows, cols), area, 8, ld_bytes, piece_bytes) {
                let gap_free = ld_bytes.filter(|_| r.rows == rows);
                let bytes = image((r.rows, r.cols), 8, gap_free).bytes;
                prop_assert!(bytes <= piece_bytes, "{bytes} > {piece_bytes}");
                prop_assert!(r.row0 + r.rows <= rows && r.col0 + r.cols <= cols);
                for j in 0..r.cols {
                    let (first, count) = part.rows_of(j, r.rows);
                    for i in first..first + count {
                        seen[(r.col0 + j) * rows + r.row0 + i] += 1;
                    }
                }
            }
            for j in 0..cols {
                let (first, count) = area.rows_of(j, rows);
                for i in 0..rows {
                    let inside = i >= first && i < first + count;
                    prop_assert_eq!(seen[j * rows + i], u8::from(inside), "({}, {})", i, j);
                }
            }
        }
    }

    #[test]
    fn a_triangle_costs_little_more_than_half_of_its_square() {
        let n = 8192;
        let pieces = cut((n, n), Area::Upper { shift: 0 }, 8, None, 1 << 20);
        let bytes: usize = pieces
            .iter()
            .map(|(r, _)| image((r.rows, r.cols), 8, None).bytes)
            .sum();
        // Half of the square, and the corners that the pieces' boxes add: about 1 % each way of 270 pieces.
        assert!(
            bytes < n * n * 8 * 52 / 100,
            "{}",
            bytes as f64 / (n * n * 8) as f64
        );
        let most = pieces
            .iter()
            .map(|(r, _)| image((r.rows, r.cols), 8, None).bytes)
            .max();
        assert!(most.is_some_and(|most| most > 1 << 19), "pieces are small");
    }

    #[test]
    fn full_pieces_are_of_one_size() {
        let pieces = cut((1000, 10), Area::Full, 8, None, 32_000);
        let widths: Vec<usize> = pieces.iter().map(|(r, _)| r.cols).collect();
        assert_eq!(widths, [4, 4, 2]);
    }
}
