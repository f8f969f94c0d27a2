//! The products of the simulated cuBLAS: one function a family that decodes the arguments as cuBLAS does,
//! and the entries, one a precision. The 64-bit entries only, since nothing of ours uses others.

use super::job::{Area, Factor, Found, Job, Operand, Precision, submit};
use super::openblas::*;
use super::{BAD_VALUE, NOT_SUPPORTED, code};
use core::ffi::{c_char, c_int, c_void};

type Decoded = Result<Job, u32>;

/// A flag as OpenBLAS wants it.
fn flag(letter: u8) -> c_char {
    letter as c_char
}

/// cuBLAS's numbers are the indices.
fn choose(number: u32, letters: &[u8]) -> Result<u8, u32> {
    letters.get(number as usize).copied().ok_or(BAD_VALUE)
}

fn side(number: u32) -> Result<u8, u32> {
    choose(number, b"LR")
}

/// CUBLAS_FILL_MODE_FULL is not for these routines.
fn uplo(number: u32) -> Result<u8, u32> {
    choose(number, b"LU")
}

fn diag(number: u32) -> Result<u8, u32> {
    choose(number, b"NU")
}

/// Conjugating a real matrix is transposing it.
fn op(number: u32, precision: Precision) -> Result<u8, u32> {
    choose(number, if precision.is_real() { b"NTT" } else { b"NTC" })
}

fn full(name: &'static str, address: u64, (rows, cols): (i64, i64), ld: i64) -> Operand {
    Operand {
        name,
        address,
        rows,
        cols,
        ld,
        area: Area::Full,
    }
}

fn triangle(name: &'static str, address: u64, n: i64, ld: i64, uplo: u8, unit: bool) -> Operand {
    let upper = uplo == b'U';
    Operand {
        area: Area::Triangle { upper, unit },
        ..full(name, address, (n, n), ld)
    }
}

/// Sizes as OpenBLAS wants them; `submit` has refused what does not fit before the work runs.
fn narrow<const N: usize>(sizes: [i64; N]) -> [i32; N] {
    sizes.map(|size| size as i32)
}

fn factor(from: *const c_void, precision: Precision) -> Factor {
    Factor { from, precision }
}

fn swapped_if(swap: bool, (rows, cols): (i64, i64)) -> (i64, i64) {
    if swap { (cols, rows) } else { (rows, cols) }
}

fn gemm(
    precision: Precision,
    kernel: Gemm,
    transa: u32,
    transb: u32,
    (m, n, k): (i64, i64, i64),
    alpha: *const c_void,
    (a, lda): (u64, i64),
    (b, ldb): (u64, i64),
    beta: *const c_void,
    (c, ldc): (u64, i64),
) -> Decoded {
    let (ta, tb) = (op(transa, precision)?, op(transb, precision)?);
    let compute = move |found: &Found| {
        let (ta, tb) = (flag(ta), flag(tb));
        let [m, n, k, lda, ldb, ldc] = &narrow([m, n, k, lda, ldb, ldc]);
        let [pa, pb, pc] = found.operands();
        let [alpha, beta] = found.factors();
        // SAFETY: `submit` has found the operands in live device memory with these sizes; the arena is
        // never unmapped; the factors are of the precision's type.
        unsafe { kernel(&ta, &tb, m, n, k, alpha, pa, lda, pb, ldb, beta, pc, ldc) };
    };
    Ok(Job {
        precision,
        factors: vec![factor(alpha, precision), factor(beta, precision)],
        operands: vec![
            full("A", a, swapped_if(ta != b'N', (m, k)), lda),
            full("B", b, swapped_if(tb != b'N', (k, n)), ldb),
            full("C", c, (m, n), ldc),
        ],
        in_place: false,
        overwrites: false,
        sizes: vec![m, n, k],
        empty: m == 0 || n == 0,
        compute: Box::new(compute),
    })
}

/// symm and hemm.
fn symm(
    precision: Precision,
    kernel: Symm,
    side_number: u32,
    uplo_number: u32,
    m: i64,
    n: i64,
    alpha: *const c_void,
    a: u64,
    lda: i64,
    b: u64,
    ldb: i64,
    beta: *const c_void,
    c: u64,
    ldc: i64,
) -> Decoded {
    let (side, uplo) = (side(side_number)?, uplo(uplo_number)?);
    let compute = move |found: &Found| {
        let (side, uplo) = (flag(side), flag(uplo));
        let [m, n, lda, ldb, ldc] = &narrow([m, n, lda, ldb, ldc]);
        let [pa, pb, pc] = found.operands();
        let [alpha, beta] = found.factors();
        // SAFETY: as in `gemm`.
        unsafe { kernel(&side, &uplo, m, n, alpha, pa, lda, pb, ldb, beta, pc, ldc) };
    };
    let order = if side == b'L' { m } else { n };
    Ok(Job {
        precision,
        factors: vec![factor(alpha, precision), factor(beta, precision)],
        operands: vec![
            triangle("A", a, order, lda, uplo, false),
            full("B", b, (m, n), ldb),
            full("C", c, (m, n), ldc),
        ],
        in_place: false,
        overwrites: false,
        sizes: vec![m, n],
        empty: m == 0 || n == 0,
        compute: Box::new(compute),
    })
}

