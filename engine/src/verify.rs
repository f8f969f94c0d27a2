//! Mode verify: each heavy call on both sides, the GPU's on a copy; the program has the CPU's result, and the log
//! says how far either was from right.
//!
//! What is right is judged by residuals and orthogonality in units of rounding errors (`measures`, `level3`), since
//! eigenvectors and pivots may differ between two right results. Must not decide where a call goes.

mod dense;
mod level3;
mod measures;
#[cfg(test)]
mod tests;

pub use measures::ACCEPTED;

use call::{
    Call, LapackCall, Level3Call, MAX_MATRICES, MAX_VECTORS, MatMut, MatRef, Matrix, Vector,
    VectorKind,
};
use dense::{Dense, Number, numbers};
use measures::{Facts, Figure};
use routines::{Arg, Diag, Family, Options, Part, Precision, Uplo, family};
use serde::Serialize;

/// Elements of room between the columns of a copy, as far as the original has as much.
const GAP: usize = 8;

/// What a copy's memory holds where nothing of the call is.
const OUTSIDE: u8 = 0xa5;

/// Sizes of a call.
#[derive(Clone, Copy)]
pub struct Counts {
    m: usize,
    n: usize,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// What it is of: "residual", "orthogonality", "values", "elements"…
    pub name: &'static str,
    /// The GPU's ratio.
    pub gpu: f64,
    /// The CPU's; absent where the figure is the sides' difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

/// A problem may be a hard one: a ratio is wrong if it is also this many times the CPU's.
const WORSE: f64 = 10.0;

/// Whether a figure of both sides is more than rounding explains.
pub fn is_wrong(gpu: f64, cpu: Option<f64>) -> bool {
    gpu > ACCEPTED && cpu.is_none_or(|cpu| gpu > WORSE * cpu)
}

impl Measure {
    /// As [`is_wrong`].
    pub fn is_wrong(&self) -> bool {
        is_wrong(self.gpu, self.cpu)
    }
}

/// What was found of one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Ratios: right ones are below [`ACCEPTED`], or near the CPU's where the problem is a hard one.
    Measures(Vec<Measure>),
    /// Nothing could be compared, and why.
    Skipped(String),
}

/// One operand that is written: what it held, and the device's own copy.
struct Copy {
    before: Option<Vec<u8>>,
    device: Vec<u8>,
    rows: usize,
    cols: usize,
    ld: usize,
    elem_bytes: usize,
}

impl Copy {
    /// `None` without memory for it. The first `columns` are surely the caller's.
    fn of(view: MatRef<'_>, columns: usize, is_read: bool) -> Option<Self> {
        let (rows, cols, elem_bytes) = (view.rows(), view.cols(), view.elem_bytes());
        let ld = view.ld().min(rows + GAP);
        let bytes = ld.checked_mul(cols)?.checked_mul(elem_bytes)?;
        let mut device = Vec::new();
        device.try_reserve_exact(bytes).ok()?;
        device.resize(bytes, OUTSIDE);
        for (j, to) in device.chunks_mut(ld * elem_bytes).enumerate().take(columns) {
            // Also what is only written: a routine may leave some of it.
            to[..rows * elem_bytes].copy_from_slice(view.column_piece(j, 0, rows));
        }
        let mut before = None;
        if is_read {
            let mut kept = Vec::new();
            kept.try_reserve_exact(bytes).ok()?;
            kept.extend_from_slice(&device);
            before = Some(kept);
        }
        Some(Self {
            before,
            device,
            rows,
            cols,
            ld,
            elem_bytes,
        })
    }

