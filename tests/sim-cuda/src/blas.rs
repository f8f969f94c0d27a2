//! The simulated cuBLAS, computed by OpenBLAS; libcublasLt and libcusolver say their version only.

use crate::driver::{find_stream, queued, runtime_current};
use crate::state::{self, BLAS, Pass};
use crate::stream::Task;
use core::ffi::{c_char, c_int, c_void};

const BAD_VALUE: u32 = 7;
const NOT_SUPPORTED: u32 = 15;
const NOT_INITIALIZED: u32 = 1;

unsafe extern "C" {
    fn sgemm_(
        ta: *const c_char,
        tb: *const c_char,
        m: *const i32,
        n: *const i32,
        k: *const i32,
        alpha: *const c_void,
        a: *const c_void,
        lda: *const i32,
        b: *const c_void,
        ldb: *const i32,
        beta: *const c_void,
        c: *mut c_void,
        ldc: *const i32,
    );
    fn dgemm_(
        ta: *const c_char,
        tb: *const c_char,
        m: *const i32,
        n: *const i32,
        k: *const i32,
        alpha: *const c_void,
        a: *const c_void,
        lda: *const i32,
        b: *const c_void,
        ldb: *const i32,
        beta: *const c_void,
        c: *mut c_void,
        ldc: *const i32,
    );
    fn cgemm_(
        ta: *const c_char,
        tb: *const c_char,
        m: *const i32,
        n: *const i32,
        k: *const i32,
        alpha: *const c_void,
        a: *const c_void,
        lda: *const i32,
        b: *const c_void,
        ldb: *const i32,
        beta: *const c_void,
        c: *mut c_void,
        ldc: *const i32,
    );
    fn zgemm_(
        ta: *const c_char,
        tb: *const c_char,
        m: *const i32,
        n: *const i32,
        k: *const i32,
        alpha: *const c_void,
        a: *const c_void,
        lda: *const i32,
        b: *const c_void,
        ldb: *const i32,
        beta: *const c_void,
        c: *mut c_void,
        ldc: *const i32,
    );
    fn openblas_set_num_threads(threads: c_int);
}

fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// Runs a body that may leave early.
fn run(body: impl FnOnce() -> Result<(), u32>) -> Result<(), u32> {
    body()
}

/// Passes the gate with a live handle; the runtime's rule about contexts applies.
fn gate(function: &str, handle: usize) -> Result<Pass, u32> {
    let mut pass = state::gate(function, &BLAS, true)?;
    runtime_current(&mut pass.state);
    if pass.state.blas.contains_key(&handle) {
        Ok(pass)
    } else {
        Err(NOT_INITIALIZED)
    }
}

fn with(pass: &mut Pass, handle: usize) -> Result<&mut state::Blas, u32> {
    pass.state.blas.get_mut(&handle).ok_or(NOT_INITIALIZED)
}

macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                code(run(|| $body))
            }
        )*
    };
}

