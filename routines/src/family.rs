//! What a row of the table says, and what follows from it: names, work, bytes.

use crate::{Op, Precision};

/// A dimension that sizes and flop counts are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Argument m.
    M,
    /// Argument n.
    N,
    /// Argument k, or nrhs where a family has right-hand sides.
    K,
    /// Order of the special matrix: m when it stands on the left, n on the right.
    Order,
    /// min(m, n).
    Min,
    /// max(m, n).
    Max,
    /// The dimension that is not `Order`: n when the special matrix stands on the left, else m.
    Other,
    /// n - 1, and 0 when n is 0.
    NLessOne,
    /// 2 n.
    TwiceN,
    /// The constant 1.
    One,
}

/// Values of the dimensions of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dims {
    /// Argument m; n where a family has only n.
    pub m: u64,
    /// Argument n.
    pub n: u64,
    /// Argument k or nrhs.
    pub k: u64,
    /// The special matrix stands on the right.
    pub right: bool,
}

impl Dim {
    /// Every dimension, in the order of declaration.
    const ALL: [Self; 10] = [
        Self::M,
        Self::N,
        Self::K,
        Self::Order,
        Self::Min,
        Self::Max,
        Self::Other,
        Self::NLessOne,
        Self::TwiceN,
        Self::One,
    ];
}

impl Dims {
    /// The value of one dimension.
    pub fn get(&self, dim: Dim) -> u64 {
        match dim {
            Dim::M => self.m,
            Dim::N => self.n,
            Dim::K => self.k,
            Dim::Order => {
                if self.right {
                    self.n
                } else {
                    self.m
                }
            }
            Dim::Min => self.m.min(self.n),
            Dim::Max => self.m.max(self.n),
            Dim::Other => {
                if self.right {
                    self.m
                } else {
                    self.n
                }
            }
            Dim::NLessOne => self.n.saturating_sub(1),
            Dim::TwiceN => self.n.saturating_mul(2),
            Dim::One => 1,
        }
    }
}

/// One term of a polynomial: coefficient times a product of dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term(pub f64, pub &'static [Dim]);

/// Multiplications and additions as polynomials in the dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flops {
    /// Multiplications (and divisions) of real arithmetic.
    pub multiplications: &'static [Term],
    /// Additions of real arithmetic.
    pub additions: &'static [Term],
}

impl Flops {
    /// Floating-point operations; in complex arithmetic a multiplication counts 6, an addition 2.
    pub fn count(&self, precision: Precision, dims: &Dims) -> f64 {
        // Once for all terms: a decision has no time for a match at each of their factors.
        let values = Dim::ALL.map(|dim| dims.get(dim) as f64);
        let sum = |terms: &[Term]| {
            terms.iter().fold(0.0, |sum, Term(c, product)| {
                sum + product
                    .iter()
                    .fold(*c, |term, d| term * values[*d as usize])
            })
        };
        weighted(precision, sum(self.multiplications), sum(self.additions))
    }
}

/// Floating-point operations of multiplications and additions; in complex arithmetic a multiplication
/// counts 6, an addition 2.
fn weighted(precision: Precision, multiplications: f64, additions: f64) -> f64 {
    if precision.is_complex() {
        6.0 * multiplications + 2.0 * additions
    } else {
        multiplications + additions
    }
}

/// What a routine does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Read.
    In,
    /// Written, not read.
    Out,
    /// Read and written.
    InOut,
    /// Written, and read unless beta is 0.
    Accumulated,
    /// Read; what stands there on return is of no use to the caller (the row names a job option for
    /// which this is not so).
    Destroyed,
}

/// The part of a matrix that a routine touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Full,
    /// The triangle that uplo names, with the diagonal.
    Triangle,
    /// That triangle is read, all of it is written (eigenvectors over a symmetric matrix).
    TriangleRead,
}

/// Rows or columns of an operand as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Always this.
    Is(Dim),
    /// The first when the named option is N, else the second.
    ByTrans(&'static str, Dim, Dim),
}

impl Extent {
    /// The extent when nothing is transposed; the product of a matrix's extents is the same either
    /// way.
    pub fn plain(self) -> Dim {
        match self {
            Extent::Is(d) | Extent::ByTrans(_, d, _) => d,
        }
    }
}

