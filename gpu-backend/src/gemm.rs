//! gemm: one operand whole, the other and C in panels; each panel's kernel starts when its operands are
//! on the device, and each panel's download when its kernel has run.
//!
//! The caller's memory is written only by [`GemmReady::commit`]. Nothing here decides whether the GPU is
//! worth it.

use crate::device::{Device, Work as CallWork};
use crate::result::{Arithmetic, DeviceGemm};
use crate::scratch::Scratch;
use crate::staging::{Job, Piece, Rectangle, Work};
use crate::stream::{Axis, Plan, cut, cut_mut, device_ld_bytes, panels_mut};
use call::{Failure, Level3Call, MatMut, MatRef, Op, Precision, Scalar, Timing, Trans};
use core::ops::Range;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A matrix on the device.
#[derive(Clone, Copy, Debug)]
struct OnDevice {
    address: u64,
    ld_bytes: usize,
}

/// Hands out parts of the call's block. With the block's address still 0 it only measures.
struct Layout {
    next: u64,
}

impl Layout {
    /// Space for rows x cols elements.
    fn matrix(&mut self, rows: usize, cols: usize, elem_bytes: usize) -> OnDevice {
        let ld_bytes = device_ld_bytes(rows.saturating_mul(elem_bytes), elem_bytes);
        let bytes = (ld_bytes as u64).saturating_mul(cols as u64);
        OnDevice {
            address: self.bytes(bytes),
            ld_bytes,
        }
    }

    /// Space for `bytes` bytes, aligned to 256 bytes (what cuBLAS's fastest kernels want at most).
    fn bytes(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next = address
            .saturating_add(bytes)
            .checked_next_multiple_of(256)
            .unwrap_or(u64::MAX);
        address
    }
}

/// Where everything of one call lies.
struct Placed {
    workspace: u64,
    resident: OnDevice,
    streamed: Vec<OnDevice>,
    c: Vec<OnDevice>,
    end: u64,
}

/// The part of an operand that belongs to rows or columns `range` of op(operand).
#[derive(Clone, Copy)]
struct Part {
    rows: (usize, usize),
    cols: (usize, usize),
}

fn whole(view: &MatRef<'_>) -> Part {
    Part {
        rows: (0, view.rows()),
        cols: (0, view.cols()),
    }
}

fn rows_of(view: &MatRef<'_>, range: &Range<usize>) -> Part {
    Part {
        rows: (range.start, range.len()),
        cols: (0, view.cols()),
    }
}

fn cols_of(view: &MatRef<'_>, range: &Range<usize>) -> Part {
    Part {
        rows: (0, view.rows()),
        cols: (range.start, range.len()),
    }
}

/// Panel `range` of the operand that is streamed: rows of op(A) or columns of op(B).
fn streamed_part(g: &Level3Call<'_>, axis: Axis, range: &Range<usize>) -> Part {
    match (axis, g.transa, g.transb) {
        (Axis::Rows, Trans::N, _) => rows_of(&g.a, range),
        (Axis::Rows, _, _) => cols_of(&g.a, range),
        (Axis::Columns, _, Trans::N) => cols_of(&b_of(g), range),
        (Axis::Columns, _, _) => rows_of(&b_of(g), range),
    }
}

fn c_part(c: &MatRef<'_>, axis: Axis, range: &Range<usize>) -> Part {
    match axis {
        Axis::Rows => rows_of(c, range),
        Axis::Columns => cols_of(c, range),
    }
}

/// The operand that is uploaded whole, and the one in panels.
fn operands<'a>(g: &Level3Call<'a>, axis: Axis) -> (MatRef<'a>, MatRef<'a>) {
    match axis {
        Axis::Rows => (b_of(g), g.a),
        Axis::Columns => (g.a, b_of(g)),
    }
}

