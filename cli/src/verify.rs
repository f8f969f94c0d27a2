//! `gpu-offload verify CMD…`: each heavy call of a command on both sides; the command has the CPU's results, and the
//! worst of the GPU's are told by routine.

use crate::child;
use crate::log_file::{self, Event, Verified};
use crate::private_file::PrivateFile;
use crate::run::{flops, not_started, prepared, shell_status};
use anyhow::{Context, Result};
use gpu_offload::verify::{ACCEPTED, is_wrong};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `verify`.
#[derive(clap::Args)]
pub struct Args {
    /// Operations at or below which calls stay on the CPU unseen, such as 2e9
    #[arg(long, value_name = "FLOPS", value_parser = flops)]
    threshold: Option<f64>,
    /// Leave the OpenBLAS inside Python wheels alone
    #[arg(long)]
    no_wheels: bool,
    /// Write the findings to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// The worst of one figure of a routine.
#[derive(Serialize)]
struct Worst {
    gpu: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
    /// m, n, k of the call.
    at: [u64; 3],
    /// Calls whose figure is more than rounding explains.
    wrong: u64,
}

/// What was found of a routine.
#[derive(Default, Serialize)]
struct Routine {
    compared: u64,
    /// Calls with a wrong figure.
    wrong: u64,
    worst: BTreeMap<String, Worst>,
    /// Calls that were not compared, by reason.
    skipped: BTreeMap<String, u64>,
}

impl Routine {
    fn add(&mut self, call: &Verified) {
        if let Some(why) = &call.skipped {
            *self.skipped.entry(why.clone()).or_default() += 1;
            return;
        }
        self.compared += 1;
        let wrong = |m: &&log_file::Measure| is_wrong(m.gpu, m.cpu);
        self.wrong += u64::from(call.measures.iter().any(|m| wrong(&m)));
        for measure in &call.measures {
            let at = [call.m, call.n, call.k];
            let worst = self.worst.entry(measure.name.clone()).or_insert(Worst {
                gpu: -1.0,
                cpu: None,
                at,
                wrong: 0,
            });
            worst.wrong += u64::from(wrong(&measure));
            if measure.gpu > worst.gpu {
                (worst.gpu, worst.cpu, worst.at) = (measure.gpu, measure.cpu, at);
            }
        }
    }
}

/// Runs the command to its end and reports on standard error.
///
/// # Errors
/// If there is no library to run it on, or the findings cannot be read or written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let log = PrivateFile::new("verify", "jsonl")?;
    let mut command = prepared(&args.command, !args.no_wheels)?;
    command
        .env("GPU_OFFLOAD", "verify")
        .env("GPU_OFFLOAD_LOG", "decisions")
        .env("GPU_OFFLOAD_LOG_FILE", log.path());
    if let Some(threshold) = args.threshold {
        command.env("GPU_OFFLOAD_THRESHOLD", threshold.to_string());
    }
    let status = match child::status(&mut command) {
        Ok(status) => shell_status(status),
        Err(error) => return Ok(ExitCode::from(not_started(&command, &error))),
    };
    let mut routines = BTreeMap::<String, Routine>::new();
    for entry in log_file::read(log.path())? {
        if let Event::Verified(call) = entry.event {
            let routine = routines.entry(call.routine.clone()).or_default();
            routine.add(&call);
        }
    }
    if let Some(file) = &args.json {
        fs::write(file, serde_json::to_string_pretty(&routines)?).with_context(|| {
            format!(
                "{}: cannot be written; accepted: a file in a writable directory",
                file.display()
            )
        })?;
    }
    eprint!("{}", table(&routines));
    let sum = |of: fn(&Routine) -> u64| routines.values().map(of).sum::<u64>();
    let (compared, wrong) = (sum(|r| r.compared), sum(|r| r.wrong));
    eprintln!(
        "gpu-offload: {compared} calls compared, {wrong} of them wrong; a figure is |error| / (|operands| sqrt(n) eps), \
         and wrong above {ACCEPTED} unless the CPU's is near"
    );
    let trouble = compared == 0 || wrong > 0;
    Ok(ExitCode::from(match status {
        0 => u8::from(trouble),
        status => status,
    }))
}

fn figure(x: f64) -> String {
    match x {
        x if x >= 1e6 => format!("{x:.0e}"),
        x => format!("{x:.2}"),
    }
}

fn table(routines: &BTreeMap<String, Routine>) -> String {
    let mut lines = Vec::new();
    if !routines.is_empty() {
        lines.push(format!(
            "{:<10} {:>8} {:<16} {:>9} {:>9}  at m, n, k",
            "routine", "calls", "worst", "GPU", "CPU"
        ));
    }
    for (name, routine) in routines {
        let mut first = (name.as_str(), routine.compared.to_string());
        for (what, worst) in &routine.worst {
            let [m, n, k] = worst.at;
            let wrong = match worst.wrong {
                0 => String::new(),
                count => format!("  WRONG in {count} calls"),
            };
            lines.push(format!(
                "{:<10} {:>8} {what:<16} {:>9} {:>9}  {m} {n} {k}{wrong}",
                first.0,
                first.1,
                figure(worst.gpu),
                worst.cpu.map_or_else(String::new, figure),
            ));
            first = ("", String::new());
        }
        for (why, count) in &routine.skipped {
            lines.push(format!("{name:<10} {count:>8} not compared: {why}"));
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_file::Measure;

    fn call(n: u64, gpu: f64, cpu: Option<f64>) -> Verified {
        Verified {
            routine: "dgetrf".to_owned(),
            m: n,
            n,
            k: n,
            measures: vec![Measure {
                name: "residual".to_owned(),
                gpu,
                cpu,
            }],
            skipped: None,
        }
    }

    #[test]
    fn the_worst_call_stands_for_its_routine_and_every_wrong_one_is_counted() {
        let mut routine = Routine::default();
        routine.add(&call(10, 0.5, Some(0.4)));
        routine.add(&call(30, 1e9, Some(0.4)));
        routine.add(&call(20, 50.0, Some(0.4)));
        // A problem that is as hard for the CPU.
        routine.add(&call(40, 50.0, Some(45.0)));
        routine.add(&Verified {
            measures: Vec::new(),
            skipped: Some("no GPU path: this".to_owned()),
            ..call(50, 0.0, None)
        });
        assert_eq!((routine.compared, routine.wrong), (4, 2));
        let text = table(&BTreeMap::from([("dgetrf".to_owned(), routine)]));
        for needle in [
            "1e9",
            "30 30 30",
            "WRONG in 2 calls",
            "1 not compared: no GPU path: this",
        ] {
            assert!(text.contains(needle), "{needle}: {text}");
        }
    }
}
