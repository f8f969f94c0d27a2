//! LAPACK routines whose operands fit the device: one or two kernels of cuSOLVER between the uploads and the
//! downloads. It must not decide whether the operands fit, nor what the options of the caller's library mean.
//!
//! Triangles travel as triangles, and what is only written does not go up. What is downloaded is what LAPACK
//! defines: a matrix that it only destroys stays as it is.

mod shortest_solutions;
mod triangular_systems;

use super::build::{block, triangle};
use super::program::{
    Area, Buffer, Download, Kernel, Operand, Place, Program, Solver, Step, Upload, ld_bytes,
};
use super::sizes::Sizes;
use call::{Diag, Failure, LapackCall, Op, Precision, Scalar, Side, Trans, Uplo};
use std::ops::Range;

/// Elements of a short vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// cuSOLVER's info: int32.
    Info,
    /// Its pivots: int64.
    Pivots,
    /// The real type of the routine's precision.
    Real,
    /// The routine's own type.
    Same,
}

impl Elements {
    /// Bytes of one.
    pub fn bytes(self, precision: Precision) -> usize {
        let own = precision.elem_bytes();
        match self {
            Elements::Info => 4,
            Elements::Pivots => 8,
            Elements::Real if precision.is_complex() => own / 2,
            Elements::Real | Elements::Same => own,
        }
    }
}

/// What a short vector is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One info; anything but 0 is a failure with this text.
    Info(&'static str),
    /// The diagonal of a factor; a zero on it is a failure with this text.
    Pivots(&'static str),
    /// The caller's vector with this number goes up.
    In(usize),
    /// It comes back to the caller's vector with this number.
    Out(usize),
    /// Made on the host for the second program: the reciprocals of the singular values that count, and zeros.
    Reciprocals,
    /// Made on the host for the caller's vector with this number.
    Made(usize, Made),
}

/// What no kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// One number: how many eigenvalues are wanted.
    Count,
    /// syevr's supports of the eigenvectors, which are all rows: 1, n for each.
    Supports,
    /// syevx's ifail: 0 for each eigenvector.
    Converged,
    /// One number: how many singular values count.
    Rank,
}

/// A short vector in host memory: [`Operand::Vector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostVector {
    /// Elements.
    pub len: usize,
    /// Their type.
    pub elements: Elements,
    /// What it is for.
    pub role: Role,
}

/// A program, and the short vectors that it moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do.
    pub program: Program,
    /// What to do when the host has looked at the singular values: with the buffers of the first program as it has
    /// left them.
    pub second: Option<Program>,
    /// By the number of [`Operand::Vector`].
    pub vectors: Vec<HostVector>,
    /// The answer counts only if Xgesvdp's own estimate says that it is accurate. The vector is that of the
    /// singular values.
    pub estimated: Option<usize>,
    /// Which of the eigenvalues that the caller's vectors could hold are wanted, where not all are.
    pub wanted: Option<Wanted>,
}

/// A part of the spectrum, all of which has been computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// Those with these numbers in ascending order, from 0 on.
    Numbers(Range<usize>),
    /// Those in (low, high]: how many that are is known when they are there.
    Interval {
        /// Not in it.
        low: f64,
        /// In it.
        high: f64,
        /// The number of [`Operand::Vector`] that holds all values, ascending.
        values: usize,
        /// Whose first columns get the vectors; the caller need not have memory for more. All columns come to the
        /// host's own memory first.
        vectors: Option<Operand>,
    },
}

impl Plan {
    /// Both programs, in their order.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(&self.program).chain(&self.second)
    }

    /// The steps of both.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.programs().flat_map(|program| &program.steps)
    }
}

/// Largest dimension that is accepted: some of cuSOLVER's routines have 32-bit arguments, and the leading
/// dimension on the device is a little larger.
const DIMENSION_MAX: usize = 1 << 30;

const SINGULAR: &str = "the matrix is singular";
const INDEFINITE: &str = "the matrix is not positive definite";
const ARGUMENT: &str = "cuSOLVER refused an argument";
const DIVERGED: &str = "the iteration did not converge";

