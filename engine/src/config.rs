//! Settings: two files, then environment variables. A value that is not understood is reported with
//! its place and what is accepted, and the default stands.
//!
//! Every setting is one row of [`KEYS`], so files, variables, messages and documentation agree. Must
//! not decide anything about calls.

use crate::files::{ReadError, read_trusted};
use cost_model::Level;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How calls are routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Where they are predicted to finish sooner.
    #[default]
    Auto,
    /// Always the CPU.
    Off,
    /// The GPU, whatever the prediction says.
    Force,
    /// As auto, but a function of the call alone: start-up is waited for, the queue is ignored.
    Deterministic,
    /// Both sides; the program has the CPU's result, and the log says how far either was from right.
    Verify,
}

impl Mode {
    /// The value of `GPU_OFFLOAD` that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Off => "off",
            Mode::Force => "force",
            Mode::Deterministic => "deterministic",
            Mode::Verify => "verify",
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    #[default]
    Off,
    /// A table when the process ends.
    Summary,
    /// That, and a line for each call.
    Decisions,
    /// That, and what the engine does besides.
    Debug,
}

impl LogLevel {
    /// The value of `GPU_OFFLOAD_LOG` that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Summary => "summary",
            LogLevel::Decisions => "decisions",
            LogLevel::Debug => "debug",
        }
    }
}

/// What the user wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// How calls are routed.
    pub mode: Mode,
    /// How readily calls go to the GPU.
    pub level: Level,
    /// Calls with at most this many floating-point operations never reach the engine.
    pub threshold_flops: Option<f64>,
    /// Machine profile to use instead of the one in the usual places.
    pub profile: Option<PathBuf>,
    /// How much is logged; `None` means summary where a log file is named, else nothing.
    pub log: Option<LogLevel>,
    /// Where the log goes instead of standard error; JSON lines if it ends in `.jsonl`.
    pub log_file: Option<PathBuf>,
    /// Learning from finished calls, in mode auto; `None` means on.
    pub learn: Option<bool>,
    /// Devices that may be used, by number; the first is used.
    pub devices: Vec<u32>,
    /// Device memory that is used at most.
    pub memory_limit_bytes: Option<u64>,
    /// Another CPU library than the built-in one.
    pub cpu_library: Option<PathBuf>,
    /// Directories that are searched first for the CUDA libraries.
    pub library_dirs: Vec<PathBuf>,
}

impl Settings {
    /// How much is logged.
    pub fn log_level(&self) -> LogLevel {
        self.log.unwrap_or(if self.log_file.is_some() {
            LogLevel::Summary
        } else {
            LogLevel::Off
        })
    }

    /// Whether calls are learnt from: decisions of the other modes are functions of the call alone.
    pub fn learns(&self) -> bool {
        self.mode == Mode::Auto && self.learn != Some(false)
    }

    /// The device that is used.
    pub fn device(&self) -> u32 {
        self.devices.first().copied().unwrap_or(0)
    }
}

/// One setting.
pub struct Key {
    /// Its name in a configuration file.
    pub file: &'static str,
    /// Its environment variable; empty where there is none.
    pub variable: &'static str,
    /// What is accepted.
    pub accepted: &'static str,
    set: fn(&mut Settings, &str) -> Option<()>,
}

