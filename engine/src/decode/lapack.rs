//! From the engine ABI's raw call of LAPACK to the safe one.
//!
//! Unsafe lives here because the operands are raw pointers; the shim's caller vouches for the memory, as with
//! every LAPACK, and nothing is believed beyond that.

use super::Decoded;
use call::{Call, Failure, LapackCall, MatMut, MatRef, Matrix, Vector, VectorKind};
use core::ffi::c_void;
use engine_abi::{MAX_MATRICES, MAX_VECTORS, RoutedLapack};
use routines::{
    Arg, Dims, Family, Intent, Library, Op, Options, Precision, Scalars, Shape, families,
};

/// The call in safe types; `None` for a family that the engine does not know, and for anything that is illegal
/// or a quick return (the shim should not have let it through; the CPU library then judges it). No view is made
/// of operands that overlap.
///
/// # Safety
/// The operands of `raw` are those of a LAPACK call in progress: readable, and writable where the routine
/// writes, for the sizes that its options and dimensions give them, and nobody else writes to them during `'a`.
pub unsafe fn decode_lapack<'a>(raw: &'a RoutedLapack) -> Option<Decoded<'a>> {
    let op = Op::from_code(raw.op)?;
    let family =
        families().find(|f| f.op == op && f.gate.is_some() && f.library == Library::Lapack)?;
    let precision = Precision::from_code(raw.precision)?;
    family.routine(precision)?;
    let scalars = Scalars {
        reals: raw.reals,
        ints: raw.ints,
    };
    let options = Options::new(family, precision, raw.letters).with(scalars);
    let dims = dims(raw, family, &options)?;
    if raw.info.is_null() || !matches!(raw.integer_bytes, 4 | 8) {
        return None;
    }

    let mut matrices: [Option<Operand>; MAX_MATRICES] = [None; MAX_MATRICES];
    let mut vectors: [Option<(Operand, VectorKind)>; MAX_VECTORS] = [None; MAX_VECTORS];
    let (mut matrix, mut vector) = (0, 0);
    for arg in family.args_of(precision) {
        match arg {
            Arg::Matrix { .. } => {
                let given = raw.matrices.get(matrix)?;
                if let Some(shape) = options.matrix(arg, &dims) {
                    let elem_bytes = precision.elem_bytes();
                    let ld = usize::try_from(given.ld).ok()?;
                    let intent = options.intent(arg)?;
                    matrices[matrix] =
                        Some(Operand::new(given.data, shape, ld, elem_bytes, intent)?);
                }
                matrix += 1;
            }
            Arg::Vector { .. } | Arg::IntVector { .. } => {
                let given = *raw.vectors.get(vector)?;
                if let Some(len) = options.vector(arg, &dims) {
                    let (kind, elem_bytes) = match arg {
                        Arg::IntVector { .. } => {
                            (VectorKind::Integer, usize::from(raw.integer_bytes))
                        }
                        Arg::Vector { real: true, .. } => {
                            (VectorKind::Real, precision.real().elem_bytes())
                        }
                        _ => (VectorKind::Same, precision.elem_bytes()),
                    };
                    let (ld, intent) = (usize::try_from(len).ok()?, options.intent(arg)?);
                    let operand = Operand::new(given, (len, 1), ld, elem_bytes, intent)?;
                    vectors[vector] = Some((operand, kind));
                }
                vector += 1;
            }
            _ => {}
        }
    }

    let shape = Shape::of_lapack(op, precision, &dims, raw.letters);
    let all = matrices
        .into_iter()
        .chain(vectors.into_iter().map(|v| v.map(|(operand, _)| operand)));
    if overlap(all.flatten()) {
        return Some(Decoded {
            shape,
            call: Err(Failure::Overlap),
        });
    }
    let size = |v: u64| usize::try_from(v).ok();
    let sizes = (size(dims.m)?, size(dims.n)?, size(dims.k)?);
    let mut call = LapackCall::new(op, precision, raw.letters, sizes);
    call.scalars = scalars;
    for (place, operand) in call.matrices.iter_mut().zip(matrices) {
        if let Some(operand) = operand {
            // SAFETY: the caller vouches for the memory, and no two operands share any.
            *place = Some(unsafe { operand.view() }?);
        }
    }
    for (place, operand) in call.vectors.iter_mut().zip(vectors) {
        if let Some((operand, kind)) = operand {
            // SAFETY: as above.
            let data = unsafe { operand.view() }?;
            *place = Some(Vector { kind, data });
        }
    }
    Some(Decoded {
        shape,
        call: Ok(Call::Lapack(call)),
    })
}

