//! Illegal arguments, empty operands, special values (cases F7, F11, F12, E11), on the CPU route and, for
//! the routines that have a GPU path, with every routed call sent to the simulated CUDA.

use cases::exceptions::{ILLEGAL_LAPACK, judge, same_bits};
use cases::{Program, baseline, compile, compile_with, ours, scratch};
use routines::Library;
use std::collections::BTreeSet;

#[test]
fn illegal_blas_arguments_reach_the_programs_own_xerbla() {
    let dir = scratch!("illegal-blas");
    let exe = compile_with(&dir, "illegal_blas.c", &ours(), &["-rdynamic"]);
    let got = Program::new(&exe, &ours()).run();
    judge(&got.stdout, &[]);
    assert!(
        got.stdout.lines().count() > 1900,
        "too few calls were made:\n{}",
        got.stderr
    );
    each_routed_routine_is_in(&got.stdout, Library::Blas);
    let stock = Program::new(&exe, &baseline()).run();
    assert_eq!(
        got.stdout, stock.stdout,
        "reports differ from the archive's own"
    );
    got.expect_silent_success("illegal_blas.c");
}

/// The programs have lists of their own; a routine that gets a GPU path must get its illegal arguments too.
#[track_caller]
fn each_routed_routine_is_in(output: &str, library: Library) {
    let called: BTreeSet<&str> = output
        .lines()
        .flat_map(|line| line.split_whitespace().take(2))
        .map(|word| word.trim_end_matches('_'))
        .collect();
    for (_, _, name) in routines::routed_in(library) {
        assert!(
            called.contains(name.as_str()),
            "{name} is routed, and no call of it with an illegal argument was made"
        );
    }
}

#[test]
fn illegal_blas_arguments_are_reported_alike_when_every_call_may_go_to_the_gpu() {
    let dir = scratch!("illegal-blas-sim");
    let exe = compile_with(&dir, "illegal_blas.c", &ours(), &["-rdynamic"]);
    let got = Program::new(&exe, &ours())
        .on_simulated_cuda(&dir.join("log.jsonl"))
        .run();
    judge(&got.stdout, &[]);
    let stock = Program::new(&exe, &baseline()).run();
    assert_eq!(
        got.stdout, stock.stdout,
        "reports differ from the archive's own"
    );
    got.expect_silent_success("illegal_blas.c with force");
}

#[test]
fn illegal_lapack_arguments_reach_the_programs_own_xerbla() {
    let dir = scratch!("illegal-lapack");
    let exe = compile_with(&dir, "illegal_lapack.c", &ours(), &["-rdynamic"]);
    let got = Program::new(&exe, &ours()).run();
    assert!(got.status.is_some(), "illegal_lapack.c hangs");
    judge(&got.stdout, ILLEGAL_LAPACK);
    assert!(
        got.stdout.contains("894 calls"),
        "the program did not make all its calls"
    );
    each_routed_routine_is_in(&got.stdout, Library::Lapack);
    let stock = Program::new(&exe, &baseline()).run();
    assert_eq!(
        got.stdout, stock.stdout,
        "reports differ from the archive's own"
    );
    assert!(got.stderr.is_empty(), "standard error: {}", got.stderr);
}

#[test]
fn illegal_lapack_arguments_are_reported_alike_when_every_call_may_go_to_the_gpu() {
    let dir = scratch!("illegal-lapack-sim");
    let exe = compile_with(&dir, "illegal_lapack.c", &ours(), &["-rdynamic"]);
    let got = Program::new(&exe, &ours())
        .on_simulated_cuda(&dir.join("log.jsonl"))
        .run();
    assert!(got.status.is_some(), "illegal_lapack.c hangs");
    judge(&got.stdout, ILLEGAL_LAPACK);
    let stock = Program::new(&exe, &baseline()).run();
    assert_eq!(
        got.stdout, stock.stdout,
        "reports differ from the archive's own"
    );
    assert!(got.stderr.is_empty(), "standard error: {}", got.stderr);
}

