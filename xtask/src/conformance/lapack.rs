//! Netlib's LAPACK programs, as Debian packages them, on the prefix and on the same archive without
//! us. OpenBLAS alone does not reach zero numerical failures; we may have no more than it has.
//!
//! The programs must be of LAPACK's own release: those of 3.11 expect argument checks that 3.12 has
//! changed (lwork of ?syevr and ?heevr at n = 1, ltb of the ?_aa_2stage routines) and count 64 "other
//! errors" on any 3.12. Older systems therefore get Debian stable's pinned package, unpacked into the
//! cache.
//!
//! Forced to a GPU they are run and judged by tests/gpu/netlib_lapack.py, the GPU kit's own part, beside the same
//! programs with `off`: all inputs with `--full`, otherwise as few as show every routed family.

use super::client_run::{Client, as_file_name, cache, scratch};
use super::report::{self, Findings, Row};
use super::{Route, Setting, Tally, baseline};
use crate::openblas;
use crate::tools::{quiet, step, workspace};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Where Debian's liblapack-test puts its files.
const SYSTEM_FOLDER: &str = "/usr/lib/x86_64-linux-gnu/lapack";

/// The release of LAPACK in the archive.
const RELEASE: &str = "3.12.";

/// Tests that netlib 3.11's programs run, which 3.12's exceed (5,189,593). Counted on Debian 12 with
/// Debian's packages, 2026-12-01. Counts of equal runs differ, on any library: the CQK part of 3.12's
/// xlintstc runs 192,000 to 242,000 tests.
const LEAST_TESTS: u64 = 4_208_661;

/// The programs of the right release: the system's, or fetched once into the cache.
fn programs() -> Result<PathBuf> {
    let version = quiet(Command::new("dpkg-query").args(["-W", "-f=${Version}", "liblapack-test"]));
    if version.is_ok_and(|v| v.starts_with(RELEASE)) {
        return Ok(PathBuf::from(SYSTEM_FOLDER));
    }
    let kept = cache()?.join("lapack-test");
    if kept.join("lapack_testing.py").exists() {
        return Ok(kept);
    }
    let temporary = scratch("lapack-test")?;
    let fetched = openblas::lapack_test_programs(temporary.path())?;
    // Copied beside its place first: the cache may be on another file system than the scratch folder.
    let new = kept.with_extension(format!("new-{}", std::process::id()));
    quiet(Command::new("cp").arg("-r").arg(&fetched).arg(&new))?;
    if fs::rename(&new, &kept).is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    Ok(kept)
}

/// The summary of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Totals {
    tests: u64,
    numerical: u64,
    other: u64,
}

/// Reads the line `--> ALL PRECISIONS  tests  numerical (percent)  other (percent)`.
fn totals(output: &str) -> Option<Totals> {
    let line = output
        .lines()
        .find(|line| line.contains("ALL PRECISIONS"))?;
    let mut numbers = line
        .split_whitespace()
        .filter_map(|word| word.parse::<u64>().ok());
    Some(Totals {
        tests: numbers.next()?,
        numerical: numbers.next()?,
        other: numbers.next()?,
    })
}

fn play(client: impl Fn(&str) -> Client, text: &str) -> Result<(Totals, String)> {
    let dir = scratch("lapack")?;
    let bin = dir.path().join("bin/Release");
    fs::create_dir_all(&bin)?;
    let programs = programs()?;
    for file in fs::read_dir(&programs)? {
        let path = file?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with('x') {
            symlink(&path, bin.join(&name))?;
        } else if name.ends_with(".in") {
            symlink(&path, dir.path().join(&name))?;
        }
    }
    let progress = step(text);
    let ended = client("/usr/bin/python3")
        .arg(programs.join("lapack_testing.py"))
        .args(["-d", ".", "-b", "bin/Release", "-r"])
        // Repeatable sums: which thread adds what last must not decide a test.
        .env("OPENBLAS_NUM_THREADS", "1")
        .folder(dir.path())
        .run()?;
    progress.finish_and_clear();
    let found = totals(&ended.stdout).with_context(|| {
        format!(
            "lapack_testing.py ended with {}:\n{}",
            ended.how(),
            ended.tail()
        )
    })?;
    // A program that crashes is missing from the summary.
    let crashed: Vec<&str> = ended
        .stdout
        .lines()
        .filter(|l| l.contains("FAILED("))
        .collect();
    if !crashed.is_empty() {
        bail!("programs did not run to their end: {crashed:?}");
    }
    let summary = ended
        .stdout
        .lines()
        .skip_while(|line| !line.contains("SUMMARY"))
        .collect::<Vec<_>>()
        .join("\n");
    Ok((found, summary))
}

