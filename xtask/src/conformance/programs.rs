//! Numerical libraries of other people on the prefix: Armadillo, SuiteSparse and Eigen with its BLAS and LAPACKE back
//! ends, by C++ programs of `tests/clients`, and HPL, whose own residual tests judge. The libraries are Debian's,
//! unpacked into the cache; what the programs need of BLAS and LAPACK is the prefix's alone.

use super::client_run::{Client, Scratch, scratch};
use super::clients::{lines_of, sources};
use super::debian::{self, ARCH_FOLDER};
use super::report::{Findings, Row};
use super::{Route, Setting, Tally, forced};
use crate::tools::{has_program, quiet, side_by_side, step};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// One program of ours on a library.
struct Program {
    /// In the report, and the name of the executable.
    name: &'static str,
    /// In `tests/clients`.
    source: &'static str,
    /// Folders below the unpacked root's `usr/include`.
    headers: &'static str,
    /// Further arguments of the compiler; `ROOT` is the unpacked root.
    options: &'static [&'static str],
    /// Routines that a forced run must have run on the device.
    routines: &'static [&'static str],
    /// Too long to compile for a run that is not `--full`.
    full: bool,
}

/// What Eigen's program is compiled for: the precisions, one a program.
const fn eigen(
    name: &'static str,
    options: &'static [&'static str],
    routines: &'static [&'static str],
) -> Program {
    Program {
        name,
        source: "eigen.cpp",
        headers: "eigen3",
        options,
        routines,
        full: true,
    }
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "armadillo",
        source: "armadillo.cpp",
        headers: "",
        options: &[
            "-DARMA_DONT_USE_HDF5",
            "-DARMA_SUPERLU_INCLUDE_DIR=ROOT/usr/include/superlu/",
            "-LROOT/usr/lib",
            "-larmadillo",
        ],
        routines: &[
            "sgemm", "dgemm", "cgemm", "zgemm", "dsyrk", "zherk", "dgesv", "dgetrf", "dgetri",
            "dpotrf", "dpotri", "dgeqrf", "dorgqr", "zungqr", "dgels", "dgelsd", "dsyev", "dsyevd",
            "zheevd", "dgesdd", "dgesvd", "zgesdd", "dgeev", "dtrtrs",
        ],
        full: false,
    },
    Program {
        name: "suitesparse",
        source: "suitesparse.cpp",
        headers: "suitesparse",
        options: &["-lspqr", "-lumfpack", "-lcholmod"],
        routines: &[
            "dgemm", "zgemm", "dtrsm", "ztrsm", "dsyrk", "zherk", "dpotrf", "zpotrf",
        ],
        full: false,
    },
    eigen(
        "eigen, double",
        &["-DSCALAR=double"],
        &[
            "dgemm", "dsymm", "dtrsm", "dtrmm", "dgetrf", "dpotrf", "dsyev", "dgesvd",
        ],
    ),
    eigen(
        "eigen, complex double",
        &["-DSCALAR=std::complex<double>"],
        &[
            "zgemm", "zhemm", "ztrsm", "ztrmm", "zgetrf", "zpotrf", "zheev", "zgesvd",
        ],
    ),
    eigen(
        "eigen, float",
        &["-DSCALAR=float"],
        &[
            "sgemm", "ssymm", "strsm", "strmm", "sgetrf", "spotrf", "ssyev", "sgesvd",
        ],
    ),
    eigen(
        "eigen, complex float",
        &["-DSCALAR=std::complex<float>"],
        &[
            "cgemm", "chemm", "ctrsm", "ctrmm", "cgetrf", "cpotrf", "cheev", "cgesvd",
        ],
    ),
];

/// Processes of HPL's runs.
const HPL_PROCESSES: [u32; 2] = [1, 4];

