//! A profile without a calibration: from device properties, a transfer probe and the CPU's threads.
//!
//! Every guess here leans to the CPU's side: it is credited with more than it usually reaches, the GPU
//! with less.

use crate::profile::{
    Fingerprint, Measurements, Overheads, Profile, Sample, Side, TransferTimes, Transfers,
};
use routines::Precision;

/// What is known of a GPU without measuring its kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuFacts {
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub sm_count: u32,
    /// Peak clock.
    pub clock_khz: u32,
}

/// What is known of the CPU without measuring its kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuFacts {
    /// Threads the CPU library uses.
    pub threads: u32,
}

/// Multiply-adds per second of one CPU thread in float64 matrix products: 20e9 (40 GFLOP/s). A Xeon
/// with AVX-512 reached 37 GFLOP/s a thread (OpenBLAS 0.3.34, 16 threads, n = 8192, 2026-12-01); 40
/// favours the CPU.
const CPU_F64_MADDS_PER_S: f64 = 20e9;

/// Share of its peak that a GPU's matrix product is credited with. cuBLAS reached 64.5 of 67 TFLOP/s on
/// an H200 at n = 8192 and less below (2026-12-01); half leaves room for mid sizes.
const GPU_EFFICIENCY: f64 = 0.5;

/// Fixed time of a matrix product on the device: launch and tail. 60 microseconds at n = 1024 were
/// measured on an H200 (2026-12-01), of which arithmetic is 32.
const GPU_LAUNCH_S: f64 = 30e-6;

/// Fixed time of one offloaded call where nobody has measured it. On the H200 machine (2026-12-01) calls
/// of n = 1024 and 2048 took 0.8 and 1.5 ms longer than their bytes at full rate and their kernels: the
/// copying threads have to wake, and few megabytes do not fill their pipeline.
const CALL_S: f64 = 1e-3;

/// Time until a GPU is ready where nobody has measured it: 0.39 s in a C program and 0.6 beside an OpenBLAS that
/// computes on all processors (H200, 2026-12-02).
const START_S: f64 = 0.6;

/// Page faults of fresh result pages by four threads with 4 KiB pages, H200 machine, 2026-12-01.
pub const FRESH_BYTES_PER_S: f64 = 10e9;

/// Fixed time of one transfer where none was measured (10 microseconds on the H200 machine, 2026-12-01).
const PRIOR_LATENCY_S: f64 = 10e-6;

/// Rate of transfers where none was measured: what PCIe 3 x16 gives in practice.
const PRIOR_BYTES_PER_S: f64 = 10e9;

/// Works at which the estimated curves get a point; between them they are exact anyway.
const EDGES: [u64; 6] = [64, 256, 1024, 4096, 16384, 65536];

/// Multiply-adds per clock and multiprocessor: (float32, float64).
///
/// # Source
/// CUDA C++ Programming Guide 12 and 13, "Arithmetic Instructions"; float64 on 8.0, 9.0 and 10.0 by
/// tensor cores (vendor's data sheets).
fn madds_per_clock(cc: (u32, u32)) -> (f64, f64) {
    match cc {
        (6, 0) => (64.0, 32.0),
        (7, 0 | 2) => (64.0, 32.0),
        (7, _) => (64.0, 2.0),
        (8, 0) => (64.0, 64.0),
        (9, 0) => (128.0, 128.0),
        (10, 0) => (128.0, 64.0),
        (5 | 6, _) => (128.0, 4.0),
        // Workstation and consumer chips: 8.6, 8.9, 10.3, 12.x and whatever comes.
        _ => (128.0, 2.0),
    }
}

impl Profile {
    /// A profile for a machine that nobody has calibrated, once its GPU is known.
    pub fn estimate(
        fingerprint: Fingerprint,
        gpu: &GpuFacts,
        transfers: Transfers,
        cpu: &CpuFacts,
    ) -> Profile {
        let (s_madds, d_madds) = madds_per_clock(gpu.compute_capability);
        let clocks_per_s = f64::from(gpu.sm_count.max(1)) * f64::from(gpu.clock_khz.max(1)) * 1e3;
        Self::from_rates(
            fingerprint,
            transfers,
            cpu,
            [s_madds, d_madds].map(|madds| madds * clocks_per_s * GPU_EFFICIENCY),
        )
    }

    /// A profile for a machine whose GPU is not known yet: a mid-range device behind PCIe 3. It only
    /// serves to decide whether starting the GPU may pay; the real device is judged afterwards.
    pub fn prior(fingerprint: Fingerprint, cpu: &CpuFacts) -> Profile {
        let transfers = Transfers {
            latency_s: PRIOR_LATENCY_S,
            in_bytes_per_s: PRIOR_BYTES_PER_S,
            out_bytes_per_s: PRIOR_BYTES_PER_S,
            fresh_bytes_per_s: FRESH_BYTES_PER_S,
        };
        // 10 TFLOP/s in float32, 5 in float64.
        Self::from_rates(fingerprint, transfers, cpu, [5e12, 2.5e12])
    }

    fn from_rates(
        fingerprint: Fingerprint,
        mut transfers: Transfers,
        cpu: &CpuFacts,
        gpu_madds_per_s: [f64; 2],
    ) -> Profile {
        // A probe that failed in part (zero, infinite) falls back to the prior's figures.
        for (value, fallback) in [
            (&mut transfers.latency_s, PRIOR_LATENCY_S),
            (&mut transfers.in_bytes_per_s, PRIOR_BYTES_PER_S),
            (&mut transfers.out_bytes_per_s, PRIOR_BYTES_PER_S),
            (&mut transfers.fresh_bytes_per_s, FRESH_BYTES_PER_S),
        ] {
            if !(value.is_finite() && *value > 0.0) {
                *value = fallback;
            }
        }
        let threads = f64::from(cpu.threads.max(1));
        let cpu_rates = [2.0, 1.0].map(|factor| CPU_F64_MADDS_PER_S * factor * threads);
        let side = |rates: [f64; 2], fixed_s: f64| {
            let mut side = Side::default();
            for (precision, rate) in [(Precision::S, rates[0]), (Precision::D, rates[1])] {
                side.set(
                    precision,
                    EDGES
                        .map(|edge| {
                            let work = (edge as f64).powi(3);
                            Sample(edge, edge, edge, work / rate + fixed_s)
                        })
                        .to_vec(),
                );
            }
            side
        };
        let measurements = Measurements {
            fingerprint,
            cpu_threads: cpu.threads,
            transfers,
            transfer_times: TransferTimes::default(),
            overheads: Overheads {
                call_s: CALL_S,
                start_s: START_S,
                overlap: 0.0,
            },
            cpu: side(cpu_rates, 0.0),
            gpu: side(gpu_madds_per_s, GPU_LAUNCH_S),
        };
        Profile::build(measurements)
    }
}
