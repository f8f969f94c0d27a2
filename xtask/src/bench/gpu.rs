//! Tables and plots of the level-3 routines on a machine with a GPU, beside its peers. The measuring is
//! tests/gpu/bench.py, on a kit that needs no Rust; this file starts it where there is a GPU and draws
//! what it wrote.

use super::drawn::{Args, measured, numbers, rows, svg, table_head};
use anyhow::{Context, Result, ensure};
use plotters::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Columns: key in the results, heading.
const COLUMNS: [(&str, &str); 7] = [
    ("ours_ms", "ours, forced"),
    ("nvblas_autopin_ms", "NVBLAS autopin"),
    ("nvblas_ms", "NVBLAS"),
    ("naive_ms", "copy, compute, copy"),
    ("kernel_ms", "cuBLAS alone"),
    ("streams_ms", "its bytes alone"),
    ("cpu_ms", "our CPU path"),
];

/// Pinned transfers, H200 on PCIe 5 x16, 2026-12-01: 55.4 GB/s each way. The pinned floor of a call is the
/// longer of its operands at this rate and of the kernel; the staged floor has its bytes alone instead.
const PINNED_BYTES_PER_S: f64 = 55.4e9;

/// One measured case.
struct Row {
    routine: String,
    m: u64,
    n: u64,
    k: u64,
    output: String,
    ms: BTreeMap<&'static str, f64>,
}

/// Measures (or reads), and writes `level3.md` and an SVG for each routine.
pub fn run(args: &Args) -> Result<()> {
    let results = args.results("bench.py", "level3.json")?;
    let rows = rows(&results, row)?;
    let out = args.folder()?;
    let mut plots = Vec::new();
    for routine in routines(&rows) {
        let name = format!("{routine}.svg");
        plot(&out.join(&name), &routine, &rows)?;
        plots.push((routine, name));
    }
    let page = page(&results["machine"], &rows, &plots);
    std::fs::write(out.join("level3.md"), page).context("cannot write level3.md")?;
    println!(
        "{} cases drawn in {}",
        rows.len(),
        out.join("level3.md").display()
    );
    Ok(())
}

/// A row of the results; `None` where it lacks a field.
fn row(row: &Value) -> Option<Row> {
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    let size = |key: &str| row[key].as_u64();
    Some(Row {
        routine: text("routine")?,
        m: size("m")?,
        n: size("n")?,
        k: size("k")?,
        output: text("output")?,
        ms: numbers(row, COLUMNS.map(|(key, _)| key)),
    })
}

/// Routines in their first order of appearance.
fn routines(rows: &[Row]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for row in rows {
        if !found.contains(&row.routine) {
            found.push(row.routine.clone());
        }
    }
    found
}

impl Row {
    fn is_square(&self) -> bool {
        self.m == self.n && self.n == self.k
    }

    /// Bytes of the operands that a call must upload, whole matrices or triangles.
    fn bytes_in(&self) -> f64 {
        let each = match self.routine.as_bytes()[0] {
            b's' => 4.0,
            b'z' => 16.0,
            _ => 8.0,
        };
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        each * match &self.routine[1..] {
            "gemm" => m * k + k * n,
            "syrk" => n * k,
            // A triangle of order m, and B (read in place or not).
            _ => m * (m + 1.0) / 2.0 + m * n,
        }
    }

    fn pinned_floor_ms(&self) -> Option<f64> {
        let kernel = self.ms.get("kernel_ms")?;
        Some(kernel.max(self.bytes_in() / PINNED_BYTES_PER_S * 1e3))
    }

    fn staged_floor_ms(&self) -> Option<f64> {
        let kernel = self.ms.get("kernel_ms")?;
        Some(kernel.max(*self.ms.get("streams_ms")?))
    }
}

