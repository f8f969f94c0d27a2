//! Every LAPACK family on the device under test, by the residuals of LAPACK's own test programs; what cannot
//! succeed is a failure that leaves the operands as they were.

mod common;

use call::{Failure, Op, Precision, VectorKind};
use common::lapack::{
    Case, Full, Intent, THRESHOLD, adjoint, eps, geev_case, gels_case, gels_svd_case, hermitian,
    one_of_each, orthogonal, poison_other_triangle, reals, small, svd_case, whole,
};
use common::{Matrix, Number, Random, modulus};
use gpu_backend::{Gpu, testing};
use std::sync::OnceLock;

/// One device for the tests that only compute.
fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(common::start)
}

const SIZES: [usize; 5] = [1, 2, 17, 64, 300];

fn every() -> impl Iterator<Item = (Precision, usize)> {
    SIZES
        .into_iter()
        .flat_map(|n| Precision::ALL.map(|p| (p, n)))
}

fn spd_case(
    op: Op,
    precision: Precision,
    letters: &'static str,
    n: usize,
    random: &mut Random,
) -> Case {
    let mut a = hermitian(precision, n, 3, true, random);
    poison_other_triangle(&mut a, letters == "U");
    Case::new(op, precision, letters, (n, n, n)).matrix(a, Intent::InOut)
}

fn factor(a: &Matrix, upper: bool) -> Full {
    Full::new(a.rows, a.cols, |i, j| {
        if i == j || (i < j) == upper {
            a.get(i, j)
        } else {
            (0.0, 0.0)
        }
    })
}

fn assert_other_triangle_poisoned(a: &Matrix, upper: bool) {
    for j in 0..a.cols {
        for i in 0..a.rows {
            if i != j && (i < j) != upper {
                assert!(a.get(i, j).0.is_nan(), "({i}, {j}) was written");
            }
        }
    }
}

#[test]
fn cholesky_factors_solutions_and_inverses() {
    let mut random = Random(201);
    for (precision, n) in every() {
        for letters in ["U", "L"] {
            let upper = letters == "U";
            let case = spd_case(Op::Potrf, precision, letters, n, &mut random);
            let a = whole(case.mat(0), upper);
            let done = case.done(gpu());
            assert_other_triangle_poisoned(done.mat(0), upper);
            let f = factor(done.mat(0), upper);
            let product = if upper {
                f.adjoint().times(&f)
            } else {
                f.times(&f.adjoint())
            };
            let size = n as f64 * a.norm();
            small(&done.name(), a.minus(&product).norm(), size, precision);

            let nrhs = 3;
            let b = Matrix::random(precision, n, nrhs, n + 2, &mut random);
            let mut potrs = Case::new(Op::Potrs, precision, letters, (n, n, nrhs));
            potrs = potrs.matrix(done.mat(0).clone(), Intent::In);
            solved(&potrs.matrix(b.clone(), Intent::InOut), &a, &b);
            let posv =
                spd_of(Op::Posv, precision, letters, &a, nrhs).matrix(b.clone(), Intent::InOut);
            solved(&posv, &a, &b);

            let mut potri = Case::new(Op::Potri, precision, letters, (n, n, n));
            potri = potri.matrix(done.mat(0).clone(), Intent::InOut);
            let inverse = whole(potri.done(gpu()).mat(0), upper);
            let error = a.times(&inverse).minus(&Full::identity(n)).norm();
            let size = n as f64 * a.norm() * inverse.norm();
            small("potri", error, size, precision);
        }
    }
}

fn spd_of(op: Op, precision: Precision, letters: &'static str, a: &Full, nrhs: usize) -> Case {
    let n = a.rows;
    let a = Matrix::filled(precision, n, n, n + 1, |i, j| a.at(i, j));
    Case::new(op, precision, letters, (n, n, nrhs)).matrix(a, Intent::InOut)
}

/// Runs a case whose second matrix becomes the solution of A X = B: ||B - A X|| / (||A|| ||X|| n eps).
fn solved(case: &Case, a: &Full, b: &Matrix) -> Case {
    let done = case.clone().done(gpu());
    let x = Full::of(done.mat(1));
    let error = a.times(&x).minus(&Full::of(b)).norm();
    let size = a.norm() * x.norm() * a.rows as f64;
    small(&done.name(), error, size, case.precision);
    done
}

fn lu_error(a: &Full, lu: &Matrix, pivots: &[i64]) -> f64 {
    let (m, n, k) = (a.rows, a.cols, a.rows.min(a.cols));
    let l = Full::new(m, k, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Less => (0.0, 0.0),
        std::cmp::Ordering::Equal => (1.0, 0.0),
        std::cmp::Ordering::Greater => lu.get(i, j),
    });
    let u = Full::new(k, n, |i, j| if i <= j { lu.get(i, j) } else { (0.0, 0.0) });
    let mut rows: Vec<usize> = (0..m).collect();
    for (i, &p) in pivots.iter().enumerate() {
        assert!(p > i as i64 && p <= m as i64, "pivot {p} of row {i}");
        rows.swap(i, p as usize - 1);
    }
    let permuted = Full::new(m, n, |i, j| a.at(rows[i], j));
    l.times(&u).minus(&permuted).norm()
}

#[test]
fn lu_factors_and_solutions() {
    let mut random = Random(202);
    for (precision, n) in every() {
        for (m, n) in [(n, n), (n + 9, n), (n, n + 9)] {
            for wide in [false, true] {
                let a = Matrix::random(precision, m, n, m + 5, &mut random);
                let mut case = Case::new(Op::Getrf, precision, "", (m, n, n))
                    .matrix(a.clone(), Intent::InOut)
                    .vector(VectorKind::Integer, m.min(n), Intent::Out);
                if wide {
                    case = case.wide();
                }
                let done = case.done(gpu());
                let a = Full::of(&a);
                let error = lu_error(&a, done.mat(0), &done.vectors[0].ints());
                small(&done.name(), error, n as f64 * a.norm(), precision);
                if m == n {
                    getri(&done, &a, wide);
                    getrs(&done, &a, wide, &mut random);
                }
            }
        }
        let a = Matrix::random(precision, n, n, n + 1, &mut random);
        let b = Matrix::random(precision, n, 2, n + 4, &mut random);
        let gesv = Case::new(Op::Gesv, precision, "", (n, n, 2))
            .matrix(a.clone(), Intent::InOut)
            .matrix(b.clone(), Intent::InOut)
            .vector(VectorKind::Integer, n, Intent::Out);
        let a = Full::of(&a);
        let done = solved(&gesv, &a, &b);
        let error = lu_error(&a, done.mat(0), &done.vectors[0].ints());
        small("gesv's factors", error, n as f64 * a.norm(), precision);
    }
}

