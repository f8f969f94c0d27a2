//! Debian's packages, downloaded by the machine's own apt and unpacked into the cache: foreign BLAS
//! libraries, Octave, R, SciPy, ScaLAPACK, Armadillo, SuiteSparse, Eigen and HPL are guests of the conformance
//! run only. Nothing is installed and nothing of the system is switched, so that no root is needed.

use super::client_run::{Client, cache, scratch};
use crate::tools::{quiet, step};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's folder of libraries, below a root.
pub const ARCH_FOLDER: &str = "usr/lib/x86_64-linux-gnu";

/// The packages that hold foreign BLAS and LAPACK libraries, and the folder of each.
const FOREIGN: [(&str, &str); 3] = [
    ("libblas3", "blas"),
    ("liblapack3", "lapack"),
    ("libopenblas0-pthread", "openblas-pthread"),
];

/// What is unpacked for `--full`, whether the system has it or not; what these need comes along where
/// the system lacks it.
const GUESTS: [&str; 9] = [
    "octave",
    "octave-common",
    "r-base-core",
    "python3-scipy",
    "mpich",
    "libmpich12",
    "libscalapack-mpich2.2",
    "scalapack-mpi-test",
    "scalapack-test-common",
];

/// The folder that holds `blas`, `lapack` and `openblas-pthread` with foreign libraries.
pub fn foreign() -> Result<PathBuf> {
    let packages: Vec<String> = FOREIGN.iter().map(|(p, _)| (*p).to_owned()).collect();
    let root = unpacked("foreign", &packages, |_, _| Ok(()))?.join(ARCH_FOLDER);
    for (package, folder) in FOREIGN {
        if !root.join(folder).is_dir() {
            bail!("Debian's {package} has no folder {folder}");
        }
    }
    Ok(root)
}

/// The folder of Debian's OpenBLAS as `libblas.so.3` and `liblapack.so.3`: the guests' stock library.
pub fn openblas() -> Result<PathBuf> {
    Ok(foreign()?.join("openblas-pthread"))
}

/// Downloads and unpacks packages once; `fit` may change the unpacked files, which will lie at its
/// second argument.
fn unpacked(
    name: &str,
    packages: &[String],
    fit: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let root = cache()?.join(name);
    // Written last: the list of what was asked for.
    let mark = Path::new("unpacked.txt");
    let list = packages.join("\n");
    if fs::read_to_string(root.join(mark)).is_ok_and(|text| text == list) {
        return Ok(root);
    }
    let _progress = step(&format!(
        "downloading {} packages of Debian ({name})",
        packages.len()
    ));
    let work = scratch("debian")?;
    quiet(
        Command::new("apt-get")
            .arg("download")
            .args(packages)
            .current_dir(work.path()),
    )
    .context("cannot download Debian's packages; does `apt-get update` work?")?;
    let temporary = root.with_extension(format!("new-{}", std::process::id()));
    fs::create_dir_all(&temporary)?;
    for file in fs::read_dir(work.path())? {
        let path = file?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            quiet(unpack.arg("-x").arg(&path).arg(&temporary))?;
        }
    }
    fit(&temporary, &root)?;
    fs::write(temporary.join(mark), list)?;
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::rename(&temporary, &root).with_context(|| format!("cannot create {}", root.display()))?;
    Ok(root)
}

/// Packages and what they need beyond the system's, as apt would install them.
fn with_dependencies(wanted: &[&str]) -> Result<Vec<String>> {
    let plan = quiet(
        Command::new("apt-get")
            .args(["--simulate", "--no-install-recommends", "install"])
            .args(wanted),
    )
    .with_context(|| {
        format!(
            "apt cannot plan {}; does `apt-get update` work?",
            wanted.join(", ")
        )
    })?;
    let mut packages: Vec<String> = wanted.iter().map(|p| (*p).to_owned()).collect();
    for line in plan.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("Inst") {
            continue;
        }
        let (Some(package), Some(version)) = (words.next(), words.next()) else {
            continue;
        };
        // `[old version]`: an update of something the system has already.
        if !version.starts_with('[') {
            packages.push(package.to_owned());
        }
    }
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Libraries on BLAS and LAPACK, unpacked for programs of ours, and HPL.
const LIBRARIES: [&str; 4] = [
    "libarmadillo-dev",
    "libsuitesparse-dev",
    "libeigen3-dev",
    "hpcc",
];

/// The root of [`LIBRARIES`], unpacked on the first call.
pub fn libraries() -> Result<PathBuf> {
    let packages = with_dependencies(&LIBRARIES)?;
    unpacked("libraries", &packages, |new, _| relative_links(new, new))
}

