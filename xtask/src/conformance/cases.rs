//! The cases from the field: the test package `cases`, run on the prefix.

use super::report::Findings;
use super::{Setting, Tally, baseline, simulated_cuda};
use crate::tests_of_cargo::{self, Tests};
use crate::tools::{cargo, loud, target_dir, workspace};
use anyhow::{Context, Result};
use cases::exceptions::ILLEGAL_LAPACK;
use cases::{BASELINE_VARIABLE, FULL_VARIABLE, PREFIX_VARIABLE, SIM_VARIABLE};
use std::fs;
use std::os::unix::fs::symlink;

/// Runs the package's tests.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    // A case fails when one of these is not needed any more.
    for exception in ILLEGAL_LAPACK {
        findings.exception(&exception.words.join(": "), exception.reason);
    }
    let mut variables = vec![
        (PREFIX_VARIABLE, setting.prefix.clone()),
        (BASELINE_VARIABLE, baseline()?),
        (SIM_VARIABLE, simulated_cuda()?),
    ];
    if setting.full {
        variables.push((FULL_VARIABLE, "1".into()));
    }
    let mut tally = tests_of_cargo::run(&Tests {
        selection: &["--package", "cases"],
        variables: &variables,
        ..Tests::default()
    })?;
    if setting.full {
        tally.check(no_race(setting)?);
    }
    Ok(tally)
}

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the mixed calls of `stress.c` with the engine and the simulated CUDA compiled for ThreadSanitizer, the
/// only race detector that knows atomics. Rust's part of it is not stable, so the compiler is told to believe
/// that it is a nightly one; the program has GCC's runtime.
fn no_race(setting: &Setting) -> Result<bool> {
    let built = target_dir().join("tsan");
    loud(
        cargo()
            .args(["build", "--package", "engine", "--package", "sim-cuda"])
            .args(["--lib", "--target", TARGET, "--target-dir"])
            .arg(&built)
            .env("RUSTC_BOOTSTRAP", "1")
            .env(
                "RUSTFLAGS",
                "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
            ),
    )?;
    let libraries = built.join(TARGET).join("debug");
    let run = built.join("run");
    fs::create_dir_all(&run).with_context(|| format!("cannot create {}", run.display()))?;
    for name in ["libblas.so.3", "liblapack.so.3"] {
        fs::copy(setting.lib().join(name), run.join(name))?;
    }
    fs::copy(
        libraries.join("libgpu_offload.so"),
        run.join("libgpu_offload.so.0"),
    )?;
    for name in crate::sim::NAMES {
        let link = run.join(name);
        let _ = fs::remove_file(&link);
        symlink(libraries.join("libsim_cuda.so"), &link)?;
    }
    let exe = ::cases::compile_with(&run, "stress.c", &run, &["-fsanitize=thread", "-rdynamic"]);
    let suppressions = workspace().join("tests/cases/tsan.supp");
    let mut program = ::cases::Program::new(&exe, &run)
        .env("GPU_OFFLOAD", "force")
        .env("GPU_OFFLOAD_THRESHOLD", "65536")
        .env("OPENBLAS_NUM_THREADS", "1")
        .env(
            "TSAN_OPTIONS",
            // A stream of the simulated CUDA may end unjoined, which is no race.
            format!(
                "suppressions={} report_thread_leaks=0",
                suppressions.display()
            ),
        )
        .arg(baseline()?.join("libblas.so.3"));
    for argument in ["threads", "16", "most", "64", "calls", "2000", "faults"] {
        program = program.arg(argument);
    }
    let ended = program.run();
    println!("ThreadSanitizer: {}{}", ended.stdout, ended.stderr);
    Ok(ended.status.is_some_and(|status| status.success()))
}
