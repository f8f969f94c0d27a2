//! A simulated `libcuda.so.1`, `libcublas.so.13`, `libcublasLt.so.13` and `libcusolver.so.12`: the
//! functions that gpu-backend's list of foreign functions names, with CUDA's semantics, on the CPU.
//!
//! It must be stricter than CUDA, never kinder: device memory is an arena of its own that is poisoned on
//! allocation, device addresses cannot be followed by the host, streams are threads with random delays,
//! a transfer from pinned memory really happens later, and memory freed too early is an error. It must
//! not answer anything that was not computed. One file under four names (links), so that the simulated
//! cuBLAS sees the simulated driver's state. README.md says how it is laid out and steered.
#![allow(non_snake_case)] // the functions carry CUDA's names

mod arena;
mod blas;
mod copy;
mod delay;
mod driver;
mod fault;
mod registry;
mod report;
mod shared;
mod solver;
mod state;
mod stream;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod watch;

// Linked for its symbols only; they stay hidden in this library.
use cpu_backend as _;

/// What glibc before 2.38 does not have under this name and the archive of a newer system asks for.
///
/// # Safety
/// As strtol.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __isoc23_strtol(
    text: *const libc::c_char,
    end: *mut *mut libc::c_char,
    base: libc::c_int,
) -> libc::c_long {
    // SAFETY: the caller's promise is strtol's.
    unsafe { libc::strtol(text, end, base) }
}
