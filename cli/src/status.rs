//! `gpu-offload status`: what is installed, which GPU there is or why none, and where calls would go.
//!
//! Starts the GPU as a program's first heavy call would (about a second), so what it says holds.

use crate::install::known::{self, Kind, Known};
use crate::{doctor, prefix};
use anyhow::Result;
use core::fmt::Write as _;
use cost_model::{
    CpuFacts, GpuFacts, LearnedCounts, Level, Profile, Route, Situation, decide, threshold_work,
};
use gpu_backend::{Gpu, StartOptions, probe_libraries};
use gpu_offload::config::{self, Mode, Settings};
use gpu_offload::learn::store;
use gpu_offload::measure::CpuLibrary;
use gpu_offload::{device, files, machine};
use routines::{Op, Precision, Shape};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `status`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Everything that `status` says. The JSON form has these fields.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    library_dir: PathBuf,
    libraries: Vec<Library>,
    /// The CPU library's configuration string, or why it cannot be loaded.
    cpu_library: Outcome<String>,
    cpu_model: String,
    cpu_threads: Option<u32>,
    mode: &'static str,
    level: u8,
    config_files: Vec<ConfigFile>,
    /// Settings and profiles that were not understood.
    complaints: Vec<String>,
    /// The CUDA libraries found, or why they cannot be used.
    cuda_libraries: Outcome<Vec<CudaLibrary>>,
    gpu: Outcome<GpuReport>,
    /// Path of the profile, or "estimate"; absent without a GPU.
    profile: Option<String>,
    /// What was learnt of that profile; absent without a GPU and where nothing is learnt.
    learned: Option<LearnedReport>,
    routines: Vec<Routine>,
    /// Environments into which this user has installed.
    environments: Vec<Environment>,
    /// Heavy calls can go to the GPU.
    offloads: bool,
    /// The same in words.
    verdict: String,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<T> {
    Found(T),
    Missing(String),
}

#[derive(Serialize)]
struct Library {
    name: &'static str,
    holds: &'static str,
    present: bool,
}

#[derive(Serialize)]
struct Environment {
    #[serde(flatten)]
    known: Known,
    /// "intact", "gone", or what is to be done.
    state: String,
}

#[derive(Serialize)]
struct ConfigFile {
    path: PathBuf,
    /// "read", "absent", "out of reach" or "refused".
    state: &'static str,
}

#[derive(Serialize)]
struct LearnedReport {
    file: PathBuf,
    /// Routines, with their precision, and shapes that have corrections.
    routines: usize,
    shapes: usize,
    /// Why the file is not believed.
    refused: Option<String>,
    /// Why nothing can be saved there.
    not_written: Option<String>,
}

/// What programs have learnt of a profile.
fn learned(settings: &Settings, profile: &Profile, source: &str) -> Option<LearnedReport> {
    let dir = store::dir(&|name: &str| std::env::var_os(name)).filter(|_| settings.learns())?;
    let identity = store::identity(profile, source);
    let (entries, refused) = match store::read(&dir, identity) {
        Ok(entries) => (entries, None),
        Err(line) => (Vec::new(), Some(line)),
    };
    let counts = LearnedCounts::of(&entries);
    Some(LearnedReport {
        file: store::file(&dir, identity),
        routines: counts.routines,
        shapes: counts.shapes,
        refused,
        not_written: store::may_write(&dir).err(),
    })
}

#[derive(Serialize)]
struct CudaLibrary {
    name: String,
    path: PathBuf,
}

#[derive(Serialize)]
struct GpuReport {
    name: String,
    uuid: String,
    compute_capability: String,
    driver_cuda_version: u32,
    cublas_version: u32,
    memory_bytes: u64,
    free_bytes: Option<u64>,
}