/// Every setting.
pub const KEYS: &[Key] = &[
    Key {
        file: "mode",
        variable: "GPU_OFFLOAD",
        accepted: "auto, off, force, deterministic or verify",
        set: |s, v| {
            s.mode = [
                Mode::Auto,
                Mode::Off,
                Mode::Force,
                Mode::Deterministic,
                Mode::Verify,
            ]
            .into_iter()
            .find(|m| m.name() == v)?;
            Some(())
        },
    },
    Key {
        file: "level",
        variable: "GPU_OFFLOAD_LEVEL",
        accepted: "a whole number from 1 (only clear wins) to 10 (also slight losses)",
        set: |s, v| {
            s.level = v.parse().ok()?;
            Some(())
        },
    },
    Key {
        file: "threshold_flops",
        variable: "GPU_OFFLOAD_THRESHOLD",
        accepted: "a number of floating-point operations, 0 or more, such as 2e9",
        set: |s, v| {
            let flops: f64 = v.parse().ok()?;
            (flops >= 0.0 && flops.is_finite()).then(|| s.threshold_flops = Some(flops))
        },
    },
    Key {
        file: "profile",
        variable: "GPU_OFFLOAD_PROFILE",
        accepted: "the path of a profile written by `gpu-offload calibrate`",
        set: |s, v| path(v).map(|p| s.profile = Some(p)),
    },
    Key {
        file: "log",
        variable: "GPU_OFFLOAD_LOG",
        accepted: "off, summary, decisions or debug",
        set: |s, v| {
            let all = [
                LogLevel::Off,
                LogLevel::Summary,
                LogLevel::Decisions,
                LogLevel::Debug,
            ];
            s.log = Some(all.into_iter().find(|l| l.name() == v)?);
            Some(())
        },
    },
    Key {
        file: "log_file",
        variable: "GPU_OFFLOAD_LOG_FILE",
        accepted: "the path of a file to append to; JSON lines if it ends in .jsonl",
        set: |s, v| path(v).map(|p| s.log_file = Some(p)),
    },
    Key {
        file: "learn",
        variable: "GPU_OFFLOAD_LEARN",
        accepted: "on or off",
        set: |s, v| {
            s.learn = Some(match v {
                "on" | "true" => true,
                "off" | "false" => false,
                _ => return None,
            });
            Some(())
        },
    },
    Key {
        file: "devices",
        variable: "GPU_OFFLOAD_DEVICES",
        accepted: "device numbers separated by commas, such as 0 or 1,0",
        set: |s, v| {
            s.devices = v
                .split(',')
                .map(|d| d.trim().parse().ok())
                .collect::<Option<_>>()?;
            Some(())
        },
    },
    Key {
        file: "memory_limit",
        variable: "GPU_OFFLOAD_MEMORY_LIMIT",
        accepted: "a number of bytes, or one with K, M, G or T (powers of 1024), such as 8G",
        set: |s, v| {
            s.memory_limit_bytes = Some(bytes(v)?);
            Some(())
        },
    },
    Key {
        file: "cpu_library",
        variable: "GPU_OFFLOAD_CPU_LIBRARY",
        accepted: "the path of a BLAS library",
        set: |s, v| path(v).map(|p| s.cpu_library = Some(p)),
    },
    Key {
        file: "library_dirs",
        variable: "",
        accepted: "directories separated by colons",
        set: |s, v| {
            s.library_dirs = v.split(':').filter_map(path).collect();
            Some(())
        },
    },
];

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// `8000`, `8G`, `8GiB`, `8 GB` (all powers of 1024).
fn bytes(text: &str) -> Option<u64> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The value of a variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The user's directory for `kind` ("CONFIG", "DATA", "STATE"), by the XDG rules; `None` without a home.
pub(crate) fn user_dir(env: Environment<'_>, kind: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |v: OsString| Some(PathBuf::from(v)).filter(|p| p.is_absolute());
    env(&format!("XDG_{kind}_HOME"))
        .and_then(absolute)
        .or_else(|| Some(env("HOME").and_then(absolute)?.join(below_home)))
        .map(|dir| dir.join("gpu-offload"))
}

/// The system's and the user's directory.
const SYSTEM_DIR: &str = "/etc/gpu-offload";

/// The configuration files in the order in which they are read.
pub fn config_files(env: Environment<'_>) -> Vec<PathBuf> {
    core::iter::once(PathBuf::from(SYSTEM_DIR))
        .chain(user_dir(env, "CONFIG", ".config"))
        .map(|dir| dir.join("config.toml"))
        .collect()
}

/// Where the user's own profile lies, and where `calibrate` writes it; `None` without a home.
pub fn user_profile_file(env: Environment<'_>) -> Option<PathBuf> {
    user_dir(env, "DATA", ".local/share").map(|dir| dir.join("profile.toml"))
}

/// Where the profile for all users lies.
pub fn system_profile_file() -> PathBuf {
    Path::new(SYSTEM_DIR).join("profile.toml")
}

/// The profiles that are looked for, the first one that is there is used.
pub fn profile_files(env: Environment<'_>, settings: &Settings) -> Vec<PathBuf> {
    if let Some(path) = &settings.profile {
        return vec![path.clone()];
    }
    user_profile_file(env)
        .into_iter()
        .chain([system_profile_file()])
        .collect()
}

