//! `gpu-offload report FILE`: what a log tells, as a table and as a page with charts.

mod charts;
mod page;
mod totals;

use crate::log_file::{self, Summary};
use crate::units::seconds;
use anyhow::{Context, Result, ensure};
use gpu_offload::log::bytes;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use totals::Report;

/// Arguments of `report`.
#[derive(clap::Args)]
pub struct Args {
    /// A JSON-lines log (GPU_OFFLOAD_LOG=decisions GPU_OFFLOAD_LOG_FILE=NAME.jsonl); - reads standard input
    #[arg(value_name = "FILE")]
    log: PathBuf,
    /// Where the page is written, instead of beside the log under the name NAME.html
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON instead of the table, and write a page only where --output says so
    #[arg(long)]
    json: bool,
}

/// Prints the table and writes the page.
///
/// # Errors
/// If the log cannot be read or holds no call, or the page cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = Report::new(log_file::read(&args.log)?);
    ensure!(
        !report.routines.is_empty(),
        "{}: no call is recorded; accepted: a log of a program with heavy calls, written at GPU_OFFLOAD_LOG=summary \
         or decisions",
        args.log.display()
    );
    let page = match &args.output {
        None if args.json => None,
        None => Some(beside(&args.log)?),
        Some(file) => Some(file.clone()),
    };
    if let Some(file) = &page {
        let same = |a: &Path, b: &Path| {
            let (a, b) = (std::fs::canonicalize(a), std::fs::canonicalize(b));
            matches!((a, b), (Ok(a), Ok(b)) if a == b)
        };
        ensure!(
            !same(file, &args.log),
            "{}: is the log itself; accepted: --output with another name",
            file.display()
        );
        std::fs::write(file, page::html(&report)?).with_context(|| {
            format!(
                "{}: cannot be written; accepted: --output with a file in a writable directory",
                file.display()
            )
        })?;
    }
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        crate::say!("{}", table(&report));
        if let Some(file) = page {
            crate::say!("page: {}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn beside(log: &Path) -> Result<PathBuf> {
    ensure!(
        log.as_os_str() != "-",
        "a log from standard input has no name; accepted: --output FILE"
    );
    Ok(log.with_extension("html"))
}

/// What is said of all calls together.
fn sum(report: &Report) -> String {
    let Summary {
        gpu_calls,
        cpu_calls,
        gpu_s,
        cpu_s,
        saved_s,
        ..
    } = &report.all;
    let saved = match saved_s {
        s if *s < 0.0 => format!("{} lost", seconds(-s)),
        s => format!("{} saved", seconds(*s)),
    };
    format!(
        "{} calls, {gpu_calls} of them on the GPU; {} in the library, {saved} against the CPU as predicted",
        gpu_calls + cpu_calls,
        seconds(gpu_s + cpu_s),
    )
}

fn table(report: &Report) -> String {
    let mut lines = report.origins();
    let line = |cells: [&str; 10]| {
        let [routine, rest @ ..] = cells;
        let rest: Vec<String> = rest.iter().map(|cell| format!("{cell:>9}")).collect();
        format!("{routine:<10} {}", rest.join(" "))
    };
    lines.push(line([
        "routine", "calls", "on GPU", "GPU time", "on CPU", "CPU time", "saved", "to GPU",
        "from GPU", "error",
    ]));
    for row in &report.routines {
        lines.push(line([
            &row.counted.routine,
            &(row.counted.gpu_calls + row.counted.cpu_calls).to_string(),
            &row.counted.gpu_calls.to_string(),
            &seconds(row.counted.gpu_s),
            &row.counted.cpu_calls.to_string(),
            &seconds(row.counted.cpu_s),
            &seconds(row.counted.saved_s),
            &bytes(row.counted.bytes_in),
            &bytes(row.counted.bytes_out),
            &row.error_text(),
        ]));
        lines.extend(row.notes().into_iter().map(|note| format!("  {note}")));
    }
    lines.push(format!(
        "{}\nerror: of predicted times, the median of GPU / CPU calls",
        sum(report)
    ));
    lines.join("\n")
}
