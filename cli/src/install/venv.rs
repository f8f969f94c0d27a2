//! `install --venv DIR`, `uninstall --venv DIR`: the OpenBLAS that a Python wheel brings along.
//!
//! Extension modules find it by its file name in a folder such as `numpy.libs`. Installing keeps it there under
//! a second name, `orig-NAME`, and puts a library of ours in its place, fitted to it, that sends heavy calls to
//! the engine and needs the original for everything else. RECORD, pip's list, names both files.
//!
//! A command is a list of steps (`step`), each of which is done or not done. Between any two the modules find an
//! OpenBLAS, and the same command given again finishes. What is where is read anew each time from the files
//! themselves; `gpu-offload-wheels.json` only remembers that the environment was to be swapped, so that a
//! package that pip has replaced since then can be told from one that never was.

use super::record::{self, Paths};
use super::step::{self, ROOM, Step};
use super::wheel_library::{self, OpenBlas};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Beside `pyvenv.cfg`: which files were swapped.
const MARK: &str = "gpu-offload-wheels.json";

/// What the mark holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// Of this file's form.
    version: u32,
    /// The swapped files, from the environment's folder.
    swapped: BTreeSet<PathBuf>,
}

const VERSION: u32 = 1;

/// What of an installation of gpu-offload goes into an environment.
pub struct Ours {
    /// The ready-made library.
    pub ready: PathBuf,
    /// The engine.
    pub engine: PathBuf,
}

impl Ours {
    /// The engine's path as text.
    fn engine_path(&self) -> Result<&str> {
        let engine = self.engine.to_str().filter(|_| self.engine.is_file());
        engine.with_context(|| {
            format!(
                "{}: no such file; this installation is not complete",
                self.engine.display()
            )
        })
    }

    /// The library that stands before the OpenBLAS at `path`, which will be found as `other_name`; `None` if that
    /// is no OpenBLAS, or one of ours already.
    ///
    /// # Errors
    /// Where it is one, but none that another library can stand before.
    pub fn fit_to(&self, path: &Path, other_name: &str) -> Result<Option<Vec<u8>>> {
        let bytes = read(path)?;
        let Some(wheel) = OpenBlas::recognise(&bytes)? else {
            return Ok(None);
        };
        let ready = read(&self.ready)?;
        let fitted = fitted(&ready, self.engine_path()?, &wheel, &bytes, other_name)?;
        Ok(Some(fitted.bytes))
    }
}

/// Fits the ready-made library to the OpenBLAS in `bytes`, which is kept as `kept`.
fn fitted(
    ready: &[u8],
    engine: &str,
    wheel: &OpenBlas,
    bytes: &[u8],
    kept: &str,
) -> Result<wheel_library::Fitted> {
    let fit = wheel_fit::Fit {
        original: kept,
        original_sha256: &sha256(bytes),
        engine,
        prefix: wheel.prefix,
        suffix: wheel.suffix,
        version: env!("CARGO_PKG_VERSION"),
    };
    wheel_library::fit(ready, wheel, &fit)
}

/// A Python environment.
pub struct Environment {
    prefix: PathBuf,
    /// Folders of packages, each once.
    sites: Vec<PathBuf>,
}

/// What a file of a wheel is.
#[derive(Debug, PartialEq)]
pub enum State {
    /// The wheel's own OpenBLAS; beside it a kept original may lie, of an interrupted command or of a package
    /// that was installed again.
    Own {
        /// In words, such as `OpenBLAS 0.3.31, 64-bit integers`.
        what: String,
        /// A kept original lies beside it.
        leftover: bool,
    },
    /// Ours, with its original beside it.
    Swapped {
        /// The engine that it was fitted to.
        engine: PathBuf,
        /// Version of the tool that fitted it.
        version: String,
    },
    /// Ours, but its original is gone or another file; in words.
    Broken(String),
    /// A kept original without the file that stood before it.
    Orphan,
    /// An OpenBLAS before which nothing can be put; why.
    Refused(String),
}

/// A file of a wheel that matters.
#[derive(Debug)]
pub struct Found {
    site: PathBuf,
    /// From the site, with slashes: as RECORD names it. Of an orphan, the name that is missing.
    pub file: String,
    /// What it is.
    pub state: State,
}

impl Found {
    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.site.join(&self.file)
    }

    fn kept(&self) -> String {
        kept_name(&self.file)
    }
}

/// The kept original's path for a file's.
fn kept_name(file: &str) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    format!("{folder}/{}{name}", wheel_fit::ORIGINAL_PREFIX)
}

/// The entries of a folder, sorted; none where it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    all.sort();
    all
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or("")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

