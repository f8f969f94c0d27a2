//! `cargo xtask sim`: builds the simulated CUDA and lays it out in `target/sim-cuda`.

use crate::openblas;
use crate::tools::{cargo, loud, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

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
    loud(cargo().args(["build", "--release", "--package", "sim-cuda"]))?;
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
