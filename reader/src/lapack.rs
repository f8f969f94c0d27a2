//! From the saved arguments of a routed call of LAPACK to the engine's form of it, by the routine table.
//!
//! `None` always means that the CPU routine gets the call as it came: an illegal argument, which it reports
//! through the program's own xerbla_, a quick return, a workspace query, or an option without a GPU path.
//! What LAPACK calls illegal must be `None` here, since the CPU routine is called from Rust when its workspace
//! is asked for.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.

use crate::Width;
use core::ffi::c_void;
use door::{DecodeLapack, Entry, Frame, Threshold};
use engine_abi::{MAX_LETTERS, MAX_MATRICES, MAX_VECTORS, RawMatrix, RoutedLapack};
use routines::{Arg, Dims, Family, Intent, Op, Options, Precision, Shape, family};

/// The reader of Fortran names with 4-byte integers.
pub static FORTRAN: DecodeLapack = DecodeLapack {
    read: |frame, threshold| {
        // SAFETY: forwarded: the frame is that of a call of such a name.
        unsafe { read(frame, threshold, Width::Four) }
    },
    prepare: |entry, frame| {
        // SAFETY: forwarded.
        unsafe { prepare(entry, frame, Width::Four) }
    },
};

/// The reader of Fortran names with 8-byte integers.
pub static FORTRAN_ILP64: DecodeLapack = DecodeLapack {
    read: |frame, threshold| {
        // SAFETY: forwarded: the frame is that of a call of such a name.
        unsafe { read(frame, threshold, Width::Eight) }
    },
    prepare: |entry, frame| {
        // SAFETY: forwarded.
        unsafe { prepare(entry, frame, Width::Eight) }
    },
};

/// A call with every field at zero.
const EMPTY: RoutedLapack = RoutedLapack {
    struct_bytes: size_of::<RoutedLapack>() as u32,
    op: 0,
    precision: 0,
    integer_bytes: 0,
    reserved: [0; 2],
    letters: [0; MAX_LETTERS],
    m: 0,
    n: 0,
    k: 0,
    matrices: [RawMatrix {
        data: core::ptr::null_mut(),
        ld: 0,
    }; MAX_MATRICES],
    vectors: [core::ptr::null_mut(); MAX_VECTORS],
    info: core::ptr::null_mut(),
    host: core::ptr::null(),
    cpu: no_cpu,
    frame: core::ptr::null(),
};

/// Stands in a call until the door puts the real one there.
unsafe extern "C" fn no_cpu(_: *const c_void) {}

fn routine(t: &Threshold) -> Option<(&'static Family, Precision)> {
    Some((
        family(Op::from_code(t.op)?),
        Precision::from_code(t.precision)?,
    ))
}

/// Letters and sizes, checked.
struct Heading {
    letters: [u8; MAX_LETTERS],
    dims: Dims,
}

impl Heading {
    /// # Safety
    /// As for [`read`].
    unsafe fn read(f: &Frame, family: &Family, precision: Precision, width: Width) -> Option<Self> {
        let mut letters = [0; MAX_LETTERS];
        let mut next = letters.iter_mut();
        let (mut m, mut n, mut k) = (None, None, None);
        for (i, arg) in family.args_of(precision).iter().enumerate() {
            match *arg {
                Arg::Letter { accepted, .. } => {
                    // SAFETY: a CHARACTER argument is a valid pointer, as in every call of Fortran.
                    let letter = unsafe { f.letter(i) }.to_ascii_uppercase();
                    if !accepted.as_bytes().contains(&letter) {
                        return None;
                    }
                    *next.next()? = letter;
                }
                Arg::Size { name } => {
                    // SAFETY: an INTEGER argument is a valid pointer.
                    let value = unsafe { width.at(f, i) };
                    // Nothing to compute where one is 0.
                    let value = u64::try_from(value).ok().filter(|v| *v > 0)?;
                    match name {
                        "m" => m = Some(value),
                        "n" => n = Some(value),
                        "k" | "nrhs" => k = Some(value),
                        _ => return None,
                    }
                }
                _ => {}
            }
        }
        let n = n?;
        let options = Options::new(family, precision, letters);
        let dims = Dims {
            m: m.unwrap_or(n),
            n,
            k: k.unwrap_or(n),
            right: options.letter("side") == b'R',
        };
        (options.are_routed() && options.sizes_agree(&dims)).then_some(Self { letters, dims })
    }
}

