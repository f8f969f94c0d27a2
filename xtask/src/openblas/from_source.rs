//! OpenBLAS, LAPACK and LAPACKE built from OpenBLAS's source: from an archive that the user has, or from
//! the one that the crate `openblas-src` knows to download.
//!
//! The result stays in the cache under a name made of the source and of how it is built, so that a change of
//! the routine table does not build it again. Nothing is left behind by a build that failed but its log.
//!
//! Tried on 2026-12-02 with OpenBLAS 0.3.29's source as Debian has it and netlib's LAPACK 3.12.1 in the place of
//! lapack-netlib, whose SRC/Makefile left out the objects that OpenBLAS's copy leaves out, DYNAMIC_LIST="HASWELL
//! ZEN": 48 minutes on two busy cores; the prefix passed netlib's BLAS programs and the mixes. OpenBLAS's own
//! release could not be had there.

use super::archive::{Halves, Symbols};
use super::source::{copy, is_recent};
use super::{exports, remove, sha256, text_key, with_step};
use crate::tools::{cargo, has_program, quiet, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a build is made with: the kernels of every x86-64 processor, one library for up to 128 threads, no
/// shared library.
const MAKE: [&str; 8] = [
    "DYNAMIC_ARCH=1",
    "DYNAMIC_OLDER=1",
    "USE_OPENMP=0",
    "USE_THREAD=1",
    "NUM_THREADS=128",
    "NO_AFFINITY=1",
    "NO_SHARED=1",
    "TARGET=GENERIC",
];

/// Grows when a build becomes another one without a change of `MAKE`.
const LAYOUT: &str = "1";

/// OpenBLAS's own variable that names the processors to have kernels for, where not all are wanted.
const PROCESSORS: &str = "DYNAMIC_LIST";

/// The crate that downloads; the version is the one of `openblas-src` in this workspace.
const DOWNLOADER: &str = "0.10.16";

/// Programs that a build needs besides what everything here needs.
const PROGRAMS: [&str; 2] = ["gfortran", "make"];

/// The last lines of a log that are worth showing.
const SHOWN_LINES: usize = 12;

/// Something in the cache that was built from source.
pub struct Built {
    /// OpenBLAS's version.
    pub version: String,
    /// Its name in the cache.
    pub name: String,
    /// Where it lies.
    pub dir: PathBuf,
}

impl Built {
    /// What the cache holds under a name.
    pub fn find(cache: &Path, name: &str) -> Option<Self> {
        let dir = folder(cache).join(name);
        let version = fs::read_to_string(dir.join("version.txt")).ok()?;
        Some(Self {
            version: version.trim().to_owned(),
            name: name.to_owned(),
            dir,
        })
    }
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("built")
}

/// Builds from a source archive unless the cache has the result.
pub fn tarball(tarball: &Path, cache: &Path, force: bool) -> Result<Built> {
    ensure!(
        tarball.is_file(),
        "there is no OpenBLAS source archive {}",
        tarball.display()
    );
    once(cache, &sha256(tarball)?, force, |scratch| {
        unpack(tarball, &scratch.join("source"))
    })
}

/// Downloads with the crate behind `openblas-src`, and builds, unless the cache has the result.
pub fn download(cache: &Path, force: bool) -> Result<Built> {
    once(cache, DOWNLOADER, force, fetch)
}

/// The name in the cache of what is built from a source.
fn name(source: &str) -> String {
    let processors = std::env::var(PROCESSORS).unwrap_or_default();
    text_key(&[source, LAYOUT, &MAKE.concat(), &processors])
}

fn once(
    cache: &Path,
    source: &str,
    force: bool,
    get: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<Built> {
    let name = name(source);
    if !force && let Some(built) = Built::find(cache, &name) {
        return Ok(built);
    }
    let all = folder(cache);
    let scratch = all.join(format!("tmp-{}-{name}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let log = all.join(format!("{name}.log"));
    let made = get(&scratch).and_then(|source| build(&source, &scratch.join("out"), &log));
    let done = made.and_then(|()| {
        let dir = all.join(&name);
        remove(&dir)?;
        fs::rename(scratch.join("out"), &dir)
            .with_context(|| format!("cannot create {}", dir.display()))
    });
    remove(&scratch)?;
    done?;
    Built::find(cache, &name).context("the build is gone from the cache")
}

/// Unpacks a source archive, and refuses what cannot become a good library before half an hour is spent.
fn unpack(tarball: &Path, source: &Path) -> Result<PathBuf> {
    fs::create_dir_all(source)?;
    let tar = Command::new("tar")
        .args(["--strip-components=1", "-xf"])
        .arg(tarball)
        .arg("-C")
        .arg(source)
        .output()?;
    ensure!(
        tar.status.success(),
        "{} is not an archive that tar can unpack ({})",
        tarball.display(),
        first_line(&tar.stderr)
    );
    ensure!(
        source.join("lapack-netlib/SRC/Makefile").is_file(),
        "{} holds no lapack-netlib: a source archive as OpenBLAS releases it is needed (distributions \
         remove LAPACK from theirs)",
        tarball.display()
    );
    let version = version(source)?;
    ensure!(
        is_recent(&version),
        "{} holds OpenBLAS {version}; 0.3.29 or newer is needed",
        tarball.display()
    );
    Ok(source.to_owned())
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().next().unwrap_or_default().to_owned()
}

/// The version that OpenBLAS's `Makefile.rule` states.
fn version(source: &Path) -> Result<String> {
    let rules = source.join("Makefile.rule");
    let text = fs::read_to_string(&rules)
        .with_context(|| format!("cannot read {}: is this OpenBLAS?", rules.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VERSION"));
    let version = line.map(|rest| rest.trim_start_matches([' ', '=', '\t']).trim());
    Ok(version
        .context("OpenBLAS's Makefile.rule states no VERSION")?
        .to_owned())
}

/// Downloads the source by a program of three lines, since the crate's library is all that is needed.
fn fetch(scratch: &Path) -> Result<PathBuf> {
    let project = scratch.join("downloader");
    fs::create_dir_all(project.join("src"))?;
    fs::write(
        project.join("Cargo.toml"),
        format!(
            "[package]\nname = \"downloader\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\nopenblas-build = {{ version = \"={DOWNLOADER}\", default-features = false, \
             features = [\"rustls\"] }}\n"
        ),
    )?;
    fs::write(
        project.join("src/main.rs"),
        "fn main() -> std::process::ExitCode {\n    let to = std::env::args_os().nth(1).unwrap_or_default();\n    \
         match openblas_build::download(to.as_ref()) {\n        Ok(source) => println!(\"{}\", source.display()),\n        \
         Err(error) => {\n            eprintln!(\"{error:#}\");\n            return 1.into();\n        }\n    }\n    0.into()\n}\n",
    )?;
    // The versions of the workspace, which has the crate as a part of openblas-src.
    copy(&workspace().join("Cargo.lock"), &project.join("Cargo.lock"))?;
    with_step("Compiling openblas-src's downloader", || {
        let mut cargo = cargo();
        cargo.args(["build", "--quiet"]).current_dir(&project);
        cargo.env("CARGO_TARGET_DIR", project.join("target"));
        quiet(&mut cargo)
    })?;
    let source = with_step("Downloading OpenBLAS's source", || {
        let ended = Command::new(project.join("target/debug/downloader"))
            .arg(scratch)
            .output()?;
        ensure!(
            ended.status.success(),
            "openblas-src cannot download OpenBLAS's source ({}); where the open internet is not in reach, \
             give a source archive with --source TARBALL",
            first_line(&ended.stderr)
        );
        Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned())
    })?;
    Ok(source.into())
}

/// Builds the three libraries and puts them, their headers and their notices into `out`.
fn build(source: &Path, out: &Path, log: &Path) -> Result<()> {
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|p| !has_program(p)).collect();
    ensure!(
        missing.is_empty(),
        "building OpenBLAS from source needs {}; install that and try again",
        missing.join(", ")
    );
    let version = version(source)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let lib = out.join("lib");
    fs::create_dir_all(&lib)?;
    let written = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let run = |command: &mut Command| -> Result<()> {
        // OpenBLAS reads the processor from this name, and cargo gives it another meaning.
        command.env_remove("TARGET");
        command
            .stdout(written.try_clone()?)
            .stderr(written.try_clone()?);
        if !command.status().context("cannot start make")?.success() {
            bail!(
                "the build failed; the end of {}:\n{}",
                log.display(),
                tail(log)
            );
        }
        Ok(())
    };
    let openblas = |arguments: &[&str]| {
        let mut make = Command::new("make");
        // One job at a time inside: OpenBLAS passes its own -j on.
        make.args(MAKE).arg(format!("MAKE_NB_JOBS={jobs}"));
        make.args(arguments).current_dir(source);
        make
    };
    let netlib = |arguments: &[&str]| {
        let mut make = Command::new("make");
        make.arg(format!("-j{jobs}")).args(arguments);
        make.current_dir(source.join("lapack-netlib"));
        make
    };
    with_step(
        &format!(
            "Building OpenBLAS {version} (half an hour on two cores; log: {})",
            log.display()
        ),
        || run(&mut openblas(&["libs", "lapack_prebuild"])),
    )?;
    with_step("Building its LAPACK", || run(&mut netlib(&["lapacklib"])))?;
    with_step("Building LAPACKE", || {
        for (variable, archive, target) in [
            ("TMGLIB", "libtmglib.a", "tmglib"),
            ("LAPACKELIB", "liblapacke.a", "lapackelib"),
        ] {
            let to = format!("{variable}={}", lib.join(archive).display());
            run(&mut netlib(&[&to, target]))?;
        }
        Ok(())
    })?;
    copy(&whole_archive(source)?, &lib.join("libopenblas.a"))?;
    is_whole(&lib.join("libopenblas.a"))?;
    let installed = source.join("installed");
    run(&mut openblas(&[
        "NO_LAPACK=1",
        "NO_LAPACKE=1",
        &format!("PREFIX={}", installed.display()),
        "install",
    ]))?;
    let include = out.join("include");
    for header in ["cblas.h", "f77blas.h", "openblas_config.h"] {
        copy(
            &installed.join("include").join(header),
            &include.join(header),
        )?;
    }
    let lapacke = source.join("lapack-netlib/LAPACKE/include");
    for header in super::source::LAPACKE_HEADERS {
        copy(&lapacke.join(header), &include.join(header))?;
    }
    copy(&source.join("LICENSE"), &out.join("licences/openblas"))?;
    copy(
        &source.join("lapack-netlib/LICENSE"),
        &out.join("licences/lapack"),
    )?;
    fs::write(out.join("version.txt"), format!("{version}\n"))?;
    fs::remove_file(log)?;
    Ok(())
}

/// The archive that the build left, whatever its full name is.
fn whole_archive(source: &Path) -> Result<PathBuf> {
    fs::read_dir(source)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libopenblas") && name.ends_with(".a") && !path.is_symlink()
        })
        .context("the build left no libopenblas*.a")
}

/// Whether the archive has every name, and OpenBLAS's own kernels instead of the reference ones.
fn is_whole(archive: &Path) -> Result<()> {
    let symbols = Symbols::read(archive)?;
    exports::check(&symbols, &Halves::of(&symbols))
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of this test's own, and the source archives that it makes in it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir =
                std::env::temp_dir().join(format!("gpu-offload-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn archive(&self, files: &[(&str, &str)]) -> PathBuf {
            let tree = self.0.join("tree");
            remove(&tree).unwrap();
            for (name, text) in files {
                let path = tree.join("OpenBLAS").join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let archive = self.0.join("source.tar");
            let mut tar = Command::new("tar");
            tar.arg("-cf").arg(&archive).arg("-C").arg(&tree);
            quiet(tar.arg("OpenBLAS")).unwrap();
            archive
        }

        /// What is said about an archive that is refused; nothing of the attempt may stay in the cache.
        fn refused(&self, archive: &Path) -> String {
            let cache = self.0.join("cache");
            let error = tarball(archive, &cache, false).err().expect("refused");
            let left = fs::read_dir(folder(&cache)).into_iter().flatten().count();
            assert_eq!(left, 0, "something stayed in the cache");
            let line = format!("{error:#}");
            assert_eq!(line.lines().count(), 1, "{line}");
            line
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_cannot_become_a_library_is_refused_in_one_line() {
        let scratch = Scratch::new("source");
        let missing = scratch.refused(Path::new("/nowhere/OpenBLAS.tar.gz"));
        assert!(
            missing.contains("no OpenBLAS source archive /nowhere"),
            "{missing}"
        );
        let folder = scratch.refused(&scratch.0);
        assert!(folder.contains("no OpenBLAS source archive"), "{folder}");

        let text = scratch.0.join("text");
        fs::write(&text, "no archive\n").unwrap();
        let text = scratch.refused(&text);
        assert!(
            text.contains("not an archive that tar can unpack"),
            "{text}"
        );

        let rules = ("Makefile.rule", "# by hand\nVERSION = 0.3.30\n");
        let lapack = ("lapack-netlib/SRC/Makefile", "");
        let without = scratch.refused(&scratch.archive(&[rules]));
        assert!(without.contains("holds no lapack-netlib"), "{without}");
        let other = scratch.refused(&scratch.archive(&[lapack]));
        assert!(other.contains("is this OpenBLAS?"), "{other}");
        let old = ("Makefile.rule", "VERSION = 0.3.9\n");
        let old = scratch.refused(&scratch.archive(&[old, lapack]));
        assert!(
            old.contains("holds OpenBLAS 0.3.9; 0.3.29 or newer"),
            "{old}"
        );
    }

    #[test]
    fn what_is_in_the_cache_is_not_built_again() {
        let scratch = Scratch::new("built");
        let cache = scratch.0.join("cache");
        assert!(Built::find(&cache, "abc").is_none());
        let archive = scratch.archive(&[("README", "")]);
        let name = name(&sha256(&archive).unwrap());
        let dir = folder(&cache).join(&name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("version.txt"), "0.3.30\n").unwrap();
        // This archive could not be built at all.
        let built = tarball(&archive, &cache, false).unwrap();
        assert_eq!((built.version.as_str(), built.dir), ("0.3.30", dir.clone()));
        let error = tarball(&archive, &cache, true).err().expect("refused");
        assert!(error.to_string().contains("lapack-netlib"), "{error}");
        assert!(
            dir.join("version.txt").is_file(),
            "a failed build took the old one away"
        );
    }
}
