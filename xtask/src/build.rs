//! `cargo xtask build`: the prepared OpenBLAS, then the libraries and the tool, in release mode.

use crate::openblas;
use crate::tools::{cargo, loud, target_dir};
use anyhow::Result;
use std::path::PathBuf;

/// Options of `cargo xtask build`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Without optimisation, for debugging
    #[arg(long)]
    pub debug: bool,
}

/// What a prefix is made of, as cargo packages.
const PACKAGES: [&str; 5] = ["blas-shim", "lapack-shim", "wheel-shim", "engine", "cli"];

/// The profile of the loader's hook, which has no standard library; also its folder in cargo's target folder.
pub const HOOK: &str = "hook";

/// Builds, and prints nothing but cargo's own progress.
pub fn run(args: &Args) -> Result<()> {
    build(args).map(drop)
}

/// Builds, and returns the folder that holds what was built.
pub fn build(args: &Args) -> Result<PathBuf> {
    // Instant where the cache has it; renews it when the recipe or the routed names have changed.
    openblas::prepare(&openblas::Args::default())?;
    let mut command = cargo();
    command.arg("build");
    if !args.debug {
        command.arg("--release");
    }
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    loud(&mut command)?;
    let mut hook = cargo();
    hook.args(["build", "--profile", HOOK, "--package", "loader-hook"]);
    loud(&mut hook)?;
    Ok(target_dir().join(if args.debug { "debug" } else { "release" }))
}
