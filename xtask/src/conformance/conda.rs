//! The conda packages of `cargo xtask dist --conda`, solved and installed as conda does it, by py-rattler, with a
//! stand-in for conda-forge's own variant (Debian's OpenBLAS): nobody gets ours unasked, who asks gets all of it, and
//! going back leaves nothing.

use super::client_run::{Client, Ended, Scratch, scratch};
use super::report::{Findings, Row};
use super::tar::{conda_program, succeeds};
use super::{Route, Setting, Tally, debian, forced, simulated_cuda};
use crate::dist;
use crate::tools::workspace;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The release that the stand-in's recipe names.
const THEIRS: &str = "libopenblasp-r0.3.21.so";

/// How our variant is asked for.
const OURS: &str = "libblas=*=*gpuoffload";

/// The packages of a variant that a program needs.
const PARTS: [&str; 3] = ["libblas", "libcblas", "liblapack"];

/// An environment, and the channels that it is filled from.
struct Tried {
    python: PathBuf,
    channels: String,
    env: PathBuf,
    work: Scratch,
}

/// Runs the suite.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    let work = scratch("conda")?;
    let channels = [stand_in(&work)?, dist::conda_channel(&setting.prefix)?];
    let channels = channels.map(|channel| channel.display().to_string());
    let tried = Tried {
        python: dist::rattler()?,
        channels: channels.join(","),
        env: work.path().join("env"),
        work,
    };
    let mut sum = tried.chosen(setting)?;
    sum += tried.linked_anew(setting)?;
    findings.row(Row {
        suite: "conda's packages, beside a stand-in for conda-forge's".to_owned(),
        ours: sum.to_string(),
        stock: "-".to_owned(),
    });
    Ok(sum)
}

/// A channel with two builds of the variant `openblas`, and programs that need some variant.
fn stand_in(work: &Scratch) -> Result<PathBuf> {
    let (files, channel) = (work.path().join("files"), work.path().join("channel"));
    for folder in ["bin", "lib"] {
        fs::create_dir_all(files.join(folder))?;
    }
    let real = fs::canonicalize(debian::openblas()?.join("libopenblas.so.0"))?;
    fs::copy(&real, files.join("lib").join(THEIRS))?;
    symlink(THEIRS, files.join("lib/libopenblas.so.0"))?;
    for (name, options, libraries) in [
        (
            "all",
            &[][..],
            &["libcblas.so.3", "libblas.so.3", "liblapack.so.3"][..],
        ),
        ("lapack", &["-DLAPACK_ONLY"], &["liblapack.so.3"]),
    ] {
        let exe = files.join("bin").join(name);
        conda_program(work, &exe, options, libraries, "$ORIGIN/../lib")?;
    }
    let recipe = workspace().join("tests/packages/conda/recipe.yaml");
    for number in ["5", "6"] {
        let variables = [
            ("STAND_IN_FILES", files.as_path()),
            ("STAND_IN_NUMBER", number.as_ref()),
        ];
        dist::build_recipe(&recipe, &channel, &variables)?;
    }
    Ok(channel)
}

/// Name and build of each package that was installed.
type Installed = BTreeMap<String, String>;

impl Tried {
    /// Solves and installs what is asked for.
    fn conda(&self, specs: &[&str]) -> Result<Ended> {
        Client::new(&self.python, &[])
            .arg(workspace().join("tests/packages/conda/install.py"))
            .arg(&self.channels)
            .arg(self.work.path().join("packages"))
            .arg(&self.env)
            .args(specs)
            .run()
    }

