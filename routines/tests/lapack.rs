//! Check values for the LAPACK rows, each worked out another way than the row itself: argument
//! counts copied from the reference, operations counted by the loops of the unblocked algorithms,
//! bytes by hand. Nothing here calls LAPACK.

use routines::{Arg, Dims, Family, Intent, Library, Op, Precision, families, family};

/// Operations of real arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    mul: u64,
    add: u64,
}

impl Count {
    fn plus(self, other: Count) -> Count {
        Count {
            mul: self.mul + other.mul,
            add: self.add + other.add,
        }
    }
}

const D: Precision = Precision::D;
const Z: Precision = Precision::Z;

fn lapack() -> impl Iterator<Item = &'static Family> {
    families().filter(|f| f.library == Library::Lapack)
}

/// `n` for families with n only: m equals n by the convention of `Dims`.
fn order(n: u64, k: u64) -> Dims {
    Dims {
        m: n,
        n,
        k,
        right: false,
    }
}

fn tall(m: u64, n: u64, k: u64) -> Dims {
    Dims {
        m,
        n,
        k,
        right: false,
    }
}

/// The row's count equals the loop's, in real and in complex arithmetic.
fn same(op: Op, dims: Dims, expected: Count) {
    let flops = family(op).flops;
    let (mul, add) = (expected.mul as f64, expected.add as f64);
    for (precision, value) in [(D, mul + add), (Z, 6.0 * mul + 2.0 * add)] {
        let counted = flops.count(precision, &dims);
        assert!(
            (counted - value).abs() <= 1e-9 * value.max(1.0),
            "{op:?} {precision:?} {dims:?}: the row says {counted}, the loop {value}"
        );
    }
}

/// The share of the leading power: the count at a large order over n^3.
fn leading(op: Op) -> f64 {
    let n = 1_000_000_u64;
    family(op).flops.count(D, &order(n, 0)) / (n as f64).powi(3)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * b
}

// ---- loops of the unblocked algorithms ----------------------------------------------------------

/// getf2: a reciprocal and a scaled column, then a rank-1 update.
fn lu(m: u64, n: u64) -> Count {
    let mut c = Count::default();
    for j in 0..m.min(n) {
        c.mul += 1;
        for _ in j + 1..m {
            c.mul += 1;
        }
        for _ in j + 1..n {
            for _ in j + 1..m {
                c.mul += 1;
                c.add += 1;
            }
        }
    }
    c
}

/// Substitution with a triangle of order n: row i takes i products and additions, and a division
/// unless the diagonal is 1.
fn solve(n: u64, nrhs: u64, unit: bool) -> Count {
    let mut c = Count::default();
    for _ in 0..nrhs {
        for i in 0..n {
            c.mul += i + u64::from(!unit);
            c.add += i;
        }
    }
    c
}

/// potf2: dot products for each entry of the triangle, a root (counted as one multiplication) on
/// the diagonal, a product by the reciprocal below it.
fn cholesky(n: u64) -> Count {
    let mut c = Count::default();
    for j in 0..n {
        for _ in j..n {
            c.mul += j + 1;
            c.add += j;
        }
    }
    c
}

/// trti2: for each column a reciprocal, a triangular product with what is inverted so far, a
/// scaling.
fn triangular_inverse(n: u64) -> Count {
    let mut c = Count::default();
    for j in 0..n {
        c.mul += 1;
        for row in 0..j {
            // Row `row` of an upper triangle of order j has j - row entries: a sum of that many
            // products, and the scaling.
            c.mul += j - row + 1;
            c.add += j - row - 1;
        }
    }
    c
}

/// lauu2: entry (i, j) of U U^H, i <= j, is a dot product of length n - j.
fn triangle_times_itself(n: u64) -> Count {
    let mut c = Count::default();
    for j in 0..n {
        for _ in 0..=j {
            c.mul += n - j;
            c.add += n - j - 1;
        }
    }
    c
}

/// larfg: length l.
fn reflector(l: u64) -> Count {
    Count {
        mul: 2 * l + 4,
        add: l + 1,
    }
}

/// larf: one reflector of length l on `vectors` vectors: a dot product and an update with each,
/// and a product by tau.
fn reflect(l: u64, vectors: u64) -> Count {
    let mut c = Count::default();
    for _ in 0..vectors {
        c.mul += l + 1 + l;
        c.add += l + l;
    }
    c
}

/// larf from the right: the reflector is scaled by tau, once.
fn reflect_from_right(l: u64, vectors: u64) -> Count {
    let mut c = Count { mul: l, add: 0 };
    for _ in 0..vectors {
        c.mul += l + l;
        c.add += l + l;
    }
    c
}

/// geqr2.
fn qr(m: u64, n: u64) -> Count {
    (0..m.min(n)).fold(Count::default(), |c, j| {
        c.plus(reflector(m - j)).plus(reflect(m - j, n - j - 1))
    })
}

/// gelq2.
fn lq(m: u64, n: u64) -> Count {
    (0..m.min(n)).fold(Count::default(), |c, j| {
        c.plus(reflector(n - j))
            .plus(reflect_from_right(n - j, m - j - 1))
    })
}

