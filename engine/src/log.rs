//! Statistics and the log: a table at exit, a line for each call, or the same as JSON lines.
//!
//! Nothing is printed unless the user asks for it. A record is one `write`, so several processes may
//! append to one file. The lock here is held for counting only, never during a computation.
//!
//! # JSON lines
//! A log file that ends in `.jsonl` gets one object a line; every object has `event` and `pid`.
//! - `start`: `seconds`, `device`, `profile` (its path, or "estimate"); or `start-failed`: `reason`.
//! - `call` (from level decisions on): see [`CallRecord`].
//! - `verified` (mode verify, from level decisions on, after its `call`): `routine`, `m`, `n`, `k`, and `measures`
//!   (`name`, `gpu`, `cpu`; see `verify`) or `skipped` (why).
//! - `summary` (at exit, one a routine): see [`RoutineStats`] and `routine`.
//! - `process` (at exit): `mode`, `level`, `gpu` (what became of it).

use crate::config::LogLevel;
use crate::os;
use crate::verify::Finding;
use call::Timing;
use core::fmt::Write as _;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Distinct fallback texts that are counted a routine; the rest is counted together.
const MAX_TEXTS: usize = 32;

/// One finished call.
#[derive(Clone, Debug, Serialize)]
pub struct CallRecord {
    /// "dgemm".
    pub routine: String,
    /// 'L' or 'R'; this and the other letters are absent where the routine lacks them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<char>,
    /// 'U' or 'L'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplo: Option<char>,
    /// 'N', 'T' or 'C'; the only trans of a rank-k update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transa: Option<char>,
    /// 'N', 'T' or 'C'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transb: Option<char>,
    /// 'N' or 'U'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diag: Option<char>,
    /// The options of a routine of LAPACK, in the order of its arguments ("VU" of syevd: jobz, uplo).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letters: Option<String>,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Inner dimension, or the order of the symmetric or triangular matrix; of LAPACK, the right-hand sides
    /// or reflectors, or n.
    pub k: u64,
    /// The output was not read.
    pub beta_zero: bool,
    /// "gpu" or "cpu": the side whose result the caller has.
    pub route: &'static str,
    /// Why: a reason of the cost model, or "forced", "gpu-unavailable", "failed-on-gpu".
    pub reason: &'static str,
    /// What exactly, for the last two.
    pub detail: Option<String>,
    /// Level in force.
    pub level: u8,
    /// Threads of the CPU library in force.
    pub cpu_threads: u32,
    /// Predicted time on the CPU; 0 where nothing was predicted.
    pub predicted_cpu_s: f64,
    /// Predicted time on the GPU, waiting included.
    pub predicted_gpu_s: f64,
    /// Of which waiting for its start.
    pub startup_s: f64,
    /// Of which waiting for other calls.
    pub queue_s: f64,
    /// Factor of what was learnt within the CPU's predicted time.
    pub learned_cpu: f64,
    /// Factor of what was learnt within the GPU's predicted time, waiting apart.
    pub learned_gpu: f64,
    /// Time that the call waited for the GPU's start before it ran.
    pub waited_s: f64,
    /// What it took from then on.
    pub seconds: f64,
    /// Bytes to the device.
    pub bytes_in: u64,
    /// Bytes from the device.
    pub bytes_out: u64,
    /// Time until the operands were on the device.
    pub upload_s: f64,
    /// Time of the kernels.
    pub compute_s: f64,
    /// Time until the result was in the caller's memory.
    pub download_s: f64,
}

impl CallRecord {
    /// Puts the device's own figures in.
    pub fn set_timing(&mut self, timing: &Timing) {
        self.bytes_in = timing.bytes_in;
        self.bytes_out = timing.bytes_out;
        self.upload_s = timing.upload_s;
        self.compute_s = timing.compute_s;
        self.download_s = timing.download_s;
    }
}

/// What is known of one routine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RoutineStats {
    /// Calls that reached the engine (those below the threshold do not).
    pub calls: u64,
    /// Calls whose result came from the GPU.
    pub gpu_calls: u64,
    /// Calls whose result came from the CPU.
    pub cpu_calls: u64,
    /// Time of the former.
    pub gpu_s: f64,
    /// Time of the latter.
    pub cpu_s: f64,
    /// Predicted CPU time of the GPU's calls less what they took, waiting for the start included; of calls
    /// without a prediction nothing.
    pub saved_s: f64,
    /// Bytes to the device.
    pub bytes_in: u64,
    /// Bytes from the device.
    pub bytes_out: u64,
    /// Calls by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// CPU calls that were meant for the GPU, by what went wrong.
    pub fallbacks: BTreeMap<String, u64>,
}

