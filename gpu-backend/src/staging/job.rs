//! A job: the pieces of one call, and how far they are.
//!
//! The call's own thread releases pieces and sees their progress through the [`JobGuard`]; the workers
//! report here. Nothing here moves a byte, but for putting back what a failed delivery has overwritten.

use super::SlotMask;
use super::queue::Queue;
use super::worker::copy_host;
use crate::result::DeviceAddress;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, spin_for};
use crate::testing::{self, Gate};
use call::{Area, Failure, MatRef, Rectangle, TileMut};
use core::cell::Cell;
use core::ops::Range;
// Never contended: a piece is one worker's, and no model needs to look at it.
use parking_lot::Mutex as Held;
use std::sync::Arc;
// Written by one piece's worker, read when nobody is inside: the models have nothing to find here.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ordinary memory to the device. Lifetimes are the job's business: see [`JobGuard`].
pub struct Upload {
    /// The step of the program that needs it.
    pub step: usize,
    /// The matrix.
    pub from: MatRef<'static>,
    /// The piece's place in it.
    pub rectangle: Rectangle,
    /// Its elements that are read. What the device gets for the others is arbitrary.
    pub area: Area,
    /// Where its corner goes.
    pub to: DeviceAddress,
    /// Distance of columns on the device in bytes.
    pub ld_bytes: usize,
    /// What lies between the piece's columns on the device belongs to nobody.
    pub gap_free: bool,
    /// Memory of ours that gets the same elements before the piece counts as uploaded, since a download of the same
    /// job overwrites them.
    pub keep: Option<Held<TileMut<'static>>>,
}

/// Device to ordinary memory.
pub struct Download {
    /// The step of the program that made it, or [`LATE`].
    pub step: usize,
    /// Where its corner is.
    pub from: DeviceAddress,
    /// Distance of columns on the device in bytes.
    pub ld_bytes: usize,
    /// As for [`Upload`].
    pub gap_free: bool,
    /// The piece of the result, owned by this piece alone.
    pub to: Held<TileMut<'static>>,
    /// What it overwrites, where the caller needs that until the job has succeeded.
    pub old: Option<Old>,
}

/// The old value of a download's target, kept by uploads ([`Upload::keep`]) that its step waits for.
pub struct Old {
    /// Of the same size as the caller's matrix.
    pub kept: MatRef<'static>,
    /// The piece's place in it.
    pub rectangle: Rectangle,
    /// The target is being overwritten, or has been.
    pub begun: AtomicBool,
}

/// In place of a step: a download over what the caller may still need ([`JobGuard::deliver`]).
pub const LATE: usize = usize::MAX;

/// Ordinary memory to ordinary memory; cannot fail.
pub struct CopyOut {
    /// The matrix.
    pub from: MatRef<'static>,
    /// The piece's place in it.
    pub rectangle: Rectangle,
    /// The piece of the caller's matrix, owned by this piece alone.
    pub to: Held<TileMut<'static>>,
}

/// What a late download overwrites goes to memory of ours first.
pub struct Keep {
    /// From the caller's matrix.
    pub copy: CopyOut,
    /// Where it is kept: of the same size as the caller's matrix.
    pub kept: MatRef<'static>,
}

/// Kinds of pieces, in the order of [`Job::total`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Upload`].
    Upload,
    /// [`Download`].
    Download,
    /// [`CopyOut`].
    CopyOut,
    /// Pages of the result that are to be made; done if there is time while uploads are running.
    Populate,
    /// [`Keep`]; done while nothing is to be transferred.
    Keep,
}

/// Number of kinds.
pub const KINDS: usize = 5;

/// The pieces of one call, uploads and downloads in the order of their steps.
#[derive(Default)]
pub struct Pieces {
    /// To the device.
    pub uploads: Vec<Upload>,
    /// From the device.
    pub downloads: Vec<Download>,
    /// From scratch to the caller.
    pub copies: Vec<CopyOut>,
    /// Address ranges, whole pages.
    pub populate: Vec<Vec<Range<usize>>>,
    /// What the late downloads overwrite.
    pub keeps: Vec<Keep>,
    /// From the device over what `keeps` keeps, piece by piece: the n-th of both are of the same elements.
    pub late: Vec<Download>,
}

/// What uploads are looked at for, with the bytes of a real number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Nothing,
    /// NaN or infinity, which ends the job.
    Finite(usize),
    /// As [`Look::Finite`], and the largest absolute value.
    Largest(usize),
}

/// Pieces in the hands of the threads.
pub struct Job {
    /// The pieces.
    pub pieces: Pieces,
    /// How long one wait for the device may last.
    pub limit: Duration,
    /// What the operands are looked at for.
    pub look: Look,
    /// Bits of the largest absolute value of each step's uploads so far, with [`Look::Largest`].
    pub largest: Vec<AtomicU64>,
    /// Grows with every change that the call's thread may wait for.
    version: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Pieces of each step that are not yet queued on the device, and the slots that carried them.
    uploads: Vec<(usize, SlotMask)>,
    /// Steps whose uploads are all queued, from the first on.
    uploaded: usize,
    /// Pieces of each step that have not yet arrived.
    downloads: Vec<usize>,
    /// Steps whose downloads are all done, from the first on.
    downloaded: usize,
    copies: usize,
    keeps: usize,
    late: usize,
    /// Pieces in the hands of workers.
    active: usize,
    failure: Option<Failure>,
}

