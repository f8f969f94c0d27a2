//! `install --conda PREFIX`, `uninstall --conda PREFIX`: the links through which every program of a conda
//! environment finds BLAS and LAPACK.
//!
//! conda-forge's programs need `libblas.so.3`, `libcblas.so.3`, `liblapack.so.3` and `liblapacke.so.3`, which
//! are links in the environment's `lib` to the one library that was chosen for it. Installing points them at
//! ours; where they led is kept in `share/gpu-offload/links.json`, written before the first link changes.
//! An environment that has the conda packages of this project is left to conda.
//! A link is replaced by a rename, so that there is one at every moment, and any half of the work is a
//! working environment that the same command finishes.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names, and the library of ours that serves each. In this order they are replaced.
const LINKS: [(&str, &str); 4] = [
    ("libblas.so.3", "libblas.so.3"),
    ("libcblas.so.3", "libblas.so.3"),
    ("liblapack.so.3", "liblapack.so.3"),
    ("liblapacke.so.3", "liblapacke.so.3"),
];

/// Where the conda package of this project has its libraries.
const PACKAGED: &str = "lib/gpu-offload";

/// What is kept in the environment.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Of this file's form.
    version: u32,
    /// Where each replaced link led: the text of the link.
    links: BTreeMap<String, PathBuf>,
}

const VERSION: u32 = 1;

/// Where one of the four names leads.
#[derive(Debug, PartialEq)]
enum State {
    /// There is no such name.
    Absent,
    /// To a library of gpu-offload.
    Ours(PathBuf),
    /// To a library of gpu-offload that a conda package has brought.
    Packaged(PathBuf),
    /// To a file of the environment; the text of the link.
    Theirs(PathBuf),
    /// It is no link, or leads nowhere, or out of the environment; what it is.
    Unknown(String),
}

/// One of the four names, for a reader.
pub struct Link {
    /// The link.
    pub path: PathBuf,
    /// Where it leads, in words.
    pub what: String,
    /// What is wrong with it.
    pub trouble: Option<String>,
}

/// A conda environment.
pub struct Environment {
    prefix: PathBuf,
}

impl Environment {
    /// Looks whether `prefix` is one.
    ///
    /// # Errors
    /// Where it lacks `conda-meta`, which every environment has, or `lib`.
    pub fn new(prefix: &Path) -> Result<Self> {
        let prefix = prefix
            .canonicalize()
            .with_context(|| format!("{}: no such folder", prefix.display()))?;
        ensure!(
            prefix.join("conda-meta").is_dir() && prefix.join("lib").is_dir(),
            "{}: not a conda environment; accepted: a folder with conda-meta and lib in it, such as the \
             value of CONDA_PREFIX",
            prefix.display()
        );
        Ok(Self { prefix })
    }

    fn link(&self, name: &str) -> PathBuf {
        self.prefix.join("lib").join(name)
    }

    fn record(&self) -> PathBuf {
        self.prefix.join("share/gpu-offload/links.json")
    }

    /// Where a name leads now.
    fn state(&self, name: &str) -> State {
        let link = self.link(name);
        let Ok(meta) = fs::symlink_metadata(&link) else {
            return State::Absent;
        };
        if !meta.is_symlink() {
            return State::Unknown("a file, not a link".to_owned());
        }
        let Ok(text) = fs::read_link(&link) else {
            return State::Unknown("a link that cannot be read".to_owned());
        };
        let Ok(real) = link.canonicalize() else {
            return State::Unknown(format!("a link to {}, which is not there", text.display()));
        };
        if real.with_file_name("libgpu_offload.so.0").is_file() {
            let packaged = real.parent() == Some(&self.prefix.join(PACKAGED));
            return if packaged {
                State::Packaged(real)
            } else {
                State::Ours(real)
            };
        }
        if real.starts_with(&self.prefix) && real.is_file() {
            return State::Theirs(text);
        }
        State::Unknown(format!("a link to {}", real.display()))
    }

    /// What an earlier `install` kept, if there was one.
    fn kept(&self) -> Result<Option<Kept>> {
        let path = self.record();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let kept: Kept = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what `install` wrote", path.display()))?;
        ensure!(
            kept.version == VERSION,
            "{} was written by another version of this program; uninstall with that one",
            path.display()
        );
        let strange = |name: &&String| !LINKS.iter().any(|(known, _)| known == name);
        if let Some(name) = kept.links.keys().find(strange) {
            bail!("{}: {name} is none of ours", path.display());
        }
        Ok(Some(kept))
    }

