//! Learning in the engine, with a mock device and a mock CPU routine that take the times they are told to.
//!
//! Times are tens of milliseconds apart, since a busy machine lengthens any of them.

mod common;

use common::{Problem, Script, profile, settings, setup};
use cost_model::{Entry, Level, Profile};
use gpu_offload::config::{Mode, Settings};
use gpu_offload::learn::store;
use gpu_offload::{Engine, Setup};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// What a call takes on the CPU in these tests.
const CPU_MS: u64 = 20;

/// A directory of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let name = format!("gpu-offload-learn-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("temporary directory");
        Self(dir)
    }

    /// What was saved of a profile.
    fn entries(&self, profile: &Profile) -> Vec<Entry> {
        store::read(&self.0, store::identity(profile, "test")).expect("sound")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn learning(mode: Mode, learn: bool) -> Settings {
    Settings {
        learn: Some(learn),
        level: Level::new(9).expect("a level"),
        ..settings(mode)
    }
}

fn engine_in(
    place: Option<&Place>,
    s: Settings,
    script: &Arc<Script>,
    known: &Profile,
) -> &'static Engine {
    let mut setup = setup(s, script, known.clone());
    let inner: &mut Setup = Arc::get_mut(&mut setup).expect("the only one");
    inner.learned_dir = place.map(|p| p.0.clone());
    Box::leak(Box::new(Engine::new(setup)))
}

/// CPU at `cpu_ms`, GPU at `gpu_ms`, a start in no time.
fn predicts(cpu_ms: f64, gpu_ms: f64) -> Profile {
    profile(cpu_ms / 1e3, gpu_ms / 1e3, 1e-3)
}

/// One call; true if it ran on the CPU.
fn call(engine: &'static Engine) -> bool {
    let mut p = Problem::new(8, 1.0);
    p.cpu_takes = Duration::from_millis(CPU_MS);
    p.call(engine)
}