/// One argument, in the order of the Fortran interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// CHARACTER*1 with its accepted upper-case letters.
    Letter {
        /// Name in the reference ("transa").
        name: &'static str,
        /// Accepted letters.
        accepted: &'static str,
    },
    /// CHARACTER*1 that another option makes an input or an output (equed); checked, when it is an
    /// input, against its accepted upper-case letters.
    LetterInOut {
        /// Name in the reference ("equed").
        name: &'static str,
        /// Accepted letters.
        accepted: &'static str,
    },
    /// A LOGICAL FUNCTION that the caller passes (select).
    Procedure {
        /// Name in the reference ("select").
        name: &'static str,
    },
    /// INTEGER dimension, not negative.
    Size {
        /// Name in the reference ("m").
        name: &'static str,
    },
    /// An input scalar of the routine's type.
    Scalar {
        /// Name in the reference ("alpha").
        name: &'static str,
        /// Real also in the complex routines (herk's alpha and beta, LAPACK's vl, abstol, rcond).
        real: bool,
    },
    /// A column-major matrix of the routine's type.
    Matrix {
        /// Name in the reference ("a").
        name: &'static str,
        /// Rows as stored; the leading dimension is at least this.
        rows: Extent,
        /// Columns as stored.
        cols: Extent,
        /// Part that is touched.
        part: Part,
        /// What is done with it.
        intent: Intent,
    },
    /// INTEGER leading dimension of the matrix before it.
    Ld {
        /// Name in the reference ("lda").
        name: &'static str,
    },
    /// A vector of the routine's type, or of its real type.
    Vector {
        /// Name in the reference ("tau").
        name: &'static str,
        /// Elements.
        len: Dim,
        /// Real also in the complex routines (w, s).
        real: bool,
        /// What is done with it.
        intent: Intent,
    },
    /// An INTEGER or LOGICAL vector (ipiv, isuppz, ifail, trevc3's select), or an INTEGER output (m, rank, iter).
    IntVector {
        /// Name in the reference ("ipiv").
        name: &'static str,
        /// Elements.
        len: Dim,
        /// What is done with it.
        intent: Intent,
    },
    /// INTEGER input that is no size (itype, il, iu).
    Int {
        /// Name in the reference ("itype").
        name: &'static str,
    },
    /// Output whose length is no polynomial in the sizes (bdsdc's q and iq).
    Extra {
        /// Name in the reference ("q").
        name: &'static str,
    },
    /// Workspace (work, rwork, iwork, bwork, swork).
    Work {
        /// Name in the reference ("work").
        name: &'static str,
    },
    /// INTEGER length of a workspace; -1 asks for the best length.
    Lwork {
        /// Name in the reference ("lwork").
        name: &'static str,
    },
    /// INTEGER info.
    Info,
}

impl Arg {
    /// The argument's name in the reference.
    pub fn name(&self) -> &'static str {
        match self {
            Arg::Letter { name, .. }
            | Arg::LetterInOut { name, .. }
            | Arg::Procedure { name }
            | Arg::Size { name }
            | Arg::Scalar { name, .. }
            | Arg::Matrix { name, .. }
            | Arg::Ld { name }
            | Arg::Vector { name, .. }
            | Arg::IntVector { name, .. }
            | Arg::Int { name }
            | Arg::Extra { name }
            | Arg::Work { name }
            | Arg::Lwork { name } => name,
            Arg::Info => "info",
        }
    }
}

/// The library that exports a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// libblas.so.3.
    Blas,
    /// liblapack.so.3.
    Lapack,
}

/// Which precisions a family has, and how their names are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// s, d, c, z before one name.
    All,
    /// Only the real precisions.
    Real,
    /// Only the complex precisions.
    Complex,
    /// s, d before the name, c, z before this one (orgqr, ungqr).
    ComplexNamed(&'static str),
    /// ds and zc before the name (dsgesv, zcgesv).
    Mixed,
}