/// Where the calls of one routine go.
#[derive(Serialize)]
struct Routine {
    name: String,
    /// Smallest n of a product of square matrices that goes to the GPU; absent where none does.
    from_n: Option<u64>,
    /// Calls with at most this many multiply-adds are not looked at; absent where none is.
    threshold_work: Option<u64>,
    /// Predicted times of n = 4096.
    predicted_cpu_s: f64,
    predicted_gpu_s: f64,
}

/// The edge at which predicted times are shown.
const SHOWN_N: u64 = 4096;

/// No square product above this is looked at.
const MOST_N: u64 = 65536;

fn square(precision: Precision, n: u64) -> Shape {
    Shape {
        op: Op::Gemm,
        precision,
        m: n,
        n,
        k: n,
        right: false,
        beta_zero: true,
        letters: [0; 4],
    }
}

fn routine(profile: &Profile, precision: Precision, level: Level) -> Routine {
    let decide = |n| decide(profile, &square(precision, n), &Situation::default(), level);
    // Times are monotone, their ratio need not be: look at every octave, then halve between.
    let octave = (4..=16)
        .map(|e| 1u64 << e)
        .take_while(|n| *n <= MOST_N)
        .find(|n| decide(*n).route == Route::Gpu);
    let from_n = octave.map(|mut high| {
        let mut low = high / 2;
        while high - low > 1 {
            let middle = low.midpoint(high);
            if decide(middle).route == Route::Gpu {
                high = middle
            } else {
                low = middle
            }
        }
        high
    });
    let shown = decide(SHOWN_N).prediction;
    Routine {
        name: format!("{}gemm", precision.letter()),
        from_n,
        threshold_work: Some(threshold_work(profile, Op::Gemm, precision, level))
            .filter(|w| *w < u64::MAX),
        predicted_cpu_s: shown.cpu_s,
        predicted_gpu_s: shown.gpu_s(),
    }
}

/// The environments that `install` knows, and how they are.
fn environments(complaints: &mut Vec<String>) -> Vec<Environment> {
    let all = known::all().unwrap_or_else(|why| {
        complaints.push(format!("{why:#}"));
        Vec::new()
    });
    let judged = all.into_iter().map(|known| {
        let state = if known.path.is_dir() {
            match doctor::trouble_of(&known) {
                Ok(advice) if advice.is_empty() => "intact".to_owned(),
                Ok(advice) => advice.join("; "),
                Err(why) => format!("{why:#}"),
            }
        } else {
            "gone".to_owned()
        };
        Environment { known, state }
    });
    judged.collect()
}

fn collect() -> Result<Report> {
    let library_dir = prefix::library_dir()?;
    let env = |name: &str| std::env::var_os(name);
    let config_paths = config::config_files(&env);
    let (settings, mut complaints) = config::load(&env, &config_paths);
    let config_files = config_paths
        .into_iter()
        .map(|path| {
            let state = match files::read_trusted(&path) {
                Ok(_) => "read",
                Err(files::ReadError::Absent) => "absent",
                Err(files::ReadError::OutOfReach(_)) => "out of reach",
                Err(files::ReadError::Refused(_)) => "refused",
            };
            ConfigFile { path, state }
        })
        .collect();
    let libraries: Vec<Library> = prefix::LIBRARIES
        .into_iter()
        .map(|(name, holds)| Library {
            name,
            holds,
            present: library_dir.join(name).exists(),
        })
        .collect();
    let opened = prefix::blas(&library_dir)
        .map_err(|e| e.to_string())
        .and_then(|path| CpuLibrary::open(&path));
    let (cpu_library, cpu_threads) = match opened {
        Ok(library) => (Outcome::Found(library.config()), Some(library.threads())),
        Err(why) => (Outcome::Missing(why), None),
    };
    let options = device::start_options(&settings);
    let cuda_libraries = match probe_libraries(&options) {
        Ok(found) => Outcome::Found(
            found
                .into_iter()
                .map(|(name, path)| CudaLibrary { name, path })
                .collect(),
        ),
        Err(why) => Outcome::Missing(why.to_string()),
    };
    let mut profile_source = None;
    let mut learned_report = None;
    let mut routines = Vec::new();
    let gpu = match start(&options) {
        Ok((gpu, report)) => {
            let config = match &cpu_library {
                Outcome::Found(config) => config.clone(),
                Outcome::Missing(_) => String::new(),
            };
            let (profile, source) = judge(
                &gpu,
                &settings,
                config,
                cpu_threads.unwrap_or(1),
                &mut complaints,
            );
            routines = Precision::ALL
                .map(|p| routine(&profile, p, settings.level))
                .into_iter()
                .collect();
            learned_report = learned(&settings, &profile, &source);
            profile_source = Some(source);
            Outcome::Found(report)
        }
        Err(why) => Outcome::Missing(why),
    };
    let environments = environments(&mut complaints);
    let (offloads, verdict) = verdict(&settings, &libraries, &gpu, &routines);
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        library_dir,
        libraries,
        cpu_library,
        cpu_model: machine::cpu_model(),
        cpu_threads,
        mode: settings.mode.name(),
        level: settings.level.get(),
        config_files,
        complaints,
        cuda_libraries,
        gpu,
        profile: profile_source,
        learned: learned_report,
        routines,
        environments,
        offloads,
        verdict,
    })
}

