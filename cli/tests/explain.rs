//! `explain` from outside: an answer over a given profile, and a log's decisions again.

mod common;

use common::Folder;
use cost_model::{CpuFacts, Fingerprint, Level, Profile, Situation, decide};
use routines::{Op, Precision, Shape};
use std::path::Path;
use std::process::{Command, Output};

fn explain(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-offload"))
        .env_clear()
        .env("HOME", home)
        .arg("explain")
        .args(args)
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn profile() -> Profile {
    Profile::prior(Fingerprint::default(), &CpuFacts { threads: 8 })
}

fn square(n: u64) -> Shape {
    Shape {
        op: Op::Gemm,
        precision: Precision::D,
        m: n,
        n,
        k: n,
        right: false,
        beta_zero: true,
        letters: [0; 4],
    }
}

#[test]
fn the_terms_are_the_models_and_the_change_is_where_the_model_has_it() {
    let folder = Folder::new("explain");
    let file = folder.write("profile.toml", &profile().to_toml());
    let out = explain(&folder.0, &["dgemm", "4000", "--profile", &file, "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let model = |n| {
        decide(
            &profile(),
            &square(n),
            &Situation::default(),
            Level::default(),
        )
    };
    let expected = model(4000);
    assert_eq!(json["reason"], expected.reason.name());
    let gpu_s = json["gpu"]["total_s"].as_f64().expect("a time");
    assert!((gpu_s - expected.prediction.gpu_s()).abs() <= 1e-9 * gpu_s);
    let terms = [
        "startup_s",
        "queue_s",
        "latency_s",
        "upload_s",
        "compute_s",
        "download_s",
        "fresh_s",
    ];
    let sum: f64 = terms
        .iter()
        .map(|term| json["gpu"][term].as_f64().expect(term))
        .sum();
    let overlap_s = json["gpu"]["overlap_s"].as_f64().expect("a time");
    assert!((sum - overlap_s - gpu_s).abs() <= 1e-9 * gpu_s, "{json}");
    let changes = json["changes"].as_array().expect("changes");
    assert_eq!(changes.len(), 2, "{json}");
    let n = changes[1]["sizes"][0]["size"].as_u64().expect("a size");
    assert_ne!(model(n - 1).route, model(n).route);
    // Waiting for a start is a term of its own, and may change the decision.
    let out = explain(
        &folder.0,
        &["dgemm", "2000", "--profile", &file, "--cold", "--json"],
    );
    let cold: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(cold["reason"], "startup-too-long", "{cold}");
    assert_eq!(
        cold["gpu"]["startup_s"].as_f64(),
        Some(profile().overheads().start_s)
    );
    // What is there already is not moved.
    let upload = |more: &[&str]| {
        let args = [&["dgemm", "4000", "--profile", &file, "--json"], more].concat();
        let json: serde_json::Value =
            serde_json::from_slice(&explain(&folder.0, &args).stdout).expect("JSON");
        json["gpu"]["upload_s"].as_f64().expect("a time")
    };
    assert!(upload(&["--resident", "A"]) < 0.6 * upload(&[]));
}

#[test]
fn a_wrong_question_is_one_line() {
    let folder = Folder::new("wrong-question");
    for (args, says) in [
        (&["dgemmm", "5"][..], "accepted: a routine"),
        (&["dgemm", "5", "--resident", "Q"], "accepted: A, B"),
        (
            &["dgemm", "5", "--profile", "/nonexistent"],
            "accepted: a profile",
        ),
        (&["--replay", "/nonexistent.jsonl"], "accepted: a log"),
    ] {
        let out = explain(&folder.0, args);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        let stderr = text(&out.stderr);
        assert!(
            stderr.lines().count() == 1 && stderr.contains(says),
            "{stderr}"
        );
    }
}

#[test]
fn a_recorded_decision_comes_out_again_and_a_changed_one_does_not() {
    let folder = Folder::new("replay");
    let file = folder.write("profile.toml", &profile().to_toml());
    let situation = Situation {
        cpu_threads: 4,
        queue_s: 0.01,
        ..Situation::default()
    };
    let line = |n: u64, route: Option<&str>| {
        let decision = decide(&profile(), &square(n), &situation, Level::default());
        let own = match decision.route {
            cost_model::Route::Cpu => "cpu",
            cost_model::Route::Gpu => "gpu",
        };
        serde_json::json!({
            "event": "call", "pid": 7, "routine": "dgemm", "transa": "N", "transb": "N",
            "m": n, "n": n, "k": n, "beta_zero": true, "route": route.unwrap_or(own),
            "reason": decision.reason.name(), "detail": null, "level": 5, "cpu_threads": 4,
            "predicted_cpu_s": decision.prediction.cpu_s,
            "predicted_gpu_s": decision.prediction.gpu_s(),
            "startup_s": 0.0, "queue_s": 0.01, "learned_cpu": 1.0, "learned_gpu": 1.0, "waited_s": 0.0, "seconds": 0.5,
            "bytes_in": 0, "bytes_out": 0, "upload_s": 0.0, "compute_s": 0.0, "download_s": 0.0,
        })
        .to_string()
    };
    let start = serde_json::json!({
        "event": "start", "pid": 7, "seconds": 1.0, "device": "x", "profile": file
    });
    let log = folder.write(
        "log.jsonl",
        &format!("{start}\n{}\n{}\n", line(300, None), line(4000, None)),
    );
    let out = explain(&folder.0, &["--replay", &log]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let stdout = text(&out.stdout);
    assert!(
        stdout.contains("2 decisions again, 0 of them different"),
        "{stdout}"
    );

    let other = folder.write(
        "other.jsonl",
        &format!("{start}\n{}\n", line(300, Some("gpu"))),
    );
    let out = explain(&folder.0, &["--replay", &other, "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(json[0]["same"], false);
    assert_eq!(json[0]["recorded_route"], "gpu");

    let broken = folder.write("broken.jsonl", "{\"event\": \"call\"\n");
    let out = explain(&folder.0, &["--replay", &broken]);
    assert!(
        text(&out.stderr).contains("line 1"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn what_was_learnt_is_in_the_answer() {
    use cost_model::{Learned, Route};
    use gpu_offload::learn::store;
    let folder = Folder::new("learnt");
    let file = folder.write("profile.toml", &profile().to_toml());
    let (shape, level) = (square(4000), Level::default());
    let before = decide(&profile(), &shape, &Situation::default(), level);
    assert_eq!(before.route, Route::Gpu);
    // A GPU that takes twenty times as long.
    let learned = Learned::new();
    for _ in 0..20 {
        let decided = learned.decide(&profile(), &shape, &Situation::default(), level, false);
        let seconds = 20.0 * before.prediction.busy_s();
        learned.observe(&shape, &decided, Route::Gpu, seconds);
    }
    let dir = folder.0.join(".local/state/gpu-offload");
    let identity = store::identity(&profile(), &file);
    let written = store::write(&dir, identity, &[], &learned.entries());
    assert!(matches!(written, store::Written::Entries(_)), "{written:?}");
    let out = explain(&folder.0, &["--profile", &file, "dgemm", "4000"]);
    let stdout = text(&out.stdout);
    assert!(stdout.contains("-> CPU"), "{stdout}");
    assert!(
        stdout.contains("corrected by what was learnt: CPU x 1.00, GPU x"),
        "{stdout}"
    );
}
