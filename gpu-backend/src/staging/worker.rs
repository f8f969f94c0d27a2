//! One staging thread: takes pieces, fills chunks, queues transfers, empties chunks.
//!
//! Unsafe lives here because chunks are raw pinned memory under transfers of the device. A chunk is
//! touched only when the last transfer that used it has been seen to be over.

use super::job::{CopyOut, Download, Job, Kind, Look, Upload};
use super::queue::{Next, Taken};
use super::{Equipment, Shared, Slot, SlotMask};
use crate::copy;
use crate::pieces::image;
use crate::result::{Cuda, Stream};
use crate::testing::{self, Gate};
use call::{Failure, MatRef, Rectangle, TileMut};
use core::mem::MaybeUninit;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Downloads that a worker has on their way: one that arrives while the one before it is emptied.
const ON_THE_WAY: usize = 2;

/// `MADV_POPULATE_WRITE` (Linux 5.14); an older kernel answers an error that changes nothing.
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// How often a worker asks for a transfer of so many bytes: about as long as the transfer takes alone
/// (18 ps a byte at 55 GB/s, 2026-12-01, H200), since others are on the link too and every question takes
/// the driver's lock.
fn ask_pause(bytes: usize) -> Duration {
    Duration::from_nanos((bytes as u64 * 18 / 1000).clamp(5_000, 50_000))
}

/// A worker.
pub struct Worker {
    shared: Arc<Shared>,
    number: usize,
    stream: Stream,
    slots: Vec<Slot>,
    /// Bytes of the transfer whose event was recorded and not yet seen to have happened; 0 if none.
    in_flight: Vec<usize>,
    /// The slot that is used next.
    turn: usize,
    /// Requested downloads with their slots, the oldest first.
    pending: VecDeque<(Taken, usize)>,
}

impl Worker {
    /// The worker with this number.
    pub fn new(shared: Arc<Shared>, number: usize, equipment: Equipment) -> Self {
        Self {
            shared,
            number,
            stream: equipment.stream,
            in_flight: vec![0; equipment.slots.len()],
            slots: equipment.slots,
            turn: 0,
            pending: VecDeque::new(),
        }
    }

    /// Its life.
    pub fn run(mut self) {
        super::turns::ask_for_short_turns();
        let shared = Arc::clone(&self.shared);
        let mut entered = None;
        let mut busy = None;
        loop {
            let taken = match shared.queue.next(&mut busy, self.pending.is_empty()) {
                Next::Piece(taken) => taken,
                Next::Nothing => {
                    self.receive_oldest();
                    continue;
                }
                Next::Stop if self.pending.is_empty() => return,
                Next::Stop => {
                    self.receive_oldest();
                    continue;
                }
            };
            let needs_device = matches!(taken.kind, Kind::Upload | Kind::Download);
            if needs_device {
                let ready = shared.health.check().and_then(|()| {
                    if entered.is_none() {
                        let result = shared.cuda.enter(shared.context);
                        entered = Some(result.map_err(|e| shared.health.note(&e))?);
                    }
                    Ok(())
                });
                if let Err(failure) = ready {
                    self.give_up(taken, failure);
                    continue;
                }
            }
            self.work(taken);
        }
    }

    fn give_up(&self, taken: Taken, failure: Failure) {
        self.shared.queue.fail(&taken.job, failure);
        taken.job.leave();
    }

