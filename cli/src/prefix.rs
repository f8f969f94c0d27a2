//! Where this program is installed: DIR/bin/gpu-offload beside DIR/lib/libblas.so.3, or, by a
//! distribution's package, beside the libraries' own folder below DIR/lib.

use crate::install::Ours;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Libraries of a prefix, with what they hold.
pub const LIBRARIES: [(&str, &str); 4] = [
    ("libblas.so.3", "BLAS and CBLAS"),
    ("liblapack.so.3", "LAPACK"),
    ("liblapacke.so.3", "C interface of LAPACK"),
    ("libgpu_offload.so.0", "the engine"),
];

/// Debian's place for the libraries, below `lib`.
const PACKAGED: &str = "x86_64-linux-gnu/gpu-offload";

/// The library folder of this installation, symbolic links resolved.
pub fn library_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find this program's own path")?;
    let exe = exe
        .canonicalize()
        .with_context(|| format!("cannot resolve {}", exe.display()))?;
    let prefix = exe.parent().and_then(Path::parent);
    let lib = prefix.unwrap_or(Path::new("/")).join("lib");
    // A distribution's own libblas.so.3 may lie in `lib`; the engine is nobody else's.
    let packaged = lib.join(PACKAGED);
    Ok(if packaged.join("libgpu_offload.so.0").exists() {
        packaged
    } else {
        lib
    })
}

/// The path of the installed BLAS library.
pub fn blas(library_dir: &Path) -> Result<PathBuf> {
    let path = library_dir.join("libblas.so.3");
    anyhow::ensure!(
        path.exists(),
        "{}: no such file; accepted: gpu-offload installed as DIR/bin/gpu-offload beside \
         DIR/lib/libblas.so.3",
        path.display()
    );
    Ok(path)
}

/// What goes into Python environments: the library that is fitted to wheels, and the engine.
pub fn for_wheels() -> Result<Ours> {
    let dir = library_dir()?;
    // No library's name, so that no ldconfig gives it a link.
    let ready = dir.join("gpu-offload-wheel.so");
    anyhow::ensure!(
        ready.is_file(),
        "{}: no such file; this installation is not complete",
        ready.display()
    );
    Ok(Ours {
        ready,
        engine: dir.join("libgpu_offload.so.0"),
    })
}

/// The library for LD_AUDIT through which one command's wheels are served and its libraries seen.
pub fn hook() -> Result<PathBuf> {
    let path = library_dir()?.join("gpu-offload-hook.so");
    anyhow::ensure!(
        path.is_file(),
        "{}: no such file; this installation is not complete",
        path.display()
    );
    Ok(path)
}
