//! The C ABI as programs meet it: names, versions, link, complex and float functions, missing string
//! lengths (cases F3, F5, F6). CPU route.

use cases::{Program, baseline, compile_with, exported_names, names_in, ours, scratch, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn symbol_list(name: &str) -> Vec<String> {
    names_in(&workspace().join("xtask/symbols").join(name))
}

/// `__xerbla` is an internal leftover of OpenBLAS's build, in no header and called by no program.
const NOT_WANTED: &[&str] = &["__xerbla"];

/// Prefix of the names that our own libraries call in each other.
const PRIVATE_PREFIX: &str = "gpu_offload_v1_";

#[track_caller]
fn nothing_missing(library: &str, lists: &[&str]) {
    let exported: BTreeSet<String> = exported_names(&ours().join(library)).into_iter().collect();
    for list in lists {
        let names = symbol_list(list);
        assert!(names.len() > 100, "{list} is no list of names");
        let missing: Vec<&String> = names
            .iter()
            .filter(|n| !NOT_WANTED.contains(&n.as_str()) && !exported.contains(*n))
            .collect();
        assert!(
            missing.is_empty(),
            "{library} lacks {} names of {list}: {missing:?}",
            missing.len()
        );
    }
}

#[test]
fn libblas_exports_every_listed_name() {
    nothing_missing(
        "libblas.so.3",
        &["ref-libblas.so.3.txt", "openblas-libblas.so.3.txt"],
    );
}

#[test]
fn liblapack_exports_every_listed_name() {
    nothing_missing(
        "liblapack.so.3",
        &["ref-liblapack.so.3.txt", "openblas-liblapack.so.3.txt"],
    );
}

#[test]
fn liblapacke_exports_every_listed_name() {
    nothing_missing("liblapacke.so.3", &["ref-liblapacke.so.3.txt"]);
}

#[track_caller]
fn exactly_the_committed_list(library: &str, list: PathBuf) {
    let exported: BTreeSet<String> = exported_names(&ours().join(library)).into_iter().collect();
    let wanted: BTreeSet<String> = names_in(&list).into_iter().collect();
    let missing: Vec<_> = wanted.difference(&exported).collect();
    let extra: Vec<_> = exported
        .difference(&wanted)
        .filter(|name| !name.starts_with(PRIVATE_PREFIX))
        .collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{library} against {}: missing {missing:?}, extra {extra:?}",
        list.display()
    );
}

#[test]
fn libblas_exports_the_committed_list_and_nothing_else() {
    exactly_the_committed_list("libblas.so.3", workspace().join("blas-shim/exports.txt"));
}

#[test]
fn liblapack_exports_the_committed_list_and_nothing_else() {
    exactly_the_committed_list(
        "liblapack.so.3",
        workspace().join("lapack-shim/exports.txt"),
    );
}

/// Functions that a library exports: their addresses and sizes in bytes.
fn functions(library: &Path) -> BTreeMap<String, (u64, u64)> {
    let out = Command::new("nm")
        .args(["-DS", "--defined-only", "--without-symbol-versions"])
        .arg(library)
        .output()
        .expect("nm");
    assert!(out.status.success(), "nm refused {}", library.display());
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a hexadecimal number");
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[address, bytes, kind, name] = words.as_slice() else {
                return None;
            };
            "TWi"
                .contains(kind)
                .then(|| (name.to_owned(), (number(address), number(bytes))))
        })
        .collect()
}

/// OpenBLAS's own kernels of LAPACK, which live in libblas under private names.
fn kernels() -> BTreeSet<String> {
    let names = exported_names(&ours().join("libblas.so.3"));
    names
        .iter()
        .filter_map(|name| name.strip_prefix(PRIVATE_PREFIX))
        .map(str::to_owned)
        .collect()
}

/// The archive's crash on small matrices (blas-shim/src/batch.rs).
const REPLACED: &[&str] = &[
    "cblas_sgemm_batch",
    "cblas_dgemm_batch",
    "cblas_cgemm_batch",
    "cblas_zgemm_batch",
];

