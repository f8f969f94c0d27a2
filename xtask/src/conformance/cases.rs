//! The cases from the field: the test package `cases`, run on the prefix.

use super::report::Findings;
use super::{Setting, Tally, baseline, simulated_cuda};
use crate::tests_of_cargo;
use anyhow::Result;
use cases::exceptions::{ILLEGAL_LAPACK, SEMANTICS};

/// Runs the package's tests.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    // A case fails when one of these is not needed any more.
    for exception in SEMANTICS.iter().chain(ILLEGAL_LAPACK) {
        findings.exception(&exception.words.join(": "), exception.reason);
    }
    tests_of_cargo::run(
        &["--package", "cases"],
        &[
            ("GPU_OFFLOAD_TEST_PREFIX", setting.prefix.clone()),
            ("GPU_OFFLOAD_TEST_BASELINE", baseline()?),
            ("GPU_OFFLOAD_TEST_SIM", simulated_cuda()?),
        ],
    )
}
