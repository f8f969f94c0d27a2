//! Runs Rust tests, by nextest where it is installed and by `cargo test` otherwise, and counts them.

use crate::conformance::Tally;
use crate::tools::{cargo, quiet};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

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

/// Counts of one line of output, if it is a summary: nextest's (`Summary [ 1.0s] 5 tests run: 4 passed,
/// 1 failed, 0 skipped`) or libtest's (`test result: ok. 4 passed; 0 failed; 1 ignored; …`).
fn summary(line: &str) -> Option<Tally> {
    let plain = line.trim();
    if plain.starts_with("Summary [") {
        let failed = count_before(plain, "failed") + count_before(plain, "timed");
        Some(Tally {
            passed: count_before(plain, "passed"),
            failed,
            skipped: count_before(plain, "skipped"),
        })
    } else if plain.starts_with("test result:") {
        Some(Tally {
            passed: count_before(plain, "passed"),
            failed: count_before(plain, "failed"),
            // Nothing but what needs root is ever filtered out.
            skipped: count_before(plain, "ignored") + count_before(plain, "filtered"),
        })
    } else {
        None
    }
}

/// Runs the tests that `selection` names and shows their output as it comes.
pub fn run(selection: &[&str], variables: &[(&str, PathBuf)]) -> Result<Tally> {
    let mut command = cargo();
    let nextest = has_nextest();
    if nextest {
        command.args(["nextest", "run", "--no-fail-fast", "--color=never"]);
    } else {
        command.args(["test", "--no-fail-fast", "--color=never"]);
    }
    command.args(selection);
    let root = is_root()?;
    if !root {
        eprintln!("not root: the tests named {NEEDS_ROOT}… are skipped");
    }
    if nextest && !root {
        command.args(["-E", &format!("not test(/(^|::){NEEDS_ROOT}/)")]);
    } else if !nextest {
        // Tests that compare times must not run beside others.
        command.args(["--", "--test-threads=1"]);
        if !root {
            command.args(["--skip", NEEDS_ROOT]);
        }
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null());
    // nextest reports on standard error, libtest on standard output; the other one is passed through.
    if nextest {
        command.stderr(Stdio::piped());
    } else {
        command.stdout(Stdio::piped());
    }
    let mut child = command.spawn().context("cannot start cargo")?;
    let reader: Box<dyn std::io::Read> = match (child.stdout.take(), child.stderr.take()) {
        (Some(out), _) => Box::new(out),
        (_, Some(err)) => Box::new(err),
        _ => anyhow::bail!("cargo has no output to read"),
    };
    let mut tally = Tally::default();
    let mut summaries = 0;
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if !line.trim_start().starts_with("PASS [") {
            eprintln!("{line}");
        }
        // nextest repeats the libtest summary of a failed test within its own report.
        let counted = nextest == line.trim_start().starts_with("Summary [");
        if let Some(counts) = summary(&line).filter(|_| counted) {
            tally += counts;
            summaries += 1;
        }
    }
    let status = child.wait()?;
    if summaries == 0 || (!status.success() && tally.failed == 0) {
        eprintln!("the tests did not run to their end ({status})");
        tally.failed += 1;
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn both_runners_summaries_are_read() {
        let nextest = "     Summary [ 514.5s] 35 tests run: 18 passed (2 slow), 13 failed, 4 timed out, 1 skipped";
        let t = summary(nextest).expect("a summary");
        assert_eq!((t.passed, t.failed, t.skipped), (18, 17, 1));
        let libtest = "test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let t = summary(libtest).expect("a summary");
        assert_eq!((t.passed, t.failed, t.skipped), (4, 0, 1));
        let filtered = "test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.00s";
        assert_eq!(summary(filtered).expect("a summary").skipped, 2);
        assert!(summary("    Finished").is_none());
    }
}