/// No stub and no jump: what is not routed costs nothing. A function of the archive is known by its size.
#[test]
fn functions_without_a_gpu_path_are_the_archives_own() {
    let archive = functions(&baseline().join("libblas.so.3"));
    let routed: BTreeSet<String> = routines::routed_symbols().into_iter().collect();
    let kernels = kernels();
    assert!(kernels.len() > 40, "blind: {} kernels", kernels.len());
    for (library, at_least) in [("libblas.so.3", 300), ("liblapack.so.3", 1800)] {
        let is_lapack = library == "liblapack.so.3";
        let (mut same, mut other) = (0, Vec::new());
        for (name, (_, bytes)) in functions(&ours().join(library)) {
            // What the archive lacks can be nothing but ours.
            let Some((_, archives_bytes)) = archive.get(&name) else {
                continue;
            };
            let is_ours = routed.contains(&name)
                || REPLACED.contains(&name.as_str())
                || (is_lapack && kernels.contains(&name));
            if is_ours {
                assert_ne!(
                    bytes, *archives_bytes,
                    "{name}: sizes tell nothing about it"
                );
            } else if bytes == *archives_bytes {
                same += 1;
            } else {
                other.push(name);
            }
        }
        assert!(other.is_empty(), "{library}: not the archive's: {other:?}");
        assert!(
            same >= at_least,
            "{library}: only {same} functions compared"
        );
    }
}

/// Instructions from the beginning of each function to its first jump that is always taken, that jump included.
/// Branches before it lead out of this stretch or skip a part of it.
fn instructions_to_the_jump(library: &Path, names: &[String]) -> BTreeMap<String, usize> {
    let all = functions(library);
    let wanted: BTreeMap<&String, (u64, u64)> = names
        .iter()
        .filter_map(|name| Some((name, *all.get(name)?)))
        .collect();
    let begin = wanted.values().map(|(at, _)| *at).min();
    let end = wanted.values().map(|(at, bytes)| at + bytes).max();
    let out = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(format!("--start-address={:#x}", begin.expect("functions")))
        .arg(format!("--stop-address={:#x}", end.expect("functions")))
        .arg(library)
        .output()
        .expect("objdump");
    assert!(
        out.status.success(),
        "objdump refused {}",
        library.display()
    );
    let code: BTreeMap<u64, String> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| {
            let (address, instruction) = line.trim_start().split_once(":\t")?;
            let word = instruction.split_whitespace().next()?;
            Some((u64::from_str_radix(address, 16).ok()?, word.to_owned()))
        })
        .collect();
    let length = |(at, bytes): (u64, u64)| {
        let mut words = code.range(at..at + bytes).map(|(_, word)| word);
        words
            .position(|word| word == "jmp")
            .map(|before| before + 1)
    };
    wanted
        .into_iter()
        .map(|(name, place)| {
            let length = length(place).unwrap_or_else(|| panic!("{name} does not jump"));
            (name.clone(), length)
        })
        .collect()
}

/// What stands before OpenBLAS's routine where a call stays on the CPU, for every symbol with a GPU path. `cargo
/// xtask bench overhead` counts what is executed, for some.
#[test]
fn a_call_below_the_threshold_passes_at_most_20_instructions() {
    let routed = routines::routed_symbols();
    let kernels = kernels();
    let in_blas = instructions_to_the_jump(&ours().join("libblas.so.3"), &routed);
    let mut in_lapack = instructions_to_the_jump(&ours().join("liblapack.so.3"), &routed);
    for (name, instructions) in &mut in_lapack {
        // The stub is followed by the jump to the kernel in libblas.
        *instructions += usize::from(kernels.contains(name));
    }
    assert_eq!(in_blas.len() + in_lapack.len(), routed.len());
    for (name, instructions) in in_blas.iter().chain(&in_lapack) {
        assert!(
            (10..=20).contains(instructions),
            "{name}: {instructions} instructions"
        );
    }
}

