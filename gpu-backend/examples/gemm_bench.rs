//! `gemm_bench [N…]`: times dgemm and sgemm from malloc memory on the machine's GPU, and checks the
//! results.
//!
//! Each line: total time, its parts (upload until the last operand is queued, kernels, download with
//! what is left of the kernels), rates, and the error of C x against A (B x) for random x, in units of
//! the bound. Links nothing but libc; the CUDA libraries are found at run time
//! (`GEMM_BENCH_LIBRARY_DIR` names a folder that is searched first).

use call::{Backend, Call, Level3Call, MatMut, MatRef, Precision, Scalar, Trans};
use gpu_backend::{Arithmetic, Gpu, StartOptions};
use std::time::Instant;

/// Runs of each size; the best one is printed.
const RUNS: usize = 5;

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|n| n.parse().expect("a size"))
        .collect();
    let sizes = if sizes.is_empty() {
        vec![1024, 2048, 4096, 8192]
    } else {
        sizes
    };
    let library_dirs = std::env::var_os("GEMM_BENCH_LIBRARY_DIR").map(Into::into);
    let options = StartOptions {
        library_dirs: library_dirs.into_iter().collect(),
        ..Default::default()
    };
    let start = Instant::now();
    let gpu = match Gpu::start(&options) {
        Ok(gpu) => gpu,
        Err(e) => {
            eprintln!("gemm_bench: {e}");
            std::process::exit(1);
        }
    };
    println!("start {:.3} s", start.elapsed().as_secs_f64());
    println!("{:#?}", gpu.info());
    println!("memory (free, total) {:?}", gpu.memory_bytes());
    for mib in [1usize, 8, 64, 512] {
        match gpu.measure_transfers(mib << 20) {
            Ok(rates) => println!(
                "transfers of {mib} MiB: in {:.1} GB/s, out {:.1} GB/s, latency {:.1} us",
                rates.in_bytes_per_s * 1e-9,
                rates.out_bytes_per_s * 1e-9,
                rates.latency_s * 1e6
            ),
            Err(e) => println!("transfers of {mib} MiB: {e}"),
        }
    }
    let mut wrong = false;
    for precision in [Precision::D, Precision::S] {
        for &n in &sizes {
            kernels(&gpu, precision, n);
            for beta in [Scalar::ZERO, Scalar::ONE] {
                wrong |= !product(&gpu, precision, n, beta);
            }
        }
    }
    println!("{:?}", gpu.counters());
    std::process::exit(i32::from(wrong));
}

/// The kernel alone, with the arithmetic that is used and with the library's own choice.
fn kernels(gpu: &Gpu, precision: Precision, n: usize) {
    let flops = 2.0 * (n as f64).powi(3);
    for arithmetic in [Arithmetic::Pedantic, Arithmetic::Default] {
        match gpu.measure_gemm_kernel(precision, (n, n, n), arithmetic, 3) {
            Ok(s) => println!(
                "{precision:?} n={n} kernel alone, {arithmetic:?}: {:.3} ms, {:.1} Tflop/s",
                s * 1e3,
                flops / s * 1e-12
            ),
            Err(e) => println!("{precision:?} n={n} kernel alone, {arithmetic:?}: {e}"),
        }
    }
}

