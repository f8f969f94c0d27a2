//! The started device: context, lanes (stream and cuBLAS handle), memory, staging, health, statistics.
//!
//! Everything is created once and lives until an explicit shutdown: no destructor calls CUDA, because at
//! process exit the driver may be gone already, and in a forked child nothing of it may be touched.

use crate::error::{CudaError, StartError};
use crate::memory::{Block, Budget, Pool};
use crate::result::{BlasHandle, Context, Cuda, Entered, Event, Stream};
use crate::scratch::ScratchPool;
use crate::solver::{Solver, SolverHandle};
use crate::staging::{self, Staging};
use crate::testing::{self, Gate};
use crate::{DeviceInfo, StartOptions, loader, sys};
use call::{Failure, Op};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most calls on the device at a time; more wait. A lane costs a stream and a cuBLAS handle, and is made
/// when a call finds none free. Chosen: the callers of the case with most threads.
const MAX_LANES: usize = 16;

/// Most steps of one call whose kernels are in flight. A step's kernels take at least tens of microseconds,
/// and the next ones are launched in less than ten.
pub const STEPS_IN_FLIGHT: usize = 16;

/// How long one wait for the device may last, besides the time of the work itself.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Rate in flop/s that a device is at least given credit for when a wait is limited: the slowest GPUs'
/// double-precision rate (a 64th of 7 Tflop/s) is just above it.
const SLOWEST_FLOPS_PER_S: f64 = 1e11;

/// Workspace of cuBLAS in bytes. Source: cuBLAS documentation, cublasSetWorkspace: 32 MiB for compute
/// capability 9.0, 4 MiB before. Newer ones are given the larger.
const WORKSPACE_BYTES: u64 = 32 << 20;
const WORKSPACE_BEFORE_9_BYTES: u64 = 4 << 20;

/// Whether the device may still be used.
pub struct Health {
    lost: AtomicBool,
    why: Mutex<String>,
    /// A forked child must not touch CUDA.
    pid: u32,
}

impl Health {
    /// Of a device that this process has just started.
    pub fn new() -> Self {
        let why = Mutex::new(String::new());
        Self {
            lost: AtomicBool::new(false),
            why,
            pid: std::process::id(),
        }
    }

    /// Refuses if the device is lost or this is a forked child.
    pub fn check(&self) -> Result<(), Failure> {
        if self.pid != std::process::id() {
            return Err(Failure::Lost("CUDA does not survive fork".into()));
        }
        if self.lost.load(Ordering::Acquire) {
            return Err(Failure::Lost(self.why.lock().clone()));
        }
        Ok(())
    }

    /// Remembers a fatal error, and says what any error means for the call.
    pub fn note(&self, error: &CudaError) -> Failure {
        match error.failure() {
            Failure::Lost(why) => self.lose(why),
            other => other,
        }
    }

    /// As [`Health::note`], for an error of cuBLAS, which does not say whether the device still lives:
    /// the state of `event` does.
    pub fn note_blas(&self, cuda: &Cuda, event: Event, error: &CudaError) -> Failure {
        match cuda.happened(event) {
            Err(driver) if driver.is_fatal() => self.lose(format!("{error}, and then {driver}")),
            _ => self.note(error),
        }
    }

    /// Gives the device up. The first reason is kept.
    pub fn lose(&self, why: String) -> Failure {
        let mut kept = self.why.lock();
        if !self.lost.load(Ordering::Acquire) {
            *kept = why;
            self.lost.store(true, Ordering::Release);
        }
        Failure::Lost(kept.clone())
    }
}

/// What one call uses besides memory: a stream, a cuBLAS handle on it, events.
pub struct Lane {
    /// The stream.
    pub stream: Stream,
    /// The handle.
    pub handle: BlasHandle,
    /// A handle of cuSOLVER on it; made when the first call of LAPACK needs one.
    pub solver: Option<SolverHandle>,
    /// Begin and end of the kernels of the steps in flight, used in turn; made when first needed.
    marks: Vec<(Event, Event)>,
}