fn place(device: &Device, g: &Level3Call<'_>, plan: &Plan, address: u64) -> Placed {
    let elem_bytes = g.precision.elem_bytes();
    let mut layout = Layout { next: address };
    let workspace = layout.bytes(device.workspace_bytes());
    let (resident, _) = operands(g, plan.axis);
    let resident = layout.matrix(resident.rows(), resident.cols(), elem_bytes);
    let c = g.c.as_ref();
    let (mut streamed, mut c_panels) = (Vec::new(), Vec::new());
    for range in &plan.panels {
        let part = streamed_part(g, plan.axis, range);
        streamed.push(layout.matrix(part.rows.1, part.cols.1, elem_bytes));
        let part = c_part(&c, plan.axis, range);
        c_panels.push(layout.matrix(part.rows.1, part.cols.1, elem_bytes));
    }
    Placed {
        workspace,
        resident,
        streamed,
        c: c_panels,
        end: layout.next,
    }
}

/// True if some element of `x` may share its address with one of `c`.
///
/// Ranges that do not meet are apart. Ranges that do may still be parts of one larger matrix, in
/// different rows: with the same distance of columns, the offset of every element modulo that distance
/// lies in the rows' interval, so disjoint intervals mean disjoint elements.
fn overlaps(x: &MatRef<'_>, c: &MatRef<'_>) -> bool {
    let (xs, cs) = (x.address_range(), c.address_range());
    if xs.is_empty() || cs.is_empty() || xs.end <= cs.start || cs.end <= xs.start {
        return false;
    }
    let distance = c.ld() * c.elem_bytes();
    if x.ld() != c.ld() || x.elem_bytes() != c.elem_bytes() {
        return true;
    }
    let offset = if xs.start >= cs.start {
        (xs.start - cs.start) % distance
    } else {
        (distance - (cs.start - xs.start) % distance) % distance
    };
    !(offset >= c.column_bytes() && offset + x.column_bytes() <= distance)
}

/// Floating-point operations of a product, for the limits of waits.
fn flops(precision: Precision, m: usize, n: usize, k: usize) -> f64 {
    let per = if precision.is_complex() { 8.0 } else { 2.0 };
    per * m as f64 * n as f64 * k as f64
}

/// Adds the upload of a part of `view`.
fn upload(
    pieces: &mut Vec<Piece>,
    stage: usize,
    view: MatRef<'static>,
    part: Part,
    to: OnDevice,
    piece_bytes: usize,
) {
    let elem_bytes = view.elem_bytes();
    for r in cut(
        part.rows.1,
        part.cols.1,
        elem_bytes,
        to.ld_bytes,
        piece_bytes,
    ) {
        let rectangle = Rectangle {
            row0: part.rows.0 + r.row0,
            rows: r.rows,
            col0: part.cols.0 + r.col0,
            cols: r.cols,
        };
        let to = Work::Upload {
            from: view,
            rectangle,
            to: to.address + (to.ld_bytes * r.col0 + elem_bytes * r.row0) as u64,
            ld_bytes: to.ld_bytes,
        };
        pieces.push(Piece { stage, work: to });
    }
}

/// Extends a view's life to that of a job.
///
/// # Safety
/// The result is used only by a job whose guard is dropped while the view lives.
unsafe fn lend(view: MatRef<'_>) -> MatRef<'static> {
    // SAFETY: only the lifetime changes; the caller keeps the view alive for as long as it is used.
    unsafe { core::mem::transmute::<MatRef<'_>, MatRef<'static>>(view) }
}

/// As [`lend`], for an operand that is written.
///
/// # Safety
/// As for [`lend`].
unsafe fn lend_mut(view: MatMut<'_>) -> MatMut<'static> {
    // SAFETY: as in `lend`.
    unsafe { core::mem::transmute::<MatMut<'_>, MatMut<'static>>(view) }
}

/// Runs a gemm.
///
/// # Errors
/// Any [`Failure`], by the contract of `Backend::run`.
pub fn run(device: &Device, g: &mut Level3Call<'_>) -> Result<Timing, Failure> {
    if g.op != Op::Gemm || g.b.is_none() {
        return Err(Failure::Unsupported("a family other than gemm"));
    }
    compute(device, g)?.commit(g)
}

fn b_of<'a>(g: &Level3Call<'a>) -> MatRef<'a> {
    g.b.expect("a gemm has a B (`run`)")
}

