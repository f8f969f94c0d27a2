//! The CUDA device behind `call::Backend`: loading, memory, staging, and the routines that run on it.
//!
//! The libraries are found and opened at run time, so that what links this crate loads on a machine
//! without any NVIDIA software. It must not know the cost model, must not print, must not panic out and
//! must not call CUDA from a destructor at exit.
//!
//! Layers: `sys` (the foreign functions), `result` and `kernel` (the same with Rust arguments), `device`
//! (what was started); `plan` turns a call into a program, `execute` runs it, `staging` moves its data.

mod copy;
mod device;
mod driver;
mod error;
mod execute;
mod host;
mod kernel;
mod lapack;
mod loader;
mod measure;
mod memory;
mod overlap;
mod pieces;
mod plan;
mod rank;
mod result;
mod scratch;
mod solver;
mod staging;
pub mod sync;
mod sys;
#[cfg(not(feature = "testing"))]
mod testing;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::StartError;
pub use kernel::Arithmetic;

use call::{Backend, Call, Failure, Op, Precision, Timing};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How the device is started and what it may use.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Number of the device, in the driver's order.
    pub device: u32,
    /// The most device memory that this process may hold.
    pub memory_limit_bytes: Option<u64>,
    /// Part of the device's memory that stays free for others, 0 to 1.
    pub reserve_fraction: f64,
    /// Threads that copy; 0 chooses the number of cores, 16 at most.
    pub staging_threads: u32,
    /// Most threads that copy to the device at a time; 0 chooses.
    pub uploads_max: u32,
    /// Most threads that copy from the device at a time; 0 chooses.
    pub downloads_max: u32,
    /// Bytes of a pinned chunk.
    pub chunk_bytes: usize,
    /// Pinned chunks of each thread, 1 at least.
    pub slots: u32,
    /// Results are written past the cache.
    pub streaming_stores: bool,
    /// The most pinned memory.
    pub pinned_max_bytes: usize,
    /// Folders that are searched before any other.
    pub library_dirs: Vec<PathBuf>,
}

/// Most staging threads that are started by default, and most of them in each direction. Measured on an H200
/// with 16 cores (2026-12-01, `level3_bench`, dgemm 4096 / 8192 in ms): 10 up and 6 down 7.3 / 28.0, 8 and 8
/// 7.3 / 29.7, 12 and 4 7.5 / 28.4, 12 and 8 7.5 / 28.2. One way, 10 threads move 47 to 50 GB/s in and 50
/// out; both ways at once 44 GB/s each.
const MOST_STAGING_THREADS: usize = 16;
/// See [`MOST_STAGING_THREADS`].
const UPLOADS_MAX: usize = 10;
/// See [`MOST_STAGING_THREADS`].
const DOWNLOADS_MAX: usize = 6;

/// Smallest chunk that is accepted; below it every transfer is latency.
const CHUNK_MIN_BYTES: usize = 64 << 10;

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            device: 0,
            memory_limit_bytes: None,
            // A tenth: what a framework beside us needs for its own next allocation. Chosen.
            reserve_fraction: 0.1,
            staging_threads: 0,
            uploads_max: 0,
            downloads_max: 0,
            // dgemm 8192 on an H200 (2026-12-01): chunks of 1 MiB 32.0 ms, 2 MiB 28.0, 4 MiB 28.6; two
            // slots 31.5 ms, three 28.0 (a slot is then mostly free when it is needed); stores past the
            // cache 28.9 ms, plain ones 30.9 (both ways at once: 44 and 34 GB/s each).
            chunk_bytes: 2 << 20,
            slots: 3,
            streaming_stores: true,
            pinned_max_bytes: 256 << 20,
            library_dirs: Vec::new(),
        }
    }
}

impl StartOptions {
    /// The staging pool's shape, within the bound on pinned memory.
    fn staging(&self) -> staging::Shape {
        let chunk_bytes = self.chunk_bytes.max(CHUNK_MIN_BYTES).next_multiple_of(4096);
        let slots = (self.slots.max(1) as usize).min(staging::SLOTS_MAX);
        let wanted = match self.staging_threads {
            0 => {
                let cores = std::thread::available_parallelism().map_or(2, usize::from);
                cores.clamp(1, MOST_STAGING_THREADS)
            }
            threads => threads as usize,
        };
        let most = (self.pinned_max_bytes / (slots * chunk_bytes)).min(staging::SLOTS_MAX / slots);
        let threads = wanted.min(most.max(1));
        // Fewer threads are shared in the same proportion.
        let or_default = |asked: u32, most: usize| match asked {
            0 => (threads * most).div_ceil(MOST_STAGING_THREADS).max(1),
            asked => asked as usize,
        };
        staging::Shape {
            threads,
            chunk_bytes,
            slots,
            uploads_max: or_default(self.uploads_max, UPLOADS_MAX),
            downloads_max: or_default(self.downloads_max, DOWNLOADS_MAX),
            streaming_stores: self.streaming_stores,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// Its UUID, as nvidia-smi prints it.
    pub uuid: String,
    /// Newest CUDA version that the driver serves: 1000 * major + 10 * minor.
    pub driver_version: u32,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub sm_count: u32,
    /// Their highest clock.
    pub clock_khz: u32,
    /// Memory of the device.
    pub memory_bytes: u64,
    /// cuBLAS's own version number.
    pub cublas_version: u32,
    /// Name and path of each library.
    pub libraries: Vec<(String, PathBuf)>,
}

/// Rates of moving ordinary memory through the staging pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferRates {
    /// Fixed cost of one transfer.
    pub latency_s: f64,
    /// To the device.
    pub in_bytes_per_s: f64,
    /// From the device, into memory that was touched before.
    pub out_bytes_per_s: f64,
}

/// What one family did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyCounters {
    /// Calls that ended with a result.
    pub calls: u64,
    /// Kernels launched.
    pub kernels: u64,
}

