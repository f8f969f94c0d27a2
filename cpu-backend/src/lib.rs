//! The prepared static OpenBLAS behind safe calls: what tests compare with and calibration measures.
//!
//! It is the same archive that libblas.so.3 holds, under its own names, in the binary that uses this crate;
//! so it must never be linked into libblas.so.3 itself, which would then hold it twice.
//!
//! Unsafe lives here because OpenBLAS takes raw pointers; every call is checked against its views first.

// The archive comes from this crate's build script; nothing of it is named in Rust.
use openblas_src as _;

use call::{Level3Call, Precision, Trans};
use core::ffi::{CStr, c_char, c_int, c_void};

/// cblas.h's `CblasColMajor`.
const COL_MAJOR: c_int = 102;

unsafe extern "C" {
    safe fn openblas_get_num_threads() -> c_int;
    safe fn openblas_set_num_threads(threads: c_int);
    safe fn openblas_get_config() -> *const c_char;
    safe fn openblas_get_corename() -> *const c_char;
}

/// Declares one `cblas_?gemm`; `$scalar` is how alpha and beta are passed.
macro_rules! declare_gemm {
    ($name:ident, $scalar:ty) => {
        unsafe extern "C" {
            fn $name(
                order: c_int,
                transa: c_int,
                transb: c_int,
                m: c_int,
                n: c_int,
                k: c_int,
                alpha: $scalar,
                a: *const c_void,
                lda: c_int,
                b: *const c_void,
                ldb: c_int,
                beta: $scalar,
                c: *mut c_void,
                ldc: c_int,
            );
        }
    };
}
declare_gemm!(cblas_sgemm, f32);
declare_gemm!(cblas_dgemm, f64);
declare_gemm!(cblas_cgemm, *const f32);
declare_gemm!(cblas_zgemm, *const f64);

/// The call's sizes do not fit its views or OpenBLAS's 32-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

impl core::fmt::Display for Misfit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("m, n, k do not fit the operands or OpenBLAS's 32-bit integers")
    }
}

impl core::error::Error for Misfit {}

/// Threads that OpenBLAS would use now.
pub fn threads() -> usize {
    usize::try_from(openblas_get_num_threads()).unwrap_or(1)
}

/// Sets the number of threads of this process's OpenBLAS.
pub fn set_threads(threads: usize) {
    openblas_set_num_threads(c_int::try_from(threads).unwrap_or(c_int::MAX));
}

/// OpenBLAS's own description of its version and build.
pub fn config() -> &'static str {
    text(openblas_get_config())
}

/// The processor whose kernels are in use.
pub fn core_name() -> &'static str {
    text(openblas_get_corename())
}

fn text(pointer: *const c_char) -> &'static str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: OpenBLAS returns static NUL-terminated text.
    unsafe { CStr::from_ptr(pointer) }
        .to_str()
        .unwrap_or_default()
}

