//! Who does what: the jobs that are alive, and which piece a worker takes next.
//!
//! One lock, held for some hundred nanoseconds a piece. Jobs take turns; of one job a worker goes on in the
//! direction in which it is moving, and a free one takes downloads first, so that finished results do not
//! wait for uploads. Nothing here looks into a piece.

use super::job::{Job, KINDS, Kind};
use crate::sync::{AtomicU64, Condvar, Mutex, spin_for};
use call::Failure;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a worker that has nothing to do looks for more before it sleeps, while a call is on the GPU (waking a
/// thread takes about 50 microseconds). Between calls it sleeps at once: the CPU library's threads, as many as
/// there are processors, would be put beside one that looks, and OpenBLAS's wait for each other without giving
/// way: products of 0.4 ms took up to 16 ms (H200's 16 cores, 2026-12-02).
const IDLE_SPIN: Duration = Duration::from_micros(100);

/// Most workers that make pages at a time: 10.6 GB/s with four, 4.7 with eight (4 KiB pages; 19.6 and 10.2
/// with huge ones; 2026-12-01, 16 cores of a Xeon).
const POPULATE_MAX: usize = 4;

/// The queue.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Grows when there is something to do.
    epoch: AtomicU64,
}

struct State {
    jobs: Vec<Entry>,
    /// The job that is looked at first.
    turn: usize,
    /// Workers busy with each kind.
    busy: [usize; KINDS],
    /// The most of them.
    most: [usize; KINDS],
    sleeping: usize,
    stop: bool,
}

struct Entry {
    job: Arc<Job>,
    next: [usize; KINDS],
    released: [usize; KINDS],
    /// Its call waits for what is kept.
    hurried: bool,
}

impl Entry {
    fn has(&self, kind: Kind) -> bool {
        self.next[kind as usize] < self.released[kind as usize]
    }
}

/// A piece in a worker's hands.
pub struct Taken {
    /// Whose.
    pub job: Arc<Job>,
    /// Which list.
    pub kind: Kind,
    /// Where in it.
    pub index: usize,
}

/// What [`Queue::next`] found.
pub enum Next {
    /// A piece.
    Piece(Taken),
    /// Nothing now.
    Nothing,
    /// Nothing ever again.
    Stop,
}

impl State {
    /// Workers that may still take a kind. While nothing is uploaded, downloads have the threads of both
    /// directions: the end of a call is a download.
    fn free(&self, kind: Kind) -> usize {
        let mut most = self.most[kind as usize];
        if kind == Kind::Download && self.busy[Kind::Upload as usize] == 0 {
            most = most.max(self.most[Kind::Upload as usize]);
        }
        most.saturating_sub(self.busy[kind as usize])
    }

    fn may(&self, kind: Kind) -> bool {
        self.free(kind) > 0
    }

    /// The kind that a worker coming from `before` takes of an entry.
    fn choose(&self, entry: &Entry, before: Option<Kind>) -> Option<Kind> {
        let order = match before {
            Some(Kind::Upload) if self.most[Kind::Upload as usize] > 1 => {
                [Kind::Upload, Kind::Download, Kind::CopyOut]
            }
            _ => [Kind::Download, Kind::Upload, Kind::CopyOut],
        };
        let found = order.into_iter().find(|&k| entry.has(k) && self.may(k));
        // Pages are made while uploads run; after that, downloads make them as they go.
        let uploading = entry.next[0] < entry.job.total()[0];
        let lazy = [(Kind::Populate, uploading), (Kind::Keep, true)];
        found.or_else(|| {
            let free = |kind| self.may(kind) || kind == Kind::Keep && entry.hurried;
            let may = |&(kind, now): &(Kind, bool)| now && entry.has(kind) && free(kind);
            lazy.iter().find(|of| may(of)).map(|&(kind, _)| kind)
        })
    }

    fn find(&self, before: Option<Kind>) -> Option<(usize, Kind)> {
        let count = self.jobs.len();
        let order = (0..count).map(|i| (self.turn + i) % count);
        let mut lazy = None;
        for number in order {
            match self.choose(&self.jobs[number], before) {
                Some(kind @ (Kind::Populate | Kind::Keep)) => lazy = lazy.or(Some((number, kind))),
                Some(kind) => return Some((number, kind)),
                None => {}
            }
        }
        lazy
    }

