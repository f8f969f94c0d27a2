//! The calling thread's part of a call: releases uploads, launches kernels, sees them end, releases
//! downloads.
//!
//! Unsafe lives here because kernels are launched on device memory. Every order that a program asks for
//! is made here; nothing here moves a byte or knows a family.

use crate::device::{Device, STEPS_IN_FLIGHT, Work};
use crate::kernel::{DeviceKernel, OnDevice};
use crate::plan::program::Program;
use crate::result::{ASK_PAUSE, pause};
use crate::staging::job::{JobGuard, Kind};
use crate::testing::{self, Gate};
use call::{Failure, Op, Precision};
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
    /// Uploads released.
    released: usize,
    /// Kernels launched.
    launched: usize,
    /// Kernels seen to have run.
    happened: usize,
    /// Downloads done as well.
    over: usize,
    /// Seconds of the kernels so far.
    pub compute_s: f64,
    /// When the last operand was on its way.
    pub uploaded_at: Option<Instant>,
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
            if progress.uploaded == steps {
                self.at.uploaded_at.get_or_insert_with(Instant::now);
            }
            self.release_uploads();
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
    fn may_begin(&self, step: usize, gate: Gate) -> bool {
        let Some(after) = self.program.steps.get(step).map(|s| s.after) else {
            return false;
        };
        let without_downloads = || after <= self.at.happened;
        after <= self.at.over
            || testing::left_out(gate, step, || true)
            || testing::left_out(Gate::StepsAfterDownloads, step, without_downloads)
    }

    /// True if the uploads of the first `uploaded` steps are all that the step waits for.
    fn has_operands(&self, step: usize, uploaded: usize) -> bool {
        step < uploaded || testing::left_out(Gate::KernelsAfterUploads, step, || true)
    }

    fn release_uploads(&mut self) {
        let before = self.at.released;
        while self.may_begin(self.at.released, Gate::UploadsAfterSteps) {
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
            && self.may_begin(self.at.launched, Gate::KernelsAfterSteps)
            && self.has_operands(self.at.launched, uploaded)
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
            // SAFETY: the planner keeps every block inside its buffer, `place` gave each buffer its
            // room, the stream waits for the uploads, and the block outlives the work.
            unsafe { cuda.kernel(&lane.handle, &kernel) }
                .map_err(|e| device.health.note_blas(cuda, begin, &e))?;
        }
        cuda.record(end, lane.stream).map_err(note)?;
        let kernels = self.program.steps[step].kernels.len() as u64;
        device
            .counts
            .of(self.op)
            .kernels
            .fetch_add(kernels, Ordering::Relaxed);
        Ok(())
    }

    /// Sees which steps' kernels have run, and releases their downloads.
    fn look(&mut self) -> Result<(), Failure> {
        let device = self.device;
        let before = self.at.happened;
        while self.at.happened < self.at.launched {
            let note = |e| device.health.note(&e);
            let (begin, end) = self.work.mark(self.at.happened).map_err(note)?;
            let happened = device.cuda.happened(end).map_err(note)?;
            let step = self.at.happened;
            if !happened && !testing::left_out(Gate::DownloadsAfterKernels, step, || true) {
                break;
            }
            // A clock that does not answer costs a figure, not the call.
            self.at.compute_s += device.cuda.elapsed_s(begin, end).unwrap_or(0.0);
            self.at.happened += 1;
        }
        if self.at.happened > before {
            let count = self.ends.1[self.at.happened - 1];
            self.guard.release(Kind::Download, count);
        }
        Ok(())
    }
}
