//! A model of queue and job: workers and callers in every order that chance finds. No wake-up is lost (each
//! job ends), every piece is done exactly once and not before it is released, nothing is downloaded over what is
//! not yet kept, and after a guard is gone no worker is inside its job and what was overwritten is back unless the
//! call has succeeded.

use super::job::{CopyOut, Download, Job, JobGuard, KINDS, Keep, Kind, Look, Pieces, Upload};
use super::queue::{Next, Queue};
use call::{Area, Failure, MatMut, MatRef, OutRegion, Rectangle, TileMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STEPS: usize = 2;
/// Pieces of each kind in a step.
const PIECES: usize = 2;
/// Late downloads, which overwrite what is kept.
const LATE: usize = 2;

/// What a result in place holds before the call, and what the device has for it.
const OLD: f64 = 1.0;
const NEW: f64 = 2.0;

/// What the workers and the caller know of one job.
#[derive(Default)]
struct Watched {
    /// Pieces that may be done by now, and how often each one was.
    released: [AtomicUsize; KINDS],
    done: [[AtomicUsize; STEPS * PIECES + LATE]; KINDS],
    kept: AtomicUsize,
    gone: AtomicBool,
}

/// Results in place, and the memory that keeps their old values.
struct Home {
    results: [*mut f64; LATE],
    kept: [*mut f64; LATE],
}

static ZERO: f64 = 0.0;

fn one_element() -> Rectangle {
    Rectangle {
        row0: 0,
        rows: 1,
        col0: 0,
        cols: 1,
    }
}

impl Home {
    fn new() -> Self {
        let of = |value: f64| core::array::from_fn(|_| Box::into_raw(Box::new(value)));
        Self {
            results: of(OLD),
            kept: of(f64::NAN),
        }
    }

    /// Each is moved by one thread at a time: its piece's, or when nobody is inside, the caller's.
    fn all_are(&self, value: f64) -> bool {
        // SAFETY: the caller's guard is gone, so nobody else uses them.
        self.results.iter().all(|&x| unsafe { *x } == value)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for x in self.results.into_iter().chain(self.kept) {
            // SAFETY: from `new`; the guard of the job that used them is gone.
            drop(unsafe { Box::from_raw(x) });
        }
    }
}

/// An element as a tile.
fn tile(x: *mut f64) -> parking_lot::Mutex<TileMut<'static>> {
    // SAFETY: one element that outlives the job.
    let to = unsafe { MatMut::new(x.cast(), 1, 1, 1, 8) }.expect("valid");
    let tiles = OutRegion::new(to).partition(&[(one_element(), Area::Full)]);
    parking_lot::Mutex::new(tiles.expect("a tile").remove(0))
}

/// Two steps, of which nothing is moved, and results in place.
fn job(home: &Home) -> Arc<Job> {
    let upload = |step| Upload {
        step,
        // SAFETY: one element that lives for ever.
        from: unsafe { MatRef::new((&raw const ZERO).cast(), 1, 1, 1, 8) }.expect("valid"),
        rectangle: one_element(),
        area: Area::Full,
        to: 0,
        ld_bytes: 8,
        gap_free: true,
        keep: None,
    };
    let download = |step, to: *mut f64| Download {
        step,
        from: 0,
        ld_bytes: 8,
        gap_free: true,
        to: tile(to),
        old: None,
    };
    // SAFETY: as in `tile`.
    let element = |x: *mut f64| unsafe { MatRef::new(x.cast(), 1, 1, 1, 8) }.expect("valid");
    let keep = |number: usize| Keep {
        copy: CopyOut {
            from: element(home.results[number]),
            rectangle: one_element(),
            to: tile(home.kept[number]),
        },
        kept: element(home.kept[number]),
    };
    let steps = || (0..STEPS * PIECES).map(|i| i / PIECES);
    let pieces = Pieces {
        uploads: steps().map(upload).collect(),
        downloads: steps()
            .map(|step| download(step, Box::leak(Box::new(0.0))))
            .collect(),
        keeps: (0..LATE).map(keep).collect(),
        late: (0..LATE).map(|i| download(0, home.results[i])).collect(),
        ..Pieces::default()
    };
    Arc::new(Job::new(
        pieces,
        STEPS,
        Duration::from_secs(3600),
        Look::Nothing,
    ))
}

type Jobs = Arc<Mutex<Vec<(Arc<Job>, Arc<Watched>)>>>;

/// Which piece ends its job.
#[derive(Clone, Copy)]
enum Fails {
    /// The first one that the first worker takes.
    First,
    /// The second late download of every job.
    AtHome,
}

fn put(tile: &parking_lot::Mutex<TileMut<'static>>, value: f64) {
    let bytes = value.to_ne_bytes();
    tile.lock().column_mut(0).write_copy_of_slice(&bytes);
}

