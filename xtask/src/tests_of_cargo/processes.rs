//! Runs test programs without nextest: builds them by cargo, asks each for its tests, and runs every test in a
//! process of its own, as many at once as there are processors. `cargo test` would run one program after the
//! other, and within it one test after the other, since tests share a process there.

use super::{NEEDS_ROOT, Tests};
use crate::conformance::Tally;
use crate::tools::{bar, cargo, side_by_side};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// In the names of tests that compare times: these run alone and are tried up to [`TRIES`] times, since a
/// neighbour on the machine spoils one measurement, a defect all.
const ALONE: &[&str] = &[
    "concurrent_callers",
    "forked_child",
    "openblas_set_num_threads",
    "sixteen_callers",
];

/// How often a test that compares times may be run.
const TRIES: u32 = 5;

/// A test that runs longer hangs. The longest one of a full run takes ten minutes.
const LIMIT_S: u32 = 16 * 60;

/// One program with tests.
struct Program {
    /// As cargo names it: package and target.
    name: String,
    exe: PathBuf,
    /// The package's folder, which tests find as their working folder.
    folder: PathBuf,
}

struct Test<'a> {
    program: &'a Program,
    name: String,
}

/// Builds and runs the tests, and shows the output of those that fail.
pub(super) fn run(tests: &Tests, root: bool) -> Result<Tally> {
    let programs = build(tests)?;
    let mut tally = Tally::default();
    let mut all = Vec::new();
    for program in &programs {
        let ignored = list(program, tests, &["--ignored"])?;
        tally.skipped += ignored.len() as u64;
        for name in list(program, tests, &[])? {
            let needs_root = name.split("::").any(|part| part.starts_with(NEEDS_ROOT));
            if needs_root && !root {
                tally.skipped += 1;
            } else if !ignored.contains(&name) {
                all.push(Test { program, name });
            }
        }
    }
    ensure!(!all.is_empty(), "no test is selected");
    let (alone, together): (Vec<Test>, Vec<Test>) = all
        .into_iter()
        .partition(|test| ALONE.iter().any(|part| test.name.contains(part)));
    let progress = bar("tests", (alone.len() + together.len()) as u64);
    let one = |test: &Test, tries| -> Result<bool> {
        let passed = attempt(test, tests, tries)?;
        progress.inc(1);
        Ok(passed)
    };
    let of_together = side_by_side(&together, |test| one(test, 1))?;
    of_together.into_iter().for_each(|held| tally.check(held));
    for test in &alone {
        tally.check(one(test, TRIES)?);
    }
    progress.finish_and_clear();
    Ok(tally)
}