impl RoutineStats {
    fn add(&mut self, r: &CallRecord) {
        self.calls += 1;
        if r.route == "gpu" {
            self.gpu_calls += 1;
            self.gpu_s += r.seconds;
            if r.predicted_cpu_s > 0.0 {
                self.saved_s += r.predicted_cpu_s - r.waited_s - r.seconds;
            }
        } else {
            self.cpu_calls += 1;
            self.cpu_s += r.seconds;
        }
        self.bytes_in += r.bytes_in;
        self.bytes_out += r.bytes_out;
        *self.reasons.entry(r.reason).or_default() += 1;
        if let Some(detail) = &r.detail {
            let known = self.fallbacks.contains_key(detail) || self.fallbacks.len() < MAX_TEXTS;
            let text = if known {
                detail.as_str()
            } else {
                "(other reasons)"
            };
            *self.fallbacks.entry(text.to_owned()).or_default() += 1;
        }
    }
}

/// What the summary says of the process.
pub struct ProcessState<'a> {
    /// Mode in force.
    pub mode: &'a str,
    /// Level in force.
    pub level: u8,
    /// What became of the GPU.
    pub gpu: String,
}

enum Sink {
    Nowhere,
    Stderr,
    Text(File),
    Json(File),
}

/// The log of one process.
pub struct Log {
    level: LogLevel,
    sink: Sink,
    stats: Mutex<BTreeMap<String, RoutineStats>>,
}

impl Log {
    /// A log at `level` to `file`, or to standard error. The second value is a line for the user if
    /// the file cannot be written; nothing is logged then.
    pub fn open(level: LogLevel, file: Option<&Path>) -> (Self, Option<String>) {
        let mut complaint = None;
        let sink = match (level, file) {
            (LogLevel::Off, _) => Sink::Nowhere,
            (_, None) => Sink::Stderr,
            (_, Some(path)) => match open_to_append(path) {
                Ok(f) if path.extension().is_some_and(|e| e == "jsonl") => Sink::Json(f),
                Ok(f) => Sink::Text(f),
                Err(e) => {
                    complaint = Some(format!(
                        "log file {}: cannot be written ({e}); accepted: a path in a writable directory; \
                         nothing is logged",
                        path.display()
                    ));
                    Sink::Nowhere
                }
            },
        };
        let level = if matches!(sink, Sink::Nowhere) {
            LogLevel::Off
        } else {
            level
        };
        (
            Self {
                level,
                sink,
                stats: Mutex::default(),
            },
            complaint,
        )
    }

    /// True if calls are counted and timed.
    pub fn wants_calls(&self) -> bool {
        self.level > LogLevel::Off
    }

    /// True if [`Log::debug`] prints.
    pub fn is_debug(&self) -> bool {
        self.level == LogLevel::Debug
    }

    /// One finished call.
    pub fn call(&self, record: &CallRecord) {
        if !self.wants_calls() {
            return;
        }
        {
            let mut stats = self.stats.lock();
            if !stats.contains_key(&record.routine) {
                stats.insert(record.routine.clone(), RoutineStats::default());
            }
            if let Some(of_routine) = stats.get_mut(&record.routine) {
                of_routine.add(record);
            }
        }
        if self.level >= LogLevel::Decisions {
            self.write("call", record, || call_line(record));
        }
    }

