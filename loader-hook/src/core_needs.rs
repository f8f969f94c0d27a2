//! What compiled core code asks of a C library and of the standard library, which are not here.
//!
//! Unsafe lives here because these are C's functions on bare addresses.

use core::ffi::{c_char, c_int, c_void};

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo) -> ! {
    crate::system::exit()
}

/// Named by core's tables for unwinding; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// C's function.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut c_void, byte: c_int, count: usize) -> *mut c_void {
    // SAFETY: the caller's promise: `count` bytes from `to`.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") count => _,
            inout("rdi") to => _,
            in("al") byte as u8,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// C's function.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void {
    // SAFETY: the caller's promise: `count` bytes at both, which do not overlap.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// C's function.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const c_char) -> usize {
    let mut length = 0;
    // SAFETY: the caller's promise: a string, of which no byte before its end is 0.
    while unsafe { text.add(length).read() } != 0 {
        length += 1;
    }
    length
}
