//! Which sizes of which routines are measured: coarse at first, finer where the two sides are near each other,
//! and no further where one has clearly won.
//!
//! Knows no clock and no device: both sides come through [`Bench`].

use anyhow::Result;
use cost_model::{Sample, sample_key};
use gpu_offload::measure::Subject;
use routines::{Op, Precision, option_letters};
use std::collections::BTreeMap;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// A CPU call that is expected to take longer is left out; the curve goes on at the last rate.
    pub longest_s: f64,
    /// Largest size.
    pub most_n: usize,
    /// Sizes that are put between two where the sides change places.
    pub refinements: usize,
    /// Time for repeating one CPU call.
    pub repeat_s: f64,
    /// The routines of other precisions are measured at one size, and the rest is derived.
    pub anchors: bool,
    /// Every precision is measured like the first.
    pub all_precisions: bool,
    /// Only the families that most programs use.
    pub main_only: bool,
}

/// The size that is measured first. Crossovers lie between 500 and 2000 (H200 and 16 cores, 2026-12-02).
const FIRST_N: usize = 512;

/// Smallest size.
const LEAST_N: usize = 64;

/// A side that is this much faster has won: further in the same direction nothing is learnt.
const WON: f64 = 8.0;

/// Both sides of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuTime {
    /// Kernels alone.
    pub kernel_s: f64,
    /// The whole call, copies included.
    pub whole_s: f64,
}

/// Where calls are timed.
pub trait Bench {
    /// A call on the CPU.
    fn cpu(&mut self, subject: &Subject) -> Result<f64>;
    /// The same on the GPU; `None` where it has no path for the call or no room.
    fn gpu(&mut self, subject: &Subject) -> Result<Option<GpuTime>>;
    /// Time that is left for everything.
    fn left_s(&self) -> f64;
}

/// One routine with its options, over sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// Family.
    pub op: Op,
    /// Precision.
    pub precision: Precision,
    /// Option letters.
    pub letters: [u8; 4],
}

impl Curve {
    fn new(op: Op, precision: Precision, letters: &str) -> Self {
        Self {
            op,
            precision,
            letters: option_letters(letters),
        }
    }

    /// Its name in a profile: the routine, and the letters of its job options ("dpotrf", "dsyevd V", "dgeev NV").
    pub fn key(&self) -> Option<String> {
        sample_key(self.op, self.precision, self.letters)
    }

    /// The call of this size: square, with one right-hand side where the routine factors first.
    pub fn at(&self, n: usize) -> Subject {
        Subject {
            op: self.op,
            precision: self.precision,
            letters: self.letters,
            m: n,
            n,
            k: match self.op {
                Op::Gesv | Op::Posv | Op::Gels | Op::Gelsd | Op::Gelss => 1,
                _ => n,
            },
        }
    }

    fn of(&self, precision: Precision) -> Self {
        Self { precision, ..*self }
    }

    fn sample(&self, n: usize, time_s: f64) -> Sample {
        let s = self.at(n);
        Sample(s.m as u64, s.n as u64, s.k as u64, time_s)
    }
}

