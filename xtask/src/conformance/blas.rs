//! Netlib's 24 BLAS programs, as Debian packages them. What the reference library prints in the same
//! run is what is expected: programs that start, and lines that say PASSED or PASS.
//!
//! Newer programs are stricter than OpenBLAS is: those of LAPACK 3.12.1 compare the whole name that xerbla_
//! gets, and OpenBLAS passes a NUL behind it. So a line that the archive without us fails alike, in the same
//! run, is known and no failure; every other one is.

use super::client_run::{Client, Ended, scratch};
use super::report::{Findings, Row};
use super::{Route, Setting, Tally, baseline, forced};
use crate::tools::{bar, quiet, side_by_side};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's libblas-test and libblas3 put their files.
const FOLDER: &str = "/usr/lib/x86_64-linux-gnu/blas";

/// What netlib 3.11's programs print on the reference library. A reference that prints less has lost
/// its programs, and then nothing is proved. Counted on Debian 12, 2026-12-01.
const LEAST_PASSED: usize = 480;

/// Data of netlib's CBLAS that eight of the programs want and OpenBLAS lacks. Nothing sets them there: they
/// tell how CBLAS came to call a Fortran routine, which OpenBLAS's does not.
const CBLAS_DATA: &str = "int RowMajorStrg, CBLAS_CallFromC;\n";

/// Why a line may fail that the reference passes.
const KNOWN: &str = "OpenBLAS's own: the same archive without us prints it in the same run";

/// One program and its input.
struct Program {
    name: String,
    input: Option<String>,
}

fn programs() -> Vec<Program> {
    let mut list = Vec::new();
    for p in ["s", "d", "c", "z"] {
        list.push(Program {
            name: format!("xblat1{p}"),
            input: None,
        });
        list.push(Program {
            name: format!("x{p}cblat1"),
            input: None,
        });
        for level in [2, 3] {
            list.push(Program {
                name: format!("xblat{level}{p}"),
                input: Some(format!("{p}blat{level}.in")),
            });
            list.push(Program {
                name: format!("x{p}cblat{level}"),
                input: Some(format!("{p}in{level}")),
            });
        }
    }
    list
}

/// What one library did; a line is `program: text`.
#[derive(Default)]
struct Score {
    not_started: Vec<String>,
    ended_badly: Vec<String>,
    /// Lines with PASSED (levels 2 and 3).
    passed: Vec<String>,
    /// Lines with "PASS -----" (level 1).
    level1: Vec<String>,
    failed: Vec<String>,
    /// What is said before a line that fails: which argument, which value.
    details: Vec<String>,
}

impl Score {
    /// Sorts a program's output into lines that pass and lines that fail.
    fn read(&mut self, program: &str, output: &str) {
        for line in output.lines() {
            let list = if line.contains("FAIL") || line.contains("FATAL") {
                &mut self.failed
            } else if line.contains("PASSED") {
                &mut self.passed
            } else if line.contains("PASS -----") {
                &mut self.level1
            } else if line.contains("*****") {
                &mut self.details
            } else {
                continue;
            };
            list.push(format!("{program}: {}", line.trim()));
        }
    }
}

/// The program and the words of a line.
fn parts(line: &str) -> (&str, Vec<&str>) {
    let (program, text) = line.split_once(':').unwrap_or((line, ""));
    (program, text.split_whitespace().collect())
}

/// The lines of `list` that `other` has not, each as often as it is missing there.
fn beyond<'a>(list: impl IntoIterator<Item = &'a String>, other: &[String]) -> Vec<&'a String> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for line in other {
        *left.entry(line).or_default() += 1;
    }
    let missing = |line: &&String| match left.get_mut(line.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    list.into_iter().filter(missing).collect()
}

/// What is wrong with our score.
#[derive(Debug, Default, PartialEq)]
struct Verdict<'a> {
    /// Failures of ours.
    bad: Vec<&'a String>,
    /// Lines that the reference passes, and that are missing without anybody saying why.
    lost: Vec<&'a String>,
    /// Lines that fail on the archive without us too.
    known: Vec<&'a String>,
}

