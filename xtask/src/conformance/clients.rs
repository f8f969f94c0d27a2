//! Programs of other people on the prefix: NumPy's own tests, a C, a Fortran and a NumPy client, and
//! with `--full` Octave and R. NumPy's tests are scored by the difference from the stock library.

use super::client_run::{Client, Scratch, as_file_name, cache, scratch};
use super::{Route, Setting, Tally, forced};
use crate::tools::{has_program, quiet, step, workspace};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's Python, for which python3-numpy is packaged.
pub const PYTHON: &str = "/usr/bin/python3";

/// What runs in CI: everything in NumPy that calls BLAS or LAPACK.
const NUMPY_SUBSET: &[&str] = &[
    "numpy.linalg",
    "numpy.core.tests.test_multiarray",
    "numpy.core.tests.test_numeric",
    "numpy.core.tests.test_einsum",
    "numpy.matrixlib",
    "numpy.polynomial",
];

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

/// How NumPy's tests ended: the failing ones and how many passed.
struct Outcome {
    passed: u64,
    failing: BTreeSet<String>,
}

/// Reads pytest's `-q -rfE` output: `FAILED path::test - why`, and the last line's counts.
fn outcome(output: &str) -> Option<Outcome> {
    let failing = output
        .lines()
        .filter_map(|line| {
            line.strip_prefix("FAILED ")
                .or_else(|| line.strip_prefix("ERROR "))
        })
        .map(|line| line.split(" - ").next().unwrap_or(line).trim().to_owned())
        .collect();
    let last = output.lines().rev().find(|line| line.contains(" passed"))?;
    let words: Vec<&str> = last.split_whitespace().collect();
    let at = words.iter().position(|w| w.starts_with("passed"))?;
    let passed = words.get(at.checked_sub(1)?)?.parse().ok()?;
    Some(Outcome { passed, failing })
}

fn numpy_tests(client: Client, full: bool, text: &str) -> Result<Outcome> {
    let dir = scratch("numpy")?;
    let progress = step(text);
    let mut client = client
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            "-rfE",
        ])
        .arg("--pyargs");
    client = if full {
        client.arg("numpy")
    } else {
        client.args(NUMPY_SUBSET)
    };
    // Tests that want more memory than that skip themselves: NumPy asks for up to 16 GB otherwise.
    let ended = client
        .env("NPY_AVAILABLE_MEM", "2 GB")
        .folder(dir.path())
        .run()?;
    progress.finish_and_clear();
    outcome(&ended.stdout).with_context(|| {
        format!(
            "NumPy's tests ended with {}:\n{}",
            ended.how(),
            ended.tail()
        )
    })
}

/// A name for the stock library: NumPy's version and the real files of the system's BLAS and LAPACK.
fn stock_key(full: bool) -> Result<String> {
    let numpy = quiet(Command::new(PYTHON).args(["-c", "import numpy; print(numpy.__version__)"]))
        .context("no NumPy for /usr/bin/python3; run `cargo xtask setup`")?;
    let mut key = format!(
        "numpy-{}-{}",
        numpy.trim(),
        if full { "full" } else { "subset" }
    );
    for name in ["libblas.so.3", "liblapack.so.3"] {
        let real = fs::canonicalize(Path::new("/usr/lib/x86_64-linux-gnu").join(name))
            .with_context(|| format!("the system has no {name}; run `cargo xtask setup`"))?;
        let bytes = fs::metadata(&real)?.len();
        key.push_str(&format!("-{}-{bytes}", real.display()));
    }
    Ok(key)
}

fn stock_outcome(full: bool) -> Result<Outcome> {
    let file = cache()?.join(as_file_name(&stock_key(full)?));
    if let Ok(text) = fs::read_to_string(&file) {
        let mut lines = text.lines();
        if let Some(passed) = lines.next().and_then(|l| l.parse().ok()) {
            return Ok(Outcome {
                passed,
                failing: lines.map(str::to_owned).collect(),
            });
        }
    }
    let found = numpy_tests(
        Client::new(PYTHON, &[]),
        full,
        "NumPy's tests on the system's own libraries",
    )?;
    let failing: Vec<&str> = found.failing.iter().map(String::as_str).collect();
    fs::write(&file, format!("{}\n{}", found.passed, failing.join("\n")))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(found)
}

fn numpy(setting: &Setting) -> Result<Tally> {
    let stock = stock_outcome(setting.full)?;
    let ours = numpy_tests(
        setting.client(PYTHON),
        setting.full,
        "NumPy's tests on the prefix",
    )?;
    let worse: Vec<&String> = ours.failing.difference(&stock.failing).collect();
    println!(
        "NumPy: {} tests passed, {} failed; the system's libraries: {} passed, {} failed",
        ours.passed,
        ours.failing.len(),
        stock.passed,
        stock.failing.len()
    );
    for name in &worse {
        println!("  fails only on the prefix: {name}");
    }
    let mut tally = Tally {
        passed: ours.passed,
        failed: worse.len() as u64,
        skipped: 0,
    };
    let all = |o: &Outcome| o.passed + o.failing.len() as u64;
    if all(&ours) < all(&stock) {
        println!(
            "  {} tests did not run on the prefix",
            all(&stock) - all(&ours)
        );
        tally.failed += all(&stock) - all(&ours);
    }
    Ok(tally)
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

/// Runs the clients.
pub fn run(setting: &Setting) -> Result<Tally> {
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
    tally += numpy(setting)?;
    if setting.full {
        for (program, arguments, source) in [
            ("octave-cli", &["--no-gui", "--norc"][..], "linear.m"),
            ("Rscript", &[], "linear.R"),
        ] {
            if !has_program(program) {
                println!("{program} is not installed; --full needs it (octave, r-base-core)");
                tally.failed += 1;
                continue;
            }
            let mut run = setting
                .client(program)
                .args(arguments)
                .arg(sources().join(source));
            // R's start script replaces LD_LIBRARY_PATH.
            run = run.env(
                "R_LD_LIBRARY_PATH",
                format!("{}:/usr/lib/R/lib", setting.lib().display()),
            );
            tally += lines_of(run, source)?;
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::outcome;

    #[test]
    fn pytest_output_is_read() {
        let text = "..F\nFAILED a/b.py::test_x[1] - AssertionError\nERROR c.py\n1 failed, 2 passed, 3 skipped in 4.0s\n";
        let o = outcome(text).expect("counts");
        assert_eq!((o.passed, o.failing.len()), (2, 2));
        assert!(o.failing.contains("a/b.py::test_x[1]"));
        assert!(outcome("no tests ran").is_none());
    }
}
