//! Runs Rust tests, each in a process of its own, and counts them: by nextest where it is installed, and
//! otherwise by `processes`.

mod processes;

use crate::conformance::Tally;
use crate::tools::{cargo, quiet};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

/// Which tests, and what they get.
#[derive(Default)]
pub struct Tests<'a> {
    /// Options of cargo that choose packages, targets and features.
    pub selection: &'a [&'a str],
    /// Only tests whose names contain this.
    pub name: &'a str,
    /// Environment variables.
    pub variables: &'a [(&'a str, PathBuf)],
    /// Show what tests print that pass, too.
    pub show: bool,
}

fn has_nextest() -> bool {
    cargo()
        .args(["nextest", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// How the names of tests begin that start programs as another user.
const NEEDS_ROOT: &str = "as_root_";

fn is_root() -> Result<bool> {
    Ok(quiet(std::process::Command::new("id").arg("-u"))?.trim() == "0")
}

/// The number before `word` in `text`, or 0.
fn count_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text
        .split([' ', ',', ';', '.'])
        .filter(|w| !w.is_empty())
        .collect();
    words
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].parse().ok())
        .unwrap_or(0)
}

/// Counts of one line of nextest's output, if it is a summary: `Summary [ 1.0s] 5 tests run: 4 passed, 1 failed,
/// 0 skipped`.
fn summary(line: &str) -> Option<Tally> {
    let plain = line.trim();
    plain.starts_with("Summary [").then(|| Tally {
        passed: count_before(plain, "passed"),
        failed: count_before(plain, "failed") + count_before(plain, "timed"),
        skipped: count_before(plain, "skipped"),
    })
}

/// Runs the tests and shows the output of those that fail as it comes. What `name` leaves out is not counted.
pub fn run(tests: &Tests) -> Result<Tally> {
    let root = is_root()?;
    if !root {
        eprintln!("not root: the tests named {NEEDS_ROOT}… are skipped");
    }
    if has_nextest() {
        by_nextest(tests, root)
    } else {
        processes::run(tests, root)
    }
}

fn by_nextest(tests: &Tests, root: bool) -> Result<Tally> {
    let mut command = cargo();
    command.args(["nextest", "run", "--no-fail-fast", "--color=never"]);
    command.args(tests.selection);
    if !tests.name.is_empty() {
        command.arg(tests.name);
    }
    if !root {
        command.args(["-E", &format!("not test(/(^|::){NEEDS_ROOT}/)")]);
    }
    if tests.show {
        command.args(["--success-output", "immediate"]);
    }
    command.envs(tests.variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let report = child.stderr.take().context("cargo has no standard error")?;
    let mut tally = None;
    for line in BufReader::new(report).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if !line.trim_start().starts_with("PASS [") {
            eprintln!("{line}");
        }
        tally = summary(&line).or(tally);
    }
    let status = child.wait()?;
    let ended = tally.is_some_and(|t| status.success() || t.failed > 0);
    let mut tally = tally.unwrap_or_default();
    if !ended {
        eprintln!("the tests did not run to their end ({status})");
        tally.failed += 1;
    }
    if !tests.name.is_empty() {
        tally.skipped = 0;
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn nextests_summary_is_read() {
        let line = "     Summary [ 514.5s] 35 tests run: 18 passed (2 slow), 13 failed, 4 timed out, 1 skipped";
        let t = summary(line).expect("a summary");
        assert_eq!((t.passed, t.failed, t.skipped), (18, 17, 1));
        assert!(summary("    Finished").is_none());
    }
}
