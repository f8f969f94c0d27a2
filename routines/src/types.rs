//! The option letters and the names of families, shared by everything that handles a call.

/// Element type, by its BLAS letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Precision {
    /// float32.
    S = b'S',
    /// float64.
    D = b'D',
    /// Complex of two float32.
    C = b'C',
    /// Complex of two float64.
    Z = b'Z',
}

impl Precision {
    /// All four, in LAPACK's order.
    pub const ALL: [Self; 4] = [Self::S, Self::D, Self::C, Self::Z];

    /// From the code of the engine ABI (the upper-case letter).
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|p| *p as u8 == code)
    }

    /// The real type of the same width.
    pub fn real(self) -> Self {
        match self {
            Self::S | Self::C => Self::S,
            Self::D | Self::Z => Self::D,
        }
    }

    /// Lower-case letter, as it stands in routine names.
    pub fn letter(self) -> char {
        (self as u8).to_ascii_lowercase() as char
    }

    /// Bytes of one element.
    pub fn elem_bytes(self) -> usize {
        match self {
            Self::S => 4,
            Self::D | Self::C => 8,
            Self::Z => 16,
        }
    }

    /// True for C and Z.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::C | Self::Z)
    }

    /// Real operations of one multiplication and addition.
    pub fn flops_of_madd(self) -> f64 {
        if self.is_complex() { 8.0 } else { 2.0 }
    }
}

