//! `cargo xtask exports`: the committed lists of exported names, `*/exports.txt`.
//!
//! A list is the union of the names that the distributions' own libraries export and of the public names
//! of the pinned OpenBLAS. These files are the one source: the linker scripts, the stub that liblapack is
//! linked to and the checks of the finished libraries are made from them.

use super::archive::{Halves, Symbols};
use crate::tools::workspace;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;

/// Names of Debian's reference libblas.so.3 (3.12) and of its OpenBLAS variant.
pub const BLAS: [&str; 2] = [
    include_str!("../../symbols/ref-libblas.so.3.txt"),
    include_str!("../../symbols/openblas-libblas.so.3.txt"),
];
/// The same of liblapack.so.3.
pub const LAPACK: [&str; 2] = [
    include_str!("../../symbols/ref-liblapack.so.3.txt"),
    include_str!("../../symbols/openblas-liblapack.so.3.txt"),
];
/// Names of Debian's liblapacke.so.3.
pub const LAPACKE: &str = include_str!("../../symbols/ref-liblapacke.so.3.txt");

/// All lists, for the key of the cache.
pub const LISTS: [&str; 5] = [BLAS[0], BLAS[1], LAPACK[0], LAPACK[1], LAPACKE];

/// Exported by Debian's OpenBLAS by oversight: a leftover that no program refers to.
const LEFTOVER: &str = "__xerbla";

/// Names of libblas.so.3 that the archive lacks and that `blas-shim/src/extra.rs` defines.
const WRITTEN: [&str; 26] = [
    "CBLAS_CallFromC",
    "RowMajorStrg",
    "cblas_dcabs1",
    "cblas_scabs1",
    "cdotcsub_",
    "cdotusub_",
    "dasumsub_",
    "dcabs1sub_",
    "ddotsub_",
    "dnrm2sub_",
    "dsdotsub_",
    "dzasumsub_",
    "dznrm2sub_",
    "icamaxsub_",
    "idamaxsub_",
    "isamaxsub_",
    "izamaxsub_",
    "sasumsub_",
    "scabs1sub_",
    "scasumsub_",
    "scnrm2sub_",
    "sdotsub_",
    "sdsdotsub_",
    "snrm2sub_",
    "zdotcsub_",
    "zdotusub_",
];

/// Names of liblapack.so.3 that only older releases had and that `lapack-shim/src/lamc.rs` defines.
const WRITTEN_LAPACK: [&str; 8] = [
    "dlamc1_", "dlamc2_", "dlamc4_", "dlamc5_", "slamc1_", "slamc2_", "slamc4_", "slamc5_",
];

/// OpenBLAS's control functions, as its cblas.h declares them and as Fortran spells them.
const CONTROL: [&str; 16] = [
    "goto_get_num_procs",
    "goto_set_num_threads",
    "openblas_get_config",
    "openblas_get_corename",
    "openblas_get_num_procs",
    "openblas_get_num_procs_",
    "openblas_get_num_threads",
    "openblas_get_num_threads_",
    "openblas_get_parallel",
    "openblas_get_parallel_",
    "openblas_getaffinity",
    "openblas_set_num_threads",
    "openblas_set_num_threads_",
    "openblas_set_num_threads_local",
    "openblas_set_threads_callback_function",
    "openblas_setaffinity",
];

/// LAPACK routines that OpenBLAS has fast ones of.
const OWN_KERNELS: [&str; 6] = ["gesv", "getrf", "getrs", "lauum", "potrf", "trtri"];

/// Options of `cargo xtask exports`.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail when a committed list is out of date
    #[arg(long)]
    pub check: bool,
}

/// Writes or checks the lists of both libraries.
pub fn run(args: &Args) -> Result<()> {
    let dir = super::prepare(&super::Args::default())?;
    let symbols = Symbols::read(&dir.join("lib/libopenblas.a"))?;
    let halves = Halves::of(&symbols);
    let lists = [
        ("blas-shim", blas(&symbols, &halves)),
        ("lapack-shim", lapack(&symbols, &halves)),
    ];
    for (folder, list) in lists {
        let path = workspace().join(folder).join("exports.txt");
        let text: String = list.iter().map(|name| format!("{name}\n")).collect();
        if args.check {
            let committed = fs::read_to_string(&path).unwrap_or_default();
            ensure!(
                committed == text,
                "{folder}/exports.txt is out of date: run `cargo xtask exports` and commit"
            );
        } else {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The names in some lists.
pub fn listed<'a>(lists: &[&'a str]) -> BTreeSet<&'a str> {
    lists
        .iter()
        .flat_map(|list| list.lines())
        .map(str::trim)
        .filter(|name| !name.is_empty() && *name != LEFTOVER)
        .collect()
}

fn blas(symbols: &Symbols, halves: &Halves) -> BTreeSet<String> {
    let lapack = halves.lapack_names(symbols);
    let public = symbols.names().filter(|name| {
        let spelled = name.ends_with('_') || name.starts_with("cblas_");
        let control = name.starts_with("openblas_") || name.starts_with("blas_");
        (spelled && !control && !lapack.contains(*name) && !halves.kernels.contains_key(*name))
            || CONTROL.contains(&name.as_str())
    });
    let lists = listed(&BLAS).into_iter().map(str::to_owned);
    lists.chain(public.cloned()).collect()
}

fn lapack(symbols: &Symbols, halves: &Halves) -> BTreeSet<String> {
    let mut names = halves.lapack_names(symbols);
    names.extend(listed(&LAPACK).into_iter().map(str::to_owned));
    names.extend(WRITTEN_LAPACK.map(str::to_owned));
    names.remove(LEFTOVER);
    names
}

/// Whether the archive has every name of the distributions' libraries.
pub fn check(symbols: &Symbols, halves: &Halves) -> Result<()> {
    let names = listed(&[BLAS[0], BLAS[1], LAPACK[0], LAPACK[1]]);
    let missing: Vec<&str> = names
        .into_iter()
        .filter(|name| !symbols.defines(name) && !WRITTEN.contains(name))
        .collect();
    ensure!(
        missing.is_empty(),
        "this OpenBLAS archive lacks {} names that programs expect, among them {:?}",
        missing.len(),
        &missing[..missing.len().min(8)]
    );
    has_own_kernels(halves)
}

/// Whether OpenBLAS's own LAPACK routines are in the archive: a build with another LAPACK than OpenBLAS's
/// copy puts the reference routines in their place.
fn has_own_kernels(halves: &Halves) -> Result<()> {
    let reference: Vec<String> = OWN_KERNELS
        .iter()
        .flat_map(|stem| ["s", "d", "c", "z"].map(|precision| format!("{precision}{stem}_")))
        .filter(|name| !halves.kernels.contains_key(name))
        .collect();
    ensure!(
        reference.is_empty(),
        "this archive holds reference LAPACK's {} instead of OpenBLAS's own",
        reference.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_routines_in_the_place_of_openblas_own_are_named() {
        let mut halves = Halves {
            lapack: BTreeSet::new(),
            kernels: Default::default(),
        };
        for stem in OWN_KERNELS {
            for precision in ["s", "d", "c", "z"] {
                let (name, member) = (
                    format!("{precision}{stem}_"),
                    format!("{precision}{stem}.o"),
                );
                halves.kernels.insert(name, member);
            }
        }
        has_own_kernels(&halves).unwrap();
        halves.kernels.remove("dgetrf_");
        let error = has_own_kernels(&halves).unwrap_err().to_string();
        assert!(error.contains("LAPACK's dgetrf_ instead"), "{error}");
    }
}
