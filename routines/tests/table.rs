//! Structural checks of the table, and an independent check value for every number that is derived:
//! a wrong polynomial passes every structural test.

use routines::{
    Arg, Dims, Gate, Library, Op, Precision, Shape, families, family, routed, routed_in,
    routed_symbols,
};
use std::collections::HashSet;

#[test]
fn every_family_has_one_row_and_every_routine_one_name() {
    let mut ops = HashSet::new();
    let mut names = HashSet::new();
    for f in families() {
        assert!(ops.insert(f.op), "{:?} has two rows", f.op);
        for (_, name) in f.routines() {
            assert!(names.insert(name.clone()), "{name} stands in two rows");
        }
    }
    assert_eq!(ops.len(), Op::ALL.len(), "an Op without a row");
}

#[test]
fn every_matrix_has_its_leading_dimension_right_behind_it() {
    for f in families() {
        for (i, arg) in f.args.iter().enumerate() {
            if let Arg::Matrix { name, .. } = arg {
                let next = f.args.get(i + 1).map(Arg::name);
                assert_eq!(next, Some(format!("ld{name}").as_str()), "{:?}", f.op);
            }
        }
        if let Some(Gate::Product(sizes)) = f.gate {
            for size in sizes {
                assert!(f.position(size).is_some(), "{:?}: gate names {size}", f.op);
            }
        }
    }
}

#[test]
fn routed_symbols_are_both_spellings() {
    let routed = routed_symbols();
    for name in [
        "sgemm_",
        "dgemm_",
        "cgemm_",
        "zgemm_",
        "cblas_sgemm",
        "cblas_zgemm",
    ] {
        assert!(routed.iter().any(|r| r == name), "{name}");
    }
    assert!(!routed.iter().any(|r| r == "ddot_"));
}

#[test]
fn level_3_and_the_heavy_families_of_lapack_are_routed() {
    let names = |library| -> Vec<String> { routed_in(library).map(|(_, _, name)| name).collect() };
    let (blas, lapack) = (names(Library::Blas), names(Library::Lapack));
    // Eight families in four precisions, four in the complex ones.
    assert_eq!(blas.len(), 8 * 4 + 4 * 2);
    assert_eq!(lapack.len(), 28 * 4);
    assert_eq!(routed().count(), blas.len() + lapack.len());
    assert_eq!(routed_symbols().len(), 2 * blas.len() + lapack.len());
    for name in ["ssymm", "zher2k", "cgemm3m", "dgemmt", "strsm"] {
        assert!(blas.iter().any(|n| n == name), "{name}");
    }
    for name in [
        "spotrf", "zungqr", "cunmqr", "zheevr", "dsyevd", "cgesdd", "zgels", "ctrtrs", "dgelsd",
        "dsygvx", "chegvd",
    ] {
        assert!(lapack.iter().any(|n| n == name), "{name}");
    }
    assert!(!lapack.iter().any(|n| n.contains("gelsy")));
}

/// A stub must not keep a call away whose work is above the threshold.
#[test]
fn no_gate_is_less_than_the_work() {
    for (f, precision, name) in routed() {
        for (m, n, k, right) in [(7, 5, 3, false), (5, 7, 3, true), (3, 7, 9, false)] {
            let lacks = |size| f.position(size).is_none();
            let dims = Dims {
                m: if lacks("m") { n } else { m },
                n,
                k: if lacks("k") && lacks("nrhs") { n } else { k },
                right,
            };
            let shape = Shape {
                op: f.op,
                precision,
                m: dims.m,
                n: dims.n,
                k: dims.k,
                right,
                beta_zero: false,
                letters: [0; 4],
            };
            let gate: u64 = match f.gate.expect("routed") {
                Gate::Sided => dims.m * n * dims.m.max(n),
                Gate::Product(sizes) => sizes
                    .iter()
                    .map(|size| match *size {
                        "m" => dims.m,
                        "n" => n,
                        _ => dims.k,
                    })
                    .product(),
            };
            assert!(gate >= shape.work(), "{name}: {gate} < {}", shape.work());
        }
    }
    let work = |op, m, n, k| {
        let shape = Shape {
            op,
            precision: Precision::D,
            m,
            n,
            k,
            right: false,
            beta_zero: false,
            letters: [0; 4],
        };
        shape.work()
    };
    assert_eq!(work(Op::Geqrf, 7, 5, 5), 7 * 5 * 5);
    assert_eq!(work(Op::Geqrf, 5, 7, 7), 7 * 5 * 5);
    assert_eq!(work(Op::Gesv, 5, 5, 1), 125);
    assert_eq!(work(Op::Getrs, 5, 5, 2), 50);
    assert_eq!(work(Op::Ormqr, 5, 7, 3), 105);
}

