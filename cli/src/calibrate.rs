//! `gpu-offload calibrate`: measures both sides and writes the machine profile.
//!
//! The CPU library is measured in a process of its own with the engine off, the GPU in this one. The
//! profile is written in one step at the end: an interrupted calibration leaves the old one.

mod cpu;
mod curves;
mod plot;

use crate::prefix;
use crate::units::seconds;
use anyhow::{Context, Result, anyhow, bail, ensure};
use cost_model::{
    FRESH_BYTES_PER_S, Measurements, Overheads, Profile, Sample, Side, TransferSample,
    TransferTimes, Transfers, WholeCall,
};
use cpu::Cpu;
use curves::{Bench, Curve, Effort, GpuTime, Measured, curves};
use gpu_backend::{Arithmetic, Gpu};
use gpu_offload::config::Settings;
use gpu_offload::learn::store;
use gpu_offload::measure::{Operands, Subject, Timed, time_device};
use gpu_offload::{config, device, machine, os};
use indicatif::{ProgressBar, ProgressStyle};
use routines::{Library, Op, Precision, family};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Arguments of `calibrate`.
#[derive(clap::Args)]
pub struct Args {
    /// In less than 15 seconds: matrix products, and what most programs use besides
    #[arg(long)]
    quick: bool,
    /// As long as it takes: every precision of every routine, sizes up to 8192
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Write the profile for all users, to /etc/gpu-offload/profile.toml
    #[arg(long, conflicts_with = "output")]
    system: bool,
    /// Where to write the profile instead of the usual place
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also draw both sides over the size, for each routine that was measured
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Draw this profile, and measure nothing
    #[arg(long, value_name = "FILE", requires = "plot", conflicts_with_all = ["quick", "full", "system", "output"])]
    from: Option<PathBuf>,
    /// Begin nothing new after this time
    #[arg(long, hide = true, value_name = "SECONDS")]
    budget_s: Option<f64>,
    /// The inner half of a calibration: answers requests for the CPU library's times
    #[arg(long, hide = true, value_name = "LIBRARY")]
    measure_cpu: Option<PathBuf>,
    /// The inner part that starts the GPU as a new process does, and prints the seconds
    #[arg(long, hide = true)]
    measure_start: bool,
}

/// 16 cores of a Xeon do dgemm n = 2048 in 0.03 to 0.13 s (2026-12-01), so a quick calibration has it.
const QUICK: Effort = Effort {
    longest_s: 0.15,
    most_n: 2048,
    refinements: 0,
    repeat_s: 0.015,
    anchors: false,
    all_precisions: false,
    main_only: true,
};

/// 1.5 s let syevd and gesdd be measured at n = 2048 on that machine, geev at 1024.
const USUAL: Effort = Effort {
    longest_s: 1.5,
    most_n: 4096,
    refinements: 1,
    repeat_s: 0.04,
    anchors: true,
    all_precisions: false,
    main_only: false,
};

const FULL: Effort = Effort {
    longest_s: 60.0,
    most_n: 8192,
    refinements: 2,
    repeat_s: 0.3,
    anchors: true,
    all_precisions: true,
    main_only: false,
};

/// Nothing is begun after these times, so that the whole takes less than 15 s and less than 2 minutes.
const QUICK_BUDGET_S: f64 = 10.0;
const USUAL_BUDGET_S: f64 = 100.0;

/// Edges of the cubes of gemm; the CPU stops earlier where it takes too long.
const CUBES: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Big edges and small dimensions of the thin products that are timed.
const THIN_EDGES: [usize; 3] = [512, 2048, 4096];
const THIN: [usize; 2] = [1, 16];

/// Panels of blocked algorithms lie between those and the cubes.
const THICKER: usize = 128;
const THICKER_EDGE: usize = 2048;

/// Cubes up to this edge are measured whatever the time: a profile needs one on each side.
const NEEDED_CUBE: usize = 128;

/// Kernel runs of which the best counts.
const GPU_RUNS: u32 = 3;

/// Time for repeating one whole call on the GPU.
const GPU_REPEAT: Duration = Duration::from_millis(20);

/// Bytes of the transfer measurement: 20 ms each way on PCIe 3, long enough for a rate.
const TRANSFER_BYTES: usize = 256 << 20;

/// Edges at which whole products are timed; the largest only where there is time for its memory.
const WHOLE_CALLS: [usize; 7] = [64, 256, 512, 1024, 2048, 4096, 8192];

