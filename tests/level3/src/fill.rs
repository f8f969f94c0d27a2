//! The memory of a call before it runs: operands with random entries, canaries everywhere else. What
//! the definition says is not read holds NaN: the other triangle, a unit diagonal, C when beta is
//! zero, all inputs when alpha is zero.

use fastrand::Rng;
use num_complex::Complex64;

use crate::family::{Family, Kind};
use crate::plan::{Operand, Part, Plan};
use crate::scalar::Scalar;

/// The regions of a call.
pub type Image<T> = Vec<Vec<T>>;

/// The regions of `plan` before the call; `rng` is the one that drew the plan.
pub fn fill<T: Scalar>(plan: &Plan, rng: &mut Rng) -> Image<T> {
    let mut image: Image<T> = Vec::with_capacity(plan.regions.len());
    for region in &plan.regions {
        let canaries = (0..region.length).map(|_| canary(plan, rng)).collect();
        image.push(canaries);
    }
    let in_place = plan.family.kind() == Kind::Triangular;
    let reads_inputs = plan.alpha != Complex64::ZERO;
    if plan.same_inputs() {
        set(&mut image, &plan.a, Part::Full, reads_inputs, rng);
    } else {
        set(&mut image, &plan.a, plan.part_a(), reads_inputs, rng);
        if let Some(b) = &plan.b {
            set(&mut image, b, Part::Full, reads_inputs, rng);
        }
    }
    let reads_c = if in_place {
        reads_inputs
    } else {
        plan.beta != Complex64::ZERO
    };
    set(&mut image, &plan.c, plan.part_c(), reads_c, rng);
    if in_place && reads_inputs {
        shape_triangle(&mut image, plan);
    }
    if plan.non_finite {
        plant_non_finite(&mut image, plan, rng);
    }
    image
}

fn canary<T: Scalar>(plan: &Plan, rng: &mut Rng) -> T {
    if plan.nan_canaries {
        T::poison()
    } else {
        // Far from the operands' entries, so that a result with one of them is far off.
        T::rounded(Complex64::new(
            1000.0 + rng.f64() * 1000.0,
            3000.0 + rng.f64() * 1000.0,
        ))
    }
}

/// Random entries of modulus 2^-6 to 1.5 (none is zero, so that a NaN in a factor reaches the
/// product), or NaN.
fn set<T: Scalar>(
    image: &mut Image<T>,
    operand: &Operand,
    part: Part,
    is_read: bool,
    rng: &mut Rng,
) {
    // Entries of one sign let rounding errors and partial sums grow as far as they can.
    let one_sign = rng.u8(0..4) == 0;
    let mut entry = || {
        let size = 2f64.powi(-6) + rng.f64();
        if one_sign || rng.bool() { size } else { -size }
    };
    let region = &mut image[operand.region];
    for i in 0..operand.rows {
        for j in (0..operand.columns).filter(|&j| part.holds(i, j)) {
            region[operand.at(i, j)] = if is_read {
                T::rounded(Complex64::new(entry(), entry()))
            } else {
                T::poison()
            };
        }
    }
}

/// Hides a unit diagonal; for trsm also makes A well-conditioned: a diagonal of modulus above 1,
/// the rest of a row below 1.5 in sum.
fn shape_triangle<T: Scalar>(image: &mut Image<T>, plan: &Plan) {
    let (a, order) = (&plan.a, plan.a.rows);
    for i in 0..order {
        for j in (0..order).filter(|&j| plan.part_a().holds(i, j)) {
            let entry = &mut image[a.region][a.at(i, j)];
            if i == j && plan.unit() {
                *entry = T::poison();
            } else if plan.family == Family::Trsm {
                let value = entry.parts();
                *entry = T::rounded(if i == j {
                    value + Complex64::new(value.re.signum(), 0.0)
                } else {
                    value / order as f64
                });
            }
        }
    }
}

/// One to three entries of the inputs (C too, if it is read) become infinite or NaN.
fn plant_non_finite<T: Scalar>(image: &mut Image<T>, plan: &Plan, rng: &mut Rng) {
    for _ in 0..rng.usize(1..=3) {
        let reads_c = plan.beta != Complex64::ZERO;
        let (operand, part) = match (rng.u8(0..3), plan.b) {
            (0, _) if reads_c => (plan.c, plan.part_c()),
            (1, Some(b)) => (b, Part::Full),
            _ => (plan.a, plan.part_a()),
        };
        if operand.rows == 0 || operand.columns == 0 {
            continue;
        }
        let (i, j) = (rng.usize(0..operand.rows), rng.usize(0..operand.columns));
        if !part.holds(i, j) {
            continue;
        }
        let value = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][rng.usize(0..3)];
        let entry = &mut image[operand.region][operand.at(i, j)];
        let finite = entry.parts();
        *entry = T::rounded(if T::COMPLEX && rng.bool() {
            Complex64::new(finite.re, value)
        } else {
            Complex64::new(value, finite.im)
        });
    }
}
