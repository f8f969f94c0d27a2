//! The simulated cuSOLVER: its handles and parameters. Factorisations are in `routines`, computed by the
//! LAPACK of the OpenBLAS that is linked in.

mod job;
mod lapack;
mod numerics;
mod routines;
#[cfg(test)]
mod tests;

use crate::blas::openblas::openblas_set_num_threads;
use crate::driver::runtime_current;
use crate::registry::Kind;
use crate::state::{self, Pass, SOLVER};
use core::ffi::c_int;

const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 3;
const EXECUTION_FAILED: u32 = 6;
const NOT_SUPPORTED: u32 = 9;

fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// Runs a body that may leave early.
fn run(body: impl FnOnce() -> Result<(), u32>) -> u32 {
    code(body())
}

/// Passes the gate with a live handle; the runtime's rule about contexts applies.
fn gate(function: &'static str, handle: usize) -> Result<Pass, u32> {
    let mut pass = state::gate(function, &SOLVER, true)?;
    runtime_current(&mut pass.state);
    if pass.state.solvers.contains_key(&handle) {
        return Ok(pass);
    }
    pass.missing(Kind::SolverHandle, handle as u64);
    Err(NOT_INITIALIZED)
}

/// Refuses parameters that were never made or are gone; null stands for the defaults.
fn known_params(pass: &mut Pass, params: usize) -> Result<(), u32> {
    if params == 0 || pass.state.solver_params.contains(&params) {
        return Ok(());
    }
    pass.missing(Kind::SolverParams, params as u64);
    Err(INVALID_VALUE)
}

/// Writes a result for the caller.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise; not null.
    unsafe { to.write(value) };
    Ok(())
}

macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                run(|| $body)
            }
        )*
    };
}

entries! {
    fn cusolverDnCreate(handle: *mut usize) {
        let mut pass = state::gate("cusolverDnCreate", &SOLVER, true)?;
        if handle.is_null() {
            return Err(INVALID_VALUE);
        }
        runtime_current(&mut pass.state);
        // SAFETY: OpenBLAS's own setter; see cublasCreate_v2.
        unsafe { openblas_set_num_threads(1) };
        let made = pass.state.handle();
        pass.state.solvers.insert(made, 0);
        pass.born(Kind::SolverHandle, made as u64, 0);
        // SAFETY: the API's contract: a valid pointer.
        unsafe { give(handle, made) }
    }

    fn cusolverDnDestroy(handle: usize) {
        let mut pass = gate("cusolverDnDestroy", handle)?;
        pass.state.solvers.remove(&handle);
        pass.state.registry.died(handle as u64);
        Ok(())
    }

    fn cusolverDnSetStream(handle: usize, stream: usize) {
        let mut pass = gate("cusolverDnSetStream", handle)?;
        pass.state.solvers.insert(handle, stream);
        Ok(())
    }

    fn cusolverDnGetStream(handle: usize, stream: *mut usize) {
        let pass = gate("cusolverDnGetStream", handle)?;
        let found = pass.state.solvers.get(&handle).copied().unwrap_or(0);
        // SAFETY: as above.
        unsafe { give(stream, found) }
    }

    fn cusolverDnSetDeterministicMode(handle: usize, mode: u32) {
        let _pass = gate("cusolverDnSetDeterministicMode", handle)?;
        // The arithmetic here is always the same.
        if matches!(mode, 1 | 2) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn cusolverDnCreateParams(params: *mut usize) {
        let mut pass = state::gate("cusolverDnCreateParams", &SOLVER, false)?;
        if params.is_null() {
            return Err(INVALID_VALUE);
        }
        let made = pass.state.handle();
        pass.state.solver_params.insert(made);
        pass.born(Kind::SolverParams, made as u64, 0);
        // SAFETY: as above.
        unsafe { give(params, made) }
    }

    fn cusolverDnDestroyParams(params: usize) {
        let mut pass = state::gate("cusolverDnDestroyParams", &SOLVER, false)?;
        if !pass.state.solver_params.remove(&params) {
            pass.missing(Kind::SolverParams, params as u64);
            return Err(INVALID_VALUE);
        }
        pass.state.registry.died(params as u64);
        Ok(())
    }

    fn cusolverGetVersion(version: *mut c_int) {
        // SAFETY: as above.
        unsafe { give(version, 12_000) }
    }
}
