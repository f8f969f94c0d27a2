//! cuSOLVER with Rust arguments: handles, workspaces, and every [`Solver`](program::Solver) of a program.
//!
//! Unsafe lives here because every foreign call is. What is computed is the planners' business; this file
//! only puts a kernel into the words of the library.
//!
//! Arithmetic. cuSOLVER's handles have no mode that the environment cannot change (their math mode only
//! switches emulation on, and their cuBLAS inside reads the same variables as ours), so nothing is computed
//! here while such a variable is set: see [`crate::lapack`].

use crate::error::{CudaError, Origin};
use crate::kernel::{DeviceKernel, OnDevice, fill, side, unit};
use crate::plan::program::{self, Kernel, Place};
use crate::result::{BlasHandle, Cuda, DeviceAddress, Stream};
use crate::staging::with_signals_blocked;
use crate::sys::{self, Code, cudaDataType_t};
use crate::testing;
use call::{Failure, Precision, Trans};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// The functions of cuSOLVER, and what else LAPACK needs.
pub struct Solver {
    /// 64-bit routines.
    pub functions: sys::Solver,
    /// 32-bit ones.
    pub typed: sys::SolverTyped,
    /// What older libraries lack.
    pub newer: sys::SolverNewer,
    /// cuBLAS's own extensions of BLAS, which only some of the routines need.
    pub extensions: Option<sys::Extensions>,
}

/// A handle of cuSOLVER with its parameters, and host memory for its routines.
pub struct SolverHandle {
    raw: sys::SolverRaw,
    params: sys::SolverParams,
    stream: Stream,
    /// What a routine uses on the host while it runs: the first word is Xgesvdp's error estimate.
    host: Vec<u64>,
}

// SAFETY: cuSOLVER allows a handle to be used by several threads one after the other.
unsafe impl Send for SolverHandle {}

/// Why a kernel cannot be asked for.
#[derive(Debug)]
pub enum Refused {
    /// A function failed.
    Error(CudaError),
    /// This library cannot do it; the device is as it was.
    Unsupported(&'static str),
}

impl From<CudaError> for Refused {
    fn from(error: CudaError) -> Self {
        Refused::Error(error)
    }
}

/// Scratch of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// On the device.
    pub device_bytes: usize,
    /// On the host.
    pub host_bytes: usize,
}

impl SolverHandle {
    /// Makes room on the host for a routine that wants `bytes` bytes.
    ///
    /// # Errors
    /// `OutOfMemory` of the host.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Failure> {
        let words = bytes.div_ceil(8) + 1;
        if self.host.len() < words {
            let more = words - self.host.len();
            self.host
                .try_reserve_exact(more)
                .map_err(|_| Failure::OutOfMemory {
                    needed_bytes: bytes as u64,
                    budget_bytes: 0,
                })?;
            self.host.resize(words, 0);
        }
        // What is not written must not look like an answer.
        self.host[0] = f64::NAN.to_bits();
        Ok(())
    }

    /// Xgesvdp's estimate of the error of the singular values, when the routine has run.
    pub fn error_estimate(&self) -> f64 {
        f64::from_bits(self.host[0])
    }
}

/// The element types of a precision: its own and its real one.
fn types(precision: Precision) -> (cudaDataType_t, cudaDataType_t) {
    use cudaDataType_t::{CUDA_C_32F, CUDA_C_64F, CUDA_R_32F, CUDA_R_64F};
    match precision {
        Precision::S => (CUDA_R_32F, CUDA_R_32F),
        Precision::D => (CUDA_R_64F, CUDA_R_64F),
        Precision::C => (CUDA_C_32F, CUDA_R_32F),
        Precision::Z => (CUDA_C_64F, CUDA_R_64F),
    }
}

fn check(function: &'static str, code: Code) -> Result<(), CudaError> {
    CudaError::check(function, code, Origin::Solver, sys::solver_code_name)
}

/// A size as the 32-bit routines take it; the planner refuses larger ones.
fn int(size: usize) -> c_int {
    c_int::try_from(size).unwrap_or(c_int::MAX)
}

/// The SVD's job as Xgesvdp takes it: vectors, and whether they are economical.
fn polar_job(job: u8) -> (c_int, c_int) {
    match job {
        b'N' => (sys::EIG_MODES[0], 1),
        b'A' => (sys::EIG_MODES[1], 0),
        _ => (sys::EIG_MODES[1], 1),
    }
}

