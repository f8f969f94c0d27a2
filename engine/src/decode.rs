//! From the engine ABI's raw call to the safe one, with every check that the views need.
//!
//! Unsafe lives here because the operands are raw pointers; the shim's caller vouches for the memory,
//! as with every BLAS, and nothing is believed beyond that.

use call::{Call, Level3Call, MatMut, MatRef, Scalar};
use engine_abi::RoutedCall;
use routines::{Op, Precision, Trans};

/// The call in safe types; `None` for a family that the engine does not know, and for anything that is
/// illegal or a quick return (the shim should not have let it through; OpenBLAS then judges it).
///
/// # Safety
/// The operands of `raw` are those of a BLAS call in progress: readable (`a`, `b`) and writable (`c`)
/// for the dimensions given, and nobody else writes to them during `'a`.
pub unsafe fn decode<'a>(raw: &'a RoutedCall) -> Option<Call<'a>> {
    match Op::from_code(raw.op)? {
        Op::Gemm => {}
        _ => return None,
    }
    let precision = Precision::from_code(raw.precision)?;
    let (transa, transb) = (
        Trans::from_letter(raw.transa)?,
        Trans::from_letter(raw.transb)?,
    );
    let size = |v: i64| usize::try_from(v).ok().filter(|v| *v > 0);
    let (m, n, k) = (size(raw.m)?, size(raw.n)?, size(raw.k)?);
    let (lda, ldb, ldc) = (size(raw.lda)?, size(raw.ldb)?, size(raw.ldc)?);
    if raw.a.is_null() || raw.b.is_null() || raw.c.is_null() {
        return None;
    }
    let (rows_a, cols_a) = if transa == Trans::N { (m, k) } else { (k, m) };
    let (rows_b, cols_b) = if transb == Trans::N { (k, n) } else { (n, k) };
    let elem_bytes = precision.elem_bytes();
    let scalar = |[re, im]: [f64; 2]| Scalar { re, im };
    let (alpha, beta) = (scalar(raw.alpha), scalar(raw.beta));
    if alpha.is_zero() {
        return None;
    }
    // SAFETY: readable by this function's contract; `new` checks the leading dimension and the span.
    let a = unsafe { MatRef::new(raw.a.cast(), rows_a, cols_a, lda, elem_bytes) }?;
    // SAFETY: as for a.
    let b = unsafe { MatRef::new(raw.b.cast(), rows_b, cols_b, ldb, elem_bytes) }?;
    // SAFETY: writable by this function's contract. Where a caller passes overlapping operands, the
    // backend compares the address ranges before it reads or writes.
    let c = unsafe { MatMut::new(raw.c.cast(), m, n, ldc, elem_bytes) }?;
    Some(Call::Level3(Level3Call::gemm(
        precision,
        (transa, a),
        (transb, b),
        (alpha, beta),
        c,
    )))
}
