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
use openblas_src as _;

// The one function of the Fortran runtime that LAPACK needs here, hidden in this library.
core::arch::global_asm!(
    ".globl _gfortran_concat_string",
    ".hidden _gfortran_concat_string",
    ".type _gfortran_concat_string, @function",
    "_gfortran_concat_string:",
    "jmp {concat}",
    concat = sym concat_string,
);

/// `to = a // b`, cut or filled with blanks to the length of `to`.
///
/// # Safety
/// The three strings are valid for their lengths, and `to` overlaps neither other.
unsafe extern "C" fn concat_string(
    to_len: usize,
    to: *mut u8,
    a_len: usize,
    a: *const u8,
    b_len: usize,
    b: *const u8,
) {
    let from_a = a_len.min(to_len);
    let from_b = b_len.min(to_len - from_a);
    let rest = to_len - from_a - from_b;
    // SAFETY: the three parts lie one behind the other inside of `to_len`; the caller vouches for the
    // strings.
    unsafe {
        core::ptr::copy_nonoverlapping(a, to, from_a);
        core::ptr::copy_nonoverlapping(b, to.add(from_a), from_b);
        core::ptr::write_bytes(to.add(from_a + from_b), b' ', rest);
    }
}

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
