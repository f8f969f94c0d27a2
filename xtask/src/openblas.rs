//! `cargo xtask openblas`: prepares the static OpenBLAS that the libraries hold.
//!
//! The result is one folder in the user's cache, keyed by version and recipe, and the link `.openblas`
//! in the workspace that points to it: `lib/libopenblas.a` is the archive as it came but for one newer
//! name of glibc (pkg-config finds it there), `lib/libgpu_offload_{blas,lapack}.a` are its two halves with our private names, `names/`
//! holds the lists that the build scripts read. It must not change anything outside of that cache.

mod archive;
mod debian;
pub mod exports;
mod from_source;
mod source;

pub use archive::KERNEL_PREFIX;
pub use debian::debian_mirror;

use crate::tools::{cargo, step, workspace};
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask openblas`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Build from this OpenBLAS source archive (as OpenBLAS releases it) instead of a ready-made static
    /// library; the make variable DYNAMIC_LIST, where set, names the processors instead of all x86-64
    #[arg(long, value_name = "TARBALL")]
    pub source: Option<PathBuf>,
    /// Let the crate `openblas-src` download the source, and build it (needs the open internet)
    #[arg(long, conflicts_with = "source")]
    pub download: bool,
    /// Debian mirror to fetch the pinned package from; default: the one that apt already uses
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Prepare anew even if the cache has it
    #[arg(long)]
    pub force: bool,
    /// Choose again instead of keeping what was built from source: true on the command line, false
    /// where another task only needs the archive.
    #[arg(skip = true)]
    pub anew: bool,
}

/// Everything that changes the prepared folder apart from the archive itself: how it is laid out (a number
/// that grows with changes of `build` and of `source.rs`) and how the archive is split.
const RECIPE: [&str; 2] = ["layout 2", include_str!("openblas/archive.rs")];

/// Prepares the archive and prints where it lies.
pub fn run(args: &Args) -> Result<()> {
    let dir = prepare(args)?;
    println!("{}", dir.display());
    Ok(())
}

/// Prepares the archive unless the workspace has it already, and returns its folder.
pub fn prepare(args: &Args) -> Result<PathBuf> {
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    sweep(&cache);
    let origin = source::find(args, &cache)?;
    let key = key(&origin.key);
    let dir = cache.join(format!("{}-{key}", origin.version));
    if args.force || !dir.join("names/done").is_file() {
        let temporary = cache.join(format!("tmp-{}-{key}", std::process::id()));
        remove(&temporary)?;
        fs::create_dir_all(&temporary)?;
        let made = build(&origin, &cache, &temporary);
        if let Err(error) = made {
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }
        if dir.exists() {
            // A reader of the old folder keeps its open files; the new one appears in one step.
            let old = cache.join(format!("old-{}-{key}", std::process::id()));
            fs::rename(&dir, &old)?;
            remove(&old)?;
        }
        if let Err(error) = fs::rename(&temporary, &dir) {
            // Another process may have prepared the same folder meanwhile: equally good.
            let _ = fs::remove_dir_all(&temporary);
            if !dir.join("names/done").is_file() {
                return Err(error).with_context(|| format!("cannot create {}", dir.display()));
            }
        }
    }
    link(&dir, &workspace().join(".openblas"))?;
    Ok(dir)
}

fn build(origin: &source::Origin, cache: &Path, dir: &Path) -> Result<()> {
    let (lib, names) = (dir.join("lib"), dir.join("names"));
    fs::create_dir_all(lib.join("pkgconfig"))?;
    fs::create_dir_all(&names)?;
    origin.fetch(cache, dir)?;
    archive::split(&lib, &names, dir)?;
    // `prefix` is relative to the file, so that the folder may be moved.
    fs::write(
        lib.join("pkgconfig/openblas.pc"),
        format!(
            "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
             Name: openblas\nDescription: OpenBLAS, static, as prepared by cargo xtask openblas\n\
             Version: {}\nLibs: -L${{libdir}} -lopenblas\nLibs.private: -lm -lpthread\n\
             Cflags: -I${{includedir}}\n",
            origin.version
        ),
    )?;
    fs::write(names.join("version.txt"), format!("{}\n", origin.version))?;
    fs::write(names.join("done"), "")?;
    Ok(())
}

fn key(origin: &str) -> String {
    let routed = routines::routed_symbols();
    let parts = [origin]
        .into_iter()
        .chain(RECIPE)
        .chain(routed.iter().map(String::as_str))
        .chain(exports::LISTS);
    text_key(&parts.collect::<Vec<_>>())
}

/// A short name for what these texts say, the same on every machine.
fn text_key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let sum = hash.finalize();
    sum.iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Netlib's LAPACK test programs of the pinned release, unpacked into `dir`; returns their folder.
pub fn lapack_test_programs(dir: &Path) -> Result<PathBuf> {
    let unpacked = debian::unpack(None, &[debian::LAPACK_TEST], &cache_dir()?, dir)?;
    Ok(unpacked.join(source::LIB).join("lapack"))
}

/// Netlib's own `liblapack.so.3` of the pinned release, unpacked into `dir`.
pub fn netlib_lapack(dir: &Path) -> Result<PathBuf> {
    let unpacked = debian::unpack(None, &[debian::NETLIB_LAPACK], &cache_dir()?, dir)?;
    Ok(unpacked.join(source::LIB).join("lapack/liblapack.so.3"))
}

/// `$XDG_CACHE_HOME/gpu-offload/openblas`, by default below `~/.cache`.
fn cache_dir() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: no place for the prepared OpenBLAS")?;
    Ok(base.join("gpu-offload/openblas"))
}

fn link(to: &Path, at: &Path) -> Result<()> {
    if fs::read_link(at).is_ok_and(|old| old == to) {
        return Ok(());
    }
    let temporary = at.with_extension(format!("{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    std::os::unix::fs::symlink(to, &temporary)
        .and_then(|()| fs::rename(&temporary, at))
        .with_context(|| format!("cannot link {} to {}", at.display(), to.display()))?;
    // Cargo does not see that the archive behind `openblas-src` is another one. Best effort: a target
    // folder that holds nothing of it is fine.
    let _ = cargo()
        .args(["clean", "--quiet", "--package", "openblas-src"])
        .output();
    Ok(())
}

/// Removes what tasks that were interrupted have left in the cache. Best effort: it is only space.
fn sweep(cache: &Path) {
    for folder in [cache.to_path_buf(), cache.join("built")] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let mut words = name.to_str().unwrap_or_default().split('-');
            if matches!(words.next(), Some("tmp" | "old"))
                && let Some(Ok(process)) = words.next().map(str::parse::<u32>)
                && !Path::new("/proc").join(process.to_string()).exists()
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The hexadecimal SHA-256 of a file.
fn sha256(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Runs `step` while a spinner says `text`.
fn with_step<T>(text: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let spinner = step(text);
    let result = work();
    spinner.finish_and_clear();
    result
}

/// Runs one of binutils.
fn binutil(name: &str) -> Command {
    let mut command = Command::new(name);
    // A deterministic result whatever the machine's language and defaults are.
    command.env("LC_ALL", "C");
    command
}
