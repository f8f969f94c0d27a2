//! Runs a call of LAPACK: the program of `plan::lapack` with the caller's matrices, and the short vectors that
//! go with it.
//!
//! Success is info = 0 and nothing else. Whatever LAPACK would report, and whatever cuSOLVER does not treat as
//! LAPACK does (NaN, infinity, matrices that LAPACK scales), is a failure before anything that is read has been
//! written, and the CPU library does the call.
//!
//! Some of cuSOLVER's routines return only when they have run, so that no limit of a wait applies to them.

use crate::copy::infinity_bits;
use crate::device::{Device, Work};
use crate::driver::Reached;
use crate::execute::{
    self, Cutter, Running, Way, bytes_of, commit, fresh, has_zero_diagonal, in_place, internal,
    is_zero, owned, part_bytes, place,
};
use crate::kernel::{Arithmetic, DeviceKernel, OnDevice, environment_asks_otherwise};
use crate::overlap::overlaps;
use crate::plan::keeping::keeping_pays;
use crate::plan::lapack::{Elements, HostVector, Made, Plan, Role, Wanted, has_polar, plan};
use crate::plan::program::{Kernel, Operand, Program};
use crate::rank;
use crate::result::DeviceAddress;
use crate::scratch::Scratch;
use crate::solver::{Refused, Solver, Workspace, nowhere};
use crate::staging::job::{JobGuard, Look, Pieces};
use crate::testing;
use call::{
    Diag, Failure, LapackCall, Level3Call, MatMut, MatRef, Matrix, Op, Precision, Scalar, Side,
    Timing, Trans, Vector, VectorKind,
};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The operands that are matrices, by their number in the call.
const MATRICES: [Operand; 3] = [Operand::A, Operand::B, Operand::C];

/// Why an attempt gave no result.
enum Missed {
    /// For good.
    Failed(Failure),
    /// Xgesvdp does not vouch for its answer, or a rank that hangs on it: another routine may.
    Inaccurate,
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Missed::Failed(failure)
    }
}

/// Runs a call.
///
/// # Errors
/// Any [`Failure`], by the contract of `Backend::run`.
pub fn run(device: &Device, call: &mut LapackCall<'_>) -> Result<Timing, Failure> {
    if call.op == Op::Trtrs {
        return triangular_solve(device, call);
    }
    device.health.check()?;
    if environment_asks_otherwise(|name| std::env::var_os(name)) {
        return Err(Failure::Unsupported(
            "cuSOLVER while a variable asks for other arithmetic",
        ));
    }
    check(call)?;
    let sizes = testing::sizes();
    let start = Instant::now();
    let mut polar = has_polar(call, &sizes);
    loop {
        let plan = plan(call, &sizes, polar)?;
        match attempt(device, call, &plan, start) {
            Ok(timing) => {
                let counts = device.counts.of(call.op);
                counts.calls.fetch_add(1, Ordering::Relaxed);
                return Ok(timing);
            }
            Err(Missed::Inaccurate) if polar => polar = false,
            Err(Missed::Inaccurate) => return Err(internal("an estimate that nobody asked for")),
            Err(Missed::Failed(failure)) => return Err(failure),
        }
    }
}

/// trtrs: the triangular solve of BLAS, which looks for zeros on the diagonal of its own.
fn triangular_solve(device: &Device, call: &mut LapackCall<'_>) -> Result<Timing, Failure> {
    let options = (call.uplo(), call.trans(), call.diag());
    let (Some(uplo), Some(transa), Some(diag)) = options else {
        return Err(internal("a triangular system without its options"));
    };
    let [a, b, ..] = &mut call.matrices;
    let (Some(a), Some(Matrix::InOut(b))) = (a, b) else {
        return Err(internal("a triangular system without its operands"));
    };
    let mut solve = Level3Call {
        op: Op::Trsm,
        precision: call.precision,
        side: Side::L,
        uplo,
        transa,
        transb: Trans::N,
        diag,
        m: call.n,
        n: call.k,
        k: call.n,
        alpha: Scalar::ONE,
        beta: Scalar::ZERO,
        a: a.as_ref(),
        b: None,
        c: b.reborrow(),
    };
    execute::run_as(device, &mut solve, Op::Trtrs)
}

