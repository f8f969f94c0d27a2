//! How far a result is from right, by routine: residuals and orthogonality in units of what rounding explains.
//!
//! A ratio is |error| / (|operands| sqrt(n) eps) with the error's effect on one vector (see `dense`). LAPACK's own
//! tests accept ratios of the whole error up to [`ACCEPTED`].

use super::dense::{
    Dense, Number, Op, Part, Reflectors, ZERO, interchange, largest, less, norm, probe, size,
};
use super::{Counts, State};
use routines::{Options, Uplo};

/// LAPACK's threshold for its test ratios (TESTING/*.in of LAPACK 3.12).
pub const ACCEPTED: f64 = 30.0;

/// One figure: what it is of, and the ratio.
pub type Figure = (&'static str, f64);

/// A call as the measures see it.
pub struct Facts<'a> {
    /// Its options.
    pub options: Options<'a>,
    /// The family's name ("getrf").
    pub name: &'static str,
    /// Hermitian where the routine's matrix is, symmetric otherwise.
    pub hermitian: bool,
    /// Machine epsilon of its precision.
    pub eps: f64,
    /// Sizes.
    pub counts: Counts,
}

impl Facts<'_> {
    fn letter(&self, name: &str) -> u8 {
        self.options.letter(name)
    }

    fn uplo(&self) -> Uplo {
        Uplo::from_letter(self.letter("uplo")).unwrap_or(Uplo::U)
    }

    fn op(&self) -> Op {
        match self.letter("trans") {
            b'T' => Op::T,
            b'C' => Op::C,
            _ => Op::N,
        }
    }

    fn mirrored(&self) -> Part {
        Part::Mirrored {
            uplo: self.uplo(),
            hermitian: self.hermitian,
        }
    }

    fn triangle(&self) -> Part {
        Part::Triangle {
            uplo: self.uplo(),
            unit: self.letter("diag") == b'U',
        }
    }

    /// An error against what it is a part of.
    fn ratio(&self, error: &[Number], scale: f64) -> f64 {
        let n = self.counts.m.max(self.counts.n).max(1) as f64;
        ratio(norm(error), scale * n.sqrt() * self.eps)
    }

    /// X^H X against the identity; `op` T for rows.
    fn orthogonality(&self, x: &Dense<'_>, op: Op) -> Figure {
        let (there, back, len) = match op {
            Op::N => (Op::N, Op::C, x.cols()),
            _ => (Op::C, Op::N, x.rows()),
        };
        let y = probe(len);
        let again = x.times(back, &x.times(there, &y));
        ("orthogonality", self.ratio(&less(&again, &y), norm(&y)))
    }
}

/// error / scale; not finite and 0 / 0 made comparable.
pub fn ratio(error: f64, scale: f64) -> f64 {
    let ratio = if error == 0.0 { 0.0 } else { error / scale };
    if ratio.is_finite() { ratio } else { f64::MAX }
}

const UPPER: Part = Part::Triangle {
    uplo: Uplo::U,
    unit: false,
};
const LOWER: Part = Part::Triangle {
    uplo: Uplo::L,
    unit: false,
};
const UNIT_LOWER: Part = Part::Triangle {
    uplo: Uplo::L,
    unit: true,
};

/// P L U as getrf leaves it.
struct Lu<'a> {
    lower: Dense<'a>,
    upper: Dense<'a>,
    pivots: Vec<i64>,
}

impl<'a> Lu<'a> {
    fn of(state: &State<'a>, pivots: Vec<i64>) -> Option<Self> {
        let a = state.matrix("a")?;
        let least = a.rows().min(a.cols());
        Some(Self {
            lower: a.leading(a.rows(), least).part(UNIT_LOWER),
            upper: a.leading(least, a.cols()).part(UPPER),
            pivots,
        })
    }

    fn times(&self, op: Op, x: &[Number]) -> Vec<Number> {
        match op {
            Op::N => {
                let product = self.lower.times(op, &self.upper.times(op, x));
                interchange(&self.pivots, op, product)
            }
            _ => {
                let x = interchange(&self.pivots, Op::T, x.to_vec());
                self.upper.times(op, &self.lower.times(op, &x))
            }
        }
    }

