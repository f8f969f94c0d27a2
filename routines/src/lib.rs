//! THE TABLE: one row a routine family. Exports, entries, flop counts, bytes moved, argument checks
//! and docs are generated from it (`cargo xtask codegen`). This crate depends on nothing.
#![forbid(unsafe_code)]

mod family;
mod lapack;
mod options;
mod shape;
mod table;
mod types;
mod workspace;

pub use family::{
    Arg, Dim, Dims, Extent, Family, Flops, Gate, Intent, Library, Naming, Part, Term,
};
pub use options::{MAX_INTS, MAX_REALS, Options, Scalars, option_letters};
pub use shape::Shape;
pub use table::{families, family, routed, routed_in, routed_symbols};
pub use types::{Diag, Op, Precision, Side, Trans, Uplo};
