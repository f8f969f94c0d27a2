//! The shortest workspace that a routine of LAPACK accepts. A call with less is illegal, and LAPACK's own checks
//! report it; a call with at least this is legal whatever the best length is.

use crate::{Dims, Op, Options};

/// Order of the largest subproblems that divide and conquer does not divide (ilaenv's ISPEC = 9).
const LEAF: u64 = 25;

/// How often it divides a bidiagonal matrix of this order.
fn levels(order: u64) -> u64 {
    // INT cuts towards zero: half a leaf counts as one.
    match order / (LEAF + 1) {
        0 => u64::from(2 * order > LEAF + 1),
        leaves => u64::from(leaves.ilog2()) + 1,
    }
}

impl Options<'_> {
    /// The documented minimum of a length argument (`lwork`, `lrwork`, `liwork`), in elements of its workspace, or
    /// `None` where the routine is not known to have that length. At least 1.
    ///
    /// # Source
    /// The comments of LAPACK 3.12's routines; for gesdd and gesvd the largest over the paths that the sizes may
    /// take, as documented, which the checks never exceed; for complex gelsd, whose comments forget gebrd's part, the
    /// check in cgelsd.f for a matrix that is not reduced by QR first.
    pub fn least_length(&self, name: &str, dims: &Dims) -> Option<u64> {
        let complex = self.precision().is_complex();
        let vectors = self.letter("jobz") == b'V';
        let Dims { m, n, .. } = *dims;
        let (least, most) = (m.min(n), m.max(n));
        // Sizes are those of matrices in memory, but nothing holds a caller to that.
        let sum = |terms: &[&[u64]]| {
            let product = |term: &&[u64]| term.iter().fold(1_u64, |p, x| p.saturating_mul(*x));
            terms.iter().map(product).fold(0_u64, u64::saturating_add)
        };
        let length = match (self.op(), name) {
            (Op::Getri | Op::Geqrf | Op::Orgqr, "lwork") => n,
            (Op::Gelqf, "lwork") => m,
            (Op::Gels, "lwork") => sum(&[&[least], &[least.max(dims.k)]]),
            // The last term is that of the bidiagonal problem's leaves.
            (Op::Gelsd, "lwork") if !complex => sum(&[
                &[12 + 2 * LEAF + 8 * levels(least), least],
                &[least, dims.k],
                &[LEAF + 1, LEAF + 1],
            ]),
            (Op::Gelsd, "lwork") => sum(&[&[2, least], &[most.max(sum(&[&[least, dims.k]]))]]),
            (Op::Gelss, "lwork") if complex => sum(&[&[2, least], &[most.max(dims.k)]]),
            (Op::Gelss, "lwork") => {
                sum(&[&[3, least], &[most.max(dims.k).max(sum(&[&[2, least]]))]])
            }
            (Op::Ormqr, "lwork") if dims.right => m,
            (Op::Ormqr, "lwork") => n,
            (Op::Syev, "lwork") if complex => sum(&[&[2, n]]).saturating_sub(1),
            (Op::Syev, "lwork") => sum(&[&[3, n]]).saturating_sub(1),
            (Op::Sygv, "lwork") if complex => sum(&[&[2, n]]).saturating_sub(1),
            (Op::Sygv, "lwork") => sum(&[&[3, n]]).saturating_sub(1),
            (Op::Syevd | Op::Sygvd | Op::Syevr | Op::Syevx, _) if n <= 1 => 1,
            (Op::Syevx | Op::Sygvx, "lwork") if complex => sum(&[&[2, n]]),
            (Op::Syevx | Op::Sygvx, "lwork") => sum(&[&[8, n]]),
            (Op::Syevd | Op::Sygvd, "lwork") => match (complex, vectors) {
                (true, true) => sum(&[&[2, n], &[n, n]]),
                (true, false) => sum(&[&[n], &[1]]),
                (false, true) => sum(&[&[1], &[6, n], &[2, n, n]]),
                (false, false) => sum(&[&[2, n], &[1]]),
            },
            (Op::Syevd | Op::Sygvd, "lrwork") if vectors => sum(&[&[1], &[5, n], &[2, n, n]]),
            (Op::Syevd | Op::Sygvd, "lrwork") => n,
            (Op::Syevd | Op::Sygvd, "liwork") if vectors => sum(&[&[3], &[5, n]]),
            (Op::Syevd | Op::Sygvd, "liwork") => 1,
            (Op::Syevr, "lwork") if complex => sum(&[&[2, n]]),
            (Op::Syevr, "lwork") => sum(&[&[26, n]]),
            (Op::Syevr, "lrwork") => sum(&[&[24, n]]),
            (Op::Syevr, "liwork") => sum(&[&[10, n]]),
            (Op::Gesdd, "lwork") => match (complex, self.letter("jobz")) {
                (true, b'N') => sum(&[&[2, least], &[most]]),
                (true, b'O') => sum(&[&[2, least, least], &[2, least], &[most]]),
                (true, _) => sum(&[&[least, least], &[2, least], &[most]]),
                (false, b'N') => sum(&[&[3, least], &[most.max(sum(&[&[7, least]]))]]),
                (false, b'O') => sum(&[
                    &[3, least],
                    &[most.max(sum(&[&[5, least, least], &[4, least]]))],
                ]),
                (false, b'S') => sum(&[&[4, least, least], &[7, least]]).max(sum(&[
                    &[3, least],
                    &[most.max(sum(&[&[3, least, least], &[4, least]]))],
                ])),
                (false, _) => sum(&[&[4, least, least], &[6, least], &[most]]),
            },
            (Op::Gesvd, "lwork") if complex => sum(&[&[2, least], &[most]]),
            (Op::Gesvd, "lwork") => sum(&[&[3, least], &[most]]).max(sum(&[&[5, least]])),
            (Op::Geev, "lwork") if complex => sum(&[&[2, n]]),
            (Op::Geev, "lwork") if self.letter("jobvl") == b'V' || self.letter("jobvr") == b'V' => {
                sum(&[&[4, n]])
            }
            (Op::Geev, "lwork") => sum(&[&[3, n]]),
            _ => return None,
        };
        Some(length.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arg, Library, Precision, family, option_letters, routed_in};

    fn least(op: Op, precision: Precision, letters: &str, name: &str, (m, n): (u64, u64)) -> u64 {
        let options = Options::new(family(op), precision, option_letters(letters));
        let dims = Dims {
            m,
            n,
            k: n,
            right: letters.starts_with('R'),
        };
        options.least_length(name, &dims).expect("known")
    }

    /// From the comments of the routines.
    #[test]
    fn check_values() {
        let d = |op, letters, size| least(op, Precision::D, letters, "lwork", size);
        assert_eq!(d(Op::Geqrf, "", (7, 5)), 5);
        assert_eq!(d(Op::Gelqf, "", (7, 5)), 7);
        assert_eq!(d(Op::Gels, "N", (7, 5)), 10);
        // With 5 right-hand sides; the number of levels is that of dgelsd.f.
        assert_eq!(d(Op::Gelsd, "", (7, 5)), 12 * 5 + 50 * 5 + 25 + 676);
        assert_eq!(d(Op::Gelss, "", (7, 5)), 25);
        assert_eq!(d(Op::Gelss, "", (70, 5)), 85);
        for (order, levels) in [
            (1, 0),
            (13, 0),
            (14, 1),
            (51, 1),
            (52, 2),
            (103, 2),
            (104, 3),
        ] {
            assert_eq!(super::levels(order), levels, "{order}");
            let (x, leaf) = (order as f64, (LEAF + 1) as f64);
            let documented = ((x / leaf).ln() / 2.0_f64.ln()) as i64 + 1;
            assert_eq!(documented.max(0) as u64, levels, "{order}");
        }
        assert_eq!(d(Op::Ormqr, "LT", (7, 5)), 5);
        assert_eq!(d(Op::Ormqr, "RT", (7, 5)), 7);
        assert_eq!(d(Op::Syev, "VU", (10, 10)), 29);
        assert_eq!(d(Op::Sygvd, "VU", (10, 10)), 261);
        assert_eq!(d(Op::Syevd, "NU", (10, 10)), 21);
        assert_eq!(d(Op::Syevr, "VAU", (10, 10)), 260);
        assert_eq!(d(Op::Syevx, "NIU", (10, 10)), 80);
        assert_eq!(d(Op::Gesdd, "S", (10, 10)), 470);
        assert_eq!(d(Op::Gesvd, "SS", (20, 10)), 50);
        assert_eq!(d(Op::Geev, "NV", (10, 10)), 40);
        assert_eq!(d(Op::Geev, "NN", (10, 10)), 30);
        let z = |op, letters, name| least(op, Precision::Z, letters, name, (10, 10));
        assert_eq!(z(Op::Syevd, "VU", "lwork"), 120);
        assert_eq!(z(Op::Syevd, "VU", "lrwork"), 251);
        assert_eq!(z(Op::Sygvd, "VU", "liwork"), 53);
        assert_eq!(z(Op::Gelsd, "", "lwork"), 120);
        assert_eq!(z(Op::Gelss, "", "lwork"), 30);
        assert_eq!(z(Op::Syevr, "VAU", "lrwork"), 240);
        assert_eq!(z(Op::Gesdd, "A", "lwork"), 130);
        for op in [Op::Syevd, Op::Syevr, Op::Syevx, Op::Sygv] {
            assert!(
                least(op, Precision::D, "VAU", "lwork", (1, 1)) <= 2,
                "{op:?}"
            );
        }
    }

    #[test]
    fn every_length_of_a_routed_routine_is_known() {
        for (row, precision, routine) in routed_in(Library::Lapack) {
            for arg in row.args_of(precision) {
                if let Arg::Lwork { name } = arg {
                    let dims = Dims {
                        m: 9,
                        n: 9,
                        k: 9,
                        right: false,
                    };
                    let options = Options::new(row, precision, [b'N'; 4]);
                    assert!(
                        options.least_length(name, &dims).is_some(),
                        "{routine}: {name}"
                    );
                    // No size overflows.
                    let dims = Dims {
                        m: u64::MAX,
                        n: u64::MAX,
                        k: 1,
                        right: false,
                    };
                    assert!(
                        options.least_length(name, &dims).is_some(),
                        "{routine}: {name}"
                    );
                }
            }
        }
    }
}