/// The operation of a rank-k update: a symmetric one takes no conjugate, a Hermitian one no plain
/// transpose. cuBLAS takes the conjugate for real matrices, where it is the transpose.
fn rank_op(number: u32, precision: Precision, hermitian: bool) -> Result<u8, u32> {
    match op(number, precision)? {
        b'C' if !hermitian => Err(BAD_VALUE),
        b'T' if hermitian => Err(BAD_VALUE),
        letter => Ok(letter),
    }
}

/// syrk, and herk, whose factors are real.
fn rank_k(
    hermitian: bool,
    precision: Precision,
    kernel: Syrk,
    uplo_number: u32,
    trans: u32,
    n: i64,
    k: i64,
    alpha: *const c_void,
    a: u64,
    lda: i64,
    beta: *const c_void,
    c: u64,
    ldc: i64,
) -> Decoded {
    let (uplo, trans) = (uplo(uplo_number)?, rank_op(trans, precision, hermitian)?);
    let compute = move |found: &Found| {
        let (uplo, trans) = (flag(uplo), flag(trans));
        let [n, k, lda, ldc] = &narrow([n, k, lda, ldc]);
        let [pa, pc, _] = found.operands();
        let [alpha, beta] = found.factors();
        // SAFETY: as in `gemm`; herk's factors were taken as real ones.
        unsafe { kernel(&uplo, &trans, n, k, alpha, pa, lda, beta, pc, ldc) };
    };
    let of_factors = if hermitian {
        precision.part()
    } else {
        precision
    };
    Ok(Job {
        precision,
        factors: vec![factor(alpha, of_factors), factor(beta, of_factors)],
        operands: vec![
            full("A", a, swapped_if(trans != b'N', (n, k)), lda),
            triangle("C", c, n, ldc, uplo, false),
        ],
        in_place: false,
        overwrites: false,
        sizes: vec![n, k],
        empty: n == 0,
        compute: Box::new(compute),
    })
}

/// syr2k, and her2k, whose beta is real.
fn rank_2k(
    hermitian: bool,
    precision: Precision,
    kernel: Syr2k,
    uplo_number: u32,
    trans: u32,
    n: i64,
    k: i64,
    alpha: *const c_void,
    a: u64,
    lda: i64,
    b: u64,
    ldb: i64,
    beta: *const c_void,
    c: u64,
    ldc: i64,
) -> Decoded {
    let (uplo, trans) = (uplo(uplo_number)?, rank_op(trans, precision, hermitian)?);
    let compute = move |found: &Found| {
        let (uplo, trans) = (flag(uplo), flag(trans));
        let [n, k, lda, ldb, ldc] = &narrow([n, k, lda, ldb, ldc]);
        let [pa, pb, pc] = found.operands();
        let [alpha, beta] = found.factors();
        // SAFETY: as in `gemm`; her2k's beta was taken as a real one.
        unsafe { kernel(&uplo, &trans, n, k, alpha, pa, lda, pb, ldb, beta, pc, ldc) };
    };
    let of_beta = if hermitian {
        precision.part()
    } else {
        precision
    };
    Ok(Job {
        precision,
        factors: vec![factor(alpha, precision), factor(beta, of_beta)],
        operands: vec![
            full("A", a, swapped_if(trans != b'N', (n, k)), lda),
            full("B", b, swapped_if(trans != b'N', (n, k)), ldb),
            triangle("C", c, n, ldc, uplo, false),
        ],
        in_place: false,
        overwrites: false,
        sizes: vec![n, k],
        empty: n == 0,
        compute: Box::new(compute),
    })
}

