//! The entries of the simulated cuSOLVER. Each decodes its arguments as cuSOLVER does; `job` checks and
//! queues, `numerics` computes. The 64-bit entries name their types by number, the others have one entry for
//! each precision.

use super::job::{Compute, Given, Job, Need, Outcome, Use, matrix, submit, vector};
use super::{INVALID_VALUE, NOT_SUPPORTED, gate, give, known_params, numerics, run};
use crate::blas::job::Precision;
use crate::state;
use core::ffi::{c_int, c_void};

type Decoded = Result<Job, u32>;

/// cudaDataType's numbers.
fn precision(number: u32) -> Result<Precision, u32> {
    Ok(match number {
        0 => Precision::S,
        1 => Precision::D,
        4 => Precision::C,
        5 => Precision::Z,
        _ => return Err(INVALID_VALUE),
    })
}

/// The one precision of a call whose types are those of A.
fn same(types: &[u32]) -> Result<Precision, u32> {
    if types.iter().any(|other| other != &types[0]) {
        return Err(INVALID_VALUE);
    }
    precision(types[0])
}

/// The precision of a call whose vector has the type of A's real part.
fn same_with_real(types: &[u32], real: u32) -> Result<Precision, u32> {
    let found = same(types)?;
    if precision(real)? == found.part() {
        Ok(found)
    } else {
        Err(INVALID_VALUE)
    }
}

fn choose(number: u32, letters: &[u8]) -> Result<u8, u32> {
    letters.get(number as usize).copied().ok_or(INVALID_VALUE)
}

fn uplo(number: u32) -> Result<u8, u32> {
    choose(number, b"LU")
}

fn eig_mode(number: u32) -> Result<bool, u32> {
    Ok(choose(number, b"NV")? == b'V')
}

/// A letter of gesvd.
fn svd_job(letter: i8) -> Result<u8, u32> {
    match letter as u8 {
        letter @ (b'A' | b'S' | b'O' | b'N') => Ok(letter),
        _ => Err(INVALID_VALUE),
    }
}

/// Sizes as LAPACK wants them; `submit` has refused what does not fit before the work runs.
fn narrow<const N: usize>(sizes: [i64; N]) -> [i32; N] {
    sizes.map(|size| size as i32)
}

/// Bytes of workspace for a matrix of this size: a panel, so that it grows with the sizes. The real numbers
/// are other ones; whoever asks for them does not care.
fn panel(p: Precision, (m, n): (i64, i64)) -> Need {
    let elems = 64 + 32 * m.max(n).max(0) as u64;
    Need {
        device_bytes: elems * p.elem_bytes(),
        host_bytes: 0,
    }
}

/// As `panel`, and memory on the host, as for routines that work on both sides.
fn hybrid(p: Precision, size: (i64, i64)) -> Need {
    let host_bytes = 64 + size.1.max(0) as u64 * p.elem_bytes();
    Need {
        host_bytes,
        ..panel(p, size)
    }
}

const NO_NEED: Need = Need {
    device_bytes: 0,
    host_bytes: 0,
};

/// The computation, unless there is nothing to compute.
fn unless_empty(
    empty: bool,
    compute: impl FnOnce(&[*mut c_void]) -> Result<Outcome, String> + Send + 'static,
) -> Compute {
    Box::new(move |at| {
        if empty {
            return Ok(Outcome {
                info: 0,
                err_sigma: 0.0,
            });
        }
        compute(at)
    })
}

/// Answers a question for the bytes of workspace.
unsafe fn answer(
    function: &'static str,
    handle: usize,
    params: usize,
    need: impl FnOnce() -> Result<Need, u32>,
    device_bytes: *mut usize,
    host_bytes: *mut usize,
) -> u32 {
    run(|| {
        let mut pass = gate(function, handle)?;
        known_params(&mut pass, params)?;
        let need = need()?;
        // SAFETY: the API's contract: pointers of the caller's.
        unsafe {
            give(device_bytes, need.device_bytes as usize)?;
            give(host_bytes, need.host_bytes as usize)
        }
    })
}

