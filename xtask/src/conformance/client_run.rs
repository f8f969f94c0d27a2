//! Starts one program on given libraries, with a deadline and a clean environment.

use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest suite (netlib's LAPACK programs) takes 65 s on an idle two-core machine and ten times
/// that on a crowded one; what runs longer than this hangs.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Variables that must not leak from the caller into a measured program.
const CLEARED: [&str; 6] = [
    "GPU_OFFLOAD",
    "OPENBLAS_",
    "OMP_",
    "GOTO_",
    "SIM_CUDA",
    "LD_LIBRARY_PATH",
];

/// A program to be started.
pub struct Client {
    command: Command,
    deadline: Duration,
}

/// How it ended.
pub struct Ended {
    /// `None`: killed at the deadline.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Time from start to end.
    pub wall_s: f64,
}

impl Ended {
    /// Ended with status 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|s| s.success())
    }

    /// In words, for a report.
    pub fn how(&self) -> String {
        match self.status {
            None => format!("still running after {:.0} s", self.wall_s),
            Some(status) => status.to_string(),
        }
    }

    /// The last lines of both outputs.
    pub fn tail(&self) -> String {
        let all = format!("{}\n{}", self.stdout, self.stderr);
        let lines: Vec<&str> = all.lines().filter(|l| !l.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Client {
    /// `program`, with LD_LIBRARY_PATH at `libraries`; an empty list leaves the system's own.
    pub fn new(program: impl AsRef<OsStr>, libraries: &[PathBuf]) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if CLEARED.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        if !libraries.is_empty() {
            let path: Vec<&OsStr> = libraries.iter().map(|p| p.as_os_str()).collect();
            command.env("LD_LIBRARY_PATH", path.join(OsStr::new(":")));
        }
        command.stdin(Stdio::null());
        Self {
            command,
            deadline: DEADLINE,
        }
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

    /// Adds a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Allows it more time than [`DEADLINE`], or less.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the working folder.
    pub fn folder(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Reads standard input from a file.
    pub fn input(mut self, file: &Path) -> Result<Self> {
        let file = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        self.command.stdin(file);
        Ok(self)
    }

    /// Puts a program before it that runs it, such as valgrind.
    pub fn under(mut self, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).arg(self.command.get_program());
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null());
        self.command = command;
        self
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Result<Ended> {
        let name = self.command.get_program().to_owned();
        let scratch = scratch("run")?;
        let (out, err) = (scratch.path().join("stdout"), scratch.path().join("stderr"));
        self.command
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let start = Instant::now();
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("cannot start {}", Path::new(&name).display()))?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() > self.deadline {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let wall_s = start.elapsed().as_secs_f64();
        let text = |path: &Path| -> Result<String> {
            Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
        };
        Ok(Ended {
            status,
            stdout: text(&out)?,
            stderr: text(&err)?,
            wall_s,
        })
    }
}

/// A folder that is removed when dropped.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A fresh folder for temporary files.
pub fn scratch(name: &str) -> Result<Scratch> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let unique = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!(
        "gpu-offload-{name}-{}-{unique}",
        std::process::id()
    ));
    fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Scratch { path })
}

/// The folder for results that are worth keeping between runs.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|v| Path::new(v).is_absolute())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set; set one of them")?;
    let path = base.join("gpu-offload/conformance");
    fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// `text` as part of a file name.
pub fn as_file_name(text: &str) -> OsString {
    text.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect::<String>()
        .into()
}