    /// What a call on both sides has shown.
    pub fn verified(&self, record: &CallRecord, finding: &Finding) {
        if self.level < LogLevel::Decisions {
            return;
        }
        #[derive(Serialize)]
        struct Verified<'a> {
            routine: &'a str,
            m: u64,
            n: u64,
            k: u64,
            #[serde(flatten)]
            finding: &'a Finding,
        }
        let CallRecord {
            ref routine,
            m,
            n,
            k,
            ..
        } = *record;
        let body = Verified {
            routine,
            m,
            n,
            k,
            finding,
        };
        self.write("verified", &body, || {
            let text = match finding {
                Finding::Skipped(why) => format!("not verified: {why}"),
                Finding::Measures(measures) => measures
                    .iter()
                    .map(|m| match m.cpu {
                        Some(cpu) => format!("{} {:.2} (CPU {cpu:.2})", m.name, m.gpu),
                        None => format!("{} {:.2}", m.name, m.gpu),
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            format!("{routine} m={m} n={n} k={k}: {text}")
        });
    }

    /// The GPU is ready.
    pub fn started(&self, seconds: f64, device: &str, profile: &str) {
        if self.wants_calls() {
            #[derive(Serialize)]
            struct Start<'a> {
                seconds: f64,
                device: &'a str,
                profile: &'a str,
            }
            self.write_unless_table(
                "start",
                &Start {
                    seconds,
                    device,
                    profile,
                },
                || format!("{device} is ready after {seconds:.3} s (profile: {profile})"),
            );
        }
    }

    /// The GPU cannot be used. `told`: standard error has the line already.
    pub fn start_failed(&self, reason: &str, told: bool) {
        if self.wants_calls() && !(told && matches!(self.sink, Sink::Stderr)) {
            #[derive(Serialize)]
            struct Failed<'a> {
                reason: &'a str,
            }
            self.write_unless_table("start-failed", &Failed { reason }, || {
                format!("no GPU is used: {reason}")
            });
        }
    }

    /// What happens inside, at level debug.
    pub fn debug(&self, text: &str) {
        if self.is_debug() {
            #[derive(Serialize)]
            struct Debug<'a> {
                text: &'a str,
            }
            self.write("debug", &Debug { text }, || text.to_owned());
        }
    }

    /// Text logs at level summary hold nothing but the table; JSON lines hold every event.
    fn write_unless_table(
        &self,
        event: &str,
        body: &impl Serialize,
        text: impl FnOnce() -> String,
    ) {
        if self.level > LogLevel::Summary || matches!(self.sink, Sink::Json(_)) {
            self.write(event, body, text);
        }
    }

    fn write(&self, event: &str, body: &impl Serialize, text: impl FnOnce() -> String) {
        // A log that cannot be written must not disturb the program.
        match &self.sink {
            Sink::Nowhere => {}
            Sink::Stderr => os::complain(&text()),
            Sink::Text(file) => put(file, &format!("gpu-offload: {}\n", text())),
            Sink::Json(file) => put(file, &json_line(event, body)),
        }
    }

    /// The end of the process: the table, or its JSON lines. Gives up if a thread holds the counters.
    pub fn finish(&self, process: &ProcessState<'_>) {
        if !self.wants_calls() {
            return;
        }
        let Some(stats) = self.stats.try_lock_for(Duration::from_millis(100)) else {
            return;
        };
        if let Sink::Json(file) = &self.sink {
            #[derive(Serialize)]
            struct Summary<'a> {
                routine: &'a str,
                #[serde(flatten)]
                stats: &'a RoutineStats,
            }
            #[derive(Serialize)]
            struct Process<'a> {
                mode: &'a str,
                level: u8,
                gpu: &'a str,
            }
            let mut lines = String::new();
            for (routine, stats) in stats.iter() {
                lines += &json_line("summary", &Summary { routine, stats });
            }
            let ProcessState {
                mode,
                level,
                ref gpu,
            } = *process;
            lines += &json_line("process", &Process { mode, level, gpu });
            put(file, &lines);
            return;
        }
        let table = table(&stats, process);
        match &self.sink {
            Sink::Text(file) => put(file, &table),
            _ => os::write_stderr(table.as_bytes()),
        }
    }

    /// A copy of the counters, for tests and reports.
    pub fn stats(&self) -> BTreeMap<String, RoutineStats> {
        self.stats.lock().clone()
    }
}

/// Writes to the log. What cannot be written is lost; the program is not to suffer for its log.
fn put(mut file: &File, text: &str) {
    drop(os::without_sigpipe(|| file.write_all(text.as_bytes())));
}

fn open_to_append(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        // Not blocking: a pipe without a reader is refused instead of waited for.
        .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(path)
}

fn json_line(event: &str, body: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        event: &'a str,
        pid: i32,
        #[serde(flatten)]
        body: &'a T,
    }
    let mut line = serde_json::to_string(&Line {
        event,
        pid: os::pid(),
        body,
    })
    .unwrap_or_default();
    line.push('\n');
    line
}