impl Solver {
    /// A handle on `stream`. The first one of a process takes about a second.
    ///
    /// # Errors
    /// The function that failed; nothing is left behind.
    pub fn handle(&self, stream: Stream) -> Result<SolverHandle, CudaError> {
        let f = &self.functions;
        let mut raw: sys::SolverRaw = ptr::null_mut();
        // SAFETY: writes one handle, for the current context.
        let code = with_signals_blocked(|| unsafe { (f.cusolverDnCreate)(&raw mut raw) });
        check("cusolverDnCreate", code)?;
        let mut params: sys::SolverParams = ptr::null_mut();
        let mut set = || -> Result<(), CudaError> {
            // SAFETY: both handles are live.
            check("cusolverDnSetStream", unsafe {
                (f.cusolverDnSetStream)(raw, stream.0)
            })?;
            if let Some(set_deterministic) = self.newer.set_deterministic {
                // SAFETY: the handle is live and the mode is one of the enumeration.
                let code = unsafe { set_deterministic(raw, sys::SOLVER_DETERMINISTIC) };
                check("cusolverDnSetDeterministicMode", code)?;
            }
            // SAFETY: writes one handle.
            check("cusolverDnCreateParams", unsafe {
                (f.cusolverDnCreateParams)(&raw mut params)
            })
        };
        let made = set();
        let handle = SolverHandle {
            raw,
            params,
            stream,
            host: vec![0],
        };
        match made {
            Ok(()) => Ok(handle),
            Err(e) => {
                // SAFETY: nobody else has seen the handle.
                unsafe { self.destroy(handle) };
                Err(e)
            }
        }
    }

    /// Destroys a handle. Errors are ignored: this runs when a start failed or at shutdown, and there is
    /// nothing left to do.
    ///
    /// # Safety
    /// Its queued work has run.
    pub unsafe fn destroy(&self, handle: SolverHandle) {
        let f = &self.functions;
        // SAFETY: the caller's promise; the handle is consumed.
        unsafe {
            if !handle.params.is_null() {
                let _ = (f.cusolverDnDestroyParams)(handle.params);
            }
            let _ = (f.cusolverDnDestroy)(handle.raw);
        }
    }

    /// cuBLAS's extensions, where the library has them.
    fn extensions(&self) -> Option<&sys::Extensions> {
        self.extensions.as_ref().filter(|_| !testing::is_older())
    }

    /// Xtrtri with its question for the workspace, where the library has them.
    fn trtri(&self) -> Option<(sys::TrtriSize, sys::Trtri)> {
        self.newer.trtri.filter(|_| !testing::is_older())
    }

    /// Xgeev with its question for the workspace, where the library has them.
    fn geev(&self) -> Option<(sys::GeevSize, sys::Geev)> {
        self.newer.geev.filter(|_| !testing::is_older())
    }