/// Settings from files and variables, with one line for each thing that was not understood.
pub fn load(env: Environment<'_>, files: &[PathBuf]) -> (Settings, Vec<String>) {
    let mut settings = Settings::default();
    let mut complaints = Vec::new();
    for file in files {
        match read_trusted(file) {
            Ok(text) => apply_file(&mut settings, file, &text, &mut complaints),
            Err(ReadError::Absent | ReadError::OutOfReach(_)) => {}
            Err(ReadError::Refused(line)) => complaints.push(format!("{line}; it is ignored")),
        }
    }
    for key in KEYS.iter().filter(|k| !k.variable.is_empty()) {
        let Some(value) = env(key.variable) else {
            continue;
        };
        // An empty variable is as good as none: `GPU_OFFLOAD_LOG= cmd` is how shells unset.
        let text = value.to_string_lossy();
        let text = text.trim();
        if !text.is_empty() && (key.set)(&mut settings, text).is_none() {
            complaints.push(format!(
                "environment variable {}: value {text:?} is ignored; accepted: {}",
                key.variable, key.accepted
            ));
        }
    }
    if settings.cpu_library.is_some() {
        complaints.push(
            "cpu_library / GPU_OFFLOAD_CPU_LIBRARY is ignored: this version always uses the built-in \
             OpenBLAS; accepted: leave it unset"
                .to_owned(),
        );
    }
    (settings, complaints)
}

