//! The CUDA functions with Rust arguments and results: no policy, no state, no panic.
//!
//! Unsafe lives here because every foreign call is; handles are newtypes that only this file makes, so
//! a function that takes one is safe as long as nothing is destroyed early, and destroying is `unsafe`.

use crate::error::{CudaError, Origin};
use crate::staging::with_signals_blocked;
use crate::sys::{self, Blas, Code, Driver, Level3};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use std::time::{Duration, Instant};

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub(crate) $raw);
        // SAFETY: the driver API documents its handles as usable from every thread of the process.
        unsafe impl Send for $name {}
        // SAFETY: as for Send; the driver locks what it must.
        unsafe impl Sync for $name {}
    };
}

handle!(
    /// A context.
    Context(sys::CUcontext)
);
handle!(
    /// A stream: work in it runs in order.
    Stream(sys::CUstream)
);
handle!(
    /// A point in a stream.
    Event(sys::CUevent)
);

/// A cuBLAS handle: one thread at a time.
#[derive(Debug)]
pub struct BlasHandle(pub(crate) sys::cublasHandle_t);
// SAFETY: cuBLAS allows a handle to be used by several threads one after the other.
unsafe impl Send for BlasHandle {}

/// Address in device memory; arithmetic on it is plain, the host never follows it.
pub type DeviceAddress = u64;

/// Both libraries.
pub struct Cuda {
    driver: Driver,
    pub(crate) blas: Blas,
    pub(crate) level3: Level3,
}

