//! Files, variables and libraries that are not what they should be: each gives one line that says what is wrong,
//! where, and what is accepted instead, and the right result from the CPU (issue "Foundation", bad input). A
//! GPU that fails in every other way is in the tests of `engine` and `gpu-backend`.

use cases::{Ended, Program, compile_with, ours, scratch, simulated_cuda};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two products, the program that makes them and a folder without anything of this machine's user.
struct Place {
    dir: PathBuf,
    exe: PathBuf,
}

impl Place {
    fn new(dir: PathBuf) -> Self {
        let exe = compile_with(&dir, "basic.c", &ours(), &["-lm"]);
        Self { dir, exe }
    }

    fn run(&self, libraries: &Path, variables: &[(&str, &str)]) -> Ended {
        let mut program = Program::new(&self.exe, libraries).args(["8", "700"]);
        program
            .command()
            .env("HOME", &self.dir)
            .env_remove("XDG_CONFIG_HOME")
            // Every call asks for the engine, which reads its settings at the first one; without this the larger
            // product does.
            .env("GPU_OFFLOAD_THRESHOLD", "0")
            .envs(variables.iter().copied());
        program.run()
    }

    /// The line of a run; it must hold all of `words`.
    #[track_caller]
    fn one_line(&self, libraries: &Path, variables: &[(&str, &str)], words: &[&str]) {
        let ended = self
            .run(libraries, variables)
            .expect_success(&format!("{variables:?}"));
        let lines: Vec<&str> = ended.stderr.lines().collect();
        let [line] = lines[..] else {
            panic!("{variables:?} gives no single line: {lines:#?}");
        };
        assert!(line.starts_with("gpu-offload: "), "{line}");
        for word in words {
            assert!(line.contains(word), "{variables:?}: no {word:?} in: {line}");
        }
    }
}

#[test]
fn a_variable_that_is_not_understood() {
    let place = Place::new(scratch!("bad-variables"));
    for (name, value, accepted) in [
        (
            "GPU_OFFLOAD",
            "sometimes",
            "auto, off, force, deterministic or verify",
        ),
        ("GPU_OFFLOAD_LEVEL", "11", "from 1"),
        ("GPU_OFFLOAD_THRESHOLD", "-4", "0 or more"),
        (
            "GPU_OFFLOAD_LOG",
            "loud",
            "off, summary, decisions or debug",
        ),
        (
            "GPU_OFFLOAD_LOG_FILE",
            "/nowhere/log",
            "a writable directory",
        ),
        ("GPU_OFFLOAD_MEMORY_LIMIT", "much", "such as 8G"),
        ("GPU_OFFLOAD_LEARN", "perhaps", "on or off"),
        ("GPU_OFFLOAD_DEVICES", "first", "separated by commas"),
        (
            "GPU_OFFLOAD_PROFILE",
            "/nowhere.toml",
            "gpu-offload calibrate",
        ),
    ] {
        place.one_line(&ours(), &[(name, value)], &[value, "accepted: ", accepted]);
    }
}

/// What decides whether a call is heavy at all is reported by a program without heavy calls, too.
#[test]
fn a_variable_that_is_not_understood_by_a_program_of_small_calls() {
    let place = Place::new(scratch!("bad-variables-small"));
    let run = |variables: &[(&str, &str)]| {
        let mut program = Program::new(&place.exe, &ours()).args(["8", "16"]);
        program
            .command()
            .env("HOME", &place.dir)
            .envs(variables.iter().copied());
        let what = format!("{variables:?}");
        program.run().expect_success(&what).stderr
    };
    for (name, value, accepted) in [
        (
            "GPU_OFFLOAD",
            "sometimes",
            "auto, off, force, deterministic or verify",
        ),
        ("GPU_OFFLOAD_THRESHOLD", "-4", "0 or more"),
        ("GPU_OFFLOAD_THRESHOLD", "many", "0 or more"),
    ] {
        let said = run(&[(name, value)]);
        assert_eq!(said.lines().count(), 1, "{name}={value}: {said}");
        for word in ["gpu-offload: ", name, value, "accepted: ", accepted] {
            assert!(said.contains(word), "{name}={value}: no {word:?} in {said}");
        }
    }
    for understood in [
        &[][..],
        &[
            ("GPU_OFFLOAD", " force "),
            ("GPU_OFFLOAD_THRESHOLD", "2e9 "),
        ],
        &[("GPU_OFFLOAD", ""), ("GPU_OFFLOAD_THRESHOLD", "")],
        &[("GPU_OFFLOAD", "off"), ("GPU_OFFLOAD_THRESHOLD", "-4")],
    ] {
        assert_eq!(run(understood), "", "{understood:?}");
    }
}

