//! What the tests share: the device under test, matrices with gaps, a plain reference product.
//!
//! `GPU_OFFLOAD_TEST_DEVICE=real` runs on the machine's GPU; otherwise the simulated libraries are used,
//! and a test fails if they are missing. Nothing is skipped here.
#![allow(dead_code)] // every test program uses a part of this

pub mod family;
pub mod lapack;
pub mod subject;

use call::{Call, Failure, Level3Call, MatMut, MatRef, Precision, Scalar, Timing, Trans};
use gpu_backend::{Gpu, StartOptions};
use std::path::{Path, PathBuf};

/// True if the machine's own GPU is tested.
pub fn real() -> bool {
    match std::env::var("GPU_OFFLOAD_TEST_DEVICE").as_deref() {
        Ok("real") => true,
        Ok("sim") | Err(_) => false,
        Ok(other) => panic!("GPU_OFFLOAD_TEST_DEVICE={other} (accepted: real, sim)"),
    }
}

/// The simulated library as cargo builds it: beside the test programs' folder.
pub fn sim_library() -> PathBuf {
    if let Some(path) = std::env::var_os("SIM_CUDA_LIBRARY") {
        return path.into();
    }
    let exe = std::env::current_exe().expect("the test program's path");
    let target = exe.parent().and_then(Path::parent).expect("target folder");
    let library = target.join("libsim_cuda.so");
    assert!(
        library.is_file(),
        "the simulated CUDA is missing: {} (`cargo build -p sim-cuda` makes it; \
         GPU_OFFLOAD_TEST_DEVICE=real tests a real GPU)",
        library.display()
    );
    library
}

/// A folder of this process with the simulated library under CUDA's names.
pub fn sim_dir() -> PathBuf {
    static DIR: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let make = || {
        let dir = fresh_dir("libraries");
        for name in [
            "libcuda.so.1",
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libcusolver.so.12",
        ] {
            std::os::unix::fs::symlink(sim_library(), dir.join(name)).expect("a link");
        }
        dir
    };
    DIR.get_or_init(make).clone()
}

/// An empty folder for this process.
pub fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // The folder of the build may not exist on the machine that runs the tests.
    let base = if dir.is_dir() {
        dir.to_owned()
    } else {
        std::env::temp_dir()
    };
    let dir = base.join(format!("gpu-backend-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// Options for the device under test: small chunks, so that small matrices have many pieces.
pub fn options() -> StartOptions {
    let library_dirs = if real() { Vec::new() } else { vec![sim_dir()] };
    StartOptions {
        staging_threads: 3,
        chunk_bytes: 64 << 10,
        library_dirs,
        ..StartOptions::default()
    }
}

/// A started device.
pub fn start() -> Gpu {
    Gpu::start(&options()).unwrap_or_else(|e| panic!("{e}"))
}

/// Complex number as (re, im).
pub type Number = (f64, f64);

pub fn mul(x: Number, y: Number) -> Number {
    (x.0 * y.0 - x.1 * y.1, x.0 * y.1 + x.1 * y.0)
}

pub fn modulus(x: Number) -> f64 {
    x.0.hypot(x.1)
}

/// What the gap between rows and ld is filled with, to see whether it is touched.
pub const SENTINEL: u8 = 0xa5;

/// A column-major matrix in its precision's bytes.
#[derive(Clone)]
pub struct Matrix {
    pub precision: Precision,
    pub rows: usize,
    pub cols: usize,
    pub ld: usize,
    pub bytes: Vec<u8>,
}

/// Repeatable numbers in [-1, 1).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() + 1.0) * 0.5 * n as f64) as usize % n
    }
}

impl Matrix {
    pub fn filled(
        precision: Precision,
        rows: usize,
        cols: usize,
        ld: usize,
        mut value: impl FnMut(usize, usize) -> Number,
    ) -> Self {
        let elem = precision.elem_bytes();
        // Exactly to the last row of the last column: what follows belongs to nobody.
        let elems = if cols == 0 { 0 } else { ld * (cols - 1) + rows };
        let bytes = vec![SENTINEL; elems * elem];
        let mut matrix = Self {
            precision,
            rows,
            cols,
            ld,
            bytes,
        };
        for j in 0..cols {
            for i in 0..rows {
                matrix.set(i, j, value(i, j));
            }
        }
        matrix
    }

