//! `gpu-offload install`, `uninstall`: puts an environment's programs on the libraries, and back.

mod conda;

use crate::prefix;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `install` and `uninstall`.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Args {
    /// A conda environment (the value of CONDA_PREFIX): its links to BLAS and LAPACK
    #[arg(long, value_name = "PREFIX")]
    conda: Option<PathBuf>,
}

/// Installs into what is named.
pub fn install(args: &Args) -> Result<ExitCode> {
    if let Some(prefix) = &args.conda {
        install_conda(prefix)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes back what `install` did.
pub fn uninstall(args: &Args) -> Result<ExitCode> {
    if let Some(prefix) = &args.conda {
        uninstall_conda(prefix)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn install_conda(prefix: &Path) -> Result<()> {
    let ours = prefix::library_dir()?;
    let changed = conda::Environment::new(prefix)?.install(&ours)?;
    if changed.is_empty() {
        say!(
            "nothing to do: the links lead to {} already",
            ours.display()
        );
    }
    for name in changed {
        say!("lib/{name} now leads to {}", ours.display());
    }
    Ok(())
}

fn uninstall_conda(prefix: &Path) -> Result<()> {
    let (back, left) = conda::Environment::new(prefix)?.uninstall()?;
    for name in back {
        say!("lib/{name} leads to the environment's own library again");
    }
    for name in left {
        say!("lib/{name} no longer led to us and was left as it is");
    }
    Ok(())
}