    /// What a kernel needs besides its operands. The operands' addresses are not looked at.
    ///
    /// # Errors
    /// The function that failed, or what this library lacks.
    pub fn workspace(&self, h: &SolverHandle, d: &DeviceKernel<'_>) -> Result<Workspace, Refused> {
        use program::Solver as S;
        let Kernel::Solver(kernel) = *d.kernel else {
            return Ok(Workspace::default());
        };
        let f = &self.functions;
        let (raw, params) = (h.raw, h.params);
        let (own, real) = types(d.precision);
        let four = d.number().0;
        let mut size = Workspace::default();
        let (on_device, on_host) = (&raw mut size.device_bytes, &raw mut size.host_bytes);
        let mut elements: c_int = 0;
        let lwork = &raw mut elements;
        // SAFETY: the handles are live, the functions read sizes only and write two size_t or one int.
        let (name, code) = unsafe {
            match kernel {
                S::Transpose { .. } | S::Diagonal { .. } | S::ScaleRows { .. }
                    if self.extensions().is_none() =>
                {
                    return Err(Refused::Unsupported(
                        "transposition and copies with this cuBLAS",
                    ));
                }
                S::Transpose { .. }
                | S::Diagonal { .. }
                | S::ScaleRows { .. }
                | S::Zero { .. }
                | S::RealDiagonal { .. }
                | S::Identity { .. }
                | S::Potrs { .. }
                | S::Getrs { .. } => return Ok(size),
                S::Potrf { uplo, n, a, .. } => {
                    let (a, lda) = d.at(a);
                    let uplo = fill(uplo);
                    let size = f.cusolverDnXpotrf_bufferSize;
                    let code = size(
                        raw, params, uplo, n as i64, own, a, lda, own, on_device, on_host,
                    );
                    ("cusolverDnXpotrf_bufferSize", code)
                }
                S::Trtri {
                    uplo, diag, n, a, ..
                } => {
                    let Some((size, _)) = self.trtri() else {
                        return Err(Refused::Unsupported(
                            "the inverse of a triangle with this cuSOLVER",
                        ));
                    };
                    let ((a, lda), uplo, diag) = (d.at(a), fill(uplo), unit(diag));
                    let code = size(raw, uplo, diag, n as i64, own, a, lda, on_device, on_host);
                    ("cusolverDnXtrtri_bufferSize", code)
                }
                S::Getrf {
                    size: (m, n), a, ..
                } => {
                    let (a, lda) = d.at(a);
                    let size = f.cusolverDnXgetrf_bufferSize;
                    let (m, n) = (m as i64, n as i64);
                    let code = size(raw, params, m, n, own, a, lda, own, on_device, on_host);
                    ("cusolverDnXgetrf_bufferSize", code)
                }
                S::Geqrf {
                    size: (m, n),
                    a,
                    tau,
                    ..
                } => {
                    let ((a, lda), (tau, _)) = (d.at(a), d.at(tau));
                    let size = f.cusolverDnXgeqrf_bufferSize;
                    let (m, n) = (m as i64, n as i64);
                    let code = size(
                        raw, params, m, n, own, a, lda, own, tau, own, on_device, on_host,
                    );
                    ("cusolverDnXgeqrf_bufferSize", code)
                }
                S::Syevd {
                    vectors,
                    uplo,
                    n,
                    a,
                    w,
                    ..
                } => {
                    let ((a, lda), (w, _)) = (d.at(a), d.at(w));
                    let size = f.cusolverDnXsyevd_bufferSize;
                    let (job, uplo) = (sys::EIG_MODES[usize::from(vectors)], fill(uplo));
                    let code = size(
                        raw, params, job, uplo, n as i64, own, a, lda, real, w, own, on_device,
                        on_host,
                    );
                    ("cusolverDnXsyevd_bufferSize", code)
                }
                S::Gesvd {
                    job,
                    size: (m, n),
                    a,
                    s,
                    u,
                    vt,
                    ..
                } => {
                    let ((a, lda), (s, _)) = (d.at(a), d.at(s));
                    let ((u, ldu), (vt, ldvt)) = (d.at(u), d.at(vt));
                    let size = f.cusolverDnXgesvd_bufferSize;
                    let (job, m, n) = (job as c_char, m as i64, n as i64);
                    let code = size(
                        raw, params, job, job, m, n, own, a, lda, real, s, own, u, ldu, own, vt,
                        ldvt, own, on_device, on_host,
                    );
                    ("cusolverDnXgesvd_bufferSize", code)
                }
                S::Gesvdp {
                    job,
                    size: (m, n),
                    a,
                    s,
                    u,
                    v,
                    ..
                } => {
                    let ((a, lda), (s, _)) = (d.at(a), d.at(s));
                    let ((u, ldu), (v, ldv)) = (d.at(u), d.at(v));
                    let size = f.cusolverDnXgesvdp_bufferSize;
                    let ((job, econ), m, n) = (polar_job(job), m as i64, n as i64);
                    let code = size(
                        raw, params, job, econ, m, n, own, a, lda, real, s, own, u, ldu, own, v,
                        ldv, own, on_device, on_host,
                    );
                    ("cusolverDnXgesvdp_bufferSize", code)
                }
                S::Geev {
                    vectors,
                    n,
                    a,
                    w,
                    vr,
                    ..
                } => {
                    let Some((size, _)) = self.geev() else {
                        return Err(Refused::Unsupported(
                            "eigenvalues of a general matrix with this cuSOLVER",
                        ));
                    };
                    let ((a, lda), (w, _), (vr, ldvr)) = (d.at(a), d.at(w), d.at(vr));
                    let job = sys::EIG_MODES[usize::from(vectors)];
                    let (none, n) = (sys::EIG_MODES[0], n as i64);
                    let code = size(
                        raw,
                        params,
                        none,
                        job,
                        n,
                        own,
                        a,
                        lda,
                        own,
                        w,
                        own,
                        ptr::null(),
                        n,
                        own,
                        vr,
                        ldvr,
                        own,
                        on_device,
                        on_host,
                    );
                    ("cusolverDnXgeev_bufferSize", code)
                }
                S::Orgqr {
                    size: (m, n, k),
                    a,
                    tau,
                    ..
                } => {
                    let ((a, lda), (tau, _)) = (d.at(a), d.at(tau));
                    let (name, size) = self.typed.orgqr_size[four];
                    let (m, n, k, lda) = (int(m), int(n), int(k), int(lda as usize));
                    (name, size(raw, m, n, k, a, lda, tau, lwork))
                }
                S::Ormqr {
                    side: at,
                    trans,
                    size: (m, n, k),
                    a,
                    tau,
                    c,
                    ..
                } => {
                    let ((a, lda), (tau, _), (c, ldc)) = (d.at(a), d.at(tau), d.at(c));
                    let (name, size) = self.typed.ormqr_size[four];
                    let (at, op) = (side(at), d.operation(trans));
                    let (m, n, k) = (int(m), int(n), int(k));
                    let (lda, ldc) = (int(lda as usize), int(ldc as usize));
                    let code = size(raw, at, op, m, n, k, a, lda, tau, c, ldc, lwork);
                    (name, code)
                }
                S::Potri { uplo, n, a, .. } => {
                    let (a, lda) = d.at(a);
                    let (name, size) = self.typed.potri_size[four];
                    let code = size(raw, fill(uplo), int(n), a, int(lda as usize), lwork);
                    (name, code)
                }
            }
        };
        check(name, code)?;
        // 0 where the routine counts bytes. A length that does not fit 32 bits comes back negative.
        let elements = usize::try_from(elements)
            .map_err(|_| Refused::Unsupported("a workspace that is not counted in 32 bits"))?;
        if elements > 0 {
            size.device_bytes = elements.saturating_mul(d.precision.elem_bytes());
        }
        Ok(size)
    }

