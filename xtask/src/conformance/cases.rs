//! The cases from the field: the test package `cases`, run on the prefix.

use super::{Setting, Tally, baseline, simulated_cuda};
use crate::tests_of_cargo;
use anyhow::Result;

/// Runs the package's tests.
pub fn run(setting: &Setting) -> Result<Tally> {
    tests_of_cargo::run(
        &["--package", "cases"],
        &[
            ("GPU_OFFLOAD_TEST_PREFIX", setting.prefix.clone()),
            ("GPU_OFFLOAD_TEST_BASELINE", baseline()?),
            ("GPU_OFFLOAD_TEST_SIM", simulated_cuda()?),
        ],
    )
}
