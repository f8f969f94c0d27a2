//! A mock device, a mock shim and small matrices for the engine's tests.
//!
//! Unsafe lives here because the tests play the shim: they hand raw calls to the engine.
#![allow(dead_code, missing_docs)]

pub mod reference;

use call::{Backend, Call, Failure, LapackCall, Matrix, Timing};
use core::cell::Cell;
use core::ffi::{c_char, c_void};
use cost_model::{
    Fingerprint, Level, Measurements, Overheads, Profile, Sample, Side, TransferTimes, Transfers,
};
use engine_abi::{ABI_VERSION, HostTable, RoutedCall};
use gpu_offload::config::{Mode, Settings};
use gpu_offload::{Device, Engine, Setup, StartFailure, Starter};
use routines::Precision;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the mock device does, and what was done with it.
#[derive(Default)]
pub struct Script {
    /// Fails `compute` with this, again and again.
    pub compute_failure: Mutex<Option<Failure>>,
    /// Fails `commit` with this, after having written rubbish if that is allowed (beta = 0).
    pub commit_failure: Mutex<Option<Failure>>,
    pub panic_in_compute: AtomicBool,
    pub panic_in_commit: AtomicBool,
    /// Adds 1 to the result's first element.
    pub is_wrong: AtomicBool,
    pub start_failure: Mutex<Option<StartFailure>>,
    pub panic_in_start: AtomicBool,
    pub start_takes_ms: AtomicU64,
    pub compute_takes_ms: AtomicU64,
    pub starts: AtomicUsize,
    pub computed: AtomicUsize,
    pub committed: AtomicUsize,
    pub inside: AtomicUsize,
    pub most_inside: AtomicUsize,
    /// Calls for which the shim was told to let its threads rest, as `compute` found them.
    pub resting: AtomicI32,
    /// Runs within `compute`.
    pub nested: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// A device whose arithmetic is loops over the definition.
pub struct Mock(pub Arc<Script>);

impl Backend for Mock {
    fn run(&self, call: &mut Call<'_>) -> Result<Timing, Failure> {
        let s = &self.0;
        s.computed.fetch_add(1, Ordering::SeqCst);
        let inside = s.inside.fetch_add(1, Ordering::SeqCst) + 1;
        s.most_inside.fetch_max(inside, Ordering::SeqCst);
        s.resting.fetch_max(RESTING.get(), Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(
            s.compute_takes_ms.load(Ordering::SeqCst),
        ));
        if let Some(nested) = &*s.nested.lock().expect("lock") {
            nested();
        }
        s.inside.fetch_sub(1, Ordering::SeqCst);
        assert!(!s.panic_in_compute.load(Ordering::SeqCst), "asked to panic");
        if let Some(f) = s.compute_failure.lock().expect("lock").clone() {
            return Err(f);
        }
        let g = match call {
            Call::Level3(g) => g,
            Call::Lapack(g) => return self.lapack(g),
        };
        let mut result = reference::result(g);
        if s.is_wrong.load(Ordering::SeqCst) {
            result[0][0] += 1.0;
        }
        let failure = s.commit_failure.lock().expect("lock").clone();
        if failure.is_some() && g.beta.is_zero() {
            let rubbish = reference::to_bytes([f64::NAN; 2], g.precision);
            g.c.write_column_piece(0, 0, &rubbish);
        }
        assert!(!s.panic_in_commit.load(Ordering::SeqCst), "asked to panic");
        if let Some(f) = failure {
            return Err(f);
        }
        for j in 0..g.n {
            for i in 0..g.m {
                if reference::in_result(g, i, j) {
                    let bytes = reference::to_bytes(result[j * g.m + i], g.precision);
                    g.c.write_column_piece(j, i, &bytes);
                }
            }
        }
        s.committed.fetch_add(1, Ordering::SeqCst);
        Ok(Timing {
            bytes_in: 16,
            bytes_out: 8,
            ..Timing::default()
        })
    }
}

/// What the mock writes into every byte of the `index`-th matrix that a routine of LAPACK writes.
pub fn matrix_mark(index: usize) -> u8 {
    0x10 + index as u8
}

/// As [`matrix_mark`], of a vector.
pub fn vector_mark(index: usize) -> u8 {
    0x40 + index as u8
}

impl Mock {
    /// Marks everything that is written: matrices and vectors by their place. A failure leaves rubbish in pure
    /// outputs, as the contract allows.
    fn lapack(&self, g: &mut LapackCall<'_>) -> Result<Timing, Failure> {
        let s = &self.0;
        let failure = s.commit_failure.lock().expect("lock").clone();
        let mark = |operand: &mut Matrix<'_>, byte: u8| {
            let view = match operand {
                Matrix::In(_) => return,
                Matrix::InOut(_) if failure.is_some() => return,
                Matrix::InOut(view) | Matrix::Out(view) => view,
            };
            let column = vec![byte; view.column_bytes()];
            for j in 0..view.cols() {
                view.write_column_piece(j, 0, &column);
            }
        };
        for (i, matrix) in g.matrices.iter_mut().enumerate() {
            if let Some(matrix) = matrix {
                mark(matrix, matrix_mark(i));
            }
        }
        assert!(!s.panic_in_commit.load(Ordering::SeqCst), "asked to panic");
        for (i, vector) in g.vectors.iter_mut().enumerate() {
            if let Some(vector) = vector {
                mark(&mut vector.data, vector_mark(i));
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        s.committed.fetch_add(1, Ordering::SeqCst);
        Ok(Timing::default())
    }
}

/// Starts the mock with a given profile.
pub struct MockStarter {
    pub script: Arc<Script>,
    pub profile: Profile,
}

impl Starter for MockStarter {
    fn start(&self, _: &Setup) -> Result<Device, StartFailure> {
        self.script.starts.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(
            self.script.start_takes_ms.load(Ordering::SeqCst),
        ));
        assert!(
            !self.script.panic_in_start.load(Ordering::SeqCst),
            "asked to panic"
        );
        if let Some(f) = self.script.start_failure.lock().expect("lock").clone() {
            return Err(f);
        }
        Ok(Device {
            backend: Box::new(Mock(self.script.clone())),
            name: "Mock GPU".to_owned(),
            profile: self.profile.clone(),
            profile_source: "mock".to_owned(),
            complaints: Vec::new(),
        })
    }
}

/// Made-up machine: the CPU takes `cpu_s`, the kernel `gpu_s` at n = 8, both as n^3; transfers are free.
pub fn profile(cpu_s: f64, gpu_s: f64, start_s: f64) -> Profile {
    let side = |time_s| {
        let mut side = Side::default();
        side.set(Precision::D, vec![Sample(8, 8, 8, time_s)]);
        side
    };
    Profile::new(Measurements {
        fingerprint: Fingerprint::default(),
        cpu_threads: 1,
        transfers: Transfers {
            latency_s: 1e-9,
            in_bytes_per_s: 1e15,
            out_bytes_per_s: 1e15,
            fresh_bytes_per_s: 1e15,
        },
        transfer_times: TransferTimes::default(),
        overheads: Overheads {
            call_s: 1e-9,
            start_s,
            overlap: 0.0,
        },
        cpu: side(cpu_s),
        gpu: side(gpu_s),
    })
    .expect("sound")
}

/// Without learning: the mock takes other times than profiles say.
pub fn settings(mode: Mode) -> Settings {
    Settings {
        mode,
        level: Level::default(),
        learn: Some(false),
        ..Settings::default()
    }
}

pub fn setup(settings: Settings, script: &Arc<Script>, known: Profile) -> Arc<Setup> {
    Arc::new(Setup {
        settings,
        fingerprint: Fingerprint::default(),
        cpu_threads: 1,
        profile: Some((known.clone(), "test".to_owned())),
        learned_dir: None,
        starter: Box::new(MockStarter {
            script: script.clone(),
            profile: known,
        }),
    })
}

pub fn engine(settings: Settings, script: &Arc<Script>, known: Profile) -> &'static Engine {
    Box::leak(Box::new(Engine::new(setup(settings, script, known))))
}

