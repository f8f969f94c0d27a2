//! What a process has loaded: a running one by its maps, the ones of a command by what the loader said.

use super::limits::{Limits, THREADS};
use super::{Library, Report};
use crate::install::{OpenBlas, fit_of};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What becomes of heavy calls in a library.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// They are routed.
    Ours,
    /// They run on the CPU.
    Foreign,
    /// Intel's, which programs often bring along unasked.
    Mkl,
    /// It serves no calls from outside, or cannot be judged.
    Other,
}

/// A library that was loaded.
pub struct Loaded {
    /// Its file.
    pub path: PathBuf,
    /// By what the loader found it, where that is known.
    pub place: Option<String>,
}

/// Where the kernel mounts control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// A running process, by its folder below `proc`.
pub fn running(proc: &Path, pid: u32) -> Result<Report> {
    let folder = proc.join(pid.to_string());
    let maps = fs::read(folder.join("maps")).with_context(|| {
        format!("cannot read maps of process {pid}: it is gone, or another user's")
    })?;
    let maps = String::from_utf8_lossy(&maps).into_owned();
    // address, permissions, offset, device, inode, path: which may hold spaces.
    let paths: BTreeSet<&str> = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .filter(|path| path.contains(".so"))
        .collect();
    let loaded = paths.into_iter().map(|path| Loaded {
        path: path.into(),
        place: None,
    });
    let mut report = Report::default();
    // Another user's process, or one that hides it, only lacks these parts.
    let program = fs::read_link(folder.join("exe")).unwrap_or_default();
    add(&mut report, pid, &program, loaded.collect());
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    let variables = environment
        .split(|b| *b == 0)
        .map(String::from_utf8_lossy)
        .filter_map(|entry| {
            let (name, value) = entry.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
    threads(
        &mut report,
        Limits::of(&folder, Path::new(GROUPS)),
        variables.collect(),
    );
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let running = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    report.threads = running.and_then(|number| number.trim().parse().ok());
    if report.libraries.iter().all(|l| !l.serves) {
        report
            .advice
            .push("it has no BLAS loaded (yet): ask again while it computes".to_owned());
    }
    Ok(report)
}

/// Adds the limits of a process, and what to do about its numbers of threads.
pub fn threads(report: &mut Report, limits: Limits, variables: Vec<(String, String)>) {
    let named = variables
        .iter()
        .filter(|(name, _)| THREADS.contains(&name.as_str()));
    report.thread_variables = named
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // Without a BLAS there is nobody to start threads.
    if report.libraries.iter().any(|library| library.serves) {
        report.advice.extend(limits.advice(&variables));
    }
    report.limits = Some(limits);
}

/// Adds the libraries of a process that concern us, and what to do about them.
pub fn add(report: &mut Report, process: u32, program: &Path, loaded: Vec<Loaded>) {
    let mut kinds = Vec::new();
    for Loaded { path, place } in loaded {
        let text = plain(&path);
        let text = text.to_string_lossy();
        let (file, kind) = match text.strip_suffix(" (deleted)") {
            Some(file) => (PathBuf::from(file), replaced_kind(Path::new(file))),
            None => (PathBuf::from(&*text), kind(&path)),
        };
        if let Some(kind) = kind {
            kinds.push((file, place, kind));
        }
    }
    let originals: BTreeSet<String> = kinds
        .iter()
        .filter_map(|(_, _, kind)| kind.original.clone())
        .collect();
    let mut mkl = BTreeMap::new();
    for (path, place, mut kind) in kinds {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kept = format!("{}{name}", wheel_fit::ORIGINAL_PREFIX);
        if kind.role == Role::Foreign && originals.contains(&kept) {
            kind.role = Role::Other;
            kind.what
                .push_str(", the CPU path of the library before it");
        }
        let via = via(&path).or(place);
        match kind.role {
            Role::Foreign => report.advise(advice(&path)),
            Role::Mkl => drop(mkl.insert(path.parent().map(Path::to_owned), ())),
            Role::Ours | Role::Other => {}
        }
        report.libraries.push(Library {
            process: Some(process),
            program: (!program.as_os_str().is_empty()).then(|| program.to_owned()),
            serves: kind.role != Role::Other,
            path,
            what: kind.what,
            via,
        });
    }
    for folder in mkl.into_keys().flatten() {
        let instead = match conda(&folder) {
            Some(prefix) => format!(
                "`conda install -p {} \"libblas=*=*openblas\" nomkl`, then `gpu-offload install --conda {}`",
                prefix.display(),
                prefix.display()
            ),
            None => "a build of the program that uses OpenBLAS or the system's BLAS".to_owned(),
        };
        report.advise(format!(
            "Intel MKL in {} serves calls on the CPU: {instead}",
            folder.display()
        ));
    }
}

/// A path without `..` and links in its folders; the name stays, since a link's own name says what it is for.
fn plain(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// What to do about a library that does not route.
fn advice(path: &Path) -> String {
    let what = path.display();
    // A wheel first: pip's packages in a conda environment do not follow its links.
    if wheel(path).is_some() {
        let environment = path
            .ancestors()
            .find(|dir| dir.join("pyvenv.cfg").is_file() || dir.join("conda-meta").is_dir());
        let install = environment.map_or("gpu-offload install --venv DIR".to_owned(), |dir| {
            format!("gpu-offload install --venv {}", dir.display())
        });
        format!(
            "{what} serves heavy calls on the CPU: {install}, or start the program with `gpu-offload run`"
        )
    } else if let Some(prefix) = conda(path) {
        format!(
            "{what} serves heavy calls on the CPU: gpu-offload install --conda {}",
            prefix.display()
        )
    } else if path.starts_with("/usr") || path.starts_with("/lib") {
        format!(
            "{what} serves heavy calls on the CPU: start the program with `gpu-offload run`, or install the Debian \
             package and choose it with update-alternatives"
        )
    } else {
        format!(
            "{what} serves heavy calls on the CPU: start the program with `gpu-offload run`; where that does not \
             help, the program names this file by its path or RPATH"
        )
    }
}

/// The conda environment that a file belongs to.
fn conda(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| dir.join("conda-meta").is_dir())
}

/// The wheel that a library came in: of `numpy.libs/x.so` and `numpy/.libs/x.so`, numpy.
fn wheel(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    let name = folder.file_name()?.to_str()?;
    match name.strip_suffix(".libs")? {
        "" => Some(folder.parent()?.file_name()?.to_str()?.to_owned()),
        name => Some(name.to_owned()),
    }
}

/// Through what a file comes to be loaded, as far as its place says it.
fn via(path: &Path) -> Option<String> {
    if let Some(name) = wheel(path) {
        return Some(format!("the wheel of {name}"));
    }
    if let Some(prefix) = conda(path) {
        return Some(format!("conda environment {}", prefix.display()));
    }
    let real = path.canonicalize().ok()?;
    let chosen = fs::read_dir("/etc/alternatives")
        .ok()?
        .flatten()
        .find(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().contains(".so")
                && entry.path().canonicalize().is_ok_and(|to| to == real)
        })?;
    Some(format!(
        "update-alternatives, {}",
        chosen.file_name().to_string_lossy()
    ))
}

/// What a library is.
struct Kind {
    what: String,
    role: Role,
    /// Of a library fitted to a wheel: the other name of its original.
    original: Option<String>,
}

impl Kind {
    fn new(what: impl Into<String>, role: Role) -> Option<Self> {
        Some(Self {
            what: what.into(),
            role,
            original: None,
        })
    }
}

/// A file that was replaced since it was loaded can only be judged by its name.
fn replaced_kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    (name.contains("blas") || name.contains("lapack")).then(|| {
        Kind::new(
            "replaced or removed since it was loaded; start the program again",
            Role::Other,
        )
    })?
}

