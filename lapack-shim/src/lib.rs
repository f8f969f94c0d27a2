//! `liblapack.so.3`: reference LAPACK, which reaches OpenBLAS's own kernels in `libblas.so.3`.
//!
//! The routines are the archive's own symbols. This crate holds only the forwarders to the kernels, the
//! two functions of the Fortran runtime that LAPACK uses, and eight routines that the archive lacks; it does nothing when it is loaded but fill a
//! table of addresses that the loader has already found.

mod fortran;
mod forward;
mod lamc;