/// Every curve beside gemm, those that most programs use first. Real ones in float64, complex ones in complex128:
/// the other precisions follow from them.
pub fn curves(main_only: bool) -> Vec<Curve> {
    let mut curves: Vec<Curve> = [
        (Op::Trsm, "LLNN"),
        (Op::Syrk, "LN"),
        (Op::Potrf, "L"),
        (Op::Getrf, ""),
        (Op::Gesv, ""),
        (Op::Geqrf, ""),
        (Op::Syevd, "VL"),
        (Op::Gesdd, "S"),
    ]
    .map(|(op, letters)| Curve::new(op, Precision::D, letters))
    .to_vec();
    if main_only {
        return curves;
    }
    let more = [
        (Op::Geev, "NV"),
        (Op::Syevr, "VAL"),
        (Op::Symm, "LL"),
        (Op::Trmm, "LLNN"),
        (Op::Syr2k, "LN"),
        (Op::Gemmtr, "LNN"),
        (Op::Posv, "L"),
        (Op::Orgqr, ""),
        (Op::Ormqr, "LN"),
        (Op::Potrs, "L"),
        (Op::Getrs, "N"),
        (Op::Potri, "L"),
        (Op::Trtri, "LN"),
        (Op::Lauum, "L"),
        (Op::Trtrs, "LNN"),
        (Op::Gels, "N"),
        (Op::Gelsd, ""),
        (Op::Gelqf, ""),
        (Op::Syev, "VL"),
        (Op::Gesvd, "SS"),
        (Op::Gesdd, "N"),
        (Op::Syevd, "NL"),
        (Op::Geev, "NN"),
        (Op::Syevr, "NAL"),
        (Op::Syev, "NL"),
        (Op::Gesvd, "NN"),
        (Op::Gelss, ""),
        (Op::Sygvd, "VL"),
        (Op::Syevx, "VAL"),
        (Op::Sygvx, "VAL"),
        (Op::Sygv, "VL"),
        (Op::Sygvd, "NL"),
        (Op::Syevx, "NAL"),
        (Op::Sygvx, "NAL"),
        (Op::Sygv, "NL"),
    ];
    curves.extend(more.map(|(op, letters)| Curve::new(op, Precision::D, letters)));
    let complex = [
        (Op::Hemm, "LL"),
        (Op::Herk, "LN"),
        (Op::Her2k, "LN"),
        (Op::Gemm3m, "NN"),
    ];
    curves.extend(complex.map(|(op, letters)| Curve::new(op, Precision::Z, letters)));
    curves
}

/// Samples of both sides by size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    cpu: BTreeMap<usize, f64>,
    gpu: BTreeMap<usize, GpuTime>,
}

impl Measured {
    /// True where one side has nothing: such a curve serves no decision.
    pub fn is_empty(&self) -> bool {
        self.cpu.is_empty() || self.gpu.is_empty()
    }

    /// What a profile takes: the CPU's samples and the kernels'.
    pub fn samples(&self, curve: &Curve) -> (Vec<Sample>, Vec<Sample>) {
        let cpu = self.cpu.iter().map(|(n, s)| curve.sample(*n, *s));
        let gpu = self.gpu.iter().map(|(n, t)| curve.sample(*n, t.kernel_s));
        (cpu.collect(), gpu.collect())
    }

    /// How much faster the GPU is, copies included, at each size that was measured on both.
    fn ratios(&self) -> Vec<(usize, f64)> {
        let both = self.cpu.iter();
        both.filter_map(|(n, cpu_s)| Some((*n, cpu_s / self.gpu.get(n)?.whole_s)))
            .collect()
    }

    /// The size at which the sides are nearest to each other.
    fn nearest(&self) -> Option<usize> {
        let ratios = self.ratios();
        let least = ratios
            .iter()
            .min_by(|x, y| x.1.ln().abs().total_cmp(&y.1.ln().abs()));
        least.map(|(n, _)| *n)
    }

    /// One size on both sides; false where there was no time, no path or no room.
    fn add(
        &mut self,
        curve: &Curve,
        n: usize,
        expected_cpu_s: f64,
        effort: &Effort,
        bench: &mut dyn Bench,
    ) -> Result<bool> {
        if expected_cpu_s > effort.longest_s || 2.0 * expected_cpu_s >= bench.left_s() {
            return Ok(false);
        }
        let subject = curve.at(n);
        let Some(time) = bench.gpu(&subject)? else {
            return Ok(false);
        };
        let cpu_s = bench.cpu(&subject)?;
        self.gpu.insert(n, time);
        self.cpu.insert(n, cpu_s);
        Ok(true)
    }

