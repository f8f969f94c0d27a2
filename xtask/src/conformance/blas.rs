//! Netlib's 24 BLAS programs, as Debian packages them. What the reference library prints in the same
//! run is what is expected: programs that start, and lines that say PASSED or PASS.

use super::client_run::{Client, Ended, scratch};
use super::report::{Findings, Row};
use super::{Route, Setting, Tally, forced};
use crate::tools::bar;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian's libblas-test and libblas3 put their files.
const FOLDER: &str = "/usr/lib/x86_64-linux-gnu/blas";

/// What netlib 3.11's programs print on the reference library. A reference that prints less has lost
/// its programs, and then nothing is proved. Counted on Debian 12, 2026-12-01.
const LEAST_PASSED: u64 = 480;

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

/// What one library did.
#[derive(Default)]
struct Score {
    not_started: Vec<String>,
    ended_badly: Vec<String>,
    /// Lines with PASSED (levels 2 and 3).
    passed: u64,
    /// Lines with "PASS -----" (level 1).
    level1: u64,
    failed: Vec<String>,
}

fn score(client: impl Fn(&Path) -> Client, text: &str) -> Result<Score> {
    let dir = scratch("blas")?;
    let list = programs();
    let progress = bar(text, list.len() as u64);
    let mut score = Score::default();
    for program in &list {
        let folder = dir.path().join(&program.name);
        fs::create_dir(&folder)?;
        let mut run = client(&Path::new(FOLDER).join(&program.name)).folder(&folder);
        if let Some(input) = &program.input {
            run = run.input(&Path::new(FOLDER).join(input))?;
        }
        let ended: Ended = run.run()?;
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
        let mut output = ended.stdout;
        for file in fs::read_dir(&folder)? {
            output.push_str(&String::from_utf8_lossy(&fs::read(file?.path())?));
        }
        for line in output.lines() {
            if line.contains("FAIL") || line.contains("FATAL") {
                score
                    .failed
                    .push(format!("{}: {}", program.name, line.trim()));
            } else if line.contains("PASSED") {
                score.passed += 1;
            } else if line.contains("PASS -----") {
                score.level1 += 1;
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(score)
}

/// Runs the programs on the reference library and on the prefix.
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
    if reference.passed < LEAST_PASSED {
        bail!(
            "the reference library passes only {} of {LEAST_PASSED}: its programs are not whole",
            reference.passed
        );
    }
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
    let mut tally = Tally {
        passed: ours.passed + ours.level1,
        ..Tally::default()
    };
    for bad in ours
        .not_started
        .iter()
        .chain(&ours.ended_badly)
        .chain(&ours.failed)
    {
        println!("  {bad}");
        tally.failed += 1;
    }
    let missing = (reference.passed + reference.level1).saturating_sub(tally.passed);
    if missing > 0 && tally.failed == 0 {
        println!("  {missing} lines that the reference prints are missing");
        tally.failed += missing;
    }
    let counts = |s: &Score| {
        format!(
            "{} of 24 programs started, {} lines with PASSED, {} of level 1, {} failures",
            24 - s.not_started.len(),
            s.passed,
            s.level1,
            s.failed.len()
        )
    };
    println!("blas: {}; reference: {}", counts(&ours), counts(&reference));
    findings.row(Row {
        suite: "Netlib's BLAS programs".to_owned(),
        ours: counts(&ours),
        stock: format!("{} (reference BLAS)", counts(&reference)),
    });
    if setting.route == Route::Force {
        // Netlib's programs of LAPACK 3.11 know neither gemmtr nor OpenBLAS's own routines.
        let newer = ["gemm3m", "gemmt", "gemmtr"];
        let all = routines::routed().filter(|(f, ..)| !newer.contains(&f.op.name()));
        let names: Vec<String> = all.map(|(_, _, name)| name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tally += forced::judge(&log, &names)?;
    }
    Ok(tally)
}
