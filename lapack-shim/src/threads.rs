//! What the process's libblas.so.3 says of itself, if it is an OpenBLAS.
//!
//! Unsafe lives here because the functions are found by the loader, or not.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

// Weak: a libblas.so.3 of another make has none of them.
core::arch::global_asm!(
    ".weak openblas_get_num_threads",
    ".weak openblas_get_config",
    ".weak gpu_offload_v1_rest",
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
    ".globl gpu_offload_private_rest",
    ".hidden gpu_offload_private_rest",
    "gpu_offload_private_rest:",
    ".quad gpu_offload_v1_rest",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "gpu_offload_private_get_num_threads"]
    safe static GET_NUM_THREADS: AtomicPtr<c_void>;
    #[link_name = "gpu_offload_private_get_config"]
    safe static GET_CONFIG: AtomicPtr<c_void>;
    #[link_name = "gpu_offload_private_rest"]
    safe static REST: AtomicPtr<c_void>;
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

/// Passed on to our libblas.so.3; another BLAS's threads do what they do.
pub(crate) extern "C" fn rest(begins: i32) {
    let address = REST.load(Ordering::Relaxed);
    if !address.is_null() {
        // SAFETY: our libblas.so.3's function of this name, whose version is in the name.
        unsafe { core::mem::transmute::<*mut c_void, extern "C" fn(i32)>(address)(begins) }
    }
}