/// The baseline's totals, measured once for each archive and CPU model.
fn baseline_totals() -> Result<Totals> {
    let libraries = baseline()?;
    let key = format!(
        "lapack-{RELEASE}-{}-{}.json",
        libraries.file_name().unwrap_or_default().to_string_lossy(),
        report::processor()
    );
    let file = cache()?.join(as_file_name(&key));
    if let Ok(text) = fs::read_to_string(&file) {
        let v: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no JSON; delete it", file.display()))?;
        if let (Some(tests), Some(numerical), Some(other)) = (
            v["tests"].as_u64(),
            v["numerical"].as_u64(),
            v["other"].as_u64(),
        ) {
            return Ok(Totals {
                tests,
                numerical,
                other,
            });
        }
    }
    let libraries = [libraries];
    let (found, _) = play(
        |exe| Client::new(exe, &libraries),
        "netlib's LAPACK programs on the archive without us (about 65 s)",
    )?;
    let text = json!({"tests": found.tests, "numerical": found.numerical, "other": found.other})
        .to_string();
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(found)
}

/// Longest run of all inputs, forced: each small call costs the simulated CUDA half a millisecond.
const FORCED_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// The programs forced to the GPU.
fn forced(setting: &Setting) -> Result<Tally> {
    let programs = programs()?;
    // The judge starts the programs with and without the GPU, and sets all variables itself.
    let mut judge = Client::new("/usr/bin/python3", &[])
        .arg(workspace().join("tests/gpu/netlib_lapack.py"))
        .arg("--prefix")
        .arg(&setting.prefix)
        .arg("--programs")
        .arg(&programs)
        .arg(if setting.full { "--whole" } else { "--brief" })
        .deadline(FORCED_LIMIT);
    if let Some(sim) = &setting.sim {
        judge = judge.arg("--sim").arg(sim);
    }
    let progress =
        step("netlib's LAPACK programs on the prefix, forced (about 20 s, with --full hours)");
    let ended = judge.run()?;
    progress.finish_and_clear();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    // The last line is the caller's to print.
    let found = lines.split_last().map_or(&[][..], |(_, found)| found);
    println!("{}", found.join("\n"));
    Tally::from_last_line(&ended.stdout).with_context(|| {
        format!(
            "netlib_lapack.py ended with {}:\n{}",
            ended.how(),
            ended.tail()
        )
    })
}

/// Runs the programs on the prefix and compares with the baseline.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    if setting.route == Route::Force {
        return forced(setting);
    }
    let stock = baseline_totals()?;
    let (ours, summary) = play(
        |exe| setting.client(exe),
        "netlib's LAPACK programs on the prefix (about 65 s)",
    )?;
    println!("{summary}");
    let counts = |t: Totals| {
        let Totals {
            tests,
            numerical,
            other,
        } = t;
        format!("{tests} tests, {numerical} numerical failures, {other} other errors")
    };
    println!(
        "lapack: {}; the archive without us: {}",
        counts(ours),
        counts(stock)
    );
    findings.row(Row {
        suite: "Netlib's LAPACK programs".to_owned(),
        ours: counts(ours),
        stock: format!("{} (the same OpenBLAS archive without us)", counts(stock)),
    });
    if ours.numerical > 0 {
        findings.exception(
            &format!(
                "{} numerical failures of netlib's LAPACK programs",
                ours.numerical
            ),
            &format!(
                "OpenBLAS's own: the same archive without us has {} in its own run",
                stock.numerical
            ),
        );
    }
    let mut tally = Tally::default();
    // The suite's own count is too large to be one check each: what may not grow is what is checked.
    tally.passed += ours.tests.saturating_sub(ours.numerical + ours.other);
    tally.passed += ours.numerical.min(stock.numerical); // known, the archive's own
    if ours.tests < LEAST_TESTS {
        println!("  {} tests did not run", LEAST_TESTS - ours.tests);
        tally.failed += LEAST_TESTS - ours.tests;
    }
    tally.failed += ours.numerical.saturating_sub(stock.numerical);
    tally.failed += ours.other;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::{Totals, totals};

    #[test]
    fn the_summary_is_read() {
        let line = "\n--> ALL PRECISIONS\t4208661\t132\t(0.003%)\t0\t(0.000%)\t\n";
        assert_eq!(
            totals(line),
            Some(Totals {
                tests: 4_208_661,
                numerical: 132,
                other: 0
            })
        );
        assert_eq!(totals("REAL 1 2 3"), None);
    }
}