/// C := alpha * op(A) * op(B) + beta * C by OpenBLAS.
///
/// # Shapes
/// Those of [`Level3Call`].
///
/// # Errors
/// [`Misfit`]; nothing was written.
pub fn gemm(call: &mut Level3Call<'_>) -> Result<(), Misfit> {
    let Some(b_view) = call.b else {
        return Err(Misfit);
    };
    if call.op != call::Op::Gemm {
        return Err(Misfit);
    }
    let stored = |trans, rows, cols| {
        if trans == Trans::N {
            (rows, cols)
        } else {
            (cols, rows)
        }
    };
    let elem_bytes = call.precision.elem_bytes();
    let fits = (call.a.rows(), call.a.cols()) == stored(call.transa, call.m, call.k)
        && (b_view.rows(), b_view.cols()) == stored(call.transb, call.k, call.n)
        && (call.c.rows(), call.c.cols()) == (call.m, call.n)
        && call.a.elem_bytes() == elem_bytes
        && b_view.elem_bytes() == elem_bytes
        && call.c.elem_bytes() == elem_bytes;
    if !fits {
        return Err(Misfit);
    }
    let int = |size: usize| c_int::try_from(size).map_err(|_| Misfit);
    let (m, n, k) = (int(call.m)?, int(call.n)?, int(call.k)?);
    // BLAS wants leading dimensions of at least 1 even for empty matrices.
    let (lda, ldb, ldc) = (
        int(call.a.ld().max(1))?,
        int(b_view.ld().max(1))?,
        int(call.c.ld().max(1))?,
    );
    let (transa, transb) = (cblas_trans(call.transa), cblas_trans(call.transb));
    let a = core::ptr::with_exposed_provenance::<c_void>(call.a.address_range().start);
    let b = core::ptr::with_exposed_provenance::<c_void>(b_view.address_range().start);
    let c = core::ptr::with_exposed_provenance_mut::<c_void>(call.c.address_range().start);
    let (alpha, beta) = (call.alpha, call.beta);
    let narrow = |scalar: call::Scalar| [scalar.re as f32, scalar.im as f32];
    let wide = |scalar: call::Scalar| [scalar.re, scalar.im];
    // SAFETY (of each call): the views hold every element that m, n, k and the leading dimensions reach,
    // as checked above, and C is exclusively borrowed; the scalars live until the call returns.
    macro_rules! run {
        ($name:ident, $alpha:expr, $beta:expr) => {
            // SAFETY: as said above.
            unsafe {
                $name(
                    COL_MAJOR, transa, transb, m, n, k, $alpha, a, lda, b, ldb, $beta, c, ldc,
                )
            }
        };
    }
    match call.precision {
        Precision::S => run!(cblas_sgemm, alpha.re as f32, beta.re as f32),
        Precision::D => run!(cblas_dgemm, alpha.re, beta.re),
        Precision::C => run!(cblas_cgemm, narrow(alpha).as_ptr(), narrow(beta).as_ptr()),
        Precision::Z => run!(cblas_zgemm, wide(alpha).as_ptr(), wide(beta).as_ptr()),
    }
    Ok(())
}

/// cblas.h's `CBLAS_TRANSPOSE`.
fn cblas_trans(trans: Trans) -> c_int {
    match trans {
        Trans::N => 111,
        Trans::T => 112,
        Trans::C => 113,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use call::{MatMut, MatRef, Scalar};

    /// op(A) = [1 3; 2 4] stored transposed, B = [i; 1], C = 2 op(A) B + 1 C.
    #[test]
    fn complex_transposed_product_with_gap() {
        let a = [
            1.0_f64, 0.0, 3.0, 0.0, 9.0, 9.0, 2.0, 0.0, 4.0, 0.0, 9.0, 9.0,
        ];
        let b = [0.0_f64, 1.0, 1.0, 0.0];
        let mut c = [10.0_f64, 0.0, 20.0, 0.0];
        // SAFETY: a is 2 x 2 complex with ld 3, its last column's gap included; b and c are 2 x 1.
        let (a, b, c_view) = unsafe {
            (
                MatRef::new(a.as_ptr().cast(), 2, 2, 3, 16).unwrap(),
                MatRef::new(b.as_ptr().cast(), 2, 1, 2, 16).unwrap(),
                MatMut::new(c.as_mut_ptr().cast(), 2, 1, 2, 16).unwrap(),
            )
        };
        let mut call = Level3Call::gemm(
            Precision::Z,
            (Trans::T, a),
            (Trans::N, b),
            (Scalar { re: 2.0, im: 0.0 }, Scalar::ONE),
            c_view,
        );
        gemm(&mut call).unwrap();
        // Row 0: 2 (1 i + 3) + 10, row 1: 2 (2 i + 4) + 20.
        assert_eq!(c, [16.0, 2.0, 28.0, 4.0]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let a = [1.0_f32; 4];
        let mut c = [7.0_f32; 4];
        // SAFETY: 2 x 2 float32 each.
        let (a, c_view) = unsafe {
            (
                MatRef::new(a.as_ptr().cast(), 2, 2, 2, 4).unwrap(),
                MatMut::new(c.as_mut_ptr().cast(), 2, 2, 2, 4).unwrap(),
            )
        };
        let mut call = Level3Call {
            k: 3,
            ..Level3Call::gemm(
                Precision::S,
                (Trans::N, a),
                (Trans::N, a),
                (Scalar::ONE, Scalar::ZERO),
                c_view,
            )
        };
        assert_eq!(gemm(&mut call), Err(Misfit));
        assert_eq!(c, [7.0; 4]);
    }

    #[test]
    fn openblas_says_what_it_is() {
        assert!(config().contains("OpenBLAS"), "{}", config());
        assert!(!core_name().is_empty());
        set_threads(1);
        assert_eq!(threads(), 1);
    }
}
