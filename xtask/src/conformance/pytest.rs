//! Python packages' own test suites, run by pytest on the prefix and scored by the difference from a
//! stock library: a test that fails on the prefix only fails the run, unless it fails on the same OpenBLAS
//! archive without us too, or is an exception with a reason that is still needed.

use super::client_run::{Client, Ended, as_file_name, cache, scratch};
use super::report::{Findings, Row};
use super::{Setting, Tally, baseline};
use crate::tools::step;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// SciPy's suite takes 12 minutes on an idle core of the development machine (AMD Zen 3, 2026-12-01);
/// ten times that on a crowded one is still no hang.
const DEADLINE: Duration = Duration::from_secs(7200);

/// One suite.
pub struct Suite<'a> {
    /// In the report.
    pub name: &'a str,
    /// What `--pyargs` gets.
    pub modules: &'a [&'a str],
    /// The folder that holds the package: tests are named by their path below it.
    pub root: PathBuf,
    /// What the cached stock result depends on, besides name and modules.
    pub stock_key: String,
    /// In words, for the report.
    pub stock: &'a str,
    /// Tests that may fail on the prefix only, and why.
    pub exceptions: &'a [(&'a str, &'a str)],
}

/// How a suite ended: the failing tests and how many passed.
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
        .map(|line| line.split(" - ").next().unwrap_or(line).trim())
        // A file that cannot be collected is named from the working folder instead.
        .map(|name| match name.find("dist-packages/") {
            Some(at) => name[at + "dist-packages/".len()..].to_owned(),
            None => name.to_owned(),
        })
        .collect();
    let counts = |line: &&str| {
        let counted = [" passed", " failed", " error"];
        line.contains(" in ") && counted.iter().any(|word| line.contains(word))
    };
    let last = output.lines().rev().find(counts)?;
    let words: Vec<&str> = last.split_whitespace().collect();
    let passed = match words.iter().position(|w| w.starts_with("passed")) {
        Some(at) => words.get(at.checked_sub(1)?)?.parse().ok()?,
        None => 0,
    };
    Some(Outcome { passed, failing })
}

/// A test's name, `package/tests/test_x.py::test`, as an argument for `--pyargs`.
fn argument(name: &str) -> String {
    let (file, test) = match name.split_once("::") {
        Some((file, test)) => (file, format!("::{test}")),
        None => (name, String::new()),
    };
    let module = file.trim_end_matches(".py").replace('/', ".");
    module + &test
}

/// Why a test may fail on the prefix only.
const ARCHIVES_OWN: &str = "fails on the same OpenBLAS archive without us too, in the same run";

