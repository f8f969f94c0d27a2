//! Profiles of synthetic machines: as `gpu-offload calibrate` would make them, from the same shapes.

use super::machine::Machine;
use super::random::Random;
use super::workload::call;
use cost_model::{
    Fingerprint, Measurements, Overheads, Profile, Sample, Side, TransferSample, TransferTimes,
    Transfers, WholeCall,
};
use routines::{Op, Precision, family};

const CUBES: [u64; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// Edges of the cubes of the other families.
const FAMILY_CUBES: [u64; 4] = [128, 512, 1024, 2048];
const THIN_EDGES: [u64; 3] = [512, 2048, 4096];
const THIN: [u64; 2] = [1, 16];
const THICKER: u64 = 128;
const THICKER_EDGE: u64 = 2048;
const WHOLE_CALLS: [u64; 7] = [64, 256, 512, 1024, 2048, 4096, 8192];
const FRESH_BYTES_PER_S: f64 = 10e9;

/// How often something is timed; the median counts.
const RUNS: usize = 5;

fn shapes(precision: Precision) -> Vec<[u64; 3]> {
    let mut shapes: Vec<_> = CUBES.iter().map(|n| [*n; 3]).collect();
    if !precision.is_complex() {
        let mut thin = |thin, edge| {
            shapes.extend([[thin, edge, edge], [edge, thin, edge], [edge, edge, thin]]);
        };
        for small in THIN {
            for edge in THIN_EDGES {
                thin(small, edge);
            }
        }
        thin(THICKER, THICKER_EDGE);
    }
    shapes
}

/// The profile of a calibration while nothing else happens on the machine.
pub fn calibrated(machine: &Machine, random: &mut Random) -> Profile {
    scaled(machine, 1.0, 1.0, random)
}

/// A calibration whose CPU times and kernels are wrong by these factors, as they would be on other
/// hardware.
pub fn scaled(machine: &Machine, cpu_factor: f64, gpu_factor: f64, random: &mut Random) -> Profile {
    let moment = machine.quiet().moments(1, random)[0];
    let mut median = |true_s: f64| {
        let mut all = [(); RUNS].map(|()| true_s * machine.disturbance(random));
        all.sort_by(f64::total_cmp);
        all[RUNS / 2]
    };
    let (mut cpu, mut gpu) = (Side::default(), Side::default());
    for precision in Precision::ALL {
        let (mut on_cpu, mut on_gpu) = (Vec::new(), Vec::new());
        for [m, n, k] in shapes(precision) {
            let shape = call(Op::Gemm, precision, [m, n, k]);
            on_cpu.push(Sample(
                m,
                n,
                k,
                cpu_factor * median(machine.cpu_s(&shape, &moment)),
            ));
            on_gpu.push(Sample(
                m,
                n,
                k,
                gpu_factor * median(machine.gpu_s(&shape, &moment).kernel_s),
            ));
        }
        cpu.set(precision, on_cpu);
        gpu.set(precision, on_gpu);
    }
    for op in Op::LEVEL3.into_iter().filter(|op| *op != Op::Gemm) {
        for (precision, name) in family(op).routines() {
            let (mut on_cpu, mut on_gpu) = (Vec::new(), Vec::new());
            for n in FAMILY_CUBES {
                let shape = call(op, precision, [n; 3]);
                let cpu_s = cpu_factor * median(machine.cpu_s(&shape, &moment));
                let gpu_s = gpu_factor * median(machine.gpu_s(&shape, &moment).kernel_s);
                on_cpu.push(Sample(n, n, n, cpu_s));
                on_gpu.push(Sample(n, n, n, gpu_s));
            }
            cpu.set_family(&name, on_cpu);
            gpu.set_family(&name, on_gpu);
        }
    }
    let mut transfer_times = TransferTimes::default();
    let mut calls = Vec::new();
    for n in WHOLE_CALLS {
        let shape = call(Op::Gemm, Precision::D, [n; 3]);
        let parts = machine.gpu_s(&shape, &moment);
        let (up, down) = (median(parts.upload_s), median(parts.download_s));
        transfer_times
            .to_device
            .push(TransferSample(shape.bytes_in() as u64, gpu_factor * up));
        transfer_times
            .from_device
            .push(TransferSample(shape.bytes_out() as u64, gpu_factor * down));
        let kernel_s = median(parts.kernel_s);
        calls.push(WholeCall {
            kernel_s: gpu_factor * kernel_s,
            upload_s: gpu_factor * up,
            download_s: gpu_factor * down,
            whole_s: gpu_factor * median(parts.whole_s),
        });
    }
    Profile::new(Measurements {
        fingerprint: Fingerprint::default(),
        cpu_threads: machine.threads,
        transfers: Transfers {
            latency_s: 12e-6,
            in_bytes_per_s: 10e9,
            out_bytes_per_s: 10e9,
            fresh_bytes_per_s: FRESH_BYTES_PER_S,
        },
        transfer_times,
        overheads: Overheads::of(&calls, 1.0),
        cpu,
        gpu,
    })
    .expect("times of a machine are positive and finite")
}
