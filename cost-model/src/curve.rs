//! Time over size, interpolated in log space, and the three thin shapes beside the cube.
//!
//! Everything here is monotone by construction: a bigger call never has a smaller predicted time,
//! whatever noise the samples carry. Must not know what the sizes stand for on a device.

/// What a curve says below its smallest sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// Time shrinks with the size: the low guess, right for the side that must not be blamed (CPU).
    Proportional,
    /// Time stays that of the smallest sample: the high guess, right for the GPU.
    Constant,
}

/// A monotone curve of time over size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    /// (ln size, ln seconds), sizes strictly increasing, times not decreasing. Never empty.
    points: Vec<(f64, f64)>,
    below: Below,
}

impl Curve {
    /// From (size, seconds) samples, all positive and finite; `None` without any sample.
    pub(crate) fn new(mut samples: Vec<(f64, f64)>, below: Below) -> Option<Self> {
        samples.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(samples.len());
        for (size, time_s) in samples {
            // Of two samples of one size the quicker one, which comes first, stands.
            if points.last().is_none_or(|last| last.0 < size.ln()) {
                points.push((size.ln(), time_s.ln()));
            }
        }
        // Noise only adds time: where a bigger size was quicker, the smaller one's sample is wrong.
        let mut least = f64::INFINITY;
        for point in points.iter_mut().rev() {
            least = least.min(point.1);
            point.1 = least;
        }
        (!points.is_empty()).then_some(Self { points, below })
    }

    /// The same curve, times multiplied by `e^by`.
    fn shifted(&self, by: f64) -> Self {
        Self {
            points: self.points.iter().map(|p| (p.0, p.1 + by)).collect(),
            below: self.below,
        }
    }

    /// Logarithm of the largest size that was measured.
    pub(crate) fn largest_ln(&self) -> f64 {
        self.points[self.points.len() - 1].0
    }

    /// Predicted time of `size`; beyond the largest sample its rate stays.
    pub(crate) fn time_s(&self, size: f64) -> f64 {
        if size < 1.0 {
            return 0.0;
        }
        self.ln_time(size.ln()).exp()
    }

    /// Logarithm of the predicted time over that of the size.
    pub(crate) fn ln_time(&self, x: f64) -> f64 {
        let first = self.points[0];
        let last = self.points[self.points.len() - 1];
        if x <= first.0 {
            match self.below {
                Below::Proportional => first.1 + (x - first.0),
                Below::Constant => first.1,
            }
        } else if x >= last.0 {
            last.1 + (x - last.0)
        } else {
            let right = self.points.partition_point(|p| p.0 <= x);
            let (p, q) = (self.points[right - 1], self.points[right]);
            p.1 + (q.1 - p.1) * (x - p.0) / (q.0 - p.0)
        }
    }
}

/// Curves of one thin shape: one dimension is small, the other two span one big operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Thin {
    /// (ln of the small dimension, time over the elements of the big operand), by small dimension.
    slices: Vec<(f64, Curve)>,
}

impl Thin {
    /// From (small dimension, elements of the big operand, seconds).
    pub(crate) fn new(samples: &[(f64, f64, f64)], below: Below) -> Option<Self> {
        let mut smalls: Vec<f64> = samples.iter().map(|s| s.0).collect();
        smalls.sort_by(f64::total_cmp);
        smalls.dedup();
        let slices: Vec<(f64, Curve)> = smalls
            .into_iter()
            .filter_map(|small| {
                let of_small = samples.iter().filter(|s| s.0 == small);
                let curve = Curve::new(of_small.map(|s| (s.1, s.2)).collect(), below)?;
                Some((small.ln(), curve))
            })
            .collect();
        (!slices.is_empty()).then_some(Self { slices })
    }

    /// The slices of another precision: the thinnest ones are memory traffic, the others arithmetic.
    fn shifted(&self, by_bytes: f64, by_work: f64) -> Self {
        let slice = |(small, curve): &(f64, Curve)| {
            let by = if *small < ARITHMETIC_FROM.ln() {
                by_bytes
            } else {
                by_work
            };
            (*small, curve.shifted(by))
        };
        Self {
            slices: self.slices.iter().map(slice).collect(),
        }
    }

