//! Tables and plots of LAPACK's drivers on a machine with a GPU, beside the wheel's library and cuSOLVER. The measuring
//! is tests/gpu/lapack.py, on a kit that needs no Rust; this file starts it where there is a GPU and draws what it wrote.

use super::drawn::{Args, measured, numbers, rows, svg, table_head};
use anyhow::{Context, Result, ensure};
use plotters::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Columns: key in the results, heading.
const COLUMNS: [(&str, &str); 5] = [
    ("ours_ms", "ours, forced"),
    ("wheel_ms", "SciPy's wheel"),
    ("cpu_ms", "our CPU path"),
    ("naive_ms", "copy, cuSOLVER, copy"),
    ("kernel_ms", "cuSOLVER alone"),
];

/// The SVD by the other one of cuSOLVER's two ways.
const BY_QR: [(&str, &str); 2] = [
    ("naive_qr_ms", "copy, Xgesvd, copy"),
    ("kernel_qr_ms", "Xgesvd alone"),
];

/// Whose accuracy is told: key, heading.
const JUDGED: [(&str, &str); 3] = [
    ("ours_accuracy", "ours"),
    ("wheel_accuracy", "wheel"),
    ("naive_accuracy", "cuSOLVER"),
];

/// The columns that a program could have instead of ours, and where their accuracy stands.
const PEERS: [(&str, &str); 4] = [
    ("wheel_ms", "wheel_accuracy"),
    ("cpu_ms", "cpu_accuracy"),
    ("naive_ms", "naive_accuracy"),
    ("naive_qr_ms", "naive_qr_accuracy"),
];

/// What LAPACK's own tests accept, in n eps: who is worse is no peer.
const BOUND: f64 = 30.0;

/// One measured case.
struct Row {
    routine: String,
    kind: String,
    n: u64,
    ms: BTreeMap<&'static str, f64>,
    /// By key of [`JUDGED`] (and of Xgesvd): what was judged, and the figure.
    accuracy: BTreeMap<&'static str, Vec<(String, f64)>>,
}

impl Row {
    /// Of those whose results are as right as LAPACK's.
    fn best_peer_ms(&self) -> Option<f64> {
        let is_right = |judged: &&str| {
            let figures = self.accuracy.get(judged);
            figures.is_some_and(|all| all.iter().all(|(_, figure)| *figure <= BOUND))
        };
        let peers = PEERS.iter().filter(|(_, judged)| is_right(judged));
        let times = peers.filter_map(|(key, _)| self.ms.get(key).copied());
        times.reduce(f64::min)
    }
}

/// Measures (or reads), and writes `lapack-times.md` and an SVG for each size.
pub fn run(args: &Args) -> Result<()> {
    let results = args.results("lapack.py", "lapack.json")?;
    let rows = rows(&results, row)?;
    ensure!(!rows.is_empty(), "no rows");
    let out = args.folder()?;
    let mut plots = Vec::new();
    for n in rows.iter().map(|row| row.n).collect::<BTreeSet<_>>() {
        let name = format!("lapack-{n}.svg");
        plot(&out.join(&name), n, &rows)?;
        plots.push((n, name));
    }
    let page = page(&results["machine"], &rows, &plots);
    let file = out.join("lapack-times.md");
    std::fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{} cases drawn in {}", rows.len(), file.display());
    Ok(())
}

/// A row of the results; `None` where it lacks a field.
fn row(row: &Value) -> Option<Row> {
    let judged = JUDGED.iter().map(|(key, _)| *key);
    let judged = judged.chain(["cpu_accuracy", "naive_qr_accuracy"]);
    Some(Row {
        routine: row["routine"].as_str()?.to_owned(),
        kind: row["kind"].as_str()?.to_owned(),
        n: row["n"].as_u64()?,
        ms: numbers(row, COLUMNS.iter().chain(&BY_QR).map(|(key, _)| *key)),
        accuracy: judged
            .filter_map(|key| Some((key, figures(&row[key])?)))
            .collect(),
    })
}

