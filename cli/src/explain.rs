//! `gpu-offload explain`: where one call would go and why, term by term, and where that changes; and
//! recorded decisions decided again.
//!
//! Pure arithmetic over a profile: no GPU is started and nothing is measured.

mod question;
mod replay;

use crate::units::seconds;
use anyhow::{Context, Result};
use core::fmt::Write as _;
use cost_model::{
    CpuFacts, Decision, Learned, Level, Prediction, Profile, Reason, Route, SOLVER_START_S,
    Situation, decide_corrected,
};
use gpu_offload::config::{self, Settings};
use gpu_offload::learn::store;
use gpu_offload::machine;
pub(crate) use question::Question;
pub use question::routine;
use routines::Library;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `explain`.
#[derive(clap::Args)]
pub struct Args {
    /// Routine, sizes and option letters in the order of its arguments, such as `dgemm 4000 4000 64`,
    /// `dgemm 4000` (one size for all) or `dsyevd 3000 V`
    #[arg(value_name = "CALL", required_unless_present = "replay")]
    call: Vec<String>,
    /// Decide the calls of a JSON-lines log (GPU_OFFLOAD_LOG_FILE) again; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "call")]
    replay: Option<PathBuf>,
    /// How readily calls go to the GPU, instead of the level in force
    #[arg(long, value_name = "1..10", value_parser = clap::value_parser!(u8).range(1..=10))]
    level: Option<u8>,
    /// Operands that are on the GPU already, such as A or A,B
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    resident: Vec<String>,
    /// The result is read too (beta is not 0)
    #[arg(long)]
    reads_result: bool,
    /// The GPU has not been started
    #[arg(long)]
    cold: bool,
    /// Threads of the CPU library, instead of as many as the profile was measured with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Profile to decide with, instead of this machine's
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Sizes below and above which no change of the decision is looked for.
const LEAST_EDGE: u64 = 8;
const MOST_EDGE: u64 = 65_536;

/// Factor between the sizes at which changes are looked for: an eighth of an octave.
const STEP: f64 = 1.090_507_732_665_257_7;

/// What is said of one call. The JSON form has these fields.
#[derive(Serialize)]
struct Answer {
    routine: String,
    sizes: Vec<Size>,
    /// Option letters by name.
    letters: Vec<Letter>,
    level: u8,
    /// Path of the profile, or "guess".
    profile: String,
    /// What the reader should know of the profile.
    notes: Vec<String>,
    /// "cpu" or "gpu".
    route: &'static str,
    reason: &'static str,
    cpu: CpuTerms,
    gpu: GpuTerms,
    /// Factors of what was learnt within these times; 1 for nothing.
    learned_cpu: f64,
    learned_gpu: f64,
    /// Predicted CPU time over predicted GPU time; absent where nothing is predicted.
    speedup: Option<f64>,
    /// What the level asks of it.
    required_speedup: f64,
    /// The least level at which the call goes to the GPU; absent where there is none.
    least_level: Option<u8>,
    /// Where the decision changes when the call grows, from small to large.
    changes: Vec<Change>,
}

#[derive(Serialize)]
struct Size {
    name: &'static str,
    size: u64,
}

#[derive(Serialize)]
struct Letter {
    name: &'static str,
    letter: char,
}

#[derive(Serialize)]
struct CpuTerms {
    total_s: f64,
    threads: u32,
}

#[derive(Serialize)]
struct GpuTerms {
    total_s: f64,
    startup_s: f64,
    queue_s: f64,
    latency_s: f64,
    upload_s: f64,
    compute_s: f64,
    download_s: f64,
    fresh_s: f64,
    overlap_s: f64,
}

/// From these sizes on the call goes to this side.
#[derive(Serialize)]
struct Change {
    route: &'static str,
    sizes: Vec<Size>,
}

pub(crate) fn route_name(route: Route) -> &'static str {
    match route {
        Route::Cpu => "cpu",
        Route::Gpu => "gpu",
    }
}

fn sizes(question: &Question) -> Vec<Size> {
    question
        .sizes
        .iter()
        .map(|&(name, size)| Size { name, size })
        .collect()
}

