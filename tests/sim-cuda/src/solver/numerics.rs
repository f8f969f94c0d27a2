//! The computations: LAPACK's routines on resolved operands, each with work arrays of its own, and what
//! cuSOLVER returns in another form than LAPACK (64-bit pivots, V instead of its conjugate transpose, the
//! perturbed singular values of the polar decomposition). They do not know the device.
//!
//! Unsafe lives here because LAPACK is foreign code. Every function's contract: the pointers are operands
//! that `job::submit` has found in live device memory with these sizes; an empty one may be any address.

use super::job::Outcome;
use super::lapack as f;
use crate::blas::job::Precision;
use core::ffi::{c_char, c_void};

type At = *mut c_void;
type Done = Result<Outcome, String>;

/// The result's code as LAPACK gives it; a negative one is a mistake of the simulation.
fn done(info: i32) -> Done {
    if info < 0 {
        return Err(format!("LAPACK refuses argument {}", -info));
    }
    Ok(Outcome {
        info,
        err_sigma: 0.0,
    })
}

fn flag(letter: u8) -> c_char {
    letter as c_char
}

/// Index of a precision among all four.
fn of_four(precision: Precision) -> usize {
    match precision {
        Precision::S => 0,
        Precision::D => 1,
        Precision::C => 2,
        Precision::Z => 3,
    }
}

/// Index of a precision among the real or the complex ones.
fn of_two(precision: Precision) -> usize {
    of_four(precision) % 2
}

/// An array aligned for every type, not empty.
fn array(bytes: u64) -> Vec<u128> {
    vec![0; bytes as usize / 16 + 1]
}

fn pointer(array: &mut [u128]) -> At {
    array.as_mut_ptr().cast()
}

/// The length that a workspace query leaves in work(1).
fn best(precision: Precision, work: &[u128]) -> i32 {
    let bytes = work[0].to_ne_bytes();
    let [a, b, c, d, e, f, g, h, ..] = bytes;
    let length = match precision.part() {
        Precision::S => f64::from(f32::from_ne_bytes([a, b, c, d])),
        _ => f64::from_ne_bytes([a, b, c, d, e, f, g, h]),
    };
    length.ceil().max(1.0) as i32
}

/// Calls a routine with lwork = -1 and then with the work array that it wants.
fn with_work(precision: Precision, call: impl Fn(At, &i32, &mut i32)) -> Done {
    let (mut first, mut info) = (array(16), 0);
    call(pointer(&mut first), &-1, &mut info);
    if info == 0 {
        let lwork = best(precision, &first);
        let mut work = array(lwork as u64 * precision.elem_bytes());
        call(pointer(&mut work), &lwork, &mut info);
    }
    done(info)
}

/// cuSOLVER's documentation does not say what becomes of imaginary parts on the diagonal of a Hermitian matrix: here
/// they are taken for real, so that who relies on LAPACK's meaning is found.
///
/// # Safety
/// The matrix exists.
unsafe fn confuse_diagonal(p: Precision, n: i32, a: At, lda: i32) {
    if p.is_real() {
        return;
    }
    let parts = Reals::new(p, a);
    for i in 0..n as usize {
        let re = 2 * (i * lda as usize + i);
        // SAFETY: the caller's promise.
        unsafe { parts.set(re, parts.get(re) + parts.get(re + 1)) };
    }
}

/// Nor does it say that the factor's diagonal is exactly real.
pub fn potrf(p: Precision, uplo: u8, n: i32, a: At, lda: i32) -> Done {
    let mut info = 0;
    // SAFETY: the module's contract.
    unsafe {
        confuse_diagonal(p, n, a, lda);
        f::POTRF[of_four(p)](&flag(uplo), &n, a, &lda, &mut info, 1);
        if !p.is_real() {
            Reals::new(p, a).set(1, 1e-20);
        }
    }
    done(info)
}

pub fn potrs(p: Precision, uplo: u8, n: i32, nrhs: i32, a: At, lda: i32, b: At, ldb: i32) -> Done {
    let (uplo, mut info) = (flag(uplo), 0);
    // SAFETY: the module's contract.
    unsafe { f::POTRS[of_four(p)](&uplo, &n, &nrhs, a, &lda, b, &ldb, &mut info, 1) };
    done(info)
}

pub fn potri(p: Precision, uplo: u8, n: i32, a: At, lda: i32) -> Done {
    let mut info = 0;
    // SAFETY: the module's contract.
    unsafe { f::POTRI[of_four(p)](&flag(uplo), &n, a, &lda, &mut info, 1) };
    done(info)
}

