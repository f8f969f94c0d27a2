//! `cargo xtask dist --conda`: packages for conda, in a folder that is a channel.
//!
//! `packaging/conda/recipe.yaml` says what they are; rattler-build, which PyPI has, builds them. It lies with py-rattler
//! in an environment of its own in the cache; nothing else is installed.

use super::stage::{VERSION, copy_tree, modes, package, remade, tool_files};
use crate::conformance::{PYTHON, cache};
use crate::tools::{quiet, step, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What pip is asked for: rattler-build, and the solver and installer with which the packages are tried.
const RATTLER: [&str; 2] = ["py-rattler-build==0.73.0", "py-rattler==0.28.0"];

/// Where the libraries lie below an environment; `lib` itself is everybody's.
const FOLDER: &str = "lib/gpu-offload";

/// Builds the channel `dist/conda`.
pub fn pack(prefix: &Path) -> Result<PathBuf> {
    let root = remade("conda")?;
    copy_tree(&prefix.join("lib"), &root.join(FOLDER))?;
    copy_tree(&prefix.join("bin"), &root.join("bin"))?;
    let share = root.join("share");
    tool_files(prefix, &share, "gpu-offload")?;
    copy_tree(
        &prefix.join("share/licences"),
        &share.join("gpu-offload/licences"),
    )?;
    modes(&root)?;
    let channel = package("conda")?;
    // The index would go on naming packages of an earlier build.
    if channel.exists() {
        fs::remove_dir_all(&channel)
            .with_context(|| format!("cannot remove {}", channel.display()))?;
    }
    build(
        &workspace().join("packaging/conda/recipe.yaml"),
        &channel,
        &[
            ("GPU_OFFLOAD_VERSION", VERSION.as_ref()),
            ("GPU_OFFLOAD_FILES", &root),
        ],
    )?;
    Ok(channel)
}

/// Builds a recipe into a channel, with variables that it reads.
pub fn build(recipe: &Path, channel: &Path, variables: &[(&str, &Path)]) -> Result<()> {
    let _progress = step("building packages of conda");
    let mut python = Command::new(rattler()?);
    python
        .arg(workspace().join("packaging/conda/build.py"))
        .args([recipe, channel])
        .envs(variables.iter().copied());
    quiet(&mut python).with_context(|| format!("cannot build {}", recipe.display()))?;
    // Its own leftovers, which are no part of a channel.
    for left in ["bld", "src_cache", ".tmp", "rattler-build-log.txt"] {
        let path = channel.join(left);
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else if path.exists() {
            fs::remove_file(&path)
        } else {
            Ok(())
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// The Python that has rattler-build and py-rattler.
pub fn rattler() -> Result<PathBuf> {
    let folder = cache()?.join("rattler");
    let (python, mark) = (folder.join("bin/python"), folder.join("complete"));
    let wanted = RATTLER.join("\n");
    if fs::read_to_string(&mark).is_ok_and(|has| has == wanted) && python.exists() {
        return Ok(python);
    }
    let _progress = step("rattler-build from PyPI");
    quiet(
        Command::new(PYTHON)
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    )?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
        .args(["install", "--only-binary=:all:"])
        .args(RATTLER);
    quiet(&mut pip).context("pip cannot install rattler-build")?;
    fs::write(&mark, wanted)?;
    Ok(python)
}
