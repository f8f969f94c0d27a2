//! Runs a program: uploads, kernels and downloads of one call, each as soon as it may.
//!
//! The calling thread gates everything (`driver`), the staging threads move the data. The commit rule is kept
//! here: a result whose old value is not read arrives directly, as its tiles are finished, since the CPU can
//! do the whole call again; so does one of level 3 whose old value is read, since scratch gets that as it is uploaded,
//! and it is put back if anything fails later. One of LAPACK goes into the caller's memory only after everything has
//! succeeded, from host scratch, or from the device where the old value is kept in scratch. Nothing here knows a
//! family, but for what makes a call unfit.

use crate::device::{Device, Work};
use crate::driver::{Driver, Reached};
use crate::host;
use crate::kernel::{Arithmetic, OnDevice};
use crate::memory::GRAIN_BYTES;
use crate::overlap::overlaps;
use crate::pieces::cut;
use crate::plan;
use crate::plan::program::{
    Area, Operand, Place, Program, Rectangle, Tuning, area_bytes, ld_bytes, view,
};
use crate::result::DeviceAddress;
use crate::scratch::Scratch;
use crate::solver::{Solver, Workspace};
use crate::staging::job::{
    CopyOut, Download, Job, JobGuard, Keep, Kind, Look, Old, Pieces, Upload,
};
use crate::testing::{self, Gate};
use call::{
    Diag, Failure, Level3Call, MatMut, MatRef, Op, OutRegion, Precision, TileMut, Timing, Uplo,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Results of fewer bytes are not looked at for fresh pages: two huge pages would hold them.
const POPULATE_MIN_BYTES: usize = 4 << 20;

/// Runs a call.
///
/// # Errors
/// Any [`Failure`], by the contract of `Backend::run`.
pub fn run(device: &Device, call: &mut Level3Call<'_>) -> Result<Timing, Failure> {
    let counted = call.op;
    run_as(device, call, counted)
}

/// The same, counted as a call of another family.
///
/// # Errors
/// As for [`run`].
pub fn run_as(device: &Device, call: &mut Level3Call<'_>, counted: Op) -> Result<Timing, Failure> {
    device.health.check()?;
    check(call)?;
    let start = Instant::now();
    let limit = device.limit(flops(call));
    let entered = device.enter()?;
    let (program, mut work) = prepare(device, call, limit)?;
    let mut scratch = match call.reads_result() {
        true => Some(device.scratch.take(call.c.packed_bytes())?),
        false => None,
    };
    let done = stream(
        device,
        call,
        &program,
        &mut work,
        scratch.as_mut(),
        (start, limit, counted),
    );
    let lost = device.health.check().is_err();
    drop(work);
    if let Some(scratch) = scratch.filter(|_| !lost) {
        device.scratch.put(scratch);
        device.pool.nudge();
    }
    drop(entered);
    let timing = done?;
    device
        .counts
        .of(counted)
        .calls
        .fetch_add(1, Ordering::Relaxed);
    Ok(timing)
}

/// Refuses what the CPU library must do.
fn check(call: &Level3Call<'_>) -> Result<(), Failure> {
    if call.m == 0 || call.n == 0 {
        return Err(Failure::Unsupported("an empty result"));
    }
    if call.k == 0 || call.alpha.is_zero() {
        return Err(Failure::Unsupported("a call that only scales its result"));
    }
    let c = call.c.as_ref();
    if overlaps(&call.a, &c) || call.b.is_some_and(|b| overlaps(&b, &c)) {
        return Err(Failure::Overlap);
    }
    if call.op == Op::Trsm && call.diag == Diag::N && has_zero_diagonal(&call.a, call.precision) {
        return Err(Failure::Unsupported("a zero on the diagonal"));
    }
    Ok(())
}

/// True if a diagonal element is 0 or -0.
pub fn has_zero_diagonal(a: &MatRef<'_>, precision: Precision) -> bool {
    let order = a.rows().min(a.cols());
    (0..order).any(|i| is_zero(a.column_piece(i, i, 1), precision))
}

/// True if an element is 0 or -0.
pub fn is_zero(element: &[u8], precision: Precision) -> bool {
    // Without the sign bit of each part, which is the highest bit of its last byte.
    element.chunks_exact(part_bytes(precision)).all(|part| {
        let (last, rest) = part.split_last().expect("4 or 8 bytes");
        last & 0x7f == 0 && rest.iter().all(|&byte| byte == 0)
    })
}

/// Bytes of a real number.
pub fn part_bytes(precision: Precision) -> usize {
    match precision {
        Precision::S | Precision::C => 4,
        Precision::D | Precision::Z => 8,
    }
}

/// An upper bound of the call's floating-point operations, for the limits of waits.
fn flops(call: &Level3Call<'_>) -> f64 {
    let per = if call.precision.is_complex() {
        8.0
    } else {
        2.0
    };
    let twice = matches!(call.op, Op::Syr2k | Op::Her2k);
    let per = if twice { 2.0 * per } else { per };
    per * call.m as f64 * call.n as f64 * call.k as f64
}

/// The program, and the memory for it. When the device is short: smaller tiles once, then the CPU.
fn prepare<'d>(
    device: &'d Device,
    call: &Level3Call<'_>,
    limit: Duration,
) -> Result<(Program, Work<'d>), Failure> {
    let elem_bytes = call.precision.elem_bytes();
    let workspace_bytes = device.workspace_bytes();
    let budget_bytes = || -> Result<u64, Failure> {
        let available = device.pool.available_bytes(&*device.cuda, &device.health)?;
        Ok(available.saturating_sub(workspace_bytes + GRAIN_BYTES))
    };
    let mut tuning = Tuning {
        sm_count: device.info.sm_count as usize,
        budget_bytes: budget_bytes()?,
    };
    let tried = device.pool.counts().0;
    let (mut asked_again, mut smaller) = (false, false);
    loop {
        let program = match plan::plan(call, &tuning) {
            // The figure may be a second old, and another process's memory free by now.
            Err(Failure::OutOfMemory { .. }) if !asked_again && !smaller => {
                asked_again = true;
                device.pool.forget();
                tuning.budget_bytes = budget_bytes()?;
                continue;
            }
            other => other?,
        };
        let needed_bytes = program.bytes(elem_bytes).saturating_add(workspace_bytes);
        device.pool.check_back_off(needed_bytes)?;
        match device.begin(needed_bytes, limit) {
            Ok(work) => return Ok((program, work)),
            Err(Failure::OutOfMemory { .. }) if !smaller => {
                smaller = true;
                tuning.budget_bytes = program.bytes(elem_bytes).min(tuning.budget_bytes) / 2;
            }
            Err(failure) => {
                device.pool.note_refusal(&failure, needed_bytes, tried);
                return Err(failure);
            }
        }
    }
}

