//! C := alpha X Y + beta C on blocks of C, for the families whose result sums products over k: which
//! parts of the operands a block needs, and its kernels. No order, no policy.

use super::build::{Held, block, op_block};
use super::program::{Kernel, Operand, Rectangle};
use call::{Level3Call, Op, Scalar, Trans, Uplo};
use std::ops::Range;

/// What is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// op(A) op(B).
    Gemm,
    /// op(A) op(A)^T.
    RankK,
    /// op(A) op(B)^T + op(B) op(A)^T.
    Rank2k,
}

/// One of gemm, gemmtr, syrk, herk, syr2k, her2k.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    kind: Kind,
    hermitian: bool,
    /// The triangle that the result is.
    pub uplo: Option<Uplo>,
    trans: (Trans, Trans),
    alpha: Scalar,
    /// Factor of the old result.
    pub beta: Scalar,
}

/// Device matrices with the panels that rows and columns of the result need. Those that a family does not
/// need are not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Panels {
    /// op(A) at the rows of the result.
    pub a_rows: Held,
    /// op(B) at the rows of the result (rank 2k).
    pub b_rows: Held,
    /// op(A) at the columns of the result (rank k and 2k).
    pub a_cols: Held,
    /// op(B) at the columns of the result.
    pub b_cols: Held,
}

impl Update {
    /// The call's.
    pub fn new(call: &Level3Call<'_>) -> Self {
        Self {
            kind: match call.op {
                Op::Syrk | Op::Herk => Kind::RankK,
                Op::Syr2k | Op::Her2k => Kind::Rank2k,
                _ => Kind::Gemm,
            },
            hermitian: matches!(call.op, Op::Herk | Op::Her2k),
            uplo: call.result_triangle(),
            trans: (call.transa, call.transb),
            alpha: call.alpha,
            beta: call.beta,
        }
    }

    /// True if rows and columns of the result need the same panels, so that a diagonal block needs only
    /// one of each.
    pub fn symmetric(&self) -> bool {
        self.kind != Kind::Gemm
    }

    /// True for herk and her2k.
    pub fn hermitian(&self) -> bool {
        self.hermitian
    }

    /// The operands that rows of the result need.
    pub fn row_operands(&self) -> &'static [Operand] {
        match self.kind {
            Kind::Gemm | Kind::RankK => &[Operand::A],
            Kind::Rank2k => &[Operand::A, Operand::B],
        }
    }

    /// The operands that columns of the result need.
    pub fn col_operands(&self) -> &'static [Operand] {
        match self.kind {
            Kind::Gemm => &[Operand::B],
            Kind::RankK => &[Operand::A],
            Kind::Rank2k => &[Operand::A, Operand::B],
        }
    }

    /// The part, as stored, of a row operand that rows of the result need.
    pub fn row_part(&self, rows: &Range<usize>, inner: &Range<usize>) -> Rectangle {
        op_block(self.trans.0, rows, inner)
    }

    /// The part, as stored, of a column operand that columns of the result need.
    pub fn col_part(&self, inner: &Range<usize>, cols: &Range<usize>) -> Rectangle {
        match self.kind {
            Kind::Gemm => op_block(self.trans.1, inner, cols),
            Kind::RankK | Kind::Rank2k => op_block(self.trans.0, cols, inner),
        }
    }

    /// The part of a triangular result's front `panel` that panels before it do not have: rows of a lower
    /// triangle, columns of an upper one.
    pub fn front(uplo: Uplo, panel: &Range<usize>) -> (Range<usize>, Range<usize>) {
        match uplo {
            Uplo::L => (panel.clone(), 0..panel.end),
            Uplo::U => (0..panel.end, panel.clone()),
        }
    }

    /// The kernels of C(rows, cols) := alpha X(rows, inner) Y(inner, cols) + beta C, beta being 1 unless
    /// the inner range begins at 0. A rank-k update takes a diagonal block (rows = cols), of which it
    /// writes the triangle, or one that is wholly inside the triangle.
    pub fn kernels(
        &self,
        rows: &Range<usize>,
        cols: &Range<usize>,
        inner: &Range<usize>,
        panels: &Panels,
        c: &Held,
    ) -> Vec<Kernel> {
        let beta = if inner.start == 0 {
            self.beta
        } else {
            Scalar::ONE
        };
        let c = c.place(&block(rows, cols));
        let size = (rows.len(), cols.len(), inner.len());
        let (trans, alpha, hermitian) = (self.trans.0, self.alpha, self.hermitian);
        let row = |x: &Held| x.place(&self.row_part(rows, inner));
        let col = |x: &Held| x.place(&self.col_part(inner, cols));
        let (a, b) = (row(&panels.a_rows), row(&panels.b_rows));
        // The second factor of a rank-k update, as gemm sees it.
        let turned = match (trans, hermitian) {
            (Trans::N, true) => Trans::C,
            (Trans::N, false) => Trans::T,
            (Trans::T | Trans::C, _) => Trans::N,
        };
        let product = |a, b, alpha, beta| Kernel::Gemm {
            trans: (trans, turned),
            size,
            alpha,
            a,
            b,
            beta,
            c,
        };
        match (self.kind, self.uplo) {
            (Kind::Gemm, _) | (_, None) => vec![Kernel::Gemm {
                trans: self.trans,
                size,
                alpha,
                a,
                b: col(&panels.b_cols),
                beta,
                c,
            }],
            (Kind::RankK, Some(uplo)) if rows == cols => {
                let size = (rows.len(), inner.len());
                vec![Kernel::Syrk {
                    hermitian,
                    uplo,
                    trans,
                    size,
                    alpha,
                    a,
                    beta,
                    c,
                }]
            }
            (Kind::Rank2k, Some(uplo)) if rows == cols => {
                let size = (rows.len(), inner.len());
                vec![Kernel::Syr2k {
                    hermitian,
                    uplo,
                    trans,
                    size,
                    alpha,
                    a,
                    b,
                    beta,
                    c,
                }]
            }
            (Kind::RankK, Some(_)) => vec![product(a, col(&panels.a_cols), alpha, beta)],
            (Kind::Rank2k, Some(_)) => {
                let second = if hermitian {
                    Scalar {
                        im: -alpha.im,
                        ..alpha
                    }
                } else {
                    alpha
                };
                vec![
                    product(a, col(&panels.b_cols), alpha, beta),
                    product(b, col(&panels.a_cols), second, Scalar::ONE),
                ]
            }
        }
    }
}
