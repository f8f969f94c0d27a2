//! Calls of LAPACK as a caller makes them, and the residuals of LAPACK's own test programs.

use super::{Matrix, Number, Random, SENTINEL, modulus, mul};
use call::{
    Backend, Call, Failure, LapackCall, MatMut, MatRef, Op, Precision, Scalars, Timing, Vector,
    VectorKind,
};
use gpu_backend::Gpu;

/// LAPACK's test programs accept ratios below this.
pub const THRESHOLD: f64 = 30.0;

/// What a call does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    In,
    InOut,
    Out,
}

/// A short vector as bytes, with a guard on both sides.
#[derive(Clone)]
pub struct Short {
    pub kind: VectorKind,
    pub elem_bytes: usize,
    pub len: usize,
    pub intent: Intent,
    bytes: Vec<u8>,
}

const GUARD: usize = 32;

impl Short {
    pub fn new(kind: VectorKind, elem_bytes: usize, len: usize, intent: Intent) -> Self {
        Self {
            kind,
            elem_bytes,
            len,
            intent,
            bytes: vec![SENTINEL; len * elem_bytes + 2 * GUARD],
        }
    }

    pub fn set_bytes(&mut self, bytes: &[u8]) {
        let end = GUARD + self.len * self.elem_bytes;
        self.bytes[GUARD..end].copy_from_slice(bytes);
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[GUARD..GUARD + self.len * self.elem_bytes]
    }

    pub fn ints(&self) -> Vec<i64> {
        let one = |b: &[u8]| match b {
            [a, b, c, d] => i64::from(i32::from_ne_bytes([*a, *b, *c, *d])),
            b => i64::from_ne_bytes(b.try_into().expect("8 bytes")),
        };
        self.body().chunks_exact(self.elem_bytes).map(one).collect()
    }

    /// The elements as numbers of a type of `parts` parts.
    pub fn numbers(&self, parts: usize) -> Vec<Number> {
        let part_bytes = self.elem_bytes / parts;
        let one = |b: &[u8]| match b {
            [a, b, c, d] => f64::from(f32::from_ne_bytes([*a, *b, *c, *d])),
            b => f64::from_ne_bytes(b.try_into().expect("8 bytes")),
        };
        let number = |b: &[u8]| {
            let im = if parts == 2 {
                one(&b[part_bytes..])
            } else {
                0.0
            };
            (one(&b[..part_bytes]), im)
        };
        self.body()
            .chunks_exact(self.elem_bytes)
            .map(number)
            .collect()
    }

    fn assert_guards(&self) {
        let end = GUARD + self.len * self.elem_bytes;
        let guards = self.bytes[..GUARD].iter().chain(&self.bytes[end..]);
        assert!(guards.copied().all(|b| b == SENTINEL), "past a vector");
    }
}

/// A call with its operands.
#[derive(Clone)]
pub struct Case {
    pub op: Op,
    pub precision: Precision,
    pub letters: &'static str,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// The usual ones where there are none.
    pub scalars: Option<Scalars>,
    pub matrices: Vec<Option<(Matrix, Intent)>>,
    pub vectors: Vec<Short>,
}

impl Case {
    pub fn new(
        op: Op,
        precision: Precision,
        letters: &'static str,
        size: (usize, usize, usize),
    ) -> Self {
        Self {
            op,
            precision,
            letters,
            m: size.0,
            n: size.1,
            k: size.2,
            scalars: None,
            matrices: Vec::new(),
            vectors: Vec::new(),
        }
    }

    pub fn with(mut self, reals: [f64; 3], ints: [i64; 3]) -> Self {
        self.scalars = Some(Scalars { reals, ints });
        self
    }

    pub fn matrix(mut self, matrix: Matrix, intent: Intent) -> Self {
        self.matrices.push(Some((matrix, intent)));
        self
    }

