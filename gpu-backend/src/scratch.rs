//! Host scratch memory for results that may not go straight to the caller.
//!
//! Unsafe lives here because the memory comes from mmap: a Vec of that size would abort the host
//! program when memory is short, and it would be touched by one thread before it is used. Kept for the
//! next call, since making its pages costs more than copying through them, and given back when idle.

use call::{Failure, MatMut, MatRef};
use core::ptr::NonNull;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Anonymous memory, zero until it is written.
pub struct Scratch {
    memory: NonNull<u8>,
    bytes: usize,
    /// It has been used by a call: its pages are mostly there.
    pub warm: bool,
}

// SAFETY: a private mapping of our own, reached only through this owner.
unsafe impl Send for Scratch {}

fn short(needed_bytes: u64, budget_bytes: u64) -> Failure {
    Failure::OutOfMemory {
        needed_bytes,
        budget_bytes,
    }
}

impl Scratch {
    /// `bytes` bytes (at least one).
    ///
    /// # Errors
    /// `OutOfMemory` of the host.
    fn new(bytes: usize) -> Result<Self, Failure> {
        let bytes = bytes.max(1);
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let memory =
            unsafe { libc::mmap(core::ptr::null_mut(), bytes, read_write, private, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(short(bytes as u64, 0));
        }
        // SAFETY: advice on our own mapping. Huge pages halve the faults (7.2 against 3.1 GB/s on one
        // thread, 2026-12-01); a kernel without them answers an error that changes nothing. A child
        // made by fork has no use for it.
        unsafe {
            libc::madvise(memory, bytes, libc::MADV_HUGEPAGE);
            libc::madvise(memory, bytes, libc::MADV_DONTFORK);
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| short(bytes as u64, 0))?;
        Ok(Self {
            memory,
            bytes,
            warm: false,
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

/// Most bytes that are kept between calls: the result of a dtrsm with n = 16384. Chosen.
const KEEP_BYTES: usize = 2 << 30;

/// Scratch is kept for so long after its last use (as the device's pool).
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Scratch between calls.
#[derive(Default)]
pub struct ScratchPool {
    kept: Mutex<Vec<(Scratch, Instant)>>,
}

impl ScratchPool {
    /// Scratch of at least `bytes` bytes, if the host has room for twice as much.
    ///
    /// # Errors
    /// `OutOfMemory` of the host.
    pub fn take(&self, bytes: usize) -> Result<Scratch, Failure> {
        {
            let mut kept = self.kept.lock();
            let fits = |s: &Scratch| s.bytes >= bytes && s.bytes / 4 <= bytes;
            if let Some(index) = kept.iter().position(|(s, _)| fits(s)) {
                return Ok(kept.swap_remove(index).0);
            }
            // What does not fit would only stand beside the new one.
            kept.clear();
        }
        let needed = 2 * bytes as u64;
        match crate::host::available_bytes() {
            Some(available) if available < needed => Err(short(needed, available)),
            _ => Scratch::new(bytes),
        }
    }

    /// Takes scratch back.
    pub fn put(&self, mut scratch: Scratch) {
        scratch.warm = true;
        let mut kept = self.kept.lock();
        let sum: usize = kept.iter().map(|(s, _)| s.bytes).sum();
        if sum + scratch.bytes <= KEEP_BYTES {
            kept.push((scratch, Instant::now()));
        }
    }

    /// True if something is kept.
    pub fn holds(&self) -> bool {
        !self.kept.lock().is_empty()
    }

    /// Gives back what was not used lately.
    pub fn trim(&self) {
        self.kept
            .lock()
            .retain(|(_, used)| used.elapsed() < IDLE_AFTER);
    }

    /// Gives everything back.
    pub fn clear(&self) {
        self.kept.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_used_again_and_given_back_when_idle() {
        let pool = ScratchPool::default();
        let first = pool.take(1 << 20).expect("memory");
        assert!(!first.warm);
        pool.put(first);
        let again = pool.take(1 << 20).expect("memory");
        assert!(again.warm);
        pool.put(again);
        // A call that needs much less does not get it.
        assert!(!pool.take(1 << 10).expect("memory").warm);
        assert!(!pool.holds());
        pool.put(pool.take(1 << 20).expect("memory"));
        pool.trim();
        assert!(pool.holds(), "just used");
        std::thread::sleep(IDLE_AFTER + Duration::from_millis(50));
        pool.trim();
        assert!(!pool.holds());
    }

    #[test]
    fn what_the_host_does_not_have_is_refused() {
        let result = ScratchPool::default().take(1 << 50);
        assert!(matches!(result, Err(Failure::OutOfMemory { .. })));
    }
}
