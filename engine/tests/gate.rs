//! What the engine tells a shim about thresholds. One test a file's process: the mock shim is global.

mod common;

use call::Failure;
use common::{HOST, PUBLISHED, Problem, Script, engine, profile, settings};
use cost_model::DEFAULT_THRESHOLD_WORK;
use gpu_offload::config::{Mode, Settings};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

fn published(s: Settings, p: cost_model::Profile) -> [u64; 4] {
    engine(s, &Arc::new(Script::default()), p).publish(&HOST);
    [0, 1, 2, 3].map(|i| PUBLISHED[i].load(SeqCst))
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
    assert!(gate > 8 && gate < 512, "{gate}");

    // After the device is lost, calls stay away.
    let script = Arc::new(Script::default());
    *script.compute_failure.lock().expect("lock") = Some(Failure::Lost("gone".to_owned()));
    let engine = engine(settings(Mode::Auto), &script, fast());
    Problem::new(8, 1.0).call(engine);
    engine.publish(&HOST);
    assert_eq!(PUBLISHED[1].load(SeqCst), u64::MAX);
}