/// Refuses what the CPU library must do.
fn check(call: &LapackCall<'_>) -> Result<(), Failure> {
    let of_vectors = call.vectors.iter().flatten().map(|v| &v.data);
    let operands: Vec<&Matrix<'_>> = call.matrices.iter().flatten().chain(of_vectors).collect();
    for (i, x) in operands.iter().enumerate() {
        for y in &operands[i + 1..] {
            let written = [x, y].iter().any(|x| !matches!(x, Matrix::In(_)));
            if written && overlaps(&x.as_ref(), &y.as_ref()) {
                return Err(Failure::Overlap);
            }
        }
    }
    let factored = matches!(call.op, Op::Getrs | Op::Getri | Op::Potrs | Op::Potri)
        || call.op == Op::Trtri && call.diag() == Some(Diag::N);
    if factored
        && let Some(a) = &call.matrices[0]
        && has_zero_diagonal(&a.as_ref(), call.precision)
    {
        return Err(Failure::Unsupported("a zero on the diagonal"));
    }
    Ok(())
}

/// An upper bound of the call's floating-point operations, for the limits of waits: the SVD's.
fn flops(call: &LapackCall<'_>) -> f64 {
    let each = if call.precision.is_complex() {
        120.0
    } else {
        30.0
    };
    let (m, n, k) = (call.m as f64, call.n as f64, call.k as f64);
    each * m.max(n) * n.max(k) * m.min(n).max(k.min(n))
}

/// A short vector, aligned for every type.
struct Short {
    words: Vec<u64>,
    vector: HostVector,
    elem_bytes: usize,
}

impl Short {
    fn new(vector: HostVector, precision: Precision) -> Self {
        let elem_bytes = vector.elements.bytes(precision);
        Self {
            words: vec![0; (vector.len * elem_bytes).div_ceil(8)],
            vector,
            elem_bytes,
        }
    }

    fn view(&self) -> Option<MatRef<'_>> {
        let (len, data) = (self.vector.len, self.words.as_ptr().cast());
        // SAFETY: the words have room for the elements, are initialised and borrowed as long as the view.
        unsafe { MatRef::new(data, len, 1, len, self.elem_bytes) }
    }

    fn view_mut(&mut self) -> Option<MatMut<'_>> {
        let (len, data) = (self.vector.len, self.words.as_mut_ptr().cast());
        // SAFETY: as above.
        unsafe { MatMut::new(data, len, 1, len, self.elem_bytes) }
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        let view = self
            .view()
            .map(|view| view.column_piece(0, 0, self.vector.len));
        view.unwrap_or_default()
    }

    /// Element `i` as a signed number of the integer types.
    fn int(&self, i: usize) -> i64 {
        integer(&self.bytes()[i * self.elem_bytes..][..self.elem_bytes])
    }

    /// Element `i` as a real number; the real part of a complex one.
    fn real(&self, i: usize, part_bytes: usize) -> f64 {
        let bytes = &self.bytes()[i * self.elem_bytes..][..part_bytes];
        match bytes {
            [a, b, c, d] => f64::from(f32::from_ne_bytes([*a, *b, *c, *d])),
            bytes => bytes.try_into().map_or(f64::NAN, f64::from_ne_bytes),
        }
    }

    /// Takes the caller's vector.
    fn fill(&mut self, from: &Vector<'_>, order: usize) -> Result<(), Failure> {
        let data = from.data.as_ref();
        let len = self.vector.len;
        if data.rows() < len || data.cols() == 0 {
            return Err(internal("a short vector"));
        }
        let bytes = data.column_piece(0, 0, len);
        let pivots = self.vector.elements == Elements::Pivots;
        let mut to = self.words_mut();
        if !pivots {
            to.copy_from_slice(bytes);
            return Ok(());
        }
        for pivot in bytes.chunks_exact(data.elem_bytes()) {
            let pivot = integer(pivot);
            // cuSOLVER would follow it out of the matrix.
            if pivot < 1 || pivot > order as i64 {
                return Err(Failure::Unsupported("pivots that no factorisation gave"));
            }
            to[..8].copy_from_slice(&pivot.to_ne_bytes());
            to = &mut to[8..];
        }
        Ok(())
    }

    fn words_mut(&mut self) -> &mut [u8] {
        let bytes = self.vector.len * self.elem_bytes;
        let data = self.words.as_mut_ptr().cast();
        // SAFETY: the words have at least so many bytes, and any bytes are words.
        unsafe { core::slice::from_raw_parts_mut(data, bytes) }
    }
}

