//! The one path that every routine takes: the checks that cuSOLVER makes when it is called, those of device
//! memory when the work's turn comes, and what becomes of workspaces and destroyed operands. It knows
//! operands, not what is computed.

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_SUPPORTED, gate, known_params};
use crate::arena::POISON;
use crate::blas::job::{Area, Operand};
use crate::delay::Load;
use crate::driver::{find_stream, queued};
use crate::state::{self, STICKY, State};
use crate::stream::Task;
use core::ffi::c_void;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the work does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Update,
    /// The old value is not read: NaN from the work's turn on.
    Write,
    /// Read, and NaN when the work is over.
    Destroy,
}

/// An operand of the call.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub operand: Operand,
    pub elem_bytes: u64,
    pub usage: Use,
}

/// A matrix on the device.
pub fn matrix(
    name: &'static str,
    usage: Use,
    elem_bytes: u64,
    (rows, cols): (i64, i64),
    (address, ld): (u64, i64),
) -> Part {
    let operand = Operand {
        name,
        address,
        rows,
        cols,
        ld,
        area: Area::Full,
    };
    Part {
        operand,
        elem_bytes,
        usage,
    }
}

/// A vector on the device.
pub fn vector(name: &'static str, usage: Use, elem_bytes: u64, length: i64, address: u64) -> Part {
    let ld = length.max(1);
    matrix(name, usage, elem_bytes, (length, 1), (address, ld))
}

impl Part {
    /// First and last byte, the last exclusive.
    fn bytes(&self) -> (u64, u64) {
        let (first, end) = self.operand.elems();
        let at = |elems: i64| self.operand.address + elems as u64 * self.elem_bytes;
        (at(first), at(end))
    }

    fn check(&self) -> Result<(), u32> {
        let Operand {
            rows,
            cols,
            ld,
            address,
            ..
        } = self.operand;
        if rows < 0 || cols < 0 || ld < rows.max(1) {
            return Err(INVALID_VALUE);
        }
        let is_empty = rows == 0 || cols == 0;
        if !is_empty && (address == 0 || !address.is_multiple_of(self.elem_bytes)) {
            return Err(INVALID_VALUE);
        }
        // LAPACK's integers have 32 bits.
        if [rows, cols, ld].iter().any(|&x| i32::try_from(x).is_err()) {
            return Err(NOT_SUPPORTED);
        }
        Ok(())
    }

    /// True if the two share an element.
    fn overlaps(&self, other: &Self) -> bool {
        if self.elem_bytes == other.elem_bytes {
            return self.operand.overlaps(&other.operand, self.elem_bytes);
        }
        let ((a, a_end), (b, b_end)) = (self.bytes(), other.bytes());
        a < b_end && b < a_end
    }
}

/// Bytes that the routine needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub device_bytes: u64,
    pub host_bytes: u64,
}

/// What the caller gives for it.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub device: u64,
    pub device_bytes: u64,
    pub host: *mut c_void,
    pub host_bytes: u64,
}

impl Given {
    /// For routines without a workspace.
    pub const NOTHING: Self = Self {
        device: 0,
        device_bytes: 0,
        host: core::ptr::null_mut(),
        host_bytes: 0,
    };

    /// For routines that need device memory only.
    pub fn on_device(device: u64, device_bytes: u64) -> Self {
        Self {
            device,
            device_bytes,
            ..Self::NOTHING
        }
    }
}

/// What a computation leaves beside its operands.
pub struct Outcome {
    /// At least 0.
    pub info: i32,
    pub err_sigma: f64,
}

/// The computation: operands in their order, one that is empty at any address. An error is misuse that is
/// only found in the data.
pub type Compute = Box<dyn FnOnce(&[*mut c_void]) -> Result<Outcome, String> + Send>;

/// One call, decoded.
pub struct Job {
    pub params: usize,
    pub parts: Vec<Part>,
    pub need: Need,
    pub given: Given,
    /// One int32 on the device.
    pub info: u64,
    /// One double on the host; null for routines without.
    pub err_sigma: *mut f64,
    pub compute: Compute,
}

/// Milliseconds that the first call of each routine takes longer, as where the library loads its kernels.
fn first_call_ms() -> u64 {
    state::number_of("SIM_CUDA_SOLVER_FIRST_MS", 0)
}

