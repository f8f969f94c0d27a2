//! A call without its pointers: what the cost model needs to know.

use crate::{Dims, Gate, Library, Op, Precision, family};

/// One call's family, precision and dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Family.
    pub op: Op,
    /// Element type.
    pub precision: Precision,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Inner dimension (the other dimension, where a family has only two).
    pub k: u64,
    /// The symmetric or triangular matrix stands on the right.
    pub right: bool,
    /// The output is not read.
    pub beta_zero: bool,
    /// A LAPACK routine's option letters, upper case, in the table's order; zeros beyond the last and for
    /// level-3 BLAS, whose options do not change the work.
    pub letters: [u8; 4],
}

impl Shape {
    /// Of a routine of LAPACK with these sizes and option letters.
    pub fn of_lapack(op: Op, precision: Precision, dims: &Dims, letters: [u8; 4]) -> Self {
        Self {
            op,
            precision,
            m: dims.m,
            n: dims.n,
            k: dims.k,
            right: dims.right,
            beta_zero: false,
            letters,
        }
    }

    fn dims(&self) -> Dims {
        Dims {
            m: self.m,
            n: self.n,
            k: self.k,
            right: self.right,
        }
    }

    /// Order of the symmetric or triangular matrix, in the families that have one.
    pub fn order(&self) -> u64 {
        if self.right { self.n } else { self.m }
    }

    /// Sizes of the matrix product that stands for the call: m n k, with the order for k where one operand
    /// is symmetric or triangular. For LAPACK the sizes that the family's gate names, with min(m, n) for the
    /// third in a rectangular factorisation; m n k where it has no gate.
    pub fn product(&self) -> [u64; 3] {
        let family = family(self.op);
        match (family.library, family.gate) {
            (Library::Blas, Some(Gate::Sided)) => [self.m, self.n, self.order()],
            (Library::Lapack, Some(Gate::Product(["m", "n", "n"]))) => {
                [self.m, self.n, self.m.min(self.n)]
            }
            (Library::Lapack, Some(Gate::Product(sizes))) => sizes.map(|size| match size {
                "m" => self.m,
                "n" => self.n,
                _ => self.k,
            }),
            _ => [self.m, self.n, self.k],
        }
    }

    /// Multiply-adds of that product, which thresholds are written in; `u64::MAX` beyond 64 bits. Where
    /// one operand is a triangle, the call has half of them.
    pub fn work(&self) -> u64 {
        let [m, n, k] = self.product();
        m.saturating_mul(n).saturating_mul(k)
    }

    /// Floating-point operations, by the table.
    pub fn flops(&self) -> f64 {
        family(self.op).flops.count(self.precision, &self.dims())
    }

    /// Bytes that must reach the device, and bytes that must come back.
    pub fn bytes(&self) -> (f64, f64) {
        family(self.op).bytes(self.precision, &self.dims(), self.beta_zero)
    }

    /// Bytes that must reach the device.
    pub fn bytes_in(&self) -> f64 {
        self.bytes().0
    }

    /// Bytes that must come back.
    pub fn bytes_out(&self) -> f64 {
        self.bytes().1
    }
}