    /// A matrix that is only written, with a gap of `gap` below its columns.
    pub fn result(self, rows: usize, cols: usize, gap: usize) -> Self {
        let matrix = Matrix::filled(self.precision, rows, cols, rows + gap, |_, _| {
            (f64::NAN, f64::NAN)
        });
        self.matrix(matrix, Intent::Out)
    }

    pub fn unreferenced(mut self) -> Self {
        self.matrices.push(None);
        self
    }

    pub fn vector(mut self, kind: VectorKind, len: usize, intent: Intent) -> Self {
        let own = self.precision.elem_bytes();
        let elem_bytes = match kind {
            VectorKind::Integer => 4,
            VectorKind::Real if self.precision.is_complex() => own / 2,
            VectorKind::Real | VectorKind::Same => own,
        };
        self.vectors.push(Short::new(kind, elem_bytes, len, intent));
        self
    }

    /// INTEGER has 8 bytes.
    pub fn wide(mut self) -> Self {
        for v in &mut self.vectors {
            if v.kind == VectorKind::Integer {
                *v = Short::new(v.kind, 8, v.len, v.intent);
            }
        }
        self
    }

    pub fn mat(&self, number: usize) -> &Matrix {
        &self.matrices[number].as_ref().expect("a matrix").0
    }

    pub fn name(&self) -> String {
        let (p, op) = (self.precision.letter(), self.op.name());
        let (m, n, k) = (self.m, self.n, self.k);
        format!("{p}{op} {} {m} x {n}, {k}", self.letters)
    }

    pub fn run(&mut self, gpu: &Gpu) -> Result<Timing, Failure> {
        let elem = self.precision.elem_bytes();
        let letters = call::option_letters(self.letters);
        let mut call = LapackCall::new(self.op, self.precision, letters, (self.m, self.n, self.k));
        call.scalars = self.scalars.unwrap_or(call.scalars);
        for (slot, matrix) in call.matrices.iter_mut().zip(&mut self.matrices) {
            if let Some((matrix, intent)) = matrix {
                let data = matrix.bytes.as_mut_ptr();
                let (rows, cols, ld) = (matrix.rows, matrix.cols, matrix.ld);
                *slot = Some(view(data, (rows, cols, ld, elem), *intent));
            }
        }
        for (slot, v) in call.vectors.iter_mut().zip(&mut self.vectors) {
            let (kind, len, elem) = (v.kind, v.len, v.elem_bytes);
            let data = v.bytes[GUARD..].as_mut_ptr();
            let data = view(data, (len, 1, len, elem), v.intent);
            *slot = Some(Vector { kind, data });
        }
        let ran = gpu.run(&mut Call::Lapack(call));
        for matrix in self.matrices.iter().flatten() {
            matrix.0.assert_gaps_untouched();
        }
        self.vectors.iter().for_each(Short::assert_guards);
        ran
    }

    /// What is read is as it was.
    pub fn assert_inputs_are_those_of(&self, before: &Self, what: &str) {
        for (now, before) in self.matrices.iter().zip(&before.matrices) {
            if let (Some((now, intent)), Some((before, _))) = (now, before) {
                let same = *intent == Intent::Out || now.bytes == before.bytes;
                assert!(same, "{}: {what}: an operand was written", self.name());
            }
        }
        for (now, before) in self.vectors.iter().zip(&before.vectors) {
            let same = now.intent == Intent::Out || now.bytes == before.bytes;
            assert!(same, "{}: {what}: a vector was written", self.name());
        }
    }

    /// Every operand has the same bits.
    pub fn assert_is(&self, other: &Self) {
        for (x, y) in self.matrices.iter().zip(&other.matrices) {
            if let (Some((x, _)), Some((y, _))) = (x, y) {
                assert!(x.bytes == y.bytes, "{}: a matrix differs", self.name());
            }
        }
        for (x, y) in self.vectors.iter().zip(&other.vectors) {
            assert!(x.bytes == y.bytes, "{}: a vector differs", self.name());
        }
    }

