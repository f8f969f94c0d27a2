//! What the tests of the products share: complex integers, matrices with parts that belong to nobody,
//! scalars.

use super::job::Precision;
use super::{cublasCreate_v2, cublasSetStream_v2};
use crate::testing::{Device, ok};
use core::ffi::c_void;
use core::ops::{Add, Mul};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64, pub f64);

pub const ZERO: Number = Number(0.0, 0.0);
pub const ONE: Number = Number(1.0, 0.0);

impl Add for Number {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0, self.1 + other.1)
    }
}

impl Mul for Number {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let re = self.0 * other.0 - self.1 * other.1;
        Self(re, self.0 * other.1 + self.1 * other.0)
    }
}

impl Number {
    pub fn conj(self) -> Self {
        Self(self.0, -self.1)
    }
}

pub const PRECISIONS: [Precision; 4] = [Precision::S, Precision::D, Precision::C, Precision::Z];

/// Bytes of nobody: what a test must find untouched, and NaN.
pub const NOBODY: u8 = 0xff;

pub fn encode(precision: Precision, number: Option<Number>, bytes: &mut Vec<u8>) {
    let Some(Number(re, im)) = number else {
        bytes.extend(vec![NOBODY; precision.elem_bytes() as usize]);
        return;
    };
    for part in [re, im]
        .iter()
        .take(if precision.is_real() { 1 } else { 2 })
    {
        match precision.part() {
            Precision::S => bytes.extend((*part as f32).to_ne_bytes()),
            _ => bytes.extend(part.to_ne_bytes()),
        }
    }
}

pub fn decode(precision: Precision, bytes: &[u8]) -> Option<Number> {
    if bytes.iter().all(|&byte| byte == NOBODY) {
        return None;
    }
    let part_bytes = precision.part().elem_bytes() as usize;
    let mut parts = bytes.chunks(part_bytes).map(|part| match part_bytes {
        4 => f64::from(f32::from_ne_bytes(part.try_into().expect("4 bytes"))),
        _ => f64::from_ne_bytes(part.try_into().expect("8 bytes")),
    });
    let re = parts.next().expect("a real part");
    Some(Number(re, parts.next().unwrap_or(0.0)))
}

/// A matrix whose untouched elements are `None`, and whose columns have a gap of two.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    values: Vec<Option<Number>>,
}

pub const GAP: usize = 2;

impl Matrix {
    pub fn new(rows: usize, cols: usize, value: impl Fn(usize, usize) -> Option<Number>) -> Self {
        let ld = rows + GAP;
        let at = |at: usize| (at % ld < rows).then(|| value(at % ld, at / ld)).flatten();
        let values = (0..ld * cols).map(at).collect();
        Self { rows, cols, values }
    }

    pub fn ld(&self) -> i64 {
        (self.rows + GAP) as i64
    }

    pub fn at(&self, i: usize, j: usize) -> Number {
        self.values[j * (self.rows + GAP) + i].expect("an element that takes part")
    }

    pub fn op(&self, trans: u32, i: usize, j: usize) -> Number {
        match trans {
            0 => self.at(i, j),
            1 => self.at(j, i),
            _ => self.at(j, i).conj(),
        }
    }

    pub fn upload(&self, device: &Device, precision: Precision) -> u64 {
        let mut bytes = Vec::new();
        for &value in &self.values {
            encode(precision, value, &mut bytes);
        }
        device.upload(&bytes)
    }

    pub fn download(&self, device: &Device, precision: Precision, address: u64) -> Self {
        let elem_bytes = precision.elem_bytes() as usize;
        let bytes = device.download(address, self.values.len() * elem_bytes);
        let values = bytes.chunks(elem_bytes).map(|x| decode(precision, x));
        Self {
            values: values.collect(),
            ..self.clone()
        }
    }
}