/// Reads a call; the second value is its work.
///
/// # Safety
/// The frame holds the arguments of a call of the threshold's routine with integers of this width.
unsafe fn read(f: &Frame, t: &Threshold, width: Width) -> Option<(RoutedLapack, u64)> {
    let (family, precision) = routine(t)?;
    // SAFETY: forwarded.
    let Heading { letters, dims } = unsafe { Heading::read(f, family, precision, width) }?;
    let options = Options::new(family, precision, letters);
    let size = |v: u64| i64::try_from(v).ok();
    let mut call = RoutedLapack {
        op: family.op as u32,
        precision: precision as u8,
        integer_bytes: width.bytes(),
        letters,
        m: size(dims.m)?,
        n: size(dims.n)?,
        k: size(dims.k)?,
        ..EMPTY
    };
    let (mut matrices, mut vectors) = (call.matrices.iter_mut(), call.vectors.iter_mut());
    let mut least_ld = 1;
    let mut matrix = None;
    for (i, arg) in family.args_of(precision).iter().enumerate() {
        // SAFETY: the word is a pointer; it is not read through here.
        let pointer = unsafe { f.pointer::<c_void>(i) };
        match *arg {
            Arg::Letter { .. } | Arg::Size { .. } => {}
            Arg::Matrix { .. } => {
                let shape = options.matrix(arg, &dims);
                least_ld = shape.map_or(1, |(rows, _)| rows);
                if shape.is_some() && pointer.is_null() {
                    return None;
                }
                let place = matrices.next()?;
                place.data = pointer;
                matrix = Some(place);
            }
            Arg::Ld { .. } => {
                // SAFETY: an INTEGER argument is a valid pointer.
                let ld = unsafe { width.at(f, i) };
                if ld < size(least_ld)? {
                    return None;
                }
                matrix.take()?.ld = ld;
            }
            Arg::Vector { .. } | Arg::IntVector { .. } => {
                if options.vector(arg, &dims).is_some() && pointer.is_null() {
                    return None;
                }
                *vectors.next()? = pointer;
            }
            // -1 is a query; a workspace of nothing has no first word for the length.
            Arg::Lwork { .. } => {
                // SAFETY: an INTEGER argument is a valid pointer.
                if unsafe { width.at(f, i) } < 1 {
                    return None;
                }
            }
            // Of routed options no other scalar is read.
            Arg::Extra {
                intent: Intent::In, ..
            } => {}
            Arg::Work { .. } | Arg::Extra { .. } => {
                if pointer.is_null() {
                    return None;
                }
            }
            Arg::Info => {
                if pointer.is_null() {
                    return None;
                }
                call.info = pointer;
            }
            Arg::LetterInOut { .. } | Arg::Procedure { .. } | Arg::Scalar { .. } => return None,
        }
    }
    let shape = Shape::of_lapack(family.op, precision, &dims, letters);
    Some((call, shape.work()))
}

/// The most workspaces with a length (heevr: work, rwork, iwork).
const MAX_LWORK: usize = 3;

/// The first words of a workspace; a query writes one element, of at most 16 bytes.
type Words = [u64; 4];

/// Asks the CPU routine for its workspace with the caller's own arguments, each length replaced by -1 and each
/// workspace by one of ours. Where the caller's workspaces are of the best length, their first words and info
/// then get what the query has left there, as the routine itself leaves it at its end. False, and nothing of
/// the caller's is written, if one is shorter than the best: it may be too short at all.
///
/// # Safety
/// The frame is that of a call which [`read`] has accepted, with integers of this width.
unsafe fn prepare(entry: &Entry, frame: *const Frame, width: Width) -> bool {
    let Some((family, precision)) = routine(entry.threshold) else {
        return false;
    };
    let args = family.args_of(precision);
    // SAFETY: the caller's frame.
    let f = unsafe { &*frame };
    // All of its bytes are ones in either width.
    let query = -1_i64;
    let mut info = 0_i64;
    let mut words: [Words; MAX_LWORK] = [[0; 4]; MAX_LWORK];
    let lengths = args
        .iter()
        .enumerate()
        .filter(|(_, arg)| matches!(arg, Arg::Lwork { .. }));
    let mut places = [0; MAX_LWORK];
    let mut count = 0;
    for (i, _) in lengths {
        let Some(place) = places.get_mut(count) else {
            return false;
        };
        *place = i;
        count += 1;
    }
    let places = &places[..count];
    if !places.is_empty() {
        let address = |pointer: *const c_void| pointer.expose_provenance() as u64;
        let mut replaced = [(args.len() - 1, address((&raw mut info).cast())); 2 * MAX_LWORK + 1];
        for (i, (lwork, work)) in places.iter().zip(&mut words).enumerate() {
            replaced[2 * i] = (*lwork, address((&raw const query).cast()));
            // A workspace stands before its length.
            replaced[2 * i + 1] = (lwork - 1, address((&raw mut *work).cast()));
        }
        // SAFETY: the caller's arguments are legal, and so is a query, which writes the first element of each
        // workspace and info.
        if !unsafe { entry.call_cpu_with(frame, &replaced[..=2 * count]) } || info != 0 {
            return false;
        }
        for (lwork, words) in places.iter().zip(&words) {
            let best = match (args[lwork - 1].name(), precision.real(), width) {
                ("iwork", _, Width::Four) => f64::from(words[0] as i32),
                ("iwork", _, Width::Eight) => words[0].cast_signed() as f64,
                (_, Precision::S, _) => f64::from(f32::from_bits(words[0] as u32)),
                _ => f64::from_bits(words[0]),
            };
            // SAFETY: an INTEGER argument.
            let given = unsafe { width.at(f, *lwork) } as f64;
            if best.is_nan() || given < best {
                return false;
            }
        }
        for (lwork, words) in places.iter().zip(&words) {
            let elem_bytes = match (args[lwork - 1].name(), precision) {
                ("iwork", _) => usize::from(width.bytes()),
                ("rwork", p) => p.real().elem_bytes(),
                (_, p) => p.elem_bytes(),
            };
            // SAFETY: the caller's workspace has the best length, which is not 0; it overlaps no local.
            unsafe {
                let to = f.pointer::<u8>(lwork - 1);
                core::ptr::copy_nonoverlapping(words.as_ptr().cast(), to, elem_bytes);
            }
        }
        // SAFETY: info is the caller's output.
        unsafe { width.store(f, args.len() - 1, 0) };
    }
    if family.op == Op::Syevr {
        // All eigenvalues are found. The CPU routine begins with 0.
        let position = |name| args.iter().position(|arg| arg.name() == name);
        let (Some(m), Some(n)) = (position("m"), position("n")) else {
            return false;
        };
        // SAFETY: both are INTEGER arguments, m an output.
        unsafe { width.store(f, m, width.at(f, n)) };
    }
    true
}
