//! `cargo xtask dist`: a prefix that is ready for LD_LIBRARY_PATH, and packages of it.

mod conda;
mod deb;
mod openblas;
mod stage;
mod tar;

use crate::tools::{quiet, target_dir, workspace};
use crate::{build, openblas as archive};
use anyhow::{Context, Result, ensure};
pub use conda::{build as build_recipe, rattler};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask dist`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Where to lay it out
    #[arg(long, value_name = "DIR", default_value = "dist/prefix")]
    pub prefix: PathBuf,
    /// Keep the symbol tables and line numbers
    #[arg(long)]
    pub unstripped: bool,
    /// Lay out a debug build
    #[arg(long)]
    pub debug: bool,
    /// Also build a Debian package, into dist/
    #[arg(long, conflicts_with_all = ["unstripped", "debug"])]
    pub deb: bool,
    /// Also pack the prefix into a tarball, into dist/
    #[arg(long, conflicts_with_all = ["unstripped", "debug"])]
    pub tar: bool,
    /// Also build conda packages, as a channel in dist/conda; rattler-build comes from PyPI
    #[arg(long, conflicts_with_all = ["unstripped", "debug"])]
    pub conda: bool,
}

/// What cargo builds, and its place in the prefix.
const BUILT: [(&str, &str); 5] = [
    ("libblas_shim.so", "lib/libblas.so.3"),
    ("liblapack_shim.so", "lib/liblapack.so.3"),
    ("libgpu_offload.so", "lib/libgpu_offload.so.0"),
    // Not loaded from here: what `install --venv` fits to a wheel.
    ("libwheel_shim.so", "lib/gpu-offload-wheel.so"),
    ("gpu-offload", "bin/gpu-offload"),
];

/// Builds, lays out and says where.
pub fn run(args: &Args) -> Result<()> {
    let prefix = lay_out(args)?;
    println!("{}", prefix.display());
    if args.deb {
        println!("{}", deb::pack(&prefix)?.display());
    }
    if args.tar {
        println!("{}", tar::pack(&prefix)?.display());
    }
    if args.conda {
        println!("{}", conda::pack(&prefix)?.display());
    }
    Ok(())
}

/// Builds the Debian package of a prefix; returns where it lies.
pub fn debian_package(prefix: &Path) -> Result<PathBuf> {
    deb::pack(prefix)
}

/// Packs a prefix into a tarball; returns where it lies.
pub fn tarball(prefix: &Path) -> Result<PathBuf> {
    tar::pack(prefix)
}

/// Builds the conda packages of a prefix; returns the channel.
pub fn conda_channel(prefix: &Path) -> Result<PathBuf> {
    conda::pack(prefix)
}

/// Builds and lays out; returns the prefix as an absolute path.
pub fn lay_out(args: &Args) -> Result<PathBuf> {
    let built = build::build(&build::Args { debug: args.debug })?;
    let openblas = archive::prepare(&archive::Args::default())?;
    let prefix = workspace().join(&args.prefix);
    for folder in ["lib", "bin", "include", "share/licences"] {
        fs::create_dir_all(prefix.join(folder))
            .with_context(|| format!("cannot create {}", prefix.join(folder).display()))?;
    }
    for (from, to) in BUILT {
        put(&built.join(from), &prefix.join(to), !args.unstripped)?;
    }
    put(
        &target_dir().join(build::HOOK).join("libloader_hook.so"),
        &prefix.join("lib/gpu-offload-hook.so"),
        !args.unstripped,
    )?;
    let list = |path: PathBuf| -> Result<BTreeSet<String>> {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let mut blas = list(workspace().join("blas-shim/exports.txt"))?;
    let kernels = list(openblas.join("names/kernels.txt"))?;
    blas.extend(
        kernels
            .iter()
            .map(|name| format!("{}{name}", archive::KERNEL_PREFIX)),
    );
    // Not a kernel; see blas-shim/src/rest.rs.
    blas.insert(format!("{}rest", archive::KERNEL_PREFIX));
    exports_are(&prefix.join("lib/libblas.so.3"), &blas)?;
    let lapack = list(workspace().join("lapack-shim/exports.txt"))?;
    exports_are(&prefix.join("lib/liblapack.so.3"), &lapack)?;

    let lapacke = target_dir().join("liblapacke.so.3");
    link_lapacke(&openblas, &prefix.join("lib"), &lapacke)?;
    put(
        &lapacke,
        &prefix.join("lib/liblapacke.so.3"),
        !args.unstripped,
    )?;

    openblas::beside(&prefix.join("lib").join(openblas::SONAME))?;

    for header in fs::read_dir(openblas.join("include"))? {
        let header = header?;
        fs::copy(
            header.path(),
            prefix.join("include").join(header.file_name()),
        )?;
    }
    let licences = prefix.join("share/licences");
    for notice in ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.md"] {
        fs::copy(workspace().join(notice), licences.join(notice))
            .with_context(|| format!("cannot copy {notice}"))?;
    }
    for notice in ["openblas", "lapack"] {
        let from = openblas.join("licences").join(notice);
        // A build from source brings no Debian notice of LAPACK's.
        if from.is_file() {
            fs::copy(&from, licences.join(notice))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(prefix)
}

/// Whether a library exports exactly these names: nothing missing, nothing of Rust's, no internal kernel.
fn exports_are(library: &Path, wanted: &BTreeSet<String>) -> Result<()> {
    let text = quiet(
        Command::new("nm")
            .args(["-D", "--defined-only", "-f", "posix"])
            .arg(library),
    )?;
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    let missing: Vec<&String> = wanted.difference(&exported).take(8).collect();
    let extra: Vec<&String> = exported.difference(wanted).take(8).collect();
    ensure!(
        missing.is_empty() && extra.is_empty(),
        "{} does not export what exports.txt says; missing: {missing:?}, extra: {extra:?}",
        library.display()
    );
    Ok(())
}

/// Copies through a temporary name, so that a process that has the old file mapped keeps it.
fn put(from: &Path, to: &Path, strip: bool) -> Result<()> {
    let temporary = to.with_extension(format!("tmp{}", std::process::id()));
    fs::copy(from, &temporary)
        .with_context(|| format!("cannot copy {} to {}", from.display(), temporary.display()))?;
    if strip {
        quiet(
            Command::new("strip")
                .arg("--strip-unneeded")
                .arg(&temporary),
        )?;
    }
    let mode = if to.parent().is_some_and(|parent| parent.ends_with("bin")) {
        0o755
    } else {
        0o644
    };
    fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))?;
    fs::rename(&temporary, to).with_context(|| format!("cannot create {}", to.display()))?;
    Ok(())
}

/// Links liblapacke.so.3 from the static LAPACKE; what it needs of the test matrix generators comes from
/// libtmglib.a and stays private.
fn link_lapacke(openblas: &Path, lib: &Path, to: &Path) -> Result<()> {
    let script = to.with_extension("map");
    let mut text = String::from("{\n  global:\n");
    for name in archive::exports::listed(&[archive::exports::LAPACKE]) {
        text.push_str(&format!("    {name};\n"));
    }
    text.push_str("  local: *;\n};\n");
    fs::write(&script, text)?;
    quiet(
        Command::new("cc")
            .args([
                "-shared",
                "-Wl,-soname,liblapacke.so.3",
                "-Wl,-z,defs",
                "-Wl,-z,noexecstack",
                "-Wl,--enable-new-dtags,-rpath,$ORIGIN",
            ])
            .arg("-o")
            .arg(to)
            .arg(format!("-Wl,--version-script={}", script.display()))
            .arg("-Wl,--whole-archive")
            .arg(openblas.join("lib/liblapacke.a"))
            .arg("-Wl,--no-whole-archive")
            .arg(openblas.join("lib/libtmglib.a"))
            .arg(lib.join("liblapack.so.3"))
            .arg(lib.join("libblas.so.3"))
            .args(["-lm", "-lc"]),
    )
    .context("cannot link liblapacke.so.3")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_and_an_extra_export_are_refused() {
        let dir = std::env::temp_dir().join(format!("gpu-offload-exports-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (source, library) = (dir.join("l.c"), dir.join("l.so"));
        fs::write(&source, "void dgemm_(void) {}\nvoid leak(void) {}\n").unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-nostdlib", "-o"]);
        quiet(cc.arg(&library).arg(&source)).unwrap();
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        exports_are(&library, &names(&["dgemm_", "leak"])).unwrap();
        let extra = exports_are(&library, &names(&["dgemm_"])).unwrap_err();
        assert!(extra.to_string().contains("extra: [\"leak\"]"), "{extra}");
        let missing = exports_are(&library, &names(&["dgemm_", "leak", "sgemm_"])).unwrap_err();
        assert!(
            missing.to_string().contains("missing: [\"sgemm_\"]"),
            "{missing}"
        );
        fs::remove_dir_all(&dir).unwrap();
    }
}