/// LAPACK's get03: ||I - inv(A) A|| / (n ||A|| ||inv(A)|| eps); and the same on the right.
fn getri(factors: &Case, a: &Full, wide: bool) {
    let (precision, n) = (factors.precision, a.rows);
    let mut case = Case::new(Op::Getri, precision, "", (n, n, n))
        .matrix(factors.mat(0).clone(), Intent::InOut)
        .vector(VectorKind::Integer, n, Intent::In);
    if wide {
        case = case.wide();
    }
    case.vectors[0].set_bytes(factors.vectors[0].body());
    let done = case.clone().done(gpu());
    let inverse = Full::of(done.mat(0));
    let size = n as f64 * a.norm() * inverse.norm();
    for product in [inverse.times(a), a.times(&inverse)] {
        let error = product.minus(&Full::identity(n)).norm();
        small(&done.name(), error, size, precision);
    }
    if let Some((a, _)) = &mut case.matrices[0] {
        a.set(n - 1, n - 1, (0.0, 0.0));
    }
    refused(&case, "a singular factor");
}

fn getrs(factors: &Case, a: &Full, wide: bool, random: &mut Random) {
    let (precision, n) = (factors.precision, a.rows);
    for letters in ["N", "T", "C"] {
        let b = Matrix::random(precision, n, 3, n, random);
        let mut case = Case::new(Op::Getrs, precision, letters, (n, n, 3))
            .matrix(factors.mat(0).clone(), Intent::In)
            .matrix(b.clone(), Intent::InOut)
            .vector(VectorKind::Integer, n, Intent::In);
        if wide {
            case = case.wide();
        }
        case.vectors[0].set_bytes(factors.vectors[0].body());
        let op = Full::new(n, n, |i, j| match letters {
            "N" => a.at(i, j),
            "T" => a.at(j, i),
            _ => (a.at(j, i).0, -a.at(j, i).1),
        });
        solved(&case, &op, &b);
    }
}

#[test]
fn qr_factors_and_products() {
    let mut random = Random(203);
    for (precision, n) in every() {
        for (m, n) in [(n, n), (n + 40, n), (n, n + 9)] {
            let k = m.min(n);
            let a = Matrix::random(precision, m, n, m + 2, &mut random);
            let done = Case::new(Op::Geqrf, precision, "", (m, n, n))
                .matrix(a.clone(), Intent::InOut)
                .vector(VectorKind::Same, k, Intent::Out)
                .done(gpu());
            let a = Full::of(&a);
            let r = Full::new(k, n, |i, j| {
                if i <= j {
                    done.mat(0).get(i, j)
                } else {
                    (0.0, 0.0)
                }
            });
            // All of Q, whose last columns LAPACK does not read.
            let reflectors = Matrix::filled(precision, m, m, m + 3, |i, j| {
                if j < k {
                    done.mat(0).get(i, j)
                } else {
                    (0.5, 0.25)
                }
            });
            let mut orgqr = Case::new(Op::Orgqr, precision, "", (m, m, k))
                .matrix(reflectors.clone(), Intent::InOut)
                .vector(VectorKind::Same, k, Intent::In);
            orgqr.vectors[0].set_bytes(done.vectors[0].body());
            let q = Full::of(orgqr.done(gpu()).mat(0));
            orthogonal("orgqr", &q, precision);
            let error = q.leading(m, k).times(&r).minus(&a).norm();
            small(&done.name(), error, m as f64 * a.norm(), precision);
            for (letters, side_left, plain) in options_of_ormqr(precision) {
                let (rows, cols) = if side_left { (m, 5) } else { (5, m) };
                let c = Matrix::random(precision, rows, cols, rows + 1, &mut random);
                let v = Matrix::filled(precision, m, k, m + 1, |i, j| reflectors.get(i, j));
                let mut case = Case::new(Op::Ormqr, precision, letters, (rows, cols, k))
                    .matrix(v, Intent::In)
                    .matrix(c.clone(), Intent::InOut)
                    .vector(VectorKind::Same, k, Intent::In);
                case.vectors[0].set_bytes(done.vectors[0].body());
                let got = Full::of(case.done(gpu()).mat(1));
                let op = if plain { q.clone() } else { q.adjoint() };
                let c = Full::of(&c);
                let expected = if side_left {
                    op.times(&c)
                } else {
                    c.times(&op)
                };
                let size = m as f64 * c.norm().max(1.0);
                small(letters, got.minus(&expected).norm(), size, precision);
            }
        }
    }
}

