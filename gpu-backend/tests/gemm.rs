//! gemm on the device under test: right, within its bound, and nothing else touched.

mod common;

use call::{Backend, Call, Failure, Level3Call, MatMut, MatRef, Precision, Scalar, Trans};
use common::{Matrix, Product, Random, SENTINEL};
use gpu_backend::{Gpu, StartOptions};
use std::sync::OnceLock;

/// One device for the tests that only compute.
fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(common::start)
}

const TRANS: [Trans; 3] = [Trans::N, Trans::T, Trans::C];

fn scalar(re: f64, im: f64) -> Scalar {
    Scalar { re, im }
}

#[test]
fn every_precision_transpose_and_scalar() {
    let mut random = Random(11);
    let scalars = [
        (Scalar::ONE, Scalar::ZERO),
        (scalar(-1.5, 0.75), Scalar::ONE),
        (scalar(0.5, 0.0), scalar(-2.0, 0.25)),
    ];
    let shapes = [
        (1, 1, 1),
        (3, 5, 7),
        (40, 2, 90),
        (2, 70, 33),
        (65, 64, 130),
    ];
    for precision in Precision::ALL {
        for transa in TRANS {
            for transb in TRANS {
                for shape in shapes {
                    for (alpha, beta) in scalars {
                        for gap in [0, 3] {
                            // A real precision's scalars have no imaginary part.
                            let real = |s: Scalar| {
                                if precision.is_complex() {
                                    s
                                } else {
                                    scalar(s.re, 0.0)
                                }
                            };
                            let scalars = (real(alpha), real(beta));
                            let trans = (transa, transb);
                            Product::random(precision, trans, shape, scalars, gap, &mut random)
                                .run_and_check(gpu(), None);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn several_panels_in_either_direction() {
    let mut random = Random(12);
    let kernels = gpu().counters().of(call::Op::Gemm).kernels;
    let mut calls = 0;
    for precision in [Precision::D, Precision::Z] {
        for transa in [Trans::N, Trans::C] {
            for transb in [Trans::N, Trans::T] {
                for shape in [(300, 1500, 900), (1500, 300, 900)] {
                    for beta in [Scalar::ZERO, scalar(0.5, 0.0)] {
                        let (trans, scalars) = ((transa, transb), (Scalar::ONE, beta));
                        Product::random(precision, trans, shape, scalars, 5, &mut random)
                            .run_and_check(gpu(), Some(300));
                        calls += 1;
                    }
                }
            }
        }
    }
    // A device with hundreds of multiprocessors takes these in one panel; the simulated one has four.
    if !common::real() {
        assert!(
            gpu().counters().of(call::Op::Gemm).kernels - kernels >= 2 * calls,
            "no call had two panels"
        );
    }
}

#[test]
fn c_is_not_read_when_beta_is_zero() {
    let mut random = Random(13);
    for precision in Precision::ALL {
        let scalars = (Scalar::ONE, Scalar::ZERO);
        let shape = (50, 40, 30);
        let trans = (Trans::N, Trans::N);
        let mut product = Product::random(precision, trans, shape, scalars, 1, &mut random);
        product.c = Matrix::filled(precision, 50, 40, 54, |_, _| (f64::NAN, f64::NAN));
        product.run_and_check(gpu(), None);
        product.beta = scalar(-0.0, 0.0);
        product.run_and_check(gpu(), None);
    }
}

#[test]
fn nan_and_infinity_come_through() {
    let mut random = Random(14);
    let scalars = (Scalar::ONE, scalar(1.0, 0.0));
    let trans = (Trans::N, Trans::N);
    let mut product = Product::random(Precision::D, trans, (40, 30, 20), scalars, 0, &mut random);
    product.a.set(7, 3, (f64::NAN, 0.0));
    product.b.set(5, 9, (f64::INFINITY, 0.0));
    product.c.set(1, 1, (f64::NEG_INFINITY, 0.0));
    product.run(gpu()).expect("runs");
    for j in 0..30 {
        for i in 0..40 {
            let value = product.c.get(i, j).0;
            if i == 7 {
                assert!(value.is_nan());
            } else if j == 9 {
                assert!(value.is_infinite());
            } else {
                assert_eq!(value == f64::NEG_INFINITY, (i, j) == (1, 1));
            }
        }
    }
}

/// Case E6: a bound in n eps cannot tell float32 from TF32. 1 + 2^-12 has more digits than TF32 keeps,
/// and a product with a permutation is exact in float32.
#[test]
fn single_precision_is_float32() {
    let n = 256;
    let entry = 1.0 + 2f64.powi(-12);
    for precision in [Precision::S, Precision::C] {
        let a = Matrix::filled(precision, n, n, n, |_, _| (entry, -entry));
        let b = Matrix::filled(precision, n, n, n, |i, j| {
            (f64::from((i + 7) % 256 == j), 0.0)
        });
        let c = Matrix::filled(precision, n, n, n, |_, _| (0.0, 0.0));
        let (transa, transb) = (Trans::N, Trans::T);
        let (alpha, beta) = (Scalar::ONE, Scalar::ZERO);
        let mut product = Product {
            transa,
            transb,
            m: n,
            n,
            k: n,
            alpha,
            beta,
            a,
            b,
            c,
        };
        product.run(gpu()).expect("runs");
        let expected = if precision == Precision::C {
            (entry, -entry)
        } else {
            (entry, 0.0)
        };
        for j in 0..n {
            for i in 0..n {
                assert_eq!(product.c.get(i, j), expected);
            }
        }
    }
}

/// Memory whose last byte is the last one before an unreadable page.
struct Border {
    base: *mut u8,
    mapped: usize,
    start: *mut u8,
}

impl Border {
    fn new(bytes: &[u8]) -> Self {
        let page = 4096;
        let room = bytes.len().next_multiple_of(page);
        let mapped = room + page;
        // SAFETY: a new mapping; its last page is made unreadable; the copy ends at that page.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let read_write = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(core::ptr::null_mut(), mapped, read_write, flags, -1, 0);
            assert!(base != libc::MAP_FAILED);
            let base: *mut u8 = base.cast();
            assert_eq!(
                libc::mprotect(base.add(room).cast(), page, libc::PROT_NONE),
                0
            );
            let start = base.add(room - bytes.len());
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Self {
                base,
                mapped,
                start,
            }
        }
    }
}

impl Drop for Border {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

/// Case E8: the last column has m rows, not ld.
#[test]
fn nothing_past_the_last_row_of_the_last_column_is_touched() {
    let mut random = Random(15);
    for transa in [Trans::N, Trans::T] {
        for beta in [Scalar::ZERO, Scalar::ONE] {
            let scalars = (Scalar::ONE, beta);
            let trans = (transa, transa);
            let shape = (61, 47, 83);
            let product = Product::random(Precision::D, trans, shape, scalars, 9, &mut random);
            let (a, b, c) = (
                Border::new(&product.a.bytes),
                Border::new(&product.b.bytes),
                Border::new(&product.c.bytes),
            );
            // SAFETY: each holds exactly its operand.
            let done = unsafe { product.run_at(gpu(), a.start, b.start, c.start) };
            done.expect("runs");
            let mut result = product.c.clone();
            // SAFETY: as long as C's span.
            unsafe {
                let length = result.bytes.len();
                result
                    .bytes
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(c.start, length);
            }
            product.check(&result, None);
            result.assert_gaps_untouched();
        }
    }
}

/// Case E8: two threads write row blocks of one matrix at the same time.
#[test]
fn interleaved_row_blocks_do_not_touch_one_another() {
    let (rows, n, k, ld) = (33, 120, 50, 66);
    let mut random = Random(16);
    let mut shared = vec![SENTINEL; ld * n * 8];
    let trans = (Trans::N, Trans::N);
    let products: Vec<Product> = (0..2)
        .map(|_| {
            let scalars = (Scalar::ONE, Scalar::ZERO);
            let mut p = Product::random(Precision::D, trans, (rows, n, k), scalars, 0, &mut random);
            p.c = Matrix::filled(Precision::D, rows, n, ld, |_, _| (0.0, 0.0));
            p
        })
        .collect();
    let base = shared.as_mut_ptr().expose_provenance();
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for (i, product) in products.iter().enumerate() {
                scope.spawn(move || {
                    let c = core::ptr::with_exposed_provenance_mut(base + i * rows * 8);
                    let (a, b) = (product.a.bytes.as_ptr(), product.b.bytes.as_ptr());
                    // SAFETY: the blocks of the two threads are disjoint rows of `shared`.
                    unsafe { product.run_at(gpu(), a, b, c) }.expect("runs");
                });
            }
        });
        for (i, product) in products.iter().enumerate() {
            let mut result = product.c.clone();
            let length = result.bytes.len();
            result
                .bytes
                .copy_from_slice(&shared[i * rows * 8..i * rows * 8 + length]);
            product.check(&result, Some(200));
        }
    }
}

#[test]
fn sixteen_threads_get_what_one_gets() {
    let mut random = Random(17);
    let shapes = [(5, 6, 7), (120, 90, 60), (64, 300, 20), (200, 200, 200)];
    let products: Vec<Product> = (0..16)
        .map(|i| {
            let precision = Precision::ALL[i % 4];
            let trans = (TRANS[i % 3], TRANS[(i / 3) % 3]);
            let beta = if i % 2 == 0 {
                Scalar::ZERO
            } else {
                scalar(0.5, 0.0)
            };
            let scalars = (Scalar::ONE, beta);
            Product::random(precision, trans, shapes[i / 4], scalars, i % 3, &mut random)
        })
        .collect();
    let alone: Vec<Vec<u8>> = products
        .iter()
        .map(|product| {
            let mut done = product.clone();
            done.run(gpu()).expect("runs");
            product.check(&done.c, Some(100));
            done.c.bytes
        })
        .collect();
    std::thread::scope(|scope| {
        for (product, alone) in products.iter().zip(&alone) {
            scope.spawn(move || {
                for _ in 0..10 {
                    let mut done = product.clone();
                    done.run(gpu()).expect("runs");
                    assert!(done.c.bytes == *alone, "a concurrent result differs");
                }
            });
        }
    });
}

#[test]
fn what_has_no_gpu_path_says_so() {
    let mut random = Random(18);
    let trans = (Trans::N, Trans::N);
    let scalars = (Scalar::ZERO, Scalar::ONE);
    let mut product = Product::random(Precision::D, trans, (4, 4, 4), scalars, 0, &mut random);
    assert!(matches!(product.run(gpu()), Err(Failure::Unsupported(_))));
    let scalars = (Scalar::ONE, Scalar::ONE);
    let mut product = Product::random(Precision::D, trans, (4, 4, 0), scalars, 0, &mut random);
    assert!(matches!(product.run(gpu()), Err(Failure::Unsupported(_))));
}

#[test]
fn overlapping_operands_are_refused_and_the_same_input_twice_is_not() {
    let mut random = Random(19);
    let mut data: Vec<f64> = (0..400).map(|_| random.next()).collect();
    let before = data.clone();
    let base: *mut u8 = data.as_mut_ptr().cast();
    let run = |a: usize, b: usize, c: usize| {
        let (m, n, k) = (8, 8, 8);
        // SAFETY: every view lies in `data`; overlapping ones are refused before anything is read.
        let (a, b, c) = unsafe {
            (
                MatRef::new(base.add(a * 8), m, k, 20, 8).expect("a"),
                MatRef::new(base.add(b * 8), k, n, 20, 8).expect("b"),
                MatMut::new(base.add(c * 8), m, n, 20, 8).expect("c"),
            )
        };
        let (transa, transb) = (Trans::N, Trans::N);
        let (alpha, beta) = (Scalar::ONE, Scalar::ZERO);
        let precision = Precision::D;
        let mut call = Call::Level3(Level3Call::gemm(
            precision,
            (transa, a),
            (transb, b),
            (alpha, beta),
            c,
        ));
        gpu().run(&mut call)
    };
    assert_eq!(run(0, 200, 4).err(), Some(Failure::Overlap));
    assert_eq!(run(200, 4, 0).err(), Some(Failure::Overlap));
    assert!(data == before, "a refused call wrote");
    // A and B are one matrix, C is its lower rows: no element is shared.
    run(0, 0, 10).expect("rows of one matrix");
    for j in 0..8 {
        for i in 0..8 {
            let expected: f64 = (0..8)
                .map(|l| before[i + 20 * l] * before[l + 20 * j])
                .sum();
            assert!((data[10 + i + 20 * j] - expected).abs() < 1e-14);
        }
    }
}

/// Case E4: the thread's current context is what it was.
#[test]
fn the_current_context_is_left_alone() {
    // The library that the backend uses; loaded again, it is the same one.
    gpu();
    let path = gpu().info().libraries[0].1.clone();
    // SAFETY: the driver is loaded already; the functions have these types in CUDA's header.
    unsafe {
        let cuda = libloading::os::unix::Library::new(path).expect("the driver");
        type GetCurrent = unsafe extern "C" fn(*mut usize) -> u32;
        type Create = unsafe extern "C" fn(*mut usize, u32, i32) -> u32;
        type Destroy = unsafe extern "C" fn(usize) -> u32;
        let get_current = cuda
            .get::<GetCurrent>(b"cuCtxGetCurrent\0")
            .expect("symbol");
        let create = cuda.get::<Create>(b"cuCtxCreate_v2\0").expect("symbol");
        let destroy = cuda.get::<Destroy>(b"cuCtxDestroy_v2\0").expect("symbol");
        let current = || {
            let mut context = 1;
            assert_eq!(get_current(&raw mut context), 0);
            context
        };
        let mut random = Random(20);
        let trans = (Trans::N, Trans::N);
        let scalars = (Scalar::ONE, Scalar::ONE);
        let product = Product::random(Precision::S, trans, (30, 30, 30), scalars, 0, &mut random);
        assert_eq!(current(), 0);
        product.run_and_check(gpu(), None);
        let fresh = common::start();
        product.run_and_check(&fresh, None);
        assert_eq!(current(), 0, "a context was left current");
        let mut own = 0;
        assert_eq!(create(&raw mut own, 0, 0), 0);
        assert_eq!(current(), own);
        product.run_and_check(&fresh, None);
        gpu().memory_bytes().expect("memory");
        gpu().measure_transfers(1 << 20).expect("rates");
        assert_eq!(current(), own, "the host's context was replaced");
        fresh.shutdown();
        assert_eq!(current(), own, "shutdown replaced the host's context");
        assert_eq!(destroy(own), 0);
    }
}

#[test]
fn a_limit_on_memory_is_kept() {
    let limit = 80 << 20;
    let options = StartOptions {
        memory_limit_bytes: Some(limit),
        ..common::options()
    };
    let gpu = Gpu::start(&options).unwrap_or_else(|e| panic!("{e}"));
    let mut random = Random(21);
    let trans = (Trans::N, Trans::N);
    let scalars = (Scalar::ONE, Scalar::ZERO);
    let small = Product::random(
        Precision::D,
        trans,
        (100, 100, 100),
        scalars,
        0,
        &mut random,
    );
    small.run_and_check(&gpu, Some(10));
    assert!(gpu.counters().held_bytes <= limit);
    // Larger than what the limit leaves: it runs in tiles.
    let large = Product::random(
        Precision::D,
        trans,
        (3000, 2000, 100),
        scalars,
        0,
        &mut random,
    );
    large.run_and_check(&gpu, Some(50));
    assert!(gpu.counters().held_bytes <= limit);
    small.run_and_check(&gpu, Some(10));
    gpu.shutdown();
}

/// cuBLAS's workspace alone takes 32 MiB.
#[test]
fn a_limit_that_leaves_no_room_is_refused_with_everything_as_it_was() {
    let limit = 33 << 20;
    let options = StartOptions {
        memory_limit_bytes: Some(limit),
        ..common::options()
    };
    let gpu = Gpu::start(&options).unwrap_or_else(|e| panic!("{e}"));
    let trans = (Trans::N, Trans::N);
    let scalars = (Scalar::ONE, Scalar::ZERO);
    let size = (100, 100, 100);
    let before = Product::random(Precision::D, trans, size, scalars, 0, &mut Random(22));
    let mut refused = before.clone();
    let ran = refused.run(&gpu);
    let Err(Failure::OutOfMemory {
        needed_bytes,
        budget_bytes,
    }) = ran
    else {
        panic!("{ran:?}");
    };
    assert!(needed_bytes > budget_bytes && budget_bytes <= limit);
    assert!(refused.c.bytes == before.c.bytes);
    assert!(gpu.counters().held_bytes <= limit);
    gpu.shutdown();
}

#[test]
fn an_idle_pool_shrinks() {
    let gpu = common::start();
    let mut random = Random(22);
    let trans = (Trans::N, Trans::N);
    let scalars = (Scalar::ONE, Scalar::ZERO);
    let product = Product::random(
        Precision::D,
        trans,
        (3000, 2000, 20),
        scalars,
        0,
        &mut random,
    );
    product.run_and_check(&gpu, Some(10));
    let keep = 64 << 20;
    assert!(
        gpu.counters().held_bytes > keep,
        "the product is too small for this test"
    );
    let start = std::time::Instant::now();
    while gpu.counters().held_bytes > keep {
        let waited = start.elapsed();
        assert!(
            waited.as_secs() < 10,
            "still {} bytes",
            gpu.counters().held_bytes
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    product.run_and_check(&gpu, Some(10));
    gpu.shutdown();
}

#[test]
fn measurements_are_positive_and_counted() {
    let before = gpu().counters();
    let rates = gpu().measure_transfers(8 << 20).expect("rates");
    assert!(rates.latency_s > 0.0 && rates.latency_s < 1.0);
    assert!(rates.in_bytes_per_s > 1e6 && rates.out_bytes_per_s > 1e6);
    let after = gpu().counters();
    assert!(after.bytes_in >= before.bytes_in + (24 << 20));
    assert!(after.bytes_out >= before.bytes_out + (24 << 20));
    let arithmetic = gpu_backend::Arithmetic::Pedantic;
    let seconds = gpu().measure_gemm_kernel(Precision::D, (64, 64, 64), arithmetic, 3);
    assert!(seconds.expect("a time") > 0.0);
}

/// The child of a fork must not touch CUDA, and must not wait for anything.
#[test]
fn a_forked_child_is_refused_at_once() {
    let mut random = Random(23);
    let trans = (Trans::N, Trans::N);
    let scalars = (Scalar::ONE, Scalar::ZERO);
    let mut product = Product::random(Precision::D, trans, (30, 30, 30), scalars, 0, &mut random);
    product.run_and_check(gpu(), None);
    // SAFETY: the child runs only the refusal (no lock of another thread is taken) and leaves by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            let refused = matches!(product.run(gpu()), Err(Failure::Lost(_)));
            libc::_exit(if refused { 0 } else { 1 });
        }
        assert!(child > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "status {status}"
        );
    }
    product.run_and_check(gpu(), None);
}