    /// Runs, and fails if the GPU does not do it.
    pub fn done(mut self, gpu: &Gpu) -> Self {
        let before = self.clone();
        let ran = self.run(gpu);
        assert!(ran.is_ok(), "{}: {ran:?}", self.name());
        for (now, before) in self.matrices.iter().zip(&before.matrices) {
            if let (Some((now, Intent::In)), Some((before, _))) = (now, before) {
                assert!(now.bytes == before.bytes, "{}: an input", self.name());
            }
        }
        self
    }
}

fn view<'a>(
    data: *mut u8,
    (rows, cols, ld, elem): (usize, usize, usize, usize),
    intent: Intent,
) -> call::Matrix<'a> {
    // SAFETY: every caller passes a live buffer of exactly this span, used by nobody else meanwhile.
    unsafe {
        let matrix = || MatMut::new(data, rows, cols, ld, elem).expect("valid");
        match intent {
            Intent::In => call::Matrix::In(MatRef::new(data, rows, cols, ld, elem).expect("valid")),
            Intent::InOut => call::Matrix::InOut(matrix()),
            Intent::Out => call::Matrix::Out(matrix()),
        }
    }
}

/// A packed complex matrix for the checks.
#[derive(Clone, Debug)]
pub struct Full {
    pub rows: usize,
    pub cols: usize,
    pub data: Vec<Number>,
}

impl Full {
    pub fn new(rows: usize, cols: usize, value: impl Fn(usize, usize) -> Number) -> Self {
        let data = (0..cols)
            .flat_map(|j| (0..rows).map(move |i| (i, j)))
            .map(|(i, j)| value(i, j))
            .collect();
        Self { rows, cols, data }
    }

    pub fn of(matrix: &Matrix) -> Self {
        Self::new(matrix.rows, matrix.cols, |i, j| matrix.get(i, j))
    }

    pub fn identity(n: usize) -> Self {
        Self::new(n, n, |i, j| (f64::from(u8::from(i == j)), 0.0))
    }

    pub fn at(&self, i: usize, j: usize) -> Number {
        self.data[j * self.rows + i]
    }

    pub fn adjoint(&self) -> Self {
        Self::new(self.cols, self.rows, |i, j| {
            let (re, im) = self.at(j, i);
            (re, -im)
        })
    }

    pub fn times(&self, other: &Self) -> Self {
        assert_eq!(self.cols, other.rows);
        let mut result = Self::new(self.rows, other.cols, |_, _| (0.0, 0.0));
        for j in 0..other.cols {
            let column = &mut result.data[j * self.rows..(j + 1) * self.rows];
            for l in 0..self.cols {
                let y = other.at(l, j);
                if y == (0.0, 0.0) {
                    continue;
                }
                let from = &self.data[l * self.rows..(l + 1) * self.rows];
                for (to, x) in column.iter_mut().zip(from) {
                    let p = mul(*x, y);
                    *to = (to.0 + p.0, to.1 + p.1);
                }
            }
        }
        result
    }

    /// Columns scaled by real numbers.
    pub fn scaled(&self, by: &[Number]) -> Self {
        Self::new(self.rows, self.cols, |i, j| mul(self.at(i, j), by[j]))
    }

    pub fn minus(&self, other: &Self) -> Self {
        assert_eq!((self.rows, self.cols), (other.rows, other.cols));
        Self::new(self.rows, self.cols, |i, j| {
            let (x, y) = (self.at(i, j), other.at(i, j));
            (x.0 - y.0, x.1 - y.1)
        })
    }

    pub fn leading(&self, rows: usize, cols: usize) -> Self {
        Self::new(rows, cols, |i, j| self.at(i, j))
    }

    /// The largest sum of a column.
    pub fn norm(&self) -> f64 {
        let column = |c: &[Number]| c.iter().map(|x| modulus(*x)).sum::<f64>();
        let most = |most: f64, x: f64| if x.is_nan() { x } else { most.max(x) };
        self.data
            .chunks(self.rows.max(1))
            .map(column)
            .fold(0.0, most)
    }
}