pub fn trtri(p: Precision, uplo: u8, diag: u8, n: i32, a: At, lda: i32) -> Done {
    let (uplo, diag, mut info) = (flag(uplo), flag(diag), 0);
    // SAFETY: the module's contract.
    unsafe { f::TRTRI[of_four(p)](&uplo, &diag, &n, a, &lda, &mut info, 1, 1) };
    done(info)
}

/// `ipiv` has 64-bit integers, counted from 1.
pub fn getrf(p: Precision, m: i32, n: i32, a: At, lda: i32, ipiv: At) -> Done {
    let mut pivots = vec![0; m.min(n).max(1) as usize];
    let mut info = 0;
    // SAFETY: the module's contract; the pivots have min(m, n) elements.
    unsafe { f::GETRF[of_four(p)](&m, &n, a, &lda, pivots.as_mut_ptr(), &mut info) };
    for (i, &pivot) in pivots.iter().take(m.min(n) as usize).enumerate() {
        // SAFETY: the module's contract: min(m, n) pivots.
        unsafe { ipiv.cast::<i64>().add(i).write(i64::from(pivot)) };
    }
    done(info)
}

/// A pivot that is no row would be an illegal address.
pub fn getrs(
    p: Precision,
    trans: u8,
    n: i32,
    nrhs: i32,
    (a, lda): (At, i32),
    ipiv: At,
    (b, ldb): (At, i32),
) -> Done {
    let mut pivots = Vec::with_capacity(n as usize);
    for i in 0..n as usize {
        // SAFETY: the module's contract: n pivots.
        let pivot = unsafe { ipiv.cast::<i64>().add(i).read() };
        if !(1..=i64::from(n)).contains(&pivot) {
            return Err(format!("pivot {} is {pivot}, no row of {n}", i + 1));
        }
        pivots.push(pivot as i32);
    }
    let (trans, mut info) = (flag(trans), 0);
    let ipiv = pivots.as_ptr();
    // SAFETY: the module's contract.
    unsafe { f::GETRS[of_four(p)](&trans, &n, &nrhs, a, &lda, ipiv, b, &ldb, &mut info, 1) };
    done(info)
}

pub fn geqrf(p: Precision, m: i32, n: i32, a: At, lda: i32, tau: At) -> Done {
    with_work(p, |work, lwork, info| {
        // SAFETY: the module's contract; the work array is as asked for.
        unsafe { f::GEQRF[of_four(p)](&m, &n, a, &lda, tau, work, lwork, info) }
    })
}

pub fn orgqr(p: Precision, m: i32, n: i32, k: i32, a: At, lda: i32, tau: At) -> Done {
    with_work(p, |work, lwork, info| {
        // SAFETY: as in `geqrf`.
        unsafe { f::ORGQR[of_four(p)](&m, &n, &k, a, &lda, tau, work, lwork, info) }
    })
}

pub fn ormqr(
    p: Precision,
    (side, trans): (u8, u8),
    (m, n, k): (i32, i32, i32),
    (a, lda): (At, i32),
    tau: At,
    (c, ldc): (At, i32),
) -> Done {
    let (side, trans) = (&flag(side), &flag(trans));
    let routine = f::ORMQR[of_four(p)];
    with_work(p, |work, lwork, info| {
        // SAFETY: as in `geqrf`.
        unsafe {
            routine(
                side, trans, &m, &n, &k, a, &lda, tau, c, &ldc, work, lwork, info, 1, 1,
            )
        }
    })
}

pub fn gebrd(p: Precision, m: i32, n: i32, a: At, lda: i32, [d, e, tauq, taup]: [At; 4]) -> Done {
    let routine = f::GEBRD[of_four(p)];
    with_work(p, |work, lwork, info| {
        // SAFETY: as in `geqrf`.
        unsafe { routine(&m, &n, a, &lda, d, e, tauq, taup, work, lwork, info) }
    })
}

