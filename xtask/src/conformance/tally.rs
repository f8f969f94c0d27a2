//! What every run ends with: passed, failed, skipped.

use anyhow::{Result, bail};
use std::fmt;
use std::ops::AddAssign;

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Checks that held.
    pub passed: u64,
    /// Checks that did not hold, and what could not be run.
    pub failed: u64,
    /// What needs a GPU that is not there.
    pub skipped: u64,
}

impl Tally {
    /// One check.
    pub fn check(&mut self, held: bool) {
        if held {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }

    /// The result of a suite that needs a GPU on a machine without one.
    pub fn without_gpu() -> Self {
        if std::env::var_os("REQUIRE_GPU").is_some_and(|v| v == "1") {
            Self {
                failed: 1,
                ..Self::default()
            }
        } else {
            Self {
                skipped: 1,
                ..Self::default()
            }
        }
    }

    /// Reads the last line of a program that ends like all of ours: `N passed, N failed, N skipped`.
    pub fn from_last_line(output: &str) -> Option<Self> {
        let mut parts = output.lines().next_back()?.split(", ");
        let mut count = |kind: &str| parts.next()?.strip_suffix(kind)?.trim_end().parse().ok();
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("skipped")?,
        })
    }

    /// An error unless nothing failed and something passed or was skipped: a run without a check
    /// proves nothing.
    pub fn into_result(self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} checks failed", self.failed);
        }
        if self.passed + self.skipped == 0 {
            bail!("nothing was checked");
        }
        Ok(())
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn an_empty_or_failed_run_is_an_error() {
        assert!(Tally::default().into_result().is_err());
        let mut tally = Tally::default();
        tally.check(true);
        assert!(tally.into_result().is_ok());
        tally.check(false);
        assert!(tally.into_result().is_err());
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn the_last_line_of_another_program_is_read() {
        let tally = Tally::from_last_line("passed: x\n12 passed, 1 failed, 3 skipped\n");
        let read = tally.map(|t| (t.passed, t.failed, t.skipped));
        assert_eq!(read, Some((12, 1, 3)));
        assert_eq!(
            Tally::from_last_line("12 passed, 1 failed, 3 skipped\nTraceback"),
            None
        );
        assert_eq!(Tally::from_last_line(""), None);
    }
}
