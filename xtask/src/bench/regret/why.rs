//! Where the time of a cell goes that ours loses.

use super::rules::{Ours, Rule};
use super::{Run, WARM_UP_S, side};
use cost_model::{Reason, Route};
use routines::family;
use std::collections::{BTreeMap, BTreeSet};

/// What a rule lost in one way.
#[derive(Clone, Copy, Default)]
struct Lost {
    calls: usize,
    /// Expected time over the oracle's.
    expected_s: f64,
    /// What the noise of these calls adds to that.
    luck_s: f64,
    /// Sum of logarithms of expected over predicted time, on CPU and GPU.
    off: [f64; 2],
}

/// Kinds of shapes that are listed.
const LISTED: usize = 6;

/// Lines that say in which calls from the `first` on ours takes longer than the oracle.
pub fn explain(run: &Run, first: usize, rule: &mut Ours<'_>) -> String {
    let mut by_cause: BTreeMap<&str, Lost> = BTreeMap::new();
    let mut by_shape: BTreeMap<String, Lost> = BTreeMap::new();
    let (mut warm, mut oracle_s) = (BTreeSet::new(), 0.0);
    for (i, call) in run.calls.iter().enumerate() {
        let route = rule.route(&call.shape, &call.moment);
        let decided = rule.decided().copied();
        let key = (call.shape.op, call.shape.precision);
        let warming = route == Route::Gpu && warm.insert(key);
        let seconds = call.real_s[side(route)] + if warming { WARM_UP_S } else { 0.0 };
        rule.observe(&call.shape, route, seconds);
        if i < first {
            continue;
        }
        let best = call.better();
        oracle_s += call.real_s[side(best)];
        if warming {
            by_cause.entry("loading kernels").or_default().expected_s += WARM_UP_S;
        }
        if route == best {
            continue;
        }
        let cause = match (decided.map(|d| d.decision.reason), route) {
            (None, _) => "below the threshold",
            (Some(Reason::Try), Route::Cpu) => "tries of the CPU",
            (Some(Reason::Try), Route::Gpu) => "tries of the GPU",
            (_, Route::Cpu) => "CPU by mistake",
            (_, Route::Gpu) => "GPU by mistake",
        };
        let name = family(call.shape.op).routine(call.shape.precision);
        let [m, n, k] = call
            .shape
            .product()
            .map(|size| 1_u64 << size.max(1).ilog2());
        let shape = format!("{} {m} {n} {k}: {cause}", name.unwrap_or_default());
        let expected_s = call.expected_s[side(route)] - call.expected_s[side(best)];
        let all_s = call.real_s[side(route)] - call.real_s[side(best)];
        for lost in [
            by_cause.entry(cause).or_default(),
            by_shape.entry(shape).or_default(),
        ] {
            lost.calls += 1;
            lost.expected_s += expected_s;
            lost.luck_s += all_s - expected_s;
            if let Some(d) = &decided {
                let p = &d.decision.prediction;
                lost.off[0] += (call.expected_s[0] / p.cpu_s).ln();
                lost.off[1] += (call.expected_s[1] / p.gpu_s()).ln();
            }
        }
    }
    let line = |name: &str, l: &Lost| {
        let share = |s: f64| 100.0 * s / oracle_s;
        let off = l.off.map(|off| (off / l.calls.max(1) as f64).exp());
        format!(
            "    {name:<52} {:>5} calls {:>6.2} % and by luck {:>6.2} %; true over predicted: CPU {:.2}, GPU {:.2}\n",
            l.calls,
            share(l.expected_s),
            share(l.luck_s),
            off[0],
            off[1]
        )
    };
    let mut text: String = by_cause.iter().map(|(name, l)| line(name, l)).collect();
    let mut shapes: Vec<_> = by_shape.iter().collect();
    shapes.sort_by(|a, b| b.1.expected_s.total_cmp(&a.1.expected_s));
    text.extend(shapes.iter().take(LISTED).map(|(name, l)| line(name, l)));
    text
}
