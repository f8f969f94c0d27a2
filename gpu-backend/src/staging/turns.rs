//! A thread asks the scheduler for short turns.
//!
//! A thread that wakes on a processor where another one computes without a pause (an idle thread of an OpenBLAS that
//! looks for work) gets it when that one's turn ends, after milliseconds, unless its own turns are shorter.
//!
//! Unsafe lives here because the C library has no functions for these system calls.

/// The shortest turn that the kernel grants.
const TURN_NS: u64 = 100_000;

/// `struct sched_attr` as it was first (`SCHED_ATTR_SIZE_VER0`, Linux 3.14), which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<SchedAttr>() as u32;

/// Asks for short turns of the calling thread. Linux 6.12 and newer grant them to ordinary threads; older kernels,
/// other policies and sandboxes change nothing, and nothing depends on it but speed: beside the OpenBLAS of a
/// NumPy wheel, whose threads look for work for 32 ms, dgemm n = 1600 took 6 to 7 ms instead of 9 to 11 (2.0 on
/// idle processors; H200, 16 cores, 2026-12-02).
pub(super) fn ask_for_short_turns() {
    let mut attr = SchedAttr::default();
    // SAFETY: the kernel writes at most `SIZE` bytes to a struct of that size.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) };
    if read != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.size = SIZE;
    attr.runtime_ns = TURN_NS;
    // SAFETY: the kernel reads `size` bytes.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