/// The program of a call with positive dimensions; `polar` lets the SVD try the faster routine.
///
/// # Errors
/// `Unsupported` for families and options that have no plan.
pub fn plan(call: &LapackCall<'_>, sizes: &Sizes, polar: bool) -> Result<Plan, Failure> {
    if call.m.max(call.n).max(call.k) > DIMENSION_MAX {
        return Err(Failure::Unsupported("a dimension above 2^30"));
    }
    let mut w = Writer::new(call.precision);
    let (m, n, k) = (call.m, call.n, call.k);
    let uplo = call.uplo().unwrap_or(Uplo::U);
    match call.op {
        Op::Potrf => w.potrf(uplo, n, Operand::A),
        Op::Posv => {
            let a = w.potrf(uplo, n, Operand::A);
            w.next();
            w.potrs(uplo, (n, k), a)
        }
        Op::Potrs => {
            let a = w.matrix(n, n);
            w.up(Operand::A, a, (n, n), tri(uplo));
            w.potrs(uplo, (n, k), a)
        }
        Op::Potri => {
            w.narrow(&[(n, n)])?;
            w.potri(uplo, n)
        }
        Op::Getrf => w.getrf((m, n)).0,
        Op::Gesv => {
            let (a, ipiv) = w.getrf((n, n));
            w.next();
            w.getrs(Trans::N, (n, k), a, ipiv)
        }
        Op::Getrs => {
            let a = w.matrix(n, n);
            w.up(Operand::A, a, (n, n), Area::Full);
            let ipiv = w.input(0, n, Elements::Pivots);
            let trans = call.trans().unwrap_or(Trans::N);
            w.getrs(trans, (n, k), a, ipiv)
        }
        Op::Getri => w.getri(n),
        Op::Trtri => w.trtri(uplo, call.diag().unwrap_or(Diag::N), n)?,
        Op::Lauum => w.lauum(uplo, n),
        Op::Geqrf => w.geqrf((m, n)),
        Op::Gelqf => w.gelqf((m, n)),
        Op::Gels => {
            w.narrow(&[(m.max(n), m.min(n)), (m.max(n), k)])?;
            w.gels(call.trans().unwrap_or(Trans::N), (m, n, k))
        }
        Op::Gelsd | Op::Gelss => {
            let (long, short) = (m.max(n), m.min(n));
            w.narrow(&[(long, short), (long, k), (short, n)])?;
            let polar = polar && short >= sizes.polar_from;
            w.gels_svd(call.op == Op::Gelss, (m, n, k), polar)
        }
        Op::Orgqr => {
            w.narrow(&[(m, n)])?;
            w.orgqr((m, n, k))
        }
        Op::Ormqr => {
            let side = call.side().unwrap_or(Side::L);
            w.narrow(&[(if side == Side::L { m } else { n }, k), (m, n)])?;
            w.ormqr(side, call.trans().unwrap_or(Trans::N), (m, n, k))
        }
        Op::Syev | Op::Syevd => {
            let a = w.triangle(uplo, n);
            let values = w.syevd(call, a);
            w.whole(call, (a, values))
        }
        Op::Syevr | Op::Syevx => {
            let a = w.triangle(uplo, n);
            let values = w.syevd(call, a);
            w.part(call, (a, values), Operand::B)?
        }
        Op::Sygv | Op::Sygvd | Op::Sygvx => {
            let b = w.potrf(uplo, n, Operand::B);
            w.next();
            let a = w.triangle(uplo, n);
            let c = w.sygst(call, a, b)?;
            let values = w.syevd(call, c);
            if call.letter("jobz") == Some(b'V') {
                w.back(call, b, c)?;
            }
            match call.op {
                Op::Sygvx => w.part(call, (c, values), Operand::C)?,
                _ => w.whole(call, (c, values)),
            }
        }
        Op::Gesdd | Op::Gesvd => {
            let polar = polar && m.min(n) >= sizes.polar_from;
            w.svd(svd_wants(call)?, (m, n), polar)
        }
        Op::Geev => {
            // Xgeev has right vectors only; those of A^H are A's left ones, but which belongs to which eigenvalue
            // nothing says where eigenvalues are close.
            if call.letter("jobvl") == Some(b'V') {
                return Err(Failure::Unsupported("left eigenvectors"));
            }
            w.geev(call.letter("jobvr") == Some(b'V'), n)
        }
        _ => return Err(Failure::Unsupported("this routine of LAPACK")),
    };
    w.next();
    let mut plan = w.plan;
    if let Some(first) = w.first {
        plan.second = Some(Program {
            buffers: plan.program.buffers.clone(),
            steps: std::mem::replace(&mut plan.program.steps, first),
            ..Program::default()
        });
    }
    plan.program.finite_only = true;
    plan.program.unscaled_steps = scaled_steps(call.op, call.precision);
    Ok(plan)
}

