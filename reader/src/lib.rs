//! From the saved arguments of a routed call to the engine's form of it, by the routine table.
//!
//! Shared by every library that has routed symbols. Unsafe lives here because arguments are raw words and
//! pointers; the door's frame vouches for them.

pub mod lapack;
pub mod level3;
mod width;

pub use width::Width;
