//! `cargo xtask dist --tar`: the prefix as one file, to be unpacked anywhere.

use super::stage::{VERSION, copy_tree, modes, package, remade, tool_files};
use crate::tools::{quiet, target_dir, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the tarball into `dist/`.
pub fn pack(prefix: &Path) -> Result<PathBuf> {
    let name = format!("gpu-offload-{VERSION}");
    let work = remade("tar")?;
    let root = work.join(&name);
    copy_tree(prefix, &root)?;
    tool_files(prefix, &root.join("share"), "doc")?;
    fs::copy(
        workspace().join("packaging/tar/README"),
        root.join("README"),
    )?;
    modes(&root)?;

    let tarball = package(&format!("{name}-linux-x86_64.tar.xz"))?;
    let temporary = target_dir().join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.env("XZ_OPT", "-6")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", super::stage::date()?))
        .args(["-cJf"])
        .arg(&temporary)
        .arg("-C")
        .arg(&work)
        .arg(&name);
    quiet(&mut tar).context("cannot build the tarball")?;
    fs::copy(&temporary, &tarball)?;
    Ok(tarball)
}
