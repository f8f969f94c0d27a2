//! What past calls teach: a correction of the predicted times, and when the other side is worth a try.
//!
//! A correction is a factor on a side's predicted time, kept as the sum of three logarithms: one of the
//! routine (which follows a GPU that is throttled or shared), one of a neighbourhood of sizes, one of the
//! shape itself. Each is the mean of a Kalman filter, so that the first call of a routine tells of all its
//! sizes and the hundredth only of its own. Reading and writing take no lock and allocate nothing; of two
//! updates at the same instant one may be lost. Must not know clocks: times come from the caller.

mod kept;

pub use kept::{Entry, LEARNED_SCHEMA, LearnedCounts, MOST_ENTRIES, merge};

use crate::decide::{Decision, Level, Reason, Route, choose};
use crate::{Profile, Situation, predict};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use routines::{Precision, Shape};

/// Places of a correction, from all calls of a side to one shape.
const RANKS: usize = 5;
const SIDE: usize = 0;
const ROUTINE: usize = 1;
const SHAPE: usize = 4;

/// Standard deviation, in the logarithm, of what is not known before the first call: of a side, a routine, a
/// neighbourhood of sizes, a shape. An estimated profile is off by up to a factor of 3 (ln 3 = 1.1), a
/// calibrated one by 20 to 50 % in families and sizes that were not measured (bench of regret, 2026-12-02).
const PRIOR_SD: [f64; RANKS] = [0.1, 0.4, 0.25, 0.25, 0.15];

/// Variance that each observation adds to what is known, for slow changes. With a noise of 5 % the shape's
/// own correction then follows the last ten calls or so.
const DRIFT_VARIANCE: [f64; RANKS] = [1e-4, 1e-4, 1e-4, 1e-4, 2e-4];

/// Variance that a side's correction gains with each heavy call since it was last observed, up to
/// [`MOST_AGE_VARIANCE`]: after 600 calls a side that looked 2 times slower is worth a try.
const AGE_VARIANCE: f64 = 2e-4;
const MOST_AGE_VARIANCE: f64 = 1.0;

/// Noise of a side before it is known, and the least that is believed: 3 %.
const PRIOR_NOISE: f64 = 0.10;
const LEAST_NOISE: f64 = 0.03;

/// A call that takes longer than expected by this many standard deviations is not believed at once:
/// something else may have disturbed it. Nothing makes a call quicker by accident, so a quicker one is.
const OUTLIER: f64 = 2.5;

/// The most (in the logarithm) that is believed at once, however little is known: a first call that something
/// disturbed would make its side look bad for ever, since a side that is not chosen is not observed.
const MOST_BELIEVED: f64 = 0.25;

/// So many disbelieved calls in a row are a change.
const STREAK: u64 = 3;

/// Standard deviations by which the other side may be better than it looks: the optimism of a try.
const OPTIMISM: f64 = 2.0;

/// Standard deviations by which it may be worse, in what a try is expected to cost.
const CAUTION: f64 = 0.3;

/// Share of the time saved so far that tries may cost in all, and the most that one call adds, as a share
/// of its own time: where the GPU saves twenty times a call's time, 1 % of that would be 20 % of the total.
const BUDGET_OF_SAVED: f64 = 0.01;
const BUDGET_OF_TAKEN: f64 = 0.02;

/// While little is known of a side, each of its calls is timed; later each fourth call on the CPU, which
/// finds a change within ten.
const TIMED_FIRST: u64 = 8;
const TIMED_EACH: u32 = 4;

/// Places of neighbourhoods and shapes. A program that calls more kinds of shapes than fit learns of the
/// rest by routine only.
const CELLS: usize = 2048;

/// Places that are looked at for a key.
const REACH: usize = 4;

/// Routines: a slot for every code of a family and every precision.
const ROUTINES: usize = 64 * 4;

/// A side that takes longer than it should by this factor (in the logarithm) is disturbed: whether it
/// still is may be asked by any call that is cheap enough, after so many calls.
const DISTURBED: f64 = 0.3;
const ASK_EACH: u32 = 20;

