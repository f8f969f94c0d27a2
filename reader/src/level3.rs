//! From the saved arguments of a routed call to the engine's form of it, by the routine table.
//!
//! One reader serves every level-3 routine: the table says which argument stands where. `None` always
//! means that OpenBLAS gets the call as it came: an illegal argument, which it reports through the
//! program's own xerbla_, a quick return, or an option that only OpenBLAS knows.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.

use crate::Width;
use door::{Frame, Threshold};
use engine_abi::RoutedCall;
use routines::{Arg, Dim, Dims, Extent, Family, Gate, Op, Precision, family};

/// A call with every field at zero.
const EMPTY: RoutedCall = RoutedCall {
    struct_bytes: size_of::<RoutedCall>() as u32,
    op: 0,
    precision: 0,
    side: 0,
    uplo: 0,
    transa: 0,
    transb: 0,
    diag: 0,
    reserved: [0; 2],
    m: 0,
    n: 0,
    k: 0,
    alpha: [0.0; 2],
    beta: [0.0; 2],
    a: core::ptr::null(),
    lda: 0,
    b: core::ptr::null(),
    ldb: 0,
    c: core::ptr::null_mut(),
    ldc: 0,
    host: core::ptr::null(),
    cpu: no_cpu,
    frame: core::ptr::null(),
};

/// Stands in a call until the door puts the real one there.
unsafe extern "C" fn no_cpu(_: *const core::ffi::c_void) {}

/// Reads a call of a level-3 routine's Fortran name; the second value is its work.
///
/// # Safety
/// The frame holds the arguments of such a call of the threshold's routine.
pub unsafe fn fortran(f: &Frame, t: &Threshold) -> Option<(RoutedCall, u64)> {
    // SAFETY: forwarded.
    unsafe { read_fortran(Width::Four, f, t) }
}

/// [`fortran`] of a library whose INTEGER has 8 bytes.
///
/// # Safety
/// As for [`fortran`].
pub unsafe fn fortran_ilp64(f: &Frame, t: &Threshold) -> Option<(RoutedCall, u64)> {
    // SAFETY: forwarded.
    unsafe { read_fortran(Width::Eight, f, t) }
}

/// # Safety
/// As for [`fortran`], with integers of this width.
unsafe fn read_fortran(width: Width, f: &Frame, t: &Threshold) -> Option<(RoutedCall, u64)> {
    let (family, precision) = (family(Op::from_code(t.op)?), routine_precision(t)?);
    let mut call = EMPTY;
    for (i, arg) in family.args_of(precision).iter().enumerate() {
        // SAFETY: every argument is a valid pointer to what the table says, as in every Fortran call;
        // the frame's contract is our caller's.
        unsafe {
            match *arg {
                Arg::Letter { name, accepted } => {
                    put_letter(&mut call, name, accepted, f.letter(i).to_ascii_uppercase())?;
                }
                Arg::Size { name } => put_size(&mut call, name, width.at(f, i))?,
                Arg::Ld { name } => put_ld(&mut call, name, width.at(f, i))?,
                Arg::Scalar { name, real } => {
                    let of = if real { precision.real() } else { precision };
                    put_scalar(&mut call, name, f.scalar(i, of as u8))?;
                }
                Arg::Matrix { name, .. } => put_matrix(&mut call, name, f.pointer(i))?,
                _ => return None,
            }
        }
    }
    complete(family, precision, call, false)
}

/// Reads a call of a level-3 routine's CBLAS name; the second value is its work.
///
/// # Safety
/// The frame holds the arguments of such a call of the threshold's routine.
pub unsafe fn cblas(f: &Frame, t: &Threshold) -> Option<(RoutedCall, u64)> {
    // SAFETY: forwarded.
    unsafe { read_cblas(Width::Four, f, t) }
}

