//! cuBLAS's C = alpha op(A) + beta op(B) and C = diag(x) A or A diag(x), which BLAS does not have: computed here,
//! element by element.
//!
//! Unsafe lives here because the operands are addresses.

use super::job::{Area, Factor, Found, Job, Operand, Precision, submit};
use super::{BAD_VALUE, code};
use core::ffi::c_void;

/// An element, or its real or imaginary part, at an address.
#[derive(Clone, Copy)]
struct Elems(*mut c_void, Precision);

impl Elems {
    fn parts(self) -> usize {
        if self.1.is_real() { 1 } else { 2 }
    }

    /// # Safety
    /// Element `i` exists.
    unsafe fn get(self, i: usize) -> (f64, f64) {
        let Self(at, precision) = self;
        let part = |k: usize| {
            let k = i * self.parts() + k;
            // SAFETY: the caller's promise.
            unsafe {
                match precision.part() {
                    Precision::S => f64::from(at.cast::<f32>().add(k).read()),
                    _ => at.cast::<f64>().add(k).read(),
                }
            }
        };
        (part(0), if self.parts() == 2 { part(1) } else { 0.0 })
    }

    /// # Safety
    /// As `get`.
    unsafe fn set(self, i: usize, (re, im): (f64, f64)) {
        let Self(at, precision) = self;
        for (k, value) in [re, im].into_iter().take(self.parts()).enumerate() {
            let k = i * self.parts() + k;
            // SAFETY: the caller's promise.
            unsafe {
                match precision.part() {
                    Precision::S => at.cast::<f32>().add(k).write(value as f32),
                    _ => at.cast::<f64>().add(k).write(value),
                }
            }
        }
    }
}

fn times((a, b): (f64, f64), (c, d): (f64, f64)) -> (f64, f64) {
    (a * c - b * d, a * d + b * c)
}

fn geam(
    precision: Precision,
    (transa, transb): (u32, u32),
    (m, n): (i64, i64),
    (alpha, a, lda): (*const c_void, u64, i64),
    (beta, b, ldb): (*const c_void, u64, i64),
    (c, ldc): (u64, i64),
) -> Result<Job, u32> {
    if transa > 2 || transb > 2 {
        return Err(BAD_VALUE);
    }
    let size = |trans| if trans == 0 { (m, n) } else { (n, m) };
    // With a factor of 0 a matrix need not be there; one that is missing all the same makes NaN.
    let operand = |name, address, (rows, cols), ld| Operand {
        name,
        address,
        rows: if address == 0 { 0 } else { rows },
        cols,
        ld,
        area: Area::Full,
    };
    let compute = move |found: &Found| {
        let [at_a, at_b, at_c] = found.operands();
        let [alpha, beta] = found.factors().map(|x| {
            // SAFETY: a factor of this precision.
            unsafe { Elems(x.cast_mut(), precision).get(0) }
        });
        let term = |factor, at: *mut c_void, ld: i64, trans, i: usize, j: usize| {
            if factor == (0.0, 0.0) {
                return (0.0, 0.0);
            }
            if at.is_null() {
                return (f64::NAN, f64::NAN);
            }
            let ld = ld as usize;
            let index = if trans == 0 { i + j * ld } else { j + i * ld };
            // SAFETY: inside the operand that `submit` has found in live device memory.
            let (re, im) = unsafe { Elems(at, precision).get(index) };
            times(factor, (re, if trans == 2 { -im } else { im }))
        };
        for (j, i) in (0..n as usize).flat_map(|j| (0..m as usize).map(move |i| (j, i))) {
            let x = term(alpha, at_a, lda, transa, i, j);
            let y = term(beta, at_b, ldb, transb, i, j);
            // SAFETY: as above.
            unsafe { Elems(at_c, precision).set(i + j * ldc as usize, (x.0 + y.0, x.1 + y.1)) };
        }
    };
    let factor = |from| Factor { from, precision };
    Ok(Job {
        precision,
        factors: vec![factor(alpha), factor(beta)],
        operands: vec![
            operand("A", a, size(transa), lda),
            operand("B", b, size(transb), ldb),
            operand("C", c, (m, n), ldc),
        ],
        // As documented: in place without transposition only.
        in_place: (a != c || transa == 0) && (b != c || transb == 0),
        overwrites: true,
        sizes: vec![m, n],
        empty: m == 0 || n == 0,
        compute: Box::new(compute),
    })
}