impl Lane {
    fn new(cuda: &Cuda) -> Result<Self, CudaError> {
        let stream = cuda.stream()?;
        let handle = match cuda.blas_handle(stream) {
            Ok(handle) => handle,
            Err(e) => {
                // SAFETY: nobody else has seen the stream. Its own error adds nothing to `e`.
                let _ = unsafe { cuda.destroy_stream(stream) };
                return Err(e);
            }
        };
        let mut lane = Self {
            stream,
            handle,
            solver: None,
            marks: Vec::new(),
        };
        // The first one at once: a call that failed is waited for with it.
        match lane.mark(cuda, 0) {
            Ok(_) => Ok(lane),
            Err(e) => {
                lane.destroy(cuda, None);
                Err(e)
            }
        }
    }

    /// The events of the step with this number.
    pub fn mark(&mut self, cuda: &Cuda, step: usize) -> Result<(Event, Event), CudaError> {
        let number = step % STEPS_IN_FLIGHT;
        while self.marks.len() <= number {
            let begin = cuda.event(true)?;
            match cuda.event(true) {
                Ok(end) => self.marks.push((begin, end)),
                Err(e) => {
                    // SAFETY: nobody else has seen the event. Its own error adds nothing to `e`.
                    let _ = unsafe { cuda.destroy_event(begin) };
                    return Err(e);
                }
            }
        }
        Ok(self.marks[number])
    }

    /// `solver` made the lane's cuSOLVER handle, if it has one.
    fn destroy(self, cuda: &Cuda, solver: Option<&Solver>) {
        if let (Some(handle), Some(solver)) = (self.solver, solver) {
            // SAFETY: the lane is idle and nobody else holds its handles.
            unsafe { solver.destroy(handle) };
        }
        let events: Vec<Event> = self
            .marks
            .iter()
            .flat_map(|&(from, to)| [from, to])
            .collect();
        destroy_lane(cuda, self.stream, self.handle, &events);
    }
}

/// Errors are ignored: this runs when a start failed or at shutdown, and there is nothing left to do.
fn destroy_lane(cuda: &Cuda, stream: Stream, handle: BlasHandle, events: &[Event]) {
    // SAFETY: the lane is idle (its last call has settled) and nobody else holds its handles.
    unsafe {
        let _ = cuda.destroy_blas_handle(handle);
        for &event in events {
            let _ = cuda.destroy_event(event);
        }
        let _ = cuda.destroy_stream(stream);
    }
}

struct Lanes {
    free: Vec<Lane>,
    made: usize,
    /// Falls below [`MAX_LANES`] when another lane could not be made.
    most: usize,
}

/// Calls and kernels of one family.
#[derive(Default)]
pub struct FamilyCount {
    /// Calls whose kernels were all launched.
    pub calls: AtomicU64,
    /// Kernels launched.
    pub kernels: AtomicU64,
}

/// Calls and kernels by family.
pub struct Counts {
    families: [FamilyCount; FAMILIES],
    other: FamilyCount,
}

/// Every family of level-3 BLAS and LAPACK.
pub const FAMILIES: usize = Op::ALL.len();

impl Default for Counts {
    fn default() -> Self {
        Self {
            families: core::array::from_fn(|_| FamilyCount::default()),
            other: FamilyCount::default(),
        }
    }
}

impl Counts {
    /// Those of a family.
    pub fn of(&self, op: Op) -> &FamilyCount {
        let number = (op as usize).wrapping_sub(Op::Gemm as usize);
        self.families.get(number).unwrap_or(&self.other)
    }
}

/// Everything.
pub struct Device {
    /// The functions.
    pub cuda: Arc<Cuda>,
    /// Its context.
    pub context: Context,
    /// Whether it may be used.
    pub health: Arc<Health>,
    /// What it is.
    pub info: DeviceInfo,
    /// Its memory.
    pub pool: Arc<Pool>,
    /// Host memory for results that wait for the end of their call.
    pub scratch: Arc<ScratchPool>,
    /// The threads.
    pub staging: Staging,
    /// Statistics.
    pub counts: Counts,
    ordinal: sys::CUdevice,
    /// Where cuSOLVER is, until it is opened.
    solver_source: Mutex<Option<(PathBuf, Option<sys::Extensions>)>>,
    solver: OnceLock<Option<Solver>>,
    lanes: Mutex<Lanes>,
    lane_changed: Condvar,
    housekeeper: Mutex<Option<JoinHandle<()>>>,
    wait_limit_ms: AtomicU64,
}