/// Where the program's buffers lie, one after another from `first` on.
pub fn place(program: &Program, first: u64, elem_bytes: usize) -> Vec<OnDevice> {
    let mut next = first;
    let place = |buffer: &plan::program::Buffer| {
        let address = next;
        next = next.saturating_add(buffer.bytes(elem_bytes));
        OnDevice {
            address,
            ld_bytes: ld_bytes(buffer.rows * buffer.elem_bytes(elem_bytes)),
        }
    };
    program.buffers.iter().map(place).collect()
}

/// Extends a view's life to that of a job.
///
/// # Safety
/// The result is used only by a job whose guard is dropped while the view lives.
unsafe fn lend(view: MatRef<'_>) -> MatRef<'static> {
    // SAFETY: only the lifetime changes; the caller keeps the view alive for as long as it is used.
    unsafe { core::mem::transmute::<MatRef<'_>, MatRef<'static>>(view) }
}

/// As [`lend`], for a tile that is written.
///
/// # Safety
/// As for [`lend`].
unsafe fn lend_tile(tile: TileMut<'_>) -> TileMut<'static> {
    // SAFETY: as in `lend`.
    unsafe { core::mem::transmute::<TileMut<'_>, TileMut<'static>>(tile) }
}

/// Uploads, computes, downloads, commits.
fn stream<'d>(
    device: &'d Device,
    call: &mut Level3Call<'_>,
    program: &Program,
    work: &mut Work<'d>,
    scratch: Option<&mut Scratch>,
    (start, limit, counted): (Instant, Duration, Op),
) -> Result<Timing, Failure> {
    let precision = call.precision;
    let elem_bytes = precision.elem_bytes();
    let matrices = place(
        program,
        work.address() + device.workspace_bytes(),
        elem_bytes,
    );
    let cutter = Cutter {
        device,
        program,
        matrices: &matrices,
        elem_bytes,
    };
    let (uploads, bytes_in) = cutter.uploads(|operand| view(call, operand))?;
    let (parts, places) = cutter.downloads(Operand::C);
    let bytes_out = bytes_of(&parts, elem_bytes);
    let mut pieces = Pieces {
        uploads,
        populate: fresh_pages(call, scratch.as_deref()),
        ..Pieces::default()
    };
    pieces.downloads = owned(call.c.reborrow(), &parts, places)?;
    if let Some(scratch) = scratch {
        keep_uploads(&mut pieces, &call.c, &parts, scratch)?;
    }
    let (mark, _) = work.mark(0).map_err(|e| device.health.note(&e))?;
    let pedantic = {
        let lane = work.lane();
        let cuda = &device.cuda;
        let note = |e| device.health.note_blas(cuda, mark, &e);
        let bytes = device.workspace_bytes() as usize;
        let pedantic = cuda
            .set_arithmetic(&lane.handle, precision, Arithmetic::Pinned)
            .map_err(note)?;
        // SAFETY: the workspace is the first part of the block, which outlives the queued work.
        unsafe { cuda.set_workspace(&lane.handle, work.address(), bytes) }.map_err(note)?;
        pedantic
    };
    let look = match program.finite_only {
        true => Look::Finite(part_bytes(precision)),
        false => Look::Nothing,
    };
    let running = Running {
        device,
        program,
        matrices: &matrices,
        precision,
        pedantic,
        solver: None,
        op: counted,
        limit,
    };
    // SAFETY: the operands and the result are borrowed through `call`, scratch and block by this
    // function's caller, all longer than the guard, which is dropped in this function. Nobody writes the
    // operands (they do not overlap the result: `check`), and each tile is one piece's own. An old result's
    // elements are read by one upload each, before the kernels that the download over them waits for.
    let (guard, reached) = unsafe { running.drive(work, pieces, look) }?;
    let copy_s = commit(guard, work)?;
    Ok(reached.timing(start, (bytes_in, bytes_out), copy_s))
}

/// A program with what it runs on and in.
pub struct Running<'a, 'd> {
    /// The device.
    pub device: &'d Device,
    /// What to do.
    pub program: &'a Program,
    /// Its buffers.
    pub matrices: &'a [OnDevice],
    /// Element type.
    pub precision: Precision,
    /// The handle computes in pedantic mode.
    pub pedantic: bool,
    /// cuSOLVER with its workspace, for a routine of LAPACK.
    pub solver: Option<(&'a Solver, (DeviceAddress, Workspace))>,
    /// The family, for the counters.
    pub op: Op,
    /// How long nothing may happen.
    pub limit: Duration,
}

impl<'d> Running<'_, 'd> {
    /// Everything but the commit: when this returns, all downloads of the steps are over, and neither late
    /// downloads nor copies have begun. The downloads come in the order of their steps.
    ///
    /// # Errors
    /// Any [`Failure`]; nothing of the job is in use any more.
    ///
    /// # Safety
    /// As for `Staging::submit`; the guard is the one that this returns.
    pub unsafe fn drive(
        self,
        work: &mut Work<'d>,
        pieces: Pieces,
        look: Look,
    ) -> Result<(JobGuard<'d>, Reached), Failure> {
        let Self {
            device,
            program,
            matrices,
            precision,
            pedantic,
            solver,
            op,
            limit,
        } = self;
        let steps = program.steps.len();
        let ends = (
            ends(steps, pieces.uploads.iter().map(|u| u.step)),
            ends(steps, pieces.downloads.iter().map(|d| d.step)),
        );
        let (copies, late) = (!pieces.copies.is_empty(), !pieces.late.is_empty());
        let job = Job::new(pieces, steps, limit, look);
        work.unsettle();
        // SAFETY: forwarded.
        let guard = unsafe { device.staging.submit(job) };
        if copies && testing::left_out(Gate::CopiesAfterSuccess, || true) {
            guard.release(Kind::CopyOut, usize::MAX);
        }
        if late && testing::left_out(Gate::DeliveryAfterSuccess, || true) {
            guard.release(Kind::Download, usize::MAX);
        }
        let mut driver = Driver {
            device,
            program,
            work,
            guard: &guard,
            matrices,
            precision,
            pedantic,
            solver,
            ends,
            awaited: awaited(program),
            op,
            limit,
            at: Reached::default(),
        };
        driver.drive()?;
        let reached = driver.at;
        // Everything that was queued has been seen to be over.
        work.settle();
        Ok((guard, reached))
    }
}

/// Everything has succeeded: results that are read go to the caller, those first that are still on the device and
/// whose old values are kept. Returns the seconds for which copies of the host's were waited for.
///
/// # Errors
/// Any [`Failure`] of a late download; what was read is then as it was. Copies cannot fail.
pub fn commit(guard: JobGuard<'_>, work: &mut Work<'_>) -> Result<f64, Failure> {
    let begun = Instant::now();
    let mut copy_s = 0.0;
    if guard.progress()?.late > 0 {
        guard.finish_keeping()?;
        copy_s = begun.elapsed().as_secs_f64();
        work.unsettle();
        guard.deliver()?;
        work.settle();
    }
    let begun = Instant::now();
    guard.release(Kind::CopyOut, usize::MAX);
    guard.wait_until(|progress| progress.copies == 0)?;
    guard.succeed();
    Ok(copy_s + begun.elapsed().as_secs_f64())
}

/// A fault of our own, which the call survives.
pub fn internal(what: &str) -> Failure {
    Failure::Device(format!("internal error: {what}"))
}

/// Pieces of the steps up to each one, from the steps of pieces in order.
fn ends(steps: usize, of_pieces: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut ends = vec![0; steps];
    of_pieces.for_each(|step| ends[step] += 1);
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    ends
}

/// Steps whose kernels somebody waits for: downloads, a later step, or the end of the call.
fn awaited(program: &Program) -> Vec<bool> {
    let steps = &program.steps;
    let mut awaited: Vec<bool> = steps.iter().map(|s| !s.downloads.is_empty()).collect();
    let of_later = steps.iter().filter_map(|s| s.after.checked_sub(1));
    for step in of_later.chain(steps.len().checked_sub(1)) {
        awaited[step] = true;
    }
    awaited
}

/// Bytes of the parts of a result.
pub fn bytes_of(parts: &Parts, elem_bytes: usize) -> u64 {
    parts
        .iter()
        .map(|(r, a)| area_bytes(r, *a, elem_bytes))
        .sum()
}

/// Pages of a result that nobody has touched, or of new scratch: lists of ranges.
fn fresh_pages(
    call: &Level3Call<'_>,
    scratch: Option<&Scratch>,
) -> Vec<Vec<core::ops::Range<usize>>> {
    let (m, n) = (call.m, call.n);
    let view = match scratch {
        Some(scratch) if scratch.warm => return Vec::new(),
        Some(scratch) => match scratch.matrix(m, n, call.c.elem_bytes()) {
            Some(view) => view,
            None => return Vec::new(),
        },
        // Gaps between columns that are longer than the columns are not ours to make either.
        None if call.c.ld() > 2 * m => return Vec::new(),
        None => call.c.as_ref(),
    };
    match call.result_triangle() {
        Some(uplo) => fresh_triangle(&view, uplo),
        None => fresh(&view.address_range()),
    }
}

/// Columns of a triangle that are looked at to tell fresh memory from used.
const COLUMN_SAMPLES: usize = 4;

/// Pages of a triangle that nobody has touched; half of the range belongs to nobody of ours, and is not made.
fn fresh_triangle(view: &MatRef<'_>, uplo: Uplo) -> Vec<Vec<core::ops::Range<usize>>> {
    let (order, elem_bytes) = (view.cols(), view.elem_bytes());
    let (start, ld_bytes) = (view.address_range().start, view.ld() * elem_bytes);
    let area = match uplo {
        Uplo::U => Area::Upper { shift: 0 },
        Uplo::L => Area::Lower { shift: 0 },
    };
    let column = |j: usize| {
        let (first, count) = area.rows_of(j, view.rows());
        let from = start + j * ld_bytes + first * elem_bytes;
        from..from + count * elem_bytes
    };
    let sampled = |sample: usize| column((2 * sample + 1) * order / (2 * COLUMN_SAMPLES));
    let bytes = order * order / 2 * elem_bytes;
    if bytes < POPULATE_MIN_BYTES || !(0..COLUMN_SAMPLES).all(|s| host::is_fresh(&sampled(s))) {
        return Vec::new();
    }
    host::pages_of_columns((0..order).map(column))
}

/// Huge pages of memory that nobody has touched.
pub fn fresh(range: &core::ops::Range<usize>) -> Vec<Vec<core::ops::Range<usize>>> {
    if range.len() < POPULATE_MIN_BYTES || !host::is_fresh(range) {
        return Vec::new();
    }
    host::huge_pages(range)
}

/// Where a download piece comes from.
pub struct Source {
    /// The step whose kernels make it.
    pub step: usize,
    place: Place,
    matrix: OnDevice,
    gap_free: bool,
}

/// Rectangles of a result, and their elements that take part.
pub type Parts = Vec<(Rectangle, Area)>;

/// Download pieces, each with its own part of `target`.
pub fn owned(
    target: MatMut<'_>,
    parts: &[(Rectangle, Area)],
    sources: Vec<Source>,
) -> Result<Vec<Download>, Failure> {
    let elem_bytes = target.elem_bytes();
    let tiles = OutRegion::new(target).partition(parts);
    let tiles = tiles.map_err(|e| internal(&format!("downloads {e:?}")))?;
    let piece = |(tile, s): (TileMut<'_>, Source)| Download {
        step: s.step,
        from: s.matrix.element(s.place.row0, s.place.col0, elem_bytes),
        ld_bytes: s.matrix.ld_bytes,
        gap_free: s.gap_free,
        // SAFETY: the job's guard is dropped by the function that asks for the pieces, while the target is borrowed.
        to: Mutex::new(unsafe { lend_tile(tile) }),
        old: None,
    };
    Ok(tiles.into_iter().zip(sources).map(piece).collect())
}

/// How a result of LAPACK whose old value is read reaches the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Scratch gets the new value, which is copied to the caller when everything has succeeded.
    Scratch,
    /// Scratch gets the old value while kernels run, and the new one is downloaded over it when everything has
    /// succeeded; should that fail, the old one is put back.
    Keep,
}

