//! Debian stable's pinned packages: fetched by apt from the mirror that the machine already uses.
//!
//! Nothing is installed: packages are unpacked into the cache. What a package holds is believed because
//! of its checksum, which stands here.

use super::{sha256, with_step};
use crate::tools::quiet;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Debian release that the pinned packages belong to.
const SUITE: &str = "trixie";

/// One pinned package.
pub struct Package {
    name: &'static str,
    version: &'static str,
    /// The checksum of the file, hexadecimal.
    pub sha256: &'static str,
}

pub const OPENBLAS: Package = Package {
    name: "libopenblas-pthread-dev",
    version: "0.3.29+ds-3",
    sha256: "1e056a09ed64a39227e25150909a4f9fd83905d4a996f39dd5a919b95ce49559",
};
pub const LAPACKE: Package = Package {
    name: "liblapacke-dev",
    version: "3.12.1-6",
    sha256: "4a667b94fdc4560b4558606537ad1b95a71cd5536b822d6596fdd9199bf6d275",
};
pub const TMGLIB: Package = Package {
    name: "libtmglib-dev",
    version: "3.12.1-6",
    sha256: "a108fbde241938eb4ff4ba91a5201401b6fb2c2eda17cf971703fd26154b3331",
};

/// Netlib's own liblapack.so.3 of the release whose LAPACK is in the pinned OpenBLAS; it loads with glibc 2.29.
pub const NETLIB_LAPACK: Package = Package {
    name: "liblapack3",
    version: "3.12.1-6",
    sha256: "abfc59c8410beee738617bb6daf86b295e45ec0bd08cc0e97bfecc3cfa40fe75",
};

/// Netlib's LAPACK test programs of the release whose LAPACK is in the pinned OpenBLAS.
pub const LAPACK_TEST: Package = Package {
    name: "liblapack-test",
    version: "3.12.1-6",
    sha256: "266910e7ffb3e09cc8d07cc1e99efe8ddd53ea601f18cb24f022d4a8edf5f765",
};

/// Fetches and unpacks packages; the checked files stay in the cache for the next recipe.
pub fn unpack(
    mirror: Option<&str>,
    packages: &[Package],
    cache: &Path,
    dir: &Path,
) -> Result<PathBuf> {
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
    if let Some(url) = mirror {
        fs::write(store.join("mirror.txt"), format!("{url}\n"))?;
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
    // A mirror once given serves later downloads too, where apt knows none.
    let remembered = store.join("mirror.txt");
    let mirror = match mirror {
        Some(url) => url.to_owned(),
        None => debian_mirror()
            .or_else(|error| fs::read_to_string(&remembered).map_err(|_| error))?
            .trim()
            .to_owned(),
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
        // Without this a mirror that cannot be reached is a warning.
        "APT::Update::Error-Mode=any".to_owned(),
    ];
    let get = |arguments: &[&str]| -> Result<()> {
        let mut apt_get = Command::new("apt-get");
        for option in &options {
            apt_get.arg("-o").arg(option);
        }
        let output = apt_get
            .args(arguments)
            .env("LC_ALL", "C")
            .current_dir(store)
            .output()?;
        ensure!(output.status.success(), "{}", complaint(&output.stderr));
        Ok(())
    };
    get(&["update"]).with_context(|| {
        format!(
            "apt cannot read Debian {SUITE} from {mirror}; give another mirror with `cargo xtask \
             openblas --mirror URL`, or an OpenBLAS source archive with --source TARBALL"
        )
    })?;
    for package in packages {
        let wanted = format!("{}={}", package.name, package.version);
        get(&["download", &wanted]).with_context(|| {
            format!(
                "{mirror} does not offer {wanted}; update this checkout, or give another mirror with \
                 `cargo xtask openblas --mirror URL`, or an OpenBLAS source archive with --source TARBALL"
            )
        })?;
        // apt writes a colon of the version as %3a; these versions have none.
        checked(&store.join(package.file()), package)?;
    }
    Ok(())
}

/// The line in which apt says what is wrong.
fn complaint(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().find(|line| line.starts_with("E: "));
    let line = line.or_else(|| said.lines().next()).unwrap_or_default();
    line.trim_start_matches("E: ").to_owned()
}

/// Removes a file that is not the pinned package and says so.
fn checked(path: &Path, package: &Package) -> Result<()> {
    let sum = sha256(path)?;
    if sum != package.sha256 {
        let _ = fs::remove_file(path);
        bail!(
            "{} has SHA-256 {sum}, expected {}: it is not the pinned package and was removed",
            path.display(),
            package.sha256
        );
    }
    Ok(())
}

/// The Debian mirror among apt's own sources.
pub fn debian_mirror() -> Result<String> {
    let targets =
        quiet(Command::new("apt-get").args(["indextargets", "--format", "$(SITE) $(ORIGIN)"]))
            .context(
                "apt is needed to fetch the pinned OpenBLAS; elsewhere use --source TARBALL",
            )?;
    mirror_in(&targets).context(
        "apt's sources name no Debian mirror; give one with `cargo xtask openblas --mirror URL`, install \
         a static OpenBLAS of at least 0.3.29 (libopenblas-pthread-dev), or build one with `cargo xtask \
         openblas --source TARBALL`; then run the same command again",
    )
}

/// The first Debian mirror among apt's index targets, a line each: site and origin.
fn mirror_in(targets: &str) -> Option<String> {
    let mut sites = targets.lines().filter_map(|line| {
        let (site, origin) = line.split_once(' ')?;
        // The origin is known only once the lists were read; the security archive has no full suite.
        let debian = origin == "Debian" || (origin.starts_with('$') && site.contains("debian"));
        (debian && !site.trim_end_matches('/').ends_with("-security")).then(|| site.to_owned())
    });
    sites.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_one_with_all_of_debian() {
        let mirror = |targets| mirror_in(targets).unwrap_or_default();
        assert_eq!(
            mirror("http://a/debian-security Debian\nhttp://b/mirror/ Debian\n"),
            "http://b/mirror/"
        );
        // Before the first `apt-get update` apt knows no origins.
        assert_eq!(mirror("http://a/debian $(ORIGIN)\n"), "http://a/debian");
        assert_eq!(
            mirror("http://a/ubuntu Ubuntu\nhttp://b/tool $(ORIGIN)\n"),
            ""
        );
        assert_eq!(mirror(""), "");
    }

    #[test]
    fn apt_is_quoted_in_one_line() {
        let said = b"W: a warning\nE: Failed to fetch x\nE: Some index files failed to download.\n";
        assert_eq!(complaint(said), "Failed to fetch x");
        assert_eq!(complaint(b"something else\n"), "something else");
        assert_eq!(complaint(b""), "");
    }

    #[test]
    fn a_file_with_another_checksum_is_removed_and_named() {
        let path = std::env::temp_dir().join(format!("gpu-offload-deb-{}", std::process::id()));
        fs::write(&path, "not a package").unwrap();
        assert!(!is_good(&path, &OPENBLAS));
        let error = checked(&path, &OPENBLAS).unwrap_err().to_string();
        assert!(error.contains("not the pinned package"), "{error}");
        assert!(error.contains(OPENBLAS.sha256), "{error}");
        assert!(!path.exists());
        // The checksum of these bytes, from another program (sha256sum).
        let package = Package {
            sha256: "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
            ..OPENBLAS
        };
        fs::write(&path, "a").unwrap();
        checked(&path, &package).unwrap();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
    }
}
