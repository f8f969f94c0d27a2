//! Mode verify: the program has the CPU's result whatever the device does, and the log says what the device did.

mod common;

use call::Failure;
use common::{Problem, Script, engine, profile, settings};
use gpu_offload::config::{LogLevel, Mode, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("gpu-offload-{}-{name}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn settings(&self) -> Settings {
        Settings {
            log: Some(LogLevel::Decisions),
            log_file: Some(self.0.clone()),
            ..settings(Mode::Verify)
        }
    }

    fn events(&self, event: &str) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.0).expect("a log");
        text.lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line))
            .filter(|line| line["event"] == event)
            .collect()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn slow() -> cost_model::Profile {
    profile(1e-9, 1.0, 1.0)
}

#[test]
fn both_sides_compute_and_the_program_has_the_cpus_result() {
    let (file, script) = (File::new("verify-both"), Arc::new(Script::default()));
    let engine = engine(file.settings(), &script, slow());
    for beta in [0.0, 1.0, -3.0] {
        assert!(Problem::new(8, beta).call(engine), "the CPU's");
    }
    assert_eq!(script.committed.load(SeqCst), 3);
    let verified = file.events("verified");
    assert_eq!(verified.len(), 3);
    for line in &verified {
        assert_eq!(line["routine"], "dgemm");
        assert_eq!(line["measures"][0]["name"], "elements");
        assert_eq!(line["measures"][0]["gpu"], 0.0);
    }
    for line in file.events("call") {
        assert_eq!(
            (&line["route"], &line["reason"]),
            (&"cpu".into(), &"verified".into())
        );
    }
}

#[test]
fn a_device_that_is_wrong_is_found_and_harms_nobody() {
    let (file, script) = (File::new("verify-wrong"), Arc::new(Script::default()));
    let engine = engine(file.settings(), &script, slow());
    script.is_wrong.store(true, SeqCst);
    // `call` compares the caller's memory with the right result, gaps included.
    assert!(Problem::new(8, 0.0).call(engine));
    let verified = file.events("verified");
    let ratio = verified[0]["measures"][0]["gpu"].as_f64().expect("a ratio");
    assert!(gpu_offload::verify::is_wrong(ratio, None), "{ratio}");
}

#[test]
fn a_device_that_fails_is_told_of() {
    for panics in [false, true] {
        let (file, script) = (File::new("verify-fails"), Arc::new(Script::default()));
        let engine = engine(file.settings(), &script, slow());
        match panics {
            true => script.panic_in_commit.store(true, SeqCst),
            false => {
                *script.commit_failure.lock().expect("lock") = Some(Failure::Unsupported("this"));
            }
        }
        for beta in [0.0, 2.0] {
            assert!(Problem::new(8, beta).call(engine));
        }
        let verified = file.events("verified");
        assert_eq!(verified.len(), 2);
        for line in verified {
            let why = line["skipped"].as_str().expect("a reason");
            let expected = if panics {
                "failed inside"
            } else {
                "no GPU path: this"
            };
            assert!(why.contains(expected), "{why}");
        }
    }
}

#[test]
fn without_a_device_calls_are_the_cpus_and_told_of() {
    let (file, script) = (File::new("verify-none"), Arc::new(Script::default()));
    let absent = gpu_offload::StartFailure {
        quiet: true,
        line: "no driver".to_owned(),
    };
    *script.start_failure.lock().expect("lock") = Some(absent);
    let engine = engine(file.settings(), &script, slow());
    assert!(Problem::new(8, 1.0).call(engine));
    assert_eq!(file.events("verified")[0]["skipped"], "no driver");
}
