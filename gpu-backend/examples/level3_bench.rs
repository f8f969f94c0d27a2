//! `level3_bench [OPTION…]`: times level-3 routines from malloc memory on the machine's GPU, and checks the
//! results.
//!
//! ```text
//! --families gemm,trsm,…      gemm symm syrk syr2k trmm trsm (gemm)
//! --precisions d,s            (d)
//! --sizes 2048,4096,…         square (2048,4096,8192)
//! --shape 32768x512x512       m x n x k, may be repeated; instead of sizes
//! --memory touched,fresh,beta where the result goes: used pages, new pages, read and written (touched)
//! --runs 5                    the best and the median are printed
//! --config T:KIB:SLOTS:UP:DOWN:STREAM   staging threads, chunk, chunks a thread, most uploaders, most
//!                             downloaders, stores past the cache; 0 chooses; may be repeated
//! --kernels                   each kernel alone as well
//! --panels                    kernels of panels: symm, trmm, trsm by width
//! --transfers                 the staged path, one way and both ways
//! --floor 512                 what writing a result of so many MiB into new pages costs at least, without a GPU:
//!                             threads that make the pages and stream into them, beside used pages and beside
//!                             making the pages alone
//! --moves IN:OUT,…            only what streaming so many bytes of used memory in and out at once takes, a line each
//! --streams                   beside each call, its bytes streamed in and out at once with nothing computed
//! --no-check                  only time
//! --transa                    A as its transpose, m x m only: its panels are columns then
//! --library-dir DIR           searched first for the CUDA libraries
//! ```
//!
//! Each line: total time, its parts (upload until the last operand is queued, kernels, the rest) and the
//! error of C x against the definition for random sign vectors x, in units of the bound. Links nothing but
//! libc; the CUDA libraries are found at run time.

use call::{
    Backend, Call, Diag, Level3Call, MatMut, MatRef, Op, Precision, Scalar, Side, Timing, Trans,
    Uplo,
};
use gpu_backend::{Arithmetic, Gpu, StartOptions};
use std::time::Instant;

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Touched,
    Fresh,
    Beta,
}

struct Options {
    families: Vec<Op>,
    precisions: Vec<Precision>,
    shapes: Vec<(usize, usize, usize)>,
    memory: Vec<Memory>,
    runs: usize,
    configs: Vec<StartOptions>,
    kernels: bool,
    panels: bool,
    transfers: bool,
    streams: bool,
    floor_mib: Option<usize>,
    moves: Vec<(usize, usize)>,
    check: bool,
    transa: Trans,
}

fn usage(what: &str) -> ! {
    eprintln!("level3_bench: {what} (the file's head lists what is accepted)");
    std::process::exit(2);
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| usage(text))
}

fn config(text: &str, base: &StartOptions) -> StartOptions {
    let n: Vec<usize> = text.split(':').map(number).collect();
    let [threads, kib, slots, up, down, stream] = n[..] else {
        usage(text)
    };
    let mut options = base.clone();
    options.staging_threads = threads as u32;
    if kib > 0 {
        options.chunk_bytes = kib << 10;
    }
    if slots > 0 {
        options.slots = slots as u32;
    }
    options.uploads_max = up as u32;
    options.downloads_max = down as u32;
    options.streaming_stores = stream != 0;
    options
}

fn shape(text: &str) -> (usize, usize, usize) {
    let n: Vec<usize> = text.split('x').map(number).collect();
    match n[..] {
        [m, n, k] => (m, n, k),
        _ => usage(text),
    }
}

