//! Links the BLAS half of the prepared OpenBLAS whole into libblas.so.3 and says what is exported.
//!
//! rustc hides everything that is not Rust; the second, anonymous version script written here makes the
//! archive's own public symbols visible, so that a routine without an entry of ours costs nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What `src/batch.rs` stands before.
const REPLACED: [&str; 4] = [
    "cblas_cgemm_batch",
    "cblas_dgemm_batch",
    "cblas_sgemm_batch",
    "cblas_zgemm_batch",
];

fn main() {
    if let Err(line) = link() {
        println!("cargo::error={line}");
    }
}

fn link() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=exports.txt");
    // Asked when it runs: a checkout may share its target folder with another one.
    let package = env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?;
    let root = Path::new(&package).join("..");
    let openblas = root.join(".openblas");
    let list = |file: &str| -> Result<Vec<String>, String> {
        let path = openblas.join("names").join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).map_err(|e| {
            format!(
                "the prepared OpenBLAS is missing (names/{file}: {e}): run `cargo xtask openblas`"
            )
        })?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    if list("routed.txt")? != routines::routed_symbols() || list("replaced.txt")? != REPLACED {
        return Err(
            "the prepared OpenBLAS is of another table: run `cargo xtask openblas`".to_owned(),
        );
    }
    let archive = openblas.join("lib/libgpu_offload_blas.a");
    println!("cargo::rerun-if-changed={}", archive.display());

    let exports =
        fs::read_to_string("exports.txt").map_err(|e| format!("blas-shim/exports.txt: {e}"))?;
    let mut script = String::from("{\n  global:\n");
    for name in exports.lines() {
        let _ = writeln!(script, "    {name};");
    }
    for name in list("kernels.txt")? {
        let _ = writeln!(script, "    gpu_offload_v1_{name};");
    }
    // liblapack.so.3 calls it; see src/rest.rs.
    script.push_str("    gpu_offload_v1_rest;\n};\n");
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| e.to_string())?);
    let map = out.join("exports.map");
    fs::write(&map, script).map_err(|e| format!("cannot write {}: {e}", map.display()))?;

    let archive = archive.display();
    for argument in [
        "-Wl,-soname,libblas.so.3".to_owned(),
        format!("-Wl,--version-script={}", map.display()),
        format!("-Wl,--whole-archive,{archive},--no-whole-archive"),
        // Nothing is left to a peer to supply.
        "-Wl,-z,defs".to_owned(),
        // rustc asks for all names at once; most programs use a handful of these two thousand.
        "-Wl,-z,lazy".to_owned(),
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
    Ok(())
}
