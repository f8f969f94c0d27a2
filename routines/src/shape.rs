//! A call without its pointers: what the cost model needs to know.

use crate::{Dims, Op, Precision, family};

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
}

impl Shape {
    fn dims(&self) -> Dims {
        Dims {
            m: self.m,
            n: self.n,
            k: self.k,
            right: self.right,
        }
    }

    /// Floating-point operations, by the table.
    pub fn flops(&self) -> f64 {
        family(self.op).flops.count(self.precision, &self.dims())
    }

    /// Bytes that must reach the device.
    pub fn bytes_in(&self) -> f64 {
        family(self.op)
            .bytes(self.precision, &self.dims(), self.beta_zero)
            .0
    }

    /// Bytes that must come back.
    pub fn bytes_out(&self) -> f64 {
        family(self.op)
            .bytes(self.precision, &self.dims(), self.beta_zero)
            .1
    }
}
