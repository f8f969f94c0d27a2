//! The versioned C structs that pass between the shims (`libblas.so.3`, `liblapack.so.3`) and the
//! engine (`libgpu_offload.so.0`). This crate knows nothing else: no BLAS names, no policy, no CUDA.
//!
//! Both sides check [`ABI_VERSION`] and the size of every struct before they believe a field, so an
//! engine file of another version is refused with one line and the CPU result, never misread.
#![no_std]

use core::ffi::{c_char, c_void};

/// Version of the structs below. It changes whenever one of them changes in any way.
pub const ABI_VERSION: u32 = 4;

/// File name and SONAME of the engine, found in the directory of the shim's own real path.
pub const ENGINE_SONAME: &str = "libgpu_offload.so.0";

/// The engine's only exported function, of type [`EngineEntry`]. NUL-terminated for `dlsym`.
pub const ENGINE_ENTRY: &[u8] = b"gpu_offload_engine_v1\0";

/// What a shim offers the engine. Lives as long as the shim's library is loaded, so the engine uses it
/// only while it registers and during a call that came through it ([`RoutedCall::host`]).
#[repr(C)]
pub struct HostTable {
    /// [`ABI_VERSION`] of the shim.
    pub abi_version: u32,
    /// `size_of::<HostTable>()` of the shim.
    pub struct_bytes: u32,
    /// Publishes a new threshold for one routine: calls whose work (m n k, see [`RoutedCall`]) is at or
    /// below it never reach the engine. `op` and `precision` are the codes of [`RoutedCall`].
    pub set_threshold: extern "C" fn(op: u32, precision: u32, work: u64),
    /// Threads that the CPU library would use now.
    pub cpu_threads: extern "C" fn() -> i32,
    /// OpenBLAS's configuration string (version, core name), NUL-terminated, static.
    pub cpu_config: extern "C" fn() -> *const c_char,
    /// A call on the GPU begins (1) or has ended (0): meanwhile idle threads of the CPU library should sleep and
    /// not look for work, since they would take the processors from the threads that move the data.
    pub rest: extern "C" fn(begins: i32),
}

/// What the engine offers a shim. Static in the engine, which is never unloaded.
#[repr(C)]
pub struct EngineTable {
    /// [`ABI_VERSION`] of the engine.
    pub abi_version: u32,
    /// `size_of::<EngineTable>()` of the engine.
    pub struct_bytes: u32,
    /// Runs one call on the side that finishes sooner. Returns [`OUTCOME_DONE`] when the call's
    /// result is in the caller's memory, [`OUTCOME_UNTOUCHED`] when nothing was written and the shim
    /// must run the CPU routine itself. Never unwinds.
    pub route: unsafe extern "C" fn(call: *const RoutedCall) -> u32,
    /// As `route`, for a call of LAPACK.
    pub route_lapack: unsafe extern "C" fn(call: *const RoutedLapack) -> u32,
}

/// Type of [`ENGINE_ENTRY`]: registers the host, returns the engine's table, or null when the engine
/// refuses (another ABI version, struct sizes that differ).
pub type EngineEntry = unsafe extern "C" fn(host: *const HostTable) -> *const EngineTable;

/// The result is in the caller's memory.
pub const OUTCOME_DONE: u32 = 0;
/// Nothing was written; the shim runs the CPU routine.
pub const OUTCOME_UNTOUCHED: u32 = 1;

