//! The rows.

use crate::family::{
    Arg::{self, Ld, Letter, Matrix, Scalar, Size},
    Dim::{K, M, N, Order},
    Extent::{ByTrans, Is},
    Family, Flops,
    Gate::{self, Product, Sided},
    Intent::{Accumulated, In, InOut},
    Library::{self, Blas},
    Naming,
    Part::{Full, Triangle},
    Term,
};
use crate::{Op, Precision, lapack};

const TRANSA: Arg = Letter {
    name: "transa",
    accepted: "NTC",
};
const TRANSB: Arg = Letter {
    name: "transb",
    accepted: "NTC",
};
const UPLO: Arg = Letter {
    name: "uplo",
    accepted: "UL",
};
const SIDE: Arg = Letter {
    name: "side",
    accepted: "LR",
};
const DIAG: Arg = Letter {
    name: "diag",
    accepted: "UN",
};
const ALPHA: Arg = Scalar {
    name: "alpha",
    real: false,
};
const BETA: Arg = Scalar {
    name: "beta",
    real: false,
};
const M_: Arg = Size { name: "m" };
const N_: Arg = Size { name: "n" };
const K_: Arg = Size { name: "k" };
const LDA: Arg = Ld { name: "lda" };
const LDB: Arg = Ld { name: "ldb" };
const LDC: Arg = Ld { name: "ldc" };

/// n x k or k x n by trans.
const fn rank_k_operand(name: &'static str) -> Arg {
    Matrix {
        name,
        rows: ByTrans("trans", N, K),
        cols: ByTrans("trans", K, N),
        part: Full,
        intent: In,
    }
}

const C_TRIANGLE: Arg = Matrix {
    name: "c",
    rows: Is(N),
    cols: Is(N),
    part: Triangle,
    intent: Accumulated,
};

const fn full(name: &'static str, intent: crate::Intent) -> Arg {
    Matrix {
        name,
        rows: Is(M),
        cols: Is(N),
        part: Full,
        intent,
    }
}

const GEMM_A: Arg = Matrix {
    name: "a",
    rows: ByTrans("transa", M, K),
    cols: ByTrans("transa", K, M),
    part: Full,
    intent: In,
};
const GEMM_B: Arg = Matrix {
    name: "b",
    rows: ByTrans("transb", K, N),
    cols: ByTrans("transb", N, K),
    part: Full,
    intent: In,
};

const A_SYMMETRIC: Arg = Matrix {
    name: "a",
    rows: Is(Order),
    cols: Is(Order),
    part: Triangle,
    intent: In,
};

const GEMM_ARGS: &[Arg] = &[
    TRANSA,
    TRANSB,
    M_,
    N_,
    K_,
    ALPHA,
    GEMM_A,
    LDA,
    GEMM_B,
    LDB,
    BETA,
    full("c", Accumulated),
    LDC,
];

const GEMMTR_ARGS: &[Arg] = &[
    UPLO,
    TRANSA,
    TRANSB,
    N_,
    K_,
    ALPHA,
    Matrix {
        name: "a",
        rows: ByTrans("transa", N, K),
        cols: ByTrans("transa", K, N),
        part: Full,
        intent: In,
    },
    LDA,
    GEMM_B,
    LDB,
    BETA,
    C_TRIANGLE,
    LDC,
];

const SYMM_ARGS: &[Arg] = &[
    SIDE,
    UPLO,
    M_,
    N_,
    ALPHA,
    A_SYMMETRIC,
    LDA,
    full("b", In),
    LDB,
    BETA,
    full("c", Accumulated),
    LDC,
];

/// The transposes of a symmetric rank-k update: real arithmetic takes C for T, complex does not.
const fn trans_of_update(accepted: &'static str) -> Arg {
    Letter {
        name: "trans",
        accepted,
    }
}

const fn syrk_args(accepted: &'static str) -> [Arg; 10] {
    [
        UPLO,
        trans_of_update(accepted),
        N_,
        K_,
        ALPHA,
        rank_k_operand("a"),
        LDA,
        BETA,
        C_TRIANGLE,
        LDC,
    ]
}
const SYRK_ARGS: &[Arg] = &syrk_args("NTC");
const SYRK_COMPLEX_ARGS: &[Arg] = &syrk_args("NT");

const HERK_ARGS: &[Arg] = &[
    UPLO,
    trans_of_update("NC"),
    N_,
    K_,
    Scalar {
        name: "alpha",
        real: true,
    },
    rank_k_operand("a"),
    LDA,
    Scalar {
        name: "beta",
        real: true,
    },
    C_TRIANGLE,
    LDC,
];

const fn syr2k_args(accepted: &'static str) -> [Arg; 12] {
    [
        UPLO,
        trans_of_update(accepted),
        N_,
        K_,
        ALPHA,
        rank_k_operand("a"),
        LDA,
        rank_k_operand("b"),
        LDB,
        BETA,
        C_TRIANGLE,
        LDC,
    ]
}
const SYR2K_ARGS: &[Arg] = &syr2k_args("NTC");
const SYR2K_COMPLEX_ARGS: &[Arg] = &syr2k_args("NT");

const HER2K_ARGS: &[Arg] = &[
    UPLO,
    trans_of_update("NC"),
    N_,
    K_,
    ALPHA,
    rank_k_operand("a"),
    LDA,
    rank_k_operand("b"),
    LDB,
    Scalar {
        name: "beta",
        real: true,
    },
    C_TRIANGLE,
    LDC,
];

const TRMM_ARGS: &[Arg] = &[
    SIDE,
    UPLO,
    TRANSA,
    DIAG,
    M_,
    N_,
    ALPHA,
    A_SYMMETRIC,
    LDA,
    full("b", InOut),
    LDB,
];