fn plot(file: &Path, routine: &str, rows: &[Row]) -> Result<()> {
    let chosen: Vec<&Row> = rows
        .iter()
        .filter(|row| row.routine == routine && row.is_square() && row.output == "touched")
        .collect();
    let sizes: Vec<f64> = chosen.iter().map(|row| row.n as f64).collect();
    let all: Vec<f64> = chosen
        .iter()
        .flat_map(|row| row.ms.values().copied())
        .collect();
    ensure!(
        !sizes.is_empty() && !all.is_empty(),
        "{routine} has no square case"
    );
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    svg(file, (820, 520), |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(
                format!("{routine}, square, ordinary memory"),
                ("sans-serif", 20),
            )
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(
                (least(&sizes)..most(&sizes)).log_scale().base(2.0),
                (least(&all) * 0.8..most(&all) * 1.25).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("n")
            .y_desc("ms")
            .x_label_formatter(&|n| format!("{n:.0}"))
            .draw()?;
        for (index, (key, heading)) in COLUMNS.iter().enumerate() {
            let colour = Palette99::pick(index).mix(1.0);
            let points: Vec<(f64, f64)> = chosen
                .iter()
                .filter_map(|row| Some((row.n as f64, *row.ms.get(key)?)))
                .collect();
            let width = if index == 0 { 3 } else { 1 };
            chart
                .draw_series(
                    LineSeries::new(points, colour.stroke_width(width)).point_size(width + 1),
                )?
                .label(*heading)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        Ok(())
    })
}

fn page(machine: &Value, rows: &[Row], plots: &[(String, String)]) -> String {
    let mut out = format!(
        "# Level-3 BLAS on the GPU, with the copies\n\n\
         Drawn by `cargo xtask bench gpu`; do not edit. {} Medians in ms; data in ordinary `malloc` memory; the process is \
         warmed up. \"touched\" writes into memory that was written before, \"fresh\" into new pages. \"its bytes alone\" is what \
         moving the operands in and the result out at once takes with nothing computed, from and to touched memory, \
         by the threads that do it in a call (the best of several). \"pinned floor\" is the longer of the operands at \
         the pinned rate of {:.1} GB/s and of cuBLAS alone, \"staged floor\" the longer of its bytes alone and of \
         cuBLAS alone: below the former no call can come, below the latter none whose data lie in ordinary memory \
         (times of separate runs: a ratio may fall a little short of 1). \"copy, compute, copy\" is \
         a first port with cudaMemcpy whose device memory is allocated before the clock starts. An empty cell \
         was not measured (a peer that would have taken too long).\n\n",
        measured(machine, "bench.py"),
        PINNED_BYTES_PER_S / 1e9,
    );
    let columns = COLUMNS.map(|(_, heading)| heading);
    let ratios = [
        "pinned floor",
        "ours over it",
        "staged floor",
        "ours over it",
        "best peer over ours",
    ];
    let headings = ["call", "m x n x k", "output"].into_iter().chain(columns);
    out.push_str(&table_head(headings.chain(ratios)));
    for row in rows {
        let _ = write!(
            out,
            "| {} | {} x {} x {} | {} |",
            row.routine, row.m, row.n, row.k, row.output
        );
        for (key, _) in COLUMNS {
            match row.ms.get(key) {
                Some(ms) => {
                    let _ = write!(out, " {ms:.2} |");
                }
                None => out.push_str(" |"),
            }
        }
        let ours = row.ms.get("ours_ms").copied();
        let cell = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.2}"));
        let over = |floor: Option<f64>| cell(ours.zip(floor).map(|(ours, floor)| ours / floor));
        let (pinned, staged) = (row.pinned_floor_ms(), row.staged_floor_ms());
        let peers = ["nvblas_autopin_ms", "nvblas_ms", "naive_ms", "cpu_ms"];
        let peer = peers
            .iter()
            .filter_map(|key| row.ms.get(key).copied())
            .reduce(f64::min);
        let _ = writeln!(
            out,
            " {} | {} | {} | {} | {} |",
            cell(pinned),
            over(pinned),
            cell(staged),
            over(staged),
            cell(ours.zip(peer).map(|(ours, peer)| peer / ours)),
        );
    }
    out.push('\n');
    for (routine, file) in plots {
        let _ = writeln!(out, "![{routine}]({file})");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_becomes_a_table_with_its_ratios() {
        let results: Value = serde_json::from_str(
            r#"{"machine": {"gpu": "G", "cpu": "C", "threads": 4, "date": "d"}, "rows": [
                {"routine": "dgemm", "m": 1024, "n": 1024, "k": 1024, "output": "touched",
                 "ours_ms": 2.0, "nvblas_ms": 8.0, "cpu_ms": 5.0, "kernel_ms": 0.1,
                 "streams_ms": 0.4}]}"#,
        )
        .expect("JSON");
        let rows = rows(&results, row).expect("rows");
        // 2 x 8 MiB at 55.4 GB/s are 0.303 ms, longer than the kernel.
        assert!((rows[0].pinned_floor_ms().expect("a floor") - 0.3028).abs() < 1e-3);
        let page = page(&results["machine"], &rows, &[]);
        assert!(
            page.contains(
                "| 2.00 | | 8.00 | | 0.10 | 0.40 | 5.00 | 0.30 | 6.60 | 0.40 | 5.00 | 2.50 |"
            ),
            "{page}"
        );
    }

    #[test]
    fn a_row_without_a_size_is_named() {
        let results = serde_json::json!({"rows": [{"routine": "dgemm"}]});
        let error = rows(&results, row).err().expect("refused").to_string();
        assert!(error.contains("lacks a field"), "{error}");
    }
}
