//! Learning from finished calls: which of them tell anything, and when what was learnt is saved.
//!
//! `cost_model::Learned` is the arithmetic, `store` the file. Only mode auto learns; `learn = off` neither reads nor
//! writes nor tries. A decision takes no lock and allocates nothing. Must not know CUDA, or how a call is run.

pub mod store;

use crate::os;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use cost_model::{Entry, Learned, LearnedDecision, Level, Profile, Route, Situation};
use parking_lot::Mutex;
use routines::{Precision, Shape};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::Written;

/// A process that goes on saves what is new no more often than this.
const SAVE_EACH: Duration = Duration::from_secs(60);

/// How long the end of a process waits for a thread that is saving.
const SAVING_LIMIT: Duration = Duration::from_millis(200);

/// A GPU that nobody used for so long has lowered its clocks, and the backend has given memory back: the next
/// call says little of those that follow it at once.
const IDLE: Duration = Duration::from_secs(2);

/// A program whose calls all come after such a pause is judged by them: after so many in a row.
const IDLE_CALLS: u32 = 3;

thread_local! {
    /// The engine is running the CPU routine on this thread: what it calls is nested. Const and without a
    /// destructor, so that reading it runs no initialiser.
    static IN_CPU_ROUTINE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, calls of this thread are nested in the CPU routine of another.
pub(crate) struct CpuRoutine {
    before: bool,
}

impl CpuRoutine {
    pub(crate) fn enter() -> Self {
        Self {
            before: IN_CPU_ROUTINE.replace(true),
        }
    }
}

impl Drop for CpuRoutine {
    fn drop(&mut self) {
        IN_CPU_ROUTINE.set(self.before);
    }
}

/// True inside [`CpuRoutine`].
pub(crate) fn is_nested() -> bool {
    IN_CPU_ROUTINE.get()
}

/// Who shares the GPU, and each one's part of it: while n calls are there, each has a nth of the time. So a call is
/// charged for what it took itself, not for what others took meanwhile.
struct Turns {
    /// When `share_s` was brought up to date.
    at: Instant,
    callers: u32,
    /// Time that a call which was always there would have had.
    share_s: f64,
    /// Calls that came after a pause, in a row.
    idle_calls: u32,
}

impl Turns {
    fn new(at: Instant) -> Self {
        Self {
            at,
            callers: 0,
            share_s: 0.0,
            idle_calls: 0,
        }
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        if self.callers > 0 {
            self.share_s += passed.as_secs_f64() / f64::from(self.callers);
        }
        self.at = now.max(self.at);
    }

    /// A call begins: the share so far, and whether it tells what the GPU does when it is used.
    fn enter(&mut self, now: Instant) -> (f64, bool) {
        let was_idle = self.callers == 0 && now.saturating_duration_since(self.at) >= IDLE;
        self.idle_calls = if was_idle { self.idle_calls + 1 } else { 0 };
        self.advance(now);
        self.callers += 1;
        (self.share_s, !was_idle || self.idle_calls >= IDLE_CALLS)
    }

    /// A call that began at `share_s` ends: its part.
    fn leave(&mut self, now: Instant, share_s: f64) -> f64 {
        self.advance(now);
        self.callers = self.callers.saturating_sub(1);
        self.share_s - share_s
    }
}

/// A call that is on the GPU.
pub(crate) struct Turn<'a> {
    learning: &'a Learning,
    share_s: f64,
    tells: bool,
    left: bool,
}

impl Turn<'_> {
    /// The call has ended: its own time, if that tells anything.
    pub(crate) fn leave(mut self) -> Option<f64> {
        let own_s = self.end();
        self.tells.then_some(own_s)
    }

    fn end(&mut self) -> f64 {
        self.left = true;
        let now = Instant::now();
        self.learning.turns.lock().leave(now, self.share_s)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.end();
        }
    }
}

/// Where corrections are saved.
struct Saved {
    identity: u64,
    /// What the file held when it was read or written last.
    base: Vec<Entry>,
}

