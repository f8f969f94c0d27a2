//! `gpu-offload explain --replay FILE`: the calls of a log, decided again from their recorded input.

use super::{Args, profile, route_name};
use anyhow::{Context, Result, bail, ensure};
use cost_model::{Correction, Level, Profile, Situation, decide_corrected};
use gpu_offload::config::Settings;
use gpu_offload::machine;
use routines::Shape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Predicted times may differ by this much, relatively: they are printed with all their digits.
const ROUNDING: f64 = 1e-9;

/// A line of the log; other events than these have other fields.
#[derive(Deserialize)]
struct Line {
    event: String,
    pid: i64,
    profile: Option<String>,
}

/// The input of a decision, and what was decided, as `engine::log::CallRecord` writes them.
#[derive(Deserialize)]
struct Recorded {
    routine: String,
    side: Option<char>,
    letters: Option<String>,
    m: u64,
    n: u64,
    k: u64,
    beta_zero: bool,
    route: String,
    reason: String,
    level: u8,
    cpu_threads: u32,
    predicted_cpu_s: f64,
    predicted_gpu_s: f64,
    startup_s: f64,
    queue_s: f64,
    learned_cpu: f64,
    learned_gpu: f64,
}

/// One decision again.
#[derive(Serialize)]
struct Again {
    /// Line of the file, from 1.
    line: usize,
    routine: String,
    m: u64,
    n: u64,
    k: u64,
    recorded_route: String,
    recorded_reason: String,
    route: &'static str,
    reason: &'static str,
    predicted_cpu_s: f64,
    predicted_gpu_s: f64,
    /// Route, reason and predicted times are the recorded ones.
    same: bool,
}

impl Recorded {
    fn shape(&self) -> Result<Shape> {
        let (family, precision, _) = super::routine(&self.routine)?;
        let mut letters = [0; 4];
        for (to, from) in letters
            .iter_mut()
            .zip(self.letters.iter().flat_map(|l| l.bytes()))
        {
            *to = from;
        }
        let lapack = family.library == routines::Library::Lapack;
        let options = routines::Options::new(family, precision, letters);
        let right = match lapack {
            true => options.letter("side") == b'R',
            false => self.side == Some('R'),
        };
        Ok(Shape {
            op: family.op,
            precision,
            m: self.m,
            n: self.n,
            k: self.k,
            right,
            beta_zero: self.beta_zero,
            letters,
        })
    }

    /// True if the cost model decided; the engine's own reasons are not functions of the call.
    fn was_decided(&self) -> bool {
        !matches!(
            self.reason.as_str(),
            "forced" | "gpu-unavailable" | "failed-on-gpu" | "try"
        )
    }

    fn again(&self, line: usize, profile: &Profile) -> Result<Again> {
        let situation = Situation {
            cpu_threads: self.cpu_threads,
            startup_s: self.startup_s,
            queue_s: self.queue_s,
            ..Situation::default()
        };
        let level = Level::new(i64::from(self.level))?;
        let correction = Correction {
            cpu: self.learned_cpu,
            gpu: self.learned_gpu,
        };
        let decision = decide_corrected(profile, &self.shape()?, &situation, level, &correction);
        let (route, reason) = (route_name(decision.route), decision.reason.name());
        let (cpu_s, gpu_s) = (decision.prediction.cpu_s, decision.prediction.gpu_s());
        let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
        Ok(Again {
            line,
            routine: self.routine.clone(),
            m: self.m,
            n: self.n,
            k: self.k,
            recorded_route: self.route.clone(),
            recorded_reason: self.reason.clone(),
            route,
            reason,
            predicted_cpu_s: cpu_s,
            predicted_gpu_s: gpu_s,
            same: route == self.route
                && reason == self.reason
                && near(cpu_s, self.predicted_cpu_s)
                && near(gpu_s, self.predicted_gpu_s),
        })
    }
}

/// The profiles that the log's processes used; one that is given stands for all.
struct Profiles<'a> {
    given: Option<Profile>,
    named: BTreeMap<i64, String>,
    read: BTreeMap<String, Profile>,
    settings: &'a Settings,
}

impl Profiles<'_> {
    fn of(&mut self, pid: i64) -> Result<&Profile> {
        if let Some(profile) = &self.given {
            return Ok(profile);
        }
        // A process that never started the GPU names none: it used what this machine has.
        let source = self.named.get(&pid).cloned().unwrap_or_default();
        if source == "estimate" {
            bail!(
                "process {pid} had no profile, and its estimate is not in the log; accepted: --profile FILE"
            );
        }
        if !self.read.contains_key(&source) {
            let found = match source.is_empty() {
                true => profile(None, self.settings)?.0,
                false => machine::read_profile(Path::new(&source)).map_err(anyhow::Error::msg)?,
            };
            self.read.insert(source.clone(), found);
        }
        self.read
            .get(&source)
            .context("a profile that was just read")
    }
}

fn read(file: &PathBuf) -> Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| {
        format!(
            "{}: cannot be read; accepted: a log that GPU_OFFLOAD_LOG_FILE=NAME.jsonl wrote",
            file.display()
        )
    })
}

/// Decides every recorded call again; exit status 1 if one comes out otherwise.
pub fn run(file: &PathBuf, args: &Args, settings: &Settings) -> Result<ExitCode> {
    let text = read(file)?;
    let mut profiles = Profiles {
        given: match &args.profile {
            Some(path) => Some(machine::read_profile(path).map_err(anyhow::Error::msg)?),
            None => None,
        },
        named: BTreeMap::new(),
        read: BTreeMap::new(),
        settings,
    };
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = || {
            format!(
                "{}: line {}: not a line of a JSON-lines log; accepted: what GPU_OFFLOAD_LOG_FILE=NAME.jsonl \
                 wrote at GPU_OFFLOAD_LOG=decisions",
                file.display(),
                index + 1
            )
        };
        let head: Line = serde_json::from_str(line).with_context(wrong)?;
        match head.event.as_str() {
            "start" => {
                profiles
                    .named
                    .insert(head.pid, head.profile.unwrap_or_default());
            }
            "call" => {
                let recorded: Recorded = serde_json::from_str(line).with_context(wrong)?;
                records.push((index + 1, head.pid, recorded));
            }
            _ => {}
        }
    }
    ensure!(
        !records.is_empty(),
        "{}: no call is recorded; accepted: a log written at GPU_OFFLOAD_LOG=decisions",
        file.display()
    );
    let (mut again, mut others) = (Vec::new(), 0);
    for (line, pid, recorded) in &records {
        if recorded.was_decided() {
            again.push(recorded.again(*line, profiles.of(*pid)?)?);
        } else {
            others += 1;
        }
    }
    let different = again.iter().filter(|a| !a.same).count();
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&again)?);
    } else {
        for a in &again {
            let verdict = match a.same {
                true => "as recorded".to_owned(),
                false => format!("recorded: {} ({})", a.recorded_route, a.recorded_reason),
            };
            crate::say!(
                "line {}: {} {} {} {} -> {} ({}; CPU {}, GPU {}); {verdict}",
                a.line,
                a.routine,
                a.m,
                a.n,
                a.k,
                a.route,
                a.reason,
                crate::units::seconds(a.predicted_cpu_s),
                crate::units::seconds(a.predicted_gpu_s),
            );
        }
        crate::say!(
            "{} decisions again, {different} of them different; {others} calls were not decided by prediction",
            again.len()
        );
    }
    Ok(ExitCode::from(u8::from(different > 0)))
}
