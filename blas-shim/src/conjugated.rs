//! Complex gemmtr and gemmt with a conjugated second factor, on the CPU.
//!
//! OpenBLAS 0.3.29 conjugates that operand in the caller's memory and leaves it so (its issue 5111, closed
//! in 0.3.30). Changing it even for a moment would be wrong, since another thread may read it. Here the
//! triangle is halved into rectangles, each of them one gemm, down to diagonal blocks that gemm computes
//! beside C. No operand is written or copied, and nothing is allocated.
//!
//! Illegal arguments and quick returns are left to OpenBLAS, which then touches no operand.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.

use crate::generated;
use core::ffi::c_void;
use core::ops::{Add, Mul, Sub};
use door::{Entry, Frame};

/// Largest order of a diagonal block. Its product is held on the stack: 4 KiB in double precision, little
/// enough for the smallest thread stacks in use, and the half of it that is thrown away is under 2 % of the
/// flops of a triangle of order 1000.
const BLOCK: usize = 16;

/// A complex number as BLAS stores it.
type Complex<T> = [T; 2];

/// `?gemm_` of OpenBLAS with two hidden string lengths.
type Gemm<T> = unsafe extern "C" fn(
    *const u8,
    *const u8,
    *const i32,
    *const i32,
    *const i32,
    *const Complex<T>,
    *const Complex<T>,
    *const i32,
    *const Complex<T>,
    *const i32,
    *const Complex<T>,
    *mut Complex<T>,
    *const i32,
    usize,
    usize,
);

/// OpenBLAS's routine, which the generated stubs declare without its signature.
const fn gemm<T>(routine: unsafe extern "C" fn()) -> Gemm<T> {
    // SAFETY: a function pointer's type does not change its address; `Real` names the routine of its type.
    unsafe { core::mem::transmute::<unsafe extern "C" fn(), Gemm<T>>(routine) }
}

trait Real: Copy + PartialEq + Add<Output = Self> + Mul<Output = Self> + Sub<Output = Self> {
    const ZERO: Self;
    const ONE: Self;
    const GEMM: Gemm<Self>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const GEMM: Gemm<Self> = gemm(generated::gpu_offload_cpu_cgemm_);
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const GEMM: Gemm<Self> = gemm(generated::gpu_offload_cpu_zgemm_);
}

/// Does a Fortran call if it is legal and OpenBLAS would change B.
///
/// # Safety
/// The frame holds the arguments of a call of `?gemmtr_` or `?gemmt_` in the threshold's precision, a
/// complex one.
pub(crate) unsafe fn fortran(entry: &Entry, f: &mut Frame) -> bool {
    // SAFETY: thirteen arguments, valid pointers each as in every Fortran call; the frame's contract is
    // our caller's.
    unsafe {
        let letter = |i| f.letter(i).to_ascii_uppercase();
        let call = Triangle {
            uplo: letter(0),
            transa: letter(1),
            transb: letter(2),
            n: f.fortran_int(3),
            k: f.fortran_int(4),
            alpha: f.pointer(5),
            a: f.pointer(6),
            lda: f.fortran_int(7),
            b: f.pointer(8),
            ldb: f.fortran_int(9),
            beta: f.pointer(10),
            c: f.pointer(11),
            ldc: f.fortran_int(12),
        };
        call.run(entry.threshold.precision)
    }
}

/// Does a CBLAS call if it is legal and OpenBLAS would change B, or A in row-major order.
///
/// # Safety
/// The frame holds the arguments of a call of `cblas_?gemmtr` or `cblas_?gemmt` in the threshold's
/// precision, a complex one.
pub(crate) unsafe fn cblas(entry: &Entry, f: &mut Frame) -> bool {
    // SAFETY: fourteen arguments of the integer class; the frame's contract is our caller's.
    unsafe {
        let uplo = letter(121, b"UL", f.int32(1));
        let (transa, transb) = (
            letter(111, b"NTCR", f.int32(2)),
            letter(111, b"NTCR", f.int32(3)),
        );
        let mut call = Triangle {
            uplo,
            transa,
            transb,
            n: f.int32(4),
            k: f.int32(5),
            alpha: f.pointer(6),
            a: f.pointer(7),
            lda: f.int32(8),
            b: f.pointer(9),
            ldb: f.int32(10),
            beta: f.pointer(11),
            c: f.pointer(12),
            ldc: f.int32(13),
        };
        match f.int32(0) {
            101 => call.transpose(),
            102 => {}
            _ => return false,
        }
        call.run(entry.threshold.precision)
    }
}