/// [`cblas`] of a library whose integers have 8 bytes. Its enumerations have 4 all the same.
///
/// # Safety
/// As for [`cblas`].
pub unsafe fn cblas_ilp64(f: &Frame, t: &Threshold) -> Option<(RoutedCall, u64)> {
    // SAFETY: forwarded.
    unsafe { read_cblas(Width::Eight, f, t) }
}

/// # Safety
/// As for [`cblas`], with integers of this width.
unsafe fn read_cblas(width: Width, f: &Frame, t: &Threshold) -> Option<(RoutedCall, u64)> {
    let (family, precision) = (family(Op::from_code(t.op)?), routine_precision(t)?);
    let mut call = EMPTY;
    // SAFETY: the layout is the first argument of every routine here, an enumeration.
    let row_major = row_major(unsafe { f.int32(0) })?;
    let (mut int, mut float) = (1, 0);
    for arg in family.args_of(precision) {
        if let Arg::Scalar { name, real } = *arg
            && (real || !precision.is_complex())
        {
            let value = match precision.real() {
                Precision::S => f64::from(f.f32(float)),
                _ => f.f64(float),
            };
            put_scalar(&mut call, name, [value, 0.0])?;
            float += 1;
            continue;
        }
        // SAFETY: the other arguments are of the integer class, in the table's order; scalars and
        // matrices are valid pointers, as in every call of CBLAS.
        unsafe {
            match *arg {
                Arg::Letter { name, accepted } => {
                    put_letter(&mut call, name, accepted, cblas_letter(name, f.int32(int))?)?;
                }
                Arg::Size { name } => put_size(&mut call, name, width.value(f, int))?,
                Arg::Ld { name } => put_ld(&mut call, name, width.value(f, int))?,
                Arg::Scalar { name, .. } => {
                    put_scalar(&mut call, name, f.scalar(int, precision as u8))?;
                }
                Arg::Matrix { name, .. } => put_matrix(&mut call, name, f.pointer(int))?,
                _ => return None,
            }
        }
        int += 1;
    }
    complete(family, precision, call, row_major)
}

fn routine_precision(t: &Threshold) -> Option<Precision> {
    Precision::from_code(t.precision)
}

fn put_letter(call: &mut RoutedCall, name: &str, accepted: &str, letter: u8) -> Option<()> {
    if !accepted.as_bytes().contains(&letter) {
        return None;
    }
    let field = match name {
        "side" => &mut call.side,
        "uplo" => &mut call.uplo,
        "transa" | "trans" => &mut call.transa,
        "transb" => &mut call.transb,
        "diag" => &mut call.diag,
        _ => return None,
    };
    *field = letter;
    Some(())
}

/// A size of 0 is a quick return, or scales the result: OpenBLAS's work either way.
fn put_size(call: &mut RoutedCall, name: &str, value: i64) -> Option<()> {
    let field = match name {
        "m" => &mut call.m,
        "n" => &mut call.n,
        "k" => &mut call.k,
        _ => return None,
    };
    *field = value;
    (value > 0).then_some(())
}

fn put_ld(call: &mut RoutedCall, name: &str, value: i64) -> Option<()> {
    let field = match name {
        "lda" => &mut call.lda,
        "ldb" => &mut call.ldb,
        "ldc" => &mut call.ldc,
        _ => return None,
    };
    *field = value;
    Some(())
}

fn put_scalar(call: &mut RoutedCall, name: &str, value: [f64; 2]) -> Option<()> {
    let field = match name {
        "alpha" => &mut call.alpha,
        "beta" => &mut call.beta,
        _ => return None,
    };
    *field = value;
    Some(())
}

fn put_matrix(call: &mut RoutedCall, name: &str, pointer: *mut core::ffi::c_void) -> Option<()> {
    match name {
        "a" => call.a = pointer,
        "b" => call.b = pointer,
        "c" => call.c = pointer,
        _ => return None,
    }
    Some(())
}

/// True for CblasRowMajor, false for CblasColMajor.
///
/// # Source
/// This and [`cblas_letter`]: cblas.h of Reference BLAS 3.12.
fn row_major(value: i32) -> Option<bool> {
    match value {
        101 => Some(true),
        102 => Some(false),
        _ => None,
    }
}

