//! Every routine by the identity that its result fulfils, in all four precisions, and what cuSOLVER refuses,
//! destroys and reports. What must not be read is NaN.

use super::routines::*;
use super::*;
use crate::blas::job::Precision;
use crate::blas::testing::{Matrix, Number, PRECISIONS, ZERO, entry, random, sum};
use crate::registry::Kind;
use crate::state::{lock, sim_cuda_set_fault};
use crate::testing::{Device, ok};
use core::ffi::c_void;

struct Bench {
    device: Device,
    handle: usize,
}

type Ask<'a> = &'a dyn Fn(*mut usize, *mut usize) -> u32;
/// device, bytes, host, bytes, info
type Call<'a> = &'a dyn Fn(u64, usize, *mut c_void, usize, u64) -> u32;

impl Bench {
    fn new() -> Self {
        let device = Device::new();
        let mut handle = 0;
        // SAFETY: the pointer is of this function.
        unsafe {
            ok(cusolverDnCreate(&raw mut handle));
            ok(cusolverDnSetStream(handle, device.stream));
        }
        Self { device, handle }
    }

    /// Asks for the workspace, calls with it, returns info.
    fn call(&self, ask: Ask, call: Call) -> i32 {
        let (mut on_device, mut on_host) = (0, 0);
        ok(ask(&raw mut on_device, &raw mut on_host));
        let work = self.device.alloc(on_device.max(1));
        let mut host = vec![0_u8; on_host];
        let info = self.device.alloc(4);
        ok(call(
            work,
            on_device,
            host.as_mut_ptr().cast(),
            on_host,
            info,
        ));
        let found = self.info(info);
        let scribbled = self.device.download(work, on_device);
        assert!(
            scribbled.iter().all(|&byte| byte == 0xff),
            "a clean workspace"
        );
        assert!(host.iter().all(|&byte| byte == 0xff), "a clean workspace");
        self.device.free_all(&[work, info]);
        found
    }

    /// The same for routines whose workspace is counted in elements.
    fn typed(
        &self,
        p: Precision,
        ask: &dyn Fn(*mut c_int) -> u32,
        call: &dyn Fn(u64, c_int, u64) -> u32,
    ) -> i32 {
        let mut lwork = 0;
        ok(ask(&raw mut lwork));
        let elem_bytes = p.elem_bytes() as usize;
        self.call(
            &|on_device, on_host| {
                // SAFETY: the pointers are of `call`.
                unsafe {
                    on_device.write(lwork as usize * elem_bytes);
                    on_host.write(0);
                }
                0
            },
            &|work, _, _, _, info| call(work, lwork, info),
        )
    }

    fn info(&self, info: u64) -> i32 {
        let bytes = self.device.download(info, 4);
        i32::from_ne_bytes(bytes.try_into().expect("4 bytes"))
    }

    fn put(&self, p: Precision, matrix: &Matrix) -> u64 {
        matrix.upload(&self.device, p)
    }

    fn get(&self, p: Precision, rows: usize, cols: usize, at: u64) -> Matrix {
        Matrix::new(rows, cols, |_, _| None).download(&self.device, p, at)
    }

    /// A matrix of nobody's.
    fn room(&self, p: Precision, rows: usize, cols: usize) -> u64 {
        self.put(p, &Matrix::new(rows, cols, |_, _| None))
    }

    fn is_destroyed(&self, p: Precision, rows: usize, cols: usize, at: u64) -> bool {
        self.get(p, rows, cols, at) == Matrix::new(rows, cols, |_, _| None)
    }

    fn is_quiet(&self) {
        assert_eq!(self.device.complaints(), Vec::<String>::new());
    }
}

fn type_of(p: Precision) -> u32 {
    match p {
        Precision::S => 0,
        Precision::D => 1,
        Precision::C => 4,
        Precision::Z => 5,
    }
}