/// LAPACK's eps: half the distance of 1 to the next number.
pub fn eps(precision: Precision) -> f64 {
    match precision {
        Precision::S | Precision::C => f64::from(f32::EPSILON) / 2.0,
        Precision::D | Precision::Z => f64::EPSILON / 2.0,
    }
}

/// Fails unless error / (size eps) is below LAPACK's threshold.
pub fn small(what: &str, error: f64, size: f64, precision: Precision) {
    let ratio = error / (size * eps(precision));
    assert!(ratio < THRESHOLD, "{what}: ratio {ratio:.1}");
}

/// ||I - Q^H Q|| / (m eps).
pub fn orthogonal(what: &str, q: &Full, precision: Precision) {
    let error = q.adjoint().times(q).minus(&Full::identity(q.cols)).norm();
    small(
        &format!("{what}: orthogonality"),
        error,
        q.rows as f64,
        precision,
    );
}

/// A Hermitian matrix, positive definite if asked.
pub fn hermitian(
    precision: Precision,
    n: usize,
    gap: usize,
    definite: bool,
    random: &mut Random,
) -> Matrix {
    let x = Matrix::random(precision, n, n, n, random);
    let shift = if definite { 2.0 * n as f64 } else { 0.0 };
    Matrix::filled(precision, n, n, n + gap, |i, j| {
        let (a, b) = (x.get(i.min(j), i.max(j)), i > j);
        let im = if i == j {
            0.0
        } else if b {
            -a.1
        } else {
            a.1
        };
        (a.0 + if i == j { shift } else { 0.0 }, im)
    })
}

/// What an option gives: the whole factor, its economical part, the part over A, nothing.
pub fn svd_case(op: Op, precision: Precision, letters: &'static str, a: &Matrix) -> Case {
    let (m, n) = (a.rows, a.cols);
    let k = m.min(n);
    let mut jobs = letters.bytes();
    let first = jobs.next().expect("a letter");
    let (u, vt) = match (op, first) {
        (Op::Gesvd, job) => (job, jobs.next().expect("two letters")),
        (_, b'O') if m >= n => (b'O', b'A'),
        (_, b'O') => (b'A', b'O'),
        (_, job) => (job, job),
    };
    let case = Case::new(op, precision, letters, (m, n, n)).matrix(a.clone(), Intent::InOut);
    let case = match u {
        b'A' => case.result(m, m, 1),
        b'S' => case.result(m, k, 1),
        _ => case.unreferenced(),
    };
    let case = match vt {
        b'A' => case.result(n, n, 2),
        b'S' => case.result(k, n, 2),
        _ => case.unreferenced(),
    };
    case.vector(VectorKind::Real, k, Intent::Out)
}

pub fn geev_case(precision: Precision, letters: &'static str, a: &Matrix) -> Case {
    let n = a.rows;
    let case = Case::new(Op::Geev, precision, letters, (n, n, n))
        .matrix(a.clone(), Intent::InOut)
        .unreferenced();
    let case = if letters.ends_with('V') {
        case.result(n, n, 2)
    } else {
        case.unreferenced()
    };
    let case = case.vector(VectorKind::Same, n, Intent::Out);
    if precision.is_complex() {
        case
    } else {
        case.vector(VectorKind::Same, n, Intent::Out)
    }
}

/// gels and ormqr's letter for the conjugate transpose.
pub fn adjoint(precision: Precision) -> &'static str {
    if precision.is_complex() { "C" } else { "T" }
}