/// Letters of Reference BLAS 3.12: C stands for T in real arithmetic, and only there.
#[test]
fn updates_take_the_letters_of_the_reference() {
    let accepted = |op, p| {
        let args = family(op).args_of(p);
        args.iter().find_map(|a| match a {
            Arg::Letter {
                name: "trans",
                accepted,
            } => Some(*accepted),
            _ => None,
        })
    };
    for op in [Op::Syrk, Op::Syr2k] {
        assert_eq!(accepted(op, Precision::S), Some("NTC"));
        assert_eq!(accepted(op, Precision::Z), Some("NT"));
    }
    for op in [Op::Herk, Op::Her2k] {
        assert_eq!(accepted(op, Precision::C), Some("NC"));
    }
}

#[test]
fn work_and_its_flops_check_values() {
    let shape = |op, right| Shape {
        op,
        precision: Precision::D,
        m: 3,
        n: 5,
        k: 7,
        right,
        beta_zero: false,
        letters: [0; 4],
    };
    assert_eq!(shape(Op::Gemm, false).work(), 105);
    assert_eq!(shape(Op::Trsm, false).work(), 45);
    assert_eq!(shape(Op::Symm, true).work(), 75);
    let big = Shape {
        m: u64::MAX,
        ..shape(Op::Gemm, false)
    };
    assert_eq!(big.work(), u64::MAX);
    // At a large size the flops are the work's flops.
    for (f, precision, name) in routed() {
        let n = 10_000;
        let dims = Dims {
            m: n,
            n,
            k: n,
            right: false,
        };
        let exact = f.flops.count(precision, &dims);
        let by_work = f.flops_per_work(precision) * (n as f64).powi(3);
        assert!((by_work / exact - 1.0).abs() < 1e-3, "{name}");
    }
    let per_work = |op, p| family(op).flops_per_work(p);
    assert_eq!(per_work(Op::Gemm, Precision::S), 2.0);
    assert_eq!(per_work(Op::Trsm, Precision::S), 1.0);
    assert_eq!(per_work(Op::Herk, Precision::Z), 4.0);
    assert_eq!(per_work(Op::Her2k, Precision::Z), 8.0);
}

/// Level-3 flop counts worked out by hand for m = 3, n = 5, k = 7.
#[test]
fn level_3_flops_check_values() {
    let left = Dims {
        m: 3,
        n: 5,
        k: 7,
        right: false,
    };
    let right = Dims {
        right: true,
        ..left
    };
    let count = |op, p, dims| family(op).flops.count(p, dims);
    let d = Precision::D;
    let z = Precision::Z;
    assert_eq!(count(Op::Gemm, d, &left), 2.0 * 105.0);
    assert_eq!(count(Op::Gemm, z, &left), 8.0 * 105.0);
    // One triangle of a 5 x 5 matrix has 15 entries of 7 multiply-adds each.
    assert_eq!(count(Op::Syrk, d, &left), 2.0 * 15.0 * 7.0);
    assert_eq!(count(Op::Gemmtr, d, &left), 2.0 * 15.0 * 7.0);
    // 25 * 7 multiplications and 25 * 7 + 5 additions.
    assert_eq!(count(Op::Syr2k, d, &left), 175.0 + 180.0);
    assert_eq!(count(Op::Her2k, z, &left), 6.0 * 175.0 + 2.0 * 180.0);
    assert_eq!(count(Op::Symm, d, &left), 2.0 * 3.0 * 5.0 * 3.0);
    assert_eq!(count(Op::Symm, d, &right), 2.0 * 3.0 * 5.0 * 5.0);
    // Left: 5 columns, each 6 multiplications and 3 additions; right: 3 rows, 15 and 10.
    assert_eq!(count(Op::Trsm, d, &left), 5.0 * 9.0);
    assert_eq!(count(Op::Trmm, d, &right), 3.0 * 25.0);
}

/// Bytes both ways worked out by hand for m = 3, n = 5, k = 7.
#[test]
fn level_3_bytes_check_values() {
    let dims = Dims {
        m: 3,
        n: 5,
        k: 7,
        right: false,
    };
    let bytes = |op, p, beta_zero| family(op).bytes(p, &dims, beta_zero);
    assert_eq!(
        bytes(Op::Gemm, Precision::D, true),
        (8.0 * (21.0 + 35.0), 8.0 * 15.0)
    );
    assert_eq!(
        bytes(Op::Gemm, Precision::S, false),
        (4.0 * (21.0 + 35.0 + 15.0), 4.0 * 15.0)
    );
    assert_eq!(
        bytes(Op::Herk, Precision::Z, true),
        (16.0 * 35.0, 16.0 * 15.0)
    );
    assert_eq!(
        bytes(Op::Symm, Precision::D, true),
        (8.0 * (6.0 + 15.0), 8.0 * 15.0)
    );
    assert_eq!(
        bytes(Op::Trsm, Precision::C, false),
        (8.0 * (6.0 + 15.0), 8.0 * 15.0)
    );
}
