//! What past calls teach: a correction of the predicted times, and when the other side is worth a try.
//!
//! A correction is a factor on a side's predicted time, kept as the sum of five logarithms: one of all calls (which
//! follows a GPU that is throttled or shared), one of the routine, one of its size, one of a neighbourhood of sizes, one
//! of the shape itself. Each is the mean of a Kalman filter, so that the first call of a routine tells of all its
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
const NEIGHBOURHOOD: usize = 3;
const SHAPE: usize = 4;

/// Standard deviation, in the logarithm, of what is not known before the first call: of a side, a routine, a
/// neighbourhood of sizes, a shape. An estimated profile is off by up to a factor of 3 (ln 3 = 1.1), a
/// calibrated one by 20 to 50 % in families and sizes that were not measured (bench of regret, 2026-12-02; these
/// numbers and those below that name no other source: its seeds 1 to 6, 2026-12-03).
const PRIOR_SD: [f64; RANKS] = [0.3, 0.25, 0.35, 0.35, 0.3];

/// Standard deviation of what shapes of one place may differ by; what a shape that was observed itself is known by
/// at best after one call, however little is known of its ranks.
const WITHIN: f64 = 0.15;

/// Observations of a shape after which more of them make it no better known.
const ENOUGH: u64 = 16;

/// Of the square of what first calls of shapes were off by, what is added to the variance of a shape that was never
/// observed when it is judged ([`State::noise`] of the side), and to its own rank's and its neighbourhood's when it
/// is: where sizes have cliffs, one call tells of few others.
const SPREAD_JUDGED: f64 = 0.5;
const SPREAD_LEARNT: f64 = 1.0;
const MOST_SPREAD: f64 = 2.0;

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

/// A call that takes this much longer (in the logarithm) is doubted, however little is known: so many in a row are a
/// change. [`MOST_BELIEVED`] is what is believed at once besides: a first call that something disturbed would make
/// its side look bad for ever, since a side that is not chosen is not observed.
const DOUBTED: f64 = 0.25;
const MOST_BELIEVED: f64 = 1.2;

/// So many doubted calls in a row are a change.
const STREAK: u64 = 3;

/// What tries may cost: their measured excess is an account, to which each call adds 1 % of its own time. (Not of the
/// time that it saved: where a profile is wrong nothing is saved, and without a try nobody would find out; where the
/// GPU saves twenty times a call's time, 1 % of that would be 20 % of the total.) It begins with an advance, and while
/// it is overdrawn nothing is tried. No try is predicted to cost more than the advance and 1 % of the time so far.
const BUDGET_OF_TAKEN: f64 = 0.01;
const ADVANCE_S: f64 = 5e-3;

/// A call that something disturbs is charged for no more than so many times what was expected.
const MOST_CHARGED: f64 = 4.0;

/// A try is worth it where its expected gain, over as many calls of the kind as there have been, times this is more
/// than its expected cost. Calls nearby count as this share of one of the shape itself.
const WORTH: f64 = 2.0;
const NEARBY: f64 = 0.4;

/// The least that a try is taken to cost, as a share of the call: what looks alike is not tried all the time.
const LEAST_COST: f64 = 0.05;

/// While little is known of a side, each of its calls is timed; later each fourth call on the CPU, which
/// finds a change within ten.
const TIMED_FIRST: u64 = 8;
const TIMED_SHAPE: u64 = 2;
const TIMED_EACH: u64 = 4;

/// Places of neighbourhoods and shapes. A program that calls more kinds of shapes than fit learns of the
/// rest by routine only.
const CELLS: usize = 2048;

/// Places that are looked at for a key.
const REACH: usize = 4;

/// Routines: a slot for every code of a family and every precision.
const ROUTINES: usize = 64 * 4;

/// Regimes of CPU threads: as many as the profile was measured with, more, and fewer by octaves. What is learnt of
/// the CPU belongs to one of them, what is learnt of the GPU to the first.
const REGIMES: usize = 8;

/// A side that takes longer than it should by this factor (in the logarithm) is disturbed. Whether it still is may be
/// asked after a number of calls whose square is this many times what the question costs over what each call gains
/// when it is over: the best interval for a disturbance of some hundred calls.
const DISTURBED: f64 = 0.3;
const ASK_SQUARE: f64 = 500.0;