pub fn syevd(p: Precision, jobz: u8, uplo: u8, n: i32, a: At, lda: i32, w: At) -> Done {
    let (jobz, uplo) = (&flag(jobz), &flag(uplo));
    let (mut first_iwork, mut info) = ([0; 1], 0);
    let (mut first, mut first_rwork) = (array(16), array(16));
    // SAFETY: the module's contract.
    unsafe { confuse_diagonal(p, n, a, lda) };
    let real = f::SYEVD[of_two(p)];
    let complex = f::HEEVD[of_two(p)];
    let call = |work: At, lwork, rwork: At, lrwork, iwork: *mut i32, liwork, info: &mut i32| {
        let (lwork, lrwork, liwork) = (&lwork, &lrwork, &liwork);
        // SAFETY: the module's contract; the arrays have the lengths asked for.
        unsafe {
            if p.is_real() {
                real(
                    jobz, uplo, &n, a, &lda, w, work, lwork, iwork, liwork, info, 1, 1,
                );
            } else {
                complex(
                    jobz, uplo, &n, a, &lda, w, work, lwork, rwork, lrwork, iwork, liwork, info, 1,
                    1,
                );
            }
        }
    };
    call(
        pointer(&mut first),
        -1,
        pointer(&mut first_rwork),
        -1,
        first_iwork.as_mut_ptr(),
        -1,
        &mut info,
    );
    if info == 0 {
        let lwork = best(p, &first);
        let lrwork = best(p.part(), &first_rwork);
        let liwork = first_iwork[0].max(1);
        let mut work = array(lwork as u64 * p.elem_bytes());
        let mut rwork = array(lrwork as u64 * p.part().elem_bytes());
        let mut iwork = vec![0; liwork as usize];
        let (work, rwork, iwork) = (pointer(&mut work), pointer(&mut rwork), iwork.as_mut_ptr());
        call(work, lwork, rwork, lrwork, iwork, liwork, &mut info);
    }
    done(info)
}

pub fn gesvd(
    p: Precision,
    (jobu, jobvt): (u8, u8),
    (m, n): (i32, i32),
    (a, lda): (At, i32),
    s: At,
    (u, ldu): (At, i32),
    (vt, ldvt): (At, i32),
) -> Done {
    let (jobu, jobvt) = (&flag(jobu), &flag(jobvt));
    // 5 min(m, n) real elements, as documented.
    let mut rwork = array(5 * m.min(n).max(1) as u64 * p.part().elem_bytes());
    let rwork = pointer(&mut rwork);
    let (real, complex) = (f::REAL_GESVD[of_two(p)], f::COMPLEX_GESVD[of_two(p)]);
    with_work(p, |work, lwork, info| {
        // SAFETY: as in `geqrf`.
        unsafe {
            if p.is_real() {
                real(
                    jobu, jobvt, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, lwork, info, 1, 1,
                );
            } else {
                complex(
                    jobu, jobvt, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, lwork, rwork, info,
                    1, 1,
                );
            }
        }
    })
}

/// Real elements at an address of device memory or of an array.
#[derive(Clone, Copy)]
struct Reals {
    at: At,
    single: bool,
}

impl Reals {
    fn new(p: Precision, at: At) -> Self {
        let single = p.part() == Precision::S;
        Self { at, single }
    }

    /// # Safety
    /// Element `i` exists.
    unsafe fn get(self, i: usize) -> f64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.single {
                true => f64::from(self.at.cast::<f32>().add(i).read()),
                false => self.at.cast::<f64>().add(i).read(),
            }
        }
    }

    /// # Safety
    /// Element `i` exists.
    unsafe fn set(self, i: usize, value: f64) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.single {
                true => self.at.cast::<f32>().add(i).write(value as f32),
                false => self.at.cast::<f64>().add(i).write(value),
            }
        }
    }
}

/// `to` (cols x rows) becomes the conjugate transpose of `from` (rows x cols).
///
/// # Safety
/// Both matrices exist and do not overlap.
unsafe fn conj_transpose(
    p: Precision,
    (rows, cols): (i32, i32),
    (from, ld_from): (At, i32),
    (to, ld_to): (At, i32),
) {
    let (from, to) = (Reals::new(p, from), Reals::new(p, to));
    let parts = if p.is_real() { 1 } else { 2 };
    for (j, i) in (0..cols as usize).flat_map(|j| (0..rows as usize).map(move |i| (j, i))) {
        let source = parts * (j * ld_from as usize + i);
        let target = parts * (i * ld_to as usize + j);
        // SAFETY: the caller's promise.
        unsafe {
            to.set(target, from.get(source));
            if parts == 2 {
                to.set(target + 1, -from.get(source + 1));
            }
        }
    }
}

