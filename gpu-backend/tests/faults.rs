//! Every CUDA function that the start calls fails in turn; devices that are lost, do not answer or are full:
//! the caller's memory is as it was or the call can be done again, nothing leaks, nothing hangs. Every call
//! of every routine is in `every_call.rs`. On the simulated device only; one test at a time, since the
//! device is the process's.

mod common;

use call::{Failure, Precision, Scalar, Trans};
use common::{Product, Random, Sim};
use gpu_backend::{Gpu, StartError, StartOptions};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

fn alone() -> (MutexGuard<'static, ()>, Sim) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sim = Sim::new();
    sim.reset();
    (guard, sim)
}

fn options() -> StartOptions {
    // One thread: the n-th call of a function is then the same one in every run.
    StartOptions {
        staging_threads: 1,
        ..common::options()
    }
}

/// Its result comes back in six pieces, so that a fault can hit when some are already there.
fn product(beta: Scalar) -> Product {
    let mut random = Random(31);
    let trans = (Trans::N, Trans::T);
    Product::random(
        Precision::D,
        trans,
        (150, 300, 60),
        (Scalar::ONE, beta),
        2,
        &mut random,
    )
}

/// Giving something back cannot leak less than what was refused.
fn gives_back(function: &str) -> bool {
    function.contains("Free") || function.contains("Destroy") || function.contains("Release")
}

/// The start and the shutdown without faults: which functions the start calls, and how often.
fn rehearse(sim: &Sim) -> Vec<(String, u64)> {
    sim.set_fault("");
    let gpu = Gpu::start(&options()).unwrap_or_else(|e| panic!("{e}"));
    let calls = sim.calls();
    gpu.shutdown();
    assert_eq!(sim.leaks(), Vec::<String>::new(), "a clean run leaks");
    assert_eq!(sim.complaints(), Vec::<String>::new());
    calls
}

/// What may come of one faulty run.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Outcome {
    StartRefused,
    CallFailed,
    RightAnyway,
}

fn faulty(sim: &Sim, beta: Scalar, fault: &str) -> Outcome {
    sim.set_fault(fault);
    let gpu = match Gpu::start(&options()) {
        Ok(gpu) => gpu,
        Err(e) => {
            let line = e.to_string();
            assert!(
                !line.contains('\n') && line.len() > 20,
                "{fault}: unclear message {line}"
            );
            return Outcome::StartRefused;
        }
    };
    // Where work hangs, the limit is what the test waits for; elsewhere a loaded machine must not
    // reach it.
    let limit_ms = if fault.contains("hang") { 500 } else { 60_000 };
    gpu.set_wait_limit(Duration::from_millis(limit_ms));
    let before = product(beta);
    let mut done = before.clone();
    let outcome = match done.run(&gpu) {
        Ok(_) => {
            before.check(&done.c, None);
            Outcome::RightAnyway
        }
        Err(failure) => {
            assert!(!failure.to_string().is_empty());
            if !beta.is_zero() {
                // C is an input: it must be what it was, so that the CPU can do the call.
                assert!(
                    done.c.bytes == before.c.bytes,
                    "{fault}: C was written, then {failure}"
                );
            }
            if let Failure::Lost(_) = failure {
                // And it stays lost, at once.
                let start = Instant::now();
                let again = before.clone().run(&gpu);
                assert!(matches!(again, Err(Failure::Lost(_))), "{fault}: {again:?}");
                assert!(start.elapsed() < Duration::from_secs(5));
            } else {
                // One error is no reason to give the device up.
                before.run_and_check(&gpu, None);
            }
            Outcome::CallFailed
        }
    };
    done.c.assert_gaps_untouched();
    gpu.shutdown();
    outcome
}

/// Every call of the start; those of the routines are in `every_call.rs`.
fn every_function_fails(kind: &str, leaks_allowed: bool) {
    let (_guard, sim) = alone();
    let mut refused = 0;
    for (function, count) in rehearse(&sim) {
        for nth in 1..=count {
            let fault = format!("{function}:{nth}:{kind}");
            let outcome = faulty(&sim, Scalar::ONE, &fault);
            let leaks = sim.leaks();
            assert!(
                leaks_allowed || gives_back(&function) || leaks.is_empty(),
                "{fault} leaks {leaks:?} ({outcome:?})"
            );
            refused += u32::from(outcome == Outcome::StartRefused);
            sim.reset();
        }
    }
    assert!(refused > 10, "{refused} starts were refused");
}

