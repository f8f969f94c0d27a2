//! `cargo xtask demo`: set-up, build, and a real NumPy program on the drop-in libraries; prints where
//! each heavy call went and the times against the stock library.

use crate::conformance::Client;
use crate::{dist, setup};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Matrix sizes
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "256,1500"
    )]
    pub sizes: Vec<u32>,
    /// Best of so many runs
    #[arg(long, default_value_t = 3)]
    pub repeats: u32,
    /// Use this prefix instead of building one
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}

const PYTHON: &str = "/usr/bin/python3";

/// What a program finds that asks for BLAS: alternatives lead to the reference library or another.
const SYSTEM: &str = "/usr/lib/x86_64-linux-gnu/libblas.so.3";

struct Row {
    what: String,
    n: u64,
    best_s: f64,
    ratio: f64,
}

fn rows(output: &str) -> Result<Vec<Row>> {
    output
        .lines()
        .map(|line| {
            let v: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let number = |name: &str| {
                v[name]
                    .as_f64()
                    .with_context(|| format!("{name} in {line}"))
            };
            Ok(Row {
                what: v["what"].as_str().unwrap_or_default().to_owned(),
                n: number("n")? as u64,
                best_s: number("best_s")?,
                ratio: number("ratio")?,
            })
        })
        .collect()
}

fn play(client: Client, args: &Args) -> Result<(Vec<Row>, String)> {
    let script = crate::tools::workspace().join("tests/clients/demo.py");
    let ended = client
        .arg(script)
        .arg(args.repeats.to_string())
        .args(args.sizes.iter().map(u32::to_string))
        .run()?;
    if !ended.success() {
        bail!("the program ended with {}:\n{}", ended.how(), ended.tail());
    }
    Ok((rows(&ended.stdout)?, ended.stderr))
}

/// Everything from a fresh checkout to the table.
pub fn run(args: &Args) -> Result<()> {
    let prefix = match &args.prefix {
        Some(prefix) => crate::tools::workspace().join(prefix),
        None => {
            setup::run(&setup::Args {
                purpose: setup::Purpose::Demo,
                print: false,
            })?;
            dist::lay_out(&dist::Args {
                prefix: Path::new("dist/prefix").into(),
                ..Default::default()
            })?
        }
    };
    let lib = prefix.join("lib");
    // The reference library is the slow one; a speed-up against it says little.
    let system = fs::canonicalize(SYSTEM).unwrap_or_else(|_| SYSTEM.into());
    println!("the program on the system's own {} …", system.display());
    let (stock, _) = play(Client::new(PYTHON, &[]), args)?;
    println!("the program on {} …", lib.display());
    let (ours, log) = play(
        Client::new(PYTHON, &[lib]).env("GPU_OFFLOAD_LOG", "summary"),
        args,
    )?;
    println!(
        "\nwhere the heavy calls went (GPU_OFFLOAD_LOG=summary):\n{}",
        log.trim_end()
    );
    println!(
        "\n{:<18} {:>6} {:>12} {:>12} {:>8}  result",
        "call", "n", "stock ms", "ours ms", "speed-up"
    );
    let mut wrong = 0;
    for (a, b) in stock.iter().zip(&ours) {
        // LAPACK's own bound on a residual over norm, n and eps.
        let right = b.ratio < 30.0;
        wrong += u32::from(!right);
        println!(
            "{:<18} {:>6} {:>12.2} {:>12.2} {:>8.2}  {}",
            b.what,
            b.n,
            a.best_s * 1e3,
            b.best_s * 1e3,
            a.best_s / b.best_s,
            if right { "right" } else { "WRONG" }
        );
    }
    if wrong > 0 || ours.is_empty() || ours.len() != stock.len() {
        bail!("{wrong} of {} results are wrong", ours.len());
    }
    println!(
        "\n`{}/bin/gpu-offload status` says which GPU is used, or why none is.",
        prefix.display()
    );
    Ok(())
}