    fn norm(&self, op: Op) -> f64 {
        self.lower.norm(op) * self.upper.norm(op)
    }
}

/// U^H U or L L^H as potrf leaves it in `name`; with `swapped` U U^H or L^H L as lauum makes of it.
struct Squared<'a> {
    factor: Dense<'a>,
    first: Op,
    second: Op,
}

impl<'a> Squared<'a> {
    fn of(state: &State<'a>, facts: &Facts<'_>, name: &str, swapped: bool) -> Option<Self> {
        let (first, second) = match (facts.uplo() == Uplo::U) != swapped {
            true => (Op::N, Op::C),
            false => (Op::C, Op::N),
        };
        Some(Self {
            factor: state.matrix(name)?.part(facts.triangle()),
            first,
            second,
        })
    }

    fn times(&self, x: &[Number]) -> Vec<Number> {
        self.factor
            .times(self.second, &self.factor.times(self.first, x))
    }

    fn norm(&self) -> f64 {
        self.factor.norm(Op::N) * self.factor.norm(Op::T)
    }
}

/// |right - product| over `norm_of_a |x|`.
fn product(
    facts: &Facts<'_>,
    got: &[Number],
    right: &[Number],
    norm_of_a: f64,
    x: &[Number],
) -> Figure {
    (
        "residual",
        facts.ratio(&less(got, right), norm_of_a * norm(x)),
    )
}

