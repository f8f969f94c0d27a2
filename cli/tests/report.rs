//! `report` from outside, on logs that the engine's own log wrote.

mod common;

use common::Folder;
use gpu_offload::config::LogLevel;
use gpu_offload::log::{CallRecord, Log, ProcessState};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn report(args: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-offload"))
        .env_clear()
        .arg("report")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(log: &Path) -> serde_json::Value {
    let out = report(&[log, Path::new("--json")]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn record(routine: &str, route: &'static str, n: u64, seconds: f64) -> CallRecord {
    CallRecord {
        routine: routine.to_owned(),
        side: None,
        uplo: None,
        transa: Some('N'),
        transb: Some('N'),
        diag: None,
        letters: None,
        m: n,
        n,
        k: n,
        beta_zero: true,
        route,
        reason: match route {
            "gpu" => "gpu-faster",
            _ => "cpu-faster",
        },
        detail: None,
        level: 5,
        cpu_threads: 2,
        predicted_cpu_s: 4.0,
        predicted_gpu_s: 1.0,
        startup_s: 0.0,
        queue_s: 0.0,
        learned_cpu: 1.0,
        learned_gpu: 1.0,
        waited_s: 0.0,
        seconds,
        bytes_in: 2048,
        bytes_out: 1024,
        upload_s: 0.1,
        compute_s: 0.1,
        download_s: 0.05,
    }
}

/// The log of a process; one that is killed writes no sums.
fn write(path: &Path, level: LogLevel, records: &[CallRecord], killed: bool) {
    let (log, complaint) = Log::open(level, Some(path));
    assert_eq!(complaint, None);
    log.started(0.25, "Some GPU", "estimate");
    records.iter().for_each(|r| log.call(r));
    if !killed {
        log.finish(&ProcessState {
            mode: "auto",
            level: 5,
            gpu: "Some GPU".to_owned(),
        });
    }
}

fn near(value: &serde_json::Value, expected: f64) {
    let got = value.as_f64().expect("a number");
    assert!((got - expected).abs() < 1e-9, "{got}, expected {expected}");
}

#[test]
fn each_call_counts_once_whether_its_process_ended_or_not() {
    let folder = Folder::new("report-once");
    let log = folder.path("a.jsonl");
    let calls = [
        record("dgemm", "gpu", 2000, 1.5),
        CallRecord {
            waited_s: 0.5,
            ..record("dgemm", "gpu", 3000, 1.5)
        },
        record("dgemm", "cpu", 100, 5.0),
    ];
    // Three times the same number of a process: the kernel gives it again.
    write(&log, LogLevel::Decisions, &calls, false);
    write(&log, LogLevel::Decisions, &calls, false);
    write(&log, LogLevel::Decisions, &calls, true);
    let told = json(&log);
    let dgemm = &told["routines"][0];
    assert_eq!(told["routines"].as_array().map(Vec::len), Some(1));
    assert_eq!(dgemm["routine"], "dgemm");
    assert_eq!(
        (&dgemm["gpu_calls"], &dgemm["cpu_calls"]),
        (&6.into(), &3.into())
    );
    near(&dgemm["gpu_s"], 9.0);
    near(&dgemm["cpu_s"], 15.0);
    near(&dgemm["saved_s"], 3.0 * (2.5 + 2.0));
    assert_eq!(dgemm["bytes_in"], 9 * 2048);
    assert_eq!(dgemm["reasons"]["gpu-faster"], 6);
    // |1 - 1.5| / 1.5 three times and |1 - 2| / 2 three times; |4 - 5| / 5.
    near(&dgemm["gpu_errors"]["median"], 1.0 / 3.0);
    near(&dgemm["gpu_errors"]["p90"], 0.5);
    near(&dgemm["cpu_errors"]["median"], 0.2);
    assert_eq!(
        told["processes"].as_object().map(serde_json::Map::len),
        Some(1)
    );
    assert_eq!(told["devices"]["Some GPU, profile: estimate"], 3);
    near(&told["all"]["saved_s"], 13.5);
}

#[test]
fn the_page_stands_alone_and_says_what_the_table_says() {
    let folder = Folder::new("report-page");
    let log = folder.path("run.jsonl");
    let evil = CallRecord {
        reason: "failed-on-gpu",
        detail: Some("<script>alert(1)</script>".to_owned()),
        ..record("dsyevd", "cpu", 1000, 2.0)
    };
    let calls = [record("dgemm", "gpu", 2000, 1.0), evil];
    write(&log, LogLevel::Decisions, &calls, false);
    let out = report(&[&log]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let stdout = text(&out.stdout);
    let sum = "2 calls, 1 of them on the GPU; 3.00 s in the library, 3.00 s saved";
    for needle in [sum, "dsyevd", "failed-on-gpu 1", "run.html", "2.0 KiB"] {
        assert!(stdout.contains(needle), "{needle}: {stdout}");
    }
    let page = std::fs::read_to_string(folder.path("run.html")).expect("beside the log");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    assert_eq!(page.matches("<svg").count(), 4, "all charts");
    assert_eq!(
        page.matches("<circle").count(),
        4,
        "two calls in two charts"
    );
    assert!(page.contains(sum) && page.contains("&lt;script&gt;"));
    for outside in ["<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn sums_without_calls_make_a_page_with_the_chart_that_they_allow() {
    let folder = Folder::new("report-sums");
    let log = folder.path("sums.jsonl");
    write(
        &log,
        LogLevel::Summary,
        &[record("dgemm", "gpu", 2000, 1.0)],
        false,
    );
    let told = json(&log);
    near(&told["routines"][0]["saved_s"], 3.0);
    assert!(!folder.path("sums.html").exists(), "--json writes no page");
    let page = folder.path("other.html");
    let out = report(&[&log, Path::new("--output"), &page]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let page = std::fs::read_to_string(page).expect("written");
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(page.contains("GPU_OFFLOAD_LOG=decisions"));
}

#[test]
fn a_log_of_many_calls_makes_a_page_that_opens() {
    let folder = Folder::new("report-many");
    let log = folder.path("many.jsonl");
    let calls = vec![record("dgemm", "gpu", 2000, 1.0); 20_001];
    write(&log, LogLevel::Decisions, &calls, true);
    let out = report(&[&log]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let page = std::fs::read_to_string(folder.path("many.html")).expect("written");
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    assert!(page.contains("3334 of 20001 calls are shown"));
}

#[test]
fn what_cannot_be_reported_is_one_line_and_nothing_is_written() {
    let folder = Folder::new("report-wrong");
    let write = |name: &str, text: &str| PathBuf::from(folder.write(name, text));
    let whole = write(
        "whole.jsonl",
        "{\"event\":\"start\",\"pid\":1,\"device\":\"x\",\"profile\":\"y\",\"seconds\":1}\n",
    );
    let cut = write("cut.jsonl", "{\"event\":\"call\",\"pid\":1,\"rou\n");
    let foreign = write("foreign.jsonl", "routine,m,n,k\n");
    let itself = folder.path("itself.jsonl");
    self::write(
        &itself,
        LogLevel::Decisions,
        &[record("dgemm", "gpu", 2, 1.0)],
        true,
    );
    let before = std::fs::read(&itself).expect("there");
    let output = Path::new("--output");
    for (args, says) in [
        (vec![Path::new("/nonexistent.jsonl")], "accepted: a log"),
        (vec![&whole], "no call is recorded"),
        (vec![&cut], "line 1"),
        (vec![&foreign], "line 1"),
        (vec![&itself, output, &itself], "is the log itself"),
        (
            vec![&itself, output, Path::new("/nonexistent/p.html")],
            "accepted: --output",
        ),
    ] {
        let out = report(&args);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        let stderr = text(&out.stderr);
        assert!(
            stderr.lines().count() == 1 && stderr.contains(says),
            "{args:?}: {stderr}"
        );
    }
    assert_eq!(std::fs::read(&itself).expect("there"), before);
    for path in [&whole, &cut, &foreign] {
        assert!(!path.with_extension("html").exists());
    }
}