/// org2r: reflectors applied backwards to what stands right of them, then column j itself.
fn form_q(m: u64, n: u64, k: u64) -> Count {
    (0..k).fold(Count::default(), |c, j| {
        c.plus(reflect(m - j, n - j - 1)).plus(Count {
            mul: m - j - 1,
            add: 1,
        })
    })
}

/// orm2r: k reflectors of length `order` and less on `vectors` vectors.
fn apply_q(order: u64, vectors: u64, k: u64) -> Count {
    (0..k).fold(Count::default(), |c, j| c.plus(reflect(order - j, vectors)))
}

/// `l - 1` rotations for each of two sweeps an eigenvalue, on `rows` rows.
fn rotations(order: u64, rows: u64) -> Count {
    let mut c = Count::default();
    for l in 1..=order {
        for _ in 0..2 * (l - 1) {
            c.mul += 4 * rows;
            c.add += 2 * rows;
        }
    }
    c
}

/// The products of a divide-and-conquer tree over a power of two: merging order l multiplies the
/// two diagonal blocks of the vectors, l/2 x l/2, by half of the new ones each, l/2 x l.
fn merges(n: u64) -> Count {
    if n < 2 {
        return Count::default();
    }
    let half = n / 2;
    let products = 2 * half * half * n;
    let below = merges(half);
    Count {
        mul: 2 * below.mul + products,
        add: 2 * below.add + products,
    }
}

// ---- exact counts -------------------------------------------------------------------------------

/// Shapes taller, wider and square, empty and 1 among them.
fn shapes() -> impl Iterator<Item = (u64, u64)> {
    (0..9).flat_map(|m| (0..9).map(move |n| (m, n)))
}

#[test]
fn lu_counts_equal_the_loops() {
    for (m, n) in shapes() {
        same(Op::Getrf, tall(m, n, 0), lu(m, n));
    }
    for (n, nrhs) in shapes() {
        let back = solve(n, nrhs, true).plus(solve(n, nrhs, false));
        same(Op::Getrs, order(n, nrhs), back);
        for op in [Op::Gesv, Op::Gesvx, Op::GesvMixed] {
            same(op, order(n, nrhs), lu(n, n).plus(back));
        }
    }
}

/// getri solves X L = U^-1 from the last column: column j takes the n - j - 1 columns behind it, and
/// its entries below the diagonal start as 0, so that their first addition is an assignment.
/// LAWN 41 has n (n + 1) / 2 more multiplications than that.
#[test]
fn inverse_counts_equal_the_loops() {
    for n in 0..12 {
        let mut c = triangular_inverse(n);
        for j in 0..n {
            let behind = n - j - 1;
            for row in 0..n {
                c.mul += behind;
                c.add += if row > j {
                    behind.saturating_sub(1)
                } else {
                    behind
                };
            }
        }
        c.mul += n * (n + 1) / 2;
        same(Op::Getri, order(n, 0), c);
        same(Op::Trtri, order(n, 0), triangular_inverse(n));
    }
}

#[test]
fn cholesky_counts_equal_the_loops() {
    for (n, nrhs) in shapes() {
        same(Op::Potrf, order(n, 0), cholesky(n));
        same(Op::Lauum, order(n, 0), triangle_times_itself(n));
        same(
            Op::Potri,
            order(n, 0),
            triangular_inverse(n).plus(triangle_times_itself(n)),
        );
        let both = solve(n, nrhs, false).plus(solve(n, nrhs, false));
        same(Op::Potrs, order(n, nrhs), both);
        same(Op::Trtrs, order(n, nrhs), solve(n, nrhs, false));
        for op in [Op::Posv, Op::PosvMixed] {
            same(op, order(n, nrhs), cholesky(n).plus(both));
        }
    }
}

/// sytf2 with pivots of 1 x 1: with i rows left, a rank-1 update of a triangle and a scaled column;
/// LAWN 41 counts 4 multiplications more for each pivot.
#[test]
fn symmetric_indefinite_counts_equal_the_loops() {
    for (n, nrhs) in shapes() {
        let mut c = Count::default();
        for i in 0..n {
            for column in 0..i {
                c.mul += i - column;
                c.add += i - column;
            }
            c.mul += i + 4;
        }
        // U, D^-1, U^T: two unit triangles, and a division for each row, of which LAWN 41 counts 2.
        let mut back = solve(n, nrhs, true).plus(solve(n, nrhs, true));
        back.mul += 2 * n * nrhs;
        same(Op::Sytrf, order(n, 0), c);
        same(Op::Sytrs, order(n, nrhs), back);
        same(Op::Sysv, order(n, nrhs), c.plus(back));
    }
}

#[test]
fn qr_counts_equal_the_loops() {
    for (m, n) in shapes() {
        same(Op::Geqrf, tall(m, n, 0), qr(m, n));
        same(Op::Geqp3, tall(m, n, 0), qr(m, n));
        same(Op::Gelqf, tall(m, n, 0), lq(m, n));
        for k in 0..=n.min(m) {
            if n <= m {
                same(Op::Orgqr, tall(m, n, k), form_q(m, n, k));
            }
            same(Op::Ormqr, tall(m, n, k), apply_q(m, n, k));
            same(
                Op::Ormqr,
                Dims {
                    right: true,
                    ..tall(m, n, k)
                },
                apply_q(n, m, k),
            );
        }
        let (p, q) = (m.max(n), m.min(n));
        for nrhs in 0..4 {
            let c = qr(p, q)
                .plus(apply_q(p, nrhs, q))
                .plus(solve(q, nrhs, false));
            same(Op::Gels, tall(m, n, nrhs), c);
            same(Op::Gelsy, tall(m, n, nrhs), c);
        }
    }
    for n in 1..9 {
        same(Op::Orghr, order(n, 0), form_q(n - 1, n - 1, n - 1));
    }
}

