//! Parts of a spectrum and generalised eigenproblems on the device under test, by the residuals of LAPACK's own
//! test programs; what is not asked for stays as it was.

mod common;

use call::{Failure, Op, Precision, VectorKind};
use common::lapack::{
    Case, Full, Intent, hermitian, orthogonal, part_case, poison_other_triangle, reals, small,
    whole,
};
use common::{Matrix, Number, Random};
use gpu_backend::Gpu;
use std::sync::OnceLock;

fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(common::start)
}

fn is_upper(case: &Case) -> bool {
    case.letters.ends_with('U')
}

/// All eigenvalues by syevd, with the vectors or alone.
fn values(a: &Matrix, precision: Precision, letters: &'static str) -> Vec<Number> {
    let n = a.rows;
    let case = Case::new(Op::Syevd, precision, letters, (n, n, n))
        .matrix(a.clone(), Intent::InOut)
        .vector(VectorKind::Real, n, Intent::Out);
    reals(&case.done(gpu()), 0)
}

/// The case gives these of the values, with vectors if it asks for them, and writes nothing else.
fn gives(case: Case, all: &[Number], wanted: core::ops::Range<usize>) {
    let (before, n, precision) = (case.clone(), case.n, case.precision);
    let done = case.done(gpu());
    let name = format!("{} {wanted:?}", done.name());
    let m = wanted.len();
    assert_eq!(done.vectors[0].ints(), [m as i64], "{name}: m");
    let (w, untouched) = (reals(&done, 1), reals(&before, 1));
    assert_eq!(
        w[..m],
        all[wanted],
        "{name}: the bits of the whole spectrum"
    );
    let bits = |w: &[Number]| w.iter().map(|x| x.0.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&w[m..]), bits(&untouched[m..]), "{name}: w");
    if !done.letters.starts_with('V') {
        return;
    }
    let z = Full::of(done.mat(1)).leading(n, m);
    orthogonal(&name, &z, precision);
    let a = whole(before.mat(0), is_upper(&before));
    let error = a.times(&z).minus(&z.scaled(&w[..m])).norm();
    small(&name, error, n as f64 * a.norm(), precision);
    let bytes = |case: &Case| {
        let z = case.mat(1);
        let first = (m * z.ld * precision.elem_bytes()).min(z.bytes.len());
        z.bytes[first..].to_vec()
    };
    assert!(
        bytes(&done) == bytes(&before),
        "{name}: columns behind the last"
    );
    let (last, kept) = (done.vectors[2].ints(), before.vectors[2].ints());
    match done.op {
        Op::Syevx => {
            assert!(last[..m].iter().all(|i| *i == 0), "{name}: {last:?}");
            assert_eq!(last[m..], kept[m..], "{name}: ifail");
        }
        // Only the whole spectrum has supports.
        _ => assert!(
            m == n && before.letters.contains('I') || last == kept,
            "{name}"
        ),
    }
}

#[test]
fn a_range_has_the_values_and_vectors_of_the_whole_spectrum() {
    let mut random = Random(301);
    for (precision, n) in [2, 17, 64]
        .into_iter()
        .flat_map(|n| Precision::ALL.map(|p| (p, n)))
    {
        for (op, numbers, interval) in [
            (Op::Syevr, ["VIU", "NIU"], ["VVU", "NVU"]),
            (Op::Syevx, ["VIL", "NIL"], ["VVL", "NVL"]),
        ] {
            let upper = numbers[0].ends_with('U');
            let mut a = hermitian(precision, n, 2, false, &mut random);
            poison_other_triangle(&mut a, upper);
            for (vectors, letters) in
                [true, false]
                    .into_iter()
                    .zip(if upper { ["VU", "NU"] } else { ["VL", "NL"] })
            {
                let all = values(&a, precision, letters);
                let which = usize::from(!vectors);
                for (il, iu) in [(1, n), (1, 1), (n, n), (n / 2, n / 2 + 1)] {
                    let case = part_case(op, precision, numbers[which], (&a, None), iu + 1 - il)
                        .with([0.0; 3], [il as i64, iu as i64, 0]);
                    let case = if vectors { case.wide() } else { case };
                    gives(case, &all, il - 1..iu);
                }
                // The lower end is not in the interval, the upper one is.
                let end = |i: usize| all[i].0;
                for (low, high, wanted) in [
                    (end(0), end(n - 1), 1..n),
                    (end(n / 2 - 1), end(n / 2), n / 2..n / 2 + 1),
                    (f64::NEG_INFINITY, end(0), 0..1),
                    (end(0) - 1.0, f64::INFINITY, 0..n),
                    (end(n - 1), f64::INFINITY, n..n),
                    (end(0) - 2.0, end(0) - 1.0, 0..0),
                ] {
                    let case = part_case(op, precision, interval[which], (&a, None), n)
                        .with([low, high, 1e-300], [0; 3]);
                    gives(case, &all, wanted);
                }
            }
        }
    }
}

