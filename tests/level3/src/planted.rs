//! Tests of the checker: results that follow the definition pass, and each kind of planted error is
//! caught. The results come from a naive stand-in for a library, not from a BLAS.

use clap::ValueEnum;
use fastrand::Rng;
use num_complex::{Complex, Complex64};

use crate::check::{Trouble, check};
use crate::family::{Family, Precision};
use crate::fill::{Image, fill};
use crate::plan::{Choice, Part, Plan};
use crate::reference::{Nature, Reference, entry, triangular};
use crate::scalar::Scalar;

/// Calls drawn for each precision: each of the 12 families about a hundred times.
const CALLS: u64 = 1200;

/// A call with a right result.
struct Case<T> {
    plan: Plan,
    before: Image<T>,
    after: Image<T>,
    rng: Rng,
}

impl<T: Scalar> Case<T> {
    /// An element that the call may write.
    fn written(&mut self) -> Option<(usize, usize)> {
        let c = self.plan.c;
        if self.plan.changes_nothing() {
            return None;
        }
        let (i, j) = (self.rng.usize(0..c.rows), self.rng.usize(0..c.columns));
        self.plan.part_c().holds(i, j).then_some((i, j))
    }

    /// What the element (i, j) of the result must be.
    fn nature(&self, i: usize, j: usize) -> Nature {
        let old = entry(&self.before, &self.plan.c, i, j);
        let reference = Reference::new(&self.plan, &self.before, &self.after);
        reference.element(i, j, old).nature
    }

    /// The verdict when one element of a region is replaced.
    fn with(&self, region: usize, at: usize, value: T) -> Result<f64, Trouble> {
        let mut after = self.after.clone();
        after[region][at] = value;
        check(&self.plan, &self.before, &after)
    }

    /// The verdict when an element of the result is replaced.
    fn with_result(&self, (i, j): (usize, usize), value: Complex64) -> Result<f64, Trouble> {
        let c = self.plan.c;
        self.with(c.region, c.at(i, j), T::rounded(value))
    }

    /// The verdict when a place that must not change does.
    fn touched(&self, region: usize, at: usize) -> Result<f64, Trouble> {
        let old = self.after[region][at].parts();
        let new = if !old.is_finite() {
            Complex64::ONE
        } else {
            old + Complex64::ONE
        };
        self.with(region, at, T::rounded(new))
    }
}

/// Solves trsm in f64.
fn solve<T: Scalar>(plan: &Plan, before: &Image<T>, after: &mut Image<T>) {
    let (order, c) = (plan.depth(), plan.c);
    let lower = (plan.triangle() == Part::Lower) == (plan.op_a() == 'N');
    // From the right, the transposed system is solved.
    let forward = lower == plan.left();
    let count = if plan.left() { c.columns } else { c.rows };
    for vector in 0..count {
        let at = |row| {
            if plan.left() {
                (row, vector)
            } else {
                (vector, row)
            }
        };
        let mut solution = vec![Complex64::ZERO; order];
        for step in 0..order {
            let row = if forward { step } else { order - 1 - step };
            let (i, j) = at(row);
            let mut value = plan.alpha * entry(before, &c, i, j);
            let factor = |l| {
                if plan.left() {
                    triangular(plan, before, row, l)
                } else {
                    triangular(plan, before, l, row)
                }
            };
            for (l, known) in solution.iter().enumerate().filter(|(l, _)| *l != row) {
                value -= factor(l) * known;
            }
            solution[row] = value / factor(row);
            after[c.region][c.at(i, j)] = T::rounded(solution[row]);
        }
    }
}

/// What a right library leaves.
fn imitate<T: Scalar>(plan: &Plan, before: &Image<T>) -> Image<T> {
    let mut after = before.clone();
    if plan.changes_nothing() {
        return after;
    }
    if plan.family == Family::Trsm && plan.alpha != Complex64::ZERO {
        solve(plan, before, &mut after);
        return after;
    }
    let (c, reference) = (plan.c, Reference::new(plan, before, before));
    for i in 0..c.rows {
        for j in (0..c.columns).filter(|&j| plan.part_c().holds(i, j)) {
            let expected = reference.element(i, j, entry(before, &c, i, j));
            let nan = Complex64::new(f64::NAN, f64::NAN);
            let finite = expected.nature == Nature::Finite;
            let value = if finite { expected.value.value() } else { nan };
            after[c.region][c.at(i, j)] = T::rounded(value);
        }
    }
    after
}

