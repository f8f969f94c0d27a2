//! What a call becomes before anything runs: device matrices, and steps of uploads, kernels and
//! downloads. Pure data; the planners write it, the executor runs it, the tests interpret it.
//!
//! The order of a program is the order of its steps:
//! - the kernels of step s run, in order, after every upload of the steps up to s;
//! - the downloads of step s run after its kernels;
//! - nothing of step s begins before the first `after` steps are *over* (kernels and downloads done).
//!
//! Nothing else is ordered: an upload may run long before its kernels, a download long after them. So
//! whatever reuses device memory names in `after` the steps that must let go of it first.

use call::{Diag, MatMut, MatRef, Scalar, Side, Trans, Uplo};

/// One of the caller's matrices; in LAPACK the first, second and third of the routine's row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The first.
    A,
    /// The second.
    B,
    /// The result.
    C,
    /// A short vector in host memory of the executor's own: LAPACK's pivots, reflectors' factors, eigenvalues,
    /// info.
    Vector(usize),
}

pub use call::{Area, Rectangle};

/// A matrix on the device. Its leading dimension is the executor's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Bytes of an element where it is not of the routine's type.
    pub other_bytes: Option<usize>,
}

/// An element of a device matrix: the corner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index in [`Program::buffers`].
    pub buffer: usize,
    /// Row.
    pub row0: usize,
    /// Column.
    pub col0: usize,
}

/// Part of an operand goes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Whose.
    pub from: Operand,
    /// Which part, as stored.
    pub rectangle: Rectangle,
    /// Its elements that are read.
    pub area: Area,
    /// Where its corner goes.
    pub to: Place,
}

/// Part of a result comes back. The downloads of a program are disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Whose.
    pub to: Operand,
    /// Where its corner is.
    pub from: Place,
    /// Which part of the result.
    pub rectangle: Rectangle,
    /// Its elements that are written.
    pub area: Area,
}

/// One call of cuBLAS or cuSOLVER. Sizes are never 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// C := alpha op(A) op(B) + beta C.
    Gemm {
        /// op of A and of B.
        trans: (Trans, Trans),
        /// m, n, k.
        size: (usize, usize, usize),
        /// Factors.
        alpha: Scalar,
        /// op(A) is m x k.
        a: Place,
        /// op(B) is k x n.
        b: Place,
        /// 0 leaves C unread.
        beta: Scalar,
        /// m x n.
        c: Place,
    },
    /// C := alpha op(A) op(A)^T + beta C in one triangle; `hermitian` takes conjugate transposes and
    /// the real parts of the factors.
    Syrk {
        /// syrk or herk.
        hermitian: bool,
        /// Triangle of C.
        uplo: Uplo,
        /// op of A (N: A is n x k).
        trans: Trans,
        /// n, k.
        size: (usize, usize),
        /// Factors.
        alpha: Scalar,
        /// A.
        a: Place,
        /// 0 leaves C unread.
        beta: Scalar,
        /// n x n.
        c: Place,
    },
    /// C := alpha op(A) op(B)^T + alpha op(B) op(A)^T + beta C in one triangle (her2k: the second alpha
    /// conjugated, beta real).
    Syr2k {
        /// syr2k or her2k.
        hermitian: bool,
        /// Triangle of C.
        uplo: Uplo,
        /// op of A and B (N: n x k).
        trans: Trans,
        /// n, k.
        size: (usize, usize),
        /// Factors.
        alpha: Scalar,
        /// A.
        a: Place,
        /// B.
        b: Place,
        /// 0 leaves C unread.
        beta: Scalar,
        /// n x n.
        c: Place,
    },
    /// C := alpha A B + beta C (side L) or alpha B A + beta C (side R), A symmetric or Hermitian.
    Symm {
        /// symm or hemm.
        hermitian: bool,
        /// Side of A.
        side: Side,
        /// Its stored triangle.
        uplo: Uplo,
        /// m, n.
        size: (usize, usize),
        /// Factors.
        alpha: Scalar,
        /// A, of order m or n.
        a: Place,
        /// B, m x n.
        b: Place,
        /// 0 leaves C unread.
        beta: Scalar,
        /// m x n.
        c: Place,
    },
    /// C := alpha op(A) B or alpha B op(A), A triangular. C may be B.
    Trmm {
        /// Side of A.
        side: Side,
        /// Its triangle.
        uplo: Uplo,
        /// op of A.
        trans: Trans,
        /// Its diagonal.
        diag: Diag,
        /// m, n.
        size: (usize, usize),
        /// Factor.
        alpha: Scalar,
        /// A, of order m or n.
        a: Place,
        /// B, m x n.
        b: Place,
        /// m x n.
        c: Place,
    },
    /// B := alpha inv(op(A)) B or alpha B inv(op(A)), A triangular.
    Trsm {
        /// Side of A.
        side: Side,
        /// Its triangle.
        uplo: Uplo,
        /// op of A.
        trans: Trans,
        /// Its diagonal.
        diag: Diag,
        /// m, n.
        size: (usize, usize),
        /// Factor.
        alpha: Scalar,
        /// A, of order m or n.
        a: Place,
        /// B, m x n.
        b: Place,
    },
    /// A routine of LAPACK.
    Solver(Solver),
}

