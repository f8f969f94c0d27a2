//! Where this program is installed: DIR/bin/gpu-offload beside DIR/lib/libblas.so.3, or, by a
//! package of Debian or conda, beside the libraries' own folder below DIR/lib.

use crate::install::Ours;
use anyhow::{Context, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Libraries of a prefix, with what they hold.
pub const LIBRARIES: [(&str, &str); 4] = [
    ("libblas.so.3", "BLAS and CBLAS"),
    ("liblapack.so.3", "LAPACK"),
    ("liblapacke.so.3", "C interface of LAPACK"),
    ("libgpu_offload.so.0", "the engine"),
];

/// Where packages keep the libraries, below `lib`: Debian's and conda's.
const PACKAGED: [&str; 2] = ["x86_64-linux-gnu/gpu-offload", "gpu-offload"];

/// The library folder of this installation, symbolic links resolved.
pub fn library_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find this program's own path")?;
    let exe = exe
        .canonicalize()
        .with_context(|| format!("cannot resolve {}", exe.display()))?;
    Ok(libraries_beside(&exe))
}

/// The library folder that belongs to the program `exe`.
fn libraries_beside(exe: &Path) -> PathBuf {
    let prefix = exe.parent().and_then(Path::parent);
    let lib = prefix.unwrap_or(Path::new("/")).join("lib");
    // Somebody else's libblas.so.3 may lie in `lib`, or a link of a package; the engine is nobody else's.
    PACKAGED
        .iter()
        .map(|folder| lib.join(folder))
        .find(|folder| folder.join("libgpu_offload.so.0").exists())
        .unwrap_or(lib)
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

/// The library folder for LD_LIBRARY_PATH, which the loader splits at colons and semicolons.
pub fn on_library_path() -> Result<PathBuf> {
    let dir = library_dir()?;
    blas(&dir)?;
    anyhow::ensure!(
        !dir.as_os_str().as_bytes().iter().any(|b| b":;".contains(b)),
        "{}: a library path cannot hold this folder; accepted: a name without colons and semicolons",
        dir.display()
    );
    Ok(dir)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_with_the_engine_is_ours() {
        let prefix =
            std::env::temp_dir().join(format!("gpu-offload-prefix-{}", std::process::id()));
        let (exe, lib) = (prefix.join("bin/gpu-offload"), prefix.join("lib"));
        for folder in PACKAGED {
            std::fs::create_dir_all(lib.join(folder)).unwrap();
        }
        std::fs::write(lib.join("libblas.so.3"), "").unwrap();
        assert_eq!(libraries_beside(&exe), lib);
        for folder in PACKAGED {
            let engine = lib.join(folder).join("libgpu_offload.so.0");
            std::fs::write(&engine, "").unwrap();
            assert_eq!(libraries_beside(&exe), lib.join(folder));
            std::fs::remove_file(engine).unwrap();
        }
        std::fs::remove_dir_all(&prefix).unwrap();
    }
}