/// The letter of a CBLAS option. OpenBLAS's CblasConjNoTrans (114) is left to OpenBLAS.
fn cblas_letter(name: &str, value: i32) -> Option<u8> {
    let (first, letters) = match name {
        "transa" | "transb" | "trans" => (111, "NTC"),
        "uplo" => (121, "UL"),
        "diag" => (131, "NU"),
        "side" => (141, "LR"),
        _ => return None,
    };
    let index = usize::try_from(value.checked_sub(first)?).ok()?;
    letters.as_bytes().get(index).copied()
}

/// The column-major call on the same memory that means what a row-major one means. A row-major matrix is
/// its transpose in column-major order: the result's transpose is computed, by the transposed formula.
fn transpose(op: Op, call: &mut RoutedCall) {
    let other = |letter: &mut u8, one: u8, two: u8| {
        *letter = match *letter {
            0 => 0,
            l if l == one => two,
            _ => one,
        };
    };
    core::mem::swap(&mut call.m, &mut call.n);
    other(&mut call.side, b'L', b'R');
    other(&mut call.uplo, b'U', b'L');
    match op {
        // C^T = op(B)^T op(A)^T.
        Op::Gemm | Op::Gemm3m | Op::Gemmtr | Op::Gemmt => {
            core::mem::swap(&mut call.transa, &mut call.transb);
            core::mem::swap(&mut call.a, &mut call.b);
            core::mem::swap(&mut call.lda, &mut call.ldb);
        }
        // A A^T of a matrix that is stored transposed.
        Op::Syrk | Op::Syr2k => other(&mut call.transa, b'N', b'T'),
        Op::Herk => other(&mut call.transa, b'N', b'C'),
        // (alpha A B^H + conj(alpha) B A^H)^T = conj(alpha) conj(A) B^T + alpha conj(B) A^T.
        Op::Her2k => {
            other(&mut call.transa, b'N', b'C');
            call.alpha[1] = -call.alpha[1];
        }
        // (A B)^T = B^T A^T: side, triangle and sizes are all that changes.
        _ => {}
    }
}

/// The call if it is legal and has anything to compute, in the form that [`RoutedCall`] documents.
fn complete(
    family: &Family,
    precision: Precision,
    mut call: RoutedCall,
    row_major: bool,
) -> Option<(RoutedCall, u64)> {
    call.op = family.op as u32;
    call.precision = precision as u8;
    if call.m == 0 {
        call.m = call.n;
    }
    if row_major {
        transpose(family.op, &mut call);
    }
    let right = call.side == b'R';
    if family.gate == Some(Gate::Sided) {
        call.k = if right { call.n } else { call.m };
    }
    if !leading_dimensions_fit(family, precision, &call, right) || call.alpha == [0.0; 2] {
        return None;
    }
    if matches!(family.op, Op::Trmm | Op::Trsm) {
        (call.c, call.ldc) = (call.b.cast_mut(), call.ldb);
        (call.b, call.ldb) = (core::ptr::null(), 0);
        call.beta = [1.0, 0.0];
    }
    let work = work(call.m, call.n, call.k);
    Some((call, work))
}

fn leading_dimensions_fit(
    family: &Family,
    precision: Precision,
    call: &RoutedCall,
    right: bool,
) -> bool {
    // Sizes are positive here.
    let size = |v: i64| u64::try_from(v).unwrap_or(0);
    let dims = Dims {
        m: size(call.m),
        n: size(call.n),
        k: size(call.k),
        right,
    };
    let is_plain = |trans: &str| match trans {
        "transb" => call.transb == b'N',
        _ => call.transa == b'N',
    };
    family.args_of(precision).iter().all(|arg| {
        let Arg::Matrix { name, rows, .. } = *arg else {
            return true;
        };
        let rows: Dim = match rows {
            Extent::ByTrans(trans, _, transposed) if !is_plain(trans) => transposed,
            other => other.plain(),
        };
        let ld = match name {
            "a" => call.lda,
            "b" => call.ldb,
            _ => call.ldc,
        };
        u64::try_from(ld).is_ok_and(|ld| ld >= dims.get(rows))
    })
}

