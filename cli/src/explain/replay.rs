//! `gpu-offload explain --replay FILE`: the calls of a log, decided again from their recorded input.

use super::{Args, profile, route_name};
use crate::log_file::{self, Call, Event};
use anyhow::{Context, Result, bail, ensure};
use cost_model::{Correction, Level, Profile, Situation, decide_corrected};
use gpu_offload::config::Settings;
use gpu_offload::machine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Predicted times may differ by this much, relatively: they are printed with all their digits.
const ROUNDING: f64 = 1e-9;

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

/// True if the cost model decided; the engine's own reasons are not functions of the call.
fn was_decided(call: &Call) -> bool {
    !matches!(
        call.reason.as_str(),
        "forced" | "gpu-unavailable" | "failed-on-gpu" | "try"
    )
}

fn again(call: &Call, line: usize, profile: &Profile) -> Result<Again> {
    let situation = Situation {
        cpu_threads: call.cpu_threads,
        startup_s: call.startup_s,
        queue_s: call.queue_s,
        ..Situation::default()
    };
    let level = Level::new(i64::from(call.level))?;
    let correction = Correction {
        cpu: call.learned_cpu,
        gpu: call.learned_gpu,
    };
    let decision = decide_corrected(profile, &call.shape()?, &situation, level, &correction);
    let (route, reason) = (route_name(decision.route), decision.reason.name());
    let (cpu_s, gpu_s) = (decision.prediction.cpu_s, decision.prediction.gpu_s());
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    Ok(Again {
        line,
        routine: call.routine.clone(),
        m: call.m,
        n: call.n,
        k: call.k,
        recorded_route: call.route.clone(),
        recorded_reason: call.reason.clone(),
        route,
        reason,
        predicted_cpu_s: cpu_s,
        predicted_gpu_s: gpu_s,
        same: route == call.route
            && reason == call.reason
            && near(cpu_s, call.predicted_cpu_s)
            && near(gpu_s, call.predicted_gpu_s),
    })
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

/// Decides every recorded call again; exit status 1 if one comes out otherwise.
pub fn run(file: &Path, args: &Args, settings: &Settings) -> Result<ExitCode> {
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
    for entry in log_file::read(file)? {
        match entry.event {
            Event::Start { profile, .. } => {
                profiles.named.insert(entry.pid, profile);
            }
            Event::Call(call) => records.push((entry.line, entry.pid, call)),
            _ => {}
        }
    }
    ensure!(
        !records.is_empty(),
        "{}: no call is recorded; accepted: a log written at GPU_OFFLOAD_LOG=decisions",
        file.display()
    );
    let (mut decided, mut others) = (Vec::new(), 0);
    for (line, pid, call) in &records {
        if was_decided(call) {
            decided.push(again(call, *line, profiles.of(*pid)?)?);
        } else {
            others += 1;
        }
    }
    let different = decided.iter().filter(|a| !a.same).count();
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&decided)?);
    } else {
        for a in &decided {
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
            decided.len()
        );
    }
    Ok(ExitCode::from(u8::from(different > 0)))
}
