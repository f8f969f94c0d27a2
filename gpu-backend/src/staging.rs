//! The staging pool: resident threads that move matrices between ordinary memory and the device through
//! pinned chunks.
//!
//! A copy from ordinary memory by the driver runs at 8 GB/s in and 16 out, through pinned chunks filled
//! by 8 threads at 49 in and 48 out (2026-12-01, H200 on PCIe 5); pinning the program's own memory is
//! slower still and unsafe if the program frees it. Every thread has a stream and two chunks: while one
//! chunk is on its way the other is filled or emptied. Downloads write the caller's pages from these
//! threads, so that page faults of fresh memory run in parallel.
//!
//! A [`Job`] is a list of pieces that the threads take one by one. Nothing here knows what is computed.

use crate::device::Health;
use crate::error::CudaError;
use crate::result::{Context, Cuda, DeviceAddress, Event, Stream};
use call::{Failure, MatMut, MatRef};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Chunks of each thread: one on its way, one in work.
const SLOTS: usize = 2;

/// One piece of a job: a rectangle that fits a chunk.
pub struct Piece {
    /// The step of the caller's plan that needs it.
    pub stage: usize,
    /// What to do.
    pub work: Work,
}

/// What is done with a piece. Lifetimes are the job's business: see [`JobGuard`].
pub enum Work {
    /// Ordinary memory to the device.
    Upload {
        /// The matrix.
        from: MatRef<'static>,
        /// First row, rows, first column, columns of the piece.
        rectangle: Rectangle,
        /// Where its first element goes.
        to: DeviceAddress,
        /// Distance of columns on the device in bytes.
        ld_bytes: usize,
    },
    /// Device to ordinary memory.
    Download {
        /// Where its first element is.
        from: DeviceAddress,
        /// Distance of columns on the device in bytes.
        ld_bytes: usize,
        /// What must have happened on the device before.
        after: Option<Event>,
        /// The piece of the caller's matrix, owned by this piece alone.
        to: Mutex<MatMut<'static>>,
    },
    /// Ordinary memory to ordinary memory; cannot fail.
    Copy {
        /// The matrix.
        from: MatRef<'static>,
        /// The piece's place in it.
        rectangle: Rectangle,
        /// The piece of the caller's matrix, owned by this piece alone.
        to: Mutex<MatMut<'static>>,
    },
}

/// Part of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First row.
    pub row0: usize,
    /// Rows.
    pub rows: usize,
    /// First column.
    pub col0: usize,
    /// Columns.
    pub cols: usize,
}

/// A list of pieces in the hands of the threads.
pub struct Job {
    pieces: Vec<Piece>,
    /// How long one wait for the device may last.
    limit: Duration,
    next: AtomicUsize,
    state: Mutex<JobState>,
    changed: Condvar,
}

struct JobState {
    /// Pieces of each stage that are not yet queued on the device (uploads) or not yet done.
    stage_left: Vec<usize>,
    /// Threads inside.
    active: usize,
    failure: Option<Failure>,
}

