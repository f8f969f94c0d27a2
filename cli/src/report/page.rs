//! The report as one HTML file that needs no other.

use super::totals::{Errors, Report};
use super::{charts, sum};
use crate::units::seconds;
use anyhow::Result;
use gpu_offload::log::bytes;
use maud::{DOCTYPE, PreEscaped, html};

const STYLE: &str = "body{font:15px/1.5 sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222}\
    table{border-collapse:collapse}th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}\
    th:first-child,td:first-child{text-align:left}td.note{color:#666;font-size:13px;text-align:left}\
    figure{display:inline-block;margin:0 1em 1em 0;vertical-align:top;max-width:620px}\
    figcaption{font-size:13px;color:#555}svg{max-width:100%;height:auto}";

fn errors(of: &Option<Errors>) -> String {
    of.as_ref().map_or_else(
        || "-".to_owned(),
        |e| format!("{:.0} % / {:.0} %", e.median * 100.0, e.p90 * 100.0),
    )
}

/// The page.
///
/// # Errors
/// If a chart cannot be drawn.
pub fn html(report: &Report) -> Result<String> {
    let charts = charts::all(report)?;
    let heads = [
        "routine",
        "calls",
        "on GPU",
        "GPU time",
        "on CPU",
        "CPU time",
        "saved",
        "to GPU",
        "from GPU",
        "GPU error",
        "CPU error",
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "gpu-offload: report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Where heavy calls went" }
                p { strong { (sum(report)) "." } }
                @for line in report.origins() { p { (line) } }
                @for chart in &charts {
                    figure {
                        h2 { (chart.title) }
                        (PreEscaped(&chart.svg))
                        figcaption { (chart.legend) }
                    }
                }
                h2 { "By routine" }
                table {
                    tr { @for head in heads { th { (head) } } }
                    @for row in &report.routines {
                        tr {
                            td { (row.counted.routine) }
                            td { (row.counted.gpu_calls + row.counted.cpu_calls) }
                            td { (row.counted.gpu_calls) }
                            td { (seconds(row.counted.gpu_s)) }
                            td { (row.counted.cpu_calls) }
                            td { (seconds(row.counted.cpu_s)) }
                            td { (seconds(row.counted.saved_s)) }
                            td { (bytes(row.counted.bytes_in)) }
                            td { (bytes(row.counted.bytes_out)) }
                            td { (errors(&row.gpu_errors)) }
                            td { (errors(&row.cpu_errors)) }
                        }
                        @for note in row.notes() {
                            tr { td {} td.note colspan=(heads.len() - 1) { (note) } }
                        }
                    }
                }
                p {
                    "Saved: the CPU's predicted time of calls on the GPU less what they took, waiting for the GPU's \
                     start included. Error: |predicted - measured| / measured, the median and what nine tenths of \
                     the calls stay within. Calls below the threshold are not counted."
                }
                @if report.points.is_empty() {
                    p { "The log has sums only; with GPU_OFFLOAD_LOG=decisions it has each call." }
                }
            }
        }
    };
    Ok(page.into_string())
}
