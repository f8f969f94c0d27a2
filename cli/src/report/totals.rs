//! What a log's events come to, by routine and together.

use crate::log_file::{Call, Entry, Event, Summary};
use serde::Serialize;
use std::collections::BTreeMap;

/// How far predictions were from measured times: |predicted - measured| / measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Calls with a prediction.
    pub calls: usize,
    /// Half of them were no farther off.
    pub median: f64,
    /// Nine tenths of them were no farther off.
    pub p90: f64,
}

impl Errors {
    /// `None` without calls.
    fn of(mut errors: Vec<f64>) -> Option<Self> {
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * errors.len() as f64).ceil() as usize;
            errors.get(place.saturating_sub(1)).copied()
        };
        Some(Self {
            calls: errors.len(),
            median: at(0.5)?,
            p90: at(0.9)?,
        })
    }
}

/// One routine.
#[derive(Serialize)]
pub struct Row {
    /// What was counted.
    #[serde(flatten)]
    pub counted: Summary,
    /// Of the GPU's predicted times; absent without single calls in the log.
    pub gpu_errors: Option<Errors>,
    /// Of the CPU's.
    pub cpu_errors: Option<Errors>,
}

impl Row {
    /// Median errors of both sides, "3 % / 12 %".
    pub fn error_text(&self) -> String {
        let text = |errors: &Option<Errors>| {
            errors
                .as_ref()
                .map_or_else(|| "-".to_owned(), |e| format!("{:.0}%", e.median * 100.0))
        };
        format!("{}/{}", text(&self.gpu_errors), text(&self.cpu_errors))
    }

    /// Lines that say why calls went where they did.
    pub fn notes(&self) -> Vec<String> {
        let reasons: Vec<String> = self
            .counted
            .reasons
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let reasons = format!("reasons: {}", reasons.join(", "));
        let fallbacks = self
            .counted
            .fallbacks
            .iter()
            .map(|(text, count)| format!("on the CPU {count} times: {text}"));
        [reasons].into_iter().chain(fallbacks).collect()
    }
}

/// One call with what a chart needs.
pub struct Point {
    /// Operations.
    pub flops: f64,
    /// Seconds it took, waiting for the start included.
    pub seconds: f64,
    /// Predicted seconds of the side that computed it; 0 for none.
    pub predicted_s: f64,
    /// Predicted CPU time less what it took, on the GPU; else 0.
    pub saved_s: f64,
    /// The GPU computed it.
    pub on_gpu: bool,
}

impl Point {
    /// `None` for a routine of another version of this program.
    fn of(call: &Call) -> Option<Self> {
        let (on_gpu, seconds) = (call.was_on_gpu(), call.waited_s + call.seconds);
        Some(Self {
            flops: call.shape().ok()?.flops(),
            seconds,
            predicted_s: match on_gpu {
                true => call.predicted_gpu_s,
                false => call.predicted_cpu_s,
            },
            saved_s: saved_s(call),
            on_gpu,
        })
    }
}

fn saved_s(call: &Call) -> f64 {
    match call.was_on_gpu() && call.predicted_cpu_s > 0.0 {
        true => call.predicted_cpu_s - call.waited_s - call.seconds,
        false => 0.0,
    }
}

/// A call as its process would have counted it.
fn counted(call: &Call) -> Summary {
    let on_gpu = call.was_on_gpu();
    let (gpu_s, cpu_s) = match on_gpu {
        true => (call.seconds, 0.0),
        false => (0.0, call.seconds),
    };
    Summary {
        routine: call.routine.clone(),
        gpu_calls: u64::from(on_gpu),
        cpu_calls: u64::from(!on_gpu),
        gpu_s,
        cpu_s,
        saved_s: saved_s(call),
        bytes_in: call.bytes_in,
        bytes_out: call.bytes_out,
        reasons: BTreeMap::from([(call.reason.clone(), 1)]),
        fallbacks: call.detail.iter().map(|text| (text.clone(), 1)).collect(),
    }
}

