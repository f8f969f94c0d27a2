//! Instructions a call, counted by callgrind: a client makes the calls of every row on our libraries and on the same
//! archive without us, and callgrind dumps what each row took after its first call, whose slow path reads the settings.
//! One thread: which thread spins how long is not repeatable.

use crate::conformance::{Client, Scratch, Tally, baseline, scratch};
use crate::tools::{quiet, step, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a routine may cost more than in the archive, in instructions; from the foundation's requirements. A routine
/// that calls others pays for each of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The archive's own symbol.
    Own,
    /// Reached from liblapack.so.3 by one jump through a table.
    Jump,
    /// A threshold test in front; for LAPACK's kernels in libblas.so.3, that jump too.
    Routed,
}

impl Way {
    fn limit(self) -> f64 {
        match self {
            Way::Own => 0.0,
            Way::Jump => 1.0,
            Way::Routed => 20.0,
        }
    }
}

/// Routine of tests/clients/overhead.c, sizes.
const ROWS: &[(&str, &[u32])] = &[
    ("ddot", &[2, 32]),
    ("dgemv", &[8, 32]),
    ("dgeqr2", &[8]),
    ("dpotf2", &[8]),
    ("dormlq", &[8]),
    ("dgemm", &[4, 8, 32]),
    ("cblas_dgemm", &[4, 8, 32]),
    ("dtrsm", &[4, 8, 32]),
    ("cblas_dtrsm", &[4, 8, 32]),
    ("dsyrk", &[4, 8, 32]),
    ("cblas_dsyrk", &[4, 8, 32]),
    ("dsymm", &[4, 8, 32]),
    ("cblas_dsymm", &[4, 8, 32]),
    ("dgetrf", &[8]),
    ("dgetrs", &[8]),
    ("dgetri", &[8]),
    ("dgesv", &[8]),
    ("dpotrf", &[8]),
    ("dpotrs", &[8]),
    ("dpotri", &[8]),
    ("dposv", &[8]),
    ("dtrtri", &[8]),
    ("dtrtrs", &[8]),
    ("dlauum", &[8]),
    ("dgeqrf", &[8]),
    ("dgelqf", &[8]),
    ("dorgqr", &[8]),
    ("dormqr", &[8]),
    ("dgels", &[8]),
    ("dgelsd", &[8]),
    ("dgelss", &[8]),
    ("dsyev", &[8]),
    ("dsyevd", &[8]),
    ("dsyevr", &[8]),
    ("dsyevx", &[8]),
    ("dsygv", &[8]),
    ("dsygvd", &[8]),
    ("dsygvx", &[8]),
    ("dgesvd", &[8]),
    ("dgesdd", &[8]),
    ("dgeev", &[8]),
];

/// Counted calls of each row. Enough that one instruction a call stands out of what a row takes besides.
const CALLS: u64 = 200;

/// What a row may take besides its calls (to ask for the dump), over [`CALLS`].
const NOISE: f64 = 0.1;

/// The names of the archive's symbols that pass the door, and of those that lapack reaches by a jump.
struct Symbols {
    routed: BTreeSet<String>,
    kernels: BTreeSet<String>,
}

impl Symbols {
    fn new() -> Result<Self> {
        let list = workspace().join(".openblas/names/kernels.txt");
        let kernels =
            fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        Ok(Self {
            routed: routines::routed_symbols().into_iter().collect(),
            kernels: kernels.lines().map(str::to_owned).collect(),
        })
    }

    fn way(&self, symbol: &str) -> Way {
        if self.routed.contains(symbol) {
            Way::Routed
        } else if self.kernels.contains(symbol) {
            Way::Jump
        } else {
            Way::Own
        }
    }

    /// The limit of a call that makes these calls, itself among them, in instructions.
    fn limit(&self, dump: &Dump) -> f64 {
        let calls = dump.calls.iter();
        let more = calls.map(|(symbol, number)| self.way(symbol).limit() * *number as f64);
        more.sum::<f64>() / CALLS as f64
    }
}

/// What callgrind counted for one row.
#[derive(Default)]
struct Dump {
    instructions: u64,
    /// How often each function was called.
    calls: BTreeMap<String, u64>,
}

