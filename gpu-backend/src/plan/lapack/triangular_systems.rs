//! Triangular matrices and what is solved with a triangular factor of QR: trtri, lauum, gelqf and gels. It must not
//! decide what the CPU library has to do: a zero on a diagonal is looked for by the executor.

use super::{ARGUMENT, Role, SINGULAR, Writer};
use crate::plan::build::{block, triangle};
use crate::plan::lapack::{Elements, tri};
use crate::plan::program::{Area, Kernel, Operand, Place, Solver};
use call::{Diag, Failure, Scalar, Side, Trans, Uplo};

const DEFICIENT: &str = "the matrix does not have full rank";

/// QR of the taller one of A and A^H: A = Q R, or A = R^H Q^H.
pub(super) struct Tall {
    /// Rows and columns, rows >= columns.
    pub size: (usize, usize),
    /// The reflectors with R above them.
    pub factor: Place,
    /// Their factors.
    pub tau: Place,
}

impl Writer {
    /// A unit diagonal is neither read nor written.
    pub(super) fn trtri(&mut self, uplo: Uplo, diag: Diag, n: usize) -> Result<Place, Failure> {
        let unit = diag == Diag::U;
        if unit && n == 1 {
            return Err(Failure::Unsupported("nothing to compute"));
        }
        let area = triangle(uplo, &block(&(0..1), &(0..1)), unit);
        let a = self.matrix(n, n);
        self.up(Operand::A, a, (n, n), area);
        let info = self.info(SINGULAR);
        self.kernel(Solver::Trtri {
            uplo,
            diag,
            n,
            a,
            info,
        });
        self.down(Operand::A, a, (n, n), area);
        Ok(a)
    }

    /// U U^H or L^H L, by the product of the whole matrix, whose other triangle is 0. LAPACK takes the diagonal of a
    /// complex factor as real.
    ///
    /// # Source
    /// LAPACK 3.12: zlauu2.f.
    pub(super) fn lauum(&mut self, uplo: Uplo, n: usize) -> Place {
        let a = self.matrix(n, n);
        let (whole, product) = (self.matrix(n, n), self.matrix(n, n));
        self.up(Operand::A, a, (n, n), tri(uplo));
        self.real_diagonal(n, a);
        // The other triangle of the upload is not 0 but anything, and that of the product with I is.
        self.kernel(Solver::Identity { n, c: whole });
        self.step.kernels.push(Kernel::Trmm {
            side: Side::L,
            uplo,
            trans: Trans::N,
            diag: Diag::N,
            size: (n, n),
            alpha: Scalar::ONE,
            a,
            b: whole,
            c: whole,
        });
        let trans = match uplo {
            Uplo::U => Trans::N,
            Uplo::L => Trans::C,
        };
        self.step.kernels.push(Kernel::Syrk {
            hermitian: self.precision.is_complex(),
            uplo,
            trans,
            size: (n, n),
            alpha: Scalar::ONE,
            a: whole,
            beta: Scalar::ZERO,
            c: product,
        });
        self.down(Operand::A, product, (n, n), tri(uplo));
        product
    }

    /// LAPACK's A = L Q from A^H = Q' R: L = R^H and Q = Q'^H, with the same tau, and the reflectors stored in rows are
    /// the conjugates of those stored in columns.
    ///
    /// # Source
    /// LAPACK 3.12: zgelq2.f conjugates each row before it makes its reflector, as zgeqr2.f makes that of a column.
    pub(super) fn gelqf(&mut self, (m, n): (usize, usize)) -> Place {
        let a = self.matrix(m, n);
        self.up(Operand::A, a, (m, n), Area::Full);
        let turned = self.matrix(n, m);
        self.kernel(Solver::Transpose {
            size: (n, m),
            a,
            c: turned,
        });
        let tau = self.vector(m.min(n), Elements::Same);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Geqrf {
            size: (n, m),
            a: turned,
            tau,
            info,
        });
        self.kernel(Solver::Transpose {
            size: (m, n),
            a: turned,
            c: a,
        });
        self.output(0, tau, m.min(n), Elements::Same);
        self.down(Operand::A, a, (m, n), Area::Full);
        a
    }

    /// Uploads A and factors it, or its conjugate transpose if that is taller; returns A's own place as well.
    pub(super) fn tall_qr(&mut self, (m, n): (usize, usize)) -> (Place, Tall) {
        let a = self.matrix(m, n);
        self.up(Operand::A, a, (m, n), Area::Full);
        let size = (m.max(n), m.min(n));
        let mut factor = a;
        if m < n {
            factor = self.matrix(size.0, size.1);
            self.kernel(Solver::Transpose { size, a, c: factor });
        }
        let tau = self.vector(size.1, Elements::Same);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Geqrf {
            size,
            a: factor,
            tau,
            info,
        });
        (a, Tall { size, factor, tau })
    }

    /// B := op(Q) B for all of B's rows.
    pub(super) fn apply_q(&mut self, qr: &Tall, trans: Trans, b: Place, nrhs: usize) {
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Ormqr {
            side: Side::L,
            trans,
            size: (qr.size.0, nrhs, qr.size.1),
            a: qr.factor,
            tau: qr.tau,
            c: b,
            info,
        });
    }

    /// C := C Q^H, of `rows` rows.
    pub(super) fn apply_q_on_the_right(&mut self, qr: &Tall, c: Place, rows: usize) {
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Ormqr {
            side: Side::R,
            trans: Trans::C,
            size: (rows, qr.size.0, qr.size.1),
            a: qr.factor,
            tau: qr.tau,
            c,
            info,
        });
    }

    /// B has max(m, n) rows. With F = Q R, F the taller one of A and A^H: op(A) = F is a least-squares problem,
    /// R X = (Q^H B)'s first rows, whose other ones stay, as LAPACK leaves them; op(A) = F^H has many solutions, of
    /// which X = Q (R^-H B; 0) is the shortest.
    pub(super) fn gels(&mut self, trans: Trans, (m, n, nrhs): (usize, usize, usize)) -> Place {
        let (a, qr) = self.tall_qr((m, n));
        let (long, short) = qr.size;
        let diagonal = self.vector(short, Elements::Same);
        self.kernel(Solver::Diagonal {
            n: short,
            a: qr.factor,
            d: diagonal,
        });
        let to = self.host(short, Elements::Same, Role::Pivots(DEFICIENT));
        self.down(to, diagonal, (short, 1), Area::Full);
        if m < n {
            self.kernel(Solver::Transpose {
                size: (m, n),
                a: qr.factor,
                c: a,
            });
        }
        self.down(Operand::A, a, (m, n), Area::Full);
        self.next();

        let b = self.matrix(long, nrhs);
        let least_squares = (m >= n) == (trans == Trans::N);
        let rows = if least_squares { long } else { short };
        self.up(Operand::B, b, (rows, nrhs), Area::Full);
        let solve = |trans| Kernel::Trsm {
            side: Side::L,
            uplo: Uplo::U,
            trans,
            diag: Diag::N,
            size: (short, nrhs),
            alpha: Scalar::ONE,
            a: qr.factor,
            b,
        };
        if least_squares {
            self.apply_q(&qr, Trans::C, b, nrhs);
            self.step.kernels.push(solve(Trans::N));
        } else {
            self.step.kernels.push(solve(Trans::C));
            if long > short {
                let c = Place { row0: short, ..b };
                let size = (long - short, nrhs);
                self.kernel(Solver::Zero { size, c });
            }
            self.apply_q(&qr, Trans::N, b, nrhs);
        }
        self.down(Operand::B, b, (long, nrhs), Area::Full);
        b
    }
}