/// Answers a question for the elements of workspace.
unsafe fn answer_elems(
    function: &'static str,
    handle: usize,
    p: Precision,
    size: (c_int, c_int),
    lwork: *mut c_int,
) -> u32 {
    run(|| {
        let _pass = gate(function, handle)?;
        if size.0 < 0 || size.1 < 0 {
            return Err(INVALID_VALUE);
        }
        let need = panel(p, (size.0.into(), size.1.into()));
        let elems = need.device_bytes / p.elem_bytes();
        // A length beyond 32 bits, as it would come back.
        let elems = state::number_of("SIM_CUDA_SOLVER_LWORK", elems) as u32;
        // SAFETY: the API's contract: a pointer of the caller's.
        unsafe { give(lwork, elems.cast_signed()) }
    })
}

fn not_negative(sizes: &[i64]) -> Result<(), u32> {
    if sizes.iter().any(|&size| size < 0) {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(handle: usize, $($arg: $ty),*) -> u32 {
                run(|| submit(stringify!($name), handle, || -> Decoded { $body }))
            }
        )*
    };
}

/// Questions for bytes; the last two arguments are always the same.
macro_rules! questions {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $params:ident $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(unused_variables)] // operands, which a question does not read
            pub unsafe extern "C" fn $name(
                handle: usize, $($arg: $ty,)* on_device: *mut usize, on_host: *mut usize,
            ) -> u32 {
                let need = || -> Result<Need, u32> { $body };
                // SAFETY: the API's contract.
                unsafe { answer(stringify!($name), handle, $params, need, on_device, on_host) }
            }
        )*
    };
}

questions! {
    fn cusolverDnXpotrf_bufferSize(
        params: usize, uplo_: u32, n: i64, type_a: u32, a: u64, lda: i64, compute: u32,
    ) params {
        not_negative(&[n])?;
        uplo(uplo_)?;
        Ok(panel(same(&[type_a, compute])?, (n, n)))
    }

    fn cusolverDnXgetrf_bufferSize(
        params: usize, m: i64, n: i64, type_a: u32, a: u64, lda: i64, compute: u32,
    ) params {
        not_negative(&[m, n])?;
        Ok(panel(same(&[type_a, compute])?, (m, n)))
    }

    fn cusolverDnXgeqrf_bufferSize(
        params: usize, m: i64, n: i64, type_a: u32, a: u64, lda: i64, type_tau: u32, tau: u64,
        compute: u32,
    ) params {
        not_negative(&[m, n])?;
        Ok(panel(same(&[type_a, type_tau, compute])?, (m, n)))
    }

    fn cusolverDnXsyevd_bufferSize(
        params: usize, jobz: u32, uplo_: u32, n: i64, type_a: u32, a: u64, lda: i64, type_w: u32,
        w: u64, compute: u32,
    ) params {
        not_negative(&[n])?;
        eig_mode(jobz)?;
        uplo(uplo_)?;
        Ok(hybrid(same_with_real(&[type_a, compute], type_w)?, (n, n)))
    }

    fn cusolverDnXgesvd_bufferSize(
        params: usize, jobu: i8, jobvt: i8, m: i64, n: i64, type_a: u32, a: u64, lda: i64,
        type_s: u32, s: u64, type_u: u32, u: u64, ldu: i64, type_vt: u32, vt: u64, ldvt: i64,
        compute: u32,
    ) params {
        not_negative(&[n, m - n])?;
        svd_job(jobu)?;
        svd_job(jobvt)?;
        Ok(panel(same_with_real(&[type_a, type_u, type_vt, compute], type_s)?, (m, n)))
    }

    fn cusolverDnXgesvdp_bufferSize(
        params: usize, jobz: u32, econ: c_int, m: i64, n: i64, type_a: u32, a: u64, lda: i64,
        type_s: u32, s: u64, type_u: u32, u: u64, ldu: i64, type_v: u32, v: u64, ldv: i64,
        compute: u32,
    ) params {
        not_negative(&[m, n])?;
        eig_mode(jobz)?;
        Ok(hybrid(same_with_real(&[type_a, type_u, type_v, compute], type_s)?, (m, n)))
    }

    fn cusolverDnXgeev_bufferSize(
        params: usize, jobvl: u32, jobvr: u32, n: i64, type_a: u32, a: u64, lda: i64, type_w: u32,
        w: u64, type_vl: u32, vl: u64, ldvl: i64, type_vr: u32, vr: u64, ldvr: i64, compute: u32,
    ) params {
        not_negative(&[n])?;
        eig_mode(jobvl)?;
        eig_mode(jobvr)?;
        Ok(hybrid(same(&[type_a, type_vl, type_vr, compute])?, (n, n)))
    }

    fn cusolverDnXtrtri_bufferSize(
        uplo_: u32, diag: u32, n: i64, type_a: u32, a: u64, lda: i64,
    ) NO_PARAMS {
        not_negative(&[n])?;
        uplo(uplo_)?;
        choose(diag, b"NU")?;
        Ok(panel(precision(type_a)?, (n, n)))
    }
}