/// How many steps upload operands in which LAPACK keeps squares and quotients of elements from overflowing, where
/// cuSOLVER says nothing of the kind: by scaling the whole matrix (eigenvalues, singular values, least squares, whose right-hand
/// sides too), the norms of columns (geqrf's reflectors), or complex quotients (getrf's pivots; real ones are the same
/// in both).
///
/// potrf, and what follows from its factor, forms nothing larger than the square root of a diagonal element, and
/// no quotient but by one; the operands of orgqr and ormqr are reflectors and numbers that are multiplied by them,
/// with the sums that LAPACK has.
fn scaled_steps(op: Op, precision: Precision) -> usize {
    match op {
        Op::Getrf | Op::Gesv => usize::from(precision.is_complex()),
        Op::Syev | Op::Syevd | Op::Syevr | Op::Gesdd | Op::Gesvd | Op::Geev => 1,
        Op::Geqrf | Op::Gelqf => 1,
        Op::Syevx => 1,
        Op::Gels | Op::Gelsd | Op::Gelss | Op::Sygv | Op::Sygvd | Op::Sygvx => 2,
        _ => 0,
    }
}

/// True if the SVD of this call may be computed in two ways, of which the first may turn out too inaccurate.
pub fn has_polar(call: &LapackCall<'_>, sizes: &Sizes) -> bool {
    let by_svd = matches!(call.op, Op::Gesdd | Op::Gesvd | Op::Gelsd | Op::Gelss);
    by_svd && call.m.min(call.n) >= sizes.polar_from
}

/// Which generalised problem: A x = l B x, A B x = l x or B A x = l x.
fn itype(call: &LapackCall<'_>) -> Result<i64, Failure> {
    call.int("itype")
        .filter(|itype| (1..=3).contains(itype))
        .ok_or(Failure::Unsupported("this type of problem"))
}

/// The elements of a whole matrix in its triangle.
fn tri(uplo: Uplo) -> Area {
    triangle(uplo, &block(&(0..1), &(0..1)), false)
}

/// What the caller wants of one factor of the SVD: all of it or the economical part, and where to.
type Want = Option<(bool, Operand)>;

/// U and V^H as the job options ask for them.
fn svd_wants(call: &LapackCall<'_>) -> Result<(Want, Want), Failure> {
    let of = |letter: Option<u8>, to: Operand| match letter {
        Some(b'A') => Ok(Some((true, to))),
        Some(b'S') => Ok(Some((false, to))),
        Some(b'O') => Ok(Some((false, Operand::A))),
        Some(b'N') => Ok(None),
        _ => Err(Failure::Unsupported("this job option of the SVD")),
    };
    if call.op == Op::Gesvd {
        let u = of(call.letter("jobu"), Operand::B)?;
        return Ok((u, of(call.letter("jobvt"), Operand::C)?));
    }
    match call.letter("jobz") {
        // The factor that fits goes over A, all of the other one to its own place.
        Some(b'O') if call.m >= call.n => Ok((Some((false, Operand::A)), Some((true, Operand::C)))),
        Some(b'O') => Ok((Some((true, Operand::B)), Some((false, Operand::A)))),
        job => Ok((of(job, Operand::B)?, of(job, Operand::C)?)),
    }
}

/// A plan that is being written.
struct Writer {
    plan: Plan,
    step: Step,
    /// The steps of the first of two programs.
    first: Option<Vec<Step>>,
    precision: Precision,
}

impl Writer {
    fn new(precision: Precision) -> Self {
        Self {
            plan: Plan::default(),
            step: Step::default(),
            first: None,
            precision,
        }
    }

    fn next(&mut self) {
        self.plan.program.steps.push(std::mem::take(&mut self.step));
    }

