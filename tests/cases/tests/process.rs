//! The libraries as guests of a process: silence, loading, fork, unloading, threads, allocations, bits
//! (cases F1, F2, F8, F9, F10 and the invariants about the small call).

use cases::{Program, baseline, compile, compile_with, ours, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn dgemm_is_right_without_home_environment_or_a_writable_folder() {
    let dir = scratch!("bare");
    let exe = compile_with(&dir, "basic.c", &ours(), &[]);
    let locked = dir.join("read-only");
    fs::create_dir(&locked).expect("create a folder");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).expect("lock the folder");
    let mut program = Program::new(&exe, &ours()).arg("8").arg("4096");
    let command = program.command();
    // Only the loader's path: how else would it find the library.
    command
        .env_clear()
        .env("LD_LIBRARY_PATH", ours())
        .current_dir(&locked);
    program
        .run()
        .expect_silent_success("basic.c in an empty environment");
}

#[test]
fn dgemm_is_right_with_every_standard_descriptor_closed() {
    let dir = scratch!("closed");
    let exe = compile_with(&dir, "basic.c", &ours(), &[]);
    let status = Command::new("/bin/sh")
        .args(["-c", "exec \"$0\" 8 4096 0<&- 1>&- 2>&-"])
        .arg(&exe)
        .env_clear()
        .env("LD_LIBRARY_PATH", ours())
        .status()
        .expect("sh");
    assert!(
        status.success(),
        "with descriptors 0, 1, 2 closed: {status}"
    );
}

#[test]
fn loading_prints_nothing_and_starts_what_the_archive_starts() {
    // LD_PRELOAD is only this test's way to load the libraries into programs that do not ask for them.
    let programs: &[(&str, &[&str])] = &[
        ("/bin/bash", &["-c", "echo out; echo err >&2"]),
        ("/usr/bin/python3", &["-c", "print(sorted([3, 1, 2]))"]),
        (
            "/usr/bin/python3",
            &[
                "-c",
                "import numpy; print(numpy.linalg.solve([[2, 1], [1, 3]], [3, 4]))",
            ],
        ),
    ];
    for (exe, args) in programs {
        let run = |lib: &Path| {
            let preload = format!("{0}/libblas.so.3:{0}/liblapack.so.3", lib.display());
            let mut p = Program::new(exe, lib).env("LD_PRELOAD", preload);
            for a in *args {
                p = p.arg(a);
            }
            p.run().expect_success(exe)
        };
        let (got, stock) = (run(&ours()), run(&baseline()));
        assert_eq!(
            (got.stdout, got.stderr),
            (stock.stdout, stock.stderr),
            "{exe}"
        );
    }
}

/// System calls that start a thread or process.
const STARTS: &[&str] = &["clone", "clone3", "fork", "vfork"];

#[test]
fn loading_makes_no_system_call_that_the_archive_does_not_make() {
    let dir = scratch!("strace");
    let exe = compile_with(&dir, "nothing.c", &ours(), &[]);
    let trace = |lib: &Path, name: &str| {
        let log = dir.join(name);
        Program::new("strace", lib)
            .arg("-f")
            .arg("-qq")
            .arg("-o")
            .arg(&log)
            .arg(&exe)
            .run()
            .expect_silent_success("strace; run `cargo xtask setup` if it is missing");
        fs::read_to_string(&log).expect("strace's log")
    };
    let (got, stock) = (trace(&ours(), "ours"), trace(&baseline(), "stock"));
    let name_of = |line: &str| {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        call.split('(').next().unwrap_or_default().to_owned()
    };
    let names = |text: &str| -> BTreeSet<String> {
        text.lines()
            .map(name_of)
            .filter(|n| n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
            .collect()
    };
    let extra: Vec<String> = names(&got).difference(&names(&stock)).cloned().collect();
    assert!(names(&stock).len() > 5, "strace saw nothing");
    assert!(
        extra.is_empty(),
        "calls that the archive alone does not make: {extra:?}"
    );
    let count = |text: &str| {
        text.lines()
            .filter(|l| STARTS.contains(&name_of(l).as_str()))
            .count()
    };
    assert_eq!(count(&got), count(&stock), "threads started while loading");
    // Files opened: the libraries themselves and the C runtime, nothing of ours beside them.
    let own_files = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|l| {
                l.contains("gpu-offload") || l.contains("gpu_offload") || l.contains("cuda")
            })
            .filter(|l| !l.contains("libblas.so.3") && !l.contains("liblapack.so.3"))
            .filter(|l| l.contains("open") && !l.contains("ENOENT"))
            .map(str::to_owned)
            .collect()
    };
    assert!(
        own_files(&got).is_empty(),
        "opened while loading: {:#?}",
        own_files(&got)
    );
}

