//! `cargo xtask`: the list of the project's tasks; each lives in its own module.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod codegen;
mod conformance;
mod demo;
mod dist;
mod openblas;
mod setup;
mod sim;
mod test;
mod tests_of_cargo;
mod tools;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the build and the tests need of the system, or print the list
    Setup(setup::Args),
    /// Prepare the static OpenBLAS that goes into the libraries
    Openblas(openblas::Args),
    /// Write what follows from the routine table
    Codegen {
        /// Write nothing; fail when a committed file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Write the committed lists of exported names from the symbol lists and the prepared archive
    Exports(openblas::exports::Args),
    /// Build the libraries and the tool
    Build(build::Args),
    /// Build the simulated CUDA and lay it out in target/sim-cuda
    Sim(sim::Args),
    /// Lay out a prefix that is ready for LD_LIBRARY_PATH
    Dist(dist::Args),
    /// Run everything that must hold
    Test(test::Args),
    /// Run a suite that no one here wrote, or the cases from the field, on a prefix
    Conformance(conformance::Args),
    /// Measure what the drop-in costs
    Bench(bench::Args),
    /// Build everything and run a NumPy program on it
    Demo(demo::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain of causes in one line, never a backtrace.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Setup(args) => setup::run(&args),
        Task::Openblas(args) => openblas::run(&args),
        Task::Codegen { check } => codegen::run(&tools::workspace(), check),
        Task::Exports(args) => openblas::exports::run(&args),
        Task::Build(args) => build::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Demo(args) => demo::run(&args),
    }
}