/// Builds what the selection names, and returns the programs with tests in it.
fn build(tests: &Tests) -> Result<Vec<Program>> {
    let output = cargo()
        .args(["test", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .args(tests.selection)
        .envs(tests.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests cannot be built");
    Ok(programs(&String::from_utf8_lossy(&output.stdout)))
}

/// The test programs that cargo's messages name, a JSON object a line.
fn programs(messages: &str) -> Vec<Program> {
    let of = |message: Value| -> Option<Program> {
        let exe = message["executable"].as_str()?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let is_test = message["profile"]["test"].as_bool()?;
        is_test.then(|| Program {
            name: format!(
                "{}::{}",
                folder.file_name().unwrap_or_default().to_string_lossy(),
                message["target"]["name"].as_str().unwrap_or_default()
            ),
            exe: exe.into(),
            folder: folder.into(),
        })
    };
    messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter_map(of)
        .collect()
}

/// A test program as cargo would start it.
fn command(program: &Program, tests: &Tests, exe: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(exe);
    command
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .envs(tests.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    command
}

/// The names of a program's tests, with `more` options.
fn list(program: &Program, tests: &Tests, more: &[&str]) -> Result<Vec<String>> {
    let mut command = command(program, tests, &program.exe);
    command.args(["--list", "--format=terse"]).args(more);
    if !tests.name.is_empty() {
        command.arg(tests.name);
    }
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", program.exe.display()))?;
    ensure!(
        output.status.success(),
        "{} does not list its tests ({})",
        program.exe.display(),
        output.status
    );
    Ok(names(&String::from_utf8_lossy(&output.stdout)))
}

/// The tests in libtest's terse list.
fn names(list: &str) -> Vec<String> {
    list.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

/// Runs a test until it passes, `tries` times at most, and shows its output where that is of interest.
fn attempt(test: &Test, tests: &Tests, tries: u32) -> Result<bool> {
    for number in 1..=tries {
        let start = Instant::now();
        let Output {
            status,
            stdout,
            stderr,
        } = command(test.program, tests, "timeout")
            .arg("--kill-after=10")
            .arg(LIMIT_S.to_string())
            .arg(&test.program.exe)
            .args(["--exact", &test.name, "--nocapture"])
            .output()
            .context("cannot start timeout")?;
        let text = String::from_utf8_lossy(&stdout);
        // A program that ran nothing has passed nothing.
        let passed = status.success() && text.contains("test result: ok. 1 passed");
        if !passed || tests.show {
            eprintln!(
                "{} {} {}: {status}, {:.1} s, try {number} of {tries}\n{text}{}",
                if passed { "PASS" } else { "FAIL" },
                test.program.name,
                test.name,
                start.elapsed().as_secs_f64(),
                String::from_utf8_lossy(&stderr)
            );
        }
        if passed {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_messages_name_the_programs() {
        let artifact = |test: bool, exe: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/engine/Cargo.toml","target":{{"name":"sim"}},"profile":{{"test":{test}}},"executable":{exe}}}"#
            )
        };
        let messages = [
            artifact(true, r#""/t/sim-1""#),
            artifact(false, r#""/t/tool""#),
            artifact(true, "null"),
            "no JSON".to_owned(),
        ]
        .join("\n");
        let found = programs(&messages);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "engine::sim");
        assert_eq!(found[0].exe, Path::new("/t/sim-1"));
        assert_eq!(found[0].folder, Path::new("/w/engine"));
    }

    #[test]
    fn a_list_is_read_without_benchmarks() {
        assert_eq!(
            names("a::b: test\nc: benchmark\n\nd: test\n"),
            ["a::b", "d"]
        );
    }

    #[test]
    fn tests_that_compare_times_are_the_same_for_nextest() {
        let config = include_str!("../../../.config/nextest.toml");
        let filter: Vec<String> = ALONE.iter().map(|name| format!("test({name})")).collect();
        let filter = format!("filter = \"{}\"", filter.join(" | "));
        assert!(
            config.contains(&filter),
            "not in .config/nextest.toml: {filter}"
        );
        assert!(config.contains(&format!("retries = {}", TRIES - 1)));
    }

    /// A test passes here by its own assertion, fails by it, and hangs or runs nothing: only the first passes.
    #[test]
    fn only_a_test_that_ran_and_held_passes() {
        let program = Program {
            name: "xtask::this".to_owned(),
            exe: std::env::current_exe().unwrap(),
            folder: env!("CARGO_MANIFEST_DIR").into(),
        };
        let verdict = |name: &str, variables: &[(&str, PathBuf)]| {
            let test = Test {
                program: &program,
                name: format!("tests_of_cargo::processes::tests::{name}"),
            };
            let tests = Tests {
                variables,
                ..Tests::default()
            };
            attempt(&test, &tests, 2).unwrap()
        };
        assert!(verdict("holds_unless_told_otherwise", &[]));
        assert!(!verdict(
            "holds_unless_told_otherwise",
            &[(FAIL, "1".into())]
        ));
        assert!(!verdict("no_such_test", &[]));
    }

    const FAIL: &str = "GPU_OFFLOAD_TEST_OF_TESTS_FAILS";

    #[test]
    fn holds_unless_told_otherwise() {
        assert!(std::env::var_os(FAIL).is_none());
    }
}