    /// Logarithm of a lower bound of the time of a call whose big operand has `e^elems` elements, between the
    /// slices by the small dimension and never above the thickest one; and by how much (in the logarithm) the
    /// small dimension exceeds that.
    fn ln_time(&self, small: f64, elems: f64) -> (f64, f64) {
        let mut below: Option<(f64, f64)> = None;
        for (slice, curve) in &self.slices {
            let floor = below.map_or(f64::NEG_INFINITY, |b| b.1);
            let here = (*slice, curve.ln_time(elems).max(floor));
            if small <= here.0 {
                let Some(left) = below else {
                    return (here.1, 0.0);
                };
                let share = (small - left.0) / (here.0 - left.0);
                return (left.1 + share * (here.1 - left.1), 0.0);
            }
            below = Some(here);
        }
        below.map_or((f64::NEG_INFINITY, 0.0), |b| (b.1, small - b.0))
    }
}

/// Logarithms of a product's m, n, k, none of which is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LnSizes([f64; 3]);

impl LnSizes {
    /// `None` for a product without work.
    pub(crate) fn of(sizes: [f64; 3]) -> Option<Self> {
        let [m, n, k] = sizes;
        (m >= 1.0 && n >= 1.0 && k >= 1.0).then(|| Self([m.ln(), n.ln(), k.ln()]))
    }
}

/// Time of a matrix product over m, n, k: the cube of equal work, but at least what the thin shape
/// with the same big operand costs (a roofline: arithmetic or memory, whichever is slower).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GemmCurves {
    cube: Curve,
    thin_m: Option<Thin>,
    thin_n: Option<Thin>,
    thin_k: Option<Thin>,
    /// Logarithm of what all times are multiplied by (0 unless derived from another precision).
    ln_factor: f64,
    /// The same of the thin shapes' times besides (0 unless they are another family's).
    ln_thin_factor: f64,
}

impl GemmCurves {
    /// From (m, n, k, seconds); `None` without a cube.
    pub(crate) fn new(samples: &[(f64, f64, f64, f64)], below: Below) -> Option<Self> {
        let (mut cubes, mut thin) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
        for &(m, n, k, time_s) in samples {
            let small = m.min(n).min(k);
            if m == n && n == k {
                cubes.push((m * n * k, time_s));
            } else if small == n {
                thin[1].push((n, m * k, time_s));
            } else if small == m {
                thin[0].push((m, n * k, time_s));
            } else {
                thin[2].push((k, m * n, time_s));
            }
        }
        Some(Self {
            cube: Curve::new(cubes, below)?,
            thin_m: Thin::new(&thin[0], below),
            thin_n: Thin::new(&thin[1], below),
            thin_k: Thin::new(&thin[2], below),
            ln_factor: 0.0,
            ln_thin_factor: 0.0,
        })
    }

    /// Curves of another family: its own cubes of (work, seconds), and this one's thin shapes times its
    /// `share` of the work and as much slower as its cubes are. `None` without a cube.
    pub(crate) fn of_family(
        &self,
        cubes: Vec<(f64, f64)>,
        share: f64,
        below: Below,
    ) -> Option<Self> {
        let mut slower: Vec<f64> = cubes
            .iter()
            .map(|(work, time_s)| time_s.ln() - self.ln_factor - self.cube.ln_time(work.ln()))
            .collect();
        slower.sort_by(f64::total_cmp);
        let median = slower.get(slower.len() / 2)?;
        Some(Self {
            cube: Curve::new(cubes, below)?,
            ln_factor: 0.0,
            ln_thin_factor: self.ln_thin_factor + self.ln_factor + median.max(share.ln()),
            ..self.clone()
        })
    }