fn start(options: &StartOptions) -> Result<(Gpu, GpuReport), String> {
    let gpu = Gpu::start(options).map_err(|e| e.to_string())?;
    let info = gpu.info();
    let report = GpuReport {
        name: info.name.clone(),
        uuid: info.uuid.clone(),
        compute_capability: format!(
            "{}.{}",
            info.compute_capability.0, info.compute_capability.1
        ),
        driver_cuda_version: info.driver_version,
        cublas_version: info.cublas_version,
        memory_bytes: info.memory_bytes,
        free_bytes: gpu.memory_bytes().ok().map(|(free, _)| free),
    };
    Ok((gpu, report))
}

/// The profile that a program's engine would use, and where it comes from.
fn judge(
    gpu: &Gpu,
    settings: &Settings,
    cpu_library: String,
    cpu_threads: u32,
    complaints: &mut Vec<String>,
) -> (Profile, String) {
    let env = |name: &str| std::env::var_os(name);
    let mut here = machine::fingerprint(cpu_library);
    let (found, lines) = machine::find_profile(&env, settings, &here);
    complaints.extend(lines);
    device::complete(&mut here, gpu.info());
    if let Some((profile, path)) = found {
        let source = path.display().to_string();
        match profile.difference(&here) {
            None => return (profile, source),
            Some(difference) => complaints.push(machine::foreign(&source, &difference)),
        }
    }
    let facts = GpuFacts {
        compute_capability: gpu.info().compute_capability,
        sm_count: gpu.info().sm_count,
        clock_khz: gpu.info().clock_khz,
    };
    let rates = device::probe_transfers(gpu, settings);
    let cpu = CpuFacts {
        threads: cpu_threads,
    };
    (
        Profile::estimate(here, &facts, rates, &cpu),
        "estimate".to_owned(),
    )
}

fn verdict(
    settings: &Settings,
    libraries: &[Library],
    gpu: &Outcome<GpuReport>,
    routines: &[Routine],
) -> (bool, String) {
    if let Some(missing) = libraries
        .iter()
        .find(|l| !l.present && (l.name == "libblas.so.3" || l.name == "libgpu_offload.so.0"))
    {
        return (
            false,
            format!(
                "every call runs on the CPU: {} is not installed",
                missing.name
            ),
        );
    }
    if settings.mode == Mode::Off {
        return (
            false,
            "every call runs on the CPU: the mode is off".to_owned(),
        );
    }
    if let Outcome::Missing(why) = gpu {
        return (false, format!("every call runs on the CPU: {why}"));
    }
    if settings.mode == Mode::Force {
        return (
            true,
            "every call above the threshold runs on the GPU: the mode is force".to_owned(),
        );
    }
    let winners: Vec<String> = routines
        .iter()
        .filter_map(|r| Some(format!("{} from about n = {}", r.name, r.from_n?)))
        .collect();
    if winners.is_empty() {
        return (
            false,
            format!(
                "every call runs on the CPU: at level {} no product of square matrices is predicted to finish sooner on the GPU",
                settings.level
            ),
        );
    }
    (
        true,
        format!(
            "square matrix products go to the GPU: {}",
            winners.join(", ")
        ),
    )
}

