//! `gpu-offload verify` on a program that calls the routed routines of LAPACK, with the simulated GPU and without any.

use cases::{compile_with, ours, prefix, scratch, simulated_cuda};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn verify(exe: &Path, library_path: Option<&Path>, json: &Path) -> Output {
    let mut command = Command::new(prefix().join("bin/gpu-offload"));
    command
        .args(["verify", "--threshold", "0", "--json"])
        .arg(json)
        .arg(exe)
        .env_remove("LD_LIBRARY_PATH")
        .env("OPENBLAS_NUM_THREADS", "1")
        .env("SIM_CUDA_DELAYS", "none");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    command.output().expect("started")
}

#[test]
fn a_program_is_verified_routine_by_routine_and_sees_the_cpus_results() {
    let dir = scratch!("verify");
    let exe = compile_with(&dir, "lapack_workspace.c", &ours(), &["-rdynamic"]);
    let json = dir.join("found.json");
    let out = verify(&exe, Some(&simulated_cuda()), &json);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains(" 0 of them wrong"), "{stderr}");
    let text = std::fs::read_to_string(&json).expect("written");
    let found: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    let compared = |(_, routine): &(&String, &serde_json::Value)| routine["compared"] != 0;
    assert!(found.iter().filter(compared).count() > 60, "{stderr}");
    for precision in "sdcz".chars() {
        for family in ["getrf", "gesv", "potrf", "geqrf", "gesdd", "geev"] {
            let routine = &found[&format!("{precision}{family}")];
            // Three sizes with each legal workspace.
            let compared = routine["compared"].as_u64();
            assert!(compared >= Some(3), "{precision}{family}: {routine}");
        }
    }
    // Bit for bit what the program computes without us in between.
    let plain = Command::new(&exe)
        .env("LD_LIBRARY_PATH", ours())
        .env("GPU_OFFLOAD", "off")
        .env("OPENBLAS_NUM_THREADS", "1")
        .output()
        .expect("started");
    assert_eq!(out.stdout, plain.stdout);

    let none = verify(&exe, None, &json);
    let stderr = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(
        none.status.code(),
        Some(1),
        "nothing was compared: {stderr}"
    );
    assert!(
        stderr.contains("0 calls compared") && stderr.contains("not compared: "),
        "{stderr}"
    );
    assert_eq!(none.stdout, plain.stdout);
}
