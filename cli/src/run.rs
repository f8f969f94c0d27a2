//! `gpu-offload run CMD…`: puts the libraries before all others and becomes the command.
//!
//! The OpenBLAS inside Python wheels is served too (`wheels`), without touching it.
//! The command replaces this process, so signals, exit status and job control are its own.

mod wheels;

pub use wheels::audit;

use crate::prefix;
use anyhow::Result;
use clap::ValueEnum;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// Arguments of `run`.
#[derive(clap::Args)]
pub struct Args {
    /// How readily calls go to the GPU: 1 (only clear wins) to 10 (also slight losses)
    #[arg(long, value_name = "1..10", value_parser = clap::value_parser!(u8).range(1..=10))]
    level: Option<u8>,
    /// Where calls go: auto, off (CPU), force (GPU), deterministic, verify (both; see the command of that name)
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Short for --mode force
    #[arg(long, conflicts_with = "mode")]
    force: bool,
    /// What to print: a table at the end, a line for each call, or more
    #[arg(long, value_enum)]
    log: Option<Log>,
    /// File to append the log to instead of standard error; JSON lines if it ends in .jsonl
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Operations at or below which calls stay on the CPU unseen, such as 2e9
    #[arg(long, value_name = "FLOPS", value_parser = flops)]
    threshold: Option<f64>,
    /// Leave the OpenBLAS inside Python wheels alone
    #[arg(long)]
    no_wheels: bool,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Auto,
    Off,
    Force,
    Deterministic,
    Verify,
}

#[derive(Clone, Copy, ValueEnum)]
enum Log {
    Off,
    Summary,
    Decisions,
    Debug,
}

pub fn flops(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(flops) if (0.0..f64::INFINITY).contains(&flops) => Ok(flops),
        _ => Err(
            "accepted: a number of floating-point operations, 0 or more, such as 2e9".to_owned(),
        ),
    }
}

/// The name of a value on the command line is that of its variable.
fn name(value: impl ValueEnum) -> OsString {
    value
        .to_possible_value()
        .map(|v| OsString::from(v.get_name()))
        .unwrap_or_default()
}

/// `dir` before what a path variable holds already.
fn before(dir: &Path, old: Option<OsString>) -> OsString {
    let mut value = dir.as_os_str().to_owned();
    if let Some(old) = old.filter(|o| !o.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// R's start script puts its own library folder before LD_LIBRARY_PATH unless it finds the variable
/// R_LD_LIBRARY_PATH, which must then name R's folder too.
fn r_path(library_dir: &Path) -> Option<OsString> {
    if let Some(old) = std::env::var_os("R_LD_LIBRARY_PATH") {
        return Some(before(library_dir, Some(old)));
    }
    Some(before(library_dir, Some(r_libraries()?.into_os_string())))
}

/// The library folder of the R that would be started, if there is one.
pub fn r_libraries() -> Option<PathBuf> {
    let home = std::env::var_os("R_HOME").map(PathBuf::from);
    Some(home.or_else(r_home)?.join("lib"))
}

/// What the first `R` of the PATH calls its home; nothing runs where there is none.
fn r_home() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let r = std::env::split_paths(&path)
        .map(|dir| dir.join("R"))
        .find(|r| r.is_file())?;
    let output = Command::new(r)
        .arg("RHOME")
        .output()
        .ok()
        .filter(|o| o.status.success())?;
    let home = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(home.trim())).filter(|h| h.is_absolute())
}

/// The command on the libraries, and with `wheels` on the OpenBLAS inside Python wheels too.
pub fn prepared(words: &[OsString], wheels: bool) -> Result<Command> {
    let library_dir = prefix::on_library_path()?;
    let (program, rest) = words.split_first().expect("clap requires one");
    let mut command = Command::new(program);
    command.args(rest);
    command.env(
        "LD_LIBRARY_PATH",
        before(&library_dir, std::env::var_os("LD_LIBRARY_PATH")),
    );
    if let Some(path) = r_path(&library_dir) {
        command.env("R_LD_LIBRARY_PATH", path);
    }
    if wheels {
        match wheels::variables(program) {
            Ok(variables) => drop(command.envs(variables)),
            Err(why) => eprintln!("gpu-offload: the wheels' own OpenBLAS serves them: {why:#}"),
        }
    }
    Ok(command)
}

/// Says why a command cannot be started; the status that shells give.
pub fn not_started(command: &Command, error: &std::io::Error) -> u8 {
    eprintln!(
        "gpu-offload: {}: {error}; accepted: a program in the PATH or the path of one",
        Path::new(command.get_program()).display()
    );
    match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// The status of a command that has ended, as a shell counts.
pub fn shell_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Becomes the command; returns only if that fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut command = prepared(&args.command, !args.no_wheels)?;
    let mode = if args.force {
        Some(Mode::Force)
    } else {
        args.mode
    };
    let set = [
        ("GPU_OFFLOAD", mode.map(name)),
        (
            "GPU_OFFLOAD_LEVEL",
            args.level.map(|l| OsString::from(l.to_string())),
        ),
        ("GPU_OFFLOAD_LOG", args.log.map(name)),
        (
            "GPU_OFFLOAD_LOG_FILE",
            args.log_file.clone().map(OsString::from),
        ),
        (
            "GPU_OFFLOAD_THRESHOLD",
            args.threshold.map(|t| OsString::from(t.to_string())),
        ),
    ];
    for (variable, value) in set {
        if let Some(value) = value {
            command.env(variable, value);
        }
    }
    let error = command.exec();
    Ok(ExitCode::from(not_started(&command, &error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_in_front_and_empty_ones_forgotten() {
        let dir = Path::new("/p/lib");
        assert_eq!(before(dir, None), "/p/lib");
        // An empty element would mean the current directory.
        assert_eq!(before(dir, Some(OsString::new())), "/p/lib");
        assert_eq!(before(dir, Some(OsString::from("/a:/b"))), "/p/lib:/a:/b");
    }

    #[test]
    fn thresholds_are_numbers() {
        assert_eq!(flops("2e9"), Ok(2e9));
        assert_eq!(flops("0"), Ok(0.0));
        for bad in ["-1", "nan", "inf", "many", ""] {
            assert!(flops(bad).is_err(), "{bad}");
        }
    }
}