fn text(r: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(out, "{label:<14}{value}");
    };
    line("gpu-offload", r.version);
    line("libraries", &r.library_dir.display().to_string());
    for l in &r.libraries {
        line(
            "",
            &format!(
                "{:<20} {} ({})",
                l.name,
                if l.present { "present" } else { "missing" },
                l.holds
            ),
        );
    }
    let threads = r
        .cpu_threads
        .map_or(String::new(), |t| format!(", {t} threads"));
    line("CPU", &format!("{}{threads}", r.cpu_model));
    match &r.cpu_library {
        Outcome::Found(config) => line("CPU library", config),
        Outcome::Missing(why) => line("CPU library", &format!("none: {why}")),
    }
    match &r.gpu {
        Outcome::Found(g) => {
            let free = g
                .free_bytes
                .map_or(String::new(), |f| format!(", {:.1} free", gib(f)));
            line(
                "GPU",
                &format!(
                    "{} (compute capability {}), {:.1} GiB{free}",
                    g.name,
                    g.compute_capability,
                    gib(g.memory_bytes)
                ),
            );
            line(
                "",
                &format!(
                    "{}, driver for CUDA {}.{}, cuBLAS {}",
                    g.uuid,
                    g.driver_cuda_version / 1000,
                    g.driver_cuda_version % 1000 / 10,
                    g.cublas_version
                ),
            );
        }
        Outcome::Missing(why) => line("GPU", &format!("none: {why}")),
    }
    match &r.cuda_libraries {
        Outcome::Found(all) => {
            for (i, l) in all.iter().enumerate() {
                let label = if i == 0 { "CUDA" } else { "" };
                line(label, &format!("{:<20} {}", l.name, l.path.display()));
            }
        }
        Outcome::Missing(why) => line("CUDA", &format!("none: {why}")),
    }
    for (i, c) in r.config_files.iter().enumerate() {
        let label = if i == 0 { "configuration" } else { "" };
        line(label, &format!("{} ({})", c.path.display(), c.state));
    }
    line("mode", &format!("{}, level {}", r.mode, r.level));
    match r.profile.as_deref() {
        Some("estimate") => {
            line(
                "profile",
                "none: times are estimated; `gpu-offload calibrate --quick` measures them",
            );
        }
        Some(path) => line("profile", path),
        None => {}
    }
    if let Some(l) = &r.learned {
        let counts = format!("{} routines, {} shapes", l.routines, l.shapes);
        line("learned", &format!("{counts} ({})", l.file.display()));
        for why in l.refused.iter().chain(&l.not_written) {
            line("", why);
        }
    }
    for s in &r.routines {
        let from = s.from_n.map_or("never on the GPU".to_owned(), |n| {
            format!("on the GPU from n = {n}")
        });
        line(
            &s.name,
            &format!(
                "{from}; n = {SHOWN_N}: CPU {:.1} ms, GPU {:.1} ms predicted",
                s.predicted_cpu_s * 1e3,
                s.predicted_gpu_s * 1e3
            ),
        );
    }
    for e in &r.environments {
        let kind = match e.known.kind {
            Kind::Venv => "venv",
            Kind::Conda => "conda",
        };
        line(kind, &format!("{}: {}", e.known.path.display(), e.state));
    }
    for c in &r.complaints {
        line("note", c);
    }
    line("result", &r.verdict);
    out
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Prints the report; 0 if heavy calls can go to the GPU, else 1.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = collect()?;
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        crate::say!("{}", text(&report).trim_end());
    }
    Ok(if report.offloads {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
