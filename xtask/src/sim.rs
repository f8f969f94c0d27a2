//! `cargo xtask sim`: builds the simulated CUDA and lays it out in `target/sim-cuda`.

use crate::openblas;
use crate::tools::{loud, target_dir, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Package, file that cargo makes, name that a loader looks for.
const LIBRARIES: [(&str, &str, &str); 4] = [
    ("sim-cuda", "libsim_cuda.so", "libcuda.so.1"),
    ("sim-cublas", "libsim_cublas.so", "libcublas.so.13"),
    ("sim-cublaslt", "libsim_cublaslt.so", "libcublasLt.so.13"),
    ("sim-cusolver", "libsim_cusolver.so", "libcusolver.so.12"),
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
    cargo.args(["build", "--release"]).current_dir(workspace());
    for (package, _, _) in LIBRARIES {
        cargo.args(["--package", package]);
    }
    loud(&mut cargo)?;
    let dir = target_dir().join("sim-cuda");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (_, built, name) in LIBRARIES {
        let from = target_dir().join("release").join(built);
        let new = dir.join(format!("{name}.new"));
        fs::copy(&from, &new).with_context(|| format!("cannot copy {}", from.display()))?;
        // A program that has the old file mapped keeps it.
        fs::rename(&new, dir.join(name))?;
    }
    Ok(dir)
}
