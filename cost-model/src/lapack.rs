//! LAPACK in the profile: one curve of time over floating-point operations for each routine and kind of job, and a
//! guess from the matrix product's curves for what nobody has measured.
//!
//! The GPU's times are the device's own; copies come on top (`predict`). Every guess leans to the CPU's side.

use crate::curve::{Below, Curve, GemmCurves};
use crate::profile::{SLOTS, Sample, index, routine, slot};
use routines::{Arg, Dims, Family, Library, Op, Options, Precision, Shape, families, family};

/// What the first call of LAPACK on the GPU takes in a process, besides the GPU's start: cuSOLVER is loaded and gets a
/// handle. With its file in memory that took 0.04 s (dpotrf n = 6000 after products, H200 machine, 2026-12-02), read from
/// the disk up to 0.2.
pub const SOLVER_START_S: f64 = 0.1;

/// Which of a routine's option letters are job options.
fn job_letters(op: Op, precision: Precision) -> [bool; 4] {
    let mut is_job = [false; 4];
    for (to, from) in is_job.iter_mut().zip(jobs(family(op), precision)) {
        *to = from;
    }
    is_job
}

/// Whether a call computes vectors, in families where a job option says so; others always count as `true`.
fn has_vectors(is_job: [bool; 4], letters: [u8; 4]) -> bool {
    let mut jobs = is_job
        .into_iter()
        .zip(letters)
        .filter(|(is_job, letter)| *is_job && *letter != 0)
        .peekable();
    jobs.peek().is_none() || jobs.any(|(_, letter)| letter != b'N')
}

/// Whether a call asks for the whole spectrum, in families where an option says so.
fn is_whole(op: Op, precision: Precision, letters: [u8; 4]) -> bool {
    let options = Options::new(family(op), precision, letters);
    !matches!(options.letter("range"), b'V' | b'I')
}

/// For each option letter of a routine, whether it is a job option.
fn jobs(family: &Family, precision: Precision) -> impl Iterator<Item = bool> {
    let letters = family
        .args_of(precision)
        .iter()
        .filter(|arg| matches!(arg, Arg::Letter { .. } | Arg::LetterInOut { .. }));
    letters.map(|arg| arg.name().starts_with("job"))
}

/// What a profile calls the samples of a routine: its name and, in LAPACK, the letters of its job options in the order
/// of its arguments ("dsyrk", "dpotrf", "dsyevd V", "dgesdd N", "dgeev NV"). `None` where the family lacks the precision.
pub fn sample_key(op: Op, precision: Precision, letters: [u8; 4]) -> Option<String> {
    let family = family(op);
    let name = family.routine(precision)?;
    let jobs: String = jobs(family, precision)
        .zip(letters)
        .filter(|(is_job, _)| *is_job)
        .map(|(_, letter)| char::from(letter))
        .collect();
    Some(match jobs.is_empty() {
        true => name,
        false => format!("{name} {jobs}"),
    })
}

/// A routine of LAPACK and its kind of job, read from such a name.
pub(crate) struct Key {
    pub op: Op,
    pub precision: Precision,
    pub vectors: bool,
}

impl Key {
    /// `None` for anything else.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (name, letters) = text.split_once(' ').unwrap_or((text, ""));
        let (op, precision) = routine(name)?;
        let family = family(op);
        let options = jobs(family, precision).filter(|is_job| *is_job).count();
        let known = family.library == Library::Lapack
            && options == letters.len()
            && letters.bytes().all(|b| b.is_ascii_uppercase());
        known.then(|| Self {
            op,
            precision,
            vectors: letters.is_empty() || letters.bytes().any(|b| b != b'N'),
        })
    }
}

/// Floating-point operations of a call.
fn flops(op: Op, precision: Precision, (m, n, k): (u64, u64, u64)) -> f64 {
    let dims = Dims {
        m,
        n,
        k,
        right: false,
    };
    Shape::of_lapack(op, precision, &dims, [0; 4]).flops()
}

/// What stands for a family that was not measured: the time of a product with as many operations, over
/// `efficiency`, and `step_s` for each row or column.
struct Guess {
    op: Op,
    cpu_efficiency: f64,
    gpu_efficiency: f64,
    gpu_step_s: f64,
    /// What is left of the time without vectors: CPU, GPU.
    values_only: (f64, f64),
}

const fn guess(op: Op, cpu_efficiency: f64, gpu_efficiency: f64, gpu_step_s: f64) -> Guess {
    Guess {
        op,
        cpu_efficiency,
        gpu_efficiency,
        gpu_step_s,
        values_only: (1.0, 1.0),
    }
}

