//! The tarball, unpacked somewhere else and moved, and the links of a conda environment: a folder laid out
//! as conda-forge lays it out, with Debian's OpenBLAS as the environment's own library.

use super::client_run::{Client, Scratch, scratch};
use super::clients::PYTHON;
use super::debian;
use super::report::{Findings, Row};
use super::{Setting, Tally};
use crate::dist;
use crate::tools::{has_program, quiet, workspace};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs the prefix, unpacks it and runs programs on it.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let work = scratch("tar")?;
    let tarball = dist::tarball(&setting.prefix)?;
    let mut sum = Tally::default();
    let unpacked = work.path().join("a folder");
    fs::create_dir(&unpacked)?;
    quiet(
        Command::new("tar")
            .arg("-xf")
            .arg(&tarball)
            .arg("-C")
            .arg(&unpacked),
    )?;
    let name = format!("gpu-offload-{}", env!("CARGO_PKG_VERSION"));
    let first = unpacked.join(&name);
    let linked = linked_with_openblas(&work)?;
    sum += prefix_works(&first, &linked, "unpacked")?;
    let second = work.path().join("moved");
    fs::rename(&first, &second)?;
    sum += prefix_works(&second, &linked, "moved")?;
    sum += doctor(&second, &linked, &work)?;
    findings.row(Row {
        suite: "Tarball, unpacked and moved".to_owned(),
        ours: sum.to_string(),
        stock: "-".to_owned(),
    });
    let conda = conda(&second, &work)?;
    findings.row(Row {
        suite: "conda's links, with Debian's OpenBLAS as the environment's own".to_owned(),
        ours: conda.to_string(),
        stock: "-".to_owned(),
    });
    sum += conda;
    Ok(sum)
}

/// A program that needs libopenblas.so.0 and no other library of linear algebra.
pub fn linked_with_openblas(into: &Scratch) -> Result<PathBuf> {
    let sources = workspace().join("tests/packages");
    let (names, exe) = (into.path().join("names.so"), into.path().join("linked"));
    quiet(
        Command::new("cc")
            .args([
                "-shared",
                "-fPIC",
                "-w",
                "-Wl,-soname,libopenblas.so.0",
                "-o",
            ])
            .arg(&names)
            .arg(sources.join("names.c")),
    )?;
    quiet(
        Command::new("cc")
            .args(["-O1", "-o"])
            .arg(&exe)
            .arg(sources.join("linked.c"))
            .arg(&names),
    )?;
    Ok(exe)
}

/// Counts a program that must end with status 0.
pub fn succeeds(what: &str, client: Client) -> Result<Tally> {
    let ended = client.run()?;
    let mut tally = Tally::default();
    tally.check(ended.success());
    if !ended.success() {
        println!(
            "  {what}: {}\n{}{}",
            ended.how(),
            ended.stdout,
            ended.tail()
        );
    }
    Ok(tally)
}

/// Shells, the options that give them a line, and the line that the help of `env` names.
const SHELLS: [(&str, &[&str], &str); 4] = [
    ("sh", &["-c"], "eval \"$(\"$TOOL\" env --shell sh)\""),
    ("bash", &["-c"], "eval \"$(\"$TOOL\" env --shell sh)\""),
    (
        "fish",
        &["--no-config", "-c"],
        "\"$TOOL\" env --shell fish | source",
    ),
    ("tcsh", &["-f", "-c"], "eval `\"$TOOL\" env --shell csh`"),
];

/// Programs on the prefix through `run`, through each shell, and NumPy.
fn prefix_works(prefix: &Path, linked: &Path, what: &str) -> Result<Tally> {
    let tool = prefix.join("bin/gpu-offload");
    let library = |name: &str| prefix.join("lib").join(name).display().to_string();
    // /proc/self/maps writes a space as it is.
    let wanted = ["libopenblas.so.0", "libblas.so.3", "liblapacke.so.3"].map(library);
    let mut sum = Tally::default();
    let direct = Client::new(&tool, &[]).arg("run").arg(linked);
    sum += succeeds(&format!("{what}: run"), direct.args(&wanted))?;
    for (shell, options, line) in SHELLS {
        if !has_program(shell) {
            println!("  {what}: {shell} is not installed");
            sum.skipped += 1;
            continue;
        }
        let program = format!("{line}; \"$LINKED\" \"$WANTED\"");
        let client = Client::new(shell, &[])
            .args(options)
            .arg(program)
            .env("TOOL", &tool)
            .env("LINKED", linked)
            .env("WANTED", &wanted[1]);
        sum += succeeds(&format!("{what}: {shell}"), client)?;
    }
    let numpy = "import sys, numpy; a = numpy.eye(3) * 2
assert (numpy.linalg.solve(a, a) == numpy.eye(3)).all()
assert sys.argv[1] in open('/proc/self/maps').read()";
    let client = Client::new(&tool, &[]).args(["run", PYTHON, "-c", numpy, &wanted[1]]);
    sum += succeeds(&format!("{what}: NumPy"), client)?;
    let status = Client::new(&tool, &[]).arg("status").run()?;
    sum.check(
        status
            .stdout
            .contains(&prefix.join("lib").display().to_string()),
    );
    let pages = prefix.join("share/man/man1/gpu-offload-run.1");
    sum.check(pages.is_file() && prefix.join("share/licences/LICENSE-MIT").is_file());
    Ok(sum)
}

