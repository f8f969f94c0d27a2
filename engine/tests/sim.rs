//! The exported entry with the real CUDA backend on the simulated CUDA: this needs no GPU, but the
//! simulated library (`cargo build -p sim-cuda`), and fails without it.
//!
//! Each test runs this executable again with the test `child`, whose products of small whole numbers
//! are exact, and reads the log of that process.

mod common;

use common::{HOST, Problem};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Variable that tells `child` what to do.
const TASK: &str = "ENGINE_TEST_TASK";

/// One product through the exported entry; true if the CPU routine ran.
fn multiply(beta: f64) -> bool {
    // SAFETY: a static table; the entry gives null or a static table.
    let table = unsafe { gpu_offload::gpu_offload_engine_v1(&raw const HOST).as_ref() };
    let mut p = Problem::new(40, beta);
    let raw = p.raw();
    // SAFETY: operands, host and frame outlive the call.
    let outcome = unsafe { (table.expect("accepted").route)(&raw const raw) };
    p.settle(outcome)
}

/// A forked process that multiplies once and ends with exit; its exit status.
fn forked_multiply() -> i32 {
    // SAFETY: the child uses the engine, which is what is tested, and ends.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let cpu = std::panic::catch_unwind(|| multiply(1.0));
            libc::_exit(cpu.map_or(99, i32::from));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            98
        }
    }
}

#[test]
#[ignore = "runs inside the other tests"]
fn child() {
    match std::env::var(TASK).as_deref() {
        Ok("calls") => {
            for beta in [0.0, 1.0, 0.0, 2.0, 0.0, 3.0] {
                multiply(beta);
            }
        }
        Ok("threads") => std::thread::scope(|scope| {
            for i in 0..16 {
                scope.spawn(move || {
                    for j in 0..4 {
                        multiply(f64::from((i + j) % 3));
                    }
                });
            }
        }),
        Ok("fork") => {
            // Before the start a child may have a GPU of its own, afterwards it uses the CPU.
            assert_eq!(forked_multiply(), 0);
            assert!(!multiply(1.0));
            assert_eq!(forked_multiply(), 1);
            assert!(!multiply(1.0));
        }
        Ok("exit") => {
            for _ in 0..4 {
                std::thread::spawn(|| {
                    loop {
                        multiply(1.0);
                    }
                });
            }
            multiply(1.0);
            std::thread::sleep(std::time::Duration::from_millis(100));
            std::process::exit(7);
        }
        other => panic!("{TASK}={other:?}"),
    }
}

/// The simulation's delays are the caller's choice.
fn is_schedule(name: &std::ffi::OsStr) -> bool {
    ["SIM_CUDA_DELAY", "SIM_CUDA_SEED"]
        .iter()
        .any(|n| name == *n)
}

fn sim_library() -> PathBuf {
    if let Some(path) = std::env::var_os("SIM_CUDA_LIBRARY") {
        return path.into();
    }
    let exe = std::env::current_exe().expect("own path");
    let target = exe.parent().and_then(Path::parent).expect("target folder");
    target.join("libsim_cuda.so")
}

