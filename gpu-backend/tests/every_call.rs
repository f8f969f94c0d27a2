//! Every CUDA, cuBLAS and cuSOLVER call that a routine makes fails once, in every way: the result is right,
//! or the inputs are as they were and the CPU can do the call; nothing leaks; the device serves the next
//! call unless it is lost. On the simulated device only.
//!
//! What is counted is one call of each level-3 routine (where calls are refused an argument; of each family, in one
//! precision, for the other kinds of faults) in a program of many small steps, in the device's memory and
//! beyond it, and one of each routine of LAPACK with several pieces, with results in place that are kept before they
//! are delivered and that go through scratch. The start's own calls are in `faults.rs`.

mod common;

use call::{Failure, Op, Precision};
use common::family::Family;
use common::lapack::one_of_each;
use common::subject::Subject;
use common::{Random, Sim};
use gpu_backend::{Gpu, StartOptions, testing};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Rows of a panel: every call then has several steps, and its chunks and buffers are used again.
const TILE: usize = 24;
/// Largest m, n or k.
const EDGE: usize = 64;
/// Order of LAPACK's matrices: two pieces each.
const ORDER: usize = 100;
/// What a call takes of the device besides its operands: cuBLAS's workspace, and one grain of the pool.
const FIXED_BYTES: u64 = testing::SMALL_WORKSPACE_BYTES + (2 << 20);

/// Kinds of faults, as the simulation calls them.
const KINDS: [&str; 5] = ["invalid", "oom", "unknown", "lost", "late"];

/// Only polling is repeated as often as time allows; so many of its calls, spread over all, stand for the others.
const POLLS: u64 = 10;

/// A call and what comes of it without faults.
struct Case {
    subject: Subject,
    options: StartOptions,
    /// Calls of each function until the result is there, and until everything is given back.
    calls: BTreeMap<String, (u64, u64)>,
}

/// How often something happened.
#[derive(Default, Debug)]
struct Tally {
    injections: u64,
    /// The call succeeded all the same.
    right: u64,
    /// The call failed, the device served the next one.
    failed: u64,
    lost: u64,
    /// The call was over: the fault met the shutdown.
    at_the_end: u64,
}

fn alone() -> (MutexGuard<'static, ()>, Sim) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sim = Sim::new();
    testing::set_tile(Some(TILE));
    (guard, sim)
}

fn start(sim: &Sim, options: &StartOptions) -> Gpu {
    // Nothing here depends on the order of what is queued: `mutants.rs` does that.
    sim.set_delay("none:1");
    Gpu::start(options).unwrap_or_else(|e| panic!("{e}"))
}

impl Case {
    fn new(sim: &Sim, number: usize, (op, precision): (Op, Precision), in_core: bool) -> Self {
        // In core the old result is read, and kept as it comes up; beyond, only where a family always reads it.
        let beta = if in_core { 0.5 } else { 0.0 };
        let mut random = Random(1000 + number as u64);
        let family = Family::sized(op, precision, EDGE, beta, &mut random);
        let operands_bytes = [Some(&family.a), family.b.as_ref(), Some(&family.c)]
            .iter()
            .flatten()
            .map(|x| x.rows * x.cols * precision.elem_bytes())
            .sum::<usize>();
        let options = StartOptions {
            // One thread: the n-th call of a function is then the same one in every run.
            staging_threads: 1,
            slots: 2,
            memory_limit_bytes: (!in_core).then_some(FIXED_BYTES + operands_bytes as u64 * 19 / 20),
            ..common::options()
        };
        Self::rehearsed(sim, Subject::level3(family), options)
    }

