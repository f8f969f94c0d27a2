//! RECORD, the list of a Python package's files with their hashes, by which pip removes the package.
//!
//! The kept original has the row that the file had before, under its new name, so that putting it back needs
//! no other memory. Rows that are not named here stay as they are, to the byte.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// A file that is swapped, by its paths in RECORD.
pub struct Paths<'a> {
    /// The name by which extension modules find it.
    pub file: &'a str,
    /// That of the kept original.
    pub kept: &'a str,
}

/// What follows `path,` in the row of a path, if it has one.
fn rest<'a>(row: &'a str, path: &str) -> Option<&'a str> {
    row.strip_prefix(path)?.strip_prefix(',')
}

/// Whether a file has a row.
pub fn lists(text: &str, path: &str) -> bool {
    text.lines().any(|row| rest(row, path).is_some())
}

/// The text with a row for the new file and one for the original.
///
/// Where the original has a row already, an earlier installation has written it.
pub fn swapped(text: &str, paths: &Paths, new: &[u8]) -> String {
    let kept = row_of(text, paths.kept).or_else(|| row_of(text, paths.file));
    edited(text, paths, |end| {
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(new));
        let mut rows = format!("{},sha256={digest},{}{end}", paths.file, new.len());
        if let Some(kept) = kept {
            rows.push_str(&format!("{},{kept}{end}", paths.kept));
        }
        rows
    })
}

/// The text as it was before; a text without a row for the original stays as it is.
pub fn restored(text: &str, paths: &Paths) -> String {
    let Some(kept) = row_of(text, paths.kept) else {
        return text.to_owned();
    };
    edited(text, paths, |end| format!("{},{kept}{end}", paths.file))
}

fn row_of<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    text.lines().find_map(|row| rest(row, path))
}

/// Replaces the file's row by other rows, and leaves out the original's. `rows` gets the end of the line.
fn edited(text: &str, paths: &Paths, rows: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    for line in text.split_inclusive('\n') {
        let row = line.trim_end_matches(['\n', '\r']);
        if rest(row, paths.file).is_some() {
            let end = if line.len() > row.len() {
                &line[row.len()..]
            } else {
                "\n"
            };
            out.push_str(&rows(end));
        } else if rest(row, paths.kept).is_none() {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: Paths = Paths {
        file: "a.libs/b.so",
        kept: "a.libs/orig-b.so",
    };

    #[test]
    fn a_row_becomes_two_and_one_again() {
        for end in ["\n", "\r\n"] {
            let text = [
                "x.py,sha256=1,2",
                "a.libs/b.so,sha256=3,4",
                "a.libs/b.so.py,,",
                "r,,",
                "",
            ]
            .join(end);
            let two = swapped(&text, &PATHS, b"new");
            // printf new | sha256sum, in base64's alphabet for URLs.
            let row =
                format!("a.libs/b.so,sha256=EVB6Di9eadXfpApiob17buV-a82FxnybhDGzb_8hxDc,3{end}");
            assert!(two.contains(&row), "{two}");
            assert!(two.contains(&format!(
                "{end}a.libs/orig-b.so,sha256=3,4{end}a.libs/b.so.py,,{end}"
            )));
            assert_eq!(two.lines().count(), 5);
            // Again, with another file: the original's row is the first one's.
            let again = swapped(&two, &PATHS, b"newer");
            assert!(again.contains("orig-b.so,sha256=3,4") && !again.contains(&row));
            assert_eq!(restored(&again, &PATHS), text);
            assert_eq!(restored(&text, &PATHS), text);
        }
    }

    #[test]
    fn only_whole_paths_count() {
        assert!(lists("a.libs/b.so,,\n", "a.libs/b.so"));
        assert!(!lists("a.libs/b.so.1,,\nx/a.libs/b.so,,\n", "a.libs/b.so"));
    }
}
