//! The LAPACK rows: families that will get a GPU path.

use crate::family::Family;

/// LAPACK families.
pub(crate) const FAMILIES: &[Family] = &[];
