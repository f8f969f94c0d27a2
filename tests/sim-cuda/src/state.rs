//! Everything the simulation knows, under one lock, and the gate that every function passes.

use crate::arena::Arena;
use crate::delay;
use crate::fault::{self, Fault, Ignore, Kind};
use crate::registry::{self, Registry};
use crate::shared::Ledger;
use crate::stream::{EventState, StreamState};
use crate::watch::Pending;
use core::ffi::CStr;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// Destroyed streams whose work is still running.
    pub ending: Vec<Arc<StreamState>>,
    pub events: HashMap<usize, Arc<EventState>>,
    pub blas: HashMap<usize, Blas>,
    /// cuSOLVER's handles and the stream of each.
    pub solvers: HashMap<usize, usize>,
    /// cuSOLVER's parameter objects.
    pub solver_params: HashSet<usize>,
    next_handle: usize,
    pub registry: Registry,
    /// Transfers of pinned memory that have not run.
    pub pending: Pending,
    /// By function.
    pub calls: BTreeMap<&'static str, u64>,
    /// By function and number of the event.
    pub calls_of_events: BTreeMap<(&'static str, u64), u64>,
    /// Events made so far.
    pub events_made: u64,
    /// Calls that were ignored on demand where that made a difference, by function.
    pub ignored: BTreeMap<&'static str, u64>,
    /// Transfers that had to be synchronous because their memory was not pinned.
    pub pageable_copies: u64,
    faults: Vec<Fault>,
    ignores: Vec<Ignore>,
    /// What the program did wrong, and what went wrong inside queued work.
    pub complaints: Vec<String>,
}

/// The code that every call returns once the device is lost; 0 before.
pub static STICKY: AtomicU32 = AtomicU32::new(0);
/// Lets hanging work end, so that its thread does.
pub static RELEASED: AtomicBool = AtomicBool::new(false);
/// The process that initialised CUDA; 0 before.
static PID: AtomicU32 = AtomicU32::new(0);