/// A worker.
fn work(queue: &Queue, jobs: &Jobs, mut fails: Option<Fails>) {
    let mut busy = None;
    loop {
        let taken = match queue.next(&mut busy, true) {
            Next::Piece(taken) => taken,
            Next::Nothing => unreachable!("it waits"),
            Next::Stop => return,
        };
        let watched = {
            let jobs = jobs.lock().expect("no poison");
            let found = jobs.iter().find(|(job, _)| Arc::ptr_eq(job, &taken.job));
            Arc::clone(&found.expect("a job of ours").1)
        };
        let kind = taken.kind as usize;
        assert!(
            taken.index < watched.released[kind].load(Ordering::SeqCst),
            "too early"
        );
        let before = watched.done[kind][taken.index].fetch_add(1, Ordering::SeqCst);
        assert_eq!(before, 0, "done twice");
        shuttle::thread::yield_now();
        assert!(!watched.gone.load(Ordering::SeqCst), "a worker is inside");
        let late = taken.kind == Kind::Download && taken.index >= STEPS * PIECES;
        let number = taken.index.wrapping_sub(STEPS * PIECES);
        if late {
            let kept = watched.kept.load(Ordering::SeqCst);
            assert_eq!(kept, LATE, "overwritten before it was kept");
            put(&taken.job.pieces.downloads[taken.index].to, NEW);
        }
        let fail = match fails {
            Some(Fails::First) => fails.take().is_some(),
            Some(Fails::AtHome) => late && number == 1,
            None => false,
        };
        if fail {
            queue.fail(&taken.job, Failure::Device("on demand".into()));
        } else if taken.kind == Kind::Upload {
            taken.job.uploaded(taken.index / PIECES, 0, 1);
        } else if taken.kind == Kind::Keep {
            put(&taken.job.pieces.keeps[taken.index].copy.to, OLD);
            watched.kept.fetch_add(1, Ordering::SeqCst);
            taken.job.kept();
        } else {
            taken
                .job
                .downloaded(taken.job.pieces.downloads[taken.index].step);
        }
        taken.job.leave();
    }
}

/// A caller: uploads step by step, and what has come up goes down; then results go over what is kept.
fn call(queue: &Queue, jobs: &Jobs) -> Result<(), Failure> {
    let home = Home::new();
    let (job, watched) = (job(&home), Arc::new(Watched::default()));
    let entry = (Arc::clone(&job), Arc::clone(&watched));
    jobs.lock().expect("no poison").push(entry);
    queue.add(&job);
    let guard = JobGuard::new(job, queue);
    let allow = |kind: Kind, count: usize| {
        watched.released[kind as usize].store(count, Ordering::SeqCst);
    };
    let release = |kind: Kind, count: usize| {
        allow(kind, count);
        guard.release(kind, count);
    };
    release(Kind::Upload, PIECES);
    // One now, the others when the call waits for them.
    release(Kind::Keep, 1);
    let steps = || -> Result<(), Failure> {
        loop {
            let progress = guard.progress()?;
            if progress.downloaded == STEPS {
                return Ok(());
            }
            release(Kind::Upload, PIECES * (progress.uploaded + 1).min(STEPS));
            release(Kind::Download, PIECES * progress.uploaded);
            guard.wait_change(progress.version, Duration::from_secs(3600));
        }
    };
    let result = steps()
        .and_then(|()| {
            allow(Kind::Keep, LATE);
            guard.finish_keeping()
        })
        .and_then(|()| {
            allow(Kind::Download, STEPS * PIECES + LATE);
            guard.deliver()
        });
    drop(guard);
    watched.gone.store(true, Ordering::SeqCst);
    if result.is_ok() {
        let count = |kind: Kind| {
            let done = &watched.done[kind as usize];
            done.iter().map(|n| n.load(Ordering::SeqCst)).sum()
        };
        let done: [usize; 3] = [Kind::Upload, Kind::Download, Kind::Keep].map(count);
        let all = STEPS * PIECES;
        assert_eq!(done, [all, all + LATE, LATE], "a piece is left");
    }
    let expected = if result.is_ok() { NEW } else { OLD };
    assert!(home.all_are(expected), "{result:?}");
    result
}

fn run(callers: usize, fails: Option<Fails>) {
    let queue = Arc::new(Queue::new(1, 1));
    queue.set_threads(2);
    let jobs: Jobs = Arc::default();
    let workers: Vec<_> = (0..2)
        .map(|number| {
            let (queue, jobs) = (Arc::clone(&queue), Arc::clone(&jobs));
            let first = matches!(fails, Some(Fails::First));
            let fails = fails.filter(|_| !first || number == 0);
            shuttle::thread::spawn(move || work(&queue, &jobs, fails))
        })
        .collect();
    let calls: Vec<_> = (0..callers)
        .map(|_| {
            let (queue, jobs) = (Arc::clone(&queue), Arc::clone(&jobs));
            shuttle::thread::spawn(move || call(&queue, &jobs))
        })
        .collect();
    let results = calls.into_iter().map(|c| c.join().expect("no panic"));
    let failed = results.filter(Result::is_err).count();
    match fails {
        None => assert_eq!(failed, 0, "calls failed"),
        Some(Fails::First) => assert!(failed <= 1, "{failed} calls failed"),
        Some(Fails::AtHome) => assert_eq!(failed, callers, "calls failed"),
    }
    queue.stop();
    for worker in workers {
        worker.join().expect("no panic");
    }
}

#[test]
fn model_every_piece_is_done_once_and_every_call_ends() {
    shuttle::check_random(|| run(2, None), 1500);
    shuttle::check_pct(|| run(2, None), 1500, 3);
}

#[test]
fn model_a_failed_call_ends_and_the_others_go_on() {
    shuttle::check_random(|| run(2, Some(Fails::First)), 1500);
    shuttle::check_pct(|| run(2, Some(Fails::First)), 1500, 3);
}

#[test]
fn model_what_a_failed_delivery_overwrote_is_put_back() {
    shuttle::check_random(|| run(2, Some(Fails::AtHome)), 1500);
    shuttle::check_pct(|| run(2, Some(Fails::AtHome)), 1500, 3);
}
