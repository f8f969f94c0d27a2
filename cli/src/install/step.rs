//! One change of a file system at a time, each done or not done, so that a command may stop between any two.

use anyhow::{Context, Result};
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Folder beside what is changed, for what is not ready yet.
pub const ROOM: &str = ".gpu-offload-tmp";

/// One change.
pub enum Step {
    /// Puts these bytes in the place of a file, with its mode, or with that of a plain file where there is none.
    Write {
        /// The file.
        path: PathBuf,
        /// What it will hold.
        bytes: Vec<u8>,
        /// In words.
        what: String,
    },
    /// Gives a file a second name.
    Keep {
        /// The file.
        file: PathBuf,
        /// The new name, which is free.
        name: PathBuf,
    },
    /// Puts a kept file back into its place; it stays under the other name too.
    Restore {
        /// Where it is kept.
        kept: PathBuf,
        /// Its place.
        file: PathBuf,
    },
    /// Removes a name.
    Remove(PathBuf),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { path, what, .. } => write!(f, "write {} ({what})", path.display()),
            Self::Keep { file, name } => {
                write!(f, "keep {} as {}", file.display(), name.display())
            }
            Self::Restore { kept, file } => {
                write!(f, "put {} back as {}", kept.display(), file.display())
            }
            Self::Remove(path) => write!(f, "remove {}", path.display()),
        }
    }
}

impl Step {
    /// Does it. `room` is a folder of the same file system for what is not ready yet.
    ///
    /// # Errors
    /// Where the file system refuses; nothing has changed then.
    pub fn run(&self, room: &Path) -> Result<()> {
        let done = || -> Result<()> {
            match self {
                Self::Write { path, bytes, .. } => {
                    let new = fresh(room)?;
                    let mut file = File::create(&new)?;
                    file.write_all(bytes)?;
                    if let Ok(old) = fs::metadata(path) {
                        file.set_permissions(old.permissions())?;
                    }
                    file.sync_all()?;
                    fs::rename(&new, path)?;
                }
                Self::Keep { file, name } => second_name(file, name, room)?,
                Self::Restore { kept, file } => {
                    let new = fresh(room)?;
                    second_name(kept, &new, room)?;
                    fs::rename(&new, file)?;
                }
                Self::Remove(path) => fs::remove_file(path)?,
            }
            Ok(())
        };
        done().with_context(|| format!("cannot {self}"))
    }
}

/// A free name in the room.
fn fresh(room: &Path) -> Result<PathBuf> {
    fs::create_dir_all(room).with_context(|| format!("cannot create {}", room.display()))?;
    let new = room.join("new");
    if new.symlink_metadata().is_ok() {
        fs::remove_file(&new)?;
    }
    Ok(new)
}

/// A hard link, or a copy where there are none.
fn second_name(file: &Path, name: &Path, room: &Path) -> Result<()> {
    if fs::hard_link(file, name).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(room)?;
    let copy = room.join("copy");
    fs::copy(file, &copy)?;
    File::open(&copy)?.sync_all()?;
    fs::rename(&copy, name)?;
    Ok(())
}

/// Removes what an interrupted command has left in the room, and the room.
///
/// # Errors
/// Where the file system refuses.
pub fn clear(room: &Path) -> Result<()> {
    match fs::remove_dir_all(room) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", room.display()))
        }
        _ => Ok(()),
    }
}
