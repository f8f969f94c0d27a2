//! What a hostile surrounding did to the drop-in once, each as the smallest program that showed it. The
//! GPU is the simulated one.

use cases::{Program, compile_with, ours, scratch};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Far above what any of these takes; each of them used to hang for ever.
const DEADLINE: Duration = Duration::from_secs(60);

fn products(dir: &Path) -> PathBuf {
    compile_with(dir, "basic.c", &ours(), &["-lm"])
}

/// A stderr whose reader has gone: our own lines must not end the program by SIGPIPE.
#[test]
fn a_broken_stderr_does_not_end_the_program() {
    let dir = scratch!("broken-stderr");
    let exe = products(&dir);
    for (name, value) in [
        ("GPU_OFFLOAD_LEVEL", "no level"),
        ("SIM_CUDA_FAULT", "cublasGemmEx_64:1:lost"),
        ("GPU_OFFLOAD_LOG", "summary"),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut program = Program::new(&exe, &ours())
            .on_simulated_cuda(&dir.join("log.jsonl"))
            .arg("100")
            .env(name, value);
        let command = program
            .command()
            .env_remove("GPU_OFFLOAD_LOG_FILE")
            .stderr(writer);
        let status = command.status().expect("starts");
        assert!(status.success(), "{name}={value}: {status}");
    }
}

/// A pipe without a reader as log file: one line, and the result.
#[test]
fn a_log_file_that_is_a_pipe_without_reader_is_refused() {
    let dir = scratch!("log-pipe");
    let pipe = dir.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo starts").success());
    let got = Program::new(products(&dir), &ours())
        .on_simulated_cuda(&pipe)
        .arg("100")
        .run_for(DEADLINE)
        .expect_success("a log that is a pipe");
    assert_eq!(got.stderr.lines().count(), 1, "{}", got.stderr);
}

/// Errors at the moments when a finished call gives its lane back must not use the lanes up.
#[test]
fn failing_context_calls_do_not_use_the_lanes_up() {
    let dir = scratch!("lanes");
    let faults: Vec<String> = (6..60)
        .map(|n| format!("cuCtxPushCurrent_v2:{n}:invalid"))
        .collect();
    for step in 1..4 {
        let some: Vec<String> = faults.iter().step_by(step).cloned().collect();
        let mut program = Program::new(products(&dir), &ours())
            .on_simulated_cuda(&dir.join("log.jsonl"))
            .env("SIM_CUDA_FAULT", some.join(","));
        for _ in 0..12 {
            program = program.arg("100");
        }
        program
            .run_for(DEADLINE)
            .expect_success("calls with failing context calls");
    }
}