/// Uploads the operands and launches the kernels.
///
/// # Errors
/// Any [`Failure`]; the caller's memory was only read.
fn compute<'d>(device: &'d Device, g: &Level3Call<'_>) -> Result<GemmReady<'d>, Failure> {
    device.health.check()?;
    if g.m == 0 || g.n == 0 {
        return Err(Failure::Unsupported("an empty result"));
    }
    if g.k == 0 || g.alpha.is_zero() {
        return Err(Failure::Unsupported("gemm that only scales C"));
    }
    let c = g.c.as_ref();
    if overlaps(&g.a, &c) || overlaps(&b_of(g), &c) {
        return Err(Failure::Overlap);
    }
    let start = Instant::now();
    let elem_bytes = g.precision.elem_bytes();
    let plan = Plan::new(g.m, g.n, g.k, elem_bytes, device.info.sm_count as usize);
    let needed_bytes = place(device, g, &plan, 0).end;
    let limit = device.limit(flops(g.precision, g.m, g.n, g.k));

    let _entered = device.enter()?;
    let mut work = device.begin(needed_bytes, limit)?;
    let placed = place(device, g, &plan, work.address());
    let (resident, streamed) = operands(g, plan.axis);

    let mut total_bytes = resident.packed_bytes() + streamed.packed_bytes();
    if !g.beta.is_zero() {
        total_bytes += c.packed_bytes();
    }
    let piece_bytes = device.staging.piece_bytes(total_bytes);
    let mut pieces = Vec::new();
    // SAFETY: the guard below is dropped before this function returns, while `g` is borrowed.
    let (resident, streamed, c) = unsafe { (lend(resident), lend(streamed), lend(c)) };
    upload(
        &mut pieces,
        0,
        resident,
        whole(&resident),
        placed.resident,
        piece_bytes,
    );
    for (stage, range) in plan.panels.iter().enumerate() {
        let part = streamed_part(g, plan.axis, range);
        upload(
            &mut pieces,
            stage,
            streamed,
            part,
            placed.streamed[stage],
            piece_bytes,
        );
        if !g.beta.is_zero() {
            let part = c_part(&c, plan.axis, range);
            upload(&mut pieces, stage, c, part, placed.c[stage], piece_bytes);
        }
    }

    work.unsettle();
    // SAFETY: the operands are borrowed through `g` until this function returns, and nobody writes them;
    // the device block belongs to `work`, which is dropped after the guard (declared before it).
    let guard = unsafe {
        device
            .staging
            .submit(Job::new(pieces, plan.panels.len(), limit))
    };
    let cuda = &device.cuda;
    let note = |e| device.health.note(&e);
    {
        let lane = work.lane();
        let workspace_bytes = device.workspace_bytes() as usize;
        // SAFETY: the workspace is part of the block, which outlives the queued work (`Work::drop`).
        unsafe { cuda.set_workspace(&lane.handle, placed.workspace, workspace_bytes) }
            .map_err(|e| device.health.note_blas(cuda, lane.marks[0].1, &e))?;
        for (stage, range) in plan.panels.iter().enumerate() {
            guard.wait_stage(stage)?;
            for event in device.staging.events() {
                cuda.stream_wait(lane.stream, event).map_err(note)?;
            }
            let ld = |x: OnDevice| (x.address, x.ld_bytes / elem_bytes);
            let (m, n, a, b) = match plan.axis {
                Axis::Rows => (range.len(), g.n, placed.streamed[stage], placed.resident),
                Axis::Columns => (g.m, range.len(), placed.resident, placed.streamed[stage]),
            };
            let panel = DeviceGemm {
                precision: g.precision,
                transa: g.transa,
                transb: g.transb,
                m,
                n,
                k: g.k,
                alpha: g.alpha,
                beta: g.beta,
                a: ld(a),
                b: ld(b),
                c: ld(placed.c[stage]),
            };
            let (begin, end) = lane.marks[stage];
            cuda.record(begin, lane.stream).map_err(note)?;
            // SAFETY: `place` gave each operand room for its rows and columns at this leading
            // dimension; the uploads are awaited by the stream; the block outlives the work.
            unsafe { cuda.gemm(&lane.handle, &panel, Arithmetic::Pedantic) }
                .map_err(|e| device.health.note_blas(cuda, begin, &e))?;
            cuda.record(end, lane.stream).map_err(note)?;
            device.counts.gemm_kernels.fetch_add(1, Ordering::Relaxed);
        }
    }
    guard.join()?;
    drop(guard);
    device.counts.gemm_calls.fetch_add(1, Ordering::Relaxed);
    let timing = Timing {
        bytes_in: total_bytes as u64,
        bytes_out: 0,
        upload_s: start.elapsed().as_secs_f64(),
        compute_s: 0.0,
        download_s: 0.0,
    };
    let shape = (g.m, g.n, elem_bytes);
    Ok(GemmReady {
        work,
        plan,
        c: placed.c,
        shape,
        beta: g.beta,
        limit,
        timing,
    })
}