/// A signed number of 4 or 8 bytes; 0 for any other length.
fn integer(bytes: &[u8]) -> i64 {
    match bytes {
        [a, b, c, d] => i64::from(i32::from_ne_bytes([*a, *b, *c, *d])),
        bytes => bytes.try_into().map_or(0, i64::from_ne_bytes),
    }
}

/// One way to do the call.
fn attempt(
    device: &Device,
    call: &mut LapackCall<'_>,
    plan: &Plan,
    start: Instant,
) -> Result<Timing, Missed> {
    let limit = device.limit(flops(call));
    let mut shorts = Vec::new();
    for vector in &plan.vectors {
        let mut short = Short::new(*vector, call.precision);
        if let Role::In(number) = vector.role {
            let from = call.vectors[number].as_ref();
            short.fill(from.ok_or_else(|| internal("no such vector"))?, call.n)?;
        }
        if let Role::Made(_, Made::Supports) = vector.role {
            let pairs = [1, call.n as u64].into_iter().cycle();
            short.words.iter_mut().zip(pairs).for_each(|(w, x)| *w = x);
        }
        shorts.push(short);
    }
    let entered = device.enter()?;
    let (solver, mut work, workspace) = prepare(device, call, plan, limit)?;
    let mut scratches: [Option<Scratch>; 3] = [None, None, None];
    for (number, scratch) in scratches.iter_mut().enumerate() {
        let comes_back = plan
            .steps()
            .flat_map(|s| &s.downloads)
            .any(|d| d.to == MATRICES[number]);
        let room = match &call.matrices[number] {
            Some(Matrix::InOut(view)) if comes_back => view.packed_bytes(),
            Some(Matrix::Out(view)) if in_an_interval(plan) == Some(MATRICES[number]) => {
                view.packed_bytes()
            }
            _ => continue,
        };
        *scratch = Some(device.scratch.take(room)?);
    }
    let done = stream(
        device,
        call,
        plan,
        (solver, workspace),
        &mut work,
        (&mut scratches, &mut shorts),
        (start, limit),
    );
    let lost = device.health.check().is_err();
    drop(work);
    for scratch in scratches.into_iter().flatten().filter(|_| !lost) {
        device.scratch.put(scratch);
        device.pool.nudge();
    }
    drop(entered);
    done
}

/// cuSOLVER, a lane with its handle, and memory for buffers and workspace.
fn prepare<'d>(
    device: &'d Device,
    call: &LapackCall<'_>,
    plan: &Plan,
    limit: Duration,
) -> Result<(&'d Solver, Work<'d>, Workspace), Failure> {
    let solver = device.solver()?;
    let elem_bytes = call.precision.elem_bytes();
    let mut work = device.begin_lane(limit)?;
    let note = |e| device.health.note(&e);
    let lane = work.solver_lane(solver).map_err(note)?;
    let handle = lane.solver.as_mut().expect("made by `solver_lane`");
    let matrices = nowhere(&plan.program, elem_bytes);
    let mut size = Workspace::default();
    for kernel in plan.steps().flat_map(|s| &s.kernels) {
        let kernel = DeviceKernel {
            precision: call.precision,
            kernel,
            matrices: &matrices,
            pedantic: true,
        };
        let one = solver.workspace(handle, &kernel);
        let one = one.map_err(|refused| match refused {
            Refused::Error(e) => device.health.note(&e),
            Refused::Unsupported(what) => Failure::Unsupported(what),
        })?;
        size.device_bytes = size.device_bytes.max(one.device_bytes);
        size.host_bytes = size.host_bytes.max(one.host_bytes);
    }
    handle.reserve(size.host_bytes)?;
    let buffers = plan.program.bytes(elem_bytes);
    let needed_bytes = buffers
        .saturating_add(size.device_bytes as u64)
        .saturating_add(blas_bytes(device, plan));
    device.pool.check_back_off(needed_bytes)?;
    let tried = device.pool.counts().0;
    match work.take_block(needed_bytes) {
        Ok(()) => Ok((solver, work, size)),
        Err(failure) => {
            device.pool.note_refusal(&failure, needed_bytes, tried);
            Err(failure)
        }
    }
}

