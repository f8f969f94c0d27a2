//! The one path that every product takes: the checks that cuBLAS makes when it is called, and those of
//! device memory when the work's turn comes. It knows operands and scalars, not what is computed.

use super::{BAD_VALUE, NOT_SUPPORTED, gate, with};
use crate::arena::POISON;
use crate::delay::Load;
use crate::driver::{find_stream, queued};
use crate::state::{self, State};
use crate::stream::Task;
use core::ffi::c_void;
use core::ops::Range;

/// The four element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    S,
    D,
    C,
    Z,
}

impl Precision {
    pub fn elem_bytes(self) -> u64 {
        match self {
            Self::S => 4,
            Self::D | Self::C => 8,
            Self::Z => 16,
        }
    }

    pub fn is_real(self) -> bool {
        matches!(self, Self::S | Self::D)
    }

    /// The type of a complex number's parts.
    pub fn part(self) -> Self {
        match self {
            Self::S | Self::C => Self::S,
            Self::D | Self::Z => Self::D,
        }
    }
}

/// Which elements of an operand are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Full,
    /// One triangle; without its diagonal if that is `unit`.
    Triangle {
        upper: bool,
        unit: bool,
    },
}

/// A matrix on the device.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub name: &'static str,
    pub address: u64,
    pub rows: i64,
    pub cols: i64,
    pub ld: i64,
    pub area: Area,
}

impl Operand {
    /// First and last element that are touched, counted from the address, the last exclusive.
    pub fn elems(&self) -> (i64, i64) {
        let (first, end) = match self.area {
            Area::Full => (0, (self.cols - 1) * self.ld + self.rows),
            Area::Triangle { unit, .. } if unit && self.cols < 2 => (0, 0),
            // Strictly upper: from (0, 1) to (n - 2, n - 1).
            Area::Triangle { upper, unit: true } if upper => {
                (self.ld, (self.cols - 1) * self.ld + self.rows - 1)
            }
            // Strictly lower: from (1, 0) to (n - 1, n - 2).
            Area::Triangle { unit: true, .. } => (1, (self.cols - 2) * self.ld + self.rows),
            Area::Triangle { .. } => (0, (self.cols - 1) * self.ld + self.rows),
        };
        if self.rows == 0 || self.cols == 0 {
            (0, 0)
        } else {
            (first, end)
        }
    }

    /// True if the two share an element. Triangles are not looked at: two may share a square.
    pub fn overlaps(&self, other: &Self, elem_bytes: u64) -> bool {
        let (low, high) = if self.address <= other.address {
            (self, other)
        } else {
            (other, self)
        };
        let distance = ((high.address - low.address) / elem_bytes) as i64;
        let is_empty = |x: &Self| x.rows == 0 || x.cols == 0;
        if self.area != Area::Full || other.area != Area::Full || is_empty(self) || is_empty(other)
        {
            return false;
        }
        if distance >= low.elems().1 {
            return false;
        }
        if low.ld != high.ld {
            return true;
        }
        // Columns of one matrix: high begins `down` rows below and `right` columns beside low's corner.
        let (right, down) = (distance / low.ld, distance % low.ld);
        let beside = down < low.rows && right < low.cols;
        let around = down + high.rows > low.ld && right + 1 < low.cols;
        beside || around
    }

    fn check(&self) -> Result<(), u32> {
        if self.rows < 0 || self.cols < 0 || self.ld < self.rows.max(1) {
            return Err(BAD_VALUE);
        }
        Ok(())
    }

    /// Rows of column `j` that are touched.
    fn rows_of(&self, j: i64) -> Range<i64> {
        match self.area {
            Area::Full => 0..self.rows,
            Area::Triangle { upper, unit } if upper => 0..j + i64::from(!unit),
            Area::Triangle { unit, .. } => j + i64::from(unit)..self.rows,
        }
    }

    /// Makes every element NaN.
    ///
    /// # Safety
    /// `at` is where `resolve` found the operand, still live.
    pub unsafe fn poison(&self, at: usize, elem_bytes: u64) {
        for j in 0..self.cols {
            let rows = self.rows_of(j);
            let first = (j * self.ld + rows.start) as usize * elem_bytes as usize;
            let bytes = (rows.end - rows.start).max(0) as usize * elem_bytes as usize;
            let column = core::ptr::with_exposed_provenance_mut::<u8>(at.wrapping_add(first));
            // SAFETY: the caller's promise; only elements that the operand has are written.
            unsafe { column.write_bytes(POISON, bytes) };
        }
    }

