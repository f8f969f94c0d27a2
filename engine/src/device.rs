//! The CUDA device behind the engine: options from settings, profile for what was found.

use crate::config::{Mode, Settings};
use crate::engine::{Setup, Starter};
use crate::machine;
use crate::start::{Device, StartFailure};
use cost_model::{CpuFacts, Fingerprint, GpuFacts, Profile, Transfers};
use gpu_backend::{DeviceInfo, Gpu, StartError, StartOptions, TransferRates};

/// Bytes of the transfer probe where no profile exists: 64 MiB each way take about 3 ms on PCIe 5 and
/// are long enough for the rate, not the latency, to be measured.
const PROBE_BYTES: usize = 64 << 20;

/// Options of the backend from settings.
pub fn start_options(settings: &Settings) -> StartOptions {
    StartOptions {
        device: settings.device(),
        memory_limit_bytes: settings.memory_limit_bytes,
        library_dirs: settings.library_dirs.clone(),
        ..StartOptions::default()
    }
}

/// Puts the GPU's part into a fingerprint.
pub fn complete(fingerprint: &mut Fingerprint, info: &DeviceInfo) {
    fingerprint.gpu_name = info.name.clone();
    fingerprint.gpu_uuid = info.uuid.clone();
    fingerprint.driver = info.driver_version.to_string();
    fingerprint.gpu_libraries = vec![format!("cublas {}", info.cublas_version)];
}

/// Measured rates as the cost model takes them. Fresh pages are not measured here.
pub fn transfers(rates: &TransferRates) -> Transfers {
    Transfers {
        latency_s: rates.latency_s,
        in_bytes_per_s: rates.in_bytes_per_s,
        out_bytes_per_s: rates.out_bytes_per_s,
        fresh_bytes_per_s: 0.0,
    }
}

/// Transfer rates where no profile exists. A probe differs a little each time, which a deterministic run
/// must not, and who forces the GPU predicts nothing: they get zeros, for which the estimate takes its own
/// cautious figures.
pub fn probe_transfers(gpu: &Gpu, settings: &Settings) -> Transfers {
    let measured = match settings.mode {
        Mode::Deterministic | Mode::Force | Mode::Verify => None,
        _ => gpu.measure_transfers(PROBE_BYTES).ok(),
    };
    measured.map_or(
        Transfers {
            latency_s: 0.0,
            in_bytes_per_s: 0.0,
            out_bytes_per_s: 0.0,
            fresh_bytes_per_s: 0.0,
        },
        |rates| transfers(&rates),
    )
}

/// A GPU driven by CUDA.
pub struct Cuda;

impl Starter for Cuda {
    fn start(&self, setup: &Setup) -> Result<Device, StartFailure> {
        let gpu = Gpu::start(&start_options(&setup.settings)).map_err(|e| StartFailure {
            quiet: matches!(
                e,
                StartError::NoDriver { .. }
                    | StartError::NoDevice { count: 0, .. }
                    | StartError::Forked
            ),
            line: e.to_string(),
        })?;
        let mut fingerprint = setup.fingerprint.clone();
        complete(&mut fingerprint, gpu.info());
        let name = gpu.info().name.clone();
        let mut complaints = Vec::new();
        let mut profile = None;
        if let Some((found, source)) = &setup.profile {
            match found.difference(&fingerprint) {
                None => profile = Some((found.clone(), source.clone())),
                Some(difference) => complaints.push(machine::foreign(source, &difference)),
            }
        }
        let (profile, profile_source) = profile.unwrap_or_else(|| {
            let rates = probe_transfers(&gpu, &setup.settings);
            let info = gpu.info();
            let facts = GpuFacts {
                compute_capability: info.compute_capability,
                sm_count: info.sm_count,
                clock_khz: info.clock_khz,
            };
            let cpu = CpuFacts {
                threads: setup.cpu_threads,
            };
            (
                Profile::estimate(fingerprint, &facts, rates, &cpu),
                "estimate".to_owned(),
            )
        });
        Ok(Device {
            backend: Box::new(gpu),
            name,
            profile,
            profile_source,
            complaints,
        })
    }
}
