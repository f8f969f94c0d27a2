//! Which file stands in for which: the file that `gpu-offload run` writes and the hook reads.
//!
//! Pure: it asks for a file's identity through the caller. It must not allocate.

use core::ffi::CStr;

/// What tells a file from every other one and from its own later versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number of the file system.
    pub device: u64,
    /// Number of the file in it.
    pub inode: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the last change, seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u64,
}

/// A map: for each file five words, each ended by NUL: its name, its identity in decimal numbers with spaces, its path,
/// the path of what stands in for it, and the other name by which that asks for it.
pub struct Map<'a> {
    bytes: &'a [u8],
}

/// One entry.
struct Entry<'a> {
    name: &'a [u8],
    identity: Identity,
    path: &'a CStr,
    instead: &'a CStr,
    other_name: &'a [u8],
}

/// The parts of a path.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    Some((&path[..=slash], &path[slash + 1..]))
}

/// `==`, which would call memcmp.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

fn numbers(words: &[u8]) -> Option<Identity> {
    let mut all = [0u64; 5];
    let mut words = words.split(|b| *b == b' ');
    for number in &mut all {
        let word = words.next().filter(|word| !word.is_empty())?;
        for digit in word {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            *number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
    }
    let [device, inode, bytes, seconds, nanoseconds] = all;
    Some(Identity {
        device,
        inode,
        bytes,
        seconds,
        nanoseconds,
    })
}

impl<'a> Map<'a> {
    /// A map of these bytes; what is not one of its form ends it.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let mut word = || {
                let word = CStr::from_bytes_until_nul(rest).ok()?;
                rest = &rest[word.count_bytes() + 1..];
                Some(word)
            };
            Some(Entry {
                name: word()?.to_bytes(),
                identity: numbers(word()?.to_bytes())?,
                path: word()?,
                instead: word()?,
                other_name: word()?.to_bytes(),
            })
        })
    }

    /// The path that stands in for `asked`: of a file here, what was fitted to it; of a fitted one's other name for
    /// its file, that file. `identity` looks at a file: a folder with a slash at its end, and a name.
    pub fn instead_of(
        &self,
        asked: &[u8],
        identity: &impl Fn(&[u8], &[u8]) -> Option<Identity>,
    ) -> Option<&'a CStr> {
        let (folder, name) = split(asked)?;
        self.entries().find_map(|entry| {
            if equal(entry.name, name) {
                return (identity(folder, name) == Some(entry.identity)).then_some(entry.instead);
            }
            if !equal(entry.other_name, name) {
                return None;
            }
            // The fitted library asks for it beside the wheel's file, whose place it takes, or, where a program
            // has loaded that by its path, beside itself.
            let beside = split(entry.instead.to_bytes())
                .is_some_and(|(fitted, _)| equal(fitted, folder))
                && split(entry.path.to_bytes())
                    .is_some_and(|(own, name)| identity(own, name) == Some(entry.identity));
            (beside || identity(folder, entry.name) == Some(entry.identity)).then_some(entry.path)
        })
    }
}

/// Where the loader found a library, by its number (`LA_SER_…` of `link.h`).
pub fn place(number: u32) -> &'static str {
    match number {
        0x01 => "path",
        0x02 => "LD_LIBRARY_PATH",
        0x04 => "RPATH",
        0x08 => "ld.so.cache",
        0x40 => "default",
        _ => "start",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Identity = Identity {
        device: 66,
        inode: 7,
        bytes: 20_000_000,
        seconds: 1_790_000_000,
        nanoseconds: 5,
    };
    const TEXT: &[u8] =
        b"libb.so\x0066 7 20000000 1790000000 5\0/venv/x.libs/libb.so\0/cache/libb.so\0orig-libb.so\0";

    /// Looks at the file in the environment; another one lies in /other.
    fn look(folder: &[u8], name: &[u8]) -> Option<Identity> {
        match (folder, name) {
            (b"/venv/x.libs/" | b"/venv/y/../x.libs/", b"libb.so") => Some(OWN),
            (b"/other/", b"libb.so") => Some(Identity { inode: 8, ..OWN }),
            _ => None,
        }
    }

    fn instead(asked: &str) -> Option<&'static str> {
        let found = Map::new(TEXT).instead_of(asked.as_bytes(), &look)?;
        found.to_str().ok()
    }

    #[test]
    fn the_file_is_known_by_its_identity_however_it_is_spelt() {
        assert_eq!(instead("/venv/x.libs/libb.so"), Some("/cache/libb.so"));
        assert_eq!(instead("/venv/y/../x.libs/libb.so"), Some("/cache/libb.so"));
        // Another file of that name, no file, no path.
        for other in [
            "/other/libb.so",
            "/none/libb.so",
            "libb.so",
            "/venv/x.libs/libc.so",
            "",
        ] {
            assert_eq!(instead(other), None, "{other}");
        }
    }

    #[test]
    fn the_fitted_library_finds_the_original_from_either_place() {
        for folder in ["/venv/x.libs", "/venv/y/../x.libs", "/cache"] {
            let asked = format!("{folder}/orig-libb.so");
            assert_eq!(instead(&asked), Some("/venv/x.libs/libb.so"), "{folder}");
        }
        assert_eq!(instead("/other/orig-libb.so"), None);
    }

    #[test]
    fn what_is_no_map_names_nothing() {
        for end in 0..TEXT.len() {
            let cut = Map::new(&TEXT[..end]);
            assert_eq!(
                cut.instead_of(b"/venv/x.libs/libb.so", &look),
                None,
                "{end}"
            );
        }
        for bad in [
            &b"libb.so\x0066 7 20000000 x 5\0a\0b\0c\0"[..],
            b"libb.so\x0066\0a\0b\0c\0",
        ] {
            assert_eq!(
                Map::new(bad).instead_of(b"/venv/x.libs/libb.so", &look),
                None
            );
        }
    }
}