/// The engine that stands in leaves every call of LAPACK to the CPU and tells the program what came.
#[test]
fn lapack_calls_with_a_legal_workspace_pass_the_door_and_no_others() {
    let dir = scratch!("lapack-workspace");
    let made = compile(
        &dir,
        "mock_engine.c",
        &[
            "-shared",
            "-fPIC",
            "-Wl,-soname,libgpu_offload.so.0",
            "-ldl",
        ],
    );
    let mock = dir.join("libgpu_offload.so.0");
    std::fs::rename(made, &mock).expect("one folder");
    let flags = [
        "-rdynamic",
        "-Wl,--no-as-needed",
        mock.to_str().expect("UTF-8"),
    ];
    let exe = compile_with(&dir, "lapack_workspace.c", &ours(), &flags);
    let path = format!("{}:{}", dir.display(), ours().display());
    let got = Program::new(&exe, &ours())
        .env("LD_LIBRARY_PATH", &path)
        .env("GPU_OFFLOAD_THRESHOLD", "0")
        .env("OPENBLAS_NUM_THREADS", "1")
        .run()
        .expect_right("lapack_workspace.c with an engine");
    assert!(got.stdout.lines().count() > 500, "{}", got.stdout);
    let exe = compile_with(&dir, "lapack_workspace.c", &ours(), &["-rdynamic"]);
    // Hidden lengths that a caller in C omits (case F6), where calls go to the CPU and where they pass the door.
    for sim in [false, true] {
        let run = |argument: Option<&str>| {
            let mut program = Program::new(&exe, &ours());
            if sim {
                program = program.forced_to_simulated_cuda();
            }
            let program = program.env("OPENBLAS_NUM_THREADS", "1").args(argument);
            program
                .run()
                .expect_silent_success("lapack_workspace.c")
                .stdout
        };
        assert!(
            run(None) == run(Some("any")),
            "hidden lengths matter; sim: {sim}"
        );
    }
    for lib in [&baseline(), &ours()] {
        let other = Program::new(&exe, lib)
            .env("OPENBLAS_NUM_THREADS", "1")
            .run()
            .expect_success("lapack_workspace.c");
        if *lib == ours() {
            assert_eq!(got.stdout, other.stdout);
            continue;
        }
        let (ours, theirs) = (got.stdout.lines(), other.stdout.lines());
        assert_eq!(ours.clone().count(), theirs.clone().count());
        let mut answered = 0;
        for (line, archive) in ours.zip(theirs) {
            match line.split_once(" n=1 query: ") {
                Some((name, answer)) if name.ends_with("evr") => {
                    answered += 1;
                    let lengths: &[f64] = match name {
                        "ssyevr" | "dsyevr" => &[26.0, 10.0],
                        _ => &[2.0, 24.0, 10.0],
                    };
                    let lengths_in = |text: &str| -> Vec<f64> {
                        text.split_whitespace()
                            .filter_map(|word| word.parse().ok())
                            .collect()
                    };
                    assert!(answer.starts_with("info=0 reports=0 "), "{line}");
                    let (answer, archive) = (lengths_in(answer), lengths_in(archive));
                    let wanted: Vec<f64> = lengths
                        .iter()
                        .zip(&archive)
                        .map(|(a, b)| a.max(*b))
                        .collect();
                    assert_eq!(answer, wanted, "{line}");
                }
                _ => assert_eq!(line, archive),
            }
        }
        assert_eq!(
            answered, 4,
            "LAPACK 3.12 answers a query of ?syevr at n = 1 with 1"
        );
    }
}

/// Level-3 routines in both spellings whose illegal arguments are jumped out of.
const JUMPED: usize = 80;

#[test]
fn an_xerbla_that_never_returns_leaves_nothing_behind() {
    for sim in [false, true] {
        let dir = scratch!(&format!("longjmp-{sim}"));
        let exe = compile_with(&dir, "longjmp.c", &ours(), &["-rdynamic"]);
        let mut program = Program::new(&exe, &ours());
        if sim {
            program = program.on_simulated_cuda(&dir.join("log.jsonl"));
        }
        let got = program.run().expect_silent_success("longjmp.c");
        assert_eq!(got.stdout.lines().count(), JUMPED, "{}", got.stdout);
    }
}

#[test]
fn without_an_own_xerbla_the_message_appears_once_and_the_process_lives() {
    let dir = scratch!("default-xerbla");
    let exe = compile_with(&dir, "default_xerbla.c", &ours(), &[]);
    for routine in ["dgemm", "cblas_dgemm", "dgetrf", "dpotrf", "dsyev"] {
        let got = Program::new(&exe, &ours())
            .arg(routine)
            .run()
            .expect_success(routine);
        let messages = format!("{}{}", got.stdout, got.stderr);
        let name = routine.trim_start_matches("cblas_").to_uppercase();
        assert_eq!(
            messages.matches(&name).count(),
            1,
            "{routine} printed:\n{messages}"
        );
        let stock = Program::new(&exe, &baseline())
            .arg(routine)
            .run()
            .expect_success(routine);
        assert_eq!(
            (got.stdout, got.stderr),
            (stock.stdout, stock.stderr),
            "{routine}"
        );
    }
}

