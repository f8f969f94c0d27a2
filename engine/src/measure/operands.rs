//! The arguments of one call of any routine with a GPU path, made by the routine table, with numbers on which
//! the routine succeeds: what a measurement hands to the CPU library and to a device.

use call::MAX_LETTERS;
use core::ffi::c_void;
use engine_abi::{MAX_MATRICES, MAX_VECTORS, RawMatrix, RoutedCall, RoutedLapack};
use routines::{
    Arg, Dims, Family, Intent, Library, Op, Options, Precision, Scalars, Shape, family,
};

/// The most arguments of a routed routine, hidden string lengths included (heevr: 23 and 3).
pub(crate) const MAX_WORDS: usize = 32;

/// A call to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subject {
    /// The family.
    pub op: Op,
    /// Element type.
    pub precision: Precision,
    /// Option letters, upper case, in the order of the routine's arguments; zeros beyond the last.
    pub letters: [u8; MAX_LETTERS],
    /// Argument m; n where the routine has none.
    pub m: usize,
    /// Argument n.
    pub n: usize,
    /// Argument k or nrhs; where a routine has neither: n, or the order of its special matrix.
    pub k: usize,
}

impl Subject {
    fn family(&self) -> &'static Family {
        family(self.op)
    }

    fn options(&self) -> Options<'static> {
        Options::new(self.family(), self.precision, self.letters).with(self.scalars())
    }

    fn scalars(&self) -> Scalars {
        Scalars::usual(self.family(), self.precision, self.n as u64)
    }

    fn dims(&self) -> Dims {
        Dims {
            m: self.m as u64,
            n: self.n as u64,
            k: self.k as u64,
            right: self.options().letter("side") == b'R',
        }
    }

    /// The routine's name; `None` where the family lacks the precision.
    pub fn routine(&self) -> Option<String> {
        self.family().routine(self.precision)
    }

    /// The call as the cost model sees it.
    pub fn shape(&self) -> Shape {
        let dims = self.dims();
        match self.family().library {
            Library::Lapack => Shape::of_lapack(self.op, self.precision, &dims, self.letters),
            Library::Blas => Shape {
                op: self.op,
                precision: self.precision,
                m: dims.m,
                n: dims.n,
                k: dims.k,
                right: dims.right,
                beta_zero: !self.result_is_read(),
                letters: [0; MAX_LETTERS],
            },
        }
    }

    /// trmm and trsm overwrite an operand.
    fn result_is_read(&self) -> bool {
        matches!(self.op, Op::Trmm | Op::Trsm)
    }
}

/// One argument as Fortran passes it, by address.
enum Argument {
    Letter(u8),
    /// An INTEGER, with room for one of 8 bytes.
    Integer(i64),
    /// A factor.
    Scalar([u64; 2]),
    /// The buffer with this number.
    Buffer(usize),
}

/// Memory of one operand or workspace, every page touched.
struct Buffer {
    words: Vec<u64>,
    /// What it holds before each run, if the routine overwrites it.
    kept: Option<Vec<u64>>,
    /// Leading dimension, of a matrix.
    ld: usize,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Matrix,
    Vector,
    Work,
    /// Workspace whose length the routine tells.
    AskedWork,
}

/// The arguments of one call.
pub struct Operands {
    subject: Subject,
    arguments: Vec<Argument>,
    buffers: Vec<Buffer>,
}

/// What a matrix holds so that its routine succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Numbers of [-1, 1).
    Random,
    /// The same with 2 n on the diagonal: positive definite, and a factor that is far from singular.
    Dominant,
    /// Small numbers, so that a reflector with tau = 2 is one.
    Reflectors,
}

fn content(op: Op, name: &str) -> Content {
    match (op, name) {
        (
            Op::Potrf
            | Op::Posv
            | Op::Potrs
            | Op::Potri
            | Op::Trtri
            | Op::Trtrs
            | Op::Getrs
            | Op::Getri
            | Op::Trsm
            | Op::Trmm,
            "a",
        ) => Content::Dominant,
        (Op::Sygv | Op::Sygvd | Op::Sygvx, "b") => Content::Dominant,
        (Op::Orgqr | Op::Ormqr, "a") => Content::Reflectors,
        _ => Content::Random,
    }
}