fn options() -> Options {
    let mut o = Options {
        families: vec![Op::Gemm],
        precisions: vec![Precision::D],
        shapes: Vec::new(),
        memory: vec![Memory::Touched],
        runs: 5,
        configs: Vec::new(),
        kernels: false,
        panels: false,
        transfers: false,
        streams: false,
        floor_mib: None,
        moves: Vec::new(),
        check: true,
        transa: Trans::N,
    };
    let mut sizes = vec![2048, 4096, 8192];
    let (mut base, mut configs) = (StartOptions::default(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        match name.as_str() {
            "--kernels" => o.kernels = true,
            "--panels" => o.panels = true,
            "--transfers" => o.transfers = true,
            "--streams" => o.streams = true,
            "--no-check" => o.check = false,
            "--transa" => (o.transa, o.check) = (Trans::T, false),
            _ => {
                let value = args.next().unwrap_or_else(|| usage(&name));
                let list = value.split(',');
                match name.as_str() {
                    "--floor" => o.floor_mib = Some(number(&value)),
                    "--moves" => o.moves = list.map(moved).collect(),
                    "--families" => o.families = list.map(family).collect(),
                    "--precisions" => o.precisions = list.map(precision).collect(),
                    "--sizes" => sizes = list.map(number).collect(),
                    "--shape" => o.shapes.push(shape(&value)),
                    "--memory" => o.memory = list.map(memory).collect(),
                    "--runs" => o.runs = number(&value).max(1),
                    "--config" => configs.push(value),
                    "--library-dir" => base.library_dirs.push(value.into()),
                    _ => usage(&name),
                }
            }
        }
    }
    if o.shapes.is_empty() {
        o.shapes = sizes.into_iter().map(|n| (n, n, n)).collect();
    }
    if configs.is_empty() {
        o.configs.push(base);
    } else {
        o.configs = configs.iter().map(|text| config(text, &base)).collect();
    }
    o
}

fn family(name: &str) -> Op {
    let real = [Op::Gemm, Op::Symm, Op::Syrk, Op::Syr2k, Op::Trmm, Op::Trsm];
    let found = real.into_iter().find(|op| op.name() == name);
    found.unwrap_or_else(|| usage(name))
}

fn precision(name: &str) -> Precision {
    match name {
        "d" => Precision::D,
        "s" => Precision::S,
        _ => usage(name),
    }
}

fn memory(name: &str) -> Memory {
    match name {
        "touched" => Memory::Touched,
        "fresh" => Memory::Fresh,
        "beta" => Memory::Beta,
        _ => usage(name),
    }
}

fn moved(text: &str) -> (usize, usize) {
    let (bytes_in, bytes_out) = text.split_once(':').unwrap_or_else(|| usage(text));
    (number(bytes_in), number(bytes_out))
}

fn main() {
    let o = options();
    if let Some(mib) = o.floor_mib {
        floor(mib);
        return;
    }
    let mut wrong = false;
    for config in &o.configs {
        let start = Instant::now();
        let gpu = match Gpu::start(config) {
            Ok(gpu) => gpu,
            Err(e) => {
                eprintln!("level3_bench: {e}");
                std::process::exit(1);
            }
        };
        println!(
            "== {}; start {:.2} s; threads {} chunk {} KiB slots {} up {} down {} streaming {}",
            gpu.info().name,
            start.elapsed().as_secs_f64(),
            config.staging_threads,
            config.chunk_bytes >> 10,
            config.slots,
            config.uploads_max,
            config.downloads_max,
            config.streaming_stores
        );
        if !o.moves.is_empty() {
            moves(&gpu, &o.moves);
            gpu.shutdown();
            continue;
        }
        if o.transfers {
            transfers(&gpu);
        }
        if o.panels {
            panels(&gpu);
        }
        for &precision in &o.precisions {
            for &op in &o.families {
                for &shape in &o.shapes {
                    if o.kernels {
                        kernel(&gpu, op, precision, shape);
                    }
                    for &memory in &o.memory {
                        wrong |= !match precision {
                            Precision::S => time::<f32>(&gpu, &o, op, precision, shape, memory),
                            _ => time::<f64>(&gpu, &o, op, precision, shape, memory),
                        };
                    }
                }
            }
        }
        gpu.shutdown();
    }
    std::process::exit(i32::from(wrong));
}

/// Threads that write at a time.
const WRITERS: [usize; 6] = [1, 2, 4, 6, 10, 16];

/// What a result's pages are before it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pages {
    Used,
    New,
    /// New, and the kernel is asked for huge ones.
    NewHuge,
}

/// What is done to each part of them.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Written from the cache past the cache.
    Stream,
    /// Made, by one byte a page.
    Touch,
    /// Made, by the system when asked.
    Populate,
}