fn options_of_ormqr(precision: Precision) -> [(&'static str, bool, bool); 4] {
    if precision.is_complex() {
        [
            ("LN", true, true),
            ("LC", true, false),
            ("RN", false, true),
            ("RC", false, false),
        ]
    } else {
        [
            ("LN", true, true),
            ("LT", true, false),
            ("RN", false, true),
            ("RT", false, false),
        ]
    }
}

/// A triangular matrix whose inverse is small; a unit diagonal is stored as NaN.
fn triangular(
    precision: Precision,
    n: usize,
    (upper, unit): (bool, bool),
    random: &mut Random,
) -> Matrix {
    let x = Matrix::random(precision, n, n, n, random);
    let scale = 1.0 / n as f64;
    let mut a = Matrix::filled(precision, n, n, n + 1, |i, j| {
        let (re, im) = x.get(i, j);
        match (i == j, unit) {
            (true, true) => (f64::NAN, f64::NAN),
            (true, false) => (2.0 + re, im),
            _ => (re * scale, im * scale),
        }
    });
    poison_other_triangle(&mut a, upper);
    a
}

/// What the triangle stands for.
fn whole_triangle(a: &Matrix, (upper, unit): (bool, bool)) -> Full {
    Full::new(a.rows, a.cols, |i, j| match (i == j, (i < j) == upper) {
        (true, _) if unit => (1.0, 0.0),
        (true, _) | (_, true) => a.get(i, j),
        _ => (0.0, 0.0),
    })
}

#[test]
fn triangular_systems_inverses_and_products() {
    let mut random = Random(220);
    for (precision, n) in every() {
        for (uplo, diag) in [("U", "N"), ("L", "U"), ("U", "U"), ("L", "N")] {
            let kind = (uplo == "U", diag == "U");
            let a = triangular(precision, n, kind, &mut random);
            let whole = whole_triangle(&a, kind);
            let letters = match (uplo, diag) {
                ("U", "N") => ["UN", "UNN", "UTN", "UCN"],
                ("U", _) => ["UU", "UNU", "UTU", "UCU"],
                (_, "N") => ["LN", "LNN", "LTN", "LCN"],
                _ => ["LU", "LNU", "LTU", "LCU"],
            };
            let trtri = Case::new(Op::Trtri, precision, letters[0], (n, n, n))
                .matrix(a.clone(), Intent::InOut);
            if kind.1 && n == 1 {
                refused(&trtri, "nothing to compute");
            } else {
                let done = trtri.done(gpu());
                assert_other_triangle_poisoned(done.mat(0), kind.0);
                if kind.1 {
                    assert!((0..n).all(|i| done.mat(0).get(i, i).0.is_nan()));
                }
                let inverse = whole_triangle(done.mat(0), kind);
                let size = n as f64 * whole.norm() * inverse.norm();
                let error = whole.times(&inverse).minus(&Full::identity(n)).norm();
                small(&done.name(), error, size, precision);
            }
            for letters in &letters[1..] {
                let b = Matrix::random(precision, n, 4, n + 2, &mut random);
                // A unit diagonal that is NaN is the CPU library's, as in trsm.
                let stored = Matrix::filled(precision, n, n, n, |i, j| match i == j && kind.1 {
                    true => (9.0, 9.0),
                    false => a.get(i, j),
                });
                let case = Case::new(Op::Trtrs, precision, letters, (n, n, 4))
                    .matrix(stored, Intent::In)
                    .matrix(b.clone(), Intent::InOut);
                let op = Full::new(n, n, |i, j| match letters.as_bytes()[1] {
                    b'N' => whole.at(i, j),
                    b'T' => whole.at(j, i),
                    _ => (whole.at(j, i).0, -whole.at(j, i).1),
                });
                solved(&case, &op, &b);
            }
        }
        for letters in ["U", "L"] {
            let upper = letters == "U";
            let a = triangular(precision, n, (upper, false), &mut random);
            let mut f = whole_triangle(&a, (upper, false));
            for i in 0..n {
                // LAPACK takes the diagonal as real.
                f.data[i * n + i].1 = 0.0;
            }
            let done = Case::new(Op::Lauum, precision, letters, (n, n, n))
                .matrix(a, Intent::InOut)
                .done(gpu());
            assert_other_triangle_poisoned(done.mat(0), upper);
            let right = match upper {
                true => f.times(&f.adjoint()),
                false => f.adjoint().times(&f),
            };
            let error = whole(done.mat(0), upper).minus(&right).norm();
            small(&done.name(), error, n as f64 * right.norm(), precision);
        }
    }
}

/// LAPACK's own A = L Q, by its reflectors: from the QR factorisation of A^H, made here with the device's geqrf.
#[test]
fn lq_factors_are_the_adjoints_of_qr_factors() {
    let mut random = Random(221);
    for (precision, n) in every() {
        for (m, n) in [(n, n), (n + 11, n), (n, n + 30)] {
            let a = Matrix::random(precision, m, n, m + 2, &mut random);
            let k = m.min(n);
            let lq = Case::new(Op::Gelqf, precision, "", (m, n, n))
                .matrix(a.clone(), Intent::InOut)
                .vector(VectorKind::Same, k, Intent::Out)
                .done(gpu());
            let turned = Matrix::filled(precision, n, m, n, |i, j| {
                let (re, im) = a.get(j, i);
                (re, -im)
            });
            let qr = Case::new(Op::Geqrf, precision, "", (n, m, m))
                .matrix(turned, Intent::InOut)
                .vector(VectorKind::Same, k, Intent::Out)
                .done(gpu());
            assert_eq!(lq.vectors[0].body(), qr.vectors[0].body(), "{}", lq.name());
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let (re, im) = qr.mat(0).get(j, i);
                assert_eq!(lq.mat(0).get(i, j), (re, -im), "{} ({i}, {j})", lq.name());
            }
        }
    }
}

/// A X for op(A) = A or its adjoint.
fn op_of(a: &Matrix, letters: &str) -> Full {
    match letters {
        "N" => Full::of(a),
        _ => Full::of(a).adjoint(),
    }
}

/// LAPACK's qrt14, qrt16 and qrt17 in other words: the residual is orthogonal to op(A)'s columns; its length stands
/// in B's last rows; the shortest solution is a combination of op(A)'s rows.
fn least_squares_checked(done: &Case, op: &Full, b: &Full, full_rank: bool) {
    let (precision, name) = (done.precision, done.name());
    let (rows, cols) = (op.rows, op.cols);
    let left = Full::of(done.mat(1));
    let x = left.leading(cols, b.cols);
    let b = b.leading(rows, b.cols);
    let residual = b.minus(&op.times(&x));
    let most = rows.max(cols) as f64;
    let size = most * (op.norm() * x.norm() + b.norm());
    let seen = op.adjoint().times(&residual).norm();
    small(
        &format!("{name}: gradient"),
        seen,
        size * op.norm().max(1.0),
        precision,
    );
    if rows > cols && full_rank {
        for j in 0..b.cols {
            let sum = |range: std::ops::Range<usize>, of: &Full| {
                range
                    .map(|i| modulus(of.at(i, j)).powi(2))
                    .sum::<f64>()
                    .sqrt()
            };
            let error = (sum(cols..rows, &left) - sum(0..rows, &residual)).abs();
            small(&format!("{name}: residual"), error, size, precision);
        }
    }
}