const GEMM_FLOPS: Flops = Flops {
    multiplications: &[Term(1.0, &[M, N, K])],
    additions: &[Term(1.0, &[M, N, K])],
};

const SYMM_FLOPS: Flops = Flops {
    multiplications: &[Term(1.0, &[M, N, Order])],
    additions: &[Term(1.0, &[M, N, Order])],
};

/// n (n + 1) k / 2 of each.
const SYRK_FLOPS: Flops = Flops {
    multiplications: &[Term(0.5, &[K, N, N]), Term(0.5, &[K, N])],
    additions: &[Term(0.5, &[K, N, N]), Term(0.5, &[K, N])],
};

/// n^2 k multiplications, n^2 k + n additions.
const SYR2K_FLOPS: Flops = Flops {
    multiplications: &[Term(1.0, &[K, N, N])],
    additions: &[Term(1.0, &[K, N, N]), Term(1.0, &[N])],
};

/// With q the order of A and p the other dimension of B: p q (q + 1) / 2 multiplications,
/// p q (q - 1) / 2 additions; p q is m n.
const TRMM_FLOPS: Flops = Flops {
    multiplications: &[Term(0.5, &[M, N, Order]), Term(0.5, &[M, N])],
    additions: &[Term(0.5, &[M, N, Order]), Term(-0.5, &[M, N])],
};

const BLAS: &str = "Reference BLAS 3.12; LAWN 41 appendix C";

const fn blas(op: Op, naming: Naming, args: &'static [Arg], flops: Flops, gate: Gate) -> Family {
    Family {
        op,
        library: Blas,
        naming,
        args,
        complex_args: None,
        flops,
        cblas: true,
        gate: Some(gate),
        source: BLAS,
    }
}

/// m n k.
const MNK: Gate = Product(["m", "n", "k"]);
/// n n k, of which the result's triangle takes half.
const NNK: Gate = Product(["n", "n", "k"]);

/// Level-3 BLAS.
const BLAS3: &[Family] = &[
    blas(Op::Gemm, Naming::All, GEMM_ARGS, GEMM_FLOPS, MNK),
    Family {
        source: "OpenBLAS 0.3.29 interface/gemm.c (3M); counted as gemm",
        ..blas(Op::Gemm3m, Naming::Complex, GEMM_ARGS, GEMM_FLOPS, MNK)
    },
    blas(Op::Gemmtr, Naming::All, GEMMTR_ARGS, SYRK_FLOPS, NNK),
    Family {
        source: "OpenBLAS 0.3.29: the older name of gemmtr",
        ..blas(Op::Gemmt, Naming::All, GEMMTR_ARGS, SYRK_FLOPS, NNK)
    },
    blas(Op::Symm, Naming::All, SYMM_ARGS, SYMM_FLOPS, Sided),
    blas(Op::Hemm, Naming::Complex, SYMM_ARGS, SYMM_FLOPS, Sided),
    Family {
        complex_args: Some(SYRK_COMPLEX_ARGS),
        ..blas(Op::Syrk, Naming::All, SYRK_ARGS, SYRK_FLOPS, NNK)
    },
    blas(Op::Herk, Naming::Complex, HERK_ARGS, SYRK_FLOPS, NNK),
    Family {
        complex_args: Some(SYR2K_COMPLEX_ARGS),
        ..blas(Op::Syr2k, Naming::All, SYR2K_ARGS, SYR2K_FLOPS, NNK)
    },
    blas(Op::Her2k, Naming::Complex, HER2K_ARGS, SYR2K_FLOPS, NNK),
    blas(Op::Trmm, Naming::All, TRMM_ARGS, TRMM_FLOPS, Sided),
    blas(Op::Trsm, Naming::All, TRMM_ARGS, TRMM_FLOPS, Sided),
];

/// Every family that is typed, level-3 BLAS first.
pub fn families() -> impl Iterator<Item = &'static Family> {
    BLAS3.iter().chain(lapack::FAMILIES)
}

/// The row of one family.
///
/// # Panics
/// If a family has no row; the table's own tests prove that none lacks it.
pub fn family(op: Op) -> &'static Family {
    BY_CODE[op as usize].expect("every Op has a row")
}

/// Codes of families are below this.
const CODES: usize = 64;

/// The rows by their families' codes: each heavy call asks for its row several times.
static BY_CODE: [Option<&'static Family>; CODES] = {
    let mut by_code = [None; CODES];
    let tables = [BLAS3, lapack::FAMILIES];
    let mut table = 0;
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            by_code[tables[table][row].op as usize] = Some(&tables[table][row]);
            row += 1;
        }
        table += 1;
    }
    by_code
};

/// Every routine whose calls pass the door, with its row. The order is that of the threshold words.
pub fn routed() -> impl Iterator<Item = (&'static Family, Precision, String)> {
    families()
        .filter(|f| f.gate.is_some())
        .flat_map(|f| f.routines().map(move |(p, name)| (f, p, name)))
}

/// The routed routines of one library, in the order of [`routed`].
pub fn routed_in(library: Library) -> impl Iterator<Item = (&'static Family, Precision, String)> {
    routed().filter(move |(f, ..)| f.library == library)
}

/// Symbols whose calls pass the door, without prefix: `dgemm_`, `cblas_dgemm`, … These are the names
/// that the CPU archive gets renamed.
pub fn routed_symbols() -> Vec<String> {
    routed()
        .flat_map(|(f, _, name)| {
            let cblas = f.cblas.then(|| format!("cblas_{name}"));
            core::iter::once(format!("{name}_")).chain(cblas)
        })
        .collect()
}