/// Figures of a result of LAPACK; `None` where nothing is known of the routine. `before` is what the call found,
/// `after` what it left.
pub fn lapack(facts: &Facts<'_>, before: &State<'_>, after: &State<'_>) -> Option<Vec<Figure>> {
    let a = before.matrix("a");
    let solved = |op: &dyn Fn(&[Number]) -> Vec<Number>, norm_of_a: f64| {
        let (b, x) = (before.matrix("b")?, after.matrix("b")?);
        let y = probe(x.cols());
        let xy = x.times(Op::N, &y);
        let scale = norm_of_a * x.norm(Op::N) * norm(&y);
        let error = less(&op(&xy), &b.times(Op::N, &y));
        Some(("residual", facts.ratio(&error, scale)))
    };
    Some(match facts.name {
        "getrf" => {
            let (a, lu) = (a?, Lu::of(after, after.integers("ipiv"))?);
            let x = probe(a.cols());
            let (got, right) = (lu.times(Op::N, &x), a.times(Op::N, &x));
            vec![product(facts, &got, &right, a.norm(Op::N), &x)]
        }
        "getrs" => {
            let lu = Lu::of(before, before.integers("ipiv"))?;
            let op = facts.op();
            vec![solved(&|x| lu.times(op, x), lu.norm(op))?]
        }
        "getri" => {
            let (lu, inverse) = (Lu::of(before, before.integers("ipiv"))?, after.matrix("a")?);
            let x = probe(inverse.cols());
            let got = lu.times(Op::N, &inverse.times(Op::N, &x));
            let scale = lu.norm(Op::N) * inverse.norm(Op::N);
            vec![product(facts, &got, &x, scale, &x)]
        }
        "gesv" => {
            let a = a?;
            let lu = Lu::of(after, after.integers("ipiv"))?;
            let x = probe(a.cols());
            let (got, right) = (lu.times(Op::N, &x), a.times(Op::N, &x));
            let factors = product(facts, &got, &right, a.norm(Op::N), &x);
            vec![
                ("factors", factors.1),
                solved(&|x| a.times(Op::N, x), a.norm(Op::N))?,
            ]
        }
        "potrf" | "posv" => {
            let a = a?.part(facts.mirrored());
            let factor = Squared::of(after, facts, "a", false)?;
            let x = probe(a.cols());
            let (got, right) = (factor.times(&x), a.times(Op::N, &x));
            let (_, factors) = product(facts, &got, &right, a.norm(Op::N), &x);
            let mut figures = vec![("factors", factors)];
            if facts.name == "posv" {
                figures.push(solved(&|x| a.times(Op::N, x), a.norm(Op::N))?);
            }
            figures
        }
        "potrs" => {
            let factor = Squared::of(before, facts, "a", false)?;
            vec![solved(&|x| factor.times(x), factor.norm())?]
        }
        "potri" => {
            let factor = Squared::of(before, facts, "a", false)?;
            let inverse = after.matrix("a")?.part(facts.mirrored());
            let x = probe(inverse.cols());
            let got = factor.times(&inverse.times(Op::N, &x));
            let scale = factor.norm() * inverse.norm(Op::N);
            vec![product(facts, &got, &x, scale, &x)]
        }
        "trtri" => {
            let (a, inverse) = (
                a?.part(facts.triangle()),
                after.matrix("a")?.part(facts.triangle()),
            );
            let x = probe(a.cols());
            let got = a.times(Op::N, &inverse.times(Op::N, &x));
            let scale = a.norm(Op::N) * inverse.norm(Op::N);
            vec![product(facts, &got, &x, scale, &x)]
        }
        "trtrs" => {
            let (a, op) = (a?.part(facts.triangle()), facts.op());
            vec![solved(&|x| a.times(op, x), a.norm(op))?]
        }
        "lauum" => {
            let factor = Squared::of(before, facts, "a", true)?;
            let got = after.matrix("a")?.part(facts.mirrored());
            let x = probe(got.cols());
            let (got, right) = (got.times(Op::N, &x), factor.times(&x));
            vec![product(facts, &got, &right, factor.norm(), &x)]
        }
        "geqrf" | "gelqf" => vec![factored(facts, &a?, after)?],
        "orgqr" => {
            let q = after.matrix("a")?;
            let reflectors = Reflectors {
                matrix: a?,
                tau: before.numbers("tau"),
                in_rows: false,
            };
            let x = probe(q.cols());
            let mut long = x.clone();
            long.resize(q.rows(), ZERO);
            let (got, right) = (q.times(Op::N, &x), reflectors.times(Op::N, long));
            vec![
                product(facts, &got, &right, 1.0, &x),
                facts.orthogonality(&q, Op::N),
            ]
        }
        "ormqr" => vec![multiplied(facts, before, after)?],
        "gels" | "gelsd" | "gelss" | "gelsy" => {
            let rank = after.integers("rank");
            let a = a?;
            let full = rank
                .first()
                .is_none_or(|r| usize::try_from(*r).is_ok_and(|r| r == a.rows().min(a.cols())));
            match full {
                true => vec![least_squares(facts, &a, before, after)?],
                // What the truncated problem's residual is, its singular values say.
                false => Vec::new(),
            }
        }
        "syev" | "syevd" | "syevr" | "syevx" => {
            let (a, w) = (a?.part(facts.mirrored()), found(after, "w"));
            let z = eigenvectors(facts, after, w.len());
            z.map_or_else(Vec::new, |z| {
                let y = probe(z.cols());
                let wy: Vec<Number> = w.iter().zip(&y).map(|(w, y)| w * y).collect();
                let (got, right) = (a.times(Op::N, &z.times(Op::N, &y)), z.times(Op::N, &wy));
                vec![
                    product(facts, &got, &right, a.norm(Op::N), &y),
                    facts.orthogonality(&z, Op::N),
                ]
            })
        }
        "sygv" | "sygvd" | "sygvx" => generalised(facts, before, after)?,
        "gesdd" | "gesvd" => singular(facts, &a?, after),
        "geev" => general(facts, &a?, after)?,
        _ => return None,
    })
}

/// Q R or L Q against A.
fn factored(facts: &Facts<'_>, a: &Dense<'_>, after: &State<'_>) -> Option<Figure> {
    let (matrix, in_rows) = (after.matrix("a")?, facts.name == "gelqf");
    let least = a.rows().min(a.cols());
    let reflectors = Reflectors {
        matrix,
        tau: after.numbers("tau"),
        in_rows,
    };
    let x = probe(a.cols());
    let got = match in_rows {
        true => {
            let qx = reflectors.times(Op::N, x.clone());
            let lower = matrix.leading(a.rows(), least).part(LOWER);
            lower.times(Op::N, &qx[..least])
        }
        false => {
            let mut rx = matrix.leading(least, a.cols()).part(UPPER).times(Op::N, &x);
            rx.resize(a.rows(), ZERO);
            reflectors.times(Op::N, rx)
        }
    };
    let right = a.times(Op::N, &x);
    Some(product(facts, &got, &right, a.norm(Op::N), &x))
}