/// 300 eps n is far above rounding of these well-conditioned matrices of small integers and far below an error.
fn close(p: Precision, found: Number, expected: Number, scale: f64, what: &str) {
    let eps = match p.part() {
        Precision::S => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let off = (found.0 - expected.0).hypot(found.1 - expected.1);
    assert!(
        off <= 300.0 * eps * scale * N as f64,
        "{what} {p:?}: {found:?}, not {expected:?}"
    );
}

const N: usize = 37;
const SCALE: f64 = 100.0;

fn all(rows: usize, cols: usize, mut check: impl FnMut(usize, usize)) {
    (0..cols).for_each(|j| (0..rows).for_each(|i| check(i, j)));
}

/// A Hermitian matrix, positive definite for a large shift.
fn hermitian(p: Precision, n: usize, shift: f64) -> Matrix {
    Matrix::new(n, n, |i, j| {
        let (a, b) = (entry(p, 7, i, j), entry(p, 7, j, i).conj());
        let diagonal = if i == j { shift } else { 0.0 };
        Some(Number(a.0 + b.0 + diagonal, a.1 + b.1))
    })
}

/// One triangle of a matrix; the other is nobody's.
fn half_of(a: &Matrix, uplo: u32) -> Matrix {
    Matrix::new(a.rows, a.cols, |i, j| {
        let inside = if uplo == 1 { i <= j } else { i >= j };
        inside.then(|| a.at(i, j))
    })
}

fn potrf(bench: &Bench, p: Precision, uplo: u32, n: usize, a: &Matrix, at: u64) -> i32 {
    let (h, t, n) = (bench.handle, type_of(p), n as i64);
    // SAFETY: pointers are the bench's; everything else is the simulation's to check.
    unsafe {
        bench.call(
            &|d, h_| cusolverDnXpotrf_bufferSize(h, 0, uplo, n, t, at, a.ld(), t, d, h_),
            &|w, wb, hw, hb, info| {
                cusolverDnXpotrf(h, 0, uplo, n, t, at, a.ld(), t, w, wb, hw, hb, info)
            },
        )
    }
}

fn getrf(bench: &Bench, p: Precision, (m, n): (usize, usize), at: u64, ipiv: u64) -> i32 {
    let (h, t, ld) = (bench.handle, type_of(p), m as i64 + 2);
    let (m, n) = (m as i64, n as i64);
    // SAFETY: as above.
    unsafe {
        bench.call(
            &|d, h_| cusolverDnXgetrf_bufferSize(h, 0, m, n, t, at, ld, t, d, h_),
            &|w, wb, hw, hb, info| {
                cusolverDnXgetrf(h, 0, m, n, t, at, ld, ipiv, t, w, wb, hw, hb, info)
            },
        )
    }
}

/// B = A X for an X of small integers; the solution must be that.
fn right_sides(p: Precision, a: &Matrix, trans: u32) -> (Matrix, Matrix) {
    let x = random(p, 3, a.rows, 4);
    let b = Matrix::new(a.rows, 4, |i, j| {
        Some(sum(a.rows, |l| a.op(trans, i, l) * x.at(l, j)))
    });
    (x, b)
}

#[test]
fn cholesky_solves() {
    let bench = Bench::new();
    for (p, uplo) in PRECISIONS.iter().flat_map(|&p| [(p, 0), (p, 1)]) {
        let a = hermitian(p, N, 400.0);
        let (x, b) = right_sides(p, &a, 0);
        let (da, db) = (bench.put(p, &half_of(&a, uplo)), bench.put(p, &b));
        assert_eq!(potrf(&bench, p, uplo, N, &a, da), 0);
        let (h, t, n) = (bench.handle, type_of(p), N as i64);
        let info = bench.device.alloc(4);
        // SAFETY: as above.
        let code =
            unsafe { cusolverDnXpotrs(h, 0, uplo, n, 4, t, da, a.ld(), t, db, b.ld(), info) };
        ok(code);
        assert_eq!(bench.info(info), 0);
        let found = bench.get(p, N, 4, db);
        all(N, 4, |i, j| {
            close(p, found.at(i, j), x.at(i, j), 1.0, "potrs")
        });
        // Not positive definite: the order of the first bad minor.
        let bad = Matrix::new(N, N, |i, j| {
            Some(if i == 4 && j == 4 {
                Number(-1e4, 0.0)
            } else {
                a.at(i, j)
            })
        });
        let bad_at = bench.put(p, &bad);
        assert_eq!(potrf(&bench, p, uplo, N, &a, bad_at), 5);
        bench.device.free_all(&[da, db, info, bad_at]);
    }
    bench.is_quiet();
}

#[test]
fn lu_solves_with_64_bit_pivots() {
    let bench = Bench::new();
    for (p, trans) in PRECISIONS.iter().flat_map(|&p| [(p, 0), (p, 1), (p, 2)]) {
        let a = Matrix::new(N, N, |i, j| {
            let shift = if i == (j + 5) % N { 40.0 } else { 0.0 };
            Some(entry(p, 1, i, j) + Number(shift, 0.0))
        });
        let (x, b) = right_sides(p, &a, trans);
        let (da, db) = (bench.put(p, &a), bench.put(p, &b));
        let ipiv = bench.device.alloc(8 * N);
        assert_eq!(getrf(&bench, p, (N, N), da, ipiv), 0);
        let pivots = bench.device.download(ipiv, 8 * N);
        let pivots = pivots
            .chunks(8)
            .map(|x| i64::from_ne_bytes(x.try_into().expect("8 bytes")));
        assert!(
            pivots
                .enumerate()
                .all(|(i, pivot)| pivot > i as i64 && pivot <= N as i64)
        );
        let (h, t, n) = (bench.handle, type_of(p), N as i64);
        let info = bench.device.alloc(4);
        // SAFETY: as above.
        ok(unsafe {
            cusolverDnXgetrs(h, 0, trans, n, 4, t, da, a.ld(), ipiv, t, db, b.ld(), info)
        });
        let found = bench.get(p, N, 4, db);
        all(N, 4, |i, j| {
            close(p, found.at(i, j), x.at(i, j), 10.0, "getrs")
        });
        // The third column is zero.
        let singular = Matrix::new(N, N, |i, j| Some(if j == 2 { ZERO } else { a.at(i, j) }));
        let singular_at = bench.put(p, &singular);
        assert_eq!(getrf(&bench, p, (N, N), singular_at, ipiv), 3);
        bench.device.free_all(&[da, db, ipiv, info, singular_at]);
    }
    bench.is_quiet();
}

#[test]
fn what_cusolver_refuses_is_refused() {
    let bench = Bench::new();
    let (h, n, t) = (bench.handle, 8_i64, 1);
    let a = bench.put(Precision::D, &hermitian(Precision::D, 8, 100.0));
    let (work, info) = (bench.device.alloc(1 << 16), bench.device.alloc(8));
    let null = core::ptr::null_mut();
    let bytes = |jobz| {
        let (mut d, mut host) = (0, 0);
        // SAFETY: the pointers are of this closure.
        ok(unsafe {
            cusolverDnXsyevd_bufferSize(
                h,
                0,
                jobz,
                0,
                n,
                t,
                a,
                10,
                t,
                0,
                t,
                &raw mut d,
                &raw mut host,
            )
        });
        (d, host)
    };
    let (d, host_bytes) = bytes(1);
    let mut host = vec![0_u8; host_bytes];
    let w = bench.device.alloc(64);
    let syevd = |n, lda, w, t_w, work, d, host: *mut c_void, host_bytes, info| {
        // SAFETY: refused before anything is touched, or as above.
        unsafe {
            cusolverDnXsyevd(
                h, 0, 1, 0, n, t, a, lda, t_w, w, t, work, d, host, host_bytes, info,
            )
        }
    };
    let at = host.as_mut_ptr().cast();
    for (code, what) in [
        (
            syevd(n, 10, w, t, work, d - 1, at, host_bytes, info),
            "device workspace too small",
        ),
        (
            syevd(n, 10, w, t, work, d, at, host_bytes - 1, info),
            "host workspace too small",
        ),
        (
            syevd(n, 10, w, t, work, d, null, host_bytes, info),
            "no host workspace",
        ),
        (syevd(n, 7, w, t, work, d, at, host_bytes, info), "lda < n"),
        (syevd(-1, 10, w, t, work, d, at, host_bytes, info), "n < 0"),
        (syevd(n, 10, 0, t, work, d, at, host_bytes, info), "no W"),
        (
            syevd(n, 10, w, 0, work, d, at, host_bytes, info),
            "W of another type",
        ),
        (
            syevd(n, 10, w, t, work + 8, d, at, host_bytes, info),
            "misaligned workspace",
        ),
        (
            syevd(n, 10, w, t, work, d, at, host_bytes, info + 2),
            "misaligned info",
        ),
        (syevd(n, 10, w, t, work, d, at, host_bytes, 0), "no info"),
        (
            syevd(n, 10, a + 8, t, work, d, at, host_bytes, info),
            "W inside A",
        ),
    ] {
        assert_eq!(code, INVALID_VALUE, "{what}");
    }
    assert_eq!(lock().complaints.len(), 11);
    // SAFETY: refused.
    unsafe {
        let wide = cusolverDnXgesvd(
            h,
            0,
            78,
            78,
            4,
            5,
            t,
            a,
            10,
            t,
            w,
            t,
            0,
            1,
            t,
            0,
            1,
            t,
            work,
            1 << 16,
            null,
            0,
            info,
        );
        assert_eq!(wide, INVALID_VALUE, "gesvd of a wide matrix");
        let mut lwork = 0;
        ok(cusolverDnDgebrd_bufferSize(h, 4, 5, &raw mut lwork));
        let wide = cusolverDnDgebrd(h, 4, 5, a, 10, w, w, w, w, work, lwork, info);
        assert_eq!(wide, INVALID_VALUE, "gebrd of a wide matrix");
    }
    // The largest mistake that is no mistake.
    ok(syevd(n, 10, w, t, work, d, at, host_bytes, info));
    assert_eq!(bench.info(info), 0);
}

#[test]
fn host_memory_and_dead_streams_are_found() {
    let bench = Bench::new();
    let h = bench.handle;
    let (work, info) = (bench.device.alloc(1 << 16), bench.device.alloc(4));
    let stream = bench.device.another_stream();
    let mut a = [1.0_f64];
    let potrf = |at: u64| {
        let null = core::ptr::null_mut();
        // SAFETY: as above.
        unsafe { cusolverDnXpotrf(h, 0, 0, 1, 1, at, 1, 1, work, 1 << 16, null, 0, info) }
    };
    // SAFETY: no pointers.
    unsafe {
        ok(cusolverDnSetStream(h, stream));
        ok(crate::driver::cuStreamDestroy_v2(stream));
        assert_eq!(potrf(work), INVALID_VALUE, "A inside the workspace");
        let a = bench.device.alloc(8);
        assert_eq!(potrf(a), EXECUTION_FAILED);
        ok(cusolverDnSetStream(h, bench.device.stream));
    }
    assert!(
        lock().complaints[1].contains("stream"),
        "{:?}",
        lock().complaints
    );
    let at = a.as_mut_ptr().expose_provenance() as u64;
    ok(potrf(at));
    // SAFETY: no pointers.
    let code = unsafe { crate::driver::cuStreamSynchronize(bench.device.stream) };
    assert_ne!(
        code, 0,
        "host memory instead of device memory loses the device"
    );
    assert!(
        lock()
            .complaints
            .iter()
            .any(|c| c.contains("outside of live memory"))
    );
}

#[test]
fn handles_are_counted_and_faults_strike() {
    let bench = Bench::new();
    let mut params = 0;
    // SAFETY: the pointers are of this function.
    unsafe {
        ok(cusolverDnCreateParams(&raw mut params));
        let live = |name: &str| bench.device.report().contains(&format!("live {name} 1"));
        assert!(live("solver_handles") && live("solver_params"));
        ok(cusolverDnDestroyParams(params));
        assert_eq!(cusolverDnDestroyParams(params), INVALID_VALUE);
        assert!(lock().registry.is_dead(Kind::SolverParams, params as u64));
        ok(sim_cuda_set_fault(c"cusolverDnGetStream:2:7".as_ptr()));
        let mut stream = 0;
        ok(cusolverDnGetStream(bench.handle, &raw mut stream));
        assert_eq!(stream, bench.device.stream);
        assert_eq!(cusolverDnGetStream(bench.handle, &raw mut stream), 7);
        ok(cusolverDnDestroy(bench.handle));
        assert_eq!(cusolverDnDestroy(bench.handle), NOT_INITIALIZED);
    }
    assert_eq!(lock().complaints.len(), 2);
}

fn reals(bench: &Bench, p: Precision, at: u64, n: usize) -> Vec<f64> {
    let part = p.part();
    let bytes = bench.device.download(at, n * part.elem_bytes() as usize);
    let one = |x: &[u8]| match x.len() {
        4 => f64::from(f32::from_ne_bytes(x.try_into().expect("4 bytes"))),
        _ => f64::from_ne_bytes(x.try_into().expect("8 bytes")),
    };
    bytes.chunks(part.elem_bytes() as usize).map(one).collect()
}

#[test]
fn eigenvectors_of_hermitian_matrices() {
    let bench = Bench::new();
    for (p, (jobz, uplo)) in PRECISIONS
        .iter()
        .flat_map(|&p| [(1, 0), (1, 1), (0, 0)].map(|o| (p, o)))
    {
        let a = hermitian(p, N, 0.0);
        let (da, w) = (bench.put(p, &half_of(&a, uplo)), bench.device.alloc(16 * N));
        let (h, t, r, n, ld) = (
            bench.handle,
            type_of(p),
            type_of(p.part()),
            N as i64,
            a.ld(),
        );
        // SAFETY: as above.
        let info = unsafe {
            bench.call(
                &|d, hb| {
                    cusolverDnXsyevd_bufferSize(h, 0, jobz, uplo, n, t, da, ld, r, w, t, d, hb)
                },
                &|wk, wb, hw, hb, i| {
                    cusolverDnXsyevd(h, 0, jobz, uplo, n, t, da, ld, r, w, t, wk, wb, hw, hb, i)
                },
            )
        };
        assert_eq!(info, 0);
        let w_found = reals(&bench, p, w, N);
        assert!(w_found.is_sorted());
        if jobz == 0 {
            assert!(bench.is_destroyed(p, N, N, da));
        } else {
            let v = bench.get(p, N, N, da);
            all(N, N, |i, j| {
                let av = sum(N, |l| a.at(i, l) * v.at(l, j));
                close(p, av, Number(w_found[j], 0.0) * v.at(i, j), SCALE, "syevd");
            });
        }
        bench.device.free_all(&[da, w]);
    }
    bench.is_quiet();
}

fn eye(p: Precision, i: usize, j: usize, found: Number, what: &str) {
    let one = if i == j { 1.0 } else { 0.0 };
    close(p, found, Number(one, 0.0), 1.0, what);
}

type Orgqr =
    unsafe extern "C" fn(usize, c_int, c_int, c_int, u64, c_int, u64, u64, c_int, u64) -> u32;
type OrgqrAsk =
    unsafe extern "C" fn(usize, c_int, c_int, c_int, u64, c_int, u64, *mut c_int) -> u32;
type Ormqr = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    c_int,
    c_int,
    c_int,
    u64,
    c_int,
    u64,
    u64,
    c_int,
    u64,
    c_int,
    u64,
) -> u32;
type OrmqrAsk = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    c_int,
    c_int,
    c_int,
    u64,
    c_int,
    u64,
    u64,
    c_int,
    *mut c_int,
) -> u32;

