//! `cargo xtask conformance`: suites that no one here wrote, run on the prefix, and the cases from the
//! field.
//!
//! Every suite is scored against a stock library in the same run or from a cache keyed by what it
//! depends on, never against a remembered number. A suite that cannot run says so and counts as
//! failed; what needs a GPU counts as skipped without one (`REQUIRE_GPU=1` turns that into failed).

mod baseline;
mod blas;
mod cases;
mod client_run;
mod clients;
mod conda;
mod deb;
mod debian;
mod forced;
mod languages;
mod lapack;
mod mixes;
mod programs;
mod pytest;
mod random;
mod report;
mod scalapack;
mod tally;
mod tar;
mod wheels;

pub use crate::sim::prepare as simulated_cuda;
pub use baseline::baseline;
pub use client_run::{Client, Scratch, cache, scratch};
pub use clients::PYTHON;
pub use debian::Guests;
pub use tally::Tally;
pub use wheels::environment as wheel_environment;

use crate::tools::workspace;
use anyhow::{Result, bail, ensure};
use clap::ValueEnum as _;
use report::Findings;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `cargo xtask conformance`.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// What to run; with --full it may be left out: all suites on the CPU route, and a report
    #[arg(long, value_enum, required_unless_present = "full")]
    pub suite: Option<Suite>,
    /// Where calls go: only the CPU, where the library decides, or every routed call to the GPU
    #[arg(long, value_enum, default_value = "cpu")]
    pub route: Route,
    /// Which GPU: none, the simulated one, the machine's own
    #[arg(long, value_enum, default_value = "none")]
    pub device: Device,
    /// Everything, instead of the subset that fits into CI
    #[arg(long)]
    pub full: bool,
    /// Where the report of all suites goes
    #[arg(long, value_name = "FILE", default_value = "docs/conformance.md")]
    pub report: PathBuf,
    /// The prefix under test
    #[arg(long, value_name = "DIR", default_value = "dist/prefix")]
    pub prefix: PathBuf,
}

/// One suite.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
pub enum Suite {
    /// Netlib's 24 BLAS programs
    Blas,
    /// Netlib's LAPACK programs
    Lapack,
    /// C, Fortran and NumPy
    Clients,
    /// Armadillo, SuiteSparse, Eigen and HPL
    Programs,
    /// Octave and R
    Languages,
    /// SciPy's own tests
    Scipy,
    /// ScaLAPACK's test programs
    Scalapack,
    /// The cases from the field
    Cases,
    /// One library of ours with a foreign one
    Mixes,
    /// Random level-3 calls, each checked against its definition
    Random,
    /// The Debian package in a Debian 12 root
    Deb,
    /// The tarball, unpacked and moved, and the links of a conda environment
    Tar,
    /// conda's packages, solved and installed beside a stand-in for conda-forge's
    Conda,
    /// The OpenBLAS inside NumPy's and SciPy's wheels, swapped and put back
    Wheels,
}

impl Suite {
    /// Prints what a run without `--full` is limited to.
    pub fn say_part(self, route: Route) {
        if let Some(part) = self.part(route) {
            println!("{self:?}, in part (all of it with --full): {part}");
        }
    }

    /// What a run without `--full` is limited to; `None` where it is whole.
    fn part(self, route: Route) -> Option<String> {
        Some(match self {
            Suite::Lapack if route == Route::Force => {
                "the inputs that show every routed family".into()
            }
            Suite::Clients => clients::part(),
            Suite::Cases => {
                "40 of 200 forks during the start, 2 of 10 runs of mixed calls, fewer calls under \
                 valgrind, 20 s instead of 10 minutes of 16 threads, no ThreadSanitizer"
                    .into()
            }
            Suite::Programs => programs::part(),
            Suite::Mixes => "C and NumPy, without SciPy, Octave and R".into(),
            Suite::Random => random::part(),
            Suite::Wheels => wheels::part(),
            Suite::Blas
            | Suite::Lapack
            | Suite::Languages
            | Suite::Scipy
            | Suite::Scalapack
            | Suite::Deb
            | Suite::Tar
            | Suite::Conda => return None,
        })
    }
}

/// Where calls go.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
pub enum Route {
    /// GPU_OFFLOAD=off
    Cpu,
    /// GPU_OFFLOAD=auto
    Auto,
    /// GPU_OFFLOAD=force with threshold 0
    Force,
}

/// Which GPU.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
pub enum Device {
    /// No CUDA to be found
    None,
    /// tests/sim-cuda
    Sim,
    /// The machine's own
    Real,
}

/// A prefix, a route and a device: how a suite's programs are started.
#[derive(Clone)]
pub struct Setting {
    /// The prefix under test.
    pub prefix: PathBuf,
    /// Where calls go.
    pub route: Route,
    /// Everything instead of the subset.
    pub full: bool,
    /// The folder of the simulated CUDA, where that is the device.
    sim: Option<PathBuf>,
}

