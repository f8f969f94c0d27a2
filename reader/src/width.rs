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

    /// Stores an integer that fits where the `index`-th argument points to.
    ///
    /// # Safety
    /// As for [`Width::at`], and the integer may be written.
    pub unsafe fn store(self, f: &Frame, index: usize, value: i64) {
        // SAFETY: the caller vouches for the pointer; alignment is not assumed.
        unsafe {
            match self {
                Self::Four => f.pointer::<i32>(index).write_unaligned(value as i32),
                Self::Eight => f.pointer::<i64>(index).write_unaligned(value),
            }
        }
    }

    /// Bytes of an integer.
    pub fn bytes(self) -> u8 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}