impl Kernel {
    /// True if cuBLAS runs it, whose handle needs a workspace that is still there: it keeps that of the last call.
    pub fn is_of_blas(&self) -> bool {
        match self {
            Kernel::Solver(solver) => matches!(
                solver,
                Solver::Transpose { .. } | Solver::Diagonal { .. } | Solver::ScaleRows { .. }
            ),
            _ => true,
        }
    }
}

/// One call of cuSOLVER, or what goes with it. Vectors are whole buffers of one column; `info` is one int32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// C := A^H (C is m x n).
    Transpose {
        /// m, n.
        size: (usize, usize),
        /// A, n x m.
        a: Place,
        /// C, m x n.
        c: Place,
    },
    /// The imaginary parts of a diagonal become 0, as LAPACK takes those of a Hermitian matrix; in complex types
    /// only.
    RealDiagonal {
        /// Order.
        n: usize,
        /// The matrix, at its buffer's corner.
        a: Place,
    },
    /// d := the diagonal of A.
    Diagonal {
        /// Order.
        n: usize,
        /// A.
        a: Place,
        /// n numbers.
        d: Place,
    },
    /// C := diag(d) C.
    ScaleRows {
        /// m, n.
        size: (usize, usize),
        /// m numbers.
        d: Place,
        /// C, m x n.
        c: Place,
    },
    /// C := 0.
    Zero {
        /// m, n.
        size: (usize, usize),
        /// C, m x n.
        c: Place,
    },
    /// C := I.
    Identity {
        /// Order.
        n: usize,
        /// C, all of its buffer.
        c: Place,
    },
    /// The Cholesky factor over its triangle.
    Potrf {
        /// The triangle.
        uplo: Uplo,
        /// Order.
        n: usize,
        /// A.
        a: Place,
        /// 0, or the first leading minor that is not positive.
        info: Place,
    },
    /// Solves A X = B with the factor of potrf.
    Potrs {
        /// The triangle.
        uplo: Uplo,
        /// n, right-hand sides.
        size: (usize, usize),
        /// The factor.
        a: Place,
        /// B, n x nrhs.
        b: Place,
        /// 0.
        info: Place,
    },
    /// The inverse from the factor of potrf, over its triangle.
    Potri {
        /// The triangle.
        uplo: Uplo,
        /// Order.
        n: usize,
        /// The factor.
        a: Place,
        /// 0, or the first zero on the diagonal.
        info: Place,
    },
    /// The inverse of a triangular matrix over it.
    Trtri {
        /// The triangle.
        uplo: Uplo,
        /// Its diagonal.
        diag: Diag,
        /// Order.
        n: usize,
        /// The matrix.
        a: Place,
        /// 0, or the first zero on the diagonal.
        info: Place,
    },
    /// P L U = A over A.
    Getrf {
        /// m, n.
        size: (usize, usize),
        /// A.
        a: Place,
        /// min(m, n) int64, from 1 on.
        ipiv: Place,
        /// 0, or the first zero pivot.
        info: Place,
    },
    /// Solves op(A) X = B with the factors of getrf.
    Getrs {
        /// op of A.
        trans: Trans,
        /// n, right-hand sides.
        size: (usize, usize),
        /// The factors.
        a: Place,
        /// n int64.
        ipiv: Place,
        /// B, n x nrhs.
        b: Place,
        /// 0.
        info: Place,
    },
    /// A = Q R over A.
    Geqrf {
        /// m, n.
        size: (usize, usize),
        /// A.
        a: Place,
        /// min(m, n) factors of the reflectors.
        tau: Place,
        /// 0.
        info: Place,
    },
    /// Q over the reflectors.
    Orgqr {
        /// m, n, reflectors.
        size: (usize, usize, usize),
        /// The reflectors, m x n.
        a: Place,
        /// Their factors.
        tau: Place,
        /// 0.
        info: Place,
    },
    /// C := op(Q) C or C op(Q).
    Ormqr {
        /// Side of Q.
        side: Side,
        /// op of Q.
        trans: Trans,
        /// m, n, reflectors.
        size: (usize, usize, usize),
        /// The reflectors.
        a: Place,
        /// Their factors.
        tau: Place,
        /// C, m x n.
        c: Place,
        /// 0.
        info: Place,
    },
    /// Eigenvalues, and vectors over A.
    Syevd {
        /// With vectors.
        vectors: bool,
        /// The triangle that is read.
        uplo: Uplo,
        /// Order.
        n: usize,
        /// A.
        a: Place,
        /// n real eigenvalues, ascending.
        w: Place,
        /// 0, or how much did not converge.
        info: Place,
    },
    /// A = U S V^H by QR iteration; m >= n. A is destroyed.
    Gesvd {
        /// b'A', b'S' or b'N', for U and V alike.
        job: u8,
        /// m, n.
        size: (usize, usize),
        /// A.
        a: Place,
        /// n real singular values, descending.
        s: Place,
        /// U, m x m or m x n.
        u: Place,
        /// V^H, n x n.
        vt: Place,
        /// 0, or how much did not converge.
        info: Place,
    },
    /// A = U S V^H by polar decomposition, which says how accurate it is; m >= n. A is destroyed.
    Gesvdp {
        /// b'A', b'S' or b'N'.
        job: u8,
        /// m, n.
        size: (usize, usize),
        /// A.
        a: Place,
        /// n real singular values, descending.
        s: Place,
        /// U, m x m or m x n.
        u: Place,
        /// V, n x n.
        v: Place,
        /// 0, or how much did not converge.
        info: Place,
    },
    /// Eigenvalues and right eigenvectors of a general matrix. A is destroyed.
    Geev {
        /// With vectors.
        vectors: bool,
        /// Order.
        n: usize,
        /// A.
        a: Place,
        /// n complex eigenvalues, or in real types n real parts and then n imaginary ones.
        w: Place,
        /// Right eigenvectors, n x n, in real types packed as LAPACK packs them.
        vr: Place,
        /// 0, or how much did not converge.
        info: Place,
    },
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Nothing of this step begins before the first so many steps are over.
    pub after: usize,
    /// To the device.
    pub uploads: Vec<Upload>,
    /// On the device.
    pub kernels: Vec<Kernel>,
    /// To the caller.
    pub downloads: Vec<Download>,
}