    fn keep(&self, links: BTreeMap<String, PathBuf>) -> Result<()> {
        let path = self.record();
        let folder = path.parent().context("the record has a folder")?;
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let temporary = path.with_extension(format!("new{}", std::process::id()));
        let written = (|| -> Result<()> {
            let mut file = fs::File::create(&temporary)?;
            let kept = Kept {
                version: VERSION,
                links,
            };
            serde_json::to_writer_pretty(&mut file, &kept)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            Ok(())
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Points a name at `target`, in one step.
    fn point(&self, name: &str, target: &Path) -> Result<()> {
        let link = self.link(name);
        let temporary = self.link(&format!(".{name}.gpu-offload"));
        match fs::remove_file(&temporary) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", temporary.display()));
            }
            // Of a run that was interrupted, or nothing.
            _ => {}
        }
        symlink(target, &temporary)
            .and_then(|()| fs::rename(&temporary, &link))
            .with_context(|| format!("cannot replace {}", link.display()))
    }

    /// Where the environment's names lead, and whether that is to the libraries in `ours`.
    ///
    /// # Errors
    /// Where what an earlier `install` kept cannot be read.
    pub fn survey(&self, ours: &Path) -> Result<Vec<Link>> {
        let kept = self.kept()?.map(|kept| kept.links).unwrap_or_default();
        let mut links = Vec::new();
        for (name, library) in LINKS {
            let path = self.link(name);
            let moved = kept.contains_key(name);
            let (what, trouble) = match self.state(name) {
                State::Absent if moved => (
                    "missing".to_owned(),
                    Some("was removed since it was installed".to_owned()),
                ),
                State::Absent => continue,
                State::Ours(real) => {
                    let same = ours
                        .join(library)
                        .canonicalize()
                        .is_ok_and(|own| own == real);
                    let trouble = (!same).then(|| "leads to another installation".to_owned());
                    (format!("gpu-offload, {}", real.display()), trouble)
                }
                State::Packaged(real) => (
                    format!("gpu-offload by its conda package, {}", real.display()),
                    None,
                ),
                // conda links anew what it installs or updates.
                State::Theirs(text) => (
                    format!("the environment's own {}", text.display()),
                    Some(
                        if moved {
                            "was linked anew by conda since it was installed"
                        } else {
                            "serves heavy calls on the CPU"
                        }
                        .to_owned(),
                    ),
                ),
                State::Unknown(what) => (what, Some("leads to no library of ours".to_owned())),
            };
            links.push(Link {
                path,
                what,
                trouble,
            });
        }
        Ok(links)
    }

    /// Points the environment's links at the libraries in `ours`; returns the names that were changed.
    ///
    /// # Errors
    /// Where a link is not recognised; nothing has changed then.
    pub fn install(&self, ours: &Path) -> Result<Vec<&'static str>> {
        for (_, library) in LINKS {
            ensure!(
                ours.join(library).is_file(),
                "{}: no such file; this installation is not complete",
                ours.join(library).display()
            );
        }
        let earlier = self.kept()?.map(|kept| kept.links).unwrap_or_default();
        let (mut links, mut wanted) = (BTreeMap::new(), Vec::new());
        for (name, library) in LINKS {
            let target = ours.join(library);
            match self.state(name) {
                State::Absent => {}
                State::Packaged(_) => bail!(
                    "{} has the conda packages of gpu-offload: nothing is to be installed; back: conda install \
                     \"libblas=*=*openblas\"",
                    self.prefix.display()
                ),
                // An environment that was updated since then has new links: those are what is kept.
                State::Theirs(text) => {
                    links.insert(name.to_owned(), text);
                    wanted.push((name, target));
                }
                State::Ours(real) => {
                    let text = earlier.get(name).with_context(|| {
                        format!(
                            "{} leads to {} already, and {} does not say where it led before; restore it \
                             with conda (reinstall libblas) first",
                            self.link(name).display(),
                            real.display(),
                            self.record().display()
                        )
                    })?;
                    links.insert(name.to_owned(), text.clone());
                    if fs::read_link(self.link(name))? != target {
                        wanted.push((name, target));
                    }
                }
                // Our own earlier installation is gone.
                State::Unknown(_) if self.dangles(name) && earlier.contains_key(name) => {
                    links.insert(name.to_owned(), earlier[name].clone());
                    wanted.push((name, target));
                }
                State::Unknown(what) => bail!(
                    "{} is {what}; accepted: a link to a library in the environment, as conda-forge lays it out",
                    self.link(name).display()
                ),
            }
        }
        ensure!(
            links.contains_key("libblas.so.3"),
            "{} is not there: nothing in this environment uses BLAS; install numpy or libblas into it first",
            self.link("libblas.so.3").display()
        );
        self.keep(links)?;
        for (name, target) in &wanted {
            self.point(name, target)?;
        }
        Ok(wanted.into_iter().map(|(name, _)| name).collect())
    }

