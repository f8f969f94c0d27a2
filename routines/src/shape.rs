//! A call without its pointers: what the cost model needs to know.

use crate::{Op, Precision};

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
    /// The output is not read.
    pub beta_zero: bool,
}

impl Shape {
    /// Floating-point operations; a complex multiply-add counts 8.
    pub fn flops(&self) -> f64 {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        let factor = if self.precision.is_complex() { 8.0 } else { 2.0 };
        factor * m * n * k
    }

    /// Bytes that must reach the device.
    pub fn bytes_in(&self) -> f64 {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        let c = if self.beta_zero { 0.0 } else { m * n };
        (m * k + k * n + c) * self.precision.elem_bytes() as f64
    }

    /// Bytes that must come back.
    pub fn bytes_out(&self) -> f64 {
        self.m as f64 * self.n as f64 * self.precision.elem_bytes() as f64
    }
}
