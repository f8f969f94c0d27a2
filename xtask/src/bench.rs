//! `cargo xtask bench`: what the drop-in costs, in counts that repeat.

mod drawn;
mod gpu;
mod lapack;
mod overhead;
mod regret;
mod small;

use crate::conformance::Tally;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Instructions a call through our libraries, against the same archive without us
    Overhead {
        /// The prefix under test
        #[arg(long, value_name = "DIR", default_value = "dist/prefix")]
        prefix: PathBuf,
    },
    /// Instructions of NumPy's and R's products and solutions with small matrices: docs/performance/small.md
    Small {
        /// The prefix under test
        #[arg(long, value_name = "DIR", default_value = "dist/prefix")]
        prefix: PathBuf,
    },
    /// Times of the level-3 routines on this machine's GPU, beside its peers: tables and plots
    Gpu(drawn::Args),
    /// Times and accuracy of LAPACK's drivers on this machine's GPU, beside SciPy's wheel and cuSOLVER: tables and plots
    Lapack(drawn::Args),
    /// Time our rule loses against one that knows the truth, on synthetic machines, beside the peers' rules
    Regret(regret::Args),
}

/// Runs a benchmark; an error if a limit is exceeded.
pub fn run(args: &Args) -> Result<()> {
    match &args.bench {
        Bench::Overhead { prefix } => {
            let tally = overhead(prefix)?;
            println!("{tally}");
            tally.into_result()
        }
        Bench::Small { prefix } => {
            let tally = small::run(prefix)?;
            println!("{tally}");
            tally.into_result()
        }
        Bench::Gpu(args) => gpu::run(args),
        Bench::Lapack(args) => lapack::run(args),
        Bench::Regret(args) => regret::run(args),
    }
}

/// The benchmark `overhead` as a step of `cargo xtask test`.
pub fn overhead(prefix: &Path) -> Result<Tally> {
    overhead::run(prefix)
}