    pub fn random(
        precision: Precision,
        rows: usize,
        cols: usize,
        ld: usize,
        random: &mut Random,
    ) -> Self {
        Self::filled(precision, rows, cols, ld, |_, _| {
            (random.next(), random.next())
        })
    }

    pub fn set(&mut self, i: usize, j: usize, value: Number) {
        let elem = self.precision.elem_bytes();
        let at = (j * self.ld + i) * elem;
        let target = &mut self.bytes[at..at + elem];
        match self.precision {
            Precision::S => target.copy_from_slice(&(value.0 as f32).to_ne_bytes()),
            Precision::D => target.copy_from_slice(&value.0.to_ne_bytes()),
            Precision::C => {
                target[..4].copy_from_slice(&(value.0 as f32).to_ne_bytes());
                target[4..].copy_from_slice(&(value.1 as f32).to_ne_bytes());
            }
            Precision::Z => {
                target[..8].copy_from_slice(&value.0.to_ne_bytes());
                target[8..].copy_from_slice(&value.1.to_ne_bytes());
            }
        }
    }

    pub fn get(&self, i: usize, j: usize) -> Number {
        let elem = self.precision.elem_bytes();
        let at = (j * self.ld + i) * elem;
        let source = &self.bytes[at..at + elem];
        let single = |b: &[u8]| f64::from(f32::from_ne_bytes(b.try_into().expect("4 bytes")));
        let double = |b: &[u8]| f64::from_ne_bytes(b.try_into().expect("8 bytes"));
        match self.precision {
            Precision::S => (single(source), 0.0),
            Precision::D => (double(source), 0.0),
            Precision::C => (single(&source[..4]), single(&source[4..])),
            Precision::Z => (double(&source[..8]), double(&source[8..])),
        }
    }

    /// Element of op(self).
    pub fn op(&self, trans: Trans, i: usize, j: usize) -> Number {
        match trans {
            Trans::N => self.get(i, j),
            Trans::T => self.get(j, i),
            Trans::C => {
                let (re, im) = self.get(j, i);
                (re, -im)
            }
        }
    }

    /// Every byte of the gaps is as it was.
    pub fn assert_gaps_untouched(&self) {
        let elem = self.precision.elem_bytes();
        for j in 0..self.cols.saturating_sub(1) {
            let gap = (j * self.ld + self.rows) * elem..(j + 1) * self.ld * elem;
            assert!(
                self.bytes[gap].iter().all(|&b| b == SENTINEL),
                "the gap below column {j} was written"
            );
        }
    }
}

/// One product, its operands and its result.
#[derive(Clone)]
pub struct Product {
    pub transa: Trans,
    pub transb: Trans,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: Scalar,
    pub beta: Scalar,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
}

impl Product {
    /// Random operands whose leading dimensions are `gap` larger than they must be.
    pub fn random(
        precision: Precision,
        (transa, transb): (Trans, Trans),
        (m, n, k): (usize, usize, usize),
        (alpha, beta): (Scalar, Scalar),
        gap: usize,
        random: &mut Random,
    ) -> Self {
        let (ar, ac) = if transa == Trans::N { (m, k) } else { (k, m) };
        let (br, bc) = if transb == Trans::N { (k, n) } else { (n, k) };
        let a = Matrix::random(precision, ar, ac, ar + gap, random);
        let b = Matrix::random(precision, br, bc, br + 2 * gap, random);
        let c = Matrix::random(precision, m, n, m + 3 * gap, random);
        Self {
            transa,
            transb,
            m,
            n,
            k,
            alpha,
            beta,
            a,
            b,
            c,
        }
    }