/// Random right-hand sides in all max(m, n) rows, of which the routine may ignore the last.
pub fn gels_case(
    precision: Precision,
    letters: &'static str,
    a: &Matrix,
    nrhs: usize,
    random: &mut Random,
) -> Case {
    let (m, n) = (a.rows, a.cols);
    let b = Matrix::random(precision, m.max(n), nrhs, m.max(n) + 3, random);
    Case::new(Op::Gels, precision, letters, (m, n, nrhs))
        .matrix(a.clone(), Intent::InOut)
        .matrix(b, Intent::InOut)
}

/// The same by the singular value decomposition.
pub fn gels_svd_case(
    op: Op,
    precision: Precision,
    a: &Matrix,
    nrhs: usize,
    random: &mut Random,
) -> Case {
    let case = gels_case(precision, "", a, nrhs, random);
    let least = a.rows.min(a.cols);
    Case { op, ..case }
        .vector(VectorKind::Real, least, Intent::Out)
        .vector(VectorKind::Integer, 1, Intent::Out)
}

/// What no routine may read, and none may write.
pub fn poison_other_triangle(a: &mut Matrix, upper: bool) {
    for j in 0..a.cols {
        for i in 0..a.rows {
            if i != j && (i < j) != upper {
                a.set(i, j, (f64::NAN, f64::NAN));
            }
        }
    }
}

/// The Hermitian matrix of which a triangle is stored.
pub fn whole(a: &Matrix, upper: bool) -> Full {
    Full::new(a.rows, a.cols, |i, j| {
        if i == j || (i < j) == upper {
            a.get(i, j)
        } else {
            let (re, im) = a.get(j, i);
            (re, -im)
        }
    })
}

/// A vector of real numbers.
pub fn reals(case: &Case, number: usize) -> Vec<Number> {
    case.vectors[number].numbers(1)
}

/// syevr or syevx, or sygvx with a positive definite B; `columns` are those of z.
pub fn part_case(
    op: Op,
    precision: Precision,
    letters: &'static str,
    (a, b): (&Matrix, Option<&Matrix>),
    columns: usize,
) -> Case {
    let n = a.rows;
    let mut case = Case::new(op, precision, letters, (n, n, n)).matrix(a.clone(), Intent::InOut);
    if let Some(b) = b {
        case = case.matrix(b.clone(), Intent::InOut);
    }
    let vectors = letters.starts_with('V');
    case = match vectors {
        true => case.result(n, columns, 3),
        false => case.unreferenced(),
    };
    case =
        case.vector(VectorKind::Integer, 1, Intent::Out)
            .vector(VectorKind::Real, n, Intent::Out);
    match (vectors, op) {
        (true, Op::Syevr) => case.vector(VectorKind::Integer, 2 * n, Intent::Out),
        (true, _) => case.vector(VectorKind::Integer, n, Intent::Out),
        _ => case,
    }
}

