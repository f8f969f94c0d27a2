//! A simulated `libcublas.so.13` on the simulated driver, with the arithmetic of an OpenBLAS of its own,
//! linked statically and hidden, never the one under test.
//!
//! What it keeps of the real one: arguments are checked, operands must be live device memory over their
//! whole span, host scalars are read at the call and device scalars by the stream, work runs later on the
//! handle's stream, and a compute type that is not pedantic lets the environment lower the precision.
#![allow(non_snake_case)]
#![allow(clippy::missing_safety_doc)] // The functions are cuBLAS's; their contracts are cuBLAS's.

use core::ffi::{CStr, c_char, c_int, c_void};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

// Links the static archive that pkg-config names.
use openblas_src as _;

/// Return code (`cublasStatus_t`).
pub type Code = u32;

const SUCCESS: Code = 0;
const NOT_INITIALIZED: Code = 1;
const INVALID_VALUE: Code = 7;
const EXECUTION_FAILED: Code = 13;
const NOT_SUPPORTED: Code = 15;
/// The driver's sticky error for a kernel that follows a pointer to nowhere.
const ILLEGAL_ADDRESS: u32 = 700;
/// The driver's code for a call without a current context.
const INVALID_CONTEXT: u32 = 201;

// The archive was built against a newer glibc; this is its only name that older ones lack.
core::arch::global_asm!(
    ".globl __isoc23_strtol",
    ".hidden __isoc23_strtol",
    "__isoc23_strtol: jmp strtol@PLT",
);

type Gemm = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_void,
    *const c_void,
    *const c_int,
    *const c_void,
    *const c_int,
    *const c_void,
    *mut c_void,
    *const c_int,
    usize,
    usize,
);

unsafe extern "C" {
    fn openblas_set_num_threads(threads: c_int);
}

macro_rules! gemms {
    ($($name:ident),*) => {
        unsafe extern "C" {
            $(fn $name(
                transa: *const c_char, transb: *const c_char,
                m: *const c_int, n: *const c_int, k: *const c_int,
                alpha: *const c_void, a: *const c_void, lda: *const c_int,
                b: *const c_void, ldb: *const c_int,
                beta: *const c_void, c: *mut c_void, ldc: *const c_int,
                len_a: usize, len_b: usize,
            );)*
        }
    };
}
gemms!(sgemm_, dgemm_, cgemm_, zgemm_);

type EnterHook = unsafe extern "C" fn(*const c_char) -> u32;
type PushHook = unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void), *mut c_void) -> u32;
type StickHook = unsafe extern "C" fn(u32) -> u32;
type HostAddressHook = unsafe extern "C" fn(u64, usize) -> *mut c_void;
type LiveHook = unsafe extern "C" fn(u32, i64) -> i64;

/// The driver's private functions, of the libcuda.so.1 that this process has loaded.
struct DriverHooks {
    enter: EnterHook,
    push: PushHook,
    stick: StickHook,
    host_address: HostAddressHook,
    live: LiveHook,
}

static DRIVER: LazyLock<Option<DriverHooks>> = LazyLock::new(|| {
    // SAFETY: RTLD_NOLOAD loads nothing; each name has the type that sim-cuda defines it with.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            let symbol = libc::dlsym(library, name.as_ptr());
            (!symbol.is_null()).then_some(symbol)
        };
        openblas_set_num_threads(1);
        Some(DriverHooks {
            enter: core::mem::transmute::<*mut c_void, EnterHook>(find(c"sim_cuda_enter")?),
            push: core::mem::transmute::<*mut c_void, PushHook>(find(c"sim_cuda_push")?),
            stick: core::mem::transmute::<*mut c_void, StickHook>(find(c"sim_cuda_stick")?),
            host_address: core::mem::transmute::<*mut c_void, HostAddressHook>(find(
                c"sim_cuda_host_address",
            )?),
            live: core::mem::transmute::<*mut c_void, LiveHook>(find(c"sim_cuda_live")?),
        })
    }
});