    /// Takes the thin shapes of another precision, whose elements are `bytes` times shorter, where none were measured
    /// in this one; the thicker ones times what the cubes' times differ by.
    pub(crate) fn with_thin_of(self, other: &Self, bytes: f64) -> Self {
        if [&self.thin_m, &self.thin_n, &self.thin_k]
            .into_iter()
            .any(Option::is_some)
        {
            return self;
        }
        let mut ratios: Vec<f64> = (self.cube.points.iter())
            .map(|(size, time)| time - other.cube.ln_time(*size))
            .collect();
        ratios.sort_by(f64::total_cmp);
        // Both factors are of whole curves.
        let own = other.ln_factor + other.ln_thin_factor - self.ln_factor - self.ln_thin_factor;
        let by_work = own + ratios[ratios.len() / 2] + self.ln_factor - other.ln_factor;
        let by_bytes = own + bytes.ln();
        let thin = |t: &Option<Thin>| Some(t.as_ref()?.shifted(by_bytes, by_work));
        Self {
            thin_m: thin(&other.thin_m),
            thin_n: thin(&other.thin_n),
            thin_k: thin(&other.thin_k),
            ..self
        }
    }

    /// The same curves with every time multiplied.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self {
            ln_factor: self.ln_factor + factor.ln(),
            ..self.clone()
        }
    }

    /// Predicted time.
    pub(crate) fn time_s(&self, m: f64, n: f64, k: f64) -> f64 {
        LnSizes::of([m, n, k]).map_or(0.0, |sizes| self.ln_time(&sizes).exp())
    }

    /// Logarithm of the predicted time.
    pub(crate) fn ln_time(&self, sizes: &LnSizes) -> f64 {
        let LnSizes([m, n, k]) = *sizes;
        let growth = match self.cube.below {
            Below::Proportional => CPU_GROWTH,
            Below::Constant => 0.0,
        };
        let thin = |t: &Option<Thin>, small: f64, elems: f64| {
            let Some(t) = t else {
                return f64::NEG_INFINITY;
            };
            let (time, beyond) = t.ln_time(small, elems);
            if growth == 0.0 || beyond == 0.0 {
                return time;
            }
            // The cube with such a big operand is thicker still.
            let most = self.cube.ln_time(1.5 * elems) - self.ln_thin_factor;
            (time + growth * beyond).min(most.max(time))
        };
        let thinnest = thin(&self.thin_m, m, n + k)
            .max(thin(&self.thin_n, n, m + k))
            .max(thin(&self.thin_k, k, m + n));
        self.ln_factor
            + self
                .cube
                .ln_time(m + n + k)
                .max(self.ln_thin_factor + thinnest)
    }
}

/// Small dimension from which a thin product is arithmetic rather than memory traffic, when another precision's times
/// are derived from it.
const ARITHMETIC_FROM: f64 = 4.0;

