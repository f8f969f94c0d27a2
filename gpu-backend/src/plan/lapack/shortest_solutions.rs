//! Least squares by the singular value decomposition: gelsd and gelss, whose rank is counted on the host between two
//! programs. It must not decide which singular values count.

use super::{DIVERGED, Made, Role, Writer};
use crate::plan::lapack::{Elements, triangular_systems::Tall};
use crate::plan::program::{Area, Kernel, Operand, Place, Solver};
use call::{Diag, Scalar, Side, Trans, Uplo};

/// The factors of F = U S V^H, F square.
struct Factors {
    u: Place,
    /// V after Xgesvdp, else V^H.
    v: (Place, bool),
}

impl Factors {
    /// U and what makes V of the other one.
    fn sides(&self) -> [(Place, Trans); 2] {
        let (v, is_adjoint) = self.v;
        let trans = if is_adjoint { Trans::C } else { Trans::N };
        [(self.u, Trans::N), (v, trans)]
    }
}

/// op of the conjugate transpose.
fn adjoint(trans: Trans) -> Trans {
    match trans {
        Trans::N => Trans::C,
        _ => Trans::N,
    }
}

impl Writer {
    /// F is A where that is square, else R of the taller one of A and A^H, so that A = Q U S V^H or V S U^H Q^H, and X
    /// = V S^+ U^H (Q^H B)'s first rows, or Q (U S^+ V^H B; 0). Other rows of Q^H B stay in B: their squares are those
    /// of the residual. With `vectors` A's first rows become its right singular vectors (gelss).
    ///
    /// The first program ends with the singular values and the projections of B; the host counts the rank and makes the
    /// diagonal of S^+ for the second one.
    ///
    /// # Source
    /// LAPACK 3.12: dgelsd.f, dgelss.f.
    pub(super) fn gels_svd(
        &mut self,
        vectors: bool,
        (m, n, nrhs): (usize, usize, usize),
        polar: bool,
    ) -> Place {
        let (long, short) = (m.max(n), m.min(n));
        let (square, qr) = if m == n {
            let a = self.matrix(n, n);
            self.up(Operand::A, a, (n, n), Area::Full);
            (a, None)
        } else {
            let (_, qr) = self.tall_qr((m, n));
            (self.upper_triangle(&qr), Some(qr))
        };
        let factors = self.square_svd(polar, square, short);
        self.next();

        let b = self.matrix(long, nrhs);
        self.up(Operand::B, b, (m, nrhs), Area::Full);
        let wide = m < n;
        if let (Some(qr), false) = (&qr, wide) {
            self.apply_q(qr, Trans::C, b, nrhs);
        }
        let [u, v] = factors.sides();
        let (left, right) = if wide { (v, u) } else { (u, v) };
        let w = self.matrix(short, nrhs);
        self.product((left.0, adjoint(left.1)), b, w, (short, nrhs));
        self.split();

        let d = self.vector(short, Elements::Same);
        let from = self.host(short, Elements::Same, Role::Reciprocals);
        self.up(from, d, (short, 1), Area::Full);
        let size = (short, nrhs);
        self.kernel(Solver::ScaleRows { size, d, c: w });
        self.product(right, w, b, size);
        if let (Some(qr), true) = (&qr, wide) {
            let c = Place { row0: short, ..b };
            let size = (long - short, nrhs);
            self.kernel(Solver::Zero { size, c });
            self.apply_q(qr, Trans::N, b, nrhs);
        }
        self.down(Operand::B, b, (long, nrhs), Area::Full);
        self.host(1, Elements::Pivots, Role::Made(1, Made::Rank));
        if vectors {
            self.rows_of_right_vectors(right, qr.as_ref().filter(|_| wide), (short, n));
        }
        b
    }

    /// C := op(A) B for a square A of C's rows.
    fn product(&mut self, (a, trans): (Place, Trans), b: Place, c: Place, size: (usize, usize)) {
        let (rows, nrhs) = size;
        self.step.kernels.push(Kernel::Gemm {
            trans: (trans, Trans::N),
            size: (rows, nrhs, rows),
            alpha: Scalar::ONE,
            a,
            b,
            beta: Scalar::ZERO,
            c,
        });
    }

    /// R with zeros below it, by its product with I.
    fn upper_triangle(&mut self, qr: &Tall) -> Place {
        let n = qr.size.1;
        let r = self.matrix(n, n);
        self.kernel(Solver::Identity { n, c: r });
        self.step.kernels.push(Kernel::Trmm {
            side: Side::L,
            uplo: Uplo::U,
            trans: Trans::N,
            diag: Diag::N,
            size: (n, n),
            alpha: Scalar::ONE,
            a: qr.factor,
            b: r,
            c: r,
        });
        r
    }

    /// U S V^H of a square matrix on the device, which is destroyed; the values go to the caller's first vector.
    fn square_svd(&mut self, polar: bool, a: Place, n: usize) -> Factors {
        let s = self.vector(n, Elements::Real);
        let (u, v) = (self.matrix(n, n), self.matrix(n, n));
        let info = self.info(DIVERGED);
        self.decompose(polar, b'S', (n, n), [a, s, u, v, info]);
        self.output(0, s, n, Elements::Real);
        self.plan.estimated = polar.then(|| self.plan.vectors.len() - 1);
        Factors { u, v: (v, !polar) }
    }

    /// V^H of A, k x n, in A's first rows: the conjugate transpose of op(right), or of Q (op(right); 0).
    fn rows_of_right_vectors(
        &mut self,
        (right, trans): (Place, Trans),
        qr: Option<&Tall>,
        (k, n): (usize, usize),
    ) {
        let mut rows = right;
        if trans == Trans::N {
            rows = self.matrix(k, n);
            self.kernel(Solver::Transpose {
                size: (k, k),
                a: right,
                c: rows,
            });
        }
        if let Some(qr) = qr {
            let c = Place { col0: k, ..rows };
            let size = (k, n - k);
            self.kernel(Solver::Zero { size, c });
            self.apply_q_on_the_right(qr, rows, k);
        }
        self.down(Operand::A, rows, (k, n), Area::Full);
    }
}