/// Elements of a workspace without a length argument.
///
/// # Source
/// The comments of cgesdd.f (the longest of its cases), sgesdd.f, cgesvd.f, cgeev.f, cheev.f, cgelsd.f, cgelss.f,
/// cheevx.f, ssyevx.f, chegv.f, chegvx.f, LAPACK 3.12.
fn work_elems(op: Op, name: &str, dims: &Dims) -> usize {
    /// Order of the smallest subproblems of divide and conquer (ilaenv's ISPEC = 9).
    const SMALL: u64 = 25;
    let (least, most) = (dims.m.min(dims.n), dims.m.max(dims.n));
    // At least as many as its levels.
    let levels = u64::from(least.checked_ilog2().unwrap_or(0)) + 1;
    let elems = match (op, name) {
        (Op::Gesdd, "rwork") => {
            (5 * least * least + 7 * least).max(2 * most * least + 2 * least * least + least)
        }
        (Op::Gesdd, "iwork") => 8 * least,
        (Op::Gelsd, "rwork") => {
            let leaves = (SMALL + 1) * (SMALL + 1) + least * (1 + dims.k) + 2 * dims.k;
            (10 + 2 * SMALL + 8 * levels) * least + 3 * SMALL * dims.k + leaves
        }
        (Op::Gelsd, "iwork") => (3 * levels + 11) * least,
        (Op::Syevx | Op::Sygvx, "rwork") => 7 * most,
        _ => 5 * most,
    };
    usize::try_from(elems).unwrap_or(usize::MAX) + 16
}

/// Words that differ, as numbers of [-1, 1) in single or double precision: zeros would flatter a GPU's power
/// limit.
fn numbers(words: usize, single: bool) -> Vec<u64> {
    /// Made one by one; the rest repeats them, which is as fast as memory is.
    const BLOCK: usize = (1 << 18) - 5;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut block: Vec<u64> = (0..words.min(BLOCK))
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // [1, 2) by its bits, then stretched.
            if single {
                let part = |bits: u32| {
                    let x = f32::from_bits((bits & 0x007f_ffff) | 1.0f32.to_bits());
                    u64::from((2.0 * x - 3.0).to_bits())
                };
                part(state as u32) | part((state >> 32) as u32) << 32
            } else {
                let x = f64::from_bits((state >> 12) | 1.0f64.to_bits());
                (2.0 * x - 3.0).to_bits()
            }
        })
        .collect();
    block.reserve_exact(words - block.len());
    while block.len() < words {
        let more = block.len().min(words - block.len());
        block.extend_from_within(..more);
    }
    block
}

/// Writes one element's real part, and 0 into its imaginary one.
fn put(words: &mut [u64], precision: Precision, index: usize, value: f64) {
    match precision {
        Precision::S => {
            let word = &mut words[index / 2];
            let bits = u64::from((value as f32).to_bits());
            *word = match index % 2 {
                0 => *word & !0xffff_ffff | bits,
                _ => *word & 0xffff_ffff | bits << 32,
            };
        }
        Precision::C => words[index] = u64::from((value as f32).to_bits()),
        Precision::D => words[index] = value.to_bits(),
        Precision::Z => {
            words[2 * index] = value.to_bits();
            words[2 * index + 1] = 0;
        }
    }
}

/// Multiplies every real number.
fn scale(words: &mut [u64], single: bool, factor: f64) {
    for word in words {
        *word = if single {
            let part = |bits: u32| u64::from((f32::from_bits(bits) * factor as f32).to_bits());
            part(*word as u32) | part((*word >> 32) as u32) << 32
        } else {
            (f64::from_bits(*word) * factor).to_bits()
        };
    }
}