    fn take(&mut self, before: Option<Kind>) -> Option<Taken> {
        let (number, kind) = self.find(before)?;
        let entry = &mut self.jobs[number];
        let index = entry.next[kind as usize];
        entry.next[kind as usize] += 1;
        entry.job.enter();
        let job = Arc::clone(&entry.job);
        self.turn = (number + 1) % self.jobs.len();
        self.busy[kind as usize] += 1;
        Some(Taken { job, kind, index })
    }

    fn index_of(&self, job: &Arc<Job>) -> Option<usize> {
        self.jobs.iter().position(|e| Arc::ptr_eq(&e.job, job))
    }
}

impl Queue {
    /// An empty queue.
    pub fn new(uploads_max: usize, downloads_max: usize) -> Self {
        let mut most = [usize::MAX; KINDS];
        most[Kind::Upload as usize] = uploads_max;
        most[Kind::Download as usize] = downloads_max;
        most[Kind::Populate as usize] = POPULATE_MAX;
        Self {
            state: Mutex::new(State {
                jobs: Vec::new(),
                turn: 0,
                busy: [0; KINDS],
                most,
                sleeping: 0,
                stop: false,
            }),
            changed: Condvar::new(),
            epoch: AtomicU64::new(0),
        }
    }

    /// So many workers there are: one of them stays free for the other direction.
    pub fn set_threads(&self, threads: usize) {
        let mut state = self.state.lock();
        let most = threads.saturating_sub(1).max(1);
        for kind in [Kind::Upload, Kind::Download] {
            let entry = &mut state.most[kind as usize];
            *entry = (*entry).clamp(1, most);
        }
        // The others are there at once for whatever is to be transferred.
        state.most[Kind::Keep as usize] = (threads / 2).max(1);
    }

    /// Adds a job of which nothing is released yet.
    pub fn add(&self, job: &Arc<Job>) {
        self.state.lock().jobs.push(Entry {
            job: Arc::clone(job),
            next: [0; KINDS],
            released: [0; KINDS],
            hurried: false,
        });
    }