/// Reads one dump; the name is that of its row. The last one, which the end of the program writes, has none.
fn read(text: &str) -> Option<(String, Dump)> {
    let row = text
        .lines()
        .find_map(|line| line.strip_prefix("desc: Trigger: Client Request: "))?;
    let mut dump = Dump {
        instructions: text
            .lines()
            .find_map(|line| line.strip_prefix("summary: "))?
            .trim()
            .parse()
            .ok()?,
        ..Dump::default()
    };
    // `fn=(7) dgemm_` names the function 7, `cfn=(7)` and the line `calls=200 …` after it say who is called.
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut called = "";
    for line in text.lines() {
        if let Some((key, function)) = line.split_once("fn=(") {
            let (number, name) = function.split_once(')')?;
            if !name.is_empty() {
                names.insert(number, name.trim());
            }
            if key == "c" {
                called = number;
            }
        } else if let Some(number) = line.strip_prefix("calls=") {
            let number: u64 = number.split_whitespace().next()?.parse().ok()?;
            *dump
                .calls
                .entry((*names.get(called)?).to_owned())
                .or_default() += number;
        }
    }
    Some((row.to_owned(), dump))
}

fn compile(lib: &Path, folder: &Scratch) -> Result<PathBuf> {
    let exe = folder.path().join("overhead-client");
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

/// Runs all rows on one pair of libraries.
fn count(exe: &Path, lib: &Path, folder: &Scratch, name: &str) -> Result<BTreeMap<String, Dump>> {
    let out = folder.path().join(name);
    fs::create_dir(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let rows = ROWS
        .iter()
        .flat_map(|(routine, sizes)| {
            sizes
                .iter()
                .map(move |n| [(*routine).to_owned(), n.to_string()])
        })
        .flatten();
    let ended = Client::new("valgrind", &[lib.to_owned()])
        .arg("--tool=callgrind")
        .arg(format!(
            "--callgrind-out-file={}",
            out.join("dump").display()
        ))
        .arg(exe)
        .arg(CALLS.to_string())
        .args(rows)
        .env("OPENBLAS_NUM_THREADS", "1")
        .env("LD_BIND_NOW", "1")
        .run()?;
    if !ended.success() {
        bail!("callgrind ended with {}:\n{}", ended.how(), ended.tail());
    }
    let mut dumps = BTreeMap::new();
    for file in fs::read_dir(&out)? {
        let path = file?.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        dumps.extend(read(&text));
    }
    Ok(dumps)
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
    let symbols = Symbols::new()?;
    let folder = scratch("overhead")?;
    let exe = compile(&ours, &folder)?;
    let _progress = step("counting instructions");
    let with = count(&exe, &ours, &folder, "ours")?;
    let without = count(&exe, &stock, &folder, "archive")?;
    let mut table =
        String::from("instructions a call       n      ours   archive      more   limit\n");
    let mut tally = Tally::default();
    for (routine, sizes) in ROWS {
        for n in *sizes {
            let row = format!("{routine} {n}");
            let missing = || format!("callgrind did not count {row}");
            let dump = with.get(&row).with_context(missing)?;
            let stock = without.get(&row).with_context(missing)?;
            let a_call = |dump: &Dump| dump.instructions as f64 / CALLS as f64;
            let (with_us, alone) = (a_call(dump), a_call(stock));
            let limit = symbols.limit(dump);
            let symbol = if routine.starts_with("cblas_") {
                (*routine).to_owned()
            } else {
                format!("{routine}_")
            };
            // Blind otherwise: the calls of the row itself are among those that the limit is made of.
            ensure!(
                dump.calls.get(&symbol) >= Some(&CALLS),
                "callgrind did not see the calls of {symbol}"
            );
            let more = with_us - alone;
            let held = more <= limit + NOISE;
            tally.check(held);
            table.push_str(&format!(
                "{routine:<22} {n:>4} {with_us:>9.1} {alone:>9.1} {more:>9.1} {limit:>7.0}{}\n",
                if held { "" } else { "  TOO MUCH" }
            ));
        }
    }
    print!("{table}");
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_tells_instructions_and_calls() {
        let text = "cmd:  x dgemm 8\ndesc: Trigger: Client Request: dgels 8\nsummary: 4711\n\nfn=(1) main\n0 5\ncfn=(2) dgels_\ncalls=200 0\n0 9\nfn=(2)\n0 7\ncfn=(3) dgeqrf_\ncalls=200 3\n0 1\ncfn=(3)\ncalls=100 3\n0 1\n";
        let (row, dump) = read(text).expect("a dump");
        assert_eq!((row.as_str(), dump.instructions), ("dgels 8", 4711));
        assert_eq!(dump.calls["dgels_"], 200);
        assert_eq!(dump.calls["dgeqrf_"], 300);
        let symbols = Symbols {
            routed: ["dgels_".to_owned()].into(),
            kernels: ["dgeqrf_".to_owned()].into(),
        };
        assert_eq!(symbols.limit(&dump), 20.0 + 1.5);
        assert!(read("desc: Trigger: Program termination\nsummary: 1\n").is_none());
    }
}