/// Lets the uploads of a result keep it in scratch as they go, so that it may be downloaded over at once: `parts` are
/// those of the downloads. The planners' tests hold that an element is uploaded once, and before it is downloaded.
///
/// # Errors
/// A fault of our own.
fn keep_uploads(
    pieces: &mut Pieces,
    result: &MatMut<'_>,
    parts: &Parts,
    scratch: &mut Scratch,
) -> Result<(), Failure> {
    let (rows, cols, elem_bytes) = (result.rows(), result.cols(), result.elem_bytes());
    let small = || internal("scratch too small");
    // Operands that overlap the result were refused.
    let range = result.as_ref().address_range();
    let of_result = |u: &&mut Upload| u.from.address_range() == range;
    let mut uploads: Vec<&mut Upload> = pieces.uploads.iter_mut().filter(of_result).collect();
    let kept: Parts = uploads.iter().map(|u| (u.rectangle, u.area)).collect();
    let target = scratch.matrix_mut(rows, cols, elem_bytes);
    let tiles = OutRegion::new(target.ok_or_else(small)?).partition(&kept);
    let tiles = tiles.map_err(|e| internal(&format!("uploads {e:?}")))?;
    for (upload, tile) in uploads.iter_mut().zip(tiles) {
        // SAFETY: the job's guard is dropped by the function that asks for the pieces, while scratch is borrowed.
        upload.keep = Some(Mutex::new(unsafe { lend_tile(tile) }));
    }
    let kept = scratch.matrix(rows, cols, elem_bytes).ok_or_else(small)?;
    // SAFETY: as above.
    let kept = unsafe { lend(kept) };
    for (download, (rectangle, _)) in pieces.downloads.iter_mut().zip(parts) {
        download.old = Some(Old {
            kept,
            rectangle: *rectangle,
            begun: AtomicBool::new(false),
        });
    }
    Ok(())
}

