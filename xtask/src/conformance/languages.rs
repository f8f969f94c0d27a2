//! Octave and R on the prefix, scored against Debian's OpenBLAS in the same run: what they print, what
//! Octave's own linear-algebra tests count (where fewer pass, against the archive without us), and R's results
//! at n = 2000 number by number.

use super::client_run::{Client, Ended};
use super::clients::{guest_clients, sources};
use super::debian::{self, Guests};
use super::report::{Findings, Row};
use super::{Setting, Tally, baseline};
use crate::tools::step;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// R's order of the matrices (case L7).
const R_ORDER: u32 = 2000;

/// How far R's results may be from the stock library's, relative to the largest entry (case L7).
const R_TOLERANCE: f64 = 1e-10;

/// Why fewer of Octave's tests may pass than on Debian's OpenBLAS. Some have tolerances of two roundings, which
/// another release of OpenBLAS misses, or the same one on another processor.
const ARCHIVES_OWN: &str =
    "passes no more on the same OpenBLAS archive without us, in the same run";

/// Both outputs of a program that loads the libraries and computes; must be the stock library's, byte
/// by byte (case F2).
fn silent(
    client: impl Fn(&[PathBuf]) -> Client,
    setting: &Setting,
    stock: &[PathBuf],
    what: &str,
) -> Result<Tally> {
    let ours = setting.routed(client(&setting.libraries())).run()?;
    let theirs = client(stock).run()?;
    let same = ours.success() && (&ours.stdout, &ours.stderr) == (&theirs.stdout, &theirs.stderr);
    if !same || theirs.stdout.is_empty() {
        println!("  {what} does not print what it prints on the stock library:");
        println!("  ours ({}): {}", ours.how(), ours.tail());
        println!("  stock ({}): {}", theirs.how(), theirs.tail());
    }
    let mut tally = Tally::default();
    tally.check(same && !theirs.stdout.is_empty());
    Ok(tally)
}

/// Lines `name number number …` as a map.
fn table(ended: &Ended, what: &str) -> Result<BTreeMap<String, Vec<f64>>> {
    if !ended.success() {
        bail!("{what} ended with {}:\n{}", ended.how(), ended.tail());
    }
    let mut table = BTreeMap::new();
    for line in ended.stdout.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let numbers: Option<Vec<f64>> = words.map(|w| w.parse().ok()).collect();
        if let Some(numbers) = numbers
            && !numbers.is_empty()
        {
            table.insert(name.to_owned(), numbers);
        }
    }
    if table.is_empty() {
        bail!("{what} printed no result:\n{}", ended.tail());
    }
    Ok(table)
}

/// What one file of Octave's tests shows.
#[derive(Debug, PartialEq)]
enum Verdict {
    Good,
    /// Fewer pass than on the stock library, and no more on the archive without us.
    Archives,
    Bad,
}

/// Judges numbers of passed and of all tests: ours, the stock library's, and those of the archive without us.
fn octave_verdict(got: [f64; 2], stock: [f64; 2], archive: [f64; 2]) -> Verdict {
    if got[1] < stock[1] {
        Verdict::Bad
    } else if got[0] >= stock[0] {
        Verdict::Good
    } else if archive[1] == got[1] && archive[0] <= got[0] {
        Verdict::Archives
    } else {
        Verdict::Bad
    }
}

/// Octave's tests: files and functions, each with the number of its passed and of all tests.
fn octave_tests(
    guests: &Guests,
    setting: &Setting,
    stock: &[PathBuf],
    findings: &mut Findings,
) -> Result<Tally> {
    let run = |libraries: &[PathBuf]| {
        guests
            .octave(libraries)
            .env("OPENBLAS_NUM_THREADS", "1")
            .arg(sources().join("octave_tests.m"))
    };
    let progress = step("Octave's linear-algebra tests");
    let ours = setting.routed(run(&setting.libraries())).run()?;
    let theirs = run(stock).run()?;
    let archive = run(&[baseline()?]).run()?;
    progress.finish_and_clear();
    let (ours, theirs, archive) = (
        table(&ours, "Octave's tests on the prefix")?,
        table(&theirs, "Octave's tests on the stock library")?,
        table(&archive, "Octave's tests on the archive without us")?,
    );
    let passed = |t: &BTreeMap<String, Vec<f64>>| t.values().map(|n| n[0]).sum::<f64>();
    let all = |t: &BTreeMap<String, Vec<f64>>| t.values().map(|n| n[1]).sum::<f64>();
    let mut tally = Tally::default();
    for (name, stock) in &theirs {
        let counts = |t: &BTreeMap<String, Vec<f64>>| {
            let counts = t.get(name).map_or(&[0.0, 0.0][..], Vec::as_slice);
            [counts[0], counts[1]]
        };
        let (got, stock, archive) = (counts(&ours), [stock[0], stock[1]], counts(&archive));
        tally.passed += got[0] as u64;
        match octave_verdict(got, stock, archive) {
            Verdict::Good => {}
            Verdict::Archives => {
                let what = format!("Octave's {name}: {} fewer", stock[0] - got[0]);
                findings.exception(&what, ARCHIVES_OWN);
            }
            Verdict::Bad => {
                println!(
                    "  Octave, {name}: {got:?} passed and run, on the stock library {stock:?}, on the archive \
                     without us {archive:?}"
                );
                tally.failed += 1;
            }
        }
    }
    println!(
        "Octave: {} of {} tests passed, stock library {} of {}, the archive without us {} of {}",
        passed(&ours),
        all(&ours),
        passed(&theirs),
        all(&theirs),
        passed(&archive),
        all(&archive)
    );
    findings.row(Row {
        suite: format!("Octave's linear-algebra tests ({} files)", theirs.len()),
        ours: format!("{} of {} passed", passed(&ours), all(&ours)),
        stock: format!(
            "{} of {} passed (Debian's OpenBLAS); {} of {} (the same OpenBLAS archive without us)",
            passed(&theirs),
            all(&theirs),
            passed(&archive),
            all(&archive)
        ),
    });
    Ok(tally)
}

