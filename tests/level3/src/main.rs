//! `level3-random` makes random level-3 BLAS calls through a libblas.so.3 and checks each against its
//! definition. It links no BLAS: the library is loaded by path, so that one binary tries any of them.
//! This file is the command line, the threads and the tally.

mod abi;
mod check;
mod crash;
mod exceptions;
mod family;
mod fill;
mod memory;
mod plan;
#[cfg(test)]
mod planted;
mod reference;
mod run;
mod scalar;
mod sum;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use libloading::Library;
use serde_json::json;

use crate::exceptions::Exception;
use crate::family::{Family, Precision};
use crate::memory::Memory;
use crate::plan::{Choice, Plan};
use crate::run::Outcome;

/// Makes random level-3 BLAS calls through a libblas.so.3 and checks each against its definition.
#[derive(Parser, Debug)]
struct Options {
    /// The library: a path, or a name that the loader finds
    #[arg(long, default_value = "libblas.so.3")]
    library: String,
    /// How many calls
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// What the calls follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs this call of the seed alone
    #[arg(long, value_name = "INDEX")]
    only: Option<u64>,
    /// How many threads call at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=crash::MOST_THREADS as i64))]
    threads: u16,
    /// The largest dimension (tall, wide and long-k calls: 8 times as much in one direction)
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u16).range(1..=8192))]
    most: u16,
    /// The families, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum, hide_default_value = true)]
    families: Vec<Family>,
    /// The precisions, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum, hide_default_value = true)]
    precisions: Vec<Precision>,
    /// Known differences of the library that do not fail, separated by commas; one that no call needed
    /// fails the run
    #[arg(long, value_delimiter = ',', value_enum)]
    except: Vec<Exception>,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// How many calls ended how.
#[derive(Clone, Copy, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// The largest error of those that passed, as a share of what is allowed.
    worst: f64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.worst = self.worst.max(other.worst);
    }

    fn text(&self) -> String {
        let Self {
            passed,
            failed,
            skipped,
            ..
        } = self;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "passed": self.passed, "failed": self.failed, "skipped": self.skipped,
            "largest_error_of_bound": self.worst,
        })
    }
}

/// What calls came to.
#[derive(Default)]
struct Results {
    families: BTreeMap<&'static str, Tally>,
    /// How many of the skipped calls each exception explains.
    excepted: BTreeMap<Exception, u64>,
}

impl Results {
    fn add(&mut self, other: Self) {
        for (family, tally) in other.families {
            self.families.entry(family).or_default().add(tally);
        }
        for (exception, count) in other.excepted {
            *self.excepted.entry(exception).or_default() += count;
        }
    }
}

impl Options {
    fn choice(&self) -> anyhow::Result<Choice> {
        let all_if_none = |families: &[Family]| {
            if families.is_empty() {
                Family::value_variants().to_vec()
            } else {
                families.to_vec()
            }
        };
        let families = all_if_none(&self.families);
        let precisions = if self.precisions.is_empty() {
            Precision::value_variants().to_vec()
        } else {
            self.precisions.clone()
        };
        let exists = |family: &&Family| precisions.iter().any(|p| family.exists_in(*p));
        if let Some(family) = families.iter().find(|family| !exists(family)) {
            bail!("{} exists in c and z only", family.name());
        }
        Ok(Choice {
            families,
            precisions,
            most: self.most.into(),
            seed: self.seed,
        })
    }

    /// The command that repeats one call.
    fn repeat(&self, index: u64) -> String {
        let mut command = format!("level3-random --library {}", self.library);
        let names = |names: Vec<String>| names.join(",");
        if !self.families.is_empty() {
            let families = self.families.iter().map(|f| f.name().to_string());
            command += &format!(" --families {}", names(families.collect()));
        }
        if !self.precisions.is_empty() {
            let precisions = self.precisions.iter().map(|p| p.letter().to_string());
            command += &format!(" --precisions {}", names(precisions.collect()));
        }
        if self.most != 96 {
            command += &format!(" --most {}", self.most);
        }
        format!("{command} --seed {} --only {index}", self.seed)
    }

    /// Prints what a call came to, if it is worth a line: a failure, or the only call.
    fn report(&self, plan: &Plan, outcome: &Outcome) {
        let call = run::describe(plan);
        let (result, trouble) = match outcome {
            Outcome::Passed(_) => ("passed", None),
            Outcome::Skipped => ("skipped", None),
            Outcome::Failed(trouble) => ("failed", Some(trouble.to_string())),
        };
        let repeat = self.repeat(plan.index);
        if self.json {
            let line = json!({
                "result": result, "index": plan.index, "family": plan.family.name(),
                "call": call, "trouble": trouble, "repeat": repeat,
            });
            println!("{line}");
        } else if let Some(trouble) = trouble {
            println!("failed: {call}: {trouble} [{repeat}]");
        } else {
            println!("{result}: {call}");
        }
    }
}