entries! {
    fn cublasCreate_v2(handle: *mut usize) {
        let mut pass = state::gate("cublasCreate_v2", &BLAS, true)?;
        if handle.is_null() {
            return Err(BAD_VALUE);
        }
        runtime_current(&mut pass.state);
        // SAFETY: OpenBLAS's own setter. The simulated device has no threads of OpenBLAS's: the tests
        // measure order, not speed.
        unsafe { openblas_set_num_threads(1) };
        let made = pass.state.handle();
        let blas = state::Blas { stream: 0, workspace: (0, 0), device_pointers: false };
        pass.state.blas.insert(made, blas);
        // SAFETY: the API's contract: a valid pointer (null was refused).
        unsafe { handle.write(made) };
        Ok(())
    }

    fn cublasDestroy_v2(handle: usize) {
        let mut pass = gate("cublasDestroy_v2", handle)?;
        pass.state.blas.remove(&handle);
        Ok(())
    }

    fn cublasGetVersion_v2(handle: usize, version: *mut c_int) {
        let _pass = gate("cublasGetVersion_v2", handle)?;
        if version.is_null() {
            return Err(BAD_VALUE);
        }
        // SAFETY: as above.
        unsafe { version.write(130_100) };
        Ok(())
    }

    fn cublasSetStream_v2(handle: usize, stream: usize) {
        let mut pass = gate("cublasSetStream_v2", handle)?;
        let blas = with(&mut pass, handle)?;
        blas.stream = stream;
        // As documented: the workspace set by the user is lost.
        blas.workspace = (0, 0);
        Ok(())
    }

    fn cublasSetWorkspace_v2(handle: usize, address: u64, bytes: usize) {
        let mut pass = gate("cublasSetWorkspace_v2", handle)?;
        if !address.is_multiple_of(256) {
            return Err(BAD_VALUE);
        }
        with(&mut pass, handle)?.workspace = (address, bytes as u64);
        Ok(())
    }

    fn cublasSetPointerMode_v2(handle: usize, mode: u32) {
        let mut pass = gate("cublasSetPointerMode_v2", handle)?;
        if mode > 1 {
            return Err(BAD_VALUE);
        }
        with(&mut pass, handle)?.device_pointers = mode == 1;
        Ok(())
    }

    fn cublasSetMathMode(handle: usize, mode: u32) {
        let _pass = gate("cublasSetMathMode", handle)?;
        // Default, tensor op, pedantic, TF32: the arithmetic here is always the type's own.
        if mode > 3 { Err(BAD_VALUE) } else { Ok(()) }
    }

    fn cublasSetAtomicsMode(handle: usize, mode: u32) {
        let _pass = gate("cublasSetAtomicsMode", handle)?;
        if mode > 1 { Err(BAD_VALUE) } else { Ok(()) }
    }

    fn cublasGemmEx_64(
        handle: usize, transa: u32, transb: u32, m: i64, n: i64, k: i64,
        alpha: *const c_void, a: u64, a_type: u32, lda: i64, b: u64, b_type: u32, ldb: i64,
        beta: *const c_void, c: u64, c_type: u32, ldc: i64, compute: u32, algorithm: c_int,
    ) {
        let mut pass = gate("cublasGemmEx_64", handle)?;
        let blas = with(&mut pass, handle)?;
        let (stream, workspace, device_pointers) =
            (blas.stream, blas.workspace, blas.device_pointers);
        let (gemm, elem_bytes, real): (Gemm, u64, bool) = match (a_type, compute) {
            (0, 68 | 69) => (sgemm_, 4, true),
            (4, 68 | 69) => (cgemm_, 8, false),
            (1, 70 | 71) => (dgemm_, 8, true),
            (5, 70 | 71) => (zgemm_, 16, false),
            _ => return Err(NOT_SUPPORTED),
        };
        if a_type != b_type || a_type != c_type || algorithm != -1 {
            return Err(NOT_SUPPORTED);
        }
        let letter = |trans: u32| -> Result<u8, u32> {
            match (trans, real) {
                (0, _) => Ok(b'N'),
                (1, _) | (2, true) => Ok(b'T'),
                (2, false) => Ok(b'C'),
                _ => Err(BAD_VALUE),
            }
        };
        let (ta, tb) = (letter(transa)?, letter(transb)?);
        let (a_rows, a_cols) = if ta == b'N' { (m, k) } else { (k, m) };
        let (b_rows, b_cols) = if tb == b'N' { (k, n) } else { (n, k) };
        if m < 0 || n < 0 || k < 0 || lda < a_rows.max(1) || ldb < b_rows.max(1) || ldc < m.max(1) {
            return Err(BAD_VALUE);
        }
        if alpha.is_null() || beta.is_null() {
            return Err(BAD_VALUE);
        }
        // cuBLAS 13.1 loads host scalars with aligned instructions and crashes on any other address.
        let aligned = |scalar: *const c_void| (scalar.addr() as u64).is_multiple_of(elem_bytes);
        let misaligned = !aligned(alpha) || !aligned(beta);
        if !device_pointers && misaligned {
            return Err(BAD_VALUE);
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        let narrow = |x: i64| i32::try_from(x).map_err(|_| NOT_SUPPORTED);
        let sizes = [narrow(m)?, narrow(n)?, narrow(k)?, narrow(lda)?, narrow(ldb)?, narrow(ldc)?];
        let span = |rows: i64, cols: i64, ld: i64| {
            if cols == 0 { 0 } else { ((cols - 1) * ld + rows) as u64 * elem_bytes }
        };
        let spans = [span(a_rows, a_cols, lda), span(b_rows, b_cols, ldb), span(m, n, ldc)];
        let scalar = move |from: *const c_void| -> [u8; 16] {
            let mut bytes = [0; 16];
            // SAFETY: host pointer mode: the caller's scalar of the compute type, read during the call.
            unsafe {
                let from = from.cast::<u8>();
                core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), elem_bytes as usize);
            }
            bytes
        };
        let scalars = if device_pointers { None } else { Some((scalar(alpha), scalar(beta))) };
        let (alpha, beta) = (alpha.addr() as u64, beta.addr() as u64);
        let work = move || -> Result<(), String> {
            let (pa, pb, pc, scalars) = {
                let state = state::lock();
                let find = |address: u64, bytes: u64, what: &str| {
                    let found = state.arena.resolve(address, bytes);
                    found.map(|p| p.expose_provenance())
                        .ok_or_else(|| format!("gemm met {what} outside of live memory"))
                };
                if workspace.1 > 0 {
                    find(workspace.0, workspace.1, "a workspace")?;
                }
                let scalars = match scalars {
                    Some(values) => values,
                    None => {
                        let read = |address: u64| -> Result<[u8; 16], String> {
                            let at = find(address, elem_bytes, "a scalar")?;
                            Ok(scalar(core::ptr::with_exposed_provenance(at)))
                        };
                        (read(alpha)?, read(beta)?)
                    }
                };
                let pa = find(a, spans[0], "A")?;
                (pa, find(b, spans[1], "B")?, find(c, spans[2], "C")?, scalars)
            };
            let p = core::ptr::with_exposed_provenance_mut::<c_void>;
            let (ta, tb) = (ta as c_char, tb as c_char);
            let [m, n, k, lda, ldb, ldc] = &sizes;
            // SAFETY: the operands lie in live device memory with these sizes; the arena is never
            // unmapped; the scalars are of the precision's type.
            unsafe {
                gemm(
                    &raw const ta, &raw const tb, m, n, k, scalars.0.as_ptr().cast(), p(pa), lda,
                    p(pb), ldb, scalars.1.as_ptr().cast(), p(pc), ldc,
                );
            }
            Ok(())
        };
        let stream = find_stream(&pass.state, stream).map_err(|_| NOT_SUPPORTED)?;
        stream.push(queued(pass.fault, Task::Run(Box::new(work))));
        Ok(())
    }

    fn cusolverGetVersion(version: *mut c_int) {
        if version.is_null() {
            return Err(BAD_VALUE);
        }
        // SAFETY: as above.
        unsafe { version.write(12_000) };
        Ok(())
    }
}

/// libcublasLt's version.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    130_100
}

type Gemm = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const i32,
    *const i32,
    *const i32,
    *const c_void,
    *const c_void,
    *const i32,
    *const c_void,
    *const i32,
    *const c_void,
    *mut c_void,
    *const i32,
);
