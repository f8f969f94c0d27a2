//! The engine with a mock device: every way that a call can take ends in the right result.

mod common;

use call::Failure;
use common::{Problem, RESTING, Script, engine, profile, settings, setup};
use gpu_offload::config::{LogLevel, Mode, Settings};
use gpu_offload::{Slot, StartFailure};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The GPU wins everything, and starts in no time.
fn fast() -> cost_model::Profile {
    profile(1.0, 1e-3, 1e-3)
}

fn every_failure() -> [Failure; 5] {
    [
        Failure::Unsupported("a test"),
        Failure::OutOfMemory {
            needed_bytes: 2,
            budget_bytes: 1,
        },
        Failure::Overlap,
        Failure::Device("cuTest: error 1".to_owned()),
        Failure::Lost("cuTest: error 2".to_owned()),
    ]
}

#[test]
fn force_computes_on_the_device() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, profile(1e-9, 1.0, 1.0));
    for beta in [0.0, 1.0, -3.0] {
        assert!(!Problem::new(8, beta).call(engine), "on the GPU");
    }
    assert_eq!(
        (script.starts.load(SeqCst), script.committed.load(SeqCst)),
        (1, 3)
    );
}

#[test]
fn the_cpu_library_rests_during_a_call_on_the_gpu_and_only_then() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, fast());
    assert!(!Problem::new(8, 0.0).call(engine));
    assert_eq!((script.resting.load(SeqCst), RESTING.get()), (1, 0));
    script.panic_in_compute.store(true, SeqCst);
    assert!(Problem::new(8, 0.0).call(engine), "on the CPU");
    assert_eq!(RESTING.get(), 0, "after a failure");
}

#[test]
fn off_never_looks_at_the_device() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Off), &script, fast());
    assert!(Problem::new(8, 1.0).call(engine));
    assert_eq!(script.starts.load(SeqCst), 0);
}

#[test]
fn any_failure_ends_in_the_cpu_result() {
    for logged in [false, true] {
        for failure in every_failure() {
            for beta in [0.0, 2.0] {
                for in_commit in [false, true] {
                    let script = Arc::new(Script::default());
                    let slot = if in_commit {
                        &script.commit_failure
                    } else {
                        &script.compute_failure
                    };
                    *slot.lock().expect("lock") = Some(failure.clone());
                    let log = if logged {
                        LogLevel::Summary
                    } else {
                        LogLevel::Off
                    };
                    let s = Settings {
                        log: Some(log),
                        ..settings(Mode::Force)
                    };
                    let engine = engine(s, &script, fast());
                    assert!(Problem::new(8, beta).call(engine), "{failure}");
                    if logged {
                        let stats = &engine.log().stats()["dgemm"];
                        assert_eq!(stats.cpu_calls, 1);
                        assert_eq!(stats.reasons["failed-on-gpu"], 1);
                        assert_eq!(stats.fallbacks[&failure.to_string()], 1);
                    }
                }
            }
        }
    }
}

#[test]
fn a_panic_inside_is_a_failure_like_any_other() {
    for in_commit in [false, true] {
        let script = Arc::new(Script::default());
        let flag = if in_commit {
            &script.panic_in_commit
        } else {
            &script.panic_in_compute
        };
        flag.store(true, SeqCst);
        let engine = engine(settings(Mode::Force), &script, fast());
        assert!(Problem::new(8, 0.0).call(engine));
        flag.store(false, SeqCst);
        assert!(!Problem::new(8, 0.0).call(engine), "nested flag was reset");
    }
}

#[test]
fn a_lost_device_is_not_asked_again() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, fast());
    *script.compute_failure.lock().expect("lock") = Some(Failure::Lost("gone".to_owned()));
    assert!(Problem::new(8, 1.0).call(engine));
    *script.compute_failure.lock().expect("lock") = None;
    assert!(Problem::new(8, 1.0).call(engine));
    assert_eq!(script.computed.load(SeqCst), 1);
}

#[test]
fn errors_in_a_row_end_the_use_of_the_device_but_a_success_between_forgives() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, fast());
    let fails = |yes: bool| {
        *script.compute_failure.lock().expect("lock") =
            yes.then(|| Failure::Device("passing".to_owned()));
        Problem::new(8, 1.0).call(engine)
    };
    for error in [true, true, false, true, true, false, true, true, true] {
        assert_eq!(fails(error), error);
    }
    let computed = script.computed.load(SeqCst);
    assert!(fails(false), "given up");
    assert_eq!(script.computed.load(SeqCst), computed);
}

#[test]
fn a_call_that_does_not_fit_is_no_reason_to_give_up() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, fast());
    *script.compute_failure.lock().expect("lock") = Some(Failure::OutOfMemory {
        needed_bytes: 2,
        budget_bytes: 1,
    });
    for _ in 0..10 {
        assert!(Problem::new(8, 1.0).call(engine));
    }
    *script.compute_failure.lock().expect("lock") = None;
    assert!(!Problem::new(8, 1.0).call(engine));
}

