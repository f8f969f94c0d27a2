//! `cargo xtask dist --deb`: a Debian package of the prefix.
//!
//! What stands in `packaging/deb` goes into it as it is, but for the words in @…@. The man pages, the
//! completions and the configuration file are the tool's own.

use super::openblas;
use super::stage::{VERSION, copy_tree, date, modes, package, package_files, recipe, remade};
use crate::tools::{quiet, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the libraries lie on the system.
pub const FOLDER: &str = "/usr/lib/x86_64-linux-gnu/gpu-offload";

/// The private folders of Debian's OpenBLAS variants, the most complete first.
const VARIANTS: [&str; 3] = ["pthread", "openmp", "serial"];

/// Builds the package into `dist/`.
pub fn pack(prefix: &Path) -> Result<PathBuf> {
    let root = remade("deb")?;
    let files = Staged { root: &root };
    let lib = files.folder(&FOLDER[1..])?;
    for file in fs::read_dir(prefix.join("lib"))? {
        let file = file?;
        if file.file_name() != openblas::SONAME {
            copy_tree(&file.path(), &lib.join(file.file_name()))?;
        }
    }
    openblas_of_debian(&files, &lib)?;
    fs::copy(
        prefix.join("bin/gpu-offload"),
        files.folder("usr/bin")?.join("gpu-offload"),
    )?;
    let depends = depends(&root)?;
    tool_files(prefix, &files)?;
    documents(prefix, &files)?;
    modes(&root)?;
    control(&files, &depends)?;

    let package = package(&format!("gpu-offload_{VERSION}_amd64.deb"))?;
    let mut build = Command::new("dpkg-deb");
    build
        .env("SOURCE_DATE_EPOCH", date()?)
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([&root, &package]);
    quiet(&mut build).context("cannot build the package")?;
    Ok(package)
}

/// The tree that becomes the package.
struct Staged<'a> {
    root: &'a Path,
}

impl Staged<'_> {
    fn folder(&self, path: &str) -> Result<PathBuf> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Writes a compressed file, the same bytes each time.
    fn compressed(&self, path: &str, text: &[u8]) -> Result<()> {
        let path = self.root.join(path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        quiet(Command::new("gzip").args(["-9nf"]).arg(&path))?;
        Ok(())
    }
}

/// The package's libopenblas.so.0, and what it needs beside our libraries.
///
/// Debian's OpenBLAS as libblas.so.3 or liblapack.so.3 is half a library: its internals lie in what the
/// loader finds as libopenblas.so.0. Where that is ours, it must bring Debian's file along, behind our own
/// libraries, and only then. So ours needs a *peer* for each of the two: while ours is chosen as libblas.so.3,
/// a slave link of that alternative lies in `peers/selected` and leads to an empty library; else the loader
/// goes on to links to Debian's file, and where that is not installed, to the empty library again.
fn openblas_of_debian(files: &Staged<'_>, lib: &Path) -> Result<()> {
    let peer = |part: &str| format!("libgpu_offload_peer_{part}.so.0");
    let folders = ["selected"].into_iter().chain(VARIANTS).chain(["none"]);
    for folder in folders.clone() {
        files.folder(&format!("{}/peers/{folder}", &FOLDER[1..]))?;
    }
    for part in ["blas", "lapack"] {
        let peer = peer(part);
        openblas::empty(&lib.join("peers/none").join(&peer), &peer, &[], &[])?;
        for variant in VARIANTS {
            symlink(
                format!("../../../openblas-{variant}/{}", openblas::SONAME),
                lib.join("peers").join(variant).join(&peer),
            )?;
        }
    }
    let mut needed: Vec<String> = openblas::PARTS
        .iter()
        .map(|part| format!("{FOLDER}/{part}"))
        .collect();
    needed.extend(["blas", "lapack"].map(peer));
    needed.push("libc.so.6".to_owned());
    let search: Vec<String> = folders
        .map(|folder| format!("{FOLDER}/peers/{folder}"))
        .collect();
    openblas::empty(
        &lib.join(openblas::SONAME),
        openblas::SONAME,
        &needed,
        &search,
    )
}

