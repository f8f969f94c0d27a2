//! Splits the static OpenBLAS into what goes into libblas.so.3 and what goes into liblapack.so.3.
//!
//! - The LAPACK half is reference LAPACK: members that need nothing of OpenBLAS's internals.
//! - The BLAS half is everything else, OpenBLAS's own LAPACK kernels included.
//!
//! A symbol is renamed in the member that defines it, and only there: references keep the public name, so
//! that they reach our entry or the program's own definition.

use super::{binutil, exports, with_step};
use crate::tools::{bar, quiet};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::rc::Rc;

/// Prefix of the routines that have an entry of ours in front of them.
pub const CPU_PREFIX: &str = "gpu_offload_cpu_";
/// Prefix of the LAPACK kernels that libblas.so.3 lends to liblapack.so.3; `v1` is the version of that
/// agreement.
pub const KERNEL_PREFIX: &str = "gpu_offload_v1_";
/// Prefix of the names that the LAPACK half gets from lapack-shim's own code.
pub const PRIVATE_PREFIX: &str = "gpu_offload_private_";

/// Routines that are renamed as the routed ones are, since `blas-shim/src/batch.rs` stands before them.
const REPLACED: [&str; 4] = [
    "cblas_cgemm_batch",
    "cblas_dgemm_batch",
    "cblas_sgemm_batch",
    "cblas_zgemm_batch",
];

/// Members that both libraries hold, as the reference libraries do; a program's own definition, or else the
/// first library's, serves both.
const SHARED: [&str; 3] = ["lsame_", "xerbla_", "xerbla_array_"];

/// Recent BLAS routines that reference LAPACK calls but that an older libblas.so.3 lacks.
const RECENT_BLAS: [&str; 4] = ["cgemmtr_", "dgemmtr_", "sgemmtr_", "zgemmtr_"];

/// What the LAPACK half needs of libgfortran; lapack-shim has its own.
const FORTRAN_RUNTIME: [(&str, &str); 2] = [
    ("_gfortran_concat_string", "concat_string"),
    ("_gfortran_etime", "etime"),
];

/// Functions of a newer glibc, and the older one that does the same for OpenBLAS (it reads decimal numbers
/// from its variables; the newer function only adds binary ones).
const GLIBC: [(&str, &str); 1] = [("__isoc23_strtol", "strtol")];

/// What `nm` says of one archive.
#[derive(Default)]
pub struct Symbols {
    /// Global definitions of each member.
    defined: BTreeMap<String, BTreeSet<String>>,
    /// Undefined names of each member.
    needed: BTreeMap<String, BTreeSet<String>>,
    /// The member that defines a name.
    definer: BTreeMap<String, String>,
}

impl Symbols {
    /// Reads an archive with `nm`.
    pub fn read(archive: &Path) -> Result<Self> {
        let text = quiet(binutil("nm").args(["-A", "-g"]).arg(archive))?;
        let mut symbols = Self::default();
        for line in text.lines() {
            // "…/libopenblas.a:dgemm.o:0000000000000000 T dgemm_"
            let mut words = line.rsplitn(3, ' ');
            let (Some(name), Some(kind), Some(rest)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(member) = rest.trim_end().rsplit(':').nth(1) else {
                continue;
            };
            if matches!(kind, "U" | "w" | "v") {
                symbols
                    .needed
                    .entry(member.to_owned())
                    .or_default()
                    .insert(name.to_owned());
            } else {
                symbols
                    .defined
                    .entry(member.to_owned())
                    .or_default()
                    .insert(name.to_owned());
                symbols.definer.insert(name.to_owned(), member.to_owned());
            }
        }
        ensure!(
            !symbols.definer.is_empty(),
            "{} defines nothing",
            archive.display()
        );
        Ok(symbols)
    }

    fn needs(&self, member: &str) -> impl Iterator<Item = &String> {
        self.needed.get(member).into_iter().flatten()
    }

    /// Whether the archive defines `name`.
    pub fn defines(&self, name: &str) -> bool {
        self.definer.contains_key(name)
    }

    /// Every name that the archive defines.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.definer.keys()
    }
}

/// Which member goes where.
pub struct Halves {
    /// Members of reference LAPACK.
    pub lapack: BTreeSet<String>,
    /// Names of OpenBLAS's own LAPACK kernels, with the member of each.
    pub kernels: BTreeMap<String, String>,
}

