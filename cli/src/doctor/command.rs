//! `doctor -- CMD…`: runs the command as it is, and notes what the loader loads.
//!
//! The loader's hook writes each library into a list, by a file that is opened and closed for each line: nothing
//! stays open in the command, and its memory, signals and output are its own. `LD_DEBUG` would keep a file open in
//! every process, under a number that programs use for theirs, and tracing would stop them and keep debuggers out.

use super::Report;
use super::limits::Limits;
use super::process::{Loaded, add, threads};
use crate::child;
use crate::prefix;
use crate::private_file::PrivateFile;
use crate::run::{audit, not_started, shell_status};
use anyhow::{Context, Result};
use loader_hook::LIST_VARIABLE;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command to its end; the report, and the status with which it ended, as a shell counts.
pub fn observe(command: &[OsString]) -> Result<(Report, u8)> {
    let (program, rest) = command.split_first().context("no command")?;
    let list = PrivateFile::new("doctor", "list")?;
    let mut started = Command::new(program);
    started
        .args(rest)
        .env(
            "LD_AUDIT",
            audit(&prefix::hook()?, std::env::var_os("LD_AUDIT")),
        )
        .env(LIST_VARIABLE, list.path());
    let status = match child::status(&mut started) {
        Ok(status) => status,
        Err(error) => return Ok((Report::default(), not_started(&started, &error))),
    };
    let text =
        fs::read(list.path()).with_context(|| format!("cannot read {}", list.path().display()))?;
    let mut report = judged(&String::from_utf8_lossy(&text));
    // What the command was started with is what this process was.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let limits = Limits::of(Path::new("/proc/self"), Path::new("/sys/fs/cgroup"));
    threads(&mut report, limits, variables.collect());
    let code = shell_status(status);
    report.status = Some(code.into());
    Ok((report, code))
}

/// One process of the command, as far as the list goes.
#[derive(Default)]
struct Process {
    program: PathBuf,
    loaded: BTreeMap<PathBuf, String>,
}

/// Judges a list: lines of process, what, path.
fn judged(list: &str) -> Report {
    let mut processes: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for line in list.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(process), Some(what), Some(path)) = (
            fields.next().and_then(|n| n.parse().ok()),
            fields.next(),
            fields.next(),
        ) else {
            continue;
        };
        let all = processes.entry(process).or_default();
        // A process that becomes another program begins anew. A child that does not, is only known by its number.
        if what == "program" {
            let program = path.into();
            all.push(Process {
                program,
                ..Process::default()
            });
        } else {
            if all.is_empty() {
                all.push(Process::default());
            }
            if let Some(last) = all.last_mut() {
                last.loaded.insert(path.into(), what.to_owned());
            }
        }
    }
    let mut report = Report::default();
    let seen = !processes.is_empty();
    for (id, Process { program, loaded }) in processes
        .into_iter()
        .flat_map(|(id, all)| all.into_iter().map(move |p| (id, p)))
    {
        let loaded = loaded.into_iter().map(|(path, place)| Loaded {
            path,
            place: Some(place),
        });
        add(&mut report, id, &program, loaded.collect());
    }
    if !seen {
        report.advise(
            "nothing was seen of it: it is linked statically, runs with another user's rights, or is no program for \
             this loader"
                .to_owned(),
        );
    } else if report.libraries.iter().all(|library| !library.serves) {
        report.advise(
            "it loaded no BLAS or LAPACK, so that there is nothing that could be served".to_owned(),
        );
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_listed_by_process_and_program() {
        let dir = std::env::temp_dir().join(format!("gpu-offload-list-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let blas = dir.join("libblas.so.3");
        fs::write(&blas, "").unwrap();
        let blas = blas.display();
        let list = format!(
            "7\tprogram\t/bin/sh\n7\tdefault\t/lib/libc.so.6\n7\tprogram\t/usr/lib/R\n7\tLD_LIBRARY_PATH\t{blas}\n\
             7\tLD_LIBRARY_PATH\t{blas}\n9\tRPATH\t{blas}\nwhat is this\n"
        );
        let report = judged(&list);
        let found: Vec<_> = report
            .libraries
            .iter()
            .map(|l| (l.process, l.program.as_deref(), l.via.as_deref()))
            .collect();
        let r = Some(Path::new("/usr/lib/R"));
        assert_eq!(
            found,
            [
                (Some(7), r, Some("LD_LIBRARY_PATH")),
                (Some(9), None, Some("RPATH"))
            ]
        );
        // The same file gives the same advice, once.
        assert_eq!(report.advice.len(), 1, "{:?}", report.advice);
        assert!(judged("").advice[0].contains("nothing was seen"));
        assert!(judged("7\tprogram\t/bin/sh\n").advice[0].contains("no BLAS"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
