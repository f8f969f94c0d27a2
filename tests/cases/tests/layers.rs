//! The dependency direction that ARCHITECTURE.md promises, read from `cargo metadata`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each crate of ours may depend on, of ours. Development dependencies are not counted.
const ALLOWED: &[(&str, &[&str])] = &[
    ("routines", &[]),
    ("engine-abi", &[]),
    ("door", &["engine-abi"]),
    ("reader", &["routines", "engine-abi", "door"]),
    ("call", &["routines"]),
    ("cost-model", &["routines"]),
    ("cpu-backend", &["routines", "call"]),
    ("gpu-backend", &["routines", "call"]),
    (
        "engine",
        &[
            "routines",
            "call",
            "engine-abi",
            "cost-model",
            "gpu-backend",
        ],
    ),
    (
        "blas-shim",
        &["routines", "engine-abi", "door", "reader", "cpu-backend"],
    ),
    ("lapack-shim", &["routines", "engine-abi", "door", "reader"]),
    ("wheel-fit", &[]),
    ("loader-hook", &[]),
    ("wheel-shim", &["engine-abi", "door", "reader", "wheel-fit"]),
    (
        "cli",
        &[
            "routines",
            "call",
            "cost-model",
            "gpu-backend",
            "engine",
            "loader-hook",
            "wheel-fit",
        ],
    ),
];

/// Crates that promise `forbid(unsafe_code)`.
const SAFE: &[(&str, &str)] = &[
    ("routines", "routines/src/lib.rs"),
    ("cost-model", "cost-model/src/lib.rs"),
    ("cli", "cli/src/main.rs"),
    ("xtask", "xtask/src/main.rs"),
];

#[test]
fn dependencies_point_one_way() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(cases::workspace())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let graph: BTreeMap<&str, BTreeSet<&str>> = packages
        .iter()
        .map(|p| {
            let dependencies = p["dependencies"].as_array().expect("dependencies");
            let normal = dependencies
                .iter()
                .filter(|d| d["kind"].as_str() != Some("dev"))
                .filter_map(|d| d["name"].as_str())
                .filter(|d| ours.contains(d));
            (p["name"].as_str().expect("name"), normal.collect())
        })
        .collect();
    for (name, allowed) in ALLOWED {
        let used = graph.get(name).unwrap_or_else(|| panic!("no crate {name}"));
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        let wrong: Vec<_> = used.difference(&allowed).collect();
        assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
    }
}

#[test]
fn safe_crates_forbid_unsafe_code() {
    for (name, file) in SAFE {
        let text = std::fs::read_to_string(cases::workspace().join(file)).expect(file);
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "{name} does not forbid unsafe code"
        );
    }
}
