//! One call from the door to its result: decide, run on the GPU, or hand to the CPU; and what is
//! remembered between calls.
//!
//! Nothing here holds a lock while anything is computed, and nothing leaves as a panic. Must not know
//! symbol names, CUDA, or how the shim calls OpenBLAS.

use crate::config::{Mode, Settings};
use crate::decode::{Decoded, decode, decode_lapack};
use crate::gates::Gates;
use crate::learn::{self, CpuRoutine, Learning};
use crate::log::{CallRecord, Log, ProcessState};
use crate::os;
use crate::start::{Device, Start, StartFailure, State};
use crate::verify::{Copies, Finding, Measure};
use call::{Call, Failure, Timing};
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use cost_model::{
    Correction, CpuFacts, DEFAULT_THRESHOLD_WORK, Fingerprint, LearnedDecision, Level, Prediction,
    Profile, Reason, Route, SOLVER_START_S, Situation, decide, threshold_work, watch_work,
};
use engine_abi::{HostTable, OUTCOME_DONE, OUTCOME_UNTOUCHED, RoutedCall, RoutedLapack};
use routines::{Library, Op, Precision, Shape, family};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long anyone waits for a start at most. A start takes about a second (H200, driver 580,
/// 2026-12-01); a hundred times that is a driver that hangs, and hanging with it helps nobody.
const START_LIMIT: Duration = Duration::from_secs(120);

/// GPU errors in a row after which the GPU is left alone: one may be a passing trouble (another
/// process), three without a success between them are a broken device or driver.
const MAX_ERRORS_IN_A_ROW: u32 = 3;

/// Starts the device; a mock in tests.
pub trait Starter: Send + Sync {
    /// Makes a device ready. Runs on a thread of its own, once in a process.
    ///
    /// # Errors
    /// If there is none that can be used.
    fn start(&self, setup: &Setup) -> Result<Device, StartFailure>;
}

/// What an engine is made from; a forked child makes its own from the same.
pub struct Setup {
    /// What the user wants.
    pub settings: Settings,
    /// This machine, without GPU.
    pub fingerprint: Fingerprint,
    /// Threads of the CPU library when the engine was made.
    pub cpu_threads: u32,
    /// A profile made for this CPU, and its path.
    pub profile: Option<(Profile, String)>,
    /// Where what is learnt is kept between processes; `None` where it is not.
    pub learned_dir: Option<PathBuf>,
    /// Starts the device.
    pub starter: Box<dyn Starter>,
}

/// The engine of one process.
pub struct Engine {
    owner: (i32, u32),
    setup: Arc<Setup>,
    /// Judges calls before the GPU is known.
    prior: Profile,
    start: Start,
    log: Log,
    /// What past calls teach; `None` where nothing is learnt.
    learning: Option<Learning>,
    /// Lines for the user about files that cannot be used.
    complaints: Vec<String>,
    /// Predicted time of the calls that are on the GPU now.
    in_flight_ns: AtomicU64,
    /// Predicted savings that were missed because the GPU was not started.
    missed_ns: AtomicU64,
    /// A call of LAPACK has run on the GPU: cuSOLVER is there.
    solver_warm: AtomicBool,
    /// Predicted savings that were missed because cuSOLVER was not there.
    solver_missed_ns: AtomicU64,
    errors_in_a_row: AtomicU32,
    errors_told: AtomicU32,
    /// Work at or below which calls stay away.
    gates: Gates,
}

thread_local! {
    /// This thread is inside the GPU path; calls nested in it go to the CPU. Const and without a
    /// destructor, so that reading it runs no initialiser.
    static ON_GPU_PATH: Cell<bool> = const { Cell::new(false) };
}

struct OnGpuPath;

impl OnGpuPath {
    fn enter() -> Self {
        ON_GPU_PATH.set(true);
        Self
    }
}

impl Drop for OnGpuPath {
    fn drop(&mut self) {
        ON_GPU_PATH.set(false);
    }
}

/// Counts a call into the queue while it is on the GPU.
struct InFlight<'a> {
    queue_ns: &'a AtomicU64,
    own_ns: u64,
}

impl<'a> InFlight<'a> {
    fn new(queue_ns: &'a AtomicU64, busy_s: f64) -> Self {
        let own_ns = nanoseconds(busy_s);
        queue_ns.fetch_add(own_ns, Ordering::Relaxed);
        Self { queue_ns, own_ns }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.queue_ns.fetch_sub(self.own_ns, Ordering::Relaxed);
    }
}