fn semantics(spelling: &str, least_lines: usize) {
    let dir = scratch!(&format!("semantics-{spelling}"));
    let exe = compile_with(&dir, "semantics.c", &ours(), &["-rdynamic"]);
    let got = Program::new(&exe, &ours()).arg(spelling).run();
    assert!(got.status.is_some(), "semantics.c hangs");
    judge(&got.stdout, &[]);
    assert!(
        got.stdout.lines().count() > least_lines,
        "too few calls were made:\n{}",
        got.stderr
    );
    let stock = Program::new(&exe, &baseline()).arg(spelling).run();
    let row_major = spelling == "rowmajor";
    same_bits(&got.stdout, &stock.stdout, row_major);
    assert!(got.stderr.is_empty(), "standard error: {}", got.stderr);
}

#[test]
fn fortran_routines_keep_their_promises_about_memory_and_special_values() {
    semantics("fortran", 4000);
}

#[test]
fn cblas_routines_keep_their_promises_about_memory_and_special_values() {
    semantics("cblas", 4000);
}

#[test]
fn row_major_routines_keep_their_promises_about_memory_and_special_values() {
    semantics("rowmajor", 2000);
}

/// Every level-3 routine with alpha = 0 and operands that cannot be read, on the CPU route.
#[test]
fn alpha_zero_reads_no_operand() {
    let dir = scratch!("alpha-zero");
    let exe = compile_with(&dir, "alpha_zero.c", &ours(), &["-rdynamic"]);
    for spelling in ["fortran", "cblas", "rowmajor"] {
        let got = Program::new(&exe, &ours()).arg(spelling).run();
        judge(&got.stdout, &[]);
        // 184 combinations of a routine, a precision and its transposes, each in 101 sizes.
        assert!(got.stdout.ends_with("18584 calls\n"), "{}", got.stdout);
        got.expect_silent_success(spelling);
    }
}

/// A run of `gemm_batch.c`. One thread: OpenBLAS's batch and its `cblas_?gemm` then run the same kernels in the same
/// order.
fn gemm_batch(exe: &std::path::Path, lib: &std::path::Path, what: &str) -> cases::Ended {
    Program::new(exe, lib)
        .env("OPENBLAS_NUM_THREADS", "1")
        .arg(what)
        .run()
}

#[test]
fn batches_of_products_are_their_products_one_by_one() {
    let dir = scratch!("gemm-batch");
    let exe = compile_with(&dir, "gemm_batch.c", &ours(), &["-rdynamic"]);
    let got = gemm_batch(&exe, &ours(), "legal").expect_right("gemm_batch.c legal");
    assert_eq!(got.stdout, "1280 products\n");
    let small = gemm_batch(&exe, &baseline(), "small");
    assert!(
        small.status.is_some_and(|status| !status.success()),
        "OpenBLAS's own gemm_batch has learnt small matrices: blas-shim/src/batch.rs may go"
    );
}

#[test]
fn what_openblas_keeps_of_batches_is_the_archives_own() {
    let dir = scratch!("gemm-batch-archive");
    let exe = compile_with(&dir, "gemm_batch.c", &ours(), &["-rdynamic"]);
    for (what, lines) in [("large", 8), ("illegal", 4 * 2 * 3 * 9)] {
        let got = gemm_batch(&exe, &ours(), what).expect_right(what);
        assert_eq!(got.stdout.lines().count(), lines, "{}", got.stdout);
        let stock = gemm_batch(&exe, &baseline(), what).expect_right(what);
        assert_eq!(
            got.stdout, stock.stdout,
            "{what} batches differ from the archive's"
        );
        assert!(got.stderr.is_empty(), "standard error: {}", got.stderr);
    }
}

#[test]
fn each_product_of_a_batch_may_go_to_the_gpu() {
    let dir = scratch!("gemm-batch-sim");
    let exe = compile_with(&dir, "gemm_batch.c", &ours(), &["-rdynamic"]);
    let log = dir.join("log.jsonl");
    Program::new(&exe, &ours())
        .on_simulated_cuda(&log)
        .arg("large")
        .run()
        .expect_silent_success("gemm_batch.c large with force");
    let text = std::fs::read_to_string(&log).expect("the log of a force run");
    for precision in "sdcz".chars() {
        let routine = format!("\"routine\":\"{precision}gemm\"");
        let on_gpu = text
            .lines()
            .filter(|line| line.contains(&routine) && line.contains(cases::GPU_ROUTE_IN_LOG));
        // Five products in each layout.
        assert_eq!(on_gpu.count(), 10, "{text}");
    }
}

