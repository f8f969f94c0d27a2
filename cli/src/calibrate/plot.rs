//! `calibrate --plot`: both sides over the size, one small chart for each routine of a profile.

use crate::explain::Question;
use anyhow::{Context, Result};
use cost_model::{Profile, Sample, Situation, predict};
use plotters::prelude::*;
use std::path::Path;

/// Charts beside each other, and the size of one in pixels.
const COLUMNS: usize = 3;
const CHART: (u32, u32) = (420, 300);

/// Sizes that are drawn.
const LEAST_N: u64 = 64;
const MOST_N: u64 = 8192;

/// One routine: predicted times of both sides by size in ms, and the CPU's samples.
struct Chart {
    title: String,
    cpu: Vec<(f64, f64)>,
    gpu: Vec<(f64, f64)>,
    samples: Vec<(f64, f64)>,
    /// Where the GPU begins to be the faster one.
    meets: Option<u64>,
}

fn chart(profile: &Profile, key: &str, samples: &[Sample]) -> Option<Chart> {
    let mut words = key.split_whitespace().map(str::to_owned);
    let name = words.next()?;
    let words: Vec<String> = [MOST_N.to_string()].into_iter().chain(words).collect();
    let question = Question::read(&name, &words).ok()?;
    let at = |n: u64| predict(profile, &question.scaled(n).shape(), &Situation::default());
    let sizes: Vec<u64> = (0..=56)
        .map(|i| (LEAST_N as f64 * f64::from(i).mul_add(0.125, 0.0).exp2()).round() as u64)
        .collect();
    let mut chart = Chart {
        title: key.to_owned(),
        cpu: Vec::new(),
        gpu: Vec::new(),
        samples: samples
            .iter()
            .filter(|s| s.0 == s.1 && (LEAST_N..=MOST_N).contains(&s.1) && (s.2 == s.1 || s.2 == 1))
            .map(|s| (s.1 as f64, s.3 * 1e3))
            .collect(),
        meets: None,
    };
    for n in sizes {
        let p = at(n)?;
        if p.gpu_s() < p.cpu_s {
            chart.meets = chart.meets.or(Some(n));
        } else {
            chart.meets = None;
        }
        chart.cpu.push((n as f64, p.cpu_s * 1e3));
        chart.gpu.push((n as f64, p.gpu_s() * 1e3));
    }
    Some(chart)
}

fn charts(profile: &Profile) -> Vec<Chart> {
    let cpu = &profile.measurements().cpu;
    let gemm = routines::Precision::ALL
        .into_iter()
        .filter_map(|p| chart(profile, &format!("{}gemm", p.letter()), cpu.get(p)));
    let others = cpu
        .families()
        .filter_map(|(key, samples)| chart(profile, key, samples));
    gemm.chain(others).collect()
}

/// Draws a profile.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(file: &Path, profile: &Profile) -> Result<()> {
    let text = svg(profile)?;
    std::fs::write(file, text).with_context(|| {
        format!(
            "{}: cannot be written; accepted: a file in a writable directory",
            file.display()
        )
    })
}

fn svg(profile: &Profile) -> Result<String> {
    let charts = charts(profile);
    let rows = charts.len().div_ceil(COLUMNS).max(1);
    let size = (CHART.0 * COLUMNS as u32, CHART.1 * rows as u32);
    let mut out = String::new();
    let mut paint = || -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (place, chart) in area.split_evenly((rows, COLUMNS)).iter().zip(&charts) {
            let times = chart.cpu.iter().chain(&chart.gpu).map(|(_, ms)| *ms);
            let (least, most) = times.fold((f64::INFINITY, 0.0f64), |(low, high), ms| {
                (low.min(ms), high.max(ms))
            });
            let title = match chart.meets {
                Some(n) => format!("{}: GPU from about n = {n}", chart.title),
                None => format!("{}: CPU", chart.title),
            };
            let mut axes = ChartBuilder::on(place)
                .caption(title, ("sans-serif", 15))
                .margin(8)
                .x_label_area_size(28)
                .y_label_area_size(48)
                .build_cartesian_2d(
                    (LEAST_N as f64..MOST_N as f64).log_scale().base(2.0),
                    (least * 0.8..most * 1.25).log_scale(),
                )?;
            axes.configure_mesh()
                .x_desc("n")
                .y_desc("ms")
                .x_label_formatter(&|n| format!("{n:.0}"))
                .draw()?;
            for (name, line, colour) in [("CPU", &chart.cpu, &BLUE), ("GPU", &chart.gpu, &RED)] {
                axes.draw_series(LineSeries::new(
                    line.iter().copied(),
                    colour.stroke_width(2),
                ))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2))
                });
            }
            axes.draw_series(
                chart
                    .samples
                    .iter()
                    .map(|point| Circle::new(*point, 3, BLUE.filled())),
            )?;
            axes.configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .draw()?;
        }
        area.present()?;
        Ok(())
    };
    // The error of a drawing back end is not Send; its text is what matters.
    paint().map_err(|e| anyhow::anyhow!("cannot draw: {e}"))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost_model::{CpuFacts, Fingerprint};

    #[test]
    fn each_routine_has_a_chart_with_both_sides_and_the_place_where_they_meet() {
        let profile = Profile::prior(Fingerprint::default(), &CpuFacts { threads: 4 });
        let all = charts(&profile);
        let titles: Vec<&str> = all.iter().map(|c| c.title.as_str()).collect();
        assert_eq!(titles, ["sgemm", "dgemm", "cgemm", "zgemm"]);
        let dgemm = &all[1];
        let meets = dgemm.meets.expect("the GPU wins large products") as f64;
        for ((n, cpu_ms), (_, gpu_ms)) in dgemm.cpu.iter().zip(&dgemm.gpu) {
            assert_eq!(gpu_ms < cpu_ms, *n >= meets, "n = {n}");
        }
        assert_eq!(dgemm.samples.len(), 4, "the estimate's points up to 8192");
        let svg = svg(&profile).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("dgemm: GPU from about n"), "{svg}");
    }
}
