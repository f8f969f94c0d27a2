//! The LAPACK of the OpenBLAS that is linked into this library: the mathematics of the simulated cuSOLVER.
//! Declarations only; arrays of functions are in the order S, D, C, Z.

use core::ffi::{c_char, c_void};

/// A character argument.
type Flag = *const c_char;
/// An integer argument.
type Int = *const i32;
/// What is read.
type In = *const c_void;
/// What is written.
type Out = *mut c_void;
/// Pivots and the result's code.
type Ints = *mut i32;
/// The hidden length of a character argument.
type Len = usize;

macro_rules! declare {
    ($($(#[$doc:meta])* $table:ident $args:tt = $($name:ident)*;)*) => {
        $(declare!(@family $(#[$doc])* $table $args $($name)*);)*
    };
    (@family $(#[$doc:meta])* $table:ident $args:tt $($name:ident)*) => {
        declare!(@all $args $($name)*);
        declare!(@table $(#[$doc])* $table $args [$($name),*]);
    };
    (@all $args:tt $($name:ident)*) => {
        $(declare!(@one $name $args);)*
    };
    (@table $(#[$doc:meta])* $table:ident ($($arg:ident: $ty:ty),*) $names:expr) => {
        $(#[$doc])*
        pub const $table: &[unsafe extern "C" fn($($arg: $ty),*)] = &$names;
    };
    (@one $name:ident ($($arg:ident: $ty:ty),*)) => {
        unsafe extern "C" {
            fn $name($($arg: $ty),*);
        }
    };
}

declare! {
    POTRF (uplo: Flag, n: Int, a: Out, lda: Int, info: Ints, len1: Len)
        = spotrf_ dpotrf_ cpotrf_ zpotrf_;
    POTRS (uplo: Flag, n: Int, nrhs: Int, a: In, lda: Int, b: Out, ldb: Int, info: Ints, len1: Len)
        = spotrs_ dpotrs_ cpotrs_ zpotrs_;
    POTRI (uplo: Flag, n: Int, a: Out, lda: Int, info: Ints, len1: Len)
        = spotri_ dpotri_ cpotri_ zpotri_;
    TRTRI (uplo: Flag, diag: Flag, n: Int, a: Out, lda: Int, info: Ints, len1: Len, len2: Len)
        = strtri_ dtrtri_ ctrtri_ ztrtri_;
    GETRF (m: Int, n: Int, a: Out, lda: Int, ipiv: Ints, info: Ints)
        = sgetrf_ dgetrf_ cgetrf_ zgetrf_;
    GETRS (trans: Flag, n: Int, nrhs: Int, a: In, lda: Int, ipiv: Int, b: Out, ldb: Int, info: Ints,
        len1: Len)
        = sgetrs_ dgetrs_ cgetrs_ zgetrs_;
    GEQRF (m: Int, n: Int, a: Out, lda: Int, tau: Out, work: Out, lwork: Int, info: Ints)
        = sgeqrf_ dgeqrf_ cgeqrf_ zgeqrf_;
    ORGQR (m: Int, n: Int, k: Int, a: Out, lda: Int, tau: In, work: Out, lwork: Int, info: Ints)
        = sorgqr_ dorgqr_ cungqr_ zungqr_;
    ORMQR (side: Flag, trans: Flag, m: Int, n: Int, k: Int, a: In, lda: Int, tau: In, c: Out, ldc:
        Int, work: Out, lwork: Int, info: Ints, len1: Len, len2: Len)
        = sormqr_ dormqr_ cunmqr_ zunmqr_;
    GEBRD (m: Int, n: Int, a: Out, lda: Int, d: Out, e: Out, tauq: Out, taup: Out, work: Out, lwork:
        Int, info: Ints)
        = sgebrd_ dgebrd_ cgebrd_ zgebrd_;
    SYEVD (jobz: Flag, uplo: Flag, n: Int, a: Out, lda: Int, w: Out, work: Out, lwork: Int, iwork:
        Ints, liwork: Int, info: Ints, len1: Len, len2: Len)
        = ssyevd_ dsyevd_;
    HEEVD (jobz: Flag, uplo: Flag, n: Int, a: Out, lda: Int, w: Out, work: Out, lwork: Int, rwork:
        Out, lrwork: Int, iwork: Ints, liwork: Int, info: Ints, len1: Len, len2: Len)
        = cheevd_ zheevd_;
    REAL_GESVD (jobu: Flag, jobvt: Flag, m: Int, n: Int, a: Out, lda: Int, s: Out, u: Out, ldu: Int,
        vt: Out, ldvt: Int, work: Out, lwork: Int, info: Ints, len1: Len, len2: Len)
        = sgesvd_ dgesvd_;
    COMPLEX_GESVD (jobu: Flag, jobvt: Flag, m: Int, n: Int, a: Out, lda: Int, s: Out, u: Out, ldu:
        Int, vt: Out, ldvt: Int, work: Out, lwork: Int, rwork: Out, info: Ints, len1: Len, len2: Len)
        = cgesvd_ zgesvd_;
    REAL_GEEV (jobvl: Flag, jobvr: Flag, n: Int, a: Out, lda: Int, wr: Out, wi: Out, vl: Out, ldvl:
        Int, vr: Out, ldvr: Int, work: Out, lwork: Int, info: Ints, len1: Len, len2: Len)
        = sgeev_ dgeev_;
    COMPLEX_GEEV (jobvl: Flag, jobvr: Flag, n: Int, a: Out, lda: Int, w: Out, vl: Out, ldvl: Int,
        vr: Out, ldvr: Int, work: Out, lwork: Int, rwork: Out, info: Ints, len1: Len, len2: Len)
        = cgeev_ zgeev_;
}