/// Kernels launched, result not yet fetched.
struct GemmReady<'d> {
    work: CallWork<'d>,
    plan: Plan,
    /// Panels of C on the device.
    c: Vec<OnDevice>,
    /// m, n, bytes of an element.
    shape: (usize, usize, usize),
    beta: Scalar,
    limit: Duration,
    timing: Timing,
}

impl GemmReady<'_> {
    /// Fetches every panel into `target`, each after its kernel.
    fn download(&self, target: MatMut<'_>) -> Result<(), Failure> {
        let device = self.work.device;
        let piece_bytes = device.staging.piece_bytes(target.packed_bytes());
        // SAFETY: the guard below is dropped before this function returns, while `target` is borrowed.
        let target = unsafe { lend_mut(target) };
        let panels = panels_mut(target, self.plan.axis, &self.plan.panels);
        let mut pieces = Vec::new();
        for (stage, panel) in panels.into_iter().enumerate() {
            let from = self.c[stage];
            let elem_bytes = panel.elem_bytes();
            for (r, to) in cut_mut(panel, from.ld_bytes, piece_bytes) {
                let offset = from.ld_bytes * r.col0 + elem_bytes * r.row0;
                let work = Work::Download {
                    from: from.address + offset as u64,
                    ld_bytes: from.ld_bytes,
                    after: Some(self.work.lane().marks[stage].1),
                    to: Mutex::new(to),
                };
                pieces.push(Piece { stage, work });
            }
        }
        let job = Job::new(pieces, self.plan.panels.len(), self.limit);
        // SAFETY: the pieces own disjoint parts of `target`, which is borrowed until this function
        // returns; the guard is dropped by then.
        unsafe { device.staging.submit(job) }.join()
    }

    /// Copies finished results to the caller. Nothing in it can fail.
    fn copy(&self, from: MatRef<'_>, target: MatMut<'_>) -> Result<(), Failure> {
        let staging = &self.work.device.staging;
        let piece_bytes = staging.piece_bytes(target.packed_bytes());
        // SAFETY: the guard below is dropped before this function returns, while both are borrowed.
        let (from, target) = unsafe { (lend(from), lend_mut(target)) };
        let ld_bytes = target.column_bytes();
        let pieces = cut_mut(target, ld_bytes, piece_bytes)
            .into_iter()
            .map(|(rectangle, to)| {
                let work = Work::Copy {
                    from,
                    rectangle,
                    to: Mutex::new(to),
                };
                Piece { stage: 0, work }
            })
            .collect();
        // SAFETY: as in `download`; `from` is only read.
        unsafe { staging.submit(Job::new(pieces, 1, self.limit)) }.join()
    }

    /// Seconds of the kernels, for statistics.
    fn kernel_s(&self) -> f64 {
        let cuda = &self.work.device.cuda;
        let marks = self.work.lane().marks.iter().take(self.plan.panels.len());
        // The result is complete: a clock that does not answer costs a figure, not the call.
        marks
            .map(|&(begin, end)| cuda.elapsed_s(begin, end).unwrap_or(0.0))
            .sum()
    }
}