/// Routines that were called before.
static CALLED: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// Sleeps in the first call of a routine in this process.
fn load_lazily(function: &'static str) {
    let is_first = CALLED.lock().get_or_insert_default().insert(function);
    let ms = first_call_ms();
    if is_first && ms > 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// A host address that a stream's thread writes.
#[derive(Clone, Copy)]
struct Host(usize);

impl Host {
    fn new<T>(pointer: *mut T) -> Self {
        Self(pointer.expose_provenance())
    }

    fn pointer<T>(self) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// Writes host memory of the caller's in stream order. Never after the device is lost, since the caller may
/// have given its memory back then; the lock keeps the two apart.
fn on_host(write: impl FnOnce()) {
    let _state = state::lock();
    if STICKY.load(Ordering::Acquire) == 0 {
        write();
    }
}

/// Runs a call of cuSOLVER: gate, decoding, checks, and the work into the handle's stream.
pub fn submit(
    function: &'static str,
    handle: usize,
    decode: impl FnOnce() -> Result<Job, u32>,
) -> Result<(), u32> {
    load_lazily(function);
    let mut pass = gate(function, handle)?;
    let stream = pass.state.solvers.get(&handle).copied().unwrap_or(0);
    let job = decode().and_then(|job| check(&job, &pass.state).map(|()| job));
    let job = job.inspect_err(|code| {
        let nth = pass.nth;
        let what = format!("{function} call {nth}: arguments that it refuses ({code})");
        pass.state.complain(what);
    })?;
    known_params(&mut pass, job.params)?;
    // A stream that is gone is misuse; the default stream is not simulated.
    let gone = if stream == 0 {
        NOT_SUPPORTED
    } else {
        EXECUTION_FAILED
    };
    let stream = find_stream(&mut pass, stream).map_err(|_| gone)?;
    let Job {
        parts,
        given,
        info,
        err_sigma,
        compute,
        ..
    } = job;
    let (host, host_bytes) = (Host::new(given.host), given.host_bytes as usize);
    let (device, device_bytes) = (given.device, given.device_bytes);
    let err_sigma = Host::new(err_sigma);
    let info_part = vector("info", Use::Write, 4, 1, info);
    let mut written = parts.clone();
    written.push(info_part);
    written.retain(|part| part.usage == Use::Write);
    let begin = move || {
        for part in &written {
            let found = part
                .operand
                .resolve(&state::lock(), part.elem_bytes, function);
            if let Ok(at) = found {
                // SAFETY: just found in live device memory.
                unsafe { part.operand.poison(at, part.elem_bytes) };
            }
        }
    };
    let work = move || -> Result<(), String> {
        let (at, info_at) = {
            let state = state::lock();
            scribble(&state, device, device_bytes, function)?;
            let resolve = |part: &Part| part.operand.resolve(&state, part.elem_bytes, function);
            let at = parts.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
            (at, resolve(&info_part)?)
        };
        let pointers = at.iter().copied();
        let pointers: Vec<_> = pointers
            .map(core::ptr::with_exposed_provenance_mut)
            .collect();
        let outcome = compute(&pointers).map_err(|what| format!("{function}: {what}"))?;
        for (part, at) in parts.iter().zip(at) {
            if part.usage == Use::Destroy {
                // SAFETY: found in device memory when the work began; the arena is never unmapped.
                unsafe { part.operand.poison(at, part.elem_bytes) };
            }
        }
        let info_at = core::ptr::with_exposed_provenance_mut::<i32>(info_at);
        // SAFETY: as above; its alignment was checked.
        unsafe { info_at.write(outcome.info) };
        on_host(|| {
            // SAFETY: the API's contract: host memory of this size until the work is over.
            unsafe { host.pointer::<u8>().write_bytes(POISON, host_bytes) };
            if err_sigma.0 != 0 {
                // SAFETY: as above.
                unsafe { err_sigma.pointer::<f64>().write(outcome.err_sigma) };
            }
        });
        Ok(())
    };
    if err_sigma.0 != 0 {
        // Nobody knows it before the work is over.
        // SAFETY: the API's contract: one double.
        unsafe { err_sigma.pointer::<f64>().write(f64::NAN) };
    }
    let task = Task::Split(Load::Kernel, Box::new(begin), Box::new(work));
    stream.push(queued(pass.fault, task));
    Ok(())
}

/// What the routine leaves in its workspace on the device: nothing that anybody may read.
fn scribble(state: &State, device: u64, bytes: u64, function: &str) -> Result<(), String> {
    if bytes == 0 {
        return Ok(());
    }
    let found = state.arena.resolve(device, bytes);
    let found =
        found.ok_or_else(|| format!("{function} met a workspace outside of live memory"))?;
    // SAFETY: live device memory of this size, just found under the lock.
    unsafe { found.write_bytes(POISON, bytes as usize) };
    Ok(())
}

fn check(job: &Job, state: &State) -> Result<(), u32> {
    job.parts.iter().try_for_each(Part::check)?;
    let info = vector("info", Use::Write, 4, 1, job.info);
    info.check()?;
    let Given {
        device,
        device_bytes,
        host,
        host_bytes,
    } = job.given;
    let too_small = device_bytes < job.need.device_bytes || host_bytes < job.need.host_bytes;
    let missing = (device_bytes > 0 && device == 0) || (host_bytes > 0 && host.is_null());
    // cuSOLVER's kernels load complex doubles.
    let misaligned = !device.is_multiple_of(16);
    // The host may not follow a device address.
    let confused = state.arena.is_device(host.addr() as u64)
        || state.arena.is_device(job.err_sigma.addr() as u64);
    if too_small || missing || misaligned || confused {
        return Err(INVALID_VALUE);
    }
    let bytes = i64::try_from(device_bytes).map_err(|_| INVALID_VALUE)?;
    let mut all = job.parts.clone();
    all.push(vector("workspace", Use::Update, 1, bytes, device));
    all.push(info);
    for (i, one) in all.iter().enumerate() {
        for other in &all[..i] {
            if one.overlaps(other) && (one.usage != Use::Read || other.usage != Use::Read) {
                return Err(INVALID_VALUE);
            }
        }
    }
    Ok(())
}
