//! Every routed routine of LAPACK through the engine: which bytes belong to the call by its options and sizes,
//! what a failure leaves, and what the CPU gets. The mock device computes nothing; it marks what it may write.
//!
//! Unsafe lives here because the tests play the shim.

mod common;

use call::Failure;
use common::{HOST, PUBLISHED, Script, engine, matrix_mark, profile, settings, vector_mark};
use core::ffi::c_void;
use cost_model::{Level, SOLVER_START_S, Situation, predict, threshold_work};
use engine_abi::{
    MAX_LETTERS, MAX_MATRICES, MAX_VECTORS, OUTCOME_DONE, OUTCOME_UNTOUCHED, RawMatrix,
    RoutedLapack,
};
use gpu_offload::Engine;
use gpu_offload::config::{LogLevel, Mode, Settings};
use routines::{
    Arg, Dims, Family, Intent, Library, Op, Options, Precision, Scalars, Shape, family, routed_in,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const GAP: usize = 2;
/// What memory holds before a call.
const BEFORE: u8 = 0xee;
const INFO_BEFORE: i64 = 0x7777_7777_7777_7777;

/// One operand's memory, with a gap below each column, and what of it belongs to the call.
struct Memory {
    bytes: Vec<u8>,
    rows: usize,
    cols: usize,
    elem_bytes: usize,
    intent: Intent,
    mark: u8,
}

impl Memory {
    fn new((rows, cols): (u64, u64), elem_bytes: usize, intent: Intent, mark: u8) -> Self {
        let (rows, cols) = (rows as usize, cols as usize);
        Self {
            bytes: vec![BEFORE; (rows + GAP) * cols * elem_bytes],
            rows,
            cols,
            elem_bytes,
            intent,
            mark,
        }
    }

    /// Every byte as the call must leave it.
    fn expect(&self, name: &str, written: impl Fn(Intent) -> Option<u8>) {
        let column = (self.rows + GAP) * self.elem_bytes;
        for (at, byte) in self.bytes.iter().enumerate() {
            let inside = at % column < self.rows * self.elem_bytes;
            let right = written(self.intent).filter(|_| inside).unwrap_or(BEFORE);
            assert_eq!(*byte, right, "{name}: byte {at} of {} columns", self.cols);
        }
    }
}

struct Case {
    name: String,
    op: Op,
    precision: Precision,
    letters: [u8; MAX_LETTERS],
    scalars: Scalars,
    dims: Dims,
    integer_bytes: u8,
    /// `None` where the options leave it unreferenced.
    matrices: Vec<Option<Memory>>,
    vectors: Vec<Option<Memory>>,
    info: i64,
    cpu_runs: usize,
}

impl Case {
    fn new(
        row: &'static Family,
        precision: Precision,
        letters: [u8; MAX_LETTERS],
        dims: Dims,
    ) -> Self {
        let scalars = Scalars::usual(row, precision, dims.n);
        let options = Options::new(row, precision, letters).with(scalars);
        let integer_bytes = if dims.m == dims.n { 4 } else { 8 };
        let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
        for arg in row.args_of(precision) {
            match *arg {
                Arg::Matrix { .. } => {
                    let mark = matrix_mark(matrices.len());
                    let intent = options.intent(arg).expect("an operand");
                    let memory = |shape| Memory::new(shape, precision.elem_bytes(), intent, mark);
                    matrices.push(options.matrix(arg, &dims).map(memory));
                }
                Arg::Vector { .. } | Arg::IntVector { .. } => {
                    let elem_bytes = match *arg {
                        Arg::IntVector { .. } => usize::from(integer_bytes),
                        Arg::Vector { real: true, .. } => precision.real().elem_bytes(),
                        _ => precision.elem_bytes(),
                    };
                    let mark = vector_mark(vectors.len());
                    let intent = options.intent(arg).expect("an operand");
                    let memory = |len| Memory::new((len, 1), elem_bytes, intent, mark);
                    vectors.push(options.vector(arg, &dims).map(memory));
                }
                _ => {}
            }
        }
        let shown: String = letters
            .iter()
            .filter(|l| **l != 0)
            .map(|l| *l as char)
            .collect();
        Self {
            name: format!(
                "{} {shown} m={} n={} k={}",
                row.routine(precision).expect("routed"),
                dims.m,
                dims.n,
                dims.k
            ),
            op: row.op,
            precision,
            letters,
            scalars,
            dims,
            integer_bytes,
            matrices,
            vectors,
            info: INFO_BEFORE,
            cpu_runs: 0,
        }
    }

    fn raw(&mut self) -> RoutedLapack {
        let mut raw = RoutedLapack {
            struct_bytes: size_of::<RoutedLapack>() as u32,
            op: self.op as u32,
            precision: self.precision as u8,
            integer_bytes: self.integer_bytes,
            reserved: [0; 2],
            letters: self.letters,
            m: self.dims.m as i64,
            n: self.dims.n as i64,
            k: self.dims.k as i64,
            reals: self.scalars.reals,
            ints: self.scalars.ints,
            matrices: [RawMatrix {
                data: core::ptr::null_mut(),
                ld: 0,
            }; MAX_MATRICES],
            vectors: [core::ptr::null_mut(); MAX_VECTORS],
            info: (&raw mut self.info).cast(),
            host: &raw const HOST,
            cpu: run_cpu,
            frame: core::ptr::null(),
        };
        for (given, memory) in raw.matrices.iter_mut().zip(&mut self.matrices) {
            // LAPACK asks for a leading dimension of 1 where a matrix is not referenced.
            given.ld = 1;
            if let Some(memory) = memory {
                given.data = memory.bytes.as_mut_ptr().cast();
                given.ld = (memory.rows + GAP) as i64;
            }
        }
        for (given, memory) in raw.vectors.iter_mut().zip(&mut self.vectors) {
            if let Some(memory) = memory {
                *given = memory.bytes.as_mut_ptr().cast();
            }
        }
        raw.frame = (&raw mut self.cpu_runs).cast();
        raw
    }

    fn route(&mut self, engine: &'static Engine) -> u32 {
        let raw = self.raw();
        // SAFETY: the operands, the host and the frame outlive the call.
        unsafe { engine.route_lapack(&raw) }
    }

    fn operands(&self) -> impl Iterator<Item = &Memory> {
        self.matrices.iter().chain(&self.vectors).flatten()
    }

    /// All of it written and info set, in its own width.
    fn expect_done(&self) {
        for memory in self.operands() {
            memory.expect(&self.name, |intent| {
                (intent != Intent::In).then_some(memory.mark)
            });
        }
        let zeroed = match self.integer_bytes {
            8 => 0,
            _ => INFO_BEFORE & !0xffff_ffff,
        };
        assert_eq!(self.info, zeroed, "{}", self.name);
    }

    /// What the CPU reads is as it was.
    fn expect_kept(&self) {
        for memory in self.operands() {
            if memory.intent != Intent::Out {
                memory.expect(&self.name, |_| None);
            }
        }
        assert_eq!(self.info, INFO_BEFORE, "{}", self.name);
    }
}

unsafe extern "C" fn run_cpu(frame: *const c_void) {
    // SAFETY: `raw` put a pointer to a live counter there; the engine calls this while the test waits.
    unsafe { *frame.cast::<usize>().cast_mut() += 1 };
}

/// Tall, square and wide where the routine has both sizes, and 1.
fn sizes(row: &Family, right: bool) -> Vec<Dims> {
    // syevr has an output that is called m.
    let has = |name| row.args.contains(&Arg::Size { name });
    let dims = |m, n, k| Dims { m, n, k, right };
    match row.op {
        Op::Orgqr => vec![dims(7, 4, 3), dims(4, 4, 4), dims(1, 1, 1)],
        Op::Ormqr => vec![dims(7, 4, 3), dims(4, 7, 2), dims(1, 1, 1)],
        _ if has("m") => vec![dims(7, 4, 4), dims(4, 7, 7), dims(5, 5, 5), dims(1, 1, 1)],
        _ if has("nrhs") => vec![dims(5, 5, 2), dims(1, 1, 1)],
        _ => vec![dims(5, 5, 5), dims(1, 1, 1)],
    }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (row, precision, _) in routed_in(Library::Lapack) {
        for letters in Options::every_routed(row, precision) {
            let right = Options::new(row, precision, letters).letter("side") == b'R';
            for dims in sizes(row, right) {
                all.push(Case::new(row, precision, letters, dims));
            }
        }
    }
    all
}

fn forced(script: &Arc<Script>, s: Settings) -> &'static Engine {
    engine(s, script, profile(1.0, 1e-3, 1e-3))
}

