//! The swap in a small environment: an "OpenBLAS" of a few names, the ready-made library with the same entries,
//! and a program that needs the former as an extension module does. All are compiled here.

use super::step::{ROOM, Step};
use super::venv::{Environment, Ours, State};
use super::wheel_library;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "libfake_openblas64_-0123abcd.so";

/// An OpenBLAS that knows no dsymm_; each routine says 2.
const THEIRS: &str = r#"
char *x_openblas_get_config64_(void) { return "OpenBLAS 0.3.99  USE64BITINT DYNAMIC_ARCH"; }
int x_openblas_get_num_threads64_(void) { return 1; }
int x_dgemm_64_(void) { return 2; }
int x_cblas_dgemm64_(void) { return 2; }
int x_ddot_64_(void) { return 2; }
int x_data64_ = 2;
"#;

/// Entries in both widths; each of the wide ones says 1.
const READY: &str = r#"
int gpu_offload_wheel_ilp64_dgemm_(void) { return 1; }
int gpu_offload_wheel_ilp64_cblas_dgemm(void) { return 1; }
int gpu_offload_wheel_ilp64_dsymm_(void) { return 1; }
int gpu_offload_wheel_lp64_dgemm_(void) { return 3; }
__attribute__((section(".gpu_offload_fit"), used)) const char block[8192] = "gpu-offload wheel fit 1";
"#;

/// Prints what serves each name: 1 us, 2 the wheel's, 0 none.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int x_dgemm_64_(void), x_cblas_dgemm64_(void), x_ddot_64_(void);
extern int x_data64_;
int main(void) {
    const char *absent[] = {"x_dsymm_64_", "gpu_offload_wheel_lp64_dgemm_", "gpu_offload_wheel_ilp64_dsymm_"};
    printf("%d%d%d%d", x_dgemm_64_(), x_cblas_dgemm64_(), x_ddot_64_(), x_data64_);
    for (int i = 0; i < 3; i++) printf("%d", dlsym(RTLD_DEFAULT, absent[i]) != 0);
    return 0;
}
"#;

struct Layout(PathBuf);

impl Layout {
    fn new(test: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("gpu-offload-venv-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for folder in [
            "env/lib/python3.11/site-packages/a.libs",
            "env/lib/python3.11/site-packages/a-1.dist-info",
            "ours",
        ] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let this = Self(dir.canonicalize().unwrap());
        this.install_package(THEIRS);
        let stub = this.0.join("stub.so");
        cc(
            &stub,
            "",
            &[
                "-shared",
                "-fPIC",
                &format!("-Wl,-soname,{}", wheel_fit::ORIGINAL_ROOM),
            ],
        );
        let soname = format!("-Wl,-soname,{}", wheel_fit::SONAME_ROOM);
        let ready = [
            "-shared",
            "-fPIC",
            "-Wl,--no-as-needed",
            stub.to_str().unwrap(),
            "-Wl,--hash-style=sysv",
        ];
        let rpath = ["-Wl,--disable-new-dtags,-rpath,$ORIGIN", &soname];
        cc(&this.ours().ready, READY, &[&ready[..], &rpath].concat());
        fs::write(this.ours().engine, "the engine").unwrap();
        cc(
            &this.0.join("program"),
            PROGRAM,
            &[this.libs().join(NAME).to_str().unwrap(), "-ldl"],
        );
        this
    }

    /// What pip does, with a RECORD as wheels have it.
    fn install_package(&self, source: &str) {
        let soname = format!("-Wl,-soname,{NAME}");
        let new = self.0.join("new.so");
        cc(&new, source, &["-shared", "-fPIC", &soname]);
        fs::rename(&new, self.libs().join(NAME)).unwrap();
        let rows = format!(
            "a/__init__.py,,\na.libs/{NAME},sha256=from-the-wheel,123\na-1.dist-info/RECORD,,\n"
        );
        fs::write(self.record(), rows).unwrap();
    }