/// What one process learns.
pub(crate) struct Learning {
    learned: Learned,
    /// A bit for each routine whose kernels have been loaded, by precision and code of the family.
    warm: [AtomicU64; 4],
    turns: Mutex<Turns>,
    /// Where files lie; `None` where nothing is saved.
    dir: Option<PathBuf>,
    saved: Mutex<Option<Saved>>,
    /// Observations since the last saving.
    unsaved: AtomicU32,
    began: Instant,
    /// Seconds from `began` to the last saving.
    saved_at_s: AtomicU64,
}

impl Learning {
    /// Nothing learnt yet. Files lie in `dir`.
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            learned: Learned::new(),
            warm: Default::default(),
            turns: Mutex::new(Turns::new(now)),
            dir,
            saved: Mutex::new(None),
            unsaved: AtomicU32::new(0),
            began: now,
            saved_at_s: AtomicU64::new(0),
        }
    }

    /// Corrections are of this profile from now on; reads what is known of it. Returns a line for the user if
    /// the file cannot be used.
    pub(crate) fn belong_to(&self, profile: &Profile, source: &str) -> Option<String> {
        let identity = store::identity(profile, source);
        let mut saved = self.saved.lock();
        match &*saved {
            Some(old) if old.identity == identity => return None,
            // What was learnt corrects another profile's times.
            Some(_) => self.learned.clear(),
            None => {}
        }
        let (base, complaint) = match self.dir.as_ref().map(|dir| store::read(dir, identity)) {
            Some(Ok(entries)) => (entries, None),
            Some(Err(line)) => (Vec::new(), Some(line)),
            None => (Vec::new(), None),
        };
        self.learned.restore(&base);
        *saved = Some(Saved { identity, base });
        complaint
    }

    /// The route of a call by what has been learnt; with `tries`, now and then by what is not known yet.
    pub(crate) fn decide(
        &self,
        profile: &Profile,
        shape: &Shape,
        situation: &Situation,
        level: Level,
        tries: bool,
    ) -> LearnedDecision {
        self.learned
            .decide(profile, shape, situation, level, tries && !is_nested())
    }

    /// A call goes to the GPU.
    pub(crate) fn enter_gpu(&self) -> Turn<'_> {
        let (share_s, tells) = self.turns.lock().enter(Instant::now());
        Turn {
            learning: self,
            share_s,
            tells,
            left: false,
        }
    }

    /// What a call took that succeeded.
    pub(crate) fn observe(
        &'static self,
        shape: &Shape,
        decided: &LearnedDecision,
        side: Route,
        seconds: f64,
    ) {
        if side == Route::Gpu && !self.warm_up(shape) {
            return;
        }
        self.learned.observe(shape, decided, side, seconds);
        self.unsaved.fetch_add(1, Relaxed);
        self.save_now_and_then();
    }

    /// Whether the routine has been on the GPU before; from now on it has.
    fn warm_up(&self, shape: &Shape) -> bool {
        let precision = Precision::ALL.iter().position(|p| *p == shape.precision);
        let bit = 1 << (shape.op as u32 & 63);
        self.warm[precision.unwrap_or(0)].fetch_or(bit, Relaxed) & bit != 0
    }

    fn save_now_and_then(&'static self) {
        let now_s = self.began.elapsed().as_secs();
        let last_s = self.saved_at_s.load(Relaxed);
        if now_s < last_s + SAVE_EACH.as_secs() || self.dir.is_none() {
            return;
        }
        let mine = self
            .saved_at_s
            .compare_exchange(last_s, now_s, Relaxed, Relaxed);
        if mine.is_ok() {
            // Homes on networks are slow, and the caller has work to do. Without a thread the exit saves.
            let _ = os::spawn_without_signals("gpu-offload-save", || self.save());
        }
    }

    /// Saves what is new. Gives up where another thread is at it for long.
    pub(crate) fn save(&self) {
        let Some(dir) = &self.dir else { return };
        if self.unsaved.load(Relaxed) == 0 {
            return;
        }
        let Some(mut saved) = self.saved.try_lock_for(SAVING_LIMIT) else {
            return;
        };
        let Some(saved) = &mut *saved else { return };
        // Before the entries are read: what is observed meanwhile may be among them, and is saved again.
        let unsaved = self.unsaved.load(Relaxed);
        let mine = self.learned.entries();
        // What others have learnt is known here from the next start on; until then it is theirs. Where others
        // were writing all the time, the next saving has it still to do.
        if let Written::Entries(_) = store::write(dir, saved.identity, &saved.base, &mine) {
            saved.base = mine;
            self.unsaved.fetch_sub(unsaved, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(begin: Instant, ms: u64) -> Instant {
        begin + Duration::from_millis(ms)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_call_is_charged_for_its_own_part_of_the_gpu() {
        let begin = Instant::now();
        let mut turns = Turns::new(begin);
        let (alone, _) = turns.enter(begin);
        assert!(near(turns.leave(after(begin, 100), alone), 0.1));
        // Two at once, one of them for another 50 ms alone.
        let (a, _) = turns.enter(after(begin, 100));
        let (b, _) = turns.enter(after(begin, 100));
        assert!(near(turns.leave(after(begin, 200), a), 0.05));
        assert!(near(turns.leave(after(begin, 250), b), 0.1));
        // Time without callers is nobody's.
        let (c, _) = turns.enter(after(begin, 1000));
        assert!(near(turns.leave(after(begin, 1010), c), 0.01));
    }

    #[test]
    fn the_first_call_after_a_pause_tells_nothing_unless_all_are() {
        let begin = Instant::now();
        let mut turns = Turns::new(begin);
        let mut call = |at_ms| {
            let (share, tells) = turns.enter(after(begin, at_ms));
            turns.leave(after(begin, at_ms + 1), share);
            tells
        };
        assert!(call(100));
        assert!(!call(5_000));
        assert!(call(5_010));
        assert!(!call(10_000));
        assert!(!call(20_000));
        assert!(call(30_000), "the program is like that");
        assert!(call(40_000));
    }

    #[test]
    fn calls_inside_a_cpu_routine_are_nested() {
        assert!(!is_nested());
        {
            let _outer = CpuRoutine::enter();
            assert!(is_nested());
            drop(CpuRoutine::enter());
            assert!(is_nested(), "still in the outer one");
        }
        assert!(!is_nested());
    }

    #[test]
    fn what_others_kept_from_being_saved_is_saved_the_next_time() {
        let name = format!("gpu-offload-unsaved-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("temporary directory");
        let profile = Profile::prior(
            cost_model::Fingerprint::default(),
            &cost_model::CpuFacts { threads: 2 },
        );
        let learning: &'static Learning = Box::leak(Box::new(Learning::new(Some(dir.clone()))));
        assert_eq!(learning.belong_to(&profile, "test"), None);
        let shape = Shape {
            op: routines::Op::Gemm,
            precision: Precision::D,
            m: 500,
            n: 500,
            k: 500,
            right: false,
            beta_zero: true,
            letters: [0; 4],
        };
        let (now, level) = (Situation::default(), Level::default());
        let decided = learning.decide(&profile, &shape, &now, level, false);
        learning.observe(&shape, &decided, Route::Cpu, 1e-3);
        let identity = store::identity(&profile, "test");
        let saved = || store::read(&dir, identity).expect("sound");
        let others = std::fs::File::create(dir.join("learned.lock")).expect("writable");
        others.lock().expect("free");
        learning.save();
        assert_eq!(saved(), []);
        others.unlock().expect("held");
        learning.save();
        assert_ne!(saved(), []);
        // And only once.
        std::fs::remove_file(store::file(&dir, identity)).expect("there");
        learning.save();
        assert_eq!(saved(), []);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
