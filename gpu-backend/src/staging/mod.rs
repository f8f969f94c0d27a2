//! The staging pool: resident threads that move matrices between ordinary memory and the device through
//! pinned chunks.
//!
//! A copy from ordinary memory by the driver runs at 8 GB/s in and 16 out, through pinned chunks filled
//! by 8 threads at 49 in and 48 out (2026-12-01, H200 on PCIe 5); pinning the program's own memory is
//! slower still and unsafe if the program frees it. Every thread has a stream and a few chunks: while one
//! chunk is on its way the next is filled or emptied. Downloads write the caller's pages from these
//! threads, so that page faults of fresh memory run in parallel.
//!
//! A [`Job`](job::Job) is a list of pieces, released part by part by the thread that owns the call. A
//! worker never waits for anything but its own transfers: what depends on a kernel is released only when
//! the kernel has run. Nothing here knows what is computed.

pub mod job;
#[cfg(all(test, feature = "model"))]
mod model;
mod queue;
mod turns;
mod worker;

use crate::device::Health;
use crate::error::{CudaError, Origin};
use crate::result::{Context, Cuda, Event, Stream};
use job::{Job, JobGuard};
use parking_lot::Mutex;
use queue::Queue;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Worker threads.
    pub threads: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Chunks of each thread.
    pub slots: usize,
    /// Most threads that upload at a time.
    pub uploads_max: usize,
    /// Most threads that download at a time.
    pub downloads_max: usize,
    /// Results are written past the cache.
    pub streaming_stores: bool,
}

/// Slots are bits of this type; see [`Job`]'s masks.
pub type SlotMask = u128;

/// Most slots of a pool.
pub const SLOTS_MAX: usize = SlotMask::BITS as usize;

/// Bytes moved, for statistics.
#[derive(Default)]
pub struct Traffic {
    /// To the device.
    pub bytes_in: AtomicU64,
    /// From the device.
    pub bytes_out: AtomicU64,
}

/// The threads and what they share.
pub struct Staging {
    shared: Arc<Shared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// Stream and slots of each thread, to be destroyed after the threads have ended.
    equipment: Vec<Equipment>,
}

/// What a worker shares with the others.
struct Shared {
    cuda: Arc<Cuda>,
    context: Context,
    health: Arc<Health>,
    traffic: Traffic,
    queue: Queue,
    shape: Shape,
}

/// What a thread works with.
#[derive(Clone)]
struct Equipment {
    stream: Stream,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    chunk: *mut u8,
    /// Recorded after each transfer that uses the chunk.
    event: Event,
}

// SAFETY: a chunk is pinned memory of the process; its thread alone uses it, apart from `destroy`, which
// runs after that thread has ended.
unsafe impl Send for Slot {}
// SAFETY: a shared Slot gives out only its event (an ordinary handle).
unsafe impl Sync for Slot {}

impl Equipment {
    fn new(cuda: &Cuda, shape: &Shape) -> Result<Self, CudaError> {
        let stream = cuda.stream()?;
        let mut made = Self {
            stream,
            slots: Vec::new(),
        };
        for _ in 0..shape.slots {
            match Slot::new(cuda, shape.chunk_bytes) {
                Ok(slot) => made.slots.push(slot),
                Err(e) => {
                    made.destroy(cuda);
                    return Err(e);
                }
            }
        }
        Ok(made)
    }

    /// Errors are ignored: this runs when a start failed or at shutdown, and there is nothing left to do.
    fn destroy(&self, cuda: &Cuda) {
        // SAFETY: called before the threads exist or after they have ended, so nobody uses these any
        // more, and the stream's work has run (each transfer was waited for, or the device is lost).
        unsafe {
            for slot in &self.slots {
                let _ = cuda.free_pinned(slot.chunk);
                let _ = cuda.destroy_event(slot.event);
            }
            let _ = cuda.destroy_stream(self.stream);
        }
    }
}

impl Slot {
    fn new(cuda: &Cuda, chunk_bytes: usize) -> Result<Self, CudaError> {
        let event = cuda.event(false)?;
        match cuda.alloc_pinned(chunk_bytes) {
            Ok(chunk) => {
                // SAFETY: advice on memory that we own. A child made by fork does not get the chunk: a
                // copy-on-write page under a running transfer would give the parent stale data. Where
                // the driver's mapping refuses the advice, it is not inherited anyway.
                unsafe { libc::madvise(chunk.cast(), chunk_bytes, libc::MADV_DONTFORK) };
                Ok(Self { chunk, event })
            }
            Err(e) => {
                // SAFETY: nobody else has seen the event. Its own error adds nothing to `e`.
                let _ = unsafe { cuda.destroy_event(event) };
                Err(e)
            }
        }
    }
}

