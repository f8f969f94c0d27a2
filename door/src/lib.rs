//! The door: the way from an exported symbol of a shim to the engine.
//!
//! A routed symbol is a generated naked stub. It compares the call's work with the routine's
//! threshold word and jumps to OpenBLAS, or saves the argument registers into a [`Frame`] and calls
//! [`pass`]. `pass` answers whether the engine did the call; if not, the stub restores the registers
//! and jumps to OpenBLAS, so that no frame of ours is on the stack when the CPU library reports an
//! illegal argument or waits.
//!
//! This crate must not know BLAS names, CUDA or policy, and takes no lock: a process may fork while
//! another thread is anywhere in here.

mod frame;
mod library;
mod settings;
mod stub;

pub use frame::{CpuRoutine, Frame};
pub use library::{file_of, load_file};
pub use settings::DEFAULT_THRESHOLD_WORK;

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use engine_abi::{EngineTable, HostTable, RoutedCall, RoutedLapack};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// The threshold of one routine in one precision.
pub struct Threshold {
    /// `routines::Op` as its code.
    pub op: u32,
    /// The precision's upper-case letter.
    pub precision: u8,
    /// Flops of one unit of work: 2 for the multiply-adds of a real product, more for complex ones, half
    /// where one operand or the result is a triangle.
    pub flops_per_work: u64,
    /// The word that the stub compares with: calls with more work than this enter the door. It
    /// starts at 0, so that the first call of any size reads the settings once.
    pub word: &'static AtomicU64,
}

impl Threshold {
    /// In the order of the fields.
    pub const fn new(
        op: u32,
        precision: u8,
        flops_per_work: u64,
        word: &'static AtomicU64,
    ) -> Self {
        Self {
            op,
            precision,
            flops_per_work,
            word,
        }
    }
}

/// One shim, as the door knows it.
pub struct Shim {
    /// Every routed routine's threshold; several spellings of a routine share one.
    pub thresholds: &'static [Threshold],
    /// What the engine gets to see.
    pub host: HostTable,
    /// Called at the first routed call, once or, if calls arrive together, a few times.
    pub first_call: fn(),
    /// Where the engine is, for a library that does not lie beside it; a line of text if it cannot be used.
    pub engine: Option<fn() -> Result<PathBuf, String>>,
}

impl Shim {
    /// A shim with the callbacks of its CPU library.
    pub const fn new(
        thresholds: &'static [Threshold],
        set_threshold: extern "C" fn(u32, u32, u64),
        cpu_threads: extern "C" fn() -> i32,
        cpu_config: extern "C" fn() -> *const c_char,
        rest: extern "C" fn(i32),
        first_call: fn(),
    ) -> Self {
        Self {
            thresholds,
            first_call,
            engine: None,
            host: HostTable {
                abi_version: engine_abi::ABI_VERSION,
                struct_bytes: size_of::<HostTable>() as u32,
                set_threshold,
                cpu_threads,
                cpu_config,
                rest,
            },
        }
    }

    /// The same shim, whose engine lies elsewhere.
    pub const fn with_engine(self, engine: fn() -> Result<PathBuf, String>) -> Self {
        Self {
            engine: Some(engine),
            ..self
        }
    }

    /// Publishes a threshold; unknown routines are ignored.
    pub fn set_threshold(&self, op: u32, precision: u32, work: u64) {
        for t in self.thresholds {
            if t.op == op && u32::from(t.precision) == precision {
                t.word.store(work, Ordering::Relaxed);
            }
        }
    }
}

/// Reads the arguments of a level-3 routine: `None` for an illegal argument or a quick return. The second
/// value is the call's work.
///
/// # Safety
/// The frame holds the arguments of a call of the symbol, and the threshold is that of its routine.
pub type DecodeLevel3 = unsafe fn(&Frame, &Threshold) -> Option<(RoutedCall, u64)>;

/// Reads the arguments of a routine of LAPACK.
pub struct DecodeLapack {
    /// As [`DecodeLevel3`]; `None` for a workspace query and for options without a GPU path too.
    ///
    /// # Safety
    /// As for [`DecodeLevel3`].
    pub read: unsafe fn(&Frame, &Threshold) -> Option<(RoutedLapack, u64)>,
    /// Leaves in the small outputs (work(1), info, …) what LAPACK leaves there after success, by asking the
    /// CPU routine for its workspace. False where the call may have too short a workspace.
    ///
    /// # Safety
    /// The frame is the one of a call that `read` has accepted, and still the stub's own.
    pub prepare: unsafe fn(&Entry, *const Frame) -> bool,
}

