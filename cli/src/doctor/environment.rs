//! Whether the swaps in a Python environment and the links of a conda environment are whole.

use super::{Library, Report};
use crate::install::{Conda, Venv, WheelState};
use crate::prefix;
use anyhow::Result;
use std::path::{Path, PathBuf};

fn library(path: PathBuf, what: String) -> Library {
    Library {
        path,
        what,
        ..Library::default()
    }
}

/// The wheels of a Python environment.
pub fn venv(dir: &Path) -> Result<Report> {
    let mut report = Report::default();
    add_wheels(&mut report, &Venv::new(dir)?, dir)?;
    if report.libraries.is_empty() {
        report.advise(
            "no wheel here brings an OpenBLAS along; install numpy or scipy with pip".to_owned(),
        );
    }
    Ok(report)
}

fn add_wheels(report: &mut Report, environment: &Venv, dir: &Path) -> Result<()> {
    let found = environment.survey()?;
    let again = format!("gpu-offload install --venv {}", dir.display());
    for file in environment.replaced_since(&found)? {
        let file = file.display();
        report.advise(format!(
            "pip has replaced or removed {file} since it was swapped: {again}"
        ));
    }
    if found.is_empty() {
        return Ok(());
    }
    let engine = prefix::for_wheels()?.engine;
    for found in &found {
        let path = found.path();
        let (what, advice) = match &found.state {
            WheelState::Own { what, leftover } => {
                let more = if *leftover {
                    "; an earlier original lies beside it"
                } else {
                    ""
                };
                (format!("the wheel's own {what}{more}"), Some(again.clone()))
            }
            WheelState::Swapped {
                engine: its,
                version,
            } => {
                let advice = if its.is_file() {
                    (*its != engine || version != env!("CARGO_PKG_VERSION"))
                        .then(|| format!("it belongs to another installation: {again}"))
                } else {
                    Some(format!(
                        "its engine is gone, so that all calls run on the CPU: {again}"
                    ))
                };
                (
                    format!("gpu-offload {version}, engine {}", its.display()),
                    advice,
                )
            }
            WheelState::Broken(why) => (
                format!("broken: {why}"),
                Some("install its Python package again (pip install --force-reinstall)".to_owned()),
            ),
            WheelState::Orphan => (
                "missing; its kept original is still here".to_owned(),
                Some(format!("gpu-offload uninstall --venv {}", dir.display())),
            ),
            WheelState::Refused(why) => (format!("left alone: {why}"), None),
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if let Some(advice) = advice {
            report.advise(format!("{name}: {advice}"));
        }
        report.libraries.push(library(path, what));
    }
    Ok(())
}

/// The links of a conda environment, and the wheels that pip has put there, which do not follow the links.
pub fn conda(dir: &Path) -> Result<Report> {
    let environment = Conda::new(dir)?;
    let ours = prefix::library_dir()?;
    let again = format!("gpu-offload install --conda {}", dir.display());
    let mut report = Report::default();
    for link in environment.survey(&ours)? {
        if let Some(trouble) = link.trouble {
            let name = link.path.file_name().unwrap_or_default().to_string_lossy();
            report.advise(format!("{name} {trouble}: {again}"));
        }
        report.libraries.push(library(link.path, link.what));
    }
    // An environment without Python has none.
    if let Ok(python) = Venv::new(dir) {
        add_wheels(&mut report, &python, dir)?;
    }
    if report.libraries.is_empty() {
        report.advise(
            "nothing in this environment uses BLAS; install numpy or libblas into it".to_owned(),
        );
    }
    Ok(report)
}