impl GemmReady<'_> {
    fn commit(mut self, g: &mut Level3Call<'_>) -> Result<Timing, Failure> {
        let start = Instant::now();
        let (m, n, elem_bytes) = self.shape;
        if (g.c.rows(), g.c.cols(), g.c.elem_bytes()) != (m, n, elem_bytes) {
            return Err(Failure::Device(
                "internal error: commit into another call".into(),
            ));
        }
        let device = self.work.device;
        let entered = device.enter()?;
        if self.beta.is_zero() {
            self.download(g.c.reborrow())?;
            self.work.settle();
        } else {
            // C is an input too: it is written only when every byte of the result is on the host.
            let small = || Failure::Device("internal error: scratch too small".into());
            let mut scratch = Scratch::new(g.c.packed_bytes())?;
            self.download(scratch.matrix_mut(m, n, elem_bytes).ok_or_else(small)?)?;
            self.work.settle();
            let from = scratch.matrix(m, n, elem_bytes).ok_or_else(small)?;
            self.copy(from, g.c.reborrow())?;
        }
        self.timing.compute_s = self.kernel_s();
        drop(entered);
        self.timing.bytes_out = g.c.packed_bytes() as u64;
        self.timing.download_s = start.elapsed().as_secs_f64();
        Ok(self.timing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(address: usize, rows: usize, cols: usize, ld: usize) -> MatRef<'static> {
        let data = core::ptr::without_provenance(address);
        // SAFETY: never read; `overlaps` looks at addresses only.
        unsafe { MatRef::new(data, rows, cols, ld, 8) }.expect("valid")
    }

    /// Addresses of every element.
    fn elements(v: &MatRef<'_>) -> std::collections::BTreeSet<usize> {
        let start = v.address_range().start;
        (0..v.cols())
            .flat_map(|j| (0..v.rows()).map(move |i| (i, j)))
            .map(|(i, j)| start + (j * v.ld() + i) * v.elem_bytes())
            .collect()
    }

    #[test]
    fn overlap_is_never_missed_and_row_blocks_of_one_matrix_are_told_apart() {
        let mut apart_though_interleaved = 0;
        for row in 0..8usize {
            for shift in 0..20usize {
                for rows in 1..4usize {
                    let c = view(0x10000, 3, 5, 8);
                    let x = view(0x10000 - 10 * 8 + shift * 8 + row * 64, rows, 4, 8);
                    let shares = !elements(&c).is_disjoint(&elements(&x));
                    let said = overlaps(&x, &c);
                    assert!(
                        said || !shares,
                        "missed: row {row} shift {shift} rows {rows}"
                    );
                    let (xs, cs) = (x.address_range(), c.address_range());
                    if !said && xs.start < cs.end && cs.start < xs.end {
                        apart_though_interleaved += 1;
                    }
                }
            }
        }
        assert!(apart_though_interleaved > 0);
        assert!(overlaps(&view(0x10000, 3, 5, 8), &view(0x10010, 3, 5, 9)));
        assert!(!overlaps(&view(0x10000, 3, 5, 8), &view(0x20000, 3, 5, 9)));
    }

    #[test]
    fn a_layout_that_passes_every_address_is_too_large_not_wrapped() {
        let mut layout = Layout { next: 0 };
        layout.matrix(usize::MAX / 16, 1 << 40, 8);
        layout.bytes(1);
        assert_eq!(layout.next, u64::MAX);
    }
}
