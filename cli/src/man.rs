//! `gpu-offload package-files DIR`: what a package ships besides the binaries: man pages, completions and
//! the configuration file with every setting as a comment. All of it is generated, so none can be out of date.

use crate::{Cli, completions};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `package-files`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder: gets `man1/`, `completions/` and `config.toml`
    dir: PathBuf,
}

/// The configuration file of a fresh installation: no setting is active.
fn config() -> String {
    let mut text = String::from(
        "# Settings of gpu-offload for all users of this machine. A user's own file,\n\
         # ~/.config/gpu-offload/config.toml, goes before this one, and variables go before both.\n\
         # This file is believed only while root owns it and nobody else may write to it.\n\
         # What is not set keeps its default.\n",
    );
    for key in gpu_offload::config::KEYS {
        let _ = write!(
            text,
            "\n# Accepted: {}. Variable: {}.\n# {} =\n",
            key.accepted, key.variable, key.file
        );
    }
    text
}

/// Writes the files.
pub fn run(args: &Args) -> Result<ExitCode> {
    let said = |path: &Path| format!("cannot write {}", path.display());
    let pages = args.dir.join("man1");
    fs::create_dir_all(&pages).with_context(|| said(&pages))?;
    clap_mangen::generate_to(Cli::command(), &pages).with_context(|| said(&pages))?;
    let scripts = args.dir.join("completions");
    completions::write(&scripts).with_context(|| said(&scripts))?;
    let file = args.dir.join("config.toml");
    fs::write(&file, config()).with_context(|| said(&file))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::config;

    #[test]
    fn every_setting_is_there_and_none_is_active() {
        let text = config();
        for key in gpu_offload::config::KEYS {
            assert!(text.contains(&format!("\n# {} =\n", key.file)), "{text}");
        }
        assert!(text.lines().all(|l| l.is_empty() || l.starts_with('#')));
    }
}
