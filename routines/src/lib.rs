//! THE TABLE: one row a routine family. Exports, entries, flop counts, bytes moved, argument checks
//! and docs are generated from it (`cargo xtask codegen`). This crate depends on nothing.
#![forbid(unsafe_code)]

mod shape;
mod types;

pub use shape::Shape;
pub use types::{Diag, Op, Precision, Side, Trans, Uplo};
