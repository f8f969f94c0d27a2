//! The program from outside: what a command that it runs gets to see, and what trouble looks like.
//!
//! Each test has a prefix of its own: a copy of the program beside an empty libblas.so.3, which no
//! command here loads.

use std::path::PathBuf;
use std::process::{Command, Output};

struct Prefix(PathBuf);

impl Prefix {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gpu-offload-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        for folder in ["bin", "lib"] {
            std::fs::create_dir_all(dir.join(folder)).expect("temporary directory");
        }
        std::fs::copy(
            env!("CARGO_BIN_EXE_gpu-offload"),
            dir.join("bin/gpu-offload"),
        )
        .expect("copy");
        std::fs::write(dir.join("lib/libblas.so.3"), "").expect("writable");
        Self(dir.canonicalize().expect("real path"))
    }

    fn lib(&self) -> String {
        self.0.join("lib").display().to_string()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0.join("bin/gpu-offload"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.0);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().expect("started")
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exactly one line, with these in it.
fn one_line(stderr: &[u8], needles: &[&str]) {
    let text = text(stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
    for needle in needles {
        assert!(text.contains(needle), "{needle}: {text}");
    }
}

#[test]
fn exit_status_and_output_are_the_commands_own() {
    let p = Prefix::new("status");
    for status in [0, 1, 7, 255] {
        let out = p.run(&[
            "run",
            "sh",
            "-c",
            &format!("echo out; echo err >&2; exit {status}"),
        ]);
        assert_eq!(out.status.code(), Some(status));
        assert_eq!(
            (text(&out.stdout), text(&out.stderr)),
            ("out\n".to_owned(), "err\n".to_owned())
        );
    }
}

#[test]
fn a_signal_reaches_the_command_because_the_command_took_our_place() {
    use std::os::unix::process::ExitStatusExt;
    let p = Prefix::new("signal");
    let out = p.run(&["run", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(out.status.signal(), Some(15));
    let child = p
        .command()
        .args(["run", "sh", "-c", "echo $$"])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let child = child.expect("started");
    let id = child.id();
    assert_eq!(
        text(&child.wait_with_output().expect("ended").stdout).trim(),
        id.to_string()
    );
}

#[test]
fn the_libraries_come_before_all_others() {
    let p = Prefix::new("path");
    let show = [
        "run",
        "sh",
        "-c",
        "echo \"$LD_LIBRARY_PATH|$R_LD_LIBRARY_PATH\"",
    ];
    let out = p
        .command()
        .env("LD_LIBRARY_PATH", "/a:/b")
        .env("R_HOME", "/r")
        .args(show)
        .output();
    let lib = p.lib();
    assert_eq!(
        text(&out.expect("started").stdout),
        format!("{lib}:/a:/b|{lib}:/r/lib\n")
    );
    let out = p
        .command()
        .env("R_LD_LIBRARY_PATH", "/c")
        .args(show)
        .output();
    assert_eq!(
        text(&out.expect("started").stdout),
        format!("{lib}|{lib}:/c\n")
    );
}

#[test]
fn a_link_to_the_program_finds_its_real_prefix() {
    let p = Prefix::new("link");
    let link = p.0.join("elsewhere");
    std::os::unix::fs::symlink(p.0.join("bin/gpu-offload"), &link).expect("link");
    let out = Command::new(link)
        .args(["run", "sh", "-c", "echo $LD_LIBRARY_PATH"])
        .output();
    assert!(text(&out.expect("started").stdout).starts_with(&p.lib()));
}

#[test]
fn options_become_variables_and_the_rest_stays_the_commands() {
    let p = Prefix::new("options");
    let out = p.run(&[
        "run", "--force", "--level", "7", "--log", "decisions", "--log-file", "/x.jsonl",
        "--threshold", "0", "sh", "-c",
        "echo $GPU_OFFLOAD $GPU_OFFLOAD_LEVEL $GPU_OFFLOAD_LOG $GPU_OFFLOAD_LOG_FILE $GPU_OFFLOAD_THRESHOLD $1",
        "sh", "--level",
    ]);
    assert_eq!(text(&out.stdout), "force 7 decisions /x.jsonl 0 --level\n");
    let out = p.run(&["run", "sh", "-c", "echo ${GPU_OFFLOAD-unset}"]);
    assert_eq!(text(&out.stdout), "unset\n");
}

#[test]
fn wrong_options_are_refused_with_what_is_accepted() {
    let p = Prefix::new("wrong");
    for (args, accepted) in [
        (["run", "--level", "0", "true"], "1..=10"),
        (["run", "--level", "11", "true"], "1..=10"),
        (["run", "--log", "loud", "true"], "summary"),
        (["run", "--mode", "fast", "true"], "deterministic"),
        (["run", "--threshold", "-1", "true"], "2e9"),
    ] {
        let out = p.run(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(
            text(&out.stderr).contains(accepted),
            "{args:?}: {}",
            text(&out.stderr)
        );
    }
}

#[test]
fn a_command_that_cannot_run_gives_the_shells_status_and_one_line() {
    let p = Prefix::new("missing");
    let out = p.run(&["run", "no-such-program-anywhere"]);
    assert_eq!(out.status.code(), Some(127));
    one_line(&out.stderr, &["no-such-program-anywhere", "accepted"]);
    let out = p.run(&["run", "/dev/null"]);
    assert_eq!(out.status.code(), Some(126));
    one_line(&out.stderr, &["/dev/null", "accepted"]);
}

#[test]
fn a_broken_installation_is_said_in_one_line() {
    let p = Prefix::new("broken");
    let out = p.run(&["calibrate", "--quick"]);
    assert_eq!(out.status.code(), Some(1));
    // The inner half says why, the outer half what that means.
    let stderr = text(&out.stderr);
    assert!(
        stderr.contains("libblas.so.3") && stderr.contains("accepted"),
        "{stderr}"
    );
    assert!(!p.0.join(".local").exists(), "no profile");
    std::fs::remove_file(p.0.join("lib/libblas.so.3")).expect("there");
    for args in [&["run", "true"][..], &["calibrate", "--quick"]] {
        let out = p.run(args);
        assert_eq!(out.status.code(), Some(1));
        one_line(&out.stderr, &["libblas.so.3", "no such file", "accepted"]);
    }
}

#[test]
fn status_is_the_same_in_json_and_says_why_nothing_is_offloaded() {
    let p = Prefix::new("json");
    std::fs::create_dir_all(p.0.join(".config/gpu-offload")).expect("directory");
    std::fs::write(
        p.0.join(".config/gpu-offload/config.toml"),
        "mode = \"off\"\nlevel = 77\n",
    )
    .expect("writable");
    let out = p.run(&["status", "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(json["offloads"], false);
    assert_eq!(json["mode"], "off");
    assert!(
        json["cpu_library"]["missing"]
            .as_str()
            .expect("why")
            .contains("libblas.so.3")
    );
    assert!(
        json["complaints"][0]
            .as_str()
            .expect("a line")
            .contains("line 2")
    );
    let verdict = json["verdict"].as_str().expect("a verdict");
    assert!(verdict.contains("libgpu_offload.so.0"), "{verdict}");
    std::fs::write(p.0.join("lib/libgpu_offload.so.0"), "").expect("writable");
    let out = p.run(&["status"]);
    assert!(
        text(&out.stdout).contains("the mode is off"),
        "{}",
        text(&out.stdout)
    );
}

#[test]
fn output_that_cannot_be_written_is_one_line_and_an_error() {
    let prefix = Prefix::new("full");
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let output = prefix
        .command()
        .arg("status")
        .stdout(full)
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(1));
    one_line(&output.stderr, &["standard output"]);
}

/// The reader has seen enough: no word about it.
#[test]
fn output_that_nobody_reads_on_is_no_trouble() {
    let prefix = Prefix::new("unread");
    for command in [&["status"][..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut tool = prefix.command();
        let output = tool.args(command).stdout(writer).output();
        let output = output.expect("starts");
        assert_eq!(text(&output.stderr), "", "{command:?}");
        assert_eq!(output.status.code(), Some(141), "{command:?}");
    }
}

/// The loader would split such a path, and the program would run on other libraries without a word.
#[test]
fn a_folder_that_a_library_path_cannot_hold_is_refused_in_one_line() {
    for name in ["co:lon", "semi;colon"] {
        let p = Prefix::new(name);
        for args in [&["run", "true"][..], &["env"], &["verify", "true"]] {
            let out = p.run(args);
            assert_eq!(out.status.code(), Some(1), "{args:?}");
            one_line(&out.stderr, &[name, "library path", "accepted"]);
        }
    }
    let p = Prefix::new("spaces and 'quotes'");
    assert!(p.run(&["run", "true"]).status.success());
}

#[test]
fn status_says_how_the_environments_are_into_which_was_installed() {
    use std::os::unix::fs::symlink;
    let p = Prefix::new("environments");
    for file in ["liblapack.so.3", "liblapacke.so.3", "libgpu_offload.so.0"] {
        std::fs::write(p.0.join("lib").join(file), "").expect("writable");
    }
    let env = p.0.join("env");
    for folder in ["lib", "conda-meta"] {
        std::fs::create_dir_all(env.join(folder)).expect("folder");
    }
    std::fs::write(env.join("lib/openblas.so"), "").expect("writable");
    let blas = env.join("lib/libblas.so.3");
    symlink("openblas.so", &blas).expect("link");
    let line = |p: &Prefix| {
        let out = text(&p.run(&["status"]).stdout);
        let lines = out.lines().filter(|line| line.starts_with("conda"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("|")
    };
    let path = env.to_str().expect("UTF-8").to_owned();
    assert_eq!(line(&p), "");
    for _ in 0..2 {
        assert!(p.run(&["install", "--conda", &path]).status.success());
        assert!(
            line(&p).ends_with(&format!("{path}: intact")),
            "{}",
            line(&p)
        );
    }
    std::fs::remove_file(&blas).expect("removable");
    symlink("openblas.so", &blas).expect("link");
    assert!(line(&p).contains("linked anew by conda"), "{}", line(&p));
    assert!(p.run(&["uninstall", "--conda", &path]).status.success());
    assert_eq!(line(&p), "");
    assert!(p.run(&["install", "--conda", &path]).status.success());
    std::fs::remove_dir_all(&env).expect("removable");
    assert!(line(&p).ends_with(": gone"), "{}", line(&p));
}