#[test]
fn qr_gives_back_the_matrix() {
    let bench = Bench::new();
    let orgqr: [(Orgqr, OrgqrAsk); 4] = [
        (cusolverDnSorgqr, cusolverDnSorgqr_bufferSize),
        (cusolverDnDorgqr, cusolverDnDorgqr_bufferSize),
        (cusolverDnCungqr, cusolverDnCungqr_bufferSize),
        (cusolverDnZungqr, cusolverDnZungqr_bufferSize),
    ];
    let ormqr: [(Ormqr, OrmqrAsk); 4] = [
        (cusolverDnSormqr, cusolverDnSormqr_bufferSize),
        (cusolverDnDormqr, cusolverDnDormqr_bufferSize),
        (cusolverDnCunmqr, cusolverDnCunmqr_bufferSize),
        (cusolverDnZunmqr, cusolverDnZunmqr_bufferSize),
    ];
    let (m, n) = (N, 11);
    for (&p, ((orgqr, orgqr_ask), (ormqr, ormqr_ask))) in
        PRECISIONS.iter().zip(orgqr.into_iter().zip(ormqr))
    {
        let a = random(p, 1, m, n);
        let (da, tau) = (bench.put(p, &a), bench.device.alloc(16 * n));
        let (h, t, ld) = (bench.handle, type_of(p), a.ld());
        let (mw, nw) = (m as i64, n as i64);
        let (mi, ni, ldi) = (m as c_int, n as c_int, ld as c_int);
        // SAFETY: as above, to the end of this test.
        let info = unsafe {
            bench.call(
                &|d, hb| cusolverDnXgeqrf_bufferSize(h, 0, mw, nw, t, da, ld, t, tau, t, d, hb),
                &|w, wb, hw, hb, i| {
                    cusolverDnXgeqrf(h, 0, mw, nw, t, da, ld, t, tau, t, w, wb, hw, hb, i)
                },
            )
        };
        assert_eq!(info, 0);
        let r = bench.get(p, m, n, da);
        // Q^H A is R.
        let dc = bench.put(p, &a);
        let trans = if p.is_real() { 1 } else { 2 };
        // SAFETY: as above.
        let info = unsafe {
            bench.typed(
                p,
                &|lwork| ormqr_ask(h, 0, trans, mi, ni, ni, da, ldi, tau, dc, ldi, lwork),
                &|w, lw, i| ormqr(h, 0, trans, mi, ni, ni, da, ldi, tau, dc, ldi, w, lw, i),
            )
        };
        assert_eq!(info, 0);
        let found = bench.get(p, m, n, dc);
        let r_at = |i: usize, j: usize| if i <= j { r.at(i, j) } else { ZERO };
        all(m, n, |i, j| {
            close(p, found.at(i, j), r_at(i, j), 10.0, "ormqr")
        });
        // SAFETY: as above.
        let info = unsafe {
            bench.typed(
                p,
                &|lwork| orgqr_ask(h, mi, ni, ni, da, ldi, tau, lwork),
                &|w, lw, i| orgqr(h, mi, ni, ni, da, ldi, tau, w, lw, i),
            )
        };
        assert_eq!(info, 0);
        let q = bench.get(p, m, n, da);
        all(m, n, |i, j| {
            let qr = sum(n, |l| q.at(i, l) * r_at(l, j));
            close(p, qr, a.at(i, j), 10.0, "orgqr");
        });
        bench.device.free_all(&[da, tau, dc]);
    }
    bench.is_quiet();
}

