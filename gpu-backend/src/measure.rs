//! Measurements for calibration: transfers through the staging pool, kernels alone.
//!
//! Only what the device does is measured here; what the figures mean is the cost model's business.

use crate::TransferRates;
use crate::device::Device;
use crate::result::{Arithmetic, DeviceGemm};
use crate::staging::{Job, Piece, Rectangle, Work};
use crate::stream::{cut, cut_mut};
use call::{Failure, MatMut, MatRef, Precision, Scalar, Trans};
use parking_lot::Mutex;
use std::time::Instant;

/// Runs of each transfer; the best one counts.
const TRANSFER_RUNS: usize = 3;

/// Runs of the smallest transfer; more, since they are short and the first ones wake threads.
const LATENCY_RUNS: usize = 10;

/// Rates of moving `bytes` bytes (at least 1 MiB) of ordinary memory.
pub fn transfers(device: &Device, bytes: usize) -> Result<TransferRates, Failure> {
    const ELEM_BYTES: usize = 8;
    let elems = bytes.max(1 << 20) / ELEM_BYTES;
    let mut host: Vec<u64> = Vec::new();
    let none = || Failure::Device("the host has no memory for the measurement".into());
    host.try_reserve_exact(elems).map_err(|_| none())?;
    // Not zeros: pages of zeros could still be shared and untouched.
    host.resize(elems, 0x3fb9_9999_9999_999a);

    let _entered = device.enter()?;
    let mut work = device.begin((elems * ELEM_BYTES) as u64, device.limit(0.0))?;
    let address = work.address();
    work.unsettle();
    let run = |elems: usize, inward: bool, host: &mut [u64]| -> Result<f64, Failure> {
        let piece_bytes = device.staging.piece_bytes(elems * ELEM_BYTES);
        let pointer: *mut u8 = host.as_mut_ptr().cast();
        let start = Instant::now();
        let pieces: Vec<Piece> = if inward {
            // SAFETY: `host` holds `elems` initialised elements and outlives the job, which this
            // closure joins.
            let view = unsafe { MatRef::new(pointer, elems, 1, elems, ELEM_BYTES) };
            let view = view.ok_or_else(none)?;
            cut(elems, 1, ELEM_BYTES, elems * ELEM_BYTES, piece_bytes)
                .into_iter()
                .map(|rectangle| Work::Upload {
                    from: view,
                    rectangle,
                    to: address + (rectangle.row0 * ELEM_BYTES) as u64,
                    ld_bytes: rectangle.rows * ELEM_BYTES,
                })
                .map(|work| Piece { stage: 0, work })
                .collect()
        } else {
            // SAFETY: as above; the closure's `&mut` makes it the only view.
            let view = unsafe { MatMut::new(pointer, elems, 1, elems, ELEM_BYTES) };
            cut_mut(view.ok_or_else(none)?, elems * ELEM_BYTES, piece_bytes)
                .into_iter()
                .map(|(rectangle, to)| Work::Download {
                    from: address + (rectangle.row0 * ELEM_BYTES) as u64,
                    ld_bytes: rectangle.rows * ELEM_BYTES,
                    after: None,
                    to: Mutex::new(to),
                })
                .map(|work| Piece { stage: 0, work })
                .collect()
        };
        // SAFETY: host memory and block outlive the job, which is joined at once.
        let guard = unsafe {
            device
                .staging
                .submit(Job::new(pieces, 1, device.limit(0.0)))
        };
        guard.join()?;
        if inward {
            for event in device.staging.events() {
                device
                    .cuda
                    .wait(event, device.limit(0.0))
                    .map_err(|e| device.health.note(&e))?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    };
    let mut best = |elems: usize, inward: bool, runs: usize| -> Result<f64, Failure> {
        let mut least = f64::INFINITY;
        for _ in 0..runs {
            least = least.min(run(elems, inward, &mut host)?);
        }
        Ok(least)
    };
    // A download needs something that was uploaded, so the way in goes first.
    let in_s = best(elems, true, TRANSFER_RUNS)?;
    let out_s = best(elems, false, TRANSFER_RUNS)?;
    let latency_s = best(1, true, LATENCY_RUNS)?.max(best(1, false, LATENCY_RUNS)?);
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

/// Seconds of one gemm kernel on operands that are on the device.
pub fn gemm_kernel(
    device: &Device,
    precision: Precision,
    (m, n, k): (usize, usize, usize),
    arithmetic: Arithmetic,
    repeat: u32,
) -> Result<f64, Failure> {
    let elem_bytes = precision.elem_bytes();
    let bytes = |rows: usize, cols: usize| {
        ((rows as u64).saturating_mul(cols as u64)).saturating_mul(elem_bytes as u64)
    };
    let aligned = |bytes: u64| bytes.checked_next_multiple_of(256).unwrap_or(u64::MAX);
    let parts = [
        device.workspace_bytes(),
        bytes(m, k),
        bytes(k, n),
        bytes(m, n),
    ]
    .map(aligned);
    let total = parts
        .iter()
        .fold(0u64, |sum, &part| sum.saturating_add(part));
    let flops = 8.0 * m as f64 * n as f64 * k as f64;
    let limit = device.limit(flops);
    let _entered = device.enter()?;
    let mut work = device.begin(total, limit)?;
    let workspace = work.address();
    let a = workspace + parts[0];
    let b = a + parts[1];
    let c = b + parts[2];
    work.unsettle();
    fill(device, a, parts[1] + parts[2])?;
    let lane = work.lane();
    let (cuda, note) = (&device.cuda, |e| device.health.note(&e));
    // SAFETY: the workspace is part of the block, which outlives the queued work (`Work::drop`).
    unsafe { cuda.set_workspace(&lane.handle, workspace, parts[0] as usize) }.map_err(note)?;
    cuda.set_arithmetic(&lane.handle, arithmetic)
        .map_err(note)?;
    let gemm = DeviceGemm {
        precision,
        transa: Trans::N,
        transb: Trans::N,
        m,
        n,
        k,
        alpha: Scalar::ONE,
        beta: Scalar::ZERO,
        a: (a, m),
        b: (b, k),
        c: (c, m),
    };
    let (begin, end) = lane.marks[0];
    let once = || -> Result<f64, Failure> {
        cuda.record(begin, lane.stream).map_err(note)?;
        // SAFETY: the block has room for the three packed operands and outlives the work.
        unsafe { cuda.gemm(&lane.handle, &gemm, arithmetic) }.map_err(note)?;
        cuda.record(end, lane.stream).map_err(note)?;
        cuda.wait(end, limit).map_err(note)?;
        cuda.elapsed_s(begin, end).map_err(note)
    };
    let mut result = once();
    for run in 0..repeat.max(1) {
        let Ok(before) = result else { break };
        let least = if run == 0 { f64::INFINITY } else { before };
        result = once().map(|s| s.min(least));
    }
    // The handle goes back to the pool with its arithmetic pinned, whatever happened.
    let pinned = cuda.set_arithmetic(&lane.handle, Arithmetic::Pedantic);
    pinned.map_err(|e| device.health.lose(e.to_string()))?;
    result
}

/// Fills device memory with numbers of [0.5, 1) in either precision: zeros and NaN draw less power, and
/// the clock under load is part of what is measured.
fn fill(device: &Device, address: u64, bytes: u64) -> Result<(), Failure> {
    const ELEMS: usize = 16 << 10;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let host: Vec<u64> = (0..ELEMS)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Exponent bits of both halves stay those of numbers in [0.5, 1).
            (state & 0x000f_ffff_007f_ffff) | 0x3fe0_0000_3f00_0000
        })
        .collect();
    // SAFETY: `host` holds ELEMS elements of 8 bytes and outlives the job, which is joined below.
    let view = unsafe { MatRef::new(host.as_ptr().cast(), ELEMS, 1, ELEMS, 8) };
    let view = view.ok_or_else(|| Failure::Device("internal error: fill".into()))?;
    let elems = (bytes / 8) as usize;
    let pieces = (0..elems)
        .step_by(ELEMS)
        .map(|start| {
            let rows = ELEMS.min(elems - start);
            let rectangle = Rectangle {
                row0: 0,
                rows,
                col0: 0,
                cols: 1,
            };
            let to = address + (start * 8) as u64;
            let work = Work::Upload {
                from: view,
                rectangle,
                to,
                ld_bytes: rows * 8,
            };
            Piece { stage: 0, work }
        })
        .collect();
    // SAFETY: host memory and block outlive the job, which is joined at once.
    let guard = unsafe {
        device
            .staging
            .submit(Job::new(pieces, 1, device.limit(0.0)))
    };
    guard.join()?;
    for event in device.staging.events() {
        device
            .cuda
            .wait(event, device.limit(0.0))
            .map_err(|e| device.health.note(&e))?;
    }
    Ok(())
}
