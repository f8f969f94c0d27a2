//! The scalar of the interpreter: complex double; real precisions leave the imaginary part 0.

use call::Scalar;
use std::ops::{Add, Div, Mul, Sub};

/// re + i im.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

impl Complex {
    pub const ZERO: Self = Self { re: 0.0, im: 0.0 };
    pub const ONE: Self = Self { re: 1.0, im: 0.0 };
    /// What device memory holds before anything was written.
    pub const POISON: Self = Self {
        re: f64::NAN,
        im: f64::NAN,
    };

    pub fn conj(self) -> Self {
        Self {
            im: -self.im,
            ..self
        }
    }

    pub fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl From<Scalar> for Complex {
    fn from(x: Scalar) -> Self {
        Self { re: x.re, im: x.im }
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, y: Self) -> Self {
        Self {
            re: self.re + y.re,
            im: self.im + y.im,
        }
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, y: Self) -> Self {
        Self {
            re: self.re - y.re,
            im: self.im - y.im,
        }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, y: Self) -> Self {
        Self {
            re: self.re * y.re - self.im * y.im,
            im: self.re * y.im + self.im * y.re,
        }
    }
}

impl Div for Complex {
    type Output = Self;
    fn div(self, y: Self) -> Self {
        let d = y.re * y.re + y.im * y.im;
        let x = self * y.conj();
        Self {
            re: x.re / d,
            im: x.im / d,
        }
    }
}