#[test]
fn a_device_that_does_not_start_leaves_the_cpu() {
    for mode in [Mode::Auto, Mode::Force, Mode::Deterministic] {
        for panics in [false, true] {
            let script = Arc::new(Script::default());
            script.panic_in_start.store(panics, SeqCst);
            *script.start_failure.lock().expect("lock") = Some(StartFailure {
                quiet: true,
                line: "no driver".to_owned(),
            });
            let engine = engine(settings(mode), &script, fast());
            for _ in 0..3 {
                assert!(Problem::new(8, 1.0).call(engine));
            }
            assert_eq!(
                (script.starts.load(SeqCst), script.computed.load(SeqCst)),
                (1, 0)
            );
        }
    }
}

#[test]
fn one_cold_call_that_is_long_enough_waits_for_the_start() {
    let script = Arc::new(Script::default());
    script.start_takes_ms.store(50, SeqCst);
    // 10 s on the CPU, 1 s on the GPU, 0.1 s to start.
    let engine = engine(settings(Mode::Auto), &script, profile(10.0, 1.0, 0.1));
    assert!(!Problem::new(8, 1.0).call(engine));
}

#[test]
fn a_call_does_not_wait_longer_than_it_could_gain() {
    let script = Arc::new(Script::default());
    script.start_takes_ms.store(3000, SeqCst);
    // The profile promises a start in 10 ms, and a gain of 0.2 s at best.
    let engine = engine(settings(Mode::Auto), &script, profile(0.3, 0.1, 0.01));
    let began = Instant::now();
    assert!(Problem::new(8, 1.0).call(engine));
    assert!(
        began.elapsed() < Duration::from_millis(1500),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn small_calls_start_the_device_when_they_have_missed_enough() {
    let script = Arc::new(Script::default());
    // 10 ms on the CPU, 1 ms on the GPU, 95 ms to start: 11 calls miss one start-up.
    let engine = engine(settings(Mode::Auto), &script, profile(10e-3, 1e-3, 95e-3));
    for _ in 0..10 {
        assert!(Problem::new(8, 1.0).call(engine));
        assert_eq!(script.starts.load(SeqCst), 0);
    }
    assert!(
        Problem::new(8, 1.0).call(engine),
        "the call that starts it does not wait"
    );
    let began = Instant::now();
    while Problem::new(8, 1.0).call(engine) {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(script.starts.load(SeqCst), 1);
}

#[test]
fn calls_that_would_not_win_never_start_the_device() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Auto), &script, profile(1e-3, 1.0, 1e-3));
    for _ in 0..100 {
        assert!(Problem::new(8, 1.0).call(engine));
    }
    assert_eq!(script.starts.load(SeqCst), 0);
}

#[test]
fn deterministic_waits_for_the_start_and_ignores_the_queue() {
    let script = Arc::new(Script::default());
    script.start_takes_ms.store(100, SeqCst);
    script.compute_takes_ms.store(20, SeqCst);
    // 1.5 s against 1 s: a start of 1000 s or a single call in the queue would spoil it.
    let engine = engine(
        settings(Mode::Deterministic),
        &script,
        profile(1.5, 1.0, 1000.0),
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(!Problem::new(8, 1.0).call(engine)));
        }
    });
}

#[test]
fn the_queue_is_a_part_of_the_prediction() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Auto), &script, profile(1.5, 1.0, 1e-3));
    // However long a busy machine takes to start the device.
    let began = Instant::now();
    while Problem::new(8, 1.0).call(engine) && began.elapsed() < Duration::from_secs(60) {}
    script.compute_takes_ms.store(2000, SeqCst);
    let on_cpu: usize = std::thread::scope(|scope| {
        let first = scope.spawn(|| usize::from(Problem::new(8, 1.0).call(engine)));
        let began = Instant::now();
        while script.inside.load(SeqCst) == 0 && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let second = scope.spawn(|| usize::from(Problem::new(8, 1.0).call(engine)));
        first.join().expect("no panic") * 10 + second.join().expect("no panic")
    });
    assert_eq!(on_cpu, 1, "the first on the GPU, the second not behind it");
    script.compute_takes_ms.store(0, SeqCst);
    assert!(
        !Problem::new(8, 1.0).call(engine),
        "the queue is empty again"
    );
}

#[test]
fn callers_do_not_wait_for_each_other() {
    let script = Arc::new(Script::default());
    script.compute_takes_ms.store(100, SeqCst);
    let engine = engine(settings(Mode::Force), &script, fast());
    std::thread::scope(|scope| {
        for i in 0..16 {
            scope.spawn(move || assert!(!Problem::new(4 + i % 5, f64::from(i as u8)).call(engine)));
        }
    });
    assert!(
        script.most_inside.load(SeqCst) > 4,
        "{}",
        script.most_inside.load(SeqCst)
    );
}

#[test]
fn a_call_nested_in_the_gpu_path_goes_to_the_cpu() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, fast());
    *script.nested.lock().expect("lock") = Some(Box::new(|| {
        assert!(Problem::new(3, 1.0).call(engine), "nested: CPU")
    }));
    assert!(!Problem::new(8, 1.0).call(engine));
    assert_eq!(script.computed.load(SeqCst), 1);
}