/// The letter of a CBLAS option, 0 for an unknown one.
fn letter(first: i32, letters: &[u8], value: i32) -> u8 {
    let index = usize::try_from(i64::from(value) - i64::from(first));
    index
        .ok()
        .and_then(|i| letters.get(i))
        .copied()
        .unwrap_or(0)
}

/// One call: a triangle of C = alpha op(A) op(B) + beta C. op is one of N, T, C and OpenBLAS's R, which
/// conjugates without transposing.
struct Triangle {
    uplo: u8,
    transa: u8,
    transb: u8,
    n: i32,
    k: i32,
    alpha: *const c_void,
    a: *const c_void,
    lda: i32,
    b: *const c_void,
    ldb: i32,
    beta: *const c_void,
    c: *mut c_void,
    ldc: i32,
}

fn is_transposed(trans: u8) -> bool {
    matches!(trans, b'T' | b'C')
}

impl Triangle {
    /// The column-major call that means what this row-major one means: C^T = op(B)^T op(A)^T.
    fn transpose(&mut self) {
        core::mem::swap(&mut self.transa, &mut self.transb);
        core::mem::swap(&mut self.a, &mut self.b);
        core::mem::swap(&mut self.lda, &mut self.ldb);
        self.uplo = match self.uplo {
            b'U' => b'L',
            b'L' => b'U',
            other => other,
        };
    }

    /// Whether OpenBLAS would accept it, find something to do, and conjugate B.
    fn is_ours(&self) -> bool {
        let rows = |trans, plain, transposed| {
            if is_transposed(trans) {
                transposed
            } else {
                plain
            }
        };
        matches!(self.uplo, b'U' | b'L')
            && matches!(self.transa, b'N' | b'T' | b'C' | b'R')
            && matches!(self.transb, b'C' | b'R')
            && self.n > 0
            && self.k > 0
            && self.lda >= rows(self.transa, self.n, self.k)
            && self.ldb >= rows(self.transb, self.k, self.n)
            && self.ldc >= self.n
    }

    /// # Safety
    /// The pointers are those of a call that is legal if [`Triangle::is_ours`] says so.
    unsafe fn run(&self, precision: u8) -> bool {
        if !self.is_ours() {
            return false;
        }
        // SAFETY: forwarded; a legal call's operands are as large as its sizes say.
        unsafe {
            match precision {
                b'C' => Halving::<f32>::new(self).part(0, self.n),
                _ => Halving::<f64>::new(self).part(0, self.n),
            }
        }
        true
    }
}

/// A legal call in its type.
struct Halving<'a, T> {
    call: &'a Triangle,
    alpha: Complex<T>,
    beta: Complex<T>,
}

impl<'a, T: Real> Halving<'a, T> {
    /// # Safety
    /// The call's alpha and beta point to a complex number of this type each.
    unsafe fn new(call: &'a Triangle) -> Self {
        // SAFETY: the caller vouches for the pointers; alignment is not assumed.
        let [alpha, beta] =
            [call.alpha, call.beta].map(|p| unsafe { p.cast::<Complex<T>>().read_unaligned() });
        Self { call, alpha, beta }
    }