/// gehd2: reflector i, of length l, on all n rows from the right and on l columns from the left.
/// The row leaves LAWN 41's constants out (13 multiplications and 8 additions), and LAWN 41 counts
/// the additions of making a reflector twice.
#[test]
fn hessenberg_counts_equal_the_loops() {
    for n in 2..12 {
        let mut c = Count { mul: 13, add: 8 };
        for l in (2..n).rev() {
            c = c.plus(reflector(l)).plus(reflect(l, n)).plus(reflect(l, l));
            c.add += reflector(l).add;
        }
        same(Op::Gehrd, order(n, 0), c);
    }
}

// ---- leading terms ------------------------------------------------------------------------------

/// gebd2 for m >= n. The last row has nothing to reflect; LAWN 41 counts the making of its reflector.
fn bidiagonal(m: u64, n: u64) -> Count {
    (0..n).fold(Count::default(), |c, j| {
        let l = n - j - 1;
        c.plus(reflector(m - j))
            .plus(reflect(m - j, l))
            .plus(reflector(l))
            .plus(reflect_from_right(l, m - j - 1))
    })
}

/// gesvd by its loops for m >= n, and the same for the transpose.
#[test]
fn gesvd_counts_equal_the_loops() {
    for n in 1..9 {
        for m in n..12 {
            let c = bidiagonal(m, n)
                .plus(form_q(m, n, n))
                .plus(form_q(n, n, n))
                .plus(rotations(n, m + n));
            same(Op::Gesvd, tall(m, n, 0), c);
            same(Op::Gesvd, tall(n, m, 0), c);
        }
    }
}

/// Large enough for the leading term, a power of two for the tree of merges.
const LARGE: u64 = 1 << 10;

/// Counted by loops at n = 1024, within 1 %: what stands below the leading term is no more.
fn about(op: Op, dims: Dims, expected: Count) {
    let counted = family(op).flops.count(D, &dims);
    let value = (expected.mul + expected.add) as f64;
    assert!(
        (counted / value - 1.0).abs() < 0.01,
        "{op:?} {dims:?}: {counted:e}, loop {value:e}"
    );
}

#[test]
fn gesdd_and_bdsdc_counts_are_about_the_loops() {
    let n = LARGE;
    let both_sides = merges(n).plus(merges(n));
    about(Op::Bdsdc, order(n, 0), both_sides);
    for m in [n, 3 * n / 2, 4 * n] {
        let c = bidiagonal(m, n)
            .plus(both_sides)
            .plus(apply_q(m, n, n))
            .plus(apply_q(n, n, n));
        about(Op::Gesdd, tall(m, n, 0), c);
        about(Op::Gesdd, tall(n, m, 0), c);
    }
}

/// sytd2: with l rows left a reflector, a symmetric product and a rank-2 update of a triangle.
fn tridiagonal(n: u64) -> Count {
    (1..n).fold(Count::default(), |c, l| {
        c.plus(reflector(l)).plus(Count {
            mul: l * l + l * (l + 1),
            add: l * l + l * (l + 1),
        })
    })
}

#[test]
fn symmetric_eigenproblem_counts_are_about_the_loops() {
    let n = LARGE;
    let iteration = tridiagonal(n)
        .plus(form_q(n - 1, n - 1, n - 1))
        .plus(rotations(n, n));
    let conquer = tridiagonal(n)
        .plus(merges(n))
        .plus(apply_q(n - 1, n, n - 1));
    let selected = tridiagonal(n).plus(apply_q(n - 1, n, n - 1));
    about(Op::Syev, order(n, 0), iteration);
    about(Op::Syevd, order(n, 0), conquer);
    about(Op::Syevr, order(n, 0), selected);
    about(Op::Syevx, order(n, 0), selected);
    // sygs2: with l rows left two updates of a vector, a rank-2 update, a triangular solve.
    let to_standard = (0..n).fold(Count::default(), |c, l| {
        let each = 3 * l + l * (l + 1) + l * (l + 1) / 2;
        c.plus(Count {
            mul: each,
            add: each,
        })
    });
    let general = cholesky(n).plus(to_standard).plus(solve(n, n, false));
    about(Op::Sygv, order(n, 0), general.plus(iteration));
    about(Op::Sygvd, order(n, 0), general.plus(conquer));
    about(Op::Sygvx, order(n, 0), general.plus(selected));
}