/// The newest glibc whose symbol versions anything of a prefix may need, as ARCHITECTURE.md and the packages say.
const NEWEST_GLIBC: (u32, u32) = (2, 34);

/// The newest version of glibc in readelf's output; (0, 0) where there is none.
fn newest_glibc(text: &str) -> (u32, u32) {
    let versions = text.split_whitespace().filter_map(|word| {
        let mut parts = word
            .strip_prefix("GLIBC_")?
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        Some((parts.next()?, parts.next().unwrap_or(0)))
    });
    versions.max().unwrap_or_default()
}

#[test]
fn nothing_of_a_prefix_needs_a_newer_glibc_than_the_packages_say() {
    let mut seen = 0;
    for folder in ["lib", "bin"] {
        for file in std::fs::read_dir(cases::prefix().join(folder)).expect("a prefix") {
            let path = file.expect("an entry").path();
            let out = Command::new("readelf").arg("-VW").arg(&path).output();
            let out = out.expect("readelf");
            assert!(out.status.success(), "readelf refused {}", path.display());
            let newest = newest_glibc(&String::from_utf8_lossy(&out.stdout));
            assert!(
                newest <= NEWEST_GLIBC,
                "{} needs glibc {}.{}",
                path.display(),
                newest.0,
                newest.1
            );
            seen += usize::from(newest > (2, 2));
        }
    }
    // Three libraries of Rust's, LAPACKE, the one for wheels and the tool; two files need no glibc.
    assert!(
        seen >= 6,
        "only {seen} files need glibc: the check is blind"
    );
}

#[test]
fn every_library_needs_only_the_c_runtime() {
    // liblapack needs libblas as every LAPACK does.
    const ALLOWED: &[&str] = &[
        "libc.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "ld-linux-x86-64.so.2",
        "libpthread.so.0",
        "libdl.so.2",
        "libblas.so.3",
        "liblapack.so.3",
    ];
    for library in [
        "libblas.so.3",
        "liblapack.so.3",
        "liblapacke.so.3",
        "libgpu_offload.so.0",
    ] {
        let path = ours().join(library);
        let out = Command::new("readelf")
            .args(["-dW"])
            .arg(&path)
            .output()
            .expect("readelf");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success() && text.contains("SONAME"),
            "readelf refused {library}"
        );
        assert!(
            text.contains(&format!("soname: [{library}]")),
            "{library} has another SONAME"
        );
        for needed in text.lines().filter(|line| line.contains("(NEEDED)")) {
            let name = needed.split(['[', ']']).nth(1).unwrap_or_default();
            assert!(ALLOWED.contains(&name), "{library} needs {name}");
        }
        // Without a stack that must be executable.
        let headers = Command::new("readelf")
            .args(["-lW"])
            .arg(&path)
            .output()
            .expect("readelf");
        let headers = String::from_utf8_lossy(&headers.stdout).into_owned();
        let stack = headers
            .lines()
            .find(|l| l.contains("GNU_STACK"))
            .expect("GNU_STACK header");
        assert!(
            !stack.contains("RWE"),
            "{library} wants an executable stack"
        );
    }
}

/// A program that takes the address of every name of the given lists.
fn program_of(names: &BTreeSet<String>) -> String {
    use std::fmt::Write;
    let mut text = String::from("#include <stddef.h>\n");
    for name in names {
        writeln!(text, "extern char {name}[];").expect("write to a string");
    }
    text.push_str("char *volatile all[] = {\n");
    for name in names {
        writeln!(text, "    {name},").expect("write to a string");
    }
    text.push_str(
        "};\nint main(void)\n{\n    for (size_t i = 0; i < sizeof all / sizeof *all; i++)\n",
    );
    text.push_str("        if (!all[i]) return 1;\n    return 0;\n}\n");
    text
}

