//! sgemm and dgemm with alpha = 0: OpenBLAS gets k = 0, so that it scales C and reads neither A nor B.
//!
//! Its kernels for small matrices on CPUs with AVX-512 (0.3.29, SkylakeX and later) multiply for alpha = 0
//! too, and NaN or Inf of A and B come through; all its kernels leave the operands alone for k = 0. Only
//! these two routines have such kernels (interface/gemm.c; gemm3m, gemmtr and the others never call them).
//!
//! Nothing is computed or reported here: an illegal argument stays as it is, for OpenBLAS to report.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.

use door::{Entry, Frame};

/// What Fortran's k points to afterwards.
static NOTHING: i32 = 0;

/// Makes k zero in the frame of a Fortran call if alpha is zero.
///
/// # Safety
/// The frame holds the arguments of a call of `?gemm_` in the threshold's precision, a real one.
pub(crate) unsafe fn fortran(entry: &Entry, f: &mut Frame) -> bool {
    // SAFETY: transa, transb, m, n, k, alpha, a, lda, b, ldb are the first ten arguments, valid pointers
    // each as in every Fortran call; the frame's contract is our caller's.
    unsafe {
        let plain = |letter: u8| matches!(letter.to_ascii_uppercase(), b'N' | b'R');
        let a = Operand {
            k_bounds_ld: !plain(f.letter(0)),
            ld: f.fortran_int(7),
        };
        let b = Operand {
            k_bounds_ld: plain(f.letter(1)),
            ld: f.fortran_int(9),
        };
        if f.scalar(5, entry.threshold.precision)[0] == 0.0 && can_shrink(f.fortran_int(4), &[a, b])
        {
            f.set_register(4, (&raw const NOTHING).expose_provenance() as u64);
        }
    }
    false
}

/// Makes k zero in the frame of a CBLAS call if alpha is zero.
///
/// # Safety
/// The frame holds the arguments of a call of `cblas_?gemm` in the threshold's precision, a real one.
pub(crate) unsafe fn cblas(entry: &Entry, f: &mut Frame) -> bool {
    let alpha = match entry.threshold.precision {
        b'S' => f64::from(f.f32(0)),
        _ => f.f64(0),
    };
    // SAFETY: order, transa, transb, m, n, k, a, lda, b, ldb are the first ten arguments of the integer
    // class; the frame's contract is our caller's.
    unsafe {
        let plain = |value: i32| matches!(value, 111 | 114);
        let row_major = match f.int32(0) {
            101 => true,
            102 => false,
            _ => return false,
        };
        let a = Operand {
            k_bounds_ld: plain(f.int32(1)) == row_major,
            ld: f.int32(7),
        };
        let b = Operand {
            k_bounds_ld: plain(f.int32(2)) != row_major,
            ld: f.int32(9),
        };
        if alpha == 0.0 && can_shrink(f.int32(5), &[a, b]) {
            f.set_register(5, 0);
        }
    }
    false
}

/// A or B, as far as its leading dimension is compared with k.
struct Operand {
    k_bounds_ld: bool,
    ld: i32,
}

/// Whether a call with k = 0 in place of this one is as legal: k itself and what it bounds must be. What
/// else may be illegal does not depend on k.
fn can_shrink(k: i32, operands: &[Operand]) -> bool {
    k > 0 && operands.iter().all(|o| !o.k_bounds_ld || o.ld >= k)
}

#[cfg(test)]
mod tests {
    use crate::generated;
    use crate::mock_openblas::{Seen, seen};

    /// Letters and leading dimensions of a call with m = 4, n = 5, k = 6.
    #[derive(Clone, Copy)]
    struct Call {
        transa: u8,
        transb: u8,
        k: i32,
        ld: [i32; 3],
    }

    /// Legal in either layout.
    const LEGAL: Call = Call {
        transa: b'N',
        transb: b'N',
        k: 6,
        ld: [6, 6, 5],
    };

    const OPERANDS: [usize; 3] = [16, 32, 48];