fn apply_file(settings: &mut Settings, file: &Path, text: &str, complaints: &mut Vec<String>) {
    let shown = file.display();
    let line_of = |offset: usize| {
        text.as_bytes()
            .iter()
            .take(offset)
            .filter(|b| **b == b'\n')
            .count()
            + 1
    };
    let table = match toml::de::DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(e) => {
            let line = line_of(e.span().map_or(0, |s| s.start));
            let what = e.message().lines().collect::<Vec<_>>().join(", ");
            complaints.push(format!(
                "{shown}: line {line}: {what}; accepted: TOML; it is ignored"
            ));
            return;
        }
    };
    for (name, value) in table {
        let line = line_of(name.span().start);
        let Some(key) = KEYS.iter().find(|k| k.file == name.get_ref().as_ref()) else {
            let known: Vec<&str> = KEYS.iter().map(|k| k.file).collect();
            complaints.push(format!(
                "{shown}: line {line}: setting {:?} is not known; accepted: {}",
                name.get_ref(),
                known.join(", ")
            ));
            continue;
        };
        // A scalar reads the same in a file and in a variable.
        let text = match value.get_ref() {
            toml::de::DeValue::String(s) => s.as_ref().trim().to_owned(),
            toml::de::DeValue::Integer(i) => i.as_str().replace('_', ""),
            toml::de::DeValue::Float(f) => f.as_str().replace('_', ""),
            toml::de::DeValue::Boolean(b) => b.to_string(),
            _ => "(a table, list or date)".to_owned(),
        };
        if (key.set)(settings, &text).is_none() {
            complaints.push(format!(
                "{shown}: line {line}: {} = {text:?} is ignored; accepted: {}",
                key.file, key.accepted
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(text: &str) -> (Settings, Vec<String>) {
        let (mut settings, mut complaints) = (Settings::default(), Vec::new());
        apply_file(
            &mut settings,
            Path::new("/x/config.toml"),
            text,
            &mut complaints,
        );
        (settings, complaints)
    }

    fn from_variables(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        load(
            &|name| {
                pairs
                    .iter()
                    .find(|p| p.0 == name)
                    .map(|p| OsString::from(p.1))
            },
            &[],
        )
    }

    #[test]
    fn files_and_variables_say_the_same() {
        let (by_file, complaints) = from_file(
            "mode = \"force\"\nlevel = 7\nthreshold_flops = 2e9\nprofile = \"/p\"\nlog = \"debug\"\n\
             log_file = \"/l.jsonl\"\nlearn = false\ndevices = \"1,0\"\nmemory_limit = \"8GiB\"\n",
        );
        assert_eq!(complaints, Vec::<String>::new());
        let (by_variables, complaints) = from_variables(&[
            ("GPU_OFFLOAD", "force"),
            ("GPU_OFFLOAD_LEVEL", "7"),
            ("GPU_OFFLOAD_THRESHOLD", "2000000000"),
            ("GPU_OFFLOAD_PROFILE", "/p"),
            ("GPU_OFFLOAD_LOG", "debug"),
            ("GPU_OFFLOAD_LOG_FILE", "/l.jsonl"),
            ("GPU_OFFLOAD_LEARN", "off"),
            ("GPU_OFFLOAD_DEVICES", "1, 0"),
            ("GPU_OFFLOAD_MEMORY_LIMIT", "8G"),
        ]);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(by_file, by_variables);
        assert_eq!(by_file.device(), 1);
        assert_eq!(by_file.memory_limit_bytes, Some(8 << 30));
    }

    #[test]
    fn a_bad_variable_gives_one_line_and_the_default() {
        for (name, bad) in [
            ("GPU_OFFLOAD", "on"),
            ("GPU_OFFLOAD", "FORCE"),
            ("GPU_OFFLOAD_LEVEL", "0"),
            ("GPU_OFFLOAD_LEVEL", "11"),
            ("GPU_OFFLOAD_LEVEL", "high"),
            ("GPU_OFFLOAD_THRESHOLD", "-1"),
            ("GPU_OFFLOAD_THRESHOLD", "nan"),
            ("GPU_OFFLOAD_LOG", "verbose"),
            ("GPU_OFFLOAD_LEARN", "maybe"),
            ("GPU_OFFLOAD_DEVICES", "0,,1"),
            ("GPU_OFFLOAD_DEVICES", "gpu0"),
            ("GPU_OFFLOAD_MEMORY_LIMIT", "8X"),
            ("GPU_OFFLOAD_MEMORY_LIMIT", "99999999999999T"),
            ("GPU_OFFLOAD_MEMORY_LIMIT", "-5"),
        ] {
            let (settings, complaints) = from_variables(&[(name, bad)]);
            assert_eq!(settings, Settings::default(), "{name}={bad}");
            assert_eq!(complaints.len(), 1, "{name}={bad}");
            let line = &complaints[0];
            assert!(!line.contains('\n'), "{line}");
            assert!(
                line.contains(name) && line.contains(bad) && line.contains("accepted: "),
                "{line}"
            );
        }
        assert_eq!(
            from_variables(&[("GPU_OFFLOAD", "")]),
            (Settings::default(), vec![])
        );
    }

    #[test]
    fn a_bad_file_gives_its_line_and_keeps_the_rest() {
        let (settings, complaints) =
            from_file("level = 3\nmode = \"quick\"\nspeed = 9\nlog = [1]\nlearn = 7\n");
        assert_eq!(
            settings,
            Settings {
                level: Level::new(3).expect("3"),
                ..Settings::default()
            }
        );
        assert_eq!(complaints.len(), 4);
        for (line, says) in [
            ("line 2: ", "auto, off, force, deterministic or verify"),
            ("line 3: ", "threshold_flops"),
            ("line 4: ", "summary"),
            ("line 5: ", "on or off"),
        ] {
            let hits = complaints
                .iter()
                .filter(|c| c.contains(line) && c.contains(says) && c.contains("/x/config.toml"));
            assert_eq!(hits.count(), 1, "{line}{says}: {complaints:?}");
        }
    }

    #[test]
    fn text_that_is_not_toml_gives_its_line() {
        for bad in [
            "level = 5\nlevel 6\n",
            "level = 5\n= 3\n",
            "level = 5\nmode = \"force\n",
            "level = 5\nlevel = 6\n",
        ] {
            let (_, complaints) = from_file(bad);
            assert_eq!(complaints.len(), 1, "{bad}");
            assert!(complaints[0].contains("line 2: "), "{}", complaints[0]);
            assert!(!complaints[0].contains('\n'), "{}", complaints[0]);
        }
    }

    #[test]
    fn a_log_file_alone_asks_for_the_summary() {
        assert_eq!(Settings::default().log_level(), LogLevel::Off);
        let (s, _) = from_variables(&[("GPU_OFFLOAD_LOG_FILE", "x.jsonl")]);
        assert_eq!(s.log_level(), LogLevel::Summary);
        let (s, _) = from_variables(&[("GPU_OFFLOAD_LOG_FILE", "x"), ("GPU_OFFLOAD_LOG", "off")]);
        assert_eq!(s.log_level(), LogLevel::Off);
    }

    #[test]
    fn places_follow_the_xdg_rules() {
        let env = |name: &str| match name {
            "HOME" => Some(OsString::from("/home/u")),
            "XDG_DATA_HOME" => Some(OsString::from("/data")),
            _ => None,
        };
        assert_eq!(
            config_files(&env),
            [
                PathBuf::from("/etc/gpu-offload/config.toml"),
                PathBuf::from("/home/u/.config/gpu-offload/config.toml")
            ]
        );
        assert_eq!(
            user_profile_file(&env),
            Some(PathBuf::from("/data/gpu-offload/profile.toml"))
        );
        assert_eq!(user_profile_file(&|_| None), None);
        assert_eq!(config_files(&|_| None).len(), 1);
        // A relative XDG directory is invalid by the specification and would follow the cwd.
        let relative = |name: &str| (name == "XDG_DATA_HOME").then(|| OsString::from("data"));
        assert_eq!(user_profile_file(&relative), None);
    }
}