    /// One of each routine of LAPACK, every other one complex; `number` is less than their number.
    fn lapack(sim: &Sim, keeps: bool) -> Vec<Self> {
        let mut random = Random(1100);
        let real = one_of_each(Precision::D, ORDER, &mut random);
        let complex = one_of_each(Precision::C, ORDER, &mut random);
        let cases = real.into_iter().zip(complex).enumerate();
        let cases = cases.map(|(i, (real, complex))| if i % 2 == 0 { real } else { complex });
        let options = StartOptions {
            staging_threads: 1,
            slots: 2,
            ..common::options()
        };
        let new = |case| Self::rehearsed(sim, Subject::lapack(case, keeps), options.clone());
        cases.map(new).collect()
    }

    fn rehearsed(sim: &Sim, subject: Subject, options: StartOptions) -> Self {
        let mut case = Self {
            subject,
            options,
            calls: BTreeMap::new(),
        };
        case.rehearse(sim);
        case
    }

    fn rehearse(&mut self, sim: &Sim) {
        sim.reset();
        let gpu = start(sim, &self.options);
        sim.set_fault("");
        self.subject.learn(&gpu);
        let kernels = gpu.counters().of(self.subject.op()).kernels;
        let least = if matches!(self.subject, Subject::Level3 { .. }) {
            3
        } else {
            1
        };
        assert!(
            kernels >= least,
            "{}: {kernels} kernels",
            self.subject.name()
        );
        let until_result: BTreeMap<String, u64> = sim.calls().into_iter().collect();
        gpu.shutdown();
        assert_eq!(sim.leaks(), Vec::<String>::new(), "a clean run leaks");
        assert_eq!(sim.complaints(), Vec::<String>::new());
        let with_first = |(name, all): (String, u64)| {
            let first = until_result.get(&name).copied().unwrap_or(0);
            (name, (first, all))
        };
        self.calls = sim.calls().into_iter().map(with_first).collect();
    }

    /// The call with one fault.
    fn inject(&self, sim: &Sim, function: &str, nth: u64, kind: &str, tally: &mut Tally) {
        let fault = format!("{}: {function}:{nth}:{kind}", self.subject.name());
        let gpu = start(sim, &self.options);
        gpu.set_wait_limit(Duration::from_secs(60));
        sim.set_fault(&format!("{function}:{nth}:{kind}"));
        let mut done = self.subject.clone();
        let result = done.run(&gpu);
        tally.injections += 1;
        match &result {
            Ok(_) => assert!(self.subject.is_right(&done), "{fault}: a wrong result"),
            Err(failure) => {
                assert!(!failure.to_string().is_empty());
                self.subject.assert_kept(&done, &fault);
            }
        }
        let lost = matches!(result, Err(Failure::Lost(_)));
        let before_end = nth <= self.calls[function].0;
        match (&result, before_end) {
            (_, false) => tally.at_the_end += 1,
            (Ok(_), _) => tally.right += 1,
            (Err(_), _) if lost => tally.lost += 1,
            (Err(_), _) => tally.failed += 1,
        }
        if before_end {
            // Where a run polls less often than the first one, its fault is not met by the next call.
            sim.set_fault("");
            self.assert_usable_unless_lost(&gpu, lost, &fault);
        }
        gpu.shutdown();
        // What was on a lost device is gone with it, and what refuses to be given back stays.
        let is_lost = matches!(kind, "lost" | "late") || lost;
        let gives_back = ["Free", "Destroy", "Release"]
            .iter()
            .any(|word| function.contains(word));
        if is_lost || gives_back {
            sim.reset();
            return;
        }
        assert_eq!(sim.leaks(), Vec::<String>::new(), "{fault} leaks");
        assert_eq!(sim.complaints(), Vec::<String>::new(), "{fault}");
    }

    fn assert_usable_unless_lost(&self, gpu: &Gpu, lost: bool, fault: &str) {
        let start = Instant::now();
        let mut again = self.subject.clone();
        let result = again.run(gpu);
        match result {
            Ok(_) if !lost => {
                assert!(
                    self.subject.is_right(&again),
                    "{fault}: then a wrong result"
                );
            }
            // A device that was lost behind a call's back is found lost by the next one.
            Err(Failure::Lost(_)) if lost || fault.ends_with("lost") || fault.ends_with("late") => {
                assert!(start.elapsed() < Duration::from_secs(30));
            }
            other => panic!("{fault}: then {other:?}"),
        }
    }
}

