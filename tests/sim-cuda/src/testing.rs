//! What the unit tests share: one simulated device at a time, fresh for each test.

use crate::driver::*;
use crate::report::sim_cuda_report;
use crate::state::{lock, sim_cuda_reset};
use core::ffi::c_void;
use parking_lot::{Mutex, MutexGuard};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A fresh device with its primary context current and one stream. Nobody else uses the simulation
/// while it lives.
pub struct Device {
    pub stream: usize,
    _alone: MutexGuard<'static, ()>,
}

/// Fails if a call did.
pub fn ok(code: u32) {
    assert_eq!(code, 0);
}

impl Device {
    pub fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock();
        sim_cuda_reset();
        let (mut context, mut stream) = (0, 0);
        // SAFETY: the pointers are of this function.
        unsafe {
            ok(cuInit(0));
            ok(cuDevicePrimaryCtxRetain(&raw mut context, 0));
            ok(cuCtxPushCurrent_v2(context));
            ok(cuStreamCreate(&raw mut stream, 1));
        }
        Self {
            stream,
            _alone: alone,
        }
    }

    pub fn another_stream(&self) -> usize {
        let mut stream = 0;
        // SAFETY: the pointer is of this function.
        unsafe { ok(cuStreamCreate(&raw mut stream, 1)) };
        stream
    }

    pub fn event(&self) -> usize {
        let mut event = 0;
        // SAFETY: the pointer is of this function.
        unsafe { ok(cuEventCreate(&raw mut event, 2)) };
        event
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        // SAFETY: the pointer is of this function.
        unsafe { ok(cuMemAlloc_v2(&raw mut address, bytes)) };
        address
    }

    /// Pinned memory, which lives until the next test's reset.
    pub fn pinned(&self, bytes: usize) -> Pinned {
        let mut memory = core::ptr::null_mut::<c_void>();
        // SAFETY: the pointer is of this function.
        unsafe { ok(cuMemAllocHost_v2(&raw mut memory, bytes)) };
        Pinned {
            memory: memory.cast(),
            bytes,
        }
    }

    /// From ordinary memory, so done when it returns.
    pub fn upload(&self, bytes: &[u8]) -> u64 {
        let address = self.alloc(bytes.len());
        // SAFETY: `bytes` may be read.
        let code = unsafe {
            cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.stream)
        };
        ok(code);
        address
    }

    /// To ordinary memory, after everything that is queued in the device's stream.
    pub fn download(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut to = vec![0; bytes];
        // SAFETY: `to` has `bytes` bytes.
        ok(unsafe { cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, bytes, self.stream) });
        to
    }

    pub fn free(&self, address: u64) {
        // SAFETY: a function without pointers.
        ok(unsafe { cuMemFree_v2(address) });
    }

    pub fn free_all(&self, addresses: &[u64]) {
        addresses.iter().for_each(|&address| self.free(address));
    }

    /// The report's lines.
    pub fn report(&self) -> Vec<String> {
        let mut buffer = vec![0; 1 << 16];
        // SAFETY: the buffer has this length.
        let length = unsafe { sim_cuda_report(buffer.as_mut_ptr(), buffer.len()) };
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    pub fn complaints(&self) -> Vec<String> {
        lock().complaints.clone()
    }
}

/// Pinned memory; the device may write it at any time, so it is reached by copies only.
pub struct Pinned {
    memory: *mut u8,
    bytes: usize,
}

impl Pinned {
    pub fn ptr(&self) -> *mut c_void {
        self.memory.cast()
    }

    pub fn read(&self) -> Vec<u8> {
        // SAFETY: the mapping has `bytes` bytes and lives as long as the test's device.
        (0..self.bytes)
            .map(|i| unsafe { self.memory.add(i).read_volatile() })
            .collect()
    }

    /// Writes `bytes` from byte `start` on.
    pub fn write(&self, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= self.bytes);
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: inside the mapping (just checked), which lives as long as the test's device.
            unsafe { self.memory.add(start + i).write_volatile(byte) };
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: null is allowed. A lost device pops all the same.
        unsafe { cuCtxPopCurrent_v2(core::ptr::null_mut()) };
    }
}
