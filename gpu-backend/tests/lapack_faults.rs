//! Every CUDA, cuBLAS and cuSOLVER call that a routine of LAPACK makes fails once: what is read is as it was
//! unless the call succeeded, nothing leaks, and the device serves the next call unless it is lost. On the
//! simulated device only; one test at a time, since the device is the process's.

mod common;

use call::{Failure, Op, Precision};
use common::lapack::{Case, one_of_each};
use common::{Random, Sim};
use gpu_backend::{Gpu, StartOptions, testing};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Only polling is repeated as often as time allows.
const POLLS_MAX: u64 = 6;

fn alone() -> (MutexGuard<'static, ()>, Sim) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sim = Sim::new();
    sim.reset();
    sim.set_delay("none:1");
    (guard, sim)
}

/// One staging thread: the n-th call of a function is then the same one in every run.
fn start() -> Gpu {
    let options = StartOptions {
        staging_threads: 1,
        ..common::options()
    };
    Gpu::start(&options).unwrap_or_else(|e| panic!("{e}"))
}

fn cases(n: usize) -> Vec<Case> {
    let mut random = Random(301);
    let mut cases = one_of_each(Precision::D, n, &mut random);
    let complex = one_of_each(Precision::C, n, &mut random);
    // Every other one is complex, so that each routine has one.
    for (case, complex) in cases.iter_mut().zip(complex).step_by(2) {
        *case = complex;
    }
    cases
}

/// Every case with results in place that go through scratch, and that are downloaded over what is kept.
fn both_ways(cases: Vec<Case>) -> Vec<(Case, bool)> {
    let with = |keeps| cases.iter().map(move |case| (case.clone(), keeps));
    with(false).chain(with(true)).collect()
}

/// The functions that a call calls on a device that has run one before, and how often.
fn rehearse(sim: &Sim, gpu: &Gpu, case: &Case) -> Vec<(String, u64)> {
    sim.set_fault("");
    case.clone().done(gpu);
    sim.calls()
}

/// Runs the case with a fault; true if it failed.
fn faulty(sim: &Sim, gpu: &Gpu, case: &Case, fault: &str) -> Option<Failure> {
    sim.set_fault(fault);
    let mut done = case.clone();
    let failure = done.run(gpu).err();
    sim.set_fault("");
    if let Some(failure) = &failure {
        assert!(!failure.to_string().is_empty());
        done.assert_inputs_are_those_of(case, fault);
    }
    failure
}

fn every_call_is_refused(kind: &str) {
    let (_guard, sim) = alone();
    let gpu = start();
    let (mut failed, mut injected) = (0, 0);
    for (case, keeps) in both_ways(cases(17)) {
        testing::set_keeps(Some(keeps));
        case.clone().done(&gpu);
        for (function, count) in rehearse(&sim, &gpu, &case) {
            let polls = function == "cuEventQuery";
            let count = if polls { count.min(POLLS_MAX) } else { count };
            for nth in 1..=count {
                let fault = format!("{function}:{nth}:{kind}");
                injected += 1;
                match faulty(&sim, &gpu, &case, &fault) {
                    Some(Failure::Lost(why)) => panic!("{}: {fault}: lost: {why}", case.name()),
                    Some(_) => failed += 1,
                    None => {}
                }
            }
        }
        // The device serves the next call.
        case.done(&gpu);
    }
    testing::set_keeps(None);
    gpu.shutdown();
    assert_eq!(sim.leaks(), Vec::<String>::new());
    assert_eq!(sim.complaints(), Vec::<String>::new());
    assert!(
        failed * 2 > injected,
        "{failed} of {injected} faults were met"
    );
    println!("{kind}: {injected} faults, {failed} calls failed");
}

#[test]
fn every_call_is_refused_once() {
    every_call_is_refused("invalid");
}

#[test]
fn every_call_returns_a_code_that_nobody_knows() {
    every_call_is_refused("unknown");
}

#[test]
fn every_call_runs_out_of_memory() {
    every_call_is_refused("oom");
}

/// The first call of LAPACK makes the handle.
#[test]
fn a_handle_that_is_not_made_is_asked_for_again() {
    let (_guard, sim) = alone();
    let case = &cases(9)[0];
    for function in [
        "cusolverDnCreate",
        "cusolverDnSetStream",
        "cusolverDnCreateParams",
        "cusolverDnSetDeterministicMode",
    ] {
        for kind in ["invalid", "oom", "unknown"] {
            let gpu = start();
            let fault = format!("{function}:1:{kind}");
            let failure = faulty(&sim, &gpu, case, &fault);
            assert!(
                matches!(failure, Some(Failure::Device(_))),
                "{fault}: {failure:?}"
            );
            case.clone().done(&gpu);
            gpu.shutdown();
            assert_eq!(sim.leaks(), Vec::<String>::new(), "{fault}");
        }
    }
}

/// Level 3 alone makes no handle of cuSOLVER.
#[test]
fn the_start_does_not_touch_cusolver() {
    let (_guard, sim) = alone();
    sim.set_fault("");
    let gpu = start();
    let touched = |sim: &Sim| sim.calls().iter().any(|(f, _)| f.starts_with("cusolver"));
    assert!(!touched(&sim));
    cases(9)[0].clone().done(&gpu);
    assert!(touched(&sim));
    gpu.shutdown();
    assert_eq!(sim.leaks(), Vec::<String>::new());
}

