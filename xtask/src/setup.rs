//! `cargo xtask setup`: brings what the build and the tests need of the system, by apt.
//!
//! Without root or sudo it installs nothing: it prints the exact command and fails.

use crate::tools::{has_program, loud, quiet};
use anyhow::{Result, bail};
use std::process::Command;

/// Options of `cargo xtask setup`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Only what `build` and `dist` need, nothing for tests and demo
    #[arg(long)]
    pub minimal: bool,
    /// Only print what is missing
    #[arg(long)]
    pub print: bool,
}

/// Packages that the build needs: compiler driver and linker, binutils for the archive, pkg-config.
const BUILD: [&str; 4] = ["gcc", "libc6-dev", "binutils", "pkg-config"];

/// Packages that only tests and demo need: the reference libraries and their test programs, a Fortran
/// compiler for the cases from the field, NumPy, and valgrind for counted instructions. No other BLAS is
/// installed: it would take over the system's alternatives.
const TEST: [&str; 11] = [
    "gfortran",
    "libblas3",
    "liblapack3",
    "libblas-test",
    "liblapack-test",
    "python3",
    "python3-numpy",
    "python3-pytest",
    "python3-hypothesis",
    "strace",
    "valgrind",
];

/// Installs what is missing.
pub fn run(args: &Args) -> Result<()> {
    let wanted: Vec<&str> = if args.minimal {
        BUILD.to_vec()
    } else {
        BUILD.iter().chain(&TEST).copied().collect()
    };
    if !has_program("apt-get") || !has_program("dpkg-query") {
        if ["cc", "ar", "objcopy", "nm", "pkg-config"]
            .iter()
            .all(|name| has_program(name))
        {
            println!("apt is not here, but everything that the build needs is");
            return Ok(());
        }
        bail!(
            "this system has no apt; install the equivalents of: {}",
            wanted.join(" ")
        );
    }
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    let list = missing.join(" ");
    let root = quiet(Command::new("id").arg("-u"))?.trim() == "0";
    // -n: never ask for a password in the middle of a build.
    let sudo = !root
        && has_program("sudo")
        && Command::new("sudo")
            .args(["-n", "true"])
            .output()
            .is_ok_and(|o| o.status.success());
    if args.print || !(root || sudo) {
        println!("apt-get install --no-install-recommends {list}");
        bail!("packages are missing; run the line above as root");
    }
    let apt = |arguments: &[&str]| {
        let mut command = if root {
            Command::new("apt-get")
        } else {
            let mut command = Command::new("sudo");
            command.args(["-n", "apt-get"]);
            command
        };
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    println!("installing {list}");
    loud(&mut apt(&["-q", "update"]))?;
    let mut install = apt(&["-q", "-y", "--no-install-recommends", "install"]);
    install.args(&missing);
    loud(&mut install)
}

fn installed(package: &str) -> bool {
    let status = quiet(Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]));
    status.is_ok_and(|text| text.starts_with("install ok"))
}