#[test]
fn svd_least_squares_counts_are_about_the_loops() {
    let n = LARGE;
    for (m, nrhs) in [(n, 1), (n, n), (2 * n, n / 4)] {
        let conquer = bidiagonal(m, n)
            .plus(apply_q(m, nrhs, n))
            .plus(apply_q(n, nrhs, n));
        about(Op::Gelsd, tall(m, n, nrhs), conquer);
        about(Op::Gelsd, tall(n, m, nrhs), {
            // The transpose: the short reflectors meet the right-hand sides first.
            bidiagonal(m, n)
                .plus(apply_q(n, nrhs, n))
                .plus(apply_q(m, nrhs, n))
        });
        let product = Count {
            mul: n * n * nrhs,
            add: n * n * nrhs,
        };
        let iteration = bidiagonal(m, n)
            .plus(apply_q(m, nrhs, n))
            .plus(form_q(n, n, n))
            .plus(rotations(n, n + nrhs))
            .plus(product);
        about(Op::Gelss, tall(m, n, nrhs), iteration);
    }
}

/// Both sides: back substitution of every order, then n x l by l.
#[test]
fn trevc3_count_is_about_the_loop() {
    let n = LARGE;
    let one_side = (1..=n).fold(Count::default(), |c, l| {
        c.plus(Count {
            mul: l * (l + 1) / 2 + n * l,
            add: l * (l - 1) / 2 + n * l,
        })
    });
    about(Op::Trevc3, order(n, 0), one_side.plus(one_side));
}

/// Leading coefficients as the sources state them for square matrices.
#[test]
fn leading_coefficients_are_those_of_the_sources() {
    for (op, coefficient) in [
        // LAWN 41.
        (Op::Getrf, 2.0 / 3.0),
        (Op::Getri, 4.0 / 3.0),
        (Op::Potrf, 1.0 / 3.0),
        (Op::Potri, 2.0 / 3.0),
        (Op::Trtri, 1.0 / 3.0),
        (Op::Lauum, 1.0 / 3.0),
        (Op::Sytrf, 1.0 / 3.0),
        (Op::Geqrf, 4.0 / 3.0),
        (Op::Gelqf, 4.0 / 3.0),
        (Op::Gehrd, 10.0 / 3.0),
        (Op::Orghr, 4.0 / 3.0),
        // Reduction 4/3, vectors 4/3, QL iteration 6 (Demmel).
        (Op::Syev, 26.0 / 3.0),
        // Reduction 4/3, divide and conquer 4/3 (Tisseur and Dongarra), back transformation 2.
        (Op::Syevd, 14.0 / 3.0),
        (Op::Syevr, 10.0 / 3.0),
        // Cholesky 1/3, reduction to standard form 1, triangular solve 1 beside those.
        (Op::Sygv, 26.0 / 3.0 + 7.0 / 3.0),
        (Op::Sygvd, 14.0 / 3.0 + 7.0 / 3.0),
        (Op::Sygvx, 10.0 / 3.0 + 7.0 / 3.0),
        // Reduction 8/3, divide and conquer 8/3, back transformations 2 + 2.
        (Op::Gesdd, 28.0 / 3.0),
        // Reduction 8/3, vectors 4/3 + 4/3, QR iteration 12.
        (Op::Gesvd, 52.0 / 3.0),
        (Op::Bdsdc, 8.0 / 3.0),
        // Golub and Van Loan: 25 with the Schur vectors; 30 + 16 + 20 for QZ.
        (Op::Gees, 25.0),
        (Op::Geev, 25.0 + 8.0 / 3.0),
        (Op::Gges, 66.0),
        (Op::Trevc3, 8.0 / 3.0),
    ] {
        let counted = leading(op);
        assert!(
            near(counted, coefficient),
            "{op:?}: {counted}, the source says {coefficient}"
        );
    }
}

#[test]
fn nothing_costs_nothing_and_no_count_is_negative() {
    for f in lapack() {
        for (precision, name) in f.routines() {
            assert_eq!(
                f.flops.count(precision, &Dims::default()),
                0.0,
                "{name} of order 0"
            );
            for n in 1..6 {
                for k in 1..=n {
                    let flops = f.flops.count(precision, &order(n, k));
                    assert!(flops >= 0.0, "{name} n = {n}, k = {k}: {flops}");
                }
            }
        }
    }
}

// ---- arguments ----------------------------------------------------------------------------------

