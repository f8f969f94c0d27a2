//! The calling thread's part of a call: releases uploads, launches kernels, sees them end, releases
//! downloads.
//!
//! Unsafe lives here because kernels are launched on device memory. Every order that a program asks for
//! is made here; nothing here moves a byte or knows a family.

use crate::device::{Device, STEPS_IN_FLIGHT, Work};
use crate::kernel::{DeviceKernel, OnDevice};
use crate::plan::program::Kernel;
use crate::plan::program::Program;
use crate::result::{ASK_PAUSE, DeviceAddress, pause};
use crate::solver::{Solver, Workspace};
use crate::staging::job::{JobGuard, Kind};
use crate::testing::{self, Gate};
use call::{Failure, Op, Precision, Timing};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The calling thread's part.
pub struct Driver<'a, 'd> {
    /// The device.
    pub device: &'d Device,
    /// What to do.
    pub program: &'a Program,
    /// Lane and memory.
    pub work: &'a mut Work<'d>,
    /// The pieces.
    pub guard: &'a JobGuard<'d>,
    /// The program's buffers.
    pub matrices: &'a [OnDevice],
    /// Element type.
    pub precision: Precision,
    /// The handle computes in pedantic mode.
    pub pedantic: bool,
    /// Upload and download pieces of the steps up to each one.
    pub ends: (Vec<usize>, Vec<usize>),
    /// What kernels of LAPACK need: cuSOLVER, and where their workspace is on the device.
    pub solver: Option<(&'a Solver, (DeviceAddress, Workspace))>,
    /// Steps whose kernels somebody waits for.
    pub awaited: Vec<bool>,
    /// The family, for the counters.
    pub op: Op,
    /// How long nothing may happen.
    pub limit: Duration,
    /// How far it is.
    pub at: Reached,
}

/// How far a call is: numbers of leading steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reached {
    /// Steps that may begin: their uploads are released.
    released: usize,
    /// Kernels launched.
    launched: usize,
    /// Kernels seen to have run.
    happened: usize,
    /// Downloads done as well.
    over: usize,
    /// Seconds of the kernels so far.
    compute_s: f64,
    /// When the last operand was on its way.
    uploaded_at: Option<Instant>,
}

impl Reached {
    /// This program of a call and the next one.
    pub fn and(self, next: Self) -> Self {
        Self {
            compute_s: self.compute_s + next.compute_s,
            uploaded_at: self.uploaded_at.or(next.uploaded_at),
            ..next
        }
    }

    /// What a call that began at `start` has cost until now, with its bytes in and out, and the seconds for which
    /// copies of the host's were waited for.
    pub fn timing(&self, start: Instant, (bytes_in, bytes_out): (u64, u64), copy_s: f64) -> Timing {
        let total = start.elapsed();
        let upload = self
            .uploaded_at
            .map_or(total, |at| at.duration_since(start));
        Timing {
            bytes_in,
            bytes_out,
            upload_s: upload.as_secs_f64(),
            compute_s: self.compute_s,
            download_s: total.saturating_sub(upload).as_secs_f64(),
            copy_s,
        }
    }
}

impl Driver<'_, '_> {
    /// Until every step is over.
    ///
    /// # Errors
    /// Any [`Failure`]; what was queued may still be running.
    pub fn drive(&mut self) -> Result<(), Failure> {
        let steps = self.program.steps.len();
        let mut progress = self.guard.progress()?;
        let mut moved_at = Instant::now();
        loop {
            if self.guard.changed_since(progress.version) {
                progress = self.guard.progress()?;
            }
            let before = self.at;
            self.at.over = self.at.happened.min(progress.downloaded);
            if self.at.over == steps {
                return Ok(());
            }
            if progress.uploaded == steps && self.at.uploaded_at.is_none() {
                self.at.uploaded_at = Some(Instant::now());
                self.guard.release(Kind::Keep, usize::MAX);
            }
            self.release_uploads(progress.downloaded);
            self.launch(progress.uploaded)?;
            self.look()?;
            if before != self.at {
                moved_at = Instant::now();
                continue;
            }
            let waited = moved_at.elapsed();
            if waited > self.limit {
                let seconds = waited.as_secs_f64();
                let text = format!("the GPU did not answer: nothing ended in {seconds:.0} s");
                return Err(self.device.health.lose(text));
            }
            if self.at.happened < self.at.launched {
                pause(ASK_PAUSE);
            } else {
                self.guard
                    .wait_change(progress.version, self.limit - waited);
            }
        }
    }

