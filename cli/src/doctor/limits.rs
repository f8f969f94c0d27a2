//! How many processors a process may use, and whether its libraries start more threads than that.

use serde::Serialize;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Variables by which OpenBLAS learns its number of threads, the strongest first.
pub const THREADS: [&str; 3] = [
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OMP_NUM_THREADS",
];

/// What the kernel lets a process use.
#[derive(Default, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Processors that it may run on (affinity and cpuset).
    pub processors: Option<usize>,
    /// Time that its control groups give it, in processors; absent where they set no limit.
    pub quota: Option<f64>,
}

impl Limits {
    /// Of a process, by its folder in /proc and the folder of control groups.
    pub fn of(process: &Path, groups: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
        Self {
            processors: text("status")
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
                .and_then(|list| processors(list.trim())),
            quota: text("cgroup")
                .lines()
                .filter_map(|line| quota(line, groups))
                .reduce(f64::min),
        }
    }

    /// Threads that compute at the same time, at most.
    pub fn threads(&self) -> Option<usize> {
        // Part of a processor still is a thread.
        let quota = self.quota.map(|quota| (quota.ceil() as usize).max(1));
        match (self.processors, quota) {
            (Some(processors), Some(quota)) => Some(processors.min(quota)),
            (processors, quota) => processors.or(quota),
        }
    }

    /// What to do about the numbers of threads that these variables ask for, or, where none does, that OpenBLAS
    /// takes: one for each processor.
    pub fn advice(&self, variables: &[(String, String)]) -> Option<String> {
        let most = self.threads()?;
        let set = THREADS.iter().find_map(|name| {
            let (_, value) = variables.iter().find(|(set, _)| set == name)?;
            // OpenBLAS skips what is no number, and 0.
            let threads = value
                .trim()
                .parse::<usize>()
                .ok()
                .filter(|threads| *threads > 0)?;
            Some((*name, threads))
        });
        let why = match self.quota {
            Some(quota) if self.processors.is_none_or(|all| all > most) => {
                format!("its control group gives it the time of {quota} processors")
            }
            _ => format!("it may use {most} processors"),
        };
        match set {
            Some((name, threads)) if threads > most => Some(format!(
                "{name} asks for {threads} threads, but {why}: set it to {most} or lower"
            )),
            None if self.processors.is_some_and(|all| all > most) => Some(format!(
                "OpenBLAS starts {} threads, but {why}: set OPENBLAS_NUM_THREADS={most}",
                self.processors.unwrap_or_default()
            )),
            _ => None,
        }
    }
}

/// How many processors a list such as `0-3,8` names.
fn processors(list: &str) -> Option<usize> {
    list.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

/// The limit that a line of /proc/PID/cgroup leads to, of the group itself or one above it.
fn quota(line: &str, groups: &Path) -> Option<f64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let mounts: Vec<PathBuf> = if controllers.is_empty() {
        vec![groups.to_owned(), groups.join("unified")]
    } else if controllers.split(',').any(|name| name == "cpu") {
        vec![groups.join(controllers), groups.join("cpu")]
    } else {
        return None;
    };
    // In a container the path may begin above what is mounted, and then names nothing here.
    let inside: PathBuf = Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let all = mounts.iter().flat_map(|mount| {
        let above = inside.ancestors().map(|group| mount.join(group));
        above.filter_map(|group| group_quota(&group))
    });
    all.reduce(f64::min)
}

/// The limit of one group: version 2's cpu.max, or version 1's quota and period, in microseconds.
fn group_quota(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // `max` and -1 are no limit.
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(processors("0-3,8"), Some(5));
        assert_eq!(processors("7"), Some(1));
        assert_eq!(processors("3-1"), None);
        assert_eq!(processors("x"), None);
    }

    /// A folder with these files in it.
    fn files(name: &str, all: &[(&str, &str)]) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("gpu-offload-{}-{name}", std::process::id()));
        for (file, text) in all {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_tightest_group_counts_in_both_versions() {
        let status = "Name:\tx\nCpus_allowed_list:\t0-15\n";
        let second = files(
            "cgroup2",
            &[
                ("p/status", status),
                ("p/cgroup", "0::/a/b\n"),
                ("g/cpu.max", "max 100000\n"),
                ("g/a/cpu.max", "150000 100000\n"),
                ("g/a/b/cpu.max", "800000 100000\n"),
            ],
        );
        let limits = Limits::of(&second.join("p"), &second.join("g"));
        let wanted = Limits {
            processors: Some(16),
            quota: Some(1.5),
        };
        assert_eq!(limits, wanted);
        assert_eq!(limits.threads(), Some(2));
        fs::remove_dir_all(second).unwrap();

        let first = files(
            "cgroup1",
            &[
                ("p/status", status),
                ("p/cgroup", "5:memory:/m\n4:cpu,cpuacct:/../c\n"),
                ("g/cpu,cpuacct/c/cpu.cfs_quota_us", "300000\n"),
                ("g/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n"),
                ("g/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
                ("g/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ],
        );
        let limits = Limits::of(&first.join("p"), &first.join("g"));
        assert_eq!(limits.quota, Some(3.0));
        let none = Limits::of(&first.join("none"), &first.join("g"));
        assert_eq!(none, Limits::default());
        fs::remove_dir_all(first).unwrap();
    }

    #[test]
    fn more_threads_than_processors_are_too_many() {
        let limits = |processors, quota| Limits { processors, quota };
        let set = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let plain = limits(Some(4), None);
        assert_eq!(plain.advice(&[]), None);
        assert_eq!(plain.advice(&set("OMP_NUM_THREADS", "4")), None);
        assert_eq!(plain.advice(&set("OMP_NUM_THREADS", "0")), None);
        let advice = plain.advice(&set("OMP_NUM_THREADS", "5")).unwrap();
        assert!(advice.contains("set it to 4"), "{advice}");
        // OpenBLAS's own variable is stronger.
        let both = [
            set("OMP_NUM_THREADS", "64"),
            set("OPENBLAS_NUM_THREADS", "2"),
        ]
        .concat();
        assert_eq!(plain.advice(&both), None);
        let tight = limits(Some(16), Some(2.0));
        let advice = tight.advice(&[]).unwrap();
        assert!(advice.contains("OPENBLAS_NUM_THREADS=2"), "{advice}");
        assert_eq!(tight.advice(&set("OPENBLAS_NUM_THREADS", "2")), None);
        assert_eq!(limits(Some(2), Some(8.0)).advice(&[]), None);
        assert_eq!(
            Limits::default().advice(&set("OMP_NUM_THREADS", "99")),
            None
        );
    }
}
