//! Finds and loads the CUDA libraries and resolves every function that is used.
//!
//! Order of the search: the folders the user names; a library that the process has already loaded (a
//! second copy of a CUDA library in one process is trouble); the `nvidia/*/lib` folders of a Python
//! interpreter's own site-packages, because a later `import` binds to whichever copy of a SONAME came
//! first; the loader's own path; the toolkit's folders. Nothing is ever unloaded, nothing is loaded
//! into the global scope, and no device is touched here: cuInit is the caller's step.

use crate::StartOptions;
use crate::error::StartError;
use crate::solver::Solver;
use crate::sys::{self, Blas, Driver, Extensions, Level3};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the loading gave.
pub struct Loaded {
    /// libcuda's functions.
    pub driver: Driver,
    /// libcublas's functions.
    pub blas: Blas,
    /// Its level-3 routines beside gemm.
    pub level3: Level3,
    /// Where cuSOLVER is, and what LAPACK needs of cuBLAS besides: opened when the first call asks for it, since
    /// it is large and most programs never do.
    pub solver: Option<(PathBuf, Option<Extensions>)>,
    /// The newest CUDA version that the driver serves, as 1000 * major + 10 * minor.
    pub driver_version: u32,
    /// Name and path of each library.
    pub paths: Vec<(String, PathBuf)>,
}

const DRIVER: &str = "libcuda.so.1";

/// Oldest driver interface that is accepted: 12.0, the first whose libraries have the `_64` entries.
const OLDEST_DRIVER: u32 = 12_000;

/// Accepted major versions of the CUDA libraries, the preferred one first.
const BLAS_MAJORS: [u32; 2] = [13, 12];

/// The driver that a major version of CUDA needs (CUDA's release notes, table "minimum driver version").
fn driver_for(major: u32) -> &'static str {
    match major {
        12 => "a driver for CUDA 12.0 or newer, which is 525 or newer",
        _ => "a driver for CUDA 13.0 or newer, which is 580 or newer",
    }
}

/// A version of CUDA as people write it.
fn version_text(version: u32) -> String {
    format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
}

/// Major versions of cuSOLVER that belong to [`BLAS_MAJORS`].
const SOLVER_MAJORS: [u32; 2] = [12, 11];

/// Where distributions, containers and WSL keep the driver's library, if the loader does not know.
const DRIVER_DIRS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
];

/// Where distributions keep the toolkit's libraries.
const DISTRIBUTION_DIRS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/opt/cuda/lib64"];

/// Loads the driver and cuBLAS.
///
/// # Errors
/// [`StartError`], without any effect but loaded libraries.
pub fn load(options: &StartOptions) -> Result<Loaded, StartError> {
    let (driver, driver_path) = load_driver(&options.library_dirs)?;
    let driver_version = driver_version(&driver)?;
    if driver_version < OLDEST_DRIVER {
        return Err(StartError::WrongVersion {
            what: format!("the NVIDIA driver ({})", driver_path.display()),
            found: version_text(driver_version),
            accepted: driver_for(12).into(),
        });
    }
    let places = Places::new(&options.library_dirs);
    let (blas, level3, extensions, blas_path) = load_blas(&places, driver_version, &driver_path)?;
    let mut paths = vec![(DRIVER.to_owned(), driver_path)];
    if let Some(lt) = path_of_loaded("libcublasLt.so.13").or(path_of_loaded("libcublasLt.so.12")) {
        paths.push((name_of(&lt), lt));
    }
    paths.push((name_of(&blas_path), blas_path.clone()));
    let solver = find_solver(&places, &blas_path);
    if let Some(solver) = &solver {
        paths.push((name_of(solver), solver.clone()));
    }
    Ok(Loaded {
        driver,
        blas,
        level3,
        solver: solver.map(|path| (path, extensions)),
        driver_version,
        paths,
    })
}

