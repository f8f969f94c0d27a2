//! ScaLAPACK's own test programs, as Debian packages them (the mpich build), on the prefix and on
//! Debian's OpenBLAS in the same run. Only the libraries under ScaLAPACK are under test, so that one
//! process does for most programs; the factorisations also run on two.

use super::client_run::{Client, Scratch, scratch};
use super::debian::{self, Guests};
use super::report::{Findings, Row};
use super::{Setting, Tally};
use crate::tools::bar;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the package puts the programs, and their inputs.
const PROGRAMS: &str = "usr/lib/x86_64-linux-gnu/scalapack/mpich-tests";
const INPUTS: &str = "usr/share/scalapack";

/// Programs of the BLACS, which use no BLAS.
const NO_BLAS: [&str; 2] = ["xCbtest", "xFbtest"];

/// Programs of the eigenvalue and singular value routines end when a process grid of their input is
/// larger than the job; their grids are cut to one process.
const CUT: [&str; 3] = ["SEP.dat", "SEPR.dat", "SVD.dat"];

/// Programs that also run on two processes: LU with dgesv and condition, Cholesky, QR.
const ON_TWO: [&str; 3] = ["xdlu", "xdllt", "xdqr"];

/// Programs whose result for the empty matrix is random on every library, so that it is not counted:
/// xssyevr failed it in 2 of 6 runs on the archive without us and in 2 of 6 on Debian's OpenBLAS, on
/// Debian 12, 2026-12-01.
const RANDOM_WHEN_EMPTY: [&str; 2] = ["syevr", "heevr"];

/// What one program did: lines that say passed, and that say failed, both without the legend.
#[derive(Clone, Debug, Default, PartialEq)]
struct Score {
    passed: u64,
    failed: u64,
    ended: String,
}

fn score(program: &str, output: &str, ended: String) -> Score {
    let random_when_empty = RANDOM_WHEN_EMPTY.iter().any(|part| program.contains(part));
    let mut score = Score {
        ended,
        ..Score::default()
    };
    for line in output.lines() {
        // A result stands beside numbers; the legend explains the words in sentences.
        if !line.contains(|c: char| c.is_ascii_digit()) || line.contains(['=', ':']) {
            continue;
        }
        if random_when_empty && line.split_whitespace().next() == Some("0") {
            continue;
        }
        for word in line.split_whitespace() {
            match word {
                "PASSED" | "Passed" => score.passed += 1,
                "FAILED" | "Failed" => score.failed += 1,
                _ => {}
            }
        }
    }
    score
}

/// `text` with every process grid cut to one process.
fn cut_grids(text: &str) -> String {
    let mut cut = String::new();
    for line in text.lines() {
        if line.contains("values of P") || line.contains("values of Q") {
            let at = line.find("values").unwrap_or(line.len());
            for word in line[..at].split_whitespace() {
                let number = word
                    .parse::<u32>()
                    .map_or(word, |n| if n > 1 { "1" } else { word });
                cut.push_str(number);
                cut.push(' ');
            }
            cut.push_str(&line[at..]);
        } else {
            cut.push_str(line);
        }
        cut.push('\n');
    }
    cut
}

/// A folder with the inputs.
fn inputs(guests: &Guests) -> Result<Scratch> {
    let dir = scratch("scalapack")?;
    for file in fs::read_dir(guests.file(INPUTS)).context("no inputs of ScaLAPACK's programs")? {
        let path = file?.path();
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else {
            continue;
        };
        if path.is_file() {
            let text = fs::read_to_string(&path)?;
            let cut = CUT.contains(&name.as_str());
            let text = if cut { cut_grids(&text) } else { text };
            fs::write(dir.path().join(&name), text)?;
        }
    }
    Ok(dir)
}

fn programs(guests: &Guests) -> Result<Vec<PathBuf>> {
    let mut list = Vec::new();
    for file in fs::read_dir(guests.file(PROGRAMS)).context("no programs of ScaLAPACK")? {
        let path = file?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with('x') && !NO_BLAS.contains(&name.as_str()) {
            list.push(path);
        }
    }
    list.sort();
    Ok(list)
}