impl Job {
    /// A job of `stages` stages.
    pub fn new(pieces: Vec<Piece>, stages: usize, limit: Duration) -> Self {
        let mut stage_left = vec![0; stages];
        for piece in &pieces {
            stage_left[piece.stage] += 1;
        }
        Self {
            pieces,
            limit,
            next: AtomicUsize::new(0),
            state: Mutex::new(JobState {
                stage_left,
                active: 0,
                failure: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn exhausted(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.pieces.len()
    }

    /// Makes the threads stop taking pieces.
    fn cancel(&self) {
        self.next.store(self.pieces.len(), Ordering::Relaxed);
    }

    fn fail(&self, failure: Failure) {
        self.cancel();
        self.state.lock().failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    fn done(&self, stage: usize) {
        let mut state = self.state.lock();
        state.stage_left[stage] -= 1;
        if state.stage_left[stage] == 0 {
            self.changed.notify_all();
        }
    }

    fn leave(&self) {
        self.state.lock().active -= 1;
        self.changed.notify_all();
    }
}

/// A submitted job. Dropping it cancels and waits until no thread is inside, so the memory that the
/// pieces point to may be borrowed from whoever holds the guard.
pub struct JobGuard {
    job: Arc<Job>,
}

impl JobGuard {
    /// Waits until every piece of `stage` is queued on the device (uploads) or done (others).
    ///
    /// # Errors
    /// The first failure of any piece.
    pub fn wait_stage(&self, stage: usize) -> Result<(), Failure> {
        let mut state = self.job.state.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.stage_left[stage] == 0 {
                return Ok(());
            }
            self.job.changed.wait(&mut state);
        }
    }

    /// Waits until no thread is inside and nothing is left.
    ///
    /// # Errors
    /// The first failure of any piece.
    pub fn join(&self) -> Result<(), Failure> {
        let mut state = self.job.state.lock();
        while state.active > 0 || !self.job.exhausted() {
            self.job.changed.wait(&mut state);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.job.cancel();
        let _ = self.join();
    }
}

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
    /// Bytes of a chunk.
    chunk_bytes: usize,
}

struct Shared {
    cuda: Arc<Cuda>,
    context: Context,
    health: Arc<Health>,
    traffic: Traffic,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    jobs: VecDeque<Arc<Job>>,
    stop: bool,
}

/// What a thread works with.
#[derive(Clone)]
struct Equipment {
    stream: Stream,
    slots: [Slot; SLOTS],
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
    fn new(cuda: &Cuda, chunk_bytes: usize) -> Result<Self, CudaError> {
        let stream = cuda.stream()?;
        let mut slots = Vec::with_capacity(SLOTS);
        for _ in 0..SLOTS {
            match Slot::new(cuda, chunk_bytes) {
                Ok(slot) => slots.push(slot),
                Err(e) => {
                    destroy(cuda, stream, &slots);
                    return Err(e);
                }
            }
        }
        let mut slots = slots.into_iter();
        let slots = core::array::from_fn(|_| slots.next().expect("SLOTS were pushed"));
        Ok(Self { stream, slots })
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

/// Errors are ignored: this runs when a start failed or at shutdown, and there is nothing left to do.
fn destroy(cuda: &Cuda, stream: Stream, slots: &[Slot]) {
    // SAFETY: called before the threads exist or after they have ended, so nobody uses these any more,
    // and the stream's work has run (each transfer was waited for, or the device is lost).
    unsafe {
        for slot in slots {
            let _ = cuda.free_pinned(slot.chunk);
            let _ = cuda.destroy_event(slot.event);
        }
        let _ = cuda.destroy_stream(stream);
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
        threads: usize,
        chunk_bytes: usize,
    ) -> Result<Self, CudaError> {
        let mut equipment: Vec<Equipment> = Vec::new();
        let clean = |made: &[Equipment]| {
            for e in made {
                destroy(cuda, e.stream, &e.slots);
            }
        };
        for _ in 0..threads {
            match Equipment::new(cuda, chunk_bytes) {
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
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                stop: false,
            }),
            changed: Condvar::new(),
        });
        let mut handles = Vec::new();
        for (i, equipment) in equipment.iter().enumerate() {
            let worker = Worker {
                shared: Arc::clone(&shared),
                stream: equipment.stream,
                slots: equipment.slots,
                chunk_bytes,
                in_flight: [false; SLOTS],
                turn: 0,
            };
            // A program's thread limit is no reason to fail: fewer threads do the same work.
            let Ok(handle) = spawn(&format!("gpu-stage-{i}"), move || worker.run()) else {
                break;
            };
            handles.push(handle);
        }
        if handles.is_empty() {
            clean(&equipment);
            let name = "the process may not start another thread".into();
            let origin = crate::error::Origin::Driver;
            return Err(CudaError {
                function: "pthread_create",
                code: 0,
                name,
                origin,
            });
        }
        Ok(Self {
            shared,
            threads: Mutex::new(handles),
            equipment,
            chunk_bytes,
        })
    }

    /// Hands a job to the threads.
    ///
    /// # Safety
    /// Everything that the pieces point to stays valid, and is used by nobody else in a way that
    /// conflicts with the pieces' intent, until the guard has been dropped. The guard is not leaked.
    pub unsafe fn submit(&self, job: Job) -> JobGuard {
        let job = Arc::new(job);
        if job.pieces.is_empty() {
            return JobGuard { job };
        }
        let alone = job.pieces.len() == 1;
        self.shared.queue.lock().jobs.push_back(Arc::clone(&job));
        if alone {
            self.shared.changed.notify_one();
        } else {
            self.shared.changed.notify_all();
        }
        JobGuard { job }
    }

    /// Events of all slots: work that waits for them runs after every transfer queued before.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.equipment
            .iter()
            .flat_map(|e| e.slots.iter().map(|slot| slot.event))
    }

    /// Bytes of a piece, so that `total_bytes` keep every thread busy and no piece exceeds a chunk.
    pub fn piece_bytes(&self, total_bytes: usize) -> usize {
        let share = total_bytes / (self.equipment.len() * PIECES_PER_THREAD);
        share.clamp(PIECE_MIN_BYTES.min(self.chunk_bytes), self.chunk_bytes)
    }

    /// Bytes moved so far.
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// Ends the threads and destroys what they used. The context is current.
    pub fn shutdown(&self) {
        self.shared.queue.lock().stop = true;
        self.shared.changed.notify_all();
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
                destroy(&self.shared.cuda, e.stream, &e.slots);
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

/// Starts a thread with signals blocked, so that no handler of the host program runs on it. Signals that a
/// thread causes itself stay: a host that serves faults of its own memory (a collector's write barrier)
/// must get them from us too, and blocked they would end the process.
pub fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut most = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills `most`, which the others then change and read; pthread_sigmask fills
    // `before`. A new thread inherits the mask, so there is no moment in which it could take a signal.
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
    let handle = std::thread::Builder::new().name(name.into()).spawn(body);
    // SAFETY: `before` was filled above; this thread gets its own mask back.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut());
    }
    handle
}

/// One thread.
struct Worker {
    shared: Arc<Shared>,
    stream: Stream,
    slots: [Slot; SLOTS],
    chunk_bytes: usize,
    /// The slot's event was recorded and not yet seen to have happened.
    in_flight: [bool; SLOTS],
    /// The slot that is used next.
    turn: usize,
}

impl Worker {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut entered = None;
        while let Some(job) = next_job(&shared) {
            let result = shared.health.check().and_then(|()| {
                if entered.is_none() {
                    let result = shared.cuda.enter(shared.context);
                    entered = Some(result.map_err(|e| shared.health.note(&e))?);
                }
                let work = core::panic::AssertUnwindSafe(|| self.work(&job));
                std::panic::catch_unwind(work)
                    .unwrap_or_else(|_| Err(Failure::Device("internal error in staging".into())))
            });
            if let Err(failure) = result {
                job.fail(failure);
            }
            job.leave();
        }
    }

    /// Takes pieces until there are none.
    fn work(&mut self, job: &Job) -> Result<(), Failure> {
        let mut pending: Option<(usize, usize)> = None;
        loop {
            let index = job.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = job.pieces.get(index) else {
                break;
            };
            match &piece.work {
                Work::Upload {
                    from,
                    rectangle,
                    to,
                    ld_bytes,
                } => {
                    self.upload(job, *from, *rectangle, *to, *ld_bytes)?;
                    job.done(piece.stage);
                }
                Work::Download { .. } => {
                    let slot = self.request(job, piece)?;
                    if let Some((index, slot)) = pending.replace((index, slot)) {
                        self.receive(job, &job.pieces[index], slot)?;
                    }
                }
                Work::Copy {
                    from,
                    rectangle,
                    to,
                } => {
                    let mut to = to.lock();
                    for j in 0..rectangle.cols {
                        let r = rectangle;
                        to.write_column_piece(j, 0, from.column_piece(r.col0 + j, r.row0, r.rows));
                    }
                    job.done(piece.stage);
                }
            }
        }
        if let Some((index, slot)) = pending {
            self.receive(job, &job.pieces[index], slot)?;
        }
        Ok(())
    }

    /// The next slot, once its last transfer is over.
    fn free_slot(&mut self, job: &Job) -> Result<usize, Failure> {
        let slot = self.turn;
        self.turn = (slot + 1) % SLOTS;
        self.settle(job, slot)?;
        Ok(slot)
    }

    fn settle(&mut self, job: &Job, slot: usize) -> Result<(), Failure> {
        if self.in_flight[slot] {
            let waited = self.shared.cuda.wait(self.slots[slot].event, job.limit);
            waited.map_err(|e| self.shared.health.note(&e))?;
            self.in_flight[slot] = false;
        }
        Ok(())
    }

    /// Marks the end of a transfer that was just queued.
    fn mark(&mut self, slot: usize) -> Result<(), Failure> {
        let (cuda, event) = (&self.shared.cuda, self.slots[slot].event);
        // A transfer that cannot be marked cannot be waited for, and its chunk could never be used
        // again: one more try, then the device counts as lost.
        match cuda
            .record(event, self.stream)
            .or_else(|_| cuda.record(event, self.stream))
        {
            Ok(()) => {
                self.in_flight[slot] = true;
                Ok(())
            }
            Err(e) => Err(self.shared.health.lose(e.to_string())),
        }
    }

    fn upload(
        &mut self,
        job: &Job,
        from: MatRef<'static>,
        rectangle: Rectangle,
        to: DeviceAddress,
        ld_bytes: usize,
    ) -> Result<(), Failure> {
        let slot = self.free_slot(job)?;
        let Rectangle {
            row0,
            rows,
            col0,
            cols,
        } = rectangle;
        let row_bytes = rows * from.elem_bytes();
        let bytes = ld_bytes * (cols - 1) + row_bytes;
        debug_assert!(bytes <= self.chunk_bytes && row_bytes <= ld_bytes);
        let chunk = self.slots[slot].chunk;
        for j in 0..cols {
            let column = from.column_piece(col0 + j, row0, rows);
            // SAFETY: column j ends at ld_bytes * j + row_bytes <= bytes <= chunk_bytes (the cutter's
            // contract, checked above in debug builds); the chunk is this thread's, its last
            // transfer is over (`free_slot`), and it does not overlap the caller's memory.
            unsafe {
                let target = chunk.add(ld_bytes * j);
                core::ptr::copy_nonoverlapping(column.as_ptr(), target, row_bytes);
            }
        }
        // SAFETY: the chunk is pinned and untouched until `free_slot` has seen the event that `mark`
        // records; the device block has room for the piece (the planner's contract).
        let queued = unsafe { self.shared.cuda.copy_in(to, chunk, bytes, self.stream) };
        queued.map_err(|e| self.shared.health.note(&e))?;
        self.mark(slot)?;
        self.shared
            .traffic
            .bytes_in
            .fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Queues the transfer of a download piece and says in which slot it will arrive.
    fn request(&mut self, job: &Job, piece: &Piece) -> Result<usize, Failure> {
        let slot = self.free_slot(job)?;
        match self.request_into(piece, slot) {
            // Once more from the device: user memory may already be written in part.
            Err(Failure::Device(_)) => self.request_into(piece, slot)?,
            other => other?,
        }
        Ok(slot)
    }

    fn request_into(&mut self, piece: &Piece, slot: usize) -> Result<(), Failure> {
        let Work::Download {
            from,
            ld_bytes,
            after,
            to,
        } = &piece.work
        else {
            return Err(Failure::Device("internal error: not a download".into()));
        };
        let bytes = {
            let to = to.lock();
            ld_bytes * (to.cols() - 1) + to.column_bytes()
        };
        debug_assert!(bytes <= self.chunk_bytes);
        let (cuda, health) = (&self.shared.cuda, &self.shared.health);
        if let Some(event) = after {
            cuda.stream_wait(self.stream, *event)
                .map_err(|e| health.note(&e))?;
        }
        // SAFETY: the chunk is pinned, of at least `bytes` bytes, and nobody touches it until `receive`
        // or `free_slot` has seen the event that `mark` records.
        let queued = unsafe { cuda.copy_out(self.slots[slot].chunk, *from, bytes, self.stream) };
        queued.map_err(|e| health.note(&e))?;
        self.mark(slot)
    }

    /// Waits for a requested piece and writes it to its place.
    fn receive(&mut self, job: &Job, piece: &Piece, slot: usize) -> Result<(), Failure> {
        match self.settle(job, slot) {
            Err(Failure::Device(_)) => {
                self.request_into(piece, slot)?;
                self.settle(job, slot)?;
            }
            other => other?,
        }
        let Work::Download { ld_bytes, to, .. } = &piece.work else {
            return Err(Failure::Device("internal error: not a download".into()));
        };
        let mut to = to.lock();
        let column_bytes = to.column_bytes();
        for j in 0..to.cols() {
            // SAFETY: the transfer into the chunk is over, and it covered this column (`request_into`).
            let column = unsafe {
                let source = self.slots[slot].chunk.add(ld_bytes * j);
                core::slice::from_raw_parts(source, column_bytes)
            };
            to.write_column_piece(j, 0, column);
        }
        self.shared
            .traffic
            .bytes_out
            .fetch_add(to.packed_bytes() as u64, Ordering::Relaxed);
        job.done(piece.stage);
        Ok(())
    }
}

/// Sleeps until there is a job with pieces left, and enters it. `None` at the end.
fn next_job(shared: &Shared) -> Option<Arc<Job>> {
    let mut queue = shared.queue.lock();
    loop {
        while queue.jobs.front().is_some_and(|job| job.exhausted()) {
            queue.jobs.pop_front();
        }
        if let Some(job) = queue.jobs.front() {
            // Entered under the queue's lock; `join` sees either the thread or an exhausted job.
            job.state.lock().active += 1;
            return Some(Arc::clone(job));
        }
        if queue.stop {
            return None;
        }
        shared.changed.wait(&mut queue);
    }
}
