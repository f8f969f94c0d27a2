//! One decoded call in safe types (views with ld and intent), and the trait that a device implements.
//!
//! The door decodes raw pointers into these types once, after every argument was checked; whatever
//! stands behind works on views whose bounds are known. No FFI, no CUDA and no policy here.

mod lapack;
mod region;
mod view;

pub use lapack::{LapackCall, MAX_LETTERS, MAX_MATRICES, MAX_VECTORS, Matrix, Vector, VectorKind};
pub use region::{Area, OutRegion, PartitionError, Rectangle, TileMut};
pub use routines::{Diag, Op, Precision, Scalars, Side, Trans, Uplo, option_letters};
pub use view::{MatMut, MatRef};

/// A scalar argument (alpha, beta), widened to f64, which is exact for f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar {
    /// Real part.
    pub re: f64,
    /// Imaginary part; zero for real precisions.
    pub im: f64,
}

impl Scalar {
    /// Zero.
    pub const ZERO: Self = Self { re: 0.0, im: 0.0 };
    /// One.
    pub const ONE: Self = Self { re: 1.0, im: 0.0 };

    /// True for 0 (and -0): the operand that it scales is then not read.
    pub fn is_zero(self) -> bool {
        self.re == 0.0 && self.im == 0.0
    }
}

/// One call of a level-3 BLAS routine, column-major. Options that the family lacks hold `Side::L`,
/// `Uplo::U`, `Trans::N`, `Diag::N`, and are not looked at.
///
/// # Shapes
/// | family | result | a (as stored) | b (as stored) |
/// |---|---|---|---|
/// | gemm, gemm3m | c: m x n | op(A) m x k | op(B) k x n |
/// | gemmtr, gemmt | c: n x n, triangle `uplo` | op(A) n x k | op(B) k x n |
/// | symm, hemm | c: m x n | triangle of order m (side L) or n (side R) | m x n |
/// | syrk, herk | c: n x n, triangle `uplo` | n x k, or k x n unless `transa` is N | |
/// | syr2k, her2k | c: n x n, triangle `uplo` | n x k, or k x n unless `transa` is N | as a |
/// | trmm, trsm | c (the reference's B): m x n, read and written | triangle of order m or n | |
///
/// Where the result is a triangle, m is n; where the family has no k, k is the order of `a`. The trans of
/// the rank-k families is `transa`. `beta` is 1 for trmm and trsm, which read their result.
///
/// # Source
/// Reference BLAS 3.12.
pub struct Level3Call<'a> {
    /// The family, one of Gemm to Trsm.
    pub op: Op,
    /// Element type of every operand.
    pub precision: Precision,
    /// Side of the symmetric or triangular matrix.
    pub side: Side,
    /// Its stored triangle, or that of the result.
    pub uplo: Uplo,
    /// op of A.
    pub transa: Trans,
    /// op of B.
    pub transb: Trans,
    /// Diagonal of the triangular matrix.
    pub diag: Diag,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Inner dimension.
    pub k: usize,
    /// Factor of the product; real for herk.
    pub alpha: Scalar,
    /// Factor of the result's old value, which is not read when this is 0; real for herk and her2k.
    pub beta: Scalar,
    /// A.
    pub a: MatRef<'a>,
    /// B, for the families that have one besides the result.
    pub b: Option<MatRef<'a>>,
    /// The result. Where it is a triangle, only that triangle belongs to the call.
    pub c: MatMut<'a>,
}