fn cases<T: Scalar>(precision: Precision) -> Vec<Case<T>> {
    let families = Family::value_variants().iter();
    let choice = Choice {
        families: families
            .copied()
            .filter(|f| f.exists_in(precision))
            .collect(),
        precisions: vec![precision],
        most: 9,
        seed: 11,
    };
    let case = |index| {
        let (plan, mut rng) = Plan::draw(&choice, index);
        let before = fill::<T>(&plan, &mut rng);
        let after = imitate(&plan, &before);
        Case {
            plan,
            before,
            after,
            rng,
        }
    };
    (0..CALLS).map(case).collect()
}

/// Runs a generic test in all precisions; it returns how often it planted its error.
macro_rules! in_all_precisions {
    ($($(#[$meta:meta])* $test:ident: $plant:ident, at least $least:literal;)+) => {$(
        $(#[$meta])*
        #[test]
        fn $test() {
            let planted = [
                cases::<f32>(Precision::S).into_iter().filter_map($plant).count(),
                cases::<f64>(Precision::D).into_iter().filter_map($plant).count(),
                cases::<Complex<f32>>(Precision::C).into_iter().filter_map($plant).count(),
                cases::<Complex<f64>>(Precision::Z).into_iter().filter_map($plant).count(),
            ];
            let total: usize = planted.iter().sum();
            assert!(total >= $least, "planted {planted:?} times only");
        }
    )+};
}

in_all_precisions! {
    right_results_pass: right_result, at least 4800;
    a_flipped_element_is_caught: flipped_element, at least 1500;
    a_leaked_nan_is_caught: leaked_nan, at least 1500;
    a_number_in_place_of_nan_is_caught: number_for_nan, at least 20;
    a_call_that_does_nothing_is_caught: nothing_done, at least 1500;
    a_touched_guard_is_caught: touched_guard, at least 4800;
    a_touched_gap_is_caught: touched_gap, at least 1000;
    the_wrong_triangle_is_caught: wrong_triangle, at least 500;
    a_changed_input_is_caught: changed_input, at least 3000;
    a_forgotten_conjugation_is_caught: forgotten_conjugation, at least 200;
    a_diagonal_that_is_not_real_is_caught: diagonal_not_real, at least 100;
}

/// The call came to `verdict`: it must be an error of the expected kind.
fn assert_caught<T>(
    case: &Case<T>,
    verdict: Result<f64, Trouble>,
    kind: impl Fn(&Trouble) -> bool,
) {
    match verdict {
        Err(trouble) if kind(&trouble) => {}
        other => panic!("{other:?} for {:?}", case.plan),
    }
}

fn is_change(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Changed { .. })
}

fn is_value(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Value { .. })
}

fn right_result<T: Scalar>(case: Case<T>) -> Option<()> {
    let verdict = check(&case.plan, &case.before, &case.after);
    assert!(verdict.is_ok(), "{verdict:?} for {:?}", case.plan);
    Some(())
}

/// A thousandth of what the element is made of: f32's bound is 30 times smaller at these sizes.
fn flipped_element<T: Scalar>(mut case: Case<T>) -> Option<()> {
    let (i, j) = case.written()?;
    let old = entry(&case.before, &case.plan.c, i, j);
    let reference = Reference::new(&case.plan, &case.before, &case.after);
    let expected = reference.element(i, j, old);
    if expected.nature != Nature::Finite {
        return None;
    }
    // A result that is zero by definition must be zero exactly.
    let step = (1e-3 * (expected.products + expected.old)).max(1e-30);
    let value = entry(&case.after, &case.plan.c, i, j) + step;
    assert_caught(&case, case.with_result((i, j), value), is_value);
    Some(())
}

fn leaked_nan<T: Scalar>(mut case: Case<T>) -> Option<()> {
    let (i, j) = case.written()?;
    if case.nature(i, j) != Nature::Finite {
        return None;
    }
    let mut value = entry(&case.after, &case.plan.c, i, j);
    if T::COMPLEX && case.rng.bool() {
        value.im = f64::NAN;
    } else {
        value.re = f64::NAN;
    }
    // On a Hermitian diagonal the NaN may be what is not real.
    let verdict = case.with_result((i, j), value);
    assert_caught(&case, verdict, |trouble| {
        matches!(trouble, Trouble::Value { .. } | Trouble::NotReal { .. })
    });
    Some(())
}

fn number_for_nan<T: Scalar>(mut case: Case<T>) -> Option<()> {
    let (i, j) = case.written()?;
    if case.nature(i, j) == Nature::Finite {
        return None;
    }
    let verdict = case.with_result((i, j), Complex64::ONE);
    assert_caught(&case, verdict, |trouble| {
        matches!(trouble, Trouble::Nature { .. } | Trouble::Value { .. })
    });
    Some(())
}