#[test]
fn every_function_refuses_an_argument() {
    every_function_fails("invalid", false);
}

#[test]
fn every_function_returns_a_code_that_nobody_knows() {
    every_function_fails("unknown", false);
}

#[test]
fn every_function_runs_out_of_memory() {
    every_function_fails("oom", false);
}

#[test]
fn the_device_is_lost_in_every_function() {
    // What was on a lost device is gone with it.
    every_function_fails("lost", true);
}

#[test]
fn queued_work_loses_the_device() {
    let (_guard, sim) = alone();
    for function in [
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cublasGemmEx_64",
    ] {
        for beta in [Scalar::ZERO, Scalar::ONE] {
            let outcome = faulty(&sim, beta, &format!("{function}:1:late"));
            assert_eq!(outcome, Outcome::CallFailed, "{function}");
            sim.reset();
        }
    }
}

#[test]
fn a_device_that_does_not_answer_is_given_up() {
    let (_guard, sim) = alone();
    for function in [
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cublasGemmEx_64",
    ] {
        for beta in [Scalar::ZERO, Scalar::ONE] {
            let start = Instant::now();
            let outcome = faulty(&sim, beta, &format!("{function}:1:hang"));
            assert_eq!(outcome, Outcome::CallFailed, "{function}");
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{function} held the program"
            );
            sim.reset();
        }
    }
}

#[test]
fn a_failed_download_is_fetched_again() {
    let (_guard, sim) = alone();
    for beta in [Scalar::ZERO, Scalar::ONE] {
        let outcome = faulty(&sim, beta, "cuMemcpyDtoHAsync_v2:1:invalid");
        assert_eq!(outcome, Outcome::RightAnyway);
        let outcome = faulty(
            &sim,
            beta,
            "cuMemcpyDtoHAsync_v2:1:invalid,cuMemcpyDtoHAsync_v2:2:invalid",
        );
        assert_eq!(outcome, Outcome::CallFailed);
    }
}

#[test]
fn memory_that_is_short_for_a_moment_is_asked_for_again() {
    let (_guard, sim) = alone();
    assert_eq!(
        faulty(&sim, Scalar::ONE, "cuMemAlloc_v2:1:oom"),
        Outcome::RightAnyway
    );
    let outcome = faulty(&sim, Scalar::ONE, "cuMemAlloc_v2:1:oom,cuMemAlloc_v2:2:oom");
    assert_eq!(outcome, Outcome::CallFailed);
}

/// Case E5: another process takes the memory, and gives it back.
#[test]
fn a_memory_hog_costs_the_gpu_and_nothing_else() {
    let (_guard, sim) = alone();
    let gpu = Gpu::start(&options()).unwrap_or_else(|e| panic!("{e}"));
    let product = product(Scalar::ONE);
    let (_, total) = gpu.memory_bytes().expect("memory");
    // The reserve is a tenth of the device, so leaving 20 MB, 200 MB or nothing is below it.
    for left in [0, 20 << 20, 200 << 20] {
        sim.set_hog(total - left);
        let mut refused = product.clone();
        let result = refused.run(&gpu);
        assert!(
            matches!(result, Err(Failure::OutOfMemory { .. })),
            "{left}: {result:?}"
        );
        assert!(refused.c.bytes == product.c.bytes);
    }
    sim.set_hog(0);
    product.run_and_check(&gpu, None);
    gpu.shutdown();
    assert_eq!(sim.leaks(), Vec::<String>::new());
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let (_guard, _sim) = alone();
    let result = Gpu::start(&StartOptions {
        device: 3,
        ..options()
    });
    assert_eq!(
        result.err(),
        Some(StartError::NoDevice {
            device: 3,
            count: 1
        })
    );
}