#[test]
fn every_routine_and_option_reaches_the_device_with_its_own_operands() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    let mut calls = 0;
    for mut case in cases() {
        assert_eq!(case.route(engine), OUTCOME_DONE, "{}", case.name);
        case.expect_done();
        assert_eq!(case.cpu_runs, 0);
        calls += 1;
    }
    assert_eq!(script.committed.load(SeqCst), calls);
    // In each precision: getrf 4, getrs 3 x 2, getri 2, gesv 2, potrf 2 x 2, potrs 2 x 2, potri 2 x 2,
    // posv 2 x 2, geqrf 4, orgqr 3, ormqr 4 x 3, syev, syevd, sygv and sygvd 4 x 2 each, syevr, syevx and sygvx
    // 12 x 2 each, gesdd 4 x 4, gesvd 15 x 4, geev 4 x 2; trtri 2 x 2 x 2, trtrs 2 x 3 x 2 x 2, lauum 2 x 2, gelqf 4,
    // gels 2 x 4, gelsd and gelss 4 each.
    let each = 4 + 6 + 2 + 2 + 4 * 4 + 4 + 3 + 12 + 32 + 72 + 16 + 60 + 8 + 8 + 24 + 4 + 4 + 8 + 8;
    assert_eq!(calls, 4 * each);
}

