//! The OpenBLAS inside NumPy's and SciPy's wheels, before which `install --venv` puts a library of ours.
//!
//! Environments are made from wheels that pip has downloaded once. The packages' own tests must end as before
//! the swap, test by test; heavy calls of both packages run on the simulated GPU through one engine; and the
//! command is killed at every change of the file system.

use super::client_run::{Client, Scratch, as_file_name, cache, scratch};
use super::clients::{PYTHON, lines_of};
use super::report::{Findings, Row};
use super::{Route, Setting, Tally, forced, simulated_cuda};
use crate::tools::{has_program, quiet, step, workspace};
use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A pair of wheels.
struct Pair {
    name: &'static str,
    /// What pip is asked for.
    wanted: &'static [&'static str],
    /// Only where Python is this; the oldest wheels are those of one version.
    only: Option<&'static str>,
}

/// The newest that install, and the oldest that do on CPython 3.11.
const PAIRS: [Pair; 2] = [
    Pair {
        name: "newest",
        wanted: &["numpy", "scipy"],
        only: None,
    },
    Pair {
        name: "oldest",
        wanted: &["numpy==1.23.2", "scipy==1.9.2"],
        only: Some("3.11"),
    },
];

/// What runs the packages' own tests; the old NumPy's use a part of setuptools that is gone since.
const RUNNERS: [&str; 3] = ["pytest", "hypothesis", "setuptools<65"];

/// What runs in CI, with the newest pair: everything of numpy.linalg, and the solvers and Cholesky of SciPy.
const SUBSET: [&str; 3] = [
    "numpy.linalg",
    "scipy.linalg.tests.test_decomp_cholesky",
    "scipy.linalg.tests.test_solvers",
];
/// Everything that calls BLAS or LAPACK by itself.
const FULL: [&str; 2] = ["numpy.linalg", "scipy.linalg"];

/// What is run in CI, in words.
pub fn part() -> String {
    format!(
        "the {} of {} pairs of NumPy and SciPy; of their tests {}",
        PAIRS[0].name,
        PAIRS.len(),
        SUBSET.join(", ")
    )
}

/// System calls before which a command is killed, each at every one of its turns.
const CHANGES: [&str; 5] = ["rename", "linkat", "unlink", "rmdir", "fsync"];

/// Uses both packages.
const WORKS: &str = "import numpy, scipy.linalg; a = numpy.eye(3) * 2
assert (numpy.linalg.solve(a, a) == numpy.eye(3)).all() and scipy.linalg.det(a) == 8";

/// SciPy's part takes three minutes on an idle core of the development machine (2026-12-02).
const DEADLINE: Duration = Duration::from_secs(3600);

/// Runs the suite.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let version = python_version()?;
    let pairs = if setting.full {
        &PAIRS[..]
    } else {
        &PAIRS[..1]
    };
    let mut sum = Tally::default();
    for pair in pairs {
        if pair.only.is_some_and(|only| only != version) {
            println!("  {}: skipped, Python is {}", pair.name, version);
            sum.skipped += 1;
            continue;
        }
        let work = scratch("wheels")?;
        let tried = Tried {
            tool: setting.prefix.join("bin/gpu-offload"),
            engine: setting.lib().join("libgpu_offload.so.0"),
            venv: work.path().join("venv"),
            wheels: wheels(pair, &version)?,
            work,
        };
        let tally = tried.all(setting)?;
        findings.row(Row {
            suite: format!("NumPy's and SciPy's wheels, {}", pair.name),
            ours: tally.to_string(),
            stock: "the same tests before the swap".to_owned(),
        });
        println!("{} wheels: {tally}", pair.name);
        sum += tally;
    }
    Ok(sum)
}

/// A folder with the wheels, downloaded once.
fn wheels(pair: &Pair, python: &str) -> Result<PathBuf> {
    let name = format!("wheels-{python}-{}", pair.name);
    let folder = cache()?.join(as_file_name(&name));
    let complete = folder.join("complete");
    if !complete.exists() {
        let progress = step(&format!(
            "{}: wheels of {}",
            pair.name,
            pair.wanted.join(" and ")
        ));
        let mut pip = Command::new(PYTHON);
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--only-binary=:all:",
            "--dest",
        ])
        .arg(&folder)
        .args(pair.wanted)
        .args(RUNNERS);
        quiet(&mut pip).context("pip cannot download wheels")?;
        progress.finish_and_clear();
        fs::write(&complete, "")?;
    }
    Ok(folder)
}

fn make(venv: &Path, wheels: &Path) -> Result<()> {
    let progress = step("an environment with wheels");
    quiet(Command::new(PYTHON).args(["-m", "venv"]).arg(venv))?;
    let all: Vec<PathBuf> = fs::read_dir(wheels)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "whl"))
        .collect();
    pip(&venv.join("bin/python"), &["install", "--no-deps"], &all)?;
    progress.finish_and_clear();
    Ok(())
}

