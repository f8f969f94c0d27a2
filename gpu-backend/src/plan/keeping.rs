//! Whether the old value of a result in place is worth keeping while LAPACK's kernels run, so that the new one can
//! be downloaded over it, or whether it goes through scratch. Pure arithmetic; either way is right.

use super::program::{Kernel, Operand, Program, Solver, area_bytes};
use super::rates::{COPY_BYTES_PER_S, DOWN_BYTES_PER_S, KEEP_BYTES_PER_S};
use call::Precision;

/// Seconds that late downloads cost besides their bytes: the calling thread sees the kernels' info, and releases
/// them. Chosen: two wake-ups.
const LATE_S: f64 = 100e-6;

/// True if the call is expected to end sooner with the results that are `read` kept than with them in scratch.
///
/// Keeping hides behind the kernels, but the download then waits for the last of them; a result in scratch comes
/// down as soon as its own kernels have run, and is copied after everything.
pub fn keeping_pays(
    program: &Program,
    precision: Precision,
    read: impl Fn(Operand) -> bool,
) -> bool {
    let seconds =
        |kernels: &[Kernel]| -> f64 { kernels.iter().map(|k| kernel_s(k, precision)).sum() };
    let mut after_s: f64 = program.steps.iter().map(|s| seconds(&s.kernels)).sum();
    let kernels_s = after_s;
    // Bytes of all results, and seconds of their downloads beyond the last kernel.
    let (mut bytes, mut late_s) = (0.0, 0.0);
    for step in &program.steps {
        after_s -= seconds(&step.kernels);
        let of_step = step.downloads.iter().filter(|d| read(d.to)).map(|d| {
            let elem_bytes = program.buffers[d.from.buffer].elem_bytes(precision.elem_bytes());
            area_bytes(&d.rectangle, d.area, elem_bytes) as f64
        });
        let step_bytes: f64 = of_step.sum();
        bytes += step_bytes;
        late_s += (step_bytes / DOWN_BYTES_PER_S - after_s).max(0.0);
    }
    let keep_s = (bytes / KEEP_BYTES_PER_S - kernels_s).max(0.0);
    let scratch_s = late_s + bytes / COPY_BYTES_PER_S;
    keep_s + bytes / DOWN_BYTES_PER_S + LATE_S < scratch_s
}

/// Seconds of a kernel of cuSOLVER on an H200 (`lapack_bench`, double precision, 2026-12-02), at n = 2048 to 8192
/// within 25 %: operations at the rate that large matrices approach, and a time for each column, since panels wait
/// for each other. Where nothing was measured it is rather too short, and a slower device takes longer: then
/// scratch may be used where keeping would be faster.
fn kernel_s(kernel: &Kernel, precision: Precision) -> f64 {
    let Kernel::Solver(solver) = kernel else {
        return 0.0;
    };
    // Multiplications with an addition, their rate, columns one after another, seconds of each.
    let (pairs, rate, columns, column_s) = match *solver {
        Solver::Potrf { n, .. } => (cube(n) / 6.0, 40e12, n, 0.25e-6),
        Solver::Potri { n, .. } => (cube(n) / 3.0, 40e12, n, 0.0),
        Solver::Trtri { n, .. } => (cube(n) / 6.0, 40e12, n, 0.0),
        Solver::Potrs { size: (n, k), .. } | Solver::Getrs { size: (n, k), .. } => {
            (product(n, n, k), 50e12, n, 0.3e-6)
        }
        Solver::Getrf { size: (m, n), .. } => (trapezoid(m, n) / 2.0, 22e12, m.min(n), 2.5e-6),
        Solver::Geqrf { size: (m, n), .. } => (trapezoid(m, n), 20e12, m.min(n), 4.5e-6),
        Solver::Orgqr {
            size: (m, n, _), ..
        } => (trapezoid(m, n), 20e12, n, 0.0),
        Solver::Ormqr {
            size: (m, n, k), ..
        } => (2.0 * product(m, n, k), 20e12, k, 0.0),
        Solver::Syevd { n, .. } => (2.0 / 3.0 * cube(n), 2.5e12, n, 9.5e-6),
        Solver::Gesvd { size: (m, n), .. } | Solver::Gesvdp { size: (m, n), .. } => {
            (10.0 * product(m, n, m.min(n)), 6e12, m.min(n), 9.5e-6)
        }
        Solver::Geev { .. }
        | Solver::Transpose { .. }
        | Solver::RealDiagonal { .. }
        | Solver::Diagonal { .. }
        | Solver::ScaleRows { .. }
        | Solver::Zero { .. }
        | Solver::Identity { .. } => {
            return 0.0;
        }
    };
    pairs * precision.flops_of_madd() / rate + columns as f64 * column_s
}

