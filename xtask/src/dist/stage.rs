//! What the packages have in common: a tree that is laid out anew each time, with the tool's own files.

use crate::tools::{quiet, target_dir, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of every package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An empty folder of this name in cargo's target folder.
pub fn remade(name: &str) -> Result<PathBuf> {
    let path = target_dir().join(name);
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// Where a package of this name goes: into the checkout's `dist`, wherever the prefix lies.
pub fn package(name: &str) -> Result<PathBuf> {
    let folder = workspace().join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder.join(name))
}

/// Copies a file or a folder with everything in it; the folders above `to` are made.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let folder = if from.is_dir() { Some(to) } else { to.parent() };
    if let Some(folder) = folder {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    if !from.is_dir() {
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Plain files are 0644, programs and folders 0755, whatever this process's mask says.
pub fn modes(path: &Path) -> Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return Ok(());
    }
    let program = path.parent().is_some_and(|p| p.ends_with("bin"));
    let mode = if kind.is_dir() || program {
        0o755
    } else {
        0o644
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            modes(&entry?.path())?;
        }
    }
    Ok(())
}

/// What the tool writes for packages: `man1`, `completions`, `config.toml`.
pub fn package_files(prefix: &Path) -> Result<PathBuf> {
    let written = remade("package-files")?;
    quiet(
        Command::new(prefix.join("bin/gpu-offload"))
            .arg("package-files")
            .arg(&written),
    )?;
    Ok(written)
}

/// Man pages and completions below `share`, outside of a distribution, and the example of a configuration in `share`'s
/// folder `settings`.
pub fn tool_files(prefix: &Path, share: &Path, settings: &str) -> Result<()> {
    let files = package_files(prefix)?;
    copy_tree(&files.join("man1"), &share.join("man/man1"))?;
    for (from, to) in [
        ("bash", "bash-completion/completions"),
        ("zsh", "zsh/site-functions"),
        ("fish", "fish/vendor_completions.d"),
    ] {
        copy_tree(&files.join("completions").join(from), &share.join(to))?;
    }
    copy_tree(
        &files.join("config.toml"),
        &share.join(settings).join("config.toml"),
    )
}

/// A file of `packaging/deb`.
pub fn recipe(name: &str) -> Result<String> {
    let path = workspace().join("packaging/deb").join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The date of the changelog's newest entry, in seconds since 1970: what packages say that their files are
/// of, so that the same sources give the same bytes.
pub fn date() -> Result<String> {
    let log = recipe("changelog")?;
    let line = log.lines().find(|line| line.starts_with(" -- "));
    let date = line.and_then(|line| line.split_once(">  "));
    let (_, date) = date.context("packaging/deb/changelog has no date")?;
    let text = quiet(Command::new("date").args(["+%s", "--date", date]))?;
    Ok(text.trim().to_owned())
}
