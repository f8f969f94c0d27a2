//! Runs one call of the stream: draws it, fills memory, calls, checks. Says nothing on its own.

use std::io;

use libloading::Library;
use num_complex::Complex;

use crate::abi::{self, Addresses};
use crate::check::{Trouble, check};
use crate::family::{Interface, Kind, Precision};
use crate::fill::fill;
use crate::memory::Memory;
use crate::plan::{Choice, Plan};
use crate::scalar::Scalar;

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    /// As the definition says; the largest error as a share of what is allowed.
    Passed(f64),
    /// Otherwise.
    Failed(Trouble),
    /// The library lacks the name.
    Skipped,
}

/// Runs call `index`.
pub fn run(
    library: &Library,
    memory: &mut Memory,
    choice: &Choice,
    index: u64,
) -> io::Result<(Plan, Outcome)> {
    let (plan, rng) = Plan::draw(choice, index);
    let outcome = match plan.precision {
        Precision::S => run_in::<f32>(library, memory, &plan, rng),
        Precision::D => run_in::<f64>(library, memory, &plan, rng),
        Precision::C => run_in::<Complex<f32>>(library, memory, &plan, rng),
        Precision::Z => run_in::<Complex<f64>>(library, memory, &plan, rng),
    }?;
    Ok((plan, outcome))
}

fn run_in<T: Scalar>(
    library: &Library,
    memory: &mut Memory,
    plan: &Plan,
    mut rng: fastrand::Rng,
) -> io::Result<Outcome> {
    let Some(routine) = abi::find(library, plan) else {
        return Ok(Outcome::Skipped);
    };
    let before = fill::<T>(plan, &mut rng);
    let starts = memory.hold(&plan.regions, &before)?;
    let address =
        |operand: crate::plan::Operand| starts[operand.region].wrapping_add(operand.offset);
    let at = Addresses {
        a: address(plan.a),
        b: address(plan.b.unwrap_or(plan.a)),
        c: address(plan.c),
    };
    // SAFETY: the routine was found by this plan's name, and `hold` has laid the operands out as the
    // plan says, in memory of this thread alone.
    unsafe { abi::call(routine, plan, at) };
    let after = memory.image::<T>(&plan.regions);
    Ok(match check(plan, &before, &after) {
        Ok(worst) => Outcome::Passed(worst),
        Err(trouble) => Outcome::Failed(trouble),
    })
}

/// The call in words: the routine with its arguments, and how its operands lie.
pub fn describe(plan: &Plan) -> String {
    let mut text = plan.interface.symbol(plan.precision, plan.family);
    let mut add = |name: &str, value: String| text += &format!(" {name}={value}");
    match plan.interface {
        Interface::Fortran => {}
        Interface::CblasColumns => add("order", "columns".into()),
        Interface::CblasRows => add("order", "rows".into()),
    }
    let kind = plan.family.kind();
    if matches!(kind, Kind::Symmetric | Kind::Triangular) {
        add("side", plan.side.into());
    }
    if kind != Kind::Product {
        add("uplo", plan.uplo.into());
    }
    match kind {
        Kind::Product | Kind::TriangleOfProduct => {
            add("transa", plan.trans_a.into());
            add("transb", plan.trans_b.into());
        }
        Kind::Symmetric => {}
        Kind::RankK | Kind::Rank2k | Kind::Triangular => add("trans", plan.trans_a.into()),
    }
    if kind == Kind::Triangular {
        add("diag", plan.diag.into());
    }
    if matches!(kind, Kind::Product | Kind::Symmetric | Kind::Triangular) {
        add("m", plan.m.to_string());
    }
    add("n", plan.n.to_string());
    if !matches!(kind, Kind::Symmetric | Kind::Triangular) {
        add("k", plan.k.to_string());
    }
    add("alpha", plan.alpha.to_string());
    add("lda", plan.a.ld.to_string());
    if let Some(b) = plan.b {
        add("ldb", b.ld.to_string());
    }
    if kind == Kind::Triangular {
        add("ldb", plan.c.ld.to_string());
    } else {
        add("beta", plan.beta.to_string());
        add("ldc", plan.c.ld.to_string());
    }
    let lie = [
        (plan.same_inputs(), "A and B are one matrix"),
        (plan.regions.len() == 1, "operands in one allocation"),
        (
            plan.regions.iter().any(|region| region.at_border),
            "an operand ends at a page border",
        ),
        (plan.non_finite, "entries that are not finite"),
    ];
    for (_, words) in lie.iter().filter(|(holds, _)| *holds) {
        text += &format!("; {words}");
    }
    text
}
