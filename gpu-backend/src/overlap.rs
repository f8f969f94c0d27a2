//! Whether two operands share memory. Addresses only: nothing here reads an element.

use call::MatRef;

/// True if some element of `x` may share its address with one of `c`.
///
/// Ranges that do not meet are apart. Ranges that do may still be parts of one larger matrix, in
/// different rows: with the same distance of columns, the offset of every element modulo that distance
/// lies in the rows' interval, so disjoint intervals mean disjoint elements.
pub fn overlaps(x: &MatRef<'_>, c: &MatRef<'_>) -> bool {
    let (xs, cs) = (x.address_range(), c.address_range());
    if xs.is_empty() || cs.is_empty() || xs.end <= cs.start || cs.end <= xs.start {
        return false;
    }
    let distance = c.ld() * c.elem_bytes();
    if x.ld() != c.ld() || x.elem_bytes() != c.elem_bytes() {
        return true;
    }
    let offset = if xs.start >= cs.start {
        (xs.start - cs.start) % distance
    } else {
        (distance - (cs.start - xs.start) % distance) % distance
    };
    !(offset >= c.column_bytes() && offset + x.column_bytes() <= distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(address: usize, rows: usize, cols: usize, ld: usize) -> MatRef<'static> {
        let data = core::ptr::without_provenance(address);
        // SAFETY: never read; `overlaps` looks at addresses only.
        unsafe { MatRef::new(data, rows, cols, ld, 8) }.expect("valid")
    }

    /// Addresses of every element.
    fn elements(v: &MatRef<'_>) -> std::collections::BTreeSet<usize> {
        let start = v.address_range().start;
        (0..v.cols())
            .flat_map(|j| (0..v.rows()).map(move |i| (i, j)))
            .map(|(i, j)| start + (j * v.ld() + i) * v.elem_bytes())
            .collect()
    }

    #[test]
    fn overlap_is_never_missed_and_row_blocks_of_one_matrix_are_told_apart() {
        let mut apart_though_interleaved = 0;
        for row in 0..8usize {
            for shift in 0..20usize {
                for rows in 1..4usize {
                    let c = view(0x10000, 3, 5, 8);
                    let x = view(0x10000 - 10 * 8 + shift * 8 + row * 64, rows, 4, 8);
                    let shares = !elements(&c).is_disjoint(&elements(&x));
                    let said = overlaps(&x, &c);
                    assert!(
                        said || !shares,
                        "missed: row {row} shift {shift} rows {rows}"
                    );
                    let (xs, cs) = (x.address_range(), c.address_range());
                    if !said && xs.start < cs.end && cs.start < xs.end {
                        apart_though_interleaved += 1;
                    }
                }
            }
        }
        assert!(apart_though_interleaved > 0);
        assert!(overlaps(&view(0x10000, 3, 5, 8), &view(0x10010, 3, 5, 9)));
        assert!(!overlaps(&view(0x10000, 3, 5, 8), &view(0x20000, 3, 5, 9)));
    }
}