const fn job(guess: Guess, cpu: f64, gpu: f64) -> Guess {
    Guess {
        values_only: (cpu, gpu),
        ..guess
    }
}

/// From the kernels' times of docs/performance/lapack.md (H200, n = 2048 to 8192) and of 16 CPU threads at n = 4000
/// there (2026-12-02): potrf 65 ms, getrf 99, geqrf 427, syevd 2355, gesdd 7449, geev 14038 against 155 of the
/// product. The CPU's efficiency is a third higher than measured, since fewer threads lose less; the GPU is charged
/// [`UNMEASURED`] on top. What has no figure there (potri, trtri, lauum, gelqf, gels, orgqr, ormqr, syevr, syevx, sygv,
/// gesvd, the solves) is chosen after its kin; gelsd and gelss take gesdd's time on the GPU, and 12 to 14 s on the CPU at
/// n = 6000 (gelsd, NumPy's lstsq); values alone are guesses, but for gesdd, which takes as long on the GPU.
const GUESSES: [Guess; 28] = [
    guess(Op::Potrf, 0.5, 0.75, 0.4e-6),
    guess(Op::Posv, 0.5, 0.6, 0.6e-6),
    guess(Op::Potri, 0.5, 0.4, 3e-6),
    guess(Op::Trtri, 0.5, 0.4, 1.5e-6),
    guess(Op::Lauum, 0.5, 0.25, 1e-6),
    guess(Op::Trtrs, 0.7, 0.5, 1e-6),
    guess(Op::Getrf, 0.65, 0.5, 3.2e-6),
    guess(Op::Gesv, 0.65, 0.5, 3.6e-6),
    guess(Op::Getri, 0.65, 0.4, 3e-6),
    guess(Op::Getrs, 0.7, 0.5, 1e-6),
    guess(Op::Potrs, 0.7, 0.5, 1e-6),
    guess(Op::Geqrf, 0.35, 0.35, 5e-6),
    guess(Op::Gelqf, 0.35, 0.3, 6e-6),
    guess(Op::Gels, 0.35, 0.3, 8e-6),
    guess(Op::Gelsd, 0.18, 0.048, 31e-6),
    guess(Op::Gelss, 0.125, 0.13, 31e-6),
    guess(Op::Orgqr, 0.5, 0.4, 4e-6),
    guess(Op::Ormqr, 0.6, 0.4, 4e-6),
    job(guess(Op::Syev, 0.2, 0.0915, 13e-6), 0.15, 0.6),
    job(guess(Op::Syevd, 0.2, 0.0915, 13e-6), 0.25, 0.6),
    job(guess(Op::Syevr, 0.2, 0.065, 13e-6), 0.35, 0.8),
    job(guess(Op::Syevx, 0.2, 0.065, 13e-6), 0.35, 0.8),
    job(guess(Op::Sygv, 0.25, 0.0915, 13e-6), 0.2, 0.6),
    job(guess(Op::Sygvd, 0.25, 0.0915, 13e-6), 0.3, 0.6),
    job(guess(Op::Sygvx, 0.25, 0.065, 13e-6), 0.4, 0.8),
    job(guess(Op::Gesdd, 0.125, 0.067, 31e-6), 0.25, 1.0),
    job(guess(Op::Gesvd, 0.125, 0.12, 31e-6), 0.15, 1.0),
    job(guess(Op::Geev, 0.2, 0.042, 291e-6), 0.35, 0.8),
];

/// What the GPU is charged for a routine that nobody has measured on this machine.
const UNMEASURED: f64 = 1.3;

/// Of a routine whose other kind of job was measured: without vectors the CPU is credited with a quarter of the
/// time, the GPU with nothing; with vectors the CPU is charged nothing more, the GPU four times. Guesses in the
/// CPU's favour.
const OTHER_JOB: f64 = 4.0;

/// Beyond the largest sample the guess counts more and more, and alone from so many times its operations on.
const FAR: f64 = 1000.0;

/// How far (in the logarithm) the guess may lead away from the rate of the largest sample: so far that a larger
/// call is never predicted to be quicker.
const MOST_APART: f64 = 3.0;

/// Which side a curve is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideOf {
    Cpu,
    Gpu,
}

/// One side's curves over floating-point operations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LapackCurves {
    side: SideOf,
    /// By family, precision and job.
    curves: Vec<Option<Curve>>,
    /// By family and precision, what [`job_letters`] says: each decision asks.
    job_letters: Vec<[bool; 4]>,
}

