//! The OpenBLAS inside Python wheels, served for one command: nothing in the environment changes.
//!
//! Before the command starts, a library of ours is fitted to each OpenBLAS that its Python would find, and kept in
//! the user's cache. A map of them goes to the hook that the loader asks where to look (`loader-hook`). What the
//! map says holds for exactly the files that were looked at: a wheel that is replaced meanwhile is served by its
//! own OpenBLAS.

use crate::install::{Ours, Venv};
use crate::prefix;
use anyhow::{Context, Result};
use loader_hook::{MAP_VARIABLE, map::Identity};
use sha2::{Digest as _, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables that name an environment whose Python a command may start later.
const ENVIRONMENTS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// In a file's folder of the cache: its words in a map, written last.
const WORDS: &str = "words";

/// The variables with which the loader serves the wheels that `program` may load; none where there is no wheel.
///
/// # Errors
/// Where a library cannot be fitted or kept.
pub fn variables(program: &OsStr) -> Result<Vec<(&'static str, OsString)>> {
    let environment = Venv::of_sites(sites(program));
    if environment.candidates().next().is_none() {
        return Ok(Vec::new());
    }
    let (ours, hook) = (prefix::for_wheels()?, prefix::hook()?);
    let cache = Cache::new()?;
    let mut map = Vec::new();
    for (_, path) in environment.candidates() {
        // An environment that is swapped already has the original under this name.
        let original = path.with_file_name(other_name(&path));
        if !original.exists() {
            map.extend(cache.words(&path, &ours)?.unwrap_or_default());
        }
    }
    if map.is_empty() {
        return Ok(Vec::new());
    }
    let map = cache.keep(&format!("{}.map", digest(&[&map])), &map)?;
    Ok(vec![
        (MAP_VARIABLE, map.into()),
        ("LD_AUDIT", audit(&hook, std::env::var_os("LD_AUDIT"))),
    ])
}

/// `hook` behind the libraries that audit already.
pub fn audit(hook: &Path, old: Option<OsString>) -> OsString {
    let mut value = old.unwrap_or_default();
    if value
        .as_bytes()
        .split(|b| *b == b':')
        .any(|one| one == hook.as_os_str().as_bytes())
    {
        return value;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(hook);
    value
}

fn other_name(path: &Path) -> OsString {
    let mut name = OsString::from(wheel_fit::ORIGINAL_PREFIX);
    name.push(path.file_name().unwrap_or_default());
    name
}

/// The folders in which the command's Python looks for packages.
fn sites(program: &OsStr) -> Vec<PathBuf> {
    let mut sites = Vec::new();
    if let Some(python) = python(program) {
        sites.extend(path_of(&python));
    }
    let named = ENVIRONMENTS.iter().filter_map(std::env::var_os);
    for environment in named.filter_map(|dir| Venv::new(Path::new(&dir)).ok()) {
        sites.extend(environment.sites().iter().cloned());
    }
    let mut sites: Vec<PathBuf> = sites
        .iter()
        .filter_map(|site| site.canonicalize().ok())
        .collect();
    sites.sort();
    sites.dedup();
    sites
}

/// The Python that a command starts: itself, or the one that its first line names.
fn python(program: &OsStr) -> Option<OsString> {
    let is_python = |name: &OsStr| {
        let name = Path::new(name).file_name().unwrap_or_default();
        name.as_bytes().starts_with(b"python") || name.as_bytes().starts_with(b"pypy")
    };
    if is_python(program) {
        return Some(program.to_owned());
    }
    let path = if program.as_bytes().contains(&b'/') {
        PathBuf::from(program)
    } else {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|dir| dir.join(program))
            .find(|file| file.is_file())?
    };
    let mut head = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(256)
        .read_to_end(&mut head)
        .ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let mut words = line.split(|b| *b == b' ').filter(|word| !word.is_empty());
    words
        .find(|word| is_python(OsStr::from_bytes(word)))
        .map(|word| OsString::from_vec(word.to_vec()))
}

/// What a Python calls its path; nothing where it cannot be asked.
fn path_of(python: &OsStr) -> Vec<PathBuf> {
    let asked = Command::new(python)
        .args([
            "-c",
            "import sys, os; sys.stdout.buffer.write(os.fsencode('\\0'.join(sys.path[1:])))",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Some(answer) = asked.ok().filter(|answer| answer.status.success()) else {
        return Vec::new();
    };
    let folders = answer
        .stdout
        .split(|b| *b == 0)
        .map(|path| PathBuf::from(OsStr::from_bytes(path)));
    folders.filter(|folder| folder.is_absolute()).collect()
}

fn digest(parts: &[&[u8]]) -> String {
    let mut sum = Sha256::new();
    for part in parts {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    format!("{:.32x}", sum.finalize())
}

fn identity(path: &Path) -> Result<Identity> {
    let meta = path
        .metadata()
        .with_context(|| format!("cannot examine {}", path.display()))?;
    Ok(Identity {
        device: meta.dev(),
        inode: meta.ino(),
        bytes: meta.size(),
        seconds: meta.mtime().cast_unsigned(),
        nanoseconds: meta.mtime_nsec().cast_unsigned(),
    })
}

fn numbers(id: &Identity) -> String {
    let Identity {
        device,
        inode,
        bytes,
        seconds,
        nanoseconds,
    } = id;
    format!("{device} {inode} {bytes} {seconds} {nanoseconds}")
}

/// Fitted libraries, in the user's cache.
struct Cache {
    folder: PathBuf,
}

impl Cache {
    fn new() -> Result<Self> {
        let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let base = named.filter(|path| path.is_absolute()).or_else(home);
        let folder = base
            .context("neither XDG_CACHE_HOME nor HOME says where libraries for wheels can be kept")?
            .join("gpu-offload/wheels");
        Ok(Self { folder })
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        // Nobody else may write what programs will load.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Writes a file under this name, whole or not at all; one that is there already is the same.
    fn keep(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if path.is_file() {
            return Ok(path);
        }
        self.folder("")?;
        let new = path.with_extension(format!("new{}", std::process::id()));
        fs::write(&new, bytes)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A file's words in a map; `None` if it is no OpenBLAS that another library can stand before.
    fn words(&self, path: &Path, ours: &Ours) -> Result<Option<Vec<u8>>> {
        let (own, ready) = (identity(path)?, identity(&ours.ready)?);
        let key = digest(&[
            path.as_os_str().as_bytes(),
            numbers(&own).as_bytes(),
            ours.ready.as_os_str().as_bytes(),
            numbers(&ready).as_bytes(),
            ours.engine.as_os_str().as_bytes(),
        ]);
        let known = self.folder.join(&key).join(WORDS);
        if let Ok(words) = fs::read(&known) {
            return Ok((!words.is_empty()).then_some(words));
        }
        self.forget_replaced();
        self.folder(&key)?;
        let name = path.file_name().unwrap_or_default();
        let (other, name) = (other_name(path), name.to_string_lossy());
        let fitted = match ours.fit_to(path, &other.to_string_lossy()) {
            Ok(fitted) => fitted,
            Err(why) => {
                eprintln!("gpu-offload: {}: left alone: {why:#}", path.display());
                None
            }
        };
        let mut words = Vec::new();
        if let Some(bytes) = fitted {
            let instead = self.keep(&format!("{key}/{name}"), &bytes)?;
            for word in [
                name.as_bytes(),
                numbers(&own).as_bytes(),
                path.as_os_str().as_bytes(),
                instead.as_os_str().as_bytes(),
                other.as_bytes(),
            ] {
                words.extend(word);
                words.push(0);
            }
        }
        self.keep(&format!("{key}/{WORDS}"), &words)?;
        Ok((!words.is_empty()).then_some(words))
    }

    /// Removes what was fitted to files that are gone or others now.
    fn forget_replaced(&self) {
        for folder in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let words = fs::read(folder.path().join(WORDS)).unwrap_or_default();
            let mut words = words.split(|b| *b == 0).skip(1);
            let (Some(own), Some(path)) = (words.next(), words.next()) else {
                continue;
            };
            let now = identity(Path::new(OsStr::from_bytes(path)));
            if !now.is_ok_and(|now| numbers(&now).as_bytes() == own) {
                // At worst it is removed the next time.
                let _ = fs::remove_dir_all(folder.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_python_is_itself_or_named_in_its_first_line() {
        let dir = std::env::temp_dir().join(format!("gpu-offload-shebang-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let script = dir.join("tool");
        let named = |line: &str| {
            fs::write(&script, format!("{line}\nimport sys\n")).unwrap();
            python(script.as_os_str())
        };
        assert_eq!(
            named("#!/v/bin/python3.12"),
            Some("/v/bin/python3.12".into())
        );
        assert_eq!(named("#!/usr/bin/env python3"), Some("python3".into()));
        assert_eq!(named("#!/bin/sh"), None);
        assert_eq!(named("python"), None);
        assert_eq!(python(OsStr::new("/a/python3")), Some("/a/python3".into()));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn other_auditors_stay_and_ours_is_named_once() {
        let hook = Path::new("/p/hook.so");
        assert_eq!(audit(hook, None), "/p/hook.so");
        let both = audit(hook, Some("/a.so".into()));
        assert_eq!(both, "/a.so:/p/hook.so");
        assert_eq!(audit(hook, Some(both.clone())), both);
    }
}
