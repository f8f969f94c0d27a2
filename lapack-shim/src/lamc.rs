//! `?lamc1`, `?lamc2`, `?lamc4`, `?lamc5`: the parts of the `?lamch` of LAPACK before 3.2, which old
//! programs still call. The archive has only `?lamch` and `?lamc3`.
//!
//! The machine is known (IEEE 754), so what those routines found by experiment is returned as it is;
//! `?lamc4` and `?lamc5` depend on their arguments and compute.
//!
//! Unsafe lives here because Fortran passes addresses.
//!
//! # Source
//! LAPACK 3.1 documentation of dlamch.f; IEEE 754-2008 for the values.

use core::ffi::c_int;

macro_rules! machine_parameters {
    (
        $float:ty, $lamc1:ident, $lamc2:ident, $lamc4:ident, $lamc5:ident, $lowest_exponent:ident
    ) => {
        /// Base, digits of the mantissa, whether it rounds, whether it rounds to even.
        ///
        /// # Safety
        /// Four addresses that may be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lamc1(
            beta: *mut c_int,
            t: *mut c_int,
            rnd: *mut c_int,
            ieee1: *mut c_int,
        ) {
            // SAFETY: the caller vouches for the addresses.
            unsafe {
                beta.write(2);
                t.write(<$float>::MANTISSA_DIGITS as c_int);
                rnd.write(1);
                ieee1.write(1);
            }
        }

        /// Base, digits, rounding, relative precision, lowest exponent and smallest normal number,
        /// highest exponent and largest number.
        ///
        /// # Safety
        /// Eight addresses that may be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lamc2(
            beta: *mut c_int,
            t: *mut c_int,
            rnd: *mut c_int,
            eps: *mut $float,
            emin: *mut c_int,
            rmin: *mut $float,
            emax: *mut c_int,
            rmax: *mut $float,
        ) {
            // SAFETY: the caller vouches for the addresses.
            unsafe {
                beta.write(2);
                t.write(<$float>::MANTISSA_DIGITS as c_int);
                rnd.write(1);
                // Arithmetic rounds, so the precision is half the distance of 1 from its successor.
                eps.write(<$float>::EPSILON / 2.0);
                emin.write(<$float>::MIN_EXP);
                rmin.write(<$float>::MIN_POSITIVE);
                emax.write(<$float>::MAX_EXP);
                rmax.write(<$float>::MAX);
            }
        }

        /// The exponent at which dividing `start` by `base` first loses something.
        ///
        /// # Safety
        /// `emin` may be written; `start` and `base` may be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lamc4(
            emin: *mut c_int,
            start: *const $float,
            base: *const c_int,
        ) {
            // SAFETY: the caller vouches for the addresses.
            unsafe { emin.write($lowest_exponent(start.read(), base.read())) }
        }

        /// See the routine with an underscore; a base below 2 or a start that is not finite and
        /// positive has no answer, and gets 1.
        fn $lowest_exponent(start: $float, base: c_int) -> c_int {
            if base < 2 || !(start > 0.0 && start.is_finite()) {
                return 1;
            }
            let divisor = base as $float;
            let mut exponent = 1;
            let mut value = start;
            // Ends at zero at the latest, which is not what it was before.
            while value / divisor * divisor == value && value > 0.0 {
                value /= divisor;
                exponent -= 1;
            }
            exponent
        }

        /// Highest exponent and largest number of a format with `p` digits in base `beta` and lowest
        /// exponent `emin`.
        ///
        /// # Safety
        /// `emax` and `rmax` may be written, the others read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lamc5(
            beta: *const c_int,
            p: *const c_int,
            emin: *const c_int,
            ieee: *const c_int,
            emax: *mut c_int,
            rmax: *mut $float,
        ) {
            // SAFETY: the caller vouches for the addresses.
            let [beta, p, emin, ieee] = unsafe { [*beta, *p, *emin, *ieee] };
            let highest = highest_exponent(beta, p, emin, ieee != 0);
            // The largest mantissa, 1 - beta^-p, and then the exponent.
            let base = beta.max(2) as $float;
            let (mut digit, mut largest): ($float, $float) = (base - 1.0, 0.0);
            for _ in 0..p.max(0) {
                digit /= base;
                if largest + digit < 1.0 {
                    largest += digit;
                }
            }
            for _ in 0..highest.max(0) {
                largest *= base;
            }
            // SAFETY: as above.
            unsafe {
                emax.write(highest);
                rmax.write(largest);
            }
        }
    };
}

/// The exponent field is the smallest whose range, balanced about zero, reaches down to `emin`; one bit
/// pattern is spent where the bits come out odd, one more on infinities.
fn highest_exponent(beta: c_int, p: c_int, emin: c_int, ieee: bool) -> c_int {
    let depth = i64::from(emin).saturating_neg();
    let (mut low, mut bits) = (1i64, 1i64);
    while low * 2 <= depth {
        low *= 2;
        bits += 1;
    }
    let high = if low == depth { low } else { low * 2 };
    if low != depth {
        bits += 1;
    }
    let range = if high - depth > depth - low {
        2 * low
    } else {
        2 * high
    };
    let mut highest = range - depth - 1;
    if (1 + bits + i64::from(p)) % 2 == 1 && beta == 2 {
        highest -= 1;
    }
    if ieee {
        highest -= 1;
    }
    c_int::try_from(highest).unwrap_or(c_int::MAX)
}

machine_parameters!(f32, slamc1_, slamc2_, slamc4_, slamc5_, lowest_exponent_f32);
machine_parameters!(f64, dlamc1_, dlamc2_, dlamc4_, dlamc5_, lowest_exponent_f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_computed_parameters_are_those_of_ieee_754() {
        assert_eq!(highest_exponent(2, 53, f64::MIN_EXP, true), f64::MAX_EXP);
        assert_eq!(highest_exponent(2, 24, f32::MIN_EXP, true), f32::MAX_EXP);
        let (mut emax, mut rmax) = (0, 0.0);
        // SAFETY: live locals.
        unsafe { dlamc5_(&2, &53, &f64::MIN_EXP, &1, &raw mut emax, &raw mut rmax) };
        assert_eq!((emax, rmax), (f64::MAX_EXP, f64::MAX));
        let (mut emax, mut rmax) = (0, 0.0);
        // SAFETY: live locals.
        unsafe { slamc5_(&2, &24, &f32::MIN_EXP, &1, &raw mut emax, &raw mut rmax) };
        assert_eq!((emax, rmax), (f32::MAX_EXP, f32::MAX));
    }

    #[test]
    fn division_loses_at_the_smallest_subnormal() {
        // 2^-1074 is the last power of two; the exponent of 1 is 1.
        assert_eq!(lowest_exponent_f64(1.0, 2), 1 - 1074);
        assert_eq!(lowest_exponent_f32(1.0, 2), 1 - 149);
        assert_eq!(lowest_exponent_f64(f64::NAN, 2), 1);
        assert_eq!(lowest_exponent_f64(1.0, 1), 1);
    }
}