/// The corrections of one process.
pub struct Learned {
    /// What all calls of a side have in common, by regime: a GPU that is shared or throttled.
    common: [Cell; REGIMES],
    /// By regime, then [`routine`].
    routines: Box<[Cell]>,
    cells: Box<[Cell]>,
    /// Heavy calls so far, wrapping.
    ticks: AtomicU32,
    /// What tries may cost now; negative where they have cost more.
    budget_ns: AtomicI64,
    /// Time of all calls.
    taken_ns: AtomicI64,
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
    /// Of the CPU's threads.
    regime: u32,
}

impl From<Decision> for LearnedDecision {
    /// A decision by the profile alone, from which nothing is learnt.
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            correction: Correction::NONE,
            timed: false,
            regime: 0,
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
    /// Spread of single calls in the routine's tracker, of the first ones of each shape in the side's; unused in others.
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
    /// The part of the mean that all calls of the side share, and the calls since its last observation.
    common: f64,
    side_age: f64,
    /// Calls since the shape was observed; infinite if it never was.
    shape_age: f64,
    /// Calls of the shape, and nearby as far as they count.
    calls: f64,
    /// The call would be timed, of the CPU's; of the GPU's all are.
    timed: bool,
}

/// Steps of a size, 2^`bits` a doubling, from its first bits.
fn steps(size: u64, bits: u32) -> u64 {
    let size = size.max(1);
    let octave = size.ilog2();
    let first = if octave >= bits {
        size >> (octave - bits)
    } else {
        size << (bits - octave)
    };
    (u64::from(octave) << bits) + first - (1 << bits)
}

/// A key of the rank with this tag, from a hash: two that clash mix their corrections, no more.
fn key(tag: u32, shape: &Shape, regime: u32, sizes: u64) -> u32 {
    let kind = routine(shape) << 4 | jobs(shape);
    let mut hash = sizes ^ u64::from(kind | regime << 12) << 48;
    hash = (hash ^ hash >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ hash >> 29).wrapping_mul(0x94D0_49BB_1331_11EB);
    tag << 30 | (hash >> 34) as u32
}

/// Key of the size: work by half octaves.
fn size(shape: &Shape, regime: u32, work: u64) -> u32 {
    key(3, shape, regime, steps(work, 1))
}

/// Key of the neighbourhood: work and smallest dimension by factors of 4, and which dimension that is.
fn neighbourhood(shape: &Shape, regime: u32, [m, n, k]: [u64; 3], work: u64) -> u32 {
    let least = m.min(n).min(k).max(1);
    let which = if least == n {
        0
    } else if least == m {
        1
    } else {
        2
    };
    let work = u64::from(work.max(1).ilog2() / 2);
    let sizes = work << 12 | u64::from(least.ilog2() / 2) << 2 | which;
    key(1, shape, regime, sizes)
}

/// Key of the shape: its dimensions by eighths of an octave.
fn exact(shape: &Shape, regime: u32) -> u32 {
    let [m, n, k] = [shape.m, shape.n, shape.k].map(|size| steps(size, 3));
    let options = u64::from(shape.right) | u64::from(shape.beta_zero) << 1;
    key(2, shape, regime, options << 36 | m << 24 | n << 12 | k)
}

