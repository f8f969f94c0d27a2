//! Times one decision about a call that stays on the CPU: `cargo run --release -p cost-model --example decide PROFILE`.
//!
//! With learning and all its places filled, as a program that has run for a while has it. Ends with status 1 where a
//! routine's decision takes longer than [`LIMIT_NS`].

use cost_model::{Learned, Level, Profile, Route, Situation, decide};
use routines::{Dims, Library, Op, Precision, Shape, family, option_letters};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// What a decision may take.
const LIMIT_NS: f64 = 300.0;

/// Decisions that are timed at once, and how often; the least counts, since a busy machine only adds.
const DECISIONS: u32 = 200;
const TIMES: usize = 3000;

const CALLS: [(Op, [u64; 3], &str); 10] = [
    (Op::Gemm, [150, 150, 150], ""),
    (Op::Gemm, [150, 150, 2000], ""),
    (Op::Syrk, [150, 150, 400], ""),
    (Op::Trsm, [150, 200, 150], ""),
    (Op::Potrf, [200, 200, 200], "U"),
    (Op::Getrf, [200, 200, 200], ""),
    (Op::Geqrf, [400, 100, 100], ""),
    (Op::Gesv, [200, 200, 1], ""),
    (Op::Syevd, [150, 150, 150], "VU"),
    (Op::Gesdd, [150, 150, 150], "S"),
];

fn shape(op: Op, [m, n, k]: [u64; 3], letters: &str) -> Shape {
    let right = false;
    let dims = Dims { m, n, k, right };
    let mut shape = Shape::of_lapack(op, Precision::D, &dims, option_letters(letters));
    if family(op).library == Library::Blas {
        shape.letters = [0; 4];
    }
    shape
}

fn least_ns(mut once: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        let began = Instant::now();
        for _ in 0..DECISIONS {
            once();
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS));
    }
    least
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("which profile?");
        return ExitCode::FAILURE;
    };
    let text = std::fs::read_to_string(&path).map_err(|e| e.to_string());
    let profile = match text.and_then(|text| Profile::from_toml(&text).map_err(|e| e.to_string())) {
        Ok(profile) => profile,
        Err(why) => {
            eprintln!("{path}: {why}");
            return ExitCode::FAILURE;
        }
    };
    let (now, level) = (Situation::default(), Level::default());
    let learned = Learned::new();
    for seed in 0..4000_u64 {
        let size = |factor: u64| 100 + seed * factor % 400;
        let shape = shape(Op::Gemm, [size(37), size(101), size(331)], "");
        let decided = learned.decide(&profile, &shape, &now, level, false);
        learned.observe(
            &shape,
            &decided,
            Route::Cpu,
            decided.decision.prediction.cpu_s * 1.02,
        );
    }
    println!("ns a decision           by the profile  and what was learnt  an observation");
    let mut held = true;
    for (op, sizes, letters) in CALLS {
        let shape = shape(op, sizes, letters);
        let alone = least_ns(|| {
            black_box(decide(&profile, black_box(&shape), &now, level));
        });
        let decided = learned.decide(&profile, &shape, &now, level, true);
        let seconds = decided.decision.prediction.cpu_s;
        let observing =
            least_ns(|| learned.observe(black_box(&shape), &decided, Route::Cpu, seconds));
        let both = least_ns(|| {
            black_box(learned.decide(&profile, black_box(&shape), &now, level, true));
        });
        held &= both <= LIMIT_NS;
        let name = family(op).routine(Precision::D).unwrap_or_default();
        let sizes = format!("{sizes:?}");
        println!("{name:<8} {sizes:<16} {alone:>12.0} {both:>20.0} {observing:>15.0}");
    }
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