    /// Points the links back to where they led; returns the names that were changed, and those that no longer
    /// led to us and were left alone.
    ///
    /// # Errors
    /// Where an earlier library is gone: our link stays, so that there is a library.
    pub fn uninstall(&self) -> Result<(Vec<String>, Vec<String>)> {
        let Some(kept) = self.kept()? else {
            bail!(
                "{}: nothing to uninstall here ({} is not there)",
                self.prefix.display(),
                self.record().display()
            );
        };
        let (mut back, mut left) = (Vec::new(), Vec::new());
        for (name, text) in kept.links {
            match self.state(&name) {
                State::Ours(_) => back.push((name, text)),
                // Our own installation is gone: its dangling link is ours all the same.
                State::Unknown(_) if self.dangles(&name) => back.push((name, text)),
                _ => left.push(name),
            }
        }
        for (name, text) in &back {
            let target = self.prefix.join("lib").join(text);
            ensure!(
                target.is_file(),
                "{} led to {}, which is gone; restore it with conda (reinstall libblas), then try again",
                self.link(name).display(),
                target.display()
            );
        }
        // The last name first: the reverse of installing.
        for (name, text) in back.iter().rev() {
            self.point(name, text)?;
        }
        let record = self.record();
        fs::remove_file(&record).with_context(|| format!("cannot remove {}", record.display()))?;
        if let Some(folder) = record.parent() {
            // Only where nothing else is in it.
            let _ = fs::remove_dir(folder);
        }
        Ok((back.into_iter().map(|(name, _)| name).collect(), left))
    }