/// Pieces of a result of LAPACK whose old value is read; scratch has room for it.
///
/// # Errors
/// A fault of our own.
pub fn in_place(
    pieces: &mut Pieces,
    way: Way,
    result: &mut MatMut<'_>,
    scratch: &mut Scratch,
    (parts, sources): (&Parts, Vec<Source>),
) -> Result<(), Failure> {
    let (rows, cols, elem_bytes) = (result.rows(), result.cols(), result.elem_bytes());
    let small = || internal("scratch too small");
    let target = scratch.matrix_mut(rows, cols, elem_bytes);
    let target = target.ok_or_else(small)?;
    match way {
        Way::Scratch => {
            pieces.downloads.extend(owned(target, parts, sources)?);
            let from = scratch.matrix(rows, cols, elem_bytes).ok_or_else(small)?;
            let copies = copies(from, result.reborrow(), parts)?;
            pieces.copies.extend(copies);
        }
        Way::Keep => {
            let copies = copies(result.as_ref(), target, parts)?;
            let kept = scratch.matrix(rows, cols, elem_bytes).ok_or_else(small)?;
            // SAFETY: the job's guard is dropped by the function that asks for the pieces, while scratch is
            // borrowed.
            let kept = unsafe { lend(kept) };
            pieces
                .keeps
                .extend(copies.into_iter().map(|copy| Keep { copy, kept }));
            let late = owned(result.reborrow(), parts, sources)?;
            pieces.late.extend(late);
        }
    }
    Ok(())
}

