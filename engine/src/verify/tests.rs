//! Right results have small ratios, and whatever element of a result is changed is noticed: every routed routine,
//! precision and option, computed by the archive's own LAPACK.
//!
//! Unsafe lives here because LAPACK is foreign code.

use super::dense::{self, Dense, Number};
use super::measures::apart;
use super::{Copies, Copy, Finding, Measure, OUTSIDE, RESULT};
use crate::decode::{decode, decode_lapack};
use crate::measure::{Operands, Subject, invoke};
use call::{Call, Level3Call, MatMut, MatRef, Matrix, Scalar};
use routines::{Arg, Diag, Library, Op, Options, Precision, Scalars, Side, Trans, Uplo};

/// What the parts of a result are that nothing is known of by design: scratch, and what only some callers read.
fn is_unjudged(name: &str, operand: &str, options: &Options<'_>) -> bool {
    let job = options.letter("jobz");
    match (name, operand) {
        // The factors of a step that gels does not promise; gelss's vectors.
        ("gels" | "gelsd" | "gelss", "a") => true,
        // Destroyed.
        ("syevr" | "syevx" | "geev", "a") => true,
        ("syev" | "syevd" | "sygv" | "sygvd" | "sygvx", "a") => job != b'V' || name == "sygvx",
        ("gesdd", "a") => job != b'O',
        ("gesvd", "a") => options.letter("jobu") != b'O' && options.letter("jobvt") != b'O',
        // One side's vectors alone have no residual, but are orthogonal.
        (_, "isuppz" | "ifail") => true,
        // How exact they are depends on the condition of B, and so does which of them lie in an interval.
        ("sygv" | "sygvd" | "sygvx", "w") => job != b'V',
        ("sygvx", "m") => options.letter("range") == b'V',
        _ => false,
    }
}

/// Overwrites the device's copies with what the caller's memory holds.
fn as_the_cpu(copies: &mut Copies, call: &Call<'_>) {
    let fill = |copy: &mut Option<Copy>, from: MatRef<'_>| {
        if let Some(copy) = copy {
            let mut to = copy.device().expect("fits");
            (0..from.cols())
                .for_each(|j| to.write_column_piece(j, 0, from.column_piece(j, 0, from.rows())));
        }
    };
    match call {
        Call::Level3(call) => fill(&mut copies.matrices[RESULT], call.c.as_ref()),
        Call::Lapack(call) => {
            for (copy, matrix) in copies.matrices.iter_mut().zip(&call.matrices) {
                matrix.iter().for_each(|m| fill(copy, m.as_ref()));
            }
            for (copy, vector) in copies.vectors.iter_mut().zip(&call.vectors) {
                vector.iter().for_each(|v| fill(copy, v.data.as_ref()));
            }
        }
    }
}

fn measures(copies: &Copies, call: &Call<'_>) -> Vec<Measure> {
    match copies.compare(call) {
        Finding::Measures(measures) => measures,
        Finding::Skipped(why) => panic!("{why}"),
    }
}

/// Changes one element's real part of a copy by something that no rounding explains; of an integer a bit.
fn spoil(copy: &mut Copy, (i, j): (usize, usize), precision: Option<Precision>) {
    let at = (j * copy.ld + i) * copy.elem_bytes;
    let Some(precision) = precision else {
        copy.device[at] ^= 1;
        return;
    };
    let mut size = 1.0f64;
    Dense::new(copy.view(&copy.device).expect("fits"), precision)
        .each(|_, _, x| size = size.max(x.norm()));
    let bytes = &mut copy.device[at..];
    match precision.real() {
        Precision::S => {
            let x = f32::from_ne_bytes(bytes[..4].try_into().expect("4 bytes"));
            bytes[..4].copy_from_slice(&(x + size as f32).to_ne_bytes());
        }
        _ => {
            let x = f64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
            bytes[..8].copy_from_slice(&(x + 1e-6 * size).to_ne_bytes());
        }
    }
}

/// Runs the routine; whether it succeeds.
fn run(operands: &mut Operands, name: &str) -> bool {
    let routine = cpu_backend::lapack(name)
        .expect("a routine of the archive")
        .cast_mut();
    if operands.must_ask() {
        // SAFETY: the table's arguments of this routine in their order.
        unsafe { invoke(routine, &operands.words()) };
        operands.take_answer().expect("lengths");
    }
    // SAFETY: as above, with the room that the routine asked for.
    unsafe { invoke(routine, &operands.words()) };
    operands.info() == 0
}