    /// True if nothing that must be over before the step is not.
    fn may_begin(&self, step: usize, downloaded: usize) -> bool {
        let Some(after) = self.program.steps.get(step).map(|s| s.after) else {
            return false;
        };
        after <= self.at.over
            || testing::left_out(Gate::BeginAfterSteps, || true)
            || testing::left_out(Gate::OverAfterDownloads, || after <= self.at.happened)
            || testing::left_out(Gate::OverAfterKernels, || after <= downloaded)
    }

    /// True if the step's kernels may be launched: it may begin, and its operands are on their way.
    fn may_launch(&self, step: usize, uploaded: usize) -> bool {
        let may_begin = step < self.at.released;
        let early = || may_begin && step >= uploaded;
        (may_begin && step < uploaded) || testing::left_out(Gate::KernelsAfterUploads, early)
    }

    fn release_uploads(&mut self, downloaded: usize) {
        let before = self.at.released;
        while self.may_begin(self.at.released, downloaded) {
            self.at.released += 1;
        }
        if self.at.released > before {
            let count = self.ends.0[self.at.released - 1];
            self.guard.release(Kind::Upload, count);
        }
    }

    /// Launches the kernels of every step whose operands are on their way.
    fn launch(&mut self, uploaded: usize) -> Result<(), Failure> {
        while self.at.launched - self.at.happened < STEPS_IN_FLIGHT
            && self.may_launch(self.at.launched, uploaded)
        {
            self.launch_step(self.at.launched)?;
            self.at.launched += 1;
        }
        Ok(())
    }

    fn launch_step(&mut self, step: usize) -> Result<(), Failure> {
        let device = self.device;
        let (cuda, note) = (&device.cuda, |e| device.health.note(&e));
        let (begin, end) = self.work.mark(step).map_err(note)?;
        let lane = self.work.lane();
        for event in device.staging.events_of(self.guard.slots_of(step)) {
            cuda.stream_wait(lane.stream, event).map_err(note)?;
        }
        cuda.record(begin, lane.stream).map_err(note)?;
        for kernel in &self.program.steps[step].kernels {
            let kernel = DeviceKernel {
                precision: self.precision,
                kernel,
                matrices: self.matrices,
                pedantic: self.pedantic,
            };
            let queued = match (self.solver, kernel.kernel) {
                (Some((solver, workspace)), Kernel::Solver(_)) => {
                    let lane = self.work.solver_lane(solver).map_err(note)?;
                    let handle = lane.solver.as_mut().expect("made by `solver_lane`");
                    // SAFETY: as below, and the workspace is the block's last part and the handle's own.
                    unsafe { solver.kernel(cuda, &lane.handle, handle, &kernel, workspace) }
                }
                _ => {
                    let lane = self.work.lane();
                    // SAFETY: the planner keeps every block inside its buffer, `place` gave each buffer
                    // its room, the stream waits for the uploads, and the block outlives the work.
                    unsafe { cuda.kernel(&lane.handle, &kernel) }
                }
            };
            queued.map_err(|e| device.health.note_blas(cuda, begin, &e))?;
        }
        let lane = self.work.lane();
        cuda.record(end, lane.stream).map_err(note)?;
        let kernels = self.program.steps[step].kernels.len() as u64;
        device
            .counts
            .of(self.op)
            .kernels
            .fetch_add(kernels, Ordering::Relaxed);
        Ok(())
    }

    /// The step in flight that is asked for: the first one for which something waits. The stream runs in
    /// order, so those before it have run when it has; every question takes the driver's lock.
    fn step_to_ask(&self) -> Option<usize> {
        let in_flight = self.at.happened..self.at.launched;
        let is_full = in_flight.len() == STEPS_IN_FLIGHT;
        let awaited = in_flight.clone().find(|&step| self.awaited[step]);
        awaited.or(in_flight.last().filter(|_| is_full))
    }

    /// Sees which steps' kernels have run, and releases their downloads.
    fn look(&mut self) -> Result<(), Failure> {
        let device = self.device;
        let before = self.at.happened;
        while let Some(step) = self.step_to_ask() {
            let note = |e| device.health.note(&e);
            let (_, end) = self.work.mark(step).map_err(note)?;
            let happened = device.cuda.happened(end).map_err(note)?;
            if !happened && !testing::left_out(Gate::DownloadsAfterKernels, || true) {
                break;
            }
            for step in self.at.happened..=step {
                let (begin, end) = self.work.mark(step).map_err(note)?;
                // A clock that does not answer costs a figure, not the call.
                self.at.compute_s += device.cuda.elapsed_s(begin, end).unwrap_or(0.0);
            }
            self.at.happened = step + 1;
        }
        if self.at.happened > before {
            let count = self.ends.1[self.at.happened - 1];
            self.guard.release(Kind::Download, count);
        }
        Ok(())
    }
}
