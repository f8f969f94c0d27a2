//! `lapack_bench [--library-dir DIR] [--runs 3] [--way auto|keep|scratch] [--threads T] [--uploads U] [ROUTINE…] [N…]`:
//! times LAPACK routines in double precision from malloc memory on the machine's GPU, and checks the results.
//!
//! Routines: potrf getrf gesv (one right-hand side, as below) geqrf gelqf trtri trtrs lauum gels gelsd gelss (n rows, n / 2
//! columns) syevd (with vectors) syevri syevxi (by syevr and syevx, the lowest quarter of the spectrum with vectors) sygvd
//! (itype 1, with vectors) gesdd (economical vectors) gesddn (values) geev (right vectors); all of them if none is
//! named. N: 4096 and 8192 if none is given.
//!
//! One line a case: routine, n, best total time, and of that run: until the operands were up, the kernels' own time,
//! the rest until the results were down, and the copies between the caller's and other host memory that were waited
//! for; the residual. `--way` says what happens to results in place: the old value is kept while the kernels run and
//! the new one downloaded over it, or the new one goes through scratch, or what is predicted to be faster. `--threads`
//! staging threads, of which `--uploads` at most bring operands up (and results down, when nothing goes up); 0 chooses.
//! The residual is that of the defining identity on a random vector x, || r ||_2 / (n eps ||A||_F ||x||_2), for factors
//! with the loss of orthogonality added; above 30 the program fails. Links nothing but libc; the CUDA libraries are
//! found at run time.

use call::{Backend, Call, LapackCall, MatMut, Matrix, Op, Precision, Timing, Vector, VectorKind};
use gpu_backend::{Gpu, StartOptions, testing};
use std::time::Instant;

/// LAPACK's tests' threshold.
const THRESHOLD: f64 = 30.0;

const ROUTINES: [&str; 18] = [
    "potrf", "trtri", "trtrs", "lauum", "getrf", "gesv", "geqrf", "gelqf", "gels", "gelsd",
    "gelss", "syevd", "syevri", "syevxi", "sygvd", "gesdd", "gesddn", "geev",
];

/// Systems with more equations than unknowns.
fn is_least_squares(routine: &str) -> bool {
    matches!(routine, "gels" | "gelsd" | "gelss")
}