#[test]
fn results_of_lapack_are_right_and_every_changed_element_is_noticed() {
    let (mut judged, mut spoilt) = (0, 0);
    for (row, precision, name) in routines::routed_in(Library::Lapack) {
        for letters in Options::every_routed(row, precision) {
            for (m, n, k) in [(24, 24, 24), (31, 18, 18), (18, 31, 18)] {
                let has = |size| row.args.contains(&Arg::Size { name: size });
                let m = if has("m") { m } else { n };
                let k = match (has("nrhs"), has("k")) {
                    (true, _) => 3,
                    (_, true) => k.min(m),
                    _ => n,
                };
                let subject = Subject {
                    op: row.op,
                    precision,
                    letters,
                    m,
                    n,
                    k,
                };
                let Some(mut operands) = Operands::new(subject) else {
                    continue;
                };
                let scalars = Scalars::usual(row, precision, n as u64);
                let options = Options::new(row, precision, letters).with(scalars);
                let shown = String::from_utf8_lossy(&letters).into_owned();
                let what = format!("{name} {shown} {m} {n} {k}");
                let raw = operands.lapack();
                // SAFETY: the operands have the table's sizes and nobody else uses them meanwhile.
                let decoded = unsafe { decode_lapack(&raw) }.expect("legal");
                let mut copies = Copies::of(&decoded.call.expect("apart")).expect("memory");
                assert!(run(&mut operands, &name), "{what}");
                let raw = operands.lapack();
                // SAFETY: as above; the routine has ended.
                let decoded = unsafe { decode_lapack(&raw) }.expect("legal");
                let call = decoded.call.expect("apart");
                as_the_cpu(&mut copies, &call);
                let found = measures(&copies, &call);
                assert!(!found.iter().any(Measure::is_wrong), "{what}: {found:?}");
                judged += 1;
                spoilt += spoil_each(&mut copies, &call, &options, row.op.name(), &what);
            }
        }
    }
    assert!(judged > 900 && spoilt > 7000, "{judged} {spoilt}");
}

fn written(copies: &mut Copies, is_vector: bool, place: usize) -> &mut Copy {
    let slot = match is_vector {
        true => &mut copies.vectors[place],
        false => &mut copies.matrices[place],
    };
    slot.as_mut().expect("written")
}

/// Spoils elements of each result one after the other; how many.
fn spoil_each(
    copies: &mut Copies,
    call: &Call<'_>,
    options: &Options<'_>,
    name: &str,
    what: &str,
) -> usize {
    let Call::Lapack(lapack) = call else {
        return 0;
    };
    let args = routines::family(lapack.op).args_of(lapack.precision);
    let named = |of: fn(&Arg) -> bool| args.iter().filter(move |a| of(a)).map(Arg::name);
    let matrices = named(|a| matches!(a, Arg::Matrix { .. })).zip(&lapack.matrices);
    let vectors = named(|a| matches!(a, Arg::Vector { .. } | Arg::IntVector { .. }));
    let mut places = Vec::new();
    for (place, (operand, matrix)) in matrices.enumerate() {
        if let Some(Matrix::InOut(view) | Matrix::Out(view)) = matrix {
            places.push((false, place, operand, view.rows(), view.cols()));
        }
    }
    for (place, (operand, vector)) in vectors.zip(&lapack.vectors).enumerate() {
        if let Some(Matrix::InOut(view) | Matrix::Out(view)) = vector.as_ref().map(|v| &v.data) {
            places.push((true, place, operand, view.rows(), view.cols()));
        }
    }
    let mut count = 0;
    for (is_vector, place, operand, rows, cols) in places {
        if is_unjudged(name, operand, options) {
            continue;
        }
        let is_integer = args
            .iter()
            .any(|a| matches!(a, Arg::IntVector { .. }) && a.name() == operand);
        let real = args
            .iter()
            .any(|a| matches!(a, Arg::Vector { real: true, .. }) && a.name() == operand);
        let precision = match (is_integer, real) {
            (true, _) => None,
            (_, true) => Some(lapack.precision.real()),
            _ => Some(lapack.precision),
        };
        // Solutions end where the residuals begin.
        let rows = match (name, operand) {
            ("gels" | "gelsd" | "gelss", "b") => match options.letter("trans") {
                b'T' | b'C' => lapack.m,
                _ => lapack.n,
            },
            _ => rows,
        };
        for (i, j) in [
            (0, 0),
            (rows / 2, cols / 2),
            (rows - 1, 0),
            (0, cols - 1),
            (rows - 1, cols - 1),
        ] {
            let copy = written(copies, is_vector, place);
            let kept = copy.device.clone();
            spoil(copy, (i, j), precision);
            let found = measures(copies, call);
            written(copies, is_vector, place).device = kept;
            let unread = is_unread(name, operand, (i, j), options, lapack.m, lapack.n);
            assert!(
                unread || found.iter().any(Measure::is_wrong),
                "{what}: {operand} at {i}, {j}: {found:?}"
            );
            count += 1;
        }
    }
    count
}

