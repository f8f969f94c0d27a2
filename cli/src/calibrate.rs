//! `gpu-offload calibrate`: measures both sides and writes the machine profile.
//!
//! The CPU library is measured in a process of its own with the engine off, the GPU in this one. The
//! profile is written in one step at the end: an interrupted calibration leaves the old one.

use crate::prefix;
use anyhow::{Context, Result, anyhow, bail};
use cost_model::{
    FRESH_BYTES_PER_S, Fingerprint, Measurements, Overheads, Profile, Sample, Side, TransferSample,
    TransferTimes, Transfers,
};
use gpu_backend::{Arithmetic, Gpu};
use gpu_offload::measure::{CpuLibrary, time_device_gemm};
use gpu_offload::{config, device, machine, os};
use indicatif::{ProgressBar, ProgressStyle};
use routines::Precision;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Arguments of `calibrate`.
#[derive(clap::Args)]
pub struct Args {
    /// Measure matrix products only, in about 15 seconds (the only kind there is so far)
    #[arg(long)]
    quick: bool,
    /// Where to write the profile instead of the usual place
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The inner half of a calibration: print the CPU library's timings as JSON lines
    #[arg(long, hide = true, value_name = "LIBRARY")]
    measure_cpu: Option<PathBuf>,
    /// The inner part that starts the GPU as a new process does, and prints the seconds
    #[arg(long, hide = true)]
    measure_start: bool,
}

/// Edges of the cubes that are timed; the CPU stops earlier where it takes too long.
const CUBES: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Big edges and small dimensions of the thin products that are timed.
const THIN_EDGES: [usize; 3] = [512, 2048, 4096];
const THIN: [usize; 2] = [1, 16];

/// Time for repeating one CPU product: a hundred runs of those that an interrupt could spoil.
const CPU_BUDGET: Duration = Duration::from_millis(60);

/// A product that is expected to take longer than this is left out; the curve goes on at the rate of the
/// largest one that was timed. 16 cores of a Xeon do n = 4096 in float64 in 0.25 to 0.4 s (2026-12-01),
/// two cores of a laptop n = 2048 in 0.2 s; no GPU worth the name leaves anything out.
const LONGEST_S: f64 = 0.5;

/// Kernel runs of which the best counts.
const GPU_RUNS: u32 = 3;

/// Bytes of the transfer measurement: 20 ms each way on PCIe 3, long enough for a rate.
const TRANSFER_BYTES: usize = 256 << 20;

/// Edges at which whole calls are timed, with the number of runs: small ones vary more.
const WHOLE_CALLS: [(usize, usize); 7] = [
    (64, 9),
    (256, 9),
    (512, 9),
    (1024, 9),
    (2048, 7),
    (4096, 3),
    (8192, 2),
];

/// What `calibrate --measure-cpu` prints, one a line.
#[derive(Serialize, Deserialize)]
enum CpuLine {
    Library {
        config: String,
        threads: u32,
    },
    Sample {
        precision: char,
        m: usize,
        n: usize,
        k: usize,
        time_s: f64,
    },
}

/// m, n, k of the products that are timed in one precision, each shape from small to large.
fn shapes(precision: Precision) -> Vec<(usize, usize, usize)> {
    let mut shapes: Vec<_> = CUBES.iter().map(|n| (*n, *n, *n)).collect();
    // A complex thin product is memory traffic like a real one: not worth the user's time.
    if !precision.is_complex() {
        for thin in THIN {
            for edge in THIN_EDGES {
                shapes.extend([(thin, edge, edge), (edge, thin, edge), (edge, edge, thin)]);
            }
        }
    }
    shapes
}

/// Times the shapes of one precision, but for those that would take too long by the last cube's rate.
fn time_shapes(
    precision: Precision,
    mut time: impl FnMut((usize, usize, usize)) -> Result<f64>,
) -> Result<()> {
    let mut rate = f64::INFINITY;
    for (m, n, k) in shapes(precision) {
        let work = m as f64 * n as f64 * k as f64;
        if work / rate > LONGEST_S {
            continue;
        }
        let time_s = time((m, n, k))?;
        if m == n && n == k {
            rate = work / time_s;
        }
    }
    Ok(())
}