/// Codes of all families are below this.
pub const OPS: usize = 64;
/// Thresholds as the engine published them, by the code of the family and in the order of
/// `Precision::ALL`; one for all tests, so only tests that look at them alone may.
pub static PUBLISHED: [[AtomicU64; 4]; OPS] = [const { [const { AtomicU64::new(0) }; 4] }; OPS];
pub static CPU_THREADS: AtomicI32 = AtomicI32::new(1);

extern "C" fn set_threshold(op: u32, precision: u32, work: u64) {
    let index = Precision::ALL.iter().position(|p| *p as u32 == precision);
    PUBLISHED[op as usize][index.expect("a precision")].store(work, Ordering::SeqCst);
}

extern "C" fn cpu_threads() -> i32 {
    CPU_THREADS.load(Ordering::SeqCst)
}

thread_local! {
    /// Of this thread: calls for which the shim was told to let its threads rest.
    pub static RESTING: Cell<i32> = const { Cell::new(0) };
}

extern "C" fn rest(begins: i32) {
    RESTING.set(RESTING.get() + if begins != 0 { 1 } else { -1 });
}

extern "C" fn cpu_config() -> *const c_char {
    c"Mock BLAS 1.0".as_ptr()
}

pub static HOST: HostTable = HostTable {
    abi_version: ABI_VERSION,
    struct_bytes: size_of::<HostTable>() as u32,
    set_threshold,
    cpu_threads,
    cpu_config,
    rest,
};