/// Elements that a routine leaves in no defined state.
fn is_unread(
    name: &str,
    operand: &str,
    (i, j): (usize, usize),
    options: &Options<'_>,
    m: usize,
    n: usize,
) -> bool {
    match (name, operand) {
        // In a only the smaller side's vectors.
        ("gesdd" | "gesvd", "a") => {
            let least = m.min(n);
            let of_u = options.letter("jobu") == b'O' || name == "gesdd" && m >= n;
            if of_u { j >= least } else { i >= least }
        }
        _ => false,
    }
}

#[test]
fn level3_results_are_right_and_every_changed_element_is_noticed() {
    let mut spoilt = 0;
    for (row, precision, name) in routines::routed_in(Library::Blas) {
        for letters in Options::every_routed(row, precision) {
            let options = Options::new(row, precision, letters);
            let (m, n, k) = (14, 11, 9);
            let right = options.letter("side") == b'R';
            let has = |size| row.args.contains(&Arg::Size { name: size });
            let m = if has("m") { m } else { n };
            let k = match (has("k"), right) {
                (true, _) => k,
                (_, true) => n,
                (_, false) => m,
            };
            let subject = Subject {
                op: row.op,
                precision,
                letters,
                m,
                n,
                k,
            };
            for beta in [0.0, 0.5] {
                let mut operands = Operands::new(subject).expect("legal");
                let mut raw = operands.level3();
                if !matches!(row.op, Op::Trmm | Op::Trsm) {
                    raw.beta[0] = beta;
                }
                raw.alpha[0] = 1.5;
                let shown = String::from_utf8_lossy(&letters).into_owned();
                let what = format!("{name} {shown} {m} {n} {k} {beta}");
                // SAFETY: the operands have the table's sizes and nobody else uses them meanwhile.
                let decoded = unsafe { decode(&raw) }.expect("legal");
                let mut call = decoded.call.expect("apart");
                let mut copies = Copies::of(&call).expect("memory");
                let Call::Level3(level3) = &mut call else {
                    panic!("{what}");
                };
                cpu_backend::level3(level3).expect("fits");
                as_the_cpu(&mut copies, &call);
                let found = measures(&copies, &call);
                assert!(!found.iter().any(Measure::is_wrong), "{what}: {found:?}");
                for (i, j) in [
                    (0, 0),
                    (m / 2, n / 2),
                    (m - 1, 0),
                    (0, n - 1),
                    (m - 1, n - 1),
                ] {
                    let copy = copies.matrices[RESULT].as_mut().expect("written");
                    let kept = copy.device.clone();
                    spoil(copy, (i, j), Some(precision));
                    let found = measures(&copies, &call);
                    copies.matrices[RESULT].as_mut().expect("written").device = kept;
                    assert!(
                        found.iter().any(Measure::is_wrong),
                        "{what}: {i}, {j}: {found:?}"
                    );
                    spoilt += 1;
                }
            }
        }
    }
    assert!(spoilt > 1000, "{spoilt}");
}