    /// The same, which must succeed.
    fn install(&self, specs: &[&str]) -> Result<Installed> {
        let ended = self.conda(specs)?;
        ensure!(
            ended.success(),
            "installing {specs:?} ended with {}:\n{}",
            ended.how(),
            ended.tail()
        );
        let package = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, _, build] = words[..] else {
                return None;
            };
            Some((name.to_owned(), build.to_owned()))
        };
        ended
            .stdout
            .lines()
            .map(|line| package(line).with_context(|| format!("not a package: {line}")))
            .collect()
    }

    /// The environment's programs, which must have loaded, or with `!` not loaded, what is named.
    fn programs(&self, what: &str, words: &[String]) -> Result<Tally> {
        let mut sum = Tally::default();
        for name in ["all", "lapack"] {
            let client = Client::new(self.env.join("bin").join(name), &[]).args(words);
            sum += succeeds(&format!("{what}: {name}"), client)?;
        }
        Ok(sum)
    }

    fn ours(&self) -> String {
        self.env
            .join("lib/gpu-offload/libblas.so.3")
            .display()
            .to_string()
    }

    /// A command of a tool on the environment.
    fn tool(&self, tool: &Path, command: &str) -> Client {
        Client::new(tool, &[])
            .env("XDG_STATE_HOME", self.work.path())
            .args([command, "--conda"])
            .arg(&self.env)
    }

    /// Names of ours in the environment, at any depth.
    fn left(&self) -> Result<Vec<PathBuf>> {
        let (mut found, mut folders) = (Vec::new(), vec![self.env.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().replace('_', "-");
                if name.contains("gpu-offload") || name.contains("gpuoffload") {
                    found.push(entry.path());
                } else if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        Ok(found)
    }

    /// From theirs to ours and back.
    fn chosen(&self, setting: &Setting) -> Result<Tally> {
        let mut sum = Tally::default();
        let (ours, theirs) = (self.ours(), THEIRS.to_owned());
        let is = |what: &str, installed: &Installed, build: &str| {
            let right = PARTS
                .iter()
                .all(|part| installed.get(*part).is_some_and(|has| has == build));
            if !right {
                println!("  {what}: {installed:?}");
            }
            let mut tally = Tally::default();
            tally.check(right);
            tally
        };
        let unasked = self.install(&["program"])?;
        sum += is("unasked", &unasked, "6_openblas");
        sum.check(!unasked.contains_key("gpu-offload"));
        sum += self.programs("unasked", &[theirs.clone(), format!("!{ours}")])?;

        // Half of ours beside half of theirs is no variant.
        let mixed = self.conda(&["program", OURS, "liblapack=*=*openblas"])?;
        sum.check(!mixed.success());

        let asked = self.install(&["program", "liblapacke", OURS])?;
        sum += is("asked for", &asked, "0_gpuoffload");
        sum.check(asked.get("liblapacke").is_some_and(|b| b == "0_gpuoffload"));
        sum += self.programs("asked for", &[ours.clone(), format!("!{theirs}")])?;
        let lib = self.env.join("lib");
        sum.check(lib.join("liblapacke.so.3").exists() && !lib.join(THEIRS).exists());
        sum += self.tried(setting)?;

        // Another command of conda's in the environment keeps the choice.
        let later = self.install(&["program", "libgcc"])?;
        sum += is("later", &later, "0_gpuoffload");

        let back = self.install(&["program", "libblas=*=5_openblas"])?;
        sum += is("back", &back, "5_openblas");
        sum += self.programs("back", &[theirs, format!("!{ours}")])?;
        let left = self.left()?;
        if !left.is_empty() {
            println!("  back: {left:?} are left");
        }
        sum.check(left.is_empty());
        Ok(sum)
    }

    /// The tool in the environment, and heavy calls on the simulated GPU.
    fn tried(&self, setting: &Setting) -> Result<Tally> {
        let mut sum = Tally::default();
        let tool = self.env.join("bin/gpu-offload");
        let ours = self.ours();
        let doctor = self.tool(&tool, "doctor").run()?;
        let wanted = format!("libcblas.so.3: gpu-offload by its conda package, {ours}");
        let right = doctor.stdout.contains(&wanted) && !doctor.stdout.contains("install --conda");
        if !right {
            println!("  doctor --conda: {}", doctor.stdout);
        }
        sum.check(right);
        let install = self.tool(&tool, "install").run()?;
        sum.check(!install.success() && install.stderr.contains("nothing is to be installed"));
        let run = Client::new(&tool, &[]).arg("run");
        let run = run.arg(self.env.join("bin/all")).arg(&ours);
        sum += succeeds("run", run)?;
        let files = [
            "share/man/man1/gpu-offload-run.1",
            "share/gpu-offload/licences/LICENSE-MIT",
            "share/gpu-offload/config.toml",
        ];
        sum.check(files.iter().all(|file| self.env.join(file).is_file()));

        let log = self.work.path().join("conda.jsonl");
        let mut force = setting.clone();
        force.route = Route::Force;
        let client = Client::new(self.env.join("bin/all"), &[simulated_cuda()?]);
        let client = forced::logged(force.routed(client), &log).arg(&ours);
        sum += succeeds("forced", client)?;
        sum += forced::judge(&log, &["dgemm", "dgesv"])?;
        Ok(sum)
    }

    /// `install --conda` in an environment that conda then updates: doctor says so (case I4).
    fn linked_anew(&self, setting: &Setting) -> Result<Tally> {
        let mut sum = Tally::default();
        let tool = setting.prefix.join("bin/gpu-offload");
        let library = setting.lib().canonicalize()?.join("libblas.so.3");
        let library = library.display().to_string();
        sum += succeeds("install --conda", self.tool(&tool, "install"))?;
        sum += self.programs("installed", &[library.clone(), format!("!{THEIRS}")])?;
        self.install(&["program", "libblas=*=6_openblas"])?;
        sum += self.programs("updated", &[THEIRS.to_owned(), format!("!{library}")])?;
        let said = self.tool(&tool, "doctor").run()?;
        let anew = said
            .stdout
            .matches("was linked anew by conda since it was installed")
            .count();
        if anew != PARTS.len() {
            println!("  doctor --conda, updated: {}", said.stdout);
        }
        sum.check(anew == PARTS.len() && !said.success());
        sum += succeeds("install --conda again", self.tool(&tool, "install"))?;
        sum += self.programs("installed again", std::slice::from_ref(&library))?;
        // From the links to the packages: conda replaces the links, and only the record is left to take back.
        self.install(&["program", OURS])?;
        sum += self.programs("packages", &[self.ours(), format!("!{library}")])?;
        sum += succeeds("uninstall --conda", self.tool(&tool, "uninstall"))?;
        sum += self.programs("the record is gone", &[self.ours()])?;
        Ok(sum)
    }
}
