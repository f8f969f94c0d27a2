//! Stands in the place of the OpenBLAS inside a Python wheel.
//!
//! The original lies beside it under another name and is NEEDed, so that every name but the routed ones is the
//! original's own, found by the loader without us. A routed name is a stub like those of libblas.so.3; below the
//! threshold, and wherever the CPU is quicker, it jumps into the original, which so stays the CPU path: the
//! user's own OpenBLAS with its own threads.
//!
//! One file serves every wheel. `gpu-offload install --venv` keeps the entries of the right width of integers,
//! gives them the wheel's names, sets SONAME and NEEDED, and fills the block that `wheel-fit` describes.
//!
//! The original's addresses are asked of its own handle when the library is loaded. A lookup by name alone would
//! find our entries; and inside the original LAPACK calls LAPACK through the loader, which leads such calls here.
//!
//! Unsafe lives here because the loader deals in untyped addresses.

mod generated;

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use door::Shim;
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Written by the installation; read only through [`fit_block`].
#[used]
#[unsafe(link_section = ".gpu_offload_fit")]
static FIT: [u8; wheel_fit::BYTES] = wheel_fit::EMPTY;

/// This library, as the door and the engine know it.
static SHIM: Shim = Shim::new(
    &generated::THRESHOLDS,
    set_threshold,
    cpu_threads,
    cpu_config,
    // How soon the original's threads sleep is a variable that nobody else can reach.
    rest,
    || {},
)
.with_engine(engine_path);

/// The original's routines, in the order of [`generated::NAMES`].
static ORIGINALS: [AtomicPtr<c_void>; generated::NAMES.len()] =
    [const { AtomicPtr::new(missing as *mut c_void) }; generated::NAMES.len()];
static GET_NUM_THREADS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static GET_CONFIG: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Defines the jump to one of the original's routines.
macro_rules! original {
    ($name:ident, $slot:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "jmp qword ptr [rip + {slots} + {at}]",
                slots = sym crate::ORIGINALS,
                at = const 8 * $slot,
            )
        }
    };
}
pub(crate) use original;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = fill;

/// Finds the original's routines. The loader has run the original's constructor before this one.
extern "C" fn fill() {
    // A panic must not leave a constructor; the slots then say what is missing.
    let _ = std::panic::catch_unwind(find_originals);
}

fn find_originals() -> Option<()> {
    let block = fit_block();
    let fit = wheel_fit::decode(&block)?;
    let library = CString::new(fit.original).ok()?;
    // SAFETY: a NUL-terminated name. Nothing is loaded: the original is here, since this library NEEDs it by
    // that name.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let find = |name: &str| -> Option<*mut c_void> {
        let name = CString::new(format!("{}{name}{}", fit.prefix, fit.suffix)).ok()?;
        // SAFETY: a live handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    for (slot, name) in ORIGINALS.iter().zip(&generated::NAMES) {
        // What the original lacks has no entry here either.
        if let Some(address) = name.to_str().ok().and_then(find) {
            slot.store(address, Ordering::Relaxed);
        }
    }
    for (slot, name) in [
        (&GET_NUM_THREADS, "openblas_get_num_threads"),
        (&GET_CONFIG, "openblas_get_config"),
    ] {
        slot.store(
            find(name).unwrap_or(core::ptr::null_mut()),
            Ordering::Relaxed,
        );
    }
    // SAFETY: a live handle; the library stays, since this one needs it.
    unsafe { libc::dlclose(handle) };
    Some(())
}

/// Stands in the slots until the original's routines do: no right result exists without them.
extern "C" fn missing() -> ! {
    let text = b"gpu-offload: this library's original OpenBLAS was not found beside it; \
                 reinstall the Python package that it belongs to\n";
    // SAFETY: the buffer is valid for its length. The result does not matter.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// The block as it is in the file, which the compiler cannot know.
fn fit_block() -> [u8; wheel_fit::BYTES] {
    // SAFETY: a static of this type.
    unsafe { (&raw const FIT).read_volatile() }
}

/// The path that the installation recorded, if only they can have put the engine there who can write to this
/// library too, root, or the user of this process.
fn engine_path() -> Result<PathBuf, String> {
    let block = fit_block();
    let fit = wheel_fit::decode(&block).ok_or("this library was never installed")?;
    let engine = PathBuf::from(fit.engine);
    let own = door::file_of(engine_path as *const c_void)
        .ok_or("this library cannot find its own path")?
        .metadata()
        .map_err(|e| e.to_string())?;
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    let folder = engine.parent().unwrap_or(Path::new("/"));
    for path in [engine.as_path(), folder] {
        let found = path
            .metadata()
            .map_err(|e| format!("cannot find the engine {}: {e}", path.display()))?;
        if ![0, user, own.uid()].contains(&found.uid()) || found.mode() & 0o022 != 0 {
            return Err(format!(
                "the engine {} is not used: {} must belong to root, to you or to the owner of the Python \
                 environment, and nobody else may write to it",
                engine.display(),
                path.display()
            ));
        }
    }
    Ok(engine)
}

extern "C" fn set_threshold(op: u32, precision: u32, work: u64) {
    SHIM.set_threshold(op, precision, work);
}

extern "C" fn cpu_threads() -> i32 {
    let function = GET_NUM_THREADS.load(Ordering::Relaxed);
    if function.is_null() {
        return 1;
    }
    // SAFETY: the original's function of this name takes nothing and returns an int.
    let function =
        unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function) };
    function()
}

extern "C" fn rest(_begins: i32) {}

extern "C" fn cpu_config() -> *const c_char {
    let function = GET_CONFIG.load(Ordering::Relaxed);
    if function.is_null() {
        return c"OpenBLAS".as_ptr();
    }
    // SAFETY: the original's function of this name takes nothing and returns static text.
    let function =
        unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(function) };
    function()
}