/// The inner half, in a process whose engine is off.
fn measure_cpu(path: &Path) -> Result<ExitCode> {
    if std::env::var_os("GPU_OFFLOAD").is_none_or(|v| v != "off") {
        bail!("--measure-cpu needs GPU_OFFLOAD=off; use `gpu-offload calibrate`");
    }
    let library = CpuLibrary::open(path).map_err(anyhow::Error::msg)?;
    let mut out = std::io::stdout();
    let mut print = |line: &CpuLine| -> Result<()> {
        writeln!(out, "{}", serde_json::to_string(line)?)?;
        Ok(out.flush()?)
    };
    print(&CpuLine::Library {
        config: library.config(),
        threads: library.threads(),
    })?;
    for precision in Precision::ALL {
        time_shapes(precision, |(m, n, k)| {
            let time_s = library
                .time_gemm(precision, m, n, k, CPU_BUDGET)
                .ok_or_else(|| anyhow!("a product of {m} x {n} x {k} is too big"))?;
            print(&CpuLine::Sample {
                precision: precision.letter(),
                m,
                n,
                k,
                time_s,
            })?;
            Ok(time_s)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the outer half learns of the CPU.
struct CpuResult {
    config: String,
    threads: u32,
    side: Side,
}

fn cpu_side(blas: &Path, progress: &ProgressBar) -> Result<CpuResult> {
    progress.set_message("CPU");
    let exe = std::env::current_exe().context("cannot find this program's own path")?;
    let mut child = Command::new(exe)
        .arg("calibrate")
        .arg("--measure-cpu")
        .arg(blas)
        .env("GPU_OFFLOAD", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the CPU measurement")?;
    let out = child
        .stdout
        .take()
        .context("the CPU measurement has no output")?;
    let mut library = None;
    let mut samples: Vec<(char, Sample)> = Vec::new();
    for line in BufReader::new(out).lines() {
        let line = line.context("the CPU measurement broke off")?;
        match serde_json::from_str(&line)
            .with_context(|| format!("the CPU measurement said {line:?}"))?
        {
            CpuLine::Library { config, threads } => library = Some((config, threads)),
            CpuLine::Sample {
                precision,
                m,
                n,
                k,
                time_s,
            } => {
                samples.push((precision, Sample(m as u64, n as u64, k as u64, time_s)));
                progress.inc(1);
            }
        }
    }
    let status = child.wait().context("the CPU measurement broke off")?;
    if !status.success() {
        bail!(
            "the CPU measurement of {} failed ({status}); accepted: gpu-offload's libblas.so.3",
            blas.display()
        );
    }
    let (config, threads) = library.context("the CPU measurement said nothing")?;
    let mut side = Side::default();
    for precision in Precision::ALL {
        let of_precision = samples.iter().filter(|(p, _)| *p == precision.letter());
        side.set(precision, of_precision.map(|(_, s)| *s).collect());
    }
    Ok(CpuResult {
        config,
        threads,
        side,
    })
}

/// Seconds that the start of the GPU takes in a new process, now that its libraries are in memory.
fn start_time() -> Result<f64> {
    let exe = std::env::current_exe().context("cannot find this program's own path")?;
    let output = Command::new(exe)
        .args(["calibrate", "--measure-start"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the measurement of the GPU's start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("the measurement of the GPU's start said {text:?}"))
}

/// What is learnt of the GPU.
struct GpuResult {
    transfers: Transfers,
    transfer_times: TransferTimes,
    overheads: Overheads,
    side: Side,
}

fn gpu_side(gpu: &Gpu, progress: &ProgressBar) -> Result<GpuResult> {
    progress.set_message("GPU");
    let failed = |what: &str, f: &dyn core::fmt::Display| anyhow!("measuring {what} failed: {f}");
    let rates = gpu
        .measure_transfers(TRANSFER_BYTES)
        .map_err(|f| failed("transfers", &f))?;
    let transfers = Transfers {
        fresh_bytes_per_s: FRESH_BYTES_PER_S,
        ..device::transfers(&rates)
    };
    let mut side = Side::default();
    for precision in Precision::ALL {
        let mut samples = Vec::new();
        time_shapes(precision, |(m, n, k)| {
            let time_s = gpu
                .measure_gemm_kernel(precision, (m, n, k), Arithmetic::Pinned, GPU_RUNS)
                .map_err(|f| failed("kernels", &f))?;
            samples.push(Sample(m as u64, n as u64, k as u64, time_s));
            progress.inc(1);
            Ok(time_s)
        })?;
        side.set(precision, samples);
    }
    let (transfer_times, overheads) = whole_calls(gpu, &side, progress)?;
    let overheads = Overheads {
        start_s: start_time()?,
        ..overheads
    };
    Ok(GpuResult {
        transfers,
        transfer_times,
        overheads,
        side,
    })
}

/// Transfers within whole calls in float64, and what those take beside their parts.
fn whole_calls(
    gpu: &Gpu,
    kernels: &Side,
    progress: &ProgressBar,
) -> Result<(TransferTimes, Overheads)> {
    let precision = Precision::D;
    let mut times = TransferTimes::default();
    let mut call_s = f64::INFINITY;
    let mut overlap = None;
    for (n, runs) in WHOLE_CALLS {
        let edge = n as u64;
        let cube = |s: &&Sample| (s.0, s.1, s.2) == (edge, edge, edge);
        let Some(kernel_s) = kernels.get(precision).iter().find(cube).map(|s| s.3) else {
            continue;
        };
        let (timing, whole_s) = time_device_gemm(gpu, precision, n, n, n, runs)
            .map_err(|f| anyhow!("measuring a whole call failed: {f}"))?;
        let (up, down) = (timing.upload_s.max(1e-9), timing.download_s.max(1e-9));
        times.to_device.push(TransferSample(timing.bytes_in, up));
        times
            .from_device
            .push(TransferSample(timing.bytes_out, down));
        // Kernels that are not hidden show beside the transfers; the largest call tells best.
        let beside_s = whole_s - up - down;
        call_s = call_s.min(beside_s);
        overlap = Some((1.0 - beside_s / kernel_s.min(up)).clamp(0.0, 1.0));
        progress.inc(1);
    }
    // Positive by definition; a microsecond where the transfers' times hold all of it.
    let call_s = if call_s.is_finite() {
        call_s.max(1e-6)
    } else {
        1e-6
    };
    Ok((
        times,
        Overheads {
            call_s,
            start_s: 0.0,
            overlap: overlap.unwrap_or(0.0),
        },
    ))
}

/// Writes `text` so that a reader sees the old file or the whole new one.
fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let dir = path
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let temporary = dir.join(format!(".profile.{}.tmp", os::pid()));
    let written = (|| -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            // Readable by all; a profile that others may write is not believed.
            .mode(0o644)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    written
        .inspect_err(|_| drop(std::fs::remove_file(&temporary)))
        .with_context(|| {
            format!(
                "{}: cannot be written; accepted: --output FILE in a writable directory",
                path.display()
            )
        })
}

/// Runs the calibration.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(library) = &args.measure_cpu {
        return measure_cpu(library);
    }
    let env = |name: &str| std::env::var_os(name);
    let blas = prefix::blas(&prefix::library_dir()?)?;
    let (settings, complaints) = config::load(&env, &config::config_files(&env));
    if args.measure_start {
        let start = Instant::now();
        Gpu::start(&device::start_options(&settings))?;
        crate::say!("{}", start.elapsed().as_secs_f64());
        return Ok(ExitCode::SUCCESS);
    }
    let began = Instant::now();
    if !args.quick {
        eprintln!("gpu-offload: only the quick calibration (matrix products) exists so far");
    }
    complaints
        .iter()
        .for_each(|line| eprintln!("gpu-offload: {line}"));
    let output = args
        .output
        .clone()
        .or_else(|| settings.profile.clone())
        .or_else(|| config::user_profile_file(&env))
        .context("there is no home directory to write the profile to; accepted: --output FILE")?;

    let gpu = Gpu::start(&device::start_options(&settings));

    let count: usize = Precision::ALL.into_iter().map(|p| shapes(p).len()).sum();
    let sides = if gpu.is_ok() {
        2 * count + WHOLE_CALLS.len()
    } else {
        count
    };
    let progress = ProgressBar::new(sides as u64).with_style(
        ProgressStyle::with_template("{msg:4} [{bar:40}] {pos}/{len}  {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut fingerprint = Fingerprint::default();
    let gpu_result = match &gpu {
        Ok(gpu) => {
            device::complete(&mut fingerprint, gpu.info());
            Some(gpu_side(gpu, &progress)?)
        }
        Err(_) => None,
    };
    let cpu = cpu_side(&blas, &progress)?;
    progress.finish_and_clear();
    let here = machine::fingerprint(cpu.config.clone());
    let fingerprint = Fingerprint {
        cpu_model: here.cpu_model,
        cpu_threads: here.cpu_threads,
        cpu_library: here.cpu_library,
        ..fingerprint
    };
    crate::say!(
        "{}, {} threads: {}",
        fingerprint.cpu_model,
        cpu.threads,
        rates(&cpu.side)
    );
    let result = match (gpu_result, gpu) {
        (Some(result), Ok(_)) => result,
        (_, Err(why)) => {
            crate::say!("no GPU: {why}");
            crate::say!(
                "only the CPU was measured; without a GPU no profile is needed and none is written"
            );
            return Ok(ExitCode::SUCCESS);
        }
        (None, Ok(_)) => bail!("the GPU was not measured"),
    };
    crate::say!("{}: {}", fingerprint.gpu_name, rates(&result.side));
    crate::say!(
        "transfers: {:.1} GB/s in, {:.1} GB/s out, {:.0} us; a start takes {:.2} s; {:.0} % of uploads \
         and kernels overlap",
        result.transfers.in_bytes_per_s / 1e9,
        result.transfers.out_bytes_per_s / 1e9,
        result.transfers.latency_s * 1e6,
        result.overheads.start_s,
        result.overheads.overlap * 100.0,
    );
    let profile = Profile::new(Measurements {
        fingerprint,
        cpu_threads: cpu.threads,
        transfers: result.transfers,
        transfer_times: result.transfer_times,
        overheads: result.overheads,
        cpu: cpu.side,
        gpu: result.side,
    })
    .context("the measurements make no sense")?;
    write_atomically(&output, &profile.to_toml())?;
    crate::say!(
        "profile: {} ({:.1} s)",
        output.display(),
        began.elapsed().as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

/// The best rate of each precision, in GFLOP/s.
fn rates(side: &Side) -> String {
    let rate = |precision: Precision| {
        let flops = if precision.is_complex() { 8.0 } else { 2.0 };
        side.get(precision)
            .iter()
            .map(|s| flops * s.0 as f64 * s.1 as f64 * s.2 as f64 / s.3 / 1e9)
            .fold(0.0, f64::max)
    };
    let all = Precision::ALL.map(|p| format!("{}gemm {:.0}", p.letter(), rate(p)));
    format!("{} GFLOP/s", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_appears_whole_or_not_at_all() {
        let dir = std::env::temp_dir().join(format!("gpu-offload-calibrate-{}", os::pid()));
        let path = dir.join("a/profile.toml");
        write_atomically(&path, "old").expect("written");
        write_atomically(&path, "new").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(
            std::fs::read_dir(dir.join("a")).expect("there").count(),
            1,
            "no rest is left"
        );
        assert!(
            gpu_offload::files::read_trusted(&path).is_ok(),
            "the engine believes it"
        );
        let e = write_atomically(&path.join("below/a/file"), "x").expect_err("not a directory");
        assert!(format!("{e:#}").contains("cannot create"), "{e:#}");
        std::fs::remove_dir_all(&dir).expect("removable");
    }

    #[test]
    fn every_precision_has_cubes_and_the_real_ones_thin_shapes() {
        for p in Precision::ALL {
            assert_eq!(shapes(p).len(), if p.is_complex() { 8 } else { 8 + 18 });
        }
    }
}
