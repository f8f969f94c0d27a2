//! A model of queue and job: workers and callers in every order that chance finds. No wake-up is lost (each
//! job ends), every piece is done exactly once and not before it is released, and after a guard is gone no
//! worker is inside its job.

use super::job::{Download, Job, JobGuard, Kind, Look, Pieces, Upload};
use super::queue::{Next, Queue};
use call::{Area, Failure, MatMut, MatRef, OutRegion, Rectangle};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STEPS: usize = 2;
/// Pieces of each kind in a step.
const PIECES: usize = 2;

/// What the workers and the caller know of one job.
#[derive(Default)]
struct Watched {
    /// Pieces that may be done by now, and how often each one was.
    released: [AtomicUsize; 2],
    done: [[AtomicUsize; STEPS * PIECES]; 2],
    gone: AtomicBool,
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

/// Two steps; nothing of it is moved.
fn job() -> Arc<Job> {
    let upload = |step| Upload {
        step,
        // SAFETY: one element that lives for ever.
        from: unsafe { MatRef::new((&raw const ZERO).cast(), 1, 1, 1, 8) }.expect("valid"),
        rectangle: one_element(),
        area: Area::Full,
        to: 0,
        ld_bytes: 8,
        gap_free: true,
    };
    let download = |step| {
        let to: *mut f64 = Box::leak(Box::new(0.0));
        // SAFETY: one element of its own that is never freed.
        let to = unsafe { MatMut::new(to.cast(), 1, 1, 1, 8) }.expect("valid");
        let tiles = OutRegion::new(to).partition(&[(one_element(), Area::Full)]);
        Download {
            step,
            from: 0,
            ld_bytes: 8,
            gap_free: true,
            to: parking_lot::Mutex::new(tiles.expect("a tile").remove(0)),
        }
    };
    let steps = || (0..STEPS * PIECES).map(|i| i / PIECES);
    let pieces = Pieces {
        uploads: steps().map(upload).collect(),
        downloads: steps().map(download).collect(),
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

/// A worker; with `fails`, the first piece that it takes ends its job.
fn work(queue: &Queue, jobs: &Jobs, mut fails: bool) {
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
        if core::mem::take(&mut fails) {
            queue.fail(&taken.job, Failure::Device("on demand".into()));
        } else if taken.kind == Kind::Upload {
            taken.job.uploaded(taken.index / PIECES, 0, 1);
        } else {
            taken.job.downloaded(taken.index / PIECES);
        }
        taken.job.leave();
    }
}

/// A caller: uploads step by step, and what has come up goes down.
fn call(queue: &Queue, jobs: &Jobs) -> Result<(), Failure> {
    let (job, watched) = (job(), Arc::new(Watched::default()));
    let entry = (Arc::clone(&job), Arc::clone(&watched));
    jobs.lock().expect("no poison").push(entry);
    queue.add(&job);
    let guard = JobGuard::new(job, queue);
    let release = |kind: Kind, count: usize| {
        watched.released[kind as usize].store(count, Ordering::SeqCst);
        guard.release(kind, count);
    };
    release(Kind::Upload, PIECES);
    let result = loop {
        let progress = match guard.progress() {
            Ok(progress) => progress,
            Err(failure) => break Err(failure),
        };
        if progress.downloaded == STEPS {
            break Ok(());
        }
        release(Kind::Upload, PIECES * (progress.uploaded + 1).min(STEPS));
        release(Kind::Download, PIECES * progress.uploaded);
        guard.wait_change(progress.version, Duration::from_secs(3600));
    };
    drop(guard);
    watched.gone.store(true, Ordering::SeqCst);
    if result.is_ok() {
        let mut done = watched.done.iter().flatten();
        assert!(
            done.all(|n| n.load(Ordering::SeqCst) == 1),
            "a piece is left"
        );
    }
    result
}

fn run(callers: usize, fails: bool) {
    let queue = Arc::new(Queue::new(1, 1));
    queue.set_threads(2);
    let jobs: Jobs = Arc::default();
    let workers: Vec<_> = (0..2)
        .map(|number| {
            let (queue, jobs) = (Arc::clone(&queue), Arc::clone(&jobs));
            shuttle::thread::spawn(move || work(&queue, &jobs, fails && number == 0))
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
    assert!(failed <= usize::from(fails), "{failed} calls failed");
    queue.stop();
    for worker in workers {
        worker.join().expect("no panic");
    }
}

#[test]
fn model_every_piece_is_done_once_and_every_call_ends() {
    shuttle::check_random(|| run(2, false), 1500);
    shuttle::check_pct(|| run(2, false), 1500, 3);
}

#[test]
fn model_a_failed_call_ends_and_the_others_go_on() {
    shuttle::check_random(|| run(2, true), 1500);
    shuttle::check_pct(|| run(2, true), 1500, 3);
}