/// HPL's parameters, then those of hpcc's transposition, which is tested by its residual too. Every choice of
/// factorisation, broadcast and swap is in it once.
fn hpcc_input(processes: u32, orders: &str) -> String {
    let (p, q) = if processes == 4 { (2, 2) } else { (1, 1) };
    let count = orders.split_whitespace().count();
    format!(
        "HPLinpack benchmark input file\nof the conformance suite\nHPL.out\n8 device out\n{count} # of Ns\n{orders} Ns\n\
         2 # of NBs\n32 80 NBs\n0 PMAP\n1 # of grids\n{p} Ps\n{q} Qs\n16.0 threshold\n3 # of panel fact\n0 1 2 PFACTs\n\
         1 # of NBMINs\n4 NBMINs\n1 # of NDIVs\n2 NDIVs\n1 # of RFACTs\n1 RFACTs\n2 # of BCASTs\n1 5 BCASTs\n\
         1 # of DEPTHs\n1 DEPTHs\n2 SWAP\n64 swapping threshold\n0 L1\n0 U\n1 Equilibration\n8 alignment\n\
         separator\n0 # of additional Ns of PTRANS\n1200 Ns\n0 # of additional NBs of PTRANS\n40 NBs\n"
    )
}

/// Residuals that HPL and hpcc's transposition passed and failed, and the checks of its single and star DGEMM.
fn hpcc_tally(output: &str) -> Tally {
    let mut tally = Tally::default();
    // What is no number is larger than any bound.
    let residual = |text: &str| text.trim().parse().unwrap_or(f64::NAN);
    for line in output.lines() {
        if line.starts_with("||Ax-b||") {
            tally.check(line.ends_with("PASSED"));
        } else if let Some(rest) = line.split("PTRANS_residual=").nth(1) {
            tally.check(residual(rest) <= 16.0);
        } else if let Some(rest) = line.split("Scaled residual:").nth(1) {
            // hpcc reports DGEMM's, and does not judge it.
            tally.check(residual(rest) < 30.0);
        } else if let Some(rest) = line.strip_prefix("Success=") {
            tally.check(rest.trim() == "1");
        }
    }
    tally
}

/// The unpacked libraries and how programs are compiled and started on them.
struct Libraries<'a> {
    root: PathBuf,
    setting: &'a Setting,
    folder: Scratch,
}

impl Libraries<'_> {
    /// Where the loader looks: the prefix, then what the libraries brought along.
    fn path(&self) -> Vec<PathBuf> {
        let mut path = self.setting.libraries();
        path.extend([ARCH_FOLDER, "usr/lib"].map(|folder| self.root.join(folder)));
        path
    }

    /// A file of ours for what is run.
    fn file(&self, what: &str, ending: &str) -> PathBuf {
        let name = what.replace([',', ' '], "-");
        self.folder.path().join(name + ending)
    }

    fn compile(&self, program: &Program) -> Result<PathBuf> {
        let exe = self.file(program.name, "");
        let (lib, root) = (self.setting.lib(), self.root.display().to_string());
        let include = self.root.join("usr/include");
        let mut command = Command::new("g++");
        command.args(["-std=c++17", "-O1", "-w", "-o"]).arg(&exe);
        command.arg("-isystem").arg(include.join(program.headers));
        command.arg(sources().join(program.source));
        command.arg(format!("-L{root}/{ARCH_FOLDER}"));
        command.args(
            program
                .options
                .iter()
                .map(|option| option.replace("ROOT", &root)),
        );
        for name in ["liblapacke.so.3", "liblapack.so.3", "libblas.so.3"] {
            command.arg(lib.join(name));
        }
        command.arg(format!(
            "-Wl,-rpath-link,{}:{root}/{ARCH_FOLDER}",
            lib.display()
        ));
        quiet(&mut command)?;
        Ok(exe)
    }

    /// A program on the prefix; of a forced run what must have run on the device is judged too.
    fn run(
        &self,
        what: &str,
        client: Client,
        routines: &[&str],
        count: impl Fn(Client) -> Result<Tally>,
    ) -> Result<Tally> {
        let client = self.setting.routed(client);
        if self.setting.route != Route::Force {
            return count(client);
        }
        let log = self.file(what, ".jsonl");
        let mut tally = count(forced::logged(client, &log))?;
        tally += forced::judge(&log, routines)?;
        Ok(tally)
    }

    /// HPL on that many processes of Open MPI, which finds its own files below the root.
    fn hpl(&self, processes: u32) -> Result<Tally> {
        let folder = self.folder.path().join(format!("hpl-{processes}"));
        fs::create_dir(&folder)?;
        // The simulated GPU computes on the same processors, call by call.
        let orders = if self.setting.route == Route::Force {
            "200 301"
        } else {
            "300 1001"
        };
        fs::write(folder.join("hpccinf.txt"), hpcc_input(processes, orders))?;
        let usr = self.root.join("usr");
        let started = usr.join("bin/orterun");
        let client = Client::new(&started, &self.path())
            .env("OPAL_PREFIX", &usr)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .env("OMPI_MCA_plm_rsh_agent", "/bin/false")
            // Its drivers of networks miss libraries; none is needed.
            .env("OMPI_MCA_mca_base_component_show_load_errors", "0")
            .env("OPENBLAS_NUM_THREADS", "1")
            .args(["-n", &processes.to_string()])
            .arg(usr.join("bin/hpcc"))
            .folder(&folder);
        let what = format!("HPL, {processes} processes");
        self.run(&what, client, &["dgemm", "dtrsm"], |client| {
            let progress = step(&what);
            let ended = client.run()?;
            progress.finish_and_clear();
            let output = fs::read_to_string(folder.join("hpccoutf.txt"))
                .with_context(|| format!("hpcc ended with {}:\n{}", ended.how(), ended.tail()))?;
            let mut tally = hpcc_tally(&output);
            // Two orders, two block sizes, three factorisations, two broadcasts; and what is beside HPL.
            if !ended.success() || tally.passed <= 24 {
                println!("  {what} ended with {}:\n{}", ended.how(), ended.tail());
                tally.failed += 1;
            }
            println!("{what}: {tally}");
            Ok(tally)
        })
    }
}

