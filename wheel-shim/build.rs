//! Says how the ready-made library is linked. SONAME and the original's name are as long as any can be, since the
//! installation writes over them in place.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    match original() {
        Ok(stub) => link(&stub),
        Err(line) => println!("cargo::error={line}"),
    }
}

/// An empty library with the name that stands for the original's.
fn original() -> Result<PathBuf, String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR: this is cargo's to run")?);
    let (source, stub) = (out.join("empty.s"), out.join("original.so"));
    fs::write(&source, ".section .note.GNU-stack, \"\", @progbits\n")
        .map_err(|e| format!("cannot write {}: {e}", source.display()))?;
    let status = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&stub)
        .arg(format!("-Wl,-soname,{}", wheel_fit::ORIGINAL_ROOM))
        .arg(&source)
        .status()
        .map_err(|e| {
            format!("cannot start the C compiler driver cc: {e}: run `cargo xtask setup`")
        })?;
    if status.success() {
        Ok(stub)
    } else {
        Err("cc could not link the stub of a wheel's OpenBLAS".to_owned())
    }
}

fn link(stub: &Path) {
    for argument in [
        format!("-Wl,-soname,{}", wheel_fit::SONAME_ROOM),
        format!(
            "-Wl,--push-state,--no-as-needed,{},--pop-state",
            stub.display()
        ),
        // DT_RPATH, as the wheels' own libraries have it; it finds the original beside this library.
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN".to_owned(),
        "-Wl,-z,defs".to_owned(),
        // This table knows no order of the symbols, so that they can be renamed in place.
        "-Wl,--hash-style=sysv".to_owned(),
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
}