/// The largest difference of two vectors, relative to the largest entry of the second.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let size = b.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let apart = |(x, y): (&f64, &f64)| {
        let d = (x - y).abs();
        // f64::max would drop a NaN.
        if d.is_nan() { f64::INFINITY } else { d }
    };
    let most = a.iter().zip(b).map(apart).fold(0.0, f64::max);
    most / size
}

/// R's linear algebra at n = 2000, number by number.
fn r_results(
    guests: &Guests,
    setting: &Setting,
    stock: &[PathBuf],
    findings: &mut Findings,
) -> Result<Tally> {
    let run = |libraries: &[PathBuf]| {
        guests
            .rscript(libraries)
            .arg(sources().join("compare.R"))
            .arg(R_ORDER.to_string())
    };
    let progress = step("R at n = 2000");
    let ours = setting.routed(run(&setting.libraries())).run()?;
    let theirs = run(stock).run()?;
    progress.finish_and_clear();
    let (ours, theirs) = (
        table(&ours, "compare.R on the prefix")?,
        table(&theirs, "compare.R on the stock library")?,
    );
    let mut tally = Tally::default();
    let mut worst = 0.0;
    for (name, stock) in &theirs {
        let apart = difference(ours.get(name).map_or(&[], Vec::as_slice), stock);
        let close = apart <= R_TOLERANCE;
        if !close {
            println!("  R, {name}: {apart:.2e} from the stock library");
        }
        worst = f64::max(worst, apart);
        tally.check(close);
    }
    println!(
        "R: {} results, at most {worst:.1e} from the stock library",
        theirs.len()
    );
    findings.row(Row {
        suite: format!("R at n = {R_ORDER}: {} results", theirs.len()),
        ours: format!("at most {worst:.1e} from stock, relative"),
        stock: format!("{R_TOLERANCE:.0e} is allowed"),
    });
    Ok(tally)
}

/// Runs both languages.
pub fn run(setting: &Setting, guests: &Guests, findings: &mut Findings) -> Result<Tally> {
    let stock = [debian::openblas()?];
    let mut tally = guest_clients(guests, &setting.libraries(), |c| setting.routed(c), "")?;
    findings.row(Row {
        suite: "Octave, R and SciPy clients: residuals".to_owned(),
        ours: tally.to_string(),
        stock: "LAPACK's own bound, 30 n eps".to_owned(),
    });
    let octave = |libraries: &[PathBuf]| {
        // Numbers that do not depend on the order of sums.
        let program = "x = [4 1; 1 3] \\ [1; 2]\n[u, s, v] = svd(magic(3)); disp(diag(s)')";
        guests.octave(libraries).args(["--eval", program])
    };
    tally += silent(octave, setting, &stock, "Octave")?;
    let r = |libraries: &[PathBuf]| {
        let program = "print(solve(matrix(c(4, 1, 1, 3), 2), 1:2)); print(svd(diag(3))$d)";
        guests.rscript(libraries).args(["-e", program])
    };
    tally += silent(r, setting, &stock, "R")?;
    tally += octave_tests(guests, setting, &stock, findings)?;
    tally += r_results(guests, setting, &stock, findings)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::{Verdict, difference, octave_verdict};

    #[test]
    fn fewer_passed_tests_are_excused_by_the_archive_alone() {
        let verdict = |got, archive| octave_verdict(got, [69.0, 69.0], archive);
        let [whole, fewer, fewest] = [69.0, 68.0, 67.0].map(|passed| [passed, 69.0]);
        assert_eq!(verdict(whole, fewer), Verdict::Good);
        assert_eq!(verdict(fewer, fewer), Verdict::Archives);
        assert_eq!(verdict(fewest, fewer), Verdict::Bad);
        assert_eq!(verdict(fewer, whole), Verdict::Bad);
        // Tests that did not run at all, on either.
        assert_eq!(verdict([60.0, 60.0], [60.0, 60.0]), Verdict::Bad);
        assert_eq!(verdict(fewer, [0.0, 0.0]), Verdict::Bad);
    }

    #[test]
    fn a_nan_or_a_missing_number_is_a_difference() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(difference(&[1.0, 3.0], &[1.0, 2.0]), 0.5);
        assert!(difference(&[1.0], &[1.0, 2.0]).is_infinite());
        assert!(difference(&[f64::NAN, 2.0], &[1.0, 2.0]).is_infinite());
    }
}