#[test]
fn a_failure_leaves_everything_that_the_cpu_reads() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    *script.commit_failure.lock().expect("lock") = Some(Failure::Unsupported("for the test"));
    for mut case in cases() {
        assert_eq!(case.route(engine), OUTCOME_UNTOUCHED, "{}", case.name);
        case.expect_kept();
        assert_eq!(case.cpu_runs, 0, "the shim runs the CPU routine");
    }
    assert_eq!(script.committed.load(SeqCst), 0);
}

#[test]
fn a_panic_of_the_device_is_a_failure_like_others() {
    for during_commit in [false, true] {
        let script = Arc::new(Script::default());
        let engine = forced(&script, settings(Mode::Force));
        let asked = if during_commit {
            &script.panic_in_commit
        } else {
            &script.panic_in_compute
        };
        asked.store(true, SeqCst);
        let dims = Dims {
            m: 5,
            n: 5,
            k: 5,
            right: false,
        };
        let mut letters = [0; MAX_LETTERS];
        letters[..3].copy_from_slice(b"VAU");
        let mut case = Case::new(family(Op::Syevr), Precision::Z, letters, dims);
        assert_eq!(case.route(engine), OUTCOME_UNTOUCHED);
        // What a panic in the middle of the commit leaves is the backend's contract, not the engine's.
        if !during_commit {
            case.expect_kept();
        }
        assert_eq!(case.info, INFO_BEFORE);
        assert_eq!(script.computed.load(SeqCst), 1);
    }
}

