//! Planners: from a call's dimensions and flags to a [`program::Program`]. Pure arithmetic; no CUDA, no
//! memory of the caller.

pub mod program;