/// Man pages, completions, configuration: written by the tool itself.
fn tool_files(prefix: &Path, files: &Staged<'_>) -> Result<()> {
    let written = package_files(prefix)?;
    files.folder("usr/share/man/man1")?;
    for page in fs::read_dir(written.join("man1"))? {
        let page = page?;
        let name = page.file_name();
        files.compressed(
            &format!("usr/share/man/man1/{}", name.to_string_lossy()),
            &fs::read(page.path())?,
        )?;
    }
    for (from, folder) in [
        ("bash/gpu-offload", "usr/share/bash-completion/completions"),
        ("zsh/_gpu-offload", "usr/share/zsh/vendor-completions"),
        (
            "fish/gpu-offload.fish",
            "usr/share/fish/vendor_completions.d",
        ),
    ] {
        let from = written.join("completions").join(from);
        let name = from.file_name().context("a file")?;
        fs::copy(&from, files.folder(folder)?.join(name))?;
    }
    let settings = files.folder("etc/gpu-offload")?.join("config.toml");
    fs::copy(written.join("config.toml"), settings)?;
    Ok(())
}

/// A paragraph's text in the form of a copyright file's field.
fn folded(text: &str) -> String {
    text.trim()
        .lines()
        .map(|line| match line.trim_end() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        })
        .collect()
}

fn documents(prefix: &Path, files: &Staged<'_>) -> Result<()> {
    let folder = files.folder("usr/share/doc/gpu-offload")?;
    let read = |name: &str| {
        fs::read_to_string(workspace().join(name)).with_context(|| format!("cannot read {name}"))
    };
    let third = read("THIRD-PARTY.md")?;
    let (_, bsd) = third
        .split_once("## BSD-3-Clause\n")
        .context("THIRD-PARTY.md has no BSD-3-Clause")?;
    let bsd = bsd.split("\n## ").next().unwrap_or(bsd);
    let licence = read("LICENSE-MIT")?;
    let (_, mit) = licence
        .split_once("\n\nPermission")
        .context("LICENSE-MIT has no permission")?;
    let text = recipe("copyright")?
        .replace("@BSD@\n", &folded(bsd))
        .replace("@MIT@\n", &folded(&format!("Permission{mit}")));
    fs::write(folder.join("copyright"), text)?;
    let notices = files.folder("usr/share/doc/gpu-offload/licences")?;
    for name in ["openblas", "lapack"] {
        let from = prefix.join("share/licences").join(name);
        if from.is_file() {
            fs::copy(from, notices.join(name))?;
        }
    }
    fs::copy(
        workspace().join("THIRD-PARTY.md"),
        notices.join("THIRD-PARTY.md"),
    )?;
    let log = recipe("changelog")?;
    ensure!(
        log.starts_with(&format!("gpu-offload ({VERSION}) ")),
        "packaging/deb/changelog does not begin with version {VERSION}"
    );
    files.compressed("usr/share/doc/gpu-offload/changelog", log.as_bytes())?;
    Ok(())
}

/// Every plain file below a folder, relative to it, in order.
fn plain_files(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path().strip_prefix(root)?.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn control(files: &Staged<'_>, depends: &str) -> Result<()> {
    let (mut sums, mut bytes) = (String::new(), 0);
    for file in plain_files(files.root)? {
        let path = files.root.join(&file);
        bytes += fs::metadata(&path)?.len();
        if !file.starts_with("etc") {
            let sum = quiet(Command::new("md5sum").arg(&path))?;
            let sum = sum.split_whitespace().next().unwrap_or_default();
            sums.push_str(&format!("{sum}  {}\n", file.display()));
        }
    }
    let folder = files.folder("DEBIAN")?;
    let put = |name: &str, text: &str, mode: u32| -> Result<()> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(())
    };
    let size_kib = bytes.div_ceil(1024).to_string();
    let text = recipe("control")?
        .replace("@VERSION@", VERSION)
        .replace("@SIZE@", &size_kib)
        .replace("@DEPENDS@", depends);
    put("control", &text, 0o644)?;
    put("md5sums", &sums, 0o644)?;
    put("conffiles", "/etc/gpu-offload/config.toml\n", 0o644)?;
    for name in ["shlibs", "triggers"] {
        put(name, &recipe(name)?, 0o644)?;
    }
    let alternatives = recipe("alternatives.sh")?;
    for name in ["postinst", "prerm", "postrm"] {
        let text = recipe(name)?.replace("@ALTERNATIVES@\n", &alternatives);
        put(name, &text, 0o755)?;
    }
    Ok(())
}

