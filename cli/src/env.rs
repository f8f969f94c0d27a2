//! `gpu-offload env`: the lines with which a shell uses the libraries of this installation.
//!
//! They do what `run` does for one command. Nothing is changed by printing them.

use crate::{prefix, run};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `env`.
#[derive(clap::Args)]
pub struct Args {
    /// The shell that will read the lines; default: as the variable SHELL says
    #[arg(long, value_enum)]
    shell: Option<Shell>,
}

/// Shells by their syntax.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Shell {
    /// sh, bash, dash, ksh, zsh: eval "$(gpu-offload env)"
    Sh,
    /// fish: gpu-offload env | source
    Fish,
    /// csh, tcsh: eval `gpu-offload env`; the values are those of this moment
    Csh,
}

impl Shell {
    fn of(path: Option<&Path>) -> Self {
        match path.and_then(Path::file_name).and_then(|n| n.to_str()) {
            Some("fish") => Self::Fish,
            Some("csh" | "tcsh") => Self::Csh,
            _ => Self::Sh,
        }
    }
}

/// `text` as one word of a shell, whatever it holds.
fn quoted(text: &str, shell: Shell) -> String {
    let inner = match shell {
        Shell::Sh => text.replace('\'', r"'\''"),
        Shell::Fish => text.replace('\\', r"\\").replace('\'', r"\'"),
        // csh looks for history events within quotes too.
        Shell::Csh => text.replace('\'', r"'\''").replace('!', r"\!"),
    };
    format!("'{inner}'")
}

/// One path variable: `dir`, then what it holds, or `other` where it holds nothing.
struct Variable<'a> {
    name: &'a str,
    dir: &'a str,
    other: Option<&'a str>,
    now: Option<&'a str>,
}

impl Variable<'_> {
    fn line(&self, shell: Shell) -> String {
        let (name, dir) = (self.name, quoted(self.dir, shell));
        let other = self.other.map(|o| quoted(o, shell));
        match (shell, other) {
            // An assignment, since some shells split the words after `export`.
            (Shell::Sh, None) => format!("{name}={dir}${{{name}:+\":${name}\"}}; export {name}"),
            (Shell::Sh, Some(other)) => {
                format!("{name}={dir}:${{{name}:-{other}}}; export {name}")
            }
            // fish splits and joins variables whose names end in PATH.
            (Shell::Fish, None) => format!("set -gx {name} {dir} ${name};"),
            (Shell::Fish, Some(other)) => {
                format!("set -q {name}; or set -gx {name} {other}; set -gx {name} {dir} ${name};")
            }
            // csh refuses to name an unset variable even where it would not be read.
            (Shell::Csh, _) => {
                let mut value = self.dir.to_owned();
                if let Some(rest) = self.now.filter(|n| !n.is_empty()).or(self.other) {
                    value.push(':');
                    value.push_str(rest);
                }
                format!("setenv {name} {};", quoted(&value, shell))
            }
        }
    }
}

/// Prints the lines.
pub fn run(args: &Args) -> Result<ExitCode> {
    let dir = prefix::on_library_path()?;
    let shell = args
        .shell
        .unwrap_or_else(|| Shell::of(std::env::var_os("SHELL").map(PathBuf::from).as_deref()));
    let text = dir.to_str().filter(|t| !t.contains('\n'));
    ensure!(
        text.is_some(),
        "{}: these lines cannot hold this folder; accepted: a name in UTF-8 without line ends",
        dir.display()
    );
    let text = text.unwrap_or_default();
    let value = |name: &str| std::env::var(name).ok();
    let now = value("LD_LIBRARY_PATH");
    say!(
        "{}",
        Variable {
            name: "LD_LIBRARY_PATH",
            dir: text,
            other: None,
            now: now.as_deref()
        }
        .line(shell)
    );
    // R's start script puts its own folder before LD_LIBRARY_PATH.
    if let Some(own) = run::r_libraries().and_then(|p| p.to_str().map(str::to_owned)) {
        let now = value("R_LD_LIBRARY_PATH");
        say!(
            "{}",
            Variable {
                name: "R_LD_LIBRARY_PATH",
                dir: text,
                other: Some(&own),
                now: now.as_deref()
            }
            .line(shell)
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const HARD: &str = "/a b/it's $HOME `id` \"x\" \\ !";

    fn variable<'a>(other: Option<&'a str>, now: Option<&'a str>) -> Variable<'a> {
        Variable {
            name: "TEST_PATH",
            dir: HARD,
            other,
            now,
        }
    }

    /// What a shell makes of the line, with the variable unset, empty and set before.
    fn read(program: &str, arguments: &[&str], shell: Shell, other: Option<&str>) -> Vec<String> {
        let ask = |now: Option<&str>| {
            let line = variable(other, now).line(shell);
            let mut command = Command::new(program);
            command
                .args(arguments)
                .arg(format!("{line}\nenv"))
                .env_remove("TEST_PATH");
            if let Some(now) = now {
                command.env("TEST_PATH", now);
            }
            let output = command.output().expect("started");
            assert!(output.stderr.is_empty(), "{line}: {output:?}");
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            let line = text.lines().find_map(|l| l.strip_prefix("TEST_PATH="));
            line.expect("exported").to_owned()
        };
        [None, Some(""), Some("/o l/d:/x")].map(ask).to_vec()
    }

    fn check(program: &str, arguments: &[&str], shell: Shell) {
        let wanted = |end: [&str; 3]| end.map(|e| format!("{HARD}{e}")).to_vec();
        let other = Some("/usr/lib/R/lib");
        let empty_is_a_folder = shell == Shell::Fish;
        let plain = read(program, arguments, shell, None);
        let with = read(program, arguments, shell, other);
        // fish keeps an empty element, which it had before.
        if empty_is_a_folder {
            assert_eq!(plain[0], HARD);
            assert_eq!(plain[2], format!("{HARD}:/o l/d:/x"));
            assert_eq!(with[0], format!("{HARD}:/usr/lib/R/lib"));
            assert_eq!(with[2], format!("{HARD}:/o l/d:/x"));
        } else {
            assert_eq!(plain, wanted(["", "", ":/o l/d:/x"]));
            let own = ":/usr/lib/R/lib";
            assert_eq!(with, wanted([own, own, ":/o l/d:/x"]));
        }
    }

    #[test]
    fn sh_reads_the_lines() {
        check("sh", &["-c"], Shell::Sh);
    }

    #[test]
    fn bash_reads_the_lines() {
        if Command::new("bash").arg("--version").output().is_ok() {
            check("bash", &["-c"], Shell::Sh);
        }
    }

    #[test]
    fn fish_reads_the_lines() {
        if Command::new("fish").arg("--version").output().is_ok() {
            check("fish", &["--no-config", "-c"], Shell::Fish);
        }
    }

    #[test]
    fn csh_reads_the_lines() {
        if Command::new("tcsh").arg("--version").output().is_ok() {
            check("tcsh", &["-f", "-c"], Shell::Csh);
        }
    }

    #[test]
    fn the_shell_follows_from_its_path() {
        for (path, shell) in [
            ("/usr/bin/fish", Shell::Fish),
            ("/bin/tcsh", Shell::Csh),
            ("/bin/bash", Shell::Sh),
        ] {
            assert_eq!(Shell::of(Some(Path::new(path))), shell, "{path}");
        }
        assert_eq!(Shell::of(None), Shell::Sh);
    }
}