/// The calls of one thread: those whose index leaves `thread` when divided by the number of threads.
fn run_share(
    options: &Options,
    choice: &Choice,
    library: &Library,
    thread: u16,
    output: &Mutex<()>,
) -> anyhow::Result<Results> {
    let mut memory = Memory::default();
    let mut results = Results::default();
    let indices = match options.only {
        Some(index) => index..index + 1,
        None => u64::from(thread)..options.calls,
    };
    for index in indices.step_by(options.threads.into()) {
        crash::running(thread.into(), Some(index));
        let (plan, outcome) = run::run(library, &mut memory, choice, index)
            .with_context(|| format!("no memory for the operands of call {index}"))?;
        crash::running(thread.into(), None);
        let tally = results.families.entry(plan.family.name()).or_default();
        match &outcome {
            Outcome::Passed(worst) => {
                tally.passed += 1;
                tally.worst = tally.worst.max(*worst);
            }
            Outcome::Skipped => tally.skipped += 1,
            Outcome::Failed(trouble) => {
                let mut granted = options.except.iter();
                if let Some(exception) = granted.find(|e| e.covers(&plan, trouble)) {
                    tally.skipped += 1;
                    *results.excepted.entry(*exception).or_default() += 1;
                    continue;
                }
                tally.failed += 1;
            }
        }
        if options.only.is_some() || matches!(outcome, Outcome::Failed(_)) {
            let _line_at_a_time = output.lock();
            options.report(&plan, &outcome);
        }
    }
    Ok(results)
}

/// Whether all calls came out right.
fn run_all(options: &Options) -> anyhow::Result<bool> {
    let choice = options.choice()?;
    // SAFETY: a BLAS library's constructors have no preconditions; which library it is, is the caller's
    // choice.
    let library = unsafe { Library::new(&options.library) }
        .with_context(|| format!("cannot load {}", options.library))?;
    // Never closed: the report names its file, and its threads may outlive the calls.
    let library: &Library = Box::leak(Box::new(library));
    crash::install();
    let start = Instant::now();
    let output = Mutex::new(());
    let threads = if options.only.is_some() {
        1
    } else {
        options.threads
    };
    let shares: Vec<anyhow::Result<Results>> = std::thread::scope(|scope| {
        let share = |thread| {
            let (choice, output) = (&choice, &output);
            scope.spawn(move || run_share(options, choice, library, thread, output))
        };
        let running: Vec<_> = (0..threads).map(share).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined
            .map(|share| share.unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    let mut results = Results::default();
    for share in shares {
        results.add(share?);
    }
    let total = summarise(options, library, &results, start);
    let needed = |exception: &&Exception| results.excepted.contains_key(exception);
    let outlived = options.except.iter().find(|exception| !needed(exception));
    if let Some(exception) = outlived {
        eprintln!(
            "level3-random: no call needed --except {}",
            exception.name()
        );
    }
    // A run in which nothing was tried proves nothing.
    Ok(total.failed == 0 && total.passed > 0 && outlived.is_none())
}

/// Prints the tally by family and in all.
fn summarise(options: &Options, library: &Library, results: &Results, start: Instant) -> Tally {
    let families = &results.families;
    let mut total = Tally::default();
    families.values().for_each(|tally| total.add(*tally));
    let file = file_of(library).unwrap_or_else(|| options.library.clone());
    let seconds = start.elapsed().as_secs_f64();
    if options.json {
        let families: BTreeMap<_, _> = families.iter().map(|(f, t)| (f, t.json())).collect();
        let mut line = total.json();
        let excepted = results.excepted.iter().map(|(e, count)| (e.name(), count));
        line["families"] = json!(families);
        line["excepted"] = json!(excepted.collect::<BTreeMap<_, _>>());
        line["library"] = json!(file);
        line["seed"] = json!(options.seed);
        line["elapsed_s"] = json!(seconds);
        println!("{line}");
    } else {
        println!("{file}, seed {}, {seconds:.1} s", options.seed);
        for (family, tally) in families {
            let worst = if tally.passed > 0 {
                format!(" (errors up to {:.0} % of the bound)", 100.0 * tally.worst)
            } else {
                String::new()
            };
            println!("{family}: {}{worst}", tally.text());
        }
        for (exception, count) in &results.excepted {
            println!("skipped by exception {}: {count}", exception.name());
        }
        println!("{}", total.text());
    }
    total
}

/// The file that the library's dgemm comes from.
fn file_of(library: &Library) -> Option<String> {
    // SAFETY: the symbol's address is looked at, never called.
    let symbol = unsafe { library.get::<*mut std::ffi::c_void>("dgemm_") }.ok()?;
    abi::file_of(*symbol)
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run_all(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("level3-random: {error:#}");
            ExitCode::from(2)
        }
    }
}
