//! The device behind the engine. This build has none yet: every start fails with that reason.

use crate::engine::{Setup, Starter};
use crate::start::{Device, StartFailure};

/// Stands where the CUDA device comes.
pub struct Cuda;

impl Starter for Cuda {
    fn start(&self, _: &Setup) -> Result<Device, StartFailure> {
        Err(StartFailure {
            quiet: true,
            line: "this build has no GPU backend".to_owned(),
        })
    }
}