/// The regime of so many CPU threads in force where a profile was measured with others.
fn regime(measured: u32, in_force: u32) -> u32 {
    if in_force == 0 || measured == 0 || in_force == measured {
        0
    } else if in_force > measured {
        1
    } else {
        (2 + (measured / in_force).ilog2()).min(REGIMES as u32 - 1)
    }
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

/// What each rank knows of a side of a call.
fn states(places: &[Option<&Cell>; RANKS], side: usize) -> [State; RANKS] {
    [0, 1, 2, 3, 4]
        .map(|rank| places[rank].map_or(State::prior(rank), |cell| cell.sides[side].load(rank)))
}

fn age_variance(age: u32) -> f64 {
    (f64::from(age) * AGE_VARIANCE).min(MOST_AGE_VARIANCE)
}

impl Known {
    /// Whether a try of this side, which costs `loss_s`, is expected to gain more, where the `chosen` side takes
    /// `chosen_s` and this one's time compares as `compared_s`.
    fn is_worth(&self, chosen: &Self, chosen_s: f64, compared_s: f64, loss_s: f64) -> bool {
        let doubt = self.variance.sqrt();
        // How likely it is better: the tail of a normal distribution, within a tenth of it.
        let z = (compared_s / chosen_s).ln().max(0.0) / doubt;
        if z > 4.0 {
            return false;
        }
        let likely = 0.5 * (-z * (0.85 + 0.36 * z)).exp();
        // Where it is, by about half of what is not known.
        let gain_s = chosen_s * doubt / (2.0 + doubt);
        let calls = chosen.calls.min(self.shape_age).max(1.0);
        WORTH * likely * gain_s * calls >= loss_s
    }
}

impl Learned {
    /// Nothing learnt.
    pub fn new() -> Self {
        let cells = |n: usize| (0..n).map(|_| Cell::default()).collect();
        Self {
            common: Default::default(),
            routines: cells(REGIMES * ROUTINES),
            cells: cells(CELLS),
            ticks: AtomicU32::new(0),
            budget_ns: AtomicI64::new((ADVANCE_S * 1e9) as i64),
            taken_ns: AtomicI64::new(0),
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

    /// The places of a call: side, routine, size, neighbourhood, shape.
    fn places(&self, shape: &Shape, regime: u32, make: bool) -> [Option<&Cell>; RANKS] {
        let at = regime as usize;
        // The table is asked once.
        let product = shape.product();
        let work = product.into_iter().fold(1, u64::saturating_mul);
        [
            Some(&self.common[at]),
            Some(&self.routines[at * ROUTINES + routine(shape) as usize]),
            self.cell(size(shape, regime, work), make),
            self.cell(neighbourhood(shape, regime, product, work), make),
            self.cell(exact(shape, regime), make),
        ]
    }

    fn known(&self, places: &[Option<&Cell>; RANKS], side: Route, tick: u32) -> Known {
        let at = side as usize;
        let states = states(places, at);
        let since = |rank: usize| {
            let place: Option<&Cell> = places[rank];
            let at = place.map_or(0, |cell| cell.sides[at].at.load(Relaxed));
            f64::from(tick.wrapping_sub(at))
        };
        let own = &states[SHAPE];
        let mut variance: f64 = states.iter().map(|s| s.sd * s.sd).sum();
        let mut shape_age = f64::INFINITY;
        if own.count == 0 {
            let spread = states[SIDE].noise;
            variance += SPREAD_JUDGED * spread * spread;
        } else {
            // The ranks share what they do not know: of a shape that was observed their sum is known better.
            let noise = states[ROUTINE].noise;
            let calls = own.count.min(ENOUGH) as f64;
            variance = variance.min((noise * noise + WITHIN * WITHIN) / calls);
            shape_age = since(SHAPE);
        }
        variance += age_variance(age(places, at, tick));
        // Of the CPU's calls each fourth is timed, of the GPU's all.
        let calls = |state: &State| match side {
            Route::Cpu if state.count > TIMED_SHAPE => (TIMED_EACH * state.count) as f64,
            _ => state.count as f64,
        };
        let doubtful = |rank: usize| {
            let enough = if rank <= ROUTINE {
                TIMED_FIRST
            } else {
                TIMED_SHAPE
            };
            places[rank].is_some() && (states[rank].count < enough || states[rank].streak > 0)
        };
        Known {
            mean: states.iter().map(|s| s.mean).sum(),
            variance,
            common: states[SIDE].mean,
            side_age: since(SIDE),
            shape_age,
            calls: calls(own) + NEARBY * calls(&states[NEIGHBOURHOOD]),
            // By a hash, since a program's loop of four calls would show the same one each time.
            timed: side == Route::Gpu
                || u64::from(tick.wrapping_mul(0x9E37_79B9)) * TIMED_EACH < 1 << 32
                || (0..RANKS).any(doubtful),
        }
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
        let places = self.places(shape, 0, false);
        let gpu = self.known(&places, Route::Gpu, tick);
        let regime = regime(profile.cpu_threads(), situation.cpu_threads);
        let cpu = match regime {
            0 => self.known(&places, Route::Cpu, tick),
            _ => self.known(&self.places(shape, regime, false), Route::Cpu, tick),
        };
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
            Route::Gpu => gpu.timed,
        };
        if !timed {
            self.took(decision.prediction.cpu_s);
        }
        LearnedDecision {
            decision,
            correction,
            timed,
            regime,
        }
    }

    /// Sends the call to the other side if that is worth finding out and the budget allows it.
    fn maybe_try(&self, decision: &mut Decision, cpu: &Known, gpu: &Known, level: Level) {
        let p = &decision.prediction;
        let required = level.required_speedup();
        // The side that it may go to, what is known of both, times on the chosen and the other side, and the other's
        // time as it is compared with the chosen one's.
        let (other, chosen, known, chosen_s, other_s, compared_s) = match decision.route {
            Route::Gpu => (Route::Cpu, gpu, cpu, p.gpu_s(), p.cpu_s, p.cpu_s / required),
            Route::Cpu => (
                Route::Gpu,
                cpu,
                gpu,
                p.cpu_s,
                p.gpu_s(),
                p.gpu_s() * required,
            ),
        };
        // What costs least to ask comes first: this is part of every decision.
        let cost_s = (other_s - chosen_s).max(0.0);
        let taken_s = self.taken_ns.load(Relaxed) as f64 / 1e9;
        if self.budget_ns.load(Relaxed) < 0 || cost_s > ADVANCE_S + BUDGET_OF_TAKEN * taken_s {
            return;
        }
        let loss_s = cost_s.max(LEAST_COST * chosen_s);
        let is_over = || {
            let gain_s = || chosen_s - compared_s * (-known.common).exp();
            known.common > DISTURBED
                && known.side_age * known.side_age * gain_s() >= ASK_SQUARE * loss_s
        };
        if !(known.is_worth(chosen, chosen_s, compared_s, loss_s) || is_over()) {
            return;
        }
        self.budget_ns.fetch_sub((cost_s * 1e9) as i64, Relaxed);
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
        let regime = match side {
            Route::Cpu => decided.regime,
            Route::Gpu => 0,
        };
        self.learn(shape, side, regime, (seconds * factor / expected_s).ln());
        if decided.decision.reason == Reason::Try {
            // The prediction was charged; what it took counts.
            let charged_s = (expected_s - other_s).max(0.0);
            let cost_s = (seconds.min(MOST_CHARGED * expected_s) - other_s).max(0.0);
            let more_ns = ((cost_s - charged_s) * 1e9) as i64;
            self.budget_ns.fetch_sub(more_ns, Relaxed);
        } else {
            self.took(seconds);
        }
    }

    /// A call that was no try took `seconds`: the budget grows.
    fn took(&self, seconds: f64) {
        let added_s = BUDGET_OF_TAKEN * seconds;
        self.budget_ns.fetch_add((added_s * 1e9) as i64, Relaxed);
        self.taken_ns.fetch_add((seconds * 1e9) as i64, Relaxed);
    }

    /// One observed logarithm of measured over uncorrected time.
    fn learn(&self, shape: &Shape, side: Route, regime: u32, observed: f64) {
        let tick = self.ticks.load(Relaxed);
        let places = self.places(shape, regime, true);
        let side = side as usize;
        let mut states = states(&places, side);
        let surprise = observed - states.iter().map(|s| s.mean).sum::<f64>();
        let noise = states[ROUTINE].noise.max(LEAST_NOISE);
        let mut variances = states.map(|s| s.sd * s.sd);
        variances[SIDE] += age_variance(age(&places, side, tick));
        let first = states[SHAPE].count == 0;
        if first {
            let spread = states[SIDE].noise;
            for rank in [NEIGHBOURHOOD, SHAPE] {
                if states[rank].count == 0 {
                    variances[rank] += SPREAD_LEARNT * spread * spread;
                }
            }
        }
        let total = |v: &[f64; RANKS]| v.iter().sum::<f64>() + noise * noise;
        let outlier = OUTLIER * total(&variances).sqrt();
        // The rank that a surprise belongs to: the side if it goes on over all its calls, the shape if only there.
        let (mut error, mut doubted) = (surprise, false);
        if surprise > outlier.min(DOUBTED) {
            let mut changed = None;
            for rank in [SIDE, SHAPE] {
                let state = &mut states[rank];
                state.excess = if state.streak == 0 {
                    surprise
                } else {
                    state.excess.min(surprise)
                };
                state.streak += 1;
                if state.streak >= STREAK && changed.is_none() {
                    changed = Some(rank);
                }
            }
            if let Some(rank) = changed {
                error = states[rank].excess;
                variances[rank] += error * error;
            } else if surprise > outlier.min(MOST_BELIEVED) {
                for rank in [SIDE, SHAPE] {
                    if let Some(cell) = places[rank] {
                        cell.sides[side].store(&states[rank]);
                    }
                }
                return;
            } else {
                doubted = true;
            }
        } else if surprise < -outlier {
            // An end of a disturbance, as far as there was one; the rest is about this shape.
            let ended = states[SIDE].mean.clamp(0.0, -surprise);
            let rest = -surprise - ended;
            variances[SIDE] += ended * ended;
            variances[SHAPE] += rest * rest;
        }
        let total = total(&variances);
        for (rank, state) in states.iter_mut().enumerate() {
            let gain = variances[rank] / total;
            state.mean += gain * error;
            let left = variances[rank] * (1.0 - gain) + DRIFT_VARIANCE[rank];
            state.sd = left.sqrt().min(PRIOR_SD[rank]);
            if !doubted {
                state.streak = 0;
                state.excess = 0.0;
            }
            state.count += 1;
            let deviation = match rank {
                SIDE if first => Some(surprise.abs().min(MOST_SPREAD)),
                ROUTINE => Some(error.abs().min(outlier)),
                _ => None,
            };
            if let Some(deviation) = deviation {
                // The mean deviation of a normal distribution is 0.8 of its standard deviation.
                let gain = f64::max(1.0 / (state.count as f64 + 1.0), 0.05);
                state.noise += gain * (deviation / 0.8 - state.noise);
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
        let places = self.places(shape, 0, false);
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
    fn all_tries_together_cost_no_more_than_their_account() {
        let (learned, profile) = (Learned::new(), profile());
        let (mut tries, mut cost_s, mut all_s, mut dearest_s) = (0, 0.0, 0.0, 0.0_f64);
        for i in 0..4000 {
            // Now and then the GPU is shared for a while.
            let gpu = if i / 500 % 2 == 0 { 0.9 } else { 4.0 };
            let d = step(&learned, &profile, 256 + 16 * (i % 150), 1.1, gpu).decision;
            let p = &d.prediction;
            let (taken_s, other_s) = match d.route {
                Route::Cpu => (p.cpu_s, p.gpu_s()),
                Route::Gpu => (p.gpu_s(), p.cpu_s),
            };
            all_s += taken_s;
            if d.reason == Reason::Try {
                assert!(taken_s - other_s <= ADVANCE_S + BUDGET_OF_TAKEN * all_s);
                tries += 1;
                cost_s += (taken_s - other_s).max(0.0);
                dearest_s = dearest_s.max(MOST_CHARGED * taken_s);
            }
        }
        assert!(tries > 0);
        let most_s = ADVANCE_S + BUDGET_OF_TAKEN * all_s + dearest_s;
        assert!(cost_s <= most_s, "{cost_s} of {most_s}");
    }

    #[test]
    fn what_is_learnt_of_the_cpu_belongs_to_its_threads() {
        let (learned, profile) = (Learned::new(), profile());
        let (shape, level) = (square(300), Level::new(9).expect("a level"));
        let now = |cpu_threads| Situation {
            cpu_threads,
            ..Situation::default()
        };
        for _ in 0..20 {
            let decided = learned.decide(&profile, &shape, &now(2), level, false);
            let expected_s = decided.decision.prediction.cpu_s / decided.correction.cpu;
            learned.observe(&shape, &decided, Route::Cpu, expected_s / 3.0);
        }
        let factor = |threads| {
            let decided = learned.decide(&profile, &shape, &now(threads), level, false);
            decided.correction.cpu
        };
        assert!((factor(2) - 1.0 / 3.0).abs() < 0.05, "{}", factor(2));
        assert_eq!(factor(8), 1.0);
        assert_eq!(factor(1), 1.0);
    }

    #[test]
    fn a_side_that_is_wrong_by_three_is_suspected_with_other_shapes_too() {
        let (learned, profile) = (Learned::new(), profile());
        let level = Level::new(9).expect("a level");
        for n in [500, 1000, 2000] {
            let shape = square(n);
            let decided = learned.decide(&profile, &shape, &Situation::default(), level, false);
            let raw_s = decided.decision.prediction.busy_s() / decided.correction.gpu;
            learned.observe(&shape, &decided, Route::Gpu, raw_s / 3.0);
        }
        let other = learned.correction(&square(3000)).gpu;
        assert!(other < 0.75, "{other}");
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