impl State {
    /// Counts the leading steps that are complete anew; true if there are more than before.
    fn advance(&mut self) -> bool {
        let before = (self.uploaded, self.downloaded);
        while self.uploads.get(self.uploaded).is_some_and(|s| s.0 == 0) {
            self.uploaded += 1;
        }
        while self.downloads.get(self.downloaded) == Some(&0) {
            self.downloaded += 1;
        }
        before != (self.uploaded, self.downloaded)
    }
}

impl Job {
    /// A job of `steps` steps.
    pub fn new(mut pieces: Pieces, steps: usize, limit: Duration, look: Look) -> Self {
        let mut uploads = vec![(0, 0); steps];
        pieces.uploads.iter().for_each(|u| uploads[u.step].0 += 1);
        let mut downloads = vec![0; steps];
        pieces.downloads.iter().for_each(|d| downloads[d.step] += 1);
        let late = pieces.late.len();
        // The last downloads, so that releasing those of the steps leaves them.
        pieces.late.iter_mut().for_each(|d| d.step = LATE);
        pieces.downloads.append(&mut pieces.late);
        let mut state = State {
            uploads,
            uploaded: 0,
            downloads,
            downloaded: 0,
            copies: pieces.copies.len(),
            keeps: pieces.keeps.len(),
            late,
            active: 0,
            failure: None,
        };
        state.advance();
        Self {
            pieces,
            limit,
            look,
            largest: (0..steps).map(|_| AtomicU64::new(0)).collect(),
            version: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Pieces of each kind.
    pub fn total(&self) -> [usize; KINDS] {
        let p = &self.pieces;
        [
            p.uploads.len(),
            p.downloads.len(),
            p.copies.len(),
            p.populate.len(),
            p.keeps.len(),
        ]
    }

    /// A worker takes a piece. Called under the queue's lock, so that after the job has left the queue
    /// nobody enters any more.
    pub fn enter(&self) {
        self.state.lock().active += 1;
    }

    /// The worker is done with a piece, whatever came of it.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.active -= 1;
        if state.active == 0 {
            self.tell(state);
        }
    }

    /// An upload was queued through the slot of bit `bit`; `worker` are the bits of its worker. A later
    /// transfer of one stream is over only when the earlier ones are, so the last slot speaks for all.
    pub fn uploaded(&self, step: usize, bit: usize, worker: SlotMask) {
        let mut state = self.state.lock();
        let entry = &mut state.uploads[step];
        entry.0 -= 1;
        entry.1 = entry.1 & !worker | 1 << bit;
        if state.advance() {
            self.tell(state);
        }
    }

    /// A download has arrived.
    pub fn downloaded(&self, step: usize) {
        let mut state = self.state.lock();
        if step == LATE {
            state.late -= 1;
            if state.late == 0 {
                self.tell(state);
            }
            return;
        }
        state.downloads[step] -= 1;
        if state.advance() {
            self.tell(state);
        }
    }

    /// A copy is done.
    pub fn copied(&self) {
        let mut state = self.state.lock();
        state.copies -= 1;
        if state.copies == 0 {
            self.tell(state);
        }
    }

    /// A piece of what will be overwritten is kept.
    pub fn kept(&self) {
        let mut state = self.state.lock();
        state.keeps -= 1;
        if state.keeps == 0 {
            self.tell(state);
        }
    }

    /// Puts back what downloads have overwritten of what uploads kept. Nobody else is inside.
    fn undo(&self) {
        let mut any = false;
        for download in &self.pieces.downloads {
            let begun = |old: &&Old| old.begun.load(Ordering::Relaxed);
            if let Some(old) = download.old.as_ref().filter(begun) {
                copy_host(old.kept, &old.rectangle, &download.to, false);
                any = true;
            }
        }
        if any {
            testing::note_put_back();
        }
    }

    /// Puts back what late downloads may have overwritten. Nobody else is inside, and everything was kept before.
    fn put_back(&self) {
        testing::note_put_back();
        let late = self.pieces.downloads.iter().filter(|d| d.step == LATE);
        for (keep, late) in self.pieces.keeps.iter().zip(late) {
            copy_host(keep.kept, &keep.copy.rectangle, &late.to, false);
        }
    }

    /// Ends the job. The first failure is kept.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(failure);
        self.tell(state);
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        self.version.fetch_add(1, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// To be handed to [`JobGuard::wait_change`].
    pub version: u64,
    /// Steps whose uploads are all queued on the device, from the first on.
    pub uploaded: usize,
    /// Steps whose downloads have all arrived, from the first on.
    pub downloaded: usize,
    /// Copies that are left.
    pub copies: usize,
    /// Pieces that are still to be kept.
    pub keeps: usize,
    /// Late downloads that have not arrived.
    pub late: usize,
}

/// A submitted job. Dropping it takes the job from the queue and waits until no thread is inside, so the
/// memory that the pieces point to may be borrowed from whoever holds the guard. Where late downloads have begun
/// and not all have arrived, it then puts back what they have overwritten; and unless the job has succeeded, what
/// other downloads have overwritten of what is kept.
pub struct JobGuard<'q> {
    job: Arc<Job>,
    queue: &'q Queue,
    delivering: Cell<bool>,
    succeeded: Cell<bool>,
}

impl<'q> JobGuard<'q> {
    pub(super) fn new(job: Arc<Job>, queue: &'q Queue) -> Self {
        Self {
            job,
            queue,
            delivering: Cell::new(false),
            succeeded: Cell::new(false),
        }
    }