impl Device {
    /// Loads the libraries and starts the device.
    ///
    /// # Errors
    /// [`StartError`]; nothing but loaded libraries is left behind.
    pub fn start(options: &StartOptions) -> Result<Self, StartError> {
        let loaded = loader::load(options)?;
        let cuda = Arc::new(Cuda::new(loaded.driver, loaded.blas, loaded.level3));
        // What cuInit says on a machine without a GPU, and in a child whose parent has called it.
        const NO_DEVICE: u32 = 100;
        const NOT_INITIALIZED: u32 = 3;
        let none = || StartError::NoDevice {
            device: options.device,
            count: 0,
        };
        match cuda.init() {
            Err(e) if e.code == NO_DEVICE => return Err(none()),
            Err(e) if e.code == NOT_INITIALIZED => return Err(StartError::Forked),
            other => other?,
        }
        let count = cuda.device_count()?;
        if options.device >= count {
            return Err(StartError::NoDevice {
                device: options.device,
                count,
            });
        }
        let ordinal = cuda.device(options.device)?;
        let info = DeviceInfo {
            name: cuda.device_name(ordinal)?,
            uuid: cuda.device_uuid(ordinal)?,
            driver_version: loaded.driver_version,
            compute_capability: (
                cuda.attribute(ordinal, sys::ATTRIBUTE_CC_MAJOR)?,
                cuda.attribute(ordinal, sys::ATTRIBUTE_CC_MINOR)?,
            ),
            sm_count: cuda.attribute(ordinal, sys::ATTRIBUTE_SM_COUNT)?,
            clock_khz: cuda.attribute(ordinal, sys::ATTRIBUTE_CLOCK_KHZ)?,
            memory_bytes: cuda.total_memory_bytes(ordinal)?,
            cublas_version: 0,
            libraries: loaded.paths,
        };
        let context = cuda.retain_primary(ordinal)?;
        let started = Self::start_in_context(options, Arc::clone(&cuda), ordinal, context, info);
        started
            .inspect(|device| *device.solver_source.lock() = loaded.solver)
            .inspect_err(|_| {
                // SAFETY: `start_in_context` left nothing behind. Its own error adds nothing.
                let _ = unsafe { cuda.release_primary(ordinal) };
            })
    }

    fn start_in_context(
        options: &StartOptions,
        cuda: Arc<Cuda>,
        ordinal: sys::CUdevice,
        context: Context,
        mut info: DeviceInfo,
    ) -> Result<Self, StartError> {
        let health = Arc::new(Health::new());
        let cuda_here = Arc::clone(&cuda);
        let _entered = cuda_here.enter(context)?;
        let lane = Lane::new(&cuda)?;
        let version = cuda.blas_version(&lane.handle);
        let staging = version.and_then(|version| {
            info.cublas_version = version;
            Staging::start(&cuda, context, &health, options.staging())
        });
        let staging = match staging {
            Ok(staging) => staging,
            Err(e) => {
                lane.destroy(&cuda, None);
                return Err(e.into());
            }
        };
        let reserve = info.memory_bytes as f64 * options.reserve_fraction.clamp(0.0, 1.0);
        let pool = Arc::new(Pool::new(Budget {
            limit_bytes: options.memory_limit_bytes.unwrap_or(u64::MAX),
            reserve_bytes: reserve as u64,
        }));
        let scratch = Arc::new(ScratchPool::default());
        // Without this thread the pools keep their blocks, which is a cost and no fault.
        let housekeeper = {
            let (pool, cuda) = (Arc::clone(&pool), Arc::clone(&cuda));
            let (health, scratch) = (Arc::clone(&health), Arc::clone(&scratch));
            let body = move || pool.keep_house(&cuda, context, &health, &scratch);
            staging::spawn("gpu-idle", body).ok()
        };
        Ok(Self {
            cuda,
            context,
            health,
            info,
            pool,
            scratch,
            staging,
            counts: Counts::default(),
            ordinal,
            solver_source: Mutex::new(None),
            solver: OnceLock::new(),
            lanes: Mutex::new(Lanes {
                free: vec![lane],
                made: 1,
                most: MAX_LANES,
            }),
            lane_changed: Condvar::new(),
            housekeeper: Mutex::new(housekeeper),
            wait_limit_ms: AtomicU64::new(WAIT_LIMIT.as_millis() as u64),
        })
    }