/// Everything a report says.
#[derive(Serialize)]
pub struct Report {
    /// GPUs that were started, with their profiles, and how often.
    pub devices: BTreeMap<String, u64>,
    /// Why no GPU was used, and how often.
    pub failures: BTreeMap<String, u64>,
    /// Processes that have ended, by mode and level.
    pub processes: BTreeMap<String, u64>,
    /// By name.
    pub routines: Vec<Row>,
    /// All routines together.
    pub all: Summary,
    /// Every call that the log has.
    #[serde(skip)]
    pub points: Vec<Point>,
}

/// What one process has told so far of one routine.
#[derive(Default)]
struct Told {
    calls: Vec<Summary>,
    summary: Option<Summary>,
}

impl Report {
    /// Counts. Of a process that ended its own summary is taken, of one that was killed its calls.
    pub fn new(entries: Vec<Entry>) -> Self {
        let (mut devices, mut failures) = (BTreeMap::new(), BTreeMap::new());
        let (mut processes, mut rows) = (BTreeMap::new(), BTreeMap::<String, Summary>::new());
        let mut told = BTreeMap::<(i64, String), Told>::new();
        let mut errors = BTreeMap::<(String, bool), Vec<f64>>::new();
        let mut points = Vec::new();
        let mut count = |told: Told| {
            let parts = match told.summary {
                Some(summary) => vec![summary],
                None => told.calls,
            };
            for part in parts {
                rows.entry(part.routine.clone()).or_default().add(&part);
            }
        };
        for Entry { pid, event, .. } in entries {
            match event {
                Event::Start { device, profile } => {
                    *devices
                        .entry(format!("{device}, profile: {profile}"))
                        .or_default() += 1;
                }
                Event::StartFailed { reason } => *failures.entry(reason).or_default() += 1,
                Event::Call(call) => {
                    let name = call.routine.clone();
                    if let Some(point) = Point::of(&call) {
                        if point.predicted_s > 0.0 && point.seconds > 0.0 {
                            let error = (point.predicted_s - point.seconds).abs() / point.seconds;
                            let side = (name.clone(), point.on_gpu);
                            errors.entry(side).or_default().push(error);
                        }
                        points.push(point);
                    }
                    let of_routine = told.entry((pid, name)).or_default();
                    of_routine.calls.push(counted(&call));
                }
                Event::Summary(summary) => {
                    let of_routine = told.entry((pid, summary.routine.clone())).or_default();
                    of_routine.summary = Some(summary);
                }
                Event::Process { mode, level, gpu } => {
                    *processes
                        .entry(format!("mode {mode}, level {level}, GPU: {gpu}"))
                        .or_default() += 1;
                    // Another process may get the same number.
                    let range = (pid, String::new())..(pid + 1, String::new());
                    let names: Vec<_> = told.range(range).map(|(key, _)| key.clone()).collect();
                    names
                        .iter()
                        .filter_map(|key| told.remove(key))
                        .for_each(&mut count);
                }
                Event::Verified(_) | Event::Other => {}
            }
        }
        told.into_values().for_each(&mut count);
        let mut all = Summary::default();
        let routines = rows
            .into_iter()
            .map(|(routine, counted)| {
                all.add(&counted);
                let mut of = |on_gpu| errors.remove(&(routine.clone(), on_gpu));
                Row {
                    gpu_errors: of(true).and_then(Errors::of),
                    cpu_errors: of(false).and_then(Errors::of),
                    counted: Summary { routine, ..counted },
                }
            })
            .collect();
        Self {
            devices,
            failures,
            processes,
            routines,
            all,
            points,
        }
    }

    /// Lines that say whose calls these are.
    pub fn origins(&self) -> Vec<String> {
        let times = |count: u64| match count {
            1 => String::new(),
            n => format!(" ({n} times)"),
        };
        let some = |what: &str, from: &BTreeMap<String, u64>| {
            from.iter()
                .map(|(text, count)| format!("{what}: {text}{}", times(*count)))
                .collect::<Vec<_>>()
        };
        [
            some("started", &self.devices),
            some("not started", &self.failures),
            some("process", &self.processes),
        ]
        .concat()
    }
}