fn play(
    guests: &Guests,
    folder: &Path,
    programs: &[PathBuf],
    client: impl Fn(&Path) -> Client,
    text: &str,
) -> Result<BTreeMap<String, Score>> {
    let progress = bar(text, programs.len() as u64);
    let mut scores = BTreeMap::new();
    for program in programs {
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let ended = client(program).folder(folder).run()?;
        scores.insert(name.clone(), score(&name, &ended.stdout, ended.how()));
        if ON_TWO.contains(&name.as_str()) {
            let start = guests.file("usr/bin/mpiexec.hydra");
            let ended = client(&start)
                .args(["-n", "2"])
                .arg(program)
                .folder(folder)
                .run()?;
            scores.insert(
                format!("{name}, 2 processes"),
                score(&name, &ended.stdout, ended.how()),
            );
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(scores)
}

/// Runs every program on both libraries.
pub fn run(setting: &Setting, guests: &Guests, findings: &mut Findings) -> Result<Tally> {
    let programs = programs(guests)?;
    let folder = inputs(guests)?;
    let client = |program: &Path, libraries: &[PathBuf]| {
        Client::new(program, &guests.path(libraries)).env("OPENBLAS_NUM_THREADS", "1")
    };
    let libraries = setting.libraries();
    let ours = play(
        guests,
        folder.path(),
        &programs,
        |p| setting.routed(client(p, &libraries)),
        "ScaLAPACK's programs on the prefix",
    )?;
    let stock = [debian::openblas()?];
    let theirs = play(
        guests,
        folder.path(),
        &programs,
        |p| client(p, &stock),
        "ScaLAPACK's programs on Debian's OpenBLAS",
    )?;
    let sum = |scores: &BTreeMap<String, Score>| {
        scores
            .values()
            .fold((0, 0), |(p, f), s| (p + s.passed, f + s.failed))
    };
    let ((passed, failed), (stock_passed, stock_failed)) = (sum(&ours), sum(&theirs));
    if stock_passed == 0 {
        bail!("ScaLAPACK's programs pass nothing on the stock library");
    }
    let mut tally = Tally::default();
    for (name, got) in &ours {
        let stock = theirs.get(name).cloned().unwrap_or_default();
        tally.passed += got.passed.min(stock.passed);
        if got.passed < stock.passed || got.failed > stock.failed || got.ended != stock.ended {
            println!("  ScaLAPACK, {name}: {got:?}, on the stock library {stock:?}");
            tally.failed += 1;
        }
    }
    println!(
        "ScaLAPACK: {} programs, {passed} lines passed, {failed} failed; stock library {stock_passed} \
         and {stock_failed}",
        ours.len()
    );
    findings.row(Row {
        suite: format!("ScaLAPACK's test programs ({} runs)", ours.len()),
        ours: format!("{passed} passed, {failed} failed"),
        stock: format!("{stock_passed} passed, {stock_failed} failed (Debian's OpenBLAS)"),
    });
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::{cut_grids, score};

    #[test]
    fn results_are_counted_and_legends_are_not() {
        let text = "RESULT : PASSED below 30\nWALL 4 1.0 PASSED\n5 99.0 FAILED EVR\n\
                    3 tests completed and passed residual checks.\n";
        let found = score("xdlu", text, "0".into());
        assert_eq!((found.passed, found.failed), (1, 1));
        let empty = "0 1 1 1 8 N 0.00 FAILED\n5 1 1 1 8 N 0.00 PASSED\n";
        let found = score("xssyevr", empty, "0".into());
        assert_eq!((found.passed, found.failed), (1, 0));
    }

    #[test]
    fn grids_are_cut_to_one_process() {
        let text = "1 2\t values of P (NPROW)\n22\tnumber of matrix types\n";
        assert_eq!(
            cut_grids(text),
            "1 1 values of P (NPROW)\n22\tnumber of matrix types\n"
        );
    }
}