/// Names that case F3 asks for beside the lists.
const AUXILIARY: &[&str] = &[
    "dlamc1_",
    "dlamc2_",
    "dlamc3_",
    "dlamc4_",
    "dlamc5_",
    "slamc1_",
    "slamc2_",
    "slamc3_",
    "slamc4_",
    "slamc5_",
    "lsame_",
    "lsamen_",
    "second_",
    "dsecnd_",
    "ilaver_",
    "dcabs1_",
    "scabs1_",
    "sgeqpf_",
    "dgeqpf_",
    "cgeqpf_",
    "zgeqpf_",
    "dgegs_",
    "dgegv_",
    "dgelsx_",
    "dggsvd_",
    "dggsvp_",
    "dlatzm_",
    "dtzrqf_",
    "dlahrd_",
    "sgemmtr_",
    "dgemmtr_",
    "cgemmtr_",
    "zgemmtr_",
    "cblas_sgemmtr",
    "cblas_dgemmtr",
    "cblas_cgemmtr",
    "cblas_zgemmtr",
    "sgedmd_",
    "dgedmd_",
    "cgedmd_",
    "zgedmd_",
    "sgedmdq_",
    "dgedmdq_",
    "cgedmdq_",
    "zgedmdq_",
    "sgeqp3rk_",
    "dgeqp3rk_",
    "cgeqp3rk_",
    "zgeqp3rk_",
    "slaqz0_",
    "dlaqz0_",
    "claqz0_",
    "zlaqz0_",
    "dlaqz1_",
    "dlaqz2_",
    "dlaqz3_",
    "dlaqz4_",
    "__la_xisnan_MOD_disnan",
    "__la_xisnan_MOD_sisnan",
];

