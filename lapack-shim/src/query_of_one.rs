//! ?syevr and ?heevr asked for their workspace at n = 1: the answer is at least what older LAPACK gave.
//!
//! LAPACK 3.12 answers 1 for iwork and rwork, enough for itself; up to 3.11 it was 26 n, 10 n (real) and 2 n, 24 n, 10 n
//! (complex), for n = 1 too. Programs that hold a length against the documented formula refuse the new answer:
//! SciPy 1.10's `eigh` of a 1 x 1 matrix. At n = 0 both answer 1.
//!
//! Only a legal query is answered here: an illegal argument stays for the CPU routine to report without a frame
//! of ours on the stack.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.
//!
//! # Source
//! LAPACK 3.9, SRC/dsyevr.f and SRC/zheevr.f (LWMIN, LRWMIN, LIWMIN and the argument checks).

use core::ffi::c_void;
use door::{Entry, Frame};

/// The places of lwork, and of liwork in a real and a complex routine; a workspace stands before its length and
/// info behind the last one.
const LWORK: usize = 17;
const LIWORK: [usize; 2] = [19, 21];

/// Answers the call if it is a legal query with n = 1.
///
/// # Safety
/// The frame holds the arguments of a call of the entry's routine, `?syevr_` or `?heevr_` with 4-byte integers.
pub(crate) unsafe fn fortran(entry: &Entry, f: &mut Frame) -> bool {
    let precision = entry.threshold.precision;
    let complex = matches!(precision, b'C' | b'Z');
    let liwork = LIWORK[usize::from(complex)];
    // SAFETY: valid pointers each, as in every Fortran call; a legal query writes the first element of each
    // workspace and info, and nothing else. The frame's contract is our caller's.
    unsafe {
        let query = (LWORK..=liwork).step_by(2).any(|i| f.fortran_int(i) == -1);
        if !query || f.fortran_int(3) != 1 || !is_legal(f, precision) {
            return false;
        }
        if !entry.call_cpu_with(f, &[]) {
            return false;
        }
        if f.fortran_int(liwork + 1) == 0 {
            match precision {
                b'S' => raise(f.pointer(16), 26.0_f32),
                b'D' => raise(f.pointer(16), 26.0_f64),
                b'C' => {
                    raise(f.pointer(16), 2.0_f32);
                    raise(f.pointer(18), 24.0_f32);
                }
                _ => {
                    raise(f.pointer(16), 2.0_f64);
                    raise(f.pointer(18), 24.0_f64);
                }
            }
            raise(f.pointer(liwork - 1), 10_i32);
        }
    }
    true
}

/// Whether LAPACK accepts every argument but the lengths, which a query makes legal; n is 1.
///
/// # Safety
/// As for [`fortran`].
unsafe fn is_legal(f: &Frame, precision: u8) -> bool {
    // SAFETY: forwarded; VL and VU are real in every precision.
    unsafe {
        let letter = |i| f.letter(i).to_ascii_uppercase();
        let range_is_legal = match letter(1) {
            b'A' => true,
            b'V' => {
                let real = match precision {
                    b'S' | b'C' => b'S',
                    _ => b'D',
                };
                let (vl, vu) = (f.scalar(6, real)[0], f.scalar(7, real)[0]);
                // LAPACK refuses VU <= VL, which a NaN does not satisfy; it is the CPU routine's in any case.
                vu > vl
            }
            b'I' => f.fortran_int(8) == 1 && f.fortran_int(9) == 1,
            _ => false,
        };
        range_is_legal
            && matches!(letter(0), b'N' | b'V')
            && matches!(letter(2), b'L' | b'U')
            && f.fortran_int(5) >= 1
            && f.fortran_int(14) >= 1
    }
}

/// Raises the first element of a workspace; of a complex one that is the real part.
///
/// # Safety
/// The pointer is valid for an element, which may be unaligned.
unsafe fn raise<T: PartialOrd>(to: *mut c_void, least: T) {
    let to = to.cast::<T>();
    // SAFETY: forwarded.
    unsafe {
        if to.read_unaligned() < least {
            to.write_unaligned(least);
        }
    }
}