/// The sizes, if they are positive and agree with each other and with the letters.
fn dims(raw: &RoutedLapack, family: &Family, options: &Options<'_>) -> Option<Dims> {
    let size = |v: i64| u64::try_from(v).ok().filter(|v| *v > 0);
    let dims = Dims {
        m: size(raw.m)?,
        n: size(raw.n)?,
        k: size(raw.k)?,
        right: options.letter("side") == b'R',
    };
    // syevr has an output that is called m.
    let has = |name| family.args.contains(&Arg::Size { name });
    let agree = (has("m") || dims.m == dims.n) && (has("k") || has("nrhs") || dims.k == dims.n);
    (agree && options.are_routed() && options.agree(&dims)).then_some(dims)
}

/// One operand before a view is made of it.
#[derive(Clone, Copy)]
struct Operand {
    data: *mut u8,
    rows: usize,
    cols: usize,
    ld: usize,
    elem_bytes: usize,
    intent: Intent,
}

impl Operand {
    /// `None` for a null pointer and for a leading dimension below the number of rows.
    fn new(
        data: *mut c_void,
        (rows, cols): (u64, u64),
        ld: usize,
        elem_bytes: usize,
        intent: Intent,
    ) -> Option<Self> {
        let operand = Self {
            data: data.cast(),
            rows: usize::try_from(rows).ok()?,
            cols: usize::try_from(cols).ok()?,
            ld,
            elem_bytes,
            intent,
        };
        (!data.is_null() && ld >= operand.rows).then_some(operand)
    }

    /// Addresses from the first element to one past the last one; `None` beyond the address space.
    fn addresses(&self) -> Option<core::ops::Range<usize>> {
        let elems = self
            .ld
            .checked_mul(self.cols.checked_sub(1)?)?
            .checked_add(self.rows)?;
        let start = self.data.addr();
        Some(start..start.checked_add(elems.checked_mul(self.elem_bytes)?)?)
    }

    /// # Safety
    /// The memory is as the intent says for `'a`, and no other view of it is used.
    unsafe fn view<'a>(self) -> Option<Matrix<'a>> {
        let Self {
            data,
            rows,
            cols,
            ld,
            elem_bytes,
            intent,
        } = self;
        // SAFETY: forwarded; `new` checks the leading dimension and the span.
        unsafe {
            Some(match intent {
                Intent::In => Matrix::In(MatRef::new(data, rows, cols, ld, elem_bytes)?),
                Intent::Out => Matrix::Out(MatMut::new(data, rows, cols, ld, elem_bytes)?),
                Intent::InOut | Intent::Destroyed | Intent::Accumulated => {
                    Matrix::InOut(MatMut::new(data, rows, cols, ld, elem_bytes)?)
                }
            })
        }
    }
}

/// Whether two operands share memory, or one does not fit into it.
fn overlap(operands: impl Iterator<Item = Operand>) -> bool {
    let mut seen: [core::ops::Range<usize>; MAX_MATRICES + MAX_VECTORS] =
        [const { 0..0 }; MAX_MATRICES + MAX_VECTORS];
    for (count, operand) in operands.enumerate() {
        let Some(range) = operand.addresses() else {
            return true;
        };
        let shared =
            |other: &core::ops::Range<usize>| range.start < other.end && other.start < range.end;
        if seen[..count].iter().any(shared) {
            return true;
        }
        seen[count] = range;
    }
    false
}
