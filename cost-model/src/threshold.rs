//! The gate: work below which no call of a routine can win, so that it need not be looked at.

use crate::{Level, Profile, Route, Situation, decide};
use routines::{Op, Precision, Shape};

/// Work in multiply-adds at or below which no call reaches the engine before a profile says better:
/// a product of n = 128 takes OpenBLAS about 20 microseconds on one core, less than one kernel launch
/// with its copies takes on any PCIe device (copy latency about 10 microseconds each way, measured on
/// the H200 machine, 2026-12-01).
pub const DEFAULT_THRESHOLD_WORK: u64 = 128 * 128 * 128;

/// Factor between the works that are looked at: a quarter of an octave, 6 % of n.
const STEP: f64 = 1.189_207_115_002_721;

/// No work above this is looked at: a product of n = 10^6.
const MAX_WORK: f64 = 1e18;

/// The small dimension of the thin shapes that are looked at.
const THIN: [u64; 3] = [1, 16, 128];

/// The largest m n k (in multiply-adds) at or below which the GPU wins no shape at this level, ready
/// and idle; `u64::MAX` where it never wins.
pub fn threshold_work(profile: &Profile, precision: Precision, level: Level) -> u64 {
    let mut below = 1.0_f64;
    let mut work = 1.0_f64;
    while work <= MAX_WORK {
        if any_shape_wins(profile, precision, level, work) {
            return below as u64;
        }
        below = work;
        work *= STEP;
    }
    u64::MAX
}

fn any_shape_wins(profile: &Profile, precision: Precision, level: Level, work: f64) -> bool {
    let wins = |m: f64, n: f64, k: f64| {
        // beta = 0 is the case with the least to move.
        let shape = Shape {
            op: Op::Gemm,
            precision,
            m: m.ceil() as u64,
            n: n.ceil() as u64,
            k: k.ceil() as u64,
            right: false,
            beta_zero: true,
        };
        decide(profile, &shape, &Situation::default(), level).route == Route::Gpu
    };
    let edge = work.cbrt();
    if wins(edge, edge, edge) {
        return true;
    }
    THIN.iter()
        .map(|t| *t as f64)
        .filter(|t| *t < edge)
        .any(|thin| {
            let long = (work / thin).sqrt();
            wins(thin, long, long) || wins(long, thin, long) || wins(long, long, thin)
        })
}
