//! Device memory and pinned memory.
//!
//! Unsafe lives here because memory is mapped by hand: each device allocation is a mapping of its own,
//! and its device pointer is the mapping's address plus a constant that makes it non-canonical.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Added to a mapping's address to give the device pointer: bit 60 makes it non-canonical on x86-64, so
/// that a host that follows it faults.
const DEVICE_OFFSET: u64 = 1 << 60;

/// What fresh memory is filled with: a NaN in every float format.
const POISON: u8 = 0xff;

#[derive(Default)]
struct Memory {
    total_bytes: Option<u64>,
    /// Device pointer to length.
    device: BTreeMap<u64, usize>,
    /// Host address to length.
    pinned: BTreeMap<usize, usize>,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    total_bytes: None,
    device: BTreeMap::new(),
    pinned: BTreeMap::new(),
});

impl Memory {
    fn total(&mut self) -> u64 {
        *self
            .total_bytes
            .get_or_insert_with(|| crate::variable("SIM_CUDA_MEMORY", 4 << 30))
    }

    fn used(&self) -> u64 {
        self.device.values().map(|&bytes| bytes as u64).sum()
    }
}

pub fn total_bytes() -> usize {
    MEMORY.lock().total() as usize
}

pub fn set_total(bytes: u64) {
    MEMORY.lock().total_bytes = Some(bytes);
}

pub fn free_bytes() -> usize {
    let mut memory = MEMORY.lock();
    memory.total().saturating_sub(memory.used()) as usize
}

fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a fresh anonymous mapping; the result is checked.
    let pointer = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if pointer == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is `bytes` long.
    unsafe { core::ptr::write_bytes(pointer.cast::<u8>(), POISON, bytes) };
    Some(pointer.cast())
}

pub fn allocate(bytes: usize) -> Option<u64> {
    let mut memory = MEMORY.lock();
    if memory.used() + bytes as u64 > memory.total() {
        return None;
    }
    let pointer = map(bytes)?.addr() as u64 + DEVICE_OFFSET;
    memory.device.insert(pointer, bytes);
    Some(pointer)
}

pub fn free(pointer: u64) -> bool {
    let Some(bytes) = MEMORY.lock().device.remove(&pointer) else {
        return false;
    };
    // SAFETY: the mapping of this allocation; it was in the table, so it is live, and it is gone from
    // the table, so nobody finds it any more. Streams were waited for.
    unsafe { libc::munmap((pointer - DEVICE_OFFSET) as *mut libc::c_void, bytes) };
    true
}

pub fn allocate_pinned(bytes: usize) -> Option<*mut u8> {
    let pointer = map(bytes.max(1))?;
    MEMORY.lock().pinned.insert(pointer.addr(), bytes.max(1));
    Some(pointer)
}

pub fn free_pinned(address: usize) -> bool {
    let Some(bytes) = MEMORY.lock().pinned.remove(&address) else {
        return false;
    };
    // SAFETY: as in `free`.
    unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
    true
}

pub fn is_device_address(pointer: u64) -> bool {
    pointer >= DEVICE_OFFSET
}

/// The host address of a piece of one live device allocation.
pub fn range(pointer: u64, bytes: usize) -> Option<usize> {
    let memory = MEMORY.lock();
    let (start, length) = memory.device.range(..=pointer).next_back()?;
    let end = pointer.checked_add(bytes as u64)?;
    (end <= start + *length as u64).then_some((pointer - DEVICE_OFFSET) as usize)
}

pub fn is_pinned(address: usize, bytes: usize) -> bool {
    let memory = MEMORY.lock();
    let Some((start, length)) = memory.pinned.range(..=address).next_back() else {
        return false;
    };
    address + bytes <= start + length
}