#[test]
fn a_forked_child_multiplies_promptly_and_the_parent_stays_fast() {
    let dir = scratch!("fork");
    let exe = compile_with(&dir, "fork.c", &ours(), &[]);
    let got = Program::new(exe, &ours())
        .run()
        .expect_silent_success("fork.c");
    let numbers: Vec<f64> = got
        .stdout
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    let [before_s, after_s] = numbers[..] else {
        panic!("unreadable: {}", got.stdout)
    };
    // Best of seven each; 1.5 leaves room for another process on a small machine, a lost thread pool
    // would show as the number of threads.
    assert!(
        after_s < 1.5 * before_s,
        "parent: {before_s} s before fork, {after_s} s after"
    );
}

#[test]
fn a_thousand_loads_and_unloads() {
    let dir = scratch!("unload");
    let exe = compile(&dir, "unload.c", &["-ldl", "-lpthread"]);
    let got = Program::new(exe, &ours())
        .arg(ours())
        .arg("loop")
        .arg("1000")
        .run();
    got.expect_silent_success("unload.c loop");
}

#[test]
fn a_thread_may_end_after_the_library_is_gone() {
    let dir = scratch!("outlive");
    let exe = compile(&dir, "unload.c", &["-ldl", "-lpthread"]);
    let got = Program::new(exe, &ours()).arg(ours()).arg("outlive").run();
    got.expect_silent_success("unload.c outlive");
}

/// The program runs 20 ms before it calls exit(); everything above is a hang.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn exit_while_a_thread_is_inside_dgemm() {
    let dir = scratch!("exit");
    let exe = compile(&dir, "unload.c", &["-ldl", "-lpthread"]);
    for _ in 0..5 {
        let got = Program::new(&exe, &ours())
            .arg(ours())
            .arg("exit")
            .run_for(EXIT_DEADLINE);
        got.expect_silent_success("exit() during dgemm");
    }
}

/// The first routed call may be LAPACK's. One exit in ten hung before libblas.so.3 was told.
#[test]
fn exit_in_a_program_whose_only_routed_call_was_lapacks() {
    let dir = scratch!("exit-lapack");
    let exe = compile(&dir, "unload.c", &["-ldl", "-lpthread"]);
    for _ in 0..60 {
        let got = Program::new(&exe, &ours())
            .arg(ours())
            .arg("exit-lapack")
            .run_for(EXIT_DEADLINE);
        got.expect_silent_success("exit() during dgemv");
    }
}

fn number(program: Program, what: &str) -> f64 {
    let got = program.run().expect_silent_success(what);
    got.stdout
        .trim()
        .parse()
        .unwrap_or_else(|e| panic!("{what}: {e}: {}", got.stdout))
}

#[test]
fn openblas_thread_variables_are_obeyed_and_both_libraries_share_one_pool() {
    let dir = scratch!("count");
    let exe = compile_with(&dir, "threads.c", &ours(), &["-fopenmp"]);
    for (variable, value) in [
        ("OPENBLAS_NUM_THREADS", "1"),
        ("OPENBLAS_NUM_THREADS", "2"),
        ("OMP_NUM_THREADS", "1"),
    ] {
        let tasks = number(
            Program::new(&exe, &ours())
                .arg("count")
                .env(variable, value),
            variable,
        );
        assert_eq!(
            tasks.to_string(),
            value,
            "threads of a process with {variable}={value}"
        );
    }
}

#[test]
fn openblas_set_num_threads_is_obeyed() {
    let dir = scratch!("set");
    let exe = compile_with(&dir, "threads.c", &ours(), &["-fopenmp"]);
    let got = Program::new(exe, &ours())
        .arg("set")
        .arg("1")
        .env("OPENBLAS_NUM_THREADS", "2")
        .run()
        .expect_silent_success("threads.c set");
    let numbers: Vec<f64> = got
        .stdout
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    let [threads, cpu_per_wall] = numbers[..] else {
        panic!("unreadable: {}", got.stdout)
    };
    assert!(threads == 1.0 && cpu_per_wall < 1.3, "{}", got.stdout);
}

