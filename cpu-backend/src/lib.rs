//! The prepared static OpenBLAS behind safe calls: what tests compare with and calibration measures.
//!
//! It is the same archive that libblas.so.3 holds, under its own names, in the binary that uses this crate;
//! so it must never be linked into libblas.so.3 itself, which would then hold it twice.
//!
//! Unsafe lives here because OpenBLAS is foreign code.

// The archive comes from this crate's build script; nothing of it is named in Rust.
use openblas_src as _;

mod fortran;
mod lapack;
mod level3;

pub use lapack::lapack;
pub use level3::{Misfit, level3};

use core::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    safe fn openblas_get_num_threads() -> c_int;
    safe fn openblas_set_num_threads(threads: c_int);
    safe fn openblas_get_config() -> *const c_char;
    safe fn openblas_get_corename() -> *const c_char;
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openblas_says_what_it_is() {
        assert!(config().contains("OpenBLAS"), "{}", config());
        assert!(!core_name().is_empty());
        set_threads(1);
        assert_eq!(threads(), 1);
    }
}