impl<'a> Level3Call<'a> {
    /// A gemm whose dimensions are those of its operands.
    pub fn gemm(
        precision: Precision,
        (transa, a): (Trans, MatRef<'a>),
        (transb, b): (Trans, MatRef<'a>),
        (alpha, beta): (Scalar, Scalar),
        c: MatMut<'a>,
    ) -> Self {
        Self {
            op: Op::Gemm,
            precision,
            side: Side::L,
            uplo: Uplo::U,
            transa,
            transb,
            diag: Diag::N,
            m: c.rows(),
            n: c.cols(),
            k: if transa == Trans::N {
                a.cols()
            } else {
                a.rows()
            },
            alpha,
            beta,
            a,
            b: Some(b),
            c,
        }
    }

    /// True if the result's old value is read.
    pub fn reads_result(&self) -> bool {
        matches!(self.op, Op::Trmm | Op::Trsm) || !self.beta.is_zero()
    }

    /// The triangle that the result is, or `None` where it is a full matrix.
    pub fn result_triangle(&self) -> Option<Uplo> {
        use Op::{Gemmt, Gemmtr, Her2k, Herk, Syr2k, Syrk};
        matches!(self.op, Gemmtr | Gemmt | Syrk | Herk | Syr2k | Her2k).then_some(self.uplo)
    }
}

/// A legal call that is not a quick return.
#[expect(
    clippy::large_enum_variant,
    reason = "one lives on the stack of each call; a box would be an allocation before the decision"
)]
pub enum Call<'a> {
    /// Level-3 BLAS.
    Level3(Level3Call<'a>),
    /// LAPACK.
    Lapack(LapackCall<'a>),
}

impl Call<'_> {
    /// The same call without its pointers, as the cost model sees it.
    pub fn shape(&self) -> routines::Shape {
        match self {
            Call::Level3(call) => routines::Shape {
                op: call.op,
                precision: call.precision,
                m: call.m as u64,
                n: call.n as u64,
                k: call.k as u64,
                right: call.side == Side::R,
                beta_zero: call.beta.is_zero(),
                letters: [0; MAX_LETTERS],
            },
            Call::Lapack(call) => {
                let dims = routines::Dims {
                    m: call.m as u64,
                    n: call.n as u64,
                    k: call.k as u64,
                    right: call.side() == Some(Side::R),
                };
                routines::Shape::of_lapack(call.op, call.precision, &dims, call.letters)
            }
        }
    }
}

/// Why a device did not deliver.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The device has no path for this call; the text says what is missing.
    Unsupported(&'static str),
    /// The call does not fit into the memory budget, even after trimming.
    OutOfMemory {
        /// What the call needs.
        needed_bytes: u64,
        /// What the budget leaves.
        budget_bytes: u64,
    },
    /// The operands overlap in a way that only the CPU library's order of operations defines.
    Overlap,
    /// A device function failed; the text names the function and its error. The device may be used
    /// again.
    Device(String),
    /// The device or its context is gone; it is not used again in this process.
    Lost(String),
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Failure::Unsupported(what) => write!(f, "no GPU path: {what}"),
            Failure::OutOfMemory {
                needed_bytes,
                budget_bytes,
            } => write!(
                f,
                "not enough GPU memory: {needed_bytes} bytes needed, {budget_bytes} available"
            ),
            Failure::Overlap => f.write_str("operands overlap"),
            Failure::Device(what) => write!(f, "GPU error: {what}"),
            Failure::Lost(what) => write!(f, "GPU lost: {what}"),
        }
    }
}

/// A device that can run calls.
pub trait Backend: Send + Sync {
    /// Runs the call to its end: the result is in the caller's memory.
    ///
    /// # Errors
    /// Any [`Failure`]. The CPU can still do the whole call: a result whose old value is read
    /// ([`Level3Call::reads_result`]) is as it was, another one may hold anything.
    fn run(&self, call: &mut Call<'_>) -> Result<Timing, Failure>;
}

/// What a finished call cost on the device, for the log and for learning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Bytes moved to the device.
    pub bytes_in: u64,
    /// Bytes moved from the device.
    pub bytes_out: u64,
    /// Time until the operands were on the device.
    pub upload_s: f64,
    /// Time of the kernels.
    pub compute_s: f64,
    /// Time until the result was in the caller's memory.
    pub download_s: f64,
    /// Part of it: time that copies between the caller's memory and other host memory took.
    pub copy_s: f64,
}
