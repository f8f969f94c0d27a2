//! What has been learnt in a form that outlives the process: one word a side and place. Where it is kept is the
//! caller's matter.

use super::{CELLS, Cell, Learned, RANKS, REGIMES, ROUTINE, ROUTINES, SHAPE, SIDE, State};
use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeMap;

/// Version of places, words and of what they correct; another version's are not understood.
pub const LEARNED_SCHEMA: u32 = 2;

/// The most entries that are kept.
pub const MOST_ENTRIES: usize = DIRECT + CELLS;

/// Places that are no keys: what all calls have in common, by regime, then the routines by regime.
const DIRECT: usize = REGIMES * (1 + ROUTINES);

/// How old, in heavy calls, restored observations are taken to be: what another process saw some time ago
/// leaves a doubt of e^(2 x 0.45) = 2.5 times at a try, and the first observation tells mostly what all calls
/// of the side have in common now.
const RESTORED_AGE: u32 = 500;

/// One place's corrections of both sides, CPU first; 0 for a side that was not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// All calls, a routine, a size, a neighbourhood of sizes or a shape.
    pub place: u32,
    /// Words that only this module understands.
    pub sides: [u64; 2],
}

/// How many corrections there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedCounts {
    /// Routines (with their precision) that were observed on either side.
    pub routines: usize,
    /// Shapes that were observed on either side.
    pub shapes: usize,
}

/// Rank of a place; `None` for no place of this version.
fn rank(place: u32) -> Option<usize> {
    Some(match place >> 30 {
        0 if (place as usize) < REGIMES => SIDE,
        0 if (place as usize) < DIRECT => ROUTINE,
        3 => 2,
        1 => 3,
        2 => SHAPE,
        _ => return None,
    })
}

impl LearnedCounts {
    /// Counts entries.
    pub fn of(entries: &[Entry]) -> Self {
        let of_rank = |wanted| {
            let known = |e: &&Entry| rank(e.place) == Some(wanted) && e.sides != [0; 2];
            entries.iter().filter(known).count()
        };
        Self {
            routines: of_rank(ROUTINE),
            shapes: of_rank(SHAPE),
        }
    }
}

/// A word without the doubts of the moment.
fn settled(word: u64, rank: usize) -> u64 {
    match word {
        0 => 0,
        _ => State {
            streak: 0,
            excess: 0.0,
            ..State::unpack(word, rank)
        }
        .pack(),
    }
}

impl Learned {
    fn kept_places(&self) -> impl Iterator<Item = (u32, &Cell)> {
        let direct = self.common.iter().chain(&self.routines);
        (0..)
            .zip(direct)
            .chain(self.cells.iter().map(|c| (c.key.load(Relaxed), c)))
    }

    /// Everything that has been observed, in the order of places.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .kept_places()
            .filter_map(|(place, cell)| {
                let rank = rank(place)?;
                let word = |side: usize| settled(cell.sides[side].state.load(Relaxed), rank);
                let sides = [word(0), word(1)];
                (sides != [0; 2]).then_some(Entry { place, sides })
            })
            .collect();
        // A key in two places at once is a race of two first calls; the first one is found by later ones.
        entries.sort_by_key(|e| e.place);
        entries.dedup_by_key(|e| e.place);
        entries
    }

    /// Takes what another process has learnt, where nothing has been observed here. What does not fit is left out.
    pub fn restore(&self, entries: &[Entry]) {
        let then = self.ticks.load(Relaxed).wrapping_sub(RESTORED_AGE);
        for entry in entries {
            let cell = match rank(entry.place) {
                Some(SIDE) => self.common.get(entry.place as usize),
                Some(ROUTINE) => self.routines.get(entry.place as usize - REGIMES),
                Some(_) => self.cell(entry.place, true),
                None => None,
            };
            let Some(cell) = cell else { continue };
            for (tracker, word) in cell.sides.iter().zip(entry.sides) {
                let fresh = tracker.state.compare_exchange(0, word, Relaxed, Relaxed);
                if fresh.is_ok() {
                    tracker.at.store(then, Relaxed);
                }
            }
        }
    }

    /// Forgets all corrections. Calls that are decided meanwhile use some of them.
    pub fn clear(&self) {
        for (_, cell) in self.kept_places() {
            for tracker in &cell.sides {
                tracker.state.store(0, Relaxed);
            }
        }
        for cell in &self.cells {
            cell.key.store(0, Relaxed);
        }
    }
}

/// What two processes know together: `mine` and `theirs` both began with `base` (or without it). A place that one of
/// them has not changed is the other's; one that both have is the mean by how well each knows it. At most
/// [`MOST_ENTRIES`], the ones observed least often left out, in the order of places.
pub fn merge(base: &[Entry], mine: &[Entry], theirs: &[Entry]) -> Vec<Entry> {
    type Words = [[u64; 2]; 3];
    let mut all: BTreeMap<u32, Words> = BTreeMap::new();
    for (i, entries) in [base, mine, theirs].into_iter().enumerate() {
        for entry in entries {
            all.entry(entry.place).or_default()[i] = entry.sides;
        }
    }
    let mut merged: Vec<Entry> = all
        .into_iter()
        .filter_map(|(place, [base, mine, theirs])| {
            let rank = rank(place)?;
            let side = |i: usize| merge_words(base[i], mine[i], theirs[i], rank);
            let sides = [side(0), side(1)];
            (sides != [0; 2]).then_some(Entry { place, sides })
        })
        .collect();
    if merged.len() > MOST_ENTRIES {
        let observations = |e: &Entry| e.sides.iter().map(|w| w >> 56).sum::<u64>();
        merged.sort_by_key(|e| core::cmp::Reverse(observations(e)));
        merged.truncate(MOST_ENTRIES);
        merged.sort_by_key(|e| e.place);
    }
    merged
}