    /// Runs it on the device and puts the result into `c`.
    pub fn run(&mut self, gpu: &Gpu) -> Result<Timing, Failure> {
        let (a, b) = (self.a.clone(), self.b.clone());
        let pa = a.bytes.as_ptr();
        let pb = b.bytes.as_ptr();
        let pc = self.c.bytes.as_mut_ptr();
        // SAFETY: each pointer is a buffer of exactly its matrix's span, alive and not shared.
        unsafe { self.run_at(gpu, pa, pb, pc) }
    }

    /// As `run`, on memory of the caller.
    ///
    /// # Safety
    /// The pointers hold operands of this product's shapes.
    pub unsafe fn run_at(
        &self,
        gpu: &Gpu,
        pa: *const u8,
        pb: *const u8,
        pc: *mut u8,
    ) -> Result<Timing, Failure> {
        use call::Backend;
        let elem = self.a.precision.elem_bytes();
        // SAFETY: the caller's promise.
        let (a, b, c) = unsafe {
            (
                MatRef::new(pa, self.a.rows, self.a.cols, self.a.ld, elem).expect("a"),
                MatRef::new(pb, self.b.rows, self.b.cols, self.b.ld, elem).expect("b"),
                MatMut::new(pc, self.m, self.n, self.c.ld, elem).expect("c"),
            )
        };
        let mut call = Call::Level3(Level3Call::gemm(
            self.a.precision,
            (self.transa, a),
            (self.transb, b),
            (self.alpha, self.beta),
            c,
        ));
        gpu.run(&mut call)
    }

    /// Checks `result` against the definition, at every element or at `samples` random ones:
    /// |C - Cref| <= 4 sqrt(k) eps |alpha| |A| |B| + 4 eps |beta| |C|, elementwise.
    pub fn check(&self, result: &Matrix, samples: Option<usize>) {
        let eps = match self.a.precision {
            Precision::S | Precision::C => f64::from(f32::EPSILON),
            Precision::D | Precision::Z => f64::EPSILON,
        };
        let mut random = Random(0x1234_5678_9abc_def1);
        let count = samples.unwrap_or(self.m * self.n);
        for number in 0..count {
            let (i, j) = match samples {
                Some(_) => (random.below(self.m), random.below(self.n)),
                None => (number % self.m, number / self.m),
            };
            let (mut sum, mut size) = ((0.0, 0.0), 0.0);
            for l in 0..self.k {
                let (x, y) = (self.a.op(self.transa, i, l), self.b.op(self.transb, l, j));
                let product = mul(x, y);
                sum = (sum.0 + product.0, sum.1 + product.1);
                size += modulus(x) * modulus(y);
            }
            let alpha = (self.alpha.re, self.alpha.im);
            let mut expected = mul(alpha, sum);
            let mut bound = 4.0 * (self.k as f64).sqrt() * eps * modulus(alpha) * size;
            if !self.beta.is_zero() {
                let beta = (self.beta.re, self.beta.im);
                let before = self.c.get(i, j);
                let scaled = mul(beta, before);
                expected = (expected.0 + scaled.0, expected.1 + scaled.1);
                bound += 4.0 * eps * modulus(beta) * modulus(before);
            }
            let got = result.get(i, j);
            let error = modulus((got.0 - expected.0, got.1 - expected.1));
            assert!(
                error <= bound,
                "{:?} {:?}{:?} {}x{}x{} alpha {:?} beta {:?}: C({i},{j}) = {got:?}, expected \
                 {expected:?}, error {error:e} > {bound:e}",
                self.a.precision,
                self.transa,
                self.transb,
                self.m,
                self.n,
                self.k,
                self.alpha,
                self.beta,
            );
        }
    }

    /// Runs and checks, gaps included.
    pub fn run_and_check(&self, gpu: &Gpu, samples: Option<usize>) {
        let mut done = self.clone();
        done.run(gpu).unwrap_or_else(|e| panic!("{e}"));
        self.check(&done.c, samples);
        done.c.assert_gaps_untouched();
    }
}

/// Controls of the simulated device.
pub struct Sim {
    library: libloading::os::unix::Library,
}

