//! Every order that the engine makes is needed: each wait, recording and question of CUDA, and each gate of
//! the host, is left out in turn, and some schedule of the simulated device must then show a wrong result,
//! a complaint or a call that does not end.
//!
//! A mutant counts where leaving the order out made a difference (the work had not ended yet); one that
//! makes none in any run has nothing to hold up. On the simulated device only.

mod common;

use call::{Op, Precision, Scalar, Trans};
use common::family::Family;
use common::lapack::{Case as LapackCase, one_of_each};
use common::subject::Subject;
use common::{Product, Random, Sim};
use gpu_backend::testing::{self, Gate};
use gpu_backend::{Gpu, StartOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Rows of a panel, and the largest m, n or k: several steps, and chunks that are used again.
const TILE: usize = 24;
const EDGE: usize = 56;

/// Schedules: with a multiple of four each stream has a speed of its own, with the three after it uploads,
/// downloads or kernels are late; the first four are one of each. The multiples of four are chosen by what is
/// very slow: 4 the first worker, 20 the second, 16 the kernels, 792 the kernels and the first worker, 60 the
/// kernels and the second.
const SEEDS: [u64; 8] = [4, 5, 6, 7, 20, 792, 60, 16];

/// Longest single delays in microseconds; what is late waits ten times as long. The first is longer than
/// what the host does meanwhile on an idle machine; a mutant that passes is tried with the next ones, since
/// on a busy machine the host is late too.
const DELAYS_US: [u64; 3] = [100, 600, 3000];

/// Order of LAPACK's matrices: two pieces each.
const ORDER: usize = 100;

/// Where deliveries fail, keeping takes so long at least: longer than the kernels.
const KEEP_DELAY: Duration = Duration::from_millis(20);

const GATES: [Gate; 12] = [
    Gate::BeginAfterSteps,
    Gate::OverAfterDownloads,
    Gate::OverAfterKernels,
    Gate::KernelsAfterUploads,
    Gate::DownloadsAfterKernels,
    Gate::CopiesAfterSuccess,
    Gate::DeliveryAfterSuccess,
    Gate::DeliveryAfterKeeps,
    Gate::FillAfterTransfer,
    Gate::EmptyAfterTransfer,
    Gate::LendAfterTransfers,
    Gate::LendAfterKernels,
];

/// A call, and what it runs on.
struct Case {
    name: &'static str,
    subject: Subject,
    options: StartOptions,
    fault: Fault,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    /// This ends a first call while its work is queued; a second one then uses the same memory.
    Before(&'static str),
    /// This ends the call, which must leave what it reads as it was.
    OnTheWayHome(&'static str),
}

/// What a run shows.
struct Outcome {
    passed: bool,
    mattered: bool,
    /// For messages.
    said: String,
}

#[derive(Clone, Debug)]
enum Mutant {
    /// `function@event:n` of the simulation.
    Call(String),
    Host(Gate),
}

#[derive(Default)]
struct Tally {
    killed: usize,
    survived: Vec<String>,
    no_difference: usize,
    /// Those of the host that were needed somewhere.
    gates: BTreeSet<String>,
}

impl Case {
    fn new(
        name: &'static str,
        (op, precision, beta): (Op, Precision, f64),
        budget_percent: Option<u64>,
        fault: Fault,
    ) -> Self {
        let mut random = Random(77 + op as u64);
        let family = Family::sized(op, precision, EDGE, beta, &mut random);
        let operands = [Some(&family.a), family.b.as_ref(), Some(&family.c)];
        let elems = operands.iter().flatten().map(|x| x.rows * x.cols);
        let bytes = (elems.sum::<usize>() * precision.elem_bytes()) as u64;
        let fixed_bytes = testing::SMALL_WORKSPACE_BYTES + (2 << 20);
        let options = StartOptions {
            staging_threads: 2,
            slots: 2,
            memory_limit_bytes: budget_percent.map(|p| fixed_bytes + bytes * p / 100),
            ..common::options()
        };
        Self {
            name,
            subject: Subject::level3(family),
            options,
            fault,
        }
    }

    /// `choose` finds the case among one of each.
    fn lapack(
        name: &'static str,
        choose: impl Fn(&LapackCase) -> bool,
        keeps: bool,
        fault: Fault,
    ) -> Self {
        let all = one_of_each(Precision::D, ORDER, &mut Random(78));
        let case = all.into_iter().find(choose).expect("a case");
        let options = StartOptions {
            staging_threads: 2,
            slots: 2,
            ..common::options()
        };
        Self {
            name,
            subject: Subject::lapack(case, keeps),
            options,
            fault,
        }
    }

    fn all() -> Vec<Self> {
        let nothing = Fault::Nothing;
        let op = |op: Op| move |case: &LapackCase| case.op == op;
        vec![
            Self::new("gemm", (Op::Gemm, Precision::D, 0.0), None, nothing),
            Self::new("gemm with C", (Op::Gemm, Precision::D, 0.5), None, nothing),
            Self::new(
                "gemm in tiles",
                (Op::Gemm, Precision::D, 0.0),
                Some(60),
                nothing,
            ),
            // Not syrk: where its diagonal tile has one panel, the next tile brings the same one up to the
            // same place, and no schedule needs that to wait.
            Self::new(
                "gemmtr in tiles",
                (Op::Gemmtr, Precision::D, 0.5),
                Some(80),
                nothing,
            ),
            Self::new("trsm", (Op::Trsm, Precision::D, 1.0), None, nothing),
            Self::new(
                "trsm in blocks",
                (Op::Trsm, Precision::D, 1.0),
                Some(60),
                nothing,
            ),
            Self::new("trmm", (Op::Trmm, Precision::D, 1.0), None, nothing),
            Self::new("symm", (Op::Symm, Precision::D, 0.0), None, nothing),
            Self::new(
                "gemm after a failure",
                (Op::Gemm, Precision::D, 0.0),
                None,
                Fault::Before("cublasGemmEx_64:4:unknown"),
            ),
            Self::lapack("getrf through scratch", op(Op::Getrf), false, nothing),
            Self::lapack("posv kept", op(Op::Posv), true, nothing),
            Self::lapack("gesdd", op(Op::Gesdd), false, nothing),
            Self::lapack("gelsd", op(Op::Gelsd), false, nothing),
            // After the pivots and info comes the second piece of the factors.
            Self::lapack(
                "getrf lost on its way home",
                op(Op::Getrf),
                true,
                Fault::OnTheWayHome("cuMemcpyDtoHAsync_v2:4:lost"),
            ),
        ]
    }

    /// One run under a schedule; `arm` is called when the device has started.
    fn run(&self, sim: &Sim, (seed, delay_us): (u64, u64), mutant: Option<&Mutant>) -> Outcome {
        sim.reset();
        testing::leave_out(None);
        sim.set_delay(&format!("adversarial:{seed}:{delay_us}"));
        let gpu = Gpu::start(&self.options).unwrap_or_else(|e| panic!("{e}"));
        gpu.set_wait_limit(Duration::from_secs(20));
        let on_the_way = matches!(self.fault, Fault::OnTheWayHome(_));
        testing::set_keep_delay(if on_the_way {
            KEEP_DELAY
        } else {
            Duration::ZERO
        });
        sim.set_fault(match self.fault {
            Fault::Nothing => "",
            Fault::Before(fault) | Fault::OnTheWayHome(fault) => fault,
        });
        match mutant {
            Some(Mutant::Call(call)) => sim.set_ignore(call),
            Some(Mutant::Host(gate)) => testing::leave_out(Some(*gate)),
            None => {
                sim.set_ignore("");
                testing::watch();
            }
        }
        let failed_as_asked = !matches!(self.fault, Fault::Before(_)) || self.fails(&gpu);
        let mut done = self.subject.clone();
        let ran = catch_unwind(AssertUnwindSafe(|| done.run(&gpu)));
        let right = match (&ran, on_the_way) {
            (Ok(Ok(_)), false) => self.subject.is_right(&done),
            (Ok(Err(_)), true) => self.is_kept(&done),
            _ => false,
        };
        let mattered = match mutant {
            Some(Mutant::Call(_)) => sim.ignored() > 0,
            Some(Mutant::Host(_)) => !testing::mattered().is_empty(),
            None => true,
        };
        // What is still queued may complain.
        gpu.shutdown();
        std::thread::sleep(Duration::from_micros(delay_us));
        let complaints = sim.complaints();
        Outcome {
            passed: failed_as_asked && right && complaints.is_empty(),
            mattered,
            said: format!(
                "{:?}, right: {right}, {complaints:?}",
                ran.map(|ran| ran.err())
            ),
        }
    }

    /// A product with other numbers that meets the fault. Its result lies where the next call has operands.
    fn fails(&self, gpu: &Gpu) -> bool {
        let (sizes, factors) = ((80, 80, TILE / 2), (Scalar::ONE, Scalar::ZERO));
        let mut random = Random(5);
        let mut other = Product::random(
            Precision::D,
            (Trans::N, Trans::N),
            sizes,
            factors,
            0,
            &mut random,
        );
        other.run(gpu).is_err()
    }

    fn is_kept(&self, done: &Subject) -> bool {
        let check = || self.subject.assert_kept(done, self.name);
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    }

    /// Runs without a mutant under every schedule, and lists what may be left out.
    fn mutants(&self, sim: &Sim) -> Vec<Mutant> {
        let mut calls = BTreeMap::new();
        let mut gates = BTreeSet::new();
        for seed in SEEDS {
            testing::leave_out(None);
            let outcome = self.run(sim, (seed, DELAYS_US[0]), None);
            let (name, said) = (self.name, outcome.said);
            assert!(
                outcome.passed,
                "{name} fails unchanged with seed {seed}: {said}"
            );
            gates.extend(testing::mattered());
            for (name, count) in sim.calls_of_events() {
                let entry = calls.entry(name).or_insert((0, u64::MAX));
                *entry = (entry.0 + 1, count.min(entry.1));
            }
        }
        let gates = gates.into_iter().map(Mutant::Host);
        // Nobody cares what a failed call computes, only how it ends.
        let of_failed: &[Gate] = match self.fault {
            Fault::Nothing => &[],
            Fault::Before(_) => &[Gate::LendAfterTransfers, Gate::LendAfterKernels],
            Fault::OnTheWayHome(_) => &[Gate::DeliveryAfterKeeps],
        };
        if self.fault != Fault::Nothing {
            let asked = |m: &Mutant| matches!(m, Mutant::Host(gate) if of_failed.contains(gate));
            return gates.filter(asked).collect();
        }
        // Which thread moves what differs: a call that some schedule does not have cannot be judged by all.
        calls.retain(|_, (schedules, _)| *schedules == SEEDS.len());
        let call = |(name, (_, count)): (&String, &(usize, u64))| -> Vec<Mutant> {
            let of = |n: &dyn Display| Mutant::Call(format!("{name}:{n}"));
            if name.starts_with("cuEventQuery") {
                // A question is repeated until the answer is yes.
                return vec![of(&"every")];
            }
            (1..=*count).map(|n| of(&n)).collect()
        };
        calls.iter().flat_map(call).chain(gates).collect()
    }

    /// The first schedule that a mutant fails under decides.
    fn fate(&self, sim: &Sim, mutant: &Mutant) -> Fate {
        let mut mattered = false;
        for delay_us in DELAYS_US {
            for (number, seed) in SEEDS.into_iter().enumerate() {
                let outcome = self.run(sim, (seed, delay_us), Some(mutant));
                mattered |= outcome.mattered;
                if !outcome.passed {
                    return Fate::Killed;
                }
                // What held nothing up in four schedules has nothing to hold up.
                if !mattered && number == 3 {
                    return Fate::NoDifference;
                }
            }
        }
        Fate::Survived
    }

    fn judge(&self, sim: &Sim, mutant: &Mutant, tally: &mut Tally) {
        match self.fate(sim, mutant) {
            Fate::Killed => {
                tally.killed += 1;
                if let Mutant::Host(gate) = mutant {
                    tally.gates.insert(format!("{gate:?}"));
                }
            }
            Fate::Survived => tally.survived.push(format!("{}: {mutant:?}", self.name)),
            Fate::NoDifference => tally.no_difference += 1,
        }
    }
}

enum Fate {
    Killed,
    Survived,
    /// In no run was there anything to wait for.
    NoDifference,
}

/// Variable that names the program of one process.
const TASK: &str = "MUTANTS_OF";

/// One program's mutants; prints what became of them.
#[test]
#[ignore = "runs inside the other test"]
fn one_program() {
    let name = std::env::var(TASK).expect("a program's name");
    let case = Case::all().into_iter().find(|case| case.name == name);
    let mut case = case.expect("a program");
    let sim = Sim::new();
    testing::set_tile(Some(TILE));
    sim.set_delay("none:1");
    let gpu = Gpu::start(&case.options).unwrap_or_else(|e| panic!("{e}"));
    case.subject.learn(&gpu);
    gpu.shutdown();
    let mut tally = Tally::default();
    for mutant in case.mutants(&sim) {
        case.judge(&sim, &mutant, &mut tally);
    }
    println!("\nkilled {}", tally.killed);
    println!("no_difference {}", tally.no_difference);
    tally.survived.iter().for_each(|s| println!("survived {s}"));
    tally.gates.iter().for_each(|g| println!("gate {g}"));
}

/// Processes that a program gets while an order survives. Which thread moves which piece differs between them: a
/// recording that another one of the same stream covers in one may hold something up in the next. Nothing needs what
/// survives in each.
const PROCESSES: usize = 4;

/// What became of the mutants in one process.
fn read(name: &str, child: Child) -> Tally {
    let output = child.wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.rfind("panicked").map_or("", |at| &errors[at..]);
    assert!(output.status.success(), "{name}: {text} {last}");
    let mut tally = Tally::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("killed", n)) => tally.killed = n.parse().expect("a number"),
            Some(("no_difference", n)) => tally.no_difference = n.parse().expect("a number"),
            Some(("survived", what)) => tally.survived.push(what.to_owned()),
            Some(("gate", gate)) => drop(tally.gates.insert(gate.to_owned())),
            _ => {}
        }
    }
    tally
}