    /// Makes the context current until the guard is dropped.
    pub fn enter(&self) -> Result<Entered<'_>, Failure> {
        self.health.check()?;
        self.cuda
            .enter(self.context)
            .map_err(|e| self.health.note(&e))
    }

    /// How long one wait may last in a call of `flops` flops.
    pub fn limit(&self, flops: f64) -> Duration {
        let base = Duration::from_millis(self.wait_limit_ms.load(Ordering::Relaxed));
        base + Duration::from_secs_f64((flops / SLOWEST_FLOPS_PER_S).min(1e6))
    }

    /// Changes the fixed part of [`Device::limit`].
    pub fn set_wait_limit(&self, limit: Duration) {
        self.wait_limit_ms
            .store(limit.as_millis() as u64, Ordering::Relaxed);
    }

    /// Bytes of cuBLAS's workspace.
    pub fn workspace_bytes(&self) -> u64 {
        testing::workspace_bytes(if self.info.compute_capability.0 >= 9 {
            WORKSPACE_BYTES
        } else {
            WORKSPACE_BEFORE_9_BYTES
        })
    }

    /// cuSOLVER, opened now if nobody has asked before.
    ///
    /// # Errors
    /// `Unsupported` where there is none that can be used.
    pub fn solver(&self) -> Result<&Solver, Failure> {
        let open = || {
            let (path, extensions) = self.solver_source.lock().take()?;
            loader::load_solver(&path, extensions).ok()
        };
        let solver = self.solver.get_or_init(open).as_ref();
        solver.ok_or(Failure::Unsupported(
            "cuSOLVER is missing or lacks a function",
        ))
    }

    /// A lane and a block of device memory for one call whose waits last at most `limit`. The context is
    /// current.
    pub fn begin(&self, bytes: u64, limit: Duration) -> Result<Work<'_>, Failure> {
        // The lane first: a call that waits for one holds no memory meanwhile.
        let mut work = self.begin_lane(limit)?;
        work.take_block(bytes)?;
        Ok(work)
    }

    /// As [`Device::begin`], without memory as yet.
    pub fn begin_lane(&self, limit: Duration) -> Result<Work<'_>, Failure> {
        let lane = self.take_lane()?;
        Ok(Work {
            device: self,
            lane: Some(lane),
            block: None,
            limit,
            settled: true,
        })
    }

    fn take_lane(&self) -> Result<Lane, Failure> {
        let mut lanes = self.lanes.lock();
        loop {
            self.health.check()?;
            if let Some(lane) = lanes.free.pop() {
                return Ok(lane);
            }
            if lanes.made < lanes.most {
                lanes.made += 1;
                drop(lanes);
                let made = Lane::new(&self.cuda);
                lanes = self.lanes.lock();
                match made {
                    Ok(lane) => return Ok(lane),
                    Err(e) => {
                        lanes.made -= 1;
                        let failure = self.health.note(&e);
                        if lanes.made == 0 || matches!(failure, Failure::Lost(_)) {
                            return Err(failure);
                        }
                        // The lanes that exist will do.
                        lanes.most = lanes.made;
                    }
                }
            } else {
                self.lane_changed.wait(&mut lanes);
            }
        }
    }

    fn put_lane(&self, lane: Option<Lane>) {
        if let Some(lane) = lane {
            self.lanes.lock().free.push(lane);
            self.lane_changed.notify_one();
        } else {
            // The device is lost: everybody who waits must see that.
            let _lanes = self.lanes.lock();
            self.lane_changed.notify_all();
        }
    }

    /// Ends the threads and gives everything back, as far as the device still answers.
    pub fn shutdown(&self) {
        self.pool.stop();
        if let Some(handle) = self.housekeeper.lock().take() {
            let _ = handle.join();
        }
        let entered = self.enter().or_else(|_| self.enter());
        self.staging.shutdown();
        self.scratch.clear();
        if entered.is_err() || self.health.check().is_err() {
            return;
        }
        let lanes = core::mem::take(&mut self.lanes.lock().free);
        for lane in lanes {
            lane.destroy(&self.cuda, self.solver.get().and_then(Option::as_ref));
        }
        let _ = self.pool.trim(&*self.cuda, &self.health, 0);
        drop(entered);
        // SAFETY: lanes, blocks, chunks and streams are gone, and `Gpu::shutdown` consumed the backend.
        let _ = unsafe { self.cuda.release_primary(self.ordinal) };
    }
}

