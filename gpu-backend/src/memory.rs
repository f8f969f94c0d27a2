//! Device memory: a pool of blocks under one budget.
//!
//! cuMemAlloc and cuMemFree cost up to milliseconds and cuMemFree waits for running work, so blocks are
//! kept for the next call, and given back after a second without calls, because another process's
//! failed allocation is not reported to us. The pool's lock is never held across a CUDA call. Nothing
//! here knows what the memory is for.

use crate::device::Health;
use crate::error::CudaError;
use crate::result::{Context, Cuda, DeviceAddress};
use crate::scratch::ScratchPool;
use crate::sync::{AtomicU64, Condvar, Mutex};
use call::Failure;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Granularity of blocks in bytes: the page size of device memory, so that rounding costs nothing.
pub const GRAIN_BYTES: u64 = 2 << 20;

/// Bytes that an idle pool keeps (design: "an idle pool shrinks to 64 MiB after a second"): enough for
/// a call at n = 1024 in double precision with its workspace.
const IDLE_KEEP_BYTES: u64 = 64 << 20;

/// How long a pool is without a call before it counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Pause of the housekeeper between two looks at scratch that is not yet due.
const HOUSE_PAUSE: Duration = Duration::from_millis(50);

/// A cached block serves a request if it is at most this much larger: twice, or 64 MiB for small ones.
/// A larger one would be lent to a call that does not need it while another must allocate.
fn serves(block_bytes: u64, wanted_bytes: u64) -> bool {
    block_bytes >= wanted_bytes && block_bytes <= 2 * wanted_bytes + IDLE_KEEP_BYTES
}

/// Device memory that one call owns. Given back with [`Pool::put`]; dropped otherwise, it is leaked,
/// which is right only when the device is lost.
#[derive(Debug)]
pub struct Block {
    /// First byte, aligned to at least 256 bytes.
    pub address: DeviceAddress,
    /// Bytes.
    pub bytes: u64,
}

/// The budget in force: min(limit, free - reserve).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The most that this process may hold.
    pub limit_bytes: u64,
    /// What stays free on the device.
    pub reserve_bytes: u64,
}

/// Whose memory it is.
pub trait DeviceMemory {
    /// (free, total) bytes.
    ///
    /// # Errors
    /// The function that failed.
    fn memory_bytes(&self) -> Result<(u64, u64), CudaError>;
    /// Memory.
    ///
    /// # Errors
    /// The function that failed.
    fn alloc(&self, bytes: usize) -> Result<DeviceAddress, CudaError>;
    /// Gives memory back.
    ///
    /// # Safety
    /// `address` came from `alloc` and no queued work uses it.
    ///
    /// # Errors
    /// The function that failed.
    unsafe fn free(&self, address: DeviceAddress) -> Result<(), CudaError>;
}

impl DeviceMemory for Cuda {
    fn memory_bytes(&self) -> Result<(u64, u64), CudaError> {
        Self::memory_bytes(self)
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceAddress, CudaError> {
        Self::alloc(self, bytes)
    }

    unsafe fn free(&self, address: DeviceAddress) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { Self::free(self, address) }
    }
}

/// The pool.
pub struct Pool {
    budget: Budget,
    state: Mutex<State>,
    /// Held while blocks are given back, so that who waits for their bytes waits for that.
    trimming: Mutex<()>,
    changed: Condvar,
    allocations: AtomicU64,
    trims: AtomicU64,
}

struct State {
    cached: Vec<Block>,
    cached_bytes: u64,
    in_use_bytes: u64,
    /// No longer cached, and not yet given back.
    leaving_bytes: u64,
    last_use: Instant,
    /// Bytes that could be held when the device was last asked, and when that was.
    known: Option<(u64, Instant)>,
    /// The size that the device refused last, and when.
    refused: Option<(u64, Instant)>,
    /// The housekeeper waits without a date.
    house_waits: bool,
    stop: bool,
}

/// The device is asked for its free memory at most so often (the question takes tens of microseconds); a
/// figure that turns out too large costs one failed allocation.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A call as large as one that the device has just refused is not tried for so long.
const BACK_OFF: Duration = Duration::from_secs(1);

impl Pool {
    /// An empty pool.
    pub fn new(budget: Budget) -> Self {
        let state = State {
            cached: Vec::new(),
            cached_bytes: 0,
            in_use_bytes: 0,
            leaving_bytes: 0,
            last_use: Instant::now(),
            known: None,
            refused: None,
            house_waits: false,
            stop: false,
        };
        Self {
            budget,
            state: Mutex::new(state),
            trimming: Mutex::new(()),
            changed: Condvar::new(),
            allocations: AtomicU64::new(0),
            trims: AtomicU64::new(0),
        }
    }