/// A folder with the simulated libraries and the logs of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let library = sim_library();
        assert!(
            library.is_file(),
            "the simulated CUDA is missing: {} (`cargo build -p sim-cuda` makes it)",
            library.display()
        );
        let dir =
            std::env::temp_dir().join(format!("gpu-offload-sim-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("temporary directory");
        for name in [
            "libcuda.so.1",
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libcusolver.so.12",
        ] {
            std::os::unix::fs::symlink(&library, dir.join(name)).expect("a link");
        }
        Self(dir)
    }

    fn run(&self, task: &str, variables: &[(&str, &str)]) -> (Output, Vec<serde_json::Value>) {
        let log = self.0.join("log.jsonl");
        let _ = std::fs::remove_file(&log);
        let output = Command::new(std::env::current_exe().expect("own path"))
            .args([
                "--exact",
                "child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env_clear()
            .env(TASK, task)
            .envs(std::env::vars_os().filter(|(name, _)| is_schedule(name)))
            .env("LD_LIBRARY_PATH", &self.0)
            .env("GPU_OFFLOAD", "force")
            .env("GPU_OFFLOAD_LOG", "decisions")
            .env("GPU_OFFLOAD_LOG_FILE", &log)
            .envs(variables.iter().copied())
            .output()
            .expect("started");
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text
            .lines()
            .map(|l| serde_json::from_str(l).expect(l))
            .collect();
        (output, lines)
    }

    /// As `run`, for a child that must succeed: (calls on the GPU, calls on the CPU, reasons given).
    fn calls(&self, task: &str, variables: &[(&str, &str)]) -> (usize, usize, String) {
        let (output, lines) = self.run(task, variables);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{variables:?}: {said}");
        let calls = |route: &str| {
            lines
                .iter()
                .filter(|l| l["event"] == "call" && l["route"] == route)
                .count()
        };
        let details: Vec<&str> = lines.iter().filter_map(|l| l["detail"].as_str()).collect();
        (calls("gpu"), calls("cpu"), details.join("; "))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_forced_call_runs_on_the_device() {
    let place = Place::new("force");
    assert_eq!(place.calls("calls", &[]), (6, 0, String::new()));
}

#[test]
fn many_threads_get_right_results() {
    let place = Place::new("threads");
    let (gpu, cpu, details) = place.calls("threads", &[]);
    assert_eq!((gpu, cpu), (64, 0), "{details}");
}

#[test]
fn a_fault_at_any_place_ends_in_the_right_result() {
    let place = Place::new("faults");
    let (mut runs, mut hits) = (0, 0);
    for kind in ["oom", "unknown", "lost", "late"] {
        for (function, nth) in [
            ("cuMemcpyHtoDAsync_v2", 1),
            ("cuMemcpyHtoDAsync_v2", 3),
            ("cuMemcpyDtoHAsync_v2", 1),
            ("cuMemcpyDtoHAsync_v2", 2),
            ("cublasGemmEx_64", 1),
            ("cublasGemmEx_64", 4),
            ("cuMemAlloc_v2", 1),
            ("cuEventRecord", 2),
        ] {
            let fault = format!("{function}:{nth}:{kind}");
            let (gpu, cpu, details) = place.calls("calls", &[("SIM_CUDA_FAULT", &fault)]);
            // The child has checked every result; here: nothing was lost or run twice.
            assert_eq!(gpu + cpu, 6, "{fault}: {details}");
            assert!(
                cpu == 0 || !details.is_empty(),
                "{fault}: a fallback without a reason"
            );
            (runs, hits) = (runs + 1, hits + usize::from(cpu > 0));
        }
    }
    // Some are mended inside (memory that is asked for again); most must have been met.
    assert!(2 * hits > runs, "only {hits} of {runs} faults were met");
}

#[test]
fn a_start_that_fails_gives_one_line_and_the_cpu() {
    let place = Place::new("start");
    for fault in [
        "cuInit:1:unknown",
        "cublasCreate_v2:1:oom",
        "cuMemAllocHost_v2:1:oom",
    ] {
        let (output, lines) = place.run("calls", &[("SIM_CUDA_FAULT", fault)]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{fault}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{fault}: {stderr}");
        let on_cpu = lines
            .iter()
            .filter(|l| l["event"] == "call" && l["route"] == "cpu")
            .count();
        assert_eq!(on_cpu, 6, "{fault}");
    }
}

#[test]
fn forks_before_and_after_the_start() {
    let place = Place::new("fork");
    let (gpu, cpu, details) = place.calls("fork", &[]);
    // The child after the start takes the CPU without a word: it may not even count.
    assert_eq!((gpu, cpu), (3, 0), "{details}");
}

#[test]
fn exit_while_calls_are_under_way_is_prompt_and_clean() {
    let place = Place::new("exit");
    for _ in 0..5 {
        let (output, _) = place.run("exit", &[]);
        assert_eq!(
            output.status.code(),
            Some(7),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
