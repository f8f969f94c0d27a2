//! What the pages of measurements on a GPU machine have in common: where their results come from, and how they are
//! read and drawn.

use crate::tools::{loud, quiet, target_dir, workspace};
use anyhow::{Context, Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of the benchmarks that draw.
#[derive(clap::Args)]
pub struct Args {
    /// The prefix under test
    #[arg(long, value_name = "DIR", default_value = "dist/prefix")]
    prefix: PathBuf,
    /// Measure nothing: draw the results of an earlier run of the kit's program (tests/gpu)
    #[arg(long, value_name = "JSON")]
    from: Option<PathBuf>,
    /// Where the tables and plots go
    #[arg(long, value_name = "DIR", default_value = "docs/performance")]
    out: PathBuf,
}

impl Args {
    /// What a program of the kit has written or writes now, as file `results` of the kit.
    pub fn results(&self, program: &str, results: &str) -> Result<Value> {
        let json = match &self.from {
            Some(file) => file.clone(),
            None => measure(&self.prefix, program, results)?,
        };
        let text = std::fs::read_to_string(&json)
            .with_context(|| format!("cannot read {}", json.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not what tests/gpu/{program} writes", json.display()))
    }

    /// The folder for tables and plots, made where it is not there.
    pub fn folder(&self) -> Result<PathBuf> {
        let out = workspace().join(&self.out);
        std::fs::create_dir_all(&out)
            .with_context(|| format!("cannot create {}", out.display()))?;
        Ok(out)
    }
}

/// Makes a kit of the prefix, runs one of its programs that measure on this machine's GPU, and returns what it wrote.
fn measure(prefix: &Path, program: &str, results: &str) -> Result<PathBuf> {
    ensure!(
        Path::new("/dev/nvidiactl").exists(),
        "no NVIDIA device here (/dev/nvidiactl): make a kit with tests/gpu/prepare.sh, run KIT/{program} where the GPU \
         is, and draw its file with --from"
    );
    let kit = target_dir().join("gpu-kit");
    let prepare = workspace().join("tests/gpu/prepare.sh");
    quiet(Command::new("bash").arg(prepare).arg(prefix).arg(&kit))?;
    let json = kit.join(results);
    let mut measure = Command::new("python3");
    loud(measure.arg(kit.join(program)).arg("--out").arg(&json))?;
    Ok(json)
}

/// The measured cases, each made by `row`, which finds `None` where a field is missing.
pub fn rows<R>(results: &Value, row: impl Fn(&Value) -> Option<R>) -> Result<Vec<R>> {
    let list = results["rows"].as_array().context("no rows")?;
    list.iter()
        .map(|value| row(value).with_context(|| format!("a row lacks a field: {value}")))
        .collect()
}

/// A row's numbers by their keys, as far as there are any.
pub fn numbers(
    row: &Value,
    keys: impl IntoIterator<Item = &'static str>,
) -> BTreeMap<&'static str, f64> {
    keys.into_iter()
        .filter_map(|key| Some((key, row[key].as_f64()?)))
        .collect()
}

/// "Measured … on …, by `tests/gpu/PROGRAM` in … ."
pub fn measured(machine: &Value, program: &str) -> String {
    let text = |key: &str| machine[key].as_str().unwrap_or("not known");
    let runs = match machine["runs"].as_u64() {
        Some(runs) if runs > 1 => format!("{runs} runs"),
        _ => "one run".to_owned(),
    };
    format!(
        "Measured {} on {}, {} with {} CPU threads, by `tests/gpu/{program}` in {runs}.",
        text("date"),
        text("gpu"),
        text("cpu"),
        machine["threads"],
    )
}

/// The two lines above a table.
pub fn table_head<'a>(headings: impl IntoIterator<Item = &'a str>) -> String {
    let headings: Vec<&str> = headings.into_iter().collect();
    let rule = "---|".repeat(headings.len());
    format!("| {} |\n|{rule}\n", headings.join(" | "))
}

/// Where a plot is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Makes an SVG file of so many points.
pub fn svg(
    file: &Path,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<()> {
    let area = SVGBackend::new(file, size).into_drawing_area();
    let all = || -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
        Ok(())
    };
    // The error of a drawing back end is not Send; its text is what matters.
    all().map_err(|e| anyhow!("cannot draw {}: {e}", file.display()))
}