/// The corrections of one process.
pub struct Learned {
    /// What all calls of a side have in common: a GPU that is shared or throttled, other CPU threads.
    common: Cell,
    routines: Box<[Cell]>,
    cells: Box<[Cell]>,
    /// Heavy calls so far, wrapping.
    ticks: AtomicU32,
    /// What tries may cost now.
    budget_ns: AtomicI64,
}

impl Default for Learned {
    fn default() -> Self {
        Self::new()
    }
}

/// The correction that a decision used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// Factor on the CPU's predicted time.
    pub cpu: f64,
    /// Factor on the GPU's predicted time, waiting apart.
    pub gpu: f64,
}

impl Correction {
    /// Nothing has been learnt.
    pub const NONE: Self = Self { cpu: 1.0, gpu: 1.0 };
}

/// A decision with what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedDecision {
    /// The route, by corrected predictions.
    pub decision: Decision,
    /// The factors within.
    pub correction: Correction,
    /// The call's time is wanted, on whichever side it runs.
    pub timed: bool,
}

impl From<Decision> for LearnedDecision {
    /// A decision by the profile alone, from which nothing is learnt.
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            correction: Correction::NONE,
            timed: false,
        }
    }
}

/// One correction of both sides.
#[derive(Default)]
struct Cell {
    /// 0 while nobody has it; the key of a neighbourhood or shape.
    key: AtomicU32,
    sides: [Tracker; 2],
}

/// A Kalman filter of one number, in one word.
#[derive(Default)]
struct Tracker {
    /// [`State::pack`]; 0 for nothing observed.
    state: AtomicU64,
    /// Tick of the last observation.
    at: AtomicU32,
}

/// A tracker's content.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    /// Logarithm of the factor.
    mean: f64,
    /// How well that is known.
    sd: f64,
    /// Spread of single calls; kept by the routine's tracker only.
    noise: f64,
    /// Disbelieved calls in a row, and the least excess among them.
    streak: u64,
    excess: f64,
    /// Observations, up to 255.
    count: u64,
}

impl State {
    fn prior(rank: usize) -> Self {
        Self {
            mean: 0.0,
            sd: PRIOR_SD[rank],
            noise: PRIOR_NOISE,
            streak: 0,
            excess: 0.0,
            count: 0,
        }
    }

    /// mean in 1/1024 (16 bits, signed), sd in 1/4096 (16), noise in 1/128 (8), streak (4), excess in 1/64
    /// (12), count (8).
    fn pack(&self) -> u64 {
        let field =
            |value: f64, scale: f64, low: f64, high: f64| (value * scale).round().clamp(low, high);
        let mean = field(self.mean, 1024.0, -32767.0, 32767.0) as i16 as u16;
        let sd = field(self.sd, 4096.0, 1.0, 65535.0) as u64;
        let noise = field(self.noise, 128.0, 1.0, 255.0) as u64;
        let excess = field(self.excess, 64.0, 0.0, 4095.0) as u64;
        u64::from(mean)
            | sd << 16
            | noise << 32
            | self.streak.min(15) << 40
            | excess << 44
            | self.count.min(255) << 56
    }

    fn unpack(word: u64, rank: usize) -> Self {
        if word == 0 {
            return Self::prior(rank);
        }
        Self {
            mean: f64::from(word as u16 as i16) / 1024.0,
            sd: (word >> 16 & 0xFFFF) as f64 / 4096.0,
            noise: (word >> 32 & 0xFF) as f64 / 128.0,
            streak: word >> 40 & 0xF,
            excess: (word >> 44 & 0xFFF) as f64 / 64.0,
            count: word >> 56,
        }
    }
}

impl Tracker {
    fn load(&self, rank: usize) -> State {
        State::unpack(self.state.load(Relaxed), rank)
    }

    fn store(&self, state: &State) {
        self.state.store(state.pack(), Relaxed);
    }
}

/// What is known of one side of a call.
#[derive(Clone, Copy)]
struct Known {
    /// Logarithm of the factor.
    mean: f64,
    /// Its variance, age included.
    variance: f64,
    /// The part of the mean that all calls of the side share, and the age of its last observation.
    common: f64,
    age: u32,
    /// The call would be timed.
    timed: bool,
}