/// Device memory for cuBLAS, which comes first in the block, where the plan has kernels of its.
fn blas_bytes(device: &Device, plan: &Plan) -> u64 {
    let mut kernels = plan.steps().flat_map(|s| &s.kernels);
    match kernels.any(Kernel::is_of_blas) {
        true => device.workspace_bytes(),
        false => 0,
    }
}

/// What a call runs in: cuSOLVER, device memory by its addresses, and its limit.
struct Room<'d> {
    device: &'d Device,
    solver: &'d Solver,
    /// Of the solver, behind everything else.
    workspace: (DeviceAddress, Workspace),
    /// Of cuBLAS, before everything else.
    blas_bytes: u64,
    matrices: Vec<OnDevice>,
    /// How long nothing may happen.
    limit: Duration,
}

/// A program that has run, but for its commit.
struct Ran<'d> {
    guard: JobGuard<'d>,
    reached: Reached,
    bytes_in: u64,
    bytes_out: u64,
}

/// Runs the plan's programs, looks at the answers, commits.
fn stream<'d>(
    device: &'d Device,
    call: &mut LapackCall<'_>,
    plan: &Plan,
    (solver, workspace): (&'d Solver, Workspace),
    work: &mut Work<'d>,
    (scratches, shorts): (&mut [Option<Scratch>; 3], &mut [Short]),
    (start, limit): (Instant, Duration),
) -> Result<Timing, Missed> {
    let elem_bytes = call.precision.elem_bytes();
    let blas_bytes = blas_bytes(device, plan);
    let room = Room {
        device,
        solver,
        workspace: (
            work.address() + blas_bytes + plan.program.bytes(elem_bytes),
            workspace,
        ),
        blas_bytes,
        matrices: place(&plan.program, work.address() + blas_bytes, elem_bytes),
        limit,
    };
    let mut ran = run_program(&room, call, &plan.program, work, (scratches, shorts))?;
    let largest = (0..plan.program.unscaled_steps).map(|step| ran.guard.largest(step));
    if !largest
        .into_iter()
        .all(|bits| is_unscaled(bits, part_bytes(call.precision)))
    {
        return Err(Failure::Unsupported("a matrix that LAPACK scales").into());
    }
    judge(call, plan, shorts)?;
    let mut estimate = None;
    if let Some(values) = plan.estimated {
        let lane = work
            .solver_lane(solver)
            .map_err(|e| device.health.note(&e))?;
        let said = lane
            .solver
            .as_ref()
            .map_or(f64::NAN, |h| h.error_estimate());
        let largest = shorts[values].real(0, shorts[values].elem_bytes);
        if !is_accurate(said, largest, call) {
            return Err(Missed::Inaccurate);
        }
        estimate = Some(said);
    }
    if let Some(second) = &plan.second {
        count_rank(call, estimate, shorts)?;
        let first = ran;
        drop(first.guard);
        ran = run_program(&room, call, second, work, (scratches, shorts))?;
        ran.reached = first.reached.and(ran.reached);
        ran.bytes_in += first.bytes_in;
        ran.bytes_out += first.bytes_out;
        judge(call, plan, shorts)?;
    }
    let wanted = wanted(call, plan, shorts);
    let vectors = answers(call, shorts, wanted.as_ref())?;
    let mut copy_s = commit(ran.guard, work)?;
    for (number, bytes) in vectors {
        if let Some(Vector { data, .. }) = &mut call.vectors[number]
            && let Matrix::Out(view) | Matrix::InOut(view) = data
        {
            view.write_column_piece(0, 0, &bytes);
        }
    }
    if let Some(number) = MATRICES
        .iter()
        .position(|m| in_an_interval(plan) == Some(*m))
        && let (Some(Matrix::Out(z)), Some(scratch)) =
            (&mut call.matrices[number], &scratches[number])
        && let Some(all) = scratch.matrix(z.rows(), z.cols(), elem_bytes)
    {
        let begun = Instant::now();
        for (to, from) in wanted.into_iter().flatten().enumerate() {
            z.write_column_piece(to, 0, all.column_piece(from, 0, all.rows()));
        }
        copy_s += begun.elapsed().as_secs_f64();
    }
    let bytes = (ran.bytes_in, ran.bytes_out);
    Ok(ran.reached.timing(start, bytes, copy_s))
}

