//! One decoded call of a LAPACK routine.

use crate::{Diag, MatMut, MatRef, Op, Precision, Side, Trans, Uplo};
use routines::{Options, Scalars};

/// The most matrices that a routine has (gesvx: a, af, b, x).
pub const MAX_MATRICES: usize = 4;

/// The most vectors that a routine has (gesvx: ipiv, r, c, rcond, ferr, berr).
pub const MAX_VECTORS: usize = 6;

/// The most option letters that a routine has (syevr: jobz, range, uplo).
pub const MAX_LETTERS: usize = 4;

/// One call of a LAPACK routine with positive dimensions.
///
/// `matrices` and `vectors` are those of the routine's row in the table, in its order; `None` stands for one
/// that the job options make unreferenced. A backend that returns success has done what LAPACK does with
/// `info = 0`; whatever gives another info is a [`crate::Failure`], and the CPU library does the call. The
/// contract of [`crate::Backend::run`] holds for every operand: one that is read is as it was after a failure,
/// one that is only written may hold anything.
///
/// # Shapes
/// As the routine table gives them. Where job options choose (`u` and `vt` of the SVD), the views have the
/// size that the options ask for. `m` is `n` where a routine has only `n`; `k` is nrhs or the number of
/// reflectors, and `n` where a routine has neither.
///
/// # Source
/// LAPACK 3.12.
pub struct LapackCall<'a> {
    /// The family.
    pub op: Op,
    /// Element type of the matrices.
    pub precision: Precision,
    /// The option letters, upper case, in the table's order; 0 beyond the last.
    pub letters: [u8; MAX_LETTERS],
    /// Input scalars that are no sizes (vl, abstol, rcond; il, itype).
    pub scalars: Scalars,
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Right-hand sides or reflectors.
    pub k: usize,
    /// The matrices, in the table's order.
    pub matrices: [Option<Matrix<'a>>; MAX_MATRICES],
    /// The vectors, in the table's order.
    pub vectors: [Option<Vector<'a>>; MAX_VECTORS],
}

/// A matrix with what the routine does with it in this call.
pub enum Matrix<'a> {
    /// Read.
    In(MatRef<'a>),
    /// Read and written, or read and destroyed.
    InOut(MatMut<'a>),
    /// Written, not read.
    Out(MatMut<'a>),
}

/// A vector: one column.
pub struct Vector<'a> {
    /// Its elements.
    pub kind: VectorKind,
    /// What the routine does with it.
    pub data: Matrix<'a>,
}

/// Element type of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorKind {
    /// INTEGER, of 4 or 8 bytes by the caller's library.
    Integer,
    /// The real type of the routine's precision.
    Real,
    /// The routine's own type.
    Same,
}

impl Matrix<'_> {
    /// The matrix as it is before the call.
    pub fn as_ref(&self) -> MatRef<'_> {
        match self {
            Matrix::In(view) => *view,
            Matrix::InOut(view) | Matrix::Out(view) => view.as_ref(),
        }
    }
}

impl LapackCall<'_> {
    /// A call of these options and m, n, k that has no operands yet, with the usual scalars.
    pub fn new(
        op: Op,
        precision: Precision,
        letters: [u8; MAX_LETTERS],
        (m, n, k): (usize, usize, usize),
    ) -> Self {
        Self {
            op,
            precision,
            letters,
            scalars: Scalars::usual(routines::family(op), precision, n as u64),
            m,
            n,
            k,
            matrices: [const { None }; MAX_MATRICES],
            vectors: [const { None }; MAX_VECTORS],
        }
    }

    /// The letter of the option with this name in the table ("jobz"), or `None` where the family lacks it.
    pub fn letter(&self, name: &str) -> Option<u8> {
        let letter = self.options().letter(name);
        (letter != 0).then_some(letter)
    }

    /// The real input scalar with this name in the table ("abstol"), or `None` where the family lacks it.
    pub fn real(&self, name: &str) -> Option<f64> {
        self.options().real(name)
    }

    /// The INTEGER input scalar with this name in the table ("itype"), or `None` where the family lacks it.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.options().int(name)
    }

    fn options(&self) -> Options<'static> {
        let family = routines::family(self.op);
        Options::new(family, self.precision, self.letters).with(self.scalars)
    }

    /// The triangle, in families that have one.
    pub fn uplo(&self) -> Option<Uplo> {
        Uplo::from_letter(self.letter("uplo")?)
    }

    /// op of the matrix, in families that have one.
    pub fn trans(&self) -> Option<Trans> {
        Trans::from_letter(self.letter("trans")?)
    }

    /// The side, in families that have one.
    pub fn side(&self) -> Option<Side> {
        Side::from_letter(self.letter("side")?)
    }

    /// The diagonal, in families that have one.
    pub fn diag(&self) -> Option<Diag> {
        Diag::from_letter(self.letter("diag")?)
    }
}