fn call_line(r: &CallRecord) -> String {
    // In the order of the routines' arguments: "dtrsm LUTN".
    let letters: String = [r.side, r.uplo, r.transa, r.transb, r.diag]
        .into_iter()
        .flatten()
        .chain(r.letters.iter().flat_map(|letters| letters.chars()))
        .collect();
    let mut line = format!(
        "{} {letters} m={} n={} k={} -> {} ({}",
        r.routine, r.m, r.n, r.k, r.route, r.reason
    );
    // Writing to a String cannot fail.
    if let Some(detail) = &r.detail {
        let _ = write!(line, ": {detail}");
    }
    if r.predicted_cpu_s > 0.0 {
        let _ = write!(
            line,
            "; predicted CPU {}, GPU {}",
            seconds(r.predicted_cpu_s),
            seconds(r.predicted_gpu_s)
        );
        for (what, time_s) in [("start-up", r.startup_s), ("queue", r.queue_s)] {
            if time_s > 0.0 {
                let _ = write!(line, " with {} of {what}", seconds(time_s));
            }
        }
    }
    let _ = write!(line, ") took {}", seconds(r.seconds));
    if r.waited_s > 0.0 {
        let _ = write!(line, " after waiting {} for the GPU", seconds(r.waited_s));
    }
    if r.route == "gpu" {
        let _ = write!(
            line,
            " (up {} {}, compute {}, down {} {})",
            seconds(r.upload_s),
            bytes(r.bytes_in),
            seconds(r.compute_s),
            seconds(r.download_s),
            bytes(r.bytes_out)
        );
    }
    line
}

fn table(stats: &BTreeMap<String, RoutineStats>, process: &ProcessState<'_>) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "gpu-offload summary of process {} (mode {}, level {}; GPU: {})",
        os::pid(),
        process.mode,
        process.level,
        process.gpu
    );
    if stats.is_empty() {
        out.push_str("  no call was above the threshold; smaller ones are not counted\n");
        return out;
    }
    let _ = writeln!(
        out,
        "  {:<10} {:>9} {:>9} {:>11} {:>9} {:>11} {:>11} {:>11} {:>11}",
        "routine",
        "calls",
        "on GPU",
        "GPU time",
        "on CPU",
        "CPU time",
        "saved",
        "to GPU",
        "from GPU"
    );
    for (routine, s) in stats {
        let _ = writeln!(
            out,
            "  {:<10} {:>9} {:>9} {:>11} {:>9} {:>11} {:>11} {:>11} {:>11}",
            routine,
            s.calls,
            s.gpu_calls,
            seconds(s.gpu_s),
            s.cpu_calls,
            seconds(s.cpu_s),
            seconds(s.saved_s),
            bytes(s.bytes_in),
            bytes(s.bytes_out)
        );
        let reasons: Vec<String> = s.reasons.iter().map(|(r, n)| format!("{r} {n}")).collect();
        let _ = writeln!(out, "    reasons: {}", reasons.join(", "));
        for (text, count) in &s.fallbacks {
            let _ = writeln!(out, "    on the CPU {count} times: {text}");
        }
    }
    out.push_str(
        "  saved: predicted CPU time of the GPU's calls less what they took; calls below the threshold are not counted\n",
    );
    out
}

/// Three digits with a unit.
fn seconds(s: f64) -> String {
    if s.abs() >= 1.0 {
        format!("{s:.2} s")
    } else if s.abs() >= 1e-3 {
        format!("{:.2} ms", s * 1e3)
    } else {
        format!("{:.1} us", s * 1e6)
    }
}