#[test]
fn least_squares_and_shortest_solutions() {
    let mut random = Random(222);
    for (precision, n) in every() {
        for (m, n) in [(n, n), (n + 25, n), (n, n + 25), (5 * n, n)] {
            for letters in ["N", adjoint(precision)] {
                let a = Matrix::random(precision, m, n, m + 1, &mut random);
                let mut case = gels_case(precision, letters, &a, 3, &mut random);
                let op = op_of(&a, letters);
                if let Some((b, _)) = &mut case.matrices[1] {
                    // LAPACK does not read these.
                    for (i, j) in (op.rows..b.rows).flat_map(|i| (0..3).map(move |j| (i, j))) {
                        b.set(i, j, (f64::NAN, f64::NAN));
                    }
                }
                let b = Full::of(case.mat(1));
                let done = case.clone().done(gpu());
                least_squares_checked(&done, &op, &b, true);
                // The factors are geqrf's or gelqf's.
                let factor = if m >= n { Op::Geqrf } else { Op::Gelqf };
                let alone = Case::new(factor, precision, "", (m, n, n))
                    .matrix(a.clone(), Intent::InOut)
                    .vector(VectorKind::Same, m.min(n), Intent::Out)
                    .done(gpu());
                assert!(done.mat(0).bytes == alone.mat(0).bytes, "{}", done.name());
                if op.rows < op.cols {
                    // Op(A) = F^H, X = F (F^H F)^-1 B lies in F's range: as short as any.
                    let f = op.adjoint();
                    let short =
                        Matrix::filled(precision, f.rows, f.cols, f.rows, |i, j| f.at(i, j));
                    let x = Full::of(done.mat(1));
                    let mut back = gels_case(precision, "N", &short, 3, &mut random);
                    if let Some((b, _)) = &mut back.matrices[1] {
                        for (i, j) in (0..f.rows).flat_map(|i| (0..3).map(move |j| (i, j))) {
                            b.set(i, j, x.at(i, j));
                        }
                    }
                    let y = Full::of(back.done(gpu()).mat(1)).leading(f.cols, 3);
                    let error = f.times(&y).minus(&x).norm();
                    let size = f.rows as f64 * (f.norm() * y.norm() + x.norm());
                    small(&format!("{}: range", done.name()), error, size, precision);
                }
            }
        }
    }
}

#[test]
fn rank_deficient_and_scaled_least_squares_are_the_cpu_librarys() {
    let mut random = Random(223);
    for precision in Precision::ALL {
        for (m, n) in [(30, 20), (20, 30)] {
            let a = Matrix::random(precision, m, n, m, &mut random);
            for at in [0, 7, 19] {
                let mut case = gels_case(precision, "N", &a, 2, &mut random);
                if let Some((a, _)) = &mut case.matrices[0] {
                    for i in 0..m.max(n) {
                        let (i, j) = if m > n { (i, at) } else { (at, i) };
                        a.set(i, j, (0.0, 0.0));
                    }
                }
                refused(&case, "a zero column");
            }
            // Each operand by itself: the other one's elements do not hide it.
            let double = matches!(precision, Precision::D | Precision::Z);
            for scale in if double {
                [1e-200, 1e200]
            } else {
                [1e-25, 1e25]
            } {
                let by_svd = [Op::Gelsd, Op::Gelss]
                    .map(|op| gels_svd_case(op, precision, &a, 2, &mut random));
                let by_qr = gels_case(precision, "N", &a, 2, &mut random);
                let cases = by_svd.into_iter().chain([by_qr]);
                for (mut case, operand) in cases.flat_map(|case| [(case.clone(), 0), (case, 1)]) {
                    if let Some((x, _)) = &mut case.matrices[operand] {
                        let (rows, cols) = (x.rows, x.cols);
                        for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
                            let (re, im) = x.get(i, j);
                            x.set(i, j, (re * scale, im * scale));
                        }
                    }
                    refused(&case, "scaled");
                }
            }
        }
    }
}

/// Both routines on a problem of this rank, whose singular values that count are far from the others: the residual, the
/// shortest solution, the singular values and the rank; gelss's right singular vectors.
fn shortest_checked(a: &Matrix, rank: usize, rcond: Option<f64>, random: &mut Random) {
    let (m, n, precision) = (a.rows, a.cols, a.precision);
    let whole = Full::of(a);
    let svd = svd_case(Op::Gesdd, precision, "A", a).done(gpu());
    let (s, vt) = (reals(&svd, 0), Full::of(svd.mat(2)));
    let size = m.max(n) as f64 * whole.norm();
    for op in [Op::Gelsd, Op::Gelss] {
        let mut case = gels_svd_case(op, precision, a, 3, random);
        if let Some(rcond) = rcond {
            case = case.with([rcond, 0.0, 0.0], [0; 3]);
        }
        if let Some((b, _)) = &mut case.matrices[1] {
            // LAPACK does not read these.
            for (i, j) in (m..n).flat_map(|i| (0..3).map(move |j| (i, j))) {
                b.set(i, j, (f64::NAN, f64::NAN));
            }
        }
        let b = Full::of(case.mat(1));
        if random.below(2) == 0 {
            case = case.wide();
        }
        let done = case.clone().done(gpu());
        let name = format!("{} rank {rank}", done.name());
        assert_eq!(done.vectors[1].ints(), [rank as i64], "{name}");
        for (x, y) in reals(&done, 0).iter().zip(&s) {
            small(&name, (x.0 - y.0).abs(), size, precision);
        }
        let full_rank = rank == n;
        if rank == m.min(n) {
            least_squares_checked(&done, &whole, &b, full_rank);
        } else {
            // A's part that counts: U1 S1 V1^H.
            let u = Full::of(svd.mat(1)).leading(m, rank);
            let part = u.scaled(&s[..rank]).times(&vt.leading(rank, n));
            least_squares_checked(&done, &part, &b, false);
        }
        // Nothing of it lies where A, or its part that counts, is 0.
        let x = Full::of(done.mat(1)).leading(n, 3);
        let null = Full::new(n - rank, n, |i, j| vt.at(rank + i, j));
        if rank < n {
            let outside = null.times(&x).norm();
            // Such vectors are as wrong as the gap to the singular values that count is small.
            let gap = (s[0].0 / s[rank - 1].0).max(1.0);
            small(&name, outside, n as f64 * x.norm() * gap, precision);
        }
        if op == Op::Gelss {
            let least = m.min(n);
            let right = Full::of(done.mat(0)).leading(least, n).adjoint();
            orthogonal(&name, &right, precision);
            let image = whole.times(&right);
            let gram = right
                .adjoint()
                .times(&whole.adjoint().times(&image))
                .minus(&Full::new(least, least, |i, j| match i == j {
                    true => (s[i].0.powi(2), 0.0),
                    false => (0.0, 0.0),
                }));
            small(&name, gram.norm(), size * whole.norm(), precision);
            for (i, j) in (least..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let same = done.mat(0).get(i, j) == case.mat(0).get(i, j);
                assert!(same, "{name}: ({i}, {j}) of A was written");
            }
        }
    }
}