    /// Where the simulation finds it; it must lie in one live allocation as far as it is touched.
    pub fn resolve(&self, state: &State, elem_bytes: u64, function: &str) -> Result<usize, String> {
        let name = self.name;
        if !self.address.is_multiple_of(elem_bytes) {
            return Err(format!("{function} met {name} at a misaligned address"));
        }
        let (first, end) = self.elems();
        if first >= end {
            return Ok(self.address as usize);
        }
        let (skipped, bytes) = (first as u64 * elem_bytes, (end - first) as u64 * elem_bytes);
        let found = state.arena.resolve(self.address + skipped, bytes);
        let found = found.ok_or_else(|| format!("{function} met {name} outside of live memory"))?;
        // What is not touched may lie outside the allocation: an address, never followed.
        Ok(found.expose_provenance().wrapping_sub(skipped as usize))
    }
}

/// alpha or beta: where it is, and the type it has.
#[derive(Clone, Copy)]
pub struct Factor {
    pub from: *const c_void,
    pub precision: Precision,
}

/// A factor's bytes, aligned for every type.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub struct Value(pub [u8; 16]);

impl Value {
    /// # Safety
    /// `from` may be read for `bytes` (at most 16) bytes.
    unsafe fn read(from: *const u8, bytes: u64) -> Self {
        let mut value = Self([0; 16]);
        // SAFETY: the caller's promise; the target has 16 bytes.
        unsafe { core::ptr::copy_nonoverlapping(from, value.0.as_mut_ptr(), bytes as usize) };
        value
    }

    fn as_ptr(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    /// Zero in the given precision; -0 is zero too.
    pub fn is_zero(&self, precision: Precision) -> bool {
        let is_zero = |part: &[u8]| {
            part[..part.len() - 1].iter().all(|&b| b == 0) && part[part.len() - 1] & 0x7f == 0
        };
        let part_bytes = precision.part().elem_bytes() as usize;
        self.0[..precision.elem_bytes() as usize]
            .chunks(part_bytes)
            .all(is_zero)
    }
}

/// What the mathematics gets: operands in their order, factors in theirs.
pub struct Found {
    at: [usize; 3],
    pub values: [Value; 2],
}

impl Found {
    /// The operands; one that the call does not have is null.
    pub fn operands(&self) -> [*mut c_void; 3] {
        self.at.map(core::ptr::with_exposed_provenance_mut)
    }