/// op(Q) C or C op(Q).
fn multiplied(facts: &Facts<'_>, before: &State<'_>, after: &State<'_>) -> Option<Figure> {
    let reflectors = Reflectors {
        matrix: before.matrix("a")?,
        tau: before.numbers("tau"),
        in_rows: false,
    };
    let (c, got) = (before.matrix("c")?, after.matrix("c")?);
    let op = match facts.op() {
        Op::N => Op::N,
        _ => Op::C,
    };
    let x = probe(c.cols());
    let got = got.times(Op::N, &x);
    let (right, moved) = match facts.letter("side") {
        b'R' => {
            let qx = reflectors.times(op, x);
            (c.times(Op::N, &qx), qx)
        }
        _ => (reflectors.times(op, c.times(Op::N, &x)), x),
    };
    // A reflector may gather a column's length in one element.
    let scale = c.norm(Op::N) * (c.rows().min(c.cols()) as f64).sqrt();
    Some(product(facts, &got, &right, scale, &moved))
}

/// op(A) X = B, or the residual orthogonal to op(A)'s columns where there are more rows.
fn least_squares(
    facts: &Facts<'_>,
    a: &Dense<'_>,
    before: &State<'_>,
    after: &State<'_>,
) -> Option<Figure> {
    let (b, x) = (before.matrix("b")?, after.matrix("b")?);
    let (op, back) = match facts.op() {
        Op::N => (Op::N, Op::C),
        // The transpose of a real matrix is its conjugate transpose; gels takes no other of a complex one.
        _ => (Op::C, Op::N),
    };
    let (rows, cols) = match op {
        Op::N => (a.rows(), a.cols()),
        _ => (a.cols(), a.rows()),
    };
    let y = probe(x.cols());
    let (b, x) = (b.leading(rows, b.cols()), x.leading(cols, x.cols()));
    let (by, xy) = (b.times(Op::N, &y), x.times(Op::N, &y));
    let error = less(&a.times(op, &xy), &by);
    let size = a.norm(op) * norm(&xy) + norm(&by);
    if rows <= cols {
        return Some(("residual", facts.ratio(&error, size)));
    }
    let across = a.times(back, &error);
    Some(("residual", facts.ratio(&across, a.norm(back) * size)))
}

/// Values, as many of them as the routine says there are.
fn found(after: &State<'_>, name: &str) -> Vec<Number> {
    let values = after.numbers(name);
    let Some(count) = after.integers("m").first().copied() else {
        return values;
    };
    // A count that cannot be shows as one that differs.
    let found = usize::try_from(count)
        .ok()
        .and_then(|count| values.get(..count));
    found.map_or_else(Vec::new, <[Number]>::to_vec)
}

/// The vectors of a symmetric problem, one for each value found.
fn eigenvectors<'a>(facts: &Facts<'_>, after: &State<'a>, found: usize) -> Option<Dense<'a>> {
    let z = after.matrix("z").or_else(|| after.matrix("a"))?;
    (facts.letter("jobz") == b'V').then(|| z.leading(z.rows(), found))
}