fn merge_words(base: u64, mine: u64, theirs: u64, rank: usize) -> u64 {
    if mine == base || mine == 0 {
        return theirs;
    }
    if theirs == base || theirs == 0 {
        return mine;
    }
    let [b, m, t] = [base, mine, theirs].map(|word| State::unpack(word, rank));
    let weight = |s: &State| 1.0 / (s.sd * s.sd).max(1e-8);
    let share = weight(&m) / (weight(&m) + weight(&t));
    let mean = |mine: f64, theirs: f64| share * mine + (1.0 - share) * theirs;
    State {
        mean: mean(m.mean, t.mean),
        // Both hold the base's knowledge: the sum of weights would count it twice.
        sd: m.sd.min(t.sd),
        noise: mean(m.noise, t.noise),
        streak: 0,
        excess: 0.0,
        count: m.count + t.count.saturating_sub(b.count),
    }
    .pack()
}

const _: () = assert!(RANKS == 5, "`rank` names every rank");

#[cfg(test)]
mod tests {
    use super::*;

    fn word(mean: f64, sd: f64, count: u64) -> u64 {
        State {
            mean,
            sd,
            count,
            ..State::prior(ROUTINE)
        }
        .pack()
    }

    fn entry(place: u32, cpu: u64, gpu: u64) -> Entry {
        Entry {
            place,
            sides: [cpu, gpu],
        }
    }

    #[test]
    fn entries_come_back_and_nothing_observed_here_is_lost() {
        let (first, second) = (Learned::new(), Learned::new());
        let all = [
            entry(0, 0, word(0.5, 0.1, 3)),
            entry(16, word(0.25, 0.2, 9), 0),
            entry(1 << 30 | 77, 0, word(-0.5, 0.1, 4)),
            entry(2 << 30 | 5, word(1.0, 0.1, 2), word(2.0, 0.1, 1)),
            entry(3 << 30, 0, word(0.125, 0.1, 1)),
        ];
        first.restore(&all);
        assert_eq!(first.entries(), all);
        // What is known here stays.
        second.restore(&[entry(16, word(-1.0, 0.1, 1), 0)]);
        second.restore(&all);
        let mut expected = all;
        expected[1] = entry(16, word(-1.0, 0.1, 1), 0);
        assert_eq!(second.entries(), expected);
        assert_eq!(
            LearnedCounts::of(&all),
            LearnedCounts {
                routines: 1,
                shapes: 1
            }
        );
        second.clear();
        assert_eq!(second.entries(), []);
        second.restore(&all);
        assert_eq!(second.entries(), all, "places are free again");
    }

    #[test]
    fn places_of_another_version_are_left_out() {
        let learned = Learned::new();
        let unknown = [entry(DIRECT as u32, 5, 5), entry(1 << 29, 5, 5)];
        learned.restore(&unknown);
        assert_eq!(learned.entries(), []);
        assert_eq!(merge(&[], &unknown, &unknown), []);
    }

    #[test]
    fn what_one_process_did_not_change_is_the_others() {
        let (old, new, newer) = (word(0.5, 0.1, 3), word(0.75, 0.1, 4), word(0.25, 0.1, 9));
        let base = [entry(1, old, old), entry(2, old, 0)];
        let mine = [entry(1, new, old), entry(2, old, 0), entry(3, new, 0)];
        let theirs = [entry(1, old, newer), entry(2, newer, old)];
        assert_eq!(
            merge(&base, &mine, &theirs),
            [entry(1, new, newer), entry(2, newer, old), entry(3, new, 0)]
        );
        // A file that is gone takes nothing with it.
        assert_eq!(merge(&base, &base, &[]), []);
        assert_eq!(merge(&base, &mine, &[])[0], entry(1, new, 0));
    }

    #[test]
    fn what_both_changed_is_the_mean_by_how_well_each_knows_it() {
        let base = [entry(1, word(0.0, 0.2, 2), 0)];
        let mine = [entry(1, word(1.0, 0.1, 6), 0)];
        let theirs = [entry(1, word(0.0, 0.2, 4), 0)];
        let merged = State::unpack(merge(&base, &mine, &theirs)[0].sides[0], ROUTINE);
        assert!((merged.mean - 0.8).abs() < 1e-3, "{merged:?}");
        assert_eq!(merged.count, 8);
        assert!((merged.sd - 0.1).abs() < 1e-3, "{merged:?}");
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let many = |from: u32, count: u64| -> Vec<Entry> {
            (from..from + 3000)
                .map(|i| entry(2 << 30 | i, word(0.1, 0.1, count), 0))
                .collect()
        };
        let merged = merge(&[], &many(0, 1), &many(5000, 9));
        assert_eq!(merged.len(), MOST_ENTRIES);
        let often = merged.iter().filter(|e| e.place >= 2 << 30 | 5000).count();
        assert_eq!(often, 3000, "the ones observed often stay");
    }
}