/// Number of arguments in reference LAPACK 3.12, in real and in complex arithmetic (0: no such
/// routine), and of CHARACTER arguments among them, which gfortran's callers follow by as many
/// hidden lengths.
const ARITY: &[(&str, &str, usize, usize, usize)] = &[
    ("dgetrf", "zgetrf", 6, 6, 0),
    ("dgetrs", "zgetrs", 9, 9, 1),
    ("dgetri", "zgetri", 7, 7, 0),
    ("dgesv", "zgesv", 8, 8, 0),
    ("dgesvx", "zgesvx", 22, 22, 3),
    ("dpotrf", "zpotrf", 5, 5, 1),
    ("dpotrs", "zpotrs", 8, 8, 1),
    ("dpotri", "zpotri", 5, 5, 1),
    ("dposv", "zposv", 8, 8, 1),
    ("dtrtri", "ztrtri", 6, 6, 2),
    ("dtrtrs", "ztrtrs", 10, 10, 3),
    ("dlauum", "zlauum", 5, 5, 1),
    ("dsytrf", "zsytrf", 8, 8, 1),
    ("dsytrs", "zsytrs", 9, 9, 1),
    ("dsysv", "zsysv", 11, 11, 1),
    ("dgeqrf", "zgeqrf", 8, 8, 0),
    ("dorgqr", "zungqr", 9, 9, 0),
    ("dormqr", "zunmqr", 13, 13, 2),
    ("dgels", "zgels", 11, 11, 1),
    ("dgelsd", "zgelsd", 14, 15, 0),
    ("dgelss", "zgelss", 13, 14, 0),
    ("dgelsy", "zgelsy", 13, 14, 0),
    ("dgeqp3", "zgeqp3", 9, 10, 0),
    ("dgelqf", "zgelqf", 8, 8, 0),
    ("dsyev", "zheev", 9, 10, 2),
    ("dsyevd", "zheevd", 11, 13, 2),
    ("dsyevr", "zheevr", 21, 23, 3),
    ("dsyevx", "zheevx", 20, 21, 3),
    ("dsygv", "zhegv", 12, 13, 2),
    ("dsygvd", "zhegvd", 14, 16, 2),
    ("dsygvx", "zhegvx", 23, 24, 3),
    ("dgesdd", "zgesdd", 14, 15, 1),
    ("dgesvd", "zgesvd", 14, 15, 2),
    ("dbdsdc", "", 14, 0, 2),
    ("dgeev", "zgeev", 14, 14, 2),
    ("dgehrd", "zgehrd", 9, 9, 0),
    ("dorghr", "zunghr", 9, 9, 0),
    ("dtrevc3", "ztrevc3", 15, 17, 2),
    ("dgees", "zgees", 15, 15, 2),
    ("dgges", "zgges", 21, 21, 3),
    ("dsgesv", "zcgesv", 13, 14, 0),
    ("dsposv", "zcposv", 13, 14, 1),
];

fn args(routine: &str) -> &'static [Arg] {
    lapack()
        .find_map(|f| {
            f.routines()
                .find(|(_, n)| n == routine)
                .map(|(p, _)| f.args_of(p))
        })
        .unwrap_or_else(|| panic!("{routine} has no row"))
}

#[test]
fn every_routine_has_the_reference_s_number_of_arguments() {
    assert_eq!(
        ARITY.len(),
        lapack().count(),
        "a family without a check value"
    );
    for &(real, complex, real_args, complex_args, letters) in ARITY {
        for (routine, count) in [(real, real_args), (complex, complex_args)] {
            if count == 0 {
                assert!(
                    lapack().all(|f| f.routines().all(|(_, n)| n != format!("z{}", &real[1..]))),
                    "{real} has a complex version"
                );
                continue;
            }
            let args = args(routine);
            assert_eq!(args.len(), count, "{routine}");
            let characters = args
                .iter()
                .filter(|a| matches!(a, Arg::Letter { .. } | Arg::LetterInOut { .. }))
                .count();
            assert_eq!(characters, letters, "{routine}: CHARACTER arguments");
        }
    }
}

/// Single precision has the arguments of double precision.
#[test]
fn single_and_double_take_the_same_arguments() {
    for f in lapack() {
        assert_eq!(
            f.args_of(Precision::S),
            f.args_of(Precision::D),
            "{:?}",
            f.op
        );
        assert_eq!(
            f.args_of(Precision::C),
            f.args_of(Precision::Z),
            "{:?}",
            f.op
        );
    }
}

