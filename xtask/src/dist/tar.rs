//! `cargo xtask dist --tar`: the prefix as one file, to be unpacked anywhere.

use super::stage::{VERSION, copy_tree, modes, package, package_files, remade};
use crate::tools::{quiet, target_dir, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the tool's completions go below `share`; outside of a distribution zsh has another folder.
const ZSH: &str = "zsh/site-functions";

/// Builds the tarball into `dist/`.
pub fn pack(prefix: &Path) -> Result<PathBuf> {
    let name = format!("gpu-offload-{VERSION}");
    let work = remade("tar")?;
    let root = work.join(&name);
    copy_tree(prefix, &root)?;
    let share = root.join("share");
    let files = package_files(prefix)?;
    copy_tree(&files.join("man1"), &share.join("man/man1"))?;
    for (from, to) in [
        ("bash", "bash-completion/completions"),
        ("zsh", ZSH),
        ("fish", "fish/vendor_completions.d"),
    ] {
        copy_tree(&files.join("completions").join(from), &share.join(to))?;
    }
    copy_tree(&files.join("config.toml"), &share.join("doc/config.toml"))?;
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
