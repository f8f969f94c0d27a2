//! `cargo xtask test`: everything that must hold, in the order of what fails soonest; a table, and as
//! the last line the sum.

use crate::conformance::{self, Device, Route, Suite, Tally, baseline, simulated_cuda};
use crate::tests_of_cargo::{self, Tests};
use crate::tools::{cargo, workspace};
use crate::{bench, demo, dist, setup};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// For developers: no LAPACK programs, NumPy tests, mixes, tarball or counted instructions
    #[arg(long)]
    pub quick: bool,
    /// Install nothing
    #[arg(long)]
    pub no_setup: bool,
}

const PREFIX: &str = "dist/prefix";

/// Of single test programs too: with fewer packages cargo would choose other features, and build them once more.
const WORKSPACE: [&str; 1] = ["--workspace"];

/// One step of the table.
struct Step {
    name: &'static str,
    tally: Tally,
    wall_s: f64,
}

struct Run {
    steps: Vec<Step>,
}

impl Run {
    /// Runs one step; an error counts as one failure, and the following steps run all the same.
    fn step(&mut self, name: &'static str, body: impl FnOnce() -> Result<Tally>) {
        eprintln!("── {name}");
        let start = Instant::now();
        let tally = body().unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            Tally {
                failed: 1,
                ..Tally::default()
            }
        });
        let wall_s = start.elapsed().as_secs_f64();
        eprintln!("   {name}: {tally} ({wall_s:.0} s)");
        self.steps.push(Step {
            name,
            tally,
            wall_s,
        });
    }

    fn cargo(&mut self, name: &'static str, arguments: &[&str]) {
        self.step(name, || {
            let status = cargo().args(arguments).status()?;
            let mut tally = Tally::default();
            tally.check(status.success());
            Ok(tally)
        });
    }
}

fn suite(suite: Suite, route: Route, device: Device) -> Result<Tally> {
    conformance::measure(&conformance::Args {
        suite: Some(suite),
        route,
        device,
        full: false,
        report: PathBuf::new(),
        prefix: PathBuf::from(PREFIX),
    })
}

/// Names of steps, and delays and seeds of the simulated CUDA besides the standard `random`, 1: with multiples
/// of four each stream has a speed of its own, with the three after it uploads, downloads or kernels are late.
const SCHEDULES: [(&str, &str, &str); 3] = [
    ("GPU path: schedule random 2", "random", "2"),
    ("GPU path: schedule adversarial 4", "adversarial", "4"),
    ("GPU path: schedule adversarial 7", "adversarial", "7"),
];

/// Tests on the simulated CUDA alone.
fn on_sim(tests: &Tests) -> Result<Tally> {
    let library = simulated_cuda()?.join("libcuda.so.1").canonicalize()?;
    let mut all = vec![("SIM_CUDA_LIBRARY", library)];
    all.extend(tests.variables.iter().cloned());
    tests_of_cargo::run(&Tests {
        variables: &all,
        ..*tests
    })
}

fn one_check(result: Result<()>) -> Result<Tally> {
    result.map(|()| Tally {
        passed: 1,
        ..Tally::default()
    })
}

