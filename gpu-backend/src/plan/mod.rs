//! Planners: from a call's dimensions and flags to a [`program::Program`]. Pure arithmetic; no CUDA, no
//! memory of the caller.

mod build;
mod gemm;
pub mod keeping;
pub mod lapack;
pub mod program;
mod rank_k;
mod rates;
pub mod sizes;
mod substitution;
mod symm;
#[cfg(test)]
mod tests;
mod tiles;
mod triangular;
mod update;

use call::{Failure, Level3Call, Op};
use program::{Program, Tuning};
use sizes::Sizes;

/// The program of a level-3 call with dimensions > 0 and alpha != 0.
///
/// # Errors
/// [`Failure::OutOfMemory`] when even the smallest tiles pass the budget.
pub fn plan(call: &Level3Call<'_>, tuning: &Tuning) -> Result<Program, Failure> {
    plan_with(call, tuning, &crate::testing::sizes())
}

/// As [`plan`], cut by `sizes`.
fn plan_with(call: &Level3Call<'_>, tuning: &Tuning, sizes: &Sizes) -> Result<Program, Failure> {
    use Op::{Gemm, Gemm3m, Gemmt, Gemmtr, Hemm, Her2k, Herk, Symm, Syr2k, Syrk, Trmm, Trsm};
    let program = match call.op {
        Gemm | Gemm3m => gemm::in_core(call, tuning, sizes),
        Gemmtr | Gemmt | Syrk | Herk | Syr2k | Her2k => rank_k::in_core(call, tuning, sizes),
        Symm | Hemm => symm::in_core(call, tuning, sizes),
        Trmm | Trsm => triangular::in_core(call, tuning, sizes),
        _ => return Err(Failure::Unsupported("not a level-3 routine")),
    };
    let needed_bytes = program.bytes(call.precision.elem_bytes());
    let budget_bytes = tuning.budget_bytes;
    if needed_bytes <= budget_bytes {
        return Ok(program);
    }
    match call.op {
        Trmm | Trsm => {
            // Without a second copy of the result it may still fit.
            let panels = Sizes {
                triangle_fronts_percent: 0,
                ..*sizes
            };
            let program = triangular::in_core(call, tuning, &panels);
            if program.bytes(call.precision.elem_bytes()) <= budget_bytes {
                return Ok(program);
            }
            substitution::out_of_core(call, tuning, sizes)
        }
        _ => tiles::out_of_core(call, budget_bytes, sizes),
    }
}
