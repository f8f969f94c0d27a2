//! Stands in for the archive's own symbols in this crate's unit tests, which do not link the archive: it
//! remembers what the real gemm routines were called with. The generated stubs are the real ones.

use core::ffi::{c_char, c_int};
use core::sync::atomic::AtomicU32;
use std::cell::RefCell;

/// What one call of a real gemm got, in the order of its spelling, pointers as addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub name: &'static str,
    pub k: i32,
    pub alpha: f64,
    /// lda, ldb, ldc.
    pub ld: [i32; 3],
    /// a, b, c.
    pub operands: [usize; 3],
}

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

/// The calls of this thread since the last question.
pub(crate) fn seen() -> Vec<Seen> {
    SEEN.take()
}

#[unsafe(no_mangle)]
extern "C" fn openblas_get_num_threads() -> c_int {
    1
}

/// OpenBLAS's default.
#[unsafe(export_name = "gpu_offload_private_thread_timeout")]
static THREAD_TIMEOUT: AtomicU32 = AtomicU32::new(1 << 26);

#[unsafe(no_mangle)]
extern "C" fn openblas_get_config() -> *const c_char {
    c"mock".as_ptr()
}

macro_rules! mock {
    ($real:ty, $fortran:ident, $cblas:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $fortran(
            _transa: *const u8,
            _transb: *const u8,
            _m: *const i32,
            _n: *const i32,
            k: *const i32,
            alpha: *const $real,
            a: usize,
            lda: *const i32,
            b: usize,
            ldb: *const i32,
            _beta: *const $real,
            c: usize,
            ldc: *const i32,
        ) {
            // SAFETY: the tests pass valid pointers.
            let (k, alpha, ld) = unsafe { (*k, f64::from(*alpha), [*lda, *ldb, *ldc]) };
            let (name, operands) = (stringify!($fortran), [a, b, c]);
            SEEN.with_borrow_mut(|s| {
                s.push(Seen {
                    name,
                    k,
                    alpha,
                    ld,
                    operands,
                })
            });
        }

        #[unsafe(no_mangle)]
        extern "C" fn $cblas(
            _order: c_int,
            _transa: c_int,
            _transb: c_int,
            _m: c_int,
            _n: c_int,
            k: c_int,
            alpha: $real,
            a: usize,
            lda: c_int,
            b: usize,
            ldb: c_int,
            _beta: $real,
            c: usize,
            ldc: c_int,
        ) {
            let (name, operands, ld) = (stringify!($cblas), [a, b, c], [lda, ldb, ldc]);
            let alpha = f64::from(alpha);
            SEEN.with_borrow_mut(|s| {
                s.push(Seen {
                    name,
                    k,
                    alpha,
                    ld,
                    operands,
                })
            });
        }
    };
}

mock!(f32, gpu_offload_cpu_sgemm_, gpu_offload_cpu_cblas_sgemm);
mock!(f64, gpu_offload_cpu_dgemm_, gpu_offload_cpu_cblas_dgemm);
