//! What a LAPACK routine's option letters say of its operands: which are referenced, how large they are and
//! what becomes of them. The reader, the engine and the tests ask here, so that none has a formula of its own.

use crate::{Arg, Dims, Extent, Family, Intent, Op, Precision};

/// The most option letters of a routine whose calls pass the door.
pub const MAX_LETTERS: usize = 4;

/// Option letters from text such as "VL": zeros beyond the last, and nothing beyond [`MAX_LETTERS`].
pub fn option_letters(text: &str) -> [u8; MAX_LETTERS] {
    let mut letters = [0; MAX_LETTERS];
    for (to, from) in letters.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    letters
}

/// The most real input scalars of a routine (syevr: vl, vu, abstol).
pub const MAX_REALS: usize = 3;

/// The most INTEGER input scalars of a routine that are no sizes (sygvx: itype, il, iu).
pub const MAX_INTS: usize = 3;

/// The input scalars of a call of LAPACK that are no sizes, each kind in the order of the routine's arguments;
/// zeros beyond the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scalars {
    /// Real ones (vl, vu, abstol, rcond); widened to f64, which is exact for f32.
    pub reals: [f64; MAX_REALS],
    /// INTEGER ones (itype, il, iu, ilo, ihi).
    pub ints: [i64; MAX_INTS],
}

impl Scalars {
    /// Those of a call of order n of which nothing else is known: the whole spectrum, LAPACK's own tolerances, and
    /// the first type of problem.
    pub fn usual(family: &Family, precision: Precision, n: u64) -> Self {
        let mut scalars = Self::default();
        let (mut reals, mut ints) = (scalars.reals.iter_mut(), scalars.ints.iter_mut());
        for arg in family.args_of(precision) {
            match *arg {
                Arg::Scalar { name, .. } => {
                    if let Some(to) = reals.next() {
                        *to = match name {
                            "vl" => f64::NEG_INFINITY,
                            "vu" => f64::INFINITY,
                            // rcond: that of the machine.
                            "rcond" => -1.0,
                            _ => 0.0,
                        };
                    }
                }
                Arg::Int { name } => {
                    if let Some(to) = ints.next() {
                        *to = match name {
                            "iu" | "ihi" => i64::try_from(n).unwrap_or(i64::MAX),
                            _ => 1,
                        };
                    }
                }
                _ => {}
            }
        }
        scalars
    }
}

/// The option letters and input scalars of one call with the row that gives them a meaning.
///
/// # Source
/// The routines' own argument checks and comments, LAPACK 3.12.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    family: &'a Family,
    precision: Precision,
    letters: [u8; MAX_LETTERS],
    scalars: Scalars,
}

impl<'a> Options<'a> {
    /// The letters, upper case, in the order of the routine's arguments, of a call of this routine.
    pub fn new(family: &'a Family, precision: Precision, letters: [u8; MAX_LETTERS]) -> Self {
        Self {
            family,
            precision,
            letters,
            scalars: Scalars::default(),
        }
    }

    /// The same of a call with these input scalars.
    pub fn with(self, scalars: Scalars) -> Self {
        Self { scalars, ..self }
    }

    /// The family.
    pub(crate) fn op(&self) -> Op {
        self.family.op
    }

    /// Element type.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// The real input scalar with this name, `None` where the routine lacks it.
    pub fn real(&self, name: &str) -> Option<f64> {
        let args = self.family.args_of(self.precision).iter();
        let reals = args.filter(|arg| matches!(arg, Arg::Scalar { .. }));
        let mut named = reals.zip(self.scalars.reals);
        named.find_map(|(arg, value)| (arg.name() == name).then_some(value))
    }

    /// The INTEGER input scalar with this name, `None` where the routine lacks it.
    pub fn int(&self, name: &str) -> Option<i64> {
        let args = self.family.args_of(self.precision).iter();
        let ints = args.filter(|arg| matches!(arg, Arg::Int { .. }));
        let mut named = ints.zip(self.scalars.ints);
        named.find_map(|(arg, value)| (arg.name() == name).then_some(value))
    }

