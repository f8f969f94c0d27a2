//! The four element types of BLAS, and what a checker needs of them: parts in `f64`, bits, the
//! passing convention of CBLAS. No arithmetic: that is `sum`'s, in more than the type's precision.

use std::fmt::Debug;

use num_complex::{Complex, Complex64};

/// An element type of BLAS.
pub trait Scalar: Copy + Debug + Send + Sync + 'static {
    /// Its real type (`herk`'s alpha and beta, `her2k`'s beta).
    type Real: Scalar;
    /// How CBLAS passes a scalar of this type: by value if real, by pointer if complex.
    type Passed: Copy;
    /// Whether there is an imaginary part.
    const COMPLEX: bool;
    /// Distance from 1 to the next number (2 units of rounding).
    const EPS: f64;
    /// The value nearest to `value`; a real type drops the imaginary part.
    fn rounded(value: Complex64) -> Self;
    /// The value, exactly.
    fn parts(self) -> Complex64;
    /// A quiet NaN with a payload that arithmetic on numbers does not produce.
    fn poison() -> Self;
    /// Equality of bits: equal NaNs are equal, zeros of both signs are not.
    fn same_bits(self, other: Self) -> bool;
    /// The value as CBLAS takes it; a pointer is good for as long as the borrow.
    fn passed(value: &Self) -> Self::Passed;
}

macro_rules! real {
    ($real:ident, $poison:literal) => {
        impl Scalar for $real {
            type Real = $real;
            type Passed = $real;
            const COMPLEX: bool = false;
            const EPS: f64 = $real::EPSILON as f64;
            fn rounded(value: Complex64) -> Self {
                value.re as $real
            }
            fn parts(self) -> Complex64 {
                Complex::new(f64::from(self), 0.0)
            }
            fn poison() -> Self {
                $real::from_bits($poison)
            }
            fn same_bits(self, other: Self) -> bool {
                self.to_bits() == other.to_bits()
            }
            fn passed(value: &Self) -> Self {
                *value
            }
        }

        impl Scalar for Complex<$real> {
            type Real = $real;
            type Passed = *const Complex<$real>;
            const COMPLEX: bool = true;
            const EPS: f64 = $real::EPSILON as f64;
            fn rounded(value: Complex64) -> Self {
                Complex::new(value.re as $real, value.im as $real)
            }
            fn parts(self) -> Complex64 {
                Complex::new(f64::from(self.re), f64::from(self.im))
            }
            fn poison() -> Self {
                Complex::new($real::poison(), $real::poison())
            }
            fn same_bits(self, other: Self) -> bool {
                self.re.same_bits(other.re) && self.im.same_bits(other.im)
            }
            fn passed(value: &Self) -> Self::Passed {
                value
            }
        }
    };
}

real!(f32, 0x7fc5_a5a5);
real!(f64, 0x7ff8_5a5a_a5a5_5a5a);