struct Svd {
    s: Vec<f64>,
    u: Matrix,
    /// V^H, n x n.
    vt: Matrix,
    err_sigma: f64,
}

/// By QR (`polar` false) or by the polar decomposition.
fn svd(bench: &Bench, p: Precision, a: &Matrix, polar: bool) -> Svd {
    let (m, n) = (a.rows, a.cols);
    let da = bench.put(p, a);
    let (s, u, v) = (
        bench.device.alloc(8 * n),
        bench.room(p, m, n),
        bench.room(p, n, n),
    );
    let (h, t, r) = (bench.handle, type_of(p), type_of(p.part()));
    let (mw, nw, ld, ldv) = (m as i64, n as i64, a.ld(), n as i64 + 2);
    let mut err = 0.0;
    let err_at = &raw mut err;
    let job = b'S' as i8;
    // SAFETY: as above; `err` outlives the work, which `call` waits for.
    let info = unsafe {
        if polar {
            bench.call(
                &|d, hb| {
                    cusolverDnXgesvdp_bufferSize(
                        h, 0, 1, 1, mw, nw, t, da, ld, r, s, t, u, ld, t, v, ldv, t, d, hb,
                    )
                },
                &|w, wb, hw, hb, i| {
                    cusolverDnXgesvdp(
                        h, 0, 1, 1, mw, nw, t, da, ld, r, s, t, u, ld, t, v, ldv, t, w, wb, hw, hb,
                        i, err_at,
                    )
                },
            )
        } else {
            bench.call(
                &|d, hb| {
                    cusolverDnXgesvd_bufferSize(
                        h, 0, job, job, mw, nw, t, da, ld, r, s, t, u, ld, t, v, ldv, t, d, hb,
                    )
                },
                &|w, wb, hw, hb, i| {
                    cusolverDnXgesvd(
                        h, 0, job, job, mw, nw, t, da, ld, r, s, t, u, ld, t, v, ldv, t, w, wb, hw,
                        hb, i,
                    )
                },
            )
        }
    };
    assert_eq!(info, 0);
    assert!(bench.is_destroyed(p, m, n, da), "A is destroyed");
    let vs = bench.get(p, n, n, v);
    let svd = Svd {
        s: reals(bench, p, s, n),
        u: bench.get(p, m, n, u),
        vt: Matrix::new(n, n, |i, j| {
            Some(if polar {
                vs.at(j, i).conj()
            } else {
                vs.at(i, j)
            })
        }),
        // SAFETY: written by the work that is over.
        err_sigma: unsafe { err_at.read_volatile() },
    };
    bench.device.free_all(&[da, s, u, v]);
    svd
}