impl Operands {
    /// Arguments for a call; `None` for a routine without a GPU path, sizes of 0 or beyond Fortran's INTEGER,
    /// and options that the GPU never gets.
    pub fn new(subject: Subject) -> Option<Self> {
        let family = subject.family();
        family.gate?;
        subject.routine()?;
        let (dims, options) = (subject.dims(), subject.options());
        let lapack = family.library == Library::Lapack;
        let legal = !lapack || options.are_routed() && options.agree(&dims);
        let sizes = [subject.m, subject.n, subject.k];
        if !legal || sizes.iter().any(|s| *s == 0 || i32::try_from(*s).is_err()) {
            return None;
        }
        let precision = subject.precision;
        let single = precision.real() == Precision::S;
        let args = family.args_of(precision);
        let mut operands = Self {
            subject,
            arguments: Vec::new(),
            buffers: Vec::new(),
        };
        let mut letters = subject.letters.iter();
        for (i, arg) in args.iter().enumerate() {
            let argument = match *arg {
                Arg::Letter { .. } => Argument::Letter(*letters.next()?),
                Arg::Size { name } => Argument::Integer(match name {
                    "m" => dims.m,
                    "n" => dims.n,
                    _ => dims.k,
                } as i64),
                Arg::Scalar { name, .. } => {
                    let value = match options.real(name) {
                        Some(value) if lapack => value,
                        _ if name == "beta" => 0.0,
                        _ => 1.0,
                    };
                    Argument::Scalar(match single {
                        true => [u64::from((value as f32).to_bits()), 0],
                        false => [value.to_bits(), 0],
                    })
                }
                Arg::Matrix { name, .. } => {
                    let shape = options.matrix(arg, &dims);
                    operands.matrix(shape, options.intent(arg)?, content(subject.op, name))?
                }
                Arg::Ld { .. } => Argument::Integer(operands.buffers.last()?.ld as i64),
                Arg::Vector { real, intent, .. } => {
                    let len = usize::try_from(options.vector(arg, &dims).unwrap_or(1)).ok()?;
                    let of = if real { precision.real() } else { precision };
                    let mut words = vec![0u64; (len * of.elem_bytes()).div_ceil(8) + 1];
                    // Only tau is read.
                    (0..len).for_each(|j| put(&mut words, of, j, 2.0));
                    operands.buffer(words, intent == Intent::InOut, What::Vector)
                }
                Arg::IntVector { .. } => {
                    let len = usize::try_from(options.vector(arg, &dims).unwrap_or(1)).ok()?;
                    // Pivots that exchange nothing.
                    let pair = |i: usize| (2 * i + 1) as u64 | ((2 * i + 2) as u64) << 32;
                    let words = (0..len.div_ceil(2) + 1).map(pair).collect();
                    operands.buffer(words, false, What::Vector)
                }
                Arg::Int { name } => Argument::Integer(options.int(name)?),
                Arg::Work { name } => {
                    if matches!(args.get(i + 1), Some(Arg::Lwork { .. })) {
                        operands.buffer(vec![0; 2], false, What::AskedWork)
                    } else {
                        let elems = work_elems(subject.op, name, &dims);
                        operands.buffer(vec![1; 2 * elems], false, What::Work)
                    }
                }
                Arg::Lwork { .. } => Argument::Integer(-1),
                Arg::Info => Argument::Integer(0),
                Arg::LetterInOut { .. } | Arg::Procedure { .. } | Arg::Extra { .. } => return None,
            };
            operands.arguments.push(argument);
        }
        Some(operands)
    }

