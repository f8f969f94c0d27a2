//! Reading the JSON lines that `GPU_OFFLOAD_LOG_FILE=NAME.jsonl` writes (the format: `engine::log`).

use crate::explain;
use anyhow::{Context, Result};
use routines::{Family, Library, Options, Precision, Shape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// One event.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The GPU of a process is ready.
    Start {
        /// Its name.
        device: String,
        /// Path of the profile, or "estimate".
        profile: String,
    },
    /// A process has no GPU.
    StartFailed {
        /// Why.
        reason: String,
    },
    /// A call has ended.
    Call(Box<Call>),
    /// A call of mode verify was compared, or not.
    Verified(Verified),
    /// What a process counted of one routine.
    Summary(Summary),
    /// A process has ended.
    Process {
        /// Mode that was in force.
        mode: String,
        /// Level that was in force.
        level: u8,
        /// What became of the GPU.
        gpu: String,
    },
    /// An event that is of no interest here.
    #[serde(other)]
    Other,
}

/// A call as `engine::log::CallRecord` writes it.
#[derive(Deserialize)]
pub struct Call {
    /// "dgemm".
    pub routine: String,
    side: Option<char>,
    letters: Option<String>,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// The third size.
    pub k: u64,
    beta_zero: bool,
    /// "gpu" or "cpu".
    pub route: String,
    /// Why it went there.
    pub reason: String,
    /// What exactly, where something failed.
    pub detail: Option<String>,
    /// Level in force.
    pub level: u8,
    /// Threads of the CPU library in force.
    pub cpu_threads: u32,
    /// Predicted seconds on the CPU; 0 where nothing was predicted.
    pub predicted_cpu_s: f64,
    /// Predicted seconds on the GPU, waiting included.
    pub predicted_gpu_s: f64,
    /// Of which for its start.
    pub startup_s: f64,
    /// Of which for other calls.
    pub queue_s: f64,
    /// Factor of what was learnt within the CPU's time.
    pub learned_cpu: f64,
    /// Factor of what was learnt within the GPU's time.
    pub learned_gpu: f64,
    /// Seconds waited for the GPU's start.
    pub waited_s: f64,
    /// Seconds that the call took from then on.
    pub seconds: f64,
    /// Bytes to the device.
    pub bytes_in: u64,
    /// Bytes from the device.
    pub bytes_out: u64,
}

impl Call {
    /// Its family and precision.
    ///
    /// # Errors
    /// If no routine of that name has a GPU path.
    pub fn routine(&self) -> Result<(&'static Family, Precision)> {
        let (family, precision, _) = explain::routine(&self.routine)?;
        Ok((family, precision))
    }

    /// What the cost model knows of it.
    ///
    /// # Errors
    /// As [`Call::routine`].
    pub fn shape(&self) -> Result<Shape> {
        let (family, precision) = self.routine()?;
        let mut letters = [0; 4];
        for (to, from) in letters
            .iter_mut()
            .zip(self.letters.iter().flat_map(|l| l.bytes()))
        {
            *to = from;
        }
        let options = Options::new(family, precision, letters);
        let right = match family.library {
            Library::Lapack => options.letter("side") == b'R',
            Library::Blas => self.side == Some('R'),
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

    /// The GPU computed the result.
    pub fn was_on_gpu(&self) -> bool {
        self.route == "gpu"
    }
}

/// What mode verify found of a call, as `engine::verify::Finding`.
#[derive(Deserialize)]
pub struct Verified {
    /// "dgemm".
    pub routine: String,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// The third size.
    pub k: u64,
    /// How far either side was from right; empty where they were not compared.
    #[serde(default)]
    pub measures: Vec<Measure>,
    /// Why they were not.
    pub skipped: Option<String>,
}

/// One figure of a call.
#[derive(Deserialize)]
pub struct Measure {
    /// What it is of.
    pub name: String,
    /// The GPU's ratio.
    pub gpu: f64,
    /// The CPU's; absent where the figure is the sides' difference.
    pub cpu: Option<f64>,
}

/// What a process counted of one routine, as `engine::log::RoutineStats`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Summary {
    /// "dgemm".
    pub routine: String,
    /// Calls that came from the GPU.
    pub gpu_calls: u64,
    /// Calls that came from the CPU.
    pub cpu_calls: u64,
    /// Seconds of the former.
    pub gpu_s: f64,
    /// Seconds of the latter.
    pub cpu_s: f64,
    /// Predicted CPU time of the former less what they took.
    pub saved_s: f64,
    /// Bytes to the device.
    pub bytes_in: u64,
    /// Bytes from the device.
    pub bytes_out: u64,
    /// Calls by reason.
    pub reasons: BTreeMap<String, u64>,
    /// CPU calls that were meant for the GPU, by what went wrong.
    pub fallbacks: BTreeMap<String, u64>,
}

impl Summary {
    /// Adds what another process, or call, counted.
    pub fn add(&mut self, part: &Self) {
        self.gpu_calls += part.gpu_calls;
        self.cpu_calls += part.cpu_calls;
        self.gpu_s += part.gpu_s;
        self.cpu_s += part.cpu_s;
        self.saved_s += part.saved_s;
        self.bytes_in += part.bytes_in;
        self.bytes_out += part.bytes_out;
        for (to, from) in [
            (&mut self.reasons, &part.reasons),
            (&mut self.fallbacks, &part.fallbacks),
        ] {
            for (text, count) in from {
                *to.entry(text.clone()).or_default() += count;
            }
        }
    }
}

/// An event, the line of the file that holds it (from 1), and the process that wrote it.
pub struct Entry {
    /// From 1.
    pub line: usize,
    /// Process.
    pub pid: i64,
    /// What happened.
    pub event: Event,
}

/// Reads a log; `-` is standard input.
///
/// # Errors
/// One line that names the file and, where a line is not understood, its number.
pub fn read(file: &Path) -> Result<Vec<Entry>> {
    #[derive(Deserialize)]
    struct Line {
        pid: i64,
        #[serde(flatten)]
        event: Event,
    }
    text(file)?
        .lines()
        .enumerate()
        .map(|(index, text)| {
            let Line { pid, event } = serde_json::from_str(text).with_context(|| {
                format!(
                    "{}: line {}: not a line of a JSON-lines log; accepted: what GPU_OFFLOAD_LOG_FILE=NAME.jsonl \
                     wrote at GPU_OFFLOAD_LOG=decisions",
                    file.display(),
                    index + 1
                )
            })?;
            Ok(Entry {
                line: index + 1,
                pid,
                event,
            })
        })
        .collect()
}

fn text(file: &Path) -> Result<String> {
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