    fn ours(&self) -> Ours {
        Ours {
            ready: self.0.join("ours/gpu-offload-wheel.so"),
            engine: self.0.join("ours/libgpu_offload.so.0"),
        }
    }

    fn site(&self) -> PathBuf {
        self.0.join("env/lib/python3.11/site-packages")
    }

    fn libs(&self) -> PathBuf {
        self.site().join("a.libs")
    }

    fn record(&self) -> PathBuf {
        self.site().join("a-1.dist-info/RECORD")
    }

    fn kept(&self) -> PathBuf {
        self.libs().join(format!("orig-{NAME}"))
    }

    fn env(&self) -> Environment {
        Environment::new(&self.0.join("env")).unwrap()
    }

    fn run(&self, steps: &[Step]) {
        let locked = self.env().locked().unwrap();
        for step in steps {
            locked.run(step).unwrap();
        }
    }

    fn install(&self) -> usize {
        let steps = self.env().install(&self.ours()).unwrap();
        self.run(&steps);
        steps.len()
    }

    fn uninstall(&self) {
        let (steps, troubles) = self.env().uninstall().unwrap();
        assert!(troubles.is_empty(), "{troubles:?}");
        self.run(&steps);
    }

    /// Which library serves the program's names.
    fn served(&self) -> String {
        let mut program = Command::new(self.0.join("program"));
        let output = program
            .env("LD_LIBRARY_PATH", self.libs())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn states(&self) -> Vec<State> {
        let found = self.env().survey().unwrap();
        found.into_iter().map(|found| found.state).collect()
    }

    /// Every file of the environment.
    fn listing(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![self.0.join("env")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    files.insert(path, bytes);
                }
            }
        }
        files
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cc(to: &Path, source: &str, arguments: &[&str]) {
    let file = to.with_extension("c");
    fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(to).arg(&file).args(arguments);
    let output = cc.output().expect("cc is there");
    assert!(output.status.success(), "{output:?}");
    fs::remove_file(file).unwrap();
}

const OURS: &str = "1122000";
const OWN: &str = "2222000";

#[test]
fn routed_names_are_ours_and_all_others_the_wheels() {
    let layout = Layout::new("round");
    assert_eq!(layout.served(), OWN);
    let before = layout.listing();
    layout.install();
    assert_eq!(layout.served(), OURS);
    let engine = layout.ours().engine;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    assert_eq!(layout.states(), [State::Swapped { engine, version }]);
    let record = fs::read_to_string(layout.record()).unwrap();
    assert!(
        record.contains(&format!("\na.libs/orig-{NAME},sha256=from-the-wheel,123\n")),
        "{record}"
    );
    assert_eq!(layout.install(), 0);
    layout.uninstall();
    assert_eq!(layout.listing(), before);
    let error = layout.env().uninstall().err().unwrap().to_string();
    assert!(error.contains("nothing to uninstall"), "{error}");
}

#[test]
fn a_command_killed_between_any_two_steps_leaves_a_library_and_can_be_given_again() {
    let layout = Layout::new("killed");
    let before = layout.listing();
    let killed = |steps: &[Step], finish: &dyn Fn()| {
        layout.run(steps);
        fs::create_dir_all(layout.site().join(ROOM)).unwrap();
        fs::write(layout.site().join(ROOM).join("new"), "half of a libr").unwrap();
        assert!([OURS, OWN].contains(&layout.served().as_str()));
        finish();
        assert!(!layout.site().join(ROOM).exists());
    };
    let steps = layout.env().install(&layout.ours()).unwrap();
    assert_eq!(steps.len(), 4);
    for k in 1..=steps.len() {
        killed(&steps[..k], &|| layout.uninstall());
        assert_eq!(
            layout.listing(),
            before,
            "install killed after step {k}, uninstall"
        );
        killed(&steps[..k], &|| assert!(layout.install() < 6));
        assert_eq!(layout.served(), OURS);
        let swapped = layout.listing();
        let (back, _) = layout.env().uninstall().unwrap();
        for k in 1..=back.len() {
            killed(&back[..k], &|| assert!(layout.install() < 6));
            assert_eq!(
                layout.listing(),
                swapped,
                "uninstall killed after step {k}, install"
            );
        }
        for k in 1..back.len() {
            layout.install();
            killed(&back[..k], &|| layout.uninstall());
            assert_eq!(
                layout.listing(),
                before,
                "uninstall killed after step {k}, given again"
            );
        }
        layout.install();
        layout.uninstall();
    }
}

#[test]
fn a_package_that_pip_has_replaced_is_noticed_and_its_original_cleaned_away() {
    let layout = Layout::new("replaced");
    layout.install();
    // As pip without our row in RECORD would: another build under the same name.
    layout.install_package(&THEIRS.replace("0.3.99", "0.3.100"));
    let own = |leftover| State::Own {
        what: "OpenBLAS 0.3.100, 64-bit integers".to_owned(),
        leftover,
    };
    assert_eq!(layout.states(), [own(true)]);
    let env = layout.env();
    let gone = env.replaced_since(&env.survey().unwrap()).unwrap();
    assert_eq!(
        gone,
        [Path::new("lib/python3.11/site-packages/a.libs").join(NAME)]
    );
    let new = fs::read(layout.libs().join(NAME)).unwrap();
    layout.install();
    assert_eq!(
        (layout.served().as_str(), fs::read(layout.kept()).unwrap()),
        (OURS, new)
    );
    layout.uninstall();
    // The package is gone, the original is not: only that is removed.
    layout.install();
    fs::remove_file(layout.libs().join(NAME)).unwrap();
    fs::write(layout.record(), "a/__init__.py,,\n").unwrap();
    assert_eq!(layout.states(), [State::Orphan]);
    layout.uninstall();
    assert!(!layout.kept().exists() && !layout.libs().join(NAME).exists());
}

#[test]
fn what_is_not_recognised_stays_as_it_is() {
    let layout = Layout::new("refused");
    let refused = |says: &str| {
        let before = layout.listing();
        let error = format!("{:#}", layout.env().install(&layout.ours()).err().unwrap());
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
        assert_eq!(layout.listing(), before);
    };
    // Names that end as if integers had 8 bytes, and a configuration that says 4.
    layout.install_package(&THEIRS.replace("USE64BITINT ", ""));
    refused("has no USE64BITINT");
    layout.install_package(&THEIRS.replace("x_dgemm_64_", "x_sgemm_64_"));
    refused("no wheel here brings an OpenBLAS");
    layout.install_package(THEIRS);
    fs::write(layout.record(), "a/__init__.py,,\n").unwrap();
    refused("no RECORD");
    layout.install_package(THEIRS);
    layout.install();
    fs::remove_file(layout.kept()).unwrap();
    refused("install its Python package again");
    let (steps, troubles) = layout.env().uninstall().unwrap();
    assert_eq!((steps.len(), troubles.len()), (0, 1));
    let error = Environment::new(&layout.0).err().unwrap().to_string();
    assert!(error.contains("not a Python environment"), "{error}");
}

#[test]
fn a_library_that_is_not_the_ready_made_one_is_not_fitted() {
    let layout = Layout::new("ready");
    let theirs = fs::read(layout.libs().join(NAME)).unwrap();
    let wheel = wheel_library::OpenBlas::recognise(&theirs)
        .unwrap()
        .unwrap();
    let fit = wheel_fit::Fit {
        original: "orig-x.so",
        original_sha256: "00",
        engine: "/e",
        prefix: wheel.prefix,
        suffix: wheel.suffix,
        version: "0",
    };
    let ready = fs::read(layout.ours().ready).unwrap();
    let fitted = wheel_library::fit(&ready, &wheel, &fit).unwrap();
    assert_eq!(fitted.routines, 2);
    assert_eq!(wheel_library::fit_of(&fitted.bytes), Some(fit));
    assert_eq!(wheel_library::fit_of(&ready), None);
    for other in [&theirs, &fitted.bytes, &b"\x7fELF".to_vec()] {
        assert!(wheel_library::fit(other, &wheel, &fit).is_err());
    }
}
