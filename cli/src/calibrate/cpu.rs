//! The CPU library is measured in a process of its own whose engine is off: one request a line, one answer.

use anyhow::{Context, Result, bail};
use gpu_offload::measure::{CpuLibrary, Operands, Subject, Timed};
use routines::{Op, Precision};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Request {
    op: u32,
    precision: u8,
    letters: [u8; 4],
    size: [usize; 3],
    repeat_s: f64,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Library {
        config: String,
        threads: u32,
    },
    Time {
        median_s: f64,
        spread: f64,
        runs: u32,
    },
    Failed(String),
}

fn answer(library: &CpuLibrary, line: &str) -> Result<Answer> {
    let request: Request = serde_json::from_str(line)?;
    let [m, n, k] = request.size;
    let subject = Subject {
        op: Op::from_code(request.op).context("a family")?,
        precision: Precision::from_code(request.precision).context("a precision")?,
        letters: request.letters,
        m,
        n,
        k,
    };
    let Some(mut operands) = Operands::new(subject) else {
        return Ok(Answer::Failed(format!(
            "{subject:?} is no call that is measured"
        )));
    };
    let budget = Duration::from_secs_f64(request.repeat_s);
    Ok(match library.time(&mut operands, budget) {
        Ok(Timed {
            median_s,
            spread,
            runs,
        }) => Answer::Time {
            median_s,
            spread,
            runs,
        },
        Err(why) => Answer::Failed(why),
    })
}

/// The inner process: answers until its input ends.
pub fn serve(path: &Path) -> Result<ExitCode> {
    if std::env::var_os("GPU_OFFLOAD").is_none_or(|v| v != "off") {
        bail!("--measure-cpu needs GPU_OFFLOAD=off; use `gpu-offload calibrate`");
    }
    let library = CpuLibrary::open(path).map_err(anyhow::Error::msg)?;
    let print = |answer: &Answer| -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(answer)?)?;
        Ok(out.flush()?)
    };
    print(&Answer::Library {
        config: library.config(),
        threads: library.threads(),
    })?;
    for line in std::io::stdin().lock().lines() {
        print(&answer(&library, &line?)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The inner process from outside. It ends when this is dropped, or killed: its input ends then.
pub struct Cpu {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Configuration string of the library.
    pub config: String,
    /// Threads that it uses.
    pub threads: u32,
}

impl Cpu {
    /// Starts it.
    pub fn start(blas: &Path) -> Result<Self> {
        let exe = std::env::current_exe().context("cannot find this program's own path")?;
        let mut child = Command::new(exe)
            .arg("calibrate")
            .arg("--measure-cpu")
            .arg(blas)
            .env("GPU_OFFLOAD", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the CPU measurement")?;
        let requests = child.stdin.take();
        let answers = child
            .stdout
            .take()
            .context("the CPU measurement has no output")?;
        let mut cpu = Self {
            child,
            requests,
            answers: BufReader::new(answers),
            config: String::new(),
            threads: 0,
        };
        let first = cpu.read().with_context(|| {
            format!(
                "the CPU measurement of {} failed; accepted: gpu-offload's libblas.so.3",
                blas.display()
            )
        })?;
        match first {
            Answer::Library { config, threads } => {
                cpu.config = config;
                cpu.threads = threads;
                Ok(cpu)
            }
            _ => bail!("the CPU measurement does not say what it measures"),
        }
    }

    fn read(&mut self) -> Result<Answer> {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .context("the CPU measurement broke off")?;
        serde_json::from_str(&line).with_context(|| match line.is_empty() {
            true => "the CPU measurement broke off".to_owned(),
            false => format!("the CPU measurement said {line:?}"),
        })
    }

    /// The time of one call.
    pub fn time(&mut self, subject: &Subject, repeat_s: f64) -> Result<Timed> {
        let request = Request {
            op: subject.op as u32,
            precision: subject.precision as u8,
            letters: subject.letters,
            size: [subject.m, subject.n, subject.k],
            repeat_s,
        };
        let requests = self
            .requests
            .as_mut()
            .context("the CPU measurement has ended")?;
        writeln!(requests, "{}", serde_json::to_string(&request)?)
            .context("the CPU measurement broke off")?;
        match self.read()? {
            Answer::Time {
                median_s,
                spread,
                runs,
            } => Ok(Timed {
                median_s,
                spread,
                runs,
            }),
            Answer::Failed(why) => bail!(why),
            Answer::Library { .. } => bail!("the CPU measurement answers another question"),
        }
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        drop(self.requests.take());
        // It ends by itself; what it says at its end is of no interest any more.
        let _ = self.child.wait();
    }
}
