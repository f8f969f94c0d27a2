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
mod forced;
mod lapack;
mod mixes;
mod tally;

pub use crate::sim::prepare as simulated_cuda;
pub use baseline::baseline;
pub use client_run::Client;
pub use tally::Tally;

use crate::tools::workspace;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Options of `cargo xtask conformance`.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// What to run
    #[arg(long, value_enum)]
    pub suite: Suite,
    /// Where calls go: only the CPU, where the library decides, or every routed call to the GPU
    #[arg(long, value_enum, default_value = "cpu")]
    pub route: Route,
    /// Which GPU: none, the simulated one, the machine's own
    #[arg(long, value_enum, default_value = "none")]
    pub device: Device,
    /// Everything, instead of the subset that fits into CI
    #[arg(long)]
    pub full: bool,
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
    /// NumPy, and with --full R and Octave
    Clients,
    /// The cases from the field
    Cases,
    /// One library of ours with a foreign one
    Mixes,
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

    /// A program on the prefix, with the route's variables.
    pub fn client(&self, program: impl AsRef<std::ffi::OsStr>) -> Client {
        let mut path = Vec::new();
        path.extend(self.sim.clone());
        path.push(self.lib());
        let client = Client::new(program, &path);
        match self.route {
            Route::Cpu => client.env("GPU_OFFLOAD", "off"),
            Route::Auto => client,
            Route::Force => client
                .env("GPU_OFFLOAD", "force")
                .env("GPU_OFFLOAD_THRESHOLD", "0"),
        }
    }
}

/// Runs a suite and prints its last line.
pub fn run(args: &Args) -> Result<()> {
    let tally = measure(args)?;
    println!("{tally}");
    tally.into_result()
}

/// Runs a suite; prints what it finds, but not the last line.
pub fn measure(args: &Args) -> Result<Tally> {
    if args.device == Device::Real && !Path::new("/dev/nvidiactl").exists() {
        println!(
            "{:?} on the GPU: this machine has no NVIDIA device",
            args.suite
        );
        return Ok(Tally::without_gpu());
    }
    let setting = Setting::new(&args.prefix, args.route, args.device, args.full)?;
    match args.suite {
        Suite::Blas => blas::run(&setting),
        Suite::Lapack => lapack::run(&setting),
        Suite::Clients => clients::run(&setting),
        Suite::Cases => cases::run(&setting),
        Suite::Mixes => mixes::run(&setting),
    }
}