macro_rules! letters {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $letter:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $letter),* }

        impl $name {
            /// From a BLAS letter in either case.
            pub fn from_letter(letter: u8) -> Option<Self> {
                match letter.to_ascii_uppercase() {
                    $($letter => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

letters!(
    /// op(X): X, its transpose, or its conjugate transpose.
    Trans {
        /// X.
        N = b'N',
        /// X transposed.
        T = b'T',
        /// X conjugate-transposed; for real types the same as T.
        C = b'C',
    }
);
letters!(
    /// Side on which the special matrix stands.
    Side {
        /// Left.
        L = b'L',
        /// Right.
        R = b'R',
    }
);
letters!(
    /// Triangle that is stored.
    Uplo {
        /// Upper.
        U = b'U',
        /// Lower.
        L = b'L',
    }
);
letters!(
    /// Diagonal of a triangular matrix.
    Diag {
        /// As stored.
        N = b'N',
        /// Ones, not read.
        U = b'U',
    }
);

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// A routine family. The codes are part of the engine ABI: they are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Op { $($(#[$doc])* $variant = $code),* }

        impl Op {
            /// Every family.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// From the code of the engine ABI.
            pub fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// The family's name without precision letter ("gemm").
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

impl Op {
    /// The families of level-3 BLAS, all of which have a GPU path.
    pub const LEVEL3: [Self; 12] = [
        Self::Gemm,
        Self::Gemm3m,
        Self::Gemmtr,
        Self::Gemmt,
        Self::Symm,
        Self::Hemm,
        Self::Syrk,
        Self::Herk,
        Self::Syr2k,
        Self::Her2k,
        Self::Trmm,
        Self::Trsm,
    ];
}

ops! {
    /// C := alpha op(A) op(B) + beta C.
    Gemm = 1, "gemm";
    /// gemm in three real products (complex only).
    Gemm3m = 2, "gemm3m";
    /// gemm that writes one triangle of C.
    Gemmtr = 3, "gemmtr";
    /// gemmtr by its older name.
    Gemmt = 4, "gemmt";
    /// C := alpha A B + beta C or alpha B A + beta C with A symmetric.
    Symm = 5, "symm";
    /// symm with A Hermitian.
    Hemm = 6, "hemm";
    /// C := alpha A A^T + beta C or alpha A^T A + beta C.
    Syrk = 7, "syrk";
    /// syrk with conjugate transposes.
    Herk = 8, "herk";
    /// C := alpha A B^T + alpha B A^T + beta C.
    Syr2k = 9, "syr2k";
    /// syr2k with conjugate transposes.
    Her2k = 10, "her2k";
    /// B := alpha op(A) B or alpha B op(A) with A triangular.
    Trmm = 11, "trmm";
    /// Solves op(A) X = alpha B or X op(A) = alpha B with A triangular.
    Trsm = 12, "trsm";
    /// P L U = A with partial pivoting.
    Getrf = 13, "getrf";
    /// Solves op(A) X = B with the factors of getrf.
    Getrs = 14, "getrs";
    /// Inverse from the factors of getrf.
    Getri = 15, "getri";
    /// Solves A X = B by getrf and getrs.
    Gesv = 16, "gesv";
    /// gesv with equilibration, refinement and error bounds.
    Gesvx = 17, "gesvx";
    /// A = U^H U or L L^H.
    Potrf = 18, "potrf";
    /// Solves A X = B with the factor of potrf.
    Potrs = 19, "potrs";
    /// Inverse from the factor of potrf.
    Potri = 20, "potri";
    /// Solves A X = B by potrf and potrs.
    Posv = 21, "posv";
    /// Inverse of a triangular matrix.
    Trtri = 22, "trtri";
    /// Solves op(A) X = B with A triangular, after a test for singularity.
    Trtrs = 23, "trtrs";
    /// U U^H or L^H L over its factor.
    Lauum = 24, "lauum";
    /// A = U D U^T or L D L^T with symmetric pivoting (Bunch and Kaufman).
    Sytrf = 25, "sytrf";
    /// Solves A X = B with the factors of sytrf.
    Sytrs = 26, "sytrs";
    /// Solves A X = B by sytrf and sytrs.
    Sysv = 27, "sysv";
    /// A = Q R.
    Geqrf = 28, "geqrf";
    /// Q of geqrf as a matrix; ungqr in complex arithmetic.
    Orgqr = 29, "orgqr";
    /// C := op(Q) C or C op(Q) with Q of geqrf; unmqr in complex arithmetic.
    Ormqr = 30, "ormqr";
    /// Least squares or least norm by QR or LQ, full rank.
    Gels = 31, "gels";
    /// Least squares of least norm by the SVD, divide and conquer.
    Gelsd = 32, "gelsd";
    /// Least squares of least norm by the SVD, QR iteration.
    Gelss = 33, "gelss";
    /// Least squares of least norm by QR with column pivoting.
    Gelsy = 34, "gelsy";
    /// A P = Q R with column pivoting.
    Geqp3 = 35, "geqp3";
    /// A = L Q.
    Gelqf = 36, "gelqf";
    /// Eigenvalues and vectors, QL iteration; heev in complex arithmetic.
    Syev = 37, "syev";
    /// Eigenvalues and vectors, divide and conquer; heevd in complex arithmetic.
    Syevd = 38, "syevd";
    /// Selected eigenvalues and vectors, relatively robust representations; heevr.
    Syevr = 39, "syevr";
    /// Selected eigenvalues and vectors, bisection and inverse iteration; heevx.
    Syevx = 40, "syevx";
    /// Eigenvalues and vectors of A x = w B x and its kin; hegv in complex arithmetic.
    Sygv = 41, "sygv";
    /// sygv by divide and conquer; hegvd in complex arithmetic.
    Sygvd = 42, "sygvd";
    /// A = U S V^H, divide and conquer.
    Gesdd = 43, "gesdd";
    /// A = U S V^H, QR iteration.
    Gesvd = 44, "gesvd";
    /// SVD of a real bidiagonal matrix, divide and conquer.
    Bdsdc = 45, "bdsdc";
    /// Eigenvalues and left and right vectors of a general matrix.
    Geev = 46, "geev";
    /// Q^H A Q = H, upper Hessenberg.
    Gehrd = 47, "gehrd";
    /// Q of gehrd as a matrix; unghr in complex arithmetic.
    Orghr = 48, "orghr";
    /// Eigenvectors of an upper quasi-triangular matrix, blocked.
    Trevc3 = 49, "trevc3";
    /// Schur form and vectors, with ordering.
    Gees = 50, "gees";
    /// Generalised Schur form and vectors, with ordering.
    Gges = 51, "gges";
    /// gesv with factors of the lower precision and refinement: dsgesv, zcgesv.
    GesvMixed = 52, "gesv";
    /// posv with a factor of the lower precision and refinement: dsposv, zcposv.
    PosvMixed = 53, "posv";
    /// Selected eigenvalues and vectors of A x = w B x and its kin, as syevx; hegvx in complex arithmetic.
    Sygvx = 54, "sygvx";
}