/// The product that a routed symbol compares with its threshold before anything is decoded. It is never
/// less than the call's work ([`Shape::work`](crate::Shape::work)), so that no call with more work than the
/// threshold is missed; a call that is let through in vain is sent back after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The product of three sizes, which is the work itself.
    Product([&'static str; 3]),
    /// m n max(m, n): the order of the special matrix is m or n by side, and reading side would cost
    /// more than the few calls that are sent back (those with m and n far apart).
    Sided,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// The family.
    pub op: Op,
    /// Library that exports it.
    pub library: Library,
    /// Precisions and names.
    pub naming: Naming,
    /// Arguments in Fortran's order; of the real routines where `complex_args` is given.
    pub args: &'static [Arg],
    /// Arguments of the complex routines where they differ (rwork, one w for wr and wi).
    pub complex_args: Option<&'static [Arg]>,
    /// Floating-point operations.
    pub flops: Flops,
    /// The family has a CBLAS spelling.
    pub cblas: bool,
    /// What is compared with the threshold, for families whose calls pass the door; their entries are
    /// generated. `None` leaves the archive's own symbol.
    pub gate: Option<Gate>,
    /// What the row was written from.
    pub source: &'static str,
}

impl Family {
    /// The routine's name in one precision ("dgemm"), or `None` where the family lacks it.
    pub fn routine(&self, precision: Precision) -> Option<String> {
        let base = self.op.name();
        let letter = precision.letter();
        match (self.naming, precision.is_complex()) {
            (Naming::All, _) | (Naming::Real, false) | (Naming::Complex, true) => {
                Some(format!("{letter}{base}"))
            }
            (Naming::ComplexNamed(name), complex) => {
                Some(format!("{letter}{}", if complex { name } else { base }))
            }
            (Naming::Mixed, _) => match precision {
                Precision::D => Some(format!("ds{base}")),
                Precision::Z => Some(format!("zc{base}")),
                _ => None,
            },
            (Naming::Real, true) | (Naming::Complex, false) => None,
        }
    }

    /// Every routine of the family with its precision.
    pub fn routines(&self) -> impl Iterator<Item = (Precision, String)> + '_ {
        Precision::ALL
            .into_iter()
            .filter_map(|p| Some((p, self.routine(p)?)))
    }

    /// Arguments of the routine of one precision, in Fortran's order.
    pub fn args_of(&self, precision: Precision) -> &'static [Arg] {
        match self.complex_args {
            Some(args) if precision.is_complex() => args,
            _ => self.args,
        }
    }

    /// Index of an argument in Fortran's order; of the real routines where complex ones differ.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|a| a.name() == name)
    }

    /// Floating-point operations of one unit of work, for large calls: what the cubic terms of the
    /// polynomial add up to (2 for a real gemm, 1 for a real syrk, 8 and 4 for the complex ones).
    pub fn flops_per_work(&self, precision: Precision) -> f64 {
        let cubic = |terms: &'static [Term]| -> f64 {
            let cubic = terms.iter().filter(|Term(_, dims)| dims.len() == 3);
            cubic.map(|Term(c, _)| c).sum()
        };
        weighted(
            precision,
            cubic(self.flops.multiplications),
            cubic(self.flops.additions),
        )
    }

    /// Bytes that must reach the device, and bytes that must come back.
    pub fn bytes(&self, precision: Precision, dims: &Dims, beta_zero: bool) -> (f64, f64) {
        let real_bytes =
            precision.elem_bytes() as f64 / if precision.is_complex() { 2.0 } else { 1.0 };
        let (mut to_device, mut from_device) = (0.0, 0.0);
        for arg in self.args_of(precision) {
            let (bytes_in, bytes_out, intent) = match *arg {
                Arg::Matrix {
                    rows,
                    cols,
                    part,
                    intent,
                    ..
                } => {
                    let (r, c) = (dims.get(rows.plain()) as f64, dims.get(cols.plain()) as f64);
                    let triangle = r * (r + 1.0) / 2.0;
                    let (read, written) = match part {
                        Part::Full => (r * c, r * c),
                        Part::Triangle => (triangle, triangle),
                        Part::TriangleRead => (triangle, r * c),
                    };
                    let each = precision.elem_bytes() as f64;
                    (read * each, written * each, intent)
                }
                Arg::Vector {
                    len, real, intent, ..
                } => {
                    let each = if real {
                        real_bytes
                    } else {
                        precision.elem_bytes() as f64
                    };
                    let bytes = dims.get(len) as f64 * each;
                    (bytes, bytes, intent)
                }
                Arg::IntVector { len, intent, .. } => {
                    let bytes = dims.get(len) as f64 * 4.0;
                    (bytes, bytes, intent)
                }
                _ => continue,
            };
            let (read, written) = match intent {
                Intent::In | Intent::Destroyed => (true, false),
                Intent::Out => (false, true),
                Intent::InOut => (true, true),
                Intent::Accumulated => (!beta_zero, true),
            };
            if read {
                to_device += bytes_in;
            }
            if written {
                from_device += bytes_out;
            }
        }
        (to_device, from_device)
    }
}
