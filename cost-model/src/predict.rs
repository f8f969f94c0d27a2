//! Predicted time of one call on either side, term by term.

use crate::curve::{GemmCurves, LnSizes};
use crate::{Correction, Profile};
use routines::{Library, Op, Shape, family};

/// What holds at the moment of the call, besides its shape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Situation {
    /// Threads the CPU library would use; 0 means as many as the profile was measured with.
    pub cpu_threads: u32,
    /// What remains of the GPU's start-up; 0 when it is ready.
    pub startup_s: f64,
    /// Predicted time of the calls before this one on the GPU.
    pub queue_s: f64,
    /// Bytes of the inputs that are on the device already.
    pub resident_in_bytes: u64,
    /// Bytes of the output that no one has touched yet (page faults come on top of the copy).
    pub fresh_out_bytes: u64,
}

/// Predicted times of one call. The GPU's total is [`Prediction::gpu_s`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// The whole call on the CPU.
    pub cpu_s: f64,
    /// Waiting for the GPU to start.
    pub startup_s: f64,
    /// Waiting for other calls.
    pub queue_s: f64,
    /// Fixed cost of a call.
    pub latency_s: f64,
    /// Operands to the device.
    pub upload_s: f64,
    /// Kernels.
    pub compute_s: f64,
    /// Result to the host.
    pub download_s: f64,
    /// Page faults of a fresh result.
    pub fresh_s: f64,
    /// What upload and kernels hide of each other; subtracted.
    pub overlap_s: f64,
}

impl Prediction {
    /// No time at all.
    pub(crate) const ZERO: Self = Self {
        cpu_s: 0.0,
        startup_s: 0.0,
        queue_s: 0.0,
        latency_s: 0.0,
        upload_s: 0.0,
        compute_s: 0.0,
        download_s: 0.0,
        fresh_s: 0.0,
        overlap_s: 0.0,
    };

    /// The whole call on the GPU, waiting included.
    pub fn gpu_s(&self) -> f64 {
        self.startup_s + self.queue_s + self.busy_s()
    }

    /// The time that the call keeps the GPU busy.
    pub fn busy_s(&self) -> f64 {
        self.latency_s + self.upload_s + self.compute_s + self.download_s + self.fresh_s
            - self.overlap_s
    }

    /// The same with what has been learnt: waiting is not corrected.
    pub fn corrected(&self, by: &Correction) -> Self {
        Self {
            cpu_s: self.cpu_s * by.cpu,
            latency_s: self.latency_s * by.gpu,
            upload_s: self.upload_s * by.gpu,
            compute_s: self.compute_s * by.gpu,
            download_s: self.download_s * by.gpu,
            fresh_s: self.fresh_s * by.gpu,
            overlap_s: self.overlap_s * by.gpu,
            ..*self
        }
    }

    /// What the GPU would save if the call did not have to wait; not negative.
    pub fn saving_s(&self) -> f64 {
        (self.cpu_s - self.busy_s()).max(0.0)
    }
}

/// How CPU time grows when fewer threads than the profile's are in force: with this power of the
/// ratio. 1 would assume perfect scaling and overstate the CPU's time; OpenBLAS 0.3.29's dgemm on 16
/// cores of a Xeon loses about a third to it at mid sizes, which 0.75 allows for (16 threads against 1
/// count as 8 times). Conservative guess, 2026-12-01; calibration of thread counts is to replace it.
const FEWER_THREADS_EXPONENT: f64 = 0.75;

fn thread_factor(measured: u32, in_force: u32) -> f64 {
    if measured == 0 || in_force == 0 {
        return 1.0;
    }
    let ratio = f64::from(measured) / f64::from(in_force);
    if ratio >= 1.0 {
        ratio.powf(FEWER_THREADS_EXPONENT)
    } else {
        // More threads than measured: perfect scaling is the guess in the CPU's favour.
        ratio
    }
}