    /// Runs `body`; a panic is a failure of the job, not the end of the worker.
    fn guarded(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| body(self)))
            .unwrap_or_else(|_| Err(Failure::Device("internal error in staging".into())))
    }

    fn work(&mut self, taken: Taken) {
        if taken.kind == Kind::Download {
            while self.pending.len() >= ON_THE_WAY.min(self.slots.len()) {
                self.receive_oldest();
            }
            let mut slot = 0;
            let requested = self.guarded(|worker| {
                slot = worker.request(&taken)?;
                Ok(())
            });
            match requested {
                Ok(()) => self.pending.push_back((taken, slot)),
                Err(failure) => self.give_up(taken, failure),
            }
            return;
        }
        // A finished result waits for nothing, and its slot is needed.
        while !self.pending.is_empty() {
            self.receive_oldest();
        }
        let job = Arc::clone(&taken.job);
        let done = self.guarded(|worker| match taken.kind {
            Kind::Upload => worker.upload(&job, &job.pieces.uploads[taken.index]),
            Kind::CopyOut => {
                copy_out(
                    &job.pieces.copies[taken.index],
                    worker.shared.shape.streaming_stores,
                );
                job.copied();
                Ok(())
            }
            Kind::Keep => {
                testing::before_keep();
                copy_out(
                    &job.pieces.keeps[taken.index].copy,
                    worker.shared.shape.streaming_stores,
                );
                job.kept();
                Ok(())
            }
            Kind::Populate => {
                job.pieces.populate[taken.index].iter().for_each(populate);
                Ok(())
            }
            Kind::Download => Ok(()),
        });
        match done {
            Ok(()) => taken.job.leave(),
            Err(failure) => self.give_up(taken, failure),
        }
    }

    /// Finishes the oldest download on its way.
    fn receive_oldest(&mut self) {
        let Some((taken, slot)) = self.pending.pop_front() else {
            return;
        };
        match self.guarded(|worker| worker.receive(&taken, slot)) {
            Ok(()) => taken.job.leave(),
            Err(failure) => self.give_up(taken, failure),
        }
    }

    /// The next slot, once its last transfer is over.
    fn free_slot(&mut self, job: &Job) -> Result<usize, Failure> {
        let slot = self.turn;
        self.turn = (slot + 1) % self.slots.len();
        self.settle(job, slot, Gate::FillAfterTransfer)?;
        Ok(slot)
    }

    fn settle(&mut self, job: &Job, slot: usize, gate: Gate) -> Result<(), Failure> {
        let (cuda, event) = (&self.shared.cuda, self.slots[slot].event);
        let runs = || !cuda.happened(event).unwrap_or(true);
        if self.in_flight[slot] > 0 && testing::left_out(gate, runs) {
            self.in_flight[slot] = 0;
        }
        if self.in_flight[slot] > 0 {
            let pause = ask_pause(self.in_flight[slot]);
            let waited = cuda.wait_asking(event, job.limit, pause);
            waited.map_err(|e| self.shared.health.note(&e))?;
            self.in_flight[slot] = 0;
        }
        Ok(())
    }

    /// Marks the end of a transfer of `bytes` bytes that was just queued.
    fn mark(&mut self, slot: usize, bytes: usize) -> Result<(), Failure> {
        let (cuda, event) = (&self.shared.cuda, self.slots[slot].event);
        // A transfer that cannot be marked cannot be waited for, and its chunk could never be used
        // again: one more try, then the device counts as lost.
        match cuda
            .record(event, self.stream)
            .or_else(|_| cuda.record(event, self.stream))
        {
            Ok(()) => {
                self.in_flight[slot] = bytes.max(1);
                Ok(())
            }
            Err(e) => Err(self.shared.health.lose(e.to_string())),
        }
    }

    fn upload(&mut self, job: &Job, piece: &Upload) -> Result<(), Failure> {
        let slot = self.free_slot(job)?;
        let elem_bytes = piece.from.elem_bytes();
        let Rectangle { rows, cols, .. } = piece.rectangle;
        let gap_free = piece.gap_free.then_some(piece.ld_bytes);
        let image = image((rows, cols), elem_bytes, gap_free);
        let streaming = self.shared.shape.streaming_stores;
        let chunk = self.chunk(slot, image.bytes)?;
        if !fill(chunk, piece, image.pitch_bytes, job, streaming) {
            return Err(Failure::Unsupported("NaN or infinity in an operand"));
        }
        let from: *const u8 = self.slots[slot].chunk;
        let (cuda, stream): (&Cuda, _) = (&self.shared.cuda, self.stream);
        // SAFETY: the chunk is pinned and untouched until `free_slot` has seen the event that `mark`
        // records; the device block has room for the piece (the executor's contract).
        let queued = unsafe {
            if image.linear {
                cuda.copy_in(piece.to, from, image.bytes, stream)
            } else {
                let size = (rows * elem_bytes, cols);
                let to = (piece.to, piece.ld_bytes);
                cuda.copy_in_2d(to, (from, image.pitch_bytes), size, stream)
            }
        };
        queued.map_err(|e| self.shared.health.note(&e))?;
        self.mark(slot, image.bytes)?;
        let bytes_in = &self.shared.traffic.bytes_in;
        bytes_in.fetch_add((rows * cols * elem_bytes) as u64, Ordering::Relaxed);
        let slots = self.slots.len();
        let first = self.number * slots;
        let mine = SlotMask::MAX >> (SlotMask::BITS as usize - slots) << first;
        job.uploaded(piece.step, first + slot, mine);
        Ok(())
    }

    /// The first `bytes` bytes of a free slot's chunk.
    fn chunk(&mut self, slot: usize, bytes: usize) -> Result<&mut [MaybeUninit<u8>], Failure> {
        if bytes > self.shared.shape.chunk_bytes || self.in_flight[slot] > 0 {
            return Err(Failure::Device(
                "internal error: a piece and its chunk".into(),
            ));
        }
        // SAFETY: the chunk has chunk_bytes bytes, is this thread's (`&mut self`), and no transfer uses
        // it: `in_flight` is 0.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.slots[slot].chunk.cast(), bytes) })
    }

    /// Queues the transfer of a download piece and says in which slot it will arrive.
    fn request(&mut self, taken: &Taken) -> Result<usize, Failure> {
        let slot = self.free_slot(&taken.job)?;
        let piece = &taken.job.pieces.downloads[taken.index];
        match self.request_into(piece, slot) {
            // Once more from the device: user memory may already be written in part.
            Err(Failure::Device(_)) => self.request_into(piece, slot)?,
            other => other?,
        }
        Ok(slot)
    }

    fn request_into(&mut self, piece: &Download, slot: usize) -> Result<(), Failure> {
        let (size, elem_bytes) = {
            let to = piece.to.lock();
            ((to.rows(), to.cols()), to.elem_bytes())
        };
        let image = image(size, elem_bytes, piece.gap_free.then_some(piece.ld_bytes));
        let to: *mut u8 = self.chunk(slot, image.bytes)?.as_mut_ptr().cast();
        let (cuda, stream): (&Cuda, _) = (&self.shared.cuda, self.stream);
        // SAFETY: the chunk is pinned, of at least `bytes` bytes, and nobody touches it until `receive`
        // or `free_slot` has seen the event that `mark` records.
        let queued = unsafe {
            if image.linear {
                cuda.copy_out(to, piece.from, image.bytes, stream)
            } else {
                let from = (piece.from, piece.ld_bytes);
                let size = (size.0 * elem_bytes, size.1);
                cuda.copy_out_2d((to, image.pitch_bytes), from, size, stream)
            }
        };
        queued.map_err(|e| self.shared.health.note(&e))?;
        self.mark(slot, image.bytes)
    }

    /// Waits for a requested piece and writes it to its place.
    fn receive(&mut self, taken: &Taken, slot: usize) -> Result<(), Failure> {
        let job = &taken.job;
        let piece = &job.pieces.downloads[taken.index];
        match self.settle(job, slot, Gate::EmptyAfterTransfer) {
            Err(Failure::Device(_)) => {
                self.in_flight[slot] = 0;
                self.request_into(piece, slot)?;
                self.settle(job, slot, Gate::EmptyAfterTransfer)?;
            }
            other => other?,
        }
        let streaming = self.shared.shape.streaming_stores;
        if let Some(old) = &piece.old {
            old.begun.store(true, Ordering::Relaxed);
        }
        let mut to = piece.to.lock();
        let (rows, cols, elem_bytes) = (to.rows(), to.cols(), to.elem_bytes());
        let gap_free = piece.gap_free.then_some(piece.ld_bytes);
        let image = image((rows, cols), elem_bytes, gap_free);
        // SAFETY: the transfer into the chunk is over (`settle`) and wrote these bytes; those between
        // the columns are not looked at.
        let chunk = |start: usize, bytes: usize| unsafe {
            core::slice::from_raw_parts(self.slots[slot].chunk.add(start), bytes)
        };
        let packed = image.pitch_bytes == rows * elem_bytes;
        if let Some(all) = to.contiguous_mut().filter(|_| packed) {
            copy::copy(all, chunk(0, image.bytes), streaming);
        } else {
            for j in 0..cols {
                let (first, count) = to.rows_of(j);
                let start = image.pitch_bytes * j + first * elem_bytes;
                let column = chunk(start, count * elem_bytes);
                copy::copy(to.column_mut(j), column, streaming);
            }
        }
        copy::fence();
        let bytes_out = &self.shared.traffic.bytes_out;
        bytes_out.fetch_add((rows * cols * elem_bytes) as u64, Ordering::Relaxed);
        drop(to);
        job.downloaded(piece.step);
        Ok(())
    }
}

