//! The LAPACK rows: families that get a GPU path. Data only; what follows from a row is computed in
//! `family`.
//!
//! Where flops or bytes depend on a job option, the row counts a call that asks for the vectors, of
//! the economical size. Rows whose real and complex routines differ share their common stretches.

use crate::Op;
use crate::family::{
    Arg::{self, Info, Procedure},
    Dim::{self, K, M, Max, Min, N, NLessOne, One, Order, Other, TwiceN},
    Extent::Is,
    Family, Flops,
    Gate::{self, Product},
    Intent::{self, Destroyed, In, InOut, Out},
    Library::Lapack,
    Naming,
    Part::{self, Full, Triangle, TriangleRead},
    Term,
};

// ---- joining stretches of arguments and sums of polynomials -------------------------------------

const fn total<T>(parts: &[&[T]]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < parts.len() {
        sum += parts[i].len();
        i += 1;
    }
    sum
}

/// All parts one after the other; `LEN` is their `total`, and not 0.
const fn join<T: Copy, const LEN: usize>(parts: &[&[T]]) -> [T; LEN] {
    let mut first = 0;
    while parts[first].is_empty() {
        first += 1;
    }
    let mut all = [parts[first][0]; LEN];
    let (mut at, mut i) = (0, 0);
    while i < parts.len() {
        let mut j = 0;
        while j < parts[i].len() {
            all[at] = parts[i][j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    all
}

/// The slices of one type, joined.
macro_rules! joined {
    ($type:ty: $($part:expr),+ $(,)?) => {{
        const PARTS: &[&[$type]] = &[$($part),+];
        const ALL: [$type; total(PARTS)] = join(PARTS);
        &ALL
    }};
}

/// The work of several steps.
macro_rules! sum {
    ($($part:expr),+ $(,)?) => {
        Flops {
            multiplications: joined!(Term: $($part.multiplications),+),
            additions: joined!(Term: $($part.additions),+),
        }
    };
}

// ---- arguments ----------------------------------------------------------------------------------

const fn letter(name: &'static str, accepted: &'static str) -> Arg {
    Arg::Letter { name, accepted }
}
const fn size(name: &'static str) -> Arg {
    Arg::Size { name }
}
const fn ld(name: &'static str) -> Arg {
    Arg::Ld { name }
}
const fn matrix(name: &'static str, rows: Dim, cols: Dim, part: Part, intent: Intent) -> Arg {
    Arg::Matrix {
        name,
        rows: Is(rows),
        cols: Is(cols),
        part,
        intent,
    }
}
/// n x n, all of it.
const fn square(name: &'static str, intent: Intent) -> Arg {
    matrix(name, N, N, Full, intent)
}
/// n x n, the triangle that uplo names.
const fn triangle(name: &'static str, intent: Intent) -> Arg {
    matrix(name, N, N, Triangle, intent)
}
/// n x nrhs.
const fn sides(name: &'static str, intent: Intent) -> Arg {
    matrix(name, N, K, Full, intent)
}
/// Of the routine's type.
const fn vector(name: &'static str, len: Dim, intent: Intent) -> Arg {
    Arg::Vector {
        name,
        len,
        real: false,
        intent,
    }
}
/// Real also in the complex routines.
const fn reals(name: &'static str, len: Dim, intent: Intent) -> Arg {
    Arg::Vector {
        name,
        len,
        real: true,
        intent,
    }
}
const fn ints(name: &'static str, len: Dim, intent: Intent) -> Arg {
    Arg::IntVector { name, len, intent }
}
/// A real input, also in the complex routines.
const fn real(name: &'static str) -> Arg {
    Arg::Scalar { name, real: true }
}
/// An INTEGER input that is no size.
const fn int(name: &'static str) -> Arg {
    Arg::Int { name }
}
/// An INTEGER output.
const fn int_out(name: &'static str) -> Arg {
    ints(name, One, Out)
}
const fn extra(name: &'static str) -> Arg {
    Arg::Extra { name }
}
const fn work(name: &'static str) -> Arg {
    Arg::Work { name }
}
const fn lwork(name: &'static str) -> Arg {
    Arg::Lwork { name }
}

const UPLO: Arg = letter("uplo", "UL");
const DIAG: Arg = letter("diag", "NU");
const SIDE: Arg = letter("side", "LR");
const JOBZ: Arg = letter("jobz", "NV");
const TRANS: Arg = letter("trans", "NTC");
/// Routines whose real versions know no conjugate and whose complex versions know no plain
/// transpose.
const TRANS_REAL: Arg = letter("trans", "NT");
const TRANS_COMPLEX: Arg = letter("trans", "NC");
const M_: Arg = size("m");
const N_: Arg = size("n");
const K_: Arg = size("k");
const NRHS: Arg = size("nrhs");
const LDA: Arg = ld("lda");
const LDB: Arg = ld("ldb");
const WORK: Arg = work("work");
const LWORK: Arg = lwork("lwork");
const RWORK: Arg = work("rwork");
const LRWORK: Arg = lwork("lrwork");
const IWORK: Arg = work("iwork");
const LIWORK: Arg = lwork("liwork");
const BWORK: Arg = work("bwork");

const GETRF_ARGS: &[Arg] = &[
    M_,
    N_,
    matrix("a", M, N, Full, InOut),
    LDA,
    ints("ipiv", Min, Out),
    Info,
];
const GETRS_ARGS: &[Arg] = &[
    TRANS,
    N_,
    NRHS,
    square("a", In),
    LDA,
    ints("ipiv", N, In),
    sides("b", InOut),
    LDB,
    Info,
];
const GETRI_ARGS: &[Arg] = &[
    N_,
    square("a", InOut),
    LDA,
    ints("ipiv", N, In),
    WORK,
    LWORK,
    Info,
];
const GESV_ARGS: &[Arg] = &[
    N_,
    NRHS,
    square("a", InOut),
    LDA,
    ints("ipiv", N, Out),
    sides("b", InOut),
    LDB,
    Info,
];

/// work(1) or rwork(1) returns the reciprocal pivot growth.
const GESVX_COMMON: &[Arg] = &[
    letter("fact", "FNE"),
    TRANS,
    N_,
    NRHS,
    square("a", InOut),
    LDA,
    square("af", InOut),
    ld("ldaf"),
    ints("ipiv", N, InOut),
    Arg::LetterInOut {
        name: "equed",
        accepted: "NRCB",
    },
    reals("r", N, InOut),
    reals("c", N, InOut),
    sides("b", InOut),
    LDB,
    sides("x", Out),
    ld("ldx"),
    reals("rcond", One, Out),
    reals("ferr", K, Out),
    reals("berr", K, Out),
    WORK,
];

const POTRF_ARGS: &[Arg] = &[UPLO, N_, triangle("a", InOut), LDA, Info];
const POTRS_ARGS: &[Arg] = &[
    UPLO,
    N_,
    NRHS,
    triangle("a", In),
    LDA,
    sides("b", InOut),
    LDB,
    Info,
];
const POSV_ARGS: &[Arg] = &[
    UPLO,
    N_,
    NRHS,
    triangle("a", InOut),
    LDA,
    sides("b", InOut),
    LDB,
    Info,
];
const TRTRI_ARGS: &[Arg] = &[UPLO, DIAG, N_, triangle("a", InOut), LDA, Info];
const TRTRS_ARGS: &[Arg] = &[
    UPLO,
    TRANS,
    DIAG,
    N_,
    NRHS,
    triangle("a", In),
    LDA,
    sides("b", InOut),
    LDB,
    Info,
];
const SYTRF_ARGS: &[Arg] = &[
    UPLO,
    N_,
    triangle("a", InOut),
    LDA,
    ints("ipiv", N, Out),
    WORK,
    LWORK,
    Info,
];
const SYTRS_ARGS: &[Arg] = &[
    UPLO,
    N_,
    NRHS,
    triangle("a", In),
    LDA,
    ints("ipiv", N, In),
    sides("b", InOut),
    LDB,
    Info,
];
const SYSV_ARGS: &[Arg] = &[
    UPLO,
    N_,
    NRHS,
    triangle("a", InOut),
    LDA,
    ints("ipiv", N, Out),
    sides("b", InOut),
    LDB,
    WORK,
    LWORK,
    Info,
];

const GEQRF_ARGS: &[Arg] = &[
    M_,
    N_,
    matrix("a", M, N, Full, InOut),
    LDA,
    vector("tau", Min, Out),
    WORK,
    LWORK,
    Info,
];
const ORGQR_ARGS: &[Arg] = &[
    M_,
    N_,
    K_,
    matrix("a", M, N, Full, InOut),
    LDA,
    vector("tau", K, In),
    WORK,
    LWORK,
    Info,
];
const ORMQR_AFTER_TRANS: &[Arg] = &[
    M_,
    N_,
    K_,
    matrix("a", Order, K, Full, In),
    LDA,
    vector("tau", K, In),
    matrix("c", M, N, Full, InOut),
    ld("ldc"),
    WORK,
    LWORK,
    Info,
];
/// b holds right-hand sides in m rows (or n), and the solutions in n (or m).
const GELS_AFTER_TRANS: &[Arg] = &[
    M_,
    N_,
    NRHS,
    matrix("a", M, N, Full, InOut),
    LDA,
    matrix("b", Max, K, Full, InOut),
    LDB,
    WORK,
    LWORK,
    Info,
];
/// gelsd and gelss up to lwork; gelsd leaves nothing of use in a, gelss its right singular vectors.
const fn gels_svd(a: Intent) -> [Arg; 12] {
    [
        M_,
        N_,
        NRHS,
        matrix("a", M, N, Full, a),
        LDA,
        matrix("b", Max, K, Full, InOut),
        LDB,
        reals("s", Min, Out),
        real("rcond"),
        int_out("rank"),
        WORK,
        LWORK,
    ]
}
const GELSY_COMMON: &[Arg] = &[
    M_,
    N_,
    NRHS,
    matrix("a", M, N, Full, InOut),
    LDA,
    matrix("b", Max, K, Full, InOut),
    LDB,
    ints("jpvt", N, InOut),
    real("rcond"),
    int_out("rank"),
    WORK,
    LWORK,
];
const GEQP3_COMMON: &[Arg] = &[
    M_,
    N_,
    matrix("a", M, N, Full, InOut),
    LDA,
    ints("jpvt", N, InOut),
    vector("tau", Min, Out),
    WORK,
    LWORK,
];

/// syev and syevd up to lwork. With jobz = N the triangle is destroyed and nothing returned in it.
const SYEV_COMMON: &[Arg] = &[
    JOBZ,
    UPLO,
    N_,
    matrix("a", N, N, TriangleRead, InOut),
    LDA,
    reals("w", N, Out),
    WORK,
    LWORK,
];
/// syevr and syevx up to ldz. Only the first m columns of z (all of them with range = A) and
/// elements of w are written.
const SYEVX_COMMON: &[Arg] = &[
    JOBZ,
    letter("range", "AVI"),
    UPLO,
    N_,
    triangle("a", Destroyed),
    LDA,
    real("vl"),
    real("vu"),
    int("il"),
    int("iu"),
    real("abstol"),
    int_out("m"),
    reals("w", N, Out),
    square("z", Out),
    ld("ldz"),
];
const ISUPPZ: Arg = ints("isuppz", TwiceN, Out);
const IFAIL: Arg = ints("ifail", N, Out);
/// sygv and sygvd up to lwork; b returns its Cholesky factor.
const SYGV_COMMON: &[Arg] = &[
    int("itype"),
    JOBZ,
    UPLO,
    N_,
    matrix("a", N, N, TriangleRead, InOut),
    LDA,
    triangle("b", InOut),
    LDB,
    reals("w", N, Out),
    WORK,
    LWORK,
];
/// sygvx up to lwork; b returns its Cholesky factor.
const SYGVX_COMMON: &[Arg] = &[
    int("itype"),
    JOBZ,
    letter("range", "AVI"),
    UPLO,
    N_,
    triangle("a", Destroyed),
    LDA,
    triangle("b", InOut),
    LDB,
    real("vl"),
    real("vu"),
    int("il"),
    int("iu"),
    real("abstol"),
    int_out("m"),
    reals("w", N, Out),
    square("z", Out),
    ld("ldz"),
    WORK,
    LWORK,
];
/// What follows lwork in the divide-and-conquer drivers.
const REAL_TAIL: &[Arg] = &[IWORK, LIWORK, Info];
const COMPLEX_TAIL: &[Arg] = &[RWORK, LRWORK, IWORK, LIWORK, Info];

/// gesdd and gesvd after their job options, up to lwork. With an option O, a returns vectors; with
/// A, u is m x m and vt n x n (so ldvt >= n).
const SVD_COMMON: &[Arg] = &[
    M_,
    N_,
    matrix("a", M, N, Full, Destroyed),
    LDA,
    reals("s", Min, Out),
    matrix("u", M, Min, Full, Out),
    ld("ldu"),
    matrix("vt", Min, N, Full, Out),
    ld("ldvt"),
    WORK,
    LWORK,
];
/// q and iq are written with compq = P only; their length is no polynomial in n, so no bytes are
/// counted for them.
const BDSDC_ARGS: &[Arg] = &[
    UPLO,
    letter("compq", "NPI"),
    N_,
    reals("d", N, InOut),
    reals("e", NLessOne, InOut),
    square("u", Out),
    ld("ldu"),
    square("vt", Out),
    ld("ldvt"),
    extra("q"),
    extra("iq"),
    WORK,
    IWORK,
    Info,
];

const GEEV_HEAD: &[Arg] = &[
    letter("jobvl", "NV"),
    letter("jobvr", "NV"),
    N_,
    square("a", Destroyed),
    LDA,
];
const GEEV_VECTORS: &[Arg] = &[
    square("vl", Out),
    ld("ldvl"),
    square("vr", Out),
    ld("ldvr"),
    WORK,
    LWORK,
];
const WR_WI: &[Arg] = &[vector("wr", N, Out), vector("wi", N, Out)];
const W: &[Arg] = &[vector("w", N, Out)];
const GEHRD_ARGS: &[Arg] = &[
    N_,
    int("ilo"),
    int("ihi"),
    square("a", InOut),
    LDA,
    vector("tau", NLessOne, Out),
    WORK,
    LWORK,
    Info,
];
const ORGHR_ARGS: &[Arg] = &[
    N_,
    int("ilo"),
    int("ihi"),
    square("a", InOut),
    LDA,
    vector("tau", NLessOne, In),
    WORK,
    LWORK,
    Info,
];
/// t is changed during the complex routine and restored. vl and vr are n x mm; mm is n where all
/// vectors are asked for.
const TREVC3_HEAD: &[Arg] = &[letter("side", "RLB"), letter("howmny", "ABS")];
const TREVC3_COMMON: &[Arg] = &[
    N_,
    square("t", In),
    ld("ldt"),
    square("vl", InOut),
    ld("ldvl"),
    square("vr", InOut),
    ld("ldvr"),
    size("mm"),
    int_out("m"),
    WORK,
    LWORK,
];
const GEES_HEAD: &[Arg] = &[
    letter("jobvs", "NV"),
    letter("sort", "NS"),
    Procedure { name: "select" },
    N_,
    square("a", InOut),
    LDA,
    int_out("sdim"),
];
const GEES_VECTORS: &[Arg] = &[square("vs", Out), ld("ldvs"), WORK, LWORK];
const GGES_HEAD: &[Arg] = &[
    letter("jobvsl", "NV"),
    letter("jobvsr", "NV"),
    letter("sort", "NS"),
    Procedure { name: "selctg" },
    N_,
    square("a", InOut),
    LDA,
    square("b", InOut),
    LDB,
    int_out("sdim"),
];
const GGES_VECTORS: &[Arg] = &[
    vector("beta", N, Out),
    square("vsl", Out),
    ld("ldvsl"),
    square("vsr", Out),
    ld("ldvsr"),
    WORK,
    LWORK,
];

/// a is unchanged when refinement converges, and returns the factors otherwise.
const GESV_MIXED: &[Arg] = &[
    N_,
    NRHS,
    square("a", InOut),
    LDA,
    ints("ipiv", N, Out),
    sides("b", In),
    LDB,
    sides("x", Out),
    ld("ldx"),
    WORK,
    work("swork"),
];
const POSV_MIXED: &[Arg] = &[
    UPLO,
    N_,
    NRHS,
    triangle("a", InOut),
    LDA,
    sides("b", In),
    LDB,
    sides("x", Out),
    ld("ldx"),
    WORK,
    work("swork"),
];
const ITER: Arg = int_out("iter");

// ---- floating-point operations ------------------------------------------------------------------
// Families without m write their polynomials in n alone.

/// With p = max(m, n), q = min(m, n): the rank-1 updates take
/// p q^2 / 2 - q^3 / 6 - p q / 2 + q / 6 of each, and column k one reciprocal and m - k products.
/// LAWN 41's count for m >= n; it has no other for m < n than that of the transpose.
const GETRF: Flops = Flops {
    multiplications: &[
        Term(0.5, &[Max, Min, Min]),
        Term(-1.0 / 6.0, &[Min, Min, Min]),
        Term(-0.5, &[M, N]),
        Term(1.0, &[M, Min]),
        Term(-0.5, &[Min, Min]),
        Term(2.0 / 3.0, &[Min]),
    ],
    additions: &[
        Term(0.5, &[Max, Min, Min]),
        Term(-1.0 / 6.0, &[Min, Min, Min]),
        Term(-0.5, &[M, N]),
        Term(1.0 / 6.0, &[Min]),
    ],
};
const GETRF_SQUARE: Flops = Flops {
    multiplications: &[Term(1.0 / 3.0, &[N, N, N]), Term(2.0 / 3.0, &[N])],
    additions: &[
        Term(1.0 / 3.0, &[N, N, N]),
        Term(-0.5, &[N, N]),
        Term(1.0 / 6.0, &[N]),
    ],
};
const GETRS: Flops = Flops {
    multiplications: &[Term(1.0, &[K, N, N])],
    additions: &[Term(1.0, &[K, N, N]), Term(-1.0, &[K, N])],
};
/// LAWN 41; its multiplications are n (n + 1) / 2 more than the plain loop's.
const GETRI: Flops = Flops {
    multiplications: &[
        Term(2.0 / 3.0, &[N, N, N]),
        Term(0.5, &[N, N]),
        Term(5.0 / 6.0, &[N]),
    ],
    additions: &[
        Term(2.0 / 3.0, &[N, N, N]),
        Term(-1.5, &[N, N]),
        Term(5.0 / 6.0, &[N]),
    ],
};
const POTRF: Flops = Flops {
    multiplications: &[
        Term(1.0 / 6.0, &[N, N, N]),
        Term(0.5, &[N, N]),
        Term(1.0 / 3.0, &[N]),
    ],
    additions: &[Term(1.0 / 6.0, &[N, N, N]), Term(-1.0 / 6.0, &[N])],
};
/// Two triangular solves.
const POTRS: Flops = Flops {
    multiplications: &[Term(1.0, &[K, N, N]), Term(1.0, &[K, N])],
    additions: &[Term(1.0, &[K, N, N]), Term(-1.0, &[K, N])],
};
const TRTRS: Flops = Flops {
    multiplications: &[Term(0.5, &[K, N, N]), Term(0.5, &[K, N])],
    additions: &[Term(0.5, &[K, N, N]), Term(-0.5, &[K, N])],
};
const TRTRI: Flops = Flops {
    multiplications: &[
        Term(1.0 / 6.0, &[N, N, N]),
        Term(0.5, &[N, N]),
        Term(1.0 / 3.0, &[N]),
    ],
    additions: &[
        Term(1.0 / 6.0, &[N, N, N]),
        Term(-0.5, &[N, N]),
        Term(1.0 / 3.0, &[N]),
    ],
};
/// What LAWN 41's potri has beyond its trtri; as many operations as potrf.
const LAUUM: Flops = POTRF;
const SYTRF: Flops = Flops {
    multiplications: &[
        Term(1.0 / 6.0, &[N, N, N]),
        Term(0.5, &[N, N]),
        Term(10.0 / 3.0, &[N]),
    ],
    additions: &[Term(1.0 / 6.0, &[N, N, N]), Term(-1.0 / 6.0, &[N])],
};
const SYTRS: Flops = POTRS;

/// Making a reflector of length l takes 2 l + 4 multiplications and l + 1 additions, applying it to
/// v vectors from the left (2 l + 1) v and 2 l v, from the right 2 l v + l and 2 l v (the reflector is
/// scaled by tau there, not the products): so LAWN 41 counts.
const GEQRF: Flops = Flops {
    multiplications: &[
        Term(1.0, &[Max, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[M, N]),
        Term(1.0, &[N, Min]),
        Term(-0.5, &[Min, Min]),
        Term(23.0 / 6.0, &[Min]),
    ],
    additions: &[
        Term(1.0, &[Max, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[N, Min]),
        Term(-0.5, &[Min, Min]),
        Term(5.0 / 6.0, &[Min]),
    ],
};
const GELQF: Flops = Flops {
    multiplications: &[
        Term(1.0, &[Max, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[M, N]),
        Term(1.0, &[N, Min]),
        Term(-0.5, &[Min, Min]),
        Term(29.0 / 6.0, &[Min]),
    ],
    additions: &[
        Term(1.0, &[Max, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[M, Min]),
        Term(-0.5, &[Min, Min]),
        Term(5.0 / 6.0, &[Min]),
    ],
};
/// The thin factorisation: geqrf of a, or of its transpose if that is taller.
const GEQRF_TALL: Flops = Flops {
    multiplications: &[
        Term(1.0, &[Max, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[M, N]),
        Term(0.5, &[Min, Min]),
        Term(23.0 / 6.0, &[Min]),
    ],
    additions: &[
        Term(1.0, &[Max, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(0.5, &[Min, Min]),
        Term(5.0 / 6.0, &[Min]),
    ],
};
/// ormqr and trtrs on the right-hand sides; LAWN 41's geqrs.
const GEQRS: Flops = Flops {
    multiplications: &[
        Term(2.0, &[K, M, N]),
        Term(-0.5, &[K, Min, Min]),
        Term(2.5, &[K, Min]),
    ],
    additions: &[
        Term(2.0, &[K, M, N]),
        Term(-0.5, &[K, Min, Min]),
        Term(0.5, &[K, Min]),
    ],
};
const ORGQR: Flops = Flops {
    multiplications: &[
        Term(2.0, &[M, N, K]),
        Term(-1.0, &[M, K, K]),
        Term(-1.0, &[N, K, K]),
        Term(2.0 / 3.0, &[K, K, K]),
        Term(2.0, &[N, K]),
        Term(-1.0, &[K, K]),
        Term(-5.0 / 3.0, &[K]),
    ],
    additions: &[
        Term(2.0, &[M, N, K]),
        Term(-1.0, &[M, K, K]),
        Term(-1.0, &[N, K, K]),
        Term(2.0 / 3.0, &[K, K, K]),
        Term(1.0, &[N, K]),
        Term(-1.0, &[M, K]),
        Term(1.0 / 3.0, &[K]),
    ],
};
/// LAWN 41 for the left side; for the right its mirror image, k (m - n + (k - 1) / 2) multiplications
/// more than LAWN 41's: a row has one polynomial.
const ORMQR: Flops = Flops {
    multiplications: &[
        Term(2.0, &[M, N, K]),
        Term(-1.0, &[Other, K, K]),
        Term(2.0, &[Other, K]),
    ],
    additions: &[
        Term(2.0, &[M, N, K]),
        Term(-1.0, &[Other, K, K]),
        Term(1.0, &[Other, K]),
    ],
};

/// LAWN 41 without its constants (-15 and -4), which would make small counts negative.
const SYTRD: Flops = Flops {
    multiplications: &[
        Term(2.0 / 3.0, &[N, N, N]),
        Term(2.5, &[N, N]),
        Term(-1.0 / 6.0, &[N]),
    ],
    additions: &[
        Term(2.0 / 3.0, &[N, N, N]),
        Term(1.0, &[N, N]),
        Term(-8.0 / 3.0, &[N]),
    ],
};
/// orgqr with m = n = k = n - 1: orgtr, orghr.
const ORGQR_LESS_ONE: Flops = Flops {
    multiplications: &[
        Term(2.0 / 3.0, &[NLessOne, NLessOne, NLessOne]),
        Term(1.0, &[NLessOne, NLessOne]),
        Term(-5.0 / 3.0, &[NLessOne]),
    ],
    additions: &[
        Term(2.0 / 3.0, &[NLessOne, NLessOne, NLessOne]),
        Term(1.0 / 3.0, &[NLessOne]),
    ],
};
/// n - 1 reflectors of length n - 1 and less on n vectors.
const ORMTR: Flops = Flops {
    multiplications: &[
        Term(1.0, &[N, NLessOne, NLessOne]),
        Term(2.0, &[N, NLessOne]),
    ],
    additions: &[
        Term(1.0, &[N, NLessOne, NLessOne]),
        Term(1.0, &[N, NLessOne]),
    ],
};
/// QL iteration with vectors: two sweeps an eigenvalue, a sweep of order l applies l - 1 rotations
/// to n rows, a rotation takes 4 multiplications and 2 additions a row. 6 n^3 in all (Demmel,
/// Applied Numerical Linear Algebra, section 5.3.1).
const STEQR: Flops = Flops {
    multiplications: &[Term(4.0, &[N, N, N]), Term(-4.0, &[N, N])],
    additions: &[Term(2.0, &[N, N, N]), Term(-2.0, &[N, N])],
};
/// Divide and conquer with vectors, no deflation: merging order l takes two products of l/2 x l/2
/// by l/2 x l, in all 4/3 n^3 (Tisseur and Dongarra, SIAM J. Sci. Comput. 20, 1999).
const STEDC: Flops = Flops {
    multiplications: &[Term(2.0 / 3.0, &[N, N, N])],
    additions: &[Term(2.0 / 3.0, &[N, N, N])],
};
const SYEV: Flops = sum!(SYTRD, ORGQR_LESS_ONE, STEQR);
const SYEVD: Flops = sum!(SYTRD, STEDC, ORMTR);
/// All vectors; the tridiagonal eigenproblem itself is O(n^2) (MRRR, or bisection and inverse
/// iteration without clusters).
const SYEVR: Flops = sum!(SYTRD, ORMTR);
/// The reduction to standard form, leading term.
const SYGST: Flops = Flops {
    multiplications: &[Term(0.5, &[N, N, N])],
    additions: &[Term(0.5, &[N, N, N])],
};
/// A triangular solve with n right-hand sides.
const TRSM_N: Flops = Flops {
    multiplications: &[Term(0.5, &[N, N, N]), Term(0.5, &[N, N])],
    additions: &[Term(0.5, &[N, N, N]), Term(-0.5, &[N, N])],
};

const GEBRD: Flops = Flops {
    multiplications: &[
        Term(2.0, &[Max, Min, Min]),
        Term(-2.0 / 3.0, &[Min, Min, Min]),
        Term(2.0, &[Min, Min]),
        Term(20.0 / 3.0, &[Min]),
    ],
    additions: &[
        Term(2.0, &[Max, Min, Min]),
        Term(-2.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[Min, Min]),
        Term(-1.0, &[M, N]),
        Term(5.0 / 3.0, &[Min]),
    ],
};
/// orgqr for the taller factor, p x q, and for the square one, q x q.
const ORGBR_BOTH: Flops = Flops {
    multiplications: &[
        Term(1.0, &[Max, Min, Min]),
        Term(1.0 / 3.0, &[Min, Min, Min]),
        Term(2.0, &[Min, Min]),
        Term(-10.0 / 3.0, &[Min]),
    ],
    additions: &[
        Term(1.0, &[Max, Min, Min]),
        Term(1.0 / 3.0, &[Min, Min, Min]),
        Term(1.0, &[Min, Min]),
        Term(-1.0, &[M, N]),
        Term(2.0 / 3.0, &[Min]),
    ],
};
/// QR iteration: as steqr, on p + q rows.
const BDSQR: Flops = Flops {
    multiplications: &[
        Term(4.0, &[Max, Min, Min]),
        Term(4.0, &[Min, Min, Min]),
        Term(-4.0, &[M, N]),
        Term(-4.0, &[Min, Min]),
    ],
    additions: &[
        Term(2.0, &[Max, Min, Min]),
        Term(2.0, &[Min, Min, Min]),
        Term(-2.0, &[M, N]),
        Term(-2.0, &[Min, Min]),
    ],
};
/// Divide and conquer: as stedc, for both sides (Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16,
/// 1995). The order is min(m, n).
const BDSDC_MIN: Flops = Flops {
    multiplications: &[Term(4.0 / 3.0, &[Min, Min, Min])],
    additions: &[Term(4.0 / 3.0, &[Min, Min, Min])],
};
const BDSDC: Flops = Flops {
    multiplications: &[Term(4.0 / 3.0, &[N, N, N])],
    additions: &[Term(4.0 / 3.0, &[N, N, N])],
};
/// ormqr of q reflectors on q vectors of length p, and of length q.
const ORMBR_BOTH: Flops = Flops {
    multiplications: &[Term(2.0, &[Max, Min, Min]), Term(4.0, &[Min, Min])],
    additions: &[Term(2.0, &[Max, Min, Min]), Term(2.0, &[Min, Min])],
};
/// The QR or LQ that comes first when one side is much longer is not counted: it lowers the count
/// by the same factor on CPU and GPU.
const GESDD: Flops = sum!(GEBRD, BDSDC_MIN, ORMBR_BOTH);
const GESVD: Flops = sum!(GEBRD, ORGBR_BOTH, BDSQR);
/// min(m, n) reflectors of length m on the right-hand sides.
const ORMBR_Q_RHS: Flops = Flops {
    multiplications: &[Term(2.0, &[M, Min, K]), Term(-1.0, &[Min, Min, K])],
    additions: &[Term(2.0, &[M, Min, K]), Term(-1.0, &[Min, Min, K])],
};
/// The same of length n.
const ORMBR_P_RHS: Flops = Flops {
    multiplications: &[Term(2.0, &[N, Min, K]), Term(-1.0, &[Min, Min, K])],
    additions: &[Term(2.0, &[N, Min, K]), Term(-1.0, &[Min, Min, K])],
};
/// V^T of q x n formed, QR iteration on it and on the right-hand sides, and their product.
const GELSS_FINISH: Flops = Flops {
    multiplications: &[
        Term(1.0, &[N, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(4.0, &[N, Min, Min]),
        Term(4.0, &[K, Min, Min]),
        Term(1.0, &[N, Min, K]),
    ],
    additions: &[
        Term(1.0, &[N, Min, Min]),
        Term(-1.0 / 3.0, &[Min, Min, Min]),
        Term(2.0, &[N, Min, Min]),
        Term(2.0, &[K, Min, Min]),
        Term(1.0, &[N, Min, K]),
    ],
};

/// LAWN 41 with ilo = 1, ihi = n, without its constants (-13 and -8), which would make small counts
/// negative.
const GEHRD: Flops = Flops {
    multiplications: &[
        Term(5.0 / 3.0, &[N, N, N]),
        Term(0.5, &[N, N]),
        Term(-7.0 / 6.0, &[N]),
    ],
    additions: &[
        Term(5.0 / 3.0, &[N, N, N]),
        Term(-1.0, &[N, N]),
        Term(-2.0 / 3.0, &[N]),
    ],
};
/// 25 n^3 with the Schur form and vectors.
const SCHUR: Flops = Flops {
    multiplications: &[Term(12.5, &[N, N, N])],
    additions: &[Term(12.5, &[N, N, N])],
};
/// Both sides, howmny = B: n back substitutions of order 1 to n (n^3 / 6 of each) and products of
/// n x l by l (n^3 / 2 of each); twice.
const TREVC3: Flops = Flops {
    multiplications: &[Term(4.0 / 3.0, &[N, N, N])],
    additions: &[Term(4.0 / 3.0, &[N, N, N])],
};
/// 30 n^3 for the eigenvalues, 16 n^3 for Q, 20 n^3 for Z.
const QZ: Flops = Flops {
    multiplications: &[Term(33.0, &[N, N, N])],
    additions: &[Term(33.0, &[N, N, N])],
};

// ---- rows ---------------------------------------------------------------------------------------

const LAWN: &str = "LAPACK 3.12; LAWN 41 appendix C";

/// A row whose real and complex routines have the same arguments.
const fn same(op: Op, args: &'static [Arg], flops: Flops) -> Family {
    Family {
        op,
        library: Lapack,
        naming: Naming::All,
        args,
        complex_args: None,
        flops,
        cblas: false,
        gate: None,
        source: LAWN,
    }
}

/// A row whose complex routines have other arguments.
const fn differing(op: Op, args: &'static [Arg], complex: &'static [Arg], flops: Flops) -> Family {
    Family {
        complex_args: Some(complex),
        ..same(op, args, flops)
    }
}

const fn from(source: &'static str, row: Family) -> Family {
    Family { source, ..row }
}

const fn complex_named(name: &'static str, row: Family) -> Family {
    Family {
        naming: Naming::ComplexNamed(name),
        ..row
    }
}

/// A row whose calls pass the door.
const fn gated(gate: Gate, row: Family) -> Family {
    Family {
        gate: Some(gate),
        ..row
    }
}

/// Of a square factorisation. Right-hand sides do not count, so that a system with more of them than
/// unknowns may stay on the CPU.
const NNN: Gate = Product(["n", "n", "n"]);
/// Of a rectangular factorisation: m n min(m, n) is its work, which is not more than this.
const MNN: Gate = Product(["m", "n", "n"]);
const MNK: Gate = Product(["m", "n", "k"]);
/// Of two triangular solves.
const NNRHS: Gate = Product(["n", "n", "nrhs"]);

/// LAPACK families.
pub(crate) const FAMILIES: &[Family] = &[
    // Linear systems.
    gated(MNN, same(Op::Getrf, GETRF_ARGS, GETRF)),
    gated(NNRHS, same(Op::Getrs, GETRS_ARGS, GETRS)),
    gated(NNN, same(Op::Getri, GETRI_ARGS, GETRI)),
    gated(NNN, same(Op::Gesv, GESV_ARGS, sum!(GETRF_SQUARE, GETRS))),
    from(
        "LAPACK 3.12; counted as gesv (condition, refinement and bounds are O(n^2) a side)",
        differing(
            Op::Gesvx,
            joined!(Arg: GESVX_COMMON, &[IWORK, Info]),
            joined!(Arg: GESVX_COMMON, &[RWORK, Info]),
            sum!(GETRF_SQUARE, GETRS),
        ),
    ),
    gated(NNN, same(Op::Potrf, POTRF_ARGS, POTRF)),
    gated(NNRHS, same(Op::Potrs, POTRS_ARGS, POTRS)),
    gated(NNN, same(Op::Potri, POTRF_ARGS, sum!(TRTRI, LAUUM))),
    gated(NNN, same(Op::Posv, POSV_ARGS, sum!(POTRF, POTRS))),
    gated(NNN, same(Op::Trtri, TRTRI_ARGS, TRTRI)),
    gated(NNRHS, same(Op::Trtrs, TRTRS_ARGS, TRTRS)),
    gated(NNN, same(Op::Lauum, POTRF_ARGS, LAUUM)),
    // On the CPU: cuSOLVER's sytrf pivots as LAPACK's does (MadNLP.jl hands its factors to OpenBLAS's sytrs), but it
    // takes 32-bit sizes, and nobody has measured here that it is faster; there is none for Hermitian matrices.
    same(Op::Sytrf, SYTRF_ARGS, SYTRF),
    same(Op::Sytrs, SYTRS_ARGS, SYTRS),
    same(Op::Sysv, SYSV_ARGS, sum!(SYTRF, SYTRS)),
    // Orthogonal factors and least squares.
    gated(MNN, same(Op::Geqrf, GEQRF_ARGS, GEQRF)),
    complex_named("ungqr", gated(MNK, same(Op::Orgqr, ORGQR_ARGS, ORGQR))),
    complex_named(
        "unmqr",
        gated(
            MNK,
            differing(
                Op::Ormqr,
                joined!(Arg: &[SIDE, TRANS_REAL], ORMQR_AFTER_TRANS),
                joined!(Arg: &[SIDE, TRANS_COMPLEX], ORMQR_AFTER_TRANS),
                ORMQR,
            ),
        ),
    ),
    gated(
        MNN,
        differing(
            Op::Gels,
            joined!(Arg: &[TRANS_REAL], GELS_AFTER_TRANS),
            joined!(Arg: &[TRANS_COMPLEX], GELS_AFTER_TRANS),
            sum!(GEQRF_TALL, GEQRS),
        ),
    ),
    from(
        "LAPACK 3.12; LAWN 41 (gebrd), leading terms of ormbr; the bidiagonal solve is O(n^2) a side",
        gated(
            MNN,
            differing(
                Op::Gelsd,
                joined!(Arg: &gels_svd(Destroyed), &[IWORK, Info]),
                joined!(Arg: &gels_svd(Destroyed), &[RWORK, IWORK, Info]),
                sum!(GEBRD, ORMBR_Q_RHS, ORMBR_P_RHS),
            ),
        ),
    ),
    from(
        "LAPACK 3.12; LAWN 41 (gebrd), leading terms of ormbr, orgbr, bdsqr and the product",
        gated(
            MNN,
            differing(
                Op::Gelss,
                joined!(Arg: &gels_svd(InOut), &[Info]),
                joined!(Arg: &gels_svd(InOut), &[RWORK, Info]),
                sum!(GEBRD, ORMBR_Q_RHS, GELSS_FINISH),
            ),
        ),
    ),
    // gelsy and geqp3 stay on the CPU: cuSOLVER has no QR with pivoting, and another way to the shortest solution would
    // give another jpvt and another A.
    from(
        "LAPACK 3.12; full rank: counted as gels",
        differing(
            Op::Gelsy,
            joined!(Arg: GELSY_COMMON, &[Info]),
            joined!(Arg: GELSY_COMMON, &[RWORK, Info]),
            sum!(GEQRF_TALL, GEQRS),
        ),
    ),
    from(
        "LAPACK 3.12; counted as geqrf (norms of columns are O(m n))",
        differing(
            Op::Geqp3,
            joined!(Arg: GEQP3_COMMON, &[Info]),
            joined!(Arg: GEQP3_COMMON, &[RWORK, Info]),
            GEQRF,
        ),
    ),
    gated(MNN, same(Op::Gelqf, GEQRF_ARGS, GELQF)),
    // Symmetric and Hermitian eigenproblems.
    complex_named(
        "heev",
        from(
            "LAPACK 3.12; LAWN 41 (sytrd, orgtr); Demmel 1997, section 5.3.1 (QL)",
            gated(
                NNN,
                differing(
                    Op::Syev,
                    joined!(Arg: SYEV_COMMON, &[Info]),
                    joined!(Arg: SYEV_COMMON, &[RWORK, Info]),
                    SYEV,
                ),
            ),
        ),
    ),
    complex_named(
        "heevd",
        from(
            "LAPACK 3.12; LAWN 41 (sytrd, ormtr); Tisseur and Dongarra 1999 (divide and conquer)",
            gated(
                NNN,
                differing(
                    Op::Syevd,
                    joined!(Arg: SYEV_COMMON, REAL_TAIL),
                    joined!(Arg: SYEV_COMMON, COMPLEX_TAIL),
                    SYEVD,
                ),
            ),
        ),
    ),
    complex_named(
        "heevr",
        from(
            "LAPACK 3.12; LAWN 41 (sytrd, ormtr)",
            gated(
                NNN,
                differing(
                    Op::Syevr,
                    joined!(Arg: SYEVX_COMMON, &[ISUPPZ, WORK, LWORK], REAL_TAIL),
                    joined!(Arg: SYEVX_COMMON, &[ISUPPZ, WORK, LWORK], COMPLEX_TAIL),
                    SYEVR,
                ),
            ),
        ),
    ),
    complex_named(
        "heevx",
        from(
            "LAPACK 3.12; LAWN 41 (sytrd, ormtr)",
            gated(
                NNN,
                differing(
                    Op::Syevx,
                    joined!(Arg: SYEVX_COMMON, &[WORK, LWORK, IWORK, IFAIL, Info]),
                    joined!(Arg: SYEVX_COMMON, &[WORK, LWORK, RWORK, IWORK, IFAIL, Info]),
                    SYEVR,
                ),
            ),
        ),
    ),
    complex_named(
        "hegv",
        from(
            "LAPACK 3.12; LAWN 41 (potrf, trsm) and syev; sygst n^3",
            gated(
                NNN,
                differing(
                    Op::Sygv,
                    joined!(Arg: SYGV_COMMON, &[Info]),
                    joined!(Arg: SYGV_COMMON, &[RWORK, Info]),
                    sum!(POTRF, SYGST, SYEV, TRSM_N),
                ),
            ),
        ),
    ),
    complex_named(
        "hegvd",
        from(
            "LAPACK 3.12; LAWN 41 (potrf, trsm) and syevd; sygst n^3",
            gated(
                NNN,
                differing(
                    Op::Sygvd,
                    joined!(Arg: SYGV_COMMON, REAL_TAIL),
                    joined!(Arg: SYGV_COMMON, COMPLEX_TAIL),
                    sum!(POTRF, SYGST, SYEVD, TRSM_N),
                ),
            ),
        ),
    ),
    complex_named(
        "hegvx",
        from(
            "LAPACK 3.12; LAWN 41 (potrf, trsm) and syevx; sygst n^3",
            gated(
                NNN,
                differing(
                    Op::Sygvx,
                    joined!(Arg: SYGVX_COMMON, &[IWORK, IFAIL, Info]),
                    joined!(Arg: SYGVX_COMMON, &[RWORK, IWORK, IFAIL, Info]),
                    sum!(POTRF, SYGST, SYEVR, TRSM_N),
                ),
            ),
        ),
    ),
    // Singular values.
    from(
        "LAPACK 3.12; LAWN 41 (gebrd, ormbr); Gu and Eisenstat 1995 (divide and conquer)",
        gated(
            MNN,
            differing(
                Op::Gesdd,
                joined!(Arg: &[letter("jobz", "ASON")], SVD_COMMON, &[IWORK, Info]),
                joined!(Arg: &[letter("jobz", "ASON")], SVD_COMMON, &[RWORK, IWORK, Info]),
                GESDD,
            ),
        ),
    ),
    from(
        "LAPACK 3.12; LAWN 41 (gebrd, orgbr); two sweeps a value as in Demmel 1997 (QR)",
        gated(
            MNN,
            differing(
                Op::Gesvd,
                joined!(
                    Arg: &[letter("jobu", "ASON"), letter("jobvt", "ASON")], SVD_COMMON, &[Info]
                ),
                joined!(
                    Arg: &[letter("jobu", "ASON"), letter("jobvt", "ASON")],
                    SVD_COMMON,
                    &[RWORK, Info]
                ),
                GESVD,
            ),
        ),
    ),
    Family {
        naming: Naming::Real,
        source: "LAPACK 3.12; Gu and Eisenstat 1995 (divide and conquer)",
        ..same(Op::Bdsdc, BDSDC_ARGS, BDSDC)
    },
    // Nonsymmetric eigenproblems.
    from(
        "LAPACK 3.12; Golub and Van Loan, 4th edition, section 7.5 (25 n^3), and trevc3",
        gated(
            NNN,
            differing(
                Op::Geev,
                joined!(Arg: GEEV_HEAD, WR_WI, GEEV_VECTORS, &[Info]),
                joined!(Arg: GEEV_HEAD, W, GEEV_VECTORS, &[RWORK, Info]),
                sum!(SCHUR, TREVC3),
            ),
        ),
    ),
    same(Op::Gehrd, GEHRD_ARGS, GEHRD),
    complex_named("unghr", same(Op::Orghr, ORGHR_ARGS, ORGQR_LESS_ONE)),
    from(
        "LAPACK 3.12; leading terms of its loops",
        differing(
            Op::Trevc3,
            joined!(Arg: TREVC3_HEAD, &[ints("select", N, InOut)], TREVC3_COMMON, &[Info]),
            joined!(
                Arg: TREVC3_HEAD, &[ints("select", N, In)], TREVC3_COMMON, &[RWORK, LRWORK, Info]
            ),
            TREVC3,
        ),
    ),
    from(
        "LAPACK 3.12; Golub and Van Loan, 4th edition, section 7.5 (25 n^3)",
        differing(
            Op::Gees,
            joined!(Arg: GEES_HEAD, WR_WI, GEES_VECTORS, &[BWORK, Info]),
            joined!(Arg: GEES_HEAD, W, GEES_VECTORS, &[RWORK, BWORK, Info]),
            SCHUR,
        ),
    ),
    from(
        "LAPACK 3.12; Golub and Van Loan, 4th edition, section 7.7 (66 n^3)",
        differing(
            Op::Gges,
            joined!(
                Arg: GGES_HEAD,
                &[vector("alphar", N, Out), vector("alphai", N, Out)],
                GGES_VECTORS,
                &[BWORK, Info]
            ),
            joined!(
                Arg: GGES_HEAD, &[vector("alpha", N, Out)], GGES_VECTORS, &[RWORK, BWORK, Info]
            ),
            QZ,
        ),
    ),
    // Mixed precision: the factorisation and the first solution; a step of refinement is O(n^2) a
    // side.
    Family {
        naming: Naming::Mixed,
        ..differing(
            Op::GesvMixed,
            joined!(Arg: GESV_MIXED, &[ITER, Info]),
            joined!(Arg: GESV_MIXED, &[RWORK, ITER, Info]),
            sum!(GETRF_SQUARE, GETRS),
        )
    },
    Family {
        naming: Naming::Mixed,
        ..differing(
            Op::PosvMixed,
            joined!(Arg: POSV_MIXED, &[ITER, Info]),
            joined!(Arg: POSV_MIXED, &[RWORK, ITER, Info]),
            sum!(POTRF, POTRS),
        )
    },
];
