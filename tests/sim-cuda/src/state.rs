//! Everything the simulation knows, under one lock, and the gate that every function passes.

use crate::arena::Arena;
use crate::fault::{self, Fault, Kind};
use crate::stream::{EventState, StreamState};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NOT_INITIALIZED: u32 = 3;
pub const NO_DEVICE: u32 = 100;
pub const INVALID_DEVICE: u32 = 101;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_READY: u32 = 600;
pub const ILLEGAL_ADDRESS: u32 = 700;

pub struct Blas {
    pub stream: usize,
    pub workspace: (u64, u64),
    pub device_pointers: bool,
}

pub struct State {
    pub arena: Arena,
    pub initialised: bool,
    pub devices: u32,
    /// The primary context's handle; it exists while it is retained.
    pub primary: usize,
    pub primary_retained: u64,
    /// Contexts made by cuCtxCreate.
    pub contexts: Vec<usize>,
    pub pinned: BTreeMap<usize, usize>,
    pub streams: HashMap<usize, Arc<StreamState>>,
    pub events: HashMap<usize, Arc<EventState>>,
    pub blas: HashMap<usize, Blas>,
    next_handle: usize,
    calls: BTreeMap<String, u64>,
    faults: Vec<Fault>,
    /// What went wrong inside queued work.
    pub complaints: Vec<String>,
}

/// The code that every call returns once the device is lost; 0 before.
pub static STICKY: AtomicU32 = AtomicU32::new(0);
/// Lets hanging work end, so that its thread does.
pub static RELEASED: AtomicBool = AtomicBool::new(false);
/// The process that initialised CUDA; 0 before.
static PID: AtomicU32 = AtomicU32::new(0);

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let faults = std::env::var("SIM_CUDA_FAULT").unwrap_or_default();
    Mutex::new(State {
        arena: Arena::new(bytes_of("SIM_CUDA_MEMORY", 2 << 30)),
        initialised: false,
        devices: number_of("SIM_CUDA_DEVICES", 1) as u32,
        primary: 0x1000,
        primary_retained: 0,
        contexts: Vec::new(),
        pinned: BTreeMap::new(),
        streams: HashMap::new(),
        events: HashMap::new(),
        blas: HashMap::new(),
        next_handle: 0x2000,
        calls: BTreeMap::new(),
        faults: fault::parse(&faults).unwrap_or_else(|e| panic!("{e}")),
        complaints: Vec::new(),
    })
});

/// A number from the environment.
pub fn number_of(name: &str, default: u64) -> u64 {
    bytes_of(name, default)
}

fn bytes_of(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else {
        return default;
    };
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (&text[..], 1),
    };
    let number: u64 = digits
        .parse()
        .unwrap_or_else(|_| panic!("sim-cuda: {name}={text} (accepted: a number, with K, M or G)"));
    number * unit
}

pub fn lock() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// What a function does after the gate.
pub struct Pass {
    pub state: MutexGuard<'static, State>,
    /// Late or Hang, for work that is queued.
    pub fault: Option<Kind>,
}

/// How a library names its conditions.
pub struct Codes {
    pub invalid: u32,
    pub out_of_memory: u32,
    pub lost: u32,
    pub not_initialized: u32,
}

pub const DRIVER: Codes = Codes {
    invalid: INVALID_VALUE,
    out_of_memory: OUT_OF_MEMORY,
    lost: ILLEGAL_ADDRESS,
    not_initialized: NOT_INITIALIZED,
};

/// cuBLAS reports a dead context as a failed execution.
pub const BLAS: Codes = Codes {
    invalid: 7,
    out_of_memory: 3,
    lost: 13,
    not_initialized: 1,
};

/// Counts the call, applies a fault, refuses what CUDA refuses.
pub fn gate(function: &str, codes: &Codes, needs_init: bool) -> Result<Pass, u32> {
    // Before the lock: another thread of the parent may have held it when this process was forked.
    let pid = PID.load(Ordering::Acquire);
    if pid != 0 && pid != std::process::id() {
        return Err(codes.not_initialized);
    }
    let mut state = lock();
    let count = state.calls.entry(function.to_owned()).or_default();
    *count += 1;
    let count = *count;
    let kind = state
        .faults
        .iter()
        .find(|f| f.function == function && f.nth == count);
    let kind = kind.map(|f| f.kind);
    match kind {
        Some(Kind::Code(code)) => return Err(code),
        Some(Kind::Invalid) => return Err(codes.invalid),
        Some(Kind::OutOfMemory) => return Err(codes.out_of_memory),
        Some(Kind::Lost) => STICKY.store(ILLEGAL_ADDRESS, Ordering::Release),
        _ => {}
    }
    if needs_init && !state.initialised {
        return Err(codes.not_initialized);
    }
    if needs_init && STICKY.load(Ordering::Acquire) != 0 {
        return Err(codes.lost);
    }
    Ok(Pass { state, fault: kind })
}

