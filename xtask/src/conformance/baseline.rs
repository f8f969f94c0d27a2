//! The archive without us: the pristine OpenBLAS archive, linked as it is into a `libblas.so.3` that
//! holds BLAS and LAPACK, and an empty `liblapack.so.3` that needs it. Every comparison rests on it.

use super::client_run::cache;
use crate::openblas;
use crate::tools::{quiet, step};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Trixie's archive was compiled against a glibc that has the C23 names; older ones lack this one.
const FORWARDER: &str = "#include <stdlib.h>\n\
    __attribute__((visibility(\"hidden\"))) long __isoc23_strtol(const char *s, char **end, int base)\n\
    {\n    return strtol(s, end, base);\n}\n";

/// The folder of the two libraries, linked on the first call and kept.
pub fn baseline() -> Result<PathBuf> {
    let prepared = openblas::prepare(&openblas::Args::default())?;
    let prepared = fs::canonicalize(&prepared).unwrap_or(prepared);
    let archive = prepared.join("lib/libopenblas.a");
    // The prepared folder's name holds version and recipe.
    let name = prepared
        .file_name()
        .context("the prepared OpenBLAS has no folder name")?;
    let dir = cache()?.join("baseline").join(name);
    if dir.join("liblapack.so.3").exists() {
        return Ok(dir);
    }
    let _progress = step("linking the OpenBLAS archive without us");
    let temporary = dir.with_extension(format!("new-{}", std::process::id()));
    fs::create_dir_all(&temporary)
        .with_context(|| format!("cannot create {}", temporary.display()))?;
    let source = temporary.join("forwarder.c");
    fs::write(&source, FORWARDER)?;
    let blas = temporary.join("libblas.so.3");
    quiet(
        Command::new("gcc")
            .args(["-O2", "-fPIC", "-shared", "-Wl,-soname,libblas.so.3", "-o"])
            .arg(&blas)
            .arg(&source)
            .arg("-Wl,--whole-archive")
            .arg(&archive)
            .args([
                "-Wl,--no-whole-archive",
                "-Wl,-z,defs",
                "-lgfortran",
                "-lm",
                "-lpthread",
            ]),
    )?;
    let empty = temporary.join("empty.c");
    fs::write(&empty, "")?;
    quiet(
        Command::new("gcc")
            .args([
                "-shared",
                "-Wl,-soname,liblapack.so.3",
                "-Wl,--no-as-needed",
                "-o",
            ])
            .arg(temporary.join("liblapack.so.3"))
            .arg(&empty)
            .arg(&blas),
    )?;
    // The directory appears whole or not at all; a second process may have been faster.
    if fs::rename(&temporary, &dir).is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    Ok(dir)
}