/// Place of a routine with or without vectors among all.
fn place(op: Op, precision: Precision, vectors: bool) -> usize {
    slot(op, precision) * 2 + usize::from(vectors)
}

impl LapackCurves {
    /// From a side's families; a precision that was not measured takes the curve of another one, by the ratio of
    /// their products.
    pub(crate) fn new<'a>(
        samples: impl Iterator<Item = (&'a str, &'a [Sample])>,
        gemm: &[GemmCurves; 4],
        side: SideOf,
    ) -> Self {
        let measured: Vec<(Key, &[Sample])> = samples
            .filter_map(|(name, samples)| Some((Key::of(name)?, samples)))
            .collect();
        let below = match side {
            SideOf::Cpu => Below::Proportional,
            SideOf::Gpu => Below::Constant,
        };
        let mut points: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 2 * SLOTS];
        for (key, samples) in &measured {
            for s in *samples {
                let x = flops(key.op, key.precision, (s.0, s.1, s.2));
                points[place(key.op, key.precision, key.vectors)].push((x, s.3));
            }
        }
        let own: Vec<bool> = points.iter().map(|p| !p.is_empty()).collect();
        for to in Precision::ALL {
            // The closest first: the other of the same size, then the rest.
            let mut sources: Vec<&(Key, &[Sample])> = measured.iter().collect();
            sources.sort_by_key(|(key, _)| key.precision.real() != to.real());
            for (key, samples) in sources {
                let at = place(key.op, to, key.vectors);
                if own[at] || !points[at].is_empty() {
                    continue;
                }
                let (from, here) = (&gemm[index(key.precision)], &gemm[index(to)]);
                points[at] = samples
                    .iter()
                    .map(|s| {
                        let e = s.0.max(s.1) as f64;
                        let ratio = here.time_s(e, e, e) / from.time_s(e, e, e);
                        // Much of the GPU's time is steps that no precision makes shorter.
                        let ratio = match side {
                            SideOf::Cpu => ratio,
                            SideOf::Gpu => ratio.max(1.0),
                        };
                        (flops(key.op, to, (s.0, s.1, s.2)), s.3 * ratio)
                    })
                    .collect();
            }
        }
        let mut is_job = vec![[false; 4]; SLOTS];
        for family in families().filter(|f| f.library == Library::Lapack) {
            for (precision, _) in family.routines() {
                is_job[slot(family.op, precision)] = job_letters(family.op, precision);
            }
        }
        Self {
            side,
            job_letters: is_job,
            curves: points.into_iter().map(|p| Curve::new(p, below)).collect(),
        }
    }

    /// Predicted time of a call on this side, copies apart; `None` for a family without curve or guess.
    pub(crate) fn time_s(&self, shape: &Shape, gemm: &GemmCurves) -> Option<f64> {
        if shape.op == Op::Geev && shape.letters[0] == b'V' {
            // The device has no left vectors.
            return None;
        }
        let is_job = self.job_letters[slot(shape.op, shape.precision)];
        // The CPU computes the vectors that are asked for; how many is not known, and may be none.
        let vectors = has_vectors(is_job, shape.letters)
            && (self.side == SideOf::Gpu || is_whole(shape.op, shape.precision, shape.letters));
        let curve = |vectors| self.curves[place(shape.op, shape.precision, vectors)].as_ref();
        let x = shape.flops();
        if let Some(curve) = curve(vectors) {
            let same_rate_s = curve.time_s(x);
            let beyond = x.max(1.0).ln() - curve.largest_ln();
            if beyond <= 0.0 {
                return Some(same_rate_s);
            }
            return Some(
                self.guess_s(shape, gemm, vectors)
                    .map_or(same_rate_s, |guess_s| {
                        // Rates grow with the size, and a short calibration measures small ones: with 16 threads dgesv
                        // n = 6000 took 0.35 s where its rate at the largest sample said 4.5 (2026-12-02).
                        let trust = (beyond / FAR.ln()).min(1.0);
                        let apart = (guess_s / same_rate_s).ln().clamp(-MOST_APART, MOST_APART);
                        same_rate_s * (trust * apart).exp()
                    }),
            );
        }
        if let Some(other) = curve(!vectors) {
            let factor = match (self.side, vectors) {
                (SideOf::Cpu, true) | (SideOf::Gpu, false) => 1.0,
                (SideOf::Cpu, false) => 1.0 / OTHER_JOB,
                (SideOf::Gpu, true) => OTHER_JOB,
            };
            return Some(other.time_s(x) * factor);
        }
        self.guess_s(shape, gemm, vectors)
    }

    /// What stands for a routine that was not measured; `None` for one without a guess.
    fn guess_s(&self, shape: &Shape, gemm: &GemmCurves, vectors: bool) -> Option<f64> {
        let x = shape.flops();
        let guess = GUESSES.iter().find(|guess| guess.op == shape.op)?;
        let edge = (x / shape.precision.flops_of_madd()).cbrt();
        let product_s = gemm.time_s(edge, edge, edge);
        Some(match self.side {
            SideOf::Cpu => {
                let share = if vectors { 1.0 } else { guess.values_only.0 };
                share * product_s / guess.cpu_efficiency
            }
            SideOf::Gpu => {
                let share = if vectors { 1.0 } else { guess.values_only.1 };
                let steps = shape.m.min(shape.n) as f64;
                UNMEASURED * share * (product_s / guess.gpu_efficiency + steps * guess.gpu_step_s)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use routines::option_letters;

    #[test]
    fn keys_name_a_routine_and_its_job_letters() {
        let key = |text| Key::of(text).map(|k| (k.op, k.precision, k.vectors));
        assert_eq!(key("dpotrf"), Some((Op::Potrf, Precision::D, true)));
        assert_eq!(key("dsyevd V"), Some((Op::Syevd, Precision::D, true)));
        assert_eq!(key("zheevd N"), Some((Op::Syevd, Precision::Z, false)));
        assert_eq!(key("sgesdd S"), Some((Op::Gesdd, Precision::S, true)));
        assert_eq!(key("dgeev NV"), Some((Op::Geev, Precision::D, true)));
        assert_eq!(key("dgesvd NN"), Some((Op::Gesvd, Precision::D, false)));
        for bad in [
            "dpotrf V", "dsyevd", "dgeev V", "dgemm", "dfoo", "dsyevd v", "",
        ] {
            assert_eq!(key(bad), None, "{bad}");
        }
    }

    #[test]
    fn beyond_the_largest_sample_the_guess_takes_over_and_larger_is_never_quicker() {
        // 1 TFLOP/s of products from n = 1000 on; a dgetrf of n = 500 at a hundredth of that.
        let products: Vec<_> = [(100.0f64, 1e11), (1000.0, 1e12), (10_000.0, 1e12)]
            .map(|(n, rate)| (n, n, n, 2.0 * n.powi(3) / rate))
            .into();
        let gemm =
            [(); 4].map(|()| GemmCurves::new(&products, Below::Proportional).expect("cubes"));
        let shape = |n: u64| {
            let dims = Dims {
                m: n,
                n,
                k: n,
                right: false,
            };
            Shape::of_lapack(Op::Getrf, Precision::D, &dims, [0; 4])
        };
        let sample = shape(500).flops() / 1e10;
        let samples: [Sample; 1] = [Sample(500, 500, 500, sample)];
        for side in [SideOf::Cpu, SideOf::Gpu] {
            let measured = [("dgetrf", &samples[..])];
            let curves = LapackCurves::new(measured.into_iter(), &gemm, side);
            let time_s = |n| curves.time_s(&shape(n), &gemm[1]).expect("a curve");
            assert!((time_s(500) / sample - 1.0).abs() < 1e-9, "{side:?}");
            let none = LapackCurves::new([].into_iter(), &gemm, side);
            let guess_s = none.time_s(&shape(8000), &gemm[1]).expect("a guess");
            let same_rate_s = shape(8000).flops() / 1e10;
            assert!(
                same_rate_s > 10.0 * guess_s,
                "{side:?}: the test is about a gap"
            );
            assert!(time_s(8000) > 0.99 * guess_s, "{side:?}");
            assert!(time_s(8000) < 0.2 * same_rate_s, "{side:?}");
            let mut before = 0.0;
            for n in (100..40_000).step_by(100) {
                assert!(time_s(n) >= before, "{side:?} at {n}");
                before = time_s(n);
            }
        }
    }

    #[test]
    fn a_call_has_vectors_unless_every_job_letter_says_no() {
        let has = |op, text| has_vectors(job_letters(op, Precision::D), option_letters(text));
        assert!(has(Op::Syevd, "VL") && !has(Op::Syevd, "NL"));
        assert!(has(Op::Gesvd, "NS") && has(Op::Gesdd, "O") && !has(Op::Gesvd, "NN"));
        assert!(has(Op::Potrf, "L"), "no job option");
    }
}
