//! The level that the user chose, and the decision that follows from a prediction.

use crate::{Correction, Prediction, Profile, Situation, predict};
use routines::Shape;

/// How readily calls go to the GPU: 1 (only clear wins) to 10 (also slight losses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

/// Predicted CPU time over predicted GPU time that each level asks for, level 1 first. From the
/// project's plan (2026-12-01): level 5 keeps a margin for prediction errors of a quick calibration
/// (about 20 %), 9 takes break-even, 10 frees the CPU at a small loss.
const REQUIRED_SPEEDUP: [f64; 10] = [3.0, 2.5, 2.0, 1.6, 1.3, 1.2, 1.1, 1.05, 1.0, 0.9];

/// Missed savings, in start-ups, that each level sees go by before it starts the GPU. One start-up
/// missed is the break-even of the ski-rental problem (at most twice the best possible time); a
/// cautious level waits longer because a start also takes device memory from others.
const PATIENCE: [f64; 10] = [4.0, 3.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25, 0.1, 0.0];

/// A level outside 1 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelError(String);

impl core::fmt::Display for LevelError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "level {:?} is not accepted; accepted: a whole number from 1 to 10",
            self.0
        )
    }
}

impl std::error::Error for LevelError {}

impl Level {
    /// The least ready level.
    pub const MIN: Self = Self(1);
    /// The readiest level.
    pub const MAX: Self = Self(10);

    /// Levels 1 to 10.
    ///
    /// # Errors
    /// For any other number.
    pub fn new(level: i64) -> Result<Self, LevelError> {
        match u8::try_from(level) {
            Ok(l @ 1..=10) => Ok(Self(l)),
            _ => Err(LevelError(level.to_string())),
        }
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Predicted CPU time over predicted GPU time that a call must reach.
    pub fn required_speedup(self) -> f64 {
        REQUIRED_SPEEDUP[usize::from(self.0) - 1]
    }

    /// Missed savings, in start-up times, that justify starting the GPU.
    pub fn patience(self) -> f64 {
        PATIENCE[usize::from(self.0) - 1]
    }
}

impl Default for Level {
    fn default() -> Self {
        Self(5)
    }
}

impl core::str::FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        text.trim()
            .parse()
            .ok()
            .and_then(|l: i64| Self::new(l).ok())
            .ok_or_else(|| LevelError(text.to_owned()))
    }
}

impl core::fmt::Display for Level {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// The CPU library.
    Cpu,
    /// The GPU.
    Gpu,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The GPU wins by the level's factor.
    GpuFaster,
    /// The CPU is predicted to finish sooner.
    CpuFaster,
    /// The GPU is predicted to win, but not by the level's factor.
    GainBelowLevel,
    /// The GPU would win if it were started already.
    StartupTooLong,
    /// The GPU would win if other calls were not before this one.
    QueueTooLong,
    /// The family has no curves.
    NoModel,
    /// The side that looks worse is tried, within the budget.
    Try,
}

impl Reason {
    /// A name for logs, stable across versions.
    pub fn name(self) -> &'static str {
        match self {
            Reason::GpuFaster => "gpu-faster",
            Reason::CpuFaster => "cpu-faster",
            Reason::GainBelowLevel => "gain-below-level",
            Reason::StartupTooLong => "startup-too-long",
            Reason::QueueTooLong => "queue-too-long",
            Reason::NoModel => "no-model",
            Reason::Try => "try",
        }
    }
}

/// A route with its reason and the prediction it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Where the call goes.
    pub route: Route,
    /// Why.
    pub reason: Reason,
    /// The predicted times.
    pub prediction: Prediction,
}

impl Decision {
    /// Nothing predicts the call.
    pub(crate) const NO_MODEL: Self = Self {
        route: Route::Cpu,
        reason: Reason::NoModel,
        prediction: Prediction::ZERO,
    };
}

/// The route of one call: GPU if its predicted time, waiting included, beats the CPU's by the level's
/// factor. A pure function of its arguments; allocates nothing.
pub fn decide(profile: &Profile, shape: &Shape, situation: &Situation, level: Level) -> Decision {
    decide_corrected(profile, shape, situation, level, &Correction::NONE)
}

/// The same with what has been learnt.
pub fn decide_corrected(
    profile: &Profile,
    shape: &Shape,
    situation: &Situation,
    level: Level,
    correction: &Correction,
) -> Decision {
    let Some(p) = predict(profile, shape, situation) else {
        return Decision::NO_MODEL;
    };
    choose(&p.corrected(correction), level)
}

/// The route that follows from predicted times.
pub(crate) fn choose(p: &Prediction, level: Level) -> Decision {
    let wins = |gpu_s: f64| p.cpu_s >= level.required_speedup() * gpu_s;
    let gpu_s = p.gpu_s();
    let (route, reason) = if wins(gpu_s) {
        (Route::Gpu, Reason::GpuFaster)
    } else if wins(gpu_s - p.startup_s) {
        (Route::Cpu, Reason::StartupTooLong)
    } else if wins(gpu_s - p.startup_s - p.queue_s) {
        (Route::Cpu, Reason::QueueTooLong)
    } else if p.cpu_s > gpu_s {
        (Route::Cpu, Reason::GainBelowLevel)
    } else {
        (Route::Cpu, Reason::CpuFaster)
    };
    Decision {
        route,
        reason,
        prediction: *p,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_bounded() {
        assert_eq!(Level::default().get(), 5);
        assert_eq!(Level::default().required_speedup(), 1.3);
        assert!(REQUIRED_SPEEDUP.windows(2).all(|w| w[0] > w[1]));
        assert!(PATIENCE.windows(2).all(|w| w[0] > w[1]));
        for bad in ["0", "11", "-1", "five", "", "5.5", "99999999999999999999"] {
            let e = bad.parse::<Level>().expect_err(bad);
            assert!(e.to_string().contains("from 1 to 10"), "{e}");
        }
        assert_eq!(" 7 ".parse::<Level>().map(Level::get), Ok(7));
    }
}