fn load_driver(library_dirs: &[PathBuf]) -> Result<(Driver, PathBuf), StartError> {
    let mut problem = None;
    let mut library = first_in(library_dirs, DRIVER, &mut problem);
    if library.is_none() {
        library = open(OsStr::new(DRIVER), libc::RTLD_NOLOAD).ok();
    }
    if library.is_none() {
        match open(OsStr::new(DRIVER), 0) {
            Ok(found) => library = Some(found),
            Err(text) => problem = problem.or(Some(text)),
        }
    }
    if library.is_none() {
        let dirs: Vec<PathBuf> = DRIVER_DIRS.iter().map(PathBuf::from).collect();
        library = first_in(&dirs, DRIVER, &mut problem);
    }
    let Some(library) = library else {
        return Err(StartError::NoDriver {
            detail: problem.unwrap_or_else(|| format!("{DRIVER} not found")),
        });
    };
    // SAFETY: this is libcuda by name, and `forget` below keeps it loaded for ever.
    let table = unsafe { Driver::resolve(&library) };
    std::mem::forget(library);
    match table {
        Ok(driver) => {
            let path = path_of(driver.cuInit as *const ()).unwrap_or_else(|| DRIVER.into());
            Ok((driver, path))
        }
        Err(symbol) => Err(StartError::MissingSymbol {
            library: path_of_loaded(DRIVER)
                .unwrap_or_else(|| DRIVER.into())
                .display()
                .to_string(),
            symbol: symbol.into(),
        }),
    }
}

fn driver_version(driver: &Driver) -> Result<u32, StartError> {
    let mut version: c_int = 0;
    // SAFETY: cuDriverGetVersion writes one int and is allowed before cuInit.
    let code = unsafe { (driver.cuDriverGetVersion)(&raw mut version) };
    if code != sys::SUCCESS {
        let name = crate::result::driver_code_name(driver, code);
        return Err(StartError::Refused {
            function: "cuDriverGetVersion",
            code,
            name,
        });
    }
    Ok(version.unsigned_abs())
}

type LoadedBlas = (Blas, Level3, Option<Extensions>, PathBuf);

fn load_blas(
    places: &Places,
    driver_version: u32,
    driver_path: &Path,
) -> Result<LoadedBlas, StartError> {
    let (usable, too_new): (Vec<u32>, Vec<u32>) = BLAS_MAJORS
        .iter()
        .partition(|&&major| major <= driver_version / 1000);
    let mut problem = None;
    let names: Vec<String> = usable
        .iter()
        .map(|major| format!("libcublas.so.{major}"))
        .collect();
    let Some(library) = places.open_first(&names, &mut problem) else {
        let serves = version_text(driver_version);
        for major in &too_new {
            let Some(found) = places.find_file_or_loaders(&format!("libcublas.so.{major}")) else {
                continue;
            };
            return Err(StartError::WrongVersion {
                what: format!("the NVIDIA driver ({})", driver_path.display()),
                found: format!("{serves}, too old for {}", found.display()),
                accepted: format!("{}; or {}", driver_for(*major), names.join(" or ")),
            });
        }
        let mut what = names.join(" or ");
        if !too_new.is_empty() {
            what += &format!(" (the driver serves {serves} and nothing newer)");
        }
        if let Some(problem) = problem {
            what = format!("a usable {what} ({problem})");
        }
        return Err(StartError::NoLibrary {
            what,
            searched: places.all(),
        });
    };
    // SAFETY: this is libcublas by name, and `forget` below keeps it loaded for ever.
    let table = unsafe {
        Blas::resolve(&library)
            .and_then(|blas| Level3::resolve(&library).map(|level3| (blas, level3)))
    };
    // SAFETY: as above.
    let extensions = unsafe { Extensions::resolve(&library) }.ok();
    std::mem::forget(library);
    let loaded = || names.iter().find_map(|name| path_of_loaded(name));
    match table {
        Ok((blas, level3)) => {
            let path = path_of(blas.cublasCreate_v2 as *const ());
            // A library that answers under several names is reported by the one we asked for.
            let path = path
                .filter(|p| name_of(p).starts_with("libcublas.so"))
                .or_else(|| names.iter().find_map(|name| places.find_file(name)))
                .unwrap_or_else(|| names[0].clone().into());
            Ok((blas, level3, extensions, path))
        }
        Err(symbol) => Err(StartError::MissingSymbol {
            library: loaded()
                .or_else(|| names.iter().find_map(|name| places.find_file(name)))
                .unwrap_or_else(|| "libcublas.so".into())
                .display()
                .to_string(),
            symbol: symbol.into(),
        }),
    }
}