/// What a library is; `None` where it does not concern us.
fn kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let begins = |all: &[&str]| all.iter().any(|start| name.starts_with(start));
    if name.starts_with("libgpu_offload.so") {
        return Kind::new("the engine", Role::Other);
    }
    if name.starts_with("libnvblas.so") {
        return Kind::new("NVBLAS, which intercepts the same calls", Role::Foreign);
    }
    if begins(&["libcuda.so", "libcublas", "libcusolver", "libcusparse"]) {
        return Kind::new("CUDA", Role::Other);
    }
    if name.starts_with("libmkl_") {
        return Kind::new("Intel MKL", Role::Mkl);
    }
    if !["blas", "lapack"].iter().any(|word| name.contains(word)) {
        return None;
    }
    if real.with_file_name("libgpu_offload.so.0").is_file() {
        return Kind::new("gpu-offload", Role::Ours);
    }
    let bytes = fs::read(path).ok()?;
    if let Some(fit) = fit_of(&bytes) {
        let what = format!(
            "gpu-offload {} before the wheel's {}",
            fit.version, fit.original
        );
        let original = Some(fit.original.to_owned());
        return Kind::new(what, Role::Ours).map(|kind| Kind { original, ..kind });
    }
    let kept = name.starts_with(wheel_fit::ORIGINAL_PREFIX);
    match OpenBlas::recognise(&bytes) {
        Ok(Some(own)) if kept => Kind::new(
            format!("OpenBLAS {}, the CPU path of a swapped wheel", own.version),
            Role::Other,
        ),
        Ok(Some(own)) => Kind::new(format!("OpenBLAS {}", own.version), Role::Foreign),
        // Python's own modules have such names too; a library begins with lib.
        _ if name.starts_with("lib") => Kind::new("BLAS or LAPACK of another kind", Role::Foreign),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_foreign_library_and_too_many_threads_is_told_so() {
        let proc = std::env::temp_dir().join(format!("gpu-offload-doctor-{}", std::process::id()));
        let folder = proc.join("7");
        fs::create_dir_all(folder.join("a b")).unwrap();
        let library = folder.join("a b/libblas.so.3");
        fs::write(&library, "no ELF file").unwrap();
        let line = |path: &Path| format!("7f00-7f01 r-xp 00000000 08:01 7    {}\n", path.display());
        fs::write(
            folder.join("maps"),
            line(&library)
                + &line(Path::new("/lib/libc.so.6"))
                + &line(Path::new("/x/libcublasLt.so.13")),
        )
        .unwrap();
        fs::write(
            folder.join("status"),
            "Name:\tx\nThreads:\t5\nCpus_allowed_list:\t0-1\n",
        )
        .unwrap();
        fs::write(folder.join("environ"), "HOME=/\0OPENBLAS_NUM_THREADS=16\0").unwrap();
        let report = running(&proc, 7).unwrap();
        assert_eq!((report.libraries.len(), report.threads), (2, Some(5)));
        assert_eq!(report.libraries[0].path, library);
        assert_eq!(report.libraries[1].what, "CUDA");
        assert_eq!(report.thread_variables, ["OPENBLAS_NUM_THREADS=16"]);
        assert_eq!(report.advice.len(), 2, "{:?}", report.advice);
        // The engine beside it makes it ours.
        fs::write(folder.join("a b/libgpu_offload.so.0"), "").unwrap();
        fs::write(folder.join("environ"), "OPENBLAS_NUM_THREADS=2\0").unwrap();
        assert!(running(&proc, 7).unwrap().advice.is_empty());
        let gone = running(&proc, 8).err().unwrap().to_string();
        assert!(gone.contains("process 8"), "{gone}");
        fs::remove_dir_all(&proc).unwrap();
    }

    #[test]
    fn what_is_advised_fits_the_place() {
        let dir = std::env::temp_dir().join(format!("gpu-offload-places-{}", std::process::id()));
        for folder in [
            "conda/conda-meta",
            "conda/lib/s/numpy.libs",
            "venv/s/numpy.libs",
            "venv/s/scipy/.libs",
            "opt",
        ] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        fs::write(dir.join("venv/pyvenv.cfg"), "").unwrap();
        let wheels = [
            "venv/s/numpy.libs/libopenblas.so",
            "venv/s/scipy/.libs/libopenblas.so",
        ];
        let all = [
            wheels[0],
            wheels[1],
            "conda/lib/libmkl_rt.so.2",
            "conda/lib/libmkl_core.so.2",
            "opt/liblapack.so.3",
            // What pip puts into a conda environment does not follow its links (case I2).
            "conda/lib/s/numpy.libs/libopenblas.so",
            "conda/lib/libopenblas.so.0",
        ];
        for file in all {
            fs::write(dir.join(file), "").unwrap();
        }
        let mut report = Report::default();
        let loaded = all.map(|file| Loaded {
            path: dir.join(file),
            place: Some("RPATH".to_owned()),
        });
        add(&mut report, 1, Path::new("/bin/x"), loaded.into());
        let via: Vec<&str> = report
            .libraries
            .iter()
            .filter_map(|l| l.via.as_deref())
            .collect();
        assert_eq!(via[..2], ["the wheel of numpy", "the wheel of scipy"]);
        assert!(
            via[2].starts_with("conda environment") && via[4] == "RPATH",
            "{via:?}"
        );
        assert_eq!(via[5], "the wheel of numpy");
        // One line for both files of MKL.
        let wanted = [
            "--venv",
            "--venv",
            "RPATH",
            &format!("--venv {}", dir.join("conda").display()),
            "--conda",
            "nomkl",
        ];
        assert_eq!(report.advice.len(), wanted.len(), "{:?}", report.advice);
        for (advice, wanted) in report.advice.iter().zip(wanted) {
            assert!(advice.contains(wanted), "{advice}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