pub static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let faults = std::env::var("SIM_CUDA_FAULT").unwrap_or_default();
    let ignores = std::env::var("SIM_CUDA_IGNORE").unwrap_or_default();
    let ledger = std::env::var_os("SIM_CUDA_SHARED").map(|path| {
        Ledger::open(path.as_ref()).unwrap_or_else(|e| panic!("sim-cuda: SIM_CUDA_SHARED: {e}"))
    });
    Mutex::new(State {
        arena: Arena::shared(bytes_of("SIM_CUDA_MEMORY", 2 << 30), ledger),
        initialised: false,
        devices: number_of("SIM_CUDA_DEVICES", 1) as u32,
        primary: 0x1000,
        primary_retained: 0,
        contexts: Vec::new(),
        pinned: BTreeMap::new(),
        streams: HashMap::new(),
        ending: Vec::new(),
        events: HashMap::new(),
        blas: HashMap::new(),
        solvers: HashMap::new(),
        solver_params: HashSet::new(),
        next_handle: 0x2000,
        registry: Registry::default(),
        pending: Pending::default(),
        calls: BTreeMap::new(),
        calls_of_events: BTreeMap::new(),
        events_made: 0,
        ignored: BTreeMap::new(),
        pageable_copies: 0,
        ignores: fault::parse_ignore(&ignores).unwrap_or_else(|e| panic!("{e}")),
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
    ignored: bool,
    pub function: &'static str,
    /// Which call of the function this is, from 1.
    pub nth: u64,
}

impl Pass {
    /// Notes something that the call has made.
    pub fn born(&mut self, kind: registry::Kind, id: u64, bytes: u64) {
        self.state
            .registry
            .born(kind, id, bytes, (self.function, self.nth));
    }

    /// True if the call is to succeed and do nothing. `matters` says whether that makes a difference.
    pub fn is_ignored(&mut self, matters: bool) -> bool {
        if self.ignored && matters {
            *self.state.ignored.entry(self.function).or_default() += 1;
        }
        self.ignored
    }

    /// Counts the call among those of its event, and may ignore it as such.
    pub fn concerns(&mut self, event: &EventState) {
        let key = (self.function, event.number);
        let count = self.state.calls_of_events.entry(key).or_default();
        *count += 1;
        let nth = *count;
        let mut ignores = self.state.ignores.iter();
        self.ignored |= ignores.any(|i| i.matches(self.function, Some(event.number), nth));
    }

    /// Counts an ignored recording: the event says that it has happened, and has not.
    pub fn believe(&mut self, event: &EventState) {
        if event.lies() {
            *self.state.ignored.entry("cuEventRecord").or_default() += 1;
        }
    }

    /// Complains if what was not found has existed.
    pub fn missing(&mut self, kind: registry::Kind, id: u64) {
        if self.state.registry.is_dead(kind, id) {
            let (function, nth) = (self.function, self.nth);
            self.state.complain(format!(
                "{function} call {nth}: {kind} {id:#x} was given back before"
            ));
        }
    }
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

/// cuSOLVER's, the same way.
pub const SOLVER: Codes = Codes {
    invalid: 3,
    out_of_memory: 2,
    lost: 6,
    not_initialized: 1,
};

/// Counts the call, applies a fault, refuses what CUDA refuses.
pub fn gate(function: &'static str, codes: &Codes, needs_init: bool) -> Result<Pass, u32> {
    // Before the lock: another thread of the parent may have held it when this process was forked.
    let pid = PID.load(Ordering::Acquire);
    if pid != 0 && pid != std::process::id() {
        return Err(codes.not_initialized);
    }
    let mut state = lock();
    let count = state.calls.entry(function).or_default();
    *count += 1;
    let nth = *count;
    let kind = state
        .faults
        .iter()
        .find(|f| f.function == function && f.nth == nth);
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
    let mut ignores = state.ignores.iter();
    let ignored = ignores.any(|ignore| ignore.matches(function, None, nth));
    Ok(Pass {
        state,
        fault: kind,
        ignored,
        function,
        nth,
    })
}

/// What a wait answers: an error if the device was lost meanwhile.
pub fn unless_lost() -> Result<(), u32> {
    match STICKY.load(Ordering::Acquire) {
        0 => Ok(()),
        code => Err(code),
    }
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

    fn count_anew(&mut self) {
        self.calls.clear();
        self.calls_of_events.clear();
        self.ignored.clear();
        self.pageable_copies = 0;
    }

    /// Loses the device because of queued work.
    pub fn lose(&mut self, why: String) {
        STICKY.store(ILLEGAL_ADDRESS, Ordering::Release);
        self.complain(why);
    }

    /// Notes what is wrong, up to a number that a reader still reads.
    pub fn complain(&mut self, what: String) {
        const MOST: usize = 100;
        if self.complaints.len() < MOST {
            self.complaints.push(what);
        }
    }
}

/// Sets the faults anew and counts calls from zero. Returns 0, or 1 if the text is malformed.
///
/// # Safety
/// `text` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuda_set_fault(text: *const libc::c_char) -> u32 {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let Ok(faults) = fault::parse(&text) else {
        return 1;
    };
    let mut state = lock();
    state.faults = faults;
    state.count_anew();
    0
}

/// Sets anew which calls are ignored and counts calls from zero. Returns 0, or 1 if the text is
/// malformed.
///
/// # Safety
/// `text` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuda_set_ignore(text: *const libc::c_char) -> u32 {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let Ok(ignores) = fault::parse_ignore(&text) else {
        return 1;
    };
    let mut state = lock();
    state.ignores = ignores;
    state.count_anew();
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
        state.solvers.clear();
        state.solver_params.clear();
        state.events.clear();
        state.events_made = 0;
        let mut all = core::mem::take(&mut state.ending);
        all.extend(state.streams.drain().map(|(_, stream)| stream));
        all
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
    state.ignores.clear();
    state.count_anew();
    state.registry.clear();
    state.pending.clear();
    delay::reset();
    STICKY.store(0, Ordering::Release);
    RELEASED.store(false, Ordering::Release);
}