/// What the planner is not told by a legal call.
#[test]
fn parts_that_there_are_not_are_refused() {
    let a = hermitian(Precision::D, 9, 0, false, &mut Random(302));
    let one = hermitian(Precision::D, 1, 0, false, &mut Random(303));
    for (case, what) in [
        (
            part_case(Op::Syevr, Precision::D, "VIU", (&a, None), 9).with([0.0; 3], [0, 9, 0]),
            "il = 0",
        ),
        (
            part_case(Op::Syevr, Precision::D, "VIU", (&a, None), 9).with([0.0; 3], [1, 10, 0]),
            "iu > n",
        ),
        (
            part_case(Op::Syevr, Precision::D, "VVU", (&one, None), 1)
                .with([-9.0, 9.0, 0.0], [0; 3]),
            "isuppz of one value in an interval",
        ),
    ] {
        refused(&case, what);
    }
}

fn refused(case: &Case, what: &str) {
    let mut done = case.clone();
    let ran = done.run(gpu());
    let name = case.name();
    assert!(
        matches!(ran, Err(Failure::Unsupported(_))),
        "{name}: {what}: {ran:?}"
    );
    done.assert_inputs_are_those_of(case, what);
}

fn sygv_case(
    op: Op,
    letters: &'static str,
    itype: i64,
    a: &Matrix,
    b: &Matrix,
    p: Precision,
) -> Case {
    let n = a.rows;
    Case::new(op, p, letters, (n, n, n))
        .with([0.0; 3], [itype, 0, 0])
        .matrix(a.clone(), Intent::InOut)
        .matrix(b.clone(), Intent::InOut)
        .vector(VectorKind::Real, n, Intent::Out)
}

/// The factor that potrf leaves.
fn factor(b: &Matrix, precision: Precision, upper: bool) -> Matrix {
    let n = b.rows;
    let case = Case::new(
        Op::Potrf,
        precision,
        if upper { "U" } else { "L" },
        (n, n, n),
    )
    .matrix(b.clone(), Intent::InOut);
    case.done(gpu()).mat(0).clone()
}

/// dsgt01's residuals, and vectors that are orthonormal in the product that the type says.
fn solves(
    itype: i64,
    (a, b): (&Full, &Full),
    (w, z): (&[Number], &Full),
    what: &str,
    p: Precision,
) {
    let n = a.rows as f64;
    let (left, right) = match itype {
        1 => (a.times(z), b.times(z).scaled(w)),
        2 => (a.times(&b.times(z)), z.scaled(w)),
        _ => (b.times(&a.times(z)), z.scaled(w)),
    };
    let size = match itype {
        1 => a.norm() * z.norm(),
        _ => a.norm() * b.norm() * z.norm(),
    };
    small(what, left.minus(&right).norm(), n * size, p);
    if itype < 3 {
        let error = z
            .adjoint()
            .times(&b.times(z))
            .minus(&Full::identity(z.cols));
        small(&format!("{what}: B-orthogonality"), error.norm(), n, p);
    }
}

