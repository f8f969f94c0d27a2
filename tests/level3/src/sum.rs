//! Sums of products in about twice the precision of `f64`, so that the reference's own error (some
//! k^2 eps^2) vanishes beside the bound it is compared with. Ogita, Rump and Oishi's Dot2; own code,
//! since it is ten lines and a general double-double crate renormalises at every step.

use num_complex::Complex64;

/// A sum of real products: `high + low`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    /// Adds `x * y`. Not for non-finite values: their error terms are NaN.
    #[inline]
    pub fn add_product(&mut self, x: f64, y: f64) {
        let product = x * y;
        let product_error = x.mul_add(y, -product);
        let sum = self.high + product;
        let part = sum - self.high;
        let sum_error = (self.high - (sum - part)) + (product - part);
        self.high = sum;
        self.low += sum_error + product_error;
    }

    /// `value - self`, rounded once where it is small.
    pub fn distance_to(self, value: f64) -> f64 {
        (value - self.high) - self.low
    }

    /// The sum, rounded.
    pub fn value(self) -> f64 {
        self.high + self.low
    }
}

/// A sum of complex products.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComplexSum {
    /// The real part.
    pub re: Sum,
    /// The imaginary part; stays zero where everything is real.
    pub im: Sum,
}

impl ComplexSum {
    /// Adds `x * y`.
    #[inline]
    pub fn add_product(&mut self, x: Complex64, y: Complex64) {
        self.re.add_product(x.re, y.re);
        self.re.add_product(-x.im, y.im);
        self.im.add_product(x.re, y.im);
        self.im.add_product(x.im, y.re);
    }

    /// The sum over l of `x[l] * y[l]`; `complex` false means that all imaginary parts are zero.
    pub fn dot(x: &[Complex64], y: &[Complex64], complex: bool) -> Self {
        let mut sum = Self::default();
        if complex {
            x.iter().zip(y).for_each(|(x, y)| sum.add_product(*x, *y));
        } else {
            x.iter()
                .zip(y)
                .for_each(|(x, y)| sum.re.add_product(x.re, y.re));
        }
        sum
    }

    /// Adds `scale * other`.
    pub fn add_scaled(&mut self, scale: Complex64, other: Self) {
        self.add_product(scale, Complex64::new(other.re.high, other.im.high));
        self.add_product(scale, Complex64::new(other.re.low, other.im.low));
    }

    /// `|value - self|`.
    pub fn distance_to(self, value: Complex64) -> f64 {
        self.re
            .distance_to(value.re)
            .hypot(self.im.distance_to(value.im))
    }

    /// The sum, rounded.
    pub fn value(self) -> Complex64 {
        Complex64::new(self.re.value(), self.im.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_f64_loses_is_kept() {
        let mut sum = Sum::default();
        let tiny = 2f64.powi(-80);
        sum.add_product(1.0, 1.0);
        sum.add_product(tiny, 1.0);
        sum.add_product(-1.0, 1.0);
        assert_eq!(sum.value(), tiny);
        // (1 + e)^2 - 1 - 2 e = e^2, with e = eps: the product itself does not fit into f64.
        let mut square = Sum::default();
        let x = 1.0 + f64::EPSILON;
        square.add_product(x, x);
        square.add_product(-1.0, 1.0);
        square.add_product(-2.0, f64::EPSILON);
        assert_eq!(square.value(), f64::EPSILON * f64::EPSILON);
    }

    #[test]
    fn complex_products_by_hand() {
        let x = [Complex64::new(1.0, 2.0), Complex64::new(0.0, 1.0)];
        let y = [Complex64::new(3.0, -1.0), Complex64::new(0.0, 4.0)];
        // (1+2i)(3-i) = 5+5i; i * 4i = -4.
        let dot = ComplexSum::dot(&x, &y, true);
        assert_eq!(dot.value(), Complex64::new(1.0, 5.0));
        let mut scaled = ComplexSum::default();
        scaled.add_scaled(Complex64::new(0.0, 1.0), dot);
        assert_eq!(scaled.value(), Complex64::new(-5.0, 1.0));
        assert_eq!(scaled.distance_to(Complex64::new(-2.0, 5.0)), 5.0);
    }
}