/// What a run without `--full` leaves out, in words.
pub fn part() -> String {
    let left: Vec<&str> = PROGRAMS.iter().filter(|p| p.full).map(|p| p.name).collect();
    format!("without {}", left.join(" and "))
}

/// Runs every program.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    if !has_program("g++") {
        bail!("no g++; run `cargo xtask setup --for full`");
    }
    let libraries = Libraries {
        root: debian::libraries()?,
        setting,
        folder: scratch("programs")?,
    };
    let wanted: Vec<&Program> = PROGRAMS
        .iter()
        .filter(|program| setting.full || !program.full)
        .collect();
    let progress = step("compiling programs with Armadillo, SuiteSparse and Eigen");
    let compiled = side_by_side(&wanted, |program| libraries.compile(program))?;
    progress.finish_and_clear();
    let mut sum = Tally::default();
    let mut row = |what: &str, tally: Tally, bound: &str| {
        findings.row(Row {
            suite: what.to_owned(),
            ours: tally.to_string(),
            stock: bound.to_owned(),
        });
        sum += tally;
    };
    for (program, exe) in wanted.iter().zip(&compiled) {
        let client = Client::new(exe, &libraries.path());
        let count = |client| lines_of(client, program.name);
        let tally = libraries.run(program.name, client, program.routines, count)?;
        row(
            &format!("{}: residuals", program.name),
            tally,
            "LAPACK's own bound, 30 n eps",
        );
    }
    for processes in HPL_PROCESSES {
        let tally = libraries.hpl(processes)?;
        row(
            &format!("HPL of hpcc, {processes} processes: residuals"),
            tally,
            "HPL's own bound, 16",
        );
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::hpcc_tally;

    #[test]
    fn hpccs_residuals_are_read() {
        let good = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0049 ...... PASSED\n\
                    PTRANS_residual=0.5\nScaled residual: 0.016\nSuccess=1\n";
        assert_eq!(hpcc_tally(good).passed, 4);
        let bad = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        nan ...... FAILED\n\
                   PTRANS_residual=17\nScaled residual: nan\nSuccess=0\n";
        assert_eq!(hpcc_tally(bad).failed, 4);
    }
}
