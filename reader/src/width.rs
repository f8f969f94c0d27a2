//! How wide a library's integers are.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.

use door::Frame;

/// The bytes of an INTEGER of Fortran, and of the sizes that CBLAS takes by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// LP64: what distributions and SciPy's wheels have.
    Four,
    /// ILP64: what NumPy's wheels have.
    Eight,
}

impl Width {
    /// The integer that the `index`-th argument points to.
    ///
    /// # Safety
    /// As for [`Frame::int`], and the argument is a valid pointer to an integer of this width.
    pub unsafe fn at(self, f: &Frame, index: usize) -> i64 {
        // SAFETY: forwarded; INTEGER arguments need not be aligned by every caller.
        unsafe {
            match self {
                Self::Four => f.fortran_int(index).into(),
                Self::Eight => f.pointer::<i64>(index).read_unaligned(),
            }
        }
    }

    /// The `index`-th argument as an integer passed by value.
    ///
    /// # Safety
    /// As for [`Frame::int`].
    pub unsafe fn value(self, f: &Frame, index: usize) -> i64 {
        // SAFETY: forwarded.
        unsafe {
            match self {
                Self::Four => f.int32(index).into(),
                Self::Eight => f.int(index).cast_signed(),
            }
        }
    }
}
