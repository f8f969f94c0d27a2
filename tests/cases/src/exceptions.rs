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

/// Differences in what level-2 and level-3 BLAS do to memory.
pub const SEMANTICS: &[Exception] = &[
    Exception {
        words: &["cgemmtr", "memory outside the output was written"],
        reason: "OpenBLAS 0.3.29 leaves B conjugated for transb = C (OpenBLAS issue 5111, closed in 0.3.30)",
    },
    Exception {
        words: &["zgemmtr", "memory outside the output was written"],
        reason: "OpenBLAS 0.3.29 leaves B conjugated for transb = C (OpenBLAS issue 5111, closed in 0.3.30)",
    },
    Exception {
        words: &["cgemmt ", "memory outside the output was written"],
        reason: "OpenBLAS 0.3.29 leaves B conjugated for transb = C (OpenBLAS issue 5111, closed in 0.3.30)",
    },
    Exception {
        words: &["zgemmt ", "memory outside the output was written"],
        reason: "OpenBLAS 0.3.29 leaves B conjugated for transb = C (OpenBLAS issue 5111, closed in 0.3.30)",
    },
];

/// Differences in how LAPACK reports illegal arguments.
pub const ILLEGAL_LAPACK: &[Exception] = &[Exception {
    words: &["getrs_"],
    reason: "OpenBLAS's own getrs reports through xerbla_ and leaves info as it was",
}];

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
