//! `gpu-offload doctor`: which BLAS and LAPACK a process or a command really loads and through what, whether the
//! swaps and links of an environment are whole, and what to do next.
//!
//! Reads `/proc`, `/sys/fs/cgroup` and the libraries' files; changes nothing and starts no GPU (`status` does that).

mod command;
mod environment;
mod limits;
mod machine;
mod process;

use crate::install::known::{Kind, Known};
use anyhow::{Context, Result};
use limits::Limits;
use machine::Machine;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `doctor`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("patient").required(true).multiple(false))]
#[command(
    after_help = "Exit status: 0, heavy calls reach the engine and nothing is to be done; 1, something is to be \
    done, or trouble; 2, wrong command line. With a command: the command's own, or 128 and the signal that ended it; \
    126, it cannot be executed; 127, it is not there. The field `healthy` of --json says the rest."
)]
pub struct Args {
    /// A running process
    #[arg(long, value_name = "PID", group = "patient")]
    pid: Option<u32>,
    /// A Python environment (the value of VIRTUAL_ENV)
    #[arg(long, value_name = "DIR", group = "patient")]
    venv: Option<PathBuf>,
    /// A conda environment (the value of CONDA_PREFIX)
    #[arg(long, value_name = "PREFIX", group = "patient")]
    conda: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Write the report into a file; else it goes to standard output, behind a command to standard error
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A command, which is run as it is, and its arguments
    #[arg(last = true, value_name = "CMD", group = "patient")]
    command: Vec<OsString>,
}

/// What was found. The JSON form has these fields.
#[derive(Default, Serialize)]
pub struct Report {
    /// Nothing is to be done.
    healthy: bool,
    /// Libraries of linear algebra and of CUDA, and what each is.
    libraries: Vec<Library>,
    /// What the kernel lets a process use; absent for an environment.
    limits: Option<Limits>,
    /// Threads that a process has now.
    threads: Option<usize>,
    /// Its variables that set numbers of threads, as it was started with them.
    thread_variables: Vec<String>,
    /// The driver, the CUDA libraries and the profile.
    machine: Option<Machine>,
    /// How a command ended.
    status: Option<i32>,
    /// What to do next; nothing where all is well.
    advice: Vec<String>,
}

/// A library.
#[derive(Default, Serialize)]
pub struct Library {
    /// The process that has loaded it, and its program; absent for an environment.
    process: Option<u32>,
    program: Option<PathBuf>,
    path: PathBuf,
    /// In words.
    what: String,
    /// By what it came to be loaded: alternatives, a wheel, a conda environment, or where the loader found it.
    via: Option<String>,
    /// It serves BLAS or LAPACK to the program.
    serves: bool,
}

impl Report {
    /// Adds advice that is not there yet.
    fn advise(&mut self, advice: String) {
        if !self.advice.contains(&advice) {
            self.advice.push(advice);
        }
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut process = None;
        for library in &self.libraries {
            if process != library.process {
                process = library.process;
                let program = library.program.as_deref().unwrap_or(Path::new("unknown"));
                lines.extend(process.map(|id| format!("process {id}, {}:", program.display())));
            }
            let via = library
                .via
                .as_ref()
                .map_or(String::new(), |via| format!(" (by {via})"));
            lines.push(format!("{}: {}{via}", library.path.display(), library.what));
        }
        if let Some(limits) = &self.limits {
            let quota = limits
                .quota
                .map(|quota| format!(", for the time of {quota}"));
            let may = limits
                .processors
                .map(|p| format!("it may use {p} processors"));
            lines.extend(may.map(|may| may + quota.as_deref().unwrap_or_default()));
        }
        lines.extend(
            self.threads
                .map(|threads| format!("it has {threads} threads")),
        );
        for variable in &self.thread_variables {
            lines.push(format!("started with {variable}"));
        }
        lines.extend(self.machine.iter().flat_map(Machine::lines));
        for advice in &self.advice {
            lines.push(format!("to do: {advice}"));
        }
        lines.join("\n")
    }
}

/// What is to be done about an environment that was installed into; nothing where it is intact.
///
/// # Errors
/// Where it cannot be examined, or is none.
pub fn trouble_of(known: &Known) -> Result<Vec<String>> {
    let report = match known.kind {
        Kind::Venv => environment::venv(&known.path)?,
        Kind::Conda => environment::conda(&known.path)?,
    };
    Ok(report.advice)
}

/// Examines and reports.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut status = None;
    let mut report = match (args.pid, &args.venv, &args.conda) {
        (Some(pid), _, _) => process::running(Path::new("/proc"), pid)?,
        (None, Some(dir), _) => environment::venv(dir)?,
        (None, None, Some(dir)) => environment::conda(dir)?,
        (None, None, None) => {
            let (report, code) = command::observe(&args.command)?;
            status = Some(code);
            report
        }
    };
    if matches!(status, Some(126 | 127)) && report.status.is_none() {
        return Ok(ExitCode::from(status.unwrap_or(127)));
    }
    let machine = Machine::look();
    machine
        .advice()
        .into_iter()
        .for_each(|advice| report.advise(advice));
    report.machine = Some(machine);
    report.healthy = report.advice.is_empty();
    let text = if args.json {
        serde_json::to_string_pretty(&report)?
    } else {
        report.text()
    };
    match &args.output {
        Some(path) => fs::write(path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?,
        // The command's own output must stay what it is.
        None if status.is_some() => eprintln!("{text}"),
        None => crate::say!("{text}"),
    }
    let own = u8::from(!report.healthy);
    Ok(ExitCode::from(status.unwrap_or(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_patient_is_named_and_json_goes_with_it() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            _args: Args,
        }
        let accepted = |words: &[&str]| {
            let words = ["doctor"].iter().chain(words);
            <Line as clap::Parser>::try_parse_from(words).is_ok()
        };
        assert!(accepted(&["--json", "--pid", "1"]) && accepted(&["--venv", "x"]));
        assert!(accepted(&["--json", "--", "python3", "--version"]) && accepted(&["--conda", "x"]));
        assert!(!accepted(&["--json"]) && !accepted(&["--pid", "1", "--venv", "x"]));
        assert!(!accepted(&["--pid", "1", "--", "x"]) && !accepted(&["python3"]));
    }
}