fn driver() -> Result<&'static DriverHooks, Code> {
    DRIVER.as_ref().ok_or(NOT_INITIALIZED)
}

/// Counts the call and turns the driver's trouble into a code of this library.
fn enter(name: &'static CStr) -> Result<(), Code> {
    // SAFETY: a static name.
    match unsafe { (driver()?.enter)(name.as_ptr()) } {
        0 => Ok(()),
        INVALID_CONTEXT | 3 if name == c"cublasCreate_v2" => Err(NOT_INITIALIZED),
        // A fault plan's code for this library is returned as it is; a driver's sticky error is not.
        code if code < 100 => Err(code),
        _ => Err(EXECUTION_FAILED),
    }
}

#[derive(Clone, Copy)]
struct Handle {
    stream: usize,
    device_pointers: bool,
    math_mode: u32,
}

static NEXT: AtomicUsize = AtomicUsize::new(1);
static HANDLES: Mutex<BTreeMap<usize, Handle>> = Mutex::new(BTreeMap::new());

fn handle(pointer: *mut c_void) -> Result<Handle, Code> {
    HANDLES
        .lock()
        .get(&pointer.addr())
        .copied()
        .ok_or(NOT_INITIALIZED)
}

fn change(pointer: *mut c_void, change: impl FnOnce(&mut Handle)) -> Result<(), Code> {
    change_in(&mut HANDLES.lock(), pointer, change)
}

fn change_in(
    handles: &mut BTreeMap<usize, Handle>,
    pointer: *mut c_void,
    change: impl FnOnce(&mut Handle),
) -> Result<(), Code> {
    change(handles.get_mut(&pointer.addr()).ok_or(NOT_INITIALIZED)?);
    Ok(())
}

fn code(result: Result<(), Code>) -> Code {
    match result {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

macro_rules! exports {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of cuBLAS.")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> Code {
                let run = || -> Result<(), Code> { $body };
                code(run())
            }
        )*
    };
}