fn pip(python: &Path, what: &[&str], files: &[PathBuf]) -> Result<()> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
        .args(what)
        .args(files);
    // Compiled files would differ in their dates.
    quiet(pip.env("PIP_NO_INDEX", "1").env("PIP_NO_COMPILE", "1")).map(drop)
}

/// An environment with the newest wheels, removed when dropped.
pub struct Environment(Scratch);

impl Environment {
    /// Its folder.
    pub fn venv(&self) -> PathBuf {
        self.0.path().join("venv")
    }

    /// Its Python.
    pub fn python(&self) -> PathBuf {
        self.venv().join("bin/python")
    }
}

/// Makes one.
pub fn environment() -> Result<Environment> {
    let environment = Environment(scratch("wheels")?);
    make(&environment.venv(), &wheels(&PAIRS[0], &python_version()?)?)?;
    Ok(environment)
}

/// Such as `3.11`.
fn python_version() -> Result<String> {
    let program = "import sys; print('%d.%d' % sys.version_info[:2], end='')";
    quiet(Command::new(PYTHON).args(["-c", program]))
}

/// One environment and what is tried in it.
struct Tried {
    tool: PathBuf,
    engine: PathBuf,
    venv: PathBuf,
    wheels: PathBuf,
    work: Scratch,
}

impl Tried {
    fn all(&self, setting: &Setting) -> Result<Tally> {
        let mut sum = Tally::default();
        self.make()?;
        let modules = if setting.full { &FULL[..] } else { &SUBSET[..] };
        let stock = self.tests(self.cpu(), modules, "the wheels' own OpenBLAS")?;
        sum += self.client(Client::new(self.python(), &[]), "-", "own")?;
        let before = listing(&self.venv)?;
        sum += self.served(setting, modules, &stock)?;
        sum.check(same("run", &before, &listing(&self.venv)?));
        self.command("install")?;
        sum += self.client(self.cpu(), "-", "swapped")?;
        sum += compared(
            &stock,
            &self.tests(self.cpu(), modules, "the swapped wheels")?,
        );
        let python = Client::new(self.python(), &[simulated_cuda()?]);
        sum += self.forced(setting, python, "swapped")?;
        self.command("uninstall")?;
        sum.check(same("uninstall", &before, &listing(&self.venv)?));

        sum += self.killed()?;
        sum += self.replaced()?;
        Ok(sum)
    }

    fn python(&self) -> PathBuf {
        self.venv.join("bin/python")
    }

    /// Python on the CPU route.
    fn cpu(&self) -> Client {
        Client::new(self.python(), &[]).env("GPU_OFFLOAD", "off")
    }

    /// Python by `gpu-offload run`, which leaves the environment as it is.
    fn run(&self, libraries: &[PathBuf]) -> Client {
        Client::new(&self.tool, libraries)
            .env("XDG_CACHE_HOME", self.work.path())
            .arg("run")
            .arg(self.python())
    }

    /// Both packages by `run`: their tests, and heavy calls on the simulated GPU.
    fn served(
        &self,
        setting: &Setting,
        modules: &[&str],
        stock: &BTreeMap<String, String>,
    ) -> Result<Tally> {
        let cpu = || self.run(&[]).env("GPU_OFFLOAD", "off");
        let mut sum = self.client(cpu(), "-", "served")?;
        sum += compared(stock, &self.tests(cpu(), modules, "the wheels by `run`")?);
        sum += self.forced(setting, self.run(&[simulated_cuda()?]), "served")?;
        Ok(sum)
    }

    fn make(&self) -> Result<()> {
        make(&self.venv, &self.wheels)
    }

    fn pip(&self, what: &[&str], files: &[PathBuf]) -> Result<()> {
        pip(&self.python(), what, files)
    }

    fn command(&self, command: &str) -> Result<String> {
        quiet(
            Command::new(&self.tool)
                .env("XDG_STATE_HOME", self.work.path())
                .args([command, "--venv"])
                .arg(&self.venv),
        )
    }

    fn client(&self, client: Client, engine: &str, wanted: &str) -> Result<Tally> {
        let script = workspace().join("tests/wheels/linear.py");
        let client = client.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
        lines_of(
            client.args([engine, wanted]),
            &format!("linear.py, {wanted}, engine {engine}"),
        )
    }