/// What the device did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    families: [FamilyCounters; device::FAMILIES],
    /// Bytes moved to the device.
    pub bytes_in: u64,
    /// Bytes moved from the device.
    pub bytes_out: u64,
    /// Calls of the driver's allocator.
    pub allocations: u64,
    /// Times that cached memory was given back.
    pub trims: u64,
    /// Device memory held now, in use or cached.
    pub held_bytes: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            families: [FamilyCounters::default(); device::FAMILIES],
            bytes_in: 0,
            bytes_out: 0,
            allocations: 0,
            trims: 0,
            held_bytes: 0,
        }
    }
}

impl Counters {
    /// Those of a family.
    pub fn of(&self, op: Op) -> FamilyCounters {
        let number = (op as usize).wrapping_sub(Op::Gemm as usize);
        self.families.get(number).copied().unwrap_or_default()
    }
}

/// A started GPU. Dropping it leaves everything as it is (no CUDA call at exit).
pub struct Gpu {
    device: device::Device,
}

impl Gpu {
    /// Loads the libraries, starts the driver, the first lane and the staging threads. Takes 1 to 2 s on
    /// a real device.
    ///
    /// # Errors
    /// [`StartError`]; nothing but loaded libraries is left behind.
    pub fn start(options: &StartOptions) -> Result<Self, StartError> {
        Ok(Self {
            device: device::Device::start(options)?,
        })
    }

    /// What was found.
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// (free, total) bytes of the device's memory now.
    ///
    /// # Errors
    /// When the device does not answer.
    pub fn memory_bytes(&self) -> Result<(u64, u64), Failure> {
        let _entered = self.device.enter()?;
        self.device
            .cuda
            .memory_bytes()
            .map_err(|e| self.device.health.note(&e))
    }

    /// Measures the staged path with transfers of `bytes` bytes.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn measure_transfers(&self, bytes: usize) -> Result<TransferRates, Failure> {
        measure::transfers(&self.device, bytes)
    }

    /// Seconds of moving so many bytes (at least 1 MiB each) in and out by the staged path at the same time, with
    /// nothing computed: the best of three.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn measure_streams(&self, bytes_in: usize, bytes_out: usize) -> Result<f64, Failure> {
        measure::streams(&self.device, (bytes_in, bytes_out))
    }

    /// Seconds of one kernel of a level-3 family alone, operands on the device, no options (side L, lower
    /// triangle, no transposes, unit diagonal, beta 0): the best of `repeat` runs after a first one that is
    /// not counted. The size is m, n, k as in `Level3Call`.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn measure_kernel(
        &self,
        op: Op,
        precision: Precision,
        size: (usize, usize, usize),
        arithmetic: Arithmetic,
        repeat: u32,
    ) -> Result<f64, Failure> {
        measure::kernel(&self.device, op, precision, size, arithmetic, repeat)
    }

    /// Seconds of one m x n x k gemm kernel alone, operands on the device: the best of `repeat` runs
    /// after a first one that is not counted.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn measure_gemm_kernel(
        &self,
        precision: Precision,
        (m, n, k): (usize, usize, usize),
        arithmetic: Arithmetic,
        repeat: u32,
    ) -> Result<f64, Failure> {
        self.measure_kernel(Op::Gemm, precision, (m, n, k), arithmetic, repeat)
    }

    /// What the device did so far.
    pub fn counters(&self) -> Counters {
        let mut families = [FamilyCounters::default(); device::FAMILIES];
        for (op, family) in Op::ALL.iter().zip(&mut families) {
            let counts = self.device.counts.of(*op);
            *family = FamilyCounters {
                calls: counts.calls.load(Ordering::Relaxed),
                kernels: counts.kernels.load(Ordering::Relaxed),
            };
        }
        let traffic = self.device.staging.traffic();
        let (allocations, trims, held_bytes) = self.device.pool.counts();
        Counters {
            families,
            bytes_in: traffic.bytes_in.load(Ordering::Relaxed),
            bytes_out: traffic.bytes_out.load(Ordering::Relaxed),
            allocations,
            trims,
            held_bytes,
        }
    }

    /// Limits every single wait for the device to `limit` plus the time that the call's arithmetic takes
    /// on the slowest GPU (60 s at start). A device that does not answer in time counts as lost.
    pub fn set_wait_limit(&self, limit: Duration) {
        self.device.set_wait_limit(limit);
    }

    /// Ends the threads and gives everything back to the driver. For tests and tools: a library leaves
    /// that to the end of the process.
    pub fn shutdown(self) {
        self.device.shutdown();
    }
}

impl Backend for Gpu {
    fn run(&self, call: &mut Call<'_>) -> Result<Timing, Failure> {
        match call {
            Call::Level3(call) => execute::run(&self.device, call),
            Call::Lapack(call) => lapack::run(&self.device, call),
        }
    }
}

/// Name and path of each library that [`Gpu::start`] would use. Loads them and checks that every
/// function is there; starts nothing.
///
/// # Errors
/// [`StartError`], as [`Gpu::start`] would give it.
pub fn probe_libraries(options: &StartOptions) -> Result<Vec<(String, PathBuf)>, StartError> {
    loader::load(options).map(|loaded| loaded.paths)
}
