//! Random level-3 calls (tests/level3), each checked against its definition, on any route.

use super::report::{Findings, Row};
use super::{Route, Setting, Tally, forced};
use crate::conformance::client_run::scratch;
use crate::tools::{cargo, quiet, target_dir};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Calls of a full run, as the engine's requirements ask for on the simulation.
const FULL_CALLS: u64 = 100_000;

/// Calls of CI's subset: every routine some hundred times, in half a minute.
const CALLS: u64 = 6_000;

/// What is run in CI, in words.
pub fn part() -> String {
    format!("{CALLS} of {FULL_CALLS} calls, with the same seed in every run")
}

/// A full run takes 3 minutes on two cores (2026-12-01); ten times that hangs.
const DEADLINE: Duration = Duration::from_secs(1800);

/// What OpenBLAS itself gets wrong on the CPUs that need it.
const EXCEPTION: &str = "openblas-nan-beta";
const EXCEPTION_WHY: &str =
    "OpenBLAS's scal loses a NaN factor, so that C := beta C + … with beta = NaN stays finite";

/// Builds the program.
pub fn program() -> Result<PathBuf> {
    quiet(cargo().args(["build", "--quiet", "--release", "--package", "level3"]))?;
    Ok(target_dir().join("release/level3-random"))
}

/// Runs it on the prefix.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let calls = if setting.full { FULL_CALLS } else { CALLS };
    let folder = scratch("random")?;
    let log = folder.path().join("log.jsonl");
    let mut client = setting
        .client(program()?)
        .arg("--library")
        .arg(setting.lib().join("libblas.so.3"))
        .args(["--calls", &calls.to_string(), "--seed", "1"])
        .args(["--threads", "2", "--json", "--except", EXCEPTION])
        .deadline(DEADLINE);
    if setting.route == Route::Force {
        client = forced::logged(client, &log);
    }
    let ended = client.run()?;
    let mut tally = Tally::default();
    let mut summary = None;
    for line in ended.stdout.lines() {
        let entry: Value = serde_json::from_str(line)
            .with_context(|| format!("level3-random printed no JSON: {line}"))?;
        if entry["families"].is_object() {
            summary = Some(entry);
        } else {
            println!("  {line}");
        }
    }
    let Some(summary) = summary else {
        bail!("level3-random: {}\n{}", ended.how(), ended.tail());
    };
    let count = |key: &str| summary[key].as_u64().unwrap_or(0);
    let excepted = summary["excepted"][EXCEPTION].as_u64().unwrap_or(0);
    tally.passed = count("passed");
    // What no exception explains and was not tried either is a failure here: the prefix has every name.
    tally.failed = count("failed") + count("skipped").saturating_sub(excepted);
    let largest = summary["largest_error_of_bound"]
        .as_f64()
        .unwrap_or(f64::NAN);
    println!(
        "random level-3 calls: {} passed, {} failed, {excepted} excepted, errors up to {:.0} % of the bound",
        tally.passed,
        tally.failed,
        100.0 * largest
    );
    findings.row(Row {
        suite: "Random level-3 calls against their definition".to_owned(),
        ours: format!("{} passed, {} failed", tally.passed, tally.failed),
        stock: "the definition".to_owned(),
    });
    if excepted > 0 {
        findings.exception(&format!("{excepted} random level-3 calls"), EXCEPTION_WHY);
    }
    if setting.route == Route::Force {
        let names: Vec<String> = routines::routed_in(routines::Library::Blas)
            .map(|(_, _, name)| name)
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tally += forced::judge(&log, &names)?;
    }
    Ok(tally)
}