/// How many columns of z there are, only the caller knows.
#[test]
fn vectors_of_an_interval_are_not_read_before_they_are_there() {
    for (letters, is_read) in [(*b"VVU\0", false), (*b"VIU\0", true), (*b"VAU\0", true)] {
        for op in [Op::Syevr, Op::Syevx, Op::Sygvx] {
            let (precision, n) = (Precision::D, 9);
            let subject = Subject {
                op,
                precision,
                letters,
                m: n,
                n,
                k: n,
            };
            let mut operands = Operands::new(subject).expect("legal");
            let raw = operands.lapack();
            // SAFETY: the operands have the table's sizes and nobody else uses them meanwhile.
            let decoded = unsafe { decode_lapack(&raw) }.expect("legal");
            let call = decoded.call.expect("apart");
            let copies = Copies::of(&call).expect("memory");
            let mut written = copies.matrices.iter().flatten();
            let z = written.find(|copy| copy.before.is_none()).expect("z");
            let unread = z.device.iter().all(|byte| *byte == OUTSIDE);
            assert_eq!(unread, !is_read, "{op:?} {letters:?}");
            let a = copies.matrices[0].as_ref().expect("a");
            assert_ne!(a.device[0..8], [OUTSIDE; 8]);
        }
    }
}

#[test]
fn the_size_of_a_number_is_its_absolute_value() {
    let size = |re: f64, im: f64| dense::size(Number::new(re, im));
    for (re, im) in [(3.0, -4.0), (-4e300, 3e300), (3e-300, 4e-300), (0.0, -7.0)] {
        let wanted = f64::hypot(re, im);
        assert!((size(re, im) - wanted).abs() <= 4.0 * f64::EPSILON * wanted);
    }
    assert_eq!(size(0.0, 0.0), 0.0);
    assert_eq!(size(f64::NEG_INFINITY, 1.0), f64::INFINITY);
    for (re, im) in [(f64::NAN, 0.0), (0.0, f64::NAN), (1.0, f64::NAN)] {
        assert!(size(re, im).is_nan(), "{re} {im}");
    }
}

#[test]
fn values_at_the_ends_of_an_interval_may_be_missing() {
    let of = |values: &[f64]| -> Vec<Number> { values.iter().map(|x| (*x).into()).collect() };
    let apart = |x: &[f64], y: &[f64], ends| apart(&of(x), &of(y), ends);
    let ends = Some((0.0, 3.0));
    assert_eq!(apart(&[1.0, 2.0], &[1.0, 2.25], None), 0.25);
    assert_eq!(apart(&[1.0, 2.0], &[1.0], None), f64::INFINITY);
    assert_eq!(apart(&[1.0, 2.0], &[1.0], ends), 1.0);
    assert_eq!(apart(&[0.125, 1.0, 2.0], &[1.0, 2.0], ends), 0.125);
    assert_eq!(apart(&[1.0, 2.0], &[1.0, 2.0, 2.75], ends), 0.25);
    assert_eq!(apart(&[0.125, 1.0, 3.0], &[1.0], ends), 0.125);
    assert_eq!(apart(&[], &[0.5], ends), 0.5);
    let open = Some((f64::NEG_INFINITY, f64::INFINITY));
    assert_eq!(apart(&[1.0], &[1.0, 2.0], open), f64::INFINITY);
    assert!(apart(&[1.0, f64::NAN], &[1.0], ends).is_infinite());
}

#[test]
fn memory_between_the_columns_is_the_callers() {
    let mut c = vec![0u8; 8 * 7 * 3];
    let a = vec![0u8; 8 * 5 * 3];
    let a = MatRef::of_bytes(&a, (5, 3), 5, 8).expect("fits");
    let call = Call::Level3(Level3Call {
        op: Op::Gemm,
        precision: Precision::D,
        side: Side::L,
        uplo: Uplo::U,
        transa: Trans::N,
        transb: Trans::N,
        diag: Diag::N,
        m: 5,
        n: 3,
        k: 3,
        alpha: Scalar::ONE,
        beta: Scalar::ZERO,
        a,
        b: Some(a),
        c: MatMut::of_bytes(&mut c, (5, 3), 7, 8).expect("fits"),
    });
    let mut copies = Copies::of(&call).expect("memory");
    assert!(!measures(&copies, &call).iter().any(Measure::is_wrong));
    let copy = copies.matrices[RESULT].as_mut().expect("written");
    assert_eq!(copy.ld, 7);
    copy.device[8 * 6] ^= 1;
    assert!(
        measures(&copies, &call)
            .iter()
            .any(|m| m.name == "memory outside" && m.is_wrong())
    );
}
