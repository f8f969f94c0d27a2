//! Routines of the archive's LAPACK, by name, for whoever passes their arguments himself.
//!
//! Unsafe lives here because the routines are declared without their arguments; nothing is called.

use core::ffi::c_void;

macro_rules! routines {
    ($($name:ident)*) => {
        mod declared {
            unsafe extern "C" {
                $(
                    #[link_name = concat!(stringify!($name), "_")]
                    pub fn $name();
                )*
            }
        }

        /// The routine of this name ("dgetrf"), to be called by Fortran's conventions; `None` for one that has no
        /// GPU path.
        pub fn lapack(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($name) => Some(declared::$name as *const c_void),)*
                _ => None,
            }
        }
    };
}

routines! {
    sgetrf dgetrf cgetrf zgetrf
    sgetrs dgetrs cgetrs zgetrs
    sgetri dgetri cgetri zgetri
    sgesv dgesv cgesv zgesv
    spotrf dpotrf cpotrf zpotrf
    spotrs dpotrs cpotrs zpotrs
    spotri dpotri cpotri zpotri
    sposv dposv cposv zposv
    strtri dtrtri ctrtri ztrtri
    strtrs dtrtrs ctrtrs ztrtrs
    slauum dlauum clauum zlauum
    sgeqrf dgeqrf cgeqrf zgeqrf
    sgelqf dgelqf cgelqf zgelqf
    sorgqr dorgqr cungqr zungqr
    sormqr dormqr cunmqr zunmqr
    sgels dgels cgels zgels
    sgelsd dgelsd cgelsd zgelsd
    sgelss dgelss cgelss zgelss
    ssyev dsyev cheev zheev
    ssyevd dsyevd cheevd zheevd
    ssyevr dsyevr cheevr zheevr
    ssyevx dsyevx cheevx zheevx
    ssygv dsygv chegv zhegv
    ssygvd dsygvd chegvd zhegvd
    ssygvx dsygvx chegvx zhegvx
    sgesdd dgesdd cgesdd zgesdd
    sgesvd dgesvd cgesvd zgesvd
    sgeev dgeev cgeev zgeev
}
