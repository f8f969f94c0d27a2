//! `cargo xtask sim`: builds the simulated CUDA and lays it out in `target/sim-cuda`.

use crate::openblas;
use crate::tools::{loud, target_dir, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// The names that a loader looks for; all are links to one file, which has one state.
const NAMES: [&str; 4] = [
    "libcuda.so.1",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcusolver.so.12",
];

/// Builds and prints the folder.
pub fn run() -> Result<()> {
    println!("{}", prepare()?.display());
    Ok(())
}

/// Builds and returns the folder.
pub fn prepare() -> Result<PathBuf> {
    openblas::prepare(&openblas::Args::default())?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    loud(
        cargo
            .args(["build", "--release", "--package", "sim-cuda"])
            .current_dir(workspace()),
    )?;
    let dir = target_dir().join("sim-cuda");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for name in NAMES {
        let link = dir.join(name);
        let _ = fs::remove_file(&link);
        symlink("../release/libsim_cuda.so", &link)
            .with_context(|| format!("cannot create {}", link.display()))?;
    }
    Ok(dir)
}