/// Uploads, computes, downloads what goes to memory of our own.
fn run_program<'d>(
    room: &Room<'d>,
    call: &mut LapackCall<'_>,
    program: &Program,
    work: &mut Work<'d>,
    (scratches, shorts): (&mut [Option<Scratch>; 3], &mut [Short]),
) -> Result<Ran<'d>, Failure> {
    let (precision, device) = (call.precision, room.device);
    let elem_bytes = precision.elem_bytes();
    let cutter = Cutter {
        device,
        program,
        matrices: &room.matrices,
        elem_bytes,
    };
    let (uploads, bytes_in) = cutter.uploads(|operand| match operand {
        Operand::Vector(number) => shorts[number].view(),
        matrix => {
            let number = MATRICES.iter().position(|m| *m == matrix)?;
            call.matrices[number].as_ref().map(Matrix::as_ref)
        }
    })?;
    let mut pieces = Pieces {
        uploads,
        ..Pieces::default()
    };
    let read = |operand| MATRICES.iter().position(|m| *m == operand);
    let read = |operand| read(operand).is_some_and(|number| scratches[number].is_some());
    let way = match testing::keeps(keeping_pays(program, precision, read)) {
        true => Way::Keep,
        false => Way::Scratch,
    };
    let mut bytes_out = 0;
    for (number, operand) in MATRICES.into_iter().enumerate() {
        let (parts, sources) = cutter.downloads(operand);
        if parts.is_empty() {
            continue;
        }
        bytes_out += bytes_of(&parts, elem_bytes);
        let whole = parts.iter().all(|(_, area)| *area == call::Area::Full);
        match (&mut call.matrices[number], &mut scratches[number]) {
            (Some(Matrix::Out(view)), Some(scratch)) => {
                let (rows, cols) = (view.rows(), view.cols());
                let room = scratch.matrix_mut(rows, cols, elem_bytes);
                let room = room.ok_or_else(|| internal("scratch too small"))?;
                pieces.downloads.extend(owned(room, &parts, sources)?);
            }
            (Some(Matrix::Out(view)), None) => {
                if whole && view.ld() <= 2 * view.rows() {
                    pieces.populate.extend(fresh(&view.address_range()));
                }
                pieces
                    .downloads
                    .extend(owned(view.reborrow(), &parts, sources)?);
            }
            (Some(Matrix::InOut(view)), Some(scratch)) => {
                if whole && !scratch.warm {
                    let room = scratch.matrix(view.rows(), view.cols(), elem_bytes);
                    let room = room.ok_or_else(|| internal("scratch too small"))?;
                    pieces.populate.extend(fresh(&room.address_range()));
                }
                in_place(&mut pieces, way, view, scratch, (&parts, sources))?;
            }
            _ => return Err(internal("no such result")),
        }
    }
    for (number, short) in shorts.iter_mut().enumerate() {
        let (parts, sources) = cutter.downloads(Operand::Vector(number));
        if !parts.is_empty() {
            bytes_out += bytes_of(&parts, short.elem_bytes);
            let target = short.view_mut().ok_or_else(|| internal("a short vector"))?;
            pieces.downloads.extend(owned(target, &parts, sources)?);
        }
    }
    pieces.downloads.sort_by_key(|d| d.step);
    let look = match (program.unscaled_steps, program.finite_only) {
        (1.., _) => Look::Largest(part_bytes(precision)),
        (_, true) => Look::Finite(part_bytes(precision)),
        _ => Look::Nothing,
    };
    let (mark, _) = work.mark(0).map_err(|e| device.health.note(&e))?;
    let mut pedantic = true;
    if room.blas_bytes > 0 {
        let address = work.address();
        let lane = work.lane();
        let cuda = &device.cuda;
        let note = |e| device.health.note_blas(cuda, mark, &e);
        pedantic = cuda
            .set_arithmetic(&lane.handle, precision, Arithmetic::Pinned)
            .map_err(note)?;
        // SAFETY: the workspace is the first part of the block, which outlives the queued work.
        unsafe { cuda.set_workspace(&lane.handle, address, room.blas_bytes as usize) }
            .map_err(note)?;
    }
    let running = Running {
        device,
        program,
        matrices: &room.matrices,
        precision,
        pedantic,
        solver: Some((room.solver, room.workspace)),
        op: call.op,
        limit: room.limit,
    };
    // SAFETY: the operands and results are borrowed through `call`, scratch, short vectors and block by the
    // caller of `stream`, all longer than the guard, which is dropped there. Nobody writes the
    // operands that are read (they overlap no result: `check`), and each tile is one piece's own. Copies read
    // scratch tiles and write the results only after the downloads that fill the scratch are over; results that are
    // kept are written only after everything has been read. Short vectors are looked at when the steps are over.
    let (guard, reached) = unsafe { running.drive(work, pieces, look) }?;
    Ok(Ran {
        guard,
        reached,
        bytes_in,
        bytes_out,
    })
}