/// Every list as in the reference's SUBROUTINE statements.
#[test]
fn argument_names_in_order() {
    for (routine, list) in [
        ("dgetrf", "m n a lda ipiv info"),
        ("zgetrf", "m n a lda ipiv info"),
        ("dgetrs", "trans n nrhs a lda ipiv b ldb info"),
        ("zgetrs", "trans n nrhs a lda ipiv b ldb info"),
        ("dgetri", "n a lda ipiv work lwork info"),
        ("zgetri", "n a lda ipiv work lwork info"),
        ("dgesv", "n nrhs a lda ipiv b ldb info"),
        ("zgesv", "n nrhs a lda ipiv b ldb info"),
        (
            "dgesvx",
            "fact trans n nrhs a lda af ldaf ipiv equed r \
             c b ldb x ldx rcond ferr berr work iwork info",
        ),
        (
            "zgesvx",
            "fact trans n nrhs a lda af ldaf ipiv equed r \
             c b ldb x ldx rcond ferr berr work rwork info",
        ),
        ("dpotrf", "uplo n a lda info"),
        ("zpotrf", "uplo n a lda info"),
        ("dpotrs", "uplo n nrhs a lda b ldb info"),
        ("zpotrs", "uplo n nrhs a lda b ldb info"),
        ("dpotri", "uplo n a lda info"),
        ("zpotri", "uplo n a lda info"),
        ("dposv", "uplo n nrhs a lda b ldb info"),
        ("zposv", "uplo n nrhs a lda b ldb info"),
        ("dtrtri", "uplo diag n a lda info"),
        ("ztrtri", "uplo diag n a lda info"),
        ("dtrtrs", "uplo trans diag n nrhs a lda b ldb info"),
        ("ztrtrs", "uplo trans diag n nrhs a lda b ldb info"),
        ("dlauum", "uplo n a lda info"),
        ("zlauum", "uplo n a lda info"),
        ("dsytrf", "uplo n a lda ipiv work lwork info"),
        ("zsytrf", "uplo n a lda ipiv work lwork info"),
        ("dsytrs", "uplo n nrhs a lda ipiv b ldb info"),
        ("zsytrs", "uplo n nrhs a lda ipiv b ldb info"),
        ("dsysv", "uplo n nrhs a lda ipiv b ldb work lwork info"),
        ("zsysv", "uplo n nrhs a lda ipiv b ldb work lwork info"),
        ("dgeqrf", "m n a lda tau work lwork info"),
        ("zgeqrf", "m n a lda tau work lwork info"),
        ("dorgqr", "m n k a lda tau work lwork info"),
        ("zungqr", "m n k a lda tau work lwork info"),
        ("dormqr", "side trans m n k a lda tau c ldc work lwork info"),
        ("zunmqr", "side trans m n k a lda tau c ldc work lwork info"),
        ("dgels", "trans m n nrhs a lda b ldb work lwork info"),
        ("zgels", "trans m n nrhs a lda b ldb work lwork info"),
        (
            "dgelsd",
            "m n nrhs a lda b ldb s rcond rank work lwork iwork info",
        ),
        (
            "zgelsd",
            "m n nrhs a lda b ldb s rcond rank work lwork rwork iwork info",
        ),
        (
            "dgelss",
            "m n nrhs a lda b ldb s rcond rank work lwork info",
        ),
        (
            "zgelss",
            "m n nrhs a lda b ldb s rcond rank work lwork rwork info",
        ),
        (
            "dgelsy",
            "m n nrhs a lda b ldb jpvt rcond rank work lwork info",
        ),
        (
            "zgelsy",
            "m n nrhs a lda b ldb jpvt rcond rank work lwork rwork info",
        ),
        ("dgeqp3", "m n a lda jpvt tau work lwork info"),
        ("zgeqp3", "m n a lda jpvt tau work lwork rwork info"),
        ("dgelqf", "m n a lda tau work lwork info"),
        ("zgelqf", "m n a lda tau work lwork info"),
        ("dsyev", "jobz uplo n a lda w work lwork info"),
        ("zheev", "jobz uplo n a lda w work lwork rwork info"),
        ("dsyevd", "jobz uplo n a lda w work lwork iwork liwork info"),
        (
            "zheevd",
            "jobz uplo n a lda w work lwork rwork lrwork iwork liwork info",
        ),
        (
            "dsyevr",
            "jobz range uplo n a lda vl vu il iu \
             abstol m w z ldz isuppz work lwork iwork liwork info",
        ),
        (
            "zheevr",
            "jobz range uplo n a lda vl vu il iu abstol \
             m w z ldz isuppz work lwork rwork lrwork iwork liwork info",
        ),
        (
            "dsyevx",
            "jobz range uplo n a lda vl vu il iu \
             abstol m w z ldz work lwork iwork ifail info",
        ),
        (
            "zheevx",
            "jobz range uplo n a lda vl vu il iu \
             abstol m w z ldz work lwork rwork iwork ifail info",
        ),
        ("dsygv", "itype jobz uplo n a lda b ldb w work lwork info"),
        (
            "zhegv",
            "itype jobz uplo n a lda b ldb w work lwork rwork info",
        ),
        (
            "dsygvd",
            "itype jobz uplo n a lda b ldb w work lwork iwork liwork info",
        ),
        (
            "zhegvd",
            "itype jobz uplo n a lda b ldb w work lwork rwork lrwork iwork liwork info",
        ),
        (
            "dsygvx",
            "itype jobz range uplo n a lda b ldb vl vu il iu \
             abstol m w z ldz work lwork iwork ifail info",
        ),
        (
            "zhegvx",
            "itype jobz range uplo n a lda b ldb vl vu il iu \
             abstol m w z ldz work lwork rwork iwork ifail info",
        ),
        (
            "dgesdd",
            "jobz m n a lda s u ldu vt ldvt work lwork iwork info",
        ),
        (
            "zgesdd",
            "jobz m n a lda s u ldu vt ldvt work lwork rwork iwork info",
        ),
        (
            "dgesvd",
            "jobu jobvt m n a lda s u ldu vt ldvt work lwork info",
        ),
        (
            "zgesvd",
            "jobu jobvt m n a lda s u ldu vt ldvt work lwork rwork info",
        ),
        (
            "dbdsdc",
            "uplo compq n d e u ldu vt ldvt q iq work iwork info",
        ),
        (
            "dgeev",
            "jobvl jobvr n a lda wr wi vl ldvl vr ldvr work lwork info",
        ),
        (
            "zgeev",
            "jobvl jobvr n a lda w vl ldvl vr ldvr work lwork rwork info",
        ),
        ("dgehrd", "n ilo ihi a lda tau work lwork info"),
        ("zgehrd", "n ilo ihi a lda tau work lwork info"),
        ("dorghr", "n ilo ihi a lda tau work lwork info"),
        ("zunghr", "n ilo ihi a lda tau work lwork info"),
        (
            "dtrevc3",
            "side howmny select n t ldt vl ldvl vr ldvr mm m work lwork info",
        ),
        (
            "ztrevc3",
            "side howmny select n t ldt vl ldvl \
             vr ldvr mm m work lwork rwork lrwork info",
        ),
        (
            "dgees",
            "jobvs sort select n a lda sdim wr wi vs ldvs work lwork bwork info",
        ),
        (
            "zgees",
            "jobvs sort select n a lda sdim w vs ldvs work lwork rwork bwork info",
        ),
        (
            "dgges",
            "jobvsl jobvsr sort selctg n a lda b ldb sdim \
             alphar alphai beta vsl ldvsl vsr ldvsr work lwork bwork info",
        ),
        (
            "zgges",
            "jobvsl jobvsr sort selctg n a lda b ldb sdim \
             alpha beta vsl ldvsl vsr ldvsr work lwork rwork bwork info",
        ),
        (
            "dsgesv",
            "n nrhs a lda ipiv b ldb x ldx work swork iter info",
        ),
        (
            "zcgesv",
            "n nrhs a lda ipiv b ldb x ldx work swork rwork iter info",
        ),
        (
            "dsposv",
            "uplo n nrhs a lda b ldb x ldx work swork iter info",
        ),
        (
            "zcposv",
            "uplo n nrhs a lda b ldb x ldx work swork rwork iter info",
        ),
    ] {
        let names: Vec<_> = args(routine).iter().map(Arg::name).collect();
        assert_eq!(names.join(" "), list, "{routine}");
    }
}

