//! `liblapack.so.3`: reference LAPACK, which reaches OpenBLAS's own kernels in `libblas.so.3`.
//!
//! Symbols without a GPU path are the archive's own; the routed ones are the generated stubs. Besides them this
//! crate holds the forwarders to the kernels, the two functions of the Fortran runtime that LAPACK uses, and
//! eight routines that the archive lacks; it does nothing when it is loaded but fill a table of addresses that
//! the loader has already found. It knows nothing of CUDA or policy.

mod fortran;
mod forward;
mod generated;
mod lamc;
mod query_of_one;
mod threads;

use door::Shim;

/// This library, as the door and the engine know it.
static SHIM: Shim = Shim::new(
    &generated::THRESHOLDS,
    set_threshold,
    threads::in_force,
    threads::config,
    threads::rest,
    first_call,
);

extern "C" fn set_threshold(op: u32, precision: u32, work: u64) {
    SHIM.set_threshold(op, precision, work);
}

/// OpenBLAS is libblas.so.3's, and so is what is to be done when it is first used: LAPACK may call what is not routed
/// for long before it multiplies. An empty call on the GPU tells it, as libraries of any version of `v1` understand.
fn first_call() {
    threads::rest(1);
    threads::rest(0);
}