    /// Lets the threads take the first `count` pieces of a kind.
    pub fn release(&self, kind: Kind, count: usize) {
        self.queue.release(&self.job, kind, count);
    }

    /// How far it is.
    ///
    /// # Errors
    /// The first failure of any piece.
    pub fn progress(&self) -> Result<Progress, Failure> {
        let version = self.job.version.load(Ordering::Acquire);
        let state = self.job.state.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(Progress {
                version,
                uploaded: state.uploaded,
                downloaded: state.downloaded,
                copies: state.copies,
                keeps: state.keeps,
                late: state.late,
            }),
        }
    }

    /// Waits until enough is done.
    ///
    /// # Errors
    /// The first failure of any piece.
    pub fn wait_until(&self, enough: impl Fn(&Progress) -> bool) -> Result<(), Failure> {
        loop {
            let progress = self.progress()?;
            if enough(&progress) {
                return Ok(());
            }
            self.wait_change(progress.version, LOOK_AGAIN);
        }
    }

    /// Waits until everything is kept that late downloads overwrite.
    ///
    /// # Errors
    /// The first failure of any piece.
    pub fn finish_keeping(&self) -> Result<(), Failure> {
        self.queue.hurry(&self.job);
        self.wait_until(|progress| {
            progress.keeps == 0 || testing::left_out(Gate::DeliveryAfterKeeps, || true)
        })
    }

    /// Lets the threads take the late downloads, and waits until they have arrived. Everything was kept before.
    ///
    /// # Errors
    /// The first failure of any piece; dropping the guard puts everything back.
    pub fn deliver(&self) -> Result<(), Failure> {
        self.delivering.set(true);
        self.release(Kind::Download, usize::MAX);
        self.wait_until(|progress| progress.late == 0)?;
        self.delivering.set(false);
        Ok(())
    }

    /// The call has succeeded: the caller needs no old values any more.
    pub fn succeed(&self) {
        self.succeeded.set(true);
    }

    /// Bits of the largest absolute value of a step's uploads so far ([`Look::Largest`]).
    pub fn largest(&self, step: usize) -> u64 {
        self.job.largest[step].load(Ordering::Relaxed)
    }

    /// The slots that carried the uploads of a step.
    pub fn slots_of(&self, step: usize) -> SlotMask {
        self.job.state.lock().uploads[step].1
    }

    /// True if something has changed since `version`.
    pub fn changed_since(&self, version: u64) -> bool {
        self.job.version.load(Ordering::Acquire) != version
    }

    /// Waits until something has changed since `version`, at most for `limit`.
    pub fn wait_change(&self, version: u64, limit: Duration) {
        let start = Instant::now();
        // A piece is on its way for 10 to 300 microseconds: sleeping through one costs a wake-up of 50.
        while start.elapsed() < spin_for(SPIN) {
            if self.changed_since(version) {
                return;
            }
            for _ in 0..64 {
                core::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        let mut state = self.job.state.lock();
        let end = start + limit;
        while !self.changed_since(version) && Instant::now() < end {
            self.job.changed.wait_until(&mut state, end);
        }
    }

    /// Waits until every piece that was released is done: for measurements.
    ///
    /// # Errors
    /// The first failure of any piece.
    pub fn wait_all(&self) -> Result<(), Failure> {
        loop {
            let progress = self.progress()?;
            let state = self.job.state.lock();
            let steps = state.uploads.len();
            if (state.uploaded, state.downloaded, state.copies) == (steps, steps, 0) {
                return Ok(());
            }
            drop(state);
            self.wait_change(progress.version, self.job.limit);
        }
    }
}

/// What is waited for without a limit (every piece has one) is looked at again after so long, whatever happened.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long the call's thread spins before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        self.queue.remove(&self.job);
        let mut state = self.job.state.lock();
        while state.active > 0 {
            self.job.changed.wait(&mut state);
        }
        drop(state);
        if self.delivering.get() {
            self.job.put_back();
        }
        if !self.succeeded.get() {
            self.job.undo();
        }
    }
}