/// `doctor` of commands: what they load and by what, while their status, output and open files stay their own.
fn doctor(prefix: &Path, linked: &Path, work: &Scratch) -> Result<Tally> {
    let tool = prefix.join("bin/gpu-offload");
    let report = work.path().join("doctor.json");
    let doctor = || {
        let client = Client::new(&tool, &[]).args(["doctor", "--json", "--output"]);
        client.arg(&report).arg("--")
    };
    let library = prefix.join("lib/libblas.so.3").display().to_string();
    let mut sum = Tally::default();
    let client = doctor().arg(&tool).arg("run").arg(linked).arg(&library);
    sum += succeeds("doctor of a program by run", client)?;
    let found: Value = serde_json::from_slice(&fs::read(&report)?)?;
    let libraries = found["libraries"].as_array().context("libraries")?;
    let ours = |l: &&Value| l["path"] == library && l["what"] == "gpu-offload";
    // libopenblas.so.0 comes by the library path, and brings the others by its own.
    let by_path = |l: &Value| {
        let openblas = l["path"]
            .as_str()
            .is_some_and(|p| p.ends_with("libopenblas.so.0"));
        openblas && l["via"] == "LD_LIBRARY_PATH"
    };
    let right = libraries.iter().any(|l| ours(&l)) && libraries.iter().any(by_path);
    if !right {
        println!("  doctor of a program by run: {found:#}");
    }
    sum.check(right);

    let numpy = ["-c", "import numpy; print(numpy.eye(1)[0])"];
    let (plain, seen) = (
        Client::new(PYTHON, &[]).args(numpy).run()?,
        doctor().arg(PYTHON).args(numpy).run()?,
    );
    sum.check(seen.success() && (plain.stdout, plain.stderr) == (seen.stdout, seen.stderr));
    let found: Value = serde_json::from_slice(&fs::read(&report)?)?;
    let foreign = found["libraries"].as_array().into_iter().flatten();
    let foreign = foreign
        .filter(|l| l["serves"] == true && l["process"].is_u64())
        .count();
    sum.check(foreign > 0 && found["healthy"] == false && found["status"] == 0);

    for (line, status) in [("exit 7", 7), ("kill -TERM $$", 143), ("exec /none", 127)] {
        let ended = doctor().args(["sh", "-c", line]).run()?;
        let got = ended.status.and_then(|s| s.code());
        if got != Some(status) {
            println!("  doctor -- sh -c {line:?}: {}", ended.how());
        }
        sum.check(got == Some(status));
    }
    // Ctrl-C reaches the whole group; the command decides what becomes of it, and is reported on all the same.
    for (line, status) in [
        ("trap 'exit 3' INT; kill -INT 0; exit 4", 3),
        ("kill -INT 0; sleep 9", 130),
    ] {
        fs::remove_file(&report)?;
        let client = Client::new("setsid", &[]).arg("--wait").arg(&tool);
        let client = client.args(["doctor", "--json", "--output"]).arg(&report);
        let ended = client.args(["--", "sh", "-c", line]).run()?;
        let got = ended.status.and_then(|s| s.code());
        if got != Some(status) || !report.exists() {
            println!("  doctor -- sh -c {line:?}: {}", ended.how());
        }
        sum.check(got == Some(status) && report.exists());
    }
    let absent = doctor().arg("/no such program").run()?;
    sum.check(absent.status.and_then(|s| s.code()) == Some(127));
    // Nothing stays open in the command, and nothing is printed.
    let open = ["sh", "-c", "ls /proc/self/fd; sh -c 'ls /proc/self/fd'"];
    let (plain, seen) = (
        Client::new(open[0], &[]).args(&open[1..]).run()?,
        doctor().args(open).run()?,
    );
    sum.check((plain.stdout, plain.stderr) == (seen.stdout, seen.stderr));
    Ok(sum)
}