/// OpenBLAS's threads spin for about 25 ms after a call; the GPU's own threads are not measured beside them.
const CALM: Duration = Duration::from_millis(30);

/// The same small measurement before and after may differ by this factor; a machine that does more is not
/// alone with us. Its middle half may spread by as much. Chosen: idle machines stay below a tenth.
const CANARY: f64 = 1.3;

/// Edge of the canary's product, and time for repeating it.
const CANARY_N: usize = 384;
const CANARY_S: f64 = 0.05;

fn gemm(precision: Precision, m: usize, n: usize, k: usize) -> Subject {
    Subject {
        op: Op::Gemm,
        precision,
        letters: [b'N', b'N', 0, 0],
        m,
        n,
        k,
    }
}

/// m, n, k of the products that are timed in one precision, each shape from small to large.
fn shapes(precision: Precision) -> Vec<(usize, usize, usize)> {
    let mut shapes: Vec<_> = CUBES.iter().map(|n| (*n, *n, *n)).collect();
    // Complex thin products are derived from real ones: not worth the user's time.
    if !precision.is_complex() {
        let mut thin = |thin, edge| {
            shapes.extend([(thin, edge, edge), (edge, thin, edge), (edge, edge, thin)]);
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

/// One calibration: both sides, what is left of the time, and what is to be said at its end.
struct Session<'a> {
    cpu: Cpu,
    gpu: Option<&'a Gpu>,
    effort: Effort,
    ends: Option<Instant>,
    progress: ProgressBar,
    /// The last measurement kept the CPU busy.
    cpu_spins: bool,
    /// Spreads of the CPU's times that came from several runs.
    spreads: Vec<f64>,
    notes: Vec<String>,
}

impl Bench for Session<'_> {
    fn cpu(&mut self, subject: &Subject) -> Result<f64> {
        self.cpu_spins = true;
        let timed = self.cpu.time(subject, self.effort.repeat_s)?;
        if timed.runs > 2 {
            self.spreads.push(timed.spread);
        }
        Ok(timed.median_s)
    }

    fn gpu(&mut self, subject: &Subject) -> Result<Option<GpuTime>> {
        let Some(gpu) = self.gpu else { return Ok(None) };
        if core::mem::take(&mut self.cpu_spins) {
            std::thread::sleep(CALM);
        }
        let Some(mut operands) = Operands::new(*subject) else {
            return Ok(None);
        };
        let (timing, whole) = match time_device(gpu, &mut operands, GPU_REPEAT) {
            Ok(times) => times,
            Err(call::Failure::Unsupported(_) | call::Failure::OutOfMemory { .. }) => {
                return Ok(None);
            }
            Err(failure) => bail!("the GPU: {failure}"),
        };
        let kernel_s = match family(subject.op).library {
            Library::Lapack => timing.compute_s,
            Library::Blas => kernel(gpu, subject)?,
        };
        Ok((kernel_s > 0.0).then_some(GpuTime {
            kernel_s,
            whole_s: whole.median_s,
        }))
    }

    fn left_s(&self) -> f64 {
        self.ends.map_or(f64::INFINITY, |ends| {
            ends.saturating_duration_since(Instant::now()).as_secs_f64()
        })
    }
}

fn kernel(gpu: &Gpu, s: &Subject) -> Result<f64> {
    let size = (s.m, s.n, s.k);
    gpu.measure_kernel(s.op, s.precision, size, Arithmetic::Pinned, GPU_RUNS)
        .map_err(|f| anyhow!("measuring kernels failed: {f}"))
}

impl Session<'_> {
    /// One precision of gemm on one side, but for what would take too long by the last cube's rate.
    fn products(
        &mut self,
        precision: Precision,
        mut time: impl FnMut(&mut Self, &Subject) -> Result<f64>,
    ) -> Result<Vec<Sample>> {
        let mut rate = f64::INFINITY;
        let mut samples = Vec::new();
        for (m, n, k) in shapes(precision) {
            self.progress.inc(1);
            let work = m as f64 * n as f64 * k as f64;
            let needed = m.max(n).max(k) <= NEEDED_CUBE;
            let too_long = work / rate > self.effort.longest_s.min(0.5 * self.left_s());
            if !needed && (too_long || self.left_s() == 0.0) {
                continue;
            }
            let time_s = time(self, &gemm(precision, m, n, k))?;
            samples.push(Sample(m as u64, n as u64, k as u64, time_s));
            if m == n && n == k {
                rate = work / time_s;
            }
        }
        Ok(samples)
    }

    /// The canary: one small product, many times.
    fn canary(&mut self) -> Result<Timed> {
        let subject = gemm(Precision::D, CANARY_N, CANARY_N, CANARY_N);
        self.cpu_spins = true;
        self.cpu.time(&subject, CANARY_S)
    }

    /// Every other family, in the order of its use.
    fn families(&mut self, cpu: &mut Side, gpu: &mut Side) {
        for curve in curves(self.effort.main_only) {
            self.progress.inc(1);
            let Some(key) = curve.key() else {
                continue;
            };
            self.progress.set_message(key.clone());
            if self.left_s() == 0.0 {
                self.notes
                    .push(format!("no time was left for {key} and what follows it"));
                return;
            }
            let first = match Measured::of(&curve, &self.effort.clone(), self) {
                Ok(first) if !first.is_empty() => first,
                Ok(_) => continue,
                Err(why) => {
                    self.notes.push(format!("{key} was not measured: {why:#}"));
                    continue;
                }
            };
            put(&curve, &first, cpu, gpu);
            if !self.effort.anchors {
                continue;
            }
            for precision in Precision::ALL {
                let named = family(curve.op).routine(precision).is_some();
                if precision == curve.precision || !named || self.left_s() == 0.0 {
                    continue;
                }
                if let Err(why) = self.another(&curve, &first, precision, cpu, gpu) {
                    self.notes.push(format!(
                        "{key} in precision {}: not measured: {why:#}",
                        precision.letter()
                    ));
                }
            }
        }
    }

    fn another(
        &mut self,
        curve: &Curve,
        first: &Measured,
        precision: Precision,
        cpu: &mut Side,
        gpu: &mut Side,
    ) -> Result<()> {
        let effort = self.effort;
        if effort.all_precisions {
            let own = Curve {
                precision,
                ..*curve
            };
            let found = Measured::of(&own, &effort, self)?;
            if !found.is_empty() {
                put(&own, &found, cpu, gpu);
            }
        } else if let Some((own, found)) = first.derived(curve, precision, &effort, self)? {
            put(&own, &found, cpu, gpu);
        }
        Ok(())
    }
}

