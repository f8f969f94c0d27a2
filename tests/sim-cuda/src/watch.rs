//! What the host does with pinned memory while a transfer is queued. An upload must find what was there
//! when it was queued; the target of a download is NaN until the download has run, so that reading it
//! early shows.

use crate::arena::POISON;
use crate::copy::{Direction, Transfer};
use crate::state::State;
use core::ops::Range;

/// Most bytes of an upload that are compared: a larger one is compared at evenly spread words, since
/// who reuses a buffer too early overwrites most of it.
const COMPARED_BYTES: usize = 256 << 10;

/// Transfers of pinned memory that have not run.
#[derive(Default)]
pub struct Pending {
    next: u64,
    transfers: Vec<(u64, Direction, Range<usize>)>,
}

impl Pending {
    fn any(&self, range: &Range<usize>, matches: impl Fn(Direction) -> bool) -> bool {
        self.transfers.iter().any(|(_, direction, other)| {
            matches(*direction) && other.start < range.end && range.start < other.end
        })
    }

    /// True if a transfer of memory in the range has not run.
    pub fn touches(&self, range: &Range<usize>) -> bool {
        self.any(range, |_| true)
    }

    pub fn clear(&mut self) {
        self.transfers.clear();
    }
}

/// One queued transfer of pinned memory.
pub struct Watched {
    number: u64,
    checksum: Option<u64>,
    name: String,
}

impl Watched {
    /// Notes a transfer that is being queued. Where another one of the same memory is queued already,
    /// streams may order the two rightly: then nothing is compared and nothing is poisoned.
    ///
    /// # Safety
    /// The transfer's host side is live pinned memory.
    pub unsafe fn queue(state: &mut State, transfer: &Transfer, name: String) -> Self {
        let range = transfer.host_range();
        let mut checksum = None;
        match transfer.direction {
            Direction::In if !state.pending.any(&range, |other| other == Direction::Out) => {
                // SAFETY: the caller's promise.
                checksum = Some(unsafe { checksum_of(transfer) });
            }
            Direction::Out if !state.pending.touches(&range) => {
                for row in 0..transfer.height {
                    // SAFETY: the caller's promise; the row lies inside the host's side.
                    unsafe { transfer.host_row(row).write_bytes(POISON, transfer.width) };
                }
            }
            _ => {}
        }
        let number = state.pending.next;
        state.pending.next += 1;
        state
            .pending
            .transfers
            .push((number, transfer.direction, range));
        Self {
            number,
            checksum,
            name,
        }
    }

    /// Its turn has come.
    ///
    /// # Safety
    /// The transfer's host side is live pinned memory.
    pub unsafe fn run(self, state: &mut State, transfer: &Transfer) {
        state
            .pending
            .transfers
            .retain(|(number, _, _)| *number != self.number);
        // SAFETY: the caller's promise.
        let now = self.checksum.map(|_| unsafe { checksum_of(transfer) });
        if now != self.checksum {
            state.complain(format!(
                "pinned memory changed while a transfer was queued ({})",
                self.name
            ));
        }
    }
}

/// # Safety
/// The transfer's host side can be read.
unsafe fn checksum_of(transfer: &Transfer) -> u64 {
    const WORD: usize = size_of::<u64>();
    let total = transfer.width.saturating_mul(transfer.height);
    // Odd, so that all columns have their turn where rows have a power of two of words.
    let step = if total <= COMPARED_BYTES {
        1
    } else {
        total.div_ceil(COMPARED_BYTES) | 1
    };
    let words_of_row = transfer.width / WORD;
    let mut sum = 0u64;
    let mut add = |word: u64| sum = (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let mut next = 0;
    for row in 0..transfer.height {
        let at = transfer.host_row(row);
        while next < words_of_row {
            // SAFETY: the caller's promise; the word lies inside the row.
            add(unsafe { at.add(next * WORD).cast::<u64>().read_unaligned() });
            next += step;
        }
        next -= words_of_row;
        if row % step == 0 {
            for byte in words_of_row * WORD..transfer.width {
                // SAFETY: as above.
                add(u64::from(unsafe { at.add(byte).read_volatile() }));
            }
        }
    }
    sum
}