#[test]
fn singular_vectors_give_back_the_matrix() {
    let bench = Bench::new();
    for (p, polar) in PRECISIONS.iter().flat_map(|&p| [(p, false), (p, true)]) {
        let a = random(p, 1, N, 13);
        let found = svd(&bench, p, &a, polar);
        assert!(found.s.is_sorted_by(|x, y| x >= y));
        assert_eq!(found.err_sigma, 0.0);
        all(N, 13, |i, j| {
            let product = sum(13, |l| {
                found.u.at(i, l) * Number(found.s[l], 0.0) * found.vt.at(l, j)
            });
            close(p, product, a.at(i, j), SCALE, "gesvd");
        });
        all(13, 13, |i, j| {
            let product = sum(N, |l| found.u.at(l, i).conj() * found.u.at(l, j));
            eye(p, i, j, product, "U");
        });
    }
    bench.is_quiet();
}

#[test]
fn the_polar_decomposition_admits_that_it_perturbs() {
    let bench = Bench::new();
    for p in PRECISIONS {
        // Of rank 12.
        let a = random(p, 1, N, 13);
        let a = Matrix::new(N, 13, |i, j| Some(a.at(i, if j == 12 { 0 } else { j })));
        let (exact, polar) = (svd(&bench, p, &a, false), svd(&bench, p, &a, true));
        let off = exact.s.iter().zip(&polar.s).map(|(x, y)| (x - y).abs());
        let off = off.fold(0.0, f64::max);
        assert!(
            off > 1e-7 * exact.s[0],
            "{p:?}: singular values are perturbed, {off}"
        );
        assert!(
            polar.err_sigma >= off && polar.err_sigma <= 10.0 * off,
            "{p:?}"
        );
    }
}