/// Counts the singular values that matter and makes the diagonal of S^+ for the second program; `estimate` is the error
/// that Xgesvdp says of itself.
fn count_rank(
    call: &LapackCall<'_>,
    estimate: Option<f64>,
    shorts: &mut [Short],
) -> Result<(), Missed> {
    let part_bytes = part_bytes(call.precision);
    let values = shorts.iter().find(|s| s.vector.role == Role::Out(0));
    let values = values.ok_or_else(|| internal("no singular values"))?;
    let values: Vec<f64> = (0..values.vector.len)
        .map(|i| values.real(i, part_bytes))
        .collect();
    let (Some(rcond), Some(&largest)) = (call.real("rcond"), values.first()) else {
        return Err(internal("a rank without its threshold").into());
    };
    let threshold = rank::threshold(call.op, call.precision, rcond, largest);
    let threshold = threshold.ok_or(Failure::Unsupported("a threshold of NaN"))?;
    if estimate.is_some_and(|e| rank::is_in_doubt(&values, threshold, e, call.precision)) {
        return Err(Missed::Inaccurate);
    }
    let rank = values.iter().take_while(|&&s| s > threshold).count();
    for short in shorts {
        match short.vector.role {
            Role::Made(_, Made::Rank) => short.words[0] = rank as u64,
            Role::Reciprocals => {
                let elem_bytes = short.elem_bytes;
                let elements = short.words_mut().chunks_exact_mut(elem_bytes);
                for (element, s) in elements.zip(&values[..rank]) {
                    let is_finite = match part_bytes {
                        4 => {
                            let reciprocal = (1.0 / s) as f32;
                            element[..4].copy_from_slice(&reciprocal.to_ne_bytes());
                            reciprocal.is_finite()
                        }
                        _ => {
                            element[..8].copy_from_slice(&(1.0 / s).to_ne_bytes());
                            (1.0 / s).is_finite()
                        }
                    };
                    if !is_finite {
                        return Err(Failure::Unsupported("a quotient that overflows").into());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The matrix whose first columns get the eigenvectors of an interval.
fn in_an_interval(plan: &Plan) -> Option<Operand> {
    match plan.wanted {
        Some(Wanted::Interval { vectors, .. }) => vectors,
        _ => None,
    }
}

/// The numbers of the eigenvalues that the caller gets, from 0 on; `None` for all.
fn wanted(call: &LapackCall<'_>, plan: &Plan, shorts: &[Short]) -> Option<Range<usize>> {
    Some(match plan.wanted.as_ref()? {
        Wanted::Numbers(numbers) => numbers.clone(),
        Wanted::Interval {
            low, high, values, ..
        } => {
            let (all, part) = (&shorts[*values], part_bytes(call.precision));
            let up_to = |end: f64| {
                (0..call.n)
                    .take_while(|i| all.real(*i, part) <= end)
                    .count()
            };
            let first = up_to(*low);
            first..up_to(*high).max(first)
        }
    })
}

/// True if LAPACK computes with the matrix as it is: its largest element, of these bits, lies between
/// sqrt(safmin) / eps and the reciprocal, with eps the distance of 1 to the next number. A complex element is at
/// most twice its larger part. Zeros alone are refused too: they have the CPU library's vectors.
///
/// # Source
/// LAPACK 3.12: gesdd, gesvd, geev scale outside of these bounds, syevd outside of wider ones.
fn is_unscaled(largest: u64, part_bytes: usize) -> bool {
    if largest >= infinity_bits(part_bytes) {
        return false;
    }
    let (value, safmin, eps) = match part_bytes {
        4 => (
            f64::from(f32::from_bits(largest as u32)),
            f64::from(f32::MIN_POSITIVE),
            f64::from(f32::EPSILON),
        ),
        _ => (f64::from_bits(largest), f64::MIN_POSITIVE, f64::EPSILON),
    };
    let least = safmin.sqrt() / eps;
    value >= least && value <= 0.5 / least
}

/// Factor of n eps in the error that is accepted of Xgesvdp's singular values, as LAPACK's own is a few n eps.
/// Chosen.
const POLAR_ERROR: f64 = 4.0;

/// True if Xgesvdp's estimate is at rounding level, whether it is meant relative to the largest singular value
/// or not (its documentation does not say).
fn is_accurate(estimate: f64, largest: f64, call: &LapackCall<'_>) -> bool {
    let eps = match part_bytes(call.precision) {
        4 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    estimate.abs() <= POLAR_ERROR * call.m.min(call.n) as f64 * eps * largest.min(1.0)
}

/// Fails if a kernel did, or if eigenvalues do not come in LAPACK's order.
fn judge(call: &LapackCall<'_>, plan: &Plan, shorts: &[Short]) -> Result<(), Failure> {
    for short in shorts {
        let failed = match short.vector.role {
            Role::Info(failed) => (short.int(0) != 0).then_some(failed),
            Role::Pivots(failed) => {
                let diagonal = short.view();
                let is_zero =
                    |i| diagonal.is_some_and(|d| is_zero(d.column_piece(0, i, 1), call.precision));
                (0..short.vector.len).any(is_zero).then_some(failed)
            }
            _ => None,
        };
        if let Some(failed) = failed {
            return Err(Failure::Unsupported(failed));
        }
    }
    if matches!(call.op, Op::Sygv | Op::Sygvd | Op::Sygvx) {
        let values = shorts.iter().find(|short| {
            matches!(short.vector.role, Role::Out(_)) && short.vector.elements == Elements::Real
        });
        let values = values.ok_or_else(|| internal("no eigenvalues"))?;
        let part = part_bytes(call.precision);
        let largest = (0..call.n).map(|i| values.real(i, part).abs());
        // NaN must win.
        let largest = largest.fold(
            0.0,
            |most: f64, x| if x > most || x.is_nan() { x } else { most },
        );
        let bits = match part {
            4 => u64::from((largest as f32).to_bits()),
            _ => largest.to_bits(),
        };
        if !is_unscaled(bits, part) {
            return Err(Failure::Unsupported("a reduced matrix that LAPACK scales"));
        }
    }
    if call.op == Op::Geev && !call.precision.is_complex() {
        let outputs = plan.vectors.iter().zip(shorts);
        let values: Vec<&Short> = outputs
            .filter(|(v, _)| matches!(v.role, Role::Out(_)))
            .map(|(_, short)| short)
            .collect();
        let [re, im] = values[..] else {
            return Err(internal("eigenvalues without parts"));
        };
        let part = part_bytes(call.precision);
        let at = |i: usize| (re.real(i, part), im.real(i, part));
        if !are_paired(call.n, at) {
            return Err(Failure::Unsupported("eigenvalues in another order"));
        }
    }
    Ok(())
}

/// True if complex eigenvalues of a real matrix come in conjugate pairs, the one with the positive imaginary part
/// first.
fn are_paired(n: usize, at: impl Fn(usize) -> (f64, f64)) -> bool {
    let mut i = 0;
    while i < n {
        let (re, im) = at(i);
        if im == 0.0 {
            i += 1;
        } else if im > 0.0 && i + 1 < n && at(i + 1) == (re, -im) {
            i += 2;
        } else {
            return false;
        }
    }
    true
}

/// The short results as the caller's library has them, by the number of its vector; of eigenvalues the wanted ones.
fn answers(
    call: &LapackCall<'_>,
    shorts: &mut [Short],
    wanted: Option<&Range<usize>>,
) -> Result<Vec<(usize, Vec<u8>)>, Failure> {
    let mut answers = Vec::new();
    for short in shorts {
        let (Role::Out(number) | Role::Made(number, _)) = short.vector.role else {
            continue;
        };
        let mut elements = 0..short.vector.len;
        match (short.vector.role, wanted) {
            (Role::Made(_, Made::Count), wanted) => {
                short.words[0] = wanted.map_or(call.n, Range::len) as u64;
            }
            (Role::Made(_, Made::Converged), Some(wanted)) => elements = 0..wanted.len(),
            (Role::Out(_), Some(wanted)) if short.vector.elements == Elements::Real => {
                elements = wanted.clone();
            }
            _ => {}
        }
        let to = call.vectors[number].as_ref();
        let to = to.ok_or_else(|| internal("no such vector"))?;
        let (rows, elem_bytes) = (to.data.as_ref().rows(), to.data.as_ref().elem_bytes());
        let bytes = match (short.vector.elements, to.kind, elem_bytes) {
            (Elements::Pivots, VectorKind::Integer, 4) => {
                let pivots = elements.map(|i| i32::try_from(short.int(i)));
                let pivots: Result<Vec<i32>, _> = pivots.collect();
                let pivots = pivots.map_err(|_| internal("a pivot beyond 32 bits"))?;
                pivots
                    .iter()
                    .flat_map(|pivot| pivot.to_ne_bytes())
                    .collect()
            }
            _ if elem_bytes == short.elem_bytes => {
                short.bytes()[elements.start * elem_bytes..elements.end * elem_bytes].to_vec()
            }
            _ => return Err(internal("a vector of another type")),
        };
        if rows < short.vector.len {
            return Err(internal("a short vector"));
        }
        answers.push((number, bytes));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_that_lapack_scales_are_found() {
        let double = |x: f64| is_unscaled(x.to_bits(), 8);
        for x in [1.0, 1e-138, 1e137, 3e-100, 7e100] {
            assert!(double(x), "{x:e}");
        }
        for x in [
            0.0,
            5e-324,
            1e-300,
            6e-139,
            1.6e138,
            1e300,
            f64::INFINITY,
            f64::NAN,
        ] {
            assert!(!double(x), "{x:e}");
        }
        let single = |x: f32| is_unscaled(u64::from(x.to_bits()), 4);
        for x in [1.0, 1e-12, 1e11] {
            assert!(single(x), "{x:e}");
        }
        for x in [0.0, 9e-13, 1.1e12, 1e30, f32::INFINITY, f32::NAN] {
            assert!(!single(x), "{x:e}");
        }
    }

    #[test]
    fn pairs_of_eigenvalues_are_recognised() {
        let paired = |values: &[(f64, f64)]| are_paired(values.len(), |i| values[i]);
        assert!(paired(&[]));
        assert!(paired(&[(1.0, 0.0), (2.0, 3.0), (2.0, -3.0), (4.0, -0.0)]));
        assert!(!paired(&[(2.0, -3.0), (2.0, 3.0)]));
        assert!(!paired(&[(2.0, 3.0), (2.5, -3.0)]));
        assert!(!paired(&[(1.0, 0.0), (2.0, 3.0)]));
    }
}
