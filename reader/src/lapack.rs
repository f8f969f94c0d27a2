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
use engine_abi::{
    MAX_INTS, MAX_LETTERS, MAX_MATRICES, MAX_REALS, MAX_VECTORS, RawMatrix, RoutedLapack,
};
use routines::{Arg, Dims, Family, Op, Options, Precision, Scalars, Shape, family};

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
    reals: [0.0; MAX_REALS],
    ints: [0; MAX_INTS],
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

/// Letters, sizes and input scalars, checked.
struct Heading {
    options: Options<'static>,
    letters: [u8; MAX_LETTERS],
    scalars: Scalars,
    dims: Dims,
}

impl Heading {
    /// # Safety
    /// As for [`read`].
    unsafe fn read(
        f: &Frame,
        family: &'static Family,
        precision: Precision,
        width: Width,
    ) -> Option<Self> {
        let mut letters = [0; MAX_LETTERS];
        let mut next = letters.iter_mut();
        let mut scalars = Scalars::default();
        let (mut reals, mut ints) = (scalars.reals.iter_mut(), scalars.ints.iter_mut());
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
                Arg::Scalar { real, .. } => {
                    let of = if real { precision.real() } else { precision };
                    // SAFETY: a valid pointer to a number of this type.
                    let [re, _] = unsafe { f.scalar(i, of as u8) };
                    *reals.next()? = re;
                }
                // SAFETY: an INTEGER argument is a valid pointer.
                Arg::Int { .. } => *ints.next()? = unsafe { width.at(f, i) },
                _ => {}
            }
        }
        let n = n?;
        let options = Options::new(family, precision, letters).with(scalars);
        let dims = Dims {
            m: m.unwrap_or(n),
            n,
            k: k.unwrap_or(n),
            right: options.letter("side") == b'R',
        };
        (options.are_routed() && options.agree(&dims)).then_some(Self {
            options,
            letters,
            scalars,
            dims,
        })
    }
}