    /// What follows is the second program's.
    fn split(&mut self) {
        self.next();
        self.first = Some(std::mem::take(&mut self.plan.program.steps));
    }

    fn buffer(&mut self, buffer: Buffer) -> Place {
        self.plan.program.buffers.push(buffer);
        Place {
            buffer: self.plan.program.buffers.len() - 1,
            row0: 0,
            col0: 0,
        }
    }

    fn matrix(&mut self, rows: usize, cols: usize) -> Place {
        self.buffer(Buffer::new(rows, cols))
    }

    fn vector(&mut self, len: usize, elements: Elements) -> Place {
        self.buffer(Buffer {
            rows: len,
            cols: 1,
            other_bytes: Some(elements.bytes(self.precision)),
        })
    }

    /// Refuses matrices with more elements on the device than the 32-bit routines can count.
    ///
    /// # Source
    /// cuSOLVER library documentation: orgqr, ormqr and potri take int; nothing says that they compute addresses in
    /// 64 bits.
    fn narrow(&self, sizes: &[(usize, usize)]) -> Result<(), Failure> {
        let elem_bytes = self.precision.elem_bytes();
        let fits = |&(rows, cols): &(usize, usize)| {
            let ld = ld_bytes(rows.saturating_mul(elem_bytes)) / elem_bytes;
            ld.checked_mul(cols)
                .is_some_and(|elems| i32::try_from(elems).is_ok())
        };
        match sizes.iter().all(fits) {
            true => Ok(()),
            false => Err(Failure::Unsupported(
                "more elements than cuSOLVER counts in 32 bits",
            )),
        }
    }

    /// LAPACK takes the diagonal of a Hermitian matrix as real, whatever imaginary parts it has.
    fn real_diagonal(&mut self, n: usize, a: Place) {
        if self.precision.is_complex() {
            self.kernel(Solver::RealDiagonal { n, a });
        }
    }

    fn kernel(&mut self, kernel: Solver) {
        self.step.kernels.push(Kernel::Solver(kernel));
    }

    /// The first rows and columns of an operand go to a buffer's corner.
    fn up(&mut self, from: Operand, to: Place, (rows, cols): (usize, usize), area: Area) {
        self.step.uploads.push(Upload {
            from,
            rectangle: block(&(0..rows), &(0..cols)),
            area,
            to,
        });
    }

    /// The rows and columns at a buffer's corner come back.
    fn down(&mut self, to: Operand, from: Place, (rows, cols): (usize, usize), area: Area) {
        self.step.downloads.push(Download {
            to,
            from,
            rectangle: block(&(0..rows), &(0..cols)),
            area,
        });
    }

    fn host(&mut self, len: usize, elements: Elements, role: Role) -> Operand {
        self.plan.vectors.push(HostVector {
            len,
            elements,
            role,
        });
        Operand::Vector(self.plan.vectors.len() - 1)
    }

    /// The caller's vector `number` on the device.
    fn input(&mut self, number: usize, len: usize, elements: Elements) -> Place {
        let to = self.vector(len, elements);
        let from = self.host(len, elements, Role::In(number));
        self.up(from, to, (len, 1), Area::Full);
        to
    }

    /// Elements of a device vector for the caller's vector `number`.
    fn output(&mut self, number: usize, from: Place, len: usize, elements: Elements) {
        let to = self.host(len, elements, Role::Out(number));
        self.down(to, from, (len, 1), Area::Full);
    }

    /// Where a kernel says whether it has succeeded.
    fn info(&mut self, failed: &'static str) -> Place {
        let info = self.vector(1, Elements::Info);
        let to = self.host(1, Elements::Info, Role::Info(failed));
        self.down(to, info, (1, 1), Area::Full);
        info
    }

    fn potrf(&mut self, uplo: Uplo, n: usize, operand: Operand) -> Place {
        let a = self.matrix(n, n);
        self.up(operand, a, (n, n), tri(uplo));
        let info = self.info(INDEFINITE);
        self.real_diagonal(n, a);
        self.kernel(Solver::Potrf { uplo, n, a, info });
        // LAPACK's factor has a real diagonal; cuSOLVER does not say so of its own.
        self.real_diagonal(n, a);
        self.down(operand, a, (n, n), tri(uplo));
        a
    }

