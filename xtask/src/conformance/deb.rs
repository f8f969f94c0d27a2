//! The Debian package in a Debian 12 root: installed, used, switched, upgraded, killed half-way, removed.
//!
//! The scenarios are shell scripts in `tests/packages`. Each runs in a file system of its own, laid over a root that
//! debootstrap makes once, so nothing of this machine is installed or switched.

use super::client_run::{Scratch, cache, scratch};
use super::report::{Findings, Row};
use super::{Setting, Tally};
use crate::tools::{has_program, quiet, step, workspace};
use crate::{dist, openblas};
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scripts, and what a system has before: the reference libraries alone, or Debian's OpenBLAS too.
const SCENARIOS: [(&str, &str); 7] = [
    ("life", "reference"),
    ("life", "openblas"),
    ("mixes", "openblas"),
    ("choices", "reference"),
    ("choices", "openblas"),
    ("kills", "reference"),
    ("kills", "openblas"),
];

/// Builds the package of the prefix and runs every scenario.
pub fn run(setting: &Setting, findings: &mut Findings) -> Result<Tally> {
    if let Some(why) = impossible() {
        println!("deb: skipped, {why}");
        return Ok(Tally {
            skipped: 1,
            ..Tally::default()
        });
    }
    let root = root()?;
    let shared = shared(setting)?;
    let mut sum = Tally::default();
    for (script, start) in SCENARIOS {
        let progress = step(&format!("Debian package: {script}, {start}"));
        let tally = scenario(&root, shared.path(), script, start)?;
        drop(progress);
        println!("  {script}, {start}: {tally}");
        findings.row(Row {
            suite: format!("Debian package, {script}, beginning with {start}"),
            ours: tally.to_string(),
            stock: "-".to_owned(),
        });
        sum += tally;
    }
    Ok(sum)
}

/// Why no root can be made here.
fn impossible() -> Option<&'static str> {
    let is_root = quiet(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root {
        return Some("it needs root");
    }
    if !has_program("debootstrap") || !has_program("dpkg-deb") {
        return Some("debootstrap or dpkg-deb is not installed");
    }
    let mut mount = in_a_namespace(
        "mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b /mnt/c /mnt/d && \
         mount -t overlay overlay -o lowerdir=/mnt/a,upperdir=/mnt/b,workdir=/mnt/c /mnt/d",
    );
    quiet(&mut mount)
        .is_err()
        .then_some("file systems cannot be mounted")
}

/// A shell script whose mounts end with it.
fn in_a_namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--fork", "--kill-child", "sh", "-ec", script]);
    // A script of the session's user is not what is tried.
    command.env_clear().env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    command
}

/// A Debian 12 with NumPy and R on the reference libraries, made once for each way to make it.
fn root() -> Result<PathBuf> {
    let prepare = workspace().join("tests/packages/prepare.sh");
    let text = fs::read(&prepare).with_context(|| format!("cannot read {}", prepare.display()))?;
    let key: String = Sha256::digest(&text)[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let root = cache()?.join(format!("debian12-{key}"));
    if root.is_dir() {
        return Ok(root);
    }
    let _progress = step("making a Debian 12 root with NumPy and R (some minutes)");
    let mirror = openblas::debian_mirror()?;
    let new = root.with_extension(format!("new-{}", std::process::id()));
    let made = (|| -> Result<()> {
        quiet(
            Command::new("debootstrap")
                .args(["--variant=minbase", "bookworm"])
                .arg(&new)
                .arg(&mirror),
        )?;
        fs::copy(&prepare, new.join("root/prepare.sh"))?;
        let mut chroot = in_a_namespace(
            "mount -t proc proc \"$0/proc\"; exec chroot \"$0\" sh /root/prepare.sh",
        );
        quiet(chroot.arg(&new))?;
        fs::rename(&new, &root)?;
        Ok(())
    })();
    if made.is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    made.map(|()| root)
        .context("cannot make a Debian 12 root; does `apt-get update` work?")
}

/// The folder that each scenario sees as /mnt.
fn shared(setting: &Setting) -> Result<Scratch> {
    let folder = scratch("deb")?;
    let at = |name: &str| folder.path().join(name);
    let package = dist::debian_package(&setting.prefix)?;
    fs::copy(&package, at("v1.deb"))?;
    // The same files as a newer version.
    let newer = at("newer");
    quiet(Command::new("dpkg-deb").arg("-R").arg(&package).arg(&newer))?;
    let control = newer.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let old = format!("Version: {}\n", env!("CARGO_PKG_VERSION"));
    fs::write(&control, text.replace(&old, "Version: 99.0\n"))?;
    let mut settings = fs::read_to_string(newer.join("etc/gpu-offload/config.toml"))?;
    settings.push_str("# a newer version says more\n");
    fs::write(newer.join("etc/gpu-offload/config.toml"), settings)?;
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]);
    quiet(build.arg(&newer).arg(at("v2.deb")))?;
    fs::remove_dir_all(&newer)?;

    super::tar::linked_with_openblas(&folder)?;
    let sources = workspace().join("tests/packages");
    fs::create_dir(at("deb"))?;
    for (script, _) in SCENARIOS.into_iter().chain([("lib", "")]) {
        let name = format!("{script}.sh");
        fs::copy(sources.join(&name), at("deb").join(&name))?;
    }
    Ok(folder)
}

/// Runs a script; a script that ends before its last line counts as failed.
fn scenario(root: &Path, shared: &Path, script: &str, start: &str) -> Result<Tally> {
    // The layer is in memory and ends with the namespace.
    let mut command = in_a_namespace(
        "mount -t tmpfs tmpfs \"$2\"
         mkdir \"$2/upper\" \"$2/work\" \"$2/root\"
         mount -t overlay overlay -o \"lowerdir=$0,upperdir=$2/upper,workdir=$2/work\" \"$2/root\"
         mount -t proc proc \"$2/root/proc\"
         mount --bind \"$1\" \"$2/root/mnt\"
         exec chroot \"$2/root\" sh -c '. /mnt/deb/$0.sh; echo finished' \"$3\" \"$4\"",
    );
    let layer = scratch("deb-layer")?;
    command
        .args([root, shared, layer.path()])
        .args([script, start]);
    let output = command.output().context("cannot start unshare")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut tally = Tally::default();
    for line in text.lines() {
        if line.starts_with("ok ") {
            tally.passed += 1;
        } else if line.starts_with("FAIL ") {
            println!("  {line}");
            tally.failed += 1;
        }
    }
    if !text.ends_with("finished\n") {
        let said = String::from_utf8_lossy(&output.stderr);
        println!("  {script}, {start} did not finish: {said}");
        tally.failed += 1;
    }
    Ok(tally)
}
