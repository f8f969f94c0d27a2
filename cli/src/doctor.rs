//! `gpu-offload doctor`: which BLAS and LAPACK a process has really loaded, whether the swaps in a Python
//! environment are whole, and what to do next.
//!
//! Reads `/proc` and the libraries' files; changes nothing and starts no GPU (`status` does that).
//!
//! # Exit status
//! 0: heavy calls reach the engine; 1: there is something to do, or trouble.

use crate::install::{OpenBlas, Venv, WheelState, fit_of};
use crate::prefix;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `doctor`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("patient").required(true).multiple(false))]
pub struct Args {
    /// A running process
    #[arg(long, value_name = "PID", group = "patient")]
    pid: Option<u32>,
    /// A Python environment (the value of VIRTUAL_ENV)
    #[arg(long, value_name = "DIR", group = "patient")]
    venv: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What was found. The JSON form has these fields.
#[derive(Default, Serialize)]
struct Report {
    /// Libraries of linear algebra and of CUDA, and what each is.
    libraries: Vec<Library>,
    /// Processors that the process may use; absent for an environment.
    processors: Option<usize>,
    /// Its variables that set numbers of threads, as it was started with them.
    thread_variables: Vec<String>,
    /// What to do next; nothing where all is well.
    advice: Vec<String>,
}

#[derive(Serialize)]
struct Library {
    path: PathBuf,
    what: String,
}

/// Variables by which OpenBLAS learns its number of threads.
const THREADS: [&str; 3] = [
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OMP_NUM_THREADS",
];

/// Examines and reports.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = match (args.pid, &args.venv) {
        (Some(pid), _) => process(Path::new("/proc"), pid)?,
        (None, Some(dir)) => environment(dir)?,
        (None, None) => Report::default(),
    };
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        for library in &report.libraries {
            crate::say!("{}: {}", library.path.display(), library.what);
        }
        if let Some(processors) = report.processors {
            crate::say!("it may use {processors} processors");
        }
        for variable in &report.thread_variables {
            crate::say!("started with {variable}");
        }
        for advice in &report.advice {
            crate::say!("to do: {advice}");
        }
    }
    Ok(ExitCode::from(u8::from(!report.advice.is_empty())))
}