#[test]
fn eigenvectors_of_general_matrices() {
    let bench = Bench::new();
    for (p, complex_w) in PRECISIONS
        .iter()
        .flat_map(|&p| [(p, true), (p, false)])
        .filter(|(p, complex_w)| p.is_real() || *complex_w)
    {
        let n = 14;
        let a = random(p, 1, n, n);
        let (da, w, vr) = (
            bench.put(p, &a),
            bench.device.alloc(16 * n),
            bench.room(p, n, n),
        );
        let (h, t, ld, nw) = (bench.handle, type_of(p), a.ld(), n as i64);
        let tw = if complex_w { type_of(p.part()) + 4 } else { t };
        // SAFETY: as above.
        let info = unsafe {
            bench.call(
                &|d, hb| {
                    cusolverDnXgeev_bufferSize(
                        h, 0, 0, 1, nw, t, da, ld, tw, w, t, 0, 1, t, vr, ld, t, d, hb,
                    )
                },
                &|wk, wb, hw, hb, i| {
                    cusolverDnXgeev(
                        h, 0, 0, 1, nw, t, da, ld, tw, w, t, 0, 1, t, vr, ld, t, wk, wb, hw, hb, i,
                    )
                },
            )
        };
        assert_eq!(info, 0);
        assert!(bench.is_destroyed(p, n, n, da));
        let flat = reals(&bench, p, w, 2 * n);
        let w_at = |j: usize| {
            if complex_w {
                Number(flat[2 * j], flat[2 * j + 1])
            } else {
                Number(flat[j], flat[n + j])
            }
        };
        let packed = bench.get(p, n, n, vr);
        // A pair of conjugates has its real parts in one column, the imaginary ones in the next.
        let v_at = |i: usize, j: usize| match (p.is_real(), w_at(j).1) {
            (true, im) if im > 0.0 => Number(packed.at(i, j).0, packed.at(i, j + 1).0),
            (true, im) if im < 0.0 => Number(packed.at(i, j - 1).0, -packed.at(i, j).0),
            _ => packed.at(i, j),
        };
        assert!(
            (0..n).any(|j| w_at(j).1 != 0.0),
            "a matrix with complex eigenvalues"
        );
        all(n, n, |i, j| {
            let av = sum(n, |l| a.at(i, l) * v_at(l, j));
            close(p, av, w_at(j) * v_at(i, j), SCALE, "geev");
        });
        bench.device.free_all(&[da, w, vr]);
    }
    bench.is_quiet();
}