/// A z = w B z, A B z = w z or B A z = w z.
fn generalised(facts: &Facts<'_>, before: &State<'_>, after: &State<'_>) -> Option<Vec<Figure>> {
    let a = before.matrix("a")?.part(facts.mirrored());
    let b = before.matrix("b")?.part(facts.mirrored());
    let factor = Squared::of(after, facts, "b", false)?;
    let x = probe(b.cols());
    let (got, right) = (factor.times(&x), b.times(Op::N, &x));
    let (_, factors) = product(facts, &got, &right, b.norm(Op::N), &x);
    let mut figures = vec![("factors", factors)];
    let w = found(after, "w");
    let Some(z) = eigenvectors(facts, after, w.len()) else {
        return Some(figures);
    };
    let y = probe(z.cols());
    let wy: Vec<Number> = w.iter().zip(&y).map(|(w, y)| w * y).collect();
    let (zy, zwy) = (z.times(Op::N, &y), z.times(Op::N, &wy));
    let n = |x: &[Number]| x.to_vec();
    let (left, right) = match facts.options.int("itype") {
        Some(2) => (a.times(Op::N, &b.times(Op::N, &zy)), n(&zwy)),
        Some(3) => (b.times(Op::N, &a.times(Op::N, &zy)), n(&zwy)),
        _ => (a.times(Op::N, &zy), b.times(Op::N, &zwy)),
    };
    // As LAPACK's dsgt01 scales it: by |A| |Z|, and by |B| where A B is the operator.
    let of_b = match facts.options.int("itype") {
        Some(2 | 3) => b.norm(Op::N),
        _ => 1.0,
    };
    let scale = a.norm(Op::N) * of_b * z.norm(Op::N) * norm(&y);
    figures.push(("residual", facts.ratio(&less(&left, &right), scale)));
    Some(figures)
}

/// U S V^H against A, and both sides' orthogonality, as far as the options ask for them.
fn singular(facts: &Facts<'_>, a: &Dense<'_>, after: &State<'_>) -> Vec<Figure> {
    let (rows, cols) = (a.rows(), a.cols());
    let least = rows.min(cols);
    let in_a = after.matrix("a");
    let (job_u, job_vt) = match facts.name {
        "gesvd" => (facts.letter("jobu"), facts.letter("jobvt")),
        // O: the smaller side's vectors lie in a, and all of the other's in their own matrix.
        _ => match (facts.letter("jobz"), rows >= cols) {
            (b'O', true) => (b'O', b'A'),
            (b'O', false) => (b'A', b'O'),
            (job, _) => (job, job),
        },
    };
    let u = match job_u {
        b'O' => in_a.map(|a| a.leading(rows, least)),
        b'N' => None,
        _ => after.matrix("u"),
    };
    let vt = match job_vt {
        b'O' => in_a.map(|a| a.leading(least, cols)),
        b'N' => None,
        _ => after.matrix("vt"),
    };
    let mut figures = Vec::new();
    if let (Some(u), Some(vt)) = (&u, &vt) {
        let x = probe(cols);
        let s = after.numbers("s");
        let vx = vt.leading(least, cols).times(Op::N, &x);
        let svx: Vec<Number> = s.iter().zip(&vx).map(|(s, x)| s * x).collect();
        let got = u.leading(rows, least).times(Op::N, &svx);
        figures.push(product(facts, &got, &a.times(Op::N, &x), a.norm(Op::N), &x));
    }
    figures.extend(u.map(|u| facts.orthogonality(&u, Op::N)));
    figures.extend(vt.map(|vt| facts.orthogonality(&vt, Op::T)));
    figures
}

/// A V = V W, and the sum of the eigenvalues.
fn general(facts: &Facts<'_>, a: &Dense<'_>, after: &State<'_>) -> Option<Vec<Figure>> {
    let w = match after.has("w") {
        true => after.numbers("w"),
        false => {
            let (re, im) = (after.numbers("wr"), after.numbers("wi"));
            re.iter()
                .zip(&im)
                .map(|(re, im)| Number::new(re.re, im.re))
                .collect()
        }
    };
    let sum: Number = w.iter().sum();
    let error = sum - a.trace();
    let mut figures = vec![(
        "sum of values",
        facts.ratio(&[error], a.norm(Op::N) * (w.len() as f64).sqrt()),
    )];
    let real = !after.has("w");
    if facts.letter("jobvr") == b'V' {
        figures.push(vectors(facts, a, Op::N, &after.matrix("vr")?, &w, real));
    }
    if facts.letter("jobvl") == b'V' {
        let w: Vec<Number> = w.iter().map(Number::conj).collect();
        let (_, ratio) = vectors(facts, a, Op::C, &after.matrix("vl")?, &w, real);
        figures.push(("left residual", ratio));
    }
    Some(figures)
}