/// Quarter octaves of a size, up to 2^16: 4 a doubling, from its first three bits.
fn quarter_octaves(size: u64) -> u32 {
    let size = size.max(1);
    let octave = size.ilog2();
    let quarter = if octave >= 2 {
        size >> (octave - 2) & 3
    } else {
        0
    };
    (4 * octave + quarter as u32).min(63)
}

/// Key of the size: work by factors of 8.
fn size(shape: &Shape) -> u32 {
    let work = shape.work().max(1).ilog2() / 3;
    3 << 30 | routine(shape) << 22 | jobs(shape) << 12 | work
}

/// Key of the neighbourhood: work and smallest dimension by factors of 4, and which dimension that is.
fn neighbourhood(shape: &Shape) -> u32 {
    let [m, n, k] = shape.product();
    let least = m.min(n).min(k).max(1);
    let which = if least == n {
        0
    } else if least == m {
        1
    } else {
        2
    };
    let work = shape.work().max(1).ilog2() / 2;
    1 << 30
        | routine(shape) << 22
        | jobs(shape) << 12
        | work << 6
        | (least.ilog2() / 2).min(15) << 2
        | which
}

/// Key of the shape.
fn exact(shape: &Shape) -> u32 {
    let [m, n, k] = [shape.m, shape.n, shape.k].map(quarter_octaves);
    // Side and beta share a bit with the job options: a clash mixes two corrections, no more.
    let options = (jobs(shape) ^ u32::from(shape.right) ^ u32::from(shape.beta_zero) << 1) & 15;
    2 << 30 | routine(shape) << 22 | options << 18 | m << 12 | n << 6 | k
}

/// The routine, from 0 to [`ROUTINES`] - 1.
fn routine(shape: &Shape) -> u32 {
    let precision = match shape.precision {
        Precision::S => 0,
        Precision::D => 1,
        Precision::C => 2,
        Precision::Z => 3,
    };
    (shape.op as u32 & 63) << 2 | precision
}

/// Job options that change the work: the letters but for uplo, trans, side and diag would do; four bits of
/// all of them keep what asks for vectors apart from what does not.
fn jobs(shape: &Shape) -> u32 {
    let [a, b, ..] = shape.letters;
    (u32::from(a) ^ u32::from(b) << 2) & 15
}

/// Calls since the last observation that tells of this call: of its shape, else its routine, else its side.
fn age(places: &[Option<&Cell>; RANKS], side: usize, tick: u32) -> u32 {
    let observed = |t: &&Tracker| t.state.load(Relaxed) != 0;
    let mut trackers = places.iter().flatten().map(|cell| &cell.sides[side]);
    let last = trackers.rfind(observed);
    last.map_or(0, |t| tick.wrapping_sub(t.at.load(Relaxed)))
}

fn age_variance(age: u32) -> f64 {
    (f64::from(age) * AGE_VARIANCE).min(MOST_AGE_VARIANCE)
}

impl Learned {
    /// Nothing learnt.
    pub fn new() -> Self {
        let cells = |n: usize| (0..n).map(|_| Cell::default()).collect();
        Self {
            common: Cell::default(),
            routines: cells(ROUTINES),
            cells: cells(CELLS),
            ticks: AtomicU32::new(0),
            budget_ns: AtomicI64::new(0),
        }
    }

    /// The place of a key, taking a free one if `make`.
    fn cell(&self, key: u32, make: bool) -> Option<&Cell> {
        let start = (key.wrapping_mul(0x9E37_79B1) >> 16) as usize;
        (0..REACH).find_map(|i| {
            let cell = &self.cells[(start + i) % CELLS];
            match cell.key.load(Relaxed) {
                k if k == key => Some(cell),
                0 if make => {
                    let taken = cell.key.compare_exchange(0, key, Relaxed, Relaxed);
                    (taken.is_ok() || taken == Err(key)).then_some(cell)
                }
                _ => None,
            }
        })
    }