/// Reads a call; the second value is its work.
///
/// # Safety
/// The frame holds the arguments of a call of the threshold's routine with integers of this width.
unsafe fn read(f: &Frame, t: &Threshold, width: Width) -> Option<(RoutedLapack, u64)> {
    let (family, precision) = routine(t)?;
    // SAFETY: forwarded.
    let heading = unsafe { Heading::read(f, family, precision, width) }?;
    let Heading {
        options,
        letters,
        scalars,
        dims,
    } = heading;
    let size = |v: u64| i64::try_from(v).ok();
    let mut call = RoutedLapack {
        op: family.op as u32,
        precision: precision as u8,
        integer_bytes: width.bytes(),
        letters,
        m: size(dims.m)?,
        n: size(dims.n)?,
        k: size(dims.k)?,
        reals: scalars.reals,
        ints: scalars.ints,
        ..EMPTY
    };
    let (mut matrices, mut vectors) = (call.matrices.iter_mut(), call.vectors.iter_mut());
    let mut least_ld = 1;
    let mut matrix = None;
    for (i, arg) in family.args_of(precision).iter().enumerate() {
        // SAFETY: the word is a pointer; it is not read through here.
        let pointer = unsafe { f.pointer::<c_void>(i) };
        match *arg {
            Arg::Letter { .. } | Arg::Size { .. } | Arg::Scalar { .. } | Arg::Int { .. } => {}
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
            Arg::Work { .. } => {
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
            Arg::LetterInOut { .. } | Arg::Procedure { .. } | Arg::Extra { .. } => return None,
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
/// workspace by one of ours. Where the caller's workspaces are long enough, their first words and info then get
/// what the query has left there, as the routine itself leaves it at its end. False, and nothing of the caller's is
/// written, if one is shorter than the documented minimum, or, of a routine whose minimum is not known, than the best.
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
    // SAFETY: forwarded.
    let Some(heading) = (unsafe { Heading::read(f, family, precision, width) }) else {
        return false;
    };
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
            // SAFETY: an INTEGER argument.
            let given = unsafe { width.at(f, *lwork) };
            let least = heading
                .options
                .least_length(args[*lwork].name(), &heading.dims);
            if least.is_some_and(|least| u64::try_from(given).is_ok_and(|given| given >= least)) {
                continue;
            }
            let best = match (args[lwork - 1].name(), precision.real(), width) {
                ("iwork", _, Width::Four) => f64::from(words[0] as i32),
                ("iwork", _, Width::Eight) => words[0].cast_signed() as f64,
                (_, Precision::S, _) => f64::from(f32::from_bits(words[0] as u32)),
                _ => f64::from_bits(words[0]),
            };
            if best.is_nan() || (given as f64) < best {
                return false;
            }
        }
        for (lwork, words) in places.iter().zip(&words) {
            let elem_bytes = match (args[lwork - 1].name(), precision) {
                ("iwork", _) => usize::from(width.bytes()),
                ("rwork", p) => p.real().elem_bytes(),
                (_, p) => p.elem_bytes(),
            };
            // SAFETY: the caller's workspace has a legal length, which is not 0; it overlaps no local.
            unsafe {
                let to = f.pointer::<u8>(lwork - 1);
                core::ptr::copy_nonoverlapping(words.as_ptr().cast(), to, elem_bytes);
            }
        }
        // SAFETY: info is the caller's output.
        unsafe { width.store(f, args.len() - 1, 0) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    static WORK: AtomicU64 = AtomicU64::new(0);
    const HEEVR: Threshold = Threshold {
        op: Op::Syevr as u32,
        precision: b'C',
        flops_per_work: 1,
        word: &WORK,
    };

    /// The argument words of cheevr in a frame as the stub lays it out, and what they lead to.
    struct Heevr {
        letters: [u8; 3],
        reals: [f32; 3],
        ints: [i64; 3],
        n: i64,
        memory: [u64; 2],
    }

    impl Heevr {
        fn read(&mut self) -> Option<RoutedLapack> {
            const REGISTERS: usize = 6;
            const STACK: usize = Frame::BYTES / 8 + 1;
            let mut words = [0_u64; STACK + 23 - REGISTERS];
            let memory = (&raw mut self.memory).expose_provenance() as u64;
            let [one, il, iu] = &self.ints;
            let (mut letters, mut reals) = (self.letters.iter(), self.reals.iter());
            for (i, arg) in family(Op::Syevr).args_of(Precision::C).iter().enumerate() {
                let address = match arg {
                    Arg::Letter { .. } => (&raw const *letters.next()?).expose_provenance(),
                    Arg::Scalar { .. } => (&raw const *reals.next()?).expose_provenance(),
                    Arg::Size { .. } => (&raw const self.n).expose_provenance(),
                    Arg::Int { name: "il" } => (&raw const *il).expose_provenance(),
                    Arg::Int { .. } => (&raw const *iu).expose_provenance(),
                    Arg::Ld { .. } => (&raw const self.n).expose_provenance(),
                    Arg::Lwork { .. } => (&raw const *one).expose_provenance(),
                    _ => memory as usize,
                };
                let at = if i < REGISTERS {
                    i
                } else {
                    STACK + i - REGISTERS
                };
                words[at] = address as u64;
            }
            let frame: *const Frame = words.as_ptr().cast();
            // SAFETY: the words are laid out as a frame with the stack words behind it, and every one leads to a
            // number, a letter or room for one.
            unsafe { read(&*frame, &HEEVR, Width::Eight) }.map(|(call, _)| call)
        }
    }

    #[test]
    fn input_scalars_pass_in_their_order_and_width() {
        let mut case = Heevr {
            letters: *b"vaL",
            reals: [-1.5, 0.1, 1e-30],
            ints: [1, -3, 1 << 40],
            n: 7,
            memory: [0; 2],
        };
        let call = case.read().expect("legal: range A reads none of them");
        assert_eq!(call.letters, *b"VAL\0");
        assert_eq!(call.reals, [-1.5, f64::from(0.1_f32), f64::from(1e-30_f32)]);
        assert_eq!(call.ints, [-3, 1 << 40, 0]);
        assert_eq!((call.m, call.n, call.k), (7, 7, 7));
        case.letters = *b"VXL";
        assert!(case.read().is_none());
    }
}