/// Tells the CPU library that a call is on the GPU.
struct Resting<'a>(Option<&'a HostTable>);

impl<'a> Resting<'a> {
    fn new(host: Option<&'a HostTable>) -> Self {
        if let Some(host) = host {
            (host.rest)(1);
        }
        Self(host)
    }
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.0 {
            (host.rest)(0);
        }
    }
}

/// Where one call goes.
struct Plan<'a> {
    /// The device, for a call that goes there.
    device: Option<&'a Device>,
    reason: &'static str,
    detail: Option<String>,
    prediction: Prediction,
    /// Factors of what was learnt within the prediction.
    correction: Correction,
    /// The decision whose time is to be learnt from.
    timed: Option<LearnedDecision>,
    /// Time that was waited for the start.
    waited_s: f64,
}

impl<'a> Plan<'a> {
    fn cpu(reason: &'static str, detail: Option<String>) -> Self {
        Self {
            device: None,
            reason,
            detail,
            prediction: Prediction::default(),
            correction: Correction::NONE,
            timed: None,
            waited_s: 0.0,
        }
    }

    fn forced(device: &'a Device) -> Self {
        Self {
            device: Some(device),
            ..Self::cpu("forced", None)
        }
    }

    /// `device` is used if the decision is for the GPU.
    fn decided(device: Option<&'a Device>, decided: &LearnedDecision) -> Self {
        let decision = &decided.decision;
        Self {
            device: device.filter(|_| decision.route == Route::Gpu),
            prediction: decision.prediction,
            correction: decided.correction,
            timed: decided.timed.then_some(*decided),
            ..Self::cpu(decision.reason.name(), None)
        }
    }
}

/// Where a call came from, and its letters for the log.
struct Origin {
    host: *const HostTable,
    cpu: unsafe extern "C" fn(*const c_void),
    frame: *const c_void,
    /// Of a level-3 routine: side, uplo, transa, transb, diag.
    level3: [u8; 5],
    /// A routine of LAPACK's INTEGER that returns 0, and its bytes.
    info: Option<(*mut c_void, u8)>,
}

impl Origin {
    /// # Safety
    /// The call is in progress.
    unsafe fn store_success(&self) {
        // SAFETY: info is the caller's output; alignment is not assumed.
        unsafe {
            match self.info {
                Some((info, 8)) => info.cast::<i64>().write_unaligned(0),
                Some((info, _)) => info.cast::<i32>().write_unaligned(0),
                None => {}
            }
        }
    }

    /// Whether the CPU routine, which has run, had success.
    ///
    /// # Safety
    /// The call is in progress.
    unsafe fn succeeded(&self) -> bool {
        // SAFETY: info is the caller's, and the routine has written it; alignment is not assumed.
        unsafe {
            match self.info {
                Some((info, 8)) => info.cast::<i64>().read_unaligned() == 0,
                Some((info, _)) => info.cast::<i32>().read_unaligned() == 0,
                None => true,
            }
        }
    }
}

/// An option letter for the log; 0 stands for one that the family lacks.
fn letter(letter: u8) -> Option<char> {
    (letter != 0).then_some(char::from(letter))
}