    /// The places of a call: side, routine, neighbourhood, shape.
    fn places(&self, shape: &Shape, make: bool) -> [Option<&Cell>; RANKS] {
        [
            Some(&self.common),
            Some(&self.routines[routine(shape) as usize]),
            self.cell(size(shape), make),
            self.cell(neighbourhood(shape), make),
            self.cell(exact(shape), make),
        ]
    }

    fn known(&self, places: &[Option<&Cell>; RANKS], side: Route, tick: u32) -> Known {
        let side = side as usize;
        let mut known = Known {
            mean: 0.0,
            variance: 0.0,
            common: 0.0,
            age: 0,
            timed: tick.is_multiple_of(TIMED_EACH),
        };
        for (rank, place) in places.iter().enumerate() {
            let state = place.map_or(State::prior(rank), |cell| cell.sides[side].load(rank));
            known.mean += state.mean;
            known.variance += state.sd * state.sd;
            if rank == SIDE {
                known.common = state.mean;
            }
            let enough = if rank <= ROUTINE { TIMED_FIRST } else { 2 };
            known.timed |= place.is_some() && (state.count < enough || state.streak > 0);
        }
        known.age = age(places, side, tick);
        known.variance += age_variance(known.age);
        known
    }

    /// The route of one call by what has been learnt. `tries` allows the side that looks worse now and then,
    /// within the budget. Allocates nothing and takes no lock.
    pub fn decide(
        &self,
        profile: &Profile,
        shape: &Shape,
        situation: &Situation,
        level: Level,
        tries: bool,
    ) -> LearnedDecision {
        let Some(raw) = predict(profile, shape, situation) else {
            return Decision::NO_MODEL.into();
        };
        let tick = self.ticks.fetch_add(1, Relaxed).wrapping_add(1);
        let places = self.places(shape, false);
        let cpu = self.known(&places, Route::Cpu, tick);
        let gpu = self.known(&places, Route::Gpu, tick);
        let correction = Correction {
            cpu: cpu.mean.exp(),
            gpu: gpu.mean.exp(),
        };
        let mut decision = choose(&raw.corrected(&correction), level);
        let ready = situation.startup_s == 0.0 && situation.queue_s == 0.0;
        if tries && ready {
            self.maybe_try(&mut decision, &cpu, &gpu, level);
        }
        let timed = match decision.route {
            Route::Cpu => cpu.timed || decision.reason == Reason::Try,
            Route::Gpu => true,
        };
        if !timed {
            let p = &decision.prediction;
            self.save(p.cpu_s, p.gpu_s());
        }
        LearnedDecision {
            decision,
            correction,
            timed,
        }
    }

    /// Sends the call to the other side if that may be better and the budget holds what it is predicted to
    /// cost.
    fn maybe_try(&self, decision: &mut Decision, cpu: &Known, gpu: &Known, level: Level) {
        let p = &decision.prediction;
        let (cpu_s, gpu_s) = (p.cpu_s, level.required_speedup() * p.gpu_s());
        let asks = |side: &Known| side.common > DISTURBED && side.age > ASK_EACH;
        let (other, loss_s, may_win) = match decision.route {
            Route::Gpu => {
                let doubt = cpu.variance.sqrt();
                let best_s = cpu_s * (-OPTIMISM * doubt).exp();
                (
                    Route::Cpu,
                    cpu_s * (CAUTION * doubt).exp() - p.gpu_s(),
                    best_s < gpu_s || asks(cpu),
                )
            }
            Route::Cpu => {
                let doubt = gpu.variance.sqrt();
                let best_s = gpu_s * (-OPTIMISM * doubt).exp();
                (
                    Route::Gpu,
                    p.gpu_s() * (CAUTION * doubt).exp() - cpu_s,
                    best_s < cpu_s || asks(gpu),
                )
            }
        };
        if !may_win {
            return;
        }
        let loss_ns = (loss_s.max(0.0) * 1e9) as i64;
        if loss_ns > self.budget_ns.load(Relaxed) {
            return;
        }
        self.budget_ns.fetch_sub(loss_ns, Relaxed);
        decision.route = other;
        decision.reason = Reason::Try;
    }