/// Pieces of the way from one host matrix to another of the same size.
fn copies(from: MatRef<'_>, target: MatMut<'_>, parts: &Parts) -> Result<Vec<CopyOut>, Failure> {
    let tiles = OutRegion::new(target).partition(parts);
    let tiles = tiles.map_err(|e| internal(&format!("copies {e:?}")))?;
    // SAFETY: the job's guard is dropped by the function that asks for the pieces, while both are borrowed.
    let (from, lent) = unsafe { (lend(from), tiles.into_iter().map(|t| lend_tile(t))) };
    let piece = |(to, &(rectangle, _)): (TileMut<'static>, &(Rectangle, Area))| CopyOut {
        from,
        rectangle,
        to: Mutex::new(to),
    };
    Ok(lent.zip(parts).map(piece).collect())
}

/// Cuts a program's transfers into pieces.
pub struct Cutter<'a> {
    /// Whose chunks bound the pieces.
    pub device: &'a Device,
    /// The program.
    pub program: &'a Program,
    /// Its buffers.
    pub matrices: &'a [OnDevice],
    /// Bytes of an element of the routine's type.
    pub elem_bytes: usize,
}

impl Cutter<'_> {
    /// True if what lies between the columns of this block on the device is padding.
    fn is_gap_free(&self, place: Place, rows: usize) -> bool {
        place.row0 == 0 && rows == self.program.buffers[place.buffer].rows
    }

    /// Pieces of a block, by their place in the block.
    fn cut(&self, r: &Rectangle, area: Area, place: Place, piece_bytes: usize) -> Parts {
        let ld_bytes = self.matrices[place.buffer].ld_bytes;
        let gap_free = self.is_gap_free(place, r.rows).then_some(ld_bytes);
        let elem_bytes = self.elem_bytes_of(place);
        cut((r.rows, r.cols), area, elem_bytes, gap_free, piece_bytes)
    }

    /// Bytes of an element of a buffer.
    fn elem_bytes_of(&self, place: Place) -> usize {
        self.program.buffers[place.buffer].elem_bytes(self.elem_bytes)
    }

    /// Every upload, and its bytes.
    ///
    /// # Errors
    /// A fault of the planner.
    pub fn uploads<'c>(
        &self,
        view: impl Fn(Operand) -> Option<MatRef<'c>>,
    ) -> Result<(Vec<Upload>, u64), Failure> {
        let all = || self.program.steps.iter().flat_map(|s| &s.uploads);
        let total: u64 = all()
            .map(|u| area_bytes(&u.rectangle, u.area, self.elem_bytes_of(u.to)))
            .sum();
        let piece_bytes = self.device.staging.piece_bytes(total as usize);
        let mut pieces = Vec::new();
        for (step, uploads) in self.program.steps.iter().map(|s| &s.uploads).enumerate() {
            for upload in uploads {
                let from = view(upload.from).ok_or_else(|| internal("no such operand"))?;
                let elem_bytes = self.elem_bytes_of(upload.to);
                let inside = from.elem_bytes() == elem_bytes
                    && upload.rectangle.row0 + upload.rectangle.rows <= from.rows()
                    && upload.rectangle.col0 + upload.rectangle.cols <= from.cols();
                if !inside {
                    return Err(internal("an upload from outside its operand"));
                }
                // SAFETY: the job's guard is dropped by the function that asks for the pieces, while the
                // operands are borrowed.
                let from = unsafe { lend(from) };
                let matrix = self.matrices[upload.to.buffer];
                let free = self.is_gap_free(upload.to, upload.rectangle.rows);
                for (r, area) in self.cut(&upload.rectangle, upload.area, upload.to, piece_bytes) {
                    let (row, col) = (upload.to.row0 + r.row0, upload.to.col0 + r.col0);
                    pieces.push(Upload {
                        step,
                        from,
                        rectangle: moved(&r, &upload.rectangle),
                        area,
                        to: matrix.element(row, col, elem_bytes),
                        ld_bytes: matrix.ld_bytes,
                        gap_free: free && r.rows == upload.rectangle.rows,
                        keep: None,
                    });
                }
            }
        }
        Ok((pieces, total))
    }

    /// Every download of one result: its part of it, and where it comes from.
    pub fn downloads(&self, to: Operand) -> (Parts, Vec<Source>) {
        let all = || self.program.steps.iter().flat_map(|s| &s.downloads);
        let total: u64 = all()
            .map(|d| area_bytes(&d.rectangle, d.area, self.elem_bytes_of(d.from)))
            .sum();
        let piece_bytes = self.device.staging.piece_bytes(total as usize);
        let (mut parts, mut sources) = (Vec::new(), Vec::new());
        for (step, downloads) in self.program.steps.iter().map(|s| &s.downloads).enumerate() {
            for download in downloads.iter().filter(|d| d.to == to) {
                let from = download.from;
                let free = self.is_gap_free(from, download.rectangle.rows);
                for (r, area) in self.cut(&download.rectangle, download.area, from, piece_bytes) {
                    parts.push((moved(&r, &download.rectangle), area));
                    sources.push(Source {
                        step,
                        place: Place {
                            row0: from.row0 + r.row0,
                            col0: from.col0 + r.col0,
                            ..from
                        },
                        matrix: self.matrices[from.buffer],
                        gap_free: free && r.rows == download.rectangle.rows,
                    });
                }
            }
        }
        (parts, sources)
    }
}

