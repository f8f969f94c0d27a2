//! Every product against its definition, exactly: the entries are small integers. What must not be read
//! is NaN, what must not be written is compared bit by bit.

use super::job::Precision;
use super::level3::*;
use super::testing::*;
use crate::testing::{Device, ok};
use core::ffi::c_void;

#[test]
fn gemm_is_its_definition() {
    let device = Device::new();
    let handle = handle(&device);
    for (precision, (m, n, k)) in PRECISIONS.iter().flat_map(|&p| SIZES.map(|size| (p, size))) {
        for (&ta, &tb) in trans_of(precision)
            .iter()
            .flat_map(|ta| trans_of(precision).iter().map(move |tb| (ta, tb)))
        {
            let (alpha, beta) = factors(precision, false)[(ta + tb) as usize % 3];
            let (ar, ac) = if ta == 0 { (m, k) } else { (k, m) };
            let (br, bc) = if tb == 0 { (k, n) } else { (n, k) };
            let (a, b) = (random(precision, 1, ar, ac), random(precision, 2, br, bc));
            let c = Matrix::new(m, n, |i, j| {
                (beta != ZERO).then(|| entry(precision, 3, i, j))
            });
            let expected = Matrix::new(m, n, |i, j| {
                let product = sum(k, |l| a.op(ta, i, l) * b.op(tb, l, j));
                Some(alpha * product + scaled(beta, &c, i, j))
            });
            let [da, db, dc] = [&a, &b, &c].map(|x| x.upload(&device, precision));
            let (alpha, beta) = (Scalar::new(precision, alpha), Scalar::new(precision, beta));
            let (type_, compute) = match precision {
                Precision::S => (0, 69),
                Precision::D => (1, 71),
                Precision::C => (4, 68),
                Precision::Z => (5, 70),
            };
            // SAFETY: the scalars live; everything else is the simulation's to check.
            ok(unsafe {
                cublasGemmEx_64(
                    handle,
                    ta,
                    tb,
                    m as i64,
                    n as i64,
                    k as i64,
                    alpha.ptr(),
                    da,
                    type_,
                    a.ld(),
                    db,
                    type_,
                    b.ld(),
                    beta.ptr(),
                    dc,
                    type_,
                    c.ld(),
                    compute,
                    -1,
                )
            });
            assert_eq!(
                c.download(&device, precision, dc),
                expected,
                "{precision:?} {ta}{tb} {m} {n} {k}"
            );
            device.free_all(&[da, db, dc]);
        }
    }
    assert_eq!(device.complaints(), Vec::<String>::new());
}

/// What the tests of the other families share: a device, a handle, a precision.
struct Bench {
    device: Device,
    handle: usize,
}

impl Bench {
    fn new() -> Self {
        let device = Device::new();
        let handle = handle(&device);
        Self { device, handle }
    }

    /// Uploads, calls with the addresses, compares the result, which is the last matrix.
    fn check<const N: usize>(
        &self,
        precision: Precision,
        matrices: [&Matrix; N],
        expected: &Matrix,
        call: impl FnOnce([u64; N]) -> u32,
        what: &str,
    ) {
        let addresses = matrices.map(|matrix| matrix.upload(&self.device, precision));
        ok(call(addresses));
        let found = matrices[N - 1].download(&self.device, precision, addresses[N - 1]);
        assert_eq!(&found, expected, "{what} {precision:?}");
        for (matrix, address) in matrices.iter().zip(addresses).take(N - 1) {
            let after = matrix.download(&self.device, precision, address);
            assert_eq!(&&after, matrix, "{what} {precision:?} wrote an operand");
        }
        self.device.free_all(&addresses);
        assert_eq!(self.device.complaints(), Vec::<String>::new());
    }
}

/// Every combination of two.
fn pairs<T: Copy, U: Copy>(first: &[T], second: &[U]) -> Vec<(T, U)> {
    first
        .iter()
        .flat_map(|&x| second.iter().map(move |&y| (x, y)))
        .collect()
}