#[test]
fn a_program_that_uses_every_reference_name_links_with_our_two_libraries_alone() {
    let dir = scratch!("every-name");
    let mut names: BTreeSet<String> = symbol_list("ref-libblas.so.3.txt").into_iter().collect();
    names.extend(symbol_list("ref-liblapack.so.3.txt"));
    names.extend(AUXILIARY.iter().map(|&n| n.to_owned()));
    assert!(
        names.len() > 2200,
        "the lists are too short to prove anything"
    );
    std::fs::write(dir.join("every_name.c"), program_of(&names)).expect("write the program");
    let exe = dir.join("every_name");
    let out = Command::new("gcc")
        .args(["-Wl,-z,defs", "-Wl,-z,now", "-w", "-fno-builtin", "-o"])
        .arg(&exe)
        .arg(dir.join("every_name.c"))
        .args(cases::link_arguments(&ours()))
        .output()
        .expect("cannot run gcc; run `cargo xtask setup`");
    assert!(
        out.status.success(),
        "link failed:\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Program::new(&exe, &ours())
        .run()
        .expect_silent_success("the program of every name");
}

#[test]
fn complex_and_float_functions_return_what_c_expects() {
    let dir = scratch!("complex-c");
    let exe = compile_with(&dir, "complex_functions.c", &ours(), &[]);
    Program::new(exe, &ours())
        .run()
        .expect_silent_success("complex_functions.c");
}

#[test]
fn complex_and_float_functions_return_what_gfortran_expects() {
    let dir = scratch!("complex-f");
    let exe = compile_with(&dir, "complex_functions.f90", &ours(), &[]);
    Program::new(exe, &ours())
        .run()
        .expect_silent_success("complex_functions.f90");
}

#[test]
fn complex_and_float_functions_return_what_ctypes_expects() {
    let script = cases::programs().join("complex_functions.py");
    Program::new("/usr/bin/python3", &ours())
        .arg(script)
        .run()
        .expect_silent_success("complex_functions.py");
}

#[test]
fn c_callers_without_string_lengths_keep_their_stack() {
    let dir = scratch!("no-lengths");
    let exe = compile_with(
        &dir,
        "no_hidden_lengths.c",
        &ours(),
        &["-fstack-protector-all"],
    );
    Program::new(&exe, &ours())
        .run()
        .expect_silent_success("no_hidden_lengths.c");
    // Where the call goes through the door, and where the door calls the CPU routine with a copy of it.
    Program::new(&exe, &ours())
        .on_simulated_cuda(&dir.join("log.jsonl"))
        .run()
        .expect_silent_success("no_hidden_lengths.c with force");
}

#[test]
fn names_that_openblas_lacks_compute_what_they_say() {
    let dir = scratch!("helpers");
    let exe = compile_with(&dir, "helpers.c", &ours(), &[]);
    Program::new(exe, &ours())
        .run()
        .expect_right("helpers.c")
        .expect_silent_success("helpers.c");
}

/// The headers of the prefix, and LAPACKE on our liblapack: its calls pass the door as others do.
#[test]
fn lapacke_of_the_prefix_calls_our_lapack() {
    let dir = scratch!("lapacke");
    let include = format!("-I{}", cases::prefix().join("include").display());
    let exe = compile_with(
        &dir,
        "lapacke.c",
        &ours(),
        &[&include, "-l:liblapacke.so.3"],
    );
    let run = |program: Program| {
        let got = program
            .run()
            .expect_right("lapacke.c")
            .expect_success("lapacke.c");
        // The default xerbla_ writes the two reports of an illegal n.
        let said = format!("{}{}", got.stdout, got.stderr);
        assert_eq!(said.matches("DGETRF").count(), 2, "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
    };
    run(Program::new(&exe, &ours()));
    let log = dir.join("log.jsonl");
    run(Program::new(&exe, &ours()).on_simulated_cuda(&log));
    let text = std::fs::read_to_string(&log).expect("the log of a force run");
    for routine in ["dgesv", "dsyevd", "zpotrf", "dgesdd"] {
        let name = format!("\"routine\":\"{routine}\"");
        let mut lines = text.lines();
        let on_gpu = lines.any(|l| l.contains(&name) && l.contains(cases::GPU_ROUTE_IN_LOG));
        assert!(on_gpu, "LAPACKE's {routine} did not reach the GPU: {text}");
    }
}

/// Processors that kernels are chosen for by name on any machine; those with AVX-512 need it for that.
const PROCESSORS: &[&str] = &[
    "Prescott",
    "Core2",
    "Penryn",
    "Dunnington",
    "Nehalem",
    "Sandybridge",
    "Haswell",
    "Atom",
    "Opteron",
    "Opteron_SSE3",
    "Barcelona",
    "Bobcat",
    "Bulldozer",
    "Piledriver",
    "Steamroller",
    "Excavator",
    "Zen",
    "Nano",
];

/// The same for processors with AVX-512: any name is answered as the archive without us answers it.
const WITH_AVX512: &[&str] = &["SkylakeX", "Cooperlake", "Sapphirerapids"];

/// Processors without instructions that others have dropped: their kernels run on every one with AVX2.
const RUN: &[&str] = &[
    "Prescott",
    "Core2",
    "Nehalem",
    "Sandybridge",
    "Haswell",
    "Zen",
];

#[test]
fn the_kernels_of_every_processor_are_there() {
    let dir = scratch!("cores");
    let exe = compile_with(&dir, "core.c", &ours(), &[]);
    let chosen = |lib: &Path, name: &str| {
        let program = Program::new(&exe, lib).env("OPENBLAS_CORETYPE", name);
        let got = program.run().expect_right(name).expect_success(name);
        got.stdout.trim().to_owned()
    };
    for name in PROCESSORS {
        assert_eq!(chosen(&ours(), name), *name);
    }
    for name in WITH_AVX512 {
        assert_eq!(chosen(&ours(), name), chosen(&baseline(), name), "{name}");
    }
    let exe = compile_with(&dir, "basic.c", &ours(), &[]);
    for name in RUN {
        Program::new(&exe, &ours())
            .args(["8", "300"])
            .env("OPENBLAS_CORETYPE", name)
            .run()
            .expect_silent_success(name);
    }
}

#[test]
fn our_baseline_is_the_archive_without_us() {
    // Every comparison with the baseline rests on this.
    let names = exported_names(&baseline().join("libblas.so.3"));
    assert!(names.iter().any(|n| n == "dgemm_") && names.iter().any(|n| n == "dgetrf_"));
    assert!(!names.iter().any(|n| n.contains("gpu_offload")));
}