/// Runs everything; an error if anything failed.
pub fn run(args: &Args) -> Result<()> {
    let mut run = Run { steps: Vec::new() };
    if !args.no_setup {
        run.step("set-up", || one_check(setup::run(&setup::Args::default())));
    }
    run.cargo("format", &["fmt", "--all", "--check"]);
    // The archive must be there before anything that links it is compiled.
    run.step("OpenBLAS", || {
        one_check(crate::openblas::prepare(&Default::default()).map(drop))
    });
    run.step("generated files", || {
        let mut tally = one_check(crate::codegen::run(&workspace(), true))?;
        tally += one_check(crate::openblas::exports::run(
            &crate::openblas::exports::Args { check: true },
        ))?;
        Ok(tally)
    });
    run.step("build and prefix", || {
        one_check(
            dist::lay_out(&dist::Args {
                prefix: Path::new(PREFIX).into(),
                ..Default::default()
            })
            .map(drop),
        )
    });
    run.cargo(
        "clippy",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "--deny",
            "warnings",
        ],
    );
    run.step("Rust tests and cases", || {
        Suite::Cases.say_part(Route::Cpu);
        let sim = simulated_cuda()?;
        tests_of_cargo::run(&Tests {
            selection: &WORKSPACE,
            variables: &[
                ("GPU_OFFLOAD_TEST_PREFIX", workspace().join(PREFIX)),
                ("GPU_OFFLOAD_TEST_BASELINE", baseline()?),
                // One file under CUDA's names; cargo builds no cdylib for the tests of other packages.
                ("SIM_CUDA_LIBRARY", sim.join("libcuda.so.1").canonicalize()?),
                ("GPU_OFFLOAD_TEST_SIM", sim),
            ],
            ..Tests::default()
        })
    });
    run.step("GPU path: faults and mutants", || {
        on_sim(&Tests {
            selection: &[
                &WORKSPACE[..],
                &["--test", "every_call", "--test", "mutants"],
            ]
            .concat(),
            // What they count is part of what they show.
            show: true,
            ..Tests::default()
        })
    });
    run.step("GPU path: models", || {
        let features = "gpu-backend/model,engine/model";
        let packages = ["--package", "gpu-backend", "--package", "engine"];
        let what = ["--lib", "--features", features];
        tests_of_cargo::run(&Tests {
            selection: &[&packages[..], &what].concat(),
            name: "model_",
            ..Tests::default()
        })
    });
    for (name, delay, seed) in SCHEDULES {
        run.step(name, || {
            let tests = ["--test", "gemm", "--test", "level3", "--test", "sim"];
            let schedule = [
                ("SIM_CUDA_DELAY", delay.into()),
                ("SIM_CUDA_SEED", seed.into()),
            ];
            on_sim(&Tests {
                selection: &[&WORKSPACE[..], &tests].concat(),
                variables: &schedule,
                ..Tests::default()
            })
        });
    }
    run.step("demo", || {
        one_check(demo::run(&demo::Args {
            sizes: vec![100, 300],
            repeats: 1,
            prefix: Some(PathBuf::from(PREFIX)),
        }))
    });
    run.step("netlib BLAS, CPU", || {
        suite(Suite::Blas, Route::Cpu, Device::None)
    });
    run.step("netlib BLAS, level 3 to the simulated GPU", || {
        suite(Suite::Blas, Route::Force, Device::Sim)
    });
    run.step("netlib BLAS, level 3 to the real GPU", || {
        suite(Suite::Blas, Route::Force, Device::Real)
    });
    run.step("random level-3 calls, CPU", || {
        suite(Suite::Random, Route::Cpu, Device::None)
    });
    run.step("random level-3 calls to the simulated GPU", || {
        suite(Suite::Random, Route::Force, Device::Sim)
    });
    run.step("random level-3 calls to the real GPU", || {
        suite(Suite::Random, Route::Force, Device::Real)
    });
    if !args.quick {
        run.step("netlib LAPACK, CPU", || {
            suite(Suite::Lapack, Route::Cpu, Device::None)
        });
        run.step("netlib LAPACK to the simulated GPU", || {
            suite(Suite::Lapack, Route::Force, Device::Sim)
        });
        run.step("netlib LAPACK to the real GPU", || {
            suite(Suite::Lapack, Route::Force, Device::Real)
        });
        run.step("clients", || {
            suite(Suite::Clients, Route::Cpu, Device::None)
        });
        run.step("mixes of libraries", || {
            suite(Suite::Mixes, Route::Cpu, Device::None)
        });
        // The Debian package, its neighbour, needs a root of its own: that is for `conformance --full`.
        run.step("tarball and conda's links", || {
            suite(Suite::Tar, Route::Cpu, Device::None)
        });
        run.step("conda's packages", || {
            suite(Suite::Conda, Route::Cpu, Device::None)
        });
        run.step("wheels", || suite(Suite::Wheels, Route::Cpu, Device::None));
        run.step("instructions a call", || bench::overhead(Path::new(PREFIX)));
    }
    let mut sum = Tally::default();
    println!(
        "\n{:<46} {:>9} {:>7} {:>8} {:>7}",
        "step", "passed", "failed", "skipped", "s"
    );
    for step in &run.steps {
        let t = step.tally;
        println!(
            "{:<46} {:>9} {:>7} {:>8} {:>7.0}",
            step.name, t.passed, t.failed, t.skipped, step.wall_s
        );
        sum += t;
    }
    println!("{sum}");
    if sum.failed > 0 {
        // The last line is the count; an error would print another one.
        std::process::exit(1);
    }
    Ok(())
}