    fn device(&mut self) -> Option<MatMut<'_>> {
        let Self {
            rows,
            cols,
            ld,
            elem_bytes,
            ..
        } = *self;
        MatMut::of_bytes(&mut self.device, (rows, cols), ld, elem_bytes)
    }

    fn view<'a>(&self, bytes: &'a [u8]) -> Option<MatRef<'a>> {
        MatRef::of_bytes(bytes, (self.rows, self.cols), self.ld, self.elem_bytes)
    }

    /// The other triangle than `uplo` is as in the caller's memory, with `unit` also the diagonal.
    fn other_triangle_is_kept(&self, uplo: Uplo, unit: bool, callers: MatRef<'_>) -> bool {
        let Some(view) = self.view(&self.device) else {
            return false;
        };
        (0..self.cols).all(|j| {
            let (first, end) = match uplo {
                Uplo::U => ((j + usize::from(!unit)).min(self.rows), self.rows),
                Uplo::L => (0, (j + usize::from(unit)).min(self.rows)),
            };
            let piece = |of: MatRef<'_>| of.column_piece(j, first, end - first).to_vec();
            piece(view) == piece(callers)
        })
    }

    /// Nothing between the columns was written.
    fn is_whole(&self) -> bool {
        let used = self.rows * self.elem_bytes;
        let columns = self.device.chunks(self.ld * self.elem_bytes);
        columns
            .flat_map(|column| &column[used..])
            .all(|byte| *byte == OUTSIDE)
    }
}

/// Copies of what a call writes.
pub struct Copies {
    matrices: [Option<Copy>; MAX_MATRICES],
    vectors: [Option<Copy>; MAX_VECTORS],
}

/// The place of a level-3 result among the matrices.
const RESULT: usize = 2;

/// `in_an_interval`: of a matrix that is only written, a caller may have only as many columns as the routine will find
/// values.
fn copy(matrix: &Matrix<'_>, in_an_interval: bool) -> Option<Option<Copy>> {
    match matrix {
        Matrix::In(_) => Some(None),
        Matrix::InOut(view) => Copy::of(view.as_ref(), view.cols(), true).map(Some),
        Matrix::Out(view) => {
            let columns = if in_an_interval { 0 } else { view.cols() };
            Copy::of(view.as_ref(), columns, false).map(Some)
        }
    }
}

/// The operand that the device gets: the caller's where it is only read.
fn twin<'a>(matrix: &Matrix<'a>, copy: Option<&'a mut Copy>) -> Option<Matrix<'a>> {
    Some(match (matrix, copy) {
        (Matrix::In(view), _) => Matrix::In(*view),
        (Matrix::InOut(_), copy) => Matrix::InOut(copy?.device()?),
        (Matrix::Out(_), copy) => Matrix::Out(copy?.device()?),
    })
}

impl Copies {
    /// `None` without memory for them.
    pub fn of(call: &Call<'_>) -> Option<Self> {
        let mut copies = Self {
            matrices: [const { None }; MAX_MATRICES],
            vectors: [const { None }; MAX_VECTORS],
        };
        match call {
            Call::Level3(call) => {
                let result = Copy::of(call.c.as_ref(), call.n, call.reads_result())?;
                copies.matrices[RESULT] = Some(result);
            }
            Call::Lapack(call) => {
                let interval = call.letter("range") == Some(b'V');
                for (to, from) in copies.matrices.iter_mut().zip(&call.matrices) {
                    *to = from.as_ref().map_or(Some(None), |m| copy(m, interval))?;
                }
                for (to, from) in copies.vectors.iter_mut().zip(&call.vectors) {
                    *to = from.as_ref().map_or(Some(None), |v| copy(&v.data, false))?;
                }
            }
        }
        Some(copies)
    }

    /// The same call on the copies.
    pub fn twin<'a>(&'a mut self, call: &Call<'a>) -> Option<Call<'a>> {
        Some(match call {
            Call::Level3(call) => Call::Level3(Level3Call {
                c: self.matrices[RESULT].as_mut()?.device()?,
                ..*call
            }),
            Call::Lapack(call) => {
                let sizes = (call.m, call.n, call.k);
                let mut new = LapackCall::new(call.op, call.precision, call.letters, sizes);
                new.scalars = call.scalars;
                for (i, copy) in self.matrices.iter_mut().enumerate() {
                    if let Some(matrix) = &call.matrices[i] {
                        new.matrices[i] = Some(twin(matrix, copy.as_mut())?);
                    }
                }
                for (i, copy) in self.vectors.iter_mut().enumerate() {
                    if let Some(Vector { kind, data }) = &call.vectors[i] {
                        let data = twin(data, copy.as_mut())?;
                        new.vectors[i] = Some(Vector { kind: *kind, data });
                    }
                }
                Call::Lapack(new)
            }
        })
    }

