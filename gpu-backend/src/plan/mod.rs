//! Planners: from a call's dimensions and flags to a [`program::Program`]. Pure arithmetic; no CUDA, no
//! memory of the caller.

mod build;
mod gemm;
pub mod program;
mod sizes;
#[cfg(test)]
mod tests;

use call::{Failure, Level3Call, Op};
use program::{Program, Tuning};
use sizes::Sizes;

/// The program of a level-3 call with dimensions > 0 and alpha != 0.
///
/// # Errors
/// [`Failure::OutOfMemory`] when even the smallest tiles pass the budget.
pub fn plan(call: &Level3Call<'_>, tuning: &Tuning) -> Result<Program, Failure> {
    plan_with(call, tuning, &Sizes::DEFAULT)
}

/// As [`plan`], cut by `sizes`.
fn plan_with(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Result<Program, Failure> {
    let program = match call.op {
        Op::Gemm | Op::Gemm3m => gemm::in_core(call, tuning, sizes),
        _ => {
            return Err(Failure::Unsupported(
                "this level-3 family has no program yet",
            ));
        }
    };
    let needed_bytes = program.bytes(call.precision.elem_bytes());
    if needed_bytes > tuning.budget_bytes {
        return Err(Failure::OutOfMemory {
            needed_bytes,
            budget_bytes: tuning.budget_bytes,
        });
    }
    Ok(program)
}