    /// Queues a kernel on the handles' stream. Some routines return only when they have run.
    ///
    /// # Safety
    /// The kernel's operands lie inside their buffers, which stay allocated, and are not written by other
    /// work, until the stream has passed this point; so does the workspace, `work` on the device (as large as
    /// [`Solver::workspace`] said) and the handle's own on the host, reserved before and not grown meanwhile.
    pub unsafe fn kernel(
        &self,
        cuda: &Cuda,
        blas: &BlasHandle,
        h: &mut SolverHandle,
        d: &DeviceKernel<'_>,
        (work, size): (DeviceAddress, Workspace),
    ) -> Result<(), CudaError> {
        use program::Solver as S;
        let Kernel::Solver(kernel) = *d.kernel else {
            return Ok(());
        };
        let copy = match kernel {
            S::Transpose { size, a, c } => Some((Trans::C, size, (d.at(a), d.at(c)))),
            // A row whose elements are a column and a row apart.
            S::Diagonal { n, a, d: to } => {
                let ((a, lda), (to, _)) = (d.at(a), d.at(to));
                Some((Trans::N, (1, n), ((a, lda + 1), (to, 1))))
            }
            _ => None,
        };
        if let Some((trans, size, operands)) = copy {
            let extensions = self.extensions.as_ref();
            let extensions = extensions.ok_or_else(|| missing("cublasDgeam_64"))?;
            // SAFETY: the caller's promise.
            return unsafe { cuda.matrix_copy(extensions, blas, d, (trans, size), operands) };
        }
        if let S::ScaleRows { size, d: by, c } = kernel {
            let extensions = self.extensions.as_ref();
            let extensions = extensions.ok_or_else(|| missing("cublasDdgmm_64"))?;
            let operands = (d.at(by).0, d.at(c));
            // SAFETY: the caller's promise.
            return unsafe { cuda.scale_rows(extensions, blas, d, size, operands) };
        }
        if let S::Zero { size, c } = kernel {
            // SAFETY: the caller's promise.
            return unsafe { zero(cuda, d, (size, c), h.stream) };
        }
        if let S::RealDiagonal { n, a } = kernel {
            // SAFETY: the caller's promise.
            return unsafe { real_diagonal(cuda, d, (n, a), h.stream) };
        }
        if let S::Identity { n, c } = kernel {
            // SAFETY: the caller's promise.
            return unsafe { identity(cuda, d, (n, c), h.stream) };
        }
        let (on_device, device_bytes) = (
            ptr::with_exposed_provenance_mut::<c_void>(work as usize),
            size.device_bytes,
        );
        let host_bytes = size.host_bytes;
        if h.host.len() < host_bytes.div_ceil(8) + 1 {
            return Err(missing("the workspace of a cuSOLVER routine"));
        }
        let estimate: *mut f64 = h.host.as_mut_ptr().cast();
        // SAFETY: the buffer has at least one word.
        let on_host: *mut c_void = unsafe { h.host.as_mut_ptr().add(1) }.cast();
        let f = &self.functions;
        let (raw, params) = (h.raw, h.params);
        let (own, real) = types(d.precision);
        let four = d.number().0;
        let info = |place: Place| d.at(place).0.cast::<c_int>();
        let lwork = int(device_bytes / d.precision.elem_bytes());
        // SAFETY: the operands and the device workspace are the caller's promise, the host workspace was
        // looked at above; the error estimate is written into the handle's memory, which outlives the work.
        let run = || unsafe {
            match kernel {
                // Done above.
                S::Transpose { .. }
                | S::Diagonal { .. }
                | S::ScaleRows { .. }
                | S::Zero { .. }
                | S::RealDiagonal { .. }
                | S::Identity { .. } => ("", sys::SUCCESS),
                S::Potrf {
                    uplo,
                    n,
                    a,
                    info: i,
                } => {
                    let ((a, lda), uplo) = (d.at(a), fill(uplo));
                    let code = (f.cusolverDnXpotrf)(
                        raw,
                        params,
                        uplo,
                        n as i64,
                        own,
                        a,
                        lda,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXpotrf", code)
                }
                S::Potrs {
                    uplo,
                    size: (n, nrhs),
                    a,
                    b,
                    info: i,
                } => {
                    let ((a, lda), (b, ldb), uplo) = (d.at(a), d.at(b), fill(uplo));
                    let (n, nrhs) = (n as i64, nrhs as i64);
                    let code = (f.cusolverDnXpotrs)(
                        raw,
                        params,
                        uplo,
                        n,
                        nrhs,
                        own,
                        a,
                        lda,
                        own,
                        b,
                        ldb,
                        info(i),
                    );
                    ("cusolverDnXpotrs", code)
                }
                S::Potri {
                    uplo,
                    n,
                    a,
                    info: i,
                } => {
                    let (a, lda) = d.at(a);
                    let (name, potri) = self.typed.potri[four];
                    let lda = int(lda as usize);
                    let code = potri(raw, fill(uplo), int(n), a, lda, on_device, lwork, info(i));
                    (name, code)
                }
                S::Trtri {
                    uplo,
                    diag,
                    n,
                    a,
                    info: i,
                } => {
                    let Some((_, trtri)) = self.newer.trtri else {
                        return ("cusolverDnXtrtri", u32::MAX);
                    };
                    let ((a, lda), uplo, diag) = (d.at(a), fill(uplo), unit(diag));
                    let code = trtri(
                        raw,
                        uplo,
                        diag,
                        n as i64,
                        own,
                        a,
                        lda,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXtrtri", code)
                }
                S::Getrf {
                    size: (m, n),
                    a,
                    ipiv,
                    info: i,
                } => {
                    let ((a, lda), (ipiv, _)) = (d.at(a), d.at(ipiv));
                    let (m, n, ipiv) = (m as i64, n as i64, ipiv.cast::<i64>());
                    let code = (f.cusolverDnXgetrf)(
                        raw,
                        params,
                        m,
                        n,
                        own,
                        a,
                        lda,
                        ipiv,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXgetrf", code)
                }
                S::Getrs {
                    trans,
                    size: (n, nrhs),
                    a,
                    ipiv,
                    b,
                    info: i,
                } => {
                    let ((a, lda), (ipiv, _), (b, ldb)) = (d.at(a), d.at(ipiv), d.at(b));
                    let (op, n, nrhs) = (d.operation(trans), n as i64, nrhs as i64);
                    let ipiv = ipiv.cast::<i64>();
                    let code = (f.cusolverDnXgetrs)(
                        raw,
                        params,
                        op,
                        n,
                        nrhs,
                        own,
                        a,
                        lda,
                        ipiv,
                        own,
                        b,
                        ldb,
                        info(i),
                    );
                    ("cusolverDnXgetrs", code)
                }
                S::Geqrf {
                    size: (m, n),
                    a,
                    tau,
                    info: i,
                } => {
                    let ((a, lda), (tau, _)) = (d.at(a), d.at(tau));
                    let (m, n) = (m as i64, n as i64);
                    let code = (f.cusolverDnXgeqrf)(
                        raw,
                        params,
                        m,
                        n,
                        own,
                        a,
                        lda,
                        own,
                        tau,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXgeqrf", code)
                }
                S::Orgqr {
                    size: (m, n, k),
                    a,
                    tau,
                    info: i,
                } => {
                    let ((a, lda), (tau, _)) = (d.at(a), d.at(tau));
                    let (name, orgqr) = self.typed.orgqr[four];
                    let (m, n, k, lda) = (int(m), int(n), int(k), int(lda as usize));
                    let code = orgqr(raw, m, n, k, a, lda, tau, on_device, lwork, info(i));
                    (name, code)
                }
                S::Ormqr {
                    side: at,
                    trans,
                    size: (m, n, k),
                    a,
                    tau,
                    c,
                    info: i,
                } => {
                    let ((a, lda), (tau, _), (c, ldc)) = (d.at(a), d.at(tau), d.at(c));
                    let (name, ormqr) = self.typed.ormqr[four];
                    let (at, op) = (side(at), d.operation(trans));
                    let (m, n, k) = (int(m), int(n), int(k));
                    let (lda, ldc) = (int(lda as usize), int(ldc as usize));
                    let code = ormqr(
                        raw,
                        at,
                        op,
                        m,
                        n,
                        k,
                        a,
                        lda,
                        tau,
                        c,
                        ldc,
                        on_device,
                        lwork,
                        info(i),
                    );
                    (name, code)
                }
                S::Syevd {
                    vectors,
                    uplo,
                    n,
                    a,
                    w,
                    info: i,
                } => {
                    let ((a, lda), (w, _)) = (d.at(a), d.at(w));
                    let (job, uplo) = (sys::EIG_MODES[usize::from(vectors)], fill(uplo));
                    let code = (f.cusolverDnXsyevd)(
                        raw,
                        params,
                        job,
                        uplo,
                        n as i64,
                        own,
                        a,
                        lda,
                        real,
                        w,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXsyevd", code)
                }
                S::Gesvd {
                    job,
                    size: (m, n),
                    a,
                    s,
                    u,
                    vt,
                    info: i,
                } => {
                    let ((a, lda), (s, _)) = (d.at(a), d.at(s));
                    let ((u, ldu), (vt, ldvt)) = (d.at(u), d.at(vt));
                    let (job, m, n) = (job as c_char, m as i64, n as i64);
                    let code = (f.cusolverDnXgesvd)(
                        raw,
                        params,
                        job,
                        job,
                        m,
                        n,
                        own,
                        a,
                        lda,
                        real,
                        s,
                        own,
                        u,
                        ldu,
                        own,
                        vt,
                        ldvt,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXgesvd", code)
                }
                S::Gesvdp {
                    job,
                    size: (m, n),
                    a,
                    s,
                    u,
                    v,
                    info: i,
                } => {
                    let ((a, lda), (s, _)) = (d.at(a), d.at(s));
                    let ((u, ldu), (v, ldv)) = (d.at(u), d.at(v));
                    let ((job, econ), m, n) = (polar_job(job), m as i64, n as i64);
                    let code = (f.cusolverDnXgesvdp)(
                        raw,
                        params,
                        job,
                        econ,
                        m,
                        n,
                        own,
                        a,
                        lda,
                        real,
                        s,
                        own,
                        u,
                        ldu,
                        own,
                        v,
                        ldv,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                        estimate,
                    );
                    ("cusolverDnXgesvdp", code)
                }
                S::Geev {
                    vectors,
                    n,
                    a,
                    w,
                    vr,
                    info: i,
                } => {
                    let Some((_, geev)) = self.newer.geev else {
                        return ("cusolverDnXgeev", u32::MAX);
                    };
                    let ((a, lda), (w, _), (vr, ldvr)) = (d.at(a), d.at(w), d.at(vr));
                    let job = sys::EIG_MODES[usize::from(vectors)];
                    let code = geev(
                        raw,
                        params,
                        sys::EIG_MODES[0],
                        job,
                        n as i64,
                        own,
                        a,
                        lda,
                        own,
                        w,
                        own,
                        ptr::null_mut(),
                        n as i64,
                        own,
                        vr,
                        ldvr,
                        own,
                        on_device,
                        device_bytes,
                        on_host,
                        host_bytes,
                        info(i),
                    );
                    ("cusolverDnXgeev", code)
                }
            }
        };
        // A routine may start threads, and the calling thread may be the host program's.
        let (name, code) = with_signals_blocked(run);
        check(name, code)
    }
}

/// Queues zeros for the imaginary parts of a diagonal; nothing in real types.
///
/// # Safety
/// As for [`Solver::kernel`].
unsafe fn real_diagonal(
    cuda: &Cuda,
    d: &DeviceKernel<'_>,
    (n, a): (usize, Place),
    stream: Stream,
) -> Result<(), CudaError> {
    if !d.precision.is_complex() {
        return Ok(());
    }
    let elem_bytes = d.precision.elem_bytes();
    let (matrix, part_bytes) = (d.matrices[a.buffer], elem_bytes / 2);
    let first = matrix.element(a.row0, a.col0, elem_bytes) + part_bytes as u64;
    let to = (first, matrix.ld_bytes + elem_bytes);
    // SAFETY: the caller's promise: n diagonal elements lie in the buffer.
    unsafe { cuda.fill_2d(to, 0, (part_bytes / size_of::<u32>(), n), stream) }
}

/// Queues zeros.
///
/// # Safety
/// As for [`Solver::kernel`].
unsafe fn zero(
    cuda: &Cuda,
    d: &DeviceKernel<'_>,
    ((m, n), c): ((usize, usize), Place),
    stream: Stream,
) -> Result<(), CudaError> {
    let elem_bytes = d.precision.elem_bytes();
    let matrix = d.matrices[c.buffer];
    let columns = (matrix.element(c.row0, c.col0, elem_bytes), matrix.ld_bytes);
    // SAFETY: the caller's promise: m x n elements lie in the buffer.
    unsafe { cuda.fill_2d(columns, 0, (m * elem_bytes / size_of::<u32>(), n), stream) }
}

/// Queues an identity matrix: zeros, and then the one word of 1 that is not 0 on the diagonal.
///
/// # Safety
/// As for [`Solver::kernel`].
unsafe fn identity(
    cuda: &Cuda,
    d: &DeviceKernel<'_>,
    (n, c): (usize, Place),
    stream: Stream,
) -> Result<(), CudaError> {
    const WORD: usize = size_of::<u32>();
    let elem_bytes = d.precision.elem_bytes();
    let matrix = d.matrices[c.buffer];
    let first = matrix.element(c.row0, c.col0, elem_bytes);
    // Of a little-endian double the second word has the exponent.
    let (word, at) = match d.precision {
        Precision::S | Precision::C => (1_f32.to_bits(), 0),
        Precision::D | Precision::Z => ((1_f64.to_bits() >> 32) as u32, WORD),
    };
    // SAFETY: the caller's promise: n x n elements lie in the buffer.
    unsafe {
        zero(cuda, d, ((n, n), c), stream)?;
        let diagonal = (first + at as u64, matrix.ld_bytes + elem_bytes);
        cuda.fill_2d(diagonal, word, (1, n), stream)
    }
}

/// Where something that was looked for before is not there after all.
fn missing(function: &'static str) -> CudaError {
    CudaError {
        function,
        code: u32::MAX,
        name: "missing".into(),
        origin: Origin::Solver,
    }
}

/// Addresses for questions about workspaces: nothing is there yet.
pub fn nowhere(program: &program::Program, elem_bytes: usize) -> Vec<OnDevice> {
    let at = |b: &program::Buffer| OnDevice {
        address: 0,
        ld_bytes: program::ld_bytes(b.rows * b.elem_bytes(elem_bytes)),
    };
    program.buffers.iter().map(at).collect()
}