    /// What a call took on `side`, of a decision of this object. Only calls that succeeded belong here, and
    /// not a routine's first call on the GPU in a process, which loads its kernels.
    pub fn observe(&self, shape: &Shape, decided: &LearnedDecision, side: Route, seconds: f64) {
        let p = &decided.decision.prediction;
        let (expected_s, factor, other_s) = match side {
            Route::Cpu => (p.cpu_s, decided.correction.cpu, p.gpu_s()),
            Route::Gpu => (p.busy_s(), decided.correction.gpu, p.cpu_s),
        };
        if !(seconds > 0.0 && seconds.is_finite() && expected_s > 0.0) {
            return;
        }
        self.learn(shape, side, (seconds * factor / expected_s).ln());
        if decided.decision.reason != Reason::Try {
            self.save(seconds, other_s);
        }
    }

    /// A call took `seconds` where the other side would have taken `other_s`: the budget grows.
    fn save(&self, seconds: f64, other_s: f64) {
        let saved_s = BUDGET_OF_SAVED * (other_s - seconds);
        let added_s = saved_s.clamp(0.0, BUDGET_OF_TAKEN * seconds);
        self.budget_ns.fetch_add((added_s * 1e9) as i64, Relaxed);
    }

    /// One observed logarithm of measured over uncorrected time.
    fn learn(&self, shape: &Shape, side: Route, observed: f64) {
        let tick = self.ticks.load(Relaxed);
        let places = self.places(shape, true);
        let side = side as usize;
        let mut states = [0, 1, 2, 3, 4].map(|rank| {
            places[rank].map_or(State::prior(rank), |cell| cell.sides[side].load(rank))
        });
        let age = age_variance(age(&places, side, tick));
        let error = observed - states.iter().map(|s| s.mean).sum::<f64>();
        let noise = states[ROUTINE].noise.max(LEAST_NOISE);
        let mut variances = states.map(|s| s.sd * s.sd);
        variances[SIDE] += age;
        let total = |v: &[f64; RANKS]| v.iter().sum::<f64>() + noise * noise;
        let outlier = (OUTLIER * total(&variances).sqrt()).min(MOST_BELIEVED);
        // The rank that a surprise belongs to: the routine if it goes on over all its calls, the shape if
        // only there.
        let mut error = error;
        if error > outlier {
            let mut changed = None;
            for rank in [SIDE, SHAPE] {
                let state = &mut states[rank];
                state.excess = if state.streak == 0 {
                    error
                } else {
                    state.excess.min(error)
                };
                state.streak += 1;
                if state.streak >= STREAK && changed.is_none() {
                    changed = Some(rank);
                }
            }
            let Some(rank) = changed else {
                for rank in [SIDE, SHAPE] {
                    if let Some(cell) = places[rank] {
                        cell.sides[side].store(&states[rank]);
                    }
                }
                return;
            };
            error = states[rank].excess;
            variances[rank] += error * error;
        } else if error < -outlier {
            // An end of a disturbance, as far as there was one; the rest is about this shape.
            let ended = states[SIDE].mean.clamp(0.0, -error);
            let rest = -error - ended;
            variances[SIDE] += ended * ended;
            variances[SHAPE] += rest * rest;
        }
        let total = total(&variances);
        for (rank, state) in states.iter_mut().enumerate() {
            let gain = variances[rank] / total;
            state.mean += gain * error;
            let left = variances[rank] * (1.0 - gain) + DRIFT_VARIANCE[rank];
            state.sd = left.sqrt().min(PRIOR_SD[rank]);
            state.streak = 0;
            state.excess = 0.0;
            state.count += 1;
            if rank == ROUTINE {
                // The mean deviation of a normal distribution is 0.8 of its standard deviation.
                let deviation = error.abs().min(outlier) / 0.8;
                let gain = f64::max(1.0 / (state.count as f64 + 1.0), 0.05);
                state.noise += gain * (deviation - state.noise);
            }
            if let Some(cell) = places[rank] {
                cell.sides[side].store(state);
                cell.sides[side].at.store(tick, Relaxed);
            }
        }
    }

    /// What tries may cost now.
    pub fn budget_s(&self) -> f64 {
        self.budget_ns.load(Relaxed) as f64 / 1e9
    }