/// Compares with the reference and with the archive without us.
fn judge<'a>(ours: &'a Score, reference: &'a Score, archive: &Score) -> Verdict<'a> {
    let unexcused = beyond(&ours.failed, &archive.failed);
    let known = {
        let unexcused: Vec<String> = unexcused.iter().map(|&line| line.clone()).collect();
        beyond(&ours.failed, &unexcused)
    };
    let mut bad: Vec<&String> = ours.not_started.iter().chain(&ours.ended_badly).collect();
    bad.extend(unexcused);
    bad.extend(beyond(&ours.details, &archive.details));
    let lost = |score: &Score| -> Vec<&'a String> {
        let mut lost = beyond(&reference.passed, &score.passed);
        lost.extend(beyond(&reference.level1, &score.level1));
        lost
    };
    // A known failure stands for the line of the same routine that the archive does not print either.
    let lost_by_archive = lost(archive);
    let known_routine = |line: &str| {
        let (program, words) = parts(line);
        known.iter().any(|known| {
            let (its, said) = parts(known);
            its == program && words.first().is_some_and(|name| said.contains(name))
        })
    };
    let excused: Vec<String> = lost_by_archive
        .into_iter()
        .filter(|line| known_routine(line))
        .cloned()
        .collect();
    Verdict {
        bad,
        lost: beyond(lost(ours), &excused),
        known,
    }
}

fn score(client: impl Fn(&Path) -> Client + Sync, text: &str) -> Result<Score> {
    let dir = scratch("blas")?;
    let list = programs();
    let progress = bar(text, list.len() as u64);
    let mut score = Score::default();
    // A program mostly waits where the device is simulated.
    let ended = side_by_side(&list, |program| -> Result<(Ended, String)> {
        let folder = dir.path().join(&program.name);
        fs::create_dir(&folder)?;
        let mut run = client(&Path::new(FOLDER).join(&program.name)).folder(&folder);
        if let Some(input) = &program.input {
            run = run.input(&Path::new(FOLDER).join(input))?;
        }
        let mut ended: Ended = run.run()?;
        let mut output = std::mem::take(&mut ended.stdout);
        for file in fs::read_dir(&folder)? {
            output.push_str(&String::from_utf8_lossy(&fs::read(file?.path())?));
        }
        progress.inc(1);
        Ok((ended, output))
    })?;
    for (program, (ended, output)) in list.iter().zip(ended) {
        if ended.status.and_then(|s| s.code()) == Some(127)
            || ended.stderr.contains("symbol lookup error")
            || ended.stderr.contains("error while loading")
        {
            score
                .not_started
                .push(format!("{}: {}", program.name, ended.stderr.trim()));
        } else if !ended.success() {
            score
                .ended_badly
                .push(format!("{}: {}", program.name, ended.how()));
        }
        score.read(&program.name, &output);
    }
    progress.finish_and_clear();
    Ok(score)
}

/// The archive without us, with the data that it lacks.
fn archive() -> Result<Score> {
    let libraries = [baseline()?];
    let folder = scratch("blas-data")?;
    let (source, data) = (folder.path().join("data.c"), folder.path().join("data.so"));
    fs::write(&source, CBLAS_DATA)?;
    let mut link = Command::new("gcc");
    quiet(
        link.args(["-shared", "-fPIC", "-o"])
            .arg(&data)
            .arg(&source),
    )?;
    score(
        |exe| Client::new(exe, &libraries).env("LD_PRELOAD", &data),
        "netlib's BLAS programs on the archive without us",
    )
}

