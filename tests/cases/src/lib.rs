//! What every case needs: where the libraries under test are, how a C or Fortran program is compiled
//! against them, and how it is run with a deadline.
//!
//! The programs are clients: they know the libraries by their SONAMEs and public names only. Nothing
//! here may link the libraries into the test's own process, and nothing is skipped silently: a case
//! that lacks what it needs fails and says what to run.

pub mod exceptions;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The prefix under test; its `lib` folder holds the libraries.
pub const PREFIX_VARIABLE: &str = "GPU_OFFLOAD_TEST_PREFIX";
/// A folder with `libblas.so.3` and `liblapack.so.3` made of the same OpenBLAS archive without us.
pub const BASELINE_VARIABLE: &str = "GPU_OFFLOAD_TEST_BASELINE";
/// A folder with the simulated CUDA libraries.
pub const SIM_VARIABLE: &str = "GPU_OFFLOAD_TEST_SIM";

/// Set where everything is to run, instead of the subset that fits into CI.
pub const FULL_VARIABLE: &str = "GPU_OFFLOAD_TEST_FULL";

/// A program that is still running after this time hangs. The slowest case (a thousand loads of the
/// library) takes 20 s on two loaded cores.
pub const DEADLINE: Duration = Duration::from_secs(180);

fn folder(variable: &str, make: &str) -> PathBuf {
    let value = std::env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} is not set; run `cargo xtask conformance --suite cases`, or set it to {make}")
    });
    let path = PathBuf::from(value);
    assert!(
        path.is_dir(),
        "{variable} names {}, which is no folder",
        path.display()
    );
    path
}

/// The prefix under test.
pub fn prefix() -> PathBuf {
    folder(PREFIX_VARIABLE, "a prefix made by `cargo xtask dist`")
}

/// The folder of the libraries under test.
pub fn ours() -> PathBuf {
    let lib = prefix().join("lib");
    assert!(
        lib.join("libblas.so.3").exists(),
        "no libblas.so.3 in {}; run `cargo xtask dist`",
        lib.display()
    );
    lib
}

/// The folder of the same archive without us.
pub fn baseline() -> PathBuf {
    folder(
        BASELINE_VARIABLE,
        "the folder that `cargo xtask conformance --suite cases` makes of .openblas",
    )
}

/// The folder of the simulated CUDA.
pub fn simulated_cuda() -> PathBuf {
    folder(
        SIM_VARIABLE,
        "the folder described in tests/sim-cuda/README.md",
    )
}

/// The same archive without us, as the library that results are compared with.
pub fn reference() -> PathBuf {
    baseline().join("libblas.so.3")
}

/// True where everything is to run (`cargo xtask conformance --suite cases --full`).
pub fn full() -> bool {
    std::env::var_os(FULL_VARIABLE).is_some()
}

/// What a line of the engine's JSON log holds when the call ran on the GPU.
pub const GPU_ROUTE_IN_LOG: &str = "\"route\":\"gpu\"";

/// The folder of this package's C and Fortran sources.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The workspace's root folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fresh folder for one test. Use [`scratch!`], which fills in the target folder.
pub fn scratch_in(target_tmp: &str, name: &str) -> PathBuf {
    let path = Path::new(target_tmp).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
    path
}

/// A fresh folder of the given name below cargo's folder for test files.
#[macro_export]
macro_rules! scratch {
    ($name:expr) => {
        $crate::scratch_in(env!("CARGO_TARGET_TMPDIR"), $name)
    };
}