/// A profile to decide with, where it comes from, and what the reader should know of it.
pub(crate) fn profile(
    named: Option<&PathBuf>,
    settings: &Settings,
) -> Result<(Profile, String, Vec<String>)> {
    let env = |name: &str| std::env::var_os(name);
    if let Some(path) = named {
        let profile = machine::read_profile(path).map_err(anyhow::Error::msg)?;
        return Ok((profile, path.display().to_string(), Vec::new()));
    }
    let mut notes = Vec::new();
    let here = machine::fingerprint(String::new());
    for path in config::profile_files(&env, settings) {
        if settings.profile.is_none() && !path.exists() {
            continue;
        }
        match machine::read_profile(&path) {
            Ok(profile) => {
                // Without the libraries and the GPU only this much is known of the machine.
                let mut known = profile.measurements().fingerprint.clone();
                known.cpu_library = String::new();
                if let Some(difference) = known.cpu_difference(&here) {
                    notes.push(format!(
                        "{difference}: the libraries will not use this profile"
                    ));
                }
                return Ok((profile, path.display().to_string(), notes));
            }
            Err(line) => notes.push(line),
        }
    }
    let cpu = CpuFacts {
        threads: std::thread::available_parallelism()
            .map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
    };
    notes.push(
        "no profile: times are guesses for a mid-range GPU; `gpu-offload calibrate` measures this machine"
            .to_owned(),
    );
    Ok((Profile::prior(here, &cpu), "guess".to_owned(), notes))
}

/// The edges at which the route changes as the call grows: where from, and the new route.
fn changes(route: impl Fn(u64) -> Route) -> Vec<(u64, Route)> {
    let mut found = Vec::new();
    let (mut low, mut edge) = (LEAST_EDGE, LEAST_EDGE as f64);
    let mut before = route(low);
    found.push((low, before));
    while low < MOST_EDGE {
        edge *= STEP;
        let next = (edge.round() as u64).clamp(low + 1, MOST_EDGE);
        let now = route(next);
        if now != before {
            let (mut left, mut right) = (low, next);
            while right - left > 1 {
                let middle = left.midpoint(right);
                if route(middle) == now {
                    right = middle;
                } else {
                    left = middle;
                }
            }
            found.push((right, now));
        }
        (low, before) = (next, now);
        edge = edge.max(next as f64);
    }
    found
}

fn answer(args: &Args, settings: &Settings) -> Result<Answer> {
    let (name, words) = args.call.split_first().context("no routine is named")?;
    let mut question = Question::read(name, words)?;
    if args.reads_result {
        question = question.reading_result();
    }
    let (profile, source, mut notes) = profile(args.profile.as_ref(), settings)?;
    let (learned, complaint) = learned(settings, &profile, &source);
    notes.extend(complaint);
    let level = match args.level {
        Some(level) => Level::new(i64::from(level))?,
        None => settings.level,
    };
    let resident_in_bytes = question.input_bytes(&args.resident)?;
    let threads = args.threads.unwrap_or(profile.cpu_threads());
    let situation = |question: &Question, resident_in_bytes: u64| Situation {
        cpu_threads: threads,
        startup_s: startup_s(args.cold, &profile, question),
        resident_in_bytes,
        ..Situation::default()
    };
    let of = |level: Level| {
        let situation = situation(&question, resident_in_bytes);
        let shape = question.shape();
        let correction = learned.correction(&shape);
        decide_corrected(&profile, &shape, &situation, level, &correction)
    };
    let decision = of(level);
    let correction = learned.correction(&question.shape());
    let least_level = (1..=10)
        .filter_map(|l| Level::new(l).ok())
        .find(|l| of(*l).route == Route::Gpu);
    let at = |edge: u64| {
        let scaled = question.scaled(edge);
        // The names were accepted above, for the same routine.
        let resident = scaled.input_bytes(&args.resident).unwrap_or(0);
        let shape = scaled.shape();
        let correction = learned.correction(&shape);
        let situation = situation(&scaled, resident);
        decide_corrected(&profile, &shape, &situation, level, &correction).route
    };
    let changes = changes(at)
        .into_iter()
        .map(|(edge, route)| Change {
            route: route_name(route),
            sizes: sizes(&question.scaled(edge)),
        })
        .collect();
    let Decision {
        route,
        reason,
        prediction: p,
    } = decision;
    Ok(Answer {
        routine: question.routine.clone(),
        sizes: sizes(&question),
        letters: question
            .letters
            .iter()
            .map(|&(name, letter)| Letter {
                name,
                letter: char::from(letter),
            })
            .collect(),
        level: level.get(),
        profile: source,
        notes,
        route: route_name(route),
        reason: reason.name(),
        cpu: CpuTerms {
            total_s: p.cpu_s,
            threads,
        },
        gpu: terms(&p),
        learned_cpu: correction.cpu,
        learned_gpu: correction.gpu,
        speedup: (reason != Reason::NoModel).then(|| p.cpu_s / p.gpu_s()),
        required_speedup: level.required_speedup(),
        least_level: least_level.map(Level::get),
        changes,
    })
}

/// What programs have learnt of a profile, and a line if that cannot be read.
fn learned(settings: &Settings, profile: &Profile, source: &str) -> (Learned, Option<String>) {
    let learned = Learned::new();
    let dir = store::dir(&|name: &str| std::env::var_os(name)).filter(|_| settings.learns());
    let Some(dir) = dir else {
        return (learned, None);
    };
    match store::read(&dir, store::identity(profile, source)) {
        Ok(entries) => {
            learned.restore(&entries);
            (learned, None)
        }
        Err(line) => (learned, Some(line)),
    }
}