    /// The correction of a call as it stands.
    pub fn correction(&self, shape: &Shape) -> Correction {
        let places = self.places(shape, false);
        let tick = self.ticks.load(Relaxed);
        let factor = |side| self.known(&places, side, tick).mean.exp();
        Correction {
            cpu: factor(Route::Cpu),
            gpu: factor(Route::Gpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuFacts, Fingerprint};
    use routines::Op;

    fn square(n: u64) -> Shape {
        Shape {
            op: Op::Gemm,
            precision: Precision::D,
            m: n,
            n,
            k: n,
            right: false,
            beta_zero: true,
            letters: [0; 4],
        }
    }

    fn profile() -> Profile {
        Profile::prior(Fingerprint::default(), &CpuFacts { threads: 8 })
    }

    /// Decides and observes one call, whose sides take these factors of the uncorrected prediction.
    fn step(learned: &Learned, profile: &Profile, n: u64, cpu: f64, gpu: f64) -> LearnedDecision {
        let (shape, now) = (square(n), Situation::default());
        let level = Level::new(9).expect("a level");
        let decided = learned.decide(profile, &shape, &now, level, true);
        let raw = predict(profile, &shape, &now).expect("gemm has curves");
        let seconds = match decided.decision.route {
            Route::Cpu => raw.cpu_s * cpu,
            Route::Gpu => raw.busy_s() * gpu,
        };
        if decided.timed {
            learned.observe(&shape, &decided, decided.decision.route, seconds);
        }
        decided
    }

    #[test]
    fn a_state_survives_its_word() {
        let state = State {
            mean: -1.25,
            sd: 0.5,
            noise: 0.125,
            streak: 2,
            excess: 0.75,
            count: 200,
        };
        assert_eq!(State::unpack(state.pack(), ROUTINE), state);
        assert_eq!(State::unpack(0, SHAPE), State::prior(SHAPE));
    }

    #[test]
    fn a_gpu_that_becomes_slow_is_left_within_ten_calls() {
        let (learned, profile) = (Learned::new(), profile());
        for _ in 0..50 {
            let d = step(&learned, &profile, 4096, 1.0, 1.0);
            assert_eq!(d.decision.route, Route::Gpu);
        }
        let on_gpu = |_: &usize| {
            let d = step(&learned, &profile, 4096, 1.0, 30.0).decision;
            d.route == Route::Gpu && d.reason != Reason::Try
        };
        let late = (0..100).filter(on_gpu).count();
        assert!(late <= 10, "{late} calls on a slow GPU");
    }

    #[test]
    fn one_disturbed_call_changes_nothing() {
        let (learned, profile) = (Learned::new(), profile());
        for _ in 0..20 {
            step(&learned, &profile, 4096, 1.0, 1.0);
        }
        let before = learned.correction(&square(4096));
        step(&learned, &profile, 4096, 1.0, 50.0);
        assert_eq!(learned.correction(&square(4096)), before);
    }

    #[test]
    fn nothing_is_tried_that_costs_more_than_the_budget() {
        let (learned, profile) = (Learned::new(), profile());
        for i in 0..2000 {
            let budget_s = learned.budget_s();
            let d = step(&learned, &profile, 256 + 16 * (i % 150), 1.1, 0.9).decision;
            if d.reason == Reason::Try {
                let p = &d.prediction;
                let loss_s = match d.route {
                    Route::Cpu => p.cpu_s - p.gpu_s(),
                    Route::Gpu => p.gpu_s() - p.cpu_s,
                };
                assert!(loss_s <= budget_s + 1e-9, "{loss_s} of {budget_s}");
            }
            assert!(learned.budget_s() >= 0.0);
        }
    }

    #[test]
    fn a_wrong_profile_is_found_out() {
        let (learned, profile) = (Learned::new(), profile());
        for _ in 0..200 {
            step(&learned, &profile, 2048, 1.0, 3.0);
        }
        let correction = learned.correction(&square(2048));
        assert!((correction.gpu - 3.0).abs() < 0.3, "{correction:?}");
    }
}
