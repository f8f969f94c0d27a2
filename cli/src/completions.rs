//! `gpu-offload completions SHELL`: what the shell needs to complete this program's command line.

use crate::Cli;
use anyhow::Result;
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `completions`.
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// The script for one shell.
fn script(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gpu-offload", &mut text);
    text
}

/// Prints the script.
pub fn run(args: &Args) -> Result<ExitCode> {
    crate::written(std::io::stdout().lock().write_all(&script(args.shell)))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the scripts under the names that distributions give them: `bash`, `zsh` and `fish` are folders
/// below `dir`.
pub fn write(dir: &Path) -> std::io::Result<()> {
    use clap_complete::Shell::{Bash, Fish, Zsh};
    for (shell, name) in [
        (Bash, "bash/gpu-offload"),
        (Zsh, "zsh/_gpu-offload"),
        (Fish, "fish/gpu-offload.fish"),
    ] {
        let file = dir.join(name);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file, script(shell))?;
    }
    Ok(())
}
