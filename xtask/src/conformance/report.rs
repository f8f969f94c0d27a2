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

/// Writes the report from the records of the suites' last full runs.
pub fn write(file: &Path, suites: &[String]) -> Result<()> {
    let mut parts = String::from(
        "| part | commit | date | passed | failed | skipped | s |\n|---|---|---|---|---|---|---|\n",
    );
    let mut rows = String::from("| suite | these libraries | stock |\n|---|---|---|\n");
    let (mut exceptions, mut machines, mut sum) =
        (String::new(), BTreeSet::new(), Tally::default());
    for suite in suites {
        let Ok(text) = fs::read_to_string(record(file, suite)) else {
            writeln!(parts, "| {suite} | not run | | | | | |")?;
            continue;
        };
        let kept: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no JSON", record(file, suite).display()))?;
        let count = |name: &str| kept[name].as_u64().unwrap_or_default();
        sum += Tally {
            passed: count("passed"),
            failed: count("failed"),
            skipped: count("skipped"),
        };
        machines.insert(text_of(&kept["machine"]).to_owned());
        writeln!(
            parts,
            "| {suite} | {} | {} | {} | {} | {} | {} |",
            text_of(&kept["commit"]),
            text_of(&kept["date"]),
            count("passed"),
            count("failed"),
            count("skipped"),
            kept["wall_s"]
        )?;
        for row in kept["rows"].as_array().into_iter().flatten() {
            let cells = [&row[0], &row[1], &row[2]].map(text_of);
            writeln!(rows, "| {} |", cells.join(" | "))?;
        }
        for exception in kept["exceptions"].as_array().into_iter().flatten() {
            let [what, why] = [&exception[0], &exception[1]].map(text_of);
            writeln!(exceptions, "- `{what}`: {why}")?;
        }
    }
    if exceptions.is_empty() {
        exceptions.push_str("None.\n");
    }
    let machines: Vec<String> = machines.into_iter().collect();
    let text = format!(
        "<!-- Written by `cargo xtask conformance --full`, do not edit. -->\n# Conformance\n\n\
         Machine: {}. Every call runs on the CPU route; no GPU is used.\n\n{sum}\n\n{parts}\n\
         ## Against the stock library\n\n{rows}\n## Exceptions\n\n{exceptions}",
        machines.join("; ")
    );
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