/// The time in which threads write `mib` MiB, each its own part: the floor of a result in new pages. The best of
/// three.
fn floor(mib: usize) {
    let bytes = mib << 20;
    for (pages, work) in [
        (Pages::Used, Work::Stream),
        (Pages::New, Work::Stream),
        (Pages::NewHuge, Work::Stream),
        (Pages::New, Work::Touch),
        (Pages::New, Work::Populate),
    ] {
        for threads in WRITERS {
            let best = (0..3).map(|_| write_s(bytes, pages, work, threads));
            let best = best.fold(f64::INFINITY, f64::min);
            println!(
                "{mib} MiB, {pages:?} pages, {work:?}, {threads} threads: {:.2} ms, {:.1} GB/s",
                best * 1e3,
                bytes as f64 / best * 1e-9
            );
        }
    }
}

/// Seconds of one such write into memory of its own.
fn write_s(bytes: usize, pages: Pages, work: Work, threads: usize) -> f64 {
    const CHUNK_BYTES: usize = 1 << 20;
    const PAGE_BYTES: usize = 4096;
    let (read_write, private) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping touches nothing that exists.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), bytes, read_write, private, -1, 0) };
    assert!(base != libc::MAP_FAILED, "no memory");
    if pages == Pages::NewHuge {
        // SAFETY: advice on our own mapping changes no content.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
    }
    // SAFETY: the mapping has `bytes` bytes, zero until written, and is used through this slice alone.
    let all = unsafe { core::slice::from_raw_parts_mut(base.cast::<u8>(), bytes) };
    if pages == Pages::Used {
        all.fill(1);
    }
    let share = bytes.div_ceil(threads).next_multiple_of(CHUNK_BYTES);
    let source = vec![7u8; CHUNK_BYTES];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for part in all.chunks_mut(share) {
            let source = &source;
            scope.spawn(move || {
                for chunk in part.chunks_mut(CHUNK_BYTES) {
                    match work {
                        Work::Stream => stream(chunk, &source[..chunk.len()]),
                        Work::Touch => chunk.iter_mut().step_by(PAGE_BYTES).for_each(|b| *b = 1),
                        Work::Populate => populate(chunk),
                    }
                }
            });
        }
    });
    let s = start.elapsed().as_secs_f64();
    // SAFETY: nobody uses the mapping any more.
    unsafe { libc::munmap(base, bytes) };
    s
}

