//! The committed report of `conformance --full`: on what it ran, what each suite counted, what the
//! stock library counts, and every exception with its reason. Suites may run one by one, on any machine, so
//! that each has a record with its own commit and date, which is committed beside the report; the report is
//! made of the records. It only writes down what was measured.

use super::Tally;
use crate::tools::{quiet, workspace};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line of the report's table.
pub struct Row {
    /// What was run.
    pub suite: String,
    /// What it counted on the prefix.
    pub ours: String,
    /// What it counted on the library it is compared with.
    pub stock: String,
}

/// What the suites of one run found.
#[derive(Default)]
pub struct Findings {
    rows: Vec<Row>,
    exceptions: Vec<(String, String)>,
}

impl Findings {
    /// Adds a line to the table.
    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds an exception that was needed.
    pub fn exception(&mut self, what: &str, why: &str) {
        self.exceptions.push((what.to_owned(), why.to_owned()));
    }
}

fn in_git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(workspace());
    Ok(quiet(&mut git)?.trim().to_owned())
}

/// What a line `name: value` or `name=value` of a file says.
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split([':', '=']).nth(1));
    value
        .unwrap_or("unknown")
        .trim()
        .trim_matches('"')
        .to_owned()
}

/// The processor in words. The name alone does not tell which kernels OpenBLAS takes, and these decide the last
/// digits.
pub fn processor() -> String {
    let cpu = |name| field("/proc/cpuinfo", name);
    format!(
        "{} (family {}, model {})",
        cpu("model name"),
        cpu("cpu family"),
        cpu("model\t")
    )
}

/// Processor, cores and system, in words.
fn machine() -> String {
    format!(
        "{}, {} cores, {}",
        processor(),
        std::thread::available_parallelism().map_or(0, usize::from),
        field("/etc/os-release", "PRETTY_NAME")
    )
}

/// Where the record of a suite's last full run is kept: in a folder with the report's name.
fn record(report: &Path, suite: &str) -> PathBuf {
    report.with_extension("").join(format!("{suite}.json"))
}

/// Keeps what a full run of one suite found.
pub fn keep(
    report: &Path,
    suite: &str,
    findings: &Findings,
    tally: Tally,
    wall_s: f64,
) -> Result<()> {
    let commit = in_git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !in_git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!docs/conformance.md",
        ":!docs/conformance",
    ])?
    .is_empty();
    let date = quiet(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let rows: Vec<Value> = findings
        .rows
        .iter()
        .map(|r| json!([r.suite, r.ours, r.stock]))
        .collect();
    let kept = json!({
        "commit": if changed { format!("{commit} with changes") } else { commit },
        "date": date.trim(),
        "machine": machine(),
        "passed": tally.passed,
        "failed": tally.failed,
        "skipped": tally.skipped,
        "wall_s": wall_s.round(),
        "rows": rows,
        "exceptions": findings.exceptions,
    });
    let file = record(report, suite);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    // Indented, so that a change of one count is a change of one line.
    let text = format!("{kept:#}\n");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

/// Runs of one kind: a table of them, what they found, and what was excepted.
#[derive(Default)]
struct Section {
    parts: String,
    rows: String,
    exceptions: String,
    machines: BTreeSet<String>,
    sum: Tally,
}

/// Of the records with these names, those that are there; for the others `missing` is written.
fn section(file: &Path, names: &[String], missing: bool) -> Result<Section> {
    let mut to = Section {
        parts: "| part | commit | date | passed | failed | skipped | s |\n|---|---|---|---|---|---|---|\n"
            .to_owned(),
        ..Section::default()
    };
    for name in names {
        let Ok(text) = fs::read_to_string(record(file, name)) else {
            if missing {
                writeln!(to.parts, "| {name} | not run | | | | | |")?;
            }
            continue;
        };
        let kept: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no JSON", record(file, name).display()))?;
        let count = |name: &str| kept[name].as_u64().unwrap_or_default();
        to.sum += Tally {
            passed: count("passed"),
            failed: count("failed"),
            skipped: count("skipped"),
        };
        to.machines.insert(text_of(&kept["machine"]).to_owned());
        writeln!(
            to.parts,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            text_of(&kept["commit"]),
            text_of(&kept["date"]),
            count("passed"),
            count("failed"),
            count("skipped"),
            kept["wall_s"]
        )?;
        for row in kept["rows"].as_array().into_iter().flatten() {
            let cells = [&row[0], &row[1], &row[2]].map(text_of);
            writeln!(to.rows, "| {} |", cells.join(" | "))?;
        }
        for exception in kept["exceptions"].as_array().into_iter().flatten() {
            let [what, why] = [&exception[0], &exception[1]].map(text_of);
            writeln!(to.exceptions, "- `{what}`: {why}")?;
        }
    }
    if to.exceptions.is_empty() {
        to.exceptions.push_str("None.\n");
    }
    Ok(to)
}

/// The name of a suite's record of a run that was forced to the simulated CUDA.
pub fn forced(suite: &str) -> String {
    format!("{suite}-forced")
}

/// Writes the report from the records of the suites' last full runs.
pub fn write(file: &Path, suites: &[String]) -> Result<()> {
    let cpu = section(file, suites, true)?;
    let names: Vec<String> = suites.iter().map(|suite| forced(suite)).collect();
    let sim = section(file, &names, false)?;
    let machines: Vec<&str> = cpu
        .machines
        .union(&sim.machines)
        .map(String::as_str)
        .collect();
    let table = "| suite | these libraries | stock |\n|---|---|---|\n";
    let text = format!(
        "<!-- Written by `cargo xtask conformance --full`, do not edit. -->\n# Conformance\n\n\
         Machine: {}.\n\n## Every call on the CPU route\n\n{}\n\n{}\n\
         ### Against the stock library\n\n{table}{}\n### Exceptions\n\n{}\n\
         ## Every routed call forced to the simulated CUDA\n\n\
         `--route force --device sim`: threshold 0, and every routed routine must have run on the device. Its \
         kernels are the CPU library's; this tests what moves data, waits and decides, not a GPU's arithmetic.\n\n\
         {}\n\n{}\n{table}{}\n### Exceptions\n\n{}",
        machines.join("; "),
        cpu.sum,
        cpu.parts,
        cpu.rows,
        cpu.exceptions,
        sim.sum,
        sim.parts,
        sim.rows,
        sim.exceptions,
    );
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