/// True if every run gave a right result.
fn product(gpu: &Gpu, precision: Precision, n: usize, beta: Scalar) -> bool {
    match precision {
        Precision::S => typed::<f32>(gpu, precision, n, beta),
        _ => typed::<f64>(gpu, precision, n, beta),
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

fn typed<T: Real>(gpu: &Gpu, precision: Precision, n: usize, beta: Scalar) -> bool {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::of((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    };
    let mut matrix = |n: usize| -> Vec<T> { (0..n * n).map(|_| random()).collect() };
    let (a, b) = (matrix(n), matrix(n));
    let before = if beta.is_zero() {
        Vec::new()
    } else {
        matrix(n)
    };
    let mut best = f64::INFINITY;
    let mut best_timing = call::Timing::default();
    let mut worst_error: f64 = 0.0;
    for run in 0..RUNS {
        // A fresh C in every run, as a program that allocates its result has; its pages are untouched
        // when beta is zero.
        let mut c = if beta.is_zero() {
            Vec::with_capacity(n * n)
        } else {
            before.clone()
        };
        let elem_bytes = precision.elem_bytes();
        // SAFETY: three packed n x n matrices; C has that capacity, and is written whole when beta is
        // zero before anything reads it.
        let (va, vb, vc) = unsafe {
            (
                MatRef::new(a.as_ptr().cast(), n, n, n, elem_bytes).expect("a"),
                MatRef::new(b.as_ptr().cast(), n, n, n, elem_bytes).expect("b"),
                MatMut::new(c.as_mut_ptr().cast(), n, n, n, elem_bytes).expect("c"),
            )
        };
        let start = Instant::now();
        let mut call = Call::Level3(Level3Call::gemm(
            precision,
            (Trans::N, va),
            (Trans::N, vb),
            (Scalar::ONE, beta),
            vc,
        ));
        let done = gpu.run(&mut call);
        let elapsed_s = start.elapsed().as_secs_f64();
        match done {
            Ok(timing) if elapsed_s < best => (best, best_timing) = (elapsed_s, timing),
            Ok(_) => {}
            Err(e) => {
                println!("{precision:?} n={n}: {e}");
                return false;
            }
        }
        // SAFETY: the committed result fills C.
        unsafe { c.set_len(n * n) };
        if run == 0 || run == RUNS - 1 {
            worst_error = worst_error.max(probe::<T>(n, &a, &b, &before, &c));
        }
    }
    let flops = 2.0 * (n as f64).powi(3);
    let t = best_timing;
    println!(
        "{precision:?} n={n} beta={}: total {:.2} ms = upload {:.2} ({:.1} GB/s) + rest {:.2}; kernels \
         {:.2}, commit {:.2} ({:.1} GB/s); {:.2} Tflop/s; error {:.3} of the bound",
        beta.re,
        best * 1e3,
        t.upload_s * 1e3,
        t.bytes_in as f64 / t.upload_s * 1e-9,
        (best - t.upload_s) * 1e3,
        t.compute_s * 1e3,
        t.download_s * 1e3,
        t.bytes_out as f64 / t.download_s * 1e-9,
        flops / best * 1e-12,
        worst_error
    );
    worst_error <= 1.0
}

/// Largest |C x - (A (B x) + C0 x)| over 4 sqrt(k) eps |A| |B| |x|, row by row, for three random sign
/// vectors x. A wrong or missing tile cannot hide: it changes every row it is in.
fn probe<T: Real>(n: usize, a: &[T], b: &[T], before: &[T], c: &[T]) -> f64 {
    // |B| |x| for a sign vector is the row sum of |B|.
    let apply = |matrix: &[T], x: &[f64], absolute: bool| -> Vec<f64> {
        let mut y = vec![0.0; n];
        for (column, &x) in matrix.chunks_exact(n).zip(x) {
            for (y, &v) in y.iter_mut().zip(column) {
                *y += if absolute {
                    v.get().abs() * x.abs()
                } else {
                    v.get() * x
                };
            }
        }
        y
    };
    let mut worst: f64 = 0.0;
    for number in 1..=3u64 {
        let x: Vec<f64> = (0..n as u64)
            .map(|i| {
                let mixed = (i + 1)
                    .wrapping_mul(number)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if mixed >> 63 == 0 { 1.0 } else { -1.0 }
            })
            .collect();
        let mut expected = apply(a, &apply(b, &x, false), false);
        let bound = apply(a, &apply(b, &x, true), true);
        if !before.is_empty() {
            let more = apply(before, &x, false);
            expected.iter_mut().zip(more).for_each(|(e, m)| *e += m);
        }
        let got = apply(c, &x, false);
        for i in 0..n {
            let error = (got[i] - expected[i]).abs();
            // NaN must not pass for small.
            let part = error / (4.0 * (n as f64).sqrt() * T::EPS * bound[i]);
            worst = if part.is_nan() {
                f64::INFINITY
            } else {
                worst.max(part)
            };
        }
    }
    worst
}