    fn potrs(&mut self, uplo: Uplo, (n, nrhs): (usize, usize), a: Place) -> Place {
        let b = self.matrix(n, nrhs);
        self.up(Operand::B, b, (n, nrhs), Area::Full);
        let info = self.info(ARGUMENT);
        let size = (n, nrhs);
        self.kernel(Solver::Potrs {
            uplo,
            size,
            a,
            b,
            info,
        });
        self.down(Operand::B, b, (n, nrhs), Area::Full);
        b
    }

    fn potri(&mut self, uplo: Uplo, n: usize) -> Place {
        let a = self.matrix(n, n);
        self.up(Operand::A, a, (n, n), tri(uplo));
        let info = self.info(SINGULAR);
        self.kernel(Solver::Potri { uplo, n, a, info });
        self.real_diagonal(n, a);
        self.down(Operand::A, a, (n, n), tri(uplo));
        a
    }

    /// The factors and the pivots.
    fn getrf(&mut self, (m, n): (usize, usize)) -> (Place, Place) {
        let a = self.matrix(m, n);
        self.up(Operand::A, a, (m, n), Area::Full);
        let ipiv = self.vector(m.min(n), Elements::Pivots);
        let info = self.info(SINGULAR);
        self.kernel(Solver::Getrf {
            size: (m, n),
            a,
            ipiv,
            info,
        });
        self.output(0, ipiv, m.min(n), Elements::Pivots);
        self.down(Operand::A, a, (m, n), Area::Full);
        (a, ipiv)
    }