/// Makes whole pages of ours.
fn populate(pages: &mut [u8]) {
    // SAFETY: advice on our own mapping, which changes no content.
    let failed = unsafe {
        libc::madvise(
            pages.as_mut_ptr().cast(),
            pages.len(),
            libc::MADV_POPULATE_WRITE,
        )
    };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Copies past the cache; both are aligned to 16 bytes and whole multiples of them.
fn stream(to: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let to = to.as_chunks_mut::<16>().0.iter_mut();
        for (to, from) in to.zip(from.as_chunks::<16>().0) {
            let (to, from): (*mut __m128i, *const __m128i) =
                (to.as_mut_ptr().cast(), from.as_ptr().cast());
            // SAFETY: 16 bytes each; `to` lies at a multiple of 16 from the start of a page.
            unsafe { _mm_stream_si128(to, _mm_loadu_si128(from)) };
        }
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

fn transfers(gpu: &Gpu) {
    for mib in [1usize, 8, 64, 512] {
        match (
            gpu.measure_transfers(mib << 20),
            gpu.measure_streams(mib << 20, mib << 20),
        ) {
            (Ok(rates), Ok(both_s)) => println!(
                "transfers of {mib} MiB: in {:.1}, out {:.1}, both at once {:.1} GB/s each, latency {:.1} us",
                rates.in_bytes_per_s * 1e-9,
                rates.out_bytes_per_s * 1e-9,
                (mib << 20) as f64 / both_s * 1e-9,
                rates.latency_s * 1e6
            ),
            (Err(e), _) | (_, Err(e)) => println!("transfers of {mib} MiB: {e}"),
        }
    }
}

/// What moving so many bytes in and out at once takes, the best of several.
fn moves(gpu: &Gpu, moves: &[(usize, usize)]) {
    for &(bytes_in, bytes_out) in moves {
        match gpu.measure_streams(bytes_in, bytes_out) {
            Ok(s) => println!("moved {bytes_in}:{bytes_out} in {:.4} ms", s * 1e3),
            Err(e) => println!("moved {bytes_in}:{bytes_out}: {e}"),
        }
    }
}

/// The kernel alone, with the arithmetic that is used and the two others.
fn kernel(gpu: &Gpu, op: Op, precision: Precision, size: (usize, usize, usize)) {
    let each = [
        Arithmetic::Pinned,
        Arithmetic::Pedantic,
        Arithmetic::Default,
    ];
    let times = each.map(|a| {
        let s = gpu.measure_kernel(op, precision, size, a, 3);
        s.map_or_else(|e| e.to_string(), |s| format!("{:.3} ms", s * 1e3))
    });
    let (letter, name) = (precision.letter(), op.name());
    println!("{letter}{name} {size:?} kernel alone: pinned, pedantic, default = {times:?}");
}

/// What the planners want to know: rates of kernels whose special matrix is a panel's.
fn panels(gpu: &Gpu) {
    let n = 8192;
    let rate = |op: Op, size: (usize, usize, usize), flops: f64| match gpu.measure_kernel(
        op,
        Precision::D,
        size,
        Arithmetic::Pinned,
        2,
    ) {
        Ok(s) => println!(
            "panel d{} {size:?}: {:.3} ms, {:.1} Tflop/s",
            op.name(),
            s * 1e3,
            flops / s * 1e-12
        ),
        Err(e) => println!("panel d{} {size:?}: {e}", op.name()),
    };
    for width in [256, 512, 1024, 2048, 4096, n] {
        let (w, n) = (width as f64, n as f64);
        rate(Op::Gemm, (width, 8192, width), 2.0 * w * w * n);
        rate(Op::Gemm, (8192, 8192, width), 2.0 * n * n * w);
        rate(Op::Symm, (width, 8192, 0), 2.0 * w * w * n);
        rate(Op::Trmm, (width, 8192, 0), w * w * n);
        rate(Op::Trsm, (width, 8192, 0), w * w * n);
        rate(Op::Trsm, (8192, width, 0), n * n * w);
        rate(Op::Syrk, (0, width, 8192), w * w * n);
        rate(Op::Syrk, (0, 8192, width), n * n * w);
    }
}

trait Real: Copy + Default {
    const EPS: f64;
    fn of(x: f64) -> Self;
    fn get(self) -> f64;
}

impl Real for f32 {
    const EPS: f64 = f32::EPSILON as f64;
    fn of(x: f64) -> Self {
        x as f32
    }
    fn get(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const EPS: f64 = f64::EPSILON;
    fn of(x: f64) -> Self {
        x
    }
    fn get(self) -> f64 {
        self
    }
}

/// What a matrix's elements mean.
#[derive(Clone, Copy, PartialEq)]
enum Structure {
    Full,
    Transposed,
    /// Lower triangle stored.
    Symmetric,
    /// Lower triangle.
    Triangular,
}

struct Matrix<T> {
    rows: usize,
    cols: usize,
    data: Vec<T>,
}

impl<T: Real> Matrix<T> {
    fn random(rows: usize, cols: usize, seed: u64, diagonal: f64) -> Self {
        let mut state = 88_172_645_463_325_252u64 ^ seed;
        let mut data = Vec::with_capacity(rows * cols);
        for j in 0..cols {
            for i in 0..rows {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let x = (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
                data.push(T::of(if i == j { x + diagonal } else { x }));
            }
        }
        Self { rows, cols, data }
    }

    fn view(&self) -> MatRef<'_> {
        let elem_bytes = size_of::<T>();
        // SAFETY: a packed matrix of initialised elements, borrowed as long as the view.
        let view = unsafe {
            MatRef::new(
                self.data.as_ptr().cast(),
                self.rows,
                self.cols,
                self.rows,
                elem_bytes,
            )
        };
        view.expect("a packed matrix")
    }

    /// op(self) x, or its bound |op(self)| |x|.
    fn apply(&self, structure: Structure, x: &[f64], absolute: bool) -> Vec<f64> {
        let size = if structure == Structure::Transposed {
            self.cols
        } else {
            self.rows
        };
        let mut y = vec![0.0; size];
        for (j, column) in self.data.chunks_exact(self.rows).enumerate() {
            let first = match structure {
                Structure::Full | Structure::Transposed => 0,
                Structure::Symmetric | Structure::Triangular => j,
            };
            let mut sum = 0.0;
            for (i, v) in column.iter().enumerate().skip(first) {
                let v = if absolute { v.get().abs() } else { v.get() };
                match structure {
                    Structure::Full | Structure::Triangular => y[i] += v * x[j],
                    Structure::Transposed => sum += v * x[i],
                    Structure::Symmetric => {
                        y[i] += v * x[j];
                        if i != j {
                            sum += v * x[i];
                        }
                    }
                }
            }
            if matches!(structure, Structure::Transposed | Structure::Symmetric) {
                y[j] += sum;
            }
        }
        y
    }
}

/// Operands of a family at m x n x k.
struct Problem<T> {
    op: Op,
    a: Matrix<T>,
    b: Option<Matrix<T>>,
    /// The result before the call, where it is read.
    before: Option<Matrix<T>>,
    m: usize,
    n: usize,
    k: usize,
    beta: Scalar,
}

impl<T: Real> Problem<T> {
    fn new(op: Op, (m, n, k): (usize, usize, usize), memory: Memory) -> Self {
        let triangular = matches!(op, Op::Trmm | Op::Trsm);
        let (m, k) = match op {
            Op::Syrk | Op::Syr2k => (n, k),
            Op::Gemm => (m, k),
            _ => (m, m),
        };
        // A dominant diagonal keeps a solve well conditioned.
        let diagonal = if op == Op::Trsm { 2.0 * m as f64 } else { 0.0 };
        let beta = if triangular || memory == Memory::Beta {
            Scalar::ONE
        } else {
            Scalar::ZERO
        };
        let b = match op {
            Op::Gemm => Some((k, n)),
            Op::Symm => Some((m, n)),
            Op::Syr2k => Some((n, k)),
            _ => None,
        };
        Self {
            op,
            a: Matrix::random(m, k, 1, diagonal),
            b: b.map(|(rows, cols)| Matrix::random(rows, cols, 2, 0.0)),
            before: (!beta.is_zero()).then(|| Matrix::random(m, n, 3, 0.0)),
            m,
            n,
            k,
            beta,
        }
    }

    fn run(
        &self,
        gpu: &Gpu,
        precision: Precision,
        transa: Trans,
        c: *mut T,
    ) -> (f64, Result<Timing, call::Failure>) {
        let (m, n, k) = (self.m, self.n, self.k);
        // SAFETY: `c` has room for m x n packed elements, initialised where they are read.
        let c = unsafe { MatMut::new(c.cast(), m, n, m, size_of::<T>()) }.expect("packed");
        let start = Instant::now();
        let mut call = Call::Level3(Level3Call {
            op: self.op,
            precision,
            side: Side::L,
            uplo: Uplo::L,
            transa,
            transb: Trans::N,
            diag: Diag::N,
            m,
            n,
            k,
            alpha: Scalar::ONE,
            beta: self.beta,
            a: self.a.view(),
            b: self.b.as_ref().map(Matrix::view),
            c,
        });
        let done = gpu.run(&mut call);
        (start.elapsed().as_secs_f64(), done)
    }

    /// Largest |C x - definition| over 4 sqrt(k) eps times its bound, for three random sign vectors. A
    /// wrong or missing tile cannot hide: it changes every row it is in.
    fn error(&self, c: &Matrix<T>) -> f64 {
        use Structure::{Full, Symmetric, Transposed, Triangular};
        let b = self.b.as_ref();
        let result = match self.op {
            Op::Syrk | Op::Syr2k => Symmetric,
            _ => Full,
        };
        let mut worst: f64 = 0.0;
        for number in 1..=3u64 {
            let x: Vec<f64> = (1..=self.n as u64)
                .map(|i| i.wrapping_mul(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63)
                .map(|bit| if bit == 0 { 1.0 } else { -1.0 })
                .collect();
            let ones = vec![1.0; self.n];
            let value = |absolute: bool| -> Vec<f64> {
                let x = if absolute { &ones } else { &x };
                let through = |first: &Matrix<T>, s, second: &Matrix<T>, t| {
                    second.apply(t, &first.apply(s, x, absolute), absolute)
                };
                let mut y = match (self.op, b) {
                    (Op::Gemm, Some(b)) => through(b, Full, &self.a, Full),
                    (Op::Symm, Some(b)) => through(b, Full, &self.a, Symmetric),
                    (Op::Syr2k, Some(b)) => {
                        let mut y = through(b, Transposed, &self.a, Full);
                        let more = through(&self.a, Transposed, b, Full);
                        y.iter_mut().zip(more).for_each(|(y, m)| *y += m);
                        y
                    }
                    (Op::Syrk, _) => through(&self.a, Transposed, &self.a, Full),
                    (Op::Trmm, _) => {
                        let before = self.before.as_ref().expect("read");
                        return through(before, Full, &self.a, Triangular);
                    }
                    // The residual of the solution.
                    _ => return through(c, Full, &self.a, Triangular),
                };
                if let Some(before) = &self.before {
                    let more = before.apply(result, x, absolute);
                    y.iter_mut().zip(more).for_each(|(y, m)| *y += m);
                }
                y
            };
            let got = match self.op {
                Op::Trsm => self.before.as_ref().expect("read").apply(Full, &x, false),
                _ => c.apply(result, &x, false),
            };
            let (expected, bound) = (value(false), value(true));
            let scale = 4.0 * (self.k as f64).sqrt() * T::EPS;
            for i in 0..self.m {
                let part = (got[i] - expected[i]).abs() / (scale * bound[i]);
                // NaN must not pass for small.
                worst = if part.is_nan() {
                    f64::INFINITY
                } else {
                    worst.max(part)
                };
            }
        }
        worst
    }
}

/// True if every run gave a right result.
fn time<T: Real>(
    gpu: &Gpu,
    o: &Options,
    op: Op,
    precision: Precision,
    shape: (usize, usize, usize),
    memory: Memory,
) -> bool {
    let problem = Problem::<T>::new(op, shape, memory);
    let (m, n) = (problem.m, problem.n);
    let mut runs: Vec<(f64, Timing)> = Vec::new();
    let mut c: Vec<T> = vec![T::of(7.0); m * n];
    let mut worst: f64 = 0.0;
    for run in 0..o.runs {
        match (&problem.before, memory) {
            (Some(before), _) => c.copy_from_slice(&before.data),
            (None, Memory::Fresh) => c = Vec::with_capacity(m * n),
            (None, _) => {}
        }
        let (s, done) = problem.run(gpu, precision, o.transa, c.as_mut_ptr());
        match done {
            Ok(timing) => runs.push((s, timing)),
            Err(e) => {
                println!("{}{} {shape:?}: {e}", precision.letter(), op.name());
                return false;
            }
        }
        // SAFETY: the capacity is m * n; what a triangular result leaves is not read.
        unsafe { c.set_len(m * n) };
        if o.check && (run == 0 || run + 1 == o.runs) {
            let (rows, cols) = (m, n);
            let result = Matrix {
                rows,
                cols,
                data: core::mem::take(&mut c),
            };
            worst = worst.max(problem.error(&result));
            c = result.data;
        }
    }
    let median = {
        let mut all: Vec<f64> = runs.iter().map(|r| r.0).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let best = runs
        .iter()
        .min_by(|x, y| x.0.total_cmp(&y.0))
        .expect("a run");
    let t = best.1;
    let streams = match o.streams {
        true => match gpu.measure_streams(t.bytes_in as usize, t.bytes_out as usize) {
            Ok(s) => format!("; its bytes streamed {:.2} ms", s * 1e3),
            Err(e) => format!("; its bytes streamed: {e}"),
        },
        false => String::new(),
    };
    println!(
        "{}{} {shape:?} {memory:?}: best {:.2} median {:.2} ms; upload {:.2} ms {:.1} GB/s, kernels {:.2}, \
         rest {:.2} with {:.2} of copies, out {:.2} GB; error {worst:.3}{streams}",
        precision.letter(),
        op.name(),
        best.0 * 1e3,
        median * 1e3,
        t.upload_s * 1e3,
        t.bytes_in as f64 / t.upload_s * 1e-9,
        t.compute_s * 1e3,
        t.download_s * 1e3,
        t.copy_s * 1e3,
        t.bytes_out as f64 * 1e-9,
    );
    worst <= 1.0
}
