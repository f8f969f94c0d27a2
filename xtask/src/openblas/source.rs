//! Where the static OpenBLAS comes from: the system, Debian stable's pinned packages, or its source.
//!
//! Nothing is installed: packages are unpacked into the cache. What a package holds is believed because
//! of its checksum, which stands here; the mirror is whichever the machine's apt uses.

use super::{Args, sha256, with_step};
use crate::tools::{quiet, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest OpenBLAS that is accepted: 0.3.21 ran dgemm at a third of the speed on a current Xeon, and
/// LAPACK 3.12 came with 0.3.26 and later.
const OLDEST: (u32, u32, u32) = (0, 3, 29);

/// The Debian release that the pinned packages belong to.
const SUITE: &str = "trixie";

/// One pinned package.
struct Package {
    name: &'static str,
    version: &'static str,
    sha256: &'static str,
}

const OPENBLAS: Package = Package {
    name: "libopenblas-pthread-dev",
    version: "0.3.29+ds-3",
    sha256: "1e056a09ed64a39227e25150909a4f9fd83905d4a996f39dd5a919b95ce49559",
};
const LAPACKE: Package = Package {
    name: "liblapacke-dev",
    version: "3.12.1-6",
    sha256: "4a667b94fdc4560b4558606537ad1b95a71cd5536b822d6596fdd9199bf6d275",
};
const TMGLIB: Package = Package {
    name: "libtmglib-dev",
    version: "3.12.1-6",
    sha256: "a108fbde241938eb4ff4ba91a5201401b6fb2c2eda17cf971703fd26154b3331",
};

/// Netlib's LAPACK test programs of the release whose LAPACK is in the pinned OpenBLAS.
const LAPACK_TEST: Package = Package {
    name: "liblapack-test",
    version: "3.12.1-6",
    sha256: "266910e7ffb3e09cc8d07cc1e99efe8ddd53ea601f18cb24f022d4a8edf5f765",
};

/// Folders below the root of a system or an unpacked package.
const LIB: &str = "usr/lib/x86_64-linux-gnu";
const OPENBLAS_LIB: &str = "usr/lib/x86_64-linux-gnu/openblas-pthread";
const OPENBLAS_INCLUDE: &str = "usr/include/x86_64-linux-gnu/openblas-pthread";

/// The chosen source.
pub struct Origin {
    /// OpenBLAS's version.
    pub version: String,
    /// What distinguishes this source from others of the same version.
    pub key: String,
    kind: Kind,
}

enum Kind {
    System,
    Debian { mirror: Option<String> },
    Source(PathBuf),
    Download,
}

/// Chooses without touching the network.
pub fn choose(args: &Args) -> Result<Origin> {
    if let Some(tarball) = &args.source {
        let tarball = tarball
            .canonicalize()
            .with_context(|| format!("no OpenBLAS source archive {}", tarball.display()))?;
        return Ok(Origin {
            version: "source".to_owned(),
            key: sha256(&tarball)?,
            kind: Kind::Source(tarball),
        });
    }
    if args.download {
        return Ok(Origin {
            version: "download".to_owned(),
            key: "openblas-src".to_owned(),
            kind: Kind::Download,
        });
    }
    if let Some(version) = system_version() {
        return Ok(Origin {
            key: sha256(&Path::new("/").join(OPENBLAS_LIB).join("libopenblas.a"))?,
            version,
            kind: Kind::System,
        });
    }
    Ok(Origin {
        version: "0.3.29".to_owned(),
        key: [OPENBLAS, LAPACKE, TMGLIB]
            .map(|package| package.sha256)
            .concat(),
        kind: Kind::Debian {
            mirror: args.mirror.clone(),
        },
    })
}

/// The version of the system's own static archive (POSIX threads, all x86-64 kernels) if it is new enough.
fn system_version() -> Option<String> {
    let lib = Path::new("/").join(OPENBLAS_LIB);
    let text = fs::read_to_string(lib.join("pkgconfig/openblas.pc")).ok()?;
    let version = text.lines().find_map(|line| {
        line.strip_prefix("version=")
            .or_else(|| line.strip_prefix("Version:"))
    })?;
    let version = version.trim();
    let numbers: Vec<u32> = version
        .split(['.', '+', '-'])
        .map_while(|part| part.parse().ok())
        .collect();
    let &[major, minor, patch, ..] = numbers.as_slice() else {
        return None;
    };
    let usable = (major, minor, patch) >= OLDEST && lib.join("libopenblas.a").is_file();
    usable.then(|| version.to_owned())
}

impl Origin {
    /// Puts `libopenblas.a`, `liblapacke.a` and `libtmglib.a` into `dir/lib`, headers into
    /// `dir/include` and the notices into `dir/licences`.
    pub fn fetch(&self, cache: &Path, dir: &Path) -> Result<()> {
        match &self.kind {
            Kind::System => {
                let root = Path::new("/");
                install_openblas(root, dir)?;
                if root.join(LIB).join("liblapacke.a").is_file()
                    && root.join(LIB).join("libtmglib.a").is_file()
                {
                    return install_lapacke(root, dir);
                }
                let unpacked = debian(None, &[LAPACKE, TMGLIB], cache, dir)?;
                install_lapacke(&unpacked, dir)
            }
            Kind::Debian { mirror } => {
                let packages = [OPENBLAS, LAPACKE, TMGLIB];
                let unpacked = debian(mirror.as_deref(), &packages, cache, dir)?;
                install_openblas(&unpacked, dir)?;
                install_lapacke(&unpacked, dir)
            }
            Kind::Source(tarball) => {
                build_source(tarball, dir)?;
                install_lapacke(&debian(None, &[LAPACKE, TMGLIB], cache, dir)?, dir)
            }
            Kind::Download => {
                build_download(dir)?;
                install_lapacke(&debian(None, &[LAPACKE, TMGLIB], cache, dir)?, dir)
            }
        }
    }
}

/// Fetches netlib's LAPACK test programs below `dir` and returns their folder.
pub fn lapack_test_programs(cache: &Path, dir: &Path) -> Result<PathBuf> {
    Ok(debian(None, &[LAPACK_TEST], cache, dir)?
        .join(LIB)
        .join("lapack"))
}

fn install_openblas(root: &Path, dir: &Path) -> Result<()> {
    copy(
        &root.join(OPENBLAS_LIB).join("libopenblas.a"),
        &dir.join("lib/libopenblas.a"),
    )?;
    for header in ["cblas.h", "f77blas.h", "openblas_config.h"] {
        copy(
            &root.join(OPENBLAS_INCLUDE).join(header),
            &dir.join("include").join(header),
        )?;
    }
    let notice = root.join("usr/share/doc/libopenblas-pthread-dev/copyright");
    copy(&notice, &dir.join("licences/openblas"))
}

fn install_lapacke(root: &Path, dir: &Path) -> Result<()> {
    for library in ["liblapacke.a", "libtmglib.a"] {
        copy(
            &root.join(LIB).join(library),
            &dir.join("lib").join(library),
        )?;
    }
    for header in [
        "lapack.h",
        "lapacke.h",
        "lapacke_config.h",
        "lapacke_mangling.h",
        "lapacke_utils.h",
    ] {
        copy(
            &root.join("usr/include").join(header),
            &dir.join("include").join(header),
        )?;
    }
    let notice = root.join("usr/share/doc/liblapacke-dev/copyright");
    copy(&notice, &dir.join("licences/lapack"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Fetches and unpacks packages; the checked files stay in the cache for the next recipe.
fn debian(mirror: Option<&str>, packages: &[Package], cache: &Path, dir: &Path) -> Result<PathBuf> {
    let store = cache.join("packages");
    fs::create_dir_all(&store)?;
    let missing: Vec<&Package> = packages
        .iter()
        .filter(|package| !is_good(&store.join(package.file()), package))
        .collect();
    if !missing.is_empty() {
        with_step("Downloading the pinned packages", || {
            download(mirror, &missing, &store, dir)
        })?;
    }
    let root = dir.join("unpacked");
    for package in packages {
        quiet(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(store.join(package.file()))
                .arg(&root),
        )
        .context("cannot unpack a Debian package (is dpkg installed?)")?;
    }
    Ok(root)
}

impl Package {
    fn file(&self) -> String {
        format!("{}_{}_amd64.deb", self.name, self.version)
    }
}

fn is_good(path: &Path, package: &Package) -> bool {
    path.is_file() && sha256(path).is_ok_and(|sum| sum == package.sha256)
}

/// Downloads with apt, which knows the machine's mirror, proxy and credentials, but with a state of its
/// own: the system's package lists and sources stay as they are, and no privilege is needed.
fn download(mirror: Option<&str>, packages: &[&Package], store: &Path, dir: &Path) -> Result<()> {
    let mirror = match mirror {
        Some(url) => url.to_owned(),
        None => debian_mirror()?,
    };
    let apt = dir.join("apt");
    for folder in ["lists/partial", "cache/archives/partial", "etc"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    let keyring = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
    // Without Debian's keyring (Ubuntu) the pinned checksums alone vouch for the packages.
    let trust = if keyring.is_file() {
        format!("Signed-By: {}", keyring.display())
    } else {
        "Trusted: yes".to_owned()
    };
    let sources = apt.join("etc/pinned.sources");
    fs::write(
        &sources,
        format!(
            "Types: deb\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\nArchitectures: amd64\n{trust}\n"
        ),
    )?;
    let options = [
        format!("Dir::State={}", apt.display()),
        format!("Dir::State::lists={}", apt.join("lists").display()),
        "Dir::State::status=/dev/null".to_owned(),
        format!("Dir::Cache={}", apt.join("cache").display()),
        format!("Dir::Etc::sourcelist={}", sources.display()),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        "Dir::Etc::preferences=/dev/null".to_owned(),
        "Dir::Etc::preferencesparts=/dev/null".to_owned(),
        // The user _apt cannot write into the cache; the checksum is what protects us.
        "APT::Sandbox::User=root".to_owned(),
        "APT::Architecture=amd64".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ];
    let get = |command: &str| {
        let mut apt_get = Command::new("apt-get");
        for option in &options {
            apt_get.arg("-o").arg(option);
        }
        apt_get.arg(command).current_dir(store);
        apt_get
    };
    quiet(&mut get("update")).with_context(|| {
        format!(
            "apt cannot read Debian {SUITE} from the mirror {mirror}; give another with --mirror URL, or \
             an OpenBLAS source archive with --source TARBALL"
        )
    })?;
    for package in packages {
        quiet(get("download").arg(format!("{}={}", package.name, package.version))).with_context(
            || {
                format!(
                    "the mirror does not offer {} {} any more",
                    package.name, package.version
                )
            },
        )?;
        // apt writes a colon of the version as %3a; these versions have none.
        let path = store.join(package.file());
        let sum = sha256(&path)?;
        if sum != package.sha256 {
            let _ = fs::remove_file(&path);
            bail!(
                "{} has SHA-256 {sum}, expected {}: it is not the pinned package and was removed",
                path.display(),
                package.sha256
            );
        }
    }
    Ok(())
}

/// The Debian mirror among apt's own sources.
fn debian_mirror() -> Result<String> {
    let targets =
        quiet(Command::new("apt-get").args(["indextargets", "--format", "$(SITE) $(ORIGIN)"]))
            .context(
                "apt is needed to fetch the pinned OpenBLAS; elsewhere use --source TARBALL",
            )?;
    let mut sites = targets.lines().filter_map(|line| {
        let (site, origin) = line.split_once(' ')?;
        // The origin is known only once the lists were read; the security archive has no full suite.
        let debian = origin == "Debian" || (origin.starts_with('$') && site.contains("debian"));
        (debian && !site.trim_end_matches('/').ends_with("-security")).then(|| site.to_owned())
    });
    sites.next().context(
        "apt's sources name no Debian mirror; give one with --mirror URL, install a static OpenBLAS of \
         at least 0.3.29 (libopenblas-pthread-dev), or give its source with --source TARBALL",
    )
}

/// What a build from source is made with: the kernels of every x86-64 processor, one library for up to 128
/// threads, LAPACK but not LAPACKE (that comes from its own package), no shared library.
const MAKE: [&str; 9] = [
    "DYNAMIC_ARCH=1",
    "DYNAMIC_OLDER=1",
    "USE_OPENMP=0",
    "USE_THREAD=1",
    "NUM_THREADS=128",
    "NO_AFFINITY=1",
    "NO_LAPACKE=1",
    "NO_SHARED=1",
    "TARGET=GENERIC",
];

fn build_source(tarball: &Path, dir: &Path) -> Result<()> {
    let source = dir.join("source");
    fs::create_dir_all(&source)?;
    quiet(
        Command::new("tar")
            .args(["--strip-components=1", "-xf"])
            .arg(tarball)
            .arg("-C")
            .arg(&source),
    )?;
    ensure!(
        source.join("lapack-netlib").is_dir(),
        "{} holds no lapack-netlib: a source archive as OpenBLAS publishes it is needed",
        tarball.display()
    );
    make(&source, dir)
}

fn make(source: &Path, dir: &Path) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    with_step(
        "Building OpenBLAS from source (about half an hour on two cores)",
        || {
            // One job at a time inside: OpenBLAS passes its own -j on.
            quiet(
                Command::new("make")
                    .args(MAKE)
                    .arg(format!("MAKE_NB_JOBS={jobs}"))
                    .args(["libs", "netlib"])
                    .current_dir(source),
            )
        },
    )?;
    let archive = fs::read_dir(source)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libopenblas") && name.ends_with(".a") && !path.is_symlink()
        })
        .context("the build left no libopenblas*.a")?;
    copy(&archive, &dir.join("lib/libopenblas.a"))?;
    copy(&source.join("cblas.h"), &dir.join("include/cblas.h"))?;
    quiet(
        Command::new("make")
            .args(MAKE)
            .arg(format!(
                "OPENBLAS_INCLUDE_DIR={}",
                dir.join("include").display()
            ))
            .arg(format!("DESTDIR={}", dir.join("installed").display()))
            .args(["PREFIX=/", "install"])
            .current_dir(source),
    )
    .context("make install of the headers")?;
    copy(&source.join("LICENSE"), &dir.join("licences/openblas"))?;
    fs::remove_dir_all(source)?;
    Ok(())
}

/// Lets `openblas-src` do the download, in a throw-away project, and takes the archive that it built.
fn build_download(dir: &Path) -> Result<()> {
    let project = dir.join("download");
    fs::create_dir_all(project.join("src"))?;
    fs::write(
        project.join("Cargo.toml"),
        "[package]\nname = \"download\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nopenblas-src = { version = \"0.10.16\", default-features = false, features = [\"static\", \"cblas\", \"lapacke\"] }\n",
    )?;
    fs::write(
        project.join("src/lib.rs"),
        "extern crate openblas_src as _;\n",
    )?;
    with_step(
        "openblas-src downloads and builds OpenBLAS (half an hour and more)",
        || {
            quiet(
                Command::new("cargo")
                    .args(["build", "--release"])
                    .env("OPENBLAS_DYNAMIC_ARCH", "1")
                    .env("CARGO_TARGET_DIR", project.join("target"))
                    .env_remove("PKG_CONFIG_PATH")
                    .current_dir(&project),
            )
        },
    )
    .with_context(|| {
        format!(
            "started in {}, outside of {}",
            project.display(),
            workspace().display()
        )
    })?;
    let archive = quiet(Command::new("find").arg(project.join("target")).args([
        "-name",
        "libopenblas.a",
        "-print",
        "-quit",
    ]))?;
    ensure!(
        !archive.trim().is_empty(),
        "openblas-src left no libopenblas.a"
    );
    copy(Path::new(archive.trim()), &dir.join("lib/libopenblas.a"))?;
    fs::remove_dir_all(&project)?;
    Ok(())
}