macro_rules! entries {
    ($($name:ident $int:ty, $precision:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                handle: usize, transa: u32, transb: u32, m: $int, n: $int, alpha: *const c_void,
                a: u64, lda: $int, beta: *const c_void, b: u64, ldb: $int, c: u64, ldc: $int,
            ) -> u32 {
                let [m, n, lda, ldb, ldc] = [m, n, lda, ldb, ldc].map(i64::from);
                let (first, second) = ((alpha, a, lda), (beta, b, ldb));
                let precision = Precision::$precision;
                code(submit(stringify!($name), handle, || {
                    geam(precision, (transa, transb), (m, n), first, second, (c, ldc))
                }))
            }
        )*
    };
}

entries! {
    cublasSgeam i32, S;
    cublasDgeam i32, D;
    cublasCgeam i32, C;
    cublasZgeam i32, Z;
    cublasSgeam_64 i64, S;
    cublasDgeam_64 i64, D;
    cublasCgeam_64 i64, C;
    cublasZgeam_64 i64, Z;
}

fn dgmm(
    precision: Precision,
    side: u32,
    (m, n): (i64, i64),
    (a, lda): (u64, i64),
    (x, incx): (u64, i64),
    (c, ldc): (u64, i64),
) -> Result<Job, u32> {
    // A vector that runs backwards is legal, but nobody here asks for one.
    if side > 1 || incx < 1 {
        return Err(BAD_VALUE);
    }
    let order = if side == 0 { m } else { n };
    let compute = move |found: &Found| {
        let [at_a, at_x, at_c] = found.operands();
        for (j, i) in (0..n as usize).flat_map(|j| (0..m as usize).map(move |i| (j, i))) {
            let by = if side == 0 { i } else { j };
            // SAFETY: inside the operands that `submit` has found in live device memory.
            unsafe {
                let by = Elems(at_x, precision).get(by * incx as usize);
                let from = Elems(at_a, precision).get(i + j * lda as usize);
                Elems(at_c, precision).set(i + j * ldc as usize, times(by, from));
            }
        }
    };
    let matrix = |name, address, (rows, cols), ld| Operand {
        name,
        address,
        rows,
        cols,
        ld,
        area: Area::Full,
    };
    Ok(Job {
        precision,
        factors: Vec::new(),
        operands: vec![
            matrix("A", a, (m, n), lda),
            // Its elements are a row of a matrix.
            matrix("x", x, (order.min(1), order), incx),
            matrix("C", c, (m, n), ldc),
        ],
        in_place: true,
        overwrites: true,
        sizes: vec![m, n],
        empty: m == 0 || n == 0,
        compute: Box::new(compute),
    })
}

macro_rules! diagonal_entries {
    ($($name:ident $int:ty, $precision:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                handle: usize, side: u32, m: $int, n: $int, a: u64, lda: $int, x: u64, incx: $int,
                c: u64, ldc: $int,
            ) -> u32 {
                let [m, n, lda, incx, ldc] = [m, n, lda, incx, ldc].map(i64::from);
                code(submit(stringify!($name), handle, || {
                    dgmm(Precision::$precision, side, (m, n), (a, lda), (x, incx), (c, ldc))
                }))
            }
        )*
    };
}

diagonal_entries! {
    cublasSdgmm i32, S;
    cublasDdgmm i32, D;
    cublasCdgmm i32, C;
    cublasZdgmm i32, Z;
    cublasSdgmm_64 i64, S;
    cublasDdgmm_64 i64, D;
    cublasCdgmm_64 i64, C;
    cublasZdgmm_64 i64, Z;
}
