//! Where the pinned OpenBLAS itself differs from the reference, as data with a reason each.
//!
//! An exception is a line that a case's program may print as WRONG. One that is never printed any more
//! fails the case, so that the list cannot outlive its reasons.

/// One known difference.
pub struct Exception {
    /// Every WRONG line that contains all of these words is meant.
    pub words: &'static [&'static str],
    /// Why it is there and harmless enough to ship.
    pub reason: &'static str,
}

/// Differences in how LAPACK reports illegal arguments.
pub const ILLEGAL_LAPACK: &[Exception] = &[Exception {
    words: &["getrs_", "expected info"],
    reason: "OpenBLAS's own getrs reports through xerbla_ and leaves info as it was",
}];

/// Panics unless two outputs of `semantics.c` agree to the last bit, but for the lines of complex gemmtr and
/// gemmt with a conjugated second factor (the first one in row-major order): OpenBLAS 0.3.29 changes that
/// operand (its issue 5111), so libblas.so.3 computes these calls by another way; and but for sgemm and dgemm with
/// alpha = 0 where the archive is wrong about that call (on CPUs with AVX-512 it reads NaN of A and B).
#[track_caller]
pub fn same_bits(got: &str, output_of_archive: &str, row_major: bool) {
    let is_ours = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let variant = words.next().unwrap_or_default();
        let letter = variant.chars().nth(usize::from(!row_major));
        ["cgemmtr", "zgemmtr", "cgemmt", "zgemmt"].contains(&name) && letter == Some('C')
    };
    let compared = |output| -> Vec<&str> {
        let lines = str::lines(output);
        lines
            .filter(|line| !line.starts_with("WRONG") && !is_ours(line))
            .collect()
    };
    let (got, archive) = (compared(got), compared(output_of_archive));
    assert_eq!(
        got.len(),
        archive.len(),
        "the programs made different calls"
    );
    let different = got
        .iter()
        .zip(&archive)
        .find(|(a, b)| a != b && !wrong_alpha_zero(b, output_of_archive));
    assert_eq!(different, None, "memory differs from the archive's");
}

/// Whether a line of `semantics.c`, `sgemm NNUNL alpha0 HASH`, is of a call that the archive gets wrong by its own
/// output. Ours has no WRONG line, so that its result is beta * C to the last bit.
fn wrong_alpha_zero(line: &str, archive: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let [name @ ("sgemm" | "dgemm"), variant, "alpha0", _] = words[..] else {
        return false;
    };
    let wrong = format!("WRONG {name} {variant}: not beta * C with alpha = 0");
    archive.lines().any(|line| line.starts_with(&wrong))
}

/// Panics unless every WRONG line of `output` is excepted and every exception is used.
#[track_caller]
pub fn judge(output: &str, exceptions: &[Exception]) {
    let matches = |line: &str, e: &Exception| e.words.iter().all(|word| line.contains(word));
    let wrong: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with("WRONG") || line.starts_with("MISSING"))
        .collect();
    let unexpected: Vec<&&str> = wrong
        .iter()
        .filter(|line| !exceptions.iter().any(|e| matches(line, e)))
        .collect();
    assert!(
        unexpected.is_empty(),
        "{} wrong lines, first: {:#?}",
        unexpected.len(),
        { &unexpected[..unexpected.len().min(10)] }
    );
    for e in exceptions {
        assert!(
            wrong.iter().any(|line| matches(line, e)),
            "{:?} passes now; delete its exception ({})",
            e.words,
            e.reason
        );
    }
}

#[cfg(test)]
mod tests {
    use super::same_bits;

    const WRONG: &str = "WRONG sgemm NNUNL: not beta * C with alpha = 0 or k = 0 (real part)\n";

    #[test]
    fn alpha_zero_may_differ_where_the_archive_is_wrong() {
        let archive = format!("{WRONG}sgemm NNUNL alpha0 12\nsgemm NNUNL plain 34");
        same_bits(
            "sgemm NNUNL alpha0 56\nsgemm NNUNL plain 34",
            &archive,
            false,
        );
    }

    #[test]
    #[should_panic(expected = "memory differs")]
    fn alpha_zero_must_agree_where_it_is_right() {
        same_bits("sgemm NNUNL alpha0 56", "sgemm NNUNL alpha0 12", false);
    }

    #[test]
    #[should_panic(expected = "memory differs")]
    fn another_call_must_agree() {
        let archive = format!("{WRONG}sgemm NNUNL plain 34");
        same_bits("sgemm NNUNL plain 35", &archive, false);
    }
}