#[test]
fn generalised_problems_of_every_type() {
    let mut random = Random(304);
    for (precision, n) in [1, 2, 17, 64]
        .into_iter()
        .flat_map(|n| Precision::ALL.map(|p| (p, n)))
    {
        for (itype, op, values_only, vectors) in [
            (1, Op::Sygvd, "NU", "VU"),
            (1, Op::Sygv, "NL", "VL"),
            (2, Op::Sygvd, "NL", "VL"),
            (2, Op::Sygv, "NU", "VU"),
            (3, Op::Sygvd, "NU", "VU"),
            (3, Op::Sygv, "NL", "VL"),
        ] {
            let upper = vectors.ends_with('U');
            let mut a = hermitian(precision, n, 2, false, &mut random);
            let mut b = hermitian(precision, n, 1, true, &mut random);
            poison_other_triangle(&mut a, upper);
            poison_other_triangle(&mut b, upper);
            let done = sygv_case(op, vectors, itype, &a, &b, precision).done(gpu());
            let name = format!("{} itype {itype}", done.name());
            let (w, z) = (reals(&done, 0), Full::of(done.mat(0)));
            assert!(
                w.windows(2).all(|pair| pair[0].0 <= pair[1].0),
                "{name}: ascending"
            );
            let (full_a, full_b) = (whole(&a, upper), whole(&b, upper));
            solves(itype, (&full_a, &full_b), (&w, &z), &name, precision);
            let factor = factor(&b, precision, upper);
            assert!(
                done.mat(1).bytes == factor.bytes,
                "{name}: B is potrf's factor"
            );
            let alone = sygv_case(op, values_only, itype, &a, &b, precision).done(gpu());
            assert!(
                alone.mat(1).bytes == factor.bytes,
                "{name}: B without vectors"
            );
            let largest = w.iter().fold(0.0_f64, |most, x| most.max(x.0.abs()));
            for (x, y) in reals(&alone, 0).iter().zip(&w) {
                small(&name, (x.0 - y.0).abs(), n as f64 * largest, precision);
            }
            if n == 1 {
                continue;
            }
            // The same by sygvx, of which the upper half is asked for.
            let letters = if upper { "VIU" } else { "VIL" };
            let first = n / 2;
            let half = part_case(Op::Sygvx, precision, letters, (&a, Some(&b)), n - first)
                .with([0.0; 3], [itype, first as i64 + 1, n as i64])
                .done(gpu());
            assert_eq!(half.vectors[0].ints(), [(n - first) as i64]);
            assert_eq!(
                reals(&half, 1)[..n - first],
                w[first..],
                "{name}: values of a part"
            );
            assert!(half.vectors[2].ints()[..n - first].iter().all(|i| *i == 0));
            let part = Full::new(n, n - first, |i, j| z.at(i, first + j));
            assert_eq!(
                Full::of(half.mat(2)).data,
                part.data,
                "{name}: vectors of a part"
            );
            assert!(half.mat(1).bytes == factor.bytes, "{name}: B of a part");
        }
    }
}

/// LAPACK's info > n, and its B, are the CPU library's to give.
#[test]
fn a_b_that_is_not_positive_definite_is_refused() {
    let mut random = Random(305);
    for precision in Precision::ALL {
        let a = hermitian(precision, 20, 1, false, &mut random);
        let mut b = hermitian(precision, 20, 0, true, &mut random);
        b.set(13, 13, (-1.0, 0.0));
        for letters in ["VU", "NL"] {
            refused(
                &sygv_case(Op::Sygvd, letters, 1, &a, &b, precision),
                "info = 34",
            );
        }
    }
}

/// LAPACK scales what reaches its eigensolver, which may be far from both matrices.
#[test]
fn reduced_matrices_out_of_range_are_refused() {
    let mut random = Random(306);
    for (precision, factors) in [(Precision::D, (1e-100, 1e100)), (Precision::C, (1e-8, 1e8))] {
        let n = 12;
        let scaled = |x: &Matrix, by: f64| {
            Matrix::filled(precision, n, n, n, |i, j| {
                let (re, im) = x.get(i, j);
                (re * by, im * by)
            })
        };
        let a = hermitian(precision, n, 0, false, &mut random);
        let b = hermitian(precision, n, 0, true, &mut random);
        let (small, large) = (scaled(&a, factors.0), scaled(&b, factors.1));
        // Each alone is within what LAPACK does not scale.
        sygv_case(Op::Sygv, "VL", 1, &small, &b, precision).done(gpu());
        sygv_case(Op::Sygv, "VL", 1, &a, &large, precision).done(gpu());
        let far = sygv_case(Op::Sygv, "VL", 1, &small, &large, precision);
        refused(&far, "the quotient");
    }
}