/// The device is the process's, and the runs mostly wait: so each program has a process, all at once.
#[test]
fn every_order_is_needed() {
    let started = Instant::now();
    let exe = std::env::current_exe().expect("own path");
    let start = |name: &'static str| {
        let mut command = Command::new(&exe);
        command.args([
            "--exact",
            "one_program",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
        command
            .env(TASK, name)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (name, command.spawn().expect("started"))
    };
    let children: Vec<_> = Case::all().iter().map(|case| start(case.name)).collect();
    let mut tally = Tally::default();
    for (name, child) in children {
        let mut of_case = read(name, child);
        for _ in 1..PROCESSES {
            if of_case.survived.is_empty() {
                break;
            }
            let before = of_case.survived;
            println!("{name}: once more, survived: {before:?}");
            of_case = read(name, start(name).1);
            of_case.survived.retain(|what| before.contains(what));
        }
        let survived = of_case.survived.len();
        println!(
            "{name}: {} killed of {}",
            of_case.killed,
            of_case.killed + survived
        );
        tally.killed += of_case.killed;
        tally.no_difference += of_case.no_difference;
        tally.survived.extend(of_case.survived);
        tally.gates.extend(of_case.gates);
    }
    let all = tally.killed + tally.survived.len();
    println!(
        "mutants: {} killed of {all} in {:.0} s; {} more made no difference",
        tally.killed,
        started.elapsed().as_secs_f64(),
        tally.no_difference
    );
    assert!(tally.survived.is_empty(), "survived: {:#?}", tally.survived);
    for gate in GATES {
        assert!(
            tally.gates.contains(&format!("{gate:?}")),
            "no program needs {gate:?}"
        );
    }
}