fn put(curve: &Curve, measured: &Measured, cpu: &mut Side, gpu: &mut Side) {
    let (on_cpu, on_gpu) = measured.samples(curve);
    let mut keys: Vec<String> = curve.key().into_iter().collect();
    if curve.op == Op::Gemmtr {
        // gemmt is the same routine by its older name.
        keys.extend(family(Op::Gemmt).routine(curve.precision));
    }
    for key in keys {
        cpu.set_family(&key, on_cpu.clone());
        gpu.set_family(&key, on_gpu.clone());
    }
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

/// Transfers within whole calls in float64, and what those take beside their parts.
fn whole_calls(
    session: &mut Session<'_>,
    gpu: &Gpu,
    kernels: &Side,
) -> Result<(TransferTimes, Overheads)> {
    let precision = Precision::D;
    let mut times = TransferTimes::default();
    let mut calls = Vec::new();
    for n in WHOLE_CALLS {
        session.progress.inc(1);
        let edge = n as u64;
        let cube = |s: &&Sample| (s.0, s.1, s.2) == (edge, edge, edge);
        let kernel_s = kernels.get(precision).iter().find(cube).map(|s| s.3);
        // Three matrices of 8192 x 8192 take a second to make.
        let has_time = n <= NEEDED_CUBE || session.left_s() > n as f64 / 2000.0;
        let (Some(kernel_s), true) = (kernel_s, has_time) else {
            continue;
        };
        let operands = Operands::new(gemm(precision, n, n, n));
        let mut operands = operands.context("a product has operands")?;
        let (timing, whole) = time_device(gpu, &mut operands, GPU_REPEAT)
            .map_err(|f| anyhow!("measuring a whole call failed: {f}"))?;
        let (up, down) = (timing.upload_s.max(1e-9), timing.download_s.max(1e-9));
        times.to_device.push(TransferSample(timing.bytes_in, up));
        times
            .from_device
            .push(TransferSample(timing.bytes_out, down));
        calls.push(WholeCall {
            kernel_s,
            upload_s: up,
            download_s: down,
            whole_s: whole.median_s,
        });
    }
    Ok((times, Overheads::of(&calls, start_time()?)))
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

/// What the canary says of the machine: a line if it was not alone with us.
fn disturbed(before: &Timed, after: &Timed) -> Option<String> {
    let factor = (after.median_s / before.median_s).max(before.median_s / after.median_s);
    let spread = before.spread.max(after.spread);
    (factor > CANARY || spread > CANARY - 1.0).then(|| {
        format!(
            "the machine was busy: one small product took {} before and {} after, and up to {:.0} % more or less \
             within a moment; the profile is written, but calibrate again when the machine is idle",
            seconds(before.median_s),
            seconds(after.median_s),
            100.0 * spread
        )
    })
}

fn bar(steps: usize) -> ProgressBar {
    let template = "{msg:12} [{bar:36}] {elapsed} gone, about {eta} left";
    ProgressBar::new(steps as u64).with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// Where the profile goes.
fn output(args: &Args, settings: &Settings) -> Result<PathBuf> {
    let env = |name: &str| std::env::var_os(name);
    if args.system {
        return Ok(config::system_profile_file());
    }
    args.output
        .clone()
        .or_else(|| settings.profile.clone())
        .or_else(|| config::user_profile_file(&env))
        .context("there is no home directory to write the profile to; accepted: --output FILE")
}

/// Runs the calibration.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(library) = &args.measure_cpu {
        return cpu::serve(library);
    }
    if let (Some(from), Some(plot)) = (&args.from, &args.plot) {
        let profile = machine::read_profile(from).map_err(anyhow::Error::msg)?;
        plot::draw(plot, &profile)?;
        crate::say!("plot: {}", plot.display());
        return Ok(ExitCode::SUCCESS);
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
    complaints
        .iter()
        .for_each(|line| eprintln!("gpu-offload: {line}"));
    let output = output(args, &settings)?;
    let (effort, budget_s) = match (args.quick, args.full) {
        (true, _) => (QUICK, Some(QUICK_BUDGET_S)),
        (_, true) => (FULL, None),
        _ => (USUAL, Some(USUAL_BUDGET_S)),
    };
    let budget_s = args.budget_s.or(budget_s);
    if let Some(budget_s) = budget_s {
        ensure!(
            (0.0..1e9).contains(&budget_s),
            "--budget-s {budget_s}; accepted: seconds, 0 or more"
        );
    }

    let started = Gpu::start(&device::start_options(&settings));
    let gpu = started.as_ref().ok();
    let count: usize = Precision::ALL.into_iter().map(|p| shapes(p).len()).sum();
    let steps = match gpu {
        Some(_) => 2 * count + WHOLE_CALLS.len() + curves(effort.main_only).len(),
        None => count,
    };
    let mut session = Session {
        cpu: Cpu::start(&blas)?,
        gpu,
        // Without a GPU nothing is written: what the user sees are rates.
        effort: if gpu.is_some() { effort } else { QUICK },
        ends: budget_s.map(|s| began + Duration::from_secs_f64(s)),
        progress: bar(steps),
        cpu_spins: false,
        spreads: Vec::new(),
        notes: Vec::new(),
    };
    let before = session.canary()?;
    let (mut cpu_side, mut gpu_side) = (Side::default(), Side::default());
    for precision in [Precision::D, Precision::S, Precision::Z, Precision::C] {
        session
            .progress
            .set_message(format!("{}gemm", precision.letter()));
        if let Some(gpu) = gpu {
            let samples = session.products(precision, |_, s| kernel(gpu, s))?;
            gpu_side.set(precision, samples);
        }
        let samples = session.products(precision, Session::cpu)?;
        cpu_side.set(precision, samples);
    }
    let (Some(gpu), Ok(_)) = (gpu, &started) else {
        session.progress.finish_and_clear();
        crate::say!(
            "{}, {} threads: {}",
            machine::cpu_model(),
            session.cpu.threads,
            rates(&cpu_side)
        );
        if let Err(why) = &started {
            crate::say!("no GPU: {why}");
        }
        crate::say!(
            "only the CPU was measured; without a GPU no profile is needed and none is written"
        );
        return Ok(ExitCode::SUCCESS);
    };
    session.progress.set_message("transfers");
    std::thread::sleep(CALM);
    let rates_found = gpu
        .measure_transfers(TRANSFER_BYTES)
        .map_err(|f| anyhow!("measuring transfers failed: {f}"))?;
    let transfers = Transfers {
        fresh_bytes_per_s: FRESH_BYTES_PER_S,
        ..device::transfers(&rates_found)
    };
    let (transfer_times, overheads) = whole_calls(&mut session, gpu, &gpu_side)?;
    session.families(&mut cpu_side, &mut gpu_side);
    let after = session.canary()?;
    session.progress.finish_and_clear();

    let mut fingerprint = machine::fingerprint(session.cpu.config.clone());
    device::complete(&mut fingerprint, gpu.info());
    crate::say!(
        "{}, {} threads: {}",
        fingerprint.cpu_model,
        session.cpu.threads,
        rates(&cpu_side)
    );
    crate::say!("{}: {}", fingerprint.gpu_name, rates(&gpu_side));
    crate::say!(
        "transfers: {:.1} GB/s in, {:.1} GB/s out, {:.0} us; a start takes {:.2} s; {:.0} % of uploads \
         and kernels overlap",
        transfers.in_bytes_per_s / 1e9,
        transfers.out_bytes_per_s / 1e9,
        transfers.latency_s * 1e6,
        overheads.start_s,
        overheads.overlap * 100.0,
    );
    let spread = Timed::of(session.spreads.clone()).map_or(0.0, |t| t.median_s);
    crate::say!(
        "other routines: {}; repeated CPU calls spread by {:.1} % (median)",
        cpu_side.families().count(),
        100.0 * spread
    );
    for note in session
        .notes
        .iter()
        .cloned()
        .chain(disturbed(&before, &after))
    {
        eprintln!("gpu-offload: {note}");
    }
    let profile = Profile::new(Measurements {
        fingerprint,
        cpu_threads: session.cpu.threads,
        transfers,
        transfer_times,
        overheads,
        cpu: cpu_side,
        gpu: gpu_side,
    })
    .context("the measurements make no sense")?;
    write_atomically(&output, &profile.to_toml())?;
    // What was learnt corrects the old profile's times.
    if let Some(dir) = store::dir(&|name: &str| std::env::var_os(name)) {
        store::remove(&dir)
            .with_context(|| format!("{}: what was learnt cannot be removed", dir.display()))?;
    }
    crate::say!(
        "profile: {} ({:.1} s)",
        output.display(),
        began.elapsed().as_secs_f64()
    );
    if let Some(plot) = &args.plot {
        plot::draw(plot, &profile)?;
        crate::say!("plot: {}", plot.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The best rate of each precision, in GFLOP/s.
fn rates(side: &Side) -> String {
    let rate = |precision: Precision| {
        let flops = precision.flops_of_madd();
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
    use cost_model::{CpuFacts, Fingerprint};

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
    fn a_machine_that_is_not_idle_is_noticed() {
        let timed = |median_s: f64, spread: f64| Timed {
            median_s,
            spread,
            runs: 20,
        };
        assert_eq!(disturbed(&timed(1e-3, 0.05), &timed(1.1e-3, 0.1)), None);
        for (before, after) in [
            (timed(1e-3, 0.05), timed(2e-3, 0.05)),
            (timed(2e-3, 0.05), timed(1e-3, 0.05)),
            (timed(1e-3, 0.05), timed(1e-3, 0.8)),
        ] {
            let line = disturbed(&before, &after).expect("busy");
            assert!(line.contains("busy") && !line.contains('\n'), "{line}");
        }
    }

    /// Whether profiles of this version hold a routine.
    fn profiles_hold(key: &str) -> bool {
        let mut measurements = Profile::prior(Fingerprint::default(), &CpuFacts { threads: 1 })
            .measurements()
            .clone();
        let sample = vec![Sample(64, 64, 64, 1.0)];
        measurements.cpu.set_family(key, sample);
        Profile::new(measurements).is_ok()
    }

    #[test]
    fn profiles_hold_what_is_measured_and_nothing_unheard_of() {
        assert!(profiles_hold("dsyrk") && profiles_hold("zher2k"));
        assert!(!profiles_hold("dnothing"));
        for curve in curves(false) {
            let key = curve.key().expect("a name");
            assert!(profiles_hold(&key), "{key}");
        }
    }

    #[test]
    fn every_precision_has_cubes_and_the_real_ones_thin_shapes() {
        for p in Precision::ALL {
            let shapes = shapes(p);
            let edges = |thin| {
                shapes
                    .iter()
                    .filter(|s| s.0 == thin && s.1 == s.2 && s.1 > thin)
                    .count()
            };
            let expected = if p.is_complex() { [0; 3] } else { [3, 3, 1] };
            assert_eq!([1, 16, 128].map(edges), expected);
            // Thin in each of the three directions.
            assert_eq!(shapes.len(), 8 + 3 * expected.iter().sum::<usize>());
        }
    }
}