/// What a call waits for where nothing has been started.
fn startup_s(cold: bool, profile: &Profile, question: &Question) -> f64 {
    let solver_s = match question.family().library {
        Library::Lapack => SOLVER_START_S,
        Library::Blas => 0.0,
    };
    if cold {
        profile.overheads().start_s + solver_s
    } else {
        0.0
    }
}

fn terms(p: &Prediction) -> GpuTerms {
    GpuTerms {
        total_s: p.gpu_s(),
        startup_s: p.startup_s,
        queue_s: p.queue_s,
        latency_s: p.latency_s,
        upload_s: p.upload_s,
        compute_s: p.compute_s,
        download_s: p.download_s,
        fresh_s: p.fresh_s,
        overlap_s: p.overlap_s,
    }
}

fn in_words(sizes: &[Size]) -> String {
    let sizes: Vec<String> = sizes
        .iter()
        .map(|s| format!("{} = {}", s.name, s.size))
        .collect();
    sizes.join(", ")
}

fn text(a: &Answer) -> String {
    let mut out = String::new();
    let letters: Vec<String> = a
        .letters
        .iter()
        .map(|l| format!(", {} {}", l.name, l.letter))
        .collect();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{} with {}{}; level {}",
        a.routine,
        in_words(&a.sizes),
        letters.concat(),
        a.level
    );
    let _ = writeln!(out, "profile {}", a.profile);
    for note in &a.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let side = |route: &str| if route == "gpu" { "GPU" } else { "CPU" };
    if let Some(speedup) = a.speedup {
        let mut term = |what: &str, time_s: f64| {
            let _ = writeln!(out, "  {what:<44}{:>12}", seconds(time_s));
        };
        term(&format!("CPU, {} threads", a.cpu.threads), a.cpu.total_s);
        term("GPU", a.gpu.total_s);
        for (what, time_s) in [
            ("  waiting for its start", a.gpu.startup_s),
            ("  waiting for other calls", a.gpu.queue_s),
            ("  fixed cost of a call", a.gpu.latency_s),
            ("  operands to the device", a.gpu.upload_s),
            ("  kernels", a.gpu.compute_s),
            ("  result to the host", a.gpu.download_s),
            ("  page faults of a fresh result", a.gpu.fresh_s),
            ("  hidden by each other", -a.gpu.overlap_s),
        ] {
            if time_s != 0.0 {
                term(what, time_s);
            }
        }
        if (a.learned_cpu, a.learned_gpu) != (1.0, 1.0) {
            let _ = writeln!(
                out,
                "corrected by what was learnt: CPU x {:.2}, GPU x {:.2}",
                a.learned_cpu, a.learned_gpu
            );
        }
        let _ = writeln!(
            out,
            "-> {} ({}): the GPU is {speedup:.2} times as fast as the CPU, level {} asks for {}",
            side(a.route),
            a.reason,
            a.level,
            a.required_speedup
        );
        match a.least_level {
            Some(1) => out.push_str("at every level it goes to the GPU\n"),
            Some(level) => {
                let _ = writeln!(out, "it goes to the GPU from level {level} on");
            }
            None => out.push_str("at no level it goes to the GPU\n"),
        }
    } else {
        let _ = writeln!(out, "-> CPU ({}): nothing predicts {}", a.reason, a.routine);
    }
    if let [only] = &a.changes[..] {
        let _ = writeln!(out, "every size goes to the {}", side(only.route));
    } else {
        for change in a.changes.iter().skip(1) {
            let _ = writeln!(
                out,
                "from {} on: {}",
                in_words(&change.sizes),
                side(change.route)
            );
        }
    }
    out
}

/// Explains.
pub fn run(args: &Args) -> Result<ExitCode> {
    let env = |name: &str| std::env::var_os(name);
    let (settings, complaints) = config::load(&env, &config::config_files(&env));
    for line in complaints {
        eprintln!("gpu-offload: {line}");
    }
    if let Some(file) = &args.replay {
        return replay::run(file, args, &settings);
    }
    let answer = answer(args, &settings)?;
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&answer)?);
    } else {
        crate::say!("{}", text(&answer).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_found_to_the_last_size() {
        let route = |n: u64| match n {
            0..=99 | 5000..=5999 => Route::Cpu,
            _ => Route::Gpu,
        };
        assert_eq!(
            changes(route),
            [
                (LEAST_EDGE, Route::Cpu),
                (100, Route::Gpu),
                (5000, Route::Cpu),
                (6000, Route::Gpu)
            ]
        );
        assert_eq!(changes(|_| Route::Cpu), [(LEAST_EDGE, Route::Cpu)]);
    }
}
