//! Every level-3 routine of the static OpenBLAS, by its Fortran name and the routine table.
//!
//! Unsafe lives here because OpenBLAS takes raw pointers; every call is checked against its views first.

use call::{Level3Call, MatRef, Op, Precision, Scalar, Side, Trans};
use core::ffi::c_int;
use routines::{Arg, Dim, Dims, Extent, Family, families};

/// A routine whose signature the table knows.
type Routine = unsafe extern "C" fn();

/// Declares OpenBLAS's routines and finds one by family and precision.
macro_rules! routines {
    ($($op:ident: $($precision:ident $name:ident),*;)*) => {
        unsafe extern "C" {
            $($(fn $name();)*)*
        }

        fn routine(op: Op, precision: Precision) -> Option<Routine> {
            match (op, precision) {
                $($((Op::$op, Precision::$precision) => Some($name),)*)*
                _ => None,
            }
        }
    };
}

routines! {
    Gemm: S sgemm_, D dgemm_, C cgemm_, Z zgemm_;
    Gemm3m: C cgemm3m_, Z zgemm3m_;
    Gemmtr: S sgemmtr_, D dgemmtr_, C cgemmtr_, Z zgemmtr_;
    Gemmt: S sgemmt_, D dgemmt_, C cgemmt_, Z zgemmt_;
    Symm: S ssymm_, D dsymm_, C csymm_, Z zsymm_;
    Hemm: C chemm_, Z zhemm_;
    Syrk: S ssyrk_, D dsyrk_, C csyrk_, Z zsyrk_;
    Herk: C cherk_, Z zherk_;
    Syr2k: S ssyr2k_, D dsyr2k_, C csyr2k_, Z zsyr2k_;
    Her2k: C cher2k_, Z zher2k_;
    Trmm: S strmm_, D dtrmm_, C ctrmm_, Z ztrmm_;
    Trsm: S strsm_, D dtrsm_, C ctrsm_, Z ztrsm_;
}

/// The call's sizes do not fit its views or OpenBLAS's 32-bit integers, or its options not the routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

impl core::fmt::Display for Misfit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the options or sizes do not fit the operands or OpenBLAS's 32-bit integers")
    }
}

impl core::error::Error for Misfit {}

/// Most words that a level-3 routine of the Fortran interface takes: gemmtr's 13 arguments and three
/// hidden lengths, or trsm's 11 and four.
const WORDS: usize = 16;

type Words = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
);

/// One call of a level-3 routine by OpenBLAS.
///
/// # Shapes
/// Those of [`Level3Call`].
///
/// # Errors
/// [`Misfit`]; nothing was written.
pub fn level3(call: &mut Level3Call<'_>) -> Result<(), Misfit> {
    let routine = routine(call.op, call.precision).ok_or(Misfit)?;
    let family = families().find(|f| f.op == call.op).ok_or(Misfit)?;
    let args = family.args_of(call.precision);
    check(call, family, args)?;
    // OpenBLAS 0.3.29 leaves B conjugated in a complex gemmtr with conjugate transpose (its issue 5111).
    let kept = (matches!(call.op, Op::Gemmtr | Op::Gemmt)
        && call.precision.is_complex()
        && call.transb == Trans::C)
        .then(|| call.b.as_ref().map(packed))
        .flatten();

    let int = |size: usize| c_int::try_from(size).map_err(|_| Misfit);
    let (m, n, k) = (int(call.m)?, int(call.n)?, int(call.k)?);
    let in_place = matches!(call.op, Op::Trmm | Op::Trsm);
    let [lda, ldb, ldc] = [
        call.a.ld(),
        match (&kept, &call.b) {
            (Some(_), Some(b)) => b.rows(),
            (_, Some(b)) => b.ld(),
            (_, None) => call.c.ld(),
        },
        call.c.ld(),
    ]
    .map(|ld| int(ld.max(1)));
    let (lda, ldb, ldc) = (lda?, ldb?, ldc?);
    let letters = letters(call);
    let scalars = [call.alpha, call.beta].map(|s| Stored::of(s, call.precision));
    let address = |value: &c_int| core::ptr::from_ref(value).expose_provenance();
    let mut words = [1_usize; WORDS];
    for (word, arg) in words.iter_mut().zip(args) {
        *word = match arg.name() {
            "m" => address(&m),
            "n" => address(&n),
            "k" => address(&k),
            "lda" => address(&lda),
            "ldb" => address(&ldb),
            "ldc" => address(&ldc),
            "alpha" => scalars[0].address(),
            "beta" => scalars[1].address(),
            "a" => call.a.address_range().start,
            "b" if in_place => call.c.address_range().start,
            "b" => match (&kept, &call.b) {
                (Some(copy), _) => copy.as_ptr().expose_provenance(),
                (None, b) => b.as_ref().ok_or(Misfit)?.address_range().start,
            },
            "c" => call.c.address_range().start,
            letter => {
                let index = letter_index(letter).ok_or(Misfit)?;
                core::ptr::from_ref(&letters[index]).expose_provenance()
            }
        };
    }
    // SAFETY: a function pointer's type does not change its address, and a function ignores words beyond
    // its own arguments.
    let routine = unsafe { core::mem::transmute::<Routine, Words>(routine) };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = words;
    // SAFETY: the words are the arguments of the table's row, then hidden lengths of 1. The views hold
    // every element that the sizes and leading dimensions reach, as checked above, and the result is
    // exclusively borrowed; all locals live until the call returns.
    unsafe { routine(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) };
    Ok(())
}