/// Runs the programs on the reference library, on the archive without us and on the prefix.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let folder = PathBuf::from(FOLDER);
    for file in ["xblat3d", "xdcblat3", "libblas.so.3"] {
        if !folder.join(file).exists() {
            bail!(
                "no {file} in {FOLDER}; run `cargo xtask setup` (packages libblas-test, libblas3)"
            );
        }
    }
    let reference = score(
        |exe| Client::new(exe, std::slice::from_ref(&folder)),
        "netlib's BLAS programs on the reference",
    )?;
    if reference.passed.len() < LEAST_PASSED {
        bail!(
            "the reference library passes only {} of {LEAST_PASSED}: its programs are not whole",
            reference.passed.len()
        );
    }
    let archive = archive()?;
    let logs = scratch("blas-log")?;
    let log = logs.path().join("log.jsonl");
    let ours = score(
        |exe| {
            let client = setting.client(exe);
            if setting.route == Route::Force {
                forced::logged(client, &log)
            } else {
                client
            }
        },
        "netlib's BLAS programs on the prefix",
    )?;
    let verdict = judge(&ours, &reference, &archive);
    let mut tally = Tally {
        passed: (ours.passed.len() + ours.level1.len()) as u64,
        failed: verdict.bad.len() as u64,
        skipped: 0,
    };
    for line in &verdict.bad {
        println!("  {line}");
    }
    for line in &verdict.lost {
        println!("  the reference prints, and ours does not: {line}");
    }
    // A line that failed is missing too, and counts once.
    tally.failed = tally.failed.max(verdict.lost.len() as u64);
    for line in &verdict.known {
        println!("  known: {line}");
        findings.exception(line, KNOWN);
    }
    let counts = |s: &Score| {
        format!(
            "{} of 24 programs started, {} lines with PASSED, {} of level 1, {} failures",
            24 - s.not_started.len(),
            s.passed.len(),
            s.level1.len(),
            s.failed.len()
        )
    };
    println!("blas: {}", counts(&ours));
    println!("reference: {}", counts(&reference));
    println!("the archive without us: {}", counts(&archive));
    findings.row(Row {
        suite: "Netlib's BLAS programs".to_owned(),
        ours: counts(&ours),
        stock: format!(
            "{} (reference BLAS); {} (the same OpenBLAS archive without us)",
            counts(&reference),
            counts(&archive)
        ),
    });
    if setting.route == Route::Force {
        // Netlib's programs of LAPACK 3.11 know neither gemmtr nor OpenBLAS's own routines.
        let newer = ["gemm3m", "gemmt", "gemmtr"];
        let all = routines::routed_in(routines::Library::Blas)
            .filter(|(f, ..)| !newer.contains(&f.op.name()));
        let names: Vec<String> = all.map(|(_, _, name)| name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tally += forced::judge(&log, &names)?;
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::{Score, judge};

    /// Of Debian 13's programs on its reference BLAS.
    const REFERENCE: &str = " DGEMM  PASSED THE TESTS OF ERROR-EXITS\n\
        \x20DGEMM  PASSED THE COMPUTATIONAL TESTS ( 17496 CALLS)\n";

    /// The same on OpenBLAS 0.3.29.
    const OPENBLAS: &str = " ******* XERBLA WAS CALLED WITH SRNAME = DGEMM  INSTEAD OF DGEMM  *******\n\
        \x20******* DGEMM  FAILED THE TESTS OF ERROR-EXITS *******\n\
        \x20DGEMM  PASSED THE COMPUTATIONAL TESTS ( 17496 CALLS)\n";

    /// What a wrong result makes of it.
    const WRONG: &str = " ******* FATAL ERROR - COMPUTED RESULT IS LESS THAN HALF ACCURATE *******\n\
        \x20******* DGEMM  FAILED ON CALL NUMBER:\n";

    fn score(output: &str) -> Score {
        let mut score = Score::default();
        score.read("xblat3d", output);
        score
    }

    /// Numbers of bad, lost and known lines.
    fn counts(ours: &Score, archive: &Score) -> [usize; 3] {
        let reference = score(REFERENCE);
        let verdict = judge(ours, &reference, archive);
        [verdict.bad, verdict.lost, verdict.known].map(|list| list.len())
    }

    #[test]
    fn what_the_archive_fails_alike_is_known() {
        assert_eq!(counts(&score(OPENBLAS), &score(OPENBLAS)), [0, 0, 1]);
        // Better than the archive is right too.
        assert_eq!(counts(&score(REFERENCE), &score(OPENBLAS)), [0, 0, 0]);
    }

    #[test]
    fn what_only_ours_fails_is_a_failure() {
        assert_eq!(counts(&score(OPENBLAS), &score(REFERENCE)), [2, 1, 0]);
        assert_eq!(counts(&score(WRONG), &score(OPENBLAS)), [2, 2, 0]);
        // The same lines twice are known once.
        let twice = score(&format!("{OPENBLAS}{OPENBLAS}"));
        assert_eq!(counts(&twice, &score(OPENBLAS)), [2, 0, 1]);
        // One more reason for a line that fails anyway.
        let more = " ***** ILLEGAL VALUE OF PARAMETER NUMBER  8 NOT DETECTED BY DGEMM  *****\n";
        let more = score(&format!("{more}{OPENBLAS}"));
        assert_eq!(counts(&more, &score(OPENBLAS)), [1, 0, 1]);
        // A line that only disappears.
        let silent = score(" DGEMM  PASSED THE TESTS OF ERROR-EXITS\n");
        assert_eq!(counts(&silent, &score(OPENBLAS)), [0, 1, 0]);
    }

    #[test]
    fn a_program_that_breaks_down_is_never_excused() {
        let broken = |output| {
            let mut broken = score(output);
            broken
                .ended_badly
                .push("xblat3d: exit status: 139".to_owned());
            broken
        };
        assert_eq!(counts(&broken(OPENBLAS), &broken(OPENBLAS)), [1, 0, 1]);
        assert_eq!(counts(&broken(REFERENCE), &broken("")), [1, 0, 0]);
        // What the archive does not come to print is no excuse for not printing it.
        assert_eq!(counts(&broken(""), &broken("")), [1, 2, 0]);
        let error_exits_only = score(&OPENBLAS.replace("17496", "0"));
        assert_eq!(counts(&error_exits_only, &score(OPENBLAS)), [0, 1, 1]);
    }
}