impl Suite<'_> {
    fn play<S: AsRef<OsStr>>(&self, client: Client, modules: &[S], text: &str) -> Result<Outcome> {
        let dir = scratch("pytest")?;
        let progress = step(text);
        let ended: Ended = client
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"])
            .args(["-rfE", "--continue-on-collection-errors"])
            // What the packages themselves run by default.
            .args(["-m", "not slow"])
            .arg("--rootdir")
            .arg(&self.root)
            .arg("--pyargs")
            .args(modules)
            // Repeatable sums: which thread adds what last must not decide a test.
            .env("OPENBLAS_NUM_THREADS", "1")
            // Tests that want more memory skip themselves: NumPy asks for up to 16 GB otherwise.
            .env("NPY_AVAILABLE_MEM", "2 GB")
            .folder(dir.path())
            .deadline(DEADLINE)
            .run()?;
        progress.finish_and_clear();
        outcome(&ended.stdout).with_context(|| {
            let name = self.name;
            format!(
                "{name}'s tests ended with {}:\n{}",
                ended.how(),
                ended.tail()
            )
        })
    }

    fn stock_file(&self) -> Result<PathBuf> {
        let modules = match self.modules {
            [one] => one,
            _ => "subset",
        };
        Ok(cache()?.join(as_file_name(&format!(
            "{}-{modules}-1-thread-from-root-{}",
            self.name, self.stock_key
        ))))
    }

    fn stock_outcome(&self, client: Client) -> Result<Outcome> {
        let file = self.stock_file()?;
        if let Ok(text) = fs::read_to_string(&file) {
            let mut lines = text.lines();
            if let Some(passed) = lines.next().and_then(|l| l.parse().ok()) {
                return Ok(Outcome {
                    passed,
                    failing: lines.map(str::to_owned).collect(),
                });
            }
        }
        let text = format!("{}'s tests on {}", self.name, self.stock);
        let found = self.play(client, self.modules, &text)?;
        let failing: Vec<&str> = found.failing.iter().map(String::as_str).collect();
        fs::write(&file, format!("{}\n{}", found.passed, failing.join("\n")))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(found)
    }

    /// Those of some failing tests that fail on the archive without us as well.
    fn failing_alike(
        &self,
        client: impl Fn(&[PathBuf]) -> Client,
        failing: &[&String],
    ) -> Result<BTreeSet<String>> {
        if failing.is_empty() {
            return Ok(BTreeSet::new());
        }
        let tests: Vec<String> = failing.iter().map(|name| argument(name)).collect();
        let text = format!("{} of them on the archive without us", tests.len());
        let found = self.play(client(&[baseline()?]), &tests, &text)?;
        Ok(found.failing)
    }

    /// Runs the suite on the stock library, where its result is not known yet, and on the prefix. `client` is
    /// Python on given libraries, the system's own where none are.
    pub fn run(
        &self,
        setting: &Setting,
        client: impl Fn(&[PathBuf]) -> Client,
        stock: &[PathBuf],
        findings: &mut Findings,
    ) -> Result<Tally> {
        let stock = self.stock_outcome(client(stock))?;
        let text = format!("{}'s tests on the prefix", self.name);
        let ours = setting.routed(client(&setting.libraries()));
        let ours = self.play(ours, self.modules, &text)?;
        let counts = |o: &Outcome| format!("{} passed, {} failed", o.passed, o.failing.len());
        println!(
            "{}: {}; {}: {}",
            self.name,
            counts(&ours),
            self.stock,
            counts(&stock)
        );
        findings.row(Row {
            suite: format!("{}'s own tests", self.name),
            ours: counts(&ours),
            stock: format!("{} ({})", counts(&stock), self.stock),
        });
        let mut tally = Tally {
            passed: ours.passed,
            ..Tally::default()
        };
        let excepted = |name: &str| self.exceptions.iter().find(|(test, _)| name.contains(test));
        let only_ours: Vec<&String> = ours.failing.difference(&stock.failing).collect();
        let alike = self.failing_alike(client, &only_ours)?;
        for name in only_ours {
            match excepted(name) {
                Some((_, why)) => findings.exception(name, why),
                None if alike.contains(name) => findings.exception(name, ARCHIVES_OWN),
                None => {
                    println!("  fails only on the prefix: {name}");
                    tally.failed += 1;
                }
            }
        }
        for (test, why) in self.exceptions {
            if !ours.failing.iter().any(|name| name.contains(test)) {
                println!("  passes now, delete its exception: {test} ({why})");
                tally.failed += 1;
            }
        }
        let all = |o: &Outcome| o.passed + o.failing.len() as u64;
        let lost = all(&stock).saturating_sub(all(&ours));
        if lost > 0 {
            println!("  {lost} tests did not run on the prefix");
            tally.failed += lost;
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::{argument, outcome};

    #[test]
    fn pytest_output_is_read() {
        let text = "..F\nFAILED a/b.py::test_x[1] - AssertionError\nERROR ../x/dist-packages/a/c.py\n1 failed, 2 passed, 3 skipped in 4.0s\n";
        let o = outcome(text).expect("counts");
        assert_eq!((o.passed, o.failing.len()), (2, 2));
        assert!(o.failing.contains("a/b.py::test_x[1]"));
        assert!(o.failing.contains("a/c.py"));
        assert!(outcome("no tests ran in 0.1s").is_none());
        let none =
            outcome("F\nFAILED a/b.py::x - E\n1 failed, 2 warnings in 0.4s\n").expect("counts");
        assert_eq!((none.passed, none.failing.len()), (0, 1));
    }

    #[test]
    fn a_failing_test_can_be_run_again() {
        let again = argument("scipy/linalg/tests/test_x.py::TestA::test_b[c/d.py-1]");
        assert_eq!(again, "scipy.linalg.tests.test_x::TestA::test_b[c/d.py-1]");
        assert_eq!(argument("c.py"), "c");
    }
}
