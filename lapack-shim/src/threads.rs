//! What the process's libblas.so.3 says of itself, if it is an OpenBLAS.
//!
//! Unsafe lives here because the functions are found by the loader, or not.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

// Weak: a libblas.so.3 of another make has neither.
core::arch::global_asm!(
    ".weak openblas_get_num_threads",
    ".weak openblas_get_config",
    ".pushsection .data.rel.ro.gpu_offload_threads, \"aw\", @progbits",
    ".p2align 3",
    ".globl gpu_offload_private_get_num_threads",
    ".hidden gpu_offload_private_get_num_threads",
    "gpu_offload_private_get_num_threads:",
    ".quad openblas_get_num_threads",
    ".globl gpu_offload_private_get_config",
    ".hidden gpu_offload_private_get_config",
    "gpu_offload_private_get_config:",
    ".quad openblas_get_config",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "gpu_offload_private_get_num_threads"]
    safe static GET_NUM_THREADS: AtomicPtr<c_void>;
    #[link_name = "gpu_offload_private_get_config"]
    safe static GET_CONFIG: AtomicPtr<c_void>;
}

/// Threads that the process's BLAS would use now; those of the machine where it does not say.
pub(crate) extern "C" fn in_force() -> i32 {
    let address = GET_NUM_THREADS.load(Ordering::Relaxed);
    if address.is_null() {
        return std::thread::available_parallelism()
            .map_or(1, |n| i32::try_from(n.get()).unwrap_or(i32::MAX));
    }
    // SAFETY: OpenBLAS's function of this name: `int openblas_get_num_threads(void)`.
    unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address)() }
}

/// The process's OpenBLAS's description of itself; empty where it is another BLAS.
pub(crate) extern "C" fn config() -> *const c_char {
    let address = GET_CONFIG.load(Ordering::Relaxed);
    if address.is_null() {
        return c"".as_ptr();
    }
    // SAFETY: OpenBLAS's function of this name: `char *openblas_get_config(void)`, static text.
    unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(address)() }
}
