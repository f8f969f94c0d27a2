//! The whole CUDA surface that is used: every foreign function once, with the type it is called by.
//!
//! Types of handles and of input enumerations are `cudarc`'s generated ones. Return codes are plain
//! `u32`: a newer driver may return a code that the generated enumeration does not list, and reading
//! that as a Rust enumeration would be undefined. cudarc's own loader is never used: its presence check
//! does not see a missing symbol and the later call panics. Nothing here calls anything.

use core::ffi::{c_char, c_int, c_uint, c_void};

pub use cudarc::cublas::sys::{
    cublasAtomicsMode_t, cublasComputeType_t, cublasDiagType_t, cublasFillMode_t, cublasGemmAlgo_t,
    cublasHandle_t, cublasMath_t, cublasOperation_t, cublasPointerMode_t, cublasSideMode_t,
    cudaDataType_t,
};
pub use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemorytype, CUstream, CUuuid,
};
use libloading::os::unix::Library;

/// Return code of both libraries.
pub type Code = u32;

/// Both libraries' success.
pub const SUCCESS: Code = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Code = 2;
/// `CUDA_ERROR_NOT_READY`: an event that has not happened yet.
pub const NOT_READY: Code = 600;
/// `CUBLAS_STATUS_ALLOC_FAILED`.
pub const BLAS_ALLOC_FAILED: Code = 3;

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the host program's default stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DEFAULT`: an event that also measures time.
pub const EVENT_TIMED: c_uint = 0;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_UNTIMED: c_uint = 2;

