//! The gate: work below which no call of a routine can win, so that it need not be looked at.

use crate::{Level, Profile, Situation, predict};
use routines::{Gate, Library, Op, Precision, Shape, family};

/// Work in multiply-adds at or below which no call reaches the engine before a profile says better:
/// a product of n = 128 takes OpenBLAS about 20 microseconds on one core, less than one kernel launch
/// with its copies takes on any PCIe device (copy latency about 10 microseconds each way, measured on
/// the H200 machine, 2026-12-01).
pub const DEFAULT_THRESHOLD_WORK: u64 = 128 * 128 * 128;

/// Factor between the works that are looked at: a quarter of an octave, 6 % of n.
const STEP: f64 = 1.189_207_115_002_721;

/// No work below this is looked at: a product of n = 16 takes a CPU less than a microsecond, which no
/// device can beat.
const MIN_WORK: f64 = 4096.0;

/// No work above this is looked at: a product of n = 10^6.
const MAX_WORK: f64 = 1e18;

/// The small dimension of the thin shapes that are looked at.
const THIN: [f64; 3] = [1.0, 16.0, 128.0];

/// Letters of job options: all that can be had, and nothing but values.
const JOBS: [u8; 2] = *b"VN";

/// By how much the CPU's time over the GPU's may turn out to be more than predicted: what [`watch_work`] allows for.
/// Three times for a program that sets a quarter of the threads (2.8 by `predict`) or a profile that is wrong for the
/// CPU, and as much for one that is wrong for the GPU: with three in all, such a profile hid the calls that would have
/// shown it (bench of regret, 2026-12-03: 155 % over the oracle).
const WATCHED: f64 = 9.0;

/// The largest work (see [`Shape::work`]) at or below which the GPU wins no shape of this family at this
/// level, ready and idle; `u64::MAX` where it never wins.
pub fn threshold_work(profile: &Profile, op: Op, precision: Precision, level: Level) -> u64 {
    least_work(profile, op, precision, level, 1.0)
}

/// The same while calls teach: at or below it the GPU would not win even if both sides were predicted wrong by a
/// factor of three, or calls are too small to be worth looking at ([`DEFAULT_THRESHOLD_WORK`]).
pub fn watch_work(profile: &Profile, op: Op, precision: Precision, level: Level) -> u64 {
    let certain = threshold_work(profile, op, precision, level);
    least_work(profile, op, precision, level, WATCHED).max(certain.min(DEFAULT_THRESHOLD_WORK))
}

fn least_work(profile: &Profile, op: Op, precision: Precision, level: Level, margin: f64) -> u64 {
    let mut below = MIN_WORK;
    let mut work = MIN_WORK;
    while work <= MAX_WORK {
        if any_shape_wins(profile, op, precision, level, margin, work) {
            return below as u64;
        }
        below = work;
        work *= STEP;
    }
    u64::MAX
}

/// Whether the cube or a thin shape of this work wins.
fn any_shape_wins(
    profile: &Profile,
    op: Op,
    precision: Precision,
    level: Level,
    margin: f64,
    work: f64,
) -> bool {
    let wins_with = |m: f64, n: f64, k: f64, right: bool, letters: [u8; 4]| {
        // beta = 0 is the case with the least to move.
        let shape = Shape {
            op,
            precision,
            m: m.ceil() as u64,
            n: n.ceil() as u64,
            k: k.ceil() as u64,
            right,
            beta_zero: true,
            letters,
        };
        predict(profile, &shape, &Situation::default())
            .is_some_and(|p| margin * p.cpu_s >= level.required_speedup() * p.gpu_s())
    };
    let wins = |m: f64, n: f64, k: f64, right: bool| wins_with(m, n, k, right, [0; 4]);
    let edge = work.cbrt();
    if family(op).library == Library::Lapack {
        // With vectors, and without.
        let letters = |job| match op {
            // The device has no left vectors.
            Op::Geev => [b'N', job, 0, 0],
            _ => [job; 4],
        };
        let any_job = |m, n, k| {
            JOBS.iter()
                .any(|job| wins_with(m, n, k, false, letters(*job)))
        };
        let thin = |thin: f64| {
            let (long, longest) = ((work / thin).sqrt(), work / (thin * thin));
            match family(op).gate {
                // n x n, with right-hand sides.
                Some(Gate::Product(["n", "n", "nrhs"])) => any_job(long, long, thin),
                // m x n, and the smaller of both once more.
                Some(Gate::Product(["m", "n", "n"])) => {
                    any_job(longest, thin, thin) || any_job(thin, longest, thin)
                }
                Some(Gate::Product(["m", "n", "k"])) => {
                    any_job(long, thin, long)
                        || any_job(long, long, thin)
                        || any_job(longest, thin, thin)
                }
                _ => any_job(edge, edge, thin),
            }
        };
        return any_job(edge, edge, edge)
            || any_job(edge, edge, 1.0)
            || THIN.into_iter().filter(|small| *small < edge).any(thin);
    }
    if wins(edge, edge, edge, false) {
        return true;
    }
    THIN.into_iter().filter(|thin| *thin < edge).any(|thin| {
        // The other two dimensions where they are alike, and the third where two are thin.
        let (long, longest) = ((work / thin).sqrt(), work / (thin * thin));
        match family(op).gate {
            // Two of the three are m or two are n, by side.
            Some(Gate::Sided) => {
                wins(long, thin, long, false)
                    || wins(thin, longest, thin, false)
                    || wins(thin, long, long, true)
                    || wins(longest, thin, thin, true)
            }
            // m is n.
            Some(Gate::Product(["n", ..])) => {
                wins(long, long, thin, false) || wins(thin, thin, longest, false)
            }
            _ => {
                wins(thin, long, long, false)
                    || wins(long, thin, long, false)
                    || wins(long, long, thin, false)
            }
        }
    })
}
