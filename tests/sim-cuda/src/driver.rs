//! The simulated driver API.

use crate::copy::{self, Direction, Memcpy2d, Transfer};
use crate::delay::Load;
use crate::fault::Kind;
use crate::registry::Kind as Object;
use crate::report;
use crate::state::{
    self, DRIVER, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NO_DEVICE,
    NOT_READY, OUT_OF_MEMORY, Pass, State,
};
use crate::stream::{EventState, StreamState, Task};
use core::ffi::{c_char, c_int, c_uint, c_void};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The thread's stack of current contexts.
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The thread's current context; 0 if there is none.
pub fn current() -> usize {
    CONTEXTS.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// What the runtime API does on a thread without a context: takes the primary one and leaves it current.
pub fn runtime_current(state: &mut State) -> usize {
    if current() == 0 {
        state.primary_retained = state.primary_retained.max(1);
        CONTEXTS.with_borrow_mut(|stack| stack.push(state.primary));
    }
    current()
}

fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// Runs a body that may leave early.
fn run(body: impl FnOnce() -> Result<(), u32>) -> Result<(), u32> {
    body()
}

/// Passes the gate; the thread must have a context.
fn gate(function: &'static str) -> Result<Pass, u32> {
    let pass = state::gate(function, &DRIVER, true)?;
    if pass.state.context_exists(current()) {
        Ok(pass)
    } else {
        Err(INVALID_CONTEXT)
    }
}

/// Passes the gate; no context is needed.
fn gate_free(function: &'static str) -> Result<Pass, u32> {
    state::gate(function, &DRIVER, true)
}

/// Writes a result.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                code(run(|| $body))
            }
        )*
    };
}

const PRIMARY_FLAGS: c_uint = 0;