impl Environment {
    /// Looks whether `dir` is one.
    ///
    /// # Errors
    /// Where it has no folder of packages.
    pub fn new(dir: &Path) -> Result<Self> {
        let prefix = dir
            .canonicalize()
            .with_context(|| format!("{}: no such folder", dir.display()))?;
        let python = |path: &PathBuf| {
            ["python3", "pypy3"]
                .iter()
                .any(|p| name(path).starts_with(p))
        };
        let mut sites: Vec<PathBuf> = ["lib", "lib64"]
            .iter()
            .flat_map(|lib| entries(&prefix.join(lib)))
            .filter(python)
            .flat_map(|python| ["site-packages", "dist-packages"].map(|site| python.join(site)))
            .filter_map(|site| site.canonicalize().ok().filter(|site| site.is_dir()))
            .collect();
        sites.sort();
        sites.dedup();
        if sites.is_empty()
            && entries(&prefix)
                .iter()
                .any(|p| name(p).ends_with(".dist-info"))
        {
            sites.push(prefix.clone());
        }
        ensure!(
            !sites.is_empty(),
            "{}: not a Python environment; accepted: a folder with lib/python3.N/site-packages in it, such as \
             the value of VIRTUAL_ENV",
            prefix.display()
        );
        Ok(Self { prefix, sites })
    }

    /// The packages in these folders, whatever is in them, of an environment that is only looked at.
    pub fn of_sites(sites: Vec<PathBuf>) -> Self {
        let prefix = PathBuf::new();
        Self { prefix, sites }
    }

    /// Its folders of packages.
    pub fn sites(&self) -> &[PathBuf] {
        &self.sites
    }

    /// Files that may be an OpenBLAS, each with its site.
    pub fn candidates(&self) -> impl Iterator<Item = (&Path, PathBuf)> {
        self.sites.iter().flat_map(|site| {
            // PACKAGE.libs, as wheels are laid out, and PACKAGE/.libs, as older ones were.
            let folders = entries(site).into_iter().flat_map(|folder| {
                let inner = folder.join(".libs");
                let is_libs = name(&folder).ends_with(".libs");
                [is_libs.then_some(folder), inner.is_dir().then_some(inner)]
            });
            folders
                .flatten()
                .flat_map(|folder| entries(&folder))
                .filter(|path| name(path).contains(".so") && path.is_file())
                .map(|path| (site.as_path(), path))
        })
    }

    fn mark(&self) -> PathBuf {
        self.prefix.join(MARK)
    }

    fn marked(&self) -> Result<BTreeSet<PathBuf>> {
        let path = self.mark();
        if !path.exists() {
            return Ok(BTreeSet::new());
        }
        let mark: Mark = serde_json::from_slice(&read(&path)?)
            .with_context(|| format!("{} is not what `install` wrote", path.display()))?;
        ensure!(
            mark.version == VERSION,
            "{} was written by another version of this program; uninstall with that one",
            path.display()
        );
        Ok(mark.swapped)
    }

    /// Files that were swapped once and are the wheel's own now, or gone: pip has replaced or removed the package.
    ///
    /// # Errors
    /// Where the mark cannot be read.
    pub fn replaced_since(&self, found: &[Found]) -> Result<Vec<PathBuf>> {
        let ours: Vec<PathBuf> = found
            .iter()
            .filter(|f| matches!(f.state, State::Swapped { .. } | State::Broken(_)))
            .map(|f| f.path())
            .collect();
        let mut gone: Vec<PathBuf> = self.marked()?.into_iter().collect();
        gone.retain(|path| !ours.contains(&self.prefix.join(path)));
        Ok(gone)
    }

