//! Python packages' own test suites, run by pytest on the prefix and scored by the difference from a
//! stock library: a test that fails on the prefix only fails the run, unless it is an exception with a
//! reason that is still needed.

use super::client_run::{Client, Ended, as_file_name, cache, scratch};
use super::report::{Findings, Row};
use super::{Setting, Tally};
use crate::tools::step;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
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
        // The path of the package is not part of a test's name.
        .map(|line| line.trim_start_matches("../").to_owned())
        .map(|line| match line.find("dist-packages/") {
            Some(at) => line[at + "dist-packages/".len()..].to_owned(),
            None => line,
        })
        .collect();
    let last = output.lines().rev().find(|line| line.contains(" passed"))?;
    let words: Vec<&str> = last.split_whitespace().collect();
    let at = words.iter().position(|w| w.starts_with("passed"))?;
    let passed = words.get(at.checked_sub(1)?)?.parse().ok()?;
    Some(Outcome { passed, failing })
}

impl Suite<'_> {
    fn play(&self, client: Client, text: &str) -> Result<Outcome> {
        let dir = scratch("pytest")?;
        let progress = step(text);
        let ended: Ended = client
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"])
            .args(["-rfE", "--continue-on-collection-errors"])
            // What the packages themselves run by default.
            .args(["-m", "not slow", "--pyargs"])
            .args(self.modules)
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
            "{}-{modules}-1-thread-{}",
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
        let found = self.play(client, &format!("{}'s tests on {}", self.name, self.stock))?;
        let failing: Vec<&str> = found.failing.iter().map(String::as_str).collect();
        fs::write(&file, format!("{}\n{}", found.passed, failing.join("\n")))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(found)
    }

    /// Runs the suite on the stock library, where its result is not known yet, and on the prefix.
    pub fn run(
        &self,
        setting: &Setting,
        stock: Client,
        ours: Client,
        findings: &mut Findings,
    ) -> Result<Tally> {
        let stock = self.stock_outcome(stock)?;
        let text = format!("{}'s tests on the prefix", self.name);
        let ours = self.play(setting.routed(ours), &text)?;
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
        for name in ours.failing.difference(&stock.failing) {
            match excepted(name) {
                Some((_, why)) => findings.exception(name, why),
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
    use super::outcome;

    #[test]
    fn pytest_output_is_read() {
        let text = "..F\nFAILED a/b.py::test_x[1] - AssertionError\nERROR ../../x/dist-packages/c.py\n1 failed, 2 passed, 3 skipped in 4.0s\n";
        let o = outcome(text).expect("counts");
        assert_eq!((o.passed, o.failing.len()), (2, 2));
        assert!(o.failing.contains("a/b.py::test_x[1]"));
        assert!(o.failing.contains("c.py"));
        assert!(outcome("no tests ran").is_none());
    }
}