/// One small case of each routine.
pub fn one_of_each(precision: Precision, n: usize, random: &mut Random) -> Vec<Case> {
    let a = Matrix::random(precision, n, n, n + 2, random);
    let b = Matrix::random(precision, n, 3, n + 1, random);
    let spd = hermitian(precision, n, 1, true, random);
    let new = |op, letters, k| Case::new(op, precision, letters, (n, n, k));
    let mut cases = vec![
        new(Op::Potrf, "L", n).matrix(spd.clone(), Intent::InOut),
        new(Op::Posv, "U", 3)
            .matrix(spd.clone(), Intent::InOut)
            .matrix(b.clone(), Intent::InOut),
        new(Op::Potrs, "U", 3)
            .matrix(spd.clone(), Intent::In)
            .matrix(b.clone(), Intent::InOut),
        new(Op::Potri, "U", n).matrix(spd.clone(), Intent::InOut),
        new(Op::Trtri, "LN", n).matrix(spd.clone(), Intent::InOut),
        new(Op::Lauum, "U", n).matrix(spd.clone(), Intent::InOut),
        new(Op::Trtrs, "UCN", 3)
            .matrix(spd.clone(), Intent::In)
            .matrix(b.clone(), Intent::InOut),
        gels_case(precision, "N", &a, 3, random),
        gels_case(
            precision,
            adjoint(precision),
            &Matrix::random(precision, n, n / 2 + 1, n, random),
            3,
            random,
        ),
        gels_case(
            precision,
            "N",
            &Matrix::random(precision, n / 2 + 1, n, n, random),
            3,
            random,
        ),
        Case::new(Op::Gelqf, precision, "", (n / 2 + 1, n, n))
            .matrix(
                Matrix::random(precision, n / 2 + 1, n, n, random),
                Intent::InOut,
            )
            .vector(VectorKind::Same, n / 2 + 1, Intent::Out),
        new(Op::Getrf, "", n)
            .matrix(a.clone(), Intent::InOut)
            .vector(VectorKind::Integer, n, Intent::Out),
        new(Op::Gesv, "", 3)
            .matrix(a.clone(), Intent::InOut)
            .matrix(b.clone(), Intent::InOut)
            .vector(VectorKind::Integer, n, Intent::Out),
        new(Op::Geqrf, "", n)
            .matrix(a.clone(), Intent::InOut)
            .vector(VectorKind::Same, n, Intent::Out),
        new(Op::Syevd, "VL", n)
            .matrix(spd.clone(), Intent::InOut)
            .vector(VectorKind::Real, n, Intent::Out),
        new(Op::Sygvd, "VU", n)
            .with([0.0; 3], [1, 0, 0])
            .matrix(spd.clone(), Intent::InOut)
            .matrix(spd.clone(), Intent::InOut)
            .vector(VectorKind::Real, n, Intent::Out),
        part_case(Op::Syevr, precision, "VIL", (&spd, None), 2).with([0.0; 3], [2, 3, 0]),
        part_case(Op::Syevx, precision, "VVU", (&spd, None), n)
            .with([2.0 * n as f64, f64::INFINITY, 0.0], [0; 3]),
        part_case(Op::Sygvx, precision, "VAL", (&spd, Some(&spd)), n).with([0.0; 3], [3, 0, 0]),
        svd_case(Op::Gesdd, precision, "S", &a),
        svd_case(Op::Gesdd, precision, "O", &a),
        svd_case(Op::Gesvd, precision, "AO", &a),
        geev_case(precision, "NV", &a),
    ];
    let mut orgqr = new(Op::Orgqr, "", n)
        .matrix(a.clone(), Intent::InOut)
        .vector(VectorKind::Same, n, Intent::In);
    let tau = vec![0u8; n * precision.elem_bytes()];
    orgqr.vectors[0].set_bytes(&tau);
    let mut ormqr = new(Op::Ormqr, "LN", n)
        .matrix(a.clone(), Intent::In)
        .matrix(a, Intent::InOut)
        .vector(VectorKind::Same, n, Intent::In);
    ormqr.vectors[0].set_bytes(&tau);
    let mut getri = new(Op::Getri, "", n)
        .matrix(spd.clone(), Intent::InOut)
        .vector(VectorKind::Integer, n, Intent::In);
    let mut getrs = new(Op::Getrs, "N", 3)
        .matrix(spd, Intent::In)
        .matrix(b, Intent::InOut)
        .vector(VectorKind::Integer, n, Intent::In);
    let pivots: Vec<u8> = (1..=n as i32).flat_map(i32::to_ne_bytes).collect();
    getri.vectors[0].set_bytes(&pivots);
    getrs.vectors[0].set_bytes(&pivots);
    cases.extend([orgqr, ormqr, getri, getrs]);
    let half = n / 2 + 1;
    for (op, rows, cols) in [
        (Op::Gelsd, n, half),
        (Op::Gelss, half, n),
        (Op::Gelsd, n, n),
        (Op::Gelss, n, n),
        (Op::Gelsd, half, n),
    ] {
        let a = Matrix::random(precision, rows, cols, rows + 1, random);
        cases.push(gels_svd_case(op, precision, &a, 3, random));
    }
    cases
}