/// Calls until the device is there, which the profile must favour.
fn warm(engine: &'static Engine) {
    let began = Instant::now();
    while call(engine) {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

/// How many of `calls` calls ran on the CPU.
fn on_cpu(engine: &'static Engine, calls: usize) -> usize {
    (0..calls).filter(|_| call(engine)).count()
}

#[test]
fn a_gpu_that_is_predicted_five_times_too_fast_is_left_within_ten_calls() {
    let script = Arc::new(Script::default());
    script.compute_takes_ms.store(5 * CPU_MS, SeqCst);
    let engine = engine_in(
        None,
        learning(Mode::Auto, true),
        &script,
        &predicts(20.0, 20.0 / 1.5),
    );
    warm(engine);
    on_cpu(engine, 10);
    let computed = script.computed.load(SeqCst);
    assert!(computed <= 10, "{computed} calls on a slow GPU");
    assert_eq!(on_cpu(engine, 20), 20);
}

#[test]
fn a_gpu_that_becomes_slow_is_left_within_ten_calls() {
    let script = Arc::new(Script::default());
    script.compute_takes_ms.store(5, SeqCst);
    let engine = engine_in(
        None,
        learning(Mode::Auto, true),
        &script,
        &predicts(20.0, 5.0),
    );
    warm(engine);
    assert_eq!(on_cpu(engine, 30), 0);
    script.compute_takes_ms.store(100, SeqCst);
    assert!(on_cpu(engine, 10) > 0, "still on a throttled GPU");
    assert!(on_cpu(engine, 10) >= 9, "tries apart");
}

#[test]
fn a_cpu_that_is_predicted_too_fast_is_left_even_before_the_gpu_starts() {
    let script = Arc::new(Script::default());
    let engine = engine_in(
        None,
        learning(Mode::Auto, true),
        &script,
        // 4 ms that are 20, against 10 that are next to nothing.
        &predicts(4.0, 10.0),
    );
    let began = Instant::now();
    while call(engine) {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    assert!(began.elapsed() >= Duration::from_millis(2 * CPU_MS));
}

#[test]
fn without_learning_the_profile_alone_decides() {
    for (mode, learn) in [(Mode::Auto, false), (Mode::Deterministic, true)] {
        let (place, script) = (Place::new(mode.name()), Arc::new(Script::default()));
        script.compute_takes_ms.store(50, SeqCst);
        let known = predicts(20.0, 5.0);
        let engine = engine_in(Some(&place), learning(mode, learn), &script, &known);
        warm(engine);
        assert_eq!(on_cpu(engine, 15), 0, "{mode:?}");
        engine.finish();
        let left = std::fs::read_dir(&place.0).expect("there").count();
        assert_eq!(left, 0, "{mode:?}: nothing is written");
    }
}

#[test]
fn frozen_decisions_ignore_what_was_learnt_before() {
    let (place, script) = (Place::new("frozen"), Arc::new(Script::default()));
    script.compute_takes_ms.store(100, SeqCst);
    let known = predicts(20.0, 5.0);
    let first = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    warm(first);
    on_cpu(first, 10);
    first.finish();
    let saved = place.entries(&known);
    assert!(!saved.is_empty());
    script.compute_takes_ms.store(0, SeqCst);
    let frozen = engine_in(Some(&place), learning(Mode::Auto, false), &script, &known);
    warm(frozen);
    assert_eq!(on_cpu(frozen, 5), 0);
    frozen.finish();
    assert_eq!(place.entries(&known), saved, "nor is anything written");
}

#[test]
fn what_one_process_learnt_the_next_one_knows() {
    let (place, script) = (Place::new("saved"), Arc::new(Script::default()));
    script.compute_takes_ms.store(100, SeqCst);
    let known = predicts(20.0, 5.0);
    let first = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    warm(first);
    on_cpu(first, 10);
    first.finish();
    assert!(!place.entries(&known).is_empty());
    let computed = script.computed.load(SeqCst);
    let second = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    assert_eq!(on_cpu(second, 10), 10);
    assert_eq!(script.computed.load(SeqCst), computed);
    // Another profile's corrections are no concern of this one's.
    script.compute_takes_ms.store(0, SeqCst);
    let other = predicts(20.0, 4.0);
    let third = engine_in(Some(&place), learning(Mode::Auto, true), &script, &other);
    warm(third);
    assert_eq!(on_cpu(third, 3), 0);
}

#[test]
fn a_damaged_file_gives_one_line_and_learning_starts_afresh() {
    let (place, script) = (Place::new("damaged"), Arc::new(Script::default()));
    let known = predicts(20.0, 5.0);
    let path = store::file(&place.0, store::identity(&known, "test"));
    std::fs::write(&path, "gpu-offload-learned 1 cut").expect("writable");
    let engine = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    let [line] = engine.complaints() else {
        panic!("{:?}", engine.complaints())
    };
    assert!(
        line.contains("damaged") && line.contains("afresh"),
        "{line}"
    );
    warm(engine);
    on_cpu(engine, 3);
    engine.finish();
    assert!(!place.entries(&known).is_empty());
}

#[test]
fn a_routines_first_call_on_the_gpu_tells_nothing() {
    let (place, script) = (Place::new("first"), Arc::new(Script::default()));
    let known = predicts(20.0, 5.0);
    let engine = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    warm(engine);
    assert_eq!(script.computed.load(SeqCst), 1);
    engine.finish();
    let gpu = |entries: &[Entry]| entries.iter().filter(|e| e.sides[1] != 0).count();
    assert_eq!(gpu(&place.entries(&known)), 0);
    call(engine);
    engine.finish();
    assert!(gpu(&place.entries(&known)) > 0, "the second one does");
}

#[test]
fn calls_at_the_same_time_are_charged_for_their_own_part() {
    // Four callers share the mock's 40 ms: each took 10 for its own.
    let (place, script) = (Place::new("shared"), Arc::new(Script::default()));
    let known = predicts(1000.0, 40.0);
    let engine = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    warm(engine);
    script.compute_takes_ms.store(40, SeqCst);
    for _ in 0..4 {
        let before = script.computed.load(SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| call(engine));
            }
        });
        assert_eq!(script.computed.load(SeqCst), before + 4);
    }
    engine.finish();
    let learned = cost_model::Learned::new();
    learned.restore(&place.entries(&known));
    let shape = routines::Shape {
        op: routines::Op::Gemm,
        precision: routines::Precision::D,
        m: 8,
        n: 8,
        k: 8,
        right: false,
        beta_zero: false,
        letters: [0; 4],
    };
    let factor = learned.correction(&shape).gpu;
    assert!(
        factor < 0.9,
        "{factor}: a queue was taken for the call's own time"
    );
}

#[test]
fn a_forked_child_neither_waits_for_its_parents_saving_nor_undoes_it() {
    let (place, script) = (Place::new("fork"), Arc::new(Script::default()));
    let known = predicts(20.0, 50.0);
    let engine = engine_in(Some(&place), learning(Mode::Auto, true), &script, &known);
    assert_eq!(on_cpu(engine, 3), 3);
    engine.finish();
    let before = place.entries(&known);
    assert!(!before.is_empty());
    // SAFETY: the child uses an engine of its own, which is what is tested, and ends by _exit.
    let status = unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let own: &'static Engine = Box::leak(Box::new(engine.for_child()));
                on_cpu(own, 2);
                own.finish();
            }));
            libc::_exit(i32::from(ran.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    };
    assert_eq!(status, 0);
    let after = place.entries(&known);
    let places = |entries: &[Entry]| entries.iter().map(|e| e.place).collect::<Vec<_>>();
    assert_eq!(places(&after), places(&before));
    assert_ne!(after, before, "the child's calls are in it");
}