    /// il and iu, where the routine has them and both are positive and in order.
    fn numbers(&self) -> Option<(u64, u64)> {
        let positive = |name| u64::try_from(self.int(name)?).ok().filter(|i| *i > 0);
        let (il, iu) = (positive("il")?, positive("iu")?);
        (il <= iu).then_some((il, iu))
    }

    /// Every combination of a routine's letters that [`Options::are_routed`] accepts.
    pub fn every_routed(family: &Family, precision: Precision) -> Vec<[u8; MAX_LETTERS]> {
        let mut all = vec![[0; MAX_LETTERS]];
        let accepted = family
            .args_of(precision)
            .iter()
            .filter_map(|arg| match *arg {
                Arg::Letter { accepted, .. } => Some(accepted),
                _ => None,
            });
        for (place, accepted) in accepted.enumerate() {
            let with = |before: &[u8; MAX_LETTERS]| {
                let before = *before;
                accepted.bytes().map(move |letter| {
                    let mut after = before;
                    after[place] = letter;
                    after
                })
            };
            all = all.iter().flat_map(with).collect();
        }
        all.retain(|letters| Options::new(family, precision, *letters).are_routed());
        all
    }

    /// The letter of the option with this name, 0 where the routine lacks it.
    pub fn letter(&self, name: &str) -> u8 {
        let args = self.family.args_of(self.precision).iter();
        let letters = args.filter(|arg| matches!(arg, Arg::Letter { .. }));
        letters
            .zip(self.letters)
            .find(|(arg, _)| arg.name() == name)
            .map_or(0, |(_, letter)| letter)
    }

    /// Whether these letters are legal together, and of a kind that the GPU path knows.
    pub fn are_routed(&self) -> bool {
        let args = self.family.args_of(self.precision).iter();
        let letters = args.filter_map(|arg| match arg {
            Arg::Letter { accepted, .. } => Some(*accepted),
            _ => None,
        });
        let mut rest = self.letters.iter();
        let each = letters
            .zip(&mut rest)
            .all(|(accepted, letter)| accepted.as_bytes().contains(letter));
        each && rest.all(|letter| *letter == 0)
            && match self.family.op {
                // A holds one set of vectors only.
                Op::Gesvd => (self.letter("jobu"), self.letter("jobvt")) != (b'O', b'O'),
                _ => true,
            }
    }

    /// Whether these sizes and the input scalars are legal together; all sizes are positive.
    pub fn agree(&self, dims: &Dims) -> bool {
        let sizes = match self.family.op {
            Op::Orgqr => dims.m >= dims.n && dims.n >= dims.k,
            Op::Ormqr => dims.k <= dims.get(crate::Dim::Order),
            _ => true,
        };
        let range = match self.letter("range") {
            // NaN is legal, but in no order.
            b'V' => self.real("vl") < self.real("vu"),
            b'I' => self.numbers().is_some_and(|(_, iu)| iu <= dims.n),
            _ => true,
        };
        sizes
            && range
            && self
                .int("itype")
                .is_none_or(|itype| (1..=3).contains(&itype))
    }

    /// Rows and columns of a matrix argument, `None` where the options leave it unreferenced. Its leading
    /// dimension is at least the number of rows, and at least 1 where it is unreferenced.
    pub fn matrix(&self, arg: &Arg, dims: &Dims) -> Option<(u64, u64)> {
        let Arg::Matrix {
            name, rows, cols, ..
        } = *arg
        else {
            return None;
        };
        let least = dims.m.min(dims.n);
        match (self.family.op, name) {
            (Op::Gesdd, "u") => match self.letter("jobz") {
                b'A' => Some((dims.m, dims.m)),
                b'S' => Some((dims.m, least)),
                b'O' if dims.m < dims.n => Some((dims.m, dims.m)),
                _ => None,
            },
            (Op::Gesdd, "vt") => match self.letter("jobz") {
                b'A' => Some((dims.n, dims.n)),
                b'S' => Some((least, dims.n)),
                b'O' if dims.m >= dims.n => Some((dims.n, dims.n)),
                _ => None,
            },
            (Op::Gesvd, "u") => match self.letter("jobu") {
                b'A' => Some((dims.m, dims.m)),
                b'S' => Some((dims.m, least)),
                _ => None,
            },
            (Op::Gesvd, "vt") => match self.letter("jobvt") {
                b'A' => Some((dims.n, dims.n)),
                b'S' => Some((least, dims.n)),
                _ => None,
            },
            (Op::Syevr | Op::Syevx | Op::Sygvx, "z") => {
                // Of an interval no more columns than the values in it need be there.
                let columns = match self.numbers() {
                    Some((il, iu)) if self.letter("range") == b'I' => iu + 1 - il,
                    _ => dims.n,
                };
                (self.letter("jobz") == b'V').then_some((dims.n, columns))
            }
            (Op::Geev, "vl") => (self.letter("jobvl") == b'V').then_some((dims.n, dims.n)),
            (Op::Geev, "vr") => (self.letter("jobvr") == b'V').then_some((dims.n, dims.n)),
            _ => {
                let extent = |e: Extent| match e {
                    Extent::ByTrans(by, _, other) if self.letter(by) != b'N' => dims.get(other),
                    e => dims.get(e.plain()),
                };
                Some((extent(rows), extent(cols)))
            }
        }
    }

