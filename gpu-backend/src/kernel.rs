//! cuBLAS with Rust arguments: handles, the arithmetic they compute in, and every kernel of a program.
//!
//! Unsafe lives here because every foreign call is. What is computed is the planners' business; this file
//! only puts a [`Kernel`] into the words of the library.
//!
//! Arithmetic. The type's own precision at every step, whatever the environment asks of cuBLAS: float32
//! runs in pedantic mode, since the default one may be turned into TF32 by a variable. Pedantic mode
//! costs float64 its tensor cores, which are IEEE float64 (dgemm n = 8192: 22.4 against 17.2 ms on an
//! H200, 2026-12-01), so float64 runs in the default mode unless a variable asks for emulation.

use crate::error::{CudaError, Origin};
use crate::plan::program::{Kernel, Place};
use crate::result::{BlasHandle, Cuda, DeviceAddress, Stream};
use crate::staging::with_signals_blocked;
use crate::sys;
use call::{Diag, Precision, Scalar, Side, Trans, Uplo};
use core::ffi::{c_int, c_void};
use core::ptr;
use std::ffi::OsString;

/// What cuBLAS may do inside a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// What calls compute in: true arithmetic of the type, as fast as the device has it.
    Pinned,
    /// cuBLAS's pedantic mode in every type; for comparison.
    Pedantic,
    /// What the environment and cuBLAS's defaults make of it; for comparison only.
    Default,
}

/// Variables with which a user asks cuBLAS for other arithmetic than that of the type.
///
/// # Source
/// cuBLAS 13.1 documentation (floating point emulation) and CUDA's environment variables.
const FOREIGN_ARITHMETIC: [&str; 6] = [
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_COMPLEX_PRECISION",
    "CUBLAS_EMULATE_SINGLE_COMPLEX_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "NVIDIA_TF32_OVERRIDE",
];

/// The mode of a handle that computes in `precision`.
fn is_pedantic(arithmetic: Arithmetic, precision: Precision, asked_otherwise: bool) -> bool {
    match arithmetic {
        Arithmetic::Pedantic => true,
        Arithmetic::Default => false,
        Arithmetic::Pinned => matches!(precision, Precision::S | Precision::C) || asked_otherwise,
    }
}

/// True if a variable that cuBLAS reads asks for other arithmetic.
pub fn environment_asks_otherwise(read: impl Fn(&str) -> Option<OsString>) -> bool {
    FOREIGN_ARITHMETIC.iter().any(|name| read(name).is_some())
}

/// A matrix in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDevice {
    /// Its first element.
    pub address: DeviceAddress,
    /// Distance of columns in bytes.
    pub ld_bytes: usize,
}

impl OnDevice {
    /// Address of an element.
    pub fn element(&self, row: usize, col: usize, elem_bytes: usize) -> DeviceAddress {
        self.address + (self.ld_bytes * col + elem_bytes * row) as u64
    }
}

/// A kernel with what its places mean.
pub struct DeviceKernel<'a> {
    /// Element type.
    pub precision: Precision,
    /// What to compute.
    pub kernel: &'a Kernel,
    /// The program's buffers.
    pub matrices: &'a [OnDevice],
    /// The handle computes in pedantic mode.
    pub pedantic: bool,
}

impl DeviceKernel<'_> {
    /// Pointer and leading dimension of a block.
    pub fn at(&self, place: Place) -> (*mut c_void, i64) {
        let matrix = self.matrices[place.buffer];
        let elem_bytes = self.precision.elem_bytes();
        let address = matrix.element(place.row0, place.col0, elem_bytes);
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        (pointer, (matrix.ld_bytes / elem_bytes) as i64)
    }

    /// Index in tables of four, and in those of complex types alone.
    pub fn number(&self) -> (usize, usize) {
        match self.precision {
            Precision::S => (0, 0),
            Precision::D => (1, 1),
            Precision::C => (2, 0),
            Precision::Z => (3, 1),
        }
    }

    /// op as the library takes it: in real types a conjugate transpose is a transpose.
    pub fn operation(&self, trans: Trans) -> sys::cublasOperation_t {
        match trans {
            Trans::N => sys::cublasOperation_t::CUBLAS_OP_N,
            Trans::C if self.precision.is_complex() => sys::cublasOperation_t::CUBLAS_OP_C,
            Trans::T | Trans::C => sys::cublasOperation_t::CUBLAS_OP_T,
        }
    }

    /// A scalar of the type.
    fn scalar(&self, scalar: Scalar) -> Host {
        Host::new(self.precision, scalar)
    }
}

