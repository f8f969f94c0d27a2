//! Which environments `install` has changed, so that `status` can say how they are: a list in the user's folder for
//! state. The environments themselves hold what `uninstall` needs; the list only names them.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What an environment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of Python, with wheels.
    Venv,
    /// Of conda.
    Conda,
}

/// An environment that was changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// What it is.
    pub kind: Kind,
    /// Its folder.
    pub path: PathBuf,
}

/// The list's file; `None` without a home.
fn file() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let base =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("gpu-offload/environments.json"))
}

/// The environments that were changed.
///
/// # Errors
/// Where the list cannot be read.
pub fn all() -> Result<Vec<Known>> {
    let Some(file) = file() else {
        return Ok(Vec::new());
    };
    match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not what `install` wrote", file.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Adds an environment, and forgets those whose folders are gone.
pub fn remember(kind: Kind, path: &Path) {
    change(|list| {
        list.retain(|known| known.path.is_dir());
        list.extend(path.canonicalize().map(|path| Known { kind, path }));
    });
}

/// Removes one.
pub fn forget(kind: Kind, path: &Path) {
    let real = path.canonicalize();
    change(|list| {
        list.retain(|known| {
            let same = known.path == path || real.as_ref().is_ok_and(|real| *real == known.path);
            known.kind != kind || !same
        });
    });
}

/// Changes the list. Where that fails, the work itself is done all the same.
fn change(how: impl FnOnce(&mut Vec<Known>)) {
    let write = || -> Result<()> {
        let Some(file) = file() else {
            return Ok(());
        };
        let before = all()?;
        let mut list = before.clone();
        how(&mut list);
        list.sort();
        list.dedup();
        if list == before {
            return Ok(());
        }
        let folder = file.parent().context("the list has a folder")?;
        let new = file.with_extension(format!("new{}", std::process::id()));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&new, serde_json::to_string_pretty(&list)? + "\n"))
            .and_then(|()| fs::rename(&new, &file))
            .with_context(|| format!("cannot write {}", file.display()))
    };
    if let Err(why) = write() {
        eprintln!("gpu-offload: `status` will not list this environment rightly: {why:#}");
    }
}