/// A rectangle inside another one, by its place in the matrix.
fn moved(inner: &Rectangle, outer: &Rectangle) -> Rectangle {
    Rectangle {
        row0: inner.row0 + outer.row0,
        col0: inner.col0 + outer.col0,
        ..*inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_on_the_diagonal_is_found_whatever_its_sign() {
        let n = 5;
        for (part, precision) in [(8, Precision::D), (8, Precision::Z), (4, Precision::S)] {
            let elem_bytes = precision.elem_bytes();
            let mut data = vec![0x3fu8; n * n * elem_bytes];
            let found = |data: &[u8]| {
                // SAFETY: n x n elements.
                let a = unsafe { MatRef::new(data.as_ptr(), n, n, n, elem_bytes) };
                has_zero_diagonal(&a.expect("valid"), precision)
            };
            assert!(!found(&data));
            // Off the diagonal.
            data[elem_bytes..2 * elem_bytes].fill(0);
            assert!(!found(&data));
            let last = (n * n - 1) * elem_bytes;
            data[last..last + part].fill(0);
            // A complex number with one part 0 is not 0.
            assert_eq!(found(&data), part == elem_bytes);
            data[last..].fill(0);
            assert!(found(&data));
            data[n * n * elem_bytes - 1] = 0x80;
            assert!(found(&data), "-0");
        }
    }

    /// An anonymous mapping as a column-major matrix; its pages do not exist.
    fn untouched(order: usize, ld: usize, use_it: impl FnOnce(&MatRef<'_>, *mut u8)) {
        let bytes = order * ld * 8;
        let (read_write, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, used here and unmapped.
        unsafe {
            let base = libc::mmap(core::ptr::null_mut(), bytes, read_write, private, -1, 0);
            assert!(base != libc::MAP_FAILED);
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            base.expose_provenance();
            let view = MatRef::new(base.cast(), order, order, ld, 8).expect("valid");
            use_it(&view, base.cast());
            libc::munmap(base, bytes);
        }
    }

    #[test]
    fn pages_of_a_fresh_triangle_are_its_own() {
        let (order, ld) = (1500, 1600);
        for uplo in [Uplo::U, Uplo::L] {
            untouched(order, ld, |view, base| {
                let pages = fresh_triangle(view, uplo).concat();
                let bytes: usize = pages.iter().map(core::ops::Range::len).sum();
                // Less a page at either end of each column.
                let triangle = order * (order + 1) / 2 * 8;
                assert!(bytes <= triangle && bytes + order * 8192 > triangle);
                for range in &pages {
                    // No page reaches into the gap, and none has an element beyond the diagonal.
                    let at = |address: usize| (address - base.addr()) / 8;
                    let (first, last) = (at(range.start), at(range.end - 1));
                    assert_eq!(first / ld, last / ld, "two columns");
                    let (j, top, bottom) = (first / ld, first % ld, last % ld);
                    assert!(bottom < order);
                    let inside = if uplo == Uplo::U {
                        bottom <= j
                    } else {
                        top >= j
                    };
                    assert!(inside, "column {j}: rows {top} to {bottom}");
                }
                // A triangle that was written is not fresh, whatever the other one is.
                for j in 0..order {
                    let (first, count) = match uplo {
                        Uplo::U => (0, j + 1),
                        Uplo::L => (j, order - j),
                    };
                    // SAFETY: inside the mapping.
                    unsafe { base.add((j * ld + first) * 8).write_bytes(1, count * 8) };
                }
                assert!(fresh_triangle(view, uplo).is_empty());
            });
        }
        untouched(200, 200, |view, _| {
            assert!(fresh_triangle(view, Uplo::L).is_empty(), "not worth it");
        });
    }

    #[test]
    fn pieces_are_counted_up_to_each_step() {
        assert_eq!(ends(4, [0, 0, 2].into_iter()), [2, 2, 3, 3]);
    }
}