/// cuSOLVER of the same CUDA version as the cuBLAS in use, the one beside it first.
fn find_solver(places: &Places, blas: &Path) -> Option<PathBuf> {
    let beside = blas.parent();
    let blas = name_of(blas);
    let of_blas = BLAS_MAJORS
        .iter()
        .position(|major| blas.starts_with(&format!("libcublas.so.{major}")));
    let majors = of_blas.map_or(&SOLVER_MAJORS[..], |at| &SOLVER_MAJORS[at..=at]);
    let names: Vec<String> = majors
        .iter()
        .map(|major| format!("libcusolver.so.{major}"))
        .collect();
    names
        .iter()
        .find_map(|name| {
            let here = beside?.join(name);
            here.is_file()
                .then_some(here)
                .or_else(|| path_of_loaded(name))
        })
        .or_else(|| names.iter().find_map(|name| places.find_file(name)))
}

/// Opens cuSOLVER.
///
/// # Errors
/// What the loader said, or the first function that the library lacks.
pub fn load_solver(path: &Path, extensions: Option<Extensions>) -> Result<Solver, String> {
    let library = crate::staging::with_signals_blocked(|| open(path.as_os_str(), 0))?;
    // SAFETY: this is libcusolver by name, and `forget` below keeps it loaded for ever.
    let tables = unsafe {
        sys::Solver::resolve(&library).and_then(|functions| {
            let typed = sys::SolverTyped::resolve(&library)?;
            Ok((functions, typed, sys::SolverNewer::resolve(&library)))
        })
    };
    std::mem::forget(library);
    let (functions, typed, newer) =
        tables.map_err(|symbol| format!("{} lacks {symbol}", path.display()))?;
    Ok(Solver {
        functions,
        typed,
        newer,
        extensions,
    })
}

/// The places where the toolkit's libraries are looked for, in order.
struct Places {
    /// Named by the user.
    first: Vec<PathBuf>,
    /// Of the Python interpreter that this process is.
    python: Vec<PathBuf>,
    /// Toolkit and distribution.
    last: Vec<PathBuf>,
}

impl Places {
    fn new(library_dirs: &[PathBuf]) -> Self {
        let mut last = toolkit_dirs(Path::new("/usr/local"));
        last.extend(DISTRIBUTION_DIRS.iter().map(PathBuf::from));
        Self {
            first: library_dirs.to_vec(),
            python: python_dirs(),
            last,
        }
    }

    /// The first of `names` that opens, with its libcublasLt from the same folder opened before it.
    fn open_first(&self, names: &[String], problem: &mut Option<String>) -> Option<Library> {
        let in_dirs = |dirs: &[PathBuf], problem: &mut Option<String>| {
            dirs.iter().find_map(|dir| {
                let dir = std::slice::from_ref(dir);
                names.iter().find_map(|name| first_in(dir, name, problem))
            })
        };
        in_dirs(&self.first, problem)
            .or_else(|| {
                names
                    .iter()
                    .find_map(|name| open(OsStr::new(name), libc::RTLD_NOLOAD).ok())
            })
            .or_else(|| in_dirs(&self.python, problem))
            .or_else(|| {
                names
                    .iter()
                    .find_map(|name| match open(OsStr::new(name), 0) {
                        Ok(found) => Some(found),
                        Err(text) => {
                            if !text.contains("No such file") {
                                problem.get_or_insert(text);
                            }
                            None
                        }
                    })
            })
            .or_else(|| in_dirs(&self.last, problem))
    }

