//! From the engine ABI's raw call to the safe one, with every check that the views need.
//!
//! Unsafe lives here because the operands are raw pointers; the shim's caller vouches for the memory,
//! as with every BLAS, and nothing is believed beyond that.

mod lapack;

pub use lapack::decode_lapack;

use call::{Call, Diag, Failure, Level3Call, MatMut, MatRef, Scalar, Side, Trans, Uplo};
use engine_abi::RoutedCall;
use routines::{Arg, Family, Library, Op, Precision, Shape, families};

/// A call that was read.
pub struct Decoded<'a> {
    /// Its sizes and options.
    pub shape: Shape,
    /// The call, or why no device may have it.
    pub call: Result<Call<'a>, Failure>,
}

/// The call in safe types; `None` for a family that the engine does not know, and for anything that is
/// illegal or a quick return (the shim should not have let it through; OpenBLAS then judges it).
///
/// # Safety
/// The operands of `raw` are those of a BLAS call in progress: readable (`a`, `b`) and writable (`c`)
/// for the dimensions given, and nobody else writes to them during `'a`.
pub unsafe fn decode<'a>(raw: &'a RoutedCall) -> Option<Decoded<'a>> {
    let op = Op::from_code(raw.op)?;
    let family =
        families().find(|f| f.op == op && f.gate.is_some() && f.library == Library::Blas)?;
    let precision = Precision::from_code(raw.precision)?;
    family.routine(precision)?;
    let options = Options::of(family, precision, raw)?;
    let size = |v: i64| usize::try_from(v).ok().filter(|v| *v > 0);
    let (m, n, k) = (size(raw.m)?, size(raw.n)?, size(raw.k)?);
    let stored = Stored::of(op, &options, (m, n, k))?;
    let scalar = |[re, im]: [f64; 2]| Scalar { re, im };
    let (alpha, beta) = (scalar(raw.alpha), scalar(raw.beta));
    if alpha.is_zero() {
        return None;
    }
    let elem_bytes = precision.elem_bytes();
    let read = |data: *const core::ffi::c_void, (rows, cols), ld| {
        let ld = size(ld)?;
        if data.is_null() {
            return None;
        }
        // SAFETY: readable by this function's contract; `new` checks the leading dimension and the span.
        unsafe { MatRef::new(data.cast(), rows, cols, ld, elem_bytes) }
    };
    let a = read(raw.a, stored.a, raw.lda)?;
    let b = match stored.b {
        Some(shape) => Some(read(raw.b, shape, raw.ldb)?),
        None => None,
    };
    if raw.c.is_null() {
        return None;
    }
    // SAFETY: writable by this function's contract. Where a caller passes overlapping operands, the
    // backend compares the address ranges before it reads or writes.
    let c = unsafe { MatMut::new(raw.c.cast(), m, n, size(raw.ldc)?, elem_bytes) }?;
    let call = Call::Level3(Level3Call {
        op,
        precision,
        side: options.side,
        uplo: options.uplo,
        transa: options.transa,
        transb: options.transb,
        diag: options.diag,
        m,
        n,
        k,
        alpha,
        beta,
        a,
        b,
        c,
    });
    Some(Decoded {
        shape: call.shape(),
        call: Ok(call),
    })
}

/// The option letters, at their defaults where the family lacks them.
struct Options {
    side: Side,
    uplo: Uplo,
    transa: Trans,
    transb: Trans,
    diag: Diag,
}

impl Options {
    fn of(family: &Family, precision: Precision, raw: &RoutedCall) -> Option<Self> {
        let mut options = Self {
            side: Side::L,
            uplo: Uplo::U,
            transa: Trans::N,
            transb: Trans::N,
            diag: Diag::N,
        };
        for arg in family.args_of(precision) {
            let Arg::Letter { name, accepted } = *arg else {
                continue;
            };
            let letter = match name {
                "side" => raw.side,
                "uplo" => raw.uplo,
                "transb" => raw.transb,
                "diag" => raw.diag,
                _ => raw.transa,
            };
            if !accepted.as_bytes().contains(&letter) {
                return None;
            }
            match name {
                "side" => options.side = Side::from_letter(letter)?,
                "uplo" => options.uplo = Uplo::from_letter(letter)?,
                "transb" => options.transb = Trans::from_letter(letter)?,
                "diag" => options.diag = Diag::from_letter(letter)?,
                _ => options.transa = Trans::from_letter(letter)?,
            }
        }
        Some(options)
    }
}

/// Rows and columns of the operands that are read, as stored.
struct Stored {
    a: (usize, usize),
    b: Option<(usize, usize)>,
}

impl Stored {
    /// `None` where the sizes contradict each other.
    fn of(op: Op, options: &Options, (m, n, k): (usize, usize, usize)) -> Option<Self> {
        use Op::{Gemm, Gemm3m, Gemmt, Gemmtr, Hemm, Her2k, Herk, Symm, Syr2k, Syrk, Trmm, Trsm};
        let order = match options.side {
            Side::L => m,
            Side::R => n,
        };
        let agree = match op {
            Gemm | Gemm3m => true,
            Symm | Hemm | Trmm | Trsm => k == order,
            _ => m == n,
        };
        let by = |trans, rows, cols| match trans {
            Trans::N => (rows, cols),
            _ => (cols, rows),
        };
        let a = by(options.transa, m, k);
        let stored = match op {
            Gemm | Gemm3m | Gemmtr | Gemmt => Self {
                a,
                b: Some(by(options.transb, k, n)),
            },
            Symm | Hemm => Self {
                a: (k, k),
                b: Some((m, n)),
            },
            Trmm | Trsm => Self { a: (k, k), b: None },
            Syrk | Herk => Self { a, b: None },
            Syr2k | Her2k => Self { a, b: Some(a) },
            _ => return None,
        };
        agree.then_some(stored)
    }
}