/// How a symbol's arguments are read.
pub enum Decode {
    /// A level-3 routine.
    Level3(DecodeLevel3),
    /// A routine of LAPACK.
    Lapack(&'static DecodeLapack),
}

/// One routed symbol.
pub struct Entry {
    /// The shim that exports it.
    pub shim: &'static Shim,
    /// Its routine, with the threshold.
    pub threshold: &'static Threshold,
    /// OpenBLAS's routine, with the signature of the symbol.
    pub cpu: CpuRoutine,
    /// Words of arguments on the stack, hidden string lengths included.
    pub stack_words: usize,
    /// Reads the arguments.
    pub decode: Decode,
    /// For a routine that OpenBLAS gets wrong with some arguments; its stub brings those calls here at any
    /// size. Called before OpenBLAS: it does the call itself and answers true, or changes the frame, or
    /// leaves everything as it is (an illegal argument above all).
    ///
    /// # Safety
    /// As for [`DecodeLevel3`]; the frame is the stub's own.
    pub mend: Option<unsafe fn(&Entry, &mut Frame) -> bool>,
}

impl Entry {
    /// Whether the call was done here, since OpenBLAS would get it wrong.
    ///
    /// # Safety
    /// The frame holds the arguments of a call of this symbol.
    unsafe fn mended(&self, frame: &mut Frame) -> bool {
        self.mend
            // SAFETY: forwarded.
            .is_some_and(|mend| unsafe { mend(self, frame) })
    }
}

/// The stub jumps to OpenBLAS with the caller's own registers and stack.
pub const JUMP_TO_CPU: u64 = 0;
/// The call is done; the stub returns.
pub const DONE: u64 = 1;

/// Offers one call to the engine. Never unwinds; prints nothing but the one line of a broken set-up.
///
/// # Safety
/// `frame` is the frame that the stub of `entry` built for a call with valid BLAS arguments.
pub unsafe extern "C" fn pass(entry: &'static Entry, frame: *mut Frame) -> u64 {
    let cancel = CancelGuard::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the stub's frame is alive until this function returns, and only this call knows it.
        unsafe { offer(entry, frame) || entry.mended(&mut *frame) }
    }));
    drop(cancel);
    if outcome.unwrap_or(false) {
        DONE
    } else {
        JUMP_TO_CPU
    }
}

/// True if the engine did the call.
///
/// # Safety
/// As for [`pass`].
unsafe fn offer(entry: &'static Entry, frame: *mut Frame) -> bool {
    settings::publish_once(entry.shim);
    let context = frame::CpuContext { entry, frame };
    let context = (&raw const context).cast::<c_void>();
    let outcome = match &entry.decode {
        Decode::Level3(decode) => {
            // SAFETY: the caller vouches for the frame.
            let decoded = unsafe { decode(&*frame, entry.threshold) };
            let Some((mut call, engine)) = heavy(entry, decoded) else {
                return false;
            };
            call.host = &raw const entry.shim.host;
            (call.cpu, call.frame) = (frame::run_cpu, context);
            // SAFETY: the table comes from an engine of our ABI version; the call's operands are the
            // caller's, checked by decode; `context` outlives the call.
            unsafe { (engine.route)(&raw const call) }
        }
        Decode::Lapack(decode) => {
            // SAFETY: the caller vouches for the frame.
            let decoded = unsafe { (decode.read)(&*frame, entry.threshold) };
            let Some((mut call, engine)) = heavy(entry, decoded) else {
                return false;
            };
            // SAFETY: `read` has accepted the call.
            if !unsafe { (decode.prepare)(entry, frame) } {
                return false;
            }
            call.host = &raw const entry.shim.host;
            (call.cpu, call.frame) = (frame::run_cpu, context);
            // SAFETY: as above.
            unsafe { (engine.route_lapack)(&raw const call) }
        }
    };
    outcome == engine_abi::OUTCOME_DONE
}

/// A call whose work is above the threshold, with the engine.
fn heavy<T>(entry: &Entry, decoded: Option<(T, u64)>) -> Option<(T, &'static EngineTable)> {
    let (call, work) = decoded?;
    if work <= entry.threshold.word.load(Ordering::Relaxed) {
        return None;
    }
    Some((call, library::engine(entry.shim)?))
}

/// Keeps this thread from being cancelled while Rust frames are on its stack: the forced unwind of
/// pthread_cancel must not meet them.
struct CancelGuard {
    before: libc::c_int,
}

unsafe extern "C" {
    // Not in the libc crate for this target.
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of pthread.h on Linux.
const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

impl CancelGuard {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: the pointer is to a live local; the call has no other precondition.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let mut ignored = 0;
        // SAFETY: as in `new`; `before` is a state that pthread itself reported.
        unsafe { pthread_setcancelstate(self.before, &raw mut ignored) };
    }
}
