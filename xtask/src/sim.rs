//! `cargo xtask sim`: builds the simulated CUDA and lays it out in `target/sim-cuda`; with `--mutants`,
//! shows that a program needs each call that orders work. It does not know what the program computes.

use crate::openblas;
use crate::tools::{bar, cargo, loud, target_dir};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names that a loader looks for; all are links to one file, which has one state.
pub const NAMES: [&str; 4] = [
    "libcuda.so.1",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcusolver.so.12",
];

/// Calls that order work. Queries are repeated until something has happened, so their numbers differ from
/// run to run; ignoring any of those that would have said "not yet" is one mutant as good as another.
const ORDERING: [&str; 5] = [
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamSynchronize",
];

/// Longest run of a mutant in seconds: a wait for something that never happens is a failure too. The
/// programs run for seconds (2 cores, 2026-12-01).
const MUTANT_LIMIT_S: &str = "120";

#[derive(clap::Args)]
pub struct Args {
    /// Run PROGRAM once for each call that orders its work, with that call ignored, and count the failures
    #[arg(long, requires = "program")]
    mutants: bool,
    /// Seeds of the adversarial delays; four in a row try uploads, downloads, kernels and streams
    #[arg(long, default_value_t = 4)]
    seeds: u64,
    /// Most mutants of one function; they are spread evenly over its calls
    #[arg(long, default_value_t = 100)]
    most: u64,
    /// How many mutants that made a difference may pass
    #[arg(long, default_value_t = 0)]
    survivors: usize,
    /// A program that finds the simulated libraries by LD_LIBRARY_PATH and exits with 0 if all is right
    #[arg(last = true)]
    program: Vec<OsString>,
}

/// Builds and prints the folder, or runs the mutants.
pub fn run(args: &Args) -> Result<()> {
    let dir = prepare()?;
    if args.mutants {
        return mutants(args, &dir);
    }
    println!("{}", dir.display());
    Ok(())
}

/// Builds and returns the folder.
pub fn prepare() -> Result<PathBuf> {
    openblas::prepare(&openblas::Args::default())?;
    loud(cargo().args(["build", "--release", "--package", "sim-cuda"]))?;
    let dir = target_dir().join("sim-cuda");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for name in NAMES {
        let link = dir.join(name);
        let _ = fs::remove_file(&link);
        symlink("../release/libsim_cuda.so", &link)
            .with_context(|| format!("cannot create {}", link.display()))?;
    }
    Ok(dir)
}

/// What a run of the program shows.
struct Outcome {
    passed: bool,
    /// Some call was ignored where that made a difference.
    mattered: bool,
    calls: BTreeMap<String, u64>,
}

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Killed,
    Survived,
    /// In no run was there anything to wait for.
    NoDifference,
}

fn mutants(args: &Args, dir: &Path) -> Result<()> {
    let mut calls = BTreeMap::new();
    for seed in 1..=args.seeds {
        let outcome = run_once(args, dir, seed, "")?;
        ensure!(
            outcome.passed,
            "the unchanged program fails with seed {seed}"
        );
        calls = outcome.calls;
    }
    let mutants = enumerate(&calls, args.most);
    ensure!(
        !mutants.is_empty(),
        "the program makes no call that orders work"
    );
    let progress = bar("mutants", mutants.len() as u64);
    let mut counts = [0; 3];
    for mutant in &mutants {
        let fate = fate(args, dir, mutant)?;
        counts[fate as usize] += 1;
        if fate == Fate::Survived {
            progress.suspend(|| println!("survived: {mutant}"));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let [killed, survived, no_difference] = counts;
    println!(
        "{killed} of {} mutants killed, {survived} survived, {no_difference} made no difference",
        mutants.len()
    );
    if survived > args.survivors {
        bail!(
            "{survived} calls can be left out unnoticed ({} allowed)",
            args.survivors
        );
    }
    Ok(())
}

/// `function:n`, at most `most` of each function, evenly spread.
fn enumerate(calls: &BTreeMap<String, u64>, most: u64) -> Vec<String> {
    let of = |function: &&str| {
        let count = calls.get(*function).copied().unwrap_or(0);
        let shown = count.min(most);
        let function = (*function).to_owned();
        (0..shown).map(move |i| format!("{function}:{}", i * count / shown + 1))
    };
    ORDERING.iter().flat_map(of).collect()
}

fn fate(args: &Args, dir: &Path, mutant: &str) -> Result<Fate> {
    let mut mattered = false;
    for seed in 1..=args.seeds {
        let outcome = run_once(args, dir, seed, mutant)?;
        if !outcome.passed {
            return Ok(Fate::Killed);
        }
        mattered |= outcome.mattered;
    }
    Ok(if mattered {
        Fate::Survived
    } else {
        Fate::NoDifference
    })
}

fn run_once(args: &Args, dir: &Path, seed: u64, ignore: &str) -> Result<Outcome> {
    let report = dir.join("mutant-report");
    let _ = fs::remove_file(&report);
    let mut path = OsString::from(dir);
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", MUTANT_LIMIT_S])
        .args(&args.program);
    command.env("LD_LIBRARY_PATH", path);
    command.env("SIM_CUDA_DELAY", "adversarial");
    command.env("SIM_CUDA_SEED", seed.to_string());
    command.env("SIM_CUDA_IGNORE", ignore);
    command.env("SIM_CUDA_REPORT", &report);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command
        .status()
        .context("cannot start timeout (coreutils)")?;
    let text = match fs::read_to_string(&report) {
        Ok(text) => text,
        // It crashed.
        Err(_) if !status.success() => String::new(),
        Err(_) => bail!("the program has not used the simulated CUDA"),
    };
    let counted = |line: &str| {
        let (name, count) = line.strip_prefix("calls ")?.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    Ok(Outcome {
        passed: status.success() && !text.lines().any(|line| line.starts_with("complaint ")),
        mattered: text.lines().any(|line| line.starts_with("ignored ")),
        calls: text.lines().filter_map(counted).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_spread_over_the_calls_of_ordering_functions() {
        let calls = [
            ("cuEventQuery", 9),
            ("cuMemAlloc_v2", 7),
            ("cuStreamWaitEvent", 2),
        ];
        let calls = calls.map(|(name, count)| (name.to_owned(), count)).into();
        let all = ["cuStreamWaitEvent:1", "cuStreamWaitEvent:2"];
        let spread = ["cuEventQuery:1", "cuEventQuery:4", "cuEventQuery:7"];
        assert_eq!(enumerate(&calls, 3), [&all[..], &spread[..]].concat());
    }
}