/// One legal call that is not a quick return, column-major, as the shim decoded it.
///
/// Where the result is a triangle, m is n; where a routine has no k, k is the order of `a`. The trans of a
/// rank-k update is `transa`. The result of trmm and trsm, the reference's B, is `c`, and their `beta` is 1.
/// Other fields that a routine does not have are zero. Letters are upper-case ASCII (`b'N'`). Scalars are
/// widened to f64, which is exact for f32, so that narrowing gives the caller's own bits back.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RoutedCall {
    /// `size_of::<RoutedCall>()` of the shim.
    pub struct_bytes: u32,
    /// `routines::Op` as its code.
    pub op: u32,
    /// `b'S'`, `b'D'`, `b'C'` or `b'Z'`.
    pub precision: u8,
    /// `b'L'` or `b'R'`.
    pub side: u8,
    /// `b'U'` or `b'L'`.
    pub uplo: u8,
    /// `b'N'`, `b'T'` or `b'C'`.
    pub transa: u8,
    /// `b'N'`, `b'T'` or `b'C'`.
    pub transb: u8,
    /// `b'N'` or `b'U'`.
    pub diag: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Rows of the result.
    pub m: i64,
    /// Columns of the result.
    pub n: i64,
    /// Inner dimension.
    pub k: i64,
    /// Real and imaginary part.
    pub alpha: [f64; 2],
    /// Real and imaginary part.
    pub beta: [f64; 2],
    /// First operand.
    pub a: *const c_void,
    /// Leading dimension of `a` in elements.
    pub lda: i64,
    /// Second operand.
    pub b: *const c_void,
    /// Leading dimension of `b` in elements.
    pub ldb: i64,
    /// The operand that is written.
    pub c: *mut c_void,
    /// Leading dimension of `c` in elements.
    pub ldc: i64,
    /// The shim that the call came through, alive for the duration of the call (its code is on the
    /// stack). The engine keeps no host beyond the call that named it, so a shim may be unloaded.
    pub host: *const HostTable,
    /// Runs the CPU routine with the caller's own arguments. Called at most once, on this thread.
    pub cpu: unsafe extern "C" fn(frame: *const c_void),
    /// The argument of `cpu`.
    pub frame: *const c_void,
}

/// The most option letters of a routine.
pub const MAX_LETTERS: usize = 4;
/// The most matrices of a routine.
pub const MAX_MATRICES: usize = 4;
/// The most vectors of a routine.
pub const MAX_VECTORS: usize = 6;

/// The most real input scalars of a routine of LAPACK.
pub const MAX_REALS: usize = 3;
/// The most INTEGER input scalars of a routine of LAPACK that are no sizes.
pub const MAX_INTS: usize = 3;

/// A matrix argument as it came.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawMatrix {
    /// First element; not looked at where the options make the matrix unreferenced.
    pub data: *mut c_void,
    /// Leading dimension in elements.
    pub ld: i64,
}

/// One legal call of a LAPACK routine that is neither a quick return nor a workspace query, with positive
/// dimensions and a workspace of a legal length. The shim has asked the CPU routine for the best length with
/// the caller's own arguments, so `info` is 0 and the first word of each workspace holds what LAPACK leaves
/// there.
///
/// Letters, scalars, matrices and vectors stand in the order of the routine's Fortran arguments; what lies beyond the
/// last one is zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RoutedLapack {
    /// `size_of::<RoutedLapack>()` of the shim.
    pub struct_bytes: u32,
    /// `routines::Op` as its code.
    pub op: u32,
    /// `b'S'`, `b'D'`, `b'C'` or `b'Z'`.
    pub precision: u8,
    /// Bytes of an INTEGER: 4 or 8.
    pub integer_bytes: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Option letters, upper-case ASCII.
    pub letters: [u8; MAX_LETTERS],
    /// Rows; `n` where the routine has no m.
    pub m: i64,
    /// Columns.
    pub n: i64,
    /// Right-hand sides or reflectors; `n` where the routine has neither.
    pub k: i64,
    /// Real input scalars, widened to f64.
    pub reals: [f64; MAX_REALS],
    /// INTEGER input scalars that are no sizes.
    pub ints: [i64; MAX_INTS],
    /// The matrices.
    pub matrices: [RawMatrix; MAX_MATRICES],
    /// The vectors.
    pub vectors: [*mut c_void; MAX_VECTORS],
    /// INTEGER that returns 0 when the call is done.
    pub info: *mut c_void,
    /// As in [`RoutedCall`].
    pub host: *const HostTable,
    /// As in [`RoutedCall`].
    pub cpu: unsafe extern "C" fn(frame: *const c_void),
    /// The argument of `cpu`.
    pub frame: *const c_void,
}
