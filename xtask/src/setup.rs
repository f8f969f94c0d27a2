//! `cargo xtask setup`: brings what the build, the demo and the tests need of the system, by apt.
//!
//! Without root or sudo it installs nothing: it prints the exact command and fails. What is needed stands
//! in `xtask/packages.txt`, which `.cargo/rustc` reads too.

use crate::tools::{has_program, loud, quiet};
use anyhow::{Result, bail};
use std::io::IsTerminal as _;
use std::process::Command;

/// Options of `cargo xtask setup`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Only what this purpose needs
    #[arg(long = "for", value_enum, value_name = "PURPOSE", default_value_t)]
    pub purpose: Purpose,
    /// Only print what is missing
    #[arg(long)]
    pub print: bool,
}

/// What the machine is for; each purpose includes those before it.
#[derive(clap::ValueEnum, Clone, Copy, Default, PartialEq, PartialOrd)]
pub enum Purpose {
    /// The libraries and the tool
    Build,
    /// `cargo xtask demo`
    Demo,
    /// `cargo xtask test`, which is what CI runs
    #[default]
    Test,
    /// `cargo xtask conformance --full` as well
    Full,
}

/// The packages, a line each: purpose, name, why.
const PACKAGES: &str = include_str!("../packages.txt");

fn packages(purpose: Purpose) -> Vec<&'static str> {
    let lines = PACKAGES.lines().filter(|line| !line.starts_with('#'));
    let wanted = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let its = match words.next()? {
            "build" => Purpose::Build,
            "demo" => Purpose::Demo,
            "full" => Purpose::Full,
            _ => Purpose::Test,
        };
        words.next().filter(|_| its <= purpose)
    });
    wanted.collect()
}

/// Installs what is missing.
pub fn run(args: &Args) -> Result<()> {
    let wanted = packages(args.purpose);
    if !has_program("apt-get") || !has_program("dpkg-query") {
        return without_apt(&wanted);
    }
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        println!("set-up: nothing is missing");
        return Ok(());
    }
    let list = missing.join(" ");
    let root = quiet(Command::new("id").arg("-u"))?.trim() == "0";
    if args.print || !(root || sudo_works()) {
        println!("apt-get install --no-install-recommends {list}");
        bail!("packages are missing: run the line above as root, then the same command again");
    }
    let apt = || {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            // Not an inherited variable: sudo drops those.
            command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        }
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
        command
    };
    println!("set-up: installing {list}");
    if let Err(error) = loud(apt().arg("update")) {
        // A source that cannot be read does not matter if the others have everything.
        eprintln!("set-up: {error:#}; going on with the package lists that are there");
    }
    let mut install = apt();
    install.args(["-y", "--no-install-recommends", "install"]);
    loud(install.args(&missing))
}

/// A system of another kind: nothing can be installed, but what is there can be used.
fn without_apt(wanted: &[&str]) -> Result<()> {
    let programs = ["cc", "ar", "nm", "objcopy", "ranlib", "strip", "pkg-config"];
    let missing: Vec<&str> = programs
        .into_iter()
        .filter(|name| !has_program(name))
        .collect();
    if missing.is_empty() {
        println!("set-up: apt is not here, but everything that the build needs is");
        return Ok(());
    }
    bail!(
        "apt is not here, and neither are {}; install this system's equivalents of: {}",
        missing.join(", "),
        wanted.join(" ")
    )
}

/// Whether sudo lets us in, with a password only where somebody can type it.
fn sudo_works() -> bool {
    if !has_program("sudo") {
        return false;
    }
    let works = |arguments: &[&str]| {
        let status = Command::new("sudo").args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let quietly = Command::new("sudo").args(["-n", "true"]).output();
    quietly.is_ok_and(|output| output.status.success())
        || (std::io::stdin().is_terminal() && {
            eprintln!(
                "set-up: packages are missing; sudo may ask for your password to install them"
            );
            works(&["--validate"])
        })
}

fn installed(package: &str) -> bool {
    let status = quiet(Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]));
    status.is_ok_and(|text| text.starts_with("install ok"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_includes_the_one_before() {
        let (build, demo, test, full) = (
            packages(Purpose::Build),
            packages(Purpose::Demo),
            packages(Purpose::Test),
            packages(Purpose::Full),
        );
        assert!(build.contains(&"gcc") && !build.contains(&"python3-numpy"));
        assert!(demo.contains(&"gcc") && demo.contains(&"python3-numpy"));
        assert!(!demo.contains(&"valgrind"));
        assert!(test.contains(&"valgrind") && !test.contains(&"g++"));
        assert_eq!(
            full.len(),
            PACKAGES.lines().filter(|l| !l.starts_with('#')).count()
        );
        // `.cargo/rustc` prints the names as they stand.
        for name in full {
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)),
                "{name}"
            );
        }
    }
}