type SymmEntry = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    i64,
    i64,
    *const c_void,
    u64,
    i64,
    u64,
    i64,
    *const c_void,
    u64,
    i64,
) -> u32;
type RankKEntry = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    i64,
    i64,
    *const c_void,
    u64,
    i64,
    *const c_void,
    u64,
    i64,
) -> u32;
type Rank2kEntry = SymmEntry;
type TrmmEntry = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    u32,
    u32,
    i64,
    i64,
    *const c_void,
    u64,
    i64,
    u64,
    i64,
    u64,
    i64,
) -> u32;
type TrsmEntry = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    u32,
    u32,
    i64,
    i64,
    *const c_void,
    u64,
    i64,
    u64,
    i64,
) -> u32;

/// (precision, hermitian, entry)
const SYMM: [(Precision, bool, SymmEntry); 6] = [
    (Precision::S, false, cublasSsymm_v2_64),
    (Precision::D, false, cublasDsymm_v2_64),
    (Precision::C, false, cublasCsymm_v2_64),
    (Precision::Z, false, cublasZsymm_v2_64),
    (Precision::C, true, cublasChemm_v2_64),
    (Precision::Z, true, cublasZhemm_v2_64),
];
const RANK_K: [(Precision, bool, RankKEntry); 6] = [
    (Precision::S, false, cublasSsyrk_v2_64),
    (Precision::D, false, cublasDsyrk_v2_64),
    (Precision::C, false, cublasCsyrk_v2_64),
    (Precision::Z, false, cublasZsyrk_v2_64),
    (Precision::C, true, cublasCherk_v2_64),
    (Precision::Z, true, cublasZherk_v2_64),
];
const RANK_2K: [(Precision, bool, Rank2kEntry); 6] = [
    (Precision::S, false, cublasSsyr2k_v2_64),
    (Precision::D, false, cublasDsyr2k_v2_64),
    (Precision::C, false, cublasCsyr2k_v2_64),
    (Precision::Z, false, cublasZsyr2k_v2_64),
    (Precision::C, true, cublasCher2k_v2_64),
    (Precision::Z, true, cublasZher2k_v2_64),
];
const TRMM: [(Precision, TrmmEntry); 4] = [
    (Precision::S, cublasStrmm_v2_64),
    (Precision::D, cublasDtrmm_v2_64),
    (Precision::C, cublasCtrmm_v2_64),
    (Precision::Z, cublasZtrmm_v2_64),
];
const TRSM: [(Precision, TrsmEntry); 4] = [
    (Precision::S, cublasStrsm_v2_64),
    (Precision::D, cublasDtrsm_v2_64),
    (Precision::C, cublasCtrsm_v2_64),
    (Precision::Z, cublasZtrsm_v2_64),
];

/// Element of a symmetric or Hermitian matrix of which one triangle is stored.
fn mirrored(a: &Matrix, uplo: u32, hermitian: bool, i: usize, j: usize) -> Number {
    match (in_triangle(uplo, i, j), hermitian) {
        (true, true) if i == j => Number(a.at(i, j).0, 0.0),
        (true, _) => a.at(i, j),
        (false, true) => a.at(j, i).conj(),
        (false, false) => a.at(j, i),
    }
}

#[test]
fn symm_and_hemm_are_their_definition() {
    let bench = Bench::new();
    for ((precision, hermitian, entry_of), (m, n, _)) in pairs(&SYMM, &SIZES) {
        for ((side, uplo), (alpha, beta)) in
            pairs(&pairs(&[0, 1], &[0, 1]), &factors(precision, false))
        {
            let order = if side == 0 { m } else { n };
            let a = half(precision, 1, order, uplo);
            let b = random(precision, 2, m, n);
            let c = Matrix::new(m, n, |i, j| {
                (beta != ZERO).then(|| entry(precision, 3, i, j))
            });
            let full = |i, j| mirrored(&a, uplo, hermitian, i, j);
            let expected = Matrix::new(m, n, |i, j| {
                let product = match side {
                    0 => sum(m, |l| full(i, l) * b.at(l, j)),
                    _ => sum(n, |l| b.at(i, l) * full(l, j)),
                };
                Some(alpha * product + scaled(beta, &c, i, j))
            });
            let (alpha, beta) = (Scalar::new(precision, alpha), Scalar::new(precision, beta));
            let (rows, cols) = (m as i64, n as i64);
            // SAFETY: the scalars live; everything else is the simulation's to check.
            let call = |[da, db, dc]: [u64; 3]| unsafe {
                entry_of(
                    bench.handle,
                    side,
                    uplo,
                    rows,
                    cols,
                    alpha.ptr(),
                    da,
                    a.ld(),
                    db,
                    b.ld(),
                    beta.ptr(),
                    dc,
                    c.ld(),
                )
            };
            bench.check(
                precision,
                [&a, &b, &c],
                &expected,
                call,
                &format!("symm {side}{uplo} {m} {n}"),
            );
        }
    }
}

