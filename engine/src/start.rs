//! Starting the GPU: once, in the background, and who may wait for it.
//!
//! not started -> starting -> ready | failed, and from ready to lost. Reading the state takes no lock;
//! the lock here is only for waiting. A child process never sees its parent's state (see `process`).

use crate::os;
use call::Backend;
use core::sync::atomic::Ordering;
use cost_model::Profile;
use gpu_backend::sync::{AtomicBool, AtomicU64, Condvar, Mutex};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A device that is ready, with the profile that judges it.
pub struct Device {
    /// Runs calls.
    pub backend: Box<dyn Backend>,
    /// Its name, for the log.
    pub name: String,
    /// Predictions for it.
    pub profile: Profile,
    /// Where the profile comes from: its path, or "estimate".
    pub profile_source: String,
    /// Lines for the user (a profile that belongs to another machine).
    pub complaints: Vec<String>,
}

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// A machine without a GPU is no trouble, nor is a child of a program that uses CUDA itself; everything else
    /// the user is told once.
    pub quiet: bool,
    /// One line: what, where, what is accepted.
    pub line: String,
}

/// What the starting thread runs.
type Body = Box<dyn FnOnce() + Send>;

/// The state machine.
pub struct Start {
    epoch: Instant,
    begun: AtomicBool,
    /// Nanoseconds from `epoch` to the beginning.
    begun_at_ns: AtomicU64,
    outcome: OnceLock<Result<Device, StartFailure>>,
    lost: OnceLock<String>,
    waiters: Mutex<()>,
    done: Condvar,
}

/// What a caller finds.
pub enum State<'a> {
    /// Nobody has asked for the GPU.
    NotStarted,
    /// It is starting since that long.
    Starting(Duration),
    /// It may be used.
    Ready(&'a Device),
    /// It cannot be used in this process.
    Unusable(&'a str),
}

impl Default for Start {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            begun: AtomicBool::new(false),
            begun_at_ns: AtomicU64::new(0),
            outcome: OnceLock::new(),
            lost: OnceLock::new(),
            waiters: Mutex::new(()),
            done: Condvar::new(),
        }
    }
}

impl Start {
    /// The state now. Takes no lock.
    pub fn state(&self) -> State<'_> {
        if let Some(why) = self.lost.get() {
            return State::Unusable(why);
        }
        match self.outcome.get() {
            Some(Ok(device)) => State::Ready(device),
            Some(Err(failure)) => State::Unusable(&failure.line),
            None if self.begun.load(Ordering::Acquire) => {
                State::Starting(self.epoch.elapsed().saturating_sub(Duration::from_nanos(
                    self.begun_at_ns.load(Ordering::Relaxed),
                )))
            }
            None => State::NotStarted,
        }
    }

    /// True from the instant before anything of CUDA is loaded.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Begins in the background, unless that was done. `start` runs on a thread of its own, `report`
    /// before the outcome is visible to waiters.
    pub fn begin(
        &'static self,
        start: impl FnOnce() -> Result<Device, StartFailure> + Send + 'static,
        report: impl FnOnce(f64, &Result<Device, StartFailure>) + Send + 'static,
    ) {
        let spawn = |body: Body| os::spawn_without_signals("gpu-offload-start", body);
        self.begin_on(spawn, start, report);
    }

    /// As [`Start::begin`], on a thread that `spawn` makes.
    fn begin_on(
        &'static self,
        spawn: impl FnOnce(Body) -> std::io::Result<()>,
        start: impl FnOnce() -> Result<Device, StartFailure> + Send + 'static,
        report: impl FnOnce(f64, &Result<Device, StartFailure>) + Send + 'static,
    ) {
        let now_ns = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.begun.load(Ordering::Relaxed) {
            return;
        }
        self.begun_at_ns.store(now_ns, Ordering::Relaxed);
        if self.begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let spawned = spawn(Box::new(move || {
            let began = Instant::now();
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(start));
            let outcome = outcome.unwrap_or_else(|_| {
                Err(StartFailure {
                    quiet: false,
                    line: "starting the GPU failed inside".to_owned(),
                })
            });
            // First: who waits may end the process, and the line with it. Whatever becomes of the report,
            // nobody waits for ever.
            let took_s = began.elapsed().as_secs_f64();
            let report = || report(took_s, &outcome);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(report));
            self.end(outcome);
        }));
        if let Err(e) = spawned {
            let line = format!("the thread that starts the GPU cannot be created: {e}");
            self.end(Err(StartFailure { quiet: false, line }));
        }
    }

    /// Publishes the outcome, and wakes everybody who waits for it.
    fn end(&self, outcome: Result<Device, StartFailure>) {
        self.outcome.get_or_init(|| outcome);
        // Who has seen no outcome sleeps by now, or has not locked yet and will see it.
        drop(self.waiters.lock());
        self.done.notify_all();
    }

    /// Waits until the GPU is ready or cannot be used, at most `limit`. Returns the time it took.
    pub fn wait(&self, limit: Duration) -> f64 {
        let began = Instant::now();
        let mut guard = self.waiters.lock();
        while self.outcome.get().is_none() {
            if self.done.wait_until(&mut guard, began + limit).timed_out() {
                break;
            }
        }
        began.elapsed().as_secs_f64()
    }

    /// The device is not used again in this process. True for the first reason that is given.
    pub fn lose(&self, why: String) -> bool {
        self.lost.set(why).is_ok()
    }
}

#[cfg(all(test, feature = "model"))]
mod model;
