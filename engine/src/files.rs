//! Files that steer the library: read only if nobody else could have written them.
//!
//! A configuration kept by sudo, or one in a directory that others share, must not steer somebody
//! else's programs. No policy about what the files mean.

use crate::os;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The longest file that is read. A profile takes about 10 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError {
    /// There is no such file.
    Absent,
    /// A folder on the way may not be entered, so that nobody here knows whether there is one: what, where, and what
    /// is accepted. A service that keeps another user's HOME must not hear of it.
    OutOfReach(String),
    /// The file is there and is not believed: what, where, and what is accepted.
    Refused(String),
}

/// Text of a regular file that belongs to the effective user or root and that nobody else may write.
///
/// # Errors
/// If there is no such file, or it is out of reach, unreadable, foreign, writable by others, too long or not UTF-8.
pub fn read_trusted(path: &Path) -> Result<String, ReadError> {
    let shown = path.display();
    let refused = |what: String| ReadError::Refused(format!("{shown}: {what}"));
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        // A FIFO must not hang the host; a descriptor must not reach its children.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|e| {
            let line = format!("{shown}: cannot be read ({e}); accepted: a readable file");
            match e.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => ReadError::Absent,
                ErrorKind::PermissionDenied if path.symlink_metadata().is_err() => {
                    ReadError::OutOfReach(line)
                }
                _ => ReadError::Refused(line),
            }
        })?;
    let info = file.metadata().map_err(|e| {
        refused(format!(
            "cannot be examined ({e}); accepted: a readable file"
        ))
    })?;
    if !info.is_file() {
        return Err(refused(
            "is not a file; accepted: a regular file".to_owned(),
        ));
    }
    let user = os::effective_user();
    if info.uid() != 0 && info.uid() != user {
        return Err(refused(format!(
            "belongs to user {}; accepted: a file of user {user} or root",
            info.uid()
        )));
    }
    if info.mode() & 0o022 != 0 {
        return Err(refused(format!(
            "may be written by others (mode {:03o}); accepted: no write permission for group and others",
            info.mode() & 0o777
        )));
    }
    if info.len() > MAX_BYTES {
        return Err(refused(format!(
            "has {} bytes; accepted: at most {MAX_BYTES}",
            info.len()
        )));
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut file)
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|e| refused(format!("cannot be read ({e}); accepted: a readable file")))?;
    String::from_utf8(bytes).map_err(|e| {
        let line = bytes_before(e.as_bytes(), e.utf8_error().valid_up_to());
        refused(format!("line {line}: is not UTF-8; accepted: TOML text"))
    })
}

/// Line, from 1, of the byte at `offset`.
fn bytes_before(bytes: &[u8], offset: usize) -> usize {
    bytes.iter().take(offset).filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_files_that_nobody_else_could_write_are_believed() {
        let dir = std::env::temp_dir().join(format!("gpu-offload-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("temporary directory");
        let path = dir.join("config.toml");
        assert_eq!(read_trusted(&path), Err(ReadError::Absent));
        std::fs::write(&path, "level = 5\n").expect("writable");
        let mode = |bits| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).expect("chmod");
            read_trusted(&path)
        };
        assert_eq!(mode(0o644), Ok("level = 5\n".to_owned()));
        assert_eq!(mode(0o600), Ok("level = 5\n".to_owned()));
        for writable in [0o664, 0o646, 0o666] {
            let Err(ReadError::Refused(line)) = mode(writable) else {
                panic!("{writable:o}")
            };
            assert!(
                line.contains("config.toml") && line.contains("accepted"),
                "{line}"
            );
        }
        std::fs::write(&path, b"a = 1\n\xff").expect("writable");
        let Err(ReadError::Refused(line)) = mode(0o644) else {
            panic!("not UTF-8")
        };
        assert!(line.contains("line 2"), "{line}");
        let Err(ReadError::Refused(line)) = read_trusted(&dir) else {
            panic!("a directory")
        };
        assert!(line.contains("not a file"), "{line}");
        std::fs::remove_dir_all(&dir).expect("removable");
    }
}
