//! Measurements for calibration: transfers through the staging pool, kernels alone.
//!
//! Only what the device does is measured here; what the figures mean is the cost model's business.

use crate::TransferRates;
use crate::device::{Device, Work};
use crate::execute::place;
use crate::kernel::{Arithmetic, DeviceKernel};
use crate::pieces::cut;
use crate::plan::program::{Area, Buffer, Kernel, Place, Program, Rectangle};
use crate::staging::job::{Download, Job, Kind, Look, Pieces, Upload};
use call::{Diag, Failure, MatMut, MatRef, Op, OutRegion, Precision, Scalar, Side, Trans, Uplo};
use parking_lot::Mutex;
use std::time::Instant;

/// Runs of each transfer; the best one counts.
const TRANSFER_RUNS: usize = 3;

/// Runs of the smallest transfer; more, since they are short and the first ones wake threads.
const LATENCY_RUNS: usize = 10;

/// Bytes of an element of what is moved.
const ELEM_BYTES: usize = 8;

/// Host memory that is moved, and the device memory that it goes to or comes from.
struct Lorry {
    host: Vec<u64>,
    address: u64,
}

fn no_memory() -> Failure {
    Failure::Device("the host has no memory for the measurement".into())
}

impl Lorry {
    fn new(elems: usize, address: u64) -> Result<Self, Failure> {
        let mut host: Vec<u64> = Vec::new();
        host.try_reserve_exact(elems).map_err(|_| no_memory())?;
        // Not zeros: pages of zeros could still be shared and untouched.
        host.resize(elems, 0x3fb9_9999_9999_999a);
        Ok(Self { host, address })
    }

    fn cut(&self, device: &Device, elems: usize) -> Vec<(Rectangle, Area)> {
        let piece_bytes = device.staging.piece_bytes(elems * ELEM_BYTES);
        cut((elems, 1), Area::Full, ELEM_BYTES, None, piece_bytes)
    }

    fn uploads(&self, device: &Device, elems: usize) -> Result<Vec<Upload>, Failure> {
        let pointer = self.host.as_ptr().cast();
        // SAFETY: `host` holds at least `elems` initialised elements, and outlives the job (`haul`).
        let from = unsafe { MatRef::new(pointer, elems, 1, elems, ELEM_BYTES) };
        let from = from
            .filter(|_| elems <= self.host.len())
            .ok_or_else(no_memory)?;
        let piece = |(rectangle, area): (Rectangle, Area)| Upload {
            step: 0,
            from,
            rectangle,
            area,
            to: self.address + (rectangle.row0 * ELEM_BYTES) as u64,
            ld_bytes: elems * ELEM_BYTES,
            gap_free: false,
            keep: None,
        };
        Ok(self.cut(device, elems).into_iter().map(piece).collect())
    }

    fn downloads(&mut self, device: &Device, elems: usize) -> Result<Vec<Download>, Failure> {
        let parts = self.cut(device, elems);
        let pointer = self.host.as_mut_ptr().cast();
        // SAFETY: as in `uploads`; `haul` borrows the whole lorry mutably while the job lives.
        let to = unsafe { MatMut::new(pointer, elems, 1, elems, ELEM_BYTES) };
        let to = to
            .filter(|_| elems <= self.host.len())
            .ok_or_else(no_memory)?;
        let tiles = OutRegion::new(to)
            .partition(&parts)
            .map_err(|_| no_memory())?;
        let piece = |(tile, (r, _)): (_, &(Rectangle, Area))| Download {
            step: 0,
            from: self.address + (r.row0 * ELEM_BYTES) as u64,
            ld_bytes: elems * ELEM_BYTES,
            gap_free: false,
            to: Mutex::new(tile),
            old: None,
        };
        Ok(tiles.into_iter().zip(&parts).map(piece).collect())
    }
}