impl Sim {
    /// The simulation that this process has loaded, or will.
    pub fn new() -> Self {
        assert!(
            !real(),
            "this test steers the simulated device (GPU_OFFLOAD_TEST_DEVICE=sim)"
        );
        // SAFETY: the simulated library's constructors are OpenBLAS's.
        let library = unsafe { libloading::os::unix::Library::new(sim_dir().join("libcuda.so.1")) };
        Self {
            library: library.expect("the simulated library loads"),
        }
    }

    /// Sets the faults and counts calls anew.
    pub fn set_fault(&self, faults: &str) {
        self.set(b"sim_cuda_set_fault\0", faults);
    }

    fn set(&self, function: &[u8], text: &str) {
        let value = std::ffi::CString::new(text).expect("no NUL");
        // SAFETY: these functions have this type (sim-cuda, state.rs and delay.rs).
        let code = unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(*const libc::c_char) -> u32>(function);
            set.expect("a control of the simulation")(value.as_ptr())
        };
        assert_eq!(code, 0, "malformed: {text}");
    }

    /// Sets which calls do nothing, and counts calls anew.
    pub fn set_ignore(&self, calls: &str) {
        self.set(b"sim_cuda_set_ignore\0", calls);
    }

    /// Delays of the streams that are made from now on: `MODE:SEED[:MICROSECONDS]`.
    pub fn set_delay(&self, delay: &str) {
        self.set(b"sim_cuda_set_delay\0", delay);
    }

    /// Lets another process take memory.
    pub fn set_hog(&self, bytes: u64) {
        // SAFETY: as above.
        unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(u64)>(b"sim_cuda_set_hog\0");
            set.expect("sim_cuda_set_hog")(bytes);
        }
    }

    /// A new device.
    pub fn reset(&self) {
        // SAFETY: as above.
        unsafe {
            let reset = self
                .library
                .get::<unsafe extern "C" fn()>(b"sim_cuda_reset\0");
            reset.expect("sim_cuda_reset")();
        }
    }

    /// The report's lines.
    pub fn report(&self) -> Vec<String> {
        let mut buffer = vec![0u8; 1 << 16];
        // SAFETY: as above; the buffer has the length that is given.
        let length = unsafe {
            let report = self
                .library
                .get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(b"sim_cuda_report\0");
            report.expect("sim_cuda_report")(buffer.as_mut_ptr(), buffer.len())
        };
        assert!(length < buffer.len());
        buffer.truncate(length);
        let text = String::from_utf8(buffer).expect("UTF-8");
        text.lines().map(str::to_owned).collect()
    }

    /// What is still alive, as "name count"; empty when nothing is.
    pub fn leaks(&self) -> Vec<String> {
        let lines = self.report();
        let live = lines.iter().filter_map(|line| line.strip_prefix("live "));
        live.filter(|line| !line.ends_with(" 0"))
            .map(str::to_owned)
            .collect()
    }

    /// (function, calls) since the faults were set.
    pub fn calls(&self) -> Vec<(String, u64)> {
        let lines = self.report();
        let calls = lines.iter().filter_map(|line| line.strip_prefix("calls "));
        calls
            .map(|line| {
                let (name, count) = line.split_once(' ').expect("name and count");
                (name.to_owned(), count.parse().expect("a count"))
            })
            .collect()
    }

    /// Calls that were ignored where that made a difference.
    pub fn ignored(&self) -> usize {
        let lines = self.report();
        lines.iter().filter(|l| l.starts_with("ignored ")).count()
    }

    /// (function@event, calls) since the faults were set.
    pub fn calls_of_events(&self) -> Vec<(String, u64)> {
        let lines = self.report();
        let calls = lines
            .iter()
            .filter_map(|l| l.strip_prefix("calls_of_event "));
        calls
            .map(|line| {
                let (name, count) = line.split_once(' ').expect("name and count");
                (name.to_owned(), count.parse().expect("a count"))
            })
            .collect()
    }

    /// What went wrong inside queued work.
    pub fn complaints(&self) -> Vec<String> {
        let lines = self.report();
        let found = lines
            .iter()
            .filter_map(|line| line.strip_prefix("complaint "));
        found.map(str::to_owned).collect()
    }
}