/// Every routed routine in every spelling with every flag, computed by an engine that knows nothing but
/// what libblas.so.3 decoded: the memory must be the archive's to the last bit. Illegal arguments and
/// quick returns must not reach that engine.
#[test]
fn what_is_decoded_is_what_was_meant() {
    let dir = scratch!("mock-engine");
    let mock = dir.join("libgpu_offload.so.0");
    let soname = "-Wl,-soname,libgpu_offload.so.0";
    let made = compile(&dir, "mock_engine.c", &["-shared", "-fPIC", soname, "-ldl"]);
    std::fs::rename(made, &mock).expect("one folder");
    let path = format!("{}:{}", dir.display(), ours().display());
    let mock = mock.to_str().expect("UTF-8");
    let flags = ["-rdynamic", "-Wl,--no-as-needed", mock];
    let counts = dir.join("counts.txt");
    let run = |program: &str, spelling: &str| {
        let exe = compile_with(&dir, program, &ours(), &flags);
        let got = Program::new(&exe, &ours())
            .env("LD_LIBRARY_PATH", &path)
            .env("GPU_OFFLOAD_THRESHOLD", "0")
            .env("MOCK_ENGINE_COUNTS", &counts)
            .arg(spelling)
            .run();
        let exe = compile_with(&dir, program, &ours(), &["-rdynamic"]);
        let stock = Program::new(&exe, &baseline()).arg(spelling).run();
        let plain = Program::new(&exe, &ours()).arg(spelling).run();
        assert!(
            got.stderr.is_empty(),
            "{program} {spelling}: {}",
            got.stderr
        );
        let row_major = spelling == "rowmajor";
        same_bits(&got.stdout, &stock.stdout, row_major);
        // What the archive gets wrong is compared with the same library without the engine.
        assert!(got.stdout == plain.stdout, "{program} {spelling} differs");
        let counted = std::fs::read_to_string(&counts).unwrap_or_default();
        let _ = std::fs::remove_file(&counts);
        counted
    };
    for spelling in ["fortran", "cblas", "rowmajor"] {
        let counted = run("semantics.c", spelling);
        // Eight families in four precisions, four in the complex ones.
        assert_eq!(
            counted.lines().count(),
            8 * 4 + 4 * 2,
            "{spelling}:\n{counted}"
        );
    }
    // Its legal row-major calls (a position that is none there) may come through; nothing else does.
    run("illegal_blas.c", "");
}

/// The level-3 families that the log names, with their precisions; gemm3m and gemmt are other names for two.
const FAMILIES: &[(&str, &str)] = &[
    ("gemm", "sdcz"),
    ("symm", "sdcz"),
    ("hemm", "cz"),
    ("syrk", "sdcz"),
    ("herk", "cz"),
    ("syr2k", "sdcz"),
    ("her2k", "cz"),
    ("trmm", "sdcz"),
    ("trsm", "sdcz"),
    ("gemmtr", "sdcz"),
];

#[test]
fn the_gpu_path_keeps_the_same_promises() {
    for spelling in ["fortran", "cblas", "rowmajor"] {
        let dir = scratch!(&format!("semantics-sim-{spelling}"));
        let log = dir.join("log.jsonl");
        let exe = compile_with(&dir, "semantics.c", &ours(), &["-rdynamic"]);
        let got = Program::new(&exe, &ours())
            .on_simulated_cuda(&log)
            .arg(spelling)
            .run();
        judge(&got.stdout, &[]);
        got.expect_silent_success("semantics.c with force");
        let text = std::fs::read_to_string(&log).expect("the log of a force run");
        for (family, precisions) in FAMILIES {
            for precision in precisions.chars() {
                let routine = format!("\"routine\":\"{precision}{family}\"");
                let on_gpu = text.lines().filter(|line| {
                    line.contains(&routine) && line.contains(cases::GPU_ROUTE_IN_LOG)
                });
                assert!(
                    on_gpu.count() > 0,
                    "no {precision}{family} went to the simulated GPU ({spelling})"
                );
            }
        }
    }
}