/// Time of a family's call over that of the matrix product of the same dimensions, on either side.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Factors {
    cpu: f64,
    gpu: f64,
}

/// What the GPU is charged for a family that has not been measured, over its share of the product's
/// work: 30 %. Guess in the CPU's favour, 2026-12-01, which credits the CPU with the full saving of
/// work; calibration of the families is to replace it.
const UNMEASURED: f64 = 1.3;

/// The factors of a family; `None` where no product stands for it.
fn factors(op: Op) -> Option<Factors> {
    let unmeasured = |share: f64| Factors {
        cpu: share,
        gpu: share * UNMEASURED,
    };
    Some(match op {
        Op::Gemm => Factors { cpu: 1.0, gpu: 1.0 },
        // Three real products instead of four; the GPU multiplies as in gemm.
        Op::Gemm3m => Factors {
            cpu: 0.75,
            gpu: 1.0,
        },
        Op::Symm | Op::Hemm | Op::Syr2k | Op::Her2k => unmeasured(1.0),
        Op::Gemmtr | Op::Gemmt | Op::Syrk | Op::Herk | Op::Trmm | Op::Trsm => unmeasured(0.5),
        _ => return None,
    })
}

/// A family's share of the work of the product of the same dimensions; `None` where no product stands for it.
pub(crate) fn share_of_product(op: Op) -> Option<f64> {
    factors(op).map(|f| f.cpu)
}

/// Predicted times of a call; `None` for a family without curves. Allocates nothing.
pub fn predict(profile: &Profile, shape: &Shape, situation: &Situation) -> Option<Prediction> {
    let lapack = family(shape.op).library == Library::Lapack;
    let (cpu_s, compute_s) = if lapack {
        profile.lapack_s(shape)?
    } else {
        level3_s(profile, shape)?
    };
    let t = profile.transfers();
    let o = profile.overheads();
    let (in_bytes, out_bytes) = shape.bytes();
    let in_bytes = (in_bytes - situation.resident_in_bytes as f64).max(0.0);
    let (upload_s, download_s) = profile.transfer_s(in_bytes, out_bytes);
    // Nothing of LAPACK's operands moves while its kernels run.
    let overlap = if lapack { 0.0 } else { o.overlap };
    let threads = thread_factor(profile.cpu_threads(), situation.cpu_threads);
    Some(Prediction {
        cpu_s: cpu_s * threads,
        startup_s: situation.startup_s,
        queue_s: situation.queue_s,
        latency_s: o.call_s,
        upload_s,
        compute_s,
        download_s,
        fresh_s: situation.fresh_out_bytes as f64 / t.fresh_bytes_per_s,
        overlap_s: overlap * upload_s.min(compute_s),
    })
}

/// Times of a level-3 call without copies: CPU and GPU.
fn level3_s(profile: &Profile, shape: &Shape) -> Option<(f64, f64)> {
    let factors = factors(shape.op)?;
    let Some(sizes) = LnSizes::of(shape.product().map(|size| size as f64)) else {
        return Some((0.0, 0.0));
    };
    let cpu = profile.cpu_curves(shape.precision);
    let gpu = profile.gpu_curves(shape.precision);
    let (own_cpu, own_gpu) = profile.family_curves(shape.op, shape.precision);
    let time_s = |own: Option<&GemmCurves>, product: &GemmCurves, factor: f64| match own {
        Some(own) => own.ln_time(&sizes).exp(),
        None => factor * product.ln_time(&sizes).exp(),
    };
    Some((
        time_s(own_cpu, cpu, factors.cpu),
        time_s(own_gpu, gpu, factors.gpu),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_scale_in_the_cpus_favour() {
        assert_eq!(thread_factor(16, 16), 1.0);
        assert_eq!(thread_factor(16, 0), 1.0);
        assert!((thread_factor(16, 1) - 8.0).abs() < 1e-12);
        assert_eq!(thread_factor(8, 16), 0.5);
    }
}