    /// (calls of cuMemAlloc, trims, bytes held now).
    pub fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (
            self.allocations.load(Ordering::Relaxed),
            self.trims.load(Ordering::Relaxed),
            state.cached_bytes + state.leaving_bytes + state.in_use_bytes,
        )
    }

    /// Bytes that one more call may take: min(limit, free - reserve), cached blocks counted as free. The
    /// context is current.
    ///
    /// # Errors
    /// When the device does not answer.
    pub fn available_bytes<D: DeviceMemory>(
        &self,
        cuda: &D,
        health: &Health,
    ) -> Result<u64, Failure> {
        let fresh = |known: &Option<(u64, Instant)>| {
            known.filter(|(_, when)| when.elapsed() < ASK_AGAIN_AFTER)
        };
        {
            let state = self.state.lock();
            if let Some((bytes, _)) = fresh(&state.known) {
                return Ok(bytes.saturating_sub(state.in_use_bytes));
            }
        }
        let (free, _) = cuda.memory_bytes().map_err(|e| health.note(&e))?;
        let mut state = self.state.lock();
        let held = state.cached_bytes + state.leaving_bytes + state.in_use_bytes;
        let bytes = (free + held).saturating_sub(self.budget.reserve_bytes);
        let bytes = bytes.min(self.budget.limit_bytes);
        state.known = Some((bytes, Instant::now()));
        Ok(bytes.saturating_sub(state.in_use_bytes))
    }

    /// Asks the device anew next time.
    pub fn forget(&self) {
        self.state.lock().known = None;
    }

    /// Refuses what the device has just refused to another call.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn check_back_off(&self, bytes: u64) -> Result<(), Failure> {
        match self.state.lock().refused {
            Some((refused, when)) if bytes >= refused && when.elapsed() < BACK_OFF => {
                Err(Failure::OutOfMemory {
                    needed_bytes: bytes,
                    budget_bytes: refused,
                })
            }
            _ => Ok(()),
        }
    }

    /// After a failed [`Pool::take`] of `bytes` bytes, where there had been `tried` allocations ([`Pool::counts`]):
    /// if the device itself was asked and had them not, that is remembered.
    pub fn note_refusal(&self, failure: &Failure, bytes: u64, tried: u64) {
        if matches!(failure, Failure::OutOfMemory { .. }) && self.counts().0 > tried {
            self.back_off(bytes);
        }
    }

    /// Remembers that the device had no `bytes` bytes.
    fn back_off(&self, bytes: u64) {
        self.state.lock().refused = Some((bytes, Instant::now()));
    }

    /// A block of at least `bytes` bytes. The context is current.
    ///
    /// # Errors
    /// `OutOfMemory` when the budget or the device does not have it, even after giving back every
    /// cached block.
    pub fn take<D: DeviceMemory>(
        &self,
        cuda: &D,
        health: &Health,
        bytes: u64,
    ) -> Result<Block, Failure> {
        let wanted = bytes.max(1).next_multiple_of(GRAIN_BYTES);
        if let Some(block) = self.take_cached(wanted) {
            return Ok(block);
        }
        let (free, _) = cuda.memory_bytes().map_err(|e| health.note(&e))?;
        let usable_free = free.saturating_sub(self.budget.reserve_bytes);
        let must_trim = {
            let mut state = self.state.lock();
            let under_limit = self.budget.limit_bytes.saturating_sub(state.in_use_bytes);
            let available = under_limit.min(
                (free + state.cached_bytes + state.leaving_bytes)
                    .saturating_sub(self.budget.reserve_bytes),
            );
            if wanted > available {
                state.known = None;
                return Err(Failure::OutOfMemory {
                    needed_bytes: wanted,
                    budget_bytes: available,
                });
            }
            // Accounted before the lock is let go, so that two calls cannot both take the last bytes.
            state.in_use_bytes += wanted;
            let given_up = state.cached_bytes + state.leaving_bytes;
            wanted > usable_free || wanted + given_up > under_limit
        };
        let result = self.allocate(cuda, health, wanted, must_trim, usable_free);
        if result.is_err() {
            self.state.lock().in_use_bytes -= wanted;
        }
        result
    }

    fn take_cached(&self, wanted: u64) -> Option<Block> {
        let mut state = self.state.lock();
        // A call that waits for room counts as in use already: the block may be what it has asked for.
        let room = self.budget.limit_bytes.saturating_sub(state.in_use_bytes);
        let serves = |block: &Block| serves(block.bytes, wanted) && block.bytes <= room;
        let fits = (state.cached.iter().enumerate()).filter(|(_, block)| serves(block));
        let index = fits.min_by_key(|(_, block)| block.bytes)?.0;
        let block = state.cached.swap_remove(index);
        state.cached_bytes -= block.bytes;
        state.in_use_bytes += block.bytes;
        state.last_use = Instant::now();
        Some(block)
    }

    fn allocate<D: DeviceMemory>(
        &self,
        cuda: &D,
        health: &Health,
        bytes: u64,
        must_trim: bool,
        usable_free: u64,
    ) -> Result<Block, Failure> {
        if must_trim {
            self.trim(cuda, health, 0)?;
        }
        let attempt = || {
            self.allocations.fetch_add(1, Ordering::Relaxed);
            cuda.alloc(bytes as usize)
        };
        let mut got = attempt();
        if got.as_ref().is_err_and(|e| e.is_out_of_memory()) {
            self.trim(cuda, health, 0)?;
            got = attempt();
        }
        match got {
            Ok(address) => Ok(Block { address, bytes }),
            Err(e) if e.is_out_of_memory() => {
                self.state.lock().known = None;
                Err(Failure::OutOfMemory {
                    needed_bytes: bytes,
                    budget_bytes: usable_free.min(bytes - 1),
                })
            }
            Err(e) => Err(health.note(&e)),
        }
    }

    /// Takes a block back that no queued work uses.
    pub fn put(&self, block: Block) {
        let mut state = self.state.lock();
        state.in_use_bytes -= block.bytes;
        state.cached_bytes += block.bytes;
        state.cached.push(block);
        state.last_use = Instant::now();
        if state.in_use_bytes == 0 && state.house_waits && state.cached_bytes > IDLE_KEEP_BYTES {
            self.changed.notify_all();
        }
    }

    /// Host scratch was put back: the housekeeper has something to look at.
    pub fn nudge(&self) {
        let state = self.state.lock();
        if state.house_waits {
            self.changed.notify_all();
        }
    }

    /// Gives cached blocks back to the driver, the largest first, until at most `keep` bytes are left.
    ///
    /// # Errors
    /// The first function that failed; the blocks count as gone all the same.
    pub fn trim<D: DeviceMemory>(
        &self,
        cuda: &D,
        health: &Health,
        keep: u64,
    ) -> Result<(), Failure> {
        let mut surplus = Vec::new();
        let _one = self.trimming.lock();
        {
            let mut state = self.state.lock();
            state.cached.sort_by_key(|block| block.bytes);
            while state.cached_bytes > keep
                && let Some(block) = state.cached.pop()
            {
                state.cached_bytes -= block.bytes;
                state.leaving_bytes += block.bytes;
                surplus.push(block);
            }
        }
        if !surplus.is_empty() {
            self.trims.fetch_add(1, Ordering::Relaxed);
        }
        let mut result = Ok(());
        for block in surplus {
            // SAFETY: blocks come from `alloc`, and `put` takes only blocks that no work uses.
            let freed = unsafe { cuda.free(block.address) };
            self.state.lock().leaving_bytes -= block.bytes;
            if let Err(e) = freed {
                result = Err(health.note(&e));
            }
        }
        result
    }

    /// The housekeeper's life: sleeps until the pools are idle and large, then shrinks them.
    pub fn keep_house(&self, cuda: &Cuda, context: Context, health: &Health, host: &ScratchPool) {
        loop {
            {
                let mut state = self.state.lock();
                loop {
                    if state.stop {
                        return;
                    }
                    let large = state.cached_bytes > IDLE_KEEP_BYTES || host.holds();
                    let due = state.last_use + IDLE_AFTER;
                    if state.in_use_bytes > 0 || !large {
                        state.house_waits = true;
                        self.changed.wait(&mut state);
                        state.house_waits = false;
                    } else if Instant::now() >= due {
                        break;
                    } else {
                        self.changed.wait_until(&mut state, due);
                    }
                }
            }
            host.trim();
            if health.check().is_err() {
                return;
            }
            // A failure is in `health` where it matters, and the next call meets it there.
            let _ = cuda
                .enter(context)
                .map_err(|e| health.note(&e))
                .and_then(|_entered| self.trim(cuda, health, IDLE_KEEP_BYTES));
            if host.holds() {
                // Put back a moment before its block: due a moment later.
                std::thread::sleep(HOUSE_PAUSE);
            }
        }
    }

    /// Ends [`Pool::keep_house`].
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}

#[cfg(all(test, feature = "model"))]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_serves_what_it_fits_without_great_waste() {
        assert!(serves(GRAIN_BYTES, GRAIN_BYTES));
        assert!(!serves(GRAIN_BYTES, 2 * GRAIN_BYTES));
        assert!(serves(1 << 30, 1 << 29));
        assert!(!serves(1 << 30, 1 << 28));
    }
}