    /// Compares what the device left in the copies with what the CPU left in the caller's memory, which is `call`'s.
    pub fn compare(&self, call: &Call<'_>) -> Finding {
        let mut all = self.matrices.iter().chain(&self.vectors).flatten();
        let mut measures = Vec::new();
        let wrong = |name| Measure {
            name,
            gpu: f64::MAX,
            cpu: None,
        };
        if !all.all(Copy::is_whole) {
            measures.push(wrong("memory outside"));
        }
        if !self.other_triangles_are_kept(call) {
            measures.push(wrong("other triangle"));
        }
        let found = match call {
            Call::Level3(call) => self.level3(call),
            Call::Lapack(call) => self.lapack(call),
        };
        match found {
            Some(found) => {
                measures.extend(found);
                Finding::Measures(measures)
            }
            None => Finding::Skipped("nothing is known to compare the results by".to_owned()),
        }
    }

    /// Whatever triangle a routine does not name is the caller's.
    fn other_triangles_are_kept(&self, call: &Call<'_>) -> bool {
        let kept = |copy: &Option<Copy>, uplo, unit, callers| {
            copy.as_ref()
                .is_none_or(|copy| copy.other_triangle_is_kept(uplo, unit, callers))
        };
        match call {
            Call::Level3(call) => call
                .result_triangle()
                .is_none_or(|uplo| kept(&self.matrices[RESULT], uplo, false, call.c.as_ref())),
            Call::Lapack(call) => {
                let args = family(call.op).args_of(call.precision).iter();
                let triangles = args.filter_map(|arg| match arg {
                    Arg::Matrix { part, .. } => Some(*part == Part::Triangle),
                    _ => None,
                });
                let uplo = call.uplo().unwrap_or(Uplo::U);
                let unit = call.diag() == Some(Diag::U);
                triangles
                    .zip(call.matrices.iter().zip(&self.matrices))
                    .filter_map(|(triangle, (matrix, copy))| {
                        Some((triangle, matrix.as_ref()?, copy))
                    })
                    .all(|(triangle, matrix, copy)| {
                        !triangle || kept(copy, uplo, unit, matrix.as_ref())
                    })
            }
        }
    }

    fn level3(&self, call: &Level3Call<'_>) -> Option<Vec<Measure>> {
        let copy = self.matrices[RESULT].as_ref()?;
        let gpu = copy.view(&copy.device)?;
        let before = copy.before.as_ref().and_then(|bytes| copy.view(bytes));
        let (cpu, eps) = (call.c.as_ref(), eps(call.precision));
        Some(vec![match (call.op, before) {
            (routines::Op::Trsm, Some(before)) => Measure {
                name: "residual",
                gpu: level3::solution(call, before, gpu, eps),
                cpu: Some(level3::solution(call, before, cpu, eps)),
            },
            _ => Measure {
                name: "elements",
                gpu: level3::elements(call, before, gpu, cpu, eps),
                cpu: None,
            },
        }])
    }

    fn lapack(&self, call: &LapackCall<'_>) -> Option<Vec<Measure>> {
        let row = family(call.op);
        let facts = Facts {
            options: Options::new(row, call.precision, call.letters).with(call.scalars),
            name: call.op.name(),
            hermitian: call.precision.is_complex(),
            eps: eps(call.precision),
            counts: Counts {
                m: call.m,
                n: call.n,
            },
        };
        let own = State::of(row, call, self, |matrix, _| Some(matrix.as_ref()));
        let before = State::of(row, call, self, |matrix, copy| match matrix {
            Matrix::In(view) => Some(*view),
            _ => copy.and_then(|c| c.view(c.before.as_ref()?)),
        });
        let device = State::of(row, call, self, |matrix, copy| match matrix {
            Matrix::In(view) => Some(*view),
            _ => copy.and_then(|c| c.view(&c.device)),
        });
        let gpu = measures::lapack(&facts, &before, &device)?;
        let cpu = measures::lapack(&facts, &before, &own)?;
        let both = |((name, gpu), (_, cpu)): (Figure, Figure)| Measure {
            name,
            gpu,
            cpu: Some(cpu),
        };
        let apart = measures::values(&facts, &before, &device, &own);
        let apart = apart.map(|(name, gpu)| Measure {
            name,
            gpu,
            cpu: None,
        });
        Some(gpu.into_iter().zip(cpu).map(both).chain(apart).collect())
    }
}

