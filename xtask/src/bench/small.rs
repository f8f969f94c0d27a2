//! Programs that live on small matrices: instructions of a product and of a solution, 4 x 4 to 32 x 32, in NumPy, in
//! NumPy's wheel and in R, on our libraries and on the stock ones, counted by callgrind; what a million of them
//! would cost more. Auto mode, no GPU, one thread. Writes docs/performance/small.md.

use crate::conformance::{Client, Guests, PYTHON, Tally, baseline, wheel_environment};
use crate::tools::{bar, quiet, workspace};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// What is counted; the clients' own words.
const ROWS: [(&str, u32); 8] = [
    ("product", 4),
    ("product", 8),
    ("product", 16),
    ("product", 32),
    ("solve", 4),
    ("solve", 8),
    ("solve", 16),
    ("solve", 32),
];

/// Calls that are counted. Start-up differs by some thousand instructions between runs, a call has more than nine
/// thousand; so the error is below 0.1 %.
const CALLS: u64 = 2000;

/// How much more than the stock library, at most, in percent.
const LIMIT_PERCENT: f64 = 1.0;

/// Instructions of a call, for each row. `client` is the program with its script.
fn counts(client: &dyn Fn() -> Client, advance: &dyn Fn()) -> Result<Vec<f64>> {
    let run = |what: &str, n: u32, calls: u64| -> Result<f64> {
        let ended = client()
            .args([what, &n.to_string(), &calls.to_string()])
            .env("OPENBLAS_NUM_THREADS", "1")
            .env("PYTHONHASHSEED", "0")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LD_BIND_NOW", "1")
            .under(
                "valgrind",
                &[
                    "--tool=callgrind",
                    "--callgrind-out-file=/dev/null",
                    "--trace-children=yes",
                ],
            )
            .run()?;
        ensure!(
            ended.success(),
            "callgrind ended with {}:\n{}",
            ended.how(),
            ended.tail()
        );
        advance();
        // Start scripts have children of their own; the program that computes is the longest.
        let all = ended.stderr.lines().filter_map(collected);
        let most = all.max().context("callgrind counted nothing")?;
        Ok(most as f64)
    };
    let base = run(ROWS[0].0, ROWS[0].1, 0)?;
    ROWS.iter()
        .map(|&(what, n)| Ok((run(what, n, CALLS)? - base) / CALLS as f64))
        .collect()
}

/// Reads `==123== Collected : 456`.
fn collected(line: &str) -> Option<u64> {
    line.contains("Collected")
        .then(|| line.split(':').next_back()?.trim().parse().ok())?
}

/// Counts everything, prints the table and writes the page.
pub fn run(prefix: &Path) -> Result<Tally> {
    let prefix = workspace().join(prefix);
    let ours = [prefix.join("lib")];
    ensure!(
        ours[0].join("libblas.so.3").exists(),
        "no libblas.so.3 in {}; run `cargo xtask dist`",
        ours[0].display()
    );
    let stock = [baseline()?];
    let guests = Guests::new()?;
    let wheels = wheel_environment()?;
    let script = |name: &str| workspace().join("tests/clients").join(name);
    let progress = bar("counting instructions", 6 * (ROWS.len() as u64 + 1));
    let advance = || progress.inc(1);
    let python = |libraries: &[_]| Client::new(PYTHON, libraries).arg(script("small.py"));
    let r = |libraries: &[_]| guests.rscript(libraries).arg(script("small.R"));
    let wheel = || Client::new(wheels.python(), &[]).arg(script("small.py"));
    let swap = |command: &str| {
        let mut tool = Command::new(prefix.join("bin/gpu-offload"));
        tool.env("XDG_STATE_HOME", wheels.venv());
        quiet(tool.args([command, "--venv"]).arg(wheels.venv()))
    };
    let mut all = Vec::new();
    for (name, client) in [
        ("NumPy of Debian", &python as &dyn Fn(&[_]) -> Client),
        ("R", &r),
    ] {
        let with = counts(&|| client(&ours), &advance)?;
        all.push((name, with, counts(&|| client(&stock), &advance)?));
    }
    let without = counts(&wheel, &advance)?;
    swap("install")?;
    let with = counts(&wheel, &advance)?;
    all.push(("NumPy's wheel", with, without));
    progress.finish_and_clear();

    let mut tally = Tally::default();
    let mut table = String::from(
        "| program | what | n | instructions | stock | more | more, % |\n|---|---|---|---|---|---|---|\n",
    );
    for (name, with, without) in &all {
        for ((&(what, n), with), without) in ROWS.iter().zip(with).zip(without) {
            let more = with - without;
            let percent = 100.0 * more / without;
            tally.check(percent <= LIMIT_PERCENT);
            // Writing to a String cannot fail.
            let _ = writeln!(
                table,
                "| {name} | {what} | {n} | {with:.0} | {without:.0} | {more:.0} | {percent:.2} |"
            );
        }
    }
    print!("{table}");
    let page = workspace().join("docs/performance/small.md");
    let text = format!(
        "<!-- Written by `cargo xtask bench small`, do not edit. -->\n# Small matrices\n\n\
         Instructions of one product and of one solution with n right-hand sides, as a program in NumPy or R makes them, \
         counted by callgrind over {CALLS} calls (a million times that is a million calls); auto mode, one thread, no \
         GPU. Stock: for Debian's NumPy and R the same OpenBLAS archive without us, for NumPy's wheel the OpenBLAS \
         that it brings along. At most {LIMIT_PERCENT} % more is allowed.\n\n{table}"
    );
    std::fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn callgrinds_count_is_read() {
        assert_eq!(collected("==7== Collected : 3245678"), Some(3_245_678));
        assert_eq!(collected("==7== Events    : Ir"), None);
    }
}