    fn find_file(&self, name: &str) -> Option<PathBuf> {
        let dirs = self.first.iter().chain(&self.python).chain(&self.last);
        dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    /// As [`Places::find_file`], and where the loader would find it: in the folders of LD_LIBRARY_PATH,
    /// and what the process has loaded. For messages: nothing is opened.
    fn find_file_or_loaders(&self, name: &str) -> Option<PathBuf> {
        let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&variable)
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect();
        let mut on_path = folders.iter().map(|folder| folder.join(name));
        on_path
            .find(|path| path.is_file())
            .or_else(|| self.find_file(name))
            .or_else(|| path_of_loaded(name))
    }

    fn all(&self) -> Vec<PathBuf> {
        let mut all = self.first.clone();
        all.extend(self.python.iter().cloned());
        all.push("the loader's path".into());
        all.extend(self.last.iter().cloned());
        all
    }
}

/// Opens `name` in the first folder that has it; a file that does not open is noted in `problem`.
fn first_in(dirs: &[PathBuf], name: &str, problem: &mut Option<String>) -> Option<Library> {
    for dir in dirs {
        let path = dir.join(name);
        if !path.is_file() {
            continue;
        }
        // cuBLAS needs the libcublasLt of its own build; opened first, by path, it is the one that
        // the SONAME in cuBLAS's NEEDED entry is matched with.
        if let Some(version) = name.strip_prefix("libcublas.so.") {
            let lt = dir.join(format!("libcublasLt.so.{version}"));
            if lt.is_file() && path_of_loaded(&name_of(&lt)).is_none() {
                match open(lt.as_os_str(), 0) {
                    Ok(library) => std::mem::forget(library),
                    Err(text) => {
                        problem.get_or_insert(text);
                        continue;
                    }
                }
            }
        }
        match open(path.as_os_str(), 0) {
            Ok(library) => return Some(library),
            Err(text) => {
                problem.get_or_insert(text);
            }
        }
    }
    None
}

fn open(name: &OsStr, extra_flags: c_int) -> Result<Library, String> {
    // SAFETY: loading runs the constructors of NVIDIA's libraries (or of what the user put in their
    // place), which is what the caller asks for; nothing of ours depends on what they do.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | extra_flags) }
        .map_err(|e| one_line(&e))
}

/// The loader's own text is in the error's source.
fn one_line(error: &libloading::Error) -> String {
    let text = match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Path of an already loaded library of this name.
fn path_of_loaded(name: &str) -> Option<PathBuf> {
    let library = open(OsStr::new(name), libc::RTLD_NOLOAD).ok()?;
    let handle = library.into_raw();
    let mut map: *const LinkMap = core::ptr::null();
    // SAFETY: `handle` is a live handle of dlopen, and RTLD_DI_LINKMAP writes one pointer to an entry
    // that lives as long as the library; the name is copied before the handle is closed.
    unsafe {
        let got = libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0;
        let path = (got && !map.is_null() && !(*map).name.is_null())
            .then(|| PathBuf::from(OsStr::from_bytes(CStr::from_ptr((*map).name).to_bytes())));
        libc::dlclose(handle);
        path.filter(|p| !p.as_os_str().is_empty())
    }
}

/// The public beginning of glibc's `struct link_map` (link.h).
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *const libc::c_char,
}

