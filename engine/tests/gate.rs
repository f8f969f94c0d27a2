//! What the engine tells a shim about thresholds. One test a file's process: the mock shim is global.

mod common;

use call::Failure;
use common::{HOST, PUBLISHED, Problem, Script, engine, profile, settings};
use cost_model::DEFAULT_THRESHOLD_WORK;
use gpu_offload::config::{Mode, Settings};
use routines::Op;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

fn published_of(op: Op) -> [u64; 4] {
    [0, 1, 2, 3].map(|i| PUBLISHED[op as usize][i].load(SeqCst))
}

/// The thresholds of gemm; those of the other families are looked at one by one.
fn published(s: Settings, p: cost_model::Profile) -> [u64; 4] {
    engine(s, &Arc::new(Script::default()), p).publish(&HOST);
    published_of(Op::Gemm)
}

#[test]
fn thresholds_follow_mode_variable_profile_and_fate() {
    let fast = || profile(1.0, 1e-3, 1e-3);
    assert_eq!(published(settings(Mode::Off), fast()), [u64::MAX; 4]);
    assert_eq!(
        published(settings(Mode::Force), fast()),
        [DEFAULT_THRESHOLD_WORK; 4]
    );
    // Flops, of which a complex multiply-add is eight.
    let s = Settings {
        threshold_flops: Some(8e9),
        ..settings(Mode::Auto)
    };
    assert_eq!(
        published(s.clone(), fast()),
        [4_000_000_000, 4_000_000_000, 1_000_000_000, 1_000_000_000]
    );
    // A triangle halves the flops of a unit of work.
    for op in [Op::Trsm, Op::Syrk, Op::Gemmtr] {
        assert_eq!(published_of(op)[1..3], [8_000_000_000, 2_000_000_000]);
    }
    assert_eq!(published_of(Op::Her2k)[2..], [1_000_000_000; 2]);
    assert_eq!(
        published(
            Settings {
                mode: Mode::Force,
                ..s
            },
            fast()
        )[1],
        4_000_000_000
    );
    // The GPU never wins: nothing comes here at all.
    assert_eq!(
        published(settings(Mode::Auto), profile(1e-3, 1.0, 1.0)),
        [u64::MAX; 4]
    );
    // It wins from the smallest sample on, where its curve is flat and the CPU's is not.
    let gate = published(settings(Mode::Auto), profile(1e-3, 1e-4, 1e-3))[1];
    // (At n = 16, the least that is looked at.)
    assert!(gate <= 16 * 16 * 16, "{gate}");
    assert!(published_of(Op::Trmm)[1] < u64::MAX);

    // After the device is lost, calls stay away.
    let script = Arc::new(Script::default());
    *script.compute_failure.lock().expect("lock") = Some(Failure::Lost("gone".to_owned()));
    let engine = engine(settings(Mode::Auto), &script, fast());
    Problem::new(8, 1.0).call(engine);
    // Not by registering again: the next call tells it.
    Problem::new(8, 1.0).call(engine);
    assert_eq!(published_of(Op::Gemm)[1], u64::MAX);
    assert_eq!(published_of(Op::Hemm)[3], u64::MAX);
}