/// Compiles `programs/<source>` into `dir` and returns the executable. `args` follow the source, so
/// that libraries come after it.
pub fn compile(dir: &Path, source: &str, args: &[&str]) -> PathBuf {
    let compiler = if source.ends_with(".f90") {
        "gfortran"
    } else {
        "gcc"
    };
    let exe = dir.join(source.replace('.', "_"));
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-g", "-Wall", "-o"])
        .arg(&exe)
        .arg(programs().join(source))
        .args(args);
    if compiler == "gcc" {
        command.args(["-std=gnu11", "-D_GNU_SOURCE"]);
    }
    let out = command
        .output()
        .unwrap_or_else(|e| panic!("cannot run {compiler}: {e}; run `cargo xtask setup`"));
    assert!(
        out.status.success(),
        "{compiler} refused {source}:\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    exe
}

/// The linker arguments for a folder of libraries: both of them, and nothing else of BLAS.
pub fn link_arguments(lib: &Path) -> Vec<String> {
    vec![
        format!("-L{}", lib.display()),
        "-Wl,--no-as-needed".into(),
        "-l:liblapack.so.3".into(),
        "-l:libblas.so.3".into(),
        format!("-Wl,-rpath-link,{}", lib.display()),
        "-lm".into(),
        "-ldl".into(),
        "-lpthread".into(),
    ]
}

/// [`compile`] and link with the libraries in `lib`; the program finds them by LD_LIBRARY_PATH.
pub fn compile_with(dir: &Path, source: &str, lib: &Path, args: &[&str]) -> PathBuf {
    let link = link_arguments(lib);
    let all: Vec<&str> = args
        .iter()
        .copied()
        .chain(link.iter().map(String::as_str))
        .collect();
    compile(dir, source, &all)
}

/// How a program ended.
pub struct Ended {
    /// Its exit status; `None` if it was still running at the deadline and was killed.
    pub status: Option<ExitStatus>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Time from start to end.
    pub wall_s: f64,
}

impl Ended {
    /// Panics with everything the program wrote unless it ended with status 0.
    #[track_caller]
    pub fn expect_success(self, what: &str) -> Self {
        let ended = match self.status {
            None => format!("was still running after {:.0} s", self.wall_s),
            Some(s) if s.success() => return self,
            Some(s) => format!("ended with {s}"),
        };
        panic!(
            "{what} {ended}\nstdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
    }

    /// As [`Ended::expect_success`], of a program that compares its calls and reports what is wrong.
    #[track_caller]
    pub fn expect_right(self, what: &str) -> Self {
        assert!(
            !self.stdout.contains("WRONG"),
            "{what}:\n{}{}",
            self.stdout,
            self.stderr
        );
        self.expect_success(what)
    }

    /// As [`Ended::expect_success`], and nothing may have been written to standard error.
    #[track_caller]
    pub fn expect_silent_success(self, what: &str) -> Self {
        let ended = self.expect_success(what);
        assert!(
            ended.stderr.is_empty(),
            "{what} wrote to standard error:\n{}",
            ended.stderr
        );
        ended
    }
}

/// One program to be run on a folder of libraries.
pub struct Program {
    command: Command,
}

impl Program {
    /// `exe`, with LD_LIBRARY_PATH at `lib` and none of our or OpenBLAS's variables set.
    pub fn new(exe: impl AsRef<OsStr>, lib: &Path) -> Self {
        let mut command = Command::new(exe);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["GPU_OFFLOAD", "OPENBLAS", "OMP_", "GOTO_", "SIM_CUDA"]
                .iter()
                .any(|prefix| text.starts_with(prefix))
            {
                command.env_remove(&name);
            }
        }
        command.env("LD_LIBRARY_PATH", lib).stdin(Stdio::null());
        Self { command }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// A C program that compares its calls with the same archive without us, every routed call sent to the
    /// simulated CUDA. OpenBLAS has one thread: with more of them fork among its calls meets OpenBLAS's own
    /// race (see "Known limits").
    pub fn compared(exe: &Path, arguments: &[&str]) -> Self {
        Self::new(exe, &ours())
            .forced_to_simulated_cuda()
            .env("OPENBLAS_NUM_THREADS", "1")
            .arg(reference())
            .args(arguments)
    }

    /// Adds a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sends every routed call to the simulated CUDA, whatever its size, and logs to `log`.
    pub fn on_simulated_cuda(self, log: &Path) -> Self {
        self.forced_to_simulated_cuda()
            .env("GPU_OFFLOAD_LOG", "decisions")
            .env("GPU_OFFLOAD_LOG_FILE", log)
    }

    /// As [`Program::on_simulated_cuda`], without a log: a call that ends on the CPU is then a jump.
    pub fn forced_to_simulated_cuda(mut self) -> Self {
        let mut path = OsString::from(simulated_cuda());
        if let Some((_, Some(before))) = self
            .command
            .get_envs()
            .find(|(name, _)| *name == "LD_LIBRARY_PATH")
        {
            path.push(":");
            path.push(before);
        }
        self.command.env("LD_LIBRARY_PATH", path);
        self.env("GPU_OFFLOAD", "force")
            .env("GPU_OFFLOAD_THRESHOLD", "0")
    }

    /// The command, for what the other functions do not offer.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs it with the usual [`DEADLINE`].
    pub fn run(self) -> Ended {
        self.run_for(DEADLINE)
    }

    /// Runs it and kills it after `deadline`. Output goes through files, so that a program which
    /// leaves a child behind does not hold the test.
    pub fn run_for(mut self, deadline: Duration) -> Ended {
        let (mut out, mut err) = (temporary_file(), temporary_file());
        self.command
            .stdout(out.try_clone().expect("descriptor for output"));
        self.command
            .stderr(err.try_clone().expect("descriptor for errors"));
        let start = Instant::now();
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {:?}: {e}", self.command.get_program()));
        let status = loop {
            if let Some(status) = child.try_wait().expect("wait for the program") {
                break Some(status);
            }
            if start.elapsed() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let wall_s = start.elapsed().as_secs_f64();
        Ended {
            status,
            stdout: read_back(&mut out),
            stderr: read_back(&mut err),
            wall_s,
        }
    }
}

fn temporary_file() -> File {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "gpu-offload-case-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
    // The open descriptor keeps it alive.
    let _ = fs::remove_file(&path);
    file
}

fn read_back(file: &mut File) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("seek in output");
    file.read_to_end(&mut bytes).expect("read output");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The dynamic symbols that a library defines for others, sorted, without versions.
pub fn exported_names(library: &Path) -> Vec<String> {
    let out = Command::new("nm")
        .args([
            "-D",
            "--defined-only",
            "--without-symbol-versions",
            "--format=posix",
        ])
        .arg(library)
        .output()
        .expect("cannot run nm; run `cargo xtask setup`");
    assert!(out.status.success(), "nm refused {}", library.display());
    let mut names: Vec<String> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The names in a list, one a line; `#` begins a comment.
pub fn names_in(list: &Path) -> Vec<String> {
    let text =
        fs::read_to_string(list).unwrap_or_else(|e| panic!("cannot read {}: {e}", list.display()));
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// True if this process is root: some cases drop privileges only then.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}
