//! The planners' tests: programs run by an interpreter on small calls, cover and budget checked on large
//! ones, and their time in a cost model. No CUDA.

mod case;
mod complex;
mod figures;
mod interpret;
mod kernels;
mod large;
mod simulate;

use super::program::{Area, Operand, Program, Rectangle, Tuning, ld_bytes};
use super::sizes::Sizes;
use call::{Diag, Failure, Op, Precision, Scalar, Side, Trans, Uplo};
use case::Case;
use interpret::Order;
use proptest::prelude::*;

/// Scalars: 0, 1, -1 and two of no special kind.
fn scalar(zero: bool) -> impl Strategy<Value = Scalar> {
    let all = [
        (0.0, 0.0),
        (1.0, 0.0),
        (-1.0, 0.0),
        (0.5, -0.75),
        (-1.25, 2.0),
    ];
    let from = usize::from(!zero);
    (from..all.len()).prop_map(move |i| Scalar {
        re: all[i].0,
        im: all[i].1,
    })
}

fn trans() -> impl Strategy<Value = Trans> {
    prop_oneof![Just(Trans::N), Just(Trans::T), Just(Trans::C)]
}

prop_compose! {
    fn cases()(
        op in proptest::sample::select(&Op::LEVEL3[..]),
        precision in proptest::sample::select(&Precision::ALL[..]),
        (right, upper, unit) in any::<(bool, bool, bool)>(),
        transa in trans(), transb in trans(),
        (m, n, k) in (1usize..32, 1usize..32, 1usize..32),
        alpha in scalar(false), beta in scalar(true),
    ) -> Case {
        Case {
            op,
            precision,
            side: if right { Side::R } else { Side::L },
            uplo: if upper { Uplo::U } else { Uplo::L },
            trans: (transa, transb),
            diag: if unit { Diag::U } else { Diag::N },
            size: (m, n, k),
            alpha,
            beta,
        }.legal()
    }
}

prop_compose! {
    /// Constants so small that small calls are cut into many panels.
    fn small_sizes()(
        panel_min_bytes in 1usize..1000,
        tile in 1usize..7,
        panels_max in 1usize..9,
        panels_wanted in 1usize..5,
        long_k in 1usize..9,
        symm_block in proptest::option::of(1usize..9),
        // The balanced part is some thousand columns: with 1 % small calls have both parts.
        symm_first_percent in prop_oneof![Just(0usize), Just(1), Just(100)],
        triangle_fronts_percent in 0usize..300,
        slots in 1usize..5,
        inner_max in 1usize..20,
        block_max in 1usize..20,
        (lead_percent, lead_from_percent) in (0usize..100, 0usize..2),
    ) -> Sizes {
        Sizes {
            panel_min_bytes,
            tile,
            panels_max,
            panels_wanted,
            long_k,
            symm_block,
            symm_first_percent,
            symm_first_from_percent: 0,
            triangle_fronts_percent,
            slots,
            inner_max,
            block_max,
            lead_percent,
            lead_from_percent,
            polar_from: 2,
        }
    }
}

/// Budgets by chance are often too small for any program, hence many rejects.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        max_global_rejects: 100_000,
        ..ProptestConfig::default()
    }
}

/// The executor keeps a result that is read while it is uploaded: so each of its elements is uploaded once, and by
/// the step that brings it back.
fn comes_up_before_it_goes_down(case: &Case, program: &Program) -> Result<(), TestCaseError> {
    let mut is_up = std::collections::BTreeSet::new();
    let elements = |r: &Rectangle, area: Area| -> Vec<(usize, usize)> {
        let rows = |j| (j, area.rows_of(j, r.rows));
        let column = |(j, (first, count)): (usize, (usize, usize))| {
            let row0 = r.row0 + first;
            (row0..row0 + count).map(move |i| (i, r.col0 + j))
        };
        (0..r.cols).map(rows).flat_map(column).collect()
    };
    for step in &program.steps {
        for upload in step.uploads.iter().filter(|u| u.from == Operand::C) {
            for (i, j) in elements(&upload.rectangle, upload.area) {
                prop_assert!(is_up.insert((i, j)), "({}, {}) comes up twice", i, j);
            }
        }
        for download in step.downloads.iter().filter(|_| case.call().reads_result()) {
            for (i, j) in elements(&download.rectangle, download.area) {
                prop_assert!(is_up.contains(&(i, j)), "({}, {}) is not kept", i, j);
            }
        }
    }
    Ok(())
}

/// Plans, runs in every order, compares.
fn check(case: &Case, tuning: &Tuning, sizes: &Sizes, seed: u64) -> Result<(), TestCaseError> {
    let program = match super::plan_with(&case.call(), tuning, sizes) {
        Ok(program) => program,
        Err(Failure::OutOfMemory {
            needed_bytes,
            budget_bytes,
        }) => {
            prop_assert_eq!(budget_bytes, tuning.budget_bytes);
            prop_assert!(needed_bytes > budget_bytes);
            return Err(TestCaseError::reject("smaller than the smallest tiles"));
        }
        Err(other) => return Err(TestCaseError::fail(format!("{other}"))),
    };
    let used = program.bytes(case.precision.elem_bytes());
    prop_assert!(
        used <= tuning.budget_bytes,
        "{} bytes of {}",
        used,
        tuning.budget_bytes
    );
    let finite_only = matches!(case.op, Op::Trmm | Op::Trsm);
    prop_assert_eq!(program.finite_only, finite_only);
    comes_up_before_it_goes_down(case, &program)?;
    let host = case.host(seed);
    for order in [
        Order::Eager,
        Order::Lazy,
        Order::EarlyUpLateDown,
        Order::Random(seed),
        Order::Random(!seed),
    ] {
        let result = interpret::run(&program, &host, order);
        if let Err(what) = case.check(&host, &result) {
            return Err(TestCaseError::fail(format!(
                "{order:?}: {what}\n{program:#?}"
            )));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_call_that_fits_gives_the_defined_result(
        case in cases(), sizes in small_sizes(), sm_count in 1usize..5, seed in any::<u64>(),
    ) {
        let tuning = Tuning { sm_count, budget_bytes: u64::MAX / 2 };
        check(&case, &tuning, &sizes, seed)?;
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_call_that_does_not_fit_gives_the_defined_result(
        case in cases(), sizes in small_sizes(), sm_count in 1usize..5, seed in any::<u64>(),
        permille in 0u64..1000,
    ) {
        let whole = super::plan_with(&case.call(), &Tuning { sm_count, budget_bytes: u64::MAX / 2 }, &sizes);
        let whole_bytes = whole.map_err(|e| TestCaseError::fail(format!("{e}")))?;
        let budget_bytes = whole_bytes.bytes(case.precision.elem_bytes()) * permille / 1000;
        check(&case, &Tuning { sm_count, budget_bytes }, &sizes, seed)?;
    }
}

#[test]
fn columns_are_aligned_only_where_that_costs_little() {
    assert_eq!(ld_bytes(8), 8);
    assert_eq!(ld_bytes(4097), 4352);
}