/// Work that never ends, and work that loses the device: given up, with the operands as they were.
#[test]
fn a_device_that_hangs_or_dies_is_given_up() {
    let (_guard, sim) = alone();
    for case in cases(17) {
        let function = {
            let gpu = start();
            case.clone().done(&gpu);
            let calls = rehearse(&sim, &gpu, &case);
            gpu.shutdown();
            let mut kernels = calls.into_iter().map(|(f, _)| f);
            kernels.find(|f| {
                let solver = f.starts_with("cusolver") && !f.contains("bufferSize");
                solver || ["trmm", "trsm"].iter().any(|blas| f.contains(blas))
            })
        };
        let function = function.unwrap_or_else(|| panic!("{} has no kernel", case.name()));
        for kind in ["lost", "late", "hang"] {
            sim.reset();
            sim.set_delay("none:1");
            let gpu = start();
            gpu.set_wait_limit(Duration::from_millis(400));
            let begun = Instant::now();
            let failure = faulty(&sim, &gpu, &case, &format!("{function}:1:{kind}"));
            assert!(
                matches!(failure, Some(Failure::Lost(_))),
                "{} {kind}: {failure:?}",
                case.name()
            );
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{kind} held the program"
            );
            gpu.shutdown();
        }
        sim.reset();
        sim.set_delay("none:1");
    }
}

/// Kernels of a device that was given up end at last, and use the host memory that they were given until then.
#[test]
fn host_memory_of_kernels_that_end_late_is_not_lent_again() {
    const PATTERN: u64 = 0x0123_4567_89AB_CDEF;
    let (_guard, sim) = alone();
    let mut cases = cases(17);
    cases.retain(|case| case.name().contains("syevd"));
    assert!(!cases.is_empty());
    for case in cases {
        sim.reset();
        // Kernels begin 600 ms late.
        sim.set_delay("adversarial:3:60000");
        let gpu = start();
        gpu.set_wait_limit(Duration::from_millis(100));
        let failure = faulty(&sim, &gpu, &case, "");
        assert!(matches!(failure, Some(Failure::Lost(_))), "{failure:?}");
        // Whatever the call gave back is lent again by the allocator.
        let canaries: Vec<Vec<u64>> = (1..2048).map(|words| vec![PATTERN; words]).collect();
        std::thread::sleep(Duration::from_millis(1500));
        let spoilt = canaries.iter().flatten().any(|word| *word != PATTERN);
        assert!(
            !spoilt,
            "{}: memory that was given back is written",
            case.name()
        );
        gpu.shutdown();
    }
    sim.reset();
    sim.set_delay("none:1");
}

/// The device is lost at, or behind, each of the transfers that bring a result in place home: what was overwritten
/// is put back.
#[test]
fn a_device_that_dies_while_operands_are_overwritten_gives_them_back() {
    let (_guard, sim) = alone();
    testing::set_keeps(Some(true));
    let mut put_back = 0;
    // Of several pieces.
    for case in cases(150) {
        let gpu = start();
        case.clone().done(&gpu);
        let calls = rehearse(&sim, &gpu, &case);
        gpu.shutdown();
        let of = |name: &str| {
            let found = calls.iter().find(|(function, _)| function == name);
            found.map_or(0, |(_, count)| *count)
        };
        for function in ["cuMemcpyDtoHAsync_v2", "cuMemcpy2DAsync_v2"] {
            // The last ones.
            for nth in (of(function).saturating_sub(4)..of(function)).map(|n| n + 1) {
                // A transfer that never ends takes the whole wait: once is enough.
                let hangs = case.op == Op::Posv && nth == of(function);
                let kinds = ["lost", "late", "hang"];
                for kind in &kinds[..if hangs { 3 } else { 2 }] {
                    sim.reset();
                    sim.set_delay("none:1");
                    let gpu = start();
                    gpu.set_wait_limit(Duration::from_millis(400));
                    let before = testing::put_back();
                    faulty(&sim, &gpu, &case, &format!("{function}:{nth}:{kind}"));
                    put_back += testing::put_back() - before;
                    gpu.shutdown();
                }
            }
        }
        sim.reset();
        sim.set_delay("none:1");
    }
    testing::set_keeps(None);
    println!("{put_back} deliveries failed");
    assert!(put_back >= 40, "{put_back} deliveries failed");
}

/// Another process has the memory: the call is refused, and served when the memory is free again.
#[test]
fn a_memory_hog_costs_the_gpu_and_nothing_else() {
    let (_guard, sim) = alone();
    let gpu = start();
    let case = &cases(40)[5];
    let (_, total) = gpu.memory_bytes().expect("memory");
    sim.set_hog(total);
    let mut refused = case.clone();
    let ran = refused.run(&gpu);
    assert!(matches!(ran, Err(Failure::OutOfMemory { .. })), "{ran:?}");
    refused.assert_inputs_are_those_of(case, "no memory");
    sim.set_hog(0);
    // The pool waits a moment before it asks again.
    std::thread::sleep(Duration::from_millis(1100));
    case.clone().done(&gpu);
    gpu.shutdown();
    assert_eq!(sim.leaks(), Vec::<String>::new());
}
