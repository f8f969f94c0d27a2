//! A call that crashes takes the process with it; this says which calls were running. What happens
//! in a signal handler is async-signal-safe: atomics, numbers written into a buffer, write(2).

use std::sync::atomic::{AtomicU64, Ordering};

/// The most threads that the program starts.
pub const MOST_THREADS: usize = 256;
const NONE: u64 = u64::MAX;
/// The call that each thread is in.
static RUNNING: [AtomicU64; MOST_THREADS] = [const { AtomicU64::new(NONE) }; MOST_THREADS];

/// Notes the call that a thread is about to make, or that it makes none.
pub fn running(thread: usize, call: Option<u64>) {
    RUNNING[thread].store(call.unwrap_or(NONE), Ordering::Relaxed);
}

/// From now on, a crash names the running calls on standard error before it ends the process as usual.
pub fn install() {
    for signal in [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGABRT,
    ] {
        // SAFETY: an all-zero sigaction is valid; the handler is set next.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = report as extern "C" fn(libc::c_int) as usize;
        // The default action is back when the handler returns and the instruction faults again.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK;
        // SAFETY: the handler is async-signal-safe and has the signature for these flags.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

extern "C" fn report(signal: libc::c_int) {
    write(b"signal ");
    write_number(signal.unsigned_abs().into());
    write(b" during one of the calls (repeat each with --only):");
    for call in &RUNNING {
        let call = call.load(Ordering::Relaxed);
        if call != NONE {
            write(b" ");
            write_number(call);
        }
    }
    write(b"\n");
}

fn write(bytes: &[u8]) {
    // SAFETY: the buffer is valid for its length; write(2) is async-signal-safe.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

fn write_number(mut number: u64) {
    let mut digits = [0; 20]; // u64::MAX has 20
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    write(&digits[first..]);
}
