//! Finds and loads the engine, once in a process, when the first heavy call comes.
//!
//! Unsafe lives here because dlopen and dlsym deal in untyped pointers. A fork in the middle of the
//! loading leaves the child on the CPU: it never waits for a thread that it does not have.

use crate::Shim;
use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use engine_abi::{ABI_VERSION, ENGINE_ENTRY, ENGINE_SONAME, EngineEntry, EngineTable};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Nobody has asked yet.
const NOT_LOADED: i32 = 0;
/// [`ENGINE`] is set.
const LOADED: i32 = -1;
/// There is no usable engine in this process.
const FAILED: i32 = -2;

/// One of the above, or the process that is loading (a positive pid): one word, so that a fork at any
/// moment leaves the child with a state that it can judge.
static STATE: AtomicI32 = AtomicI32::new(NOT_LOADED);
static ENGINE: AtomicPtr<EngineTable> = AtomicPtr::new(core::ptr::null_mut());

/// The engine's table, loading the engine if nobody has; `None` where there is no usable engine.
pub(crate) fn engine(shim: &'static Shim) -> Option<&'static EngineTable> {
    loop {
        match STATE.load(Ordering::Acquire) {
            // SAFETY: LOADED is set after ENGINE, which points to a static of a library that is
            // never unloaded.
            LOADED => return unsafe { ENGINE.load(Ordering::Acquire).as_ref() },
            NOT_LOADED => {
                let won = STATE
                    .compare_exchange(NOT_LOADED, pid(), Ordering::AcqRel, Ordering::Acquire)
                    .is_ok();
                if won {
                    match load(shim) {
                        Ok(table) => {
                            ENGINE.store(table.cast_mut(), Ordering::Release);
                            STATE.store(LOADED, Ordering::Release);
                        }
                        Err(line) => {
                            STATE.store(FAILED, Ordering::Release);
                            report(&line);
                        }
                    }
                }
            }
            // Loading a small library takes about a millisecond.
            loader if loader == pid() => {
                std::thread::sleep(core::time::Duration::from_micros(50));
            }
            // FAILED, or a child forked while its parent was loading.
            _ => return None,
        }
    }
}

fn pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// One line on standard error; a closed stderr is no trouble.
fn report(line: &str) {
    let text = format!("gpu-offload: {line}; every call runs on the CPU\n");
    // A pipe whose reader is gone would answer with SIGPIPE and end the program.
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live pollfd; no waiting.
    let polled = unsafe { libc::poll(&raw mut stderr, 1, 0) };
    if polled < 1 || stderr.revents != libc::POLLOUT {
        return;
    }
    // SAFETY: the buffer is valid for its length. The result does not matter.
    unsafe { libc::write(2, text.as_ptr().cast::<c_void>(), text.len()) };
}

fn load(shim: &'static Shim) -> Result<*const EngineTable, String> {
    let (handle, what) = open(shim)?;
    // SAFETY: a live handle and a NUL-terminated name.
    let symbol = unsafe { libc::dlsym(handle, ENGINE_ENTRY.as_ptr().cast()) };
    if symbol.is_null() {
        return Err(format!(
            "{} is not an engine of ABI version {ABI_VERSION} (it lacks {})",
            what.display(),
            core::str::from_utf8(&ENGINE_ENTRY[..ENGINE_ENTRY.len() - 1]).unwrap_or_default()
        ));
    }
    // SAFETY: the versioned name stands for exactly this type.
    let entry = unsafe { core::mem::transmute::<*mut c_void, EngineEntry>(symbol) };
    // SAFETY: the host table is static in the shim.
    let table = unsafe { entry(&raw const shim.host) };
    // SAFETY: null, or a static table whose first two words exist in every version.
    let refused = table.is_null()
        || unsafe {
            (*table).abi_version != ABI_VERSION
                || (*table).struct_bytes as usize != size_of::<EngineTable>()
        };
    if refused {
        return Err(format!(
            "{} refuses ABI version {ABI_VERSION}",
            what.display()
        ));
    }
    Ok(table)
}

/// The engine that the process has already, or else the shim's own: the one beside this library's real path
/// unless the shim knows better.
fn open(shim: &Shim) -> Result<(*mut c_void, PathBuf), String> {
    let soname = CString::new(ENGINE_SONAME).map_err(|e| e.to_string())?;
    // SAFETY: a NUL-terminated name; RTLD_NOLOAD loads nothing.
    let loaded = unsafe {
        libc::dlopen(
            soname.as_ptr(),
            libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD,
        )
    };
    if !loaded.is_null() {
        return Ok((loaded, PathBuf::from(ENGINE_SONAME)));
    }
    let path = match shim.engine {
        Some(find) => find()?,
        None => own_directory()?.join(ENGINE_SONAME),
    };
    let handle = load_file(&path)
        .map_err(|why| format!("cannot load the engine {}: {why}", path.display()))?;
    Ok((handle, path))
}

/// Loads a library without offering its names to others.
///
/// # Errors
/// What the loader says.
pub fn load_file(path: &Path) -> Result<*mut c_void, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: a NUL-terminated path.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: dlerror gives null or a NUL-terminated text of this thread's last error.
    let why = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            String::new()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    Err(why)
}

/// The directory of the shared library that holds this code, symbolic links resolved.
fn own_directory() -> Result<PathBuf, String> {
    let path =
        file_of(own_directory as *const c_void).ok_or("cannot find this library's own path")?;
    let real = path
        .canonicalize()
        .map_err(|e| format!("cannot resolve {}: {e}", path.display()))?;
    real.parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("{} has no directory", real.display()))
}

/// The file of the shared library that holds `code`, as the loader opened it; `None` for an address of none.
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "dladdr compares the address and reads nothing there"
)]
pub fn file_of(code: *const c_void) -> Option<PathBuf> {
    // SAFETY: Dl_info is plain data, filled by dladdr.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked for; the result is checked.
    let found = unsafe { libc::dladdr(code, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own NUL-terminated string, alive while the library is.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