entries! {
    fn cuDriverGetVersion(version: *mut c_int) {
        let value = state::number_of("SIM_CUDA_DRIVER_VERSION", 13_000) as c_int;
        // SAFETY: the API's contract: a valid pointer or null.
        unsafe { give(version, value) }
    }

    fn cuGetErrorName(error: u32, name: *mut *const c_char) {
        let text = match error {
            0 => c"CUDA_SUCCESS",
            1 => c"CUDA_ERROR_INVALID_VALUE",
            2 => c"CUDA_ERROR_OUT_OF_MEMORY",
            3 => c"CUDA_ERROR_NOT_INITIALIZED",
            100 => c"CUDA_ERROR_NO_DEVICE",
            101 => c"CUDA_ERROR_INVALID_DEVICE",
            201 => c"CUDA_ERROR_INVALID_CONTEXT",
            400 => c"CUDA_ERROR_INVALID_HANDLE",
            600 => c"CUDA_ERROR_NOT_READY",
            700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            801 => c"CUDA_ERROR_NOT_SUPPORTED",
            _ => {
                // SAFETY: as above; the API writes null for an unknown code.
                unsafe { give(name, core::ptr::null()) }?;
                return Err(INVALID_VALUE);
            }
        };
        // SAFETY: as above.
        unsafe { give(name, text.as_ptr()) }
    }

    fn cuInit(flags: c_uint) {
        let mut pass = state::gate("cuInit", &DRIVER, false)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if pass.state.devices == 0 {
            return Err(NO_DEVICE);
        }
        if !pass.state.initialised {
            pass.state.initialised = true;
            state::claim_process();
            // SAFETY: a function without arguments that stays loaded (the library is never closed).
            unsafe { libc::atexit(report::at_exit) };
        }
        Ok(())
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        let pass = gate_free("cuDeviceGetCount")?;
        // SAFETY: as above.
        unsafe { give(count, pass.state.devices as c_int) }
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        let pass = gate_free("cuDeviceGet")?;
        check_device(&pass.state, ordinal)?;
        // SAFETY: as above.
        unsafe { give(device, ordinal) }
    }

    fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) {
        let pass = gate_free("cuDeviceGetName")?;
        check_device(&pass.state, device)?;
        let text = c"Simulated GPU";
        if name.is_null() || (bytes as usize) < text.count_bytes() + 1 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the API's contract: room for `bytes` bytes, which was just checked to be enough.
        unsafe { name.copy_from_nonoverlapping(text.as_ptr(), text.count_bytes() + 1) };
        Ok(())
    }

    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) {
        let pass = gate_free("cuDeviceGetUuid")?;
        check_device(&pass.state, device)?;
        // SAFETY: as above.
        unsafe { give(uuid, *b"simulated device") }
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        let pass = gate_free("cuDeviceGetAttribute")?;
        check_device(&pass.state, device)?;
        let answer = match attribute {
            13 => 1_000_000, // clock in kHz
            16 => 4,         // multiprocessors: few, so that small products have several panels
            75 => 9,         // compute capability
            76 => 0,
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as above.
        unsafe { give(value, answer) }
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        let pass = gate_free("cuDeviceTotalMem_v2")?;
        check_device(&pass.state, device)?;
        // SAFETY: as above.
        unsafe { give(bytes, pass.state.arena.total as usize) }
    }

    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) {
        let mut pass = gate_free("cuDevicePrimaryCtxRetain")?;
        check_device(&pass.state, device)?;
        pass.state.primary_retained += 1;
        // SAFETY: as above.
        unsafe { give(context, pass.state.primary) }
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let mut pass = gate_free("cuDevicePrimaryCtxRelease_v2")?;
        check_device(&pass.state, device)?;
        if pass.state.primary_retained == 0 {
            return Err(INVALID_CONTEXT);
        }
        pass.state.primary_retained -= 1;
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: usize) {
        let pass = gate_free("cuCtxPushCurrent_v2")?;
        if !pass.state.context_exists(context) {
            return Err(INVALID_CONTEXT);
        }
        CONTEXTS.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    /// The stack is popped even on a lost device: it is the thread's own.
    fn cuCtxPopCurrent_v2(context: *mut usize) {
        let popped = CONTEXTS.with_borrow_mut(Vec::pop);
        let _pass = gate_free("cuCtxPopCurrent_v2")?;
        let popped = popped.ok_or(INVALID_CONTEXT)?;
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { give(context, popped) }
    }

    /// For tests only.
    fn cuCtxGetCurrent(context: *mut usize) {
        // SAFETY: as above.
        unsafe { give(context, current()) }
    }

    /// For tests only.
    fn cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int) {
        let mut pass = gate_free("cuCtxCreate_v2")?;
        check_device(&pass.state, device)?;
        if flags != PRIMARY_FLAGS {
            return Err(INVALID_VALUE);
        }
        let handle = pass.state.handle();
        pass.state.contexts.push(handle);
        pass.born(Object::Context, handle as u64, 0);
        CONTEXTS.with_borrow_mut(|stack| stack.push(handle));
        // SAFETY: as above.
        unsafe { give(context, handle) }
    }

    /// For tests only.
    fn cuCtxDestroy_v2(context: usize) {
        let mut pass = gate_free("cuCtxDestroy_v2")?;
        let before = pass.state.contexts.len();
        pass.state.contexts.retain(|&other| other != context);
        CONTEXTS.with_borrow_mut(|stack| stack.retain(|&other| other != context));
        if pass.state.contexts.len() == before {
            pass.missing(Object::Context, context as u64);
            return Err(INVALID_CONTEXT);
        }
        pass.state.registry.died(context as u64);
        Ok(())
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let pass = gate("cuMemGetInfo_v2")?;
        // SAFETY: as above.
        unsafe {
            give(free, pass.state.arena.free_bytes() as usize)?;
            give(total, pass.state.arena.total as usize)
        }
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        let mut pass = gate("cuMemAlloc_v2")?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let found = pass.state.arena.alloc(bytes as u64).ok_or(OUT_OF_MEMORY)?;
        pass.born(Object::DeviceMemory, found, bytes as u64);
        // SAFETY: as above.
        unsafe { give(address, found) }
    }

    fn cuMemFree_v2(address: u64) {
        let mut pass = gate("cuMemFree_v2")?;
        if !pass.state.arena.free(address) {
            pass.missing(Object::DeviceMemory, address);
            return Err(INVALID_VALUE);
        }
        pass.state.registry.died(address);
        Ok(())
    }

    fn cuMemAllocHost_v2(memory: *mut *mut c_void, bytes: usize) {
        let mut pass = gate("cuMemAllocHost_v2")?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let found = unsafe { libc::mmap(core::ptr::null_mut(), bytes, read_write, flags, -1, 0) };
        if found == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        pass.state.pinned.insert(found.expose_provenance(), bytes);
        pass.born(Object::PinnedMemory, found.addr() as u64, bytes as u64);
        // SAFETY: as above.
        unsafe { give(memory, found) }
    }

    fn cuMemFreeHost(memory: *mut c_void) {
        let mut pass = gate("cuMemFreeHost")?;
        let start = memory.addr();
        let Some(bytes) = pass.state.pinned.remove(&start) else {
            pass.missing(Object::PinnedMemory, start as u64);
            return Err(INVALID_VALUE);
        };
        if pass.state.pending.touches(&(start..start + bytes)) {
            let what = format!("pinned memory {start:#x} was freed while a transfer was queued");
            pass.state.complain(what);
        }
        pass.state.registry.died(start as u64);
        unmap(start, bytes);
        Ok(())
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: usize) {
        let pass = gate("cuMemcpyHtoDAsync_v2")?;
        let from = from.expose_provenance();
        copy::submit(pass, Transfer::linear(Direction::In, to, from, bytes), stream)
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        let pass = gate("cuMemcpyDtoHAsync_v2")?;
        let to = to.expose_provenance();
        copy::submit(pass, Transfer::linear(Direction::Out, from, to, bytes), stream)
    }

    fn cuMemcpy2DAsync_v2(what: *const Memcpy2d, stream: usize) {
        let pass = gate("cuMemcpy2DAsync_v2")?;
        if what.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the API's contract: a valid pointer (null was refused).
        let transfer = unsafe { (*what).decode() }?;
        copy::submit(pass, transfer, stream)
    }

    fn cuMemsetD2D32Async(
        to: u64, pitch: usize, word: c_uint, words: usize, rows: usize, stream: usize,
    ) {
        let pass = gate("cuMemsetD2D32Async")?;
        copy::fill(pass, copy::Fill { to, pitch, word, words, rows }, stream)
    }

    fn cuStreamCreate(stream: *mut usize, flags: c_uint) {
        let mut pass = gate("cuStreamCreate")?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let handle = pass.state.handle();
        pass.state.streams.insert(handle, StreamState::start());
        pass.born(Object::Stream, handle as u64, 0);
        // SAFETY: as above.
        unsafe { give(stream, handle) }
    }

    /// Work that is queued still runs; the handle is gone at once.
    fn cuStreamDestroy_v2(stream: usize) {
        let mut pass = gate("cuStreamDestroy_v2")?;
        let found = find_stream(&mut pass, stream)?;
        found.close();
        pass.state.ending.retain(|other| !other.has_ended());
        pass.state.ending.push(found);
        pass.state.streams.remove(&stream);
        pass.state.registry.died(stream as u64);
        Ok(())
    }

    fn cuStreamQuery(stream: usize) {
        let mut pass = gate("cuStreamQuery")?;
        let stream = find_stream(&mut pass, stream)?;
        let idle = stream.is_idle();
        if pass.is_ignored(!idle) || idle { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuStreamSynchronize(stream: usize) {
        let mut pass = gate("cuStreamSynchronize")?;
        let stream = find_stream(&mut pass, stream)?;
        let ignored = pass.is_ignored(!stream.is_idle());
        drop(pass);
        if !ignored {
            stream.drain();
        }
        state::unless_lost()
    }

    fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) {
        let mut pass = gate("cuStreamWaitEvent")?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let stream = find_stream(&mut pass, stream)?;
        let event = find_event(&mut pass, event)?;
        pass.concerns(&event);
        let number = event.asked();
        pass.believe(&event);
        if number > 0 && !pass.is_ignored(!event.happened()) && !event.lies() {
            stream.push(queued(pass.fault, Task::Wait(event, number)));
        }
        Ok(())
    }

    fn cuEventCreate(to: *mut usize, flags: c_uint) {
        let mut pass = gate("cuEventCreate")?;
        if flags & !3 != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = pass.state.handle();
        pass.state.events_made += 1;
        let event = EventState::new(pass.state.events_made, flags & 2 == 0);
        pass.state.events.insert(handle, Arc::new(event));
        pass.born(Object::Event, handle as u64, 0);
        // SAFETY: as above.
        unsafe { give(to, handle) }
    }

    fn cuEventDestroy_v2(event: usize) {
        let mut pass = gate("cuEventDestroy_v2")?;
        find_event(&mut pass, event)?;
        pass.state.events.remove(&event);
        pass.state.registry.died(event as u64);
        Ok(())
    }

    fn cuEventRecord(event: usize, stream: usize) {
        let mut pass = gate("cuEventRecord")?;
        let stream = find_stream(&mut pass, stream)?;
        let event = find_event(&mut pass, event)?;
        pass.concerns(&event);
        let number = event.ask();
        // An ignored one is counted when somebody believes it.
        if pass.is_ignored(false) {
            if stream.is_idle() {
                event.complete(number);
                return Ok(());
            }
            event.pretend(number);
        }
        stream.push(queued(pass.fault, Task::Record(event, number)));
        Ok(())
    }

    fn cuEventQuery(event: usize) {
        let mut pass = gate_free("cuEventQuery")?;
        let event = find_event(&mut pass, event)?;
        pass.concerns(&event);
        let happened = event.happened();
        pass.believe(&event);
        if pass.is_ignored(!happened) || happened { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuEventSynchronize(event: usize) {
        let mut pass = gate_free("cuEventSynchronize")?;
        let event = find_event(&mut pass, event)?;
        pass.concerns(&event);
        let ignored = pass.is_ignored(!event.happened());
        pass.believe(&event);
        drop(pass);
        if !ignored && !event.lies() {
            event.await_number(event.asked());
        }
        state::unless_lost()
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) {
        let mut pass = gate_free("cuEventElapsedTime")?;
        let (from, to) = (find_event(&mut pass, from)?, find_event(&mut pass, to)?);
        if !from.timed || !to.timed || from.asked() == 0 || to.asked() == 0 {
            return Err(INVALID_HANDLE);
        }
        let (Some(from), Some(to)) = (from.time(), to.time()) else { return Err(NOT_READY) };
        let elapsed = to.saturating_duration_since(from).as_secs_f64() * 1e3;
        // SAFETY: as above.
        unsafe { give(milliseconds, elapsed as f32) }
    }
}

fn check_device(state: &State, device: c_int) -> Result<(), u32> {
    let known = u32::try_from(device).is_ok_and(|device| device < state.devices);
    if known { Ok(()) } else { Err(INVALID_DEVICE) }
}

/// The default stream is not simulated: its implicit order with all others is a trap of its own, and
/// nothing of ours uses it.
pub fn find_stream(pass: &mut Pass, stream: usize) -> Result<Arc<StreamState>, u32> {
    let found = pass.state.streams.get(&stream).map(Arc::clone);
    if found.is_none() {
        pass.missing(Object::Stream, stream as u64);
    }
    found.ok_or(INVALID_HANDLE)
}

fn find_event(pass: &mut Pass, event: usize) -> Result<Arc<EventState>, u32> {
    let found = pass.state.events.get(&event).map(Arc::clone);
    if found.is_none() {
        pass.missing(Object::Event, event as u64);
    }
    found.ok_or(INVALID_HANDLE)
}

/// The task, or what a fault makes of it.
pub fn queued(fault: Option<Kind>, task: Task) -> Task {
    match fault {
        Some(Kind::Late) => Task::Run(Load::Mark, Box::new(|| Err("lost on demand".into()))),
        Some(Kind::Hang) => Task::Hang,
        _ => task,
    }
}

/// Gives host memory back.
pub fn unmap(start: usize, bytes: usize) {
    let memory = core::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: a mapping of cuMemAllocHost that has just left the table.
    unsafe { libc::munmap(memory, bytes) };
}