/// Repeatable integers from -3 to 3; the imaginary part of a real one is 0.
pub fn entry(precision: Precision, salt: usize, i: usize, j: usize) -> Number {
    let hash = (i + 31 * j + 977 * salt + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let im = if precision.is_real() {
        0
    } else {
        (hash / 7) % 7
    };
    let im = if precision.is_real() {
        0.0
    } else {
        im as f64 - 3.0
    };
    Number((hash % 7) as f64 - 3.0, im)
}

pub fn random(precision: Precision, salt: usize, rows: usize, cols: usize) -> Matrix {
    Matrix::new(rows, cols, |i, j| Some(entry(precision, salt, i, j)))
}

pub fn in_triangle(uplo: u32, i: usize, j: usize) -> bool {
    if uplo == 1 { i <= j } else { i >= j }
}

/// Random in one triangle.
pub fn half(precision: Precision, salt: usize, n: usize, uplo: u32) -> Matrix {
    Matrix::new(n, n, |i, j| {
        in_triangle(uplo, i, j).then(|| entry(precision, salt, i, j))
    })
}

/// A triangular matrix whose diagonal has an exact inverse; a unit diagonal is nobody's.
pub fn triangular(precision: Precision, n: usize, uplo: u32, unit: bool) -> Matrix {
    Matrix::new(n, n, |i, j| match (i == j, in_triangle(uplo, i, j)) {
        (true, _) if unit => None,
        (true, _) => Some(Number([1.0, -2.0, 0.5][i % 3], 0.0)),
        (false, true) => Some(entry(precision, 5, i, j)),
        (false, false) => None,
    })
}

pub fn element_of_triangular(
    a: &Matrix,
    uplo: u32,
    unit: bool,
    trans: u32,
    i: usize,
    j: usize,
) -> Number {
    let (row, col) = if trans == 0 { (i, j) } else { (j, i) };
    if row == col && unit {
        ONE
    } else if in_triangle(uplo, row, col) {
        a.op(trans, i, j)
    } else {
        ZERO
    }
}

/// A scalar in host memory, aligned as cuBLAS wants it.
#[repr(align(16))]
pub struct Scalar([u8; 16]);

impl Scalar {
    pub fn new(precision: Precision, value: Number) -> Self {
        let mut bytes = Vec::new();
        encode(precision, Some(value), &mut bytes);
        bytes.resize(16, 0);
        Self(bytes.try_into().expect("16 bytes"))
    }

    pub fn ptr(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }
}

pub fn handle(device: &Device) -> usize {
    let mut handle = 0;
    // SAFETY: the pointer is of this function.
    unsafe {
        ok(cublasCreate_v2(&raw mut handle));
        ok(cublasSetStream_v2(handle, device.stream));
    }
    handle
}

/// Sizes below and above OpenBLAS's blocks.
pub const SIZES: [(usize, usize, usize); 3] = [(5, 7, 3), (1, 1, 1), (37, 70, 67)];

pub fn sum(k: usize, term: impl Fn(usize) -> Number) -> Number {
    (0..k).fold(ZERO, |sum, l| sum + term(l))
}

/// The factors that are tried: with beta = 0 the old C is NaN.
pub fn factors(precision: Precision, hermitian: bool) -> [(Number, Number); 3] {
    let im = if precision.is_real() { 0.0 } else { 1.0 };
    let beta_im = if hermitian { 0.0 } else { im };
    [
        (Number(2.0, im), ZERO),
        (Number(-1.0, im), Number(2.0, beta_im)),
        (ZERO, ONE),
    ]
}

pub fn trans_of(precision: Precision) -> &'static [u32] {
    if precision.is_real() {
        &[0, 1]
    } else {
        &[0, 1, 2]
    }
}

/// beta * c, where c is not read for beta = 0.
pub fn scaled(beta: Number, c: &Matrix, i: usize, j: usize) -> Number {
    if beta == ZERO {
        ZERO
    } else {
        beta * c.at(i, j)
    }
}