    /// Measures a curve: up from the first size until the GPU has won, down until the CPU has, then between.
    pub fn of(curve: &Curve, effort: &Effort, bench: &mut dyn Bench) -> Result<Self> {
        let mut found = Self::default();
        let (mut n, mut expected_s) = (FIRST_N, 0.0);
        while n <= effort.most_n && found.add(curve, n, expected_s, effort, bench)? {
            if found.ratios().last().is_some_and(|(_, ratio)| *ratio > WON) && found.cpu.len() > 1 {
                break;
            }
            // All of these routines are cubic.
            expected_s = 8.0 * found.cpu.last_key_value().map_or(0.0, |(_, s)| *s);
            n *= 2;
        }
        let mut n = FIRST_N / 2;
        while n >= LEAST_N
            && found
                .ratios()
                .first()
                .is_some_and(|(_, ratio)| *ratio > 1.0 / WON)
            && found.add(curve, n, 0.0, effort, bench)?
        {
            n /= 2;
        }
        for _ in 0..effort.refinements {
            let ratios = found.ratios();
            let changes: Vec<(usize, usize)> = ratios
                .windows(2)
                .filter(|pair| (pair[0].1 < 1.0) != (pair[1].1 < 1.0))
                .map(|pair| (pair[0].0, pair[1].0))
                .collect();
            for (low, high) in changes {
                let middle = ((low as f64 * high as f64).sqrt() / 16.0).round() as usize * 16;
                if low < middle && middle < high {
                    let expected_s = found.cpu.get(&high).copied().unwrap_or(0.0);
                    found.add(curve, middle, expected_s, effort, bench)?;
                }
            }
        }
        Ok(found)
    }