#[test]
fn the_engine_decides_with_the_threads_in_force() {
    let dir = scratch!("set-engine");
    let exe = compile_with(&dir, "threads.c", &ours(), &["-fopenmp"]);
    let log = dir.join("log.jsonl");
    Program::new(exe, &ours())
        .on_simulated_cuda(&log)
        .args(["set", "1"])
        .env("OPENBLAS_NUM_THREADS", "2")
        .run()
        .expect_silent_success("threads.c set with force");
    let text = fs::read_to_string(&log).expect("the log of a force run");
    let threads: Vec<i64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| line["cpu_threads"].as_i64())
        .collect();
    // One product before openblas_set_num_threads(1), three after it.
    assert_eq!(threads, [2, 1, 1, 1], "{text}");
}

/// Many callers at once on few cores are noisy: the best of four runs of each library, alternating, and
/// a factor that only a lock around the whole call or a second thread pool would exceed.
const SLOWER_AT_MOST: f64 = 1.6;

#[test]
fn concurrent_callers_are_no_slower_than_on_the_archive_alone() {
    let dir = scratch!("concurrent");
    let exe = compile_with(&dir, "threads.c", &ours(), &["-fopenmp"]);
    let run = |lib: &Path, callers: &str, calls: &str, pool: &str| {
        let program = Program::new(&exe, lib)
            .arg("time")
            .arg(callers)
            .arg(calls)
            .env("OPENBLAS_NUM_THREADS", pool);
        number(program, "threads.c time")
    };
    let processes = |lib: &Path| {
        std::thread::scope(|scope| {
            let children: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| run(lib, "1", "30", "2")))
                .collect();
            children
                .into_iter()
                .map(|c| c.join().expect("a run"))
                .fold(0.0, f64::max)
        })
    };
    // With a pool, OpenBLAS's callers spin on each other: 16 of them take seconds for one call each.
    let pooled = |lib: &Path| run(lib, "16", "1", "2");
    let single = |lib: &Path| run(lib, "16", "20", "1");
    let (mut ours_s, mut stock_s) = ([f64::MAX; 3], [f64::MAX; 3]);
    for _ in 0..4 {
        for (best, lib) in [(&mut ours_s, ours()), (&mut stock_s, baseline())] {
            let now = [processes(&lib), pooled(&lib), single(&lib)];
            for (b, s) in best.iter_mut().zip(now) {
                *b = b.min(s);
            }
        }
    }
    let what = [
        "4 processes",
        "16 threads on one pool",
        "16 threads, each its own",
    ];
    for i in 0..what.len() {
        assert!(
            ours_s[i] < SLOWER_AT_MOST * stock_s[i],
            "{}: {} s against {} s on the archive alone",
            what[i],
            ours_s[i],
            stock_s[i]
        );
    }
}

#[test]
fn a_small_call_allocates_nothing_locks_nothing_and_reads_no_clock_beyond_the_archive() {
    let dir = scratch!("nothing-extra");
    let exe = compile_with(&dir, "nothing_extra.c", &ours(), &["-rdynamic"]);
    let run = |lib: &Path| {
        Program::new(&exe, lib)
            .env("OPENBLAS_NUM_THREADS", "1")
            .run()
            .expect_silent_success("nothing_extra.c")
            .stdout
    };
    let (got, stock) = (run(&ours()), run(&baseline()));
    // The counters count: OpenBLAS itself takes its buffer lock in every dgemm.
    assert!(
        stock.contains("dgemm 4 allocations 0 locks 2000"),
        "the counters are blind:\n{stock}"
    );
    assert_eq!(got, stock);
}

#[test]
fn gemm_on_the_cpu_route_is_bit_identical_to_the_archive() {
    let dir = scratch!("bits");
    let exe = compile_with(&dir, "bits.c", &ours(), &[]);
    for threads in ["1", "2"] {
        let run = |lib: &Path| {
            Program::new(&exe, lib)
                .arg("1000")
                .env("OPENBLAS_NUM_THREADS", threads)
                .run()
                .expect_silent_success("bits.c")
                .stdout
        };
        let (got, stock) = (run(&ours()), run(&baseline()));
        assert!(stock.lines().count() > 2500, "too few shapes");
        for (a, b) in got.lines().zip(stock.lines()) {
            assert_eq!(a, b, "{threads} threads");
        }
        assert_eq!(got.lines().count(), stock.lines().count());
    }
}