    /// Every spelling with every alpha; `row_major` is for CBLAS.
    fn spellings<const N: usize>(call: Call, row_major: bool, alphas: [f64; N]) -> Vec<Seen> {
        macro_rules! both {
            ($alpha:ident, $real:ty, $fortran:ident, $cblas:ident) => {{
                let (m, n, alpha, beta) = (4_i32, 5_i32, $alpha as $real, 1 as $real);
                let ([lda, ldb, ldc], [a, b, c]) = (call.ld, OPERANDS);
                type Fortran = unsafe extern "C" fn(
                    &u8,
                    &u8,
                    &i32,
                    &i32,
                    &i32,
                    &$real,
                    usize,
                    &i32,
                    usize,
                    &i32,
                    &$real,
                    usize,
                    &i32,
                );
                type Cblas = unsafe extern "C" fn(
                    i32,
                    i32,
                    i32,
                    i32,
                    i32,
                    i32,
                    $real,
                    usize,
                    i32,
                    usize,
                    i32,
                    $real,
                    usize,
                    i32,
                );
                let stub: unsafe extern "C" fn() = generated::$fortran;
                // SAFETY: the stub passes its arguments on to the mock, which has this signature.
                unsafe {
                    core::mem::transmute::<unsafe extern "C" fn(), Fortran>(stub)(
                        &call.transa,
                        &call.transb,
                        &m,
                        &n,
                        &call.k,
                        &alpha,
                        a,
                        &lda,
                        b,
                        &ldb,
                        &beta,
                        c,
                        &ldc,
                    );
                }
                let stub: unsafe extern "C" fn() = generated::$cblas;
                let [transa, transb] = [call.transa, call.transb]
                    .map(|letter| 111 + b"NTCR".iter().position(|l| *l == letter).unwrap() as i32);
                let order = if row_major { 101 } else { 102 };
                // SAFETY: as above.
                unsafe {
                    core::mem::transmute::<unsafe extern "C" fn(), Cblas>(stub)(
                        order, transa, transb, m, n, call.k, alpha, a, lda, b, ldb, beta, c, ldc,
                    );
                }
            }};
        }
        for alpha in alphas {
            both!(alpha, f32, sgemm_, cblas_sgemm);
            both!(alpha, f64, dgemm_, cblas_dgemm);
        }
        seen()
    }

    /// The first call ever made enters the door in any case; the later ones only if the stub sends them.
    fn publish() {
        spellings(LEGAL, true, [1.0]);
    }

    #[test]
    fn openblas_gets_k_zero_and_everything_else_as_it_was() {
        publish();
        let both_ways = [(b'N', b'N'), (b'R', b'T'), (b'C', b'R'), (b'T', b'C')];
        for (transa, transb) in both_ways {
            let call = Call {
                transa,
                transb,
                ..LEGAL
            };
            for row_major in [false, true] {
                let got = spellings(call, row_major, [0.0, -0.0]);
                let names: Vec<_> = got.iter().map(|s| s.name).collect();
                let cpu = ["sgemm_", "cblas_sgemm", "dgemm_", "cblas_dgemm"]
                    .map(|name| format!("gpu_offload_cpu_{name}"));
                assert_eq!(names, [cpu.clone(), cpu].concat());
                for s in got {
                    assert_eq!(
                        (s.k, s.alpha, s.ld, s.operands),
                        (0, 0.0, call.ld, OPERANDS)
                    );
                }
            }
        }
    }

    #[test]
    fn any_other_alpha_leaves_k_alone() {
        publish();
        let got = spellings(LEGAL, true, [1.0, -1.0, f64::NAN, 1e-30]);
        assert_eq!(got.len(), 16);
        assert!(got.iter().all(|s| s.k == 6), "{got:?}");
    }

    /// What OpenBLAS would report must reach it: a k that is illegal, and an ld that only the old k
    /// makes illegal.
    #[test]
    fn an_illegal_argument_stays_illegal() {
        publish();
        let k_of = |call, row_major| -> Vec<(&str, i32)> {
            let got = spellings(call, row_major, [0.0]);
            got.iter().map(|s| (s.name, s.k)).collect()
        };
        assert!(
            k_of(Call { k: -1, ..LEGAL }, false)
                .iter()
                .all(|(_, k)| *k == -1)
        );
        let short_b = Call {
            ld: [6, 5, 5],
            ..LEGAL
        };
        assert!(k_of(short_b, false).iter().all(|(_, k)| *k == 6));
        let short_a = Call {
            transa: b'T',
            transb: b'T',
            ld: [5, 6, 5],
            ..LEGAL
        };
        assert!(k_of(short_a, false).iter().all(|(_, k)| *k == 6));
        // In row-major order the same operands are bounded the other way round.
        for (call, of_cblas) in [
            (short_b, 0),
            (short_a, 0),
            (
                Call {
                    transa: b'N',
                    ..short_a
                },
                6,
            ),
            (
                Call {
                    transb: b'T',
                    ..short_b
                },
                6,
            ),
        ] {
            let cblas = k_of(call, true);
            let cblas: Vec<i32> = cblas
                .iter()
                .filter(|(name, _)| name.contains("cblas"))
                .map(|(_, k)| *k)
                .collect();
            assert_eq!(cblas, [of_cblas; 2]);
        }
    }
}