/// Among others, C full of NaN that beta = 0 leaves there.
fn nothing_done<T: Scalar>(case: Case<T>) -> Option<()> {
    let c = case.plan.c;
    let changes = case.before[c.region]
        .iter()
        .zip(&case.after[c.region])
        .any(|(before, after)| !before.same_bits(*after));
    if !changes {
        return None;
    }
    let all_finite =
        (0..c.rows).all(|i| (0..c.columns).all(|j| case.nature(i, j) == Nature::Finite));
    if !all_finite {
        return None;
    }
    let verdict = check(&case.plan, &case.before, &case.before);
    assert_caught(&case, verdict, |trouble| !is_change(trouble));
    Some(())
}

fn touched_guard<T: Scalar>(case: Case<T>) -> Option<()> {
    for (region, memory) in case.plan.regions.iter().enumerate() {
        assert_caught(&case, case.touched(region, 0), is_change);
        if !memory.at_border {
            let verdict = case.touched(region, memory.length - 1);
            assert_caught(&case, verdict, is_change);
        }
    }
    Some(())
}

fn touched_gap<T: Scalar>(case: Case<T>) -> Option<()> {
    // The element behind the first column (row), in front of the second.
    let c = case.plan.c;
    let (lead, count) = if c.by_rows {
        (c.columns, c.rows)
    } else {
        (c.rows, c.columns)
    };
    if lead == c.ld || count < 2 || lead == 0 || case.plan.regions.len() == 1 {
        return None;
    }
    let verdict = case.touched(c.region, c.offset + lead);
    assert_caught(&case, verdict, is_change);
    Some(())
}

fn wrong_triangle<T: Scalar>(mut case: Case<T>) -> Option<()> {
    let c = case.plan.c;
    if c.rows == 0 || c.columns == 0 {
        return None;
    }
    let (i, j) = (case.rng.usize(0..c.rows), case.rng.usize(0..c.columns));
    if case.plan.part_c().holds(i, j) {
        return None;
    }
    assert_caught(&case, case.touched(c.region, c.at(i, j)), is_change);
    Some(())
}

fn changed_input<T: Scalar>(mut case: Case<T>) -> Option<()> {
    let b = case.plan.b.filter(|_| case.rng.bool());
    let input = b.unwrap_or(case.plan.a);
    if input.rows == 0 || input.columns == 0 {
        return None;
    }
    let (i, j) = (
        case.rng.usize(0..input.rows),
        case.rng.usize(0..input.columns),
    );
    let verdict = case.touched(input.region, input.at(i, j));
    assert_caught(&case, verdict, is_change);
    Some(())
}

/// The result of the family or trans that differs by conjugation alone.
fn forgotten_conjugation<T: Scalar>(case: Case<T>) -> Option<()> {
    let mut plan = case.plan.clone();
    let swap = |trans: char| {
        if trans.eq_ignore_ascii_case(&'C') {
            'T'
        } else {
            trans
        }
    };
    (plan.trans_a, plan.trans_b) = (swap(plan.trans_a), swap(plan.trans_b));
    plan.family = match plan.family {
        Family::Hemm => Family::Symm,
        Family::Herk => Family::Syrk,
        Family::Her2k => Family::Syr2k,
        other => other,
    };
    if !T::COMPLEX || case.plan.alpha.is_nan() || case.plan.beta.is_nan() || plan.non_finite {
        return None;
    }
    let wrong = imitate(&plan, &case.before);
    let same = |(right, wrong): (&T, &T)| right.same_bits(*wrong);
    let c = case.plan.c.region;
    if case.after[c].iter().zip(&wrong[c]).all(same) {
        return None;
    }
    let verdict = check(&case.plan, &case.before, &wrong);
    assert_caught(&case, verdict, |trouble| !is_change(trouble));
    Some(())
}

fn diagonal_not_real<T: Scalar>(mut case: Case<T>) -> Option<()> {
    let (i, _) = case.written()?;
    if !case.plan.family.hermitian_output() || case.nature(i, i) != Nature::Finite {
        return None;
    }
    let real = entry(&case.after, &case.plan.c, i, i);
    let verdict = case.with_result((i, i), Complex64::new(real.re, 1e-30));
    assert_caught(&case, verdict, |trouble| {
        matches!(trouble, Trouble::NotReal { .. })
    });
    Some(())
}
