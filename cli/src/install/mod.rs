//! `gpu-offload install`, `uninstall`: puts an environment's programs on the libraries, and back.

mod conda;
mod elf;
pub mod known;
mod record;
mod step;
#[cfg(test)]
mod tests;
mod venv;
mod wheel_library;

pub use conda::Environment as Conda;
pub use venv::{Environment as Venv, Ours, State as WheelState};
pub use wheel_library::{OpenBlas, fit_of};

use crate::prefix;
use anyhow::Result;
use known::Kind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `install` and `uninstall`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false))]
pub struct Args {
    /// A conda environment (the value of CONDA_PREFIX): its links to BLAS and LAPACK
    #[arg(long, value_name = "PREFIX")]
    #[arg(group = "what")]
    conda: Option<PathBuf>,
    /// A Python environment (the value of VIRTUAL_ENV): the OpenBLAS inside the wheels that pip put there
    #[arg(long, value_name = "DIR", group = "what")]
    venv: Option<PathBuf>,
    /// Say what would be done to the wheels, and do nothing
    #[arg(long, requires = "venv")]
    dry_run: bool,
}

/// Installs into what is named.
pub fn install(args: &Args) -> Result<ExitCode> {
    if let Some(prefix) = &args.conda {
        install_conda(prefix)?;
    }
    if let Some(dir) = &args.venv {
        install_venv(dir, args.dry_run)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes back what `install` did.
pub fn uninstall(args: &Args) -> Result<ExitCode> {
    if let Some(prefix) = &args.conda {
        uninstall_conda(prefix)?;
    }
    if let Some(dir) = &args.venv {
        return uninstall_venv(dir, args.dry_run);
    }
    Ok(ExitCode::SUCCESS)
}

fn install_conda(prefix: &Path) -> Result<()> {
    let ours = prefix::library_dir()?;
    let environment = conda::Environment::new(prefix)?;
    let changed = environment.install(&ours)?;
    known::remember(Kind::Conda, prefix);
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
    known::forget(Kind::Conda, prefix);
    for name in back {
        say!("lib/{name} leads to the environment's own library again");
    }
    for name in left {
        say!("lib/{name} no longer led to us and was left as it is");
    }
    Ok(())
}

fn install_venv(dir: &Path, dry_run: bool) -> Result<()> {
    let environment = Venv::new(dir)?;
    let locked = environment.locked()?;
    for file in environment.replaced_since(&environment.survey()?)? {
        say!(
            "pip has replaced or removed {} since it was swapped",
            file.display()
        );
    }
    let steps = environment.install(&prefix::for_wheels()?)?;
    if steps.is_empty() {
        say!("nothing to do: the wheels here are swapped already");
    }
    if !dry_run {
        known::remember(Kind::Venv, dir);
    }
    do_steps(&locked, &steps, dry_run)
}

fn uninstall_venv(dir: &Path, dry_run: bool) -> Result<ExitCode> {
    let environment = Venv::new(dir)?;
    let locked = environment.locked()?;
    let (steps, troubles) = environment.uninstall()?;
    do_steps(&locked, &steps, dry_run)?;
    if !dry_run && troubles.is_empty() {
        known::forget(Kind::Venv, dir);
    }
    for trouble in &troubles {
        eprintln!("gpu-offload: {trouble}");
    }
    Ok(ExitCode::from(u8::from(!troubles.is_empty())))
}

fn do_steps(locked: &venv::Locked, steps: &[step::Step], dry_run: bool) -> Result<()> {
    for step in steps {
        if !dry_run {
            locked.run(step)?;
        }
        say!("{}{step}", if dry_run { "would " } else { "" });
    }
    Ok(())
}
