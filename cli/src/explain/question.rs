//! The words of `gpu-offload explain dgesdd 3000 2000 S`: a routine, its sizes, its option letters.
//!
//! Everything is read by the routine table, so that a new routine needs nothing here.

use anyhow::{Result, bail, ensure};
use routines::{
    Arg, Dims, Family, Library, Op, Options, Precision, Scalars, Shape, families, routed,
};

/// The largest size that is accepted: an INTEGER of four bytes.
const MOST: u64 = i32::MAX as u64;

/// A call as a person describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// "dgesdd".
    pub routine: String,
    /// The sizes by name, in the order of the routine's arguments.
    pub sizes: Vec<(&'static str, u64)>,
    /// The option letters in the order of the routine's arguments, with their names.
    pub letters: Vec<(&'static str, u8)>,
    op: Op,
    precision: Precision,
    beta_zero: bool,
}

/// A routine of the table by its name in any case, with or without the underscore of Fortran or the prefix
/// of C.
///
/// # Errors
/// One line with the nearest names for one that the table lacks, and one for a routine that the GPU never
/// gets.
pub fn routine(name: &str) -> Result<(&'static Family, Precision, String)> {
    let lower = name.to_ascii_lowercase();
    let plain = lower.trim_end_matches('_');
    let plain = plain.strip_prefix("cblas_").unwrap_or(plain);
    if let Some((family, precision, name)) = routed().find(|(_, _, name)| name == plain) {
        return Ok((family, precision, name));
    }
    let known = families().any(|f| f.routines().any(|(_, name)| name == plain));
    let mut near: Vec<(usize, String)> = routed()
        .map(|(_, _, name)| (strsim::damerau_levenshtein(plain, &name), name))
        .collect();
    near.sort();
    let near: Vec<String> = near.into_iter().take(3).map(|(_, name)| name).collect();
    ensure!(
        !known,
        "{plain} has no GPU path: its calls are the CPU library's own; accepted: a routine with one, such as {}",
        near.join(", ")
    );
    bail!(
        "routine {name:?} is not known; accepted: a routine with a GPU path, such as {}",
        near.join(", ")
    )
}

/// What an option stands at where nothing is said.
fn usual(op: Op, name: &str, accepted: &str) -> u8 {
    let wanted = match (op, name) {
        (Op::Gesdd, "jobz") | (_, "jobu" | "jobvt") => b'S',
        (_, "jobz" | "jobvr") => b'V',
        (_, "jobvl" | "transa" | "transb" | "trans" | "diag") => b'N',
        (_, "range") => b'A',
        _ => b'L',
    };
    let accepted = accepted.as_bytes();
    if accepted.contains(&wanted) {
        wanted
    } else {
        accepted.first().copied().unwrap_or(0)
    }
}

impl Question {
    /// Reads a routine's name and what follows it.
    ///
    /// # Errors
    /// One line: what is wrong, and what is accepted.
    pub fn read(name: &str, words: &[String]) -> Result<Self> {
        let (family, precision, routine) = routine(name)?;
        let args = family.args_of(precision);
        let names: Vec<&'static str> = args
            .iter()
            .filter_map(|arg| match arg {
                Arg::Size { name } => Some(*name),
                _ => None,
            })
            .collect();
        let options: Vec<(&'static str, &'static str)> = args
            .iter()
            .filter_map(|arg| match arg {
                Arg::Letter { name, accepted } => Some((*name, *accepted)),
                _ => None,
            })
            .collect();
        let usage = || {
            let options: Vec<String> = options
                .iter()
                .map(|(name, accepted)| format!("{name} ({})", spaced(accepted)))
                .collect();
            let options = match options.is_empty() {
                true => String::new(),
                false => format!(", then option letters {}", options.join(", ")),
            };
            format!(
                "accepted: {routine} {} (or one size for all){options}",
                names.join(" ").to_uppercase()
            )
        };
        let (numbers, letters): (Vec<&String>, Vec<&String>) = words
            .iter()
            .partition(|w| w.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+'));
        let mut given = Vec::new();
        for number in numbers {
            match number.parse::<u64>() {
                Ok(size) if (1..=MOST).contains(&size) => given.push(size),
                _ => bail!(
                    "size {number:?} is not accepted; accepted: a whole number from 1 to {MOST}"
                ),
            }
        }
        let right_sides = names.last() == Some(&"nrhs");
        if given.len() == 1 {
            given.resize(names.len() - usize::from(right_sides), given[0]);
        }
        if right_sides && given.len() + 1 == names.len() {
            given.push(1);
        }
        ensure!(
            given.len() == names.len(),
            "{routine} has {} sizes, {} are given; {}",
            names.len(),
            given.len(),
            usage()
        );
        let letters: Vec<u8> = letters
            .iter()
            .flat_map(|word| word.bytes())
            .map(|letter| letter.to_ascii_uppercase())
            .collect();
        ensure!(
            letters.len() <= options.len(),
            "{routine} has {} option letters, {} are given; {}",
            options.len(),
            letters.len(),
            usage()
        );
        let mut chosen = Vec::new();
        for (i, &(name, accepted)) in options.iter().enumerate() {
            let letter = match letters.get(i) {
                Some(letter) => *letter,
                None => usual(family.op, name, accepted),
            };
            ensure!(
                accepted.as_bytes().contains(&letter),
                "{routine}: {name} {:?} is not accepted; accepted: {}",
                char::from(letter),
                spaced(accepted)
            );
            chosen.push((name, letter));
        }
        let question = Self {
            routine: routine.clone(),
            sizes: names.iter().copied().zip(given).collect(),
            letters: chosen,
            op: family.op,
            precision,
            beta_zero: !matches!(family.op, Op::Trmm | Op::Trsm),
        };
        if family.library == Library::Lapack {
            let letters = question.letter_array();
            let scalars = Scalars::usual(family, precision, question.dims().n);
            let options = Options::new(family, precision, letters).with(scalars);
            ensure!(
                options.are_routed(),
                "{} with {}: the GPU never gets such calls",
                question.routine,
                question.letters_text()
            );
            ensure!(
                options.agree(&question.dims()),
                "{}: {} contradict each other; {}",
                question.routine,
                question.sizes_text(),
                usage()
            );
        }
        Ok(question)
    }

    /// The same call with a result that is read as well (beta is not 0).
    pub fn reading_result(self) -> Self {
        Self {
            beta_zero: false,
            ..self
        }
    }

    /// The family.
    pub fn family(&self) -> &'static Family {
        routines::family(self.op)
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.sizes.iter().find(|s| s.0 == name).map(|s| s.1)
    }

    fn letter_array(&self) -> [u8; 4] {
        let mut letters = [0; 4];
        for (to, from) in letters.iter_mut().zip(&self.letters) {
            *to = from.1;
        }
        letters
    }

    /// The sizes as the table's formulas take them.
    pub fn dims(&self) -> Dims {
        let n = self.size("n").unwrap_or(1);
        let m = self.size("m").unwrap_or(n);
        let right = self.letters.contains(&("side", b'R'));
        let order = if right { n } else { m };
        let sided = matches!(self.op, Op::Symm | Op::Hemm | Op::Trmm | Op::Trsm);
        let k = self.size("k").or(self.size("nrhs"));
        Dims {
            m,
            n,
            k: k.unwrap_or(if sided { order } else { n }),
            right,
        }
    }

    /// The call as the cost model sees it.
    pub fn shape(&self) -> Shape {
        let dims = self.dims();
        if self.family().library == Library::Lapack {
            return Shape::of_lapack(self.op, self.precision, &dims, self.letter_array());
        }
        Shape {
            op: self.op,
            precision: self.precision,
            m: dims.m,
            n: dims.n,
            k: dims.k,
            right: dims.right,
            beta_zero: self.beta_zero,
            letters: [0; 4],
        }
    }

    /// The largest size.
    pub fn edge(&self) -> u64 {
        self.sizes.iter().map(|s| s.1).max().unwrap_or(1)
    }

    /// The same call with the largest size `edge`: sizes of at least an eighth of it go along, thinner ones
    /// stay as they are.
    pub fn scaled(&self, edge: u64) -> Self {
        let largest = self.edge();
        let sizes = self.sizes.iter().map(|&(name, size)| {
            let goes_along = size.saturating_mul(8) >= largest;
            let scaled = (size as f64 * edge as f64 / largest as f64).round() as u64;
            let size = match goes_along {
                true => scaled.max(1),
                // A thin size does not become the largest.
                false => size.min(edge),
            };
            (name, size)
        });
        Self {
            sizes: sizes.collect(),
            ..self.clone()
        }
    }

    /// "m = 4000, n = 4000, k = 64".
    pub fn sizes_text(&self) -> String {
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(name, size)| format!("{name} = {size}"))
            .collect();
        sizes.join(", ")
    }

    /// "jobz V, uplo L"; empty where the routine has no options.
    pub fn letters_text(&self) -> String {
        let letters: Vec<String> = self
            .letters
            .iter()
            .map(|(name, letter)| format!("{name} {}", char::from(*letter)))
            .collect();
        letters.join(", ")
    }

    /// Bytes of the inputs with these names ("A", "b").
    ///
    /// # Errors
    /// For a name that is no input of the routine.
    pub fn input_bytes(&self, wanted: &[String]) -> Result<u64> {
        let family = self.family();
        let dims = self.dims();
        let options = Options::new(family, self.precision, self.letter_array());
        let inputs: Vec<(&'static str, u64)> = family
            .args_of(self.precision)
            .iter()
            .filter_map(|arg| {
                let Arg::Matrix {
                    name, part, intent, ..
                } = *arg
                else {
                    return None;
                };
                let read = match intent {
                    routines::Intent::Out => false,
                    routines::Intent::Accumulated => !self.beta_zero,
                    _ => true,
                };
                let (rows, cols) = options.matrix(arg, &dims).filter(|_| read)?;
                let elems = match part {
                    routines::Part::Full => rows.saturating_mul(cols),
                    _ => rows.saturating_mul(rows + 1) / 2,
                };
                Some((
                    name,
                    elems.saturating_mul(self.precision.elem_bytes() as u64),
                ))
            })
            .collect();
        let mut sum = 0u64;
        for name in wanted {
            let found = inputs.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
            let accepted: Vec<String> = inputs.iter().map(|(n, _)| n.to_uppercase()).collect();
            match found {
                Some((_, bytes)) => sum = sum.saturating_add(*bytes),
                None => bail!(
                    "{name:?} is no input of {}; accepted: {}",
                    self.routine,
                    accepted.join(", ")
                ),
            }
        }
        Ok(sum)
    }
}

fn spaced(accepted: &str) -> String {
    let letters: Vec<String> = accepted.chars().map(String::from).collect();
    letters.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Question> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let name = words.next().unwrap_or_default();
        Question::read(&name, &words.collect::<Vec<_>>())
    }

    fn product(text: &str) -> (u64, u64, u64) {
        let shape = read(text).expect(text).shape();
        (shape.m, shape.n, shape.k)
    }

    #[test]
    fn sizes_are_those_of_the_routines_arguments() {
        assert_eq!(product("dgemm 4000 3000 64"), (4000, 3000, 64));
        assert_eq!(product("DGEMM_ 4000"), (4000, 4000, 4000));
        assert_eq!(product("cblas_ssyrk 500 70"), (500, 500, 70));
        assert_eq!(product("dtrsm 300 200"), (300, 200, 300));
        assert_eq!(product("dtrsm 300 200 R"), (300, 200, 200));
        assert_eq!(product("dgesv 3000"), (3000, 3000, 1));
        assert_eq!(product("dgesv 3000 7"), (3000, 3000, 7));
        assert_eq!(product("dgesdd 3000 2000 S"), (3000, 2000, 2000));
        assert_eq!(product("dorgqr 900 800 700"), (900, 800, 700));
    }

    #[test]
    fn letters_stand_in_the_order_of_the_arguments_and_default_to_the_usual() {
        let letters = |text: &str| read(text).expect(text).letters_text();
        assert_eq!(letters("dsyevd 3000"), "jobz V, uplo L");
        assert_eq!(letters("dsyevd 3000 nu"), "jobz N, uplo U");
        assert_eq!(letters("dgesdd 3000"), "jobz S");
        assert_eq!(letters("zgeev 10 N V"), "jobvl N, jobvr V");
        assert_eq!(letters("dgetrf 10"), "");
        assert_eq!(letters("dsyevr 10"), "jobz V, range A, uplo L");
    }

    #[test]
    fn what_is_wrong_is_one_line_with_what_is_accepted() {
        for (text, says) in [
            ("dgem 100", "dgemm"),
            ("dsyedv 100", "dsyevd"),
            ("dsytrf 100", "no GPU path"),
            ("dgemm", "M N K"),
            ("dgemm 1 2", "3 sizes, 2 are given"),
            ("dgemm 0", "from 1 to"),
            ("dgemm -5", "from 1 to"),
            ("dgemm 1e4", "from 1 to"),
            ("dgemm 99999999999", "from 1 to"),
            ("dsyevd 100 X", "jobz 'X' is not accepted; accepted: N V"),
            ("dsyevd 100 VLL", "2 option letters, 3 are given"),
            ("dgesvd 100 OO", "never gets"),
            ("dorgqr 5 6 7", "contradict"),
        ] {
            let line = format!("{:#}", read(text).expect_err(text));
            assert!(
                line.contains(says) && !line.contains('\n'),
                "{text}: {line}"
            );
        }
    }

    #[test]
    fn thin_sizes_stay_when_a_call_is_scaled() {
        let sizes = |text: &str, edge| read(text).expect(text).scaled(edge).sizes_text();
        assert_eq!(
            sizes("dgemm 4000 2000 64", 8000),
            "m = 8000, n = 4000, k = 64"
        );
        assert_eq!(sizes("dgemm 4000 2000 64", 32), "m = 32, n = 16, k = 32");
        assert_eq!(sizes("dgesv 3000", 100), "n = 100, nrhs = 1");
    }

    #[test]
    fn resident_inputs_are_counted_by_name() {
        let q = read("dgemm 10 20 30").expect("a call");
        assert_eq!(q.input_bytes(&["A".into()]).expect("an input"), 8 * 10 * 30);
        assert_eq!(
            q.input_bytes(&["a".into(), "b".into()]).expect("inputs"),
            8 * (10 * 30 + 30 * 20)
        );
        let line = q
            .input_bytes(&["c".into()])
            .expect_err("beta is 0")
            .to_string();
        assert!(line.contains("accepted: A, B"), "{line}");
        let read_too = q.reading_result().input_bytes(&["C".into()]);
        assert_eq!(read_too.expect("an input"), 8 * 10 * 20);
        let lapack = read("dpotrf 10").expect("a call");
        assert_eq!(lapack.input_bytes(&["A".into()]).expect("an input"), 8 * 55);
    }
}
