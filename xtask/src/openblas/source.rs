//! Where the static OpenBLAS comes from: the system, Debian stable's pinned packages, or its source.
//!
//! What was built from source stays in use in this checkout until `cargo xtask openblas` is called again.

use super::debian::{LAPACKE, OPENBLAS, TMGLIB, unpack};
use super::{Args, from_source, sha256};
use crate::tools::workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest OpenBLAS that is accepted: 0.3.21 ran dgemm at a third of the speed on a current Xeon, and
/// LAPACK 3.12 came with 0.3.26 and later.
const OLDEST: (u32, u32, u32) = (0, 3, 29);

/// Folders below the root of a system or an unpacked package.
pub const LIB: &str = "usr/lib/x86_64-linux-gnu";
const OPENBLAS_LIB: &str = "usr/lib/x86_64-linux-gnu/openblas-pthread";
const OPENBLAS_INCLUDE: &str = "usr/include/x86_64-linux-gnu/openblas-pthread";

/// The chosen source.
pub struct Origin {
    /// OpenBLAS's version.
    pub version: String,
    /// What distinguishes this source from others of the same version.
    pub key: String,
    kind: Kind,
}

enum Kind {
    System,
    Debian {
        mirror: Option<String>,
    },
    /// A folder of the cache that holds what was built from source.
    Built(PathBuf),
}

/// Finds the source; only a build from source that is not in the cache takes time and network.
pub fn find(args: &Args, cache: &Path) -> Result<Origin> {
    if let Some(tarball) = &args.source {
        return Ok(built(from_source::tarball(tarball, cache, args.force)?));
    }
    if args.download {
        return Ok(built(from_source::download(cache, args.force)?));
    }
    if !args.anew
        && let Ok(name) = fs::read_to_string(workspace().join(".openblas/names/built"))
        && let Some(kept) = from_source::Built::find(cache, name.trim())
    {
        return Ok(built(kept));
    }
    if let Some(version) = system_version() {
        return Ok(Origin {
            key: sha256(&Path::new("/").join(OPENBLAS_LIB).join("libopenblas.a"))?,
            version,
            kind: Kind::System,
        });
    }
    Ok(Origin {
        version: "0.3.29".to_owned(),
        key: [OPENBLAS, LAPACKE, TMGLIB]
            .map(|package| package.sha256)
            .concat(),
        kind: Kind::Debian {
            mirror: args.mirror.clone(),
        },
    })
}

fn built(built: from_source::Built) -> Origin {
    Origin {
        version: built.version,
        key: built.name,
        kind: Kind::Built(built.dir),
    }
}

/// The version of the system's own static archive (POSIX threads, all x86-64 kernels) if it is new enough.
fn system_version() -> Option<String> {
    let lib = Path::new("/").join(OPENBLAS_LIB);
    let text = fs::read_to_string(lib.join("pkgconfig/openblas.pc")).ok()?;
    let version = text.lines().find_map(|line| {
        line.strip_prefix("version=")
            .or_else(|| line.strip_prefix("Version:"))
    })?;
    let version = version.trim();
    let usable = is_recent(version) && lib.join("libopenblas.a").is_file();
    usable.then(|| version.to_owned())
}

/// Whether a version of OpenBLAS is accepted.
pub fn is_recent(version: &str) -> bool {
    let numbers: Vec<u32> = version
        .split(['.', '+', '-'])
        .map_while(|part| part.parse().ok())
        .collect();
    matches!(*numbers, [major, minor, patch, ..] if (major, minor, patch) >= OLDEST)
}

impl Origin {
    /// Puts `libopenblas.a`, `liblapacke.a` and `libtmglib.a` into `dir/lib`, headers into
    /// `dir/include` and the notices into `dir/licences`.
    pub fn fetch(&self, cache: &Path, dir: &Path) -> Result<()> {
        match &self.kind {
            Kind::System => {
                let root = Path::new("/");
                install_openblas(root, dir)?;
                if root.join(LIB).join("liblapacke.a").is_file()
                    && root.join(LIB).join("libtmglib.a").is_file()
                {
                    return install_lapacke(root, dir);
                }
                let unpacked = unpack(None, &[LAPACKE, TMGLIB], cache, dir)?;
                install_lapacke(&unpacked, dir)
            }
            Kind::Debian { mirror } => {
                let packages = [OPENBLAS, LAPACKE, TMGLIB];
                let unpacked = unpack(mirror.as_deref(), &packages, cache, dir)?;
                install_openblas(&unpacked, dir)?;
                install_lapacke(&unpacked, dir)
            }
            Kind::Built(built) => {
                fs::write(dir.join("names/built"), format!("{}\n", self.key))?;
                copy_folders(built, dir)
            }
        }
    }
}

/// What a folder of something built from source holds for us.
const FOLDERS: [&str; 3] = ["lib", "include", "licences"];

fn copy_folders(from: &Path, to: &Path) -> Result<()> {
    for folder in FOLDERS {
        let folder_path = from.join(folder);
        let entries = fs::read_dir(&folder_path)
            .with_context(|| format!("cannot read {}", folder_path.display()))?;
        for entry in entries {
            let entry = entry?;
            copy(&entry.path(), &to.join(folder).join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn install_openblas(root: &Path, dir: &Path) -> Result<()> {
    copy(
        &root.join(OPENBLAS_LIB).join("libopenblas.a"),
        &dir.join("lib/libopenblas.a"),
    )?;
    for header in ["cblas.h", "f77blas.h", "openblas_config.h"] {
        copy(
            &root.join(OPENBLAS_INCLUDE).join(header),
            &dir.join("include").join(header),
        )?;
    }
    let notice = root.join("usr/share/doc/libopenblas-pthread-dev/copyright");
    copy(&notice, &dir.join("licences/openblas"))
}

/// What a program that uses LAPACKE includes.
pub const LAPACKE_HEADERS: [&str; 5] = [
    "lapack.h",
    "lapacke.h",
    "lapacke_config.h",
    "lapacke_mangling.h",
    "lapacke_utils.h",
];

fn install_lapacke(root: &Path, dir: &Path) -> Result<()> {
    for library in ["liblapacke.a", "libtmglib.a"] {
        copy(
            &root.join(LIB).join(library),
            &dir.join("lib").join(library),
        )?;
    }
    for header in LAPACKE_HEADERS {
        copy(
            &root.join("usr/include").join(header),
            &dir.join("include").join(header),
        )?;
    }
    let notice = root.join("usr/share/doc/liblapacke-dev/copyright");
    copy(&notice, &dir.join("licences/lapack"))
}

/// Copies a file, and creates the folder that it goes to.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_recent;

    #[test]
    fn versions_are_compared_as_numbers() {
        for accepted in [
            "0.3.29",
            "0.3.29.dev",
            "0.3.30+ds",
            "0.3.100",
            "0.4.0",
            "1.0.0-1",
        ] {
            assert!(is_recent(accepted), "{accepted}");
        }
        for refused in ["0.3.28", "0.3.9", "0.2.99", "0.3", "", "zero"] {
            assert!(!is_recent(refused), "{refused}");
        }
    }
}
