//! Host scratch memory for results that may not go straight to the caller.
//!
//! Unsafe lives here because the memory comes from mmap: a Vec of that size would abort the host
//! program when memory is short, and it would be touched by one thread before it is used.

use call::{Failure, MatMut, MatRef};
use core::ptr::NonNull;

/// Anonymous memory, zero until it is written.
pub struct Scratch {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Scratch {
    /// `bytes` bytes (at least one).
    ///
    /// # Errors
    /// `OutOfMemory` of the host.
    pub fn new(bytes: usize) -> Result<Self, Failure> {
        let bytes = bytes.max(1);
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let memory =
            unsafe { libc::mmap(core::ptr::null_mut(), bytes, read_write, private, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(Failure::OutOfMemory {
                needed_bytes: bytes as u64,
                budget_bytes: 0,
            });
        }
        // SAFETY: advice on our own mapping. Huge pages halve the faults (design facts: 7.2 against
        // 3.1 GB/s); a kernel without them answers an error that changes nothing.
        unsafe { libc::madvise(memory, bytes, libc::MADV_HUGEPAGE) };
        NonNull::new(memory.cast())
            .map(|memory| Self { memory, bytes })
            .ok_or(Failure::OutOfMemory {
                needed_bytes: bytes as u64,
                budget_bytes: 0,
            })
    }

    /// The memory as a packed rows x cols matrix to be written, or `None` if it is too small.
    pub fn matrix_mut(
        &mut self,
        rows: usize,
        cols: usize,
        elem_bytes: usize,
    ) -> Option<MatMut<'_>> {
        self.fits(rows, cols, elem_bytes)?;
        // SAFETY: the mapping has room for the packed matrix and is borrowed as long as the view.
        unsafe { MatMut::new(self.memory.as_ptr(), rows, cols, rows, elem_bytes) }
    }

    /// As [`Scratch::matrix_mut`], to be read.
    pub fn matrix(&self, rows: usize, cols: usize, elem_bytes: usize) -> Option<MatRef<'_>> {
        self.fits(rows, cols, elem_bytes)?;
        // SAFETY: as above; mmap's memory is initialised (zero).
        unsafe { MatRef::new(self.memory.as_ptr(), rows, cols, rows, elem_bytes) }
    }

    fn fits(&self, rows: usize, cols: usize, elem_bytes: usize) -> Option<()> {
        let bytes = rows.checked_mul(cols)?.checked_mul(elem_bytes)?;
        (bytes <= self.bytes).then_some(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no view outlives the borrow of self.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
