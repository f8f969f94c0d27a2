//! The program as a command, on libraries that every Linux machine has: none of them is a BLAS, so
//! that nothing here depends on what is installed.

use std::process::{Command, Output};

fn level3_random(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_level3-random"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().last().unwrap_or_default().to_string()
}

#[test]
fn a_library_that_cannot_be_loaded_is_one_line() {
    let output = level3_random(&["--library", "/nowhere/libblas.so.3"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("cannot load /nowhere/libblas.so.3"),
        "{errors}"
    );
}

#[test]
fn a_library_without_blas_proves_nothing() {
    let output = level3_random(&["--library", "libm.so.6", "--calls", "300", "--threads", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(last_line(&output.stdout), "0 passed, 0 failed, 300 skipped");
}

#[test]
fn json_has_the_same_counts() {
    let output = level3_random(&["--library", "libm.so.6", "--calls", "40", "--json"]);
    let line = last_line(&output.stdout);
    let line: serde_json::Value = serde_json::from_str(&line).expect("a JSON object");
    assert_eq!((&line["passed"], &line["skipped"]), (&0.into(), &40.into()));
}

#[test]
fn families_that_do_not_exist_in_a_precision_are_refused() {
    let output = level3_random(&["--families", "hemm", "--precisions", "s,d"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("hemm exists in c and z only"), "{errors}");
}

#[test]
fn an_exception_that_no_call_needs_fails() {
    let output = level3_random(&[
        "--library",
        "libm.so.6",
        "--calls",
        "5",
        "--except",
        "openblas-nan-beta",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(last_line(&output.stderr).contains("no call needed --except openblas-nan-beta"));
}