/// C := alpha op(A) B or alpha B op(A); C may be B itself.
fn trmm(
    precision: Precision,
    kernel: Trmm,
    side_number: u32,
    uplo_number: u32,
    trans: u32,
    diag_number: u32,
    m: i64,
    n: i64,
    alpha: *const c_void,
    a: u64,
    lda: i64,
    b: u64,
    ldb: i64,
    c: u64,
    ldc: i64,
) -> Decoded {
    let (side, uplo) = (side(side_number)?, uplo(uplo_number)?);
    let (trans, diag) = (op(trans, precision)?, diag(diag_number)?);
    if b == c && ldb != ldc {
        return Err(BAD_VALUE);
    }
    let compute = move |found: &Found| {
        let flags = [side, uplo, trans, diag].map(flag);
        let [m32, n32, lda, ldc32] = &narrow([m, n, lda, ldc]);
        let [pa, pb, pc] = found.operands();
        let [alpha, _] = found.factors();
        let elem_bytes = precision.elem_bytes() as usize;
        let zero = found.values[0].is_zero(precision);
        for j in 0..n as usize {
            let column_bytes = m as usize * elem_bytes;
            // SAFETY: column j of B and of C, inside the operands that `submit` has found; either they
            // are one column or they do not overlap, which `submit` has checked.
            unsafe {
                let to = pc.cast::<u8>().add(j * ldc as usize * elem_bytes);
                let from = pb.cast::<u8>().add(j * ldb as usize * elem_bytes);
                if zero {
                    to.write_bytes(0, column_bytes);
                } else {
                    core::ptr::copy(from, to, column_bytes);
                }
            }
        }
        if !zero {
            let [side, uplo, trans, diag] = &flags;
            // SAFETY: as in `gemm`.
            unsafe { kernel(side, uplo, trans, diag, m32, n32, alpha, pa, lda, pc, ldc32) };
        }
    };
    let order = if side == b'L' { m } else { n };
    Ok(Job {
        precision,
        factors: vec![factor(alpha, precision)],
        operands: vec![
            triangle("A", a, order, lda, uplo, diag == b'U'),
            full("B", b, (m, n), ldb),
            full("C", c, (m, n), ldc),
        ],
        in_place: true,
        overwrites: false,
        sizes: vec![m, n],
        empty: m == 0 || n == 0,
        compute: Box::new(compute),
    })
}

fn trsm(
    precision: Precision,
    kernel: Trmm,
    side_number: u32,
    uplo_number: u32,
    trans: u32,
    diag_number: u32,
    m: i64,
    n: i64,
    alpha: *const c_void,
    a: u64,
    lda: i64,
    b: u64,
    ldb: i64,
) -> Decoded {
    let (side, uplo) = (side(side_number)?, uplo(uplo_number)?);
    let (trans, diag) = (op(trans, precision)?, diag(diag_number)?);
    let compute = move |found: &Found| {
        let [side, uplo, trans, diag] = &[side, uplo, trans, diag].map(flag);
        let [m, n, lda, ldb] = &narrow([m, n, lda, ldb]);
        let [pa, pb, _] = found.operands();
        let [alpha, _] = found.factors();
        // SAFETY: as in `gemm`.
        unsafe { kernel(side, uplo, trans, diag, m, n, alpha, pa, lda, pb, ldb) };
    };
    let order = if side == b'L' { m } else { n };
    Ok(Job {
        precision,
        factors: vec![factor(alpha, precision)],
        operands: vec![
            triangle("A", a, order, lda, uplo, diag == b'U'),
            full("B", b, (m, n), ldb),
        ],
        in_place: false,
        overwrites: false,
        sizes: vec![m, n],
        empty: m == 0 || n == 0,
        compute: Box::new(compute),
    })
}

/// The kernel of a type and a compute type; a_type and compute are cuBLAS's numbers.
fn gemm_kernel(a_type: u32, compute: u32) -> Option<(Precision, Gemm)> {
    Some(match (a_type, compute) {
        // CUBLAS_COMPUTE_32F and its pedantic form; the faster forms round more than the type does.
        (0, 68 | 69) => (Precision::S, sgemm_ as Gemm),
        (4, 68 | 69) => (Precision::C, cgemm_),
        (1, 70 | 71) => (Precision::D, dgemm_),
        (5, 70 | 71) => (Precision::Z, zgemm_),
        _ => return None,
    })
}

/// cuBLAS's.
///
/// # Safety
/// As cuBLAS's: scalars that can be read, in the memory that the pointer mode names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmEx_64(
    handle: usize,
    transa: u32,
    transb: u32,
    m: i64,
    n: i64,
    k: i64,
    alpha: *const c_void,
    a: u64,
    a_type: u32,
    lda: i64,
    b: u64,
    b_type: u32,
    ldb: i64,
    beta: *const c_void,
    c: u64,
    c_type: u32,
    ldc: i64,
    compute: u32,
    algorithm: c_int,
) -> u32 {
    code(submit("cublasGemmEx_64", handle, || {
        let (precision, kernel) = gemm_kernel(a_type, compute).ok_or(NOT_SUPPORTED)?;
        if a_type != b_type || a_type != c_type || algorithm != -1 {
            return Err(NOT_SUPPORTED);
        }
        let size = (m, n, k);
        let (a, b, c) = ((a, lda), (b, ldb), (c, ldc));
        gemm(
            precision, kernel, transa, transb, size, alpha, a, b, beta, c,
        )
    }))
}

