//! One decoded call in safe types (views with ld and intent), and the trait that a device implements.
//!
//! The door decodes raw pointers into these types once, after every argument was checked; whatever
//! stands behind works on views whose bounds are known. No FFI, no CUDA and no policy here.

mod view;

pub use routines::{Op, Precision, Trans};
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

/// C := alpha * op(A) * op(B) + beta * C.
///
/// # Shapes
/// op(A) is m x k, op(B) is k x n, C is m x n; all column-major. C is not read when beta is 0.
///
/// # Source
/// Reference BLAS 3.12, dgemm.f.
pub struct GemmCall<'a> {
    /// Element type of every operand.
    pub precision: Precision,
    /// op of A.
    pub transa: Trans,
    /// op of B.
    pub transb: Trans,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Inner dimension.
    pub k: usize,
    /// Factor of the product.
    pub alpha: Scalar,
    /// Factor of C.
    pub beta: Scalar,
    /// A as stored: m x k, or k x m when transposed.
    pub a: MatRef<'a>,
    /// B as stored: k x n, or n x k when transposed.
    pub b: MatRef<'a>,
    /// C.
    pub c: MatMut<'a>,
}

/// A legal call that is not a quick return.
pub enum Call<'a> {
    /// General matrix product.
    Gemm(GemmCall<'a>),
}

impl Call<'_> {
    /// The same call without its pointers, as the cost model sees it.
    pub fn shape(&self) -> routines::Shape {
        match self {
            Call::Gemm(g) => routines::Shape {
                op: Op::Gemm,
                precision: g.precision,
                m: g.m as u64,
                n: g.n as u64,
                k: g.k as u64,
                beta_zero: g.beta.is_zero(),
            },
        }
    }
}

/// Why a device did not deliver. Nothing was written to the caller's memory.
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
    /// Computes the call's result. The caller's memory is read, never written.
    ///
    /// # Errors
    /// Any [`Failure`]; the caller's memory is as it was.
    fn compute<'b>(&'b self, call: &Call<'_>) -> Result<Box<dyn Ready + 'b>, Failure>;
}

/// A result that is complete on the device and not yet in the caller's memory.
pub trait Ready {
    /// Writes the result into the outputs of `call`, which is the call it was computed from.
    ///
    /// # Errors
    /// Where the outputs may have been written in part, they are still recomputable by the CPU:
    /// an output that is also an input is written only after nothing can fail any more.
    fn commit(self: Box<Self>, call: &mut Call<'_>) -> Result<Timing, Failure>;
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
}
