//! Instructions a call, counted by callgrind: a client runs N and 2N calls on our libraries and on the
//! same archive without us; the difference of the two runs is free of start-up and of the first call's
//! slow path. One thread: which thread spins how long is not repeatable.

use crate::conformance::{Client, Tally, baseline};
use crate::tools::{bar, quiet, workspace};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a routine reaches OpenBLAS, and what that may cost. Limits from the foundation's requirements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The archive's own symbol.
    Unrouted,
    /// Reached from liblapack.so.3 by one jump through a table.
    Jump,
    /// A threshold test in front; for LAPACK's kernels in libblas.so.3, that jump too.
    Routed,
}

impl Way {
    /// Instructions more than the archive, at most.
    fn limit(self) -> f64 {
        match self {
            Way::Unrouted => 0.0,
            Way::Jump => 1.0,
            Way::Routed => 20.0,
        }
    }
}

/// Routine of tests/clients/overhead.c, size, way.
const ROWS: &[(&str, u32, Way)] = &[
    ("ddot", 2, Way::Unrouted),
    ("ddot", 32, Way::Unrouted),
    ("dgemv", 8, Way::Unrouted),
    ("dgemv", 32, Way::Unrouted),
    ("dgemm", 4, Way::Routed),
    ("dgemm", 8, Way::Routed),
    ("dgemm", 32, Way::Routed),
    ("cblas_dgemm", 4, Way::Routed),
    ("cblas_dgemm", 8, Way::Routed),
    ("cblas_dgemm", 32, Way::Routed),
    ("dtrsm", 4, Way::Routed),
    ("dtrsm", 8, Way::Routed),
    ("dtrsm", 32, Way::Routed),
    ("cblas_dtrsm", 4, Way::Routed),
    ("cblas_dtrsm", 8, Way::Routed),
    ("cblas_dtrsm", 32, Way::Routed),
    ("dsyrk", 4, Way::Routed),
    ("dsyrk", 8, Way::Routed),
    ("dsyrk", 32, Way::Routed),
    ("cblas_dsyrk", 4, Way::Routed),
    ("cblas_dsyrk", 8, Way::Routed),
    ("cblas_dsyrk", 32, Way::Routed),
    ("dsymm", 4, Way::Routed),
    ("dsymm", 8, Way::Routed),
    ("dsymm", 32, Way::Routed),
    ("cblas_dsymm", 4, Way::Routed),
    ("cblas_dsymm", 8, Way::Routed),
    ("cblas_dsymm", 32, Way::Routed),
    ("dpotrf", 8, Way::Routed),
    ("dgetrf", 8, Way::Routed),
    ("dgeqrf", 8, Way::Routed),
    ("dsyevd", 8, Way::Routed),
    ("dtrtri", 8, Way::Jump),
    ("dgeqr2", 8, Way::Unrouted),
];

/// Calls of the shorter run. Enough that one instruction a call stands out of the noise of start-up
/// (which is below 50 instructions between runs), few enough for two minutes under callgrind.
const CALLS: u64 = 200;

/// Rounding of the count: instructions of start-up that differ between two runs, over [`CALLS`].
const NOISE: f64 = 0.25;

fn compile(lib: &Path) -> Result<PathBuf> {
    let exe = crate::tools::target_dir().join("overhead-client");
    quiet(
        Command::new("gcc")
            .args(["-O2", "-o"])
            .arg(&exe)
            .arg(workspace().join("tests/clients/overhead.c"))
            .arg(lib.join("liblapack.so.3"))
            .arg(lib.join("libblas.so.3"))
            .arg(format!("-Wl,-rpath-link,{}", lib.display())),
    )?;
    Ok(exe)
}

/// Instructions of one run, as callgrind reports them on standard error.
fn instructions(exe: &Path, lib: &Path, routine: &str, n: u32, calls: u64) -> Result<u64> {
    let ended = Client::new("valgrind", &[lib.to_owned()])
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(exe)
        .args([routine, &n.to_string(), &calls.to_string()])
        .env("OPENBLAS_NUM_THREADS", "1")
        .env("LD_BIND_NOW", "1")
        .run()?;
    if !ended.success() {
        bail!(
            "callgrind on {routine} ended with {}:\n{}",
            ended.how(),
            ended.tail()
        );
    }
    collected(&ended.stderr)
        .with_context(|| format!("callgrind counted nothing:\n{}", ended.tail()))
}

/// Reads `==123== Collected : 456`.
pub fn collected(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("Collected"))?;
    line.split(':').next_back()?.trim().parse().ok()
}

fn a_call(exe: &Path, lib: &Path, routine: &str, n: u32) -> Result<f64> {
    let short = instructions(exe, lib, routine, n, CALLS)?;
    let long = instructions(exe, lib, routine, n, 2 * CALLS)?;
    Ok((long as f64 - short as f64) / CALLS as f64)
}

/// Counts every row and prints the table.
pub fn run(prefix: &Path) -> Result<Tally> {
    let ours = workspace().join(prefix).join("lib");
    if !ours.join("libblas.so.3").exists() {
        bail!(
            "no libblas.so.3 in {}; run `cargo xtask dist`",
            ours.display()
        );
    }
    let stock = baseline()?;
    let exe = compile(&ours)?;
    let progress = bar("counting instructions", ROWS.len() as u64);
    let mut table =
        String::from("instructions a call       n      ours   archive      more   limit\n");
    let mut tally = Tally::default();
    for &(routine, n, way) in ROWS {
        let with = a_call(&exe, &ours, routine, n)?;
        let without = a_call(&exe, &stock, routine, n)?;
        let more = with - without;
        let held = more <= way.limit() + NOISE;
        tally.check(held);
        table.push_str(&format!(
            "{routine:<22} {n:>4} {with:>9.1} {without:>9.1} {more:>9.1} {:>7}{}\n",
            way.limit(),
            if held { "" } else { "  TOO MUCH" }
        ));
        progress.inc(1);
    }
    progress.finish_and_clear();
    print!("{table}");
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn callgrinds_count_is_read() {
        assert_eq!(
            collected("==7== Events    : Ir\n==7== Collected : 3245678\n"),
            Some(3_245_678)
        );
        assert_eq!(collected("==7== nothing"), None);
    }
}