/// Functions whose work is queued: only these can lose the device later.
fn queues(function: &str) -> bool {
    let asks = ["bufferSize", "Create", "Destroy", "Set", "Get"];
    let solves = function.starts_with("cusolverDn") && !asks.iter().any(|a| function.contains(a));
    let queues = function.starts_with("cuMemcpy") || function.ends_with("_64") || solves;
    queues || matches!(function, "cuEventRecord" | "cuStreamWaitEvent")
}

/// One fault after the other.
fn inject_all(sim: &Sim, case: &Case, kind: &str, tally: &mut Tally) {
    for (function, &(_, count)) in &case.calls {
        if kind == "late" && !queues(function) {
            continue;
        }
        let polls = function == "cuEventQuery";
        let step = if polls { count.div_ceil(POLLS) } else { 1 };
        for nth in (1..=count).step_by(step as usize) {
            case.inject(sim, function, nth, kind, tally);
        }
    }
}

/// All routines of level 3 for the first kind of fault. For each other kind one of each family, in another
/// precision: what a fault does to the engine does not depend on the numbers.
fn level3(kind: &str) -> Vec<(Op, Precision)> {
    let precisions = [Precision::D, Precision::Z, Precision::S, Precision::C];
    let shift = KINDS.iter().position(|k| *k == kind).expect("a kind");
    let of_op = |(number, op): (usize, Op)| {
        let exists = |p: &Precision| Family::exists(op, *p);
        let each = precisions.into_iter().cycle().skip((number + shift) % 4);
        let each = each.take(precisions.len());
        let most = if shift == 0 { precisions.len() } else { 1 };
        let chosen: Vec<_> = each.filter(exists).take(most).collect();
        chosen.into_iter().map(move |precision| (op, precision))
    };
    Op::LEVEL3.into_iter().enumerate().flat_map(of_op).collect()
}

fn every_call_fails(kind: &str) {
    let (_guard, sim) = alone();
    let mut tally = Tally::default();
    let (started, before) = (Instant::now(), testing::put_back());
    let routines = level3(kind);
    for (number, &routine) in routines.iter().enumerate() {
        for in_core in [true, false] {
            let case = Case::new(&sim, number, routine, in_core);
            inject_all(&sim, &case, kind, &mut tally);
        }
    }
    let (level3, undone) = (tally.injections, testing::put_back() - before);
    for keeps in [false, true] {
        for case in Case::lapack(&sim, keeps) {
            inject_all(&sim, &case, kind, &mut tally);
        }
    }
    let (of_lapack, put_back) = (
        tally.injections - level3,
        testing::put_back() - before - undone,
    );
    sim.reset();
    testing::set_tile(None);
    println!(
        "{kind}: {tally:?} in {} routines of level 3, {of_lapack} of them LAPACK's, {undone} results of level 3 and {put_back} of LAPACK put back, in {:.0} s",
        routines.len(),
        started.elapsed().as_secs_f64()
    );
    assert!(of_lapack > 0);
    // A transfer that is refused is tried again, so only a lost device ends a delivery.
    assert!(kind != "lost" || undone.min(put_back) > 0);
    let ended = if matches!(kind, "lost" | "late") {
        tally.lost
    } else {
        tally.failed
    };
    assert!(
        ended > tally.injections / 4,
        "few faults were met: {tally:?}"
    );
}

#[test]
fn refused() {
    every_call_fails("invalid");
}

#[test]
fn out_of_memory() {
    every_call_fails("oom");
}

#[test]
fn a_code_that_nobody_knows() {
    every_call_fails("unknown");
}

#[test]
fn lost_at_once() {
    every_call_fails("lost");
}

#[test]
fn lost_when_the_work_runs() {
    every_call_fails("late");
}
