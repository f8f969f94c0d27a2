//! Where does a call finish sooner? Machine profile, prediction term by term, level and decision.
//!
//! Pure arithmetic: no clock, no file, no FFI and no CUDA are known here, so that every decision can
//! be replayed from its recorded input. Times are in seconds, sizes in elements, work in
//! multiply-adds of the call's own type.
#![forbid(unsafe_code)]

mod curve;
mod decide;
mod estimate;
mod lapack;
mod learn;
mod predict;
mod profile;
mod threshold;

pub use decide::{Decision, Level, LevelError, Reason, Route, decide, decide_corrected};
pub use estimate::{CpuFacts, FRESH_BYTES_PER_S, GpuFacts};
pub use lapack::{SOLVER_START_S, sample_key};
pub use learn::{
    Correction, Entry, LEARNED_SCHEMA, Learned, LearnedCounts, LearnedDecision, MOST_ENTRIES, merge,
};
pub use predict::{Prediction, Situation, predict};
pub use profile::{
    Fingerprint, Measurements, Overheads, Profile, ProfileError, SCHEMA, Sample, Side,
    TransferSample, TransferTimes, Transfers, WholeCall,
};
pub use threshold::{DEFAULT_THRESHOLD_WORK, threshold_work, watch_work};