#[test]
fn shortest_solutions_of_full_rank() {
    let mut random = Random(224);
    for (precision, n) in every() {
        let shapes = [(n, n), (n, n + 25), (n + 25, n), (5 * n, n)];
        // The larger ones are the same paths, but for Xgesvdp.
        let count = match (n > 100, precision) {
            (false, _) => 4,
            (true, Precision::D | Precision::C) => 2,
            (true, _) => 0,
        };
        for (m, n) in shapes.into_iter().take(count) {
            let a = Matrix::random(precision, m, n, m + 1, &mut random);
            shortest_checked(&a, m.min(n), None, &mut random);
        }
    }
}

#[test]
fn shortest_solutions_of_any_rank() {
    let mut random = Random(225);
    for precision in Precision::ALL {
        for (m, n, rank) in [
            (30, 30, 1),
            (40, 30, 17),
            (30, 40, 29),
            // Xgesvdp does not vouch for these.
            (320, 290, 200),
            (290, 320, 289),
        ] {
            let left = Full::of(&Matrix::random(precision, m, rank, m, &mut random));
            let right = Full::of(&Matrix::random(precision, rank, n, rank, &mut random));
            let product = left.times(&right);
            let a = Matrix::filled(precision, m, n, m + 2, |i, j| product.at(i, j));
            shortest_checked(&a, rank, Some(1e-5), &mut random);
        }
    }
    // Of values of full rank, those below the threshold do not count.
    let s: Vec<Number> = (0..300)
        .map(|i| (if i < 120 { 1.0 } else { 1e-4 }, 0.0))
        .collect();
    let (q, p) = (
        random_orthogonal(300, &mut random),
        random_orthogonal(300, &mut random),
    );
    let product = q.scaled(&s).times(&p);
    let a = Matrix::filled(Precision::D, 300, 300, 300, |i, j| product.at(i, j));
    shortest_checked(&a, 120, Some(1e-3), &mut random);
    shortest_checked(&a, 300, Some(1e-5), &mut random);
}

/// gelsd takes what is not between 0 and 1 for its own threshold; gelss lets nothing count with rcond = 1, and X is 0.
#[test]
fn thresholds_that_nothing_passes_and_that_are_none() {
    let mut random = Random(226);
    for precision in Precision::ALL {
        for (m, n) in [(30, 20), (20, 30)] {
            let a = Matrix::random(precision, m, n, m, &mut random);
            let case = gels_svd_case(Op::Gelsd, precision, &a, 2, &mut random);
            let mut case = case.with([1.0, 0.0, 0.0], [0; 3]);
            let own = case.clone().done(gpu());
            assert_eq!(own.vectors[1].ints(), [20]);
            case.op = Op::Gelss;
            let none = case.clone().done(gpu());
            assert_eq!(none.vectors[1].ints(), [0]);
            let x = Full::of(none.mat(1)).leading(n, 2);
            assert!(x.data.iter().all(|x| modulus(*x) == 0.0));
            refused(&case.with([f64::NAN, 0.0, 0.0], [0; 3]), "no threshold");
        }
    }
}

#[test]
fn symmetric_eigenproblems() {
    let mut random = Random(204);
    for (precision, n) in every() {
        let all = [
            (Op::Syevd, "NU", "VU", true),
            (Op::Syevd, "NL", "VL", false),
            (Op::Syev, "NL", "VL", false),
        ];
        // The larger ones are the same paths.
        let count = if n > 100 { 1 } else { all.len() };
        for (op, values_only, vectors, upper) in all.into_iter().take(count) {
            let mut a = hermitian(precision, n, 2, false, &mut random);
            poison_other_triangle(&mut a, upper);
            let case = |letters| {
                Case::new(op, precision, letters, (n, n, n))
                    .matrix(a.clone(), Intent::InOut)
                    .vector(VectorKind::Real, n, Intent::Out)
            };
            let done = case(vectors).done(gpu());
            let (whole, z, w) = (whole(&a, upper), Full::of(done.mat(0)), reals(&done, 0));
            assert!(w.windows(2).all(|pair| pair[0].0 <= pair[1].0), "ascending");
            orthogonal(&done.name(), &z, precision);
            let error = z.scaled(&w).times(&z.adjoint()).minus(&whole).norm();
            small(&done.name(), error, n as f64 * whole.norm(), precision);
            selected(&case(vectors), &w, &whole);
            let alone = case(values_only).done(gpu());
            for (x, y) in reals(&alone, 0).iter().zip(&w) {
                small(
                    "values only",
                    (x.0 - y.0).abs(),
                    n as f64 * whole.norm(),
                    precision,
                );
            }
        }
    }
}

/// The same problem by syevr, which returns vectors in a matrix of their own and leaves A as it likes.
fn selected(case: &Case, w: &[Number], whole: &Full) {
    let (precision, n) = (case.precision, case.n);
    for (letters, wide) in [("VAU", false), ("VAL", true), ("NAU", false)] {
        if letters.as_bytes()[2] != case.letters.as_bytes()[1] {
            continue;
        }
        let with_vectors = letters.starts_with('V');
        let mut selected = Case::new(Op::Syevr, precision, letters, (n, n, n))
            .matrix(case.mat(0).clone(), Intent::InOut);
        selected = match with_vectors {
            true => selected.result(n, n, 4),
            false => selected.unreferenced(),
        };
        selected = selected
            .vector(VectorKind::Integer, 1, Intent::Out)
            .vector(VectorKind::Real, n, Intent::Out)
            .vector(VectorKind::Integer, 2 * n, Intent::Out);
        if wide {
            selected = selected.wide();
        }
        let done = selected.done(gpu());
        assert_eq!(done.vectors[0].ints(), [n as i64], "{letters}: m");
        for (x, y) in reals(&done, 1).iter().zip(w) {
            small(
                letters,
                (x.0 - y.0).abs(),
                n as f64 * whole.norm(),
                precision,
            );
        }
        if with_vectors {
            let z = Full::of(done.mat(1));
            orthogonal(letters, &z, precision);
            let error = z.scaled(&reals(&done, 1)).times(&z.adjoint()).minus(whole);
            small(letters, error.norm(), n as f64 * whole.norm(), precision);
            let support = done.vectors[2].ints();
            assert!(
                support.chunks(2).all(|pair| pair == [1, n as i64]),
                "{support:?}"
            );
        }
    }
}

