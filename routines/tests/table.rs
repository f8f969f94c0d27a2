//! Structural checks of the table, and an independent check value for every number that is derived:
//! a wrong polynomial passes every structural test.

use routines::{Arg, Dims, Op, Precision, families, family, routed_symbols};
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
        if let Some(gate) = f.gate {
            for size in gate {
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
