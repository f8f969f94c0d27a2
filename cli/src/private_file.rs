//! A file that a command of ours writes for us, and nobody else reads.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// An empty file for its owner alone, removed at the end.
pub struct PrivateFile(PathBuf);

impl PrivateFile {
    /// Makes one in the folder for temporary files; `purpose` and `extension` are parts of its name.
    ///
    /// # Errors
    /// If it cannot be created, or is there.
    pub fn new(purpose: &str, extension: &str) -> Result<Self> {
        let name = format!("gpu-offload-{purpose}-{}.{extension}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