/// The lane and the memory of one call. Dropped, it waits until the device is done with both.
pub struct Work<'d> {
    /// The device.
    pub device: &'d Device,
    lane: Option<Lane>,
    block: Option<Block>,
    /// How long one wait may last.
    limit: Duration,
    /// Nothing queued uses lane or block any more.
    settled: bool,
}

impl<'d> Work<'d> {
    /// The lane.
    pub fn lane(&self) -> &Lane {
        self.lane.as_ref().expect("a lane is held until drop")
    }

    /// The lane and its cuSOLVER handle, which is made now if there is none.
    ///
    /// # Errors
    /// The function that failed.
    pub fn solver_lane(&mut self, solver: &Solver) -> Result<&mut Lane, CudaError> {
        let lane = self.lane.as_mut().expect("a lane is held until drop");
        if lane.solver.is_none() {
            lane.solver = Some(solver.handle(lane.stream)?);
        }
        Ok(lane)
    }

    /// Takes a block of device memory, instead of the one that it may have.
    ///
    /// # Errors
    /// `OutOfMemory`, or what the driver said.
    pub fn take_block(&mut self, bytes: u64) -> Result<(), Failure> {
        let device = self.device;
        if let Some(block) = self.block.take() {
            device.pool.put(block);
        }
        self.block = Some(device.pool.take(&*device.cuda, &device.health, bytes)?);
        Ok(())
    }

    /// Events of a step.
    pub fn mark(&mut self, step: usize) -> Result<(Event, Event), CudaError> {
        let lane = self.lane.as_mut().expect("a lane is held until drop");
        lane.mark(&self.device.cuda, step)
    }

    /// First address of the memory.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.address)
    }

    /// Something will be queued that uses lane or block.
    pub fn unsettle(&mut self) {
        self.settled = false;
    }

    /// Everything that was queued has been seen to be over.
    pub fn settle(&mut self) {
        self.settled = true;
    }

    /// Waits for everything that may use lane or block.
    fn quiesce(&self) -> Result<(), Failure> {
        let device = self.device;
        // Memory that may still be written must not be lent again: what cannot be waited for is lost,
        // and the device with it, or callers would wait for its lane for ever. Entering is asked for twice, since
        // its refusal says nothing about the work.
        let _entered = device
            .enter()
            .or_else(|_| device.enter())
            .map_err(|failure| device.health.lose(failure.to_string()))?;
        let limit = self.limit;
        let lane = self.lane();
        let wait = || -> Result<(), CudaError> {
            for event in device.staging.events() {
                let runs = || !device.cuda.happened(event).unwrap_or(true);
                if !testing::left_out(Gate::LendAfterTransfers, runs) {
                    device.cuda.wait(event, limit)?;
                }
            }
            if testing::left_out(Gate::LendAfterKernels, || true) {
                return Ok(());
            }
            let end = lane.marks[0].1;
            device.cuda.record(end, lane.stream)?;
            device.cuda.wait(end, limit)
        };
        wait().map_err(|e| device.health.lose(e.to_string()))
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.settled && self.quiesce().is_err() {
            // Lost: lane and block are leaked with the device. The lane's host memory too, which a kernel that nobody
            // has seen the end of may still write.
            core::mem::forget(self.lane.take());
            self.device.put_lane(None);
            return;
        }
        if let Some(block) = self.block.take() {
            self.device.pool.put(block);
        }
        self.device.put_lane(self.lane.take());
    }
}