impl Cuda {
    /// A cuBLAS handle on `stream`: scalars in host memory, no atomics (so that the same call gives the
    /// same bits), pedantic until [`Cuda::set_arithmetic`].
    pub fn blas_handle(&self, stream: Stream) -> Result<BlasHandle, CudaError> {
        let mut raw: sys::cublasHandle_t = ptr::null_mut();
        // SAFETY: writes one handle, for the current context.
        let code = with_signals_blocked(|| unsafe { (self.blas.cublasCreate_v2)(&raw mut raw) });
        self.blas("cublasCreate_v2", code)?;
        let handle = BlasHandle(raw);
        let set = || -> Result<(), CudaError> {
            let host = sys::cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST;
            // SAFETY: both handles are live.
            let code = unsafe { (self.blas.cublasSetStream_v2)(raw, stream.0) };
            self.blas("cublasSetStream_v2", code)?;
            // SAFETY: the handle is live and the mode is one of the enumeration.
            let code = unsafe { (self.blas.cublasSetPointerMode_v2)(raw, host) };
            self.blas("cublasSetPointerMode_v2", code)?;
            let none = sys::cublasAtomicsMode_t::CUBLAS_ATOMICS_NOT_ALLOWED;
            // SAFETY: as above.
            let code = unsafe { (self.blas.cublasSetAtomicsMode)(raw, none) };
            self.blas("cublasSetAtomicsMode", code)?;
            self.set_pedantic(&handle, true)
        };
        match set() {
            Ok(()) => Ok(handle),
            Err(e) => {
                // SAFETY: nobody else has seen the handle. Its own error, if any, adds nothing to `e`.
                let _ = unsafe { self.destroy_blas_handle(handle) };
                Err(e)
            }
        }
    }

    /// Sets the handle's math mode for kernels in `precision`; true if it is pedantic.
    ///
    /// The environment is looked at for every call, since cuBLAS may read it at any time.
    pub fn set_arithmetic(
        &self,
        handle: &BlasHandle,
        precision: Precision,
        arithmetic: Arithmetic,
    ) -> Result<bool, CudaError> {
        let asked_otherwise = environment_asks_otherwise(|name| std::env::var_os(name));
        let pedantic = is_pedantic(arithmetic, precision, asked_otherwise);
        self.set_pedantic(handle, pedantic).map(|()| pedantic)
    }

    fn set_pedantic(&self, handle: &BlasHandle, pedantic: bool) -> Result<(), CudaError> {
        let mode = if pedantic {
            sys::cublasMath_t::CUBLAS_PEDANTIC_MATH
        } else {
            sys::cublasMath_t::CUBLAS_DEFAULT_MATH
        };
        // SAFETY: the handle is live and the mode is one of the enumeration.
        let code = unsafe { (self.blas.cublasSetMathMode)(handle.0, mode) };
        self.blas("cublasSetMathMode", code)
    }

    /// Destroys a cuBLAS handle.
    ///
    /// # Safety
    /// Its queued work has run.
    pub unsafe fn destroy_blas_handle(&self, handle: BlasHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; the handle is consumed.
        let code = unsafe { (self.blas.cublasDestroy_v2)(handle.0) };
        self.blas("cublasDestroy_v2", code)
    }

    /// cuBLAS's version number.
    pub fn blas_version(&self, handle: &BlasHandle) -> Result<u32, CudaError> {
        let mut version: c_int = 0;
        // SAFETY: the handle is live; writes one int.
        let code = unsafe { (self.blas.cublasGetVersion_v2)(handle.0, &raw mut version) };
        self.blas("cublasGetVersion_v2", code)?;
        Ok(version.max(0).unsigned_abs())
    }