    /// The curve of another precision: measured at the size where the sides of this one are nearest to each
    /// other, and in the same proportion elsewhere. `None` where there was no time.
    pub fn derived(
        &self,
        curve: &Curve,
        precision: Precision,
        effort: &Effort,
        bench: &mut dyn Bench,
    ) -> Result<Option<(Curve, Self)>> {
        let Some(n) = self.nearest() else {
            return Ok(None);
        };
        let (cpu_s, gpu) = (self.cpu[&n], self.gpu[&n]);
        let to = curve.of(precision);
        let weight = |p: Precision| p.elem_bytes() as f64 * if p.is_complex() { 2.0 } else { 1.0 };
        let expected_s = cpu_s * weight(precision) / weight(curve.precision);
        let mut one = Self::default();
        if !one.add(&to, n, expected_s, effort, bench)? {
            return Ok(None);
        }
        let cpu_factor = one.cpu[&n] / cpu_s;
        let kernel_factor = one.gpu[&n].kernel_s / gpu.kernel_s;
        let whole_factor = one.gpu[&n].whole_s / gpu.whole_s;
        let derived = Self {
            cpu: self.cpu.iter().map(|(n, s)| (*n, s * cpu_factor)).collect(),
            gpu: self
                .gpu
                .iter()
                .map(|(n, t)| {
                    let time = GpuTime {
                        kernel_s: t.kernel_s * kernel_factor,
                        whole_s: t.whole_s * whole_factor,
                    };
                    (*n, time)
                })
                .collect(),
        };
        Ok(Some((to, derived)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Power laws that meet at a size, with a budget.
    struct Laws {
        meet_at: f64,
        left_s: f64,
        sizes: Vec<usize>,
        factor: f64,
    }

    impl Bench for Laws {
        fn cpu(&mut self, subject: &Subject) -> Result<f64> {
            let time_s = self.factor * 1e-10 * (subject.n as f64).powi(3);
            self.left_s -= time_s;
            self.sizes.push(subject.n);
            Ok(time_s)
        }

        fn gpu(&mut self, subject: &Subject) -> Result<Option<GpuTime>> {
            let whole_s = self.factor * 1e-10 * (subject.n as f64).powi(2) * self.meet_at;
            Ok(Some(GpuTime {
                kernel_s: whole_s / 2.0,
                whole_s,
            }))
        }

        fn left_s(&self) -> f64 {
            self.left_s
        }
    }

    fn laws(meet_at: f64, left_s: f64) -> Laws {
        Laws {
            meet_at,
            left_s,
            sizes: Vec::new(),
            factor: 1.0,
        }
    }

    const EFFORT: Effort = Effort {
        longest_s: 100.0,
        most_n: 8192,
        refinements: 2,
        repeat_s: 0.0,
        anchors: true,
        all_precisions: false,
        main_only: false,
    };

    fn curve() -> Curve {
        Curve::new(Op::Potrf, Precision::D, "L")
    }

    #[test]
    fn sizes_lie_close_where_the_sides_change_places_and_end_where_one_has_won() {
        let mut bench = laws(700.0, 1e9);
        let found = Measured::of(&curve(), &EFFORT, &mut bench).expect("times");
        let sizes: Vec<usize> = found.cpu.keys().copied().collect();
        assert_eq!(sizes, [64, 128, 256, 512, 608, 720, 1024, 2048, 4096, 8192]);
        // The GPU is 8 times as fast from n = 800 on.
        let mut bench = laws(100.0, 1e9);
        let found = Measured::of(&curve(), &EFFORT, &mut bench).expect("times");
        assert_eq!(found.cpu.keys().max(), Some(&1024), "{found:?}");
        // The CPU is as long as n < 2500.
        let mut bench = laws(20_000.0, 1e9);
        let found = Measured::of(&curve(), &EFFORT, &mut bench).expect("times");
        assert_eq!(found.cpu.keys().min(), Some(&512), "{found:?}");
    }

    #[test]
    fn nothing_longer_than_allowed_is_begun() {
        let mut bench = laws(3000.0, 1e9);
        let effort = Effort {
            longest_s: 0.2,
            ..EFFORT
        };
        Measured::of(&curve(), &effort, &mut bench).expect("times");
        // n = 1024 takes 0.107 s, and n = 2048 eight times that.
        assert_eq!(bench.sizes.iter().max(), Some(&1024));
        let mut bench = laws(3000.0, 0.02);
        Measured::of(&curve(), &EFFORT, &mut bench).expect("times");
        assert!(bench.left_s > 0.0, "{}", bench.left_s);
    }

    #[test]
    fn another_precision_keeps_the_shape_of_the_first() {
        let mut bench = laws(700.0, 1e9);
        let first = Measured::of(&curve(), &EFFORT, &mut bench).expect("times");
        bench.factor = 3.0;
        bench.sizes.clear();
        let derived = first.derived(&curve(), Precision::Z, &EFFORT, &mut bench);
        let (to, derived) = derived.expect("times").expect("a curve");
        assert_eq!(to.key().as_deref(), Some("zpotrf"));
        assert_eq!(bench.sizes, [720], "one size is measured");
        for ((n, a), (m, b)) in first.cpu.iter().zip(&derived.cpu) {
            assert!(n == m && (b / a - 3.0).abs() < 1e-9);
        }
    }

    #[test]
    fn every_curve_is_a_call_that_the_gpu_may_get() {
        let all = curves(false);
        let mut keys: Vec<String> = all.iter().map(|c| c.key().expect("a name")).collect();
        for key in [
            "dpotrf", "dsyevd V", "dsyevd N", "dgesdd S", "dgeev NV", "zhemm", "dsyevr V",
        ] {
            assert!(keys.iter().any(|k| k == key), "{key}");
        }
        keys.sort();
        let count = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), count, "no key stands for two curves");
        for curve in all {
            let operands = gpu_offload::measure::Operands::new(curve.at(8));
            assert!(operands.is_some(), "{curve:?}");
            assert!(matches!(curve.precision, Precision::D | Precision::Z));
        }
        // Every family with a GPU path, but for an older name and the one without a plan.
        for (family, ..) in routines::routed() {
            let listed = curves(false).iter().any(|c| c.op == family.op);
            let known = matches!(family.op, Op::Gemm | Op::Gemmt | Op::Getri);
            assert!(listed || known, "{:?}", family.op);
        }
    }
}