    /// Heavy calls of both packages on the simulated GPU, by a Python that is `wanted`.
    fn forced(&self, setting: &Setting, python: Client, wanted: &str) -> Result<Tally> {
        let log = self.work.path().join(format!("{wanted}.jsonl"));
        let mut forced_setting = setting.clone();
        forced_setting.route = Route::Force;
        let client = forced::logged(forced_setting.routed(python), &log);
        let engine = self.engine.canonicalize()?.display().to_string();
        let mut tally = self.client(client, &engine, wanted)?;
        let routines = [
            "sgemm", "dgemm", "zgemm", "dsyrk", "dsymm", "dgesv", "dgetrf", "dpotrf", "dgeqrf",
            "zungqr", "dsyevd", "dsyevr", "dgesdd", "zgesdd",
        ];
        tally += forced::judge(&log, &routines)?;
        Ok(tally)
    }

    /// How each of the packages' tests ends.
    fn tests(
        &self,
        python: Client,
        modules: &[&str],
        what: &str,
    ) -> Result<BTreeMap<String, String>> {
        let progress = step(&format!("{} on {what}", modules.join(", ")));
        let report = self.work.path().join("report.xml");
        let ended = python
            .args([
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--tb=no",
                "-m",
                "not slow",
            ])
            .arg(format!("--junit-xml={}", report.display()))
            .arg("--pyargs")
            .args(modules)
            // Repeatable sums: which thread adds what last must not decide a test.
            .env("OPENBLAS_NUM_THREADS", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONHASHSEED", "0")
            .folder(self.work.path())
            .deadline(DEADLINE)
            .run()?;
        progress.finish_and_clear();
        let text = fs::read_to_string(&report)
            .with_context(|| format!("pytest ended with {}:\n{}", ended.how(), ended.tail()))?;
        fs::remove_file(&report)?;
        let outcomes = outcomes(&text);
        ensure!(
            outcomes.len() > 100,
            "only {} tests were found:\n{}",
            outcomes.len(),
            ended.tail()
        );
        Ok(outcomes)
    }

    /// Kills both commands before each change of the file system; the packages work at once, and the other
    /// command given then ends as if nothing had happened.
    fn killed(&self) -> Result<Tally> {
        let mut tally = Tally::default();
        if !has_program("strace") {
            println!("  strace is not installed: no command was killed");
            tally.skipped += 1;
            return Ok(tally);
        }
        let before = listing_of(&self.venv, touched)?;
        for (command, back) in [("install", "uninstall"), ("uninstall", "install")] {
            let mut points = 0;
            for call in CHANGES {
                for at in 1.. {
                    if command == "uninstall" {
                        self.command("install")?;
                    }
                    if !self.killed_at(command, call, at)? {
                        self.command("install")?;
                        self.command("uninstall")?;
                        break;
                    }
                    points += 1;
                    let what = format!("{command} killed at {call} {at}");
                    let ended = self.cpu().args(["-c", WORKS]).run()?;
                    tally.check(ended.success());
                    if !ended.success() {
                        println!("  {what}:\n{}", ended.tail());
                    }
                    // By turns the same command again and the other one.
                    let next = if points % 2 == 0 { command } else { back };
                    if let Err(error) = self.command(next) {
                        // Killed before its first change.
                        ensure!(error.to_string().contains("nothing to uninstall"), error);
                    }
                    self.command("install")?;
                    self.command("uninstall")?;
                    let after = listing_of(&self.venv, touched)?;
                    tally.check(same(&what, &before, &after));
                }
            }
            println!("  {command} was killed at {points} points");
            tally.check(points >= 10);
        }
        Ok(tally)
    }

    /// Runs a command that is killed before its n-th call of this kind; whether there were as many.
    fn killed_at(&self, command: &str, call: &str, n: u32) -> Result<bool> {
        let mut strace = Command::new("strace");
        strace
            .env("XDG_STATE_HOME", self.work.path())
            .args(["-qq", "-f", "-o", "/dev/null", "-e"])
            .arg(format!("trace={call}"))
            .arg("-e")
            .arg(format!("inject={call}:signal=KILL:when={n}"))
            .arg(&self.tool)
            .args([command, "--venv"])
            .arg(&self.venv);
        let output = strace.output().context("cannot start strace")?;
        if !output.status.success() {
            // Anything else than the signal is a command that failed by itself.
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(said.trim().is_empty(), "{command} under strace: {said}");
        }
        Ok(!output.status.success())
    }

    /// pip replaces, then removes a swapped package.
    fn replaced(&self) -> Result<Tally> {
        let mut tally = Tally::default();
        let kept = || -> Result<usize> {
            let is_kept = |path: &&PathBuf| path.to_string_lossy().contains("/orig-");
            Ok(listing(&self.venv)?.keys().filter(is_kept).count())
        };
        self.command("install")?;
        tally.check(kept()? == 2);
        let numpy = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            name.starts_with(b"numpy-")
        };
        let wheel: Vec<PathBuf> = fs::read_dir(&self.wheels)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .filter(numpy)
            .collect();
        self.pip(&["install", "--no-deps", "--force-reinstall"], &wheel)?;
        // RECORD names the kept original, so that pip has removed it too.
        tally.check(kept()? == 1);
        self.command("install")?;
        tally.check(kept()? == 2);
        tally += self.client(self.cpu(), "-", "swapped")?;
        self.pip(&["uninstall", "--yes", "numpy", "scipy"], &[])?;
        let gone = listing(&self.venv)?;
        let left: Vec<&PathBuf> = gone
            .keys()
            .filter(|path| path.to_string_lossy().contains("openblas"))
            .collect();
        if !left.is_empty() {
            println!("  pip uninstall left {left:?}");
        }
        tally.check(left.is_empty());
        self.command("uninstall")?;
        tally.check(!self.venv.join("gpu-offload-wheels.json").exists());
        Ok(tally)
    }
}

