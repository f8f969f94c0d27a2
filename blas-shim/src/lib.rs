//! `libblas.so.3`: BLAS, CBLAS and OpenBLAS's control functions with OpenBLAS inside.
//!
//! Symbols without a GPU path are the archive's own; the routed ones are the generated stubs. This
//! crate knows nothing of CUDA or policy.

mod alpha_zero;
mod batch;
mod conjugated;
mod exit;
mod extra;
mod generated;
#[cfg(test)]
mod mock_openblas;
mod rest;

use core::ffi::{c_char, c_int};
use door::Shim;

unsafe extern "C" {
    safe fn openblas_get_num_threads() -> c_int;
    safe fn openblas_get_config() -> *const c_char;
}

/// This library, as the door and the engine know it.
static SHIM: Shim = Shim::new(
    &generated::THRESHOLDS,
    set_threshold,
    cpu_threads,
    cpu_config,
    rest::gpu_offload_v1_rest,
    exit::notice,
);

extern "C" fn set_threshold(op: u32, precision: u32, work: u64) {
    SHIM.set_threshold(op, precision, work);
}

extern "C" fn cpu_threads() -> i32 {
    openblas_get_num_threads()
}

extern "C" fn cpu_config() -> *const c_char {
    openblas_get_config()
}
