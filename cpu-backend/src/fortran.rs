//! The one function of the Fortran runtime that the archive's LAPACK needs, hidden in whatever this is linked into.
//!
//! Unsafe lives here because Fortran's strings are pointers with lengths.

core::arch::global_asm!(
    ".globl _gfortran_concat_string",
    ".hidden _gfortran_concat_string",
    ".type _gfortran_concat_string, @function",
    "_gfortran_concat_string:",
    "jmp {concat}",
    concat = sym concat_string,
);

/// `to = a // b`, cut or filled with blanks to the length of `to`.
///
/// # Safety
/// The three strings are valid for their lengths, and `to` overlaps neither other.
unsafe extern "C" fn concat_string(
    to_len: usize,
    to: *mut u8,
    a_len: usize,
    a: *const u8,
    b_len: usize,
    b: *const u8,
) {
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
