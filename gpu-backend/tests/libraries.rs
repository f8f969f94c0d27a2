//! Libraries that are missing, broken, too new or not what their name says: one clear line each.

mod common;

use common::{fresh_dir, sim_library};
use gpu_backend::{StartError, StartOptions, probe_libraries};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A folder with the simulated driver, and whatever the test adds.
fn driver_only(name: &str) -> PathBuf {
    let dir = fresh_dir(name);
    symlink(sim_library(), dir.join("libcuda.so.1")).expect("a link");
    dir
}

fn probe(dir: &Path) -> Result<Vec<(String, PathBuf)>, StartError> {
    probe_libraries(&StartOptions {
        library_dirs: vec![dir.to_owned()],
        ..Default::default()
    })
}

/// A loaded library is a process's for ever, so every test runs in a process of its own: true there,
/// false (after the child has passed) in the parent.
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    const CHILD: &str = "GPU_BACKEND_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // A name that is misspelt runs nothing and would pass.
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// One line that names `what`.
fn assert_clear(error: &StartError, what: &str) {
    let line = error.to_string();
    assert!(line.contains(what), "{line} does not name {what}");
    assert!(!line.contains('\n'), "{line}");
}

/// A shared library that is certainly no CUDA: the one this program's mathematics comes from.
fn another_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let mut found = path.filter(|p| p.contains("libgcc_s") || p.contains("libm.so"));
    found.next().expect("libgcc_s or libm is loaded").into()
}

#[test]
fn what_is_used_is_listed_with_its_path() {
    if !alone("what_is_used_is_listed_with_its_path", &[]) {
        return;
    }
    let dir = common::sim_dir();
    let libraries = probe(&dir).expect("the simulated libraries");
    let names: Vec<&str> = libraries.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"libcuda.so.1"), "{names:?}");
    assert!(names.contains(&"libcublas.so.13"), "{names:?}");
    assert!(names.contains(&"libcusolver.so.12"), "{names:?}");
    for (name, path) in &libraries {
        assert!(path.starts_with(&dir), "{name} at {}", path.display());
    }
}

#[test]
fn a_driver_that_is_no_library_is_named() {
    if !alone("a_driver_that_is_no_library_is_named", &[]) {
        return;
    }
    let dir = fresh_dir("broken-driver");
    std::fs::write(dir.join("libcuda.so.1"), "not a library").expect("a file");
    match probe(&dir) {
        Err(e @ StartError::NoDriver { .. }) => {
            assert_clear(&e, &dir.join("libcuda.so.1").display().to_string());
        }
        // The machine's own driver may take the broken one's place.
        other => assert!(common::real(), "{other:?}"),
    }
}

#[test]
fn a_driver_without_its_functions_is_named() {
    if !alone("a_driver_without_its_functions_is_named", &[]) {
        return;
    }
    let dir = fresh_dir("foreign-driver");
    symlink(another_library(), dir.join("libcuda.so.1")).expect("a link");
    match probe(&dir) {
        Err(e @ StartError::MissingSymbol { .. }) => assert_clear(&e, "cuDriverGetVersion"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cublas_without_its_functions_is_named() {
    if !alone("a_cublas_without_its_functions_is_named", &[]) {
        return;
    }
    let dir = driver_only("foreign-cublas");
    symlink(another_library(), dir.join("libcublas.so.13")).expect("a link");
    match probe(&dir) {
        Err(e @ StartError::MissingSymbol { .. }) => {
            assert_clear(&e, "cublasCreate_v2");
            assert_clear(&e, "libcublas.so.13");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_cublas_says_where_it_was_looked_for() {
    if !alone("a_missing_cublas_says_where_it_was_looked_for", &[]) {
        return;
    }
    let dir = driver_only("no-cublas");
    match probe(&dir) {
        Err(e @ StartError::NoLibrary { .. }) => {
            assert_clear(&e, "libcublas.so.13 or libcublas.so.12");
            assert_clear(&e, &dir.display().to_string());
            assert_clear(&e, "/usr/lib/x86_64-linux-gnu");
        }
        // The machine may have a cuBLAS of its own.
        Ok(libraries) => assert!(libraries.iter().any(|(name, _)| name.contains("cublas"))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_old_driver_is_refused() {
    if !alone(
        "an_old_driver_is_refused",
        &[("SIM_CUDA_DRIVER_VERSION", "11040")],
    ) {
        return;
    }
    match probe(&common::sim_dir()) {
        Err(e @ StartError::WrongVersion { .. }) => {
            assert_clear(&e, "CUDA 11.4");
            assert_clear(&e, "525");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cublas_too_new_for_the_driver_is_refused() {
    let older = [("SIM_CUDA_DRIVER_VERSION", "12040")];
    if !alone("a_cublas_too_new_for_the_driver_is_refused", &older) {
        return;
    }
    match probe(&common::sim_dir()) {
        Err(e @ StartError::WrongVersion { .. }) => {
            assert_clear(&e, "the NVIDIA driver");
            assert_clear(&e, "CUDA 12.4, too old for");
            assert_clear(&e, "libcublas.so.13");
            assert_clear(&e, "580");
            assert_clear(&e, "libcublas.so.12");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_cublas_names_what_an_older_driver_serves() {
    let older = [("SIM_CUDA_DRIVER_VERSION", "12040")];
    if !alone("a_missing_cublas_names_what_an_older_driver_serves", &older) {
        return;
    }
    match probe(&driver_only("no-cublas-older-driver")) {
        Err(e @ StartError::NoLibrary { .. }) => {
            assert_clear(&e, "libcublas.so.12 (the driver serves CUDA 12.4");
        }
        // The machine may have a cuBLAS of its own, of either version.
        Err(e @ StartError::WrongVersion { .. }) => assert_clear(&e, "CUDA 12.4, too old for"),
        Ok(libraries) => assert!(libraries.iter().any(|(name, _)| name.contains("cublas"))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_machine_without_a_device_says_so() {
    if !alone(
        "a_machine_without_a_device_says_so",
        &[("SIM_CUDA_DEVICES", "0")],
    ) {
        return;
    }
    let error = gpu_backend::Gpu::start(&common::options())
        .err()
        .expect("refused");
    assert_eq!(
        error,
        StartError::NoDevice {
            device: 0,
            count: 0
        }
    );
    assert_clear(&error, "no GPU");
}
