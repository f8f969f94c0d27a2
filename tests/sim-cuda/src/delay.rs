//! How long queued work waits before it runs: at random, or systematically by a seed, so that work that
//! is not ordered by the program happens in orders that a fast machine never shows.

use crate::state;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A transfer of so many bytes to the device.
    In(u64),
    /// A transfer of so many bytes to the host.
    Out(u64),
    Kernel,
    /// Recordings and waits.
    Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    None,
    /// One piece of work in four waits.
    Random,
    /// By seed modulo 4: 0 gives each stream a speed (fast, slow, very slow); 1, 2 and 3 make uploads,
    /// downloads and kernels very slow. So any four consecutive seeds try each.
    Adversarial,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    mode: Mode,
    seed: u64,
    most_us: u64,
    per_mib_us: u64,
}

/// Longest random pause in microseconds: about a transfer of 2 MiB, longer than any launch.
const MOST_US: u64 = 100;

/// How much longer the very slow wait: longer than what the fast do with a whole small call.
const VERY_SLOW: u64 = 10;

static SETTINGS: Mutex<Option<Settings>> = Mutex::new(None);
static STREAMS: AtomicU64 = AtomicU64::new(0);

fn mode_of(name: &str) -> Option<Mode> {
    Some(match name {
        "none" => Mode::None,
        "random" => Mode::Random,
        "adversarial" => Mode::Adversarial,
        _ => return None,
    })
}

fn from_environment() -> Settings {
    let name = std::env::var("SIM_CUDA_DELAY").unwrap_or_else(|_| "random".to_owned());
    let mode = mode_of(&name).unwrap_or_else(|| {
        panic!("sim-cuda: SIM_CUDA_DELAY={name} (accepted: none, random, adversarial)")
    });
    Settings {
        mode,
        seed: state::number_of("SIM_CUDA_SEED", 1),
        most_us: state::number_of("SIM_CUDA_DELAY_US", MOST_US),
        per_mib_us: state::number_of("SIM_CUDA_DELAY_PER_MIB_US", 0),
    }
}

/// Sets mode and seed (and, if it is given, the longest pause in microseconds) of the streams that are
/// created from now on: `MODE:SEED[:MICROSECONDS]`. Returns 0, or 1 if the text is malformed.
///
/// # Safety
/// `text` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuda_set_delay(text: *const libc::c_char) -> u32 {
    // SAFETY: the caller's promise.
    let text = unsafe { core::ffi::CStr::from_ptr(text) }.to_string_lossy();
    let before = from_environment();
    let mut parts = text.split(':');
    let mode = parts.next().and_then(mode_of);
    let seed = parts.next().and_then(|seed| seed.parse().ok());
    let most_us = parts
        .next()
        .map_or(Some(before.most_us), |us| us.parse().ok());
    let (Some(mode), Some(seed), Some(most_us), None) = (mode, seed, most_us, parts.next()) else {
        return 1;
    };
    *SETTINGS.lock() = Some(Settings {
        mode,
        seed,
        most_us,
        ..before
    });
    // Numbered anew, so that a seed means the same each time.
    STREAMS.store(0, Ordering::Relaxed);
    0
}

/// As the environment says again.
pub fn reset() {
    *SETTINGS.lock() = None;
}

/// The pauses of one stream.
pub struct Delays {
    settings: Settings,
    /// Of the stream, among all that were created.
    number: u64,
    random: u64,
}

fn mix(seed: u64, number: u64) -> u64 {
    let mixed =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)) | 1
}

impl Delays {
    pub fn new() -> Self {
        let settings = *SETTINGS.lock().get_or_insert_with(from_environment);
        Self::of(settings, STREAMS.fetch_add(1, Ordering::Relaxed))
    }

    fn of(settings: Settings, number: u64) -> Self {
        Self {
            settings,
            number,
            random: mix(settings.seed, number),
        }
    }

    pub fn pause(&mut self, load: Load) {
        let us = self.next_us(load);
        if us > 0 {
            std::thread::sleep(Duration::from_micros(us));
        }
    }

    fn next_us(&mut self, load: Load) -> u64 {
        let Settings {
            mode,
            seed,
            most_us,
            per_mib_us,
        } = self.settings;
        let size_us = match load {
            Load::In(bytes) | Load::Out(bytes) => bytes.saturating_mul(per_mib_us) >> 20,
            Load::Kernel | Load::Mark => 0,
        };
        let wait_us = match mode {
            Mode::None => 0,
            Mode::Random => self.random_us(most_us),
            Mode::Adversarial => {
                let slow = match seed % 4 {
                    0 => [0, 1, VERY_SLOW][((mix(seed, self.number) >> 1) % 3) as usize],
                    1 if matches!(load, Load::In(_)) => VERY_SLOW,
                    2 if matches!(load, Load::Out(_)) => VERY_SLOW,
                    3 if load == Load::Kernel => VERY_SLOW,
                    _ => 0,
                };
                // A mark of a slow stream is late by what stands before it.
                if load == Load::Mark {
                    0
                } else {
                    slow * most_us
                }
            }
        };
        size_us + wait_us
    }

    /// One in four waits, so that streams overtake one another without taking for ever.
    fn random_us(&mut self, most_us: u64) -> u64 {
        // xorshift64: good enough to vary an order, and repeatable.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if most_us > 0 && self.random.is_multiple_of(4) {
            (self.random >> 8) % most_us
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mode: Mode, seed: u64) -> Settings {
        Settings {
            mode,
            seed,
            most_us: 100,
            per_mib_us: 0,
        }
    }

    #[test]
    fn four_adversarial_seeds_slow_uploads_downloads_kernels_and_streams() {
        let loads = [Load::In(1), Load::Out(1), Load::Kernel];
        let slow = |seed| {
            let mut delays = Delays::of(settings(Mode::Adversarial, seed), 7);
            loads.map(|load| delays.next_us(load))
        };
        assert_eq!(
            [5, 6, 7].map(slow),
            [[1000, 0, 0], [0, 1000, 0], [0, 0, 1000]]
        );
        // Seed 8: by stream; all three speeds occur, and each stream keeps its own.
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..20 {
            let mut delays = Delays::of(settings(Mode::Adversarial, 8), number);
            let all = loads.map(|load| delays.next_us(load));
            assert_eq!(all, [all[0]; 3]);
            seen.insert(all[0]);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 100, 1000]);
    }

    #[test]
    fn size_counts_where_it_is_asked_for() {
        let settings = Settings {
            per_mib_us: 50,
            ..settings(Mode::None, 1)
        };
        let mut delays = Delays::of(settings, 0);
        assert_eq!(delays.next_us(Load::In(4 << 20)), 200);
        assert_eq!(delays.next_us(Load::Kernel), 0);
    }

    #[test]
    fn random_pauses_differ_by_stream_and_repeat_by_seed() {
        let series = |seed, number| {
            let mut delays = Delays::of(settings(Mode::Random, seed), number);
            (0..200)
                .map(|_| delays.next_us(Load::Kernel))
                .collect::<Vec<_>>()
        };
        assert_eq!(series(1, 0), series(1, 0));
        assert_ne!(series(1, 0), series(1, 1));
        assert_ne!(series(1, 0), series(2, 0));
        let waits = series(1, 0).iter().filter(|&&us| us > 0).count();
        assert!((25..=75).contains(&waits), "{waits} of 200 wait");
    }
}