fn letters(call: &Level3Call<'_>) -> [u8; 5] {
    [
        call.side as u8,
        call.uplo as u8,
        call.transa as u8,
        call.transb as u8,
        call.diag as u8,
    ]
}

/// Where an option stands in [`letters`].
fn letter_index(name: &str) -> Option<usize> {
    let names = [
        ["side", ""],
        ["uplo", ""],
        ["transa", "trans"],
        ["transb", ""],
        ["diag", ""],
    ];
    names.iter().position(|spellings| spellings.contains(&name))
}

/// A scalar as OpenBLAS reads it.
enum Stored {
    Single([f32; 2]),
    Double([f64; 2]),
}

impl Stored {
    fn of(scalar: Scalar, precision: Precision) -> Self {
        match precision.real() {
            Precision::S => Self::Single([scalar.re as f32, scalar.im as f32]),
            _ => Self::Double([scalar.re, scalar.im]),
        }
    }

    fn address(&self) -> usize {
        match self {
            Self::Single(parts) => parts.as_ptr().expose_provenance(),
            Self::Double(parts) => parts.as_ptr().expose_provenance(),
        }
    }
}

/// The columns of a matrix without gaps, aligned for any element.
fn packed(matrix: &MatRef<'_>) -> Vec<u128> {
    let bytes: Vec<u8> = (0..matrix.cols())
        .flat_map(|j| matrix.column_piece(j, 0, matrix.rows()))
        .copied()
        .collect();
    bytes
        .chunks(16)
        .map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        })
        .collect()
}