    /// Takes a job away: nobody enters it any more.
    pub fn remove(&self, job: &Arc<Job>) {
        let mut state = self.state.lock();
        if let Some(index) = state.index_of(job) {
            state.jobs.remove(index);
            // `turn` is a number of a job again when the next one is taken.
            state.turn = 0;
            if state.jobs.is_empty() {
                // Who looks for more stops looking.
                self.epoch.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Releases the first `count` pieces of a kind, and wakes as many workers as can take the new ones.
    pub fn release(&self, job: &Arc<Job>, kind: Kind, count: usize) {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(job) else {
            return;
        };
        let free = state.free(kind);
        let entry = &mut state.jobs[index];
        let count = count.min(job.total()[kind as usize]);
        let new = count.saturating_sub(entry.released[kind as usize]);
        if new == 0 {
            return;
        }
        entry.released[kind as usize] = count;
        let wake = new.min(free).min(state.sleeping);
        drop(state);
        self.epoch.fetch_add(1, Ordering::Release);
        for _ in 0..wake {
            self.changed.notify_one();
        }
    }

    /// The call has nothing left to do but to wait for what is kept: every worker that finds no transfer may do
    /// that now, of whatever call.
    pub fn hurry(&self, job: &Arc<Job>) {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(job) else {
            return;
        };
        let entry = &mut state.jobs[index];
        entry.hurried = true;
        let keep = Kind::Keep as usize;
        entry.released[keep] = job.total()[keep];
        let left = entry.released[keep] - entry.next[keep];
        let wake = left.min(state.sleeping);
        drop(state);
        self.epoch.fetch_add(1, Ordering::Release);
        for _ in 0..wake {
            self.changed.notify_one();
        }
    }

    /// Stops handing out the pieces of a job that has failed.
    pub fn fail(&self, job: &Arc<Job>, failure: Failure) {
        self.remove(job);
        job.fail(failure);
    }

    /// The worker that was busy with `before` is free; what it does next. With `wait`, sleeps until there
    /// is something.
    pub fn next(&self, before: &mut Option<Kind>, wait: bool) -> Next {
        let mut spin = true;
        let came_from = before.take();
        let mut state = self.state.lock();
        if let Some(kind) = came_from {
            state.busy[kind as usize] -= 1;
        }
        loop {
            if let Some(taken) = state.take(came_from) {
                *before = Some(taken.kind);
                // What this worker leaves undone, a sleeping one may do.
                let more = state.sleeping > 0 && state.find(None).is_some();
                drop(state);
                if more {
                    self.changed.notify_one();
                }
                return Next::Piece(taken);
            }
            if state.stop {
                return Next::Stop;
            }
            if !wait {
                return Next::Nothing;
            }
            if spin && !state.jobs.is_empty() {
                let epoch = self.epoch.load(Ordering::Acquire);
                drop(state);
                spin = self.spin(epoch);
                state = self.state.lock();
                continue;
            }
            state.sleeping += 1;
            self.changed.wait(&mut state);
            state.sleeping -= 1;
        }
    }

    /// Looks for news until there are some; false if there were none for long enough.
    fn spin(&self, epoch: u64) -> bool {
        let start = Instant::now();
        while start.elapsed() < spin_for(IDLE_SPIN) {
            if self.epoch.load(Ordering::Acquire) != epoch {
                return true;
            }
            for _ in 0..64 {
                core::hint::spin_loop();
            }
            // Where there are fewer processors than threads, the one that is waited for may need this one: a call of
            // potrf n = 10 took 0.28 ms instead of 0.45 (simulated CUDA, 2 cores, 2026-12-03).
            std::thread::yield_now();
        }
        false
    }

    /// Ends the workers.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::super::job::{CopyOut, Keep, Look, Pieces, Upload};
    use super::*;
    use call::{Area, MatMut, MatRef, OutRegion, Rectangle};

    const ONE: Rectangle = Rectangle {
        row0: 0,
        rows: 1,
        col0: 0,
        cols: 1,
    };

    /// A job of one step; its elements live for ever.
    fn job(uploads: usize, keeps: usize) -> Arc<Job> {
        let new = || -> *mut f64 { Box::leak(Box::new(0.0)) };
        // SAFETY: one element.
        let from = || unsafe { MatRef::new(new().cast(), 1, 1, 1, 8) }.expect("valid");
        let upload = |_| Upload {
            step: 0,
            from: from(),
            rectangle: ONE,
            area: Area::Full,
            to: 0,
            ld_bytes: 8,
            gap_free: true,
            keep: None,
        };
        let keep = |_| {
            // SAFETY: one element of its own.
            let to = unsafe { MatMut::new(new().cast(), 1, 1, 1, 8) }.expect("valid");
            let tiles = OutRegion::new(to).partition(&[(ONE, Area::Full)]);
            let to = tiles.expect("a tile").remove(0);
            let copy = CopyOut {
                from: from(),
                rectangle: ONE,
                to: Mutex::new(to),
            };
            Keep { copy, kept: from() }
        };
        let pieces = Pieces {
            uploads: (0..uploads).map(upload).collect(),
            keeps: (0..keeps).map(keep).collect(),
            ..Pieces::default()
        };
        Arc::new(Job::new(pieces, 1, Duration::from_secs(1), Look::Nothing))
    }

    /// What each of so many workers that are all free takes.
    fn taken(queue: &Queue, workers: usize) -> Vec<Option<Kind>> {
        let take = |_| match queue.next(&mut None, false) {
            Next::Piece(taken) => Some(taken.kind),
            _ => None,
        };
        (0..workers).map(take).collect()
    }

    #[test]
    fn keeping_leaves_half_of_the_workers_free_until_its_call_waits() {
        let queue = Queue::new(2, 2);
        queue.set_threads(4);
        let keeper = job(0, 6);
        queue.add(&keeper);
        queue.release(&keeper, Kind::Keep, usize::MAX);
        assert_eq!(taken(&queue, 3), [Some(Kind::Keep), Some(Kind::Keep), None]);
        queue.hurry(&keeper);
        assert_eq!(taken(&queue, 2), [Some(Kind::Keep); 2]);
    }

    #[test]
    fn transfers_of_other_calls_come_before_keeping() {
        let queue = Queue::new(2, 2);
        queue.set_threads(4);
        let (keeper, other) = (job(0, 6), job(2, 0));
        for (job, kind) in [(&keeper, Kind::Keep), (&other, Kind::Upload)] {
            queue.add(job);
            queue.release(job, kind, usize::MAX);
        }
        queue.hurry(&keeper);
        let expected = [Kind::Upload, Kind::Upload, Kind::Keep, Kind::Keep];
        assert_eq!(taken(&queue, 4), expected.map(Some));
    }
}
