//! The few questions that the engine asks the C library itself.
//!
//! Unsafe lives here because each of them is a C function; every wrapper is safe to call. No policy.

use core::ffi::{CStr, c_void};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

unsafe extern "C" {
    // glibc's; not in the libc crate. Answers null in a setuid program.
    fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
}

/// The calling process.
pub fn pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// The user whose rights the process has.
pub fn effective_user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// True in a program that runs with more rights than its caller.
pub fn is_setuid() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Logical CPUs of the machine, whatever the process may use of them; at least 1.
pub fn machine_cpus() -> u32 {
    // SAFETY: no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or(1).max(1)
}

/// A variable as the C library sees it now; `None` when unset, and always in a setuid program.
pub fn variable(name: &str) -> Option<OsString> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is NUL-terminated. The value is copied at once; a host that calls setenv from
    // another thread meanwhile breaks every reader of the environment alike.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| OsString::from_vec(CStr::from_ptr(value).to_bytes().to_vec()))
    }
}

/// Writes one line on standard error. A closed stderr is no trouble.
pub fn complain(line: &str) {
    write_stderr(format!("gpu-offload: {line}\n").as_bytes());
}

/// Writes bytes on standard error, in one piece where the system allows it.
pub fn write_stderr(bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the buffer is valid for its length.
        let written = unsafe { libc::write(2, rest.as_ptr().cast::<c_void>(), rest.len()) };
        match usize::try_from(written) {
            Ok(n @ 1..) => rest = &rest[n.min(rest.len())..],
            _ => return,
        }
    }
}

/// Has `function` called when the process ends by `exit` or by returning from main. Registered in an
/// object that is never unloaded (`-z nodelete`), so the function is always there.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: a function of the C ABI without arguments. A full table only loses the summary.
    unsafe { libc::atexit(function) };
}

/// Spawns a thread that receives none of the process's signals: they stay the host's.
pub fn spawn_without_signals(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    // SAFETY: sigset_t is plain data; sigfillset fills it.
    let mut all: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: both sets are live locals. The new thread inherits the mask; ours is restored below.
    let blocked = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body);
    if blocked {
        // SAFETY: `before` was filled by the call above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut())
        };
    }
    spawned.map(drop)
}

/// The text of a C string that lives for ever; empty for null.
///
/// # Safety
/// `text` is null or NUL-terminated.
pub unsafe fn text(text: *const libc::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for the terminator.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    OsStr::from_bytes(bytes).to_string_lossy().into_owned()
}
