//! `libopenblas.so.0`: programs linked with `-lopenblas` want all names of BLAS, LAPACK and LAPACKE under
//! this one name.
//!
//! It holds no code and no name. It needs our libraries by their place, not by their SONAME, because the
//! process's `libblas.so.3` may be somebody else's and lack OpenBLAS's control functions; the loader looks
//! names up through it as if they were its own, data included, and sees one copy of each library.

use crate::tools::quiet;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Its name.
pub const SONAME: &str = "libopenblas.so.0";

/// The libraries that its names come from, in the order in which they are looked up.
pub const PARTS: [&str; 3] = ["libblas.so.3", "liblapack.so.3", "liblapacke.so.3"];

/// A library without a name in it.
///
/// `needed` is recorded as it stands: a name with a slash is a path, `$ORIGIN` is the folder of the name by
/// which the library was opened. `search` is the run path.
pub fn empty(to: &Path, soname: &str, needed: &[String], search: &[String]) -> Result<()> {
    let work = to.with_extension(format!("work{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let source = work.join("empty.s");
    fs::write(&source, ".section .note.GNU-stack, \"\", @progbits\n")?;
    let cc = |soname: &str, to: &Path| {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-nostdlib", "-s", "-Wl,--build-id=none"])
            .arg("-Wl,-soname")
            .arg(format!("-Wl,{soname}"))
            .arg("-o")
            .arg(to)
            .arg(&source);
        cc
    };
    // What is linked gives its SONAME to the list of needed libraries: stand-ins with the names wanted.
    let mut stubs = Vec::new();
    for (i, name) in needed.iter().enumerate() {
        let stub = work.join(format!("stub{i}.so"));
        quiet(&mut cc(name, &stub))?;
        stubs.push(stub);
    }
    let mut link = cc(soname, to);
    link.arg("-Wl,--no-as-needed").args(stubs);
    if !search.is_empty() {
        link.args(["-Wl,--enable-new-dtags", "-Wl,-rpath"])
            .arg(format!("-Wl,{}", search.join(":")));
    }
    quiet(&mut link).with_context(|| format!("cannot link {soname}"))?;
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
}

/// The one of a prefix: the other libraries lie beside it.
pub fn beside(to: &Path) -> Result<()> {
    let mut needed = PARTS.map(|part| format!("$ORIGIN/{part}")).to_vec();
    needed.push("libc.so.6".to_owned());
    empty(to, SONAME, &needed, &[])
}