/// What was judged, with its figure; NaN where JSON has none.
fn figures(accuracy: &Value) -> Option<Vec<(String, f64)>> {
    let found = accuracy.as_object()?.iter();
    let figure =
        |(what, figure): (&String, &Value)| (what.clone(), figure.as_f64().unwrap_or(f64::NAN));
    Some(found.map(figure).collect())
}

/// Groups of bars on a logarithmic axis, one below the other: a group a case, a bar a column.
fn plot(file: &Path, n: u64, rows: &[Row]) -> Result<()> {
    // The first case at the top.
    let chosen: Vec<&Row> = rows.iter().filter(|row| row.n == n).rev().collect();
    let all = || chosen.iter().flat_map(|row| row.ms.values().copied());
    let (least, most) = (
        all().fold(f64::INFINITY, f64::min),
        all().fold(0.0, f64::max),
    );
    ensure!(most > 0.0, "nothing was measured at n = {n}");
    let (low, high) = (least * 0.7, most * 1.4);
    let groups = i32::try_from(chosen.len())?;
    let height = u32::try_from(100 + 48 * groups)?;
    let name = |group: &i32| {
        let row = usize::try_from(*group).ok().and_then(|i| chosen.get(i));
        row.map_or_else(String::new, |row| format!("{} {}", row.routine, row.kind))
    };
    svg(file, (980, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(
                format!("LAPACK, n = {n}, ordinary memory"),
                ("sans-serif", 20),
            )
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(190)
            .build_cartesian_2d((low..high).log_scale(), (0..groups - 1).into_segmented())?
            .set_secondary_coord((low..high).log_scale(), 0.0..f64::from(groups));
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_desc("ms")
            .y_labels(chosen.len())
            .y_label_formatter(&|at| match at {
                SegmentValue::CenterOf(group) | SegmentValue::Exact(group) => name(group),
                SegmentValue::Last => String::new(),
            })
            .draw()?;
        let width = 0.8 / COLUMNS.len() as f64;
        for (index, (key, heading)) in COLUMNS.iter().enumerate() {
            let colour = Palette99::pick(index).mix(1.0);
            let bars = chosen.iter().enumerate().filter_map(|(group, row)| {
                let top = (group + 1) as f64 - 0.1 - index as f64 * width;
                let corners = [(low, top - width), (*row.ms.get(key)?, top)];
                Some(Rectangle::new(corners, colour.filled()))
            });
            chart
                .draw_secondary_series(bars)?
                .label(*heading)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        Ok(())
    })
}

/// "residual 0.05, orthogonality 0.4".
fn told(figures: &[(String, f64)]) -> String {
    let one = |(what, figure): &(String, f64)| format!("{what} {}", rounded(*figure));
    figures.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Two digits that count.
fn rounded(figure: f64) -> String {
    match figure {
        f if !f.is_finite() => "not a number".to_owned(),
        f if f >= 1e4 => format!("{f:.1e}"),
        f if f >= 10.0 => format!("{f:.0}"),
        f if f >= 1.0 => format!("{f:.1}"),
        f => format!("{f:.2}"),
    }
}

fn page(machine: &Value, rows: &[Row], plots: &[(u64, String)]) -> String {
    let mut out = format!(
        "# LAPACK on the GPU, with the copies\n\n\
         Drawn by `cargo xtask bench lapack`; do not edit. {} Best times in ms; data in ordinary `malloc` memory; the \
         process is warmed up. Graded matrices have singular values from 1 to 1e-14. \"copy, cuSOLVER, copy\" is a first \
         port whose device memory is allocated before the clock starts; of the SVD it is Xgesvdp, cuSOLVER's fastest. An \
         empty cell was not measured, or cuSOLVER has no such routine. The last column leaves out peers whose results are \
         wrong (below).\n\n",
        measured(machine, "lapack.py"),
    );
    let ms = |row: &Row, key: &str| {
        row.ms
            .get(key)
            .map_or_else(String::new, |ms| format!("{ms:.1}"))
    };
    let case = ["call", "n"];
    let columns = COLUMNS.map(|(_, heading)| heading);
    let headings = case.into_iter().chain(columns);
    out.push_str(&table_head(headings.chain(["best peer over ours"])));
    for row in rows {
        let _ = write!(out, "| {} {} | {} |", row.routine, row.kind, row.n);
        for (key, _) in COLUMNS {
            let _ = write!(out, " {} |", ms(row, key));
        }
        let ratio = row.best_peer_ms().zip(row.ms.get("ours_ms"));
        let ratio = ratio.map_or_else(String::new, |(peer, ours)| format!("{:.2}", peer / ours));
        let _ = writeln!(out, " {ratio} |");
    }
    out.push_str(
        "\n## How right they are\n\nIn units of n eps, of which LAPACK's own tests accept 30: the residual of the \
         defining identity on a vector, the loss of orthogonality, and the largest error of a singular value that is \
         known, relative to the largest one.\n\n",
    );
    let columns = JUDGED.map(|(_, heading)| heading);
    out.push_str(&table_head(case.into_iter().chain(columns)));
    for row in rows {
        let _ = write!(out, "| {} {} | {} |", row.routine, row.kind, row.n);
        for (key, _) in JUDGED {
            let cell = row.accuracy.get(key).map_or_else(String::new, |f| told(f));
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    let by_qr: Vec<&Row> = rows
        .iter()
        .filter(|row| row.ms.contains_key(BY_QR[0].0))
        .collect();
    if !by_qr.is_empty() {
        out.push_str("\n## The SVD by Xgesvd\n\n");
        let columns = BY_QR.map(|(_, heading)| heading);
        let headings = case.into_iter().chain(columns);
        out.push_str(&table_head(headings.chain(["accuracy"])));
        for row in by_qr {
            let _ = write!(out, "| {} {} | {} |", row.routine, row.kind, row.n);
            for (key, _) in BY_QR {
                let _ = write!(out, " {} |", ms(row, key));
            }
            let accuracy = row.accuracy.get("naive_qr_accuracy");
            let _ = writeln!(out, " {} |", accuracy.map_or_else(String::new, |f| told(f)));
        }
    }
    out.push('\n');
    for (n, file) in plots {
        let _ = writeln!(out, "![LAPACK at n = {n}]({file})");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_becomes_tables_with_its_ratio_and_accuracy() {
        let results: Value = serde_json::from_str(
            r#"{"machine": {"gpu": "G", "cpu": "C", "threads": 4, "date": "d"}, "rows": [
                {"routine": "dgesdd", "kind": "vectors", "n": 2048, "ours_ms": 80.0, "wheel_ms": 1200.0,
                 "naive_ms": 82.0, "kernel_ms": 78.0, "naive_qr_ms": 100.0, "kernel_qr_ms": 90.0,
                 "naive_qr_accuracy": {"residual": 0.1},
                 "ours_accuracy": {"residual": 0.0512, "orthogonality": 12.3},
                 "naive_accuracy": {"residual": 123456.0, "values": NAN}}]}"#
                .replace("NAN", "null")
                .as_str(),
        )
        .expect("JSON");
        let rows = rows(&results, row).expect("rows");
        let page = page(&results["machine"], &rows, &[(2048, "x.svg".to_owned())]);
        for wanted in [
            // Xgesvdp would be nearer, but is wrong; nobody has judged the wheel here.
            "| dgesdd vectors | 2048 | 80.0 | 1200.0 |  | 82.0 | 78.0 | 1.25 |",
            "| dgesdd vectors | 2048 | orthogonality 12, residual 0.05 |  | residual 1.2e5, values not a number |",
            "| dgesdd vectors | 2048 | 100.0 | 90.0 | residual 0.10 |",
            "![LAPACK at n = 2048](x.svg)",
        ] {
            assert!(page.contains(wanted), "{wanted}\n{page}");
        }
    }

    #[test]
    fn a_row_without_a_size_is_named() {
        let results = serde_json::json!({"rows": [{"routine": "dgesdd", "kind": "vectors"}]});
        let error = rows(&results, row).err().expect("refused").to_string();
        assert!(error.contains("lacks a field"), "{error}");
    }
}