/// Marks this process as the one that uses CUDA.
pub fn claim_process() {
    PID.store(std::process::id(), Ordering::Release);
}

impl State {
    /// A handle that was never used before.
    pub fn handle(&mut self) -> usize {
        self.next_handle += 16;
        self.next_handle
    }

    pub fn context_exists(&self, context: usize) -> bool {
        (context == self.primary && self.primary_retained > 0) || self.contexts.contains(&context)
    }

    /// True if the whole range is pinned.
    pub fn is_pinned(&self, address: usize, bytes: usize) -> bool {
        let found = self.pinned.range(..=address).next_back();
        found.is_some_and(|(&start, &size)| address + bytes <= start + size)
    }

    /// Loses the device because of queued work.
    pub fn lose(&mut self, why: String) {
        STICKY.store(ILLEGAL_ADDRESS, Ordering::Release);
        self.complaints.push(why);
    }

    fn report(&self) -> String {
        let live = [
            ("device_allocations", self.arena.live() as u64),
            ("device_bytes", self.arena.used()),
            ("pinned", self.pinned.len() as u64),
            ("streams", self.streams.len() as u64),
            ("events", self.events.len() as u64),
            ("blas_handles", self.blas.len() as u64),
            ("primary_retained", self.primary_retained),
            ("contexts", self.contexts.len() as u64),
        ];
        let mut text = String::new();
        for (name, count) in live {
            text.push_str(&format!("live {name} {count}\n"));
        }
        for (name, count) in &self.calls {
            text.push_str(&format!("calls {name} {count}\n"));
        }
        for complaint in &self.complaints {
            text.push_str(&format!("complaint {complaint}\n"));
        }
        text
    }
}

/// Writes the report into `buffer` (NUL-terminated if it fits) and returns its length.
///
/// # Safety
/// `buffer` has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuda_report(buffer: *mut u8, bytes: usize) -> usize {
    let text = lock().report();
    if text.len() < bytes {
        // SAFETY: the caller's promise; the text and its NUL fit.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len());
            *buffer.add(text.len()) = 0;
        }
    }
    text.len()
}

/// Sets the faults anew and counts calls from zero. Returns 0, or 1 if the text is malformed.
///
/// # Safety
/// `text` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuda_set_fault(text: *const libc::c_char) -> u32 {
    // SAFETY: the caller's promise.
    let text = unsafe { core::ffi::CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    let Ok(faults) = fault::parse(&text) else {
        return 1;
    };
    let mut state = lock();
    state.faults = faults;
    state.calls.clear();
    0
}

/// Lets "another process" take `bytes` of the device's memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuda_set_hog(bytes: u64) {
    lock().arena.hog = bytes;
}

/// A new device, as after the process has ended: forgets everything, a lost device and hanging work
/// included. Nobody may be inside a call.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuda_reset() {
    RELEASED.store(true, Ordering::Release);
    let streams: Vec<_> = {
        let mut state = lock();
        state.blas.clear();
        state.events.clear();
        state.streams.drain().map(|(_, stream)| stream).collect()
    };
    for stream in streams {
        stream.close_and_join();
    }
    let mut state = lock();
    state.arena.clear();
    state.arena.hog = 0;
    for (start, bytes) in core::mem::take(&mut state.pinned) {
        crate::driver::unmap(start, bytes);
    }
    state.contexts.clear();
    state.primary_retained = 0;
    state.complaints.clear();
    state.faults.clear();
    state.calls.clear();
    STICKY.store(0, Ordering::Release);
    RELEASED.store(false, Ordering::Release);
}

/// Writes the report to the file that SIM_CUDA_REPORT names; runs at exit.
pub extern "C" fn report_at_exit() {
    if let Some(path) = std::env::var_os("SIM_CUDA_REPORT") {
        let text = STATE
            .try_lock_for(std::time::Duration::from_secs(1))
            .map(|s| s.report());
        let _ = std::fs::write(
            path,
            text.unwrap_or_else(|| "complaint locked at exit\n".into()),
        );
    }
}
