//! The simulated cuBLAS: its handles. Products are in `level3`, computed by OpenBLAS; libcublasLt says its
//! version only.

mod geam;
pub mod job;
mod level3;
#[cfg(test)]
mod misuse;
pub mod openblas;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use crate::driver::runtime_current;
use crate::registry::Kind;
use crate::state::{self, BLAS, Pass};
use core::ffi::c_int;
use openblas::openblas_set_num_threads;

const BAD_VALUE: u32 = 7;
const NOT_SUPPORTED: u32 = 15;
const NOT_INITIALIZED: u32 = 1;

fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// Runs a body that may leave early.
fn run(body: impl FnOnce() -> Result<(), u32>) -> Result<(), u32> {
    body()
}

/// Passes the gate with a live handle; the runtime's rule about contexts applies.
fn gate(function: &'static str, handle: usize) -> Result<Pass, u32> {
    let mut pass = state::gate(function, &BLAS, true)?;
    runtime_current(&mut pass.state);
    if pass.state.blas.contains_key(&handle) {
        return Ok(pass);
    }
    pass.missing(Kind::BlasHandle, handle as u64);
    Err(NOT_INITIALIZED)
}

fn with(pass: &mut Pass, handle: usize) -> Result<&mut state::Blas, u32> {
    pass.state.blas.get_mut(&handle).ok_or(NOT_INITIALIZED)
}

macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                code(run(|| $body))
            }
        )*
    };
}

entries! {
    fn cublasCreate_v2(handle: *mut usize) {
        let mut pass = state::gate("cublasCreate_v2", &BLAS, true)?;
        if handle.is_null() {
            return Err(BAD_VALUE);
        }
        runtime_current(&mut pass.state);
        // SAFETY: OpenBLAS's own setter. The simulated device has no threads of OpenBLAS's: the tests
        // measure order, not speed.
        unsafe { openblas_set_num_threads(1) };
        let made = pass.state.handle();
        let blas = state::Blas { stream: 0, workspace: (0, 0), device_pointers: false };
        pass.state.blas.insert(made, blas);
        pass.born(Kind::BlasHandle, made as u64, 0);
        // SAFETY: the API's contract: a valid pointer (null was refused).
        unsafe { handle.write(made) };
        Ok(())
    }

    fn cublasDestroy_v2(handle: usize) {
        let mut pass = gate("cublasDestroy_v2", handle)?;
        pass.state.blas.remove(&handle);
        pass.state.registry.died(handle as u64);
        Ok(())
    }

    fn cublasGetVersion_v2(handle: usize, version: *mut c_int) {
        let _pass = gate("cublasGetVersion_v2", handle)?;
        if version.is_null() {
            return Err(BAD_VALUE);
        }
        // SAFETY: as above.
        unsafe { version.write(130_100) };
        Ok(())
    }

    fn cublasSetStream_v2(handle: usize, stream: usize) {
        let mut pass = gate("cublasSetStream_v2", handle)?;
        let blas = with(&mut pass, handle)?;
        blas.stream = stream;
        // As documented: the workspace set by the user is lost.
        blas.workspace = (0, 0);
        Ok(())
    }

    fn cublasSetWorkspace_v2(handle: usize, address: u64, bytes: usize) {
        let mut pass = gate("cublasSetWorkspace_v2", handle)?;
        if !address.is_multiple_of(256) {
            return Err(BAD_VALUE);
        }
        with(&mut pass, handle)?.workspace = (address, bytes as u64);
        Ok(())
    }

    fn cublasSetPointerMode_v2(handle: usize, mode: u32) {
        let mut pass = gate("cublasSetPointerMode_v2", handle)?;
        if mode > 1 {
            return Err(BAD_VALUE);
        }
        with(&mut pass, handle)?.device_pointers = mode == 1;
        Ok(())
    }

    fn cublasSetMathMode(handle: usize, mode: u32) {
        let _pass = gate("cublasSetMathMode", handle)?;
        // Default, tensor op, pedantic, TF32: the arithmetic here is always the type's own.
        if mode > 3 { Err(BAD_VALUE) } else { Ok(()) }
    }

    fn cublasSetAtomicsMode(handle: usize, mode: u32) {
        let _pass = gate("cublasSetAtomicsMode", handle)?;
        if mode > 1 { Err(BAD_VALUE) } else { Ok(()) }
    }
}

/// libcublasLt's version.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    130_100
}