    /// Every OpenBLAS in the environment's wheels, known by its symbols, and every library of ours there.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn survey(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for (site, path) in self.candidates() {
            let Some(file) = path.strip_prefix(site).ok().and_then(Path::to_str) else {
                continue;
            };
            let (file, state) = match name(&path).strip_prefix(wheel_fit::ORIGINAL_PREFIX) {
                // Seen with the file that it belongs to.
                Some(place) if path.with_file_name(place).exists() => continue,
                Some(place) => {
                    let bytes = read(&path)?;
                    let own = OpenBlas::recognise(&bytes).ok().flatten();
                    let state = own.filter(|own| own.soname == place).map(|_| State::Orphan);
                    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
                    (format!("{folder}/{place}"), state)
                }
                None => (file.to_owned(), state(&path)?),
            };
            if let Some(state) = state {
                let site = site.to_owned();
                found.push(Found { site, file, state });
            }
        }
        Ok(found)
    }

    /// The steps that put ours before every OpenBLAS here; empty where nothing is to be done.
    ///
    /// # Errors
    /// Where something is not recognised; nothing is to be done then.
    pub fn install(&self, ours: &Ours) -> Result<Vec<Step>> {
        let ready = read(&ours.ready)?;
        let engine = ours.engine_path()?;
        let found = self.survey()?;
        let mut records = Records::default();
        let mut swapped = BTreeSet::new();
        let mut steps = Vec::new();
        for found in &found {
            let (path, kept) = (found.path(), found.site.join(found.kept()));
            let paths = &Paths {
                file: &found.file,
                kept: &found.kept(),
            };
            let original = match &found.state {
                State::Refused(why) => bail!("{}: {why}; nothing was changed", path.display()),
                State::Broken(why) => bail!(
                    "{}: {why}; install its Python package again (pip install --force-reinstall)",
                    path.display()
                ),
                State::Orphan => {
                    orphan(found, &mut records, &mut steps)?;
                    continue;
                }
                State::Own { .. } => &path,
                State::Swapped { .. } => &kept,
            };
            let bytes = read(original)?;
            let record = records.of(&found.site, &found.file)?.with_context(|| {
                format!(
                    "{}: no RECORD in {} lists it, so that no pip could remove what is put there; nothing was changed",
                    path.display(),
                    found.site.display()
                )
            })?;
            let wheel = OpenBlas::recognise(&bytes)?.context("no OpenBLAS any more")?;
            let fitted = fitted(&ready, engine, &wheel, &bytes, name(&kept))
                .with_context(|| format!("cannot fit a library to {}", path.display()))?;
            if let State::Own { leftover, .. } = found.state {
                let same = leftover && read(&kept)? == bytes;
                if leftover && !same {
                    steps.push(Step::Remove(kept.clone()));
                }
                if !same {
                    let (file, name) = (path.clone(), kept.clone());
                    steps.push(Step::Keep { file, name });
                }
            }
            swapped.insert(path.strip_prefix(&self.prefix).unwrap_or(&path).to_owned());
            let text = record::swapped(records.text(&record)?, paths, &fitted.bytes);
            records.change(&record, text, &mut steps)?;
            if read(&path)? != fitted.bytes {
                let what = format!("{}, {} routines routed", described(&wheel), fitted.routines);
                steps.push(Step::Write {
                    path,
                    bytes: fitted.bytes,
                    what,
                });
            }
        }
        ensure!(
            !swapped.is_empty(),
            "{}: no wheel here brings an OpenBLAS along; install numpy or scipy into it with pip first",
            self.prefix.display()
        );
        if self.marked()? != swapped {
            let version = VERSION;
            let mut bytes = serde_json::to_vec_pretty(&Mark { version, swapped })?;
            bytes.push(b'\n');
            let what = "which files are swapped".to_owned();
            let path = self.mark();
            // Before the first change, so that none is forgotten.
            steps.insert(0, Step::Write { path, bytes, what });
        }
        Ok(steps)
    }

    /// The steps that give every wheel its own OpenBLAS back, and what cannot be given back, in words.
    ///
    /// # Errors
    /// Where nothing of ours is here, or a file cannot be read.
    pub fn uninstall(&self) -> Result<(Vec<Step>, Vec<String>)> {
        let mut records = Records::default();
        let (mut steps, mut troubles) = (Vec::new(), Vec::new());
        for found in self.survey()? {
            let kept = found.site.join(found.kept());
            let file = found.path();
            match &found.state {
                State::Refused(_)
                | State::Own {
                    leftover: false, ..
                } => continue,
                State::Broken(why) => {
                    troubles.push(format!(
                        "{}: {why}; install its Python package again (pip install --force-reinstall)",
                        file.display()
                    ));
                    continue;
                }
                State::Orphan => {
                    orphan(&found, &mut records, &mut steps)?;
                    continue;
                }
                State::Own { .. } => {}
                State::Swapped { .. } => {
                    let kept = kept.clone();
                    steps.push(Step::Restore { kept, file });
                }
            }
            records.forget(&found, &mut steps)?;
            steps.push(Step::Remove(kept));
        }
        let mark = self.mark();
        ensure!(
            !steps.is_empty() || !troubles.is_empty() || mark.exists(),
            "{}: nothing to uninstall here",
            self.prefix.display()
        );
        if troubles.is_empty() && mark.exists() {
            steps.push(Step::Remove(mark));
        }
        Ok((steps, troubles))
    }

    /// Keeps other commands of this program out of the environment while it lives.
    ///
    /// # Errors
    /// Where one is at work.
    pub fn locked(&self) -> Result<Locked> {
        let folder = File::open(&self.prefix)?;
        folder.try_lock().map_err(|e| {
            anyhow::anyhow!(
                "{}: another command of gpu-offload is at work here ({e})",
                self.prefix.display()
            )
        })?;
        let rooms: Vec<PathBuf> = self
            .sites
            .iter()
            .chain([&self.prefix])
            .map(|folder| folder.join(ROOM))
            .collect();
        for room in &rooms {
            step::clear(room)?;
        }
        Ok(Locked { rooms, folder })
    }
}