type Potri = unsafe extern "C" fn(usize, u32, c_int, u64, c_int, u64, c_int, u64) -> u32;
type PotriAsk = unsafe extern "C" fn(usize, u32, c_int, u64, c_int, *mut c_int) -> u32;

#[test]
fn inverses_are_inverses() {
    let bench = Bench::new();
    let potri: [(Potri, PotriAsk); 4] = [
        (cusolverDnSpotri, cusolverDnSpotri_bufferSize),
        (cusolverDnDpotri, cusolverDnDpotri_bufferSize),
        (cusolverDnCpotri, cusolverDnCpotri_bufferSize),
        (cusolverDnZpotri, cusolverDnZpotri_bufferSize),
    ];
    for (&p, (potri, ask)) in PRECISIONS.iter().zip(potri) {
        let a = hermitian(p, N, 400.0);
        let da = bench.put(p, &half_of(&a, 0));
        let (h, t, ld) = (bench.handle, type_of(p), a.ld());
        let (n, ldi) = (N as c_int, ld as c_int);
        assert_eq!(potrf(&bench, p, 0, N, &a, da), 0);
        let l = bench.get(p, N, N, da);
        let dl = bench.put(p, &half_of(&l, 0));
        // SAFETY: as above.
        unsafe {
            let info = bench.typed(p, &|lwork| ask(h, 0, n, da, ldi, lwork), &|w, lw, i| {
                potri(h, 0, n, da, ldi, w, lw, i)
            });
            assert_eq!(info, 0);
            let info = bench.call(
                &|d, hb| cusolverDnXtrtri_bufferSize(h, 0, 0, N as i64, t, dl, ld, d, hb),
                &|w, wb, hw, hb, i| {
                    cusolverDnXtrtri(h, 0, 0, N as i64, t, dl, ld, w, wb, hw, hb, i)
                },
            );
            assert_eq!(info, 0);
        }
        let (inverse, l_inverse) = (bench.get(p, N, N, da), bench.get(p, N, N, dl));
        let full = |i: usize, j: usize| match i >= j {
            true => inverse.at(i, j),
            false => inverse.at(j, i).conj(),
        };
        let lower = |x: &Matrix, i: usize, j: usize| if i >= j { x.at(i, j) } else { ZERO };
        all(N, N, |i, j| {
            eye(p, i, j, sum(N, |k| a.at(i, k) * full(k, j)), "potri");
            let product = sum(N, |k| lower(&l, i, k) * lower(&l_inverse, k, j));
            eye(p, i, j, product, "trtri");
        });
        bench.device.free_all(&[da, dl]);
    }
    bench.is_quiet();
}
