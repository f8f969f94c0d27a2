//! Programs of other people on the prefix: a C, a Fortran and a NumPy client, NumPy's own tests and
//! SciPy's. What has tests of its own is scored by the difference from a stock library.

use super::client_run::{Client, Scratch, scratch};
use super::debian::{self, Guests};
use super::report::{Findings, Row};
use super::{Route, Setting, Tally, forced, pytest};
use crate::tools::{quiet, workspace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's Python, for which python3-numpy is packaged.
pub const PYTHON: &str = "/usr/bin/python3";

/// What runs in CI: everything in NumPy that calls BLAS or LAPACK. Where its core is differs.
const NUMPY_SUBSET: [&str; 6] = [
    "numpy.linalg",
    "CORE.tests.test_multiarray",
    "CORE.tests.test_numeric",
    "CORE.tests.test_einsum",
    "numpy.matrixlib",
    "numpy.polynomial",
];

/// The modules of [`NUMPY_SUBSET`] in a version of NumPy, which renamed its core with 2.0.
fn numpy_subset(version: &str) -> Vec<String> {
    let major: Option<u32> = version.split('.').next().and_then(|n| n.parse().ok());
    let core = match major {
        Some(..=1) => "numpy.core",
        _ => "numpy._core",
    };
    let named = NUMPY_SUBSET.iter().map(|m| m.replace("CORE", core));
    named.collect()
}

/// What is run of NumPy's tests in CI, in words.
pub fn part() -> String {
    let modules = NUMPY_SUBSET.map(|module| module.replace("CORE", "numpy's core"));
    format!("of NumPy's tests {}", modules.join(", "))
}

/// SciPy's tests that may fail on the prefix only, and why.
const SCIPY_EXCEPTIONS: &[(&str, &str)] = &[];

/// Where the clients' sources are.
pub fn sources() -> PathBuf {
    workspace().join("tests/clients")
}

/// Compiles a client of `tests/clients` against the libraries in `lib`.
pub fn compile(source: &str, lib: &Path, into: &Scratch) -> Result<PathBuf> {
    let exe = into.path().join(source.replace('.', "-"));
    let fortran = source.ends_with(".f90");
    let mut command = Command::new(if fortran { "gfortran" } else { "gcc" });
    command
        .args(["-O2", "-o"])
        .arg(&exe)
        .arg(sources().join(source));
    if !fortran {
        command.arg("-D_GNU_SOURCE");
    }
    command
        .arg(lib.join("liblapack.so.3"))
        .arg(lib.join("libblas.so.3"))
        .arg(format!("-Wl,-rpath-link,{}", lib.display()))
        .arg("-lm");
    quiet(&mut command)?;
    Ok(exe)
}

/// A Python package's version, and the folder that holds it.
fn installed(module: &str, python: Client) -> Result<(String, PathBuf)> {
    let program = format!(
        "import os, {module}; print({module}.__version__); print(os.path.dirname({module}.__path__[0]))"
    );
    let ended = python.arg("-c").arg(program).run()?;
    match ended.stdout.lines().collect::<Vec<_>>()[..] {
        [version, folder] if ended.success() => Ok((version.to_owned(), folder.into())),
        _ => bail!(
            "no {module} for {PYTHON}; run `cargo xtask setup`\n{}",
            ended.tail()
        ),
    }
}

/// The stock NumPy result is that of the system's libraries: NumPy's version and the real files of the
/// system's BLAS and LAPACK.
fn system_key(version: &str) -> Result<String> {
    let mut key = version.to_owned();
    for name in ["libblas.so.3", "liblapack.so.3"] {
        let real = fs::canonicalize(Path::new("/usr/lib/x86_64-linux-gnu").join(name))
            .with_context(|| format!("the system has no {name}; run `cargo xtask setup`"))?;
        let bytes = fs::metadata(&real)?.len();
        key.push_str(&format!("-{}-{bytes}", real.display()));
    }
    Ok(key)
}

fn numpy(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let (version, root) = installed("numpy", Client::new(PYTHON, &[]))?;
    let modules = if setting.full {
        vec!["numpy".to_owned()]
    } else {
        numpy_subset(&version)
    };
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    let suite = pytest::Suite {
        name: "NumPy",
        modules: &modules,
        root,
        stock_key: system_key(&version)?,
        stock: "the system's own libraries",
        exceptions: &[],
    };
    suite.run(
        setting,
        |libraries| Client::new(PYTHON, libraries),
        &[],
        findings,
    )
}

/// SciPy's own tests.
pub fn scipy(setting: &Setting, guests: &Guests, findings: &mut Findings) -> Result<Tally> {
    let (version, root) = installed("scipy", guests.python(&[]))?;
    let suite = pytest::Suite {
        name: "SciPy",
        modules: &["scipy"],
        root,
        stock_key: format!("{version}-debian-openblas"),
        stock: "Debian's OpenBLAS",
        exceptions: SCIPY_EXCEPTIONS,
    };
    let stock = [debian::openblas()?];
    suite.run(
        setting,
        |libraries| guests.python(libraries),
        &stock,
        findings,
    )
}

/// Runs one client and counts its lines.
pub fn lines_of(client: Client, what: &str) -> Result<Tally> {
    let ended = client.run()?;
    let mut tally = Tally::default();
    for line in ended.stdout.lines().map(str::trim) {
        if line.starts_with("ok ") {
            tally.passed += 1;
        } else if line.starts_with("WRONG") {
            println!("  {what}: {line}");
            tally.failed += 1;
        }
    }
    if !ended.success() && tally.failed == 0 || tally.passed == 0 {
        println!("  {what} ended with {}:\n{}", ended.how(), ended.tail());
        tally.failed += 1;
    }
    println!("{what}: {tally}");
    Ok(tally)
}

/// A client in each of the guests' languages, on `libraries`.
pub fn guest_clients(
    guests: &Guests,
    libraries: &[PathBuf],
    with: impl Fn(Client) -> Client,
    what: &str,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for (client, source) in [
        (guests.octave(libraries), "linear.m"),
        (guests.rscript(libraries), "linear.R"),
        (guests.python(libraries), "scipy_linear.py"),
    ] {
        let client = with(client.arg(sources().join(source)));
        tally += lines_of(client, &format!("{what}{source}"))?;
    }
    Ok(tally)
}

/// Runs the clients.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    if !Path::new(PYTHON).exists() {
        bail!("no {PYTHON}; run `cargo xtask setup`");
    }
    let mut tally = Tally::default();
    let folder = scratch("clients")?;
    let log = folder.path().join("log.jsonl");
    let client = |program: &Path| {
        let client = setting.client(program);
        if setting.route == Route::Force {
            forced::logged(client, &log)
        } else {
            client
        }
    };
    for source in ["linear.c", "linear.f90"] {
        let exe = compile(source, &setting.lib(), &folder)?;
        tally += lines_of(client(&exe), source)?;
    }
    let script = sources().join("numpy_linear.py");
    let python = client(Path::new(PYTHON)).arg(&script).arg(setting.lib());
    tally += lines_of(python, "numpy_linear.py")?;
    if setting.route == Route::Force {
        tally += forced::judge(&log, &["dgemm", "zgemm"])?;
    }
    findings.row(Row {
        suite: "C, Fortran and NumPy clients: residuals".to_owned(),
        ours: tally.to_string(),
        stock: "LAPACK's own bound, 30 n eps".to_owned(),
    });
    tally += numpy(setting, findings)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::numpy_subset;

    #[test]
    fn numpys_core_is_named_as_its_version_does() {
        let second = |version| numpy_subset(version).swap_remove(1);
        assert_eq!(second("1.24.2"), "numpy.core.tests.test_multiarray");
        assert_eq!(second("2.2.4"), "numpy._core.tests.test_multiarray");
    }
}
