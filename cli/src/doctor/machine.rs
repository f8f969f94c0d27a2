//! The driver, the CUDA libraries and the profile, as a program's engine would find them. Starts no GPU.

use crate::prefix;
use gpu_backend::probe_libraries;
use gpu_offload::measure::CpuLibrary;
use gpu_offload::{config, device, machine};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Serialize)]
pub struct Machine {
    /// The driver's version, such as `580.65.06`; absent where there is no driver of NVIDIA's.
    driver: Option<String>,
    /// The libraries that would be used.
    cuda: Vec<Cuda>,
    /// Why they cannot be used.
    no_cuda: Option<String>,
    /// The profile that would be read.
    profile: Option<PathBuf>,
    /// Settings and profiles that are not understood.
    complaints: Vec<String>,
}

/// A library of CUDA.
#[derive(Serialize)]
struct Cuda {
    path: PathBuf,
    /// As its file's name says it.
    version: String,
}

/// Where the driver says its version.
const DRIVER: &str = "/proc/driver/nvidia/version";

impl Machine {
    /// Looks.
    pub fn look() -> Self {
        let env = |name: &str| std::env::var_os(name);
        let (settings, mut complaints) = config::load(&env, &config::config_files(&env));
        let found = probe_libraries(&device::start_options(&settings));
        // Where the library cannot be opened, no profile fits it, and the profile's line says so.
        let library = prefix::library_dir().and_then(|dir| prefix::blas(&dir));
        let opened = library.ok().and_then(|path| CpuLibrary::open(&path).ok());
        let here = machine::fingerprint(opened.map(|o| o.config()).unwrap_or_default());
        let (profile, lines) = machine::find_profile(&env, &settings, &here);
        complaints.extend(lines);
        let (cuda, no_cuda) = match found {
            Ok(found) => (
                found.into_iter().map(|(_, path)| Cuda::new(path)).collect(),
                None,
            ),
            Err(why) => (Vec::new(), Some(why.to_string())),
        };
        Self {
            driver: fs::read_to_string(DRIVER)
                .ok()
                .and_then(|text| driver(&text)),
            cuda,
            no_cuda,
            profile: profile.map(|(_, path)| path),
            complaints,
        }
    }

    /// In lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![match &self.driver {
            Some(version) => format!("NVIDIA driver {version}"),
            None => "no NVIDIA driver is running".to_owned(),
        }];
        for cuda in &self.cuda {
            lines.push(format!("{}: CUDA, {}", cuda.path.display(), cuda.version));
        }
        lines.extend(self.no_cuda.iter().map(|why| format!("no CUDA: {why}")));
        lines.push(match &self.profile {
            Some(path) => format!("profile {}", path.display()),
            None => "no profile: times are estimated".to_owned(),
        });
        lines.extend(self.complaints.iter().cloned());
        lines
    }

    /// What to do; nothing where there is no GPU to be used.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        match &self.no_cuda {
            // The reason names what is accepted.
            Some(why) if self.driver.is_some() => {
                advice.push(format!("heavy calls cannot go to the GPU: {why}"));
            }
            None if self.profile.is_none() => {
                advice.push("measure this machine: gpu-offload calibrate".to_owned());
            }
            _ => {}
        }
        advice
    }
}

impl Cuda {
    fn new(path: PathBuf) -> Self {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        Self {
            version: version_in(&real),
            path,
        }
    }
}

/// What stands behind `.so.` in a file's name.
fn version_in(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let version = name
        .split_once(".so.")
        .map(|(_, version)| version.to_owned());
    version.unwrap_or_else(|| "version unknown".to_owned())
}

/// The version in the driver's words: the first word that is numbers with two points or one.
fn driver(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        let numbers: Vec<&str> = word.split('.').collect();
        numbers.len() >= 2
            && numbers
                .iter()
                .all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_there_is() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\nGCC version:  gcc version 12.2.0\n";
        assert_eq!(driver(open).as_deref(), Some("580.65.06"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183  Mon Jan 1 00:00:00 UTC 2026\n";
        assert_eq!(driver(closed).as_deref(), Some("535.183"));
        assert_eq!(driver("GCC version: 12.2.0"), None);
        assert_eq!(
            version_in(Path::new("/x/libcublas.so.13.1.0.3")),
            "13.1.0.3"
        );
        assert_eq!(version_in(Path::new("/x/libcuda.so")), "version unknown");
    }
}