/// One entry: passes everything after the handle to the family's function.
macro_rules! entry {
    ($name:ident $precision:ident $kernel:ident $family:ident
     ($($fixed:expr)?) ($($arg:ident: $ty:ty),* $(,)?)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: usize, $($arg: $ty),*) -> u32 {
            code(submit(stringify!($name), handle, || {
                $family($($fixed,)? Precision::$precision, $kernel, $($arg),*)
            }))
        }
    };
}

/// The entries of families: what comes before the precision, the arguments after the handle, and name,
/// precision and kernel of each entry.
macro_rules! entries {
    ($($family:ident $fixed:tt $args:tt { $($name:ident $precision:ident $kernel:ident;)* })*) => {
        $(entries!(@each $family $fixed $args $($name $precision $kernel;)*);)*
    };
    (@each $family:ident $fixed:tt $args:tt $($name:ident $precision:ident $kernel:ident;)*) => {
        $(entry!($name $precision $kernel $family $fixed $args);)*
    };
}

entries! {
    symm () (
        side: u32, uplo: u32, m: i64, n: i64, alpha: *const c_void, a: u64, lda: i64,
        b: u64, ldb: i64, beta: *const c_void, c: u64, ldc: i64,
    ) {
        cublasSsymm_v2_64 S ssymm_;
        cublasDsymm_v2_64 D dsymm_;
        cublasCsymm_v2_64 C csymm_;
        cublasZsymm_v2_64 Z zsymm_;
        cublasChemm_v2_64 C chemm_;
        cublasZhemm_v2_64 Z zhemm_;
    }
    rank_k (false) (
        uplo: u32, trans: u32, n: i64, k: i64, alpha: *const c_void, a: u64, lda: i64,
        beta: *const c_void, c: u64, ldc: i64,
    ) {
        cublasSsyrk_v2_64 S ssyrk_;
        cublasDsyrk_v2_64 D dsyrk_;
        cublasCsyrk_v2_64 C csyrk_;
        cublasZsyrk_v2_64 Z zsyrk_;
    }
    rank_k (true) (
        uplo: u32, trans: u32, n: i64, k: i64, alpha: *const c_void, a: u64, lda: i64,
        beta: *const c_void, c: u64, ldc: i64,
    ) {
        cublasCherk_v2_64 C cherk_;
        cublasZherk_v2_64 Z zherk_;
    }
    rank_2k (false) (
        uplo: u32, trans: u32, n: i64, k: i64, alpha: *const c_void, a: u64, lda: i64,
        b: u64, ldb: i64, beta: *const c_void, c: u64, ldc: i64,
    ) {
        cublasSsyr2k_v2_64 S ssyr2k_;
        cublasDsyr2k_v2_64 D dsyr2k_;
        cublasCsyr2k_v2_64 C csyr2k_;
        cublasZsyr2k_v2_64 Z zsyr2k_;
    }
    rank_2k (true) (
        uplo: u32, trans: u32, n: i64, k: i64, alpha: *const c_void, a: u64, lda: i64,
        b: u64, ldb: i64, beta: *const c_void, c: u64, ldc: i64,
    ) {
        cublasCher2k_v2_64 C cher2k_;
        cublasZher2k_v2_64 Z zher2k_;
    }
    trmm () (
        side: u32, uplo: u32, trans: u32, diag: u32, m: i64, n: i64, alpha: *const c_void,
        a: u64, lda: i64, b: u64, ldb: i64, c: u64, ldc: i64,
    ) {
        cublasStrmm_v2_64 S strmm_;
        cublasDtrmm_v2_64 D dtrmm_;
        cublasCtrmm_v2_64 C ctrmm_;
        cublasZtrmm_v2_64 Z ztrmm_;
    }
    trsm () (
        side: u32, uplo: u32, trans: u32, diag: u32, m: i64, n: i64, alpha: *const c_void,
        a: u64, lda: i64, b: u64, ldb: i64,
    ) {
        cublasStrsm_v2_64 S strsm_;
        cublasDtrsm_v2_64 D dtrsm_;
        cublasCtrsm_v2_64 C ctrsm_;
        cublasZtrsm_v2_64 Z ztrsm_;
    }
}