/// The result of each test in pytest's XML report.
fn outcomes(xml: &str) -> BTreeMap<String, String> {
    let attribute = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!(" {name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let mut found = BTreeMap::new();
    for case in xml.split("<testcase ").skip(1) {
        let case = format!(" {case}");
        let (Some(class), Some(name)) = (attribute(&case, "classname"), attribute(&case, "name"))
        else {
            continue;
        };
        let ended = ["failure", "error", "skipped"]
            .iter()
            .find(|what| case.contains(&format!("<{what} ")));
        let ended = ended.map_or("passed", |what| what).to_owned();
        found.insert(format!("{class}::{name}"), ended);
    }
    found
}

/// Each test must end as it did before.
fn compared(stock: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) -> Tally {
    let mut tally = Tally::default();
    for name in stock
        .keys()
        .chain(ours.keys().filter(|name| !stock.contains_key(*name)))
    {
        let (before, after) = (stock.get(name), ours.get(name));
        if before != after {
            println!("  {name}: before {before:?}, after {after:?}");
        }
        tally.check(before == after);
    }
    let count =
        |all: &BTreeMap<String, String>, what| all.values().filter(|ended| *ended == what).count();
    println!(
        "  tests of NumPy and SciPy: {} passed, {} skipped, {} failed; before the swap {}, {}, {}",
        count(ours, "passed"),
        count(ours, "skipped"),
        count(ours, "failure") + count(ours, "error"),
        count(stock, "passed"),
        count(stock, "skipped"),
        count(stock, "failure") + count(stock, "error"),
    );
    tally
}

/// Every file below a folder, with what it holds.
type Listing = BTreeMap<PathBuf, Vec<u8>>;

fn listing(folder: &Path) -> Result<Listing> {
    listing_of(folder, |_| true)
}

/// What the commands may touch: all but the packages' own folders.
fn touched(path: &Path) -> bool {
    let within = path
        .parent()
        .is_some_and(|parent| parent.ends_with("site-packages"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !within || name.ends_with(".libs") || name.ends_with(".dist-info") || name.starts_with('.')
}

/// The folders that are not `wanted` are left out.
fn listing_of(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Listing> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?.file_type();
            // Python's own caches come and go.
            if path.file_name().is_some_and(|name| name == "__pycache__") {
                continue;
            }
            if kind.is_dir() {
                if wanted(&path) {
                    folders.push(path);
                }
            } else if kind.is_symlink() {
                let text = fs::read_link(&path)?.into_os_string().as_bytes().to_vec();
                files.insert(path, text);
            } else {
                let digest = Sha256::digest(fs::read(&path)?).to_vec();
                files.insert(path, digest);
            }
        }
    }
    Ok(files)
}

/// Whether all files are as they were.
fn same(what: &str, before: &Listing, after: &Listing) -> bool {
    let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let mut all: Vec<&PathBuf> = before.keys().chain(after.keys()).filter(differs).collect();
    all.dedup();
    if !all.is_empty() {
        println!("  after {what} these differ: {all:?}");
    }
    all.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="a.TestB" name="test_c[1]" time="0.1" /><testcase classname="a" name="d" time="0">
<skipped type="pytest.skip" message="no" /></testcase><testcase classname="a" name="e" time="0"><failure message="x">
</failure></testcase></testsuite></testsuites>"#;

    #[test]
    fn reports_are_read_and_a_difference_fails() {
        let stock = outcomes(XML);
        let all: Vec<(&str, &str)> = stock
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        let wanted = [
            ("a.TestB::test_c[1]", "passed"),
            ("a::d", "skipped"),
            ("a::e", "failure"),
        ];
        assert_eq!(all, wanted);
        assert_eq!(compared(&stock, &stock).failed, 0);
        let ours = outcomes(&XML.replace("<failure message=\"x\">\n</failure>", ""));
        assert_eq!(compared(&stock, &ours).failed, 1);
        let fewer = outcomes(&XML.replace("name=\"d\"", "name=\"other\""));
        assert_eq!(compared(&stock, &fewer).failed, 2);
    }
}