/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE`, in kHz.
pub const ATTRIBUTE_CLOCK_KHZ: c_int = 13;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
pub const ATTRIBUTE_SM_COUNT: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
pub const ATTRIBUTE_CC_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
pub const ATTRIBUTE_CC_MINOR: c_int = 76;

macro_rules! surface {
    ($(#[$doc:meta])* $table:ident { $($name:ident($($arg:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub struct $table { $(pub $name: unsafe extern "C" fn($($arg),*) -> Code,)* }

        impl $table {
            /// Looks every symbol up.
            ///
            /// # Errors
            /// The first name that the library lacks.
            ///
            /// # Safety
            /// `library` is the library that the table describes, and is never unloaded.
            pub unsafe fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self { $($name: {
                    // SAFETY: the caller names the right library, so the symbol has the type that its
                    // vendor's header declares, which is what this table repeats.
                    let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                    *symbol.map_err(|_| stringify!($name))?
                },)* })
            }
        }
    };
}

surface! {
    /// libcuda.so.1.
    ///
    /// # Source
    /// CUDA driver API, 12.0 to 13.0.
    Driver {
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(Code, *mut *const c_char);
        cuInit(c_uint);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceGetUuid(*mut CUuuid, CUdevice);
        cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuCtxPushCurrent_v2(CUcontext);
        cuCtxPopCurrent_v2(*mut CUcontext);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemAllocHost_v2(*mut *mut c_void, usize);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream);
        cuMemsetD2D32Async(CUdeviceptr, usize, c_uint, usize, usize, CUstream);
        cuStreamCreate(*mut CUstream, c_uint);
        cuStreamDestroy_v2(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventElapsedTime(*mut f32, CUevent, CUevent);
    }
}

surface! {
    /// libcublas.so.13 or .12. The `_64` entry takes 64-bit dimensions and exists from 12.0 on.
    ///
    /// # Source
    /// cuBLAS library documentation, 12.0 to 13.1.
    Blas {
        cublasCreate_v2(*mut cublasHandle_t);
        cublasDestroy_v2(cublasHandle_t);
        cublasGetVersion_v2(cublasHandle_t, *mut c_int);
        cublasSetStream_v2(cublasHandle_t, CUstream);
        cublasSetWorkspace_v2(cublasHandle_t, *mut c_void, usize);
        cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t);
        cublasSetMathMode(cublasHandle_t, cublasMath_t);
        cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t);
        cublasGemmEx_64(
            cublasHandle_t, cublasOperation_t, cublasOperation_t, i64, i64, i64,
            *const c_void, *const c_void, cudaDataType_t, i64, *const c_void, cudaDataType_t, i64,
            *const c_void, *mut c_void, cudaDataType_t, i64, cublasComputeType_t, cublasGemmAlgo_t,
        );
    }
}

/// `cublas?symm`, `cublas?hemm`: side, uplo, m, n, alpha, A, lda, B, ldb, beta, C, ldc.
pub type Symm = unsafe extern "C" fn(
    cublasHandle_t,
    cublasSideMode_t,
    cublasFillMode_t,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *const c_void,
    i64,
    *const c_void,
    *mut c_void,
    i64,
) -> Code;

/// `cublas?syrk`, `cublas?herk` (real scalars): uplo, trans, n, k, alpha, A, lda, beta, C, ldc.
pub type Syrk = unsafe extern "C" fn(
    cublasHandle_t,
    cublasFillMode_t,
    cublasOperation_t,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *const c_void,
    *mut c_void,
    i64,
) -> Code;

/// `cublas?syr2k`, `cublas?her2k` (real beta): uplo, trans, n, k, alpha, A, lda, B, ldb, beta, C, ldc.
pub type Syr2k = unsafe extern "C" fn(
    cublasHandle_t,
    cublasFillMode_t,
    cublasOperation_t,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *const c_void,
    i64,
    *const c_void,
    *mut c_void,
    i64,
) -> Code;

/// `cublas?trmm`: side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, C, ldc.
pub type Trmm = unsafe extern "C" fn(
    cublasHandle_t,
    cublasSideMode_t,
    cublasFillMode_t,
    cublasOperation_t,
    cublasDiagType_t,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *const c_void,
    i64,
    *mut c_void,
    i64,
) -> Code;

/// `cublas?trsm`: side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb.
pub type Trsm = unsafe extern "C" fn(
    cublasHandle_t,
    cublasSideMode_t,
    cublasFillMode_t,
    cublasOperation_t,
    cublasDiagType_t,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *mut c_void,
    i64,
) -> Code;

macro_rules! tables {
    ($(#[$doc:meta])* $table:ident, $prefix:literal {
        $($field:ident: [$type:ident; $count:literal] = $($name:literal)*;)*
    }) => {
        $(#[$doc])*
        pub struct $table {
            $(#[doc = concat!($prefix, stringify!($field))] pub $field: [(&'static str, $type); $count],)*
        }

        impl $table {
            /// Looks every symbol up.
            ///
            /// # Errors
            /// The first name that the library lacks.
            ///
            /// # Safety
            /// `library` is the one of these functions, and is never unloaded.
            pub unsafe fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self { $($field: [$({
                    // SAFETY: the caller names the right library, so the symbol has the type that its
                    // vendor's header declares, which is what this table repeats.
                    let symbol = unsafe { library.get::<$type>(concat!($name, "\0").as_bytes()) };
                    ($name, *symbol.map_err(|_| $name)?)
                }),*],)* })
            }
        }
    };
}

tables! {
    /// Level-3 BLAS beside gemm, with 64-bit dimensions; each family by precision, in the order
    /// S, D, C, Z (C, Z where only complex ones exist).
    ///
    /// # Source
    /// cuBLAS library documentation, 12.0 to 13.1: the `_64` interfaces.
    Level3, "cublas?" {
        symm: [Symm; 4] = "cublasSsymm_v2_64" "cublasDsymm_v2_64" "cublasCsymm_v2_64" "cublasZsymm_v2_64";
        hemm: [Symm; 2] = "cublasChemm_v2_64" "cublasZhemm_v2_64";
        syrk: [Syrk; 4] = "cublasSsyrk_v2_64" "cublasDsyrk_v2_64" "cublasCsyrk_v2_64" "cublasZsyrk_v2_64";
        herk: [Syrk; 2] = "cublasCherk_v2_64" "cublasZherk_v2_64";
        syr2k: [Syr2k; 4] =
            "cublasSsyr2k_v2_64" "cublasDsyr2k_v2_64" "cublasCsyr2k_v2_64" "cublasZsyr2k_v2_64";
        her2k: [Syr2k; 2] = "cublasCher2k_v2_64" "cublasZher2k_v2_64";
        trmm: [Trmm; 4] = "cublasStrmm_v2_64" "cublasDtrmm_v2_64" "cublasCtrmm_v2_64" "cublasZtrmm_v2_64";
        trsm: [Trsm; 4] = "cublasStrsm_v2_64" "cublasDtrsm_v2_64" "cublasCtrsm_v2_64" "cublasZtrsm_v2_64";
    }
}

/// `cublas?geam`: op of A, op of B, m, n, alpha, A, lda, beta, B, ldb, C, ldc.
pub type Geam = unsafe extern "C" fn(
    cublasHandle_t,
    cublasOperation_t,
    cublasOperation_t,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *const c_void,
    *const c_void,
    i64,
    *mut c_void,
    i64,
) -> Code;

/// `cublas?dgmm`: side of the diagonal matrix, m, n, A, lda, x, incx, C, ldc.
pub type Dgmm = unsafe extern "C" fn(
    cublasHandle_t,
    cublasSideMode_t,
    i64,
    i64,
    *const c_void,
    i64,
    *const c_void,
    i64,
    *mut c_void,
    i64,
) -> Code;

tables! {
    /// cuBLAS's extensions of BLAS that only LAPACK needs, by precision: S, D, C, Z. Matrix addition (as a copy and
    /// a transpose), and the product with a diagonal matrix.
    Extensions, "cublas?" {
        geam: [Geam; 4] = "cublasSgeam_64" "cublasDgeam_64" "cublasCgeam_64" "cublasZgeam_64";
        dgmm: [Dgmm; 4] = "cublasSdgmm_64" "cublasDdgmm_64" "cublasCdgmm_64" "cublasZdgmm_64";
    }
}

/// A cuSOLVER handle as the library sees it.
pub type SolverRaw = *mut c_void;
/// Its `cusolverDnParams_t`.
pub type SolverParams = *mut c_void;

/// `CUSOLVER_STATUS_ALLOC_FAILED`.
pub const SOLVER_ALLOC_FAILED: Code = 2;
/// `CUSOLVER_EIG_MODE_NOVECTOR`, `CUSOLVER_EIG_MODE_VECTOR`.
pub const EIG_MODES: [c_int; 2] = [0, 1];
/// `CUSOLVER_DETERMINISTIC_RESULTS`.
pub const SOLVER_DETERMINISTIC: c_int = 1;

surface! {
    /// libcusolver.so.12 or .11: handles and the routines with 64-bit dimensions.
    ///
    /// # Source
    /// cuSOLVER library documentation, 11.4 (CUDA 12.0) to 12.0.
    Solver {
        cusolverDnCreate(*mut SolverRaw);
        cusolverDnDestroy(SolverRaw);
        cusolverDnSetStream(SolverRaw, CUstream);
        cusolverDnCreateParams(*mut SolverParams);
        cusolverDnDestroyParams(SolverParams);
        cusolverDnXpotrf_bufferSize(
            SolverRaw, SolverParams, cublasFillMode_t, i64, cudaDataType_t, *const c_void, i64,
            cudaDataType_t, *mut usize, *mut usize,
        );
        cusolverDnXpotrf(
            SolverRaw, SolverParams, cublasFillMode_t, i64, cudaDataType_t, *mut c_void, i64,
            cudaDataType_t, *mut c_void, usize, *mut c_void, usize, *mut c_int,
        );
        cusolverDnXpotrs(
            SolverRaw, SolverParams, cublasFillMode_t, i64, i64, cudaDataType_t, *const c_void, i64,
            cudaDataType_t, *mut c_void, i64, *mut c_int,
        );
        cusolverDnXgetrf_bufferSize(
            SolverRaw, SolverParams, i64, i64, cudaDataType_t, *const c_void, i64, cudaDataType_t,
            *mut usize, *mut usize,
        );
        cusolverDnXgetrf(
            SolverRaw, SolverParams, i64, i64, cudaDataType_t, *mut c_void, i64, *mut i64,
            cudaDataType_t, *mut c_void, usize, *mut c_void, usize, *mut c_int,
        );
        cusolverDnXgetrs(
            SolverRaw, SolverParams, cublasOperation_t, i64, i64, cudaDataType_t, *const c_void, i64,
            *const i64, cudaDataType_t, *mut c_void, i64, *mut c_int,
        );
        cusolverDnXgeqrf_bufferSize(
            SolverRaw, SolverParams, i64, i64, cudaDataType_t, *const c_void, i64, cudaDataType_t,
            *const c_void, cudaDataType_t, *mut usize, *mut usize,
        );
        cusolverDnXgeqrf(
            SolverRaw, SolverParams, i64, i64, cudaDataType_t, *mut c_void, i64, cudaDataType_t,
            *mut c_void, cudaDataType_t, *mut c_void, usize, *mut c_void, usize, *mut c_int,
        );
        cusolverDnXsyevd_bufferSize(
            SolverRaw, SolverParams, c_int, cublasFillMode_t, i64, cudaDataType_t, *const c_void, i64,
            cudaDataType_t, *const c_void, cudaDataType_t, *mut usize, *mut usize,
        );
        cusolverDnXsyevd(
            SolverRaw, SolverParams, c_int, cublasFillMode_t, i64, cudaDataType_t, *mut c_void, i64,
            cudaDataType_t, *mut c_void, cudaDataType_t, *mut c_void, usize, *mut c_void, usize,
            *mut c_int,
        );
        cusolverDnXgesvd_bufferSize(
            SolverRaw, SolverParams, c_char, c_char, i64, i64, cudaDataType_t, *const c_void, i64,
            cudaDataType_t, *const c_void, cudaDataType_t, *const c_void, i64, cudaDataType_t,
            *const c_void, i64, cudaDataType_t, *mut usize, *mut usize,
        );
        cusolverDnXgesvd(
            SolverRaw, SolverParams, c_char, c_char, i64, i64, cudaDataType_t, *mut c_void, i64,
            cudaDataType_t, *mut c_void, cudaDataType_t, *mut c_void, i64, cudaDataType_t,
            *mut c_void, i64, cudaDataType_t, *mut c_void, usize, *mut c_void, usize, *mut c_int,
        );
        cusolverDnXgesvdp_bufferSize(
            SolverRaw, SolverParams, c_int, c_int, i64, i64, cudaDataType_t, *const c_void, i64,
            cudaDataType_t, *const c_void, cudaDataType_t, *const c_void, i64, cudaDataType_t,
            *const c_void, i64, cudaDataType_t, *mut usize, *mut usize,
        );
        cusolverDnXgesvdp(
            SolverRaw, SolverParams, c_int, c_int, i64, i64, cudaDataType_t, *mut c_void, i64,
            cudaDataType_t, *mut c_void, cudaDataType_t, *mut c_void, i64, cudaDataType_t,
            *mut c_void, i64, cudaDataType_t, *mut c_void, usize, *mut c_void, usize, *mut c_int,
            *mut f64,
        );
    }
}

/// `cusolverDnXgeev_bufferSize`.
pub type GeevSize = unsafe extern "C" fn(
    SolverRaw,
    SolverParams,
    c_int,
    c_int,
    i64,
    cudaDataType_t,
    *const c_void,
    i64,
    cudaDataType_t,
    *const c_void,
    cudaDataType_t,
    *const c_void,
    i64,
    cudaDataType_t,
    *const c_void,
    i64,
    cudaDataType_t,
    *mut usize,
    *mut usize,
) -> Code;

/// `cusolverDnXgeev`.
pub type Geev = unsafe extern "C" fn(
    SolverRaw,
    SolverParams,
    c_int,
    c_int,
    i64,
    cudaDataType_t,
    *mut c_void,
    i64,
    cudaDataType_t,
    *mut c_void,
    cudaDataType_t,
    *mut c_void,
    i64,
    cudaDataType_t,
    *mut c_void,
    i64,
    cudaDataType_t,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
    *mut c_int,
) -> Code;

/// `cusolverDnXtrtri_bufferSize`: uplo, diag, n, type, A, lda, bytes on the device and on the host.
pub type TrtriSize = unsafe extern "C" fn(
    SolverRaw,
    cublasFillMode_t,
    cublasDiagType_t,
    i64,
    cudaDataType_t,
    *mut c_void,
    i64,
    *mut usize,
    *mut usize,
) -> Code;

/// `cusolverDnXtrtri`: uplo, diag, n, type, A, lda, workspaces, info.
pub type Trtri = unsafe extern "C" fn(
    SolverRaw,
    cublasFillMode_t,
    cublasDiagType_t,
    i64,
    cudaDataType_t,
    *mut c_void,
    i64,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
    *mut c_int,
) -> Code;

/// `cusolverDnSetDeterministicMode`.
pub type SetDeterministic = unsafe extern "C" fn(SolverRaw, c_int) -> Code;

/// What older libraries lack.
pub struct SolverNewer {
    /// From cuSOLVER 11.7 (CUDA 12.8) on.
    pub geev: Option<(GeevSize, Geev)>,
    /// Documented from CUDA 11.4 on; without it trtri is the CPU library's.
    pub trtri: Option<(TrtriSize, Trtri)>,
    /// From cuSOLVER 11.5 (CUDA 12.2) on.
    pub set_deterministic: Option<SetDeterministic>,
}

impl SolverNewer {
    /// Looks the symbols up.
    ///
    /// # Safety
    /// `library` is cuSOLVER, and is never unloaded.
    pub unsafe fn resolve(library: &Library) -> Self {
        // SAFETY: the caller names the right library, so each symbol has the type that its vendor's header
        // declares, which is what the types repeat.
        unsafe {
            let size = library.get::<GeevSize>(b"cusolverDnXgeev_bufferSize\0");
            let geev = library.get::<Geev>(b"cusolverDnXgeev\0");
            let trtri_size = library.get::<TrtriSize>(b"cusolverDnXtrtri_bufferSize\0");
            let trtri = library.get::<Trtri>(b"cusolverDnXtrtri\0");
            let mode = library.get::<SetDeterministic>(b"cusolverDnSetDeterministicMode\0");
            Self {
                geev: size.ok().map(|s| *s).zip(geev.ok().map(|g| *g)),
                trtri: trtri_size.ok().map(|s| *s).zip(trtri.ok().map(|t| *t)),
                set_deterministic: mode.ok().map(|m| *m),
            }
        }
    }
}

/// `cusolverDn?orgqr_bufferSize`: m, n, k, A, lda, tau, lwork in elements.
pub type OrgqrSize = unsafe extern "C" fn(
    SolverRaw,
    c_int,
    c_int,
    c_int,
    *const c_void,
    c_int,
    *const c_void,
    *mut c_int,
) -> Code;

/// `cusolverDn?orgqr`: m, n, k, A, lda, tau, work, lwork, info.
pub type Orgqr = unsafe extern "C" fn(
    SolverRaw,
    c_int,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    *mut c_int,
) -> Code;

/// `cusolverDn?ormqr_bufferSize`: side, op, m, n, k, A, lda, tau, C, ldc, lwork in elements.
pub type OrmqrSize = unsafe extern "C" fn(
    SolverRaw,
    cublasSideMode_t,
    cublasOperation_t,
    c_int,
    c_int,
    c_int,
    *const c_void,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    *mut c_int,
) -> Code;

/// `cusolverDn?ormqr`: side, op, m, n, k, A, lda, tau, C, ldc, work, lwork, info.
pub type Ormqr = unsafe extern "C" fn(
    SolverRaw,
    cublasSideMode_t,
    cublasOperation_t,
    c_int,
    c_int,
    c_int,
    *const c_void,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    *mut c_void,
    c_int,
    *mut c_int,
) -> Code;

/// `cusolverDn?potri_bufferSize`: uplo, n, A, lda, lwork in elements.
pub type PotriSize = unsafe extern "C" fn(
    SolverRaw,
    cublasFillMode_t,
    c_int,
    *mut c_void,
    c_int,
    *mut c_int,
) -> Code;

/// `cusolverDn?potri`: uplo, n, A, lda, work, lwork, info.
pub type Potri = unsafe extern "C" fn(
    SolverRaw,
    cublasFillMode_t,
    c_int,
    *mut c_void,
    c_int,
    *mut c_void,
    c_int,
    *mut c_int,
) -> Code;

tables! {
    /// The cuSOLVER routines that exist for each type, with 32-bit dimensions, in the order S, D, C, Z.
    ///
    /// # Source
    /// cuSOLVER library documentation, 11.4 (CUDA 12.0) to 12.0.
    SolverTyped, "cusolverDn?" {
        orgqr_size: [OrgqrSize; 4] = "cusolverDnSorgqr_bufferSize" "cusolverDnDorgqr_bufferSize"
            "cusolverDnCungqr_bufferSize" "cusolverDnZungqr_bufferSize";
        orgqr: [Orgqr; 4] = "cusolverDnSorgqr" "cusolverDnDorgqr" "cusolverDnCungqr" "cusolverDnZungqr";
        ormqr_size: [OrmqrSize; 4] = "cusolverDnSormqr_bufferSize" "cusolverDnDormqr_bufferSize"
            "cusolverDnCunmqr_bufferSize" "cusolverDnZunmqr_bufferSize";
        ormqr: [Ormqr; 4] = "cusolverDnSormqr" "cusolverDnDormqr" "cusolverDnCunmqr" "cusolverDnZunmqr";
        potri_size: [PotriSize; 4] = "cusolverDnSpotri_bufferSize" "cusolverDnDpotri_bufferSize"
            "cusolverDnCpotri_bufferSize" "cusolverDnZpotri_bufferSize";
        potri: [Potri; 4] = "cusolverDnSpotri" "cusolverDnDpotri" "cusolverDnCpotri" "cusolverDnZpotri";
    }
}

/// Names of cuSOLVER's status codes.
pub fn solver_code_name(code: Code) -> Option<&'static str> {
    Some(match code {
        1 => "CUSOLVER_STATUS_NOT_INITIALIZED",
        2 => "CUSOLVER_STATUS_ALLOC_FAILED",
        3 => "CUSOLVER_STATUS_INVALID_VALUE",
        4 => "CUSOLVER_STATUS_ARCH_MISMATCH",
        5 => "CUSOLVER_STATUS_MAPPING_ERROR",
        6 => "CUSOLVER_STATUS_EXECUTION_FAILED",
        7 => "CUSOLVER_STATUS_INTERNAL_ERROR",
        8 => "CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
        9 => "CUSOLVER_STATUS_NOT_SUPPORTED",
        10 => "CUSOLVER_STATUS_ZERO_PIVOT",
        11 => "CUSOLVER_STATUS_INVALID_LICENSE",
        31 => "CUSOLVER_STATUS_INVALID_WORKSPACE",
        _ => return None,
    })
}

/// Names of cuBLAS's status codes, for messages (the library's own function for this is newer than 12.0
/// in some builds).
pub fn blas_code_name(code: Code) -> Option<&'static str> {
    Some(match code {
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        _ => return None,
    })
}

/// Codes after which the context or the device does not work any more: every later call fails too.
///
/// # Source
/// CUDA driver API documentation, `CUresult`: the codes whose text says that the process or the context
/// must be terminated or is not usable, and those that a context destroyed by the host program gives.
pub fn is_fatal(code: Code) -> bool {
    matches!(
        code,
        3 | 4           // not initialised (a forked child), deinitialised (process is ending)
            | 46        // device unavailable
            | 100 | 101 // no device, invalid device
            | 201       // invalid context
            | 214       // uncorrectable ECC error
            | 220 | 226 // uncorrectable NVLink error, contained error
            | 400       // invalid handle: a handle of ours died with its context
            | 700 | 702 // illegal address, launch timeout
            | 709       // context is destroyed
            | 710
            | 714
            ..=719 // assert, hardware stack error … launch failed
            | 999
    )
}