/// The driver's name of a code.
pub fn driver_code_name(driver: &Driver, code: Code) -> String {
    let mut name: *const c_char = ptr::null();
    // SAFETY: cuGetErrorName takes any number and writes a pointer to a static string, or null.
    let found = unsafe { (driver.cuGetErrorName)(code, &raw mut name) };
    if found != sys::SUCCESS || name.is_null() {
        return "a code that this driver does not name".into();
    }
    // SAFETY: not null, so it is one of the driver's static strings.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// A wait spins (yielding the processor) for this long before it sleeps: a chunk of 2 MiB takes 40 to
/// 350 microseconds on PCIe 5 (2026-12-01, H200), so a running transfer is never slept through.
const SPIN: Duration = Duration::from_millis(1);

/// Length of one sleep of a wait, a twentieth of [`SPIN`].
const SLEEP: Duration = Duration::from_micros(50);

/// Pause between two questions of a spinning wait: every question takes the driver's lock, which the
/// threads that queue transfers need. 8 + 8 threads that asked every 10 microseconds moved 38 GB/s each
/// way, every 30 microseconds 43.5 (2026-12-01, H200, chunks of 2 MiB).
pub const ASK_PAUSE: Duration = Duration::from_micros(10);

/// Spins for `pause`, with one chance for another thread of this processor.
pub fn pause(pause: Duration) {
    let start = Instant::now();
    std::thread::yield_now();
    while start.elapsed() < pause {
        core::hint::spin_loop();
    }
}

impl Cuda {
    /// The function tables.
    pub fn new(driver: Driver, blas: Blas, level3: Level3) -> Self {
        Self {
            driver,
            blas,
            level3,
        }
    }

    fn driver(&self, function: &'static str, code: Code) -> Result<(), CudaError> {
        if code == sys::SUCCESS {
            return Ok(());
        }
        let name = driver_code_name(&self.driver, code);
        Err(CudaError {
            function,
            code,
            name,
            origin: Origin::Driver,
        })
    }

    pub(crate) fn blas(&self, function: &'static str, code: Code) -> Result<(), CudaError> {
        CudaError::check(function, code, Origin::Blas, sys::blas_code_name)
    }

    /// Starts the driver in this process.
    pub fn init(&self) -> Result<(), CudaError> {
        // SAFETY: flags must be 0.
        self.driver("cuInit", unsafe { (self.driver.cuInit)(0) })
    }

    /// Number of devices.
    pub fn device_count(&self) -> Result<u32, CudaError> {
        let mut count: c_int = 0;
        // SAFETY: writes one int.
        let code = unsafe { (self.driver.cuDeviceGetCount)(&raw mut count) };
        self.driver("cuDeviceGetCount", code)?;
        Ok(count.max(0).unsigned_abs())
    }

    /// Device by number.
    pub fn device(&self, number: u32) -> Result<sys::CUdevice, CudaError> {
        let mut device: sys::CUdevice = 0;
        let number = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: writes one int; a number out of range is an error code.
        let code = unsafe { (self.driver.cuDeviceGet)(&raw mut device, number) };
        self.driver("cuDeviceGet", code)?;
        Ok(device)
    }

    /// Its name.
    pub fn device_name(&self, device: sys::CUdevice) -> Result<String, CudaError> {
        let mut name = [0u8; 256];
        // SAFETY: writes at most 256 bytes, its terminator included.
        let code = unsafe {
            (self.driver.cuDeviceGetName)(name.as_mut_ptr().cast::<c_char>(), 256, device)
        };
        self.driver("cuDeviceGetName", code)?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Its UUID, as `nvidia-smi -L` prints it.
    pub fn device_uuid(&self, device: sys::CUdevice) -> Result<String, CudaError> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes.
        let code = unsafe { (self.driver.cuDeviceGetUuid)(&raw mut uuid, device) };
        self.driver("cuDeviceGetUuid", code)?;
        let mut text = String::from("GPU");
        for (i, byte) in uuid.bytes.iter().enumerate() {
            if matches!(i, 0 | 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{:02x}", byte.cast_unsigned()));
        }
        Ok(text)
    }

    /// One of its attributes.
    pub fn attribute(&self, device: sys::CUdevice, attribute: c_int) -> Result<u32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: writes one int; an unknown attribute is an error code.
        let code = unsafe { (self.driver.cuDeviceGetAttribute)(&raw mut value, attribute, device) };
        self.driver("cuDeviceGetAttribute", code)?;
        Ok(value.max(0).unsigned_abs())
    }

    /// Its memory in bytes.
    pub fn total_memory_bytes(&self, device: sys::CUdevice) -> Result<u64, CudaError> {
        let mut bytes = 0usize;
        // SAFETY: writes one size_t.
        let code = unsafe { (self.driver.cuDeviceTotalMem_v2)(&raw mut bytes, device) };
        self.driver("cuDeviceTotalMem_v2", code)?;
        Ok(bytes as u64)
    }

    /// Takes a share of the device's primary context.
    pub fn retain_primary(&self, device: sys::CUdevice) -> Result<Context, CudaError> {
        let mut context = ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (self.driver.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        self.driver("cuDevicePrimaryCtxRetain", code)?;
        Ok(Context(context))
    }

    /// Gives the share back.
    ///
    /// # Safety
    /// Nothing of ours uses the context afterwards.
    pub unsafe fn release_primary(&self, device: sys::CUdevice) -> Result<(), CudaError> {
        // SAFETY: the caller retained it once and is done with it.
        let code = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(device) };
        self.driver("cuDevicePrimaryCtxRelease_v2", code)
    }

    /// Makes `context` current on this thread until the guard is dropped; whatever was current before
    /// is current again then.
    pub fn enter(&self, context: Context) -> Result<Entered<'_>, CudaError> {
        // SAFETY: the context is retained as long as the backend lives.
        let code = unsafe { (self.driver.cuCtxPushCurrent_v2)(context.0) };
        self.driver("cuCtxPushCurrent_v2", code)?;
        Ok(Entered {
            cuda: self,
            this_thread: core::marker::PhantomData,
        })
    }

    /// (free, total) bytes of the current device.
    pub fn memory_bytes(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two size_t.
        let code = unsafe { (self.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.driver("cuMemGetInfo_v2", code)?;
        Ok((free as u64, total as u64))
    }

    /// Device memory.
    pub fn alloc(&self, bytes: usize) -> Result<DeviceAddress, CudaError> {
        let mut address: sys::CUdeviceptr = 0;
        // SAFETY: writes one address.
        let code = unsafe { (self.driver.cuMemAlloc_v2)(&raw mut address, bytes) };
        self.driver("cuMemAlloc_v2", code)?;
        Ok(address)
    }

    /// Gives device memory back.
    ///
    /// # Safety
    /// `address` came from [`Cuda::alloc`] and no queued work uses it.
    pub unsafe fn free(&self, address: DeviceAddress) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver("cuMemFree_v2", unsafe {
            (self.driver.cuMemFree_v2)(address)
        })
    }

    /// Pinned host memory.
    pub fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, CudaError> {
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: writes one pointer.
        let code = unsafe { (self.driver.cuMemAllocHost_v2)(&raw mut memory, bytes) };
        self.driver("cuMemAllocHost_v2", code)?;
        Ok(memory.cast())
    }

    /// Gives pinned memory back.
    ///
    /// # Safety
    /// `memory` came from [`Cuda::alloc_pinned`] and nothing uses it any more.
    pub unsafe fn free_pinned(&self, memory: *mut u8) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver("cuMemFreeHost", unsafe {
            (self.driver.cuMemFreeHost)(memory.cast())
        })
    }

    /// A stream that does not wait for the host program's default stream. The driver may start threads for
    /// it, and the calling thread may be the host's.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        let mut stream = ptr::null_mut();
        // SAFETY: writes one handle.
        let code = with_signals_blocked(|| unsafe {
            (self.driver.cuStreamCreate)(&raw mut stream, sys::STREAM_NON_BLOCKING)
        });
        self.driver("cuStreamCreate", code)?;
        Ok(Stream(stream))
    }

    /// Destroys a stream.
    ///
    /// # Safety
    /// Nobody uses it afterwards.
    pub unsafe fn destroy_stream(&self, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver("cuStreamDestroy_v2", unsafe {
            (self.driver.cuStreamDestroy_v2)(stream.0)
        })
    }

    /// An event, with a clock or without.
    pub fn event(&self, timed: bool) -> Result<Event, CudaError> {
        let mut event = ptr::null_mut();
        let flags: c_uint = if timed {
            sys::EVENT_TIMED
        } else {
            sys::EVENT_UNTIMED
        };
        // SAFETY: writes one handle.
        let code = unsafe { (self.driver.cuEventCreate)(&raw mut event, flags) };
        self.driver("cuEventCreate", code)?;
        Ok(Event(event))
    }

    /// Destroys an event.
    ///
    /// # Safety
    /// Nobody uses it afterwards.
    pub unsafe fn destroy_event(&self, event: Event) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver("cuEventDestroy_v2", unsafe {
            (self.driver.cuEventDestroy_v2)(event.0)
        })
    }

    /// Puts `event` behind everything that is in `stream` now.
    pub fn record(&self, event: Event, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: both handles are live (this module's rule).
        let code = unsafe { (self.driver.cuEventRecord)(event.0, stream.0) };
        self.driver("cuEventRecord", code)
    }

    /// Lets later work of `stream` wait for the last recording of `event`, if there is one.
    pub fn stream_wait(&self, stream: Stream, event: Event) -> Result<(), CudaError> {
        // SAFETY: both handles are live (this module's rule); flags must be 0.
        let code = unsafe { (self.driver.cuStreamWaitEvent)(stream.0, event.0, 0) };
        self.driver("cuStreamWaitEvent", code)
    }

    /// True once everything before the last recording of `event` has run.
    pub fn happened(&self, event: Event) -> Result<bool, CudaError> {
        // SAFETY: the handle is live (this module's rule).
        match unsafe { (self.driver.cuEventQuery)(event.0) } {
            sys::NOT_READY => Ok(false),
            code => self.driver("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits for `event`, at most for `limit`: a device that does not answer must not hold the program.
    pub fn wait(&self, event: Event, limit: Duration) -> Result<(), CudaError> {
        self.wait_asking(event, limit, ASK_PAUSE)
    }

    /// As [`Cuda::wait`], asking every `ask_pause`.
    pub fn wait_asking(
        &self,
        event: Event,
        limit: Duration,
        ask_pause: Duration,
    ) -> Result<(), CudaError> {
        if self.happened(event)? {
            return Ok(());
        }
        let start = Instant::now();
        loop {
            if self.happened(event)? {
                return Ok(());
            }
            let waited = start.elapsed();
            if waited > limit {
                let name = format!("not ready after {:.0} s", waited.as_secs_f64());
                let code = sys::NOT_READY;
                let function = "cuEventQuery";
                return Err(CudaError {
                    function,
                    code,
                    name,
                    origin: Origin::Deadline,
                });
            }
            if waited < SPIN {
                pause(ask_pause);
            } else {
                std::thread::sleep(SLEEP);
            }
        }
    }

    /// Seconds between two timed events that have both happened.
    pub fn elapsed_s(&self, from: Event, to: Event) -> Result<f64, CudaError> {
        let mut milliseconds = 0f32;
        // SAFETY: both handles are live (this module's rule); writes one float.
        let code = unsafe { (self.driver.cuEventElapsedTime)(&raw mut milliseconds, from.0, to.0) };
        self.driver("cuEventElapsedTime", code)?;
        Ok(f64::from(milliseconds) * 1e-3)
    }

    /// Queues a copy to the device.
    ///
    /// # Safety
    /// `from` is pinned memory of `bytes` bytes that nobody writes or frees before the stream has
    /// passed this point; `to` has room for them.
    pub unsafe fn copy_in(
        &self,
        to: DeviceAddress,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.driver.cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, stream.0) };
        self.driver("cuMemcpyHtoDAsync_v2", code)
    }

    /// Queues a copy from the device.
    ///
    /// # Safety
    /// `to` is pinned memory of `bytes` bytes that nobody touches before the stream has passed this
    /// point.
    pub unsafe fn copy_out(
        &self,
        to: *mut u8,
        from: DeviceAddress,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.driver.cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, stream.0) };
        self.driver("cuMemcpyDtoHAsync_v2", code)
    }

    /// Queues a copy of `rows` runs of `row_bytes` bytes to the device.
    ///
    /// # Safety
    /// As for [`Cuda::copy_in`], for runs `from_pitch` and `to_pitch` bytes apart.
    pub unsafe fn copy_in_2d(
        &self,
        to: (DeviceAddress, usize),
        from: (*const u8, usize),
        (row_bytes, rows): (usize, usize),
        stream: Stream,
    ) -> Result<(), CudaError> {
        let mut copy = blank_2d((row_bytes, rows));
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (copy.srcHost, copy.srcPitch) = (from.0.cast(), from.1);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.dstDevice, copy.dstPitch) = to;
        // SAFETY: the caller's promise; the description is read during the call.
        let code = unsafe { (self.driver.cuMemcpy2DAsync_v2)(&raw const copy, stream.0) };
        self.driver("cuMemcpy2DAsync_v2", code)
    }

    /// Queues a copy of `rows` runs of `row_bytes` bytes from the device.
    ///
    /// # Safety
    /// As for [`Cuda::copy_out`], for runs `from_pitch` and `to_pitch` bytes apart.
    pub unsafe fn copy_out_2d(
        &self,
        to: (*mut u8, usize),
        from: (DeviceAddress, usize),
        (row_bytes, rows): (usize, usize),
        stream: Stream,
    ) -> Result<(), CudaError> {
        let mut copy = blank_2d((row_bytes, rows));
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.srcDevice, copy.srcPitch) = from;
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (copy.dstHost, copy.dstPitch) = (to.0.cast(), to.1);
        // SAFETY: the caller's promise; the description is read during the call.
        let code = unsafe { (self.driver.cuMemcpy2DAsync_v2)(&raw const copy, stream.0) };
        self.driver("cuMemcpy2DAsync_v2", code)
    }

    /// Queues the writing of one word of 32 bits into `rows` runs of `words` words, the starts of which are `pitch`
    /// bytes apart.
    ///
    /// # Safety
    /// The runs lie in device memory that stays allocated, and that no other work uses, until the stream has passed
    /// this point.
    pub unsafe fn fill_2d(
        &self,
        (to, pitch): (DeviceAddress, usize),
        word: u32,
        (words, rows): (usize, usize),
        stream: Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code =
            unsafe { (self.driver.cuMemsetD2D32Async)(to, pitch, word, words, rows, stream.0) };
        self.driver("cuMemsetD2D32Async", code)
    }
}

/// A copy of nothing in particular from nowhere to nowhere.
fn blank_2d((row_bytes, rows): (usize, usize)) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: row_bytes,
        Height: rows,
    }
}

/// A context that is current on this thread.
pub struct Entered<'a> {
    cuda: &'a Cuda,
    /// Not Send: the stack of contexts is the thread's.
    this_thread: core::marker::PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: pops what `enter` pushed on this thread (the guard is not Send). An error leaves
        // nothing to be done.
        let _ = unsafe { (self.cuda.driver.cuCtxPopCurrent_v2)(&raw mut context) };
    }
}
