//! Device memory: an arena that the simulation reaches at one address and hands out under another, which
//! the host cannot follow (PROT_NONE).

use crate::shared::Ledger;
use std::collections::BTreeMap;

/// Alignment of allocations, CUDA's documented least.
const ALIGN: u64 = 512;

/// Bytes between allocations that belong to nobody.
const GUARD: u64 = 512;

/// Every new allocation is filled with this: NaN in every floating type.
pub const POISON: u8 = 0xff;

/// What an allocation takes of the device.
fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN)
}

pub struct Arena {
    /// Where the simulation reads and writes.
    memory: *mut u8,
    /// What the program sees.
    base: u64,
    pub total: u64,
    /// Taken by "another process".
    pub hog: u64,
    /// Start and bytes asked for. What rounding adds belongs to nobody.
    live: BTreeMap<u64, u64>,
    /// What the processes that share the device use together; `None` if there are no others.
    ledger: Option<Ledger>,
}

// SAFETY: the arena is plain memory; who writes where is decided by the streams' order, as on a device.
unsafe impl Send for Arena {}

impl Arena {
    pub fn shared(total: u64, ledger: Option<Ledger>) -> Self {
        let map = |protection, flags| {
            // SAFETY: a new anonymous mapping touches nothing that exists.
            let p = unsafe {
                libc::mmap(
                    core::ptr::null_mut(),
                    total as usize,
                    protection,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags,
                    -1,
                    0,
                )
            };
            assert!(
                p != libc::MAP_FAILED,
                "sim-cuda: no address space for {total} bytes"
            );
            p
        };
        let memory = map(libc::PROT_READ | libc::PROT_WRITE, 0).cast::<u8>();
        let base = map(libc::PROT_NONE, 0).addr() as u64;
        Self {
            memory,
            base,
            total,
            hog: 0,
            live: BTreeMap::new(),
            ledger,
        }
    }

    /// By this process and those that share the device.
    fn used(&self) -> u64 {
        match &self.ledger {
            Some(ledger) => ledger.used_by_all(),
            None => self.live.values().map(|&bytes| rounded(bytes)).sum(),
        }
    }

    pub fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.hog + self.used())
    }

    pub fn clear(&mut self) {
        self.live.clear();
        if let Some(ledger) = &self.ledger {
            ledger.clear();
        }
    }

    /// First fit; `None` if there is no room.
    pub fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let asked_for = bytes;
        let bytes = bytes.checked_next_multiple_of(ALIGN)?;
        if self.ledger.is_none() && bytes > self.free_bytes() {
            return None;
        }
        let mut start = GUARD;
        for (&at, &size) in &self.live {
            if at >= start + bytes + GUARD {
                break;
            }
            start = at + rounded(size) + GUARD;
        }
        if start + bytes > self.total {
            return None;
        }
        let limit = self.total.saturating_sub(self.hog);
        if let Some(ledger) = &self.ledger
            && !ledger.reserve(bytes, limit)
        {
            return None;
        }
        self.live.insert(start, asked_for);
        // SAFETY: start + bytes <= total, inside the mapping.
        unsafe {
            self.memory
                .add(start as usize)
                .write_bytes(POISON, bytes as usize)
        };
        Some(self.base + start)
    }

    pub fn free(&mut self, address: u64) -> bool {
        let start = address.checked_sub(self.base);
        let Some(bytes) = start.and_then(|start| self.live.remove(&start)) else {
            return false;
        };
        if let Some(ledger) = &self.ledger {
            ledger.release(rounded(bytes));
        }
        true
    }

    /// True for every address in the range that the host may not follow.
    pub fn is_device(&self, address: u64) -> bool {
        (self.base..self.base + self.total).contains(&address)
    }

    /// Where the simulation finds `bytes` bytes at a device address, if they lie in one live allocation.
    pub fn resolve(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let start = address.checked_sub(self.base)?;
        let (&at, &size) = self.live.range(..=start).next_back()?;
        if start.checked_add(bytes)? > at + size {
            return None;
        }
        // SAFETY: inside a live allocation, so inside the mapping.
        Some(unsafe { self.memory.add(start as usize) })
    }
}