/// Seconds of moving the first elements of a lorry in, of another out, or both at once.
fn haul(
    device: &Device,
    inward: Option<(&mut Lorry, usize)>,
    outward: Option<(&mut Lorry, usize)>,
) -> Result<f64, Failure> {
    let start = Instant::now();
    let mut pieces = Pieces::default();
    let uploads = inward.is_some();
    if let Some((lorry, elems)) = inward {
        pieces.uploads = lorry.uploads(device, elems)?;
    }
    if let Some((lorry, elems)) = outward {
        pieces.downloads = lorry.downloads(device, elems)?;
    }
    let job = Job::new(pieces, 1, device.limit(0.0), Look::Nothing);
    // SAFETY: both lorries are borrowed by this function, and the device memory by its caller, longer
    // than the guard.
    let guard = unsafe { device.staging.submit(job) };
    guard.release(Kind::Upload, usize::MAX);
    guard.release(Kind::Download, usize::MAX);
    guard.wait_all()?;
    drop(guard);
    if uploads {
        settle(device)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Waits for every transfer that was queued.
fn settle(device: &Device) -> Result<(), Failure> {
    for event in device.staging.events() {
        let waited = device.cuda.wait(event, device.limit(0.0));
        waited.map_err(|e| device.health.note(&e))?;
    }
    Ok(())
}

/// The best of some runs.
fn best(runs: usize, mut run: impl FnMut() -> Result<f64, Failure>) -> Result<f64, Failure> {
    (0..runs).try_fold(f64::INFINITY, |least, _| run().map(|s| s.min(least)))
}

/// Rates of moving `bytes` bytes (at least 1 MiB) of ordinary memory.
pub fn transfers(device: &Device, bytes: usize) -> Result<TransferRates, Failure> {
    let elems = bytes.max(1 << 20) / ELEM_BYTES;
    let _entered = device.enter()?;
    let mut work = device.begin((elems * ELEM_BYTES) as u64, device.limit(0.0))?;
    let mut lorry = Lorry::new(elems, work.address())?;
    work.unsettle();
    // A download needs something that was uploaded, so the way in goes first.
    let mut run = |runs, inward: bool, elems| {
        best(runs, || {
            let load = Some((&mut lorry, elems));
            let (to, from) = if inward { (load, None) } else { (None, load) };
            haul(device, to, from)
        })
    };
    let in_s = run(TRANSFER_RUNS, true, elems)?;
    let out_s = run(TRANSFER_RUNS, false, elems)?;
    let in_latency_s = run(LATENCY_RUNS, true, 1)?;
    let out_latency_s = run(LATENCY_RUNS, false, 1)?;
    let latency_s = in_latency_s.max(out_latency_s);
    // Every transfer was waited for.
    work.settle();
    let moved = (elems * ELEM_BYTES) as f64;
    let rate = |s: f64| moved / (s - latency_s).max(s * 0.5);
    Ok(TransferRates {
        latency_s,
        in_bytes_per_s: rate(in_s),
        out_bytes_per_s: rate(out_s),
    })
}

/// Seconds of moving so many bytes (at least 1 MiB each) of ordinary memory in and out at the same time.
pub fn streams(device: &Device, (bytes_in, bytes_out): (usize, usize)) -> Result<f64, Failure> {
    let elems = [bytes_in, bytes_out].map(|bytes| bytes.max(1 << 20) / ELEM_BYTES);
    let [room_in, room_out] = elems.map(|elems| (elems * ELEM_BYTES) as u64);
    let _entered = device.enter()?;
    let mut work = device.begin(room_in + room_out, device.limit(0.0))?;
    let mut inward = Lorry::new(elems[0], work.address())?;
    let mut outward = Lorry::new(elems[1], work.address() + room_in)?;
    work.unsettle();
    haul(device, Some((&mut outward, elems[1])), None)?;
    let s = best(TRANSFER_RUNS, || {
        let (inward, outward) = ((&mut inward, elems[0]), (&mut outward, elems[1]));
        haul(device, Some(inward), Some(outward))
    })?;
    work.settle();
    Ok(s)
}

/// The kernel of a family without any option, and a program of its buffers.
fn example(op: Op, (m, n, k): (usize, usize, usize)) -> Option<(Kernel, Program)> {
    let place = |buffer| Place {
        buffer,
        row0: 0,
        col0: 0,
    };
    let buffers = |sizes: &[(usize, usize)]| {
        let buffer = |&(rows, cols): &(usize, usize)| Buffer::new(rows, cols);
        Program {
            buffers: sizes.iter().map(buffer).collect(),
            ..Program::default()
        }
    };
    let (alpha, beta) = (Scalar::ONE, Scalar::ZERO);
    let (side, uplo, trans) = (Side::L, Uplo::L, Trans::N);
    let (a, b, c) = (place(0), place(1), place(2));
    let hermitian = matches!(op, Op::Hemm | Op::Herk | Op::Her2k);
    Some(match op {
        Op::Gemm | Op::Gemm3m | Op::Gemmt | Op::Gemmtr => (
            Kernel::Gemm {
                trans: (trans, trans),
                size: (m, n, k),
                alpha,
                a,
                b,
                beta,
                c,
            },
            buffers(&[(m, k), (k, n), (m, n)]),
        ),
        Op::Symm | Op::Hemm => (
            Kernel::Symm {
                hermitian,
                side,
                uplo,
                size: (m, n),
                alpha,
                a,
                b,
                beta,
                c,
            },
            buffers(&[(m, m), (m, n), (m, n)]),
        ),
        Op::Syrk | Op::Herk => (
            Kernel::Syrk {
                hermitian,
                uplo,
                trans,
                size: (n, k),
                alpha,
                a,
                beta,
                c: place(1),
            },
            buffers(&[(n, k), (n, n)]),
        ),
        Op::Syr2k | Op::Her2k => (
            Kernel::Syr2k {
                hermitian,
                uplo,
                trans,
                size: (n, k),
                alpha,
                a,
                b,
                beta,
                c,
            },
            buffers(&[(n, k), (n, k), (n, n)]),
        ),
        Op::Trmm => (
            Kernel::Trmm {
                side,
                uplo,
                trans,
                diag: Diag::U,
                size: (m, n),
                alpha,
                a,
                b,
                c,
            },
            buffers(&[(m, m), (m, n), (m, n)]),
        ),
        Op::Trsm => (
            Kernel::Trsm {
                side,
                uplo,
                trans,
                diag: Diag::U,
                size: (m, n),
                alpha,
                a,
                b,
            },
            buffers(&[(m, m), (m, n)]),
        ),
        _ => return None,
    })
}

/// Seconds of one kernel on operands that are on the device.
pub fn kernel(
    device: &Device,
    op: Op,
    precision: Precision,
    size: (usize, usize, usize),
    arithmetic: Arithmetic,
    repeat: u32,
) -> Result<f64, Failure> {
    let none = || Failure::Unsupported("not a level-3 family");
    let (kernel, program) = example(op, size).ok_or_else(none)?;
    let elem_bytes = precision.elem_bytes();
    let workspace_bytes = device.workspace_bytes();
    let total = workspace_bytes.saturating_add(program.bytes(elem_bytes));
    let flops = 8.0 * size.0 as f64 * size.1 as f64 * size.2.max(size.0).max(1) as f64;
    let limit = device.limit(flops);
    let _entered = device.enter()?;
    let mut work = device.begin(total, limit)?;
    let first = work.address();
    let matrices = place(&program, first + workspace_bytes, elem_bytes);
    work.unsettle();
    fill(device, first + workspace_bytes, total - workspace_bytes)?;
    let (cuda, note) = (&device.cuda, |e| device.health.note(&e));
    let handle = &work.lane().handle;
    // SAFETY: the workspace is part of the block, which outlives the queued work (`Work::drop`).
    unsafe { cuda.set_workspace(handle, first, workspace_bytes as usize) }.map_err(note)?;
    let pedantic = cuda
        .set_arithmetic(handle, precision, arithmetic)
        .map_err(note)?;
    let kernel = DeviceKernel {
        precision,
        kernel: &kernel,
        matrices: &matrices,
        pedantic,
    };
    once(device, &mut work, &kernel, limit)?;
    let runs = repeat.max(1) as usize;
    let least = best(runs, || once(device, &mut work, &kernel, limit))?;
    work.settle();
    Ok(least)
}

fn once(
    device: &Device,
    work: &mut Work<'_>,
    kernel: &DeviceKernel<'_>,
    limit: std::time::Duration,
) -> Result<f64, Failure> {
    let (cuda, note) = (&device.cuda, |e| device.health.note(&e));
    let (begin, end) = work.mark(0).map_err(note)?;
    let lane = work.lane();
    cuda.record(begin, lane.stream).map_err(note)?;
    // SAFETY: the block has room for the operands and outlives the work.
    unsafe { cuda.kernel(&lane.handle, kernel) }.map_err(note)?;
    cuda.record(end, lane.stream).map_err(note)?;
    cuda.wait(end, limit).map_err(note)?;
    cuda.elapsed_s(begin, end).map_err(note)
}

/// Fills device memory with numbers of [2^-14, 2^-13) in either precision. Zeros and NaN draw less power,
/// and the clock under load is part of what is measured; numbers this small keep a triangular solve with a
/// unit diagonal bounded.
fn fill(device: &Device, address: u64, bytes: u64) -> Result<(), Failure> {
    const ELEMS: usize = 64 << 10;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let host: Vec<u64> = (0..ELEMS)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Exponent bits of both halves stay those of numbers in [2^-14, 2^-13).
            (state & 0x000f_ffff_007f_ffff) | 0x3f10_0000_3880_0000
        })
        .collect();
    let elems = (bytes / 8) as usize;
    // SAFETY: `host` holds ELEMS elements of 8 bytes and outlives the job, which ends below.
    let from = unsafe { MatRef::new(host.as_ptr().cast(), ELEMS, 1, ELEMS, 8) };
    let from = from.ok_or_else(no_memory)?;
    let piece_elems = device.staging.piece_bytes(usize::MAX).min(8 * ELEMS) / 8;
    let uploads = (0..elems)
        .step_by(piece_elems)
        .map(|start| Upload {
            step: 0,
            from,
            rectangle: Rectangle {
                row0: 0,
                rows: piece_elems.min(elems - start),
                col0: 0,
                cols: 1,
            },
            area: Area::Full,
            to: address + (start * 8) as u64,
            ld_bytes: 8,
            gap_free: false,
            keep: None,
        })
        .collect();
    let pieces = Pieces {
        uploads,
        ..Pieces::default()
    };
    let job = Job::new(pieces, 1, device.limit(0.0), Look::Nothing);
    // SAFETY: host memory and block outlive the guard, which is dropped below.
    let guard = unsafe { device.staging.submit(job) };
    guard.release(Kind::Upload, usize::MAX);
    guard.wait_all()?;
    drop(guard);
    settle(device)
}
