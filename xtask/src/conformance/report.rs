//! The committed report of `conformance --full`: on what it ran, what each suite counted, what the
//! stock library counts, and every exception with its reason. It only writes down what was measured.

use super::Tally;
use crate::tools::{quiet, workspace};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
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

/// One part of the run: its name, its counts and how long it took.
pub struct Part {
    /// The suite.
    pub name: String,
    /// Its checks.
    pub tally: Tally,
    /// Time from start to end.
    pub wall_s: f64,
}

fn in_git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(workspace());
    Ok(quiet(&mut git)?.trim().to_owned())
}

/// CPU model, cores and system, in words.
fn machine() -> String {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split([':', '=']).nth(1));
        value
            .unwrap_or("unknown")
            .trim()
            .trim_matches('"')
            .to_owned()
    };
    format!(
        "{}, {} cores, {}",
        field("/proc/cpuinfo", "model name"),
        std::thread::available_parallelism().map_or(0, usize::from),
        field("/etc/os-release", "PRETTY_NAME")
    )
}

/// Writes the report.
pub fn write(file: &Path, findings: &Findings, parts: &[Part], sum: Tally) -> Result<()> {
    let commit = in_git(&["rev-parse", "HEAD"])?;
    let changed = in_git(&["status", "--porcelain", "--untracked-files=no"])?;
    let date = quiet(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let mut text = String::from(
        "<!-- Written by `cargo xtask conformance --full`, do not edit. -->\n# Conformance\n\n",
    );
    let changes = if changed.is_empty() {
        ""
    } else {
        ", with uncommitted changes"
    };
    writeln!(text, "- commit: {commit}{changes}")?;
    writeln!(text, "- date: {}", date.trim())?;
    writeln!(
        text,
        "- machine: {}; no GPU is used, every call runs on the CPU route",
        machine()
    )?;
    writeln!(text, "- result: {sum}\n\n## Parts\n")?;
    writeln!(
        text,
        "| part | passed | failed | skipped | s |\n|---|---|---|---|---|"
    )?;
    for p in parts {
        let t = p.tally;
        writeln!(
            text,
            "| {} | {} | {} | {} | {:.0} |",
            p.name, t.passed, t.failed, t.skipped, p.wall_s
        )?;
    }
    text.push_str("\n## Against the stock library\n\n");
    writeln!(text, "| suite | these libraries | stock |\n|---|---|---|")?;
    for r in &findings.rows {
        writeln!(text, "| {} | {} | {} |", r.suite, r.ours, r.stock)?;
    }
    text.push_str("\n## Exceptions\n\n");
    if findings.exceptions.is_empty() {
        text.push_str("None.\n");
    }
    for (what, why) in &findings.exceptions {
        writeln!(text, "- `{what}`: {why}")?;
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