    /// The diagonal part of order `n` that begins at row and column `from`.
    ///
    /// # Safety
    /// The call is legal with operands of this type, and the part lies inside C.
    unsafe fn part(&self, from: i32, n: i32) {
        if n as usize <= BLOCK {
            // SAFETY: forwarded.
            return unsafe { self.diagonal(from, n) };
        }
        let half = n / 2;
        let (middle, rest) = (from + half, n - half);
        // SAFETY: both halves and the rectangle between them lie inside the part.
        unsafe {
            self.part(from, half);
            let (row, rows, col, cols) = match self.call.uplo {
                b'L' => (middle, rest, from, half),
                _ => (from, half, middle, rest),
            };
            self.gemm(
                (row, rows),
                (col, cols),
                &self.beta,
                self.c_at(row, col),
                self.call.ldc,
            );
            self.part(middle, rest);
        }
    }

    /// A diagonal block, of which only the triangle may be read or written.
    ///
    /// # Safety
    /// As for [`Halving::part`]; `n` is at most [`BLOCK`].
    unsafe fn diagonal(&self, from: i32, n: i32) {
        let mut product = [[T::ZERO; 2]; BLOCK * BLOCK];
        let (zero, ld) = ([T::ZERO; 2], BLOCK as i32);
        // SAFETY: the block has room for n columns with this leading dimension.
        unsafe { self.gemm((from, n), (from, n), &zero, product.as_mut_ptr(), ld) };
        for j in 0..n {
            let rows = if self.call.uplo == b'L' {
                j..n
            } else {
                0..j + 1
            };
            for i in rows {
                let product = product[j as usize * BLOCK + i as usize];
                // SAFETY: an element of C's triangle; alignment is not assumed.
                unsafe {
                    let c = self.c_at(from + i, from + j);
                    c.write_unaligned(self.updated(product, || c.read_unaligned()));
                }
            }
        }
    }

    /// `product` + beta times an element of C, which is not read for beta = 0.
    fn updated(&self, product: Complex<T>, c: impl FnOnce() -> Complex<T>) -> Complex<T> {
        let [re, im] = self.beta;
        if [re, im] == [T::ZERO; 2] {
            return product;
        }
        let c = c();
        let scaled = if [re, im] == [T::ONE, T::ZERO] {
            c
        } else {
            [re * c[0] - im * c[1], re * c[1] + im * c[0]]
        };
        [product[0] + scaled[0], product[1] + scaled[1]]
    }

    /// `target` = alpha times these rows of op(A) and columns of op(B), plus beta times `target`; each pair
    /// is the first one and their number.
    ///
    /// # Safety
    /// The call is legal with operands of this type, rows and columns lie inside C, and `target` has room.
    unsafe fn gemm(
        &self,
        (row, rows): (i32, i32),
        (col, cols): (i32, i32),
        beta: &Complex<T>,
        target: *mut Complex<T>,
        ld: i32,
    ) {
        let call = self.call;
        let step = |along_rows: bool, ld: i32| if along_rows { 1 } else { ld as usize };
        // SAFETY: row `row` of op(A) and column `col` of op(B) lie inside the operands; OpenBLAS reads
        // what the sizes and leading dimensions say, and writes only to the target.
        unsafe {
            let a = call.a.cast::<Complex<T>>();
            let a = a.add(row as usize * step(!is_transposed(call.transa), call.lda));
            let b = call.b.cast::<Complex<T>>();
            let b = b.add(col as usize * step(is_transposed(call.transb), call.ldb));
            T::GEMM(
                &raw const call.transa,
                &raw const call.transb,
                &raw const rows,
                &raw const cols,
                &raw const call.k,
                &raw const self.alpha,
                a,
                &raw const call.lda,
                b,
                &raw const call.ldb,
                beta,
                target,
                &raw const ld,
                1,
                1,
            );
        }
    }

    /// # Safety
    /// The element lies inside C.
    unsafe fn c_at(&self, row: i32, col: i32) -> *mut Complex<T> {
        let index = col as usize * self.call.ldc as usize + row as usize;
        // SAFETY: forwarded.
        unsafe { self.call.c.cast::<Complex<T>>().add(index) }
    }
}