/// Everything that OpenBLAS relies on, since it is not asked to check.
fn check(call: &Level3Call<'_>, family: &Family, args: &[Arg]) -> Result<(), Misfit> {
    let elem_bytes = call.precision.elem_bytes();
    let dims = Dims {
        m: call.m as u64,
        n: call.n as u64,
        k: call.k as u64,
        right: call.side == Side::R,
    };
    let letters = letters(call);
    let letter = |name: &str| letter_index(name).map(|i| letters[i]);
    let extent = |e: Extent| {
        let dim: Dim = match e {
            Extent::ByTrans(by, _, other) if letter(by) != Some(Trans::N as u8) => other,
            e => e.plain(),
        };
        usize::try_from(dims.get(dim)).unwrap_or(usize::MAX)
    };
    let fits = |arg: &Arg| match *arg {
        Arg::Letter { name, accepted } => {
            letter(name).is_some_and(|l| accepted.as_bytes().contains(&l))
        }
        Arg::Matrix {
            name, rows, cols, ..
        } => {
            let view = match (name, &call.b) {
                ("a", _) => (call.a.rows(), call.a.cols(), call.a.elem_bytes()),
                ("b", Some(b)) => (b.rows(), b.cols(), b.elem_bytes()),
                _ => (call.c.rows(), call.c.cols(), call.c.elem_bytes()),
            };
            view == (extent(rows), extent(cols), elem_bytes)
        }
        _ => true,
    };
    let triangle_fits = call.result_triangle().is_none() || call.m == call.n;
    let has_b = family.position("b").is_some() && family.position("c").is_some();
    (triangle_fits && has_b == call.b.is_some() && args.iter().all(fits))
        .then_some(())
        .ok_or(Misfit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use call::{MatMut, Uplo};

    /// op(A) = [1 3; 2 4] stored transposed, B = [i; 1], C = 2 op(A) B + 1 C.
    #[test]
    fn complex_transposed_product_with_gap() {
        let a = [
            1.0_f64, 0.0, 3.0, 0.0, 9.0, 9.0, 2.0, 0.0, 4.0, 0.0, 9.0, 9.0,
        ];
        let b = [0.0_f64, 1.0, 1.0, 0.0];
        let mut c = [10.0_f64, 0.0, 20.0, 0.0];
        // SAFETY: a is 2 x 2 complex with ld 3, its last column's gap included; b and c are 2 x 1.
        let (a, b, c_view) = unsafe {
            (
                MatRef::new(a.as_ptr().cast(), 2, 2, 3, 16).unwrap(),
                MatRef::new(b.as_ptr().cast(), 2, 1, 2, 16).unwrap(),
                MatMut::new(c.as_mut_ptr().cast(), 2, 1, 2, 16).unwrap(),
            )
        };
        let mut call = Level3Call::gemm(
            Precision::Z,
            (Trans::T, a),
            (Trans::N, b),
            (Scalar { re: 2.0, im: 0.0 }, Scalar::ONE),
            c_view,
        );
        level3(&mut call).unwrap();
        // Row 0: 2 (1 i + 3) + 10, row 1: 2 (2 i + 4) + 20.
        assert_eq!(c, [16.0, 2.0, 28.0, 4.0]);
    }

    /// X [2 0; 3 4] = 2 [10 8] has X = [4 4]; the upper triangle is not read.
    #[test]
    fn a_triangular_solve_from_the_right() {
        let a = [2.0_f32, 3.0, f32::NAN, 4.0];
        let mut c = [10.0_f32, 8.0];
        // SAFETY: a is 2 x 2, c is 1 x 2.
        let (a, c_view) = unsafe {
            (
                MatRef::new(a.as_ptr().cast(), 2, 2, 2, 4).unwrap(),
                MatMut::new(c.as_mut_ptr().cast(), 1, 2, 1, 4).unwrap(),
            )
        };
        let mut call = Level3Call {
            op: Op::Trsm,
            side: Side::R,
            uplo: Uplo::L,
            b: None,
            k: 2,
            ..Level3Call::gemm(
                Precision::S,
                (Trans::N, a),
                (Trans::N, a),
                (Scalar { re: 2.0, im: 0.0 }, Scalar::ONE),
                c_view,
            )
        };
        level3(&mut call).unwrap();
        assert_eq!(c, [4.0, 4.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let a = [1.0_f32; 4];
        let mut c = [7.0_f32; 4];
        // SAFETY: 2 x 2 float32 each.
        let a = unsafe { MatRef::new(a.as_ptr().cast(), 2, 2, 2, 4) }.unwrap();
        let mut refuse = |change: fn(&mut Level3Call<'_>)| {
            // SAFETY: 2 x 2 float32.
            let c_view = unsafe { MatMut::new(c.as_mut_ptr().cast(), 2, 2, 2, 4) }.unwrap();
            let mut call = Level3Call::gemm(
                Precision::S,
                (Trans::N, a),
                (Trans::N, a),
                (Scalar::ONE, Scalar::ZERO),
                c_view,
            );
            change(&mut call);
            assert_eq!(level3(&mut call), Err(Misfit));
        };
        refuse(|call| call.k = 3);
        refuse(|call| call.b = None);
        refuse(|call| call.precision = Precision::C);
        refuse(|call| call.op = Op::Herk);
        refuse(|call| call.op = Op::Trsm);
        refuse(|call| call.op = Op::Getrf);
        assert_eq!(c, [7.0; 4]);
    }
}
