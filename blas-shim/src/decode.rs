//! What the generated decoders share: option letters, sizes, scalars.
//!
//! `None` always means that OpenBLAS gets the call as it came: an illegal argument, which it reports
//! through the program's own xerbla_, or an option that only OpenBLAS knows.

use engine_abi::RoutedCall;

/// A call with every field at zero.
pub(crate) const EMPTY: RoutedCall = RoutedCall {
    struct_bytes: size_of::<RoutedCall>() as u32,
    op: 0,
    precision: 0,
    side: 0,
    uplo: 0,
    transa: 0,
    transb: 0,
    diag: 0,
    reserved: [0; 2],
    m: 0,
    n: 0,
    k: 0,
    alpha: [0.0; 2],
    beta: [0.0; 2],
    a: core::ptr::null(),
    lda: 0,
    b: core::ptr::null(),
    ldb: 0,
    c: core::ptr::null_mut(),
    ldc: 0,
    host: core::ptr::null(),
    cpu: no_cpu,
    frame: core::ptr::null(),
};

/// Stands in a call until the door puts the real one there.
unsafe extern "C" fn no_cpu(_: *const core::ffi::c_void) {}

/// A size or leading dimension that is not negative.
pub(crate) fn size(value: i32) -> Option<i64> {
    (value >= 0).then_some(i64::from(value))
}

/// N, T or C from a Fortran letter in either case.
pub(crate) fn trans(letter: u8) -> Option<u8> {
    routines::Trans::from_letter(letter).map(|t| t as u8)
}

/// A real scalar passed by value.
pub(crate) fn scalar(value: impl Into<f64>) -> [f64; 2] {
    [value.into(), 0.0]
}

/// m n k, or `u64::MAX` beyond 64 bits.
pub(crate) fn work(m: i64, n: i64, k: i64) -> u64 {
    let product = i128::from(m)
        .checked_mul(i128::from(n))
        .and_then(|p| p.checked_mul(i128::from(k)));
    product
        .and_then(|p| u64::try_from(p).ok())
        .unwrap_or(u64::MAX)
}

/// CBLAS's enumerations.
///
/// # Source
/// cblas.h of Reference BLAS 3.12.
pub(crate) enum Layout {
    Row,
    Column,
}

impl Layout {
    pub(crate) fn is_row_major(&self) -> bool {
        matches!(self, Layout::Row)
    }
}

/// Readers of CBLAS's enumerated options.
pub(crate) struct Cblas;

impl Cblas {
    /// CblasRowMajor or CblasColMajor.
    pub(crate) fn layout(value: i32) -> Option<Layout> {
        match value {
            101 => Some(Layout::Row),
            102 => Some(Layout::Column),
            _ => None,
        }
    }

    /// CblasNoTrans, CblasTrans, CblasConjTrans as N, T, C. OpenBLAS's CblasConjNoTrans (114) is left
    /// to OpenBLAS.
    pub(crate) fn trans(value: i32) -> Option<u8> {
        match value {
            111 => Some(b'N'),
            112 => Some(b'T'),
            113 => Some(b'C'),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_saturates() {
        assert_eq!(work(3, 5, 7), 105);
        assert_eq!(
            work(
                i64::from(i32::MAX),
                i64::from(i32::MAX),
                i64::from(i32::MAX)
            ),
            u64::MAX
        );
    }

    #[test]
    fn options_that_only_openblas_knows_are_left_to_it() {
        assert_eq!(Cblas::trans(114), None);
        assert_eq!(trans(b'r'), None);
        assert_eq!(trans(b'c'), Some(b'C'));
        assert!(Cblas::layout(0).is_none());
        assert_eq!(size(-1), None);
    }
}