impl Halves {
    /// Divides the archive: a member is reference LAPACK if it defines LAPACK names and needs only LAPACK,
    /// BLAS and the C library.
    pub fn of(symbols: &Symbols) -> Self {
        let blas = exports::listed(&exports::BLAS);
        let mut lapack_names = exports::listed(&exports::LAPACK);
        // LAPACK routines that are newer than the lists: a Fortran name alone in a member of that name.
        let recent: BTreeSet<&str> = symbols
            .defined
            .iter()
            .filter_map(|(member, names)| {
                let stem = member.strip_suffix(".o")?;
                let name = names.first()?.as_str();
                let alone = names.len() == 1 && name.strip_suffix('_') == Some(stem);
                let control = name.starts_with("openblas_") || name.starts_with("blas_");
                (alone && !control && !blas.contains(name) && !lapack_names.contains(name))
                    .then_some(name)
            })
            .collect();
        let internal = |name: &str, lapack: &BTreeSet<&str>| {
            symbols.defines(name)
                && !blas.contains(name)
                && !lapack.contains(name)
                && !RECENT_BLAS.contains(&name)
        };
        // A newer routine may call others: take all, then drop those that need internals until none does.
        let mut accepted = recent;
        loop {
            let all: BTreeSet<&str> = lapack_names.union(&accepted).copied().collect();
            let kept: BTreeSet<&str> = accepted
                .iter()
                .copied()
                .filter(|name| {
                    !RECENT_BLAS.contains(name)
                        && symbols
                            .needs(&symbols.definer[*name])
                            .all(|needed| !internal(needed, &all))
                })
                .collect();
            if kept == accepted {
                break;
            }
            accepted = kept;
        }
        lapack_names.extend(accepted);

        let (mut lapack, mut kernels) = (BTreeSet::new(), BTreeMap::new());
        for name in &lapack_names {
            let Some(member) = symbols.definer.get(*name) else {
                continue;
            };
            if symbols
                .needs(member)
                .any(|needed| internal(needed, &lapack_names))
            {
                kernels.insert((*name).to_owned(), member.clone());
            } else {
                lapack.insert(member.clone());
            }
        }
        Self { lapack, kernels }
    }

    /// The LAPACK names that the LAPACK half defines.
    pub fn lapack_names(&self, symbols: &Symbols) -> BTreeSet<String> {
        self.lapack
            .iter()
            .flat_map(|member| &symbols.defined[member])
            .cloned()
            .collect()
    }
}

