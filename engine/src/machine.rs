//! What is known of this machine without touching the GPU, and the profile made for it.

use crate::config::{Environment, Settings, profile_files};
use crate::files::{ReadError, read_trusted};
use crate::os;
use cost_model::{Fingerprint, Profile};
use std::path::{Path, PathBuf};

/// The CPU's name as the kernel has it; empty where it has none.
pub fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// This machine with a CPU library and no GPU yet.
pub fn fingerprint(cpu_library: String) -> Fingerprint {
    Fingerprint {
        cpu_model: cpu_model(),
        cpu_threads: os::machine_cpus(),
        cpu_library,
        ..Fingerprint::default()
    }
}

/// Reads one profile.
///
/// # Errors
/// The one line for the user: what, where, what is accepted. Absence is a line too.
pub fn read_profile(path: &Path) -> Result<Profile, String> {
    let shown = path.display();
    let text = read_trusted(path).map_err(|e| match e {
        ReadError::Absent => {
            format!("profile {shown}: no such file; accepted: a profile written by `gpu-offload calibrate`")
        }
        ReadError::OutOfReach(line) | ReadError::Refused(line) => format!("profile {line}"),
    })?;
    Profile::from_toml(&text).map_err(|e| format!("profile {shown}: {e}"))
}

/// The line for a profile of another machine.
pub fn foreign(source: &str, difference: &str) -> String {
    format!(
        "profile {source}: {difference}; it is ignored; accepted: a profile made on this machine \
         (run `gpu-offload calibrate`)"
    )
}

/// The first profile that was made for this CPU, and lines about those that cannot be used. Whether
/// it was made for this GPU shows when the GPU has started.
pub fn find_profile(
    env: Environment<'_>,
    settings: &Settings,
    here: &Fingerprint,
) -> (Option<(Profile, PathBuf)>, Vec<String>) {
    let mut complaints = Vec::new();
    for path in profile_files(env, settings) {
        // Only a profile that the user named must be there.
        if settings.profile.is_none() && !path.exists() {
            continue;
        }
        match read_profile(&path) {
            Ok(profile) => match profile.measurements().fingerprint.cpu_difference(here) {
                None => return (Some((profile, path)), complaints),
                Some(difference) => {
                    complaints.push(foreign(&path.display().to_string(), &difference));
                }
            },
            Err(line) => complaints.push(format!("{line}; it is ignored")),
        }
    }
    (None, complaints)
}
