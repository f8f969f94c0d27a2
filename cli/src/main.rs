//! `gpu-offload`: the drop-in libraries from the command line. It runs programs on them (`run`, `env`), puts
//! environments on them and back (`install`, `uninstall`), tells which BLAS is really in use (`doctor`), what is
//! installed and where calls would go (`status`, `explain`), measures the machine (`calibrate`), shows where a program's
//! calls went (`report`) and whether the GPU's results are right (`verify`).
//!
//! The command line only; what it reports comes from the engine, what it decides from the cost model.
//!
//! # Exit status
//! 0: done; for `status`: heavy calls can go to the GPU. 1: trouble, said in one line; for `status`:
//! they cannot. 2: wrong command line. `run`, `verify` and `doctor` pass on their command's; 126: the command cannot
//! be executed, 127: it is not there. 141: nobody reads on. `verify`: 1 also if the command succeeds and a result of
//! the GPU is wrong, or none was compared.
#![forbid(unsafe_code)]

/// Writes a line on standard output, like `println!`; a full disk or a reader that has gone is an error
/// of the surrounding function, not a panic.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::written(std::io::Write::write_fmt(
            &mut std::io::stdout().lock(),
            format_args!("{}\n", format_args!($($text)*)),
        ))?
    };
}
pub(crate) use say;

/// What became of an attempt to write to standard output.
pub(crate) fn written(outcome: std::io::Result<()>) -> anyhow::Result<()> {
    anyhow::Context::context(outcome, "cannot write to standard output")
}

mod calibrate;
mod child;
mod completions;
mod doctor;
mod env;
mod explain;
mod install;
mod log_file;
mod man;
mod prefix;
mod private_file;
mod report;
mod run;
mod status;
mod units;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Drop-in BLAS and LAPACK whose heavy calls run on the GPU where that is quicker.
#[derive(Parser)]
#[command(name = "gpu-offload", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program on the drop-in libraries
    Run(run::Args),
    /// Say what is installed, which GPU there is, and where calls would go
    Status(status::Args),
    /// Say where a call would go and why, and where that changes
    Explain(explain::Args),
    /// Measure this machine, so that calls go where they finish sooner
    Calibrate(calibrate::Args),
    /// Make a page with charts and a table of a program's log: where its calls went and what that saved
    Report(report::Args),
    /// Run a program with each heavy call on both sides, and say whether the GPU's results are right
    Verify(verify::Args),
    /// Put an environment's programs on the libraries
    Install(install::Args),
    /// Put an environment back as it was
    Uninstall(install::Args),
    /// Say which BLAS a command or process really loads, whether an environment is whole, and what to do next
    Doctor(doctor::Args),
    /// Print the lines with which a shell uses the libraries
    Env(env::Args),
    /// Print the completions for a shell
    Completions(completions::Args),
    /// Write man pages, completions and an example of the configuration, for packages
    #[command(hide = true)]
    PackageFiles(man::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Install(args) => install::install(&args),
        Command::Uninstall(args) => install::uninstall(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::PackageFiles(args) => man::run(&args),
    };
    outcome.unwrap_or_else(|e| {
        let closed = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
        if e.downcast_ref().is_some_and(closed) {
            // `gpu-offload status | head`: nobody reads on, which is no trouble. The status that shells give.
            return ExitCode::from(141);
        }
        eprintln!("gpu-offload: {e:#}");
        ExitCode::from(1)
    })
}