fn eps(precision: Precision) -> f64 {
    match precision.real() {
        Precision::S => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    }
}

/// The operands of a LAPACK call at one time, by their names in the table.
pub struct State<'a> {
    precision: Precision,
    matrices: Vec<(&'static str, MatRef<'a>)>,
    vectors: Vec<(&'static str, VectorKind, MatRef<'a>)>,
}

impl<'a> State<'a> {
    /// Each operand's view as `choose` gives it, from the caller's and the copy.
    fn of(
        row: &'static Family,
        call: &'a LapackCall<'_>,
        copies: &'a Copies,
        choose: impl Fn(&'a Matrix<'_>, Option<&'a Copy>) -> Option<MatRef<'a>>,
    ) -> Self {
        let names = |of: fn(&Arg) -> bool| {
            let args = row.args_of(call.precision).iter();
            args.filter(move |arg| of(arg)).map(Arg::name)
        };
        let matrices = names(|arg| matches!(arg, Arg::Matrix { .. }))
            .zip(call.matrices.iter().zip(&copies.matrices))
            .filter_map(|(name, (matrix, copy))| {
                Some((name, choose(matrix.as_ref()?, copy.as_ref())?))
            })
            .collect();
        let vectors = names(|arg| matches!(arg, Arg::Vector { .. } | Arg::IntVector { .. }))
            .zip(call.vectors.iter().zip(&copies.vectors))
            .filter_map(|(name, (vector, copy))| {
                let vector = vector.as_ref()?;
                let view = choose(&vector.data, copy.as_ref())?;
                Some((name, vector.kind, view))
            })
            .collect();
        Self {
            precision: call.precision,
            matrices,
            vectors,
        }
    }

    /// A matrix that the call has.
    fn matrix(&self, name: &str) -> Option<Dense<'a>> {
        let (_, view) = self.matrices.iter().find(|(n, _)| *n == name)?;
        Some(Dense::new(*view, self.precision))
    }

    fn has(&self, name: &str) -> bool {
        self.vectors.iter().any(|(n, ..)| *n == name)
    }

    fn bytes(&self, name: &str) -> Option<(VectorKind, usize, &'a [u8])> {
        let (_, kind, view) = self.vectors.iter().find(|(n, ..)| *n == name)?;
        Some((
            *kind,
            view.elem_bytes(),
            view.column_piece(0, 0, view.rows()),
        ))
    }

    /// A vector of numbers; empty if the call has none of that name.
    fn numbers(&self, name: &str) -> Vec<Number> {
        self.bytes(name).map_or_else(Vec::new, |(kind, _, bytes)| {
            let precision = match kind {
                VectorKind::Same => self.precision,
                _ => self.precision.real(),
            };
            numbers(bytes, precision).collect()
        })
    }

    /// A vector of INTEGERs; empty if the call has none of that name.
    fn integers(&self, name: &str) -> Vec<i64> {
        self.bytes(name)
            .map_or_else(Vec::new, |(_, elem_bytes, bytes)| {
                let read = |bytes: &[u8]| match *bytes {
                    [a, b, c, d] => i64::from(i32::from_ne_bytes([a, b, c, d])),
                    [a, b, c, d, e, f, g, h] => i64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                    _ => 0,
                };
                bytes.chunks_exact(elem_bytes).map(read).collect()
            })
    }
}