/// An environment that nobody else changes.
pub struct Locked {
    /// One in each folder that is changed, the deepest folder first.
    rooms: Vec<PathBuf>,
    folder: File,
}

impl Locked {
    /// Does a step.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn run(&self, step: &Step) -> Result<()> {
        let place = match step {
            Step::Write { path, .. } | Step::Remove(path) => path,
            Step::Keep { file, .. } | Step::Restore { file, .. } => file,
        };
        let within = |room: &&PathBuf| room.parent().is_some_and(|site| place.starts_with(site));
        step.run(self.rooms.iter().find(within).context("a step elsewhere")?)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        for room in &self.rooms {
            // What stays is removed by the next command.
            let _ = step::clear(room);
        }
        let _ = self.folder.unlock();
    }
}

/// What a file is; `None` if it does not concern us.
fn state(path: &Path) -> Result<Option<State>> {
    let bytes = read(path)?;
    if let Some(fit) = wheel_library::fit_of(&bytes) {
        let kept = path.with_file_name(fit.original);
        return Ok(Some(match fs::read(&kept) {
            Ok(original) if sha256(&original) == fit.original_sha256 => State::Swapped {
                engine: fit.engine.into(),
                version: fit.version.to_owned(),
            },
            Ok(_) => State::Broken(format!(
                "its original, {}, is another file now",
                fit.original
            )),
            Err(e) => State::Broken(format!(
                "its original, {}, cannot be read: {e}",
                fit.original
            )),
        }));
    }
    Ok(match OpenBlas::recognise(&bytes) {
        Ok(Some(wheel)) => Some(State::Own {
            what: described(&wheel),
            leftover: path
                .with_file_name(format!("{}{}", wheel_fit::ORIGINAL_PREFIX, name(path)))
                .exists(),
        }),
        Ok(None) => None,
        Err(why) => Some(State::Refused(why.to_string())),
    })
}

fn described(wheel: &OpenBlas) -> String {
    let bits = if wheel.wide { 64 } else { 32 };
    format!("OpenBLAS {}, {bits}-bit integers", wheel.version)
}

/// A kept original whose place is empty: it goes back where its package still lists the place, else it goes.
fn orphan(found: &Found, records: &mut Records, steps: &mut Vec<Step>) -> Result<()> {
    let kept = found.site.join(found.kept());
    if records.of(&found.site, &found.file)?.is_some() {
        let (kept, file) = (kept.clone(), found.path());
        steps.push(Step::Restore { kept, file });
        records.forget(found, steps)?;
    }
    steps.push(Step::Remove(kept));
    Ok(())
}

/// The texts of RECORD as the steps so far leave them.
#[derive(Default)]
struct Records {
    texts: BTreeMap<PathBuf, String>,
}

impl Records {
    fn text(&mut self, record: &Path) -> Result<&str> {
        if !self.texts.contains_key(record) {
            let text = String::from_utf8(read(record)?)
                .with_context(|| format!("{}: not in UTF-8", record.display()))?;
            self.texts.insert(record.to_owned(), text);
        }
        Ok(&self.texts[record])
    }

    /// The RECORD that lists a file.
    fn of(&mut self, site: &Path, file: &str) -> Result<Option<PathBuf>> {
        for folder in entries(site) {
            let record = folder.join("RECORD");
            if name(&folder).ends_with(".dist-info")
                && record.is_file()
                && record::lists(self.text(&record)?, file)
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn change(&mut self, record: &Path, text: String, steps: &mut Vec<Step>) -> Result<()> {
        if self.text(record)? != text {
            steps.push(Step::Write {
                path: record.to_owned(),
                bytes: text.clone().into_bytes(),
                what: "pip's list of files".to_owned(),
            });
            self.texts.insert(record.to_owned(), text);
        }
        Ok(())
    }

    /// Takes a file's swap out of its RECORD.
    fn forget(&mut self, found: &Found, steps: &mut Vec<Step>) -> Result<()> {
        let Some(record) = self.of(&found.site, &found.file)? else {
            return Ok(());
        };
        let kept = found.kept();
        let paths = Paths {
            file: &found.file,
            kept: &kept,
        };
        let text = record::restored(self.text(&record)?, &paths);
        self.change(&record, text, steps)
    }
}
