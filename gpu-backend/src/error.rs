//! Errors: why the GPU did not start, and what a failed CUDA call means for the call in hand.
//!
//! Every message is one line that says what, where and what is accepted. Nothing is printed here.

use crate::sys::{self, Code};
use call::Failure;
use std::path::PathBuf;

/// Why the GPU cannot be used in this process.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum StartError {
    /// There is no NVIDIA driver, or it cannot be loaded.
    #[error("no NVIDIA driver: {detail} (accepted: libcuda.so.1 of driver 525 or newer)")]
    NoDriver {
        /// What the loader said.
        detail: String,
    },
    /// A CUDA library was not found or could not be loaded.
    #[error("{what} not found (searched: {})", list(.searched))]
    NoLibrary {
        /// Accepted file names, and what was wrong with a candidate that was found.
        what: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// A library is there, in a version that does not work here.
    #[error("{what} has version {found} (accepted: {accepted})")]
    WrongVersion {
        /// The library.
        what: String,
        /// Its version.
        found: String,
        /// What would work.
        accepted: String,
    },
    /// A library lacks a function that is needed.
    #[error(
        "{library} lacks the function {symbol} (accepted: an unmodified library of CUDA 12.0 or newer)"
    )]
    MissingSymbol {
        /// Path of the library.
        library: String,
        /// The function.
        symbol: String,
    },
    /// The driver sees no such device.
    #[error("no GPU number {device} ({})", seen(*.count))]
    NoDevice {
        /// The number asked for.
        device: u32,
        /// How many there are.
        count: u32,
    },
    /// The driver was in use before this process was forked from its parent.
    #[error(
        "the program used CUDA before it forked this process (accepted: its first call of CUDA after the fork)"
    )]
    Forked,
    /// A function failed.
    #[error("the GPU refused to start: {function} returned {code} ({name})")]
    Refused {
        /// The function.
        function: &'static str,
        /// What it returned.
        code: u32,
        /// The code's name.
        name: String,
    },
}

fn seen(count: u32) -> String {
    match count {
        0 => "the driver sees none".to_owned(),
        _ => format!("the driver sees {count}; accepted: 0 to {}", count - 1),
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|p| p.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The library that a code came from; their numbers mean different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// libcuda.
    Driver,
    /// libcublas.
    Blas,
    /// libcusolver.
    Solver,
    /// Ours: a wait that passed its deadline.
    Deadline,
}

/// A CUDA function that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaError {
    /// The function.
    pub function: &'static str,
    /// What it returned.
    pub code: Code,
    /// The code's name.
    pub name: String,
    /// Whose code it is.
    pub origin: Origin,
}

impl CudaError {
    /// What a function of cuBLAS or cuSOLVER returned, whose codes `name` knows.
    ///
    /// # Errors
    /// Any code but success.
    pub(crate) fn check(
        function: &'static str,
        code: Code,
        origin: Origin,
        name: fn(Code) -> Option<&'static str>,
    ) -> Result<(), Self> {
        if code == sys::SUCCESS {
            return Ok(());
        }
        let name = name(code).unwrap_or("a code that is not documented").into();
        Err(Self {
            function,
            code,
            name,
            origin,
        })
    }

    /// True if the device or its context is gone.
    pub fn is_fatal(&self) -> bool {
        match self.origin {
            Origin::Driver => sys::is_fatal(self.code),
            Origin::Blas | Origin::Solver => self.code == 1,
            Origin::Deadline => true,
        }
    }

    /// True if memory was short.
    pub fn is_out_of_memory(&self) -> bool {
        match self.origin {
            Origin::Driver => self.code == sys::OUT_OF_MEMORY,
            Origin::Blas => self.code == sys::BLAS_ALLOC_FAILED,
            Origin::Solver => self.code == sys::SOLVER_ALLOC_FAILED,
            Origin::Deadline => false,
        }
    }

    /// The failure of the call in hand.
    pub fn failure(&self) -> Failure {
        let text = self.to_string();
        if self.is_fatal() {
            Failure::Lost(text)
        } else {
            Failure::Device(text)
        }
    }
}

impl core::fmt::Display for CudaError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            function,
            code,
            name,
            origin,
        } = self;
        match origin {
            Origin::Deadline => write!(f, "the GPU did not answer: {function} {name}"),
            _ => write!(f, "{function} returned {code} ({name})"),
        }
    }
}

impl From<CudaError> for StartError {
    fn from(e: CudaError) -> Self {
        StartError::Refused {
            function: e.function,
            code: e.code,
            name: e.name,
        }
    }
}