fn svd_checked(case: Case) {
    let a = Full::of(case.mat(0));
    let (m, n, k, precision) = (a.rows, a.cols, a.rows.min(a.cols), case.precision);
    let letters: Vec<u8> = case.letters.bytes().collect();
    let (over_u, over_vt) = match (case.op, &letters[..]) {
        (Op::Gesvd, [u, vt]) => (*u == b'O', *vt == b'O'),
        (_, [job]) => (*job == b'O' && m >= n, *job == b'O' && m < n),
        _ => (false, false),
    };
    let done = case.done(gpu());
    let name = done.name();
    let s = reals(&done, 0);
    assert!(s.iter().all(|s| s.0 >= 0.0), "{name}");
    assert!(
        s.windows(2).all(|pair| pair[0].0 >= pair[1].0),
        "{name}: {s:?}"
    );
    let size = m.max(n) as f64 * a.norm();
    let sum = |x: &[Number]| x.iter().map(|x| modulus(*x).powi(2)).sum::<f64>().sqrt();
    let frobenius = sum(&a.data);
    small(
        &name,
        (sum(&s) - frobenius).abs(),
        m.max(n) as f64 * frobenius,
        precision,
    );
    let over = Full::of(done.mat(0));
    let u = match &done.matrices[1] {
        Some((u, _)) => Some(Full::of(u)),
        None => over_u.then(|| over.leading(m, k)),
    };
    let vt = match &done.matrices[2] {
        Some((vt, _)) => Some(Full::of(vt)),
        None => over_vt.then(|| over.leading(k, n)),
    };
    if let Some(u) = &u {
        orthogonal(&name, u, precision);
    }
    if let Some(vt) = &vt {
        orthogonal(&name, &vt.adjoint(), precision);
    }
    if let (Some(u), Some(vt)) = (u, vt) {
        let product = u.leading(m, k).scaled(&s).times(&vt.leading(k, n));
        small(&name, product.minus(&a).norm(), size, precision);
    }
}

#[test]
fn singular_values_and_vectors_with_every_option() {
    let mut random = Random(205);
    for (precision, n) in every() {
        for (m, n) in [(n, n), (n + 20, n), (n, n + 20)] {
            let a = Matrix::random(precision, m, n, m + 3, &mut random);
            let letters: &[&'static str] = match n > 100 && m != n {
                true => &["A"],
                false => &["A", "S", "O", "N"],
            };
            for letters in letters {
                svd_checked(svd_case(Op::Gesdd, precision, letters, &a));
            }
            let all = ["AA", "AS", "SO", "OS", "ON", "NO", "NA", "SN", "NN", "OA"];
            // The larger ones are the same paths.
            let count = if n > 100 { 1 } else { all.len() };
            for letters in &all[..count] {
                svd_checked(svd_case(Op::Gesvd, precision, letters, &a));
            }
        }
    }
}

/// Singular values from 1 to 1e-14: the polar decomposition is not accurate, and says so.
#[test]
fn a_graded_spectrum_is_accurate_to_the_last_singular_value() {
    let mut random = Random(206);
    for (m, n) in [(300, 300), (320, 280), (280, 320)] {
        let (q, p) = (
            random_orthogonal(m, &mut random),
            random_orthogonal(n, &mut random),
        );
        let k = m.min(n);
        let s: Vec<Number> = (0..k)
            .map(|i| (10f64.powf(-14.0 * i as f64 / (k - 1) as f64), 0.0))
            .collect();
        let product = q.leading(m, k).scaled(&s).times(&p.leading(n, k).adjoint());
        let a = Matrix::filled(Precision::D, m, n, m, |i, j| product.at(i, j));
        for letters in ["S", "N"] {
            let case = svd_case(Op::Gesdd, Precision::D, letters, &a);
            let done = case.clone().done(gpu());
            for (x, y) in reals(&done, 0).iter().zip(&s) {
                let error = (x.0 - y.0).abs();
                assert!(
                    error < THRESHOLD * k as f64 * eps(Precision::D),
                    "{x:?} {y:?}"
                );
            }
            svd_checked(case);
        }
    }
}

fn random_orthogonal(n: usize, random: &mut Random) -> Full {
    let a = Matrix::random(Precision::D, n, n, n, random);
    let done = Case::new(Op::Geqrf, Precision::D, "", (n, n, n))
        .matrix(a, Intent::InOut)
        .vector(VectorKind::Same, n, Intent::Out)
        .done(gpu());
    let mut case = Case::new(Op::Orgqr, Precision::D, "", (n, n, n))
        .matrix(done.mat(0).clone(), Intent::InOut)
        .vector(VectorKind::Same, n, Intent::In);
    case.vectors[0].set_bytes(done.vectors[0].body());
    Full::of(case.done(gpu()).mat(0))
}

fn eigenvalues(done: &Case) -> Vec<Number> {
    if done.precision.is_complex() {
        return done.vectors[0].numbers(2);
    }
    let parts = reals(done, 0).into_iter().zip(reals(done, 1));
    parts.map(|(re, im)| (re.0, im.0)).collect()
}