/// The operations that a rank-k update takes.
fn rank_trans(precision: Precision, hermitian: bool) -> &'static [u32] {
    match (precision.is_real(), hermitian) {
        (true, _) => &[0, 1, 2],
        (false, false) => &[0, 1],
        (false, true) => &[0, 2],
    }
}

/// The C of a rank-k update: half a matrix, nobody's where beta = 0.
fn old_c(precision: Precision, n: usize, uplo: u32, hermitian: bool, beta: Number) -> Matrix {
    Matrix::new(n, n, |i, j| {
        let value = entry(precision, 3, i, j);
        let value = if hermitian && i == j {
            Number(value.0, 0.0)
        } else {
            value
        };
        (beta != ZERO && in_triangle(uplo, i, j)).then_some(value)
    })
}

#[test]
fn syrk_and_herk_are_their_definition() {
    let bench = Bench::new();
    for ((precision, hermitian, entry_of), (_, n, k)) in pairs(&RANK_K, &SIZES) {
        let flags = pairs(&[0, 1], rank_trans(precision, hermitian));
        for ((uplo, trans), (alpha, beta)) in pairs(&flags, &factors(precision, hermitian)) {
            let alpha = if hermitian {
                Number(alpha.0, 0.0)
            } else {
                alpha
            };
            let (rows, cols) = if trans == 0 { (n, k) } else { (k, n) };
            let a = random(precision, 1, rows, cols);
            let c = old_c(precision, n, uplo, hermitian, beta);
            let turned = |x: Number| if hermitian { x.conj() } else { x };
            let expected = Matrix::new(n, n, |i, j| {
                let product = || sum(k, |l| a.op(trans, i, l) * turned(a.op(trans, j, l)));
                in_triangle(uplo, i, j).then(|| alpha * product() + scaled(beta, &c, i, j))
            });
            let of_factors = if hermitian {
                precision.part()
            } else {
                precision
            };
            let (alpha, beta) = (
                Scalar::new(of_factors, alpha),
                Scalar::new(of_factors, beta),
            );
            // SAFETY: as above.
            let call = |[da, dc]: [u64; 2]| unsafe {
                entry_of(
                    bench.handle,
                    uplo,
                    trans,
                    n as i64,
                    k as i64,
                    alpha.ptr(),
                    da,
                    a.ld(),
                    beta.ptr(),
                    dc,
                    c.ld(),
                )
            };
            bench.check(
                precision,
                [&a, &c],
                &expected,
                call,
                &format!("syrk {uplo}{trans} {n} {k}"),
            );
        }
    }
}

