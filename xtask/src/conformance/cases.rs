//! The cases from the field: the test package `cases`, run on the prefix.

use super::report::Findings;
use super::{Setting, Tally, baseline, simulated_cuda};
use crate::tests_of_cargo;
use anyhow::Result;
use cases::exceptions::ILLEGAL_LAPACK;
use cases::{BASELINE_VARIABLE, FULL_VARIABLE, PREFIX_VARIABLE, SIM_VARIABLE};

/// Runs the package's tests.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    // A case fails when one of these is not needed any more.
    for exception in ILLEGAL_LAPACK {
        findings.exception(&exception.words.join(": "), exception.reason);
    }
    let mut variables = vec![
        (PREFIX_VARIABLE, setting.prefix.clone()),
        (BASELINE_VARIABLE, baseline()?),
        (SIM_VARIABLE, simulated_cuda()?),
    ];
    if setting.full {
        variables.push((FULL_VARIABLE, "1".into()));
    }
    tests_of_cargo::run(&["--package", "cases"], &variables)
}
