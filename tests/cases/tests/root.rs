//! Programs that run as somebody else or with more rights than their user. Only root can start them:
//! `cargo xtask` counts these tests as skipped for everybody else, by their names' `as_root_`.

use cases::{
    Program, compile, compile_with, is_root, link_arguments, ours, scratch, simulated_cuda,
};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A folder that everybody can enter, with the libraries under test; it is removed when dropped.
struct Open {
    path: PathBuf,
}

impl Open {
    fn new(name: &str) -> Self {
        assert!(is_root(), "this test needs root");
        let unique = format!("gpu-offload-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        fs::create_dir_all(&path).expect("create a folder");
        open(&path);
        for name in ["libblas.so.3", "liblapack.so.3", "libgpu_offload.so.0"] {
            fs::copy(ours().join(name), path.join(name)).expect("copy a library");
            open(&path.join(name));
        }
        Self { path }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn open(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("open it for everybody");
}

/// basic.c, compiled into the folder for everybody.
fn basic(dir: &Open) -> PathBuf {
    let exe = compile_with(&dir.path, "basic.c", &ours(), &[]);
    open(&exe);
    exe
}

/// The program run by that user, without a home.
fn run_by(user: u32, exe: &Path, dir: &Open) -> Program {
    let mut program = Program::new(exe, &dir.path).args(["8", "300"]);
    let command = program.command();
    command.uid(user).gid(user).current_dir("/");
    command.env_remove("HOME");
    program
}

/// The CPU result arrives for a user without a home, too.
#[test]
fn as_root_a_program_of_a_user_without_home_is_right() {
    let dir = Open::new("nobody");
    let program = run_by(NOBODY, &basic(&dir), &dir);
    program.run().expect_silent_success("basic.c as nobody");
}

/// A configuration or profile that its user may not read, and one that is another user's: one line, and the CPU
/// result.
#[test]
fn as_root_files_that_are_unreadable_or_foreign_are_refused_in_one_line() {
    let dir = Open::new("foreign");
    let exe = basic(&dir);
    let folder = dir.path.join("gpu-offload");
    fs::create_dir(&folder).expect("a folder of settings");
    open(&folder);
    let config = folder.join("config.toml");
    let profile = dir.path.join("profile.toml");
    // Readable only by its owner, who is root; and another user's, seen by root and by nobody.
    let some_user = 1;
    for file in [&config, &profile] {
        for (owner, mode, reader, reason) in [
            (0, 0o600, NOBODY, "cannot be read (Permission denied"),
            (some_user, 0o644, NOBODY, "belongs to user 1"),
            (some_user, 0o644, 0, "belongs to user 1"),
        ] {
            let text = if file == &config { "level = 5\n" } else { "" };
            fs::write(file, text).expect("write");
            chown(file, Some(owner), Some(owner)).expect("give it away");
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("chmod");
            let mut program = run_by(reader, &exe, &dir);
            let command = program.command();
            command.env("XDG_CONFIG_HOME", &dir.path);
            if file == &profile {
                command.env("GPU_OFFLOAD_PROFILE", &profile);
            }
            let got = program.run().expect_success(reason);
            assert_eq!(got.stderr.lines().count(), 1, "{}", got.stderr);
            for word in [&file.display().to_string(), reason, "accepted: ", "ignored"] {
                assert!(got.stderr.contains(word), "no {word:?} in {}", got.stderr);
            }
        }
        fs::remove_file(file).expect("remove");
    }
}

/// A service may have kept the HOME of somebody whose folder it may not enter, with settings for that one or without
/// any: nothing is said. A profile that it names itself is another matter.
#[test]
fn as_root_a_home_that_may_not_be_entered_is_none() {
    let dir = Open::new("closed-home");
    let exe = basic(&dir);
    let home = dir.path.join("home");
    let settings = home.join(".config/gpu-offload");
    fs::create_dir_all(&settings).expect("a folder of settings");
    let profile = home.join("profile.toml");
    let run = |named: bool| {
        let mut program = run_by(NOBODY, &exe, &dir);
        let command = program.command();
        command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
        if named {
            command.env("GPU_OFFLOAD_PROFILE", &profile);
        }
        program.run().expect_success("basic.c as nobody").stderr
    };
    for file in [settings.join("other.toml"), settings.join("config.toml")] {
        fs::write(file, "level = 99\n").expect("write");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("close it");
        assert_eq!(run(false), "");
        let said = run(true);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("profile.toml: cannot be read (Permission denied"),
            "{said}"
        );
        // The test sees: with an open folder the second file is read.
        open(&home);
        assert_eq!(
            run(false).contains("99"),
            settings.join("config.toml").exists()
        );
    }
}

/// A setuid program believes no variable and no file of ours: it does not even look for them, nor for the
/// engine or CUDA, prints nothing and is right. The same program without the setuid bit does all of it,
/// which shows that the test sees.
#[test]
fn as_root_a_setuid_program_believes_nothing_of_ours() {
    let dir = Open::new("setuid");
    // The loader ignores LD_LIBRARY_PATH in a setuid program.
    let run_path = format!("-Wl,-rpath,{}", dir.path.display());
    let link = link_arguments(&dir.path);
    let mut arguments: Vec<&str> = link.iter().map(String::as_str).collect();
    arguments.push(&run_path);
    let plain = compile(&dir.path, "secure.c", &arguments);
    open(&plain);
    let setuid = dir.path.join("setuid");
    fs::copy(&plain, &setuid).expect("copy the program");
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).expect("the setuid bit");
    // The simulated CUDA may lie where nobody but root can go.
    let cuda = dir.path.join("cuda");
    fs::create_dir(&cuda).expect("a folder for CUDA");
    open(&cuda);
    fs::copy(
        simulated_cuda().join("libcuda.so.1"),
        cuda.join("libcuda.so.1"),
    )
    .expect("copy CUDA");
    open(&cuda.join("libcuda.so.1"));
    for name in ["libcublas.so.13", "libcublasLt.so.13", "libcusolver.so.12"] {
        // One device under four names: links to one file.
        fs::hard_link(cuda.join("libcuda.so.1"), cuda.join(name)).expect("link CUDA");
    }
    let library_path = format!("{}:{}", cuda.display(), dir.path.display());
    let settings = dir.path.join("gpu-offload");
    fs::create_dir(&settings).expect("a folder of settings");
    fs::write(settings.join("config.toml"), "level = 9\n").expect("settings");
    for (exe, secure) in [(&plain, false), (&setuid, true)] {
        let calls = scratch!(&format!("setuid-{secure}")).join("calls");
        let writable = dir.path.join(format!("log-{secure}"));
        fs::create_dir(&writable).expect("a folder for the log");
        chown(&writable, Some(NOBODY), Some(NOBODY)).expect("give it away");
        let log = writable.join("log.jsonl");
        // strace started by root lets a setuid program have its rights.
        let got = Program::new("strace", &dir.path)
            .arg("-f")
            .arg("-qq")
            .arg("-u")
            .arg("nobody")
            .arg("-o")
            .arg(&calls)
            .arg(exe)
            .on_simulated_cuda(&log)
            .env("LD_LIBRARY_PATH", &library_path)
            .env("XDG_CONFIG_HOME", &dir.path)
            .env("HOME", &dir.path)
            .run()
            .expect_silent_success("secure.c under strace; `cargo xtask setup` brings it");
        let expected = if secure {
            format!("secure 1 user {NOBODY} effective 0\n")
        } else {
            format!("secure 0 user {NOBODY} effective {NOBODY}\n")
        };
        assert_eq!(got.stdout, expected);
        let calls = fs::read_to_string(&calls).expect("strace's log");
        let cuda = cuda.display().to_string();
        for ours in ["config.toml", "libgpu_offload.so.0", "log.jsonl", &cuda] {
            // The start of the program names its libraries' folder in its environment, not in a call.
            let named = calls
                .lines()
                .any(|line| line.contains("open") && line.contains(ours));
            assert_eq!(named, !secure, "{ours} is opened when secure is {secure}");
        }
        assert_eq!(log.exists(), !secure, "the log when secure is {secure}");
    }
}
