//! Host programs around the GPU path, on the simulated CUDA: fork, exit, daemons, signals, cancellation,
//! unloading, memory taken by others, a device that breaks, other allocators (cases E2, E3, E5, E7 to E11).
//! Every call of `guest.c` is compared with the same archive without us.

use cases::{Ended, Program, compile, compile_with, ours, scratch};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Some hundred small calls take a second or two alone; everything above this is a hang.
const DEADLINE: Duration = Duration::from_secs(120);

/// Right, and nothing on standard error.
#[track_caller]
fn right(ended: Ended, what: &str) -> Ended {
    ended.expect_right(what).expect_silent_success(what)
}

#[track_caller]
fn succeeds(arguments: &[&str]) {
    let what = arguments.join(" ");
    let dir = scratch!(&format!("guest-{}", what.replace(['/', ' '], "-")));
    let exe = compile_with(&dir, "guest.c", &ours(), &[]);
    right(Program::compared(&exe, arguments).run_for(DEADLINE), &what);
}

#[test]
fn e2_children_after_the_gpu_was_used_multiply_on_the_cpu_and_exec_uses_it_again() {
    succeeds(&["fork", "40"]);
}

/// CUDA does not work in such a child. Those that are forced to the GPU say so, the one that is not keeps quiet.
#[test]
fn e4_a_host_that_has_cuda_in_use_forks_before_our_first_call() {
    const REASON: &str = "the program used CUDA before it forked this process";
    let dir = scratch!("host-cuda");
    let exe = compile_with(&dir, "guest.c", &ours(), &[]);
    let log = dir.join("log.jsonl");
    let got = Program::compared(&exe, &["host-cuda", "40"])
        .on_simulated_cuda(&log)
        .run_for(DEADLINE)
        .expect_right("host-cuda");
    let told: Vec<&str> = got.stderr.lines().collect();
    assert!(
        told.len() == 2 && told.iter().all(|line| line.contains(REASON)),
        "{}",
        got.stderr
    );
    let log = std::fs::read_to_string(&log).expect("the log");
    let failed: Vec<&str> = log.lines().filter(|l| l.contains("start-failed")).collect();
    assert!(
        failed.len() == 3 && failed.iter().all(|line| line.contains(REASON)),
        "{failed:?}"
    );
}

/// The simulated start takes milliseconds: forks spread over the first twenty hit its every part.
#[test]
fn e10_fork_in_the_middle_of_the_start() {
    let dir = scratch!("mid-start");
    let exe = compile_with(&dir, "guest.c", &ours(), &[]);
    let times = if cases::full() { 200 } else { 40 };
    for i in 0..times {
        let after_us = (i * 20_000 / times).to_string();
        let arguments = ["mid-start", after_us.as_str()];
        right(
            Program::compared(&exe, &arguments).run_for(DEADLINE),
            &after_us,
        );
    }
}

#[test]
fn e3_every_end_of_a_process_during_and_after_calls() {
    let dir = scratch!("end");
    let exe = compile_with(&dir, "guest.c", &ours(), &[]);
    for when in ["after", "during"] {
        for how in ["return", "exit", "quick_exit", "_exit", "kill"] {
            for _ in 0..if when == "during" { 4 } else { 1 } {
                let got = Program::compared(&exe, &["end", how, when]).run_for(DEADLINE);
                if how == "kill" {
                    let signal = got.status.and_then(|status| status.signal());
                    assert_eq!(signal, Some(15), "{how} {when}: {}", got.stdout);
                    assert!(got.stdout.is_empty() && got.stderr.is_empty());
                } else {
                    right(got, &format!("{how} {when}"));
                }
            }
        }
    }
}

#[test]
fn a_daemon_may_start_before_and_after_the_first_call() {
    succeeds(&["daemon", "before"]);
    succeeds(&["daemon", "after"]);
}

#[test]
fn signals_of_the_host_stay_with_its_own_threads() {
    succeeds(&["signals"]);
}

#[test]
fn e11_a_thread_cancelled_during_gpu_calls() {
    succeeds(&["cancel"]);
}

#[test]
fn the_libraries_are_closed_and_opened_again_after_the_gpu_was_used() {
    let dir = scratch!("reload");
    let exe = compile(&dir, "guest.c", &["-ldl", "-lpthread", "-lm"]);
    let lib = ours();
    let arguments = ["reload", lib.to_str().expect("UTF-8")];
    right(
        Program::compared(&exe, &arguments).run_for(DEADLINE),
        "reload",
    );
}

#[test]
fn e8_interleaved_rows_of_one_matrix_and_a_page_border_behind_it() {
    succeeds(&["rows", "40"]);
}

#[test]
fn e5_another_process_leaves_little_or_no_memory() {
    for left in ["200000000", "20000000", "0"] {
        succeeds(&["hog", left]);
    }
}

#[test]
fn e10_the_device_breaks_between_and_during_calls() {
    let dir = scratch!("sticky");
    let exe = compile_with(&dir, "guest.c", &ours(), &[]);
    for when in ["between", "during"] {
        let got = Program::compared(&exe, &["sticky", when])
            .run_for(DEADLINE)
            .expect_success(when);
        assert!(!got.stdout.contains("WRONG"), "{when}:\n{}", got.stdout);
        assert_eq!(got.stderr.lines().count(), 1, "{when}:\n{}", got.stderr);
        assert!(
            got.stderr.contains("every call runs on the CPU"),
            "{}",
            got.stderr
        );
    }
}

#[test]
fn e7_other_allocators() {
    let dir = scratch!("allocators");
    let exe = compile_with(&dir, "guest.c", &ours(), &[]);
    for allocator in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let got = Program::compared(&exe, &["fork", "24"])
            .env("LD_PRELOAD", allocator)
            .run_for(DEADLINE);
        // The loader says so and goes on without it.
        assert!(
            !got.stderr.contains("cannot be preloaded"),
            "{}run `cargo xtask setup`",
            got.stderr
        );
        right(got, allocator);
    }
}

/// Without "cancel": ASan itself calls a cancelled thread's end an overflow of its stack.
#[test]
fn e7_a_program_built_with_address_sanitizer() {
    let dir = scratch!("asan");
    let exe = compile_with(&dir, "guest.c", &ours(), &["-fsanitize=address"]);
    for arguments in [["fork", "24"], ["rows", "40"]] {
        // The engine lives as long as the process, on purpose.
        let got = Program::compared(&exe, &arguments)
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .run_for(DEADLINE);
        right(got, "guest.c with -fsanitize=address");
    }
}

/// The libraries are not instrumented, which ThreadSanitizer is told; what it wraps around exit handlers and
/// signals is in force all the same.
#[test]
fn e7_a_program_built_with_thread_sanitizer() {
    let dir = scratch!("tsan");
    let exe = compile_with(&dir, "guest.c", &ours(), &["-fsanitize=thread"]);
    for arguments in [vec!["rows", "40"], vec!["signals"]] {
        let got = Program::compared(&exe, &arguments)
            .env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1")
            .run_for(DEADLINE);
        right(got, "guest.c with -fsanitize=thread");
    }
}