/// What the binaries need of the system, as the field `Depends`.
fn depends(root: &Path) -> Result<String> {
    let mut found = Needs::default();
    for file in plain_files(root)? {
        let file = root.join(file);
        let text = quiet(Command::new("objdump").arg("-p").arg(&file))?;
        found
            .add(&text)
            .with_context(|| format!("{} cannot be packaged", file.display()))?;
    }
    found.field()
}

/// Versions of glibc's and libgcc's names.
#[derive(Default)]
struct Needs(BTreeMap<&'static str, Vec<u32>>);

impl Needs {
    /// Takes in what objdump says of one file. A library that the packages named in the end do not hold is
    /// an error.
    fn add(&mut self, objdump: &str) -> Result<()> {
        for line in objdump.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["NEEDED", name] = words[..] {
                let glibc = ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"];
                let ours = openblas::PARTS.contains(&name)
                    || name.starts_with(FOLDER)
                    || name.starts_with("libgpu_offload_peer_")
                    // What is fitted to a wheel needs that wheel's OpenBLAS.
                    || name.starts_with("gpu-offload-wheel-original-");
                if name == "libgcc_s.so.1" {
                    self.0.entry("GCC_").or_default();
                } else if !ours && !glibc.contains(&name) {
                    bail!("it needs {name}, which no dependency of the package brings");
                }
            }
            // 0x069691b4 0x00 14 GLIBC_2.34
            let Some(version) = words.last().filter(|_| words.len() == 4) else {
                continue;
            };
            for kind in ["GLIBC_", "GCC_"] {
                let Some(version) = version.strip_prefix(kind) else {
                    continue;
                };
                let version: Option<Vec<u32>> =
                    version.split('.').map(|n| n.parse().ok()).collect();
                if let Some(version) = version {
                    let newest = self.0.entry(kind).or_default();
                    *newest = version.max(std::mem::take(newest));
                }
            }
        }
        Ok(())
    }

    fn field(&self) -> Result<String> {
        let mut packages = Vec::new();
        for (kind, package) in [("GLIBC_", "libc6"), ("GCC_", "libgcc-s1")] {
            if let Some(version) = self.0.get(kind) {
                let version: Vec<String> = version.iter().map(u32::to_string).collect();
                packages.push(format!("{package} (>= {})", version.join(".")));
            }
        }
        ensure!(!packages.is_empty(), "no binary was found");
        Ok(packages.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_and_an_unknown_library_is_refused() {
        let mut needs = Needs::default();
        needs
            .add("  NEEDED               libc.so.6\n    0x09691a75 0x00 04 GLIBC_2.2.5\n    0x069691b4 0x00 03 GLIBC_2.34\n")
            .unwrap();
        needs
            .add("  NEEDED               libgcc_s.so.1\n    0x0b792650 0x00 02 GCC_3.0\n    0x0 0x00 02 GCC_4.2.0\n    0x09691974 0x00 05 GLIBC_2.3.4\n")
            .unwrap();
        assert_eq!(
            needs.field().unwrap(),
            "libc6 (>= 2.34), libgcc-s1 (>= 4.2.0)"
        );
        let error = needs
            .add("  NEEDED               libgfortran.so.5\n")
            .unwrap_err();
        assert!(error.to_string().contains("libgfortran.so.5"), "{error}");
    }

    #[test]
    fn the_changelog_is_of_this_version_and_has_a_date() {
        assert!(
            recipe("changelog")
                .unwrap()
                .starts_with(&format!("gpu-offload ({VERSION}) "))
        );
        assert!(date().unwrap().parse::<u64>().unwrap() > 1_700_000_000);
    }
}