/// Octave, R, SciPy and ScaLAPACK, unpacked.
pub struct Guests {
    root: PathBuf,
    /// The folder of Octave's own libraries.
    octave: PathBuf,
}

impl Guests {
    /// Unpacks them on the first call.
    pub fn new() -> Result<Self> {
        let root = unpacked("guests", &with_dependencies(&GUESTS)?, |new, root| {
            relative_links(new, new)?;
            relocate_r(new, root)
        })?;
        let mut octave = None;
        for entry in fs::read_dir(root.join(ARCH_FOLDER).join("octave"))? {
            let path = entry?.path();
            if path.join("liboctave.so").exists() {
                octave = Some(path);
            }
        }
        let octave = octave.context("Debian's octave has no liboctave.so")?;
        Ok(Self { root, octave })
    }

    /// A file of the unpacked packages.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// `libraries`, and behind them what the guests brought along.
    pub fn path(&self, libraries: &[PathBuf]) -> Vec<PathBuf> {
        let mut path = libraries.to_vec();
        path.push(self.octave.clone());
        for folder in [ARCH_FOLDER, "lib/x86_64-linux-gnu", "usr/lib"] {
            path.push(self.root.join(folder));
        }
        path
    }

    /// Octave with `libraries` in front, without anybody's settings.
    pub fn octave(&self, libraries: &[PathBuf]) -> Client {
        let usr = self.root.join("usr");
        Client::new(usr.join("bin/octave-cli"), &self.path(libraries))
            .env("OCTAVE_HOME", &usr)
            .env("OCTAVE_EXEC_HOME", &usr)
            .args(["--norc", "--no-history", "--quiet"])
    }

    /// Rscript, through R's own start script, which replaces LD_LIBRARY_PATH by this variable.
    pub fn rscript(&self, libraries: &[PathBuf]) -> Client {
        let home = self.root.join("usr/lib/R");
        let mut path = libraries.to_vec();
        path.push(home.join("lib"));
        let path: Vec<_> = path.iter().map(|p| p.as_os_str()).collect();
        Client::new(self.root.join("usr/bin/Rscript"), &self.path(&[]))
            .env("RHOME", home)
            .env("R_LD_LIBRARY_PATH", path.join(":".as_ref()))
    }

    /// Debian's Python with SciPy beside NumPy.
    pub fn python(&self, libraries: &[PathBuf]) -> Client {
        Client::new(super::clients::PYTHON, &self.path(libraries)).env(
            "PYTHONPATH",
            self.root.join("usr/lib/python3/dist-packages"),
        )
    }
}

/// Makes links to absolute names relative, so that they stay inside the root.
fn relative_links(root: &Path, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            relative_links(root, &path)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&path)?;
            let Ok(inside) = target.strip_prefix("/") else {
                continue;
            };
            let depth = folder.strip_prefix(root)?.components().count();
            let mut relative: PathBuf = std::iter::repeat_n("..", depth).collect();
            relative.push(inside);
            fs::remove_file(&path)?;
            symlink(relative, &path)?;
        }
    }
    Ok(())
}

/// R's start script names its folders by absolute paths, and the package's installation would put
/// Renviron in its place.
fn relocate_r(new: &Path, root: &Path) -> Result<()> {
    let script = new.join("usr/lib/R/bin/R");
    let text =
        fs::read_to_string(&script).with_context(|| format!("cannot read {}", script.display()))?;
    let home = root.join("usr/lib/R").display().to_string();
    let share = root.join("usr/share/R").display().to_string();
    let text = text
        .replace("R_HOME_DIR=/usr/lib/R\n", &format!("R_HOME_DIR={home}\n"))
        .replace("=/usr/share/R/", &format!("={share}/"));
    fs::write(&script, text)?;
    let settings = new.join("usr/lib/R/etc");
    fs::copy(settings.join("Renviron.ucf"), new.join("etc/R/Renviron"))
        .context("Debian's r-base-core has no Renviron.ucf")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{relative_links, scratch};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn absolute_links_stay_inside_the_root() {
        let dir = scratch("links").expect("a folder");
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).expect("folders");
        fs::create_dir_all(root.join("etc")).expect("folders");
        fs::write(root.join("etc/file"), "inside").expect("a file");
        symlink("/etc/file", root.join("a/b/link")).expect("a link");
        relative_links(root, root).expect("rewritten");
        let read = fs::read_to_string(root.join("a/b/link")).expect("the link leads to a file");
        assert_eq!(read, "inside");
    }
}