exports! {
    cublasCreate_v2(to: *mut *mut c_void) {
        enter(c"cublasCreate_v2")?;
        let number = (1 << 58) | NEXT.fetch_add(1, Ordering::Relaxed) << 4;
        HANDLES.lock().insert(number, Handle { stream: 0, device_pointers: false, math_mode: 0 });
        // SAFETY: a hook of the driver; the caller's pointer.
        unsafe {
            (driver()?.live)(4, 1);
            to.write(number as *mut c_void);
        }
        Ok(())
    }
    cublasDestroy_v2(pointer: *mut c_void) {
        HANDLES.lock().remove(&pointer.addr()).ok_or(NOT_INITIALIZED)?;
        // SAFETY: a hook of the driver.
        unsafe { (driver()?.live)(4, -1) };
        Ok(())
    }
    cublasGetVersion_v2(pointer: *mut c_void, version: *mut c_int) {
        enter(c"cublasGetVersion_v2")?;
        handle(pointer)?;
        // SAFETY: the caller's pointer.
        unsafe { version.write(130_100) };
        Ok(())
    }
    cublasSetStream_v2(pointer: *mut c_void, stream: *mut c_void) {
        enter(c"cublasSetStream_v2")?;
        change(pointer, |h| h.stream = stream.addr())
    }
    cublasSetWorkspace_v2(pointer: *mut c_void, workspace: *mut c_void, bytes: usize) {
        enter(c"cublasSetWorkspace_v2")?;
        handle(pointer)?;
        // cuBLAS wants 256-byte alignment and device memory.
        let device = workspace.addr() as u64;
        // SAFETY: a hook of the driver.
        let found = unsafe { (driver()?.host_address)(device, bytes) };
        if bytes > 0 && (found.is_null() || !device.is_multiple_of(256)) {
            return Err(INVALID_VALUE);
        }
        Ok(())
    }
    cublasSetPointerMode_v2(pointer: *mut c_void, mode: u32) {
        enter(c"cublasSetPointerMode_v2")?;
        if mode > 1 {
            return Err(INVALID_VALUE);
        }
        change(pointer, |h| h.device_pointers = mode == 1)
    }
    cublasSetMathMode(pointer: *mut c_void, mode: u32) {
        enter(c"cublasSetMathMode")?;
        change(pointer, |h| h.math_mode = mode)
    }
    cublasSetAtomicsMode(pointer: *mut c_void, mode: u32) {
        enter(c"cublasSetAtomicsMode")?;
        if mode > 1 {
            return Err(INVALID_VALUE);
        }
        handle(pointer).map(|_| ())
    }
    cublasGemmEx_64(
        pointer: *mut c_void,
        transa: u32,
        transb: u32,
        m: i64,
        n: i64,
        k: i64,
        alpha: *const c_void,
        a: *const c_void,
        a_type: u32,
        lda: i64,
        b: *const c_void,
        b_type: u32,
        ldb: i64,
        beta: *const c_void,
        c: *mut c_void,
        c_type: u32,
        ldc: i64,
        compute: u32,
        _algorithm: i32,
    ) {
        enter(c"cublasGemmEx_64")?;
        let handle = handle(pointer)?;
        let kind = Kind::of(a_type).ok_or(NOT_SUPPORTED)?;
        if a_type != b_type || a_type != c_type {
            return Err(NOT_SUPPORTED);
        }
        let pedantic = kind.is_pedantic(compute).ok_or(NOT_SUPPORTED)?;
        let letter = |op: u32| match op {
            0 => Ok(b'N'),
            1 => Ok(b'T'),
            2 => Ok(b'C'),
            _ => Err(INVALID_VALUE),
        };
        let (transa, transb) = (letter(transa)?, letter(transb)?);
        let (rows_a, cols_a) = if transa == b'N' { (m, k) } else { (k, m) };
        let (rows_b, cols_b) = if transb == b'N' { (k, n) } else { (n, k) };
        if m < 0 || n < 0 || k < 0 || lda < rows_a.max(1) || ldb < rows_b.max(1) || ldc < m.max(1) {
            return Err(INVALID_VALUE);
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        let span = |rows: i64, cols: i64, ld: i64| {
            if rows == 0 || cols == 0 { 0 } else { ((cols - 1) * ld + rows) as usize * kind.bytes() }
        };
        let driver = driver()?;
        let find = |pointer: *const c_void, bytes: usize| -> Result<usize, Code> {
            if bytes == 0 {
                return Ok(0);
            }
            // SAFETY: hooks of the driver.
            unsafe {
                let host = (driver.host_address)(pointer.addr() as u64, bytes);
                if host.is_null() {
                    // The real kernel would run and fault: every later call fails.
                    (driver.stick)(ILLEGAL_ADDRESS);
                    return Err(EXECUTION_FAILED);
                }
                Ok(host.addr())
            }
        };
        let scalar = |pointer: *const c_void| -> Result<Scalar, Code> {
            if handle.device_pointers {
                Ok(Scalar::OnDevice(find(pointer, kind.bytes())?))
            } else {
                let mut value = [0; 16];
                // SAFETY: the caller's host scalar of this type.
                unsafe {
                    core::ptr::copy_nonoverlapping(pointer.cast(), value.as_mut_ptr(), kind.bytes());
                }
                Ok(Scalar::Value(value))
            }
        };
        let lowered = !pedantic && kind.is_single() && environment_lowers(handle.math_mode);
        let work = Box::new(Work {
            kind,
            trans: [transa, transb],
            m,
            n,
            k,
            ld: [lda, ldb, ldc],
            alpha: scalar(alpha)?,
            beta: scalar(beta)?,
            a: find(a, span(rows_a, cols_a, lda))?,
            b: find(b, span(rows_b, cols_b, ldb))?,
            c: find(c, span(m, n, ldc))?,
            lowered: lowered.then(|| [span(rows_a, cols_a, lda), span(rows_b, cols_b, ldb)]),
        });
        // SAFETY: a hook of the driver; `run` takes the box back.
        let pushed = unsafe {
            (driver.push)(handle.stream as *mut c_void, run, Box::into_raw(work).cast())
        };
        if pushed == 0 { Ok(()) } else { Err(EXECUTION_FAILED) }
    }
}

/// What the real library does with float32 when asked from outside: TF32 by the math mode or the
/// override, or emulation.
fn environment_lowers(math_mode: u32) -> bool {
    let set = |name: &str| std::env::var(name).is_ok_and(|v| v != "0");
    math_mode == 3 || set("NVIDIA_TF32_OVERRIDE") || set("CUBLAS_EMULATE_SINGLE_PRECISION")
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    S,
    D,
    C,
    Z,
}

impl Kind {
    /// From cudaDataType.
    fn of(data_type: u32) -> Option<Self> {
        Some(match data_type {
            0 => Kind::S,
            1 => Kind::D,
            4 => Kind::C,
            5 => Kind::Z,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Kind::S => 4,
            Kind::D | Kind::C => 8,
            Kind::Z => 16,
        }
    }

    fn is_single(self) -> bool {
        matches!(self, Kind::S | Kind::C)
    }

    /// Whether a cublasComputeType_t is this type's pedantic one; `None` for a type that does not fit.
    fn is_pedantic(self, compute: u32) -> Option<bool> {
        match (self.is_single(), compute) {
            (true, 69) | (false, 71) => Some(true),
            (true, 68 | 74 | 75 | 77) | (false, 70) => Some(false),
            _ => None,
        }
    }
}

enum Scalar {
    Value([u8; 16]),
    OnDevice(usize),
}

impl Scalar {
    fn pointer(&self) -> *const c_void {
        match self {
            Scalar::Value(bytes) => bytes.as_ptr().cast(),
            Scalar::OnDevice(address) => *address as *const c_void,
        }
    }
}

struct Work {
    kind: Kind,
    trans: [u8; 2],
    m: i64,
    n: i64,
    k: i64,
    ld: [i64; 3],
    alpha: Scalar,
    beta: Scalar,
    a: usize,
    b: usize,
    c: usize,
    /// Spans of A and B in bytes, when their precision is lowered.
    lowered: Option<[usize; 2]>,
}

extern "C" fn run(work: *mut c_void) {
    // SAFETY: the box that cublasGemmEx_64 gave away.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    let gemm: Gemm = match work.kind {
        Kind::S => sgemm_,
        Kind::D => dgemm_,
        Kind::C => cgemm_,
        Kind::Z => zgemm_,
    };
    let lowered = work
        .lowered
        .map(|[a, b]| [tf32(work.a, a), tf32(work.b, b)]);
    let (a, b) = match &lowered {
        Some([a, b]) => (a.as_ptr().cast(), b.as_ptr().cast()),
        None => (work.a as *const c_void, work.b as *const c_void),
    };
    // The simulation's OpenBLAS has 32-bit integers; its device memory is too small for more.
    let int = |value: i64| c_int::try_from(value).unwrap_or(c_int::MAX);
    let (m, n, k) = (int(work.m), int(work.n), int(work.k));
    let [lda, ldb, ldc] = work.ld.map(int);
    // SAFETY: the spans were live when the call was made and freeing them waits for this stream.
    unsafe {
        gemm(
            (&raw const work.trans[0]).cast(),
            (&raw const work.trans[1]).cast(),
            &raw const m,
            &raw const n,
            &raw const k,
            work.alpha.pointer(),
            a,
            &raw const lda,
            b,
            &raw const ldb,
            work.beta.pointer(),
            work.c as *mut c_void,
            &raw const ldc,
            1,
            1,
        );
    }
}

/// A copy of floats with TF32's 10 mantissa bits.
fn tf32(address: usize, bytes: usize) -> Vec<f32> {
    // SAFETY: a live span of floats (see `run`).
    let floats = unsafe { core::slice::from_raw_parts(address as *const f32, bytes / 4) };
    floats
        .iter()
        .map(|f| f32::from_bits(f.to_bits() & !0x1fff))
        .collect()
}