/// m n k, or `u64::MAX` beyond 64 bits.
fn work(m: i64, n: i64, k: i64) -> u64 {
    let product = i128::from(m)
        .checked_mul(i128::from(n))
        .and_then(|p| p.checked_mul(i128::from(k)));
    product
        .and_then(|p| u64::try_from(p).ok())
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_saturates() {
        assert_eq!(work(3, 5, 7), 105);
        let most = i64::from(i32::MAX);
        assert_eq!(work(most, most, most), u64::MAX);
    }

    #[test]
    fn options_that_only_openblas_knows_are_left_to_it() {
        assert_eq!(cblas_letter("trans", 113), Some(b'C'));
        assert_eq!(cblas_letter("trans", 114), None);
        assert_eq!(cblas_letter("uplo", 111), None);
        assert_eq!(cblas_letter("side", i32::MIN), None);
        assert_eq!(row_major(0), None);
        let mut call = EMPTY;
        assert_eq!(put_letter(&mut call, "trans", "NTC", b'R'), None);
        assert_eq!(put_size(&mut call, "n", -1), None);
        assert_eq!(put_size(&mut call, "n", 0), None);
    }

    /// Every argument of every routed routine has a place in the call, in both spellings.
    #[test]
    fn every_routed_argument_is_known() {
        for (family, precision, name) in routines::routed_in(routines::Library::Blas) {
            for arg in family.args_of(precision) {
                let mut call = EMPTY;
                let known = match *arg {
                    Arg::Letter { name, accepted } => accepted.bytes().try_for_each(|letter| {
                        let value = (100..200).find(|v| cblas_letter(name, *v) == Some(letter))?;
                        put_letter(&mut call, name, accepted, cblas_letter(name, value)?)
                    }),
                    Arg::Size { name } => put_size(&mut call, name, 1),
                    Arg::Ld { name } => put_ld(&mut call, name, 1),
                    Arg::Scalar { name, .. } => put_scalar(&mut call, name, [1.0, 0.0]),
                    Arg::Matrix { name, .. } => {
                        put_matrix(&mut call, name, core::ptr::dangling_mut())
                    }
                    _ => None,
                };
                assert!(known.is_some(), "{name}: {arg:?}");
            }
        }
    }

    /// hemm from the right with a lower triangle: 3 x 5 row-major is 5 x 3 from the left, upper.
    #[test]
    fn a_row_major_call_is_the_transposed_one() {
        let call = RoutedCall {
            side: b'R',
            uplo: b'L',
            m: 3,
            n: 5,
            alpha: [1.0, 2.0],
            lda: 5,
            ldb: 5,
            ldc: 5,
            ..EMPTY
        };
        let (got, of) = complete(family(Op::Hemm), Precision::Z, call, true).expect("legal");
        assert_eq!(
            (got.side, got.uplo, got.m, got.n, got.k),
            (b'L', b'U', 5, 3, 5)
        );
        assert_eq!((of, got.alpha), (75, [1.0, 2.0]));
        let short = RoutedCall { ldb: 4, ..call };
        assert!(complete(family(Op::Hemm), Precision::Z, short, true).is_none());
        let update = RoutedCall {
            uplo: b'U',
            transa: b'N',
            side: 0,
            m: 0,
            k: 7,
            lda: 7,
            ldb: 7,
            ..call
        };
        let (got, of) = complete(family(Op::Her2k), Precision::C, update, true).expect("legal");
        assert_eq!(
            (got.uplo, got.transa, got.m, got.n, got.k),
            (b'L', b'C', 5, 5, 7)
        );
        assert_eq!((of, got.alpha), (175, [1.0, -2.0]));
    }
}