/// A part of the spectrum.
fn is_part(routine: &str) -> bool {
    matches!(routine, "syevri" | "syevxi")
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn vector(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// y := op(A) x, A column-major of order n.
fn times(a: &[f64], x: &[f64], transposed: bool) -> Vec<f64> {
    let n = x.len();
    let mut y = vec![0.0; n];
    for (j, column) in a.chunks_exact(n).enumerate() {
        if transposed {
            y[j] = column.iter().zip(x).map(|(a, x)| a * x).sum();
        } else {
            y.iter_mut().zip(column).for_each(|(y, a)| *y += a * x[j]);
        }
    }
    y
}

/// y := Z x, Z of x.len() columns.
fn combined(z: &[f64], x: &[f64], rows: usize) -> Vec<f64> {
    let mut y = vec![0.0; rows];
    for (column, x) in z.chunks_exact(rows).zip(x) {
        y.iter_mut().zip(column).for_each(|(y, z)| *y += z * x);
    }
    y
}

/// As [`times`] with a triangle alone.
fn times_triangle(a: &[f64], x: &[f64], upper: bool, unit: bool, transposed: bool) -> Vec<f64> {
    let n = x.len();
    let mut y = vec![0.0; n];
    for (j, column) in a.chunks_exact(n).enumerate() {
        let rows = if upper { 0..j + 1 } else { j..n };
        for i in rows {
            let value = if unit && i == j { 1.0 } else { column[i] };
            if transposed {
                y[j] += value * x[i];
            } else {
                y[i] += value * x[j];
            }
        }
    }
    y
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn difference(x: &[f64], y: &[f64]) -> f64 {
    norm(&x.iter().zip(y).map(|(x, y)| x - y).collect::<Vec<_>>())
}

/// Operands of a call; which of them take part is the routine's business.
struct Operands {
    n: usize,
    /// Columns of A that take part.
    cols: usize,
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
    integers: Vec<i32>,
    more_integers: Vec<i32>,
}

/// Seconds from call to return, and the device's figures.
fn run(gpu: &Gpu, routine: &str, o: &mut Operands) -> (f64, Timing) {
    let n = o.n;
    // SAFETY: each view is a live vector of exactly this size, borrowed until the call has returned.
    let (square, column) = unsafe {
        let of = |data: &mut Vec<f64>, cols: usize| {
            assert!(data.len() >= n * cols, "an operand is too small");
            MatMut::new(data.as_mut_ptr().cast(), n, cols, n, 8).expect("valid")
        };
        let square = [of(&mut o.a, o.cols), of(&mut o.c, n)];
        let column = [&mut o.first, &mut o.second].map(|data| {
            let length = data.len();
            MatMut::new(data.as_mut_ptr().cast(), length, 1, length, 8).expect("valid")
        });
        (square, column)
    };
    let [a, c] = square;
    let [first, second] = column;
    let [integers, more_integers] = [&mut o.integers, &mut o.more_integers].map(|data| {
        // SAFETY: as above.
        unsafe { MatMut::new(data.as_mut_ptr().cast(), data.len(), 1, data.len(), 4) }
            .expect("valid")
    });
    let b_cols = o.b.len() / n;
    // SAFETY: as above.
    let b = unsafe { MatMut::new(o.b.as_mut_ptr().cast(), n, b_cols, n, 8) }.expect("valid");
    let (op, letters) = match routine {
        "potrf" => (Op::Potrf, "L"),
        "trtri" => (Op::Trtri, "LN"),
        "trtrs" => (Op::Trtrs, "LNN"),
        "lauum" => (Op::Lauum, "L"),
        "gelqf" => (Op::Gelqf, ""),
        "gels" => (Op::Gels, "N"),
        "gelsd" => (Op::Gelsd, ""),
        "gelss" => (Op::Gelss, ""),
        "getrf" => (Op::Getrf, ""),
        "gesv" => (Op::Gesv, ""),
        "geqrf" => (Op::Geqrf, ""),
        "syevd" => (Op::Syevd, "VL"),
        "syevri" => (Op::Syevr, "VIL"),
        "syevxi" => (Op::Syevx, "VIL"),
        "sygvd" => (Op::Sygvd, "VL"),
        "gesdd" => (Op::Gesdd, "S"),
        "gesddn" => (Op::Gesdd, "N"),
        _ => (Op::Geev, "NV"),
    };
    let vector = |kind, data| {
        Some(Vector {
            kind,
            data: Matrix::Out(data),
        })
    };
    let one_side = matches!(op, Op::Gesv | Op::Trtrs) || is_least_squares(routine);
    let k = if one_side { 1 } else { n };
    let letters = call::option_letters(letters);
    let mut call = LapackCall::new(op, Precision::D, letters, (n, o.cols, k));
    call.matrices[0] = Some(match op {
        Op::Trtrs => Matrix::In(a.as_ref()),
        _ => Matrix::InOut(a),
    });
    match routine {
        "potrf" | "trtri" | "lauum" => {}
        "trtrs" => call.matrices[1] = Some(Matrix::InOut(b)),
        "getrf" => call.vectors[0] = vector(VectorKind::Integer, integers),
        "gesv" => {
            call.matrices[1] = Some(Matrix::InOut(b));
            call.vectors[0] = vector(VectorKind::Integer, integers);
        }
        "geqrf" | "gelqf" => call.vectors[0] = vector(VectorKind::Same, first),
        "gels" => call.matrices[1] = Some(Matrix::InOut(b)),
        "gelsd" | "gelss" => {
            call.matrices[1] = Some(Matrix::InOut(b));
            call.vectors[0] = vector(VectorKind::Real, first);
            call.vectors[1] = vector(VectorKind::Integer, integers);
        }
        "syevri" | "syevxi" => {
            call.scalars.ints = [1, b_cols as i64, 0];
            call.matrices[1] = Some(Matrix::Out(b));
            call.vectors[0] = vector(VectorKind::Integer, integers);
            call.vectors[1] = vector(VectorKind::Real, first);
            if op == Op::Syevx {
                call.vectors[2] = vector(VectorKind::Integer, more_integers);
            }
        }
        "sygvd" => {
            call.matrices[1] = Some(Matrix::InOut(c));
            call.vectors[0] = vector(VectorKind::Real, first);
        }
        "gesdd" => {
            call.matrices[1] = Some(Matrix::Out(b));
            call.matrices[2] = Some(Matrix::Out(c));
            call.vectors[0] = vector(VectorKind::Real, first);
        }
        "geev" => {
            call.matrices[2] = Some(Matrix::Out(c));
            call.vectors[0] = vector(VectorKind::Same, first);
            call.vectors[1] = vector(VectorKind::Same, second);
        }
        _ => call.vectors[0] = vector(VectorKind::Real, first),
    }
    let start = Instant::now();
    let timing = gpu.run(&mut Call::Lapack(call));
    let total_s = start.elapsed().as_secs_f64();
    let timing = timing.unwrap_or_else(|e| panic!("{routine} {n}: {e}"));
    (total_s, timing)
}

/// The residual of what `run` has left, for the matrix `a` that it was given.
fn residual(
    routine: &str,
    (a, b, c): (&[f64], &[f64], &[f64]),
    o: &Operands,
    random: &mut Random,
) -> f64 {
    let n = o.n;
    let x = random.vector(n);
    let scaled = |x: &[f64]| -> Vec<f64> { x.iter().zip(&o.first).map(|(x, s)| x * s).collect() };
    let mut lost = 0.0;
    let mut orthogonal = |q: &[f64]| {
        let back = times(q, &times(q, &x, false), true);
        lost += difference(&back, &x) / (norm(&x) * n as f64 * f64::EPSILON);
    };
    let mut left = times(a, &x, false);
    let mut size = norm(&x);
    let right = match routine {
        "potrf" => {
            let half = times_triangle(&o.a, &x, false, false, true);
            times_triangle(&o.a, &half, false, false, false)
        }
        "trtri" => {
            let solved = times_triangle(&o.a, &x, false, false, false);
            (left, size) = (x.clone(), norm(&solved));
            times_triangle(a, &solved, false, false, false)
        }
        "trtrs" => {
            left = times_triangle(a, &o.b, false, false, false);
            size = norm(&o.b);
            b.to_vec()
        }
        "lauum" => {
            // L^T L x; the result is the lower triangle of a symmetric matrix.
            left = times_triangle(
                a,
                &times_triangle(a, &x, false, false, false),
                false,
                false,
                true,
            );
            size = norm(a) * norm(&x);
            let (half, other) = (
                times_triangle(&o.a, &x, false, false, false),
                times_triangle(&o.a, &x, false, false, true),
            );
            let diagonal = o.a.iter().step_by(n + 1).zip(&x).map(|(d, x)| d * x);
            let both = half.iter().zip(&other).map(|(h, o)| h + o);
            both.zip(diagonal).map(|(both, d)| both - d).collect()
        }
        "gelqf" => {
            // A x = L Q x with Q = H(n) … H(1).
            let mut y = x.clone();
            for i in 0..n {
                let row = |j: usize| o.a[j * n + i];
                let dot: f64 = (i + 1..n).map(|j| row(j) * y[j]).sum();
                let factor = o.first[i] * (y[i] + dot);
                y[i] -= factor;
                (i + 1..n).for_each(|j| y[j] -= factor * row(j));
            }
            times_triangle(&o.a, &y, false, false, false)
        }
        "gels" | "gelsd" | "gelss" => {
            // A^T (b - A x) = 0.
            let fitted = combined(&a[..n * o.cols], &o.b[..o.cols], n);
            let rest: Vec<f64> = b.iter().zip(&fitted).map(|(b, f)| b - f).collect();
            left = a[..n * o.cols]
                .chunks_exact(n)
                .map(|column| column.iter().zip(&rest).map(|(a, r)| a * r).sum())
                .collect();
            size = norm(b);
            vec![0.0; o.cols]
        }
        "getrf" => {
            o.integers
                .iter()
                .enumerate()
                .for_each(|(i, &p)| left.swap(i, p as usize - 1));
            let half = times_triangle(&o.a, &x, true, false, false);
            times_triangle(&o.a, &half, false, true, false)
        }
        "gesv" => {
            left = times(a, &o.b[..n], false);
            size = norm(&o.b[..n]);
            b[..n].to_vec()
        }
        "geqrf" => {
            // Q^T A x = R x.
            for (j, v) in o.a.chunks_exact(n).enumerate() {
                let dot: f64 = v[j + 1..]
                    .iter()
                    .zip(&left[j + 1..])
                    .map(|(v, y)| v * y)
                    .sum();
                let factor = o.first[j] * (left[j] + dot);
                left[j] -= factor;
                let below = left[j + 1..].iter_mut().zip(&v[j + 1..]);
                below.for_each(|(y, v)| *y -= factor * v);
            }
            times_triangle(&o.a, &x, true, false, false)
        }
        "syevd" => {
            orthogonal(&o.a);
            times(&o.a, &scaled(&times(&o.a, &x, true)), false)
        }
        "syevri" | "syevxi" => {
            let part = random.vector(o.b.len() / n);
            let sum = combined(&o.b, &part, n);
            let back: Vec<f64> =
                o.b.chunks_exact(n)
                    .map(|z| z.iter().zip(&sum).map(|(z, y)| z * y).sum())
                    .collect();
            lost += difference(&back, &part) / (norm(&part) * n as f64 * f64::EPSILON);
            (left, size) = (times(a, &sum, false), norm(&part));
            let scaled: Vec<f64> = part.iter().zip(&o.first).map(|(x, w)| x * w).collect();
            combined(&o.b, &scaled, n)
        }
        "sygvd" => {
            let sum = times(&o.a, &x, false);
            (left, size) = (times(a, &sum, false), norm(&sum));
            times(c, &times(&o.a, &scaled(&x), false), false)
        }
        "gesdd" => {
            orthogonal(&o.b);
            orthogonal(&o.c);
            times(&o.b, &scaled(&times(&o.c, &x, false)), false)
        }
        "gesddn" => {
            // Values alone: the Frobenius norm.
            left = vec![norm(a)];
            size = 1.0;
            vec![norm(&o.first)]
        }
        _ => {
            left = times(a, &times(&o.c, &x, false), false);
            let mut y = vec![0.0; n];
            let mut j = 0;
            while j < n {
                let (re, im) = (o.first[j], o.second[j]);
                if im == 0.0 {
                    y[j] = re * x[j];
                    j += 1;
                } else {
                    y[j] = re * x[j] + im * x[j + 1];
                    y[j + 1] = re * x[j + 1] - im * x[j];
                    j += 2;
                }
            }
            times(&o.c, &y, false)
        }
    };
    difference(&left, &right) / (n as f64 * f64::EPSILON * norm(a) * size) + lost
}

fn bench(gpu: &Gpu, routine: &str, n: usize, runs: usize) -> f64 {
    let mut random = Random(77);
    let mut a = random.vector(n * n);
    let (is_triangular, is_part) = (
        matches!(routine, "trtri" | "trtrs" | "lauum"),
        is_part(routine),
    );
    if is_triangular {
        (0..n).for_each(|j| a[j * n..j * n + j].fill(0.0));
        (0..n).for_each(|j| a[j * n + j] += 2.0 * n as f64);
    }
    if is_part || matches!(routine, "potrf" | "syevd" | "sygvd") {
        for j in 0..n {
            for i in 0..j {
                a[j * n + i] = a[i * n + j];
            }
            if routine == "potrf" {
                a[j * n + j] += 2.0 * n as f64;
            }
        }
    }
    let b_cols = match routine {
        "gesdd" => n,
        _ if is_part => n.div_ceil(4),
        _ => 1,
    };
    let cols = if is_least_squares(routine) {
        n.div_ceil(2)
    } else {
        n
    };
    let b = random.vector(n * b_cols);
    let mut c = vec![1.0; n * n];
    if routine == "sygvd" {
        c.copy_from_slice(&a);
        (0..n).for_each(|j| c[j * n + j] += 2.0 * n as f64);
    }
    // Of vectors whose length says how many results are asked for, just these.
    let integers = if is_part || is_least_squares(routine) {
        1
    } else {
        n
    };
    let mut o = Operands {
        n,
        cols,
        a: a.clone(),
        b: b.clone(),
        c: c.clone(),
        first: vec![0.0; cols],
        second: vec![0.0; n],
        integers: vec![0; integers],
        more_integers: vec![0; n],
    };
    // The first call makes the handle and the pools.
    run(gpu, routine, &mut o);
    let mut best = (f64::INFINITY, Timing::default());
    for _ in 0..runs {
        o.a.copy_from_slice(&a);
        o.b.copy_from_slice(&b);
        o.c.copy_from_slice(&c);
        let times = run(gpu, routine, &mut o);
        if times.0 < best.0 {
            best = times;
        }
    }
    let residual = residual(routine, (&a, &b, &c), &o, &mut random);
    let (total_s, t) = best;
    let down_s = (t.download_s - t.compute_s - t.copy_s).max(0.0);
    let ms = |s: f64| s * 1e3;
    println!(
        "{routine:<6} {n:>6} {:>9.2} ms: up {:>6.2}, kernels {:>8.2}, down {:>6.2}, host copies {:>6.2}, residual \
         {residual:.3}",
        ms(total_s),
        ms(t.upload_s),
        ms(t.compute_s),
        ms(down_s),
        ms(t.copy_s),
    );
    residual
}

fn main() {
    let mut options = StartOptions::default();
    let (mut routines, mut sizes, mut runs) = (Vec::new(), Vec::new(), 3);
    let mut args = std::env::args().skip(1);
    let usage = |what: &str| -> ! {
        eprintln!("lapack_bench: {what} (the file's head lists what is accepted)");
        std::process::exit(2)
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--library-dir" => match args.next() {
                Some(dir) => options.library_dirs.push(dir.into()),
                None => usage(&arg),
            },
            "--runs" => match args.next().and_then(|text| text.parse().ok()) {
                Some(count) => runs = count,
                None => usage(&arg),
            },
            "--threads" | "--uploads" => match args.next().and_then(|text| text.parse().ok()) {
                Some(count) if arg == "--threads" => options.staging_threads = count,
                Some(count) => options.uploads_max = count,
                None => usage(&arg),
            },
            "--way" => match args.next().as_deref() {
                Some("auto") => testing::set_keeps(None),
                Some("keep") => testing::set_keeps(Some(true)),
                Some("scratch") => testing::set_keeps(Some(false)),
                _ => usage(&arg),
            },
            name if ROUTINES.contains(&name) => routines.push(name.to_owned()),
            other => match other.parse::<usize>() {
                Ok(n) if n > 0 => sizes.push(n),
                _ => usage(other),
            },
        }
    }
    if routines.is_empty() {
        routines = ROUTINES.map(str::to_owned).to_vec();
    }
    if sizes.is_empty() {
        sizes = vec![4096, 8192];
    }
    let gpu = match Gpu::start(&options) {
        Ok(gpu) => gpu,
        Err(e) => usage(&e.to_string()),
    };
    let mut worst = 0f64;
    for routine in &routines {
        for &n in &sizes {
            let residual = bench(&gpu, routine, n, runs);
            // NaN is the worst of all.
            worst = if residual.is_nan() {
                residual
            } else {
                worst.max(residual)
            };
            if worst.is_nan() {
                break;
            }
        }
    }
    if worst.is_nan() || worst > THRESHOLD {
        eprintln!("lapack_bench: a residual above {THRESHOLD}");
        std::process::exit(1);
    }
}