/// Short columns far apart are asked for so many columns early, since the processor's own prefetching ends at
/// each page: dtrsm 8192 takes 35 to 37 ms instead of 40 to 42, dgemm as long as before; one column ahead and
/// three are worse, and so is asking for the first lines only (H200's Xeon, 2026-12-02).
const COLUMNS_AHEAD: usize = 2;

/// Bytes that are copied before they are kept as well: they are still in the nearest cache. A multiple of every
/// element's size.
const KEEP_BYTES: usize = 8192;

/// Fills a chunk, and keeps what is to be kept; false if a number that takes part is not finite and that matters.
fn fill(
    chunk: &mut [MaybeUninit<u8>],
    piece: &Upload,
    pitch_bytes: usize,
    job: &Job,
    streaming: bool,
) -> bool {
    let Rectangle {
        row0,
        rows,
        col0,
        cols,
    } = piece.rectangle;
    let elem_bytes = piece.from.elem_bytes();
    let put = |to: &mut [MaybeUninit<u8>], from: &[u8]| match job.look {
        Look::Largest(part_bytes) => {
            let largest = copy::copy_largest(to, from, part_bytes);
            job.largest[piece.step].fetch_max(largest, Ordering::Relaxed);
            largest < copy::infinity_bits(part_bytes)
        }
        Look::Finite(part_bytes) => copy::copy_finite(to, from, part_bytes),
        Look::Nothing => {
            copy::copy(to, from, false);
            true
        }
    };
    let column = |j: usize| {
        let (first, count) = piece.area.rows_of(j, rows);
        (
            first,
            piece.from.column_piece(col0 + j, row0 + first, count),
        )
    };
    if let Some(keep) = &piece.keep {
        let mut keep = keep.lock();
        let finite = (0..cols).fold(true, |finite, j| {
            let (first, from) = column(j);
            if j + COLUMNS_AHEAD < cols {
                copy::prefetch(column(j + COLUMNS_AHEAD).1);
            }
            let start = pitch_bytes * j + first * elem_bytes;
            let to = chunk[start..start + from.len()].chunks_mut(KEEP_BYTES);
            let kept = keep.column_mut(j).chunks_mut(KEEP_BYTES);
            let runs = to.zip(kept).zip(from.chunks(KEEP_BYTES));
            runs.fold(finite, |finite, ((to, kept), from)| {
                let is_finite = put(to, from);
                copy::copy(kept, from, streaming);
                finite & is_finite
            })
        });
        copy::fence();
        return finite;
    }
    let whole = rows == piece.from.rows() && pitch_bytes == rows * elem_bytes;
    if whole
        && piece.area == call::Area::Full
        && let Some(from) = piece.from.contiguous(col0, cols)
    {
        return put(chunk, from);
    }
    (0..cols).fold(true, |finite, j| {
        let (first, from) = column(j);
        let count = from.len() / elem_bytes;
        if j + COLUMNS_AHEAD < cols {
            copy::prefetch(column(j + COLUMNS_AHEAD).1);
        }
        let start = pitch_bytes * j + first * elem_bytes;
        finite & put(&mut chunk[start..start + count * elem_bytes], from)
    })
}

fn copy_out(piece: &CopyOut, streaming: bool) {
    copy_host(piece.from, &piece.rectangle, &piece.to, streaming);
}

/// Copies a rectangle of a matrix, as far as the tile `to` has elements there.
pub fn copy_host(
    from: MatRef<'_>,
    rectangle: &Rectangle,
    to: &Mutex<TileMut<'static>>,
    streaming: bool,
) {
    let mut to = to.lock();
    for j in 0..to.cols() {
        let (first, count) = to.rows_of(j);
        let from = from.column_piece(rectangle.col0 + j, rectangle.row0 + first, count);
        copy::copy(to.column_mut(j), from, streaming);
    }
    copy::fence();
}

/// Makes pages. Errors are ignored: the pages are then made when they are written.
fn populate(range: &core::ops::Range<usize>) {
    let start = core::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: whole pages inside the result's memory, which the call's owner lends for writing; the
    // advice changes no content.
    unsafe { libc::madvise(start, range.len(), MADV_POPULATE_WRITE) };
}