/// With a log the engine itself runs the CPU routine, once, and says why.
#[test]
fn the_log_has_the_name_the_letters_and_the_reason() {
    let script = Arc::new(Script::default());
    let path = std::env::temp_dir().join(format!("gpu-offload-lapack-{}.txt", std::process::id()));
    let engine = forced(
        &script,
        Settings {
            log: Some(LogLevel::Decisions),
            log_file: Some(path.clone()),
            ..settings(Mode::Force)
        },
    );
    let dims = |m, n, k| Dims {
        m,
        n,
        k,
        right: false,
    };
    let mut done = Case::new(family(Op::Syevd), Precision::Z, *b"VL\0\0", dims(5, 5, 5));
    assert_eq!(done.route(engine), OUTCOME_DONE);
    *script.commit_failure.lock().expect("lock") = Some(Failure::Unsupported("info = 3"));
    let mut failed = Case::new(family(Op::Gesv), Precision::D, [0; 4], dims(5, 5, 2));
    assert_eq!(failed.route(engine), OUTCOME_DONE);
    assert_eq!((done.cpu_runs, failed.cpu_runs), (0, 1));
    failed.expect_kept();
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("removable");
    for line in [
        "zheevd VL m=5 n=5 k=5 -> gpu (forced",
        "dgesv  m=5 n=5 k=2 -> cpu (failed-on-gpu: no GPU path: info = 3",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn operands_that_overlap_go_to_the_cpu() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    let dims = Dims {
        m: 5,
        n: 5,
        k: 2,
        right: false,
    };
    let route = |change: &dyn Fn(&mut RoutedLapack)| {
        let mut case = Case::new(family(Op::Gesv), Precision::D, [0; 4], dims);
        let mut raw = case.raw();
        change(&mut raw);
        // SAFETY: every operand lies inside live memory of the case.
        let outcome = unsafe { engine.route_lapack(&raw) };
        if outcome == OUTCOME_UNTOUCHED {
            case.expect_kept();
        }
        outcome
    };
    assert_eq!(route(&|_| ()), OUTCOME_DONE);
    // The right-hand sides in the last two columns of the matrix, and the pivots in its first.
    let last_columns = |raw: &mut RoutedLapack| {
        raw.matrices[1] = RawMatrix {
            data: raw.matrices[0].data.wrapping_byte_add(3 * (5 + GAP) * 8),
            ld: raw.matrices[0].ld,
        };
    };
    assert_eq!(route(&last_columns), OUTCOME_UNTOUCHED);
    assert_eq!(
        route(&|raw| raw.vectors[0] = raw.matrices[0].data),
        OUTCOME_UNTOUCHED
    );
    assert_eq!(script.computed.load(SeqCst), 1);
}

#[test]
fn what_contradicts_the_family_is_left_to_the_shim() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    let refuse = |op: Op, change: &dyn Fn(&mut RoutedLapack)| {
        let row = family(op);
        let first = Options::every_routed(row, Precision::D)[0];
        let dims = sizes(row, false)[0];
        let mut case = Case::new(row, Precision::D, first, dims);
        let mut raw = case.raw();
        change(&mut raw);
        // SAFETY: nothing of these calls may be touched; that is what is tested.
        let outcome = unsafe { engine.route_lapack(&raw) };
        assert_eq!(outcome, OUTCOME_UNTOUCHED, "{}", case.name);
    };
    for (row, precision, _) in routed_in(Library::Lapack) {
        if precision != Precision::D {
            continue;
        }
        refuse(row.op, &|raw| raw.n = 0);
        refuse(row.op, &|raw| raw.m = -1);
        refuse(row.op, &|raw| raw.k = 0);
        refuse(row.op, &|raw| raw.letters[3] = b'N');
        refuse(row.op, &|raw| raw.matrices[0].data = core::ptr::null_mut());
        refuse(row.op, &|raw| raw.matrices[0].ld = 2);
        refuse(row.op, &|raw| raw.matrices[0].ld = i64::MAX);
        refuse(row.op, &|raw| raw.info = core::ptr::null_mut());
        refuse(row.op, &|raw| raw.integer_bytes = 2);
        refuse(row.op, &|raw| raw.precision = b'Q');
    }
    for op in [Op::Potrf, Op::Syevr] {
        refuse(op, &|raw| raw.m += 1);
    }
    refuse(Op::Potrf, &|raw| raw.k += 1);
    refuse(Op::Potrf, &|raw| raw.letters[0] = b'X');
    refuse(Op::Orgqr, &|raw| raw.k = raw.n + 1);
    refuse(Op::Gesv, &|raw| raw.vectors[0] = core::ptr::null_mut());
    refuse(Op::Syevr, &|raw| raw.letters[1] = b'X');
    refuse(Op::Syevr, &|raw| {
        raw.letters[1] = b'I';
        raw.ints[1] = raw.n + 1;
    });
    refuse(Op::Syevr, &|raw| {
        raw.letters[1] = b'V';
        raw.reals[1] = raw.reals[0];
    });
    refuse(Op::Sygvd, &|raw| raw.ints[0] = 4);
    refuse(Op::Gesvd, &|raw| raw.letters = *b"OO\0\0");
    refuse(Op::Gemm, &|_| ());
    assert_eq!(script.computed.load(SeqCst), 0);
}

/// What the GPU of a made-up machine is good for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Machine {
    Wins,
    Loses,
}