/// How the CPU's time grows with a small dimension beyond the thickest slice that was measured, until the cube of
/// equal work takes longer: packing the big operand takes as long for few columns as for many.
const CPU_GROWTH: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} is not {b}");
    }

    #[test]
    fn samples_are_met_and_the_middle_is_geometric() {
        let c = Curve::new(vec![(100.0, 4.0), (1.0, 1.0)], Below::Proportional).expect("samples");
        near(c.time_s(1.0), 1.0);
        near(c.time_s(100.0), 4.0);
        near(c.time_s(10.0), 2.0);
        near(c.time_s(1000.0), 40.0);
    }

    #[test]
    fn below_the_first_sample_each_side_gets_its_own_guess() {
        let cpu = Curve::new(vec![(100.0, 4.0)], Below::Proportional).expect("samples");
        let gpu = Curve::new(vec![(100.0, 4.0)], Below::Constant).expect("samples");
        near(cpu.time_s(10.0), 0.4);
        near(gpu.time_s(10.0), 4.0);
    }

    #[test]
    fn noise_cannot_make_a_bigger_call_quicker() {
        let c = Curve::new(
            vec![(1.0, 1.0), (2.0, 0.5), (2.0, 9.0), (4.0, 3.0)],
            Below::Constant,
        )
        .expect("samples");
        near(c.time_s(1.0), 0.5);
        near(c.time_s(2.0), 0.5);
        near(c.time_s(4.0), 3.0);
    }

    #[test]
    fn a_thin_call_costs_at_least_its_big_operand() {
        let samples = [
            (100.0, 100.0, 100.0, 1.0),
            (1000.0, 1.0, 1000.0, 5.0), // thin n
            (1.0, 1000.0, 1000.0, 7.0), // thin m
            (1000.0, 1000.0, 1.0, 9.0), // thin k
        ];
        let c = GemmCurves::new(&samples, Below::Proportional).expect("a cube");
        near(c.time_s(1000.0, 1.0, 1000.0), 5.0);
        near(c.time_s(1.0, 1000.0, 1000.0), 7.0);
        near(c.time_s(1000.0, 1000.0, 1.0), 9.0);
        near(c.time_s(100.0, 100.0, 100.0), 1.0);
        near(c.scaled(4.0).time_s(100.0, 100.0, 100.0), 4.0);
    }

    #[test]
    fn beyond_the_thickest_slice_the_cpu_grows_until_the_cube_takes_over() {
        let samples = [
            (64.0, 64.0, 64.0, 64.0_f64.powi(3) * 1e-9),
            (1024.0, 1024.0, 1024.0, 1024.0_f64.powi(3) * 1e-9),
            // Ten times as long as the cube of equal work.
            (1024.0, 16.0, 1024.0, 16.0 * 1024.0 * 1024.0 * 1e-8),
        ];
        let cpu = GemmCurves::new(&samples, Below::Proportional).expect("cubes");
        let gpu = GemmCurves::new(&samples, Below::Constant).expect("cubes");
        let at_16 = samples[2].3;
        near(cpu.time_s(1024.0, 16.0, 1024.0), at_16);
        near(cpu.time_s(1024.0, 64.0, 1024.0), 2.0 * at_16);
        near(gpu.time_s(1024.0, 64.0, 1024.0), at_16);
        near(cpu.time_s(1024.0, 1024.0, 1024.0), samples[1].3);
    }

    #[test]
    fn a_precision_without_thin_shapes_takes_anothers() {
        let cubes = |rate: f64| vec![(100.0, 100.0, 100.0, 1e6 / rate)];
        let mut real = cubes(1e6);
        real.extend([(1.0, 100.0, 100.0, 0.5), (16.0, 100.0, 100.0, 0.75)]);
        let real = GemmCurves::new(&real, Below::Proportional).expect("a cube");
        let complex = GemmCurves::new(&cubes(0.25e6), Below::Proportional).expect("a cube");
        for factor in [1.0, 3.0] {
            let complex = complex
                .scaled(factor)
                .with_thin_of(&real.scaled(factor), 2.0);
            // Twice the bytes; four times the arithmetic.
            near(complex.time_s(1.0, 100.0, 100.0), 1.0 * factor);
            near(complex.time_s(16.0, 100.0, 100.0), 3.0 * factor);
            near(complex.time_s(100.0, 100.0, 100.0), 4.0 * factor);
        }
        near(
            real.clone()
                .with_thin_of(&complex, 2.0)
                .time_s(1.0, 100.0, 100.0),
            0.5,
        );
    }

    #[test]
    fn a_family_is_as_slow_with_thin_shapes_as_with_cubes() {
        let samples = [(100.0, 100.0, 100.0, 1.0), (1000.0, 1.0, 1000.0, 5.0)];
        let product = GemmCurves::new(&samples, Below::Proportional).expect("a cube");
        let of = |time_s| {
            let family = product.of_family(vec![(1e6, time_s)], 0.5, Below::Proportional);
            family.expect("a cube").time_s(1000.0, 1.0, 1000.0)
        };
        near(of(0.8), 4.0);
        // No quicker than its share of the work.
        near(of(0.3), 2.5);
    }
}
