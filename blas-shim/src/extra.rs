//! The names of the reference libblas.so.3 that OpenBLAS lacks.
//!
//! These are netlib CBLAS's Fortran helpers, which return a function's value through their last argument,
//! the absolute values of a complex number, and CBLAS's two flags. Nothing here computes: a helper calls
//! the BLAS function of its name.
//!
//! Unsafe lives here because the callers' pointers go on to BLAS as they came.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicI32;

/// Whether the call in progress is a row-major one; netlib's error handler and test programs read it.
/// OpenBLAS reports positions itself, so that it stays 0.
#[unsafe(no_mangle)]
pub static RowMajorStrg: AtomicI32 = AtomicI32::new(0);

/// Whether the call in progress came through CBLAS; see [`RowMajorStrg`].
#[unsafe(no_mangle)]
pub static CBLAS_CallFromC: AtomicI32 = AtomicI32::new(0);

/// |re z| + |im z|, in double precision.
///
/// # Safety
/// `z` points to two float64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cblas_dcabs1(z: *const f64) -> f64 {
    // SAFETY: the caller vouches for two elements.
    unsafe { (*z).abs() + (*z.add(1)).abs() }
}

/// |re z| + |im z|, in single precision.
///
/// # Safety
/// `z` points to two float32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cblas_scabs1(z: *const f32) -> f32 {
    // SAFETY: the caller vouches for two elements.
    unsafe { (*z).abs() + (*z.add(1)).abs() }
}

/// Defines helpers whose function takes the same arguments and returns a plain value.
macro_rules! helpers {
    ($($helper:ident => $function:ident($($argument:ident: $type:ty),*) -> $value:ty;)*) => {
        unsafe extern "C" {
            $(fn $function($($argument: $type),*) -> $value;)*
        }
        $(
            #[doc = concat!("Calls `", stringify!($function), "` and stores its value through `value`.")]
            ///
            /// # Safety
            /// The arguments are those of the BLAS function; `value` may be written.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $helper($($argument: $type,)* value: *mut $value) {
                // SAFETY: the caller's arguments, passed on as they came; the caller vouches for `value`.
                unsafe { *value = $function($($argument),*) };
            }
        )*
    };
}

helpers! {
    sasumsub_ => sasum_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f32;
    dasumsub_ => dasum_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f64;
    scasumsub_ => scasum_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f32;
    dzasumsub_ => dzasum_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f64;
    snrm2sub_ => snrm2_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f32;
    dnrm2sub_ => dnrm2_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f64;
    scnrm2sub_ => scnrm2_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f32;
    dznrm2sub_ => dznrm2_(n: *const c_int, x: *const c_void, incx: *const c_int) -> f64;
    isamaxsub_ => isamax_(n: *const c_int, x: *const c_void, incx: *const c_int) -> c_int;
    idamaxsub_ => idamax_(n: *const c_int, x: *const c_void, incx: *const c_int) -> c_int;
    icamaxsub_ => icamax_(n: *const c_int, x: *const c_void, incx: *const c_int) -> c_int;
    izamaxsub_ => izamax_(n: *const c_int, x: *const c_void, incx: *const c_int) -> c_int;
    scabs1sub_ => scabs1_(z: *const c_void) -> f32;
    dcabs1sub_ => dcabs1_(z: *const c_void) -> f64;
    sdotsub_ => sdot_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> f32;
    ddotsub_ => ddot_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> f64;
    dsdotsub_ => dsdot_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> f64;
    sdsdotsub_ => sdsdot_(
        n: *const c_int, sb: *const c_void, x: *const c_void, incx: *const c_int, y: *const c_void,
        incy: *const c_int
    ) -> f32;
    cdotusub_ => cdotu_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> Complex32;
    cdotcsub_ => cdotc_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> Complex32;
    zdotusub_ => zdotu_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> Complex64;
    zdotcsub_ => zdotc_(
        n: *const c_int, x: *const c_void, incx: *const c_int, y: *const c_void, incy: *const c_int
    ) -> Complex64;
}

/// A complex number of two float32, returned in registers as C and gfortran return it.
#[repr(C)]
pub struct Complex32 {
    re: f32,
    im: f32,
}

/// A complex number of two float64, returned in registers as C and gfortran return it.
#[repr(C)]
pub struct Complex64 {
    re: f64,
    im: f64,
}
