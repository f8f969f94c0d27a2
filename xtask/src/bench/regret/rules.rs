//! The rules that are compared: ours, and the peers' from their descriptions.

use super::machine::Moment;
use cost_model::{Learned, LearnedDecision, Level, Profile, Route, Situation, decide, watch_work};
use routines::{Op, Precision, Shape};
use std::collections::{BTreeMap, BTreeSet};

/// Says where a call goes, and hears what it took.
pub trait Rule {
    /// Where the call goes.
    fn route(&mut self, shape: &Shape, moment: &Moment) -> Route;
    /// What it took there.
    fn observe(&mut self, _shape: &Shape, _route: Route, _seconds: f64) {}
}

/// One side for every call.
pub struct Always(pub Route);

impl Rule for Always {
    fn route(&mut self, _: &Shape, _: &Moment) -> Route {
        self.0
    }
}

/// A fixed size, as NVBLAS and SCILIB-Accel have it: (m n k)^(1/3) > 500.
pub struct BySize;

impl Rule for BySize {
    fn route(&mut self, shape: &Shape, _: &Moment) -> Route {
        let [m, n, k] = shape.product().map(|size| size as f64);
        if (m * n * k).cbrt() > 500.0 {
            Route::Gpu
        } else {
            Route::Cpu
        }
    }
}

/// Flops alone: times of square products with their copies, looked up by flops, and one correction an
/// operation and side for all sizes. Never looks at the GPU again once it looks bad.
pub struct ByFlops<'a> {
    pub profile: &'a Profile,
    /// Correction of CPU and GPU, by family and precision.
    pub corrections: BTreeMap<(Op, Precision), [f64; 2]>,
}

/// How much of a new ratio such a correction takes.
const FLOPS_RULE_GAIN: f64 = 0.2;

impl ByFlops<'_> {
    /// Both sides' times of the square product with as many flops.
    fn predicted(&self, shape: &Shape) -> [f64; 2] {
        let n = (shape.flops() / shape.precision.flops_of_madd())
            .cbrt()
            .max(1.0) as u64;
        let square = super::workload::call(Op::Gemm, shape.precision, [n; 3]);
        let d = decide(self.profile, &square, &Situation::default(), Level::MAX);
        [d.prediction.cpu_s, d.prediction.gpu_s()]
    }
}

impl Rule for ByFlops<'_> {
    fn route(&mut self, shape: &Shape, _: &Moment) -> Route {
        let [cpu_s, gpu_s] = self.predicted(shape);
        let key = (shape.op, shape.precision);
        let [cpu, gpu] = self.corrections.get(&key).copied().unwrap_or([1.0; 2]);
        if cpu_s * cpu > gpu_s * gpu {
            Route::Gpu
        } else {
            Route::Cpu
        }
    }

    fn observe(&mut self, shape: &Shape, route: Route, seconds: f64) {
        let side = usize::from(route == Route::Gpu);
        let ratio = seconds / self.predicted(shape)[side].max(1e-9);
        let key = (shape.op, shape.precision);
        let correction = &mut self.corrections.entry(key).or_insert([1.0; 2])[side];
        *correction += FLOPS_RULE_GAIN * (ratio - *correction);
    }
}

/// Ours without its past.
pub struct ModelAlone<'a> {
    pub profile: &'a Profile,
    pub level: Level,
}

impl Rule for ModelAlone<'_> {
    fn route(&mut self, shape: &Shape, moment: &Moment) -> Route {
        let situation = Situation {
            cpu_threads: moment.threads,
            ..Situation::default()
        };
        decide(self.profile, shape, &situation, self.level).route
    }
}

/// Ours: the threshold, the model, and what its own past has taught.
pub struct Ours<'a> {
    profile: &'a Profile,
    level: Level,
    learned: Learned,
    /// The last decision; `None` for a call below the threshold.
    last: Option<LearnedDecision>,
    thresholds: BTreeMap<(Op, Precision), u64>,
    /// Routines that have been on the GPU.
    warm: BTreeSet<(Op, Precision)>,
}

impl<'a> Ours<'a> {
    /// Without a past.
    pub fn new(profile: &'a Profile, level: Level) -> Self {
        Self {
            profile,
            level,
            learned: Learned::new(),
            last: None,
            thresholds: BTreeMap::new(),
            warm: BTreeSet::new(),
        }
    }

    /// The last call's decision; `None` for a call below the threshold.
    pub fn decided(&self) -> Option<&LearnedDecision> {
        self.last.as_ref()
    }
}

impl Rule for Ours<'_> {
    fn route(&mut self, shape: &Shape, moment: &Moment) -> Route {
        let key = (shape.op, shape.precision);
        let threshold = *self
            .thresholds
            .entry(key)
            .or_insert_with(|| watch_work(self.profile, shape.op, shape.precision, self.level));
        if shape.work() <= threshold {
            self.last = None;
            return Route::Cpu;
        }
        let situation = Situation {
            cpu_threads: moment.threads,
            ..Situation::default()
        };
        let decided = self
            .learned
            .decide(self.profile, shape, &situation, self.level, true);
        self.last = Some(decided);
        decided.decision.route
    }

    fn observe(&mut self, shape: &Shape, route: Route, seconds: f64) {
        let Some(decided) = self.last.filter(|d| d.timed) else {
            return;
        };
        if route == Route::Gpu && self.warm.insert((shape.op, shape.precision)) {
            return;
        }
        self.learned.observe(shape, &decided, route, seconds);
    }
}