#[test]
fn info_is_last_and_every_length_follows_its_workspace() {
    for f in lapack() {
        for (precision, name) in f.routines() {
            let args = f.args_of(precision);
            let infos = args.iter().filter(|a| matches!(a, Arg::Info)).count();
            assert_eq!((infos, args.last()), (1, Some(&Arg::Info)), "{name}");
            for (i, arg) in args.iter().enumerate() {
                if let Arg::Lwork { name: length } = arg {
                    let before = i.checked_sub(1).map(|b| args[b]);
                    let array = length
                        .strip_prefix('l')
                        .expect("a length is named after its array");
                    assert_eq!(before, Some(Arg::Work { name: array }), "{name}: {length}");
                }
                if let Arg::Matrix { name: a, .. } = arg {
                    let next = args.get(i + 1).map(Arg::name);
                    assert_eq!(next, Some(format!("ld{a}").as_str()), "{name}");
                }
            }
        }
    }
}

/// Operands that the reference declares as input only, and as output only; every other one is both.
#[test]
fn intents_are_those_of_the_reference() {
    for (routine, inputs, outputs) in [
        ("dgetrf", "", "ipiv"),
        ("dgetrs", "a ipiv", ""),
        ("dgetri", "ipiv", ""),
        ("dgesv", "", "ipiv"),
        ("zgesvx", "", "x rcond ferr berr"),
        ("dpotrf", "", ""),
        ("dpotrs", "a", ""),
        ("dpotri", "", ""),
        ("dposv", "", ""),
        ("dtrtri", "", ""),
        ("dtrtrs", "a", ""),
        ("dlauum", "", ""),
        ("dsytrf", "", "ipiv"),
        ("dsytrs", "a ipiv", ""),
        ("dsysv", "", "ipiv"),
        ("dgeqrf", "", "tau"),
        ("zungqr", "tau", ""),
        ("zunmqr", "a tau", ""),
        ("dgels", "", ""),
        ("zgelsd", "rcond", "s rank"),
        ("zgelss", "rcond", "s rank"),
        ("zgelsy", "rcond", "rank"),
        ("zgeqp3", "", "tau"),
        ("dgelqf", "", "tau"),
        ("dsyev", "", "w"),
        ("zheevd", "", "w"),
        ("zheevr", "vl vu il iu abstol", "m w z isuppz"),
        ("zheevx", "vl vu il iu abstol", "m w z ifail"),
        ("dsygv", "itype", "w"),
        ("zhegvd", "itype", "w"),
        ("zhegvx", "itype vl vu il iu abstol", "m w z ifail"),
        ("zgesdd", "", "s u vt"),
        ("zgesvd", "", "s u vt"),
        ("dbdsdc", "", "u vt q iq"),
        ("dgeev", "", "wr wi vl vr"),
        ("zgeev", "", "w vl vr"),
        ("dgehrd", "ilo ihi", "tau"),
        ("zunghr", "ilo ihi tau", ""),
        ("dtrevc3", "t", "m"),
        ("dgees", "", "sdim wr wi vs"),
        ("zgees", "", "sdim w vs"),
        ("dgges", "", "sdim alphar alphai beta vsl vsr"),
        ("zgges", "", "sdim alpha beta vsl vsr"),
        ("dsgesv", "b", "ipiv x iter"),
        ("zcgesv", "b", "ipiv x iter"),
        ("dsposv", "b", "x iter"),
        ("zcposv", "b", "x iter"),
    ] {
        let with = |wanted: Intent| {
            let names = args(routine).iter().filter_map(|a| match a {
                Arg::Matrix { name, intent, .. }
                | Arg::Vector { name, intent, .. }
                | Arg::IntVector { name, intent, .. } => (*intent == wanted).then_some(*name),
                Arg::Scalar { name, .. } | Arg::Int { name } => {
                    (wanted == Intent::In).then_some(*name)
                }
                Arg::Extra { name } => (wanted == Intent::Out).then_some(*name),
                _ => None,
            });
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(with(Intent::In), inputs, "{routine}: inputs");
        assert_eq!(with(Intent::Out), outputs, "{routine}: outputs");
    }
}

/// Inputs that come back useless with every job option that the table counts.
#[test]
fn destroyed_inputs() {
    for f in lapack() {
        let destroyed = f.args.iter().any(|a| {
            matches!(
                a,
                Arg::Matrix {
                    name: "a",
                    intent: Intent::Destroyed,
                    ..
                }
            )
        });
        let expected = matches!(
            f.op,
            Op::Gelsd | Op::Syevr | Op::Syevx | Op::Sygvx | Op::Gesdd | Op::Gesvd | Op::Geev
        );
        assert_eq!(destroyed, expected, "{:?}", f.op);
    }
}

/// Real trans letters differ from complex ones where the reference refuses the other.
#[test]
fn trans_letters_are_those_of_the_reference() {
    let letters = |routine: &str| {
        args(routine).iter().find_map(|a| match a {
            Arg::Letter {
                name: "trans",
                accepted,
            } => Some(*accepted),
            _ => None,
        })
    };
    for (routine, accepted) in [
        ("dgels", "NT"),
        ("zgels", "NC"),
        ("dormqr", "NT"),
        ("zunmqr", "NC"),
        ("dgetrs", "NTC"),
        ("zgetrs", "NTC"),
        ("ztrtrs", "NTC"),
    ] {
        assert_eq!(letters(routine), Some(accepted), "{routine}");
    }
}

// ---- bytes --------------------------------------------------------------------------------------

#[test]
fn lapack_bytes_check_values() {
    let bytes = |op, p, dims: Dims| family(op).bytes(p, &dims, false);
    // 5 x 3: a both ways, three pivots of 4 bytes back.
    assert_eq!(
        bytes(Op::Getrf, D, tall(5, 3, 0)),
        (8.0 * 15.0, 8.0 * 15.0 + 4.0 * 3.0)
    );
    // Order 4, 2 right-hand sides: factors and pivots there, b both ways.
    assert_eq!(
        bytes(Op::Getrs, Precision::S, order(4, 2)),
        (4.0 * (16.0 + 8.0) + 16.0, 4.0 * 8.0)
    );
    // One triangle of 10 entries.
    assert_eq!(bytes(Op::Potrf, Z, order(4, 0)), (16.0 * 10.0, 16.0 * 10.0));
    // The triangle there; 16 entries of vectors and 4 real values back.
    assert_eq!(
        bytes(Op::Syevd, D, order(4, 0)),
        (8.0 * 10.0, 8.0 * (16.0 + 4.0))
    );
    assert_eq!(
        bytes(Op::Syevd, Z, order(4, 0)),
        (16.0 * 10.0, 16.0 * 16.0 + 8.0 * 4.0)
    );
    // The triangle there and nothing of it back; z, w, m and 8 entries of isuppz back.
    assert_eq!(
        bytes(Op::Syevr, D, order(4, 0)),
        (8.0 * 10.0, 8.0 * (16.0 + 4.0) + 4.0 * (1.0 + 8.0))
    );
    // 5 x 3: a there; u 5 x 3, vt 3 x 3 and 3 real values back.
    assert_eq!(
        bytes(Op::Gesdd, Precision::C, tall(5, 3, 0)),
        (8.0 * 15.0, 8.0 * (15.0 + 9.0) + 4.0 * 3.0)
    );
    // Two vectors of values in real arithmetic, one in complex, two matrices of vectors.
    assert_eq!(
        bytes(Op::Geev, D, order(4, 0)),
        (8.0 * 16.0, 8.0 * (4.0 + 4.0 + 32.0))
    );
    assert_eq!(
        bytes(Op::Geev, Z, order(4, 0)),
        (16.0 * 16.0, 16.0 * (4.0 + 32.0))
    );
    // Side R: a is 3 x 2 (order n), c 5 x 3 both ways.
    let right = Dims {
        right: true,
        ..tall(5, 3, 2)
    };
    assert_eq!(
        bytes(Op::Ormqr, D, right),
        (8.0 * (6.0 + 2.0 + 15.0), 8.0 * 15.0)
    );
    // b has max(5, 3) rows.
    assert_eq!(
        bytes(Op::Gels, D, tall(3, 5, 2)),
        (8.0 * (15.0 + 10.0), 8.0 * (15.0 + 10.0))
    );
    // n - 1 scalar factors.
    assert_eq!(
        bytes(Op::Gehrd, D, order(4, 0)),
        (8.0 * 16.0, 8.0 * (16.0 + 3.0))
    );
    assert_eq!(
        bytes(Op::Orghr, D, order(4, 0)),
        (8.0 * (16.0 + 3.0), 8.0 * 16.0)
    );
    // b there, x back, a both ways, pivots and iter back.
    assert_eq!(
        bytes(Op::GesvMixed, D, order(4, 2)),
        (8.0 * (16.0 + 8.0), 8.0 * (16.0 + 8.0) + 4.0 * (4.0 + 1.0))
    );
}