#[test]
fn syr2k_and_her2k_are_their_definition() {
    let bench = Bench::new();
    for ((precision, hermitian, entry_of), (_, n, k)) in pairs(&RANK_2K, &SIZES) {
        let flags = pairs(&[0, 1], rank_trans(precision, hermitian));
        for ((uplo, trans), (alpha, beta)) in pairs(&flags, &factors(precision, hermitian)) {
            let (rows, cols) = if trans == 0 { (n, k) } else { (k, n) };
            let (a, b) = (
                random(precision, 1, rows, cols),
                random(precision, 2, rows, cols),
            );
            let c = old_c(precision, n, uplo, hermitian, beta);
            let turned = |x: Number| if hermitian { x.conj() } else { x };
            let expected = Matrix::new(n, n, |i, j| {
                let ab = || sum(k, |l| a.op(trans, i, l) * turned(b.op(trans, j, l)));
                let ba = || sum(k, |l| b.op(trans, i, l) * turned(a.op(trans, j, l)));
                let product = || alpha * ab() + turned(alpha) * ba();
                in_triangle(uplo, i, j).then(|| product() + scaled(beta, &c, i, j))
            });
            let of_beta = if hermitian {
                precision.part()
            } else {
                precision
            };
            let (alpha, beta) = (Scalar::new(precision, alpha), Scalar::new(of_beta, beta));
            // SAFETY: as above.
            let call = |[da, db, dc]: [u64; 3]| unsafe {
                entry_of(
                    bench.handle,
                    uplo,
                    trans,
                    n as i64,
                    k as i64,
                    alpha.ptr(),
                    da,
                    a.ld(),
                    db,
                    b.ld(),
                    beta.ptr(),
                    dc,
                    c.ld(),
                )
            };
            bench.check(
                precision,
                [&a, &b, &c],
                &expected,
                call,
                &format!("syr2k {uplo}{trans} {n} {k}"),
            );
        }
    }
}

/// side, uplo, trans, diag
fn triangular_flags(precision: Precision) -> Vec<[u32; 4]> {
    let halves = pairs(
        &pairs(&[0, 1], &[0, 1]),
        &pairs(trans_of(precision), &[0, 1]),
    );
    halves
        .into_iter()
        .map(|((side, uplo), (trans, diag))| [side, uplo, trans, diag])
        .collect()
}

/// op(A) B or B op(A), A triangular.
fn triangular_product(a: &Matrix, b: &Matrix, [side, uplo, trans, diag]: [u32; 4]) -> Matrix {
    let op = |i, j| element_of_triangular(a, uplo, diag == 1, trans, i, j);
    Matrix::new(b.rows, b.cols, |i, j| {
        Some(match side {
            0 => sum(b.rows, |l| op(i, l) * b.at(l, j)),
            _ => sum(b.cols, |l| b.at(i, l) * op(l, j)),
        })
    })
}

fn times(alpha: Number, x: &Matrix) -> Matrix {
    Matrix::new(x.rows, x.cols, |i, j| Some(alpha * x.at(i, j)))
}

#[test]
fn trmm_is_its_definition_beside_and_in_place() {
    let bench = Bench::new();
    for ((precision, entry_of), (m, n, _)) in pairs(&TRMM, &SIZES) {
        for ([side, uplo, trans, diag], (alpha, _)) in
            pairs(&triangular_flags(precision), &factors(precision, false))
        {
            let order = if side == 0 { m } else { n };
            let a = triangular(precision, order, uplo, diag == 1);
            let b = random(precision, 2, m, n);
            let expected = times(
                alpha,
                &triangular_product(&a, &b, [side, uplo, trans, diag]),
            );
            let c = Matrix::new(m, n, |_, _| None);
            let alpha = Scalar::new(precision, alpha);
            // SAFETY: as above.
            let call = |da, db, dc| unsafe {
                entry_of(
                    bench.handle,
                    side,
                    uplo,
                    trans,
                    diag,
                    m as i64,
                    n as i64,
                    alpha.ptr(),
                    da,
                    a.ld(),
                    db,
                    b.ld(),
                    dc,
                    c.ld(),
                )
            };
            let what = format!("trmm {side}{uplo}{trans}{diag} {m} {n}");
            let beside = |[da, db, dc]: [u64; 3]| call(da, db, dc);
            bench.check(precision, [&a, &b, &c], &expected, beside, &what);
            let in_place = |[da, db]: [u64; 2]| call(da, db, db);
            bench.check(precision, [&a, &b], &expected, in_place, &what);
        }
    }
}