    /// Elements of a vector argument, `None` where the options leave it unreferenced.
    pub fn vector(&self, arg: &Arg, dims: &Dims) -> Option<u64> {
        match *arg {
            Arg::Vector { len, .. } => Some(dims.get(len)),
            // Filled by the routine that computes the vectors, of the whole spectrum only.
            Arg::IntVector {
                name: "isuppz",
                len,
                ..
            } => {
                let whole = match self.letter("range") {
                    b'I' => self.numbers() == Some((1, dims.n)),
                    range => range == b'A',
                };
                (whole && self.letter("jobz") == b'V').then(|| dims.get(len))
            }
            Arg::IntVector {
                name: "ifail", len, ..
            } => (self.letter("jobz") == b'V').then(|| dims.get(len)),
            Arg::IntVector { len, .. } => Some(dims.get(len)),
            _ => None,
        }
    }

    /// What becomes of a matrix or vector argument: the row's intent, but for matrices that an option fills
    /// with vectors.
    pub fn intent(&self, arg: &Arg) -> Option<Intent> {
        let intent = match *arg {
            Arg::Matrix { intent, .. }
            | Arg::Vector { intent, .. }
            | Arg::IntVector { intent, .. } => intent,
            _ => return None,
        };
        let overwritten = match self.family.op {
            Op::Gesdd => self.letter("jobz") == b'O',
            Op::Gesvd => self.letter("jobu") == b'O' || self.letter("jobvt") == b'O',
            _ => false,
        };
        Some(match intent {
            Intent::Destroyed if overwritten => Intent::InOut,
            intent => intent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{families, family};

    fn dims(m: u64, n: u64) -> Dims {
        Dims {
            m,
            n,
            k: n,
            right: false,
        }
    }

    fn shape(op: Op, letters: &[u8], name: &str, (m, n): (u64, u64)) -> Option<(u64, u64)> {
        let row = family(op);
        let mut all = [0; MAX_LETTERS];
        all[..letters.len()].copy_from_slice(letters);
        let arg = row.args.iter().find(|arg| arg.name() == name);
        Options::new(row, Precision::D, all).matrix(arg.expect("an argument"), &dims(m, n))
    }

    /// From the comments of dgesdd.f and dgesvd.f.
    #[test]
    fn vectors_of_the_svd_by_job() {
        let (tall, wide) = ((7, 3), (3, 7));
        let gesdd = |job: u8, name, size| shape(Op::Gesdd, &[job], name, size);
        assert_eq!(gesdd(b'A', "u", tall), Some((7, 7)));
        assert_eq!(gesdd(b'S', "u", tall), Some((7, 3)));
        assert_eq!(gesdd(b'O', "u", tall), None);
        assert_eq!(gesdd(b'O', "vt", tall), Some((3, 3)));
        assert_eq!(gesdd(b'O', "u", wide), Some((3, 3)));
        assert_eq!(gesdd(b'O', "vt", wide), None);
        assert_eq!(gesdd(b'A', "vt", wide), Some((7, 7)));
        assert_eq!(gesdd(b'S', "vt", wide), Some((3, 7)));
        assert_eq!(gesdd(b'N', "u", wide), None);
        assert_eq!(gesdd(b'N', "a", wide), Some((3, 7)));
        let gesvd = |jobs: &[u8; 2], name, size| shape(Op::Gesvd, jobs, name, size);
        assert_eq!(gesvd(b"OS", "u", tall), None);
        assert_eq!(gesvd(b"OS", "vt", tall), Some((3, 3)));
        assert_eq!(gesvd(b"AN", "u", tall), Some((7, 7)));
        assert_eq!(gesvd(b"AN", "vt", tall), None);
    }

    /// From the comments of dsyevr.f and dsyevx.f.
    #[test]
    fn vectors_and_supports_by_range() {
        let shapes = |op, letters: &str, il, iu| {
            let ints = [il, iu, 0];
            let options =
                Options::new(family(op), Precision::D, option_letters(letters)).with(Scalars {
                    ints,
                    ..Scalars::default()
                });
            let args = family(op).args.iter();
            let (mut z, mut last) = (None, None);
            args.for_each(|arg| match arg {
                Arg::Matrix { name: "z", .. } => z = options.matrix(arg, &dims(5, 5)),
                Arg::IntVector { name, .. } if *name != "m" => {
                    last = options.vector(arg, &dims(5, 5))
                }
                _ => {}
            });
            (z, last)
        };
        assert_eq!(shapes(Op::Syevr, "VAU", 0, 0), (Some((5, 5)), Some(10)));
        assert_eq!(shapes(Op::Syevr, "VIU", 1, 5), (Some((5, 5)), Some(10)));
        assert_eq!(shapes(Op::Syevr, "VIU", 2, 4), (Some((5, 3)), None));
        assert_eq!(shapes(Op::Syevr, "VVU", 0, 0), (Some((5, 5)), None));
        assert_eq!(shapes(Op::Syevr, "NAU", 0, 0), (None, None));
        assert_eq!(shapes(Op::Syevx, "VIU", 2, 4), (Some((5, 3)), Some(5)));
        assert_eq!(shapes(Op::Syevx, "NIU", 2, 4), (None, None));
    }

    #[test]
    fn a_holds_vectors_only_with_option_o() {
        let intent = |op, letters| {
            let row = family(op);
            let options = Options::new(row, Precision::D, letters);
            options.intent(row.args.iter().find(|arg| arg.name() == "a").expect("a"))
        };
        assert_eq!(intent(Op::Gesdd, [b'O', 0, 0, 0]), Some(Intent::InOut));
        assert_eq!(intent(Op::Gesdd, [b'S', 0, 0, 0]), Some(Intent::Destroyed));
        assert_eq!(intent(Op::Gesvd, [b'N', b'O', 0, 0]), Some(Intent::InOut));
        assert_eq!(
            intent(Op::Geev, [b'N', b'N', 0, 0]),
            Some(Intent::Destroyed)
        );
    }

    #[test]
    fn letters_are_judged_together() {
        let routed = |op, precision, letters: &[u8]| {
            let mut all = [0; MAX_LETTERS];
            all[..letters.len()].copy_from_slice(letters);
            Options::new(family(op), precision, all).are_routed()
        };
        assert!(routed(Op::Gesvd, Precision::D, b"OA"));
        assert!(!routed(Op::Gesvd, Precision::D, b"OO"));
        assert!(!routed(Op::Gesvd, Precision::D, b"O"));
        assert!(!routed(Op::Gesvd, Precision::D, b"OAA"));
        assert!(routed(Op::Syevr, Precision::Z, b"NAL"));
        assert!(routed(Op::Syevr, Precision::Z, b"NIL"));
        assert!(routed(Op::Ormqr, Precision::Z, b"LC"));
        assert!(!routed(Op::Ormqr, Precision::Z, b"LT"));
        assert!(routed(Op::Getrf, Precision::S, b""));
    }

    /// From the argument checks of dsyevr.f and dsygv.f.
    #[test]
    fn scalars_are_judged_with_the_sizes() {
        let agree = |op, letters: &str, reals: [f64; 3], ints: [i64; 3]| {
            Options::new(family(op), Precision::D, option_letters(letters))
                .with(Scalars { reals, ints })
                .agree(&dims(5, 5))
        };
        let range = |il, iu| agree(Op::Syevr, "VIU", [0.0; 3], [il, iu, 0]);
        assert!(range(1, 5) && range(5, 5) && range(2, 3));
        assert!(!range(0, 5) && !range(1, 6) && !range(3, 2) && !range(1, i64::MIN));
        let interval = |vl, vu| agree(Op::Syevr, "NVU", [vl, vu, 0.0], [0; 3]);
        assert!(interval(-1.0, 2.0) && interval(f64::NEG_INFINITY, f64::INFINITY));
        assert!(!interval(2.0, 2.0) && !interval(2.0, 1.0) && !interval(f64::NAN, 1.0));
        assert!(agree(Op::Syevr, "NAU", [0.0; 3], [0; 3]));
        let itype = |itype| agree(Op::Sygv, "VU", [0.0; 3], [itype, 0, 0]);
        assert!(itype(1) && itype(3));
        assert!(!itype(0) && !itype(4));
    }

    #[test]
    fn usual_scalars_are_legal_and_ask_for_everything() {
        for f in families().filter(|f| f.library == crate::Library::Lapack) {
            for (precision, name) in f.routines() {
                let args = f.args_of(precision).iter();
                let (mut reals, mut ints) = (0, 0);
                args.for_each(|arg| match arg {
                    Arg::Scalar { .. } => reals += 1,
                    Arg::Int { .. } => ints += 1,
                    _ => {}
                });
                assert!(reals <= MAX_REALS && ints <= MAX_INTS, "{name}");
            }
        }
        let row = family(Op::Syevx);
        for letters in ["VAU", "VVU", "VIU"] {
            let usual = Scalars::usual(row, Precision::Z, 5);
            let options = Options::new(row, Precision::Z, option_letters(letters)).with(usual);
            assert!(options.agree(&dims(5, 5)), "{letters}");
            assert_eq!((options.int("il"), options.int("iu")), (Some(1), Some(5)));
            assert_eq!(
                (options.real("abstol"), options.real("rcond")),
                (Some(0.0), None)
            );
        }
    }

    /// Each option of each routed routine takes its letters and nothing else; the reader gives upper-case ones.
    #[test]
    fn only_the_reference_s_letters_are_routed() {
        for (row, precision, name) in crate::routed_in(crate::Library::Lapack) {
            let accepted: Vec<&str> = row
                .args_of(precision)
                .iter()
                .filter_map(|arg| match arg {
                    Arg::Letter { accepted, .. } => Some(*accepted),
                    _ => None,
                })
                .collect();
            let mut legal = [0; MAX_LETTERS];
            for (letter, accepted) in legal.iter_mut().zip(&accepted) {
                *letter = accepted.as_bytes()[0];
            }
            assert!(Options::new(row, precision, legal).are_routed(), "{name}");
            for place in 0..MAX_LETTERS {
                for letter in 0..=u8::MAX {
                    let mut letters = legal;
                    letters[place] = letter;
                    let known = match accepted.get(place) {
                        Some(accepted) => accepted.as_bytes().contains(&letter),
                        None => letter == 0,
                    };
                    let routed = Options::new(row, precision, letters).are_routed();
                    let shown = char::from(letter);
                    assert!(known || !routed, "{name}: {shown:?} at {place}");
                    assert!(!known || routed, "{name}: {shown:?} at {place}");
                }
            }
        }
    }

    /// The generic rule serves every matrix that no option changes, so a routed family that has such an
    /// option must stand above.
    #[test]
    fn every_pure_output_matrix_has_its_rule() {
        for f in families().filter(|f| f.gate.is_some() && f.library == crate::Library::Lapack) {
            let letters = [b'N'; MAX_LETTERS];
            for arg in f.args {
                if let Arg::Matrix {
                    intent: Intent::Out,
                    ..
                } = arg
                {
                    let options = Options::new(f, Precision::D, letters);
                    assert_eq!(options.matrix(arg, &dims(3, 3)), None, "{:?} {arg:?}", f.op);
                }
            }
        }
    }
}
