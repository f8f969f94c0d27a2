//! Every level-3 family on the device under test: right, within its bound, and nothing else touched.

mod common;

use call::{Diag, Failure, Op, Precision};
use common::Random;
use common::family::Family;
use gpu_backend::Gpu;
use std::sync::OnceLock;

/// One device for the tests that only compute.
fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(common::start)
}

fn existing() -> impl Iterator<Item = (Op, Precision)> {
    let all = Op::LEVEL3
        .iter()
        .flat_map(|&op| Precision::ALL.map(|p| (op, p)));
    all.filter(|&(op, precision)| Family::exists(op, precision))
}

#[test]
fn random_flags_in_every_family_and_precision() {
    let mut random = Random(101);
    for (op, precision) in existing() {
        for _ in 0..20 {
            Family::random(op, precision, 50, &mut random).run_and_check(gpu());
        }
        let calls = gpu().counters().of(op).calls;
        assert!(calls >= 20, "{}: {calls} calls counted", op.name());
    }
}

#[test]
fn calls_of_several_pieces() {
    let mut random = Random(102);
    for (op, precision) in existing() {
        for _ in 0..2 {
            Family::random(op, precision, 260, &mut random).run_and_check(gpu());
        }
    }
}

fn refused(family: &Family) {
    let mut done = family.clone();
    let ran = done.run(gpu());
    assert!(
        matches!(ran, Err(Failure::Unsupported(_))),
        "{}: {ran:?}",
        family.name()
    );
    assert!(
        done.c.bytes == family.c.bytes,
        "{}: a refused call wrote",
        family.name()
    );
}

/// What a triangular solve makes of NaN, infinity and zeros on the diagonal is the CPU library's business.
#[test]
fn a_solve_without_an_answer_is_refused_with_everything_as_it_was() {
    let mut random = Random(104);
    for precision in Precision::ALL {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut family = Family::random(Op::Trsm, precision, 90, &mut random);
            let (m, n, _) = family.size;
            family.c.set(random.below(m), random.below(n), (bad, 0.0));
            refused(&family);
        }
        let mut family = Family::random(Op::Trsm, precision, 90, &mut random);
        family.diag = Diag::N;
        let at = random.below(family.size.2);
        family.a.set(at, at, (-0.0, 0.0));
        refused(&family);
        // The other triangle and a unit diagonal are not read.
        let mut family = Family::random(Op::Trsm, precision, 90, &mut random);
        family.diag = Diag::U;
        family.a.set(0, 0, (0.0, 0.0));
        let order = family.size.2;
        if order > 1 {
            let corner = match family.uplo {
                call::Uplo::U => (order - 1, 0),
                call::Uplo::L => (0, order - 1),
            };
            family.a.set(corner.0, corner.1, (f64::NAN, 0.0));
        }
        family.run_and_check(gpu());
    }
}

#[test]
fn sixteen_threads_with_different_families_get_what_one_gets() {
    let mut random = Random(105);
    let calls: Vec<(Family, Vec<u8>)> = existing()
        .step_by(2)
        .map(|(op, precision)| {
            let family = Family::random(op, precision, 120, &mut random);
            let mut alone = family.clone();
            alone
                .run(gpu())
                .unwrap_or_else(|e| panic!("{}: {e}", family.name()));
            family.check(&alone.c);
            (family, alone.c.bytes)
        })
        .collect();
    let calls = &calls;
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                for turn in 0..calls.len() {
                    let (family, alone) = &calls[(thread + turn) % calls.len()];
                    let mut done = family.clone();
                    let ran = done.run(gpu());
                    assert!(ran.is_ok(), "{}: {ran:?}", family.name());
                    assert!(
                        done.c.bytes == *alone,
                        "{}: a concurrent result differs",
                        family.name()
                    );
                }
            });
        }
    });
}