/// C := 2 A B' + beta C with small whole numbers, so that every sum is exact.
pub struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub beta: f64,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub c: Vec<f64>,
    pub before: Vec<f64>,
    /// Times that the CPU routine ran.
    pub cpu_runs: usize,
    /// What it takes, besides computing.
    pub cpu_takes: Duration,
}

const GAP: usize = 3;

impl Problem {
    pub fn new(n: usize, beta: f64) -> Self {
        let (m, k) = (n, n);
        let fill = |len: usize, step: usize| (0..len).map(|i| ((i * step) % 7) as f64).collect();
        let c: Vec<f64> = fill((m + GAP) * n, 5);
        Self {
            m,
            n,
            k,
            beta,
            a: fill(m * k, 3),
            b: fill(n * k, 4),
            before: c.clone(),
            c,
            cpu_runs: 0,
            cpu_takes: Duration::ZERO,
        }
    }

    pub fn raw(&mut self) -> RoutedCall {
        RoutedCall {
            struct_bytes: size_of::<RoutedCall>() as u32,
            op: 1,
            precision: b'D',
            side: 0,
            uplo: 0,
            transa: b'N',
            transb: b'T',
            diag: 0,
            reserved: [0; 2],
            m: self.m as i64,
            n: self.n as i64,
            k: self.k as i64,
            alpha: [2.0, 0.0],
            beta: [self.beta, 0.0],
            a: self.a.as_ptr().cast(),
            lda: self.m as i64,
            b: self.b.as_ptr().cast(),
            ldb: self.n as i64,
            c: self.c.as_mut_ptr().cast(),
            ldc: (self.m + GAP) as i64,
            host: &raw const HOST,
            cpu: run_cpu,
            frame: (&raw const *self).cast(),
        }
    }

    fn compute(&mut self) {
        std::thread::sleep(self.cpu_takes);
        // In place: the engine may look at it afterwards.
        let right = self.right();
        self.c.copy_from_slice(&right);
        self.cpu_runs += 1;
    }

    /// The right answer; the gap rows as they were.
    pub fn right(&self) -> Vec<f64> {
        let mut right = self.before.clone();
        for j in 0..self.n {
            for i in 0..self.m {
                let sum: f64 = (0..self.k)
                    .map(|l| self.a[l * self.m + i] * self.b[l * self.n + j])
                    .sum();
                let c = &mut right[j * (self.m + GAP) + i];
                *c = 2.0 * sum
                    + if self.beta == 0.0 {
                        0.0
                    } else {
                        self.beta * *c
                    };
            }
        }
        right
    }

    /// As a shim does it: offers the call, runs the CPU routine if nothing was done. Returns true if
    /// the CPU routine ran, by whichever hand, and checks that it ran at most once.
    pub fn call(&mut self, engine: &'static Engine) -> bool {
        let raw = self.raw();
        // SAFETY: the operands, the host and the frame outlive the call.
        let outcome = unsafe { engine.route(&raw) };
        self.settle(outcome)
    }

    pub fn settle(&mut self, outcome: u32) -> bool {
        if outcome == engine_abi::OUTCOME_UNTOUCHED {
            assert_eq!(
                self.cpu_runs, 0,
                "the engine ran the CPU routine and said that it did not"
            );
            self.compute();
        }
        assert!(self.cpu_runs <= 1);
        assert_eq!(self.c, self.right());
        self.cpu_runs == 1
    }
}

unsafe extern "C" fn run_cpu(frame: *const c_void) {
    // SAFETY: `raw` put a pointer to a live Problem there; the engine calls this while the test's
    // thread does nothing else with it.
    unsafe { (*frame.cast::<Problem>().cast_mut()).compute() }
}