/// Path of the library that holds `function`.
fn path_of(function: *const ()) -> Option<PathBuf> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` when it returns non-zero; dli_fname is a string that lives as long as
    // the library, which is never unloaded.
    unsafe {
        if libc::dladdr(function.cast(), info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// `BASE/cuda*/lib64` and `BASE/cuda*/targets/x86_64-linux/lib`; `cuda` itself first, then the newest.
fn toolkit_dirs(base: &Path) -> Vec<PathBuf> {
    let mut roots: Vec<(Vec<u32>, PathBuf)> = std::fs::read_dir(base)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let version = name
                .strip_prefix("cuda")?
                .trim_start_matches('-')
                .to_owned();
            let version = version
                .split('.')
                .map_while(|part| part.parse().ok())
                .collect();
            Some((version, base.join(name)))
        })
        .collect();
    // `cuda` has no version: it is the administrator's choice and goes first.
    roots.sort_by(|a, b| {
        (a.0.is_empty().cmp(&b.0.is_empty()))
            .then(a.0.cmp(&b.0))
            .reverse()
    });
    let dirs = |root: &PathBuf| [root.join("lib64"), root.join("targets/x86_64-linux/lib")];
    roots
        .iter()
        .flat_map(|(_, root)| dirs(root))
        .filter(|dir| dir.is_dir())
        .collect()
}

/// `nvidia/*/lib` of the interpreter's site-packages; empty if this process is no Python.
fn python_dirs() -> Vec<PathBuf> {
    let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return Vec::new();
    };
    if !name_of(&exe).starts_with("python") && !maps.contains("/libpython3") {
        return Vec::new();
    }
    let mut packages = site_packages_of_maps(&maps);
    if let Some(prefix) = exe.parent().and_then(Path::parent) {
        for entry in std::fs::read_dir(prefix.join("lib"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with("python3") {
                for name in ["site-packages", "dist-packages"] {
                    let dir = entry.path().join(name);
                    if !packages.contains(&dir) {
                        packages.push(dir);
                    }
                }
            }
        }
    }
    packages.iter().flat_map(|dir| nvidia_dirs(dir)).collect()
}

/// Every `…/site-packages` and `…/dist-packages` from which something is mapped, in order.
fn site_packages_of_maps(maps: &str) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = &line[at..];
        for name in ["/site-packages/", "/dist-packages/"] {
            if let Some(end) = path.find(name) {
                let dir = PathBuf::from(&path[..end + name.len() - 1]);
                if !dirs.contains(&dir) {
                    dirs.push(dir);
                }
            }
        }
    }
    dirs
}

fn nvidia_dirs(site_packages: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(site_packages.join("nvidia"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("lib"))
        .filter(|dir| dir.is_dir())
        .collect();
    // read_dir's order is the file system's; the search must not depend on it. `cublas` (CUDA 12's
    // layout) sorts after `cu13`, as it should: the newest usable version is preferred.
    dirs.sort();
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_packages_are_read_off_the_maps() {
        let maps = "7f0-7f1 r-xp 00000000 08:01 1 /opt/v/lib/python3.12/site-packages/numpy/a.so\n\
                    7f1-7f2 r-xp 00000000 08:01 1 /usr/lib/python3/dist-packages/b/c.so\n\
                    7f2-7f3 r-xp 00000000 08:01 1 /opt/v/lib/python3.12/site-packages/numpy/d.so\n\
                    7f3-7f4 rw-p 00000000 00:00 0 [heap]\n";
        assert_eq!(
            site_packages_of_maps(maps),
            [
                PathBuf::from("/opt/v/lib/python3.12/site-packages"),
                PathBuf::from("/usr/lib/python3/dist-packages")
            ]
        );
    }

    #[test]
    fn toolkits_are_ordered_by_the_administrator_then_by_version() {
        let base =
            std::env::temp_dir().join(format!("gpu-backend-toolkits-{}", std::process::id()));
        for name in ["cuda-12.9", "cuda-13.0", "cuda-12.10", "cuda", "other"] {
            std::fs::create_dir_all(base.join(name).join("lib64")).expect("a folder");
        }
        let found: Vec<PathBuf> = toolkit_dirs(&base);
        let expected = ["cuda", "cuda-13.0", "cuda-12.10", "cuda-12.9"];
        assert_eq!(found, expected.map(|name| base.join(name).join("lib64")));
        std::fs::remove_dir_all(&base).expect("the folder");
    }
}
