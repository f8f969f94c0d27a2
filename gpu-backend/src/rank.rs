//! How many singular values of a least-squares problem count, as gelsd and gelss say it. Pure arithmetic; no call, no
//! device.
//!
//! # Source
//! LAPACK 3.12: dlalsd.f (gelsd; also slalsd.f, clalsd.f, zlalsd.f) and dgelss.f.

use call::{Op, Precision};

/// Half the distance of 1 to the next number, LAPACK's 'Epsilon', and the smallest normal number.
fn machine(precision: Precision) -> (f64, f64) {
    match precision.real() {
        Precision::S => (f64::from(f32::EPSILON) / 2.0, f64::from(f32::MIN_POSITIVE)),
        _ => (f64::EPSILON / 2.0, f64::MIN_POSITIVE),
    }
}

/// Singular values above this count, of which the largest is `largest`; as the routine computes it in its own precision.
/// `None` where nothing is decided, with rcond = NaN.
pub fn threshold(op: Op, precision: Precision, rcond: f64, largest: f64) -> Option<f64> {
    let (eps, safmin) = machine(precision);
    if rcond.is_nan() {
        return None;
    }
    let rounded = |x: f64| match precision.real() {
        Precision::S => f64::from(x as f32),
        _ => x,
    };
    Some(match op {
        Op::Gelss => {
            let rcond = if rcond < 0.0 { 2.0 * eps } else { rcond };
            rounded(rcond * largest).max(safmin)
        }
        _ => {
            let own = rcond > 0.0 && rcond < 1.0;
            rounded(if own { rcond } else { eps } * largest)
        }
    })
}

/// Factor of eps S(1) within which of the threshold a singular value is taken to count by chance: what any routine's
/// rounding may move one, for matrices that are not large. Chosen.
const ROUNDING: f64 = 4.0;

/// True if singular values that are wrong by what Xgesvdp says of itself could count otherwise.
pub fn is_in_doubt(values: &[f64], threshold: f64, estimate: f64, precision: Precision) -> bool {
    let largest = values.first().copied().unwrap_or(0.0);
    let eps = machine(precision).0;
    // Its documentation does not say whether it is meant relative to the largest one.
    let error = estimate.abs() * largest.max(1.0) + ROUNDING * eps * largest;
    values.iter().any(|s| (s - threshold).abs() <= error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_the_reference() {
        let gelsd = |rcond, largest| threshold(Op::Gelsd, Precision::D, rcond, largest);
        let gelss = |rcond, largest| threshold(Op::Gelss, Precision::Z, rcond, largest);
        let eps = 2f64.powi(-53);
        assert_eq!(gelsd(1e-3, 5.0), Some(1e-3 * 5.0));
        for outside in [-1.0, 0.0, -0.0, 1.0, 7.0, f64::INFINITY] {
            assert_eq!(gelsd(outside, 3.0), Some(3.0 * eps), "{outside}");
        }
        assert_eq!(gelsd(f64::NAN, 3.0), None);
        assert_eq!(gelss(1e-3, 5.0), Some(1e-3 * 5.0));
        assert_eq!(gelss(-1.0, 3.0), Some(6.0 * eps));
        // Every value that is not 0 counts, or none.
        assert_eq!(gelss(0.0, 3.0), Some(f64::MIN_POSITIVE));
        assert_eq!(gelss(1.0, 3.0), Some(3.0));
        assert_eq!(gelss(f64::NAN, 3.0), None);
        let tenth = f64::from(0.1_f32);
        assert_eq!(
            threshold(Op::Gelsd, Precision::C, tenth, 3.0),
            Some(f64::from(0.1_f32 * 3.0))
        );
        assert_eq!(
            threshold(Op::Gelss, Precision::S, -1.0, 2.0),
            Some(f64::from(2.0 * f32::EPSILON))
        );
    }

    #[test]
    fn values_near_the_threshold_are_in_doubt() {
        let doubt = |values: &[f64], estimate| is_in_doubt(values, 1e-10, estimate, Precision::D);
        assert!(!doubt(&[1.0, 0.5, 1e-8], 1e-15));
        assert!(!doubt(&[1.0, 0.5, 1e-13], 1e-15));
        assert!(doubt(&[1.0, 0.5, 1.0000001e-10], 1e-15));
        assert!(doubt(&[1.0, 0.5, 1.1e-10], 2e-11));
        // Relative or absolute.
        assert!(doubt(&[100.0, 1.1e-10], 2e-13));
        assert!(doubt(&[0.01, 1.1e-10], 2e-11));
    }
}