/// Makes the two halves in `lib` from `lib/libopenblas.a`, and their lists in `names`.
pub fn split(lib: &Path, names: &Path, scratch: &Path) -> Result<()> {
    let archive = lib.join("libopenblas.a");
    let symbols = with_step("Reading OpenBLAS's symbols", || Symbols::read(&archive))?;
    let halves = Halves::of(&symbols);
    exports::check(&symbols, &halves)?;
    let mut whole = with_step("Reading OpenBLAS's objects", || Objects::read(&archive))?;
    let objects = scratch.join("objects");
    fs::create_dir_all(&objects)?;

    let is_shared = |member: &str| {
        let names = symbols.defined.get(member);
        names.is_some_and(|names| SHARED.iter().any(|name| names.contains(*name)))
    };
    let blas_plan = blas_renames(&symbols, &halves, &is_shared)?;
    let lapack_plan = lapack_renames(&symbols, &halves)?;
    // The whole archive gets the older glibc name too, or nothing could be linked to it on Debian 12.
    let mut whole_plan = Plan::new();
    for (member, needed) in &symbols.needed {
        for (new, old) in GLIBC {
            if needed.contains(new) {
                let rename = (new.to_owned(), old.to_owned());
                whole_plan.entry(member.clone()).or_default().push(rename);
            }
        }
    }

    let mut blas = whole.select(|member| !halves.lapack.contains(member) || is_shared(member));
    let mut lapack = whole.select(|member| halves.lapack.contains(member));
    let progress = bar(
        "Renaming",
        (blas_plan.len() + lapack_plan.len() + whole_plan.len()) as u64,
    );
    for (plan, target) in [
        (blas_plan, &mut blas),
        (lapack_plan, &mut lapack),
        (whole_plan, &mut whole),
    ] {
        for (member, renames) in plan {
            target.rename(&member, &renames, &objects)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    for (member, names) in &symbols.defined {
        if names.contains(DESTRUCTOR) {
            blas.take_destructor(member, &objects)?;
        }
        if names.contains(TIMEOUT.0) {
            blas.lend_timeout(member, &objects)?;
        }
    }
    with_step("Writing the archives", || {
        blas.write(&lib.join("libgpu_offload_blas.a"))?;
        lapack.write(&lib.join("libgpu_offload_lapack.a"))?;
        whole.write(&archive)
    })?;

    let write = |file: &str, list: &mut dyn Iterator<Item = &str>| -> Result<()> {
        let text: String = list.map(|name| format!("{name}\n")).collect();
        fs::write(names.join(file), text).with_context(|| format!("cannot write names/{file}"))
    };
    write(
        "routed.txt",
        &mut routines::routed_symbols().iter().map(String::as_str),
    )?;
    write(
        "kernels.txt",
        &mut halves.kernels.keys().map(String::as_str),
    )?;
    write("replaced.txt", &mut REPLACED.into_iter())?;
    write("recent-blas.txt", &mut RECENT_BLAS.into_iter())?;
    for scrap in ["objects", "apt", "unpacked", "installed"] {
        let _ = fs::remove_dir_all(scratch.join(scrap));
    }
    Ok(())
}

/// The members of an archive, in memory: sixteen thousand files on disk would take most of the time.
struct Objects(BTreeMap<String, Rc<[u8]>>);

impl Objects {
    fn read(path: &Path) -> Result<Self> {
        let file =
            fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut archive = ar::Archive::new(std::io::BufReader::new(file));
        let mut members = BTreeMap::new();
        while let Some(entry) = archive.next_entry() {
            let mut entry = entry.with_context(|| format!("{} is damaged", path.display()))?;
            let name = String::from_utf8_lossy(entry.header().identifier()).into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            let double = members.insert(name, bytes.into()).is_some();
            ensure!(!double, "{} holds two members of one name", path.display());
        }
        Ok(Self(members))
    }

    /// The members that are wanted; the bytes are shared.
    fn select(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let members = self.0.iter().filter(|(name, _)| wanted(name));
        Self(
            members
                .map(|(name, bytes)| (name.clone(), Rc::clone(bytes)))
                .collect(),
        )
    }

    /// Sends one member through objcopy, by a file in `scratch`; returns its bytes before and after.
    fn objcopy(
        &mut self,
        member: &str,
        arguments: &[String],
        scratch: &Path,
    ) -> Result<(usize, usize)> {
        let bytes = self
            .0
            .get_mut(member)
            .with_context(|| format!("no member {member}"))?;
        let path = scratch.join("member.o");
        fs::write(&path, &**bytes)?;
        quiet(binutil("objcopy").args(arguments).arg(&path))
            .with_context(|| format!("cannot change {member}"))?;
        let before = bytes.len();
        *bytes = fs::read(&path)?.into();
        Ok((before, bytes.len()))
    }

    /// Renames symbols in one member.
    fn rename(&mut self, member: &str, renames: &[(String, String)], scratch: &Path) -> Result<()> {
        let redefine = |(from, to): &(String, String)| format!("--redefine-sym={from}={to}");
        let arguments: Vec<String> = renames.iter().map(redefine).collect();
        self.objcopy(member, &arguments, scratch).map(drop)
    }

    /// Keeps a member from registering its destructor; `blas-shim` calls it when it is right to.
    fn take_destructor(&mut self, member: &str, scratch: &Path) -> Result<()> {
        let sections = [".fini_array", ".rela.fini_array"];
        let arguments = sections.map(|section| format!("--remove-section={section}"));
        let (before, after) = self.objcopy(member, &arguments, scratch)?;
        ensure!(
            after < before,
            "{member} registers no destructor where it was expected"
        );
        Ok(())
    }

    /// Makes a member's `thread_timeout` reachable for `blas-shim`.
    fn lend_timeout(&mut self, member: &str, scratch: &Path) -> Result<()> {
        let (name, ours) = (TIMEOUT.1, format!("{PRIVATE_PREFIX}{}", TIMEOUT.1));
        let arguments = [
            format!("--redefine-sym={name}={ours}"),
            // By its new name: objcopy looks after it has renamed.
            format!("--globalize-symbol={ours}"),
        ];
        self.objcopy(member, &arguments, scratch)?;
        let symbols = quiet(binutil("nm").arg("-g").arg(scratch.join("member.o")))?;
        ensure!(
            symbols
                .lines()
                .any(|line| line.ends_with(&format!(" D {ours}"))),
            "{member} has no {name}: its threads are not OpenBLAS's own"
        );
        Ok(())
    }

    fn write(&self, path: &Path) -> Result<()> {
        let identifiers = self
            .0
            .keys()
            .map(|name| name.clone().into_bytes())
            .collect();
        let file =
            fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut builder = ar::GnuBuilder::new(std::io::BufWriter::new(file), identifiers);
        for (name, bytes) in &self.0 {
            let header = ar::Header::new(name.clone().into_bytes(), bytes.len() as u64);
            builder.append(&header, &**bytes)?;
        }
        builder.into_inner()?.flush()?;
        // The table of symbols; -D: no dates, so that equal input gives equal archives.
        quiet(binutil("ranlib").arg("-D").arg(path))?;
        Ok(())
    }
}

/// OpenBLAS's destructor: it joins the worker threads and unmaps the buffers. With a call in flight on
/// another thread it hangs or takes the buffers away from it (OpenBLAS 0.3.29 alone hung at exit in 10 of
/// 10 runs, 2 cores, 2026-12-01).
const DESTRUCTOR: &str = "gotoblas_quit";

/// How long an idle worker thread of OpenBLAS looks for work before it sleeps, in cycles: a variable of the member
/// that defines `blas_thread_init`, read at each look. `blas-shim/src/rest.rs` shortens it during a call on the GPU.
const TIMEOUT: (&str, &str) = ("blas_thread_init", "thread_timeout");

/// What is renamed in each member.
type Plan = BTreeMap<String, Vec<(String, String)>>;

fn blas_renames(
    symbols: &Symbols,
    halves: &Halves,
    is_shared: &impl Fn(&str) -> bool,
) -> Result<Plan> {
    let mut plan = Plan::new();
    let mut rename = |member: &str, from: &str, to: String| {
        plan.entry(member.to_owned())
            .or_default()
            .push((from.to_owned(), to));
    };
    let replaced = REPLACED.map(str::to_owned);
    for name in routines::routed_symbols().into_iter().chain(replaced) {
        if halves.kernels.contains_key(&name) {
            continue;
        }
        let member = symbols
            .definer
            .get(&name)
            .with_context(|| format!("the archive does not define {name}"))?;
        if !halves.lapack.contains(member) {
            rename(member, &name, format!("{CPU_PREFIX}{name}"));
        }
    }
    for (name, member) in &halves.kernels {
        rename(member, name, format!("{KERNEL_PREFIX}{name}"));
    }
    for (member, needed) in &symbols.needed {
        if halves.lapack.contains(member) && !is_shared(member) {
            continue;
        }
        for name in needed {
            // A kernel's public name is liblapack's: nothing in libblas may need it.
            ensure!(
                halves
                    .kernels
                    .get(name)
                    .is_none_or(|definer| definer == member),
                "{member} of the BLAS half calls {name}, which liblapack.so.3 defines"
            );
            if let Some((_, old)) = GLIBC.iter().find(|(new, _)| new == name) {
                rename(member, name, (*old).to_owned());
            }
        }
    }
    Ok(plan)
}

fn lapack_renames(symbols: &Symbols, halves: &Halves) -> Result<Plan> {
    let private = |name: &str| -> Option<String> {
        let runtime = FORTRAN_RUNTIME.iter().find(|(theirs, _)| *theirs == name);
        let recent = RECENT_BLAS.contains(&name).then_some(name);
        let suffix = runtime.map(|(_, ours)| *ours).or(recent)?;
        Some(format!("{PRIVATE_PREFIX}{suffix}"))
    };
    let mut plan = Plan::new();
    for name in routines::routed_symbols() {
        // The stubs in front of OpenBLAS's own kernels stand before lapack-shim's forwarders.
        let member = symbols.definer.get(&name);
        if let Some(member) = member.filter(|member| halves.lapack.contains(*member)) {
            let rename = (name.clone(), format!("{CPU_PREFIX}{name}"));
            plan.entry(member.clone()).or_default().push(rename);
        }
    }
    for member in &halves.lapack {
        for name in symbols.needs(member) {
            let private = private(name);
            ensure!(
                !name.starts_with("_gfortran_") || private.is_some(),
                "{member} needs {name} of libgfortran, for which lapack-shim has no replacement"
            );
            if let Some(private) = private {
                plan.entry(member.clone())
                    .or_default()
                    .push((name.clone(), private));
            }
        }
    }
    Ok(plan)
}
