//! Calls whose operands do not fit into the memory that they may use: every family and precision runs, in
//! pieces, right, and never holds more. Small panels, so that small operands have many of them.

mod common;

use call::{Op, Precision};
use common::Random;
use common::family::Family;
use gpu_backend::{Gpu, StartOptions, testing};

/// Rows of a panel.
const TILE: usize = 16;
/// Largest m, n or k: seven panels.
const EDGE: usize = 110;
/// What a call takes of the device besides its operands: cuBLAS's workspace, and one grain of the pool.
const FIXED_BYTES: u64 = testing::SMALL_WORKSPACE_BYTES + (2 << 20);
/// How much of the operands may be on the device at a time, in hundredths.
const PERCENT: [usize; 3] = [95, 60, 30];

fn operands_bytes(family: &Family) -> usize {
    [Some(&family.a), family.b.as_ref(), Some(&family.c)]
        .into_iter()
        .flatten()
        .map(|x| x.rows * x.cols * family.precision.elem_bytes())
        .sum()
}

/// All families in one precision. On the device under test.
fn every_family_runs_in_pieces(precision: Precision) {
    testing::set_tile(Some(TILE));
    let mut random = Random(401);
    for op in Op::LEVEL3 {
        if !Family::exists(op, precision) {
            continue;
        }
        for (number, percent) in PERCENT
            .into_iter()
            .cycle()
            .take(2 * PERCENT.len())
            .enumerate()
        {
            let beta = [0.0, 0.5][number % 2];
            let family = Family::sized(op, precision, EDGE, beta, &mut random);
            let limit = FIXED_BYTES + (operands_bytes(&family) * percent / 100) as u64;
            let options = StartOptions {
                memory_limit_bytes: Some(limit),
                ..common::options()
            };
            let gpu = Gpu::start(&options).unwrap_or_else(|e| panic!("{e}"));
            let mut done = family.clone();
            let ran = done.run(&gpu);
            assert!(ran.is_ok(), "{percent} % for {}: {ran:?}", family.name());
            family.check(&done.c);
            assert!(gpu.counters().held_bytes <= limit);
            gpu.shutdown();
        }
    }
}

#[test]
fn single_precision() {
    every_family_runs_in_pieces(Precision::S);
}

#[test]
fn double_precision() {
    every_family_runs_in_pieces(Precision::D);
}

#[test]
fn single_precision_complex() {
    every_family_runs_in_pieces(Precision::C);
}

#[test]
fn double_precision_complex() {
    every_family_runs_in_pieces(Precision::Z);
}