    fn dangles(&self, name: &str) -> bool {
        let link = self.link(name);
        link.is_symlink() && !link.exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder laid out as conda-forge's packages libblas, libcblas, liblapack, liblapacke and
    /// libopenblas lay it out, beside an installation of ours.
    struct Layout(PathBuf);

    const THEIRS: &str = "libopenblasp-r0.3.28.so";

    impl Layout {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir()
                .join(format!("gpu-offload-conda-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            for folder in ["env/lib", "env/conda-meta", "ours"] {
                fs::create_dir_all(dir.join(folder)).unwrap();
            }
            let this = Self(dir.canonicalize().unwrap());
            fs::write(this.lib(THEIRS), "openblas").unwrap();
            symlink(THEIRS, this.lib("libopenblas.so.0")).unwrap();
            for name in ["libblas", "libcblas", "liblapack", "liblapacke"] {
                symlink(THEIRS, this.lib(&format!("{name}.so.3"))).unwrap();
                symlink(format!("{name}.so.3"), this.lib(&format!("{name}.so"))).unwrap();
            }
            this.put_ours("ours");
            this
        }

        fn put_ours(&self, folder: &str) {
            fs::create_dir_all(self.0.join(folder)).unwrap();
            for file in [
                "libblas.so.3",
                "liblapack.so.3",
                "liblapacke.so.3",
                "libgpu_offload.so.0",
            ] {
                fs::write(self.0.join(folder).join(file), "ours").unwrap();
            }
        }

        fn lib(&self, name: &str) -> PathBuf {
            self.0.join("env/lib").join(name)
        }

        fn env(&self) -> Environment {
            Environment::new(&self.0.join("env")).unwrap()
        }

        fn install(&self) -> Result<Vec<&'static str>> {
            self.env().install(&self.0.join("ours"))
        }

        /// Every name of the environment, with what it is.
        fn listing(&self) -> Vec<(PathBuf, String)> {
            let (mut found, mut folders) = (Vec::new(), vec![self.0.join("env")]);
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    let what = match fs::read_link(&path) {
                        Ok(text) => format!("-> {}", text.display()),
                        Err(_) if path.is_dir() => {
                            folders.push(path.clone());
                            "folder".to_owned()
                        }
                        Err(_) => fs::read_to_string(&path).unwrap(),
                    };
                    found.push((path, what));
                }
            }
            found.sort();
            found
        }

        /// What `survey` says is wrong, link by link.
        fn troubles(&self) -> Vec<Option<String>> {
            let links = self.env().survey(&self.0.join("ours")).unwrap();
            links.into_iter().map(|link| link.trouble).collect()
        }

        fn is_ours(&self, name: &str) -> bool {
            matches!(self.env().state(name), State::Ours(_))
        }
    }

    impl Drop for Layout {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn names() -> [&'static str; 4] {
        LINKS.map(|(name, _)| name)
    }

    #[test]
    fn links_that_conda_has_made_anew_are_told_from_those_that_never_were_ours() {
        let layout = Layout::new("survey");
        let never = Some("serves heavy calls on the CPU".to_owned());
        assert_eq!(layout.troubles(), vec![never; 4]);
        layout.install().unwrap();
        assert_eq!(layout.troubles(), vec![None; 4]);
        // An update of libblas, and a removal.
        fs::remove_file(layout.lib("libblas.so.3")).unwrap();
        symlink(THEIRS, layout.lib("libblas.so.3")).unwrap();
        fs::remove_file(layout.lib("liblapacke.so.3")).unwrap();
        let troubles = layout.troubles();
        assert!(troubles[0].as_deref().unwrap().contains("linked anew"));
        assert!(troubles[3].as_deref().unwrap().contains("removed"));
        assert_eq!(troubles[1..3], [None, None]);
        layout.put_ours("elsewhere");
        let links = layout.env().survey(&layout.0.join("elsewhere")).unwrap();
        assert!(
            links[1]
                .trouble
                .as_deref()
                .unwrap()
                .contains("another installation")
        );
    }

    #[test]
    fn the_links_lead_to_us_and_back() {
        let layout = Layout::new("round");
        let before = layout.listing();
        assert_eq!(layout.install().unwrap(), names());
        for (name, library) in LINKS {
            let target = fs::read_link(layout.lib(name)).unwrap();
            assert_eq!(target, layout.0.join("ours").join(library));
        }
        // Again: nothing to do, nothing forgotten.
        assert!(layout.install().unwrap().is_empty());
        let (back, left) = layout.env().uninstall().unwrap();
        assert_eq!((back.len(), left.len()), (4, 0));
        let mut after = layout.listing();
        // The folder `share`, which every real environment has, is the one thing that stays.
        after.retain(|(path, _)| !path.ends_with("share"));
        assert_eq!(after, before);
        let error = layout.env().uninstall().unwrap_err().to_string();
        assert!(error.contains("nothing to uninstall"), "{error}");
    }

    #[test]
    fn what_is_not_recognised_stays_as_it_is() {
        let layout = Layout::new("refused");
        let link = layout.lib("liblapack.so.3");
        let elsewhere = layout.0.join("elsewhere.so");
        fs::write(&elsewhere, "").unwrap();
        let put: [(&str, &dyn Fn()); 3] = [
            ("a file, not a link", &|| fs::write(&link, "x").unwrap()),
            ("which is not there", &|| symlink("gone.so", &link).unwrap()),
            ("elsewhere.so", &|| symlink(&elsewhere, &link).unwrap()),
        ];
        for (says, put) in put {
            fs::remove_file(&link).unwrap();
            put();
            let before = layout.listing();
            let error = layout.install().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(layout.listing(), before);
        }
        fs::remove_dir(layout.0.join("env/conda-meta")).unwrap();
        let error = Environment::new(&layout.0.join("env")).err().unwrap();
        assert!(error.to_string().contains("not a conda environment"));
    }

    #[test]
    fn an_environment_with_our_conda_packages_is_left_to_conda() {
        let layout = Layout::new("packaged");
        layout.install().unwrap();
        // As conda does when the variant gpuoffload is chosen.
        layout.put_ours("env/lib/gpu-offload");
        for (name, library) in LINKS {
            fs::remove_file(layout.lib(name)).unwrap();
            symlink(Path::new("gpu-offload").join(library), layout.lib(name)).unwrap();
        }
        assert_eq!(layout.troubles(), vec![None; 4]);
        let before = layout.listing();
        let error = layout.install().unwrap_err().to_string();
        assert!(error.contains("conda packages of gpu-offload"), "{error}");
        assert_eq!(layout.listing(), before);
        // The record of the earlier installation goes, the links stay conda's.
        let (back, left) = layout.env().uninstall().unwrap();
        assert_eq!((back.len(), left.len()), (0, 4));
        assert!(names().iter().all(|name| layout.lib(name).exists()));
    }

    #[test]
    fn an_environment_without_lapacke_has_three_links() {
        let layout = Layout::new("three");
        fs::remove_file(layout.lib("liblapacke.so.3")).unwrap();
        assert_eq!(layout.install().unwrap(), names()[..3]);
        assert!(!layout.lib("liblapacke.so.3").exists());
        fs::remove_file(layout.lib("libblas.so.3")).unwrap();
        let error = layout.install().unwrap_err().to_string();
        assert!(error.contains("nothing in this environment"), "{error}");
    }

    #[test]
    fn an_update_of_the_environment_is_noticed_and_kept() {
        let layout = Layout::new("update");
        layout.install().unwrap();
        // conda replaces the links of a package that it updates.
        fs::write(layout.lib("libopenblasp-r0.3.30.so"), "new").unwrap();
        fs::remove_file(layout.lib(THEIRS)).unwrap();
        for name in ["libblas.so.3", "libcblas.so.3"] {
            fs::remove_file(layout.lib(name)).unwrap();
            symlink("libopenblasp-r0.3.30.so", layout.lib(name)).unwrap();
        }
        assert!(!layout.is_ours("libblas.so.3") && layout.is_ours("liblapack.so.3"));
        // liblapack's earlier library is gone: ours stays rather than none.
        let error = layout.env().uninstall().unwrap_err().to_string();
        assert!(error.contains("which is gone"), "{error}");
        assert!(layout.is_ours("liblapack.so.3"));
        for name in ["liblapack.so.3", "liblapacke.so.3"] {
            fs::remove_file(layout.lib(name)).unwrap();
            symlink("libopenblasp-r0.3.30.so", layout.lib(name)).unwrap();
        }
        assert_eq!(layout.install().unwrap(), names());
        layout.env().uninstall().unwrap();
        for name in names() {
            let text = fs::read_link(layout.lib(name)).unwrap();
            assert_eq!(text, Path::new("libopenblasp-r0.3.30.so"));
        }
        // Updated and not installed again: the links are left alone, the record goes.
        layout.install().unwrap();
        fs::remove_file(layout.lib("libblas.so.3")).unwrap();
        symlink("libopenblasp-r0.3.30.so", layout.lib("libblas.so.3")).unwrap();
        let (back, left) = layout.env().uninstall().unwrap();
        assert_eq!((back.len(), left), (3, vec!["libblas.so.3".to_owned()]));
    }

    #[test]
    fn an_interrupted_command_leaves_a_library_under_every_name() {
        let layout = Layout::new("half");
        for stop in 0..=LINKS.len() {
            // As after a kill: the record is written, some links are replaced, one is half made.
            let env = layout.env();
            let links = names().map(|name| (name.to_owned(), PathBuf::from(THEIRS)));
            env.keep(links.into()).unwrap();
            for (name, library) in &LINKS[..stop] {
                env.point(name, &layout.0.join("ours").join(library))
                    .unwrap();
            }
            symlink("x", layout.lib(".libblas.so.3.gpu-offload")).unwrap();
            assert!(names().iter().all(|name| layout.lib(name).exists()));
            if stop % 2 == 0 {
                assert_eq!(layout.install().unwrap().len(), LINKS.len() - stop);
            }
            layout.env().uninstall().unwrap();
            assert!(names().iter().all(|name| !layout.is_ours(name)));
            let _ = fs::remove_file(layout.lib(".libblas.so.3.gpu-offload"));
        }
    }

    #[test]
    fn another_installation_of_ours_takes_over() {
        let layout = Layout::new("moved");
        layout.install().unwrap();
        layout.put_ours("newer");
        let newer = layout.0.join("newer");
        assert_eq!(layout.env().install(&newer).unwrap().len(), 4);
        fs::remove_dir_all(&newer).unwrap();
        layout.put_ours("newest");
        let newest = layout.0.join("newest");
        assert_eq!(layout.env().install(&newest).unwrap().len(), 4);
        // The old installation, and then the new one, are deleted before anybody uninstalls.
        fs::remove_dir_all(layout.0.join("ours")).unwrap();
        fs::remove_dir_all(&newest).unwrap();
        assert_eq!(layout.env().uninstall().unwrap().0.len(), 4);
        assert!(names().iter().all(|name| layout.lib(name).exists()));
    }
}
