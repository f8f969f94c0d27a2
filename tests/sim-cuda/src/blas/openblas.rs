//! The level-3 routines of the OpenBLAS that is linked into this library: the mathematics of the
//! simulated cuBLAS. Declarations only.

use core::ffi::{c_char, c_int, c_void};

/// A character argument.
type Flag = *const c_char;
/// An integer argument.
type Int = *const i32;
/// A scalar or an array that is read.
type In = *const c_void;
/// An array that is written.
type Out = *mut c_void;

/// `transa transb m n k alpha a lda b ldb beta c ldc`.
pub type Gemm = unsafe extern "C" fn(Flag, Flag, Int, Int, Int, In, In, Int, In, Int, In, Out, Int);
/// `side uplo m n alpha a lda b ldb beta c ldc`.
pub type Symm = unsafe extern "C" fn(Flag, Flag, Int, Int, In, In, Int, In, Int, In, Out, Int);
/// `uplo trans n k alpha a lda beta c ldc`.
pub type Syrk = unsafe extern "C" fn(Flag, Flag, Int, Int, In, In, Int, In, Out, Int);
/// `uplo trans n k alpha a lda b ldb beta c ldc`.
pub type Syr2k = unsafe extern "C" fn(Flag, Flag, Int, Int, In, In, Int, In, Int, In, Out, Int);
/// `side uplo transa diag m n alpha a lda b ldb`.
pub type Trmm = unsafe extern "C" fn(Flag, Flag, Flag, Flag, Int, Int, In, In, Int, Out, Int);

macro_rules! declare {
    ($($args:tt: $($name:ident)*;)*) => {
        $(declare!(@each $args $($name)*);)*
    };
    (@each $args:tt $($name:ident)*) => {
        $(declare!(@one $name $args);)*
    };
    (@one $name:ident ($($arg:ident: $ty:ty),*)) => {
        unsafe extern "C" {
            pub fn $name($($arg: $ty),*);
        }
    };
}

unsafe extern "C" {
    pub fn openblas_set_num_threads(threads: c_int);
}

declare! {
    (transa: Flag, transb: Flag, m: Int, n: Int, k: Int, alpha: In, a: In, lda: Int, b: In, ldb: Int,
     beta: In, c: Out, ldc: Int): sgemm_ dgemm_ cgemm_ zgemm_;
    (side: Flag, uplo: Flag, m: Int, n: Int, alpha: In, a: In, lda: Int, b: In, ldb: Int, beta: In,
     c: Out, ldc: Int): ssymm_ dsymm_ csymm_ zsymm_ chemm_ zhemm_;
    (uplo: Flag, trans: Flag, n: Int, k: Int, alpha: In, a: In, lda: Int, beta: In, c: Out,
     ldc: Int): ssyrk_ dsyrk_ csyrk_ zsyrk_ cherk_ zherk_;
    (uplo: Flag, trans: Flag, n: Int, k: Int, alpha: In, a: In, lda: Int, b: In, ldb: Int, beta: In,
     c: Out, ldc: Int): ssyr2k_ dsyr2k_ csyr2k_ zsyr2k_ cher2k_ zher2k_;
    (side: Flag, uplo: Flag, transa: Flag, diag: Flag, m: Int, n: Int, alpha: In, a: In, lda: Int,
     b: Out, ldb: Int): strmm_ dtrmm_ ctrmm_ ztrmm_ strsm_ dtrsm_ ctrsm_ ztrsm_;
}
