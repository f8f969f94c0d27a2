//! OpenBLAS's destructor, run when the library is unloaded and not when the process ends.
//!
//! At the end of a process other threads may be inside a call: the destructor would wait for workers that
//! never end, or unmap buffers that are in use. The kernel ends threads and mappings anyway. A program that
//! unloads the library has no call in flight, and there the destructor leaves nothing behind.
//!
//! Unsafe lives here because destructors and exit handlers are the C library's business.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    /// OpenBLAS's destructor, which the prepared archive does not register by itself.
    #[cfg(not(test))]
    fn gotoblas_quit();
    /// The C++ ABI's registration of exit handlers; a `dso` that is no library's handle runs the handler when
    /// the process exits and not when a library is unloaded.
    fn __cxa_atexit(
        handler: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        dso: *mut c_void,
    ) -> c_int;
}

/// Not zero once the process is exiting. On the heap and never freed: the handler outlives this library.
static EXITING: AtomicPtr<libc::time_t> = AtomicPtr::new(core::ptr::null_mut());

/// Arranges that the exit is noticed. Called at the first routed call of either library, since then `exit` runs the
/// handler before the libraries' destructors (handlers run in reverse order, and the loader's was there first).
pub(crate) fn notice() {
    if !EXITING.load(Ordering::Acquire).is_null() {
        return;
    }
    let cell = Box::into_raw(Box::new(0));
    let ours = EXITING
        .compare_exchange(
            core::ptr::null_mut(),
            cell,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .is_ok();
    if !ours {
        // SAFETY: never published.
        drop(unsafe { Box::from_raw(cell) });
        return;
    }
    // The handler must not be code of this library, which may be gone by then. `time` of the C library
    // writes a number that is not zero to its argument, which is all that is needed.
    // SAFETY: a function of one pointer argument, called with a pointer to a leaked time_t; the return
    // value, in a register, is ignored.
    unsafe {
        let handler = core::mem::transmute::<
            unsafe extern "C" fn(*mut libc::time_t) -> libc::time_t,
            unsafe extern "C" fn(*mut c_void),
        >(libc::time);
        // The cell is nobody's handle. Null would be none either, but ThreadSanitizer takes that for `atexit`
        // and calls without the argument: a host built with it crashed at exit.
        __cxa_atexit(handler, cell.cast(), cell.cast());
    }
}

// The unit tests' program is not linked to OpenBLAS.
#[cfg(not(test))]
extern "C" fn unload() {
    let cell = EXITING.load(Ordering::Acquire);
    // SAFETY: null, or a leaked cell.
    let exiting = !cell.is_null() && unsafe { cell.read_volatile() } != 0;
    if !exiting {
        // SAFETY: this is the library's destructor, where the archive would have it.
        unsafe { gotoblas_quit() };
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