    /// Gives the handle scratch memory, so that cuBLAS allocates none of its own.
    ///
    /// # Safety
    /// The memory stays allocated until the work queued with the handle has run.
    pub unsafe fn set_workspace(
        &self,
        handle: &BlasHandle,
        address: DeviceAddress,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller's promise.
        let code = unsafe { (self.blas.cublasSetWorkspace_v2)(handle.0, pointer, bytes) };
        self.blas("cublasSetWorkspace_v2", code)
    }

    /// Queues a kernel on the handle's stream.
    ///
    /// # Safety
    /// The kernel's blocks lie inside their matrices, which stay allocated, and are not written by other
    /// work, until the stream has passed this point.
    pub unsafe fn kernel(&self, h: &BlasHandle, d: &DeviceKernel<'_>) -> Result<(), CudaError> {
        let (four, complex) = d.number();
        let raw = h.0;
        match *d.kernel {
            // SAFETY: the caller's promise.
            Kernel::Gemm { .. } => unsafe { self.gemm(h, d) },
            Kernel::Symm {
                hermitian,
                side: at,
                uplo,
                size: (m, n),
                alpha,
                a,
                b,
                beta,
                c,
            } => {
                let table = &self.level3;
                let (name, function) = if hermitian {
                    table.hemm[complex]
                } else {
                    table.symm[four]
                };
                let (alpha, beta) = (d.scalar(alpha), d.scalar(beta));
                let ((a, lda), (b, ldb), (c, ldc)) = (d.at(a), d.at(b), d.at(c));
                let (m, n) = (m as i64, n as i64);
                let (at, uplo) = (side(at), fill(uplo));
                let (alpha, beta) = (alpha.pointer(), beta.pointer());
                // SAFETY: the operands are the caller's promise; the scalars are read during the call.
                self.blas(name, unsafe {
                    function(raw, at, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
                })
            }
            Kernel::Syrk {
                hermitian,
                uplo,
                trans,
                size: (n, k),
                alpha,
                a,
                beta,
                c,
            } => {
                let table = &self.level3;
                // herk takes real scalars: the first half of a complex one.
                let (name, function) = if hermitian {
                    table.herk[complex]
                } else {
                    table.syrk[four]
                };
                let (alpha, beta) = (d.scalar(alpha), d.scalar(beta));
                let ((a, lda), (c, ldc)) = (d.at(a), d.at(c));
                let (n, k) = (n as i64, k as i64);
                let (uplo, op) = (fill(uplo), d.operation(trans));
                let (alpha, beta) = (alpha.pointer(), beta.pointer());
                // SAFETY: as above.
                self.blas(name, unsafe {
                    function(raw, uplo, op, n, k, alpha, a, lda, beta, c, ldc)
                })
            }
            Kernel::Syr2k {
                hermitian,
                uplo,
                trans,
                size: (n, k),
                alpha,
                a,
                b,
                beta,
                c,
            } => {
                let table = &self.level3;
                let (name, function) = if hermitian {
                    table.her2k[complex]
                } else {
                    table.syr2k[four]
                };
                let (alpha, beta) = (d.scalar(alpha), d.scalar(beta));
                let ((a, lda), (b, ldb), (c, ldc)) = (d.at(a), d.at(b), d.at(c));
                let (n, k) = (n as i64, k as i64);
                let (uplo, op) = (fill(uplo), d.operation(trans));
                let (alpha, beta) = (alpha.pointer(), beta.pointer());
                // SAFETY: as above.
                self.blas(name, unsafe {
                    function(raw, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
                })
            }
            Kernel::Trmm {
                side: at,
                uplo,
                trans,
                diag,
                size: (m, n),
                alpha,
                a,
                b,
                c,
            } => {
                let (name, function) = self.level3.trmm[four];
                let alpha = d.scalar(alpha);
                let ((a, lda), (b, ldb), (c, ldc)) = (d.at(a), d.at(b), d.at(c));
                let (m, n) = (m as i64, n as i64);
                let (at, uplo, op, diag) = (side(at), fill(uplo), d.operation(trans), unit(diag));
                let alpha = alpha.pointer();
                // SAFETY: as above.
                self.blas(name, unsafe {
                    function(raw, at, uplo, op, diag, m, n, alpha, a, lda, b, ldb, c, ldc)
                })
            }
            Kernel::Trsm {
                side: at,
                uplo,
                trans,
                diag,
                size: (m, n),
                alpha,
                a,
                b,
            } => {
                let (name, function) = self.level3.trsm[four];
                let alpha = d.scalar(alpha);
                let ((a, lda), (b, ldb)) = (d.at(a), d.at(b));
                let (m, n) = (m as i64, n as i64);
                let (at, uplo, op, diag) = (side(at), fill(uplo), d.operation(trans), unit(diag));
                let alpha = alpha.pointer();
                // SAFETY: as above.
                self.blas(name, unsafe {
                    function(raw, at, uplo, op, diag, m, n, alpha, a, lda, b, ldb)
                })
            }
            // The driver sends these to `Solver`.
            Kernel::Solver(_) => Err(CudaError {
                function: "a cuSOLVER routine",
                code: 0,
                name: "not a kernel of cuBLAS".into(),
                origin: Origin::Solver,
            }),
        }
    }

    /// Queues C := op(A), where C is m x n; pointers with leading dimensions.
    ///
    /// # Safety
    /// As for [`Cuda::kernel`].
    pub unsafe fn matrix_copy(
        &self,
        extensions: &sys::Extensions,
        h: &BlasHandle,
        d: &DeviceKernel<'_>,
        (trans, (m, n)): (Trans, (usize, usize)),
        ((a, lda), (c, ldc)): ((*mut c_void, i64), (*mut c_void, i64)),
    ) -> Result<(), CudaError> {
        let (name, function) = extensions.geam[d.number().0];
        let (op, none) = (d.operation(trans), d.operation(Trans::N));
        let (one, zero) = (d.scalar(Scalar::ONE), d.scalar(Scalar::ZERO));
        let (m, n) = (m as i64, n as i64);
        let (one, zero) = (one.pointer(), zero.pointer());
        // SAFETY: the operands are the caller's promise; with a factor of 0, C stands for B, which cuBLAS
        // allows in place where its op is N. The scalars are read during the call.
        self.blas(name, unsafe {
            function(h.0, op, none, m, n, one, a, lda, zero, c, ldc, c, ldc)
        })
    }

    /// Queues C := diag(x) C, where C is m x n; the matrix with its leading dimension.
    ///
    /// # Safety
    /// As for [`Cuda::kernel`].
    pub unsafe fn scale_rows(
        &self,
        extensions: &sys::Extensions,
        h: &BlasHandle,
        d: &DeviceKernel<'_>,
        (m, n): (usize, usize),
        (x, (c, ldc)): (*mut c_void, (*mut c_void, i64)),
    ) -> Result<(), CudaError> {
        let (name, function) = extensions.dgmm[d.number().0];
        let (m, n) = (m as i64, n as i64);
        let left = side(Side::L);
        // SAFETY: the operands are the caller's promise; cuBLAS allows C in place of A.
        self.blas(name, unsafe {
            function(h.0, left, m, n, c, ldc, x, 1, c, ldc)
        })
    }

    /// # Safety
    /// As for [`Cuda::kernel`]; the kernel is a gemm.
    unsafe fn gemm(&self, h: &BlasHandle, d: &DeviceKernel<'_>) -> Result<(), CudaError> {
        use sys::cublasComputeType_t as Compute;
        use sys::cudaDataType_t as Type;
        let Kernel::Gemm {
            trans,
            size: (m, n, k),
            alpha,
            a,
            b,
            beta,
            c,
        } = *d.kernel
        else {
            return Ok(());
        };
        let data = match d.precision {
            Precision::S => Type::CUDA_R_32F,
            Precision::D => Type::CUDA_R_64F,
            Precision::C => Type::CUDA_C_32F,
            Precision::Z => Type::CUDA_C_64F,
        };
        let single = matches!(d.precision, Precision::S | Precision::C);
        let compute = match (single, d.pedantic) {
            (true, true) => Compute::CUBLAS_COMPUTE_32F_PEDANTIC,
            (true, false) => Compute::CUBLAS_COMPUTE_32F,
            (false, true) => Compute::CUBLAS_COMPUTE_64F_PEDANTIC,
            (false, false) => Compute::CUBLAS_COMPUTE_64F,
        };
        let (alpha, beta) = (d.scalar(alpha), d.scalar(beta));
        let ((a, lda), (b, ldb), (c, ldc)) = (d.at(a), d.at(b), d.at(c));
        // SAFETY: the operands are the caller's promise; alpha and beta are host scalars of the compute
        // type, read during the call (host pointer mode, set for every handle).
        let code = unsafe {
            (self.blas.cublasGemmEx_64)(
                h.0,
                d.operation(trans.0),
                d.operation(trans.1),
                m as i64,
                n as i64,
                k as i64,
                alpha.pointer(),
                a,
                data,
                lda,
                b,
                data,
                ldb,
                beta.pointer(),
                c,
                data,
                ldc,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            )
        };
        self.blas("cublasGemmEx_64", code)
    }
}

/// A scalar in the bits that cuBLAS reads, aligned as it wants: cuBLAS 13.1 loads a complex double
/// scalar with an aligned 16-byte instruction and crashes the process on any other address.
#[repr(C, align(16))]
struct Host([u8; 16]);

impl Host {
    fn new(precision: Precision, scalar: Scalar) -> Self {
        let mut bytes = [0; 16];
        match precision {
            // Narrowing gives the caller's own bits back: the value was widened from f32.
            Precision::S | Precision::C => {
                bytes[..4].copy_from_slice(&(scalar.re as f32).to_ne_bytes());
                bytes[4..8].copy_from_slice(&(scalar.im as f32).to_ne_bytes());
            }
            Precision::D | Precision::Z => {
                bytes[..8].copy_from_slice(&scalar.re.to_ne_bytes());
                bytes[8..].copy_from_slice(&scalar.im.to_ne_bytes());
            }
        }
        Self(bytes)
    }

    fn pointer(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }
}

/// A side as cuBLAS and cuSOLVER take it.
pub fn side(side: Side) -> sys::cublasSideMode_t {
    match side {
        Side::L => sys::cublasSideMode_t::CUBLAS_SIDE_LEFT,
        Side::R => sys::cublasSideMode_t::CUBLAS_SIDE_RIGHT,
    }
}

/// A triangle as cuBLAS and cuSOLVER take it.
pub fn fill(uplo: Uplo) -> sys::cublasFillMode_t {
    match uplo {
        Uplo::U => sys::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
        Uplo::L => sys::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
    }
}

/// A diagonal as cuBLAS and cuSOLVER take it.
pub fn unit(diag: Diag) -> sys::cublasDiagType_t {
    match diag {
        Diag::N => sys::cublasDiagType_t::CUBLAS_DIAG_NON_UNIT,
        Diag::U => sys::cublasDiagType_t::CUBLAS_DIAG_UNIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_precision_is_always_pedantic_and_double_when_the_environment_meddles() {
        for asked in [false, true] {
            for precision in Precision::ALL {
                let single = matches!(precision, Precision::S | Precision::C);
                let pinned = is_pedantic(Arithmetic::Pinned, precision, asked);
                assert_eq!(pinned, single || asked, "{precision:?} {asked}");
                assert!(is_pedantic(Arithmetic::Pedantic, precision, asked));
                assert!(!is_pedantic(Arithmetic::Default, precision, asked));
            }
        }
    }

    #[test]
    fn each_variable_that_asks_for_other_arithmetic_is_seen() {
        assert!(!environment_asks_otherwise(|_| None));
        for asked in FOREIGN_ARITHMETIC {
            let read = |name: &str| (name == asked).then(|| "1".into());
            assert!(environment_asks_otherwise(read), "{asked}");
        }
    }
}