#[test]
fn what_is_illegal_or_unknown_is_left_to_the_shim() {
    let script = Arc::new(Script::default());
    let engine = engine(settings(Mode::Force), &script, fast());
    let mut p = Problem::new(8, 1.0);
    let good = p.raw();
    let bad = [
        engine_abi::RoutedCall { op: 0, ..good },
        engine_abi::RoutedCall { op: 13, ..good },
        engine_abi::RoutedCall {
            precision: b'X',
            ..good
        },
        engine_abi::RoutedCall {
            transa: b'R',
            ..good
        },
        engine_abi::RoutedCall { m: -1, ..good },
        engine_abi::RoutedCall { n: 0, ..good },
        engine_abi::RoutedCall { k: 0, ..good },
        engine_abi::RoutedCall {
            m: i64::MAX,
            n: i64::MAX,
            lda: i64::MAX,
            ldc: i64::MAX,
            ..good
        },
        engine_abi::RoutedCall { lda: 7, ..good },
        engine_abi::RoutedCall { ldc: 7, ..good },
        engine_abi::RoutedCall {
            alpha: [0.0; 2],
            ..good
        },
        engine_abi::RoutedCall {
            a: core::ptr::null(),
            ..good
        },
        engine_abi::RoutedCall {
            c: core::ptr::null_mut(),
            ..good
        },
    ];
    for raw in bad {
        // SAFETY: nothing of these calls may be touched; that is what is tested.
        assert_eq!(unsafe { engine.route(&raw) }, engine_abi::OUTCOME_UNTOUCHED);
    }
    assert_eq!(script.computed.load(SeqCst), 0);
    assert!(!p.call(engine));
}

/// Runs `child` in a forked process and returns its exit status; fails after ten seconds.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only uses the engine (which is what is tested), malloc (fork-safe in glibc)
    // and _exit.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let status =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(99);
            libc::_exit(status);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let mut status = 0;
            if libc::waitpid(pid, &raw mut status, libc::WNOHANG) == pid {
                assert!(libc::WIFEXITED(status), "the child was killed: {status}");
                return libc::WEXITSTATUS(status);
            }
            if Instant::now() > deadline {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
                panic!("the child hangs");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// 0 if the call ran on the CPU, 1 on the GPU, 2 if the process may not use the engine at all.
fn through(slot: &'static Slot) -> i32 {
    let mut p = Problem::new(8, 1.0);
    match slot.usable() {
        None => 2,
        Some(engine) => i32::from(!p.call(engine)),
    }
}

#[test]
fn a_child_forked_after_the_start_began_never_uses_the_device() {
    let script = Arc::new(Script::default());
    let slot: &'static Slot = Box::leak(Box::default());
    slot.get_or_make(|| gpu_offload::Engine::new(setup(settings(Mode::Force), &script, fast())));
    assert_eq!(through(slot), 1);
    assert_eq!(in_child(|| through(slot)), 2);
    assert_eq!(
        in_child(|| in_child(|| through(slot))),
        2,
        "nor does its child"
    );
    assert_eq!(through(slot), 1, "the parent goes on");
}

#[test]
fn a_child_forked_in_the_middle_of_the_start_does_not_wait_for_it() {
    let script = Arc::new(Script::default());
    script.start_takes_ms.store(500, SeqCst);
    let slot: &'static Slot = Box::leak(Box::default());
    slot.get_or_make(|| gpu_offload::Engine::new(setup(settings(Mode::Force), &script, fast())));
    let caller = std::thread::spawn(move || through(slot));
    while script.starts.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(in_child(|| through(slot)), 2);
    assert_eq!(caller.join().expect("no panic"), 1);
}

#[test]
fn a_child_forked_before_the_start_may_start_its_own() {
    let script = Arc::new(Script::default());
    let slot: &'static Slot = Box::leak(Box::default());
    slot.get_or_make(|| gpu_offload::Engine::new(setup(settings(Mode::Force), &script, fast())));
    assert_eq!(in_child(|| through(slot)), 1);
    assert_eq!(
        script.starts.load(SeqCst),
        0,
        "the child's start is not the parent's"
    );
    assert_eq!(through(slot), 1);
}

#[test]
fn a_child_does_not_meet_a_lock_that_its_parent_held() {
    // Threads count calls all the time while others fork: a counter's lock is often held.
    let script = Arc::new(Script::default());
    let slot: &'static Slot = Box::leak(Box::default());
    let s = Settings {
        log: Some(LogLevel::Summary),
        ..settings(Mode::Auto)
    };
    let slow_gpu = profile(1e-3, 1.0, 1e-3);
    slot.get_or_make(|| gpu_offload::Engine::new(setup(s, &script, slow_gpu)));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    through(slot);
                }
            });
        }
        for _ in 0..50 {
            assert_eq!(in_child(|| through(slot)), 0);
        }
        stop.store(true, SeqCst);
    });
}