/// Compiles a program as conda's are: it needs `libraries` by the names that the environment has links for, and finds
/// them by an RPATH.
pub fn conda_program(
    work: &Scratch,
    exe: &Path,
    options: &[&str],
    libraries: &[&str],
    rpath: &str,
) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-o"])
        .arg(exe)
        .args(options)
        .arg(workspace().join("tests/packages/conda.c"))
        .arg("-Wl,--no-as-needed");
    for soname in libraries {
        // Only names: each stand-in has the SONAME of one link.
        let stub = work.path().join(format!("stub-{soname}"));
        let source = work.path().join("stub.c");
        fs::write(
            &source,
            "void dgesv_(void) {}\nvoid cblas_dgemm(void) {}\nvoid ddot_(void) {}\n",
        )?;
        let mut make = Command::new("cc");
        make.args(["-shared", "-fPIC", "-w", "-o"]).arg(&stub);
        quiet(make.arg(format!("-Wl,-soname,{soname}")).arg(&source))?;
        cc.arg(stub);
    }
    // As conda's compilers do.
    cc.arg(format!("-Wl,--disable-new-dtags,-rpath,{rpath}"));
    quiet(&mut cc).map(drop)
}

const LINKS: [&str; 4] = [
    "libblas.so.3",
    "libcblas.so.3",
    "liblapack.so.3",
    "liblapacke.so.3",
];

/// `install --conda` and back, with programs linked as conda's are.
fn conda(prefix: &Path, work: &Scratch) -> Result<Tally> {
    let env = work.path().join("env");
    let lib = env.join("lib");
    fs::create_dir_all(&lib)?;
    fs::create_dir_all(env.join("conda-meta"))?;
    let stock = debian::openblas()?;
    let real = fs::canonicalize(stock.join("libopenblas.so.0"))?;
    let name = real.file_name().context("a file")?;
    fs::copy(&real, lib.join(name))?;
    for link in ["libopenblas.so.0"].into_iter().chain(LINKS) {
        symlink(name, lib.join(link))?;
    }
    let compile = |exe: &str, options: &[&str], libraries: &[&str]| -> Result<PathBuf> {
        let exe = env.join(exe);
        conda_program(work, &exe, options, libraries, &lib.display().to_string())?;
        Ok(exe)
    };
    let all = compile(
        "all",
        &[],
        &["libcblas.so.3", "libblas.so.3", "liblapack.so.3"],
    )?;
    let lapack = compile("lapack", &["-DLAPACK_ONLY"], &["liblapack.so.3"])?;
    let programs = |what: &str, words: &[String]| -> Result<Tally> {
        let mut sum = Tally::default();
        for (name, exe) in [("all", &all), ("LAPACK alone", &lapack)] {
            for bind in ["", "1"] {
                let client = Client::new(exe, &[]).env("LD_BIND_NOW", bind).args(words);
                sum += succeeds(&format!("conda, {what}: {name}"), client)?;
            }
        }
        Ok(sum)
    };
    let links = || LINKS.map(|link| fs::read_link(lib.join(link)).ok());
    let before = links();
    let ours = prefix.join("lib").display().to_string();
    let theirs = name.to_string_lossy().into_owned();
    let tool = |command: &str| {
        Client::new(prefix.join("bin/gpu-offload"), &[])
            .env("XDG_STATE_HOME", work.path())
            .args([command, "--conda"])
            .arg(&env)
    };
    let mut sum = programs("before", &[theirs.clone(), format!("!{ours}")])?;
    sum += succeeds("install --conda", tool("install"))?;
    sum += programs(
        "installed",
        &[
            format!("{ours}/libblas.so.3"),
            format!("{ours}/liblapack.so.3"),
            format!("!{theirs}"),
        ],
    )?;
    let told = |what: &str, wanted: &str| -> Result<Tally> {
        let said = tool("doctor").run()?.stdout;
        let mut tally = Tally::default();
        tally.check(said.contains(wanted));
        if !said.contains(wanted) {
            println!("  doctor --conda, {what}: {said}");
        }
        Ok(tally)
    };
    sum += told(
        "installed",
        &format!("libcblas.so.3: gpu-offload, {ours}/libblas.so.3"),
    )?;
    // As conda does when it updates libblas.
    fs::remove_file(lib.join("libblas.so.3"))?;
    symlink(name, lib.join("libblas.so.3"))?;
    sum += told("after an update", "libblas.so.3 was linked anew by conda")?;
    sum += succeeds("install --conda again", tool("install"))?;
    sum += programs(
        "installed again",
        &[format!("{ours}/libblas.so.3"), format!("!{theirs}")],
    )?;
    sum += succeeds("uninstall --conda", tool("uninstall"))?;
    sum.check(links() == before);
    sum += programs("uninstalled", &[theirs, format!("!{ours}")])?;
    Ok(sum)
}