fn nanoseconds(seconds: f64) -> u64 {
    // A saturating cast; predictions are finite and not negative.
    (seconds * 1e9) as u64
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Engine {
    /// An engine for this process.
    pub fn new(setup: Arc<Setup>) -> Self {
        let settings = &setup.settings;
        let (log, log_complaint) = Log::open(settings.log_level(), settings.log_file.as_deref());
        let prior = setup.profile.as_ref().map_or_else(
            || {
                let cpu = CpuFacts {
                    threads: setup.cpu_threads,
                };
                Profile::prior(setup.fingerprint.clone(), &cpu)
            },
            |(profile, _)| profile.clone(),
        );
        let learning = settings
            .learns()
            .then(|| Learning::new(setup.learned_dir.clone()));
        let mut complaints: Vec<String> = log_complaint.into_iter().collect();
        if let (Some(learning), Some((profile, source))) = (&learning, &setup.profile) {
            complaints.extend(learning.belong_to(profile, source));
        }
        let engine = Self {
            owner: os::identity(),
            prior,
            start: Start::default(),
            log,
            learning,
            complaints,
            in_flight_ns: AtomicU64::new(0),
            missed_ns: AtomicU64::new(0),
            solver_warm: AtomicBool::new(false),
            solver_missed_ns: AtomicU64::new(0),
            errors_in_a_row: AtomicU32::new(0),
            errors_told: AtomicU32::new(0),
            gates: Gates::new(),
            setup: setup.clone(),
        };
        engine.set_thresholds(setup.profile.as_ref().map(|(profile, _)| profile));
        engine
    }

    /// An engine for a forked child, whose parent's is `self`. Takes no lock of the parent's.
    pub fn for_child(&self) -> Self {
        Self::new(self.setup.clone())
    }

    /// The process that made the engine.
    pub fn owner(&self) -> (i32, u32) {
        self.owner
    }

    /// True from the instant before anything of CUDA is loaded.
    pub fn has_begun(&self) -> bool {
        self.start.has_begun()
    }

    /// Lines for the user about files of the engine that cannot be used.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Whether [`Engine::finish`] has anything to do at the end of the process.
    pub fn finishes(&self) -> bool {
        self.log.wants_calls() || self.learning.is_some()
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Thresholds that follow from the settings and, where it is known, a profile.
    fn set_thresholds(&self, profile: Option<&Profile>) {
        let settings = &self.setup.settings;
        // Who learns also looks at calls that might win if the profile was wrong.
        let least = |profile: &Profile, op: Op, precision: Precision, level: Level| {
            let of = match &self.learning {
                Some(_) => watch_work,
                None => threshold_work,
            };
            of(profile, op, precision, level)
        };
        self.gates.set(|op, precision, flops_per_work| {
            let wanted = settings
                .threshold_flops
                .map(|flops| (flops / flops_per_work) as u64);
            let predicts = matches!(settings.mode, Mode::Auto | Mode::Deterministic);
            match (settings.mode, wanted, profile) {
                (Mode::Off, _, _) => u64::MAX,
                // A family of LAPACK that never wins stays away whatever the user's threshold is.
                (_, wanted, profile) if predicts && family(op).library == Library::Lapack => {
                    let profile = profile.unwrap_or(&self.prior);
                    let usable = least(profile, op, precision, settings.level);
                    match wanted {
                        Some(wanted) if usable != u64::MAX => wanted,
                        _ => usable,
                    }
                }
                (_, Some(wanted), _) => wanted,
                (_, None, Some(profile)) if predicts => {
                    least(profile, op, precision, settings.level)
                }
                _ => DEFAULT_THRESHOLD_WORK,
            }
        });
    }

    /// Nothing goes to the GPU any more: calls need not come here, unless each is to be logged.
    fn close_gate(&self) {
        if self.setup.settings.mode != Mode::Force && !self.log.wants_calls() {
            self.gates.set(|_, _, _| u64::MAX);
        }
    }

    /// Tells a shim that registers the thresholds in force.
    pub fn publish(&self, host: &HostTable) {
        self.gates.publish(host);
    }

    /// Runs one call; returns an outcome of the engine ABI. Never unwinds.
    ///
    /// # Safety
    /// As for `EngineTable::route`: `raw` is a call in progress whose operands, host and CPU routine
    /// are valid until this returns.
    pub unsafe fn route(&'static self, raw: &RoutedCall) -> u32 {
        let origin = Origin {
            host: raw.host,
            cpu: raw.cpu,
            frame: raw.frame,
            level3: [raw.side, raw.uplo, raw.transa, raw.transb, raw.diag],
            info: None,
        };
        // SAFETY: the operands are those of a call in progress.
        unsafe { self.guard(&origin, || decode(raw)) }
    }

    /// As [`Engine::route`], for a routine of LAPACK.
    ///
    /// # Safety
    /// As for `EngineTable::route_lapack`.
    pub unsafe fn route_lapack(&'static self, raw: &RoutedLapack) -> u32 {
        let origin = Origin {
            host: raw.host,
            cpu: raw.cpu,
            frame: raw.frame,
            level3: [0; 5],
            info: Some((raw.info, raw.integer_bytes)),
        };
        // SAFETY: the operands are those of a call in progress.
        unsafe { self.guard(&origin, || decode_lapack(raw)) }
    }

    /// # Safety
    /// As for [`Engine::route`]; `decoded` gives the call that `origin` is of.
    unsafe fn guard<'a>(
        &'static self,
        origin: &Origin,
        decoded: impl Fn() -> Option<Decoded<'a>>,
    ) -> u32 {
        if self.setup.settings.mode == Mode::Off || ON_GPU_PATH.get() {
            return OUTCOME_UNTOUCHED;
        }
        // Known outside the closure: after a panic the CPU must not run a call that is done.
        let outcome = Cell::new(OUTCOME_UNTOUCHED);
        // SAFETY: forwarded. A panic leaves counters behind at worst, which are atomic.
        let run = || unsafe { self.run(origin, &decoded, &outcome) };
        let _ = catch_unwind(AssertUnwindSafe(run));
        outcome.get()
    }

    /// # Safety
    /// As for [`Engine::guard`].
    unsafe fn run<'a>(
        &'static self,
        origin: &Origin,
        decoded: impl Fn() -> Option<Decoded<'a>>,
        outcome: &Cell<u32>,
    ) {
        // SAFETY: null or the shim's table, alive during the call.
        let host = unsafe { origin.host.as_ref() };
        let mut cpu_threads = self.setup.cpu_threads;
        if let Some(host) = host {
            self.gates.publish_changes(host);
            cpu_threads = u32::try_from((host.cpu_threads)()).unwrap_or(cpu_threads);
        }
        let Some(Decoded { shape, mut call }) = decoded() else {
            return;
        };
        if self.is_closed_to(&shape) {
            return;
        }
        let mut plan = self.plan(&shape, cpu_threads);
        if learn::is_nested() {
            plan.timed = None;
        }
        if self.setup.settings.mode == Mode::Verify {
            // Of nested calls the outer one is verified.
            if !learn::is_nested() {
                // SAFETY: forwarded.
                unsafe { self.verify(origin, &plan, (shape, call), decoded, outcome) };
            }
            return;
        }
        if let Some(device) = plan.device {
            let began = Instant::now();
            let learning = self.learning.as_ref();
            let turn = learning.map(Learning::enter_gpu);
            let ran = match &mut call {
                Ok(call) => self.on_gpu(device, call, &plan.prediction, host),
                Err(why) => Err(why.clone()),
            };
            match ran {
                Ok(timing) => {
                    // SAFETY: the call is in progress.
                    unsafe { origin.store_success() };
                    outcome.set(OUTCOME_DONE);
                    if let (Some(learning), Some(turn)) = (learning, turn) {
                        let own_s = turn.leave();
                        if let (Some(decided), Some(own_s)) = (&plan.timed, own_s) {
                            learning.observe(&shape, decided, Route::Gpu, own_s);
                        }
                    }
                    if self.log.wants_calls() {
                        let mut record = self.record(origin, &shape, &plan, cpu_threads);
                        record.route = "gpu";
                        record.seconds = began.elapsed().as_secs_f64();
                        record.set_timing(&timing);
                        self.log.call(&record);
                    }
                    return;
                }
                Err(failure) => {
                    self.note_failure(&failure);
                    plan.reason = "failed-on-gpu";
                    plan.detail = Some(failure.to_string());
                    plan.timed = None;
                }
            }
        }
        if !self.log.wants_calls() && plan.timed.is_none() {
            // The shim jumps to the CPU library: no frame of ours is on its stack.
            return;
        }
        let routine = CpuRoutine::enter();
        let began = Instant::now();
        // SAFETY: the shim's own callback and frame, called once, on the caller's thread. The views
        // in `call` are not used again.
        unsafe { (origin.cpu)(origin.frame) };
        let seconds = began.elapsed().as_secs_f64();
        drop(routine);
        outcome.set(OUTCOME_DONE);
        if let (Some(learning), Some(decided)) = (&self.learning, &plan.timed) {
            // SAFETY: the call is in progress, and its routine has returned.
            if unsafe { origin.succeeded() } {
                learning.observe(&shape, decided, Route::Cpu, seconds);
            }
        }
        if self.log.wants_calls() {
            let mut record = self.record(origin, &shape, &plan, cpu_threads);
            record.seconds = seconds;
            self.log.call(&record);
        }
    }

    /// Runs a call on both sides. The caller's memory has the CPU's result.
    ///
    /// # Safety
    /// As for [`Engine::guard`]; `call` is what `decoded` gave first.
    unsafe fn verify<'a>(
        &'static self,
        origin: &Origin,
        plan: &Plan<'_>,
        (shape, call): (Shape, Result<Call<'a>, Failure>),
        decoded: impl Fn() -> Option<Decoded<'a>>,
        outcome: &Cell<u32>,
    ) {
        // SAFETY: null or the shim's table, alive during the call.
        let host = unsafe { origin.host.as_ref() };
        let skipped = |why: &Failure| Finding::Skipped(why.to_string());
        let copies = match (plan.device, &call) {
            (None, _) => {
                let why = plan.detail.as_deref().unwrap_or(plan.reason);
                Err(Finding::Skipped(why.to_owned()))
            }
            (_, Err(why)) => Err(skipped(why)),
            (Some(device), Ok(call)) => Copies::of(call)
                .ok_or_else(|| Finding::Skipped("no memory for copies".to_owned()))
                .and_then(|mut copies| {
                    if let Some(mut twin) = copies.twin(call) {
                        let ran = self.on_gpu(device, &mut twin, &plan.prediction, host);
                        ran.map_err(|failure| {
                            self.note_failure(&failure);
                            skipped(&failure)
                        })?;
                    }
                    Ok(copies)
                }),
        };
        // No view of the caller's memory while the CPU routine writes to it.
        drop(call);
        let routine = CpuRoutine::enter();
        let began = Instant::now();
        // SAFETY: the shim's own callback and frame, called once, on the caller's thread.
        unsafe { (origin.cpu)(origin.frame) };
        let seconds = began.elapsed().as_secs_f64();
        drop(routine);
        outcome.set(OUTCOME_DONE);
        let finding = copies.map_or_else(
            |skipped| skipped,
            |copies| match decoded().map(|decoded| decoded.call) {
                // SAFETY: the call is in progress, and its routine has returned.
                _ if !unsafe { origin.succeeded() } => Finding::Measures(vec![Measure {
                    name: "info",
                    gpu: f64::MAX,
                    cpu: None,
                }]),
                Some(Ok(call)) => copies.compare(&call),
                _ => Finding::Skipped("the operands changed".to_owned()),
            },
        );
        if self.log.wants_calls() {
            let threads = host.map_or(0, |host| (host.cpu_threads)());
            let mut record = self.record(origin, &shape, plan, threads.try_into().unwrap_or(0));
            record.seconds = seconds;
            record.reason = "verified";
            self.log.call(&record);
            self.log.verified(&record, &finding);
        }
    }

    /// Whether a call of LAPACK came only because its shim did not know better: the first ones do, before the
    /// thresholds are published. Where nothing predicts a family, its threshold is out of reach.
    fn is_closed_to(&self, shape: &Shape) -> bool {
        family(shape.op).library == Library::Lapack
            && self.gates.work(shape.op, shape.precision) == u64::MAX
    }

    fn record(
        &self,
        origin: &Origin,
        shape: &Shape,
        plan: &Plan<'_>,
        cpu_threads: u32,
    ) -> CallRecord {
        let [side, uplo, transa, transb, diag] = origin.level3.map(letter);
        let letters: String = shape.letters.into_iter().filter_map(letter).collect();
        CallRecord {
            routine: family(shape.op)
                .routine(shape.precision)
                .unwrap_or_default(),
            side,
            uplo,
            transa,
            transb,
            diag,
            letters: (!letters.is_empty()).then_some(letters),
            m: shape.m,
            n: shape.n,
            k: shape.k,
            beta_zero: shape.beta_zero,
            route: "cpu",
            reason: plan.reason,
            detail: plan.detail.clone(),
            level: self.setup.settings.level.get(),
            cpu_threads,
            predicted_cpu_s: plan.prediction.cpu_s,
            predicted_gpu_s: plan.prediction.gpu_s(),
            startup_s: plan.prediction.startup_s,
            queue_s: plan.prediction.queue_s,
            learned_cpu: plan.correction.cpu,
            learned_gpu: plan.correction.gpu,
            waited_s: plan.waited_s,
            seconds: 0.0,
            bytes_in: 0,
            bytes_out: 0,
            upload_s: 0.0,
            compute_s: 0.0,
            download_s: 0.0,
        }
    }

    /// Where the call goes, after whatever waiting is worth its while.
    fn plan(&'static self, shape: &Shape, cpu_threads: u32) -> Plan<'static> {
        let settings = &self.setup.settings;
        if settings.mode != Mode::Auto {
            let mut waited_s = 0.0;
            if matches!(self.start.state(), State::NotStarted | State::Starting(_)) {
                self.begin();
                waited_s = self.start.wait(START_LIMIT);
            }
            let plan = match self.start.state() {
                State::Ready(device) if matches!(settings.mode, Mode::Force | Mode::Verify) => {
                    Plan::forced(device)
                }
                State::Ready(device) => {
                    // Nothing but the call counts, so that each run decides alike.
                    let situation = Situation {
                        cpu_threads,
                        ..Situation::default()
                    };
                    let decision = decide(&device.profile, shape, &situation, settings.level);
                    Plan::decided(Some(device), &decision.into())
                }
                State::Unusable(why) => Plan::cpu("gpu-unavailable", Some(why.to_owned())),
                State::NotStarted | State::Starting(_) => Plan::cpu(
                    "gpu-unavailable",
                    Some(format!("not ready after {} s", START_LIMIT.as_secs())),
                ),
            };
            return Plan { waited_s, ..plan };
        }
        match self.start.state() {
            State::Ready(device) => self.plan_ready(device, shape, cpu_threads),
            State::Unusable(why) => Plan::cpu("gpu-unavailable", Some(why.to_owned())),
            State::NotStarted => self.plan_cold(shape, cpu_threads, None),
            State::Starting(since) => self.plan_cold(shape, cpu_threads, Some(since)),
        }
    }

    fn plan_ready(
        &self,
        device: &'static Device,
        shape: &Shape,
        cpu_threads: u32,
    ) -> Plan<'static> {
        let level = self.setup.settings.level;
        let situation = Situation {
            cpu_threads,
            startup_s: self.solver_start_s(shape),
            queue_s: seconds(self.in_flight_ns.load(Ordering::Relaxed)),
            ..Situation::default()
        };
        let decided = self.decide(&device.profile, shape, &situation, level, true);
        if decided.decision.reason == Reason::StartupTooLong {
            let saving_ns = nanoseconds(decided.decision.prediction.saving_s());
            self.solver_missed_ns
                .fetch_add(saving_ns, Ordering::Relaxed);
        }
        Plan::decided(Some(device), &decided)
    }

    /// By the profile and, where something is learnt, by that.
    fn decide(
        &self,
        profile: &Profile,
        shape: &Shape,
        situation: &Situation,
        level: Level,
        tries: bool,
    ) -> LearnedDecision {
        match &self.learning {
            Some(learning) => learning.decide(profile, shape, situation, level, tries),
            None => decide(profile, shape, situation, level).into(),
        }
    }

    /// What the first call of LAPACK takes besides, until one has run or enough was missed by waiting for one that
    /// is worth it.
    fn solver_start_s(&self, shape: &Shape) -> f64 {
        let missed_s = seconds(self.solver_missed_ns.load(Ordering::Relaxed));
        let paid = self.solver_warm.load(Ordering::Relaxed)
            || missed_s >= SOLVER_START_S * self.setup.settings.level.patience();
        match family(shape.op).library {
            Library::Lapack if !paid => SOLVER_START_S,
            _ => 0.0,
        }
    }

    /// The GPU is not ready: what remains of its start is a term of the prediction.
    fn plan_cold(
        &'static self,
        shape: &Shape,
        cpu_threads: u32,
        since: Option<Duration>,
    ) -> Plan<'static> {
        let level = self.setup.settings.level;
        let start_s = self.prior.overheads().start_s + self.solver_start_s(shape);
        let startup_s = since.map_or(start_s, |since| {
            // A start that is late already: a tenth of what it has taken is the guess.
            (start_s - since.as_secs_f64()).max(0.1 * since.as_secs_f64())
        });
        let situation = Situation {
            cpu_threads,
            startup_s,
            ..Situation::default()
        };
        let mut decided = self.decide(&self.prior, shape, &situation, level, false);
        // Libraries are being read and threads started meanwhile.
        decided.timed &= since.is_none();
        let decision = decided.decision;
        if decision.route == Route::Gpu {
            self.begin();
            // To the point where even an immediate start would not pay any more: the call then takes
            // twice the CPU's time at worst.
            let worth_s = decision.prediction.cpu_s - decision.prediction.busy_s();
            let limit_s = worth_s.clamp(0.0, START_LIMIT.as_secs_f64());
            let waited_s = self.start.wait(Duration::from_secs_f64(limit_s));
            let plan = match self.start.state() {
                State::Ready(device) => self.plan_ready(device, shape, cpu_threads),
                State::Unusable(why) => Plan::cpu("gpu-unavailable", Some(why.to_owned())),
                State::NotStarted | State::Starting(_) => Plan {
                    reason: Reason::StartupTooLong.name(),
                    timed: None,
                    ..Plan::decided(None, &decided)
                },
            };
            return Plan { waited_s, ..plan };
        }
        if decision.reason == Reason::StartupTooLong {
            let saving_ns = nanoseconds(decision.prediction.saving_s());
            let missed_ns = self.missed_ns.fetch_add(saving_ns, Ordering::Relaxed) + saving_ns;
            if seconds(missed_ns) >= start_s * level.patience() {
                self.begin();
            }
        }
        Plan::decided(None, &decided)
    }

    /// Starts the GPU in the background unless that was done.
    fn begin(&'static self) {
        self.start.begin(
            || self.setup.starter.start(&self.setup),
            |took_s, outcome| match outcome {
                Ok(device) => {
                    if let Some(learning) = &self.learning {
                        let complaint = learning.belong_to(&device.profile, &device.profile_source);
                        complaint.iter().for_each(|line| os::complain(line));
                    }
                    self.set_thresholds(Some(&device.profile));
                    device.complaints.iter().for_each(|line| os::complain(line));
                    self.log
                        .started(took_s, &device.name, &device.profile_source);
                }
                Err(failure) => {
                    self.close_gate();
                    // Who forces the GPU wants to hear that there is none.
                    let told = !failure.quiet || self.setup.settings.mode == Mode::Force;
                    if told {
                        os::complain(&format!("{}; every call runs on the CPU", failure.line));
                    }
                    self.log.start_failed(&failure.line, told);
                }
            },
        );
    }

    fn on_gpu(
        &self,
        device: &Device,
        call: &mut Call<'_>,
        prediction: &Prediction,
        host: Option<&HostTable>,
    ) -> Result<Timing, Failure> {
        let _path = OnGpuPath::enter();
        let _resting = Resting::new(host);
        let _queue = InFlight::new(&self.in_flight_ns, prediction.busy_s());
        let run = || device.backend.run(call);
        // A panic inside is one more failure; the contract of `run` covers what it left behind.
        let timing = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| Err(Failure::Device("the GPU path failed inside".to_owned())))?;
        self.errors_in_a_row.store(0, Ordering::Relaxed);
        if matches!(call, Call::Lapack(_)) {
            self.solver_warm.store(true, Ordering::Relaxed);
        }
        Ok(timing)
    }

    fn note_failure(&self, failure: &Failure) {
        let give_up = match failure {
            // The call's own matter, or memory that others hold: the next call may fare better.
            Failure::Unsupported(_) | Failure::OutOfMemory { .. } | Failure::Overlap => return,
            Failure::Device(what) => {
                let errors = self.errors_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                (errors >= MAX_ERRORS_IN_A_ROW)
                    .then(|| format!("GPU error {errors} times in a row, last: {what}"))
            }
            Failure::Lost(_) => Some(failure.to_string()),
        };
        match give_up {
            Some(why) => {
                if self.start.lose(why.clone()) {
                    self.close_gate();
                    os::complain(&format!("{why}; every call runs on the CPU from now on"));
                }
            }
            None => {
                if self.errors_told.swap(1, Ordering::Relaxed) == 0 {
                    os::complain(&format!("{failure}; the call ran on the CPU"));
                }
            }
        }
    }

    /// The end of the process: saves what was learnt, and prints the summary if the user asked for one.
    pub fn finish(&self) {
        if let Some(learning) = &self.learning {
            learning.save();
        }
        if !self.log.wants_calls() {
            return;
        }
        let gpu = match self.start.state() {
            State::NotStarted => "not started".to_owned(),
            State::Starting(since) => format!("starting since {:.1} s", since.as_secs_f64()),
            State::Ready(device) => device.name.clone(),
            State::Unusable(why) => format!("not used: {why}"),
        };
        let settings = &self.setup.settings;
        self.log.finish(&ProcessState {
            mode: settings.mode.name(),
            level: settings.level.get(),
            gpu,
        });
    }
}