    fn getrs(&mut self, trans: Trans, (n, nrhs): (usize, usize), a: Place, ipiv: Place) -> Place {
        let b = self.matrix(n, nrhs);
        self.up(Operand::B, b, (n, nrhs), Area::Full);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Getrs {
            trans,
            size: (n, nrhs),
            a,
            ipiv,
            b,
            info,
        });
        self.down(Operand::B, b, (n, nrhs), Area::Full);
        b
    }

    /// A^H Y = I, and Y^H is the inverse: as with getri's own way, the residual on the left is small.
    ///
    /// # Source
    /// N. J. Higham, Accuracy and Stability of Numerical Algorithms, second edition, section 14.3.
    fn getri(&mut self, n: usize) -> Place {
        let a = self.matrix(n, n);
        self.up(Operand::A, a, (n, n), Area::Full);
        let ipiv = self.input(0, n, Elements::Pivots);
        let y = self.matrix(n, n);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Identity { n, c: y });
        self.kernel(Solver::Getrs {
            trans: Trans::C,
            size: (n, n),
            a,
            ipiv,
            b: y,
            info,
        });
        self.kernel(Solver::Transpose {
            size: (n, n),
            a: y,
            c: a,
        });
        self.down(Operand::A, a, (n, n), Area::Full);
        a
    }

    fn geqrf(&mut self, (m, n): (usize, usize)) -> Place {
        let a = self.matrix(m, n);
        self.up(Operand::A, a, (m, n), Area::Full);
        let tau = self.vector(m.min(n), Elements::Same);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Geqrf {
            size: (m, n),
            a,
            tau,
            info,
        });
        self.output(0, tau, m.min(n), Elements::Same);
        self.down(Operand::A, a, (m, n), Area::Full);
        a
    }

    /// Everything goes up, also what LAPACK does not read: cuSOLVER does not say that it reads none of it, and
    /// what a buffer held before may be NaN.
    fn orgqr(&mut self, (m, n, k): (usize, usize, usize)) -> Place {
        let a = self.matrix(m, n);
        self.up(Operand::A, a, (m, n), Area::Full);
        let tau = self.input(0, k, Elements::Same);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Orgqr {
            size: (m, n, k),
            a,
            tau,
            info,
        });
        self.down(Operand::A, a, (m, n), Area::Full);
        a
    }

    fn ormqr(&mut self, side: Side, trans: Trans, (m, n, k): (usize, usize, usize)) -> Place {
        let order = if side == Side::L { m } else { n };
        let a = self.matrix(order, k);
        self.up(Operand::A, a, (order, k), Area::Full);
        let tau = self.input(0, k, Elements::Same);
        let c = self.matrix(m, n);
        self.up(Operand::B, c, (m, n), Area::Full);
        let info = self.info(ARGUMENT);
        self.kernel(Solver::Ormqr {
            side,
            trans,
            size: (m, n, k),
            a,
            tau,
            c,
            info,
        });
        self.down(Operand::B, c, (m, n), Area::Full);
        c
    }

    /// A of a symmetric eigenproblem.
    fn triangle(&mut self, uplo: Uplo, n: usize) -> Place {
        let a = self.matrix(n, n);
        self.up(Operand::A, a, (n, n), tri(uplo));
        self.real_diagonal(n, a);
        a
    }

    /// All eigenvalues, which it returns, and with vectors all of those over `a`.
    fn syevd(&mut self, call: &LapackCall<'_>, a: Place) -> Place {
        let n = call.n;
        let w = self.vector(n, Elements::Real);
        let info = self.info(DIVERGED);
        self.kernel(Solver::Syevd {
            vectors: call.letter("jobz") == Some(b'V'),
            uplo: call.uplo().unwrap_or(Uplo::U),
            n,
            a,
            w,
            info,
        });
        w
    }

    /// The values, and the vectors over A.
    fn whole(&mut self, call: &LapackCall<'_>, (a, w): (Place, Place)) -> Place {
        let n = call.n;
        self.output(0, w, n, Elements::Real);
        if call.letter("jobz") == Some(b'V') {
            self.down(Operand::A, a, (n, n), Area::Full);
        }
        a
    }

    /// What range asks for of the values, and of the vectors, which go to `z`; m, w and isuppz or ifail are the
    /// caller's vectors.
    ///
    /// All are computed for any range. cuSOLVER's syevdx differs in the vectors that it transforms back, a small part
    /// of the time; with the whole spectrum a range has the bits of range A, and no other routine has to be trusted
    /// at the ends of an interval. A tolerance (abstol) may ask for less than is computed, and not for more: the
    /// reduction to a tridiagonal matrix, LAPACK's too, leaves eps |A|.
    fn part(
        &mut self,
        call: &LapackCall<'_>,
        (a, w): (Place, Place),
        z: Operand,
    ) -> Result<Place, Failure> {
        let (n, vectors) = (call.n, call.letter("jobz") == Some(b'V'));
        self.host(1, Elements::Pivots, Role::Made(0, Made::Count));
        let values = self.plan.vectors.len();
        self.output(1, w, n, Elements::Real);
        let scalars = (
            call.real("vl"),
            call.real("vu"),
            call.int("il"),
            call.int("iu"),
        );
        self.plan.wanted = match (call.letter("range"), scalars) {
            (Some(b'A'), _) => None,
            (Some(b'V'), (Some(low), Some(high), ..)) if n > 1 => Some(Wanted::Interval {
                low,
                high,
                values,
                vectors: vectors.then_some(z),
            }),
            (Some(b'I'), (.., Some(il), Some(iu))) if 1 <= il && il <= iu && iu <= n as i64 => {
                let numbers = il as usize - 1..iu as usize;
                (numbers.len() < n).then_some(Wanted::Numbers(numbers))
            }
            _ => return Err(Failure::Unsupported("this part of the eigenvalues")),
        };
        if !vectors {
            return Ok(a);
        }
        match call.op {
            // LAPACK sets isuppz for the whole spectrum only.
            Op::Syevr if self.plan.wanted.is_none() => {
                self.host(2 * n, Elements::Pivots, Role::Made(2, Made::Supports));
            }
            Op::Syevr => {}
            _ => {
                self.host(n, Elements::Pivots, Role::Made(2, Made::Converged));
            }
        }
        let (first, count) = match &self.plan.wanted {
            Some(Wanted::Numbers(numbers)) => (numbers.start, numbers.len()),
            _ => (0, n),
        };
        self.down(z, Place { col0: first, ..a }, (n, count), Area::Full);
        Ok(a)
    }

    /// The matrix of the standard problem that has the same eigenvalues: inv(U^H) A inv(U) or inv(L) A inv(L^H), with
    /// itype 2 and 3 U A U^H or L^H A L; b is the factor. A fourth of its work is to make both triangles of A by a
    /// product with I, which the device does at its full rate.
    ///
    /// These steps are LAPACK's own (sygst), and cuSOLVER's sygvd, which has 32-bit sizes, does not say what it leaves
    /// in B when it fails.
    fn sygst(&mut self, call: &LapackCall<'_>, a: Place, b: Place) -> Result<Place, Failure> {
        let n = call.n;
        let upper = call.uplo() == Some(Uplo::U);
        let (eye, c) = (self.matrix(n, n), self.matrix(n, n));
        self.kernel(Solver::Identity { n, c: eye });
        self.step.kernels.push(Kernel::Symm {
            hermitian: self.precision.is_complex(),
            side: Side::L,
            uplo: call.uplo().unwrap_or(Uplo::U),
            size: (n, n),
            alpha: Scalar::ONE,
            a,
            b: eye,
            beta: Scalar::ZERO,
            c,
        });
        let solve = itype(call)? == 1;
        // U^H and L^H stand on the left of an inverse upper, and of a product lower, factor.
        let adjoint_left = upper == solve;
        let (left, right) = match adjoint_left {
            true => (Trans::C, Trans::N),
            false => (Trans::N, Trans::C),
        };
        self.triangular(call, solve, (Side::L, left), b, c);
        self.triangular(call, solve, (Side::R, right), b, c);
        Ok(c)
    }

    /// Vectors of the standard problem to those of the caller's: inv(U) or inv(L^H), with itype 3 U^H or L, of each.
    fn back(&mut self, call: &LapackCall<'_>, b: Place, c: Place) -> Result<(), Failure> {
        let solve = itype(call)? != 3;
        let upper = call.uplo() == Some(Uplo::U);
        let trans = if upper == solve { Trans::N } else { Trans::C };
        self.triangular(call, solve, (Side::L, trans), b, c);
        Ok(())
    }

    /// C := op(B) C, C op(B), or the same with the inverse; B is the factor in its triangle, C is n x n.
    fn triangular(
        &mut self,
        call: &LapackCall<'_>,
        solve: bool,
        (side, trans): (Side, Trans),
        b: Place,
        c: Place,
    ) {
        let uplo = call.uplo().unwrap_or(Uplo::U);
        let (size, diag, alpha) = ((call.n, call.n), Diag::N, Scalar::ONE);
        self.step.kernels.push(match solve {
            true => Kernel::Trsm {
                side,
                uplo,
                trans,
                diag,
                size,
                alpha,
                a: b,
                b: c,
            },
            false => Kernel::Trmm {
                side,
                uplo,
                trans,
                diag,
                size,
                alpha,
                a: b,
                b: c,
                c,
            },
        });
    }

    /// cuSOLVER's routines want m >= n, so a wide matrix is turned first: A^H = U' S V'^H means A = V' S U'^H.
    fn svd(&mut self, (u, vt): (Want, Want), (m, n): (usize, usize), polar: bool) -> Place {
        let a = self.matrix(m, n);
        self.up(Operand::A, a, (m, n), Area::Full);
        let wide = m < n;
        let (rows, cols) = if wide { (n, m) } else { (m, n) };
        let mut tall = a;
        if wide {
            tall = self.matrix(rows, cols);
            self.kernel(Solver::Transpose {
                size: (rows, cols),
                a,
                c: tall,
            });
        }
        let long = if wide { vt } else { u };
        let all = long.is_some_and(|(all, _)| all) && rows > cols;
        // Xgesvdp without vectors still works in U and V: with A in their place its values are wrong, with null
        // the process's context is lost (cuSOLVER 12.0, H200, 2026-12-02). With vectors it takes 7 % longer.
        let none = u.is_none() && vt.is_none() && !polar;
        let job = match (none, all) {
            (true, _) => b'N',
            (_, true) => b'A',
            _ => b'S',
        };
        let left_cols = if all { rows } else { cols };
        let s = self.vector(cols, Elements::Real);
        // Xgesvd writes nothing there without vectors, but the leading dimensions must be large enough.
        let (mut left, mut right) = (tall, tall);
        if !none {
            left = self.matrix(rows, left_cols);
            right = self.matrix(cols, cols);
        }
        let info = self.info(DIVERGED);
        self.decompose(polar, job, (rows, cols), [tall, s, left, right, info]);
        self.output(0, s, cols, Elements::Real);
        self.plan.estimated = polar.then(|| self.plan.vectors.len() - 1);
        if let Some((_, to)) = long {
            let mut from = left;
            // V^H of a wide matrix is U'^H.
            let size = if wide {
                (left_cols, rows)
            } else {
                (rows, left_cols)
            };
            if wide {
                from = self.matrix(left_cols, rows);
                self.kernel(Solver::Transpose {
                    size,
                    a: left,
                    c: from,
                });
            }
            self.down(to, from, size, Area::Full);
        }
        if let Some((_, to)) = if wide { u } else { vt } {
            let mut from = right;
            // Wanted: V'^H of a tall one, V' of a wide one. There is V' after Xgesvdp, else V'^H.
            if polar != wide {
                from = self.matrix(cols, cols);
                self.kernel(Solver::Transpose {
                    size: (cols, cols),
                    a: right,
                    c: from,
                });
            }
            self.down(to, from, (cols, cols), Area::Full);
        }
        a
    }

    /// A = U S V^H of the places a, s, u, v, info; v gets V where `polar`, else V^H.
    fn decompose(
        &mut self,
        polar: bool,
        job: u8,
        size: (usize, usize),
        [a, s, u, v, info]: [Place; 5],
    ) {
        self.kernel(match polar {
            true => Solver::Gesvdp {
                job,
                size,
                a,
                s,
                u,
                v,
                info,
            },
            false => Solver::Gesvd {
                job,
                size,
                a,
                s,
                u,
                vt: v,
                info,
            },
        });
    }

    fn geev(&mut self, vectors: bool, n: usize) -> Place {
        let a = self.matrix(n, n);
        self.up(Operand::A, a, (n, n), Area::Full);
        let complex = self.precision.is_complex();
        let w = self.vector(if complex { n } else { 2 * n }, Elements::Same);
        let vr = if vectors { self.matrix(n, n) } else { a };
        let info = self.info(DIVERGED);
        self.kernel(Solver::Geev {
            vectors,
            n,
            a,
            w,
            vr,
            info,
        });
        self.output(0, w, n, Elements::Same);
        if !complex {
            self.output(1, Place { row0: n, ..w }, n, Elements::Same);
        }
        if vectors {
            self.down(Operand::C, vr, (n, n), Area::Full);
        }
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(
        op: Op,
        precision: Precision,
        letters: [u8; 4],
        size: (usize, usize, usize),
    ) -> bool {
        let call = LapackCall::new(op, precision, letters, size);
        match plan(&call, &Sizes::DEFAULT, false) {
            Ok(_) => true,
            Err(Failure::Unsupported(_)) => false,
            Err(other) => panic!("{op:?}: {other}"),
        }
    }

    /// 46,340^2 is the last square below 2^31; columns on the device are up to a sixteenth longer.
    #[test]
    fn routines_with_32_bit_sizes_get_no_more_elements_than_they_can_count() {
        for precision in Precision::ALL {
            for (n, fits) in [(45_000, true), (46_341, false), (1 << 30, false)] {
                let left = [b'L', b'N', 0, 0];
                assert_eq!(planned(Op::Orgqr, precision, [0; 4], (n, n, n)), fits);
                assert_eq!(
                    planned(Op::Potri, precision, [b'U', 0, 0, 0], (n, n, n)),
                    fits
                );
                assert_eq!(planned(Op::Ormqr, precision, left, (n, 5, n)), fits);
                assert_eq!(planned(Op::Ormqr, precision, left, (n, n, 5)), fits);
                assert_eq!(
                    planned(Op::Ormqr, precision, [b'R', b'N', 0, 0], (5, n, n)),
                    fits
                );
                // Those with 64-bit sizes do.
                assert!(planned(Op::Geqrf, precision, [0; 4], (n, n, n)));
            }
            let tall = 1 << 22;
            assert!(planned(Op::Orgqr, precision, [0; 4], (tall, 500, 500)));
            assert!(!planned(Op::Orgqr, precision, [0; 4], (tall, 513, 500)));
        }
        assert!(!planned(
            Op::Geqrf,
            Precision::D,
            [0; 4],
            (5, (1 << 30) + 1, 5)
        ));
    }
}