impl Setting {
    /// Checks that the prefix is one and builds what the device needs.
    pub fn new(prefix: &Path, route: Route, device: Device, full: bool) -> Result<Self> {
        let prefix = workspace().join(prefix);
        if !prefix.join("lib/libblas.so.3").exists() {
            bail!(
                "no lib/libblas.so.3 in {}; run `cargo xtask dist`",
                prefix.display()
            );
        }
        if route == Route::Force && device == Device::None {
            bail!("--route force needs --device sim or --device real");
        }
        let sim = (device == Device::Sim).then(simulated_cuda).transpose()?;
        Ok(Self {
            prefix,
            route,
            full,
            sim,
        })
    }

    /// The folder of the libraries.
    pub fn lib(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The folders for the library path.
    pub fn libraries(&self) -> Vec<PathBuf> {
        self.sim.iter().cloned().chain([self.lib()]).collect()
    }

    /// A program on the prefix, with the route's variables.
    pub fn client(&self, program: impl AsRef<std::ffi::OsStr>) -> Client {
        self.routed(Client::new(program, &self.libraries()))
    }

    /// `client`, with the route's variables.
    pub fn routed(&self, client: Client) -> Client {
        match self.route {
            Route::Cpu => client.env("GPU_OFFLOAD", "off"),
            Route::Auto => client,
            Route::Force => client
                .env("GPU_OFFLOAD", "force")
                .env("GPU_OFFLOAD_THRESHOLD", "0"),
        }
    }
}

/// Runs a suite, or all, and prints the last line.
pub fn run(args: &Args) -> Result<()> {
    let tally = match args.suite {
        Some(_) => measure(args)?,
        None => everything(args)?,
    };
    println!("{tally}");
    tally.into_result()
}

/// Runs a suite; prints what it finds, but not the last line.
pub fn measure(args: &Args) -> Result<Tally> {
    let Some(suite) = args.suite else {
        bail!("no suite is named");
    };
    if args.device == Device::Real && !Path::new("/dev/nvidiactl").exists() {
        println!("{suite:?} on the GPU: this machine has no NVIDIA device");
        return Ok(Tally::without_gpu());
    }
    let setting = Setting::new(&args.prefix, args.route, args.device, args.full)?;
    if !args.full {
        suite.say_part(args.route);
    }
    // A full run on the CPU route, or forced to the simulated CUDA, goes into the report.
    let name = format!("{suite:?}");
    match (args.route, args.device) {
        (Route::Cpu, _) if args.full => recorded(suite, &name, &setting, &args.report),
        (Route::Force, Device::Sim) if args.full => {
            recorded(suite, &report::forced(&name), &setting, &args.report)
        }
        _ => one(suite, &setting, &mut Findings::default()),
    }
}

fn one(suite: Suite, setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    match suite {
        Suite::Blas => blas::run(setting, findings),
        Suite::Lapack => lapack::run(setting, findings),
        Suite::Clients => clients::run(setting, findings),
        Suite::Programs => programs::run(setting, findings),
        Suite::Languages => languages::run(setting, &Guests::new()?, findings),
        Suite::Scipy => clients::scipy(setting, &Guests::new()?, findings),
        Suite::Scalapack => scalapack::run(setting, &Guests::new()?, findings),
        Suite::Cases => cases::run(setting, findings),
        Suite::Mixes => mixes::run(setting, findings),
        Suite::Random => random::run(setting, findings),
        Suite::Deb => deb::run(setting, findings),
        Suite::Tar => tar::run(setting, findings),
        Suite::Conda => conda::run(setting, findings),
        Suite::Wheels => wheels::run(setting, findings),
    }
}

/// Runs a suite, records under `name` what it found and writes the report anew. An error counts as one failure.
fn recorded(suite: Suite, name: &str, setting: &Setting, report: &Path) -> Result<Tally> {
    let mut findings = Findings::default();
    let start = Instant::now();
    let tally = one(suite, setting, &mut findings).unwrap_or_else(|error| {
        println!("{suite:?}: {error:#}");
        Tally {
            failed: 1,
            ..Tally::default()
        }
    });
    let report = workspace().join(report);
    report::keep(
        &report,
        name,
        &findings,
        tally,
        start.elapsed().as_secs_f64(),
    )?;
    let all: Vec<String> = Suite::value_variants()
        .iter()
        .map(|suite| format!("{suite:?}"))
        .collect();
    report::write(&report, &all)?;
    Ok(tally)
}

/// Runs all suites on the CPU route.
fn everything(args: &Args) -> Result<Tally> {
    ensure!(
        args.route == Route::Cpu && args.device == Device::None,
        "all suites run on --route cpu --device none; name a suite for another route"
    );
    let setting = Setting::new(&args.prefix, args.route, args.device, true)?;
    let mut sum = Tally::default();
    for suite in Suite::value_variants() {
        eprintln!("── {suite:?}");
        let tally = recorded(*suite, &format!("{suite:?}"), &setting, &args.report)?;
        println!("{suite:?}: {tally}");
        sum += tally;
    }
    Ok(sum)
}
