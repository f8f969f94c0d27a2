//! The charts of a report, each a drawing (SVG) of its own.

use super::totals::{Point, Report, Row};
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (620, 400);

/// Calls that a chart shows at most: every so many-th is left out of more. A page of a million would not open.
const MOST_POINTS: usize = 4000;

/// Routines that have bars: those that took most of the time.
const MOST_BARS: usize = 12;

const GPU: RGBColor = RGBColor(200, 60, 40);
const CPU: RGBColor = RGBColor(40, 90, 180);
const FAINT: RGBColor = RGBColor(170, 170, 170);

/// A drawing and what it shows.
pub struct Chart {
    /// One line.
    pub title: &'static str,
    /// What the marks mean.
    pub legend: String,
    /// `<svg …>`.
    pub svg: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// All charts that the log has figures for.
///
/// # Errors
/// If one cannot be drawn.
pub fn all(report: &Report) -> Result<Vec<Chart>> {
    let mut charts = vec![Chart {
        title: "Time by routine",
        legend: format!(
            "Upper bar: what it took, on the GPU (red) and on the CPU (blue). Lower bar (grey): the CPU alone, as \
             predicted. At most {MOST_BARS} routines."
        ),
        svg: draw(|area| bars(area, report))?,
    }];
    let shown = thinned(&report.points);
    let part = match shown.len() == report.points.len() {
        true => String::new(),
        false => format!(
            " {} of {} calls are shown.",
            shown.len(),
            report.points.len()
        ),
    };
    if shown.iter().any(|p| p.seconds > 0.0) {
        charts.push(Chart {
            title: "Where calls went",
            legend: format!("Each call by its operations and its time: GPU red, CPU blue.{part}"),
            svg: draw(|area| {
                let axes = ("operations", "seconds");
                scatter(area, &shown, axes, |p| (p.flops, p.seconds), false)
            })?,
        });
    }
    if shown.iter().any(|p| p.predicted_s > 0.0 && p.seconds > 0.0) {
        charts.push(Chart {
            title: "Predicted and measured time",
            legend: format!("On the line the prediction was right: GPU red, CPU blue.{part}"),
            svg: draw(|area| {
                let axes = ("measured seconds", "predicted seconds");
                scatter(area, &shown, axes, |p| (p.seconds, p.predicted_s), true)
            })?,
        });
    }
    if report.points.iter().any(|p| p.saved_s != 0.0) {
        charts.push(Chart {
            title: "Time saved",
            legend: "Summed over the calls as they ended, against the CPU as predicted.".to_owned(),
            svg: draw(|area| saved(area, &report.points))?,
        });
    }
    Ok(charts)
}

fn thinned(points: &[Point]) -> Vec<&Point> {
    let step = points.len().div_ceil(MOST_POINTS).max(1);
    points.iter().step_by(step).collect()
}

fn draw(paint: impl FnOnce(&Area<'_>) -> Outcome) -> Result<String> {
    let mut out = String::new();
    let area = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
    // The error of a drawing back end is not Send; its text is what matters.
    area.fill(&WHITE)
        .map_err(|e| anyhow::anyhow!("cannot draw: {e}"))?;
    paint(&area).map_err(|e| anyhow::anyhow!("cannot draw: {e}"))?;
    area.present()
        .map_err(|e| anyhow::anyhow!("cannot draw: {e}"))?;
    drop(area);
    Ok(out)
}

fn bars(area: &Area<'_>, report: &Report) -> Outcome {
    let mut rows: Vec<_> = report.routines.iter().collect();
    rows.sort_by(|a, b| {
        (b.counted.gpu_s + b.counted.cpu_s).total_cmp(&(a.counted.gpu_s + a.counted.cpu_s))
    });
    rows.truncate(MOST_BARS);
    let took = |row: &Row| row.counted.gpu_s + row.counted.cpu_s;
    let alone = |row: &Row| (took(row) + row.counted.saved_s).max(0.0);
    let longest = rows
        .iter()
        .fold(f64::MIN_POSITIVE, |most, r| most.max(took(r)).max(alone(r)));
    let last = rows.len() as f64;
    let mut axes = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..longest * 1.02, last..0.0)?;
    axes.configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc("seconds")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (i, row) in rows.iter().enumerate() {
        let y = i as f64;
        let bar = |from: f64, to: f64, (top, bottom): (f64, f64), colour: RGBColor| {
            Rectangle::new([(from, y + top), (to, y + bottom)], colour.filled())
        };
        let (upper, lower) = ((0.15, 0.48), (0.52, 0.85));
        axes.draw_series([
            bar(0.0, row.counted.gpu_s, upper, GPU),
            bar(row.counted.gpu_s, took(row), upper, CPU),
            bar(0.0, alone(row), lower, FAINT),
        ])?;
        let (left, middle) = axes.backend_coord(&(0.0, y + 0.5));
        let name = (left - 62, middle - 7);
        area.draw_text(
            &row.counted.routine,
            &("sans-serif", 13).into_font().into(),
            name,
        )?;
    }
    Ok(())
}

/// The decades that hold all numbers.
fn decades(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = numbers.fold((f64::INFINITY, 0.0f64), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    (10f64.powf(low), 10f64.powf(high.max(low + 1.0)))
}

fn scatter(
    area: &Area<'_>,
    points: &[&Point],
    (x_name, y_name): (&str, &str),
    place: impl Fn(&Point) -> (f64, f64),
    diagonal: bool,
) -> Outcome {
    let on_paper = |p: &&&Point| place(p).0 > 0.0 && place(p).1 > 0.0;
    let shown: Vec<&Point> = points.iter().filter(on_paper).copied().collect();
    let (mut x, mut y) = (
        decades(shown.iter().map(|p| place(p).0)),
        decades(shown.iter().map(|p| place(p).1)),
    );
    if diagonal {
        x = (x.0.min(y.0), x.1.max(y.1));
        y = x;
    }
    let mut axes = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
    axes.configure_mesh()
        .x_desc(x_name)
        .y_desc(y_name)
        .x_label_formatter(&|v| format!("{v:.0e}"))
        .y_label_formatter(&|v| format!("{v:.0e}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    if diagonal {
        axes.draw_series(LineSeries::new(
            [(x.0, x.0), (x.1, x.1)],
            FAINT.stroke_width(1),
        ))?;
    }
    axes.draw_series(shown.iter().map(|p| {
        let colour = if p.on_gpu { GPU } else { CPU };
        Circle::new(place(p), 2, colour.mix(0.6).filled())
    }))?;
    Ok(())
}

fn saved(area: &Area<'_>, points: &[Point]) -> Outcome {
    let step = points.len().div_ceil(MOST_POINTS).max(1);
    let mut sum = 0.0;
    let line: Vec<(f64, f64)> = points
        .iter()
        .enumerate()
        .map(|(i, p)| {
            sum += p.saved_s;
            ((i + 1) as f64, sum)
        })
        .enumerate()
        .filter(|(i, _)| i % step == 0 || i + 1 == points.len())
        .map(|(_, at)| at)
        .collect();
    let (low, high) = line.iter().fold((0.0f64, 0.0f64), |(low, high), (_, s)| {
        (low.min(*s), high.max(*s))
    });
    let mut axes = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..points.len() as f64, low * 1.05..high * 1.05)?;
    axes.configure_mesh()
        .x_desc("calls")
        .y_desc("seconds")
        .light_line_style(TRANSPARENT)
        .draw()?;
    axes.draw_series(LineSeries::new(
        [(0.0, 0.0)].into_iter().chain(line),
        GPU.stroke_width(2),
    ))?;
    Ok(())
}