/// A whole call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Device matrices, all alive from the first step to the last.
    pub buffers: Vec<Buffer>,
    /// In order.
    pub steps: Vec<Step>,
    /// The answer is the CPU library's only for finite operands: the executor gives the call back when
    /// it meets NaN or infinity in an upload.
    pub finite_only: bool,
    /// As `finite_only`, for the uploads of the first so many steps, each by itself: its largest element may not be so
    /// large or small that LAPACK would scale.
    pub unscaled_steps: usize,
}

/// What the planner is told about the device and its driver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Multiprocessors.
    pub sm_count: usize,
    /// Device bytes that the program's buffers may take, leading dimensions rounded by
    /// [`ld_bytes`]; the workspace of cuBLAS is not part of it.
    pub budget_bytes: u64,
}

/// Columns on the device start at multiples of this many bytes where that costs little.
const COLUMN_ALIGN_BYTES: usize = 256;

/// Distance of columns on the device in bytes, for columns of `column_bytes`: aligned where that adds
/// at most a sixteenth, packed otherwise.
pub fn ld_bytes(column_bytes: usize) -> usize {
    if column_bytes >= 16 * COLUMN_ALIGN_BYTES {
        column_bytes.next_multiple_of(COLUMN_ALIGN_BYTES)
    } else {
        column_bytes
    }
}

impl Buffer {
    /// A matrix of the routine's type.
    pub fn new(rows: usize, cols: usize) -> Self {
        Self {
            rows,
            cols,
            other_bytes: None,
        }
    }

    /// Bytes of an element, of which the routine's have `elem_bytes`.
    pub fn elem_bytes(&self, elem_bytes: usize) -> usize {
        self.other_bytes.unwrap_or(elem_bytes)
    }

    /// Its bytes on the device, a multiple of 256 so that the next one starts aligned; `u64::MAX` when
    /// they pass 64 bits.
    pub fn bytes(&self, elem_bytes: usize) -> u64 {
        let column = self.rows.saturating_mul(self.elem_bytes(elem_bytes));
        if column > usize::MAX / 2 {
            return u64::MAX;
        }
        (ld_bytes(column) as u64)
            .saturating_mul(self.cols as u64)
            .checked_next_multiple_of(256)
            .unwrap_or(u64::MAX)
    }
}

/// Bytes of the elements of a rectangle that take part.
pub fn area_bytes(r: &Rectangle, area: Area, elem_bytes: usize) -> u64 {
    let elems = match area {
        Area::Full => (r.rows * r.cols) as u64,
        _ => (0..r.cols).map(|j| area.rows_of(j, r.rows).1 as u64).sum(),
    };
    elems * elem_bytes as u64
}

impl Program {
    /// Device bytes of all buffers.
    pub fn bytes(&self, elem_bytes: usize) -> u64 {
        let each = self.buffers.iter().map(|b| b.bytes(elem_bytes));
        each.fold(0u64, u64::saturating_add)
    }
}

/// A view's operand, for whoever has the call at hand.
pub fn view<'a>(call: &'a call::Level3Call<'_>, operand: Operand) -> Option<MatRef<'a>> {
    match operand {
        Operand::A => Some(call.a),
        Operand::B => call.b,
        Operand::C => Some(MatMut::as_ref(&call.c)),
        Operand::Vector(_) => None,
    }
}