    /// The call.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    fn buffer(&mut self, words: Vec<u64>, restored: bool, what: What) -> Argument {
        let kept = restored.then(|| words.clone());
        self.buffers.push(Buffer {
            words,
            kept,
            ld: 1,
            what,
        });
        Argument::Buffer(self.buffers.len() - 1)
    }

    fn matrix(
        &mut self,
        shape: Option<(u64, u64)>,
        intent: Intent,
        content: Content,
    ) -> Option<Argument> {
        let precision = self.subject.precision;
        let single = precision.real() == Precision::S;
        let (rows, cols) = shape.unwrap_or((1, 1));
        let (rows, cols) = (usize::try_from(rows).ok()?, usize::try_from(cols).ok()?);
        let bytes = rows
            .checked_mul(cols)?
            .checked_mul(precision.elem_bytes())?;
        let mut words = numbers(bytes.div_ceil(8), single);
        let square = rows.min(cols);
        match content {
            Content::Dominant => {
                (0..square)
                    .for_each(|i| put(&mut words, precision, i * rows + i, 2.0 * rows as f64));
            }
            Content::Reflectors => scale(&mut words, single, 1.0 / rows as f64),
            // A Hermitian matrix has a real diagonal.
            Content::Random if precision.is_complex() => {
                (0..square).for_each(|i| put(&mut words, precision, i * rows + i, 0.5));
            }
            Content::Random => {}
        }
        let overwritten = matches!(intent, Intent::InOut | Intent::Destroyed);
        let argument = self.buffer(words, overwritten && shape.is_some(), What::Matrix);
        self.buffers.last_mut()?.ld = rows;
        Some(argument)
    }

    /// Puts back what the last run has overwritten.
    pub(crate) fn restore(&mut self) {
        for buffer in &mut self.buffers {
            if let Some(kept) = &buffer.kept {
                buffer.words.copy_from_slice(kept);
            }
        }
    }

    /// Places of the workspaces whose lengths the routine tells: buffer and length argument.
    fn asked(&self) -> Vec<(usize, usize)> {
        let pairs = self.arguments.windows(2).enumerate();
        pairs
            .filter_map(|(i, pair)| match pair {
                [Argument::Buffer(b), Argument::Integer(_)]
                    if self.buffers[*b].what == What::AskedWork =>
                {
                    Some((*b, i + 1))
                }
                _ => None,
            })
            .collect()
    }

    /// True if the routine has to be asked for its workspaces before it runs.
    pub(crate) fn must_ask(&self) -> bool {
        !self.asked().is_empty()
    }

    /// Takes the lengths that a query has left in the workspaces' first elements.
    pub(crate) fn take_answer(&mut self) -> Option<()> {
        let precision = self.subject.precision;
        let args = self.subject.family().args_of(precision);
        for (buffer, length) in self.asked() {
            let Arg::Work { name } = args[length - 1] else {
                return None;
            };
            let first = self.buffers[buffer].words[0];
            let single = precision.real() == Precision::S;
            let elems = match (name, single) {
                ("iwork", _) => f64::from(first as i32),
                (_, true) => f64::from(f32::from_bits(first as u32)),
                (_, false) => f64::from_bits(first),
            };
            // float32 does not hold every length.
            let elems = (elems * (1.0 + 1e-6)).ceil();
            if !(0.0..=f64::from(i32::MAX)).contains(&elems) {
                return None;
            }
            let elems = (elems as usize).max(1);
            let elem_bytes = match name {
                "iwork" => 4,
                "rwork" => precision.real().elem_bytes(),
                _ => precision.elem_bytes(),
            };
            self.buffers[buffer].words = vec![1; (elems * elem_bytes).div_ceil(8) + 1];
            self.arguments[length] = Argument::Integer(elems as i64);
        }
        Some(())
    }

    /// LAPACK's info of the last run; 0 for BLAS.
    pub(crate) fn info(&self) -> i64 {
        match (self.subject.family().library, self.arguments.last()) {
            (Library::Lapack, Some(Argument::Integer(info))) => *info,
            _ => 0,
        }
    }

    /// The addresses of the arguments in Fortran's order, then 1 for each string length. What the addresses
    /// lead to is this object's own and stays where it is while it is borrowed.
    pub(crate) fn words(&mut self) -> [usize; MAX_WORDS] {
        let mut words = [1; MAX_WORDS];
        let Self {
            arguments, buffers, ..
        } = self;
        for (word, argument) in words.iter_mut().zip(arguments) {
            *word = match argument {
                Argument::Letter(letter) => (&raw mut *letter).addr_exposed(),
                Argument::Integer(value) => (&raw mut *value).addr_exposed(),
                Argument::Scalar(value) => (&raw mut *value).addr_exposed(),
                Argument::Buffer(b) => buffers[*b].words.as_mut_ptr().addr_exposed(),
            };
        }
        words
    }

    /// The address and leading dimension of a matrix by its name.
    fn named(&mut self, name: &str) -> RawMatrix {
        let args = self.subject.family().args_of(self.subject.precision);
        let place = args
            .iter()
            .position(|a| matches!(a, Arg::Matrix { .. }) && a.name() == name);
        match place.map(|i| &self.arguments[i]) {
            Some(Argument::Buffer(b)) => {
                let buffer = &mut self.buffers[*b];
                RawMatrix {
                    data: buffer.words.as_mut_ptr().cast(),
                    ld: buffer.ld as i64,
                }
            }
            _ => RawMatrix {
                data: core::ptr::null_mut(),
                ld: 0,
            },
        }
    }

    /// The call as a shim hands it to the engine, of a level-3 routine.
    pub(crate) fn level3(&mut self) -> RoutedCall {
        let subject = self.subject;
        let options = subject.options();
        let letter = |name: &str| options.letter(name);
        let overwrites = subject.result_is_read();
        let a = self.named("a");
        let b = if overwrites {
            self.named("none")
        } else {
            self.named("b")
        };
        let c = self.named(if overwrites { "b" } else { "c" });
        RoutedCall {
            struct_bytes: size_of::<RoutedCall>() as u32,
            op: subject.op as u32,
            precision: subject.precision as u8,
            side: letter("side"),
            uplo: letter("uplo"),
            transa: letter("transa").max(letter("trans")),
            transb: letter("transb"),
            diag: letter("diag"),
            reserved: [0; 2],
            m: subject.m as i64,
            n: subject.n as i64,
            k: subject.k as i64,
            alpha: [1.0, 0.0],
            beta: [if overwrites { 1.0 } else { 0.0 }, 0.0],
            a: a.data,
            lda: a.ld,
            b: b.data,
            ldb: b.ld,
            c: c.data,
            ldc: c.ld,
            host: core::ptr::null(),
            cpu: no_cpu,
            frame: core::ptr::null(),
        }
    }

    /// The same of a routine of LAPACK.
    pub(crate) fn lapack(&mut self) -> RoutedLapack {
        let subject = self.subject;
        let mut matrices = [RawMatrix {
            data: core::ptr::null_mut(),
            ld: 0,
        }; MAX_MATRICES];
        let mut vectors = [core::ptr::null_mut(); MAX_VECTORS];
        let of = |what: What| move |buffer: &&mut Buffer| buffer.what == what;
        let found = self.buffers.iter_mut().filter(of(What::Matrix));
        for (to, buffer) in matrices.iter_mut().zip(found) {
            *to = RawMatrix {
                data: buffer.words.as_mut_ptr().cast(),
                ld: buffer.ld as i64,
            };
        }
        let found = self.buffers.iter_mut().filter(of(What::Vector));
        for (to, buffer) in vectors.iter_mut().zip(found) {
            *to = buffer.words.as_mut_ptr().cast();
        }
        let info = match self.arguments.last_mut() {
            Some(Argument::Integer(info)) => (&raw mut *info).cast(),
            _ => core::ptr::null_mut(),
        };
        RoutedLapack {
            struct_bytes: size_of::<RoutedLapack>() as u32,
            op: subject.op as u32,
            precision: subject.precision as u8,
            integer_bytes: 4,
            reserved: [0; 2],
            letters: subject.letters,
            m: subject.m as i64,
            n: subject.n as i64,
            k: subject.k as i64,
            reals: subject.scalars().reals,
            ints: subject.scalars().ints,
            matrices,
            vectors,
            info,
            host: core::ptr::null(),
            cpu: no_cpu,
            frame: core::ptr::null(),
        }
    }
}

/// Stands in a call that no CPU routine is behind.
unsafe extern "C" fn no_cpu(_: *const c_void) {}

/// The address of something whose provenance a foreign function gets back by it.
trait AddrExposed {
    fn addr_exposed(self) -> usize;
}

impl<T> AddrExposed for *mut T {
    fn addr_exposed(self) -> usize {
        self.expose_provenance()
    }
}
