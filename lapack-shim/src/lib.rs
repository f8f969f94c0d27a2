//! `liblapack.so.3`: reference LAPACK, which reaches OpenBLAS's own kernels in `libblas.so.3`.
//!
//! The routines are the archive's own symbols. This crate holds only the forwarders to the kernels and the
//! two functions of the Fortran runtime that LAPACK uses; it does nothing when it is loaded but fill a
//! table of addresses that the loader has already found.

mod fortran;
mod forward;