/// Where the GPU wins no call of a family, its threshold is out of reach, and a call that comes all the same goes
/// back.
#[test]
fn without_force_the_cost_model_says_what_comes() {
    use Machine::{Loses, Wins};
    for (machine, threshold_flops, mode) in [
        (Wins, None, Mode::Auto),
        (Wins, Some(0.0), Mode::Auto),
        (Loses, Some(0.0), Mode::Auto),
        (Loses, None, Mode::Auto),
        (Loses, None, Mode::Deterministic),
    ] {
        let known = match machine {
            Wins => profile(1.0, 1e-3, 1e-3),
            Loses => profile(1e-3, 1.0, 1e-3),
        };
        let script = Arc::new(Script::default());
        let wanted = Settings {
            threshold_flops,
            ..settings(mode)
        };
        let engine = engine(wanted, &script, known.clone());
        engine.publish(&HOST);
        let mut closed = 0;
        for (row, precision, name) in routed_in(Library::Lapack) {
            let model = threshold_work(&known, row.op, precision, Level::default());
            let right = match threshold_flops {
                Some(_) if model != u64::MAX => 0,
                _ => model,
            };
            let index = Precision::ALL.iter().position(|p| *p == precision);
            let published = &PUBLISHED[row.op as usize][index.expect("a precision")];
            assert_eq!(published.load(SeqCst), right, "{name}");
            if right != u64::MAX {
                continue;
            }
            closed += 1;
            let first = Options::every_routed(row, precision)[0];
            let mut case = Case::new(row, precision, first, sizes(row, false)[0]);
            assert_eq!(case.route(engine), OUTCOME_UNTOUCHED, "{name}");
            case.expect_kept();
        }
        let all = routed_in(Library::Lapack).count();
        assert_eq!(
            closed,
            if machine == Loses { all } else { 0 },
            "{machine:?}"
        );
        assert_eq!(script.computed.load(SeqCst), 0);
    }
}

/// cuSOLVER's start is a term until a call has paid it, and is paid once enough was missed.
#[test]
fn the_solvers_start_is_paid_once() {
    let dims = Dims {
        m: 5,
        n: 5,
        k: 5,
        right: false,
    };
    let case = || Case::new(family(Op::Getrf), Precision::D, [0; 4], dims);
    let shape = Shape::of_lapack(Op::Getrf, Precision::D, &dims, [0; 4]);
    let cpu_s = |product_s| {
        let known = profile(product_s, 1e-9, 1e-3);
        predict(&known, &shape, &Situation::default())
            .expect("a model")
            .cpu_s
    };
    // A hundred times the solver's start on the CPU: the first call pays it at once.
    let script = Arc::new(Script::default());
    let known = profile(100.0 * SOLVER_START_S / cpu_s(1.0), 1e-9, 1e-3);
    let long = engine(settings(Mode::Auto), &script, known);
    let mut first = case();
    assert_eq!(first.route(long), OUTCOME_DONE);
    first.expect_done();
    // A tenth of it: a number of calls go by, and then the GPU it is.
    let script = Arc::new(Script::default());
    let known = profile(0.1 * SOLVER_START_S / cpu_s(1.0), 1e-9, 1e-3);
    let short = engine(settings(Mode::Auto), &script, known);
    let missed = (0..200).take_while(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        case().route(short) == OUTCOME_UNTOUCHED
    });
    let missed = missed.count();
    assert!(
        (10..100).contains(&missed),
        "{missed} calls before the solver was worth it"
    );
    assert_eq!(case().route(short), OUTCOME_DONE);
}

#[test]
fn a_call_nested_in_a_call_on_the_gpu_stays_on_the_cpu() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    let dims = Dims {
        m: 5,
        n: 5,
        k: 5,
        right: false,
    };
    let case = move || Case::new(family(Op::Getrf), Precision::D, [0; 4], dims);
    *script.nested.lock().expect("lock") = Some(Box::new(move || {
        let mut inner = case();
        assert_eq!(inner.route(engine), OUTCOME_UNTOUCHED);
        inner.expect_kept();
    }));
    let mut outer = case();
    assert_eq!(outer.route(engine), OUTCOME_DONE);
    outer.expect_done();
    assert_eq!(script.computed.load(SeqCst), 1);
    // The closure holds the engine, and the engine the script.
    *script.nested.lock().expect("lock") = None;
}
