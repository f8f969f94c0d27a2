//! The two functions of the Fortran runtime that LAPACK uses, under private names.
//!
//! libgfortran is not needed for them, and its public names are never defined here: they could satisfy
//! another library's references.
//!
//! Unsafe lives here because Fortran passes untyped addresses and lengths.

core::arch::global_asm!(
    ".globl gpu_offload_private_concat_string",
    ".hidden gpu_offload_private_concat_string",
    ".type gpu_offload_private_concat_string, @function",
    "gpu_offload_private_concat_string:",
    "jmp {concat}",
    ".globl gpu_offload_private_etime",
    ".hidden gpu_offload_private_etime",
    ".type gpu_offload_private_etime, @function",
    "gpu_offload_private_etime:",
    "jmp {etime}",
    concat = sym concat_string,
    etime = sym etime,
);

/// `to = a // b`, cut or filled with blanks to the length of `to`.
///
/// # Safety
/// The three strings are valid for their lengths, and `to` overlaps neither other.
///
/// # Source
/// Fortran 2018, 10.1.5.3 (concatenation) and 10.2.1.3 (assignment).
unsafe extern "C" fn concat_string(
    to_len: usize,
    to: *mut u8,
    a_len: usize,
    a: *const u8,
    b_len: usize,
    b: *const u8,
) {
    // LAPACK joins two letters (`SIDE // TRANS`) in every call of some routines, which would pay for calls of
    // memcpy and memset that have nothing to do.
    if (to_len, a_len, b_len) == (2, 1, 1) {
        // SAFETY: `to` has two bytes and the others have one.
        unsafe {
            *to = *a;
            *to.add(1) = *b;
        }
        return;
    }
    let from_a = a_len.min(to_len);
    let from_b = b_len.min(to_len - from_a);
    let rest = to_len - from_a - from_b;
    // SAFETY: the three parts lie one behind the other inside of `to_len`; the caller vouches for the
    // strings.
    unsafe {
        core::ptr::copy_nonoverlapping(a, to, from_a);
        core::ptr::copy_nonoverlapping(b, to.add(from_a), from_b);
        core::ptr::write_bytes(to.add(from_a + from_b), b' ', rest);
    }
}

/// A rank-1 array as gfortran passes it, since version 8.
#[repr(C)]
struct Array {
    base: *mut f32,
    /// In elements, from `base` to the element with index 0; not used here.
    offset_elems: isize,
    dtype: [u64; 2],
    span_bytes: isize,
    stride_elems: isize,
    lower: isize,
    upper: isize,
}

/// User and system time of this process in seconds, into the array; returns their sum.
///
/// # Safety
/// `times` describes an array of two float32 that may be written.
unsafe extern "C" fn etime(times: *mut Array) -> f32 {
    // SAFETY: rusage is plain data, filled by getrusage.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the address is valid; on failure the zeros stay.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    let (user_s, system_s) = (seconds(usage.ru_utime), seconds(usage.ru_stime));
    // SAFETY: the caller vouches for two elements, `stride_elems` apart.
    unsafe {
        let array = &*times;
        *array.base = user_s as f32;
        *array.base.offset(array.stride_elems) = system_s as f32;
    }
    (user_s + system_s) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concat(to_len: usize, a: &str, b: &str) -> String {
        let mut to = vec![b'#'; to_len + 1];
        // SAFETY: live buffers with their lengths.
        unsafe {
            concat_string(
                to_len,
                to.as_mut_ptr(),
                a.len(),
                a.as_ptr(),
                b.len(),
                b.as_ptr(),
            )
        };
        assert_eq!(to.pop(), Some(b'#'), "wrote behind the string");
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn concatenation_cuts_and_fills() {
        assert_eq!(concat(2, "L", "N"), "LN");
        assert_eq!(concat(5, "ab", "c"), "abc  ");
        assert_eq!(concat(3, "ab", "cd"), "abc");
        assert_eq!(concat(1, "ab", "cd"), "a");
        assert_eq!(concat(0, "ab", "cd"), "");
        assert_eq!(concat(2, "", ""), "  ");
    }

    #[test]
    fn etime_counts_this_process() {
        let mut values = [-1.0_f32; 3];
        let mut array = Array {
            base: values.as_mut_ptr(),
            offset_elems: -1,
            dtype: [4, 0],
            span_bytes: 4,
            stride_elems: 2,
            lower: 1,
            upper: 2,
        };
        // By the process's own clock: on a busy machine it may not run for long.
        let used_ms = || {
            let mut now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: a live address.
            let read = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
            assert_eq!(read, 0);
            now.tv_sec * 1000 + now.tv_nsec / 1_000_000
        };
        let before_ms = used_ms();
        while used_ms() - before_ms < 50 {}
        // SAFETY: the array describes two elements of `values`, two apart.
        let total_s = unsafe { etime(&raw mut array) };
        assert!(total_s >= 0.04, "{total_s} s after 50 ms of the processor");
        assert!((total_s - values[0] - values[2]).abs() < 1e-3);
        assert_eq!(values[1].to_bits(), (-1.0_f32).to_bits(), "stride ignored");
    }
}