    /// The factors; one that the call does not have is zero.
    pub fn factors(&self) -> [*const c_void; 2] {
        [self.values[0].as_ptr(), self.values[1].as_ptr()]
    }
}

/// One product, decoded.
pub struct Job {
    pub precision: Precision,
    /// alpha, then beta where there is one.
    pub factors: Vec<Factor>,
    /// In the order of the call; the last is the result.
    pub operands: Vec<Operand>,
    /// The result may be one of the others, exactly.
    pub in_place: bool,
    /// The old result is never read.
    pub overwrites: bool,
    /// There is nothing to compute.
    pub empty: bool,
    /// Sizes that only have to be valid numbers.
    pub sizes: Vec<i64>,
    pub compute: Box<dyn FnOnce(&Found) + Send>,
}

/// Runs a call of cuBLAS: gate, decoding, checks, and the work into the handle's stream.
pub fn submit(
    function: &'static str,
    handle: usize,
    decode: impl FnOnce() -> Result<Job, u32>,
) -> Result<(), u32> {
    let mut pass = gate(function, handle)?;
    let blas = with(&mut pass, handle)?;
    let (stream, workspace, on_device) = (blas.stream, blas.workspace, blas.device_pointers);
    let job = decode().and_then(|job| check(&job, on_device).map(|()| job));
    let job = job.inspect_err(|code| {
        let nth = pass.nth;
        let what = format!("{function} call {nth}: arguments that it refuses ({code})");
        pass.state.complain(what);
    })?;
    if job.empty {
        return Ok(());
    }
    // OpenBLAS's integers have 32 bits.
    let lds = job.operands.iter().map(|operand| operand.ld);
    if lds
        .chain(job.sizes.iter().copied())
        .any(|x| i32::try_from(x).is_err())
    {
        return Err(NOT_SUPPORTED);
    }
    let elem_bytes = job.precision.elem_bytes();
    let factors = factors(&job.factors, on_device);
    let (operands, compute) = (job.operands, job.compute);
    let result = operands[operands.len() - 1];
    let inputs = &operands[..operands.len() - 1];
    let is_input = inputs.iter().any(|input| input.address == result.address);
    let unread =
        (job.overwrites && !is_input) || (!job.overwrites && is_unread(&job.factors, &factors));
    let work = move || -> Result<(), String> {
        let found = {
            let state = state::lock();
            if workspace.1 > 0 && state.arena.resolve(workspace.0, workspace.1).is_none() {
                return Err(format!("{function} met a workspace outside of live memory"));
            }
            let mut found = Found {
                at: [0; 3],
                values: [Value([0; 16]); 2],
            };
            for (value, factor) in found.values.iter_mut().zip(&factors) {
                *value = factor.value(&state, function)?;
            }
            for (at, operand) in found.at.iter_mut().zip(&operands) {
                *at = operand.resolve(&state, elem_bytes, function)?;
            }
            found
        };
        compute(&found);
        Ok(())
    };
    let begin = move || {
        if unread && let Ok(at) = result.resolve(&state::lock(), elem_bytes, function) {
            // SAFETY: just found in live device memory.
            unsafe { result.poison(at, elem_bytes) };
        }
    };
    let stream = find_stream(&mut pass, stream).map_err(|_| NOT_SUPPORTED)?;
    let task = Task::Split(Load::Kernel, Box::new(begin), Box::new(work));
    stream.push(queued(pass.fault, task));
    Ok(())
}

fn check(job: &Job, on_device: bool) -> Result<(), u32> {
    if job.sizes.iter().any(|&size| size < 0) {
        return Err(BAD_VALUE);
    }
    job.operands.iter().try_for_each(Operand::check)?;
    let (result, inputs) = job.operands.split_last().ok_or(BAD_VALUE)?;
    for input in inputs {
        let same = job.in_place && input.address == result.address && input.ld == result.ld;
        if !same && input.overlaps(result, job.precision.elem_bytes()) {
            return Err(BAD_VALUE);
        }
    }
    for factor in &job.factors {
        // cuBLAS 13.1 loads host scalars with aligned instructions and crashes on any other address.
        let aligned = (factor.from.addr() as u64).is_multiple_of(factor.precision.elem_bytes());
        if factor.from.is_null() || !(on_device || aligned) {
            return Err(BAD_VALUE);
        }
    }
    Ok(())
}

/// True if beta is known to be 0: the old result is nothing from the work's turn on.
fn is_unread(factors: &[Factor], values: &[Source]) -> bool {
    match (factors.get(1), values.get(1)) {
        (Some(beta), Some(Source::Known(value))) => value.is_zero(beta.precision),
        _ => false,
    }
}

/// A factor that is known, or where it will be read when the work runs.
enum Source {
    Known(Value),
    Device(u64, u64),
}

fn factors(factors: &[Factor], on_device: bool) -> Vec<Source> {
    let source = |factor: &Factor| {
        let bytes = factor.precision.elem_bytes();
        if on_device {
            return Source::Device(factor.from.addr() as u64, bytes);
        }
        // SAFETY: host pointer mode: the caller's scalar of this type, read during the call.
        Source::Known(unsafe { Value::read(factor.from.cast(), bytes) })
    };
    factors.iter().map(source).collect()
}

impl Source {
    fn value(&self, state: &State, function: &str) -> Result<Value, String> {
        match *self {
            Self::Known(value) => Ok(value),
            Self::Device(address, bytes) => {
                let at = state.arena.resolve(address, bytes);
                let at =
                    at.ok_or_else(|| format!("{function} met a scalar outside of live memory"))?;
                // SAFETY: live device memory of `bytes` bytes, just found under the lock.
                Ok(unsafe { Value::read(at, bytes) })
            }
        }
    }
}