impl Staging {
    /// Creates streams, chunks and threads. The context is current.
    ///
    /// # Errors
    /// The first function that failed; nothing is left behind.
    pub fn start(
        cuda: &Arc<Cuda>,
        context: Context,
        health: &Arc<Health>,
        shape: Shape,
    ) -> Result<Self, CudaError> {
        let mut equipment: Vec<Equipment> = Vec::new();
        let clean = |made: &[Equipment]| made.iter().for_each(|e| e.destroy(cuda));
        for _ in 0..shape.threads {
            match Equipment::new(cuda, &shape) {
                Ok(made) => equipment.push(made),
                Err(e) => {
                    clean(&equipment);
                    return Err(e);
                }
            }
        }
        let shared = Arc::new(Shared {
            cuda: Arc::clone(cuda),
            context,
            health: Arc::clone(health),
            traffic: Traffic::default(),
            queue: Queue::new(shape.uploads_max, shape.downloads_max),
            shape,
        });
        let mut handles = Vec::new();
        for (number, equipment) in equipment.iter().enumerate() {
            let worker = worker::Worker::new(Arc::clone(&shared), number, equipment.clone());
            // A program's thread limit is no reason to fail: fewer threads do the same work.
            let Ok(handle) = spawn(&format!("gpu-stage-{number}"), move || worker.run()) else {
                break;
            };
            handles.push(handle);
        }
        if handles.is_empty() {
            clean(&equipment);
            return Err(CudaError {
                function: "pthread_create",
                code: 0,
                name: "the process may not start another thread".into(),
                origin: Origin::Driver,
            });
        }
        shared.queue.set_threads(handles.len());
        Ok(Self {
            shared,
            threads: Mutex::new(handles),
            equipment,
        })
    }

    /// Hands a job to the threads; nothing of it is released yet.
    ///
    /// # Safety
    /// Everything that the pieces point to stays valid, and is used by nobody else in a way that
    /// conflicts with the pieces' intent, until the guard has been dropped. The guard is not leaked.
    pub unsafe fn submit(&self, job: Job) -> JobGuard<'_> {
        let job = Arc::new(job);
        self.shared.queue.add(&job);
        JobGuard::new(job, &self.shared.queue)
    }

    /// Events of all slots: work that waits for them runs after every transfer queued before.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.equipment
            .iter()
            .flat_map(|e| e.slots.iter().map(|slot| slot.event))
    }

    /// Events of the slots in `mask`.
    pub fn events_of(&self, mask: SlotMask) -> impl Iterator<Item = Event> + '_ {
        let slots = self.shared.shape.slots;
        (0..self.equipment.len() * slots)
            .filter(move |bit| mask >> bit & 1 == 1)
            .map(move |bit| self.equipment[bit / slots].slots[bit % slots].event)
    }

    /// Bytes of a piece, so that `total_bytes` keep every thread of one direction busy and no piece
    /// exceeds a chunk.
    pub fn piece_bytes(&self, total_bytes: usize) -> usize {
        let shape = &self.shared.shape;
        let share = total_bytes / (shape.uploads_max.max(1) * PIECES_PER_THREAD);
        share.clamp(PIECE_MIN_BYTES.min(shape.chunk_bytes), shape.chunk_bytes)
    }

    /// Bytes moved so far.
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// Ends the threads and destroys what they used. The context is current.
    pub fn shutdown(&self) {
        self.shared.queue.stop();
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return;
        }
        for handle in threads.drain(..) {
            // A thread that panicked has ended, which is all that is asked here.
            let _ = handle.join();
        }
        if self.shared.health.check().is_ok() {
            for e in &self.equipment {
                e.destroy(&self.shared.cuda);
            }
        }
    }
}

/// Pieces that a thread gets at least of a large transfer: with four, the last ones to finish are at
/// most a quarter of a thread's share behind. Chosen, not measured.
const PIECES_PER_THREAD: usize = 4;

/// Smallest piece in bytes: below this the fixed cost of a transfer (about 10 microseconds) outweighs
/// the copying (256 KiB take 25 microseconds at 10 GB/s, one thread's rate).
const PIECE_MIN_BYTES: usize = 256 << 10;

/// Starts a thread with signals blocked, so that no handler of the host program runs on it.
pub fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    with_signals_blocked(|| std::thread::Builder::new().name(name.into()).spawn(body))
}

/// Runs `body` with signals blocked: threads that it starts, the CUDA libraries' own among them, inherit
/// that, so there is no moment in which one could take a signal. Signals that a thread causes itself stay:
/// a host that serves faults of its own memory (a collector's write barrier) must get them from us too, and
/// blocked they would end the process.
pub fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut most = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills `most`, which the others then change and read; pthread_sigmask fills
    // `before`.
    unsafe {
        libc::sigfillset(most.as_mut_ptr());
        for own in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(most.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, most.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: `before` was filled above; this thread gets its own mask back.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut());
    }
    result
}