/// From which sigma_min / sigma_max on the polar decomposition perturbs, the perturbation that was measured
/// and what h_err_sigma said of it, relative to sigma_max. float64: H200, n = 1024, a spectrum from 1 to
/// 1e-14, 2026-12-01. float32: the same in proportion to the rounding, not measured.
const PERTURBED_D: (f64, f64, f64) = (1e-10, 8.7e-7, 9.0e-7);
const PERTURBED_S: (f64, f64, f64) = (1e-5, 8.7e-4, 9.0e-4);

/// The singular value decomposition by the polar one: V instead of its conjugate transpose. Small singular
/// values are shifted where the spectrum is wide, and err_sigma says so.
pub fn gesvdp(
    p: Precision,
    vectors: bool,
    econ: bool,
    (m, n): (i32, i32),
    a: (At, i32),
    s: At,
    u: (At, i32),
    v: (At, i32),
) -> Done {
    let least = m.min(n);
    let job = match (vectors, econ) {
        (false, _) => b'N',
        (true, true) => b'S',
        (true, false) => b'A',
    };
    let rows = match job {
        b'N' => 1,
        b'S' => least,
        _ => n,
    };
    let mut vt = array(rows as u64 * n as u64 * p.elem_bytes());
    let vt = (pointer(&mut vt), rows.max(1));
    let mut outcome = gesvd(p, (job, job), (m, n), a, s, u, vt)?;
    if vectors {
        // SAFETY: V is n x rows by the module's contract, V's conjugate transpose is an array of this
        // function.
        unsafe { conj_transpose(p, (rows, n), vt, v) };
    }
    let sigma = Reals::new(p, s);
    let (ratio, shift, reported) = match sigma.single {
        true => PERTURBED_S,
        false => PERTURBED_D,
    };
    // SAFETY: min(m, n) singular values, at least one: an empty call does not come here.
    let (largest, smallest) = unsafe { (sigma.get(0), sigma.get(least as usize - 1)) };
    if outcome.info == 0 && smallest <= ratio * largest {
        for i in 0..least as usize {
            // SAFETY: as above. The order is kept.
            unsafe { sigma.set(i, sigma.get(i).hypot(shift * largest)) };
        }
        outcome.err_sigma = reported * largest;
    }
    Ok(outcome)
}

/// Eigenvalues as cuSOLVER returns them for a real matrix: n complex ones, or n real parts followed by n
/// imaginary ones.
pub fn geev(
    p: Precision,
    vectors: bool,
    complex_w: bool,
    n: i32,
    (a, lda): (At, i32),
    w: At,
    (vr, ldvr): (At, i32),
) -> Done {
    let (no, jobvr) = (&flag(b'N'), &flag(if vectors { b'V' } else { b'N' }));
    let ldvr = if vectors { ldvr } else { 1 };
    let (mut none, none_ld) = (array(16), 1);
    let none = pointer(&mut none);
    if !p.is_real() {
        let routine = f::COMPLEX_GEEV[of_two(p)];
        let mut rwork = array(2 * n as u64 * p.part().elem_bytes());
        let rwork = pointer(&mut rwork);
        return with_work(p, |work, lwork, info| {
            // SAFETY: as in `geqrf`.
            unsafe {
                routine(
                    no, jobvr, &n, a, &lda, w, none, &none_ld, vr, &ldvr, work, lwork, rwork, info,
                    1, 1,
                )
            }
        });
    }
    let routine = f::REAL_GEEV[of_two(p)];
    let (mut wr, mut wi) = (
        array(n as u64 * p.elem_bytes()),
        array(n as u64 * p.elem_bytes()),
    );
    let (wr, wi) = (pointer(&mut wr), pointer(&mut wi));
    let outcome = with_work(p, |work, lwork, info| {
        // SAFETY: as in `geqrf`.
        unsafe {
            routine(
                no, jobvr, &n, a, &lda, wr, wi, none, &none_ld, vr, &ldvr, work, lwork, info, 1, 1,
            )
        }
    })?;
    let (re, im, w) = (Reals::new(p, wr), Reals::new(p, wi), Reals::new(p, w));
    for i in 0..n as usize {
        let (at_re, at_im) = match complex_w {
            true => (2 * i, 2 * i + 1),
            false => (i, n as usize + i),
        };
        // SAFETY: arrays of this function with n elements; W has 2 n real ones by the module's contract.
        unsafe {
            w.set(at_re, re.get(i));
            w.set(at_im, im.get(i));
        }
    }
    Ok(outcome)
}