#[test]
fn trsm_solves() {
    let bench = Bench::new();
    for ((precision, entry_of), (m, n, _)) in pairs(&TRSM, &SIZES) {
        for [side, uplo, trans, diag] in triangular_flags(precision) {
            let order = if side == 0 { m } else { n };
            let a = triangular(precision, order, uplo, diag == 1);
            let x = random(precision, 2, m, n);
            // op(A) X = alpha B with alpha = 1/2 (times i for complex numbers).
            let (alpha, inverse) = match precision.is_real() {
                true => (Number(0.5, 0.0), Number(2.0, 0.0)),
                false => (Number(0.0, 0.5), Number(0.0, -2.0)),
            };
            let b = times(
                inverse,
                &triangular_product(&a, &x, [side, uplo, trans, diag]),
            );
            let alpha = Scalar::new(precision, alpha);
            // SAFETY: as above.
            let call = |[da, db]: [u64; 2]| unsafe {
                entry_of(
                    bench.handle,
                    side,
                    uplo,
                    trans,
                    diag,
                    m as i64,
                    n as i64,
                    alpha.ptr(),
                    da,
                    a.ld(),
                    db,
                    b.ld(),
                )
            };
            bench.check(
                precision,
                [&a, &b],
                &x,
                call,
                &format!("trsm {side}{uplo}{trans}{diag} {m} {n}"),
            );
        }
    }
}

type GeamEntry = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    i64,
    i64,
    *const c_void,
    u64,
    i64,
    *const c_void,
    u64,
    i64,
    u64,
    i64,
) -> u32;

#[test]
fn geam_is_its_definition() {
    use super::geam::*;
    let bench = Bench::new();
    let entries: [GeamEntry; 4] = [
        cublasSgeam_64,
        cublasDgeam_64,
        cublasCgeam_64,
        cublasZgeam_64,
    ];
    let (m, n) = (5, 7);
    for (&precision, entry) in PRECISIONS.iter().zip(entries) {
        for (&ta, &tb) in pairs(&[0, 1, 2], &[0, 1, 2]).iter().map(|(a, b)| (a, b)) {
            let size = |trans| if trans == 0 { (m, n) } else { (n, m) };
            let matrix = |salt, (rows, cols)| random(precision, salt, rows, cols);
            let (a, b) = (matrix(1, size(ta)), matrix(2, size(tb)));
            let c = Matrix::new(m, n, |_, _| None);
            let (alpha, beta) = factors(precision, false)[(ta + tb) as usize % 3];
            let expected = Matrix::new(m, n, |i, j| {
                Some(alpha * a.op(ta, i, j) + beta * b.op(tb, i, j))
            });
            let (alpha, beta) = (Scalar::new(precision, alpha), Scalar::new(precision, beta));
            let (handle, mw, nw) = (bench.handle, m as i64, n as i64);
            let call = |[da, db, dc]: [u64; 3]| {
                let (x, y) = (alpha.ptr(), beta.ptr());
                let [lda, ldb, ldc] = [a.ld(), b.ld(), c.ld()];
                // SAFETY: the scalars live; everything else is the simulation's to check.
                unsafe { entry(handle, ta, tb, mw, nw, x, da, lda, y, db, ldb, dc, ldc) }
            };
            bench.check(precision, [&a, &b, &c], &expected, call, "geam");
        }
    }
}

type DgmmEntry = unsafe extern "C" fn(usize, u32, i64, i64, u64, i64, u64, i64, u64, i64) -> u32;

#[test]
fn dgmm_is_its_definition() {
    use super::geam::*;
    let bench = Bench::new();
    let entries: [DgmmEntry; 4] = [
        cublasSdgmm_64,
        cublasDdgmm_64,
        cublasCdgmm_64,
        cublasZdgmm_64,
    ];
    let (m, n) = (5, 7);
    for (&precision, entry) in PRECISIONS.iter().zip(entries) {
        for side in [0, 1] {
            let a = random(precision, 1, m, n);
            let x = random(precision, 2, if side == 0 { m } else { n }, 1);
            let c = Matrix::new(m, n, |_, _| None);
            let expected = Matrix::new(m, n, |i, j| {
                Some(x.op(0, if side == 0 { i } else { j }, 0) * a.op(0, i, j))
            });
            let (handle, mw, nw) = (bench.handle, m as i64, n as i64);
            let call = |[da, dx, dc]: [u64; 3]| {
                // SAFETY: everything is the simulation's to check.
                unsafe { entry(handle, side, mw, nw, da, a.ld(), dx, 1, dc, c.ld()) }
            };
            bench.check(precision, [&a, &x, &c], &expected, call, "dgmm");
        }
    }
}