/// A size with its unit.
pub fn bytes(b: u64) -> String {
    let b = b as f64;
    [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| b >= (1u64 << shift) as f64)
        .map_or_else(
            || format!("{b} B"),
            |(shift, unit)| format!("{:.1} {unit}", b / (1u64 << shift) as f64),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(route: &'static str, reason: &'static str, detail: Option<&str>) -> CallRecord {
        CallRecord {
            routine: "dgemm".to_owned(),
            side: None,
            uplo: None,
            transa: Some('N'),
            transb: Some('T'),
            diag: None,
            letters: None,
            m: 3,
            n: 4,
            k: 5,
            beta_zero: true,
            route,
            reason,
            detail: detail.map(str::to_owned),
            level: 5,
            cpu_threads: 2,
            predicted_cpu_s: 0.5,
            predicted_gpu_s: 0.25,
            startup_s: 0.125,
            queue_s: 0.0,
            learned_cpu: 1.0,
            learned_gpu: 1.0,
            waited_s: 0.0,
            seconds: 0.25,
            bytes_in: 2048,
            bytes_out: 1024,
            upload_s: 0.1,
            compute_s: 0.1,
            download_s: 0.05,
        }
    }

    fn log_to(name: &str, level: LogLevel) -> (Log, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("gpu-offload-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (log, complaint) = Log::open(level, Some(&path));
        assert_eq!(complaint, None);
        (log, path)
    }

    fn finish(log: &Log) {
        log.finish(&ProcessState {
            mode: "force",
            level: 5,
            gpu: "Some GPU".to_owned(),
        });
    }

    #[test]
    fn json_lines_say_where_each_call_went() {
        let (log, path) = log_to("calls.jsonl", LogLevel::Decisions);
        log.started(0.5, "Some GPU", "estimate");
        log.call(&record("gpu", "forced", None));
        log.call(&record(
            "cpu",
            "failed-on-gpu",
            Some("not enough \"memory\""),
        ));
        finish(&log);
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_file(&path).expect("removable");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).expect(l))
            .collect();
        let events: Vec<&str> = lines.iter().filter_map(|l| l["event"].as_str()).collect();
        assert_eq!(events, ["start", "call", "call", "summary", "process"]);
        assert!(lines.iter().all(|l| l["pid"] == os::pid()));
        assert_eq!(
            (&lines[1]["route"], &lines[2]["route"]),
            (&"gpu".into(), &"cpu".into())
        );
        let summary = &lines[3];
        assert_eq!(summary["routine"], "dgemm");
        assert_eq!(
            (
                &summary["calls"],
                &summary["gpu_calls"],
                &summary["cpu_calls"]
            ),
            (&2.into(), &1.into(), &1.into())
        );
        assert_eq!(summary["reasons"]["forced"], 1);
        assert_eq!(summary["fallbacks"]["not enough \"memory\""], 1);
        assert_eq!(lines[4]["gpu"], "Some GPU");
    }

    #[test]
    fn a_size_has_a_unit() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn the_summary_level_writes_one_table() {
        let (log, path) = log_to("table.txt", LogLevel::Summary);
        log.started(0.5, "Some GPU", "estimate");
        log.call(&record("gpu", "gpu-faster", None));
        // Predicted 0.5 s on the CPU, took 0.25 after waiting 0.875.
        log.call(&CallRecord {
            waited_s: 0.875,
            ..record("gpu", "gpu-faster", None)
        });
        // Nobody knows what these save.
        log.call(&CallRecord {
            predicted_cpu_s: 0.0,
            ..record("gpu", "forced", None)
        });
        log.call(&record("cpu", "cpu-faster", None));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "");
        finish(&log);
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_file(&path).expect("removable");
        for needle in [
            "Some GPU",
            "dgemm",
            "750.00 ms",
            "-375.00 ms",
            "8.0 KiB",
            "4.0 KiB",
            "cpu-faster 1, forced 1, gpu-faster 2",
        ] {
            assert!(text.contains(needle), "{needle}: {text}");
        }
    }

    #[test]
    fn a_log_file_that_cannot_be_written_gives_one_line_and_no_log() {
        let (log, complaint) = Log::open(LogLevel::Debug, Some(Path::new("/nonexistent/x.jsonl")));
        let line = complaint.expect("a line");
        assert!(
            line.contains("/nonexistent/x.jsonl") && line.contains("accepted"),
            "{line}"
        );
        assert!(!log.wants_calls());
    }

    #[test]
    fn texts_that_all_differ_do_not_fill_the_memory() {
        let mut stats = RoutineStats::default();
        for i in 0..1000 {
            stats.add(&record("cpu", "failed-on-gpu", Some(&format!("error {i}"))));
        }
        assert_eq!(stats.fallbacks.len(), MAX_TEXTS + 1);
        assert_eq!(stats.fallbacks.values().sum::<u64>(), 1000);
    }
}