/// For the routines that take no parameters.
const NO_PARAMS: usize = 0;

fn given(device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize) -> Given {
    Given {
        device,
        device_bytes: device_bytes as u64,
        host,
        host_bytes: host_bytes as u64,
    }
}

entries! {
    fn cusolverDnXpotrf(
        params: usize, uplo_: u32, n: i64, type_a: u32, a: u64, lda: i64, compute: u32,
        device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize, info: u64,
    ) {
        let (p, uplo) = (same(&[type_a, compute])?, uplo(uplo_)?);
        let [ns, ldas] = narrow([n, lda]);
        Ok(Job {
            params,
            parts: vec![matrix("A", Use::Update, p.elem_bytes(), (n, n), (a, lda))],
            need: panel(p, (n, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(n == 0, move |at| numerics::potrf(p, uplo, ns, at[0], ldas)),
        })
    }

    fn cusolverDnXpotrs(
        params: usize, uplo_: u32, n: i64, nrhs: i64, type_a: u32, a: u64, lda: i64, type_b: u32,
        b: u64, ldb: i64, info: u64,
    ) {
        let (p, uplo) = (same(&[type_a, type_b])?, uplo(uplo_)?);
        let [ns, nrhss, ldas, ldbs] = narrow([n, nrhs, lda, ldb]);
        Ok(Job {
            params,
            parts: vec![
                matrix("A", Use::Read, p.elem_bytes(), (n, n), (a, lda)),
                matrix("B", Use::Update, p.elem_bytes(), (n, nrhs), (b, ldb)),
            ],
            need: NO_NEED,
            given: Given::NOTHING,
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(n == 0 || nrhs == 0, move |at| {
                numerics::potrs(p, uplo, ns, nrhss, at[0], ldas, at[1], ldbs)
            }),
        })
    }

    fn cusolverDnXgetrf(
        params: usize, m: i64, n: i64, type_a: u32, a: u64, lda: i64, ipiv: u64, compute: u32,
        device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize, info: u64,
    ) {
        let p = same(&[type_a, compute])?;
        let [ms, ns, ldas] = narrow([m, n, lda]);
        if ipiv == 0 {
            // Without pivoting: nothing of ours uses it.
            return Err(NOT_SUPPORTED);
        }
        Ok(Job {
            params,
            parts: vec![
                matrix("A", Use::Update, p.elem_bytes(), (m, n), (a, lda)),
                vector("ipiv", Use::Write, 8, m.min(n), ipiv),
            ],
            need: panel(p, (m, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(m == 0 || n == 0, move |at| {
                numerics::getrf(p, ms, ns, at[0], ldas, at[1])
            }),
        })
    }

    fn cusolverDnXgetrs(
        params: usize, trans: u32, n: i64, nrhs: i64, type_a: u32, a: u64, lda: i64, ipiv: u64,
        type_b: u32, b: u64, ldb: i64, info: u64,
    ) {
        let (p, trans) = (same(&[type_a, type_b])?, choose(trans, b"NTC")?);
        let [ns, nrhss, ldas, ldbs] = narrow([n, nrhs, lda, ldb]);
        Ok(Job {
            params,
            parts: vec![
                matrix("A", Use::Read, p.elem_bytes(), (n, n), (a, lda)),
                vector("ipiv", Use::Read, 8, n, ipiv),
                matrix("B", Use::Update, p.elem_bytes(), (n, nrhs), (b, ldb)),
            ],
            need: NO_NEED,
            given: Given::NOTHING,
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(n == 0 || nrhs == 0, move |at| {
                numerics::getrs(p, trans, ns, nrhss, (at[0], ldas), at[1], (at[2], ldbs))
            }),
        })
    }

    fn cusolverDnXtrtri(
        uplo_: u32, diag: u32, n: i64, type_a: u32, a: u64, lda: i64, device: u64,
        device_bytes: usize, host: *mut c_void, host_bytes: usize, info: u64,
    ) {
        let (p, uplo, diag) = (precision(type_a)?, uplo(uplo_)?, choose(diag, b"NU")?);
        let [ns, ldas] = narrow([n, lda]);
        Ok(Job {
            params: NO_PARAMS,
            parts: vec![matrix("A", Use::Update, p.elem_bytes(), (n, n), (a, lda))],
            need: panel(p, (n, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(n == 0, move |at| {
                numerics::trtri(p, uplo, diag, ns, at[0], ldas)
            }),
        })
    }

    fn cusolverDnXgeqrf(
        params: usize, m: i64, n: i64, type_a: u32, a: u64, lda: i64, type_tau: u32, tau: u64,
        compute: u32, device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize,
        info: u64,
    ) {
        let p = same(&[type_a, type_tau, compute])?;
        let [ms, ns, ldas] = narrow([m, n, lda]);
        Ok(Job {
            params,
            parts: vec![
                matrix("A", Use::Update, p.elem_bytes(), (m, n), (a, lda)),
                vector("tau", Use::Write, p.elem_bytes(), m.min(n), tau),
            ],
            need: panel(p, (m, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(m == 0 || n == 0, move |at| {
                numerics::geqrf(p, ms, ns, at[0], ldas, at[1])
            }),
        })
    }

    fn cusolverDnXsyevd(
        params: usize, jobz: u32, uplo_: u32, n: i64, type_a: u32, a: u64, lda: i64, type_w: u32,
        w: u64, compute: u32, device: u64, device_bytes: usize, host: *mut c_void,
        host_bytes: usize, info: u64,
    ) {
        let p = same_with_real(&[type_a, compute], type_w)?;
        let (vectors, uplo) = (eig_mode(jobz)?, uplo(uplo_)?);
        let [ns, ldas] = narrow([n, lda]);
        let (jobz, usage) = if vectors { (b'V', Use::Update) } else { (b'N', Use::Destroy) };
        Ok(Job {
            params,
            parts: vec![
                matrix("A", usage, p.elem_bytes(), (n, n), (a, lda)),
                vector("W", Use::Write, p.part().elem_bytes(), n, w),
            ],
            need: hybrid(p, (n, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(n == 0, move |at| {
                numerics::syevd(p, jobz, uplo, ns, at[0], ldas, at[1])
            }),
        })
    }

    fn cusolverDnXgesvd(
        params: usize, jobu: i8, jobvt: i8, m: i64, n: i64, type_a: u32, a: u64, lda: i64,
        type_s: u32, s: u64, type_u: u32, u: u64, ldu: i64, type_vt: u32, vt: u64, ldvt: i64,
        compute: u32, device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize,
        info: u64,
    ) {
        let p = same_with_real(&[type_a, type_u, type_vt, compute], type_s)?;
        let (jobu, jobvt) = (svd_job(jobu)?, svd_job(jobvt)?);
        // As documented: tall and square matrices only, and one of the two in the place of A.
        if m < n || (jobu, jobvt) == (b'O', b'O') {
            return Err(INVALID_VALUE);
        }
        let overwrites = jobu == b'O' || jobvt == b'O';
        let usage = if overwrites { Use::Update } else { Use::Destroy };
        let u_cols = match jobu {
            b'A' => m,
            b'S' => n,
            _ => 0,
        };
        let u_rows = if u_cols == 0 { 0 } else { m };
        let vt_rows = if matches!(jobvt, b'A' | b'S') { n } else { 0 };
        let [ms, ns, ldas, ldus, ldvts] = narrow([m, n, lda, ldu, ldvt]);
        let elem_bytes = p.elem_bytes();
        Ok(Job {
            params,
            parts: vec![
                matrix("A", usage, elem_bytes, (m, n), (a, lda)),
                vector("S", Use::Write, p.part().elem_bytes(), n, s),
                matrix("U", Use::Write, elem_bytes, (u_rows, u_cols), (u, ldu)),
                matrix("VT", Use::Write, elem_bytes, (vt_rows, vt_rows), (vt, ldvt)),
            ],
            need: panel(p, (m, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(m == 0 || n == 0, move |at| {
                let (u, vt) = ((at[2], ldus), (at[3], ldvts));
                numerics::gesvd(p, (jobu, jobvt), (ms, ns), (at[0], ldas), at[1], u, vt)
            }),
        })
    }

    fn cusolverDnXgesvdp(
        params: usize, jobz: u32, econ: c_int, m: i64, n: i64, type_a: u32, a: u64, lda: i64,
        type_s: u32, s: u64, type_u: u32, u: u64, ldu: i64, type_v: u32, v: u64, ldv: i64,
        compute: u32, device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize,
        info: u64, err_sigma: *mut f64,
    ) {
        let p = same_with_real(&[type_a, type_u, type_v, compute], type_s)?;
        let (vectors, econ) = (eig_mode(jobz)?, econ != 0);
        if err_sigma.is_null() {
            return Err(INVALID_VALUE);
        }
        let least = m.min(n);
        // Also without vectors: the library works there. On an H200 (cuSOLVER 12.0, 2026-12-02) A in the place of
        // U and V gave wrong values without an error, and null lost the context.
        let size = |order: i64| (order, if econ { least } else { order });
        let usage = if vectors { Use::Write } else { Use::Destroy };
        let [ms, ns, ldas, ldus, ldvs] = narrow([m, n, lda, ldu, ldv]);
        let elem_bytes = p.elem_bytes();
        Ok(Job {
            params,
            parts: vec![
                matrix("A", Use::Destroy, elem_bytes, (m, n), (a, lda)),
                vector("S", Use::Write, p.part().elem_bytes(), least, s),
                matrix("U", usage, elem_bytes, size(m), (u, ldu)),
                matrix("V", usage, elem_bytes, size(n), (v, ldv)),
            ],
            need: hybrid(p, (m, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma,
            compute: unless_empty(least == 0, move |at| {
                let (u, v) = ((at[2], ldus), (at[3], ldvs));
                numerics::gesvdp(p, vectors, econ, (ms, ns), (at[0], ldas), at[1], u, v)
            }),
        })
    }

    fn cusolverDnXgeev(
        params: usize, jobvl: u32, jobvr: u32, n: i64, type_a: u32, a: u64, lda: i64, type_w: u32,
        w: u64, type_vl: u32, _vl: u64, _ldvl: i64, type_vr: u32, vr: u64, ldvr: i64, compute: u32,
        device: u64, device_bytes: usize, host: *mut c_void, host_bytes: usize, info: u64,
    ) {
        let p = same(&[type_a, type_vl, type_vr, compute])?;
        let type_w = precision(type_w)?;
        let complex_w = !type_w.is_real();
        // As documented: no left vectors; W real with 2 n elements, or complex.
        if eig_mode(jobvl)? || type_w.part() != p.part() || !(p.is_real() || complex_w) {
            return Err(INVALID_VALUE);
        }
        let vectors = eig_mode(jobvr)?;
        let vr_n = if vectors { n } else { 0 };
        let w_length = if complex_w { n } else { n.saturating_mul(2) };
        let [ns, ldas, ldvrs] = narrow([n, lda, ldvr]);
        Ok(Job {
            params,
            parts: vec![
                matrix("A", Use::Destroy, p.elem_bytes(), (n, n), (a, lda)),
                vector("W", Use::Write, type_w.elem_bytes(), w_length, w),
                matrix("VR", Use::Write, p.elem_bytes(), (vr_n, vr_n), (vr, ldvr)),
            ],
            need: hybrid(p, (n, n)),
            given: given(device, device_bytes, host, host_bytes),
            info,
            err_sigma: core::ptr::null_mut(),
            compute: unless_empty(n == 0, move |at| {
                numerics::geev(p, vectors, complex_w, ns, (at[0], ldas), at[1], (at[2], ldvrs))
            }),
        })
    }
}

/// What `lwork` elements at `work` are.
fn elems(p: Precision, work: u64, lwork: c_int) -> Result<Given, u32> {
    let elems = u64::try_from(lwork).map_err(|_| INVALID_VALUE)?;
    Ok(Given::on_device(work, elems * p.elem_bytes()))
}

fn wide<const N: usize>(sizes: [c_int; N]) -> [i64; N] {
    sizes.map(i64::from)
}

fn orgqr(
    p: Precision,
    m: c_int,
    n: c_int,
    k: c_int,
    a: u64,
    lda: c_int,
    tau: u64,
    work: u64,
    lwork: c_int,
    info: u64,
) -> Decoded {
    if k < 0 || n < k || m < n {
        return Err(INVALID_VALUE);
    }
    let [mw, nw, kw, ldaw] = wide([m, n, k, lda]);
    Ok(Job {
        params: NO_PARAMS,
        parts: vec![
            matrix("A", Use::Update, p.elem_bytes(), (mw, nw), (a, ldaw)),
            vector("tau", Use::Read, p.elem_bytes(), kw, tau),
        ],
        need: panel(p, (mw, nw)),
        given: elems(p, work, lwork)?,
        info,
        err_sigma: core::ptr::null_mut(),
        compute: unless_empty(n == 0, move |at| {
            numerics::orgqr(p, m, n, k, at[0], lda, at[1])
        }),
    })
}

fn ormqr(
    p: Precision,
    side: u32,
    trans: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    a: u64,
    lda: c_int,
    tau: u64,
    c: u64,
    ldc: c_int,
    work: u64,
    lwork: c_int,
    info: u64,
) -> Decoded {
    let (side, trans) = (choose(side, b"LR")?, choose(trans, b"NTC")?);
    let order = if side == b'L' { m } else { n };
    let wrong = if p.is_real() { b'C' } else { b'T' };
    if k < 0 || order < k || trans == wrong {
        return Err(INVALID_VALUE);
    }
    let [mw, nw, kw, ow, ldaw, ldcw] = wide([m, n, k, order, lda, ldc]);
    Ok(Job {
        params: NO_PARAMS,
        parts: vec![
            matrix("A", Use::Read, p.elem_bytes(), (ow, kw), (a, ldaw)),
            vector("tau", Use::Read, p.elem_bytes(), kw, tau),
            matrix("C", Use::Update, p.elem_bytes(), (mw, nw), (c, ldcw)),
        ],
        need: panel(p, (mw, nw)),
        given: elems(p, work, lwork)?,
        info,
        err_sigma: core::ptr::null_mut(),
        compute: unless_empty(m == 0 || n == 0 || k == 0, move |at| {
            let (a, c) = ((at[0], lda), (at[2], ldc));
            numerics::ormqr(p, (side, trans), (m, n, k), a, at[1], c)
        }),
    })
}

fn potri(
    p: Precision,
    uplo_: u32,
    n: c_int,
    a: u64,
    lda: c_int,
    work: u64,
    lwork: c_int,
    info: u64,
) -> Decoded {
    let uplo = uplo(uplo_)?;
    let [nw, ldaw] = wide([n, lda]);
    Ok(Job {
        params: NO_PARAMS,
        parts: vec![matrix(
            "A",
            Use::Update,
            p.elem_bytes(),
            (nw, nw),
            (a, ldaw),
        )],
        need: panel(p, (nw, nw)),
        given: elems(p, work, lwork)?,
        info,
        err_sigma: core::ptr::null_mut(),
        compute: unless_empty(n == 0, move |at| numerics::potri(p, uplo, n, at[0], lda)),
    })
}

fn gebrd(
    p: Precision,
    m: c_int,
    n: c_int,
    a: u64,
    lda: c_int,
    d: u64,
    e: u64,
    tauq: u64,
    taup: u64,
    work: u64,
    lwork: c_int,
    info: u64,
) -> Decoded {
    // As documented: tall and square matrices only.
    if m < n {
        return Err(INVALID_VALUE);
    }
    let [mw, nw, ldaw] = wide([m, n, lda]);
    let real_bytes = p.part().elem_bytes();
    Ok(Job {
        params: NO_PARAMS,
        parts: vec![
            matrix("A", Use::Update, p.elem_bytes(), (mw, nw), (a, ldaw)),
            vector("D", Use::Write, real_bytes, nw, d),
            vector("E", Use::Write, real_bytes, (nw - 1).max(0), e),
            vector("TAUQ", Use::Write, p.elem_bytes(), nw, tauq),
            vector("TAUP", Use::Write, p.elem_bytes(), nw, taup),
        ],
        need: panel(p, (mw, nw)),
        given: elems(p, work, lwork)?,
        info,
        err_sigma: core::ptr::null_mut(),
        compute: unless_empty(n == 0, move |at| {
            numerics::gebrd(p, m, n, at[0], lda, [at[1], at[2], at[3], at[4]])
        }),
    })
}

/// One routine of one precision: the entry and its question.
macro_rules! typed {
    ($precision:ident $family:ident $name:ident $question:ident
     ($($arg:ident: $ty:ty),*) asks ($($asked:ident: $asked_ty:ty),*) $rows:ident $cols:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: usize, $($arg: $ty),*) -> u32 {
            let decode = || $family(Precision::$precision, $($arg),*);
            run(|| submit(stringify!($name), handle, decode))
        }

        #[unsafe(no_mangle)]
        #[allow(unused_variables)] // operands, which a question does not read
        pub unsafe extern "C" fn $question(
            handle: usize, $($asked: $asked_ty,)* lwork: *mut c_int,
        ) -> u32 {
            let size = ($rows, $cols);
            // SAFETY: the API's contract.
            unsafe {
                answer_elems(stringify!($question), handle, Precision::$precision, size, lwork)
            }
        }
    };
}

macro_rules! families {
    ($($family:ident $args:tt asks $asked:tt $rows:ident $cols:ident {
        $($precision:ident $name:ident $question:ident;)*
    })*) => {
        $(families!(@each $family $args $asked $rows $cols $($precision $name $question;)*);)*
    };
    (@each $family:ident $args:tt $asked:tt $rows:ident $cols:ident
     $($precision:ident $name:ident $question:ident;)*) => {
        $(typed!($precision $family $name $question $args asks $asked $rows $cols);)*
    };
}

families! {
    orgqr (m: c_int, n: c_int, k: c_int, a: u64, lda: c_int, tau: u64, work: u64, lwork: c_int,
           info: u64)
    asks (m: c_int, n: c_int, k: c_int, a: u64, lda: c_int, tau: u64) m n {
        S cusolverDnSorgqr cusolverDnSorgqr_bufferSize;
        D cusolverDnDorgqr cusolverDnDorgqr_bufferSize;
        C cusolverDnCungqr cusolverDnCungqr_bufferSize;
        Z cusolverDnZungqr cusolverDnZungqr_bufferSize;
    }
    ormqr (side: u32, trans: u32, m: c_int, n: c_int, k: c_int, a: u64, lda: c_int, tau: u64,
           c: u64, ldc: c_int, work: u64, lwork: c_int, info: u64)
    asks (side: u32, trans: u32, m: c_int, n: c_int, k: c_int, a: u64, lda: c_int, tau: u64,
          c: u64, ldc: c_int) m n {
        S cusolverDnSormqr cusolverDnSormqr_bufferSize;
        D cusolverDnDormqr cusolverDnDormqr_bufferSize;
        C cusolverDnCunmqr cusolverDnCunmqr_bufferSize;
        Z cusolverDnZunmqr cusolverDnZunmqr_bufferSize;
    }
    potri (uplo: u32, n: c_int, a: u64, lda: c_int, work: u64, lwork: c_int, info: u64)
    asks (uplo: u32, n: c_int, a: u64, lda: c_int) n n {
        S cusolverDnSpotri cusolverDnSpotri_bufferSize;
        D cusolverDnDpotri cusolverDnDpotri_bufferSize;
        C cusolverDnCpotri cusolverDnCpotri_bufferSize;
        Z cusolverDnZpotri cusolverDnZpotri_bufferSize;
    }
    gebrd (m: c_int, n: c_int, a: u64, lda: c_int, d: u64, e: u64, tauq: u64, taup: u64,
           work: u64, lwork: c_int, info: u64)
    asks (m: c_int, n: c_int) m n {
        S cusolverDnSgebrd cusolverDnSgebrd_bufferSize;
        D cusolverDnDgebrd cusolverDnDgebrd_bufferSize;
        C cusolverDnCgebrd cusolverDnCgebrd_bufferSize;
        Z cusolverDnZgebrd cusolverDnZgebrd_bufferSize;
    }
}