#[test]
fn a_configuration_that_cannot_be_used() {
    let place = Place::new(scratch!("bad-config"));
    let folder = place.dir.join(".config/gpu-offload");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("config.toml");
    let name = file.to_str().expect("UTF-8").to_owned();
    for (text, words) in [
        ("level = [", &["line 1", "accepted: TOML"][..]),
        (
            "level = 5\ncolour = \"red\"\n",
            &["line 2", "colour", "accepted: mode, level"],
        ),
        ("\n\nlevel = 99\n", &["line 3", "99", "from 1"]),
    ] {
        fs::write(&file, text).expect("write");
        place.one_line(&ours(), &[], &[words, &[&name]].concat());
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).expect("write");
    place.one_line(&ours(), &[], &[&name, "UTF-8", "accepted: "]);
    fs::write(&file, "level = 5\n").expect("write");
    assert_eq!(
        place.run(&ours(), &[]).expect_success("a good file").stderr,
        ""
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("chmod");
    place.one_line(
        &ours(),
        &[],
        &[&name, "may be written by others", "accepted: "],
    );
    fs::remove_file(&file).expect("remove");
    fs::create_dir(&file).expect("a folder in the file's place");
    place.one_line(&ours(), &[], &[&name, "not a file", "accepted: "]);
}

#[test]
fn a_profile_that_cannot_be_used() {
    let place = Place::new(scratch!("bad-profile"));
    let file = place.dir.join("profile.toml");
    let name = file.to_str().expect("UTF-8").to_owned();
    for text in [&b"version = 1 x"[..], b"answer = 42\n", &[0xff, 0x00, 0x80]] {
        fs::write(&file, text).expect("write");
        place.one_line(
            &ours(),
            &[("GPU_OFFLOAD_PROFILE", &name)],
            &[&name, "accepted: ", "ignored"],
        );
    }
}

#[test]
fn an_engine_that_cannot_be_used() {
    let place = Place::new(scratch!("bad-engine"));
    let lib = place.dir.join("lib");
    fs::create_dir(&lib).expect("a folder");
    for library in ["libblas.so.3", "liblapack.so.3"] {
        // A hard copy: the engine is sought beside the real file.
        fs::copy(ours().join(library), lib.join(library)).expect("copy");
    }
    let engine = lib.join("libgpu_offload.so.0");
    let name = engine.to_str().expect("UTF-8").to_owned();
    let cpu = "every call runs on the CPU";
    place.one_line(&lib, &[], &[&name, "No such file", cpu]);
    fs::write(&engine, "no library").expect("write");
    place.one_line(&lib, &[], &[&name, cpu]);
    let other = |source: &str| {
        let made = Command::new("gcc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&engine)
            .args(["-x", "c", "-"])
            .stdin({
                let file = place.dir.join("engine.c");
                fs::write(&file, source).expect("write");
                fs::File::open(file).expect("open")
            })
            .status()
            .expect("gcc starts");
        assert!(made.success());
    };
    other("int something_else;");
    place.one_line(&lib, &[], &[&name, "not an engine of ABI version", cpu]);
    // An entry that knows no ABI of ours.
    other("void *gpu_offload_engine_v1(void) { return 0; }");
    place.one_line(&lib, &[], &[&name, cpu]);
    // Tables of another version and of another size: nothing behind their first two words may be believed.
    let (version, bytes) = (
        engine_abi::ABI_VERSION,
        size_of::<engine_abi::EngineTable>(),
    );
    for (version, bytes) in [(version + 1, bytes), (version, bytes - 8), (0, 0)] {
        other(&format!(
            "unsigned table[99] = {{ {version}, {bytes} }}; void *gpu_offload_engine_v1(void) {{ return table; }}"
        ));
        place.one_line(&lib, &[], &[&name, "refuses ABI version", cpu]);
    }
}

/// `status` gives the reason in words; the exit status says that nothing is offloaded.
#[test]
fn status_says_why_the_gpu_is_not_used() {
    let dir = scratch!("status");
    let driver = dir.join("driver");
    fs::create_dir(&driver).expect("a folder");
    let cuda = driver.join("libcuda.so.1");
    let status = |variables: &[(&str, &str)]| {
        let tool = cases::prefix().join("bin/gpu-offload");
        let mut program = Program::new(tool, &ours()).arg("status");
        program
            .command()
            .env("HOME", &dir)
            .envs(variables.iter().copied());
        let ended = program.run();
        let code = ended.status.and_then(|status| status.code());
        assert_eq!(ended.stderr, "", "{variables:?}");
        (code, ended.stdout)
    };
    let unused = |variables: &[(&str, &str)], reason: &str| {
        let (code, text) = status(variables);
        let last = text.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("result        every call runs on the CPU: ") && last.contains(reason),
            "{variables:?}: {text}"
        );
        assert_eq!(code, Some(1), "{variables:?}");
    };
    let sim = simulated_cuda().display().to_string();
    let broken = driver.display().to_string();
    fs::write(&cuda, "no library").expect("write");
    for (variables, reason) in [
        (&[("LD_LIBRARY_PATH", &*broken)][..], "libcuda.so.1"),
        (
            &[("LD_LIBRARY_PATH", &sim), ("SIM_CUDA_DEVICES", "0")],
            "no GPU",
        ),
        (
            &[
                ("LD_LIBRARY_PATH", &sim),
                ("SIM_CUDA_FAULT", "cuInit:1:unknown"),
            ],
            "cuInit",
        ),
        (
            &[("LD_LIBRARY_PATH", &sim), ("GPU_OFFLOAD", "off")],
            "the mode is off",
        ),
    ] {
        unused(variables, reason);
    }
    let (code, text) = status(&[("LD_LIBRARY_PATH", &sim), ("GPU_OFFLOAD", "force")]);
    assert!(text.contains("the mode is force"), "{text}");
    assert_eq!(code, Some(0));
    // No driver at all, where this machine has none.
    if !Path::new("/dev/nvidiactl").exists() {
        unused(&[("LD_LIBRARY_PATH", "")], "libcuda.so.1");
    }
}

#[test]
fn a_cuda_that_cannot_be_used() {
    let place = Place::new(scratch!("bad-cuda"));
    let cpu = "every call runs on the CPU";
    let force = ("GPU_OFFLOAD", "force");
    let with_sim = format!("{}:{}", simulated_cuda().display(), ours().display());
    let sim = ("LD_LIBRARY_PATH", with_sim.as_str());
    for (variable, words) in [
        (
            ("SIM_CUDA_DRIVER_VERSION", "11040"),
            &["CUDA 11.4", "525", cpu][..],
        ),
        (
            ("SIM_CUDA_DRIVER_VERSION", "12040"),
            &[
                "the NVIDIA driver",
                "CUDA 12.4, too old for",
                "libcublas.so.13",
                "580",
                cpu,
            ],
        ),
        (("SIM_CUDA_DEVICES", "0"), &[cpu]),
        (("SIM_CUDA_FAULT", "cuInit:1:unknown"), &["cuInit", cpu]),
        (
            ("SIM_CUDA_FAULT", "cublasCreate_v2:1:oom"),
            &["cublasCreate", cpu],
        ),
    ] {
        place.one_line(&ours(), &[force, sim, variable], words);
    }
    // The driver alone, and a driver that is something else.
    let lib = place.dir.join("driver");
    fs::create_dir(&lib).expect("a folder");
    let driver = lib.join("libcuda.so.1");
    let path = format!("{}:{}", lib.display(), ours().display());
    let there = ("LD_LIBRARY_PATH", path.as_str());
    fs::write(&driver, "no library").expect("write");
    place.one_line(&ours(), &[force, there], &["libcuda.so.1", cpu]);
    fs::remove_file(&driver).expect("remove");
    symlink(ours().join("libblas.so.3"), &driver).expect("link");
    place.one_line(&ours(), &[force, there], &["cuDriverGetVersion", cpu]);
}
