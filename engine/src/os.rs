//! The few questions that the engine asks the C library itself.
//!
//! Unsafe lives here because each of them is a C function; every wrapper is safe to call. No policy.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

unsafe extern "C" {
    // glibc's; not in the libc crate. Answers null in a setuid program.
    fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
}

/// The calling process.
pub fn pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// Forks between the process that loaded this library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has every forked child count itself. The handler stays valid: this library is never unloaded.
pub fn watch_forks() {
    // SAFETY: a handler of the C ABI that only adds to an atomic. A full table leaves the pid to tell.
    unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
}

/// What distinguishes this process from its ancestors: the pid alone may come back in a child that has a
/// pid namespace of its own, or after 4 million forks; a child made by a raw system call runs no
/// handler, but has another pid.
pub fn identity() -> (i32, u32) {
    (pid(), FORKS.load(Ordering::Relaxed))
}

/// The user whose rights the process has.
pub fn effective_user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// Whether the effective user may write in a directory; not on a file system that is read-only.
pub fn is_writable(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is NUL-terminated.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
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

/// Runs `write` with SIGPIPE held back: a reader that has gone away must not end the host program.
pub fn without_sigpipe<T>(write: impl FnOnce() -> T) -> T {
    // SAFETY: sigset_t is plain data, filled by the functions below; all pointers are to live locals.
    let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) = unsafe {
        (
            core::mem::zeroed(),
            core::mem::zeroed(),
            core::mem::zeroed(),
        )
    };
    // SAFETY: as above.
    let was_pending = unsafe {
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    };
    let result = write();
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: as above. A SIGPIPE that the host had pending before is not ours to take.
    unsafe {
        if !was_pending {
            libc::sigtimedwait(&raw const pipe, core::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
    result
}

/// Writes bytes on standard error, in one piece where the system allows it.
pub fn write_stderr(bytes: &[u8]) {
    without_sigpipe(|| write_all_stderr(bytes));
}

fn write_all_stderr(bytes: &[u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_known_even_if_its_pid_comes_back() {
        watch_forks();
        let (_, before) = identity();
        // SAFETY: the child only reads an atomic and leaves by _exit.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(identity().1 == before));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0, "the child takes itself for its parent");
        }
    }
}