#[test]
fn eigenvalues_and_right_vectors_of_general_matrices() {
    let mut random = Random(207);
    for (precision, n) in every() {
        let a = Matrix::random(precision, n, n, n + 1, &mut random);
        let done = geev_case(precision, "NV", &a).done(gpu());
        let name = done.name();
        let (w, packed) = (eigenvalues(&done), Full::of(done.mat(2)));
        let v = if precision.is_complex() {
            packed
        } else {
            Full::new(n, n, |i, j| match w[j].1 {
                0.0 => packed.at(i, j),
                im if im > 0.0 => (packed.at(i, j).0, packed.at(i, j + 1).0),
                _ => (packed.at(i, j - 1).0, -packed.at(i, j).0),
            })
        };
        let whole = Full::of(&a);
        let error = whole.times(&v).minus(&v.scaled(&w)).norm();
        small(&name, error, n as f64 * whole.norm() * v.norm(), precision);
        for j in 0..n {
            let column: Vec<Number> = (0..n).map(|i| v.at(i, j)).collect();
            let norm = column
                .iter()
                .map(|x| modulus(*x).powi(2))
                .sum::<f64>()
                .sqrt();
            small(&name, (norm - 1.0).abs(), n as f64, precision);
            let largest = column.iter().copied().fold((0.0, 0.0), |most, x| {
                if modulus(x) > modulus(most) { x } else { most }
            });
            assert!(
                largest.1.abs() <= THRESHOLD * eps(precision),
                "{name}: {largest:?}"
            );
        }
        let alone = geev_case(precision, "NN", &a).done(gpu());
        assert_eq!(eigenvalues(&alone).len(), n);
        let trace = |w: &[Number]| w.iter().fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
        let (x, y) = (trace(&eigenvalues(&alone)), trace(&w));
        let error = modulus((x.0 - y.0, x.1 - y.1));
        small("values only", error, n as f64 * whole.norm(), precision);
    }
}

fn refused(case: &Case, what: &str) {
    let mut done = case.clone();
    let ran = done.run(gpu());
    assert!(
        matches!(ran, Err(Failure::Unsupported(_))),
        "{}: {what}: {ran:?}",
        case.name()
    );
    done.assert_inputs_are_those_of(case, what);
}

#[test]
fn every_routine_runs_and_is_counted() {
    let mut random = Random(208);
    for precision in Precision::ALL {
        for case in one_of_each(precision, 20, &mut random) {
            let before = gpu().counters().of(case.op);
            let done = case.clone().done(gpu());
            let after = gpu().counters().of(done.op);
            assert!(after.calls > before.calls && after.kernels > before.kernels);
        }
    }
}

#[test]
fn nan_and_infinity_are_the_cpu_librarys_business() {
    let mut random = Random(209);
    for precision in Precision::ALL {
        for case in one_of_each(precision, 20, &mut random) {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut case = case.clone();
                if let Some((a, _)) = &mut case.matrices[0] {
                    let at = random.below(a.rows.min(a.cols));
                    a.set(at, at, (bad, 0.0));
                }
                refused(&case, "not finite");
            }
        }
    }
}

#[test]
fn what_lapack_reports_is_a_failure_with_everything_as_it_was() {
    let mut random = Random(210);
    let n = 40;
    for precision in Precision::ALL {
        for case in one_of_each(precision, n, &mut random) {
            let indefinite = matches!(case.op, Op::Potrf | Op::Posv);
            let singular = matches!(case.op, Op::Getrf | Op::Gesv);
            for at in [0, n / 2, n - 1] {
                let mut case = case.clone();
                if let Some((a, _)) = &mut case.matrices[0] {
                    match (indefinite, singular) {
                        (true, _) => a.set(at, at, (-1.0, 0.0)),
                        (_, true) => (0..n).for_each(|i| a.set(i, at, (0.0, 0.0))),
                        _ => continue,
                    }
                }
                refused(&case, "not solvable");
            }
            if matches!(
                case.op,
                Op::Getrs | Op::Potrs | Op::Potri | Op::Trtri | Op::Trtrs
            ) {
                let mut zero = case.clone();
                if let Some((a, _)) = &mut zero.matrices[0] {
                    a.set(3, 3, (0.0, 0.0));
                }
                refused(&zero, "a zero on the diagonal");
            }
            if case.op == Op::Getrs {
                for pivot in [0, -1, n as i32 + 1] {
                    let mut wild = case.clone();
                    let pivots = vec![pivot; n];
                    let bytes: Vec<u8> = pivots.iter().flat_map(|p| p.to_ne_bytes()).collect();
                    wild.vectors[0].set_bytes(&bytes);
                    refused(&wild, "a pivot");
                }
            }
        }
    }
}

#[test]
fn matrices_that_lapack_scales_are_left_to_it() {
    let mut random = Random(211);
    for precision in Precision::ALL {
        let double = matches!(precision, Precision::D | Precision::Z);
        for scale in if double {
            [1e-300, 1e-200, 1e200, 1e300]
        } else {
            [1e-30, 1e-20, 1e20, 1e30]
        } {
            for case in one_of_each(precision, 20, &mut random) {
                // Reflectors, pivots and factors are not what is scaled.
                if matches!(
                    case.op,
                    Op::Orgqr
                        | Op::Ormqr
                        | Op::Getri
                        | Op::Getrs
                        | Op::Potrs
                        | Op::Potri
                        | Op::Trtri
                        | Op::Trtrs
                        | Op::Lauum
                        | Op::Potrf
                        | Op::Posv
                ) {
                    continue;
                }
                let pivots = matches!(case.op, Op::Getrf | Op::Gesv);
                if pivots && !precision.is_complex() {
                    continue;
                }
                let mut case = case.clone();
                if let Some((a, _)) = &mut case.matrices[0] {
                    for j in 0..a.cols {
                        for i in 0..a.rows {
                            let (re, im) = a.get(i, j);
                            a.set(i, j, (re * scale, im * scale));
                        }
                    }
                }
                refused(&case, "scaled");
            }
        }
    }
}

/// potrf forms square roots and quotients by them only, so that nothing overflows that LAPACK keeps from it.
#[test]
fn cholesky_of_large_and_small_matrices() {
    let mut random = Random(214);
    for precision in Precision::ALL {
        let scales = match precision {
            Precision::D | Precision::Z => [1e-200, 1e200],
            _ => [1e-30, 1e30],
        };
        for scale in scales {
            let n = 150;
            let a = hermitian(precision, n, 0, true, &mut random);
            let scaled = Matrix::filled(precision, n, n, n, |i, j| {
                let (re, im) = a.get(i, j);
                (re * scale, im * scale)
            });
            let b = Matrix::random(precision, n, 2, n, &mut random);
            let case = Case::new(Op::Posv, precision, "L", (n, n, 2))
                .matrix(scaled, Intent::InOut)
                .matrix(b.clone(), Intent::InOut);
            let done = case.done(gpu());
            let x = Full::of(done.mat(1));
            let unscaled = Full::new(n, 2, |i, j| {
                let (re, im) = x.at(i, j);
                (re * scale, im * scale)
            });
            let a = Full::of(&a);
            let error = a.times(&unscaled).minus(&Full::of(&b)).norm();
            let size = a.norm() * unscaled.norm() * n as f64;
            small(&done.name(), error, size, precision);
        }
    }
}