fn product(m: usize, n: usize, k: usize) -> f64 {
    m as f64 * n as f64 * k as f64
}

fn cube(n: usize) -> f64 {
    product(n, n, n)
}

/// Multiplications of QR: min(m, n)^2 (max(m, n) - min(m, n) / 3).
fn trapezoid(m: usize, n: usize) -> f64 {
    let (short, long) = (m.min(n) as f64, m.max(n) as f64);
    short * short * (long - short / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::lapack::{Plan, plan};
    use crate::plan::sizes::Sizes;
    use call::{LapackCall, Op, option_letters};

    fn plan_of(op: Op, letters: &str, size: (usize, usize, usize)) -> Plan {
        let call = LapackCall::new(op, Precision::D, option_letters(letters), size);
        plan(&call, &Sizes::DEFAULT, false).expect("a plan")
    }

    fn pays(op: Op, letters: &str, size: (usize, usize, usize), read: &[Operand]) -> bool {
        let plan = plan_of(op, letters, size);
        keeping_pays(&plan.program, Precision::D, |operand| {
            read.contains(&operand)
        })
    }

    #[test]
    fn the_times_are_those_that_were_measured() {
        // lapack_bench on the H200, 2026-12-02, ms at n = 2048, 4096 and 8192.
        let measured = [
            (Op::Potrf, "L", [0.8, 1.8, 7.1]),
            (Op::Getrf, "", [5.5, 13.5, 37.5]),
            (Op::Gesv, "", [6.1, 14.8, 40.2]),
            (Op::Geqrf, "", [9.8, 24.4, 73.5]),
            (Op::Syevd, "VL", [26.7, 109.0, 546.0]),
            (Op::Gesdd, "S", [83.2, 278.0, f64::NAN]),
        ];
        for (op, letters, times) in measured {
            for (n, ms) in [2048, 4096, 8192].into_iter().zip(times) {
                let k = if op == Op::Gesv { 1 } else { n };
                let plan = plan_of(op, letters, (n, n, k));
                let kernels = plan.program.steps.iter().flat_map(|s| &s.kernels);
                let found: f64 = kernels.map(|k| 1e3 * kernel_s(k, Precision::D)).sum();
                let ratio = found / ms;
                // Too short is the harmless side.
                assert!(
                    ms.is_nan() || ratio > 0.4 && ratio < 1.25,
                    "{op:?} {n}: {found} of {ms} ms"
                );
            }
        }
    }

    #[test]
    fn long_kernels_hide_keeping_and_short_ones_do_not() {
        let (a, b) = (&[Operand::A][..], &[Operand::B][..]);
        let both = &[Operand::A, Operand::B][..];
        for n in [2048, 4096, 8192] {
            assert!(pays(Op::Getrf, "", (n, n, n), a), "getrf {n}");
            assert!(pays(Op::Gesv, "", (n, n, 1), both), "gesv {n}");
            assert!(pays(Op::Geqrf, "", (n, n, n), a), "geqrf {n}");
            assert!(pays(Op::Syevd, "VL", (n, n, n), a), "syevd {n}");
        }
        assert!(pays(Op::Potrf, "L", (8192, 8192, 8192), a));
        // Two triangular solves with few unknowns: reading B is most of the work.
        assert!(!pays(Op::Getrs, "N", (64, 64, 100_000), b));
        assert!(!pays(Op::Potrf, "L", (512, 512, 512), a));
        assert!(!pays(Op::Getrf, "", (100, 100, 100), a));
    }
}
