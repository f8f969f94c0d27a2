//! Alternatives are switched one by one, so each library of ours must work beside any foreign one:
//! the reference's, Debian's OpenBLAS and netlib's LAPACK of the release that ours holds, in every order of
//! switching. Nothing on this machine is switched: the packages are unpacked into the cache and
//! update-alternatives works on its own folders.

use super::client_run::{Client, scratch};
use super::clients::{PYTHON, compile, guest_clients, lines_of, sources};
use super::debian::{self, Guests};
use super::report::{Findings, Row};
use super::{Setting, Tally};
use crate::openblas;
use crate::tools::quiet;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One provider's libraries.
struct Provider {
    name: &'static str,
    /// `None`: only a LAPACK, which is there for other systems' releases of it.
    blas: Option<PathBuf>,
    lapack: PathBuf,
}

/// `update-alternatives` on folders of its own.
struct Alternatives {
    root: PathBuf,
}

impl Alternatives {
    fn call(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("update-alternatives");
        for (option, folder) in [("--altdir", "alternatives"), ("--admindir", "admin")] {
            command.arg(option).arg(self.root.join(folder));
        }
        command.arg("--log").arg(self.root.join("log"));
        quiet(command.args(arguments))
    }

    fn new(root: &Path, providers: &[Provider]) -> Result<Self> {
        for folder in ["alternatives", "admin", "lib"] {
            fs::create_dir_all(root.join(folder))?;
        }
        let this = Self {
            root: root.to_owned(),
        };
        for (number, p) in providers.iter().enumerate() {
            let files = [
                ("libblas.so.3", p.blas.as_ref()),
                ("liblapack.so.3", Some(&p.lapack)),
            ];
            for (name, file) in files {
                let Some(file) = file else { continue };
                let link = this.lib().join(name);
                let priority = (10 * number + 10).to_string();
                this.call(&[
                    "--install",
                    &link.to_string_lossy(),
                    name,
                    &file.to_string_lossy(),
                    &priority,
                ])?;
            }
        }
        Ok(this)
    }

    fn lib(&self) -> PathBuf {
        self.root.join("lib")
    }

    fn set(&self, name: &str, file: &Path) -> Result<()> {
        self.call(&["--set", name, &file.to_string_lossy()])
            .map(drop)
    }
}

/// Ours with ours, each of ours with the two other providers' counterpart, and our BLAS with netlib's LAPACK.
const MIXES: usize = 6;

/// Threads of the C client with OPENBLAS_NUM_THREADS=2: its own and one of the pool's.
const THREADS_OF_ONE_POOL: &str = "threads 2";

/// Routines of both libraries that a program without an `xerbla_` of its own calls with an illegal argument.
const ILLEGAL: [&str; 4] = ["dgemm", "dgetrf", "dpotrf", "dsyev"];

/// A program that loops between two libraries' `xerbla_` does not end; these take milliseconds.
const ILLEGAL_DEADLINE: Duration = Duration::from_secs(60);

/// Each illegal call is reported once, and the program ends well (case F7): whose `xerbla_` is found depends on the
/// mix, and the reference's own ends the program with status 0.
fn reported_once(client: impl Fn(&Path) -> Client, exe: &Path, what: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for routine in ILLEGAL {
        let ended = client(exe).arg(routine).deadline(ILLEGAL_DEADLINE).run()?;
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let once = said.matches(&routine.to_uppercase()).count() == 1;
        if !once || !ended.success() {
            println!(
                "  {what}, {routine} with an illegal argument ended with {} and said: {}",
                ended.how(),
                said.trim()
            );
        }
        tally.check(once && ended.success());
    }
    Ok(tally)
}

/// Runs a C and a NumPy client on every mix, after switching in both orders, and calls with illegal arguments; with
/// `--full` SciPy, Octave and R as well.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let foreign = debian::foreign()?;
    let guests = setting.full.then(Guests::new).transpose()?;
    let folder = scratch("mixes")?;
    let providers = [
        Provider {
            name: "reference",
            blas: Some(foreign.join("blas/libblas.so.3")),
            lapack: foreign.join("lapack/liblapack.so.3"),
        },
        Provider {
            name: "Debian's OpenBLAS",
            blas: Some(foreign.join("openblas-pthread/libblas.so.3")),
            lapack: foreign.join("openblas-pthread/liblapack.so.3"),
        },
        Provider {
            name: "netlib's 3.12",
            blas: None,
            lapack: openblas::netlib_lapack(folder.path())?,
        },
        Provider {
            name: "ours",
            blas: Some(setting.lib().join("libblas.so.3")),
            lapack: setting.lib().join("liblapack.so.3"),
        },
    ];
    let alternatives = Alternatives::new(folder.path(), &providers)?;
    // Debian's OpenBLAS liblapack needs this beside it.
    symlink(
        foreign.join("openblas-pthread/libopenblas.so.0"),
        alternatives.lib().join("libopenblas.so.0"),
    )?;
    let exe = compile("linear.c", &setting.lib(), &folder)?;
    let illegal = ::cases::compile_with(folder.path(), "default_xerbla.c", &setting.lib(), &[]);
    let mut tally = Tally::default();
    let mut seen: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    // Every mix with one of ours in it is reached by switching BLAS first, then by LAPACK first.
    for lapack_first in [false, true] {
        for outer in 0..providers.len() {
            for inner in 0..providers.len() {
                let (blas, lapack) = if lapack_first {
                    (inner, outer)
                } else {
                    (outer, inner)
                };
                let (b, l) = (&providers[blas], &providers[lapack]);
                let Some(b_library) = &b.blas else { continue };
                alternatives.set("libblas.so.3", b_library)?;
                alternatives.set("liblapack.so.3", &l.lapack)?;
                if b.name != "ours" && l.name != "ours" {
                    continue;
                }
                *seen.entry((blas, lapack)).or_default() += 1;
                let what = format!("BLAS {} + LAPACK {}", b.name, l.name);
                let libraries = [alternatives.lib()];
                let client = |program: &Path| {
                    Client::new(program, &libraries)
                        .env("GPU_OFFLOAD", "off")
                        .env("OPENBLAS_NUM_THREADS", "2")
                };
                tally += lines_of(client(&exe), &format!("{what}, C"))?;
                tally += reported_once(client, &illegal, &what)?;
                if b.name == "ours" && l.name == "ours" {
                    let threads = client(&exe).run()?.stdout;
                    let one_pool = threads.lines().any(|line| line == THREADS_OF_ONE_POOL);
                    if !one_pool {
                        println!("  {what}: not one pool of two threads: {}", threads.trim());
                    }
                    tally.check(one_pool);
                }
                if !lapack_first {
                    let script = sources().join("numpy_linear.py");
                    let python = client(Path::new(PYTHON)).arg(script);
                    tally += lines_of(python, &format!("{what}, NumPy"))?;
                    if let Some(guests) = &guests {
                        let off = |c: Client| c.env("GPU_OFFLOAD", "off");
                        tally += guest_clients(guests, &libraries, off, &format!("{what}, "))?;
                    }
                }
            }
        }
    }
    tally.check(seen.len() == MIXES && seen.values().all(|&times| times == 2));
    findings.row(Row {
        suite: "Mixes of one library with the reference's, Debian's OpenBLAS or netlib's LAPACK 3.12: residuals, illegal arguments"
            .to_owned(),
        ours: tally.to_string(),
        stock: "LAPACK's own bound, 30 n eps; one report each".to_owned(),
    });
    Ok(tally)
}