/// LAPACK takes the diagonal of a Hermitian matrix as real, and leaves a factor with a real one.
#[test]
fn imaginary_parts_of_a_hermitian_diagonal_are_not_there() {
    let mut random = Random(215);
    for precision in [Precision::C, Precision::Z] {
        for case in one_of_each(precision, 40, &mut random) {
            if !matches!(
                case.op,
                Op::Potrf | Op::Posv | Op::Syevd | Op::Syevr | Op::Syevx | Op::Sygvd | Op::Sygvx
            ) {
                continue;
            }
            let mut odd = case.clone();
            if let Some((a, _)) = &mut odd.matrices[0] {
                for i in 0..40 {
                    a.set(i, i, (a.get(i, i).0, random.next()));
                }
            }
            let (mut done, right) = (odd.done(gpu()), case.done(gpu()));
            if matches!(done.op, Op::Syevr | Op::Syevx | Op::Sygvx) {
                // A is not a result.
                done.matrices[0] = right.matrices[0].clone();
            }
            if matches!(done.op, Op::Potrf | Op::Posv) {
                assert!((0..40).all(|i| done.mat(0).get(i, i).1 == 0.0));
            }
            done.assert_is(&right);
        }
    }
}

/// cuSOLVER before 11.7 has no Xgeev, and a cuBLAS may have no geam: such calls are the CPU library's, and the
/// device goes on.
#[test]
fn what_older_libraries_lack_is_not_the_devices_trouble() {
    let mut random = Random(216);
    testing::set_older(true);
    let n = 20;
    let a = Matrix::random(Precision::D, n, n, n, &mut random);
    for _ in 0..5 {
        refused(&geev_case(Precision::D, "NV", &a), "no Xgeev");
        let wide = Matrix::random(Precision::D, n, 2 * n, n, &mut random);
        refused(&svd_case(Op::Gesdd, Precision::D, "S", &wide), "no geam");
        let case = Case::new(Op::Trtri, Precision::D, "UN", (n, n, n));
        refused(&case.matrix(a.clone(), Intent::InOut), "no Xtrtri");
    }
    svd_case(Op::Gesvd, Precision::D, "SS", &a).done(gpu());
    testing::set_older(false);
    geev_case(Precision::D, "NV", &a).done(gpu());
}

/// A length beyond 32 bits comes back negative: the CPU library's call, not one with a wrong length. In a process
/// of its own, whose simulated cuSOLVER answers so.
#[test]
fn a_workspace_that_does_not_fit_32_bits_is_refused() {
    const LENGTH: &str = "SIM_CUDA_SOLVER_LWORK";
    if common::real() {
        return;
    }
    if std::env::var_os(LENGTH).is_some() {
        let mut random = Random(217);
        for case in one_of_each(Precision::Z, 20, &mut random) {
            let by_qr = matches!(case.op, Op::Gelsd | Op::Gelss) && case.m != case.n;
            if by_qr || matches!(case.op, Op::Orgqr | Op::Ormqr | Op::Potri | Op::Gels) {
                refused(&case, "a negative length");
            } else {
                case.done(gpu());
            }
        }
        return;
    }
    let this = std::env::current_exe().expect("this program");
    let name = "a_workspace_that_does_not_fit_32_bits_is_refused";
    let output = std::process::Command::new(this)
        .args(["--exact", name, "--nocapture"])
        .env(LENGTH, (u32::MAX - 4).to_string())
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn options_without_a_plan_are_refused() {
    let mut random = Random(212);
    let a = Matrix::random(Precision::D, 9, 9, 9, &mut random);
    let left = Case::new(Op::Geev, Precision::D, "VN", (9, 9, 9))
        .matrix(a.clone(), Intent::InOut)
        .result(9, 9, 0)
        .unreferenced()
        .vector(VectorKind::Same, 9, Intent::Out)
        .vector(VectorKind::Same, 9, Intent::Out);
    refused(&left, "left vectors");
    let other = Case::new(Op::Sytrf, Precision::D, "U", (9, 9, 9))
        .matrix(a, Intent::InOut)
        .vector(VectorKind::Integer, 9, Intent::Out);
    refused(&other, "a family without a plan");
}

#[test]
fn sixteen_threads_get_what_one_gets() {
    let mut random = Random(213);
    let mut cases = one_of_each(Precision::D, 60, &mut random);
    cases.extend(one_of_each(Precision::C, 60, &mut random));
    let alone: Vec<(Case, Case)> = cases
        .into_iter()
        .map(|case| (case.clone(), case.done(gpu())))
        .collect();
    let alone = &alone;
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                for turn in 0..alone.len() {
                    let (case, right) = &alone[(thread + turn) % alone.len()];
                    let done = case.clone().done(gpu());
                    for (x, y) in done.matrices.iter().zip(&right.matrices) {
                        let bytes = |x: &Option<(Matrix, Intent)>| x.clone().map(|x| x.0.bytes);
                        assert!(bytes(x) == bytes(y), "{}: a concurrent result", case.name());
                    }
                    for (x, y) in done.vectors.iter().zip(&right.vectors) {
                        assert!(x.body() == y.body(), "{}: a concurrent vector", case.name());
                    }
                }
            });
        }
    });
}

/// Results in place that go through scratch, and that are downloaded over what is kept, are the same, with
/// several callers too.
#[test]
fn results_in_place_are_the_same_on_both_ways() {
    let mut random = Random(271);
    for precision in Precision::ALL {
        for case in one_of_each(precision, 150, &mut random) {
            testing::set_keeps(Some(false));
            let scratch = case.clone().done(gpu());
            testing::set_keeps(Some(true));
            let kept = std::thread::scope(|scope| {
                let calls = [(); 3].map(|()| scope.spawn(|| case.clone().done(gpu())));
                calls.map(|call| call.join().expect("no panic"))
            });
            for kept in kept {
                kept.assert_is(&scratch);
            }
        }
    }
    testing::set_keeps(None);
}
