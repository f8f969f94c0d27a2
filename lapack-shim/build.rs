//! Links the LAPACK half of the prepared OpenBLAS whole into liblapack.so.3, writes the forwarders to the
//! kernels in libblas.so.3, and says what is exported and needed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    if let Err(line) = link() {
        println!("cargo::error={line}");
    }
}

fn link() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    // Asked when it runs: a checkout may share its target folder with another one.
    let package = env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?;
    let root = Path::new(&package).join("..");
    let openblas = root.join(".openblas");
    let list = |path: PathBuf, advice: &str| -> Result<Vec<String>, String> {
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path)
            .map_err(|e| format!("cannot read {}: {e}{advice}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let prepared = |name: &str| {
        list(
            openblas.join("names").join(name),
            ": run `cargo xtask openblas`",
        )
    };
    let routed = prepared("routed.txt")?;
    if routed != routines::routed_symbols() {
        return Err(
            "the prepared OpenBLAS is of another table: run `cargo xtask openblas`".to_owned(),
        );
    }
    let kernels = prepared("kernels.txt")?;
    let recent = prepared("recent-blas.txt")?;
    let exports = list(root.join("lapack-shim/exports.txt"), "")?;
    let blas = list(root.join("blas-shim/exports.txt"), "")?;
    let archive = openblas.join("lib/libgpu_offload_lapack.a");
    println!("cargo::rerun-if-changed={}", archive.display());

    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| e.to_string())?);
    let write = |name: &str, text: String| -> Result<PathBuf, String> {
        let path = out.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(path)
    };
    write("forward.s", forwarders(&kernels, &recent, &routed))?;
    write("names.rs", sought(&kernels, &recent))?;
    let script: String = exports
        .iter()
        .map(|name| format!("    {name};\n"))
        .collect();
    let script = write("exports.map", format!("{{\n  global:\n{script}}};\n"))?;

    // A library with libblas's name and BLAS's names, and nothing in it: what is recorded is the need for
    // the process's libblas.so.3, whichever that is. The recent names are left out: where that library
    // lacks them, ours are used.
    let mut source = String::from("    .text\n");
    for name in blas.iter().filter(|name| !recent.contains(name)) {
        let _ = writeln!(
            source,
            "    .globl {name}\n    .type {name}, @function\n{name}:"
        );
    }
    source.push_str("    ret\n    .section .note.GNU-stack, \"\", @progbits\n");
    let source = write("stub.s", source)?;
    let stub = out.join("libblas.so.3");
    let status = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-shared", "-nostdlib", "-Wl,-soname,libblas.so.3", "-o"])
        .arg(&stub)
        .arg(&source)
        .status()
        .map_err(|e| {
            format!("cannot start the C compiler driver cc: {e}: run `cargo xtask setup`")
        })?;
    if !status.success() {
        return Err("cc could not link the stub of libblas.so.3".to_owned());
    }

    for argument in [
        "-Wl,-soname,liblapack.so.3".to_owned(),
        format!("-Wl,--version-script={}", script.display()),
        format!(
            "-Wl,--whole-archive,{},--no-whole-archive",
            archive.display()
        ),
        // Needed even by a linker that would find no reference in our own code.
        format!(
            "-Wl,--push-state,--no-as-needed,{},--pop-state",
            stub.display()
        ),
        // A program that needs only LAPACK finds the libblas.so.3 beside the name by which it was found,
        // which in a folder of links may be somebody else's.
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN".to_owned(),
        "-Wl,-z,defs".to_owned(),
        // rustc asks for all names at once; most programs use a handful of these two thousand.
        "-Wl,-z,lazy".to_owned(),
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
    Ok(())
}

/// Assembler: a forwarder, a slot, a first target and a weak reference for each name. The forwarder of a routed
/// name has the private name, since the stub has the public one.
fn forwarders(kernels: &[String], recent: &[String], routed: &[String]) -> String {
    let (mut code, mut lazy, mut slots, mut found) =
        (String::new(), String::new(), String::new(), String::new());
    let hide = |name: &str| format!("    .hidden {name}\n");
    let public = kernels.iter().map(|name| {
        let sought = format!("gpu_offload_v1_{name}");
        if routed.contains(name) {
            let private = format!("gpu_offload_cpu_{name}");
            let hidden = hide(&private);
            (private, sought, hidden)
        } else {
            (name.clone(), sought, String::new())
        }
    });
    // LAPACK's references to these carry the private name.
    let private = recent.iter().map(|name| {
        let private = format!("gpu_offload_private_{name}");
        let hidden = hide(&private);
        (private, name.clone(), hidden)
    });
    let all = public.chain(private).enumerate();
    for (i, (name, sought, hidden)) in all {
        let at = 8 * i;
        let _ = write!(
            code,
            "    .globl {name}\n{hidden}    .type {name}, @function\n    .p2align 3\n{name}:\n    \
             jmp qword ptr [rip + gpu_offload_private_slots + {at}]\n    .size {name}, . - {name}\n"
        );
        let _ = write!(
            lazy,
            ".Llazy{i}:\n    mov r11d, {i}\n    jmp gpu_offload_private_lazy\n"
        );
        let _ = writeln!(slots, "    .quad .Llazy{i}");
        let _ = write!(found, "    .weak {sought}\n    .quad {sought}\n");
    }
    format!(
        "    .text\n{code}{lazy}    .section .data.gpu_offload_slots, \"aw\", @progbits\n    .p2align 3\n    \
         .globl gpu_offload_private_slots\n    .hidden gpu_offload_private_slots\n\
         gpu_offload_private_slots:\n{slots}    \
         .section .data.rel.ro.gpu_offload_found, \"aw\", @progbits\n    .p2align 3\n    \
         .globl gpu_offload_private_found\n    .hidden gpu_offload_private_found\n\
         gpu_offload_private_found:\n{found}    .text\n"
    )
}

/// Rust: the names that are sought in our libblas.so.3, in the order of the slots.
fn sought(kernels: &[String], recent: &[String]) -> String {
    let names: String = kernels
        .iter()
        .map(|name| format!("    c\"gpu_offload_v1_{name}\",\n"))
        .chain(recent.iter().map(|name| format!("    c\"{name}\",\n")))
        .collect();
    let count = kernels.len() + recent.len();
    format!("const SLOTS: usize = {count};\nstatic SOUGHT: [&CStr; SLOTS] = [\n{names}];\n")
}