/// op(A) V against V W.
fn vectors(
    facts: &Facts<'_>,
    a: &Dense<'_>,
    op: Op,
    v: &Dense<'_>,
    w: &[Number],
    real: bool,
) -> Figure {
    let y = probe(v.cols());
    let mut wy: Vec<Number> = w.iter().zip(&y).map(|(w, y)| w * y).collect();
    let mut j = 0;
    // Columns j and j + 1 hold the parts of a conjugate pair's vectors: A (u, v) = (u, v) (re im; -im re).
    while real && j + 1 < w.len() {
        if w[j].im == 0.0 {
            j += 1;
            continue;
        }
        let (re, im) = (w[j].re, w[j].im);
        (wy[j], wy[j + 1]) = (y[j] * re + y[j + 1] * im, y[j + 1] * re - y[j] * im);
        j += 2;
    }
    let (got, right) = (a.times(op, &v.times(Op::N, &y)), v.times(Op::N, &wy));
    product(facts, &got, &right, a.norm(op) * v.norm(Op::N), &y)
}

/// Values that both sides give: the largest difference over the largest value, of a part of a spectrum over |A|. Sides
/// that find another number of them, or another rank, have nothing in common, but for values at the ends of an interval.
pub fn values(
    facts: &Facts<'_>,
    before: &State<'_>,
    gpu: &State<'_>,
    cpu: &State<'_>,
) -> Option<Figure> {
    let range = facts.letter("range");
    let name = match facts.name {
        "syev" | "syevd" | "syevr" | "syevx" => "w",
        "gesdd" | "gesvd" | "gelsd" | "gelss" => "s",
        // How far values may be apart depends on the condition of B; how many there are does not.
        "sygvx" if range != b'V' && gpu.integers("m") != cpu.integers("m") => {
            return Some(("values", f64::MAX));
        }
        _ => return None,
    };
    if gpu.integers("rank") != cpu.integers("rank") {
        return Some(("values", f64::MAX));
    }
    let (gpu, cpu) = (found(gpu, name), found(cpu, name));
    let mut scale = cpu.iter().map(|x| size(*x)).fold(0.0, largest);
    if matches!(range, b'V' | b'I') {
        // A small one has the error of all of them.
        let a = before.matrix("a")?.part(facts.mirrored());
        scale = largest(scale, a.norm(Op::N));
    }
    let ends = match (range, facts.options.real("vl"), facts.options.real("vu")) {
        (b'V', Some(low), Some(high)) => Some((low, high)),
        _ => None,
    };
    let most = apart(&gpu, &cpu, ends);
    let n = facts.counts.m.max(facts.counts.n).max(1) as f64;
    Some(("values", ratio(most, scale * n.sqrt() * facts.eps)))
}

/// The largest difference of ascending values; infinity if one side has more of them. Of those in an interval one side
/// may have found what the other holds to be just outside: then also the distance of what is left over from its end.
pub fn apart(x: &[Number], y: &[Number], ends: Option<(f64, f64)>) -> f64 {
    let most = |x: &mut dyn Iterator<Item = f64>| x.fold(0.0, largest);
    let (long, short) = if x.len() < y.len() { (y, x) } else { (x, y) };
    let more = long.len() - short.len();
    let (low, high) = match (more, ends) {
        (0, _) => (0.0, 0.0),
        (_, Some(ends)) => ends,
        (_, None) => return f64::INFINITY,
    };
    let with_first = |first: usize| {
        let (below, rest) = long.split_at(first);
        let (inside, above) = rest.split_at(short.len());
        let pairs = &mut inside.iter().zip(short).map(|(x, y)| size(x - y));
        let below = &mut below.iter().map(|x| size(x - low));
        let above = &mut above.iter().map(|x| size(x - high));
        largest(largest(most(pairs), most(below)), most(above))
    };
    (0..=more).map(with_first).fold(f64::INFINITY, |least, x| {
        // NaN is no match.
        if x < least { x } else { least }
    })
}