/// The swaps in an environment.
fn environment(dir: &Path) -> Result<Report> {
    let environment = Venv::new(dir)?;
    let found = environment.survey()?;
    let engine = prefix::for_wheels()?.engine;
    let again = format!("gpu-offload install --venv {}", dir.display());
    let mut report = Report::default();
    for file in environment.replaced_since(&found)? {
        let file = file.display();
        report.advice.push(format!(
            "pip has replaced or removed {file} since it was swapped: {again}"
        ));
    }
    if found.is_empty() {
        report.advice.push(
            "no wheel here brings an OpenBLAS along; install numpy or scipy with pip".to_owned(),
        );
    }
    for found in &found {
        let path = found.path();
        let (what, advice) = match &found.state {
            WheelState::Own { what, leftover } => {
                let more = if *leftover {
                    "; an earlier original lies beside it"
                } else {
                    ""
                };
                (format!("the wheel's own {what}{more}"), Some(again.clone()))
            }
            WheelState::Swapped {
                engine: its,
                version,
            } => {
                let advice = if its.is_file() {
                    (*its != engine || version != env!("CARGO_PKG_VERSION"))
                        .then(|| format!("it belongs to another installation: {again}"))
                } else {
                    Some(format!(
                        "its engine is gone, so that all calls run on the CPU: {again}"
                    ))
                };
                (
                    format!("gpu-offload {version}, engine {}", its.display()),
                    advice,
                )
            }
            WheelState::Broken(why) => (
                format!("broken: {why}"),
                Some("install its Python package again (pip install --force-reinstall)".to_owned()),
            ),
            WheelState::Orphan => (
                "missing; its kept original is still here".to_owned(),
                Some(format!("gpu-offload uninstall --venv {}", dir.display())),
            ),
            WheelState::Refused(why) => (format!("left alone: {why}"), None),
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        report
            .advice
            .extend(advice.map(|advice| format!("{name}: {advice}")));
        report.libraries.push(Library { path, what });
    }
    Ok(report)
}

/// What a process has loaded, by its maps below `proc`.
fn process(proc: &Path, pid: u32) -> Result<Report> {
    let folder = proc.join(pid.to_string());
    let read = |name: &str| {
        fs::read(folder.join(name)).with_context(|| {
            format!("cannot read {name} of process {pid}: it is gone, or another user's")
        })
    };
    let maps = String::from_utf8_lossy(&read("maps")?).into_owned();
    // address, permissions, offset, device, inode, path: which may hold spaces.
    let paths: BTreeSet<&str> = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .collect();
    let mut report = Report::default();
    let (mut foreign, mut routed) = (Vec::new(), false);
    for path in paths.into_iter().filter(|path| path.contains(".so")) {
        let (file, replaced) = match path.strip_suffix(" (deleted)") {
            Some(file) => (file, true),
            None => (path, false),
        };
        let Some((what, ours)) = (if replaced {
            replaced_kind(file)
        } else {
            kind(Path::new(file))
        }) else {
            continue;
        };
        match ours {
            Some(true) => routed = true,
            Some(false) => foreign.push(file.to_owned()),
            None => {}
        }
        let path = PathBuf::from(file);
        report.libraries.push(Library { path, what });
    }
    let status = String::from_utf8_lossy(&read("status")?).into_owned();
    report.processors = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .and_then(|list| processors(list.trim()));
    // Another user's process, or one that hides it, only lacks this part.
    let environ = read("environ").unwrap_or_default();
    for entry in environ.split(|b| *b == 0).map(String::from_utf8_lossy) {
        let Some((name, value)) = entry
            .split_once('=')
            .filter(|(name, _)| THREADS.contains(name))
        else {
            continue;
        };
        report.thread_variables.push(entry.to_string());
        let (threads, processors) = (value.parse::<usize>().ok(), report.processors);
        if threads
            .zip(processors)
            .is_some_and(|(threads, processors)| threads > processors)
        {
            report.advice.push(format!(
                "{name} asks for {value} threads, but the process may use {} processors: unset it or set it lower",
                processors.unwrap_or_default()
            ));
        }
    }
    for file in &foreign {
        report.advice.push(format!(
            "{file} serves heavy calls on the CPU: start the program with `gpu-offload run`, or use `gpu-offload \
             install --venv DIR` for a wheel, `--conda PREFIX` for a conda environment"
        ));
    }
    if !routed && foreign.is_empty() {
        report
            .advice
            .push("it has no BLAS loaded (yet): ask again while it computes".to_owned());
    }
    Ok(report)
}

/// A file that was replaced since it was loaded can only be judged by its name.
fn replaced_kind(file: &str) -> Option<(String, Option<bool>)> {
    let name = file.rsplit('/').next()?;
    (name.contains("blas") || name.contains("lapack")).then(|| {
        (
            "replaced or removed since it was loaded; start the program again".to_owned(),
            None,
        )
    })
}

/// What a library is, and whether it routes heavy calls; `None` where it does not concern us.
fn kind(path: &Path) -> Option<(String, Option<bool>)> {
    let name = path.file_name()?.to_str()?;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if name.starts_with("libgpu_offload.so") {
        return Some(("the engine".to_owned(), None));
    }
    if ["libcuda.so", "libcublas.so", "libcusolver.so"]
        .iter()
        .any(|cuda| name.starts_with(cuda))
    {
        return Some(("CUDA".to_owned(), None));
    }
    if name.starts_with("libmkl_") {
        return Some((
            "Intel MKL".to_owned(),
            name.starts_with("libmkl_rt").then_some(false),
        ));
    }
    let is_blas = ["blas", "lapack"].iter().any(|word| name.contains(word));
    if !is_blas {
        return None;
    }
    if real.with_file_name("libgpu_offload.so.0").is_file() {
        return Some(("gpu-offload".to_owned(), Some(true)));
    }
    let bytes = fs::read(path).ok()?;
    if let Some(fit) = fit_of(&bytes) {
        let what = format!(
            "gpu-offload {} before the wheel's {}",
            fit.version, fit.original
        );
        return Some((what, Some(true)));
    }
    let kept = name.starts_with(wheel_fit::ORIGINAL_PREFIX);
    match OpenBlas::recognise(&bytes) {
        Ok(Some(own)) if kept => Some((
            format!("OpenBLAS {}, the CPU path of a swapped wheel", own.version),
            None,
        )),
        Ok(Some(own)) => Some((format!("OpenBLAS {}", own.version), Some(false))),
        // Python's own modules have such names too; a library begins with lib.
        _ => name
            .starts_with("lib")
            .then(|| ("BLAS or LAPACK of another kind".to_owned(), Some(false))),
    }
}

/// How many processors a list such as `0-3,8` names.
fn processors(list: &str) -> Option<usize> {
    list.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_patient_is_named_and_json_goes_with_it() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            _args: Args,
        }
        let accepted = |words: &[&str]| {
            let words = ["doctor"].iter().chain(words);
            <Line as clap::Parser>::try_parse_from(words).is_ok()
        };
        assert!(accepted(&["--json", "--pid", "1"]) && accepted(&["--venv", "x"]));
        assert!(!accepted(&["--json"]) && !accepted(&["--pid", "1", "--venv", "x"]));
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(processors("0-3,8"), Some(5));
        assert_eq!(processors("7"), Some(1));
        assert_eq!(processors("3-1"), None);
        assert_eq!(processors("x"), None);
    }

    #[test]
    fn a_process_with_a_foreign_library_and_too_many_threads_is_told_so() {
        let proc = std::env::temp_dir().join(format!("gpu-offload-doctor-{}", std::process::id()));
        let folder = proc.join("7");
        fs::create_dir_all(folder.join("a b")).unwrap();
        let library = folder.join("a b/libblas.so.3");
        fs::write(&library, "no ELF file").unwrap();
        let line = |path: &Path| format!("7f00-7f01 r-xp 00000000 08:01 7    {}\n", path.display());
        fs::write(
            folder.join("maps"),
            line(&library) + &line(Path::new("/lib/libc.so.6")),
        )
        .unwrap();
        fs::write(folder.join("status"), "Name:\tx\nCpus_allowed_list:\t0-1\n").unwrap();
        fs::write(folder.join("environ"), "HOME=/\0OPENBLAS_NUM_THREADS=16\0").unwrap();
        let report = process(&proc, 7).unwrap();
        assert_eq!((report.libraries.len(), report.processors), (1, Some(2)));
        assert_eq!(report.libraries[0].path, library);
        assert_eq!(report.advice.len(), 2, "{:?}", report.advice);
        // The engine beside it makes it ours.
        fs::write(folder.join("a b/libgpu_offload.so.0"), "").unwrap();
        fs::write(folder.join("environ"), "OPENBLAS_NUM_THREADS=2\0").unwrap();
        assert!(process(&proc, 7).unwrap().advice.is_empty());
        let gone = process(&proc, 8).err().unwrap().to_string();
        assert!(gone.contains("process 8"), "{gone}");
        fs::remove_dir_all(&proc).unwrap();
    }
}
