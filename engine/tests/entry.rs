//! The exported entry in a process of its own: what files and variables do, and what is printed.
//!
//! Each test runs this executable again with the test `child` and looks at its output. No GPU is
//! needed: the calls are too small to be worth one.

mod common;

use common::{HOST, Problem};
use engine_abi::{HostTable, OUTCOME_DONE, OUTCOME_UNTOUCHED};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
#[ignore = "runs inside the other tests"]
fn child() {
    // Two shims register, as libblas.so.3 and liblapack.so.3 do.
    // SAFETY: a static table.
    let tables = [0; 2].map(|_| unsafe { gpu_offload::gpu_offload_engine_v1(&raw const HOST) });
    assert_eq!(tables[0], tables[1]);
    // SAFETY: the engine's static table.
    let table = unsafe { tables[0].as_ref() }.expect("accepted");
    for _ in 0..3 {
        let mut p = Problem::new(8, 1.0);
        let raw = p.raw();
        // SAFETY: operands, host and frame outlive the call.
        let outcome = unsafe { (table.route)(&raw const raw) };
        assert!([OUTCOME_DONE, OUTCOME_UNTOUCHED].contains(&outcome));
        assert!(p.settle(outcome), "too small for a GPU");
        // Another version's call is left alone.
        let foreign = engine_abi::RoutedCall {
            struct_bytes: 8,
            ..p.raw()
        };
        // SAFETY: as above.
        let outcome = unsafe { (table.route)(&raw const foreign) };
        assert_eq!(outcome, OUTCOME_UNTOUCHED);
    }
}

#[test]
fn another_abi_is_refused() {
    let host = |abi_version, struct_bytes| HostTable {
        abi_version,
        struct_bytes,
        set_threshold: HOST.set_threshold,
        cpu_threads: HOST.cpu_threads,
        cpu_config: HOST.cpu_config,
        rest: HOST.rest,
    };
    let (v, b) = (HOST.abi_version, HOST.struct_bytes);
    for bad in [host(v + 1, b), host(0, b), host(v, b + 8), host(v, 0)] {
        // SAFETY: a live table.
        assert!(unsafe { gpu_offload::gpu_offload_engine_v1(&raw const bad) }.is_null());
    }
    // SAFETY: null is allowed.
    assert!(unsafe { gpu_offload::gpu_offload_engine_v1(core::ptr::null()) }.is_null());
}

/// A home directory that goes away.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gpu-offload-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join(".config/gpu-offload")).expect("temporary directory");
        std::fs::create_dir_all(dir.join(".local/share/gpu-offload")).expect("temporary directory");
        Self(dir)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.join(path);
        std::fs::write(&path, text).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        path
    }

    fn run(&self, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command
            .args([
                "--exact",
                "child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env_clear()
            .env("HOME", &self.0)
            .envs(variables.iter().copied());
        let output = command.output().expect("started");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        output
    }

    /// Lines on standard error.
    fn stderr(&self, variables: &[(&str, &str)]) -> Vec<String> {
        let output = self.run(variables);
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn one_line(lines: &[String], needles: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:?}");
    for needle in needles {
        assert!(lines[0].contains(needle), "{needle}: {}", lines[0]);
    }
}

const CONFIG: &str = ".config/gpu-offload/config.toml";
const PROFILE: &str = ".local/share/gpu-offload/profile.toml";

#[test]
fn nothing_is_printed_unless_asked() {
    let home = Home::new("silent");
    assert_eq!(home.stderr(&[]), Vec::<String>::new());
    assert_eq!(home.stderr(&[("GPU_OFFLOAD", "off")]), Vec::<String>::new());
    home.write(CONFIG, "level = 7\n");
    assert_eq!(home.stderr(&[]), Vec::<String>::new());
}

#[test]
fn a_bad_variable_is_reported_once() {
    let home = Home::new("variable");
    let accepted = "auto, off, force, deterministic or verify";
    one_line(
        &home.stderr(&[("GPU_OFFLOAD", "on")]),
        &["GPU_OFFLOAD", "\"on\"", accepted],
    );
    let lines = home.stderr(&[("GPU_OFFLOAD", "on"), ("GPU_OFFLOAD_LEVEL", "99")]);
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_bad_configuration_file_is_reported_once_with_its_line() {
    let home = Home::new("config");
    home.write(CONFIG, "level = 5\nmode = fast\n");
    one_line(&home.stderr(&[]), &["config.toml", "line 2", "accepted"]);
    home.write(CONFIG, "level = 5\n\nmode = \"fast\"\n");
    one_line(
        &home.stderr(&[]),
        &[
            "config.toml",
            "line 3",
            "auto, off, force, deterministic or verify",
        ],
    );
    let path = home.write(CONFIG, "mode = \"force\"\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("chmod");
    one_line(
        &home.stderr(&[]),
        &["config.toml", "written by others", "accepted"],
    );
}

#[test]
fn a_bad_profile_is_reported_once() {
    let home = Home::new("profile");
    home.write(PROFILE, "schema = 1\nspeed = 3\n");
    one_line(
        &home.stderr(&[]),
        &["profile.toml", "line 2", "speed", "accepted"],
    );
    home.write(PROFILE, "schema = 77\n");
    one_line(
        &home.stderr(&[]),
        &["profile.toml", "schema 77", "accepted: 1"],
    );
    let foreign = common::profile(1.0, 1.0, 1.0).to_toml();
    home.write(PROFILE, &foreign);
    one_line(
        &home.stderr(&[]),
        &["profile.toml", "cpu_model", "calibrate"],
    );
    std::fs::remove_file(home.0.join(PROFILE)).expect("there");
    let lines = home.stderr(&[("GPU_OFFLOAD_PROFILE", "/nonexistent/p.toml")]);
    one_line(
        &lines,
        &["/nonexistent/p.toml", "no such file", "calibrate"],
    );
}

#[test]
fn a_log_that_cannot_be_written_is_reported_once() {
    let home = Home::new("log");
    let lines = home.stderr(&[("GPU_OFFLOAD_LOG_FILE", "/nonexistent/log.jsonl")]);
    one_line(&lines, &["/nonexistent/log.jsonl", "accepted"]);
}

#[test]
fn the_summary_comes_at_exit() {
    let home = Home::new("summary");
    let lines = home.stderr(&[("GPU_OFFLOAD_LOG", "summary")]);
    assert!(
        lines[0].starts_with("gpu-offload summary of process"),
        "{lines:?}"
    );
    let row = lines.iter().find(|l| l.contains("dgemm")).expect("a row");
    let columns: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(columns[..3], ["dgemm", "3", "0"], "{row}");

    let log = home.0.join("log.jsonl");
    let lines = home.stderr(&[("GPU_OFFLOAD_LOG_FILE", log.to_str().expect("UTF-8"))]);
    assert_eq!(lines, Vec::<String>::new());
    assert_eq!(events(&log), ["summary", "process"]);
    home.run(&[
        ("GPU_OFFLOAD_LOG_FILE", log.to_str().expect("UTF-8")),
        ("GPU_OFFLOAD_LOG", "decisions"),
    ]);
    assert_eq!(
        events(&log),
        [
            "summary", "process", "call", "call", "call", "summary", "process"
        ]
    );
}

fn events(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).expect("written");
    text.lines()
        .map(|l| {
            let line: serde_json::Value = serde_json::from_str(l).expect(l);
            line["event"].as_str().expect("an event").to_owned()
        })
        .collect()
}
