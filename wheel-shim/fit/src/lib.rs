//! What an installation writes into the ready-made library for wheels, and the library reads when it is loaded.
//!
//! The block has a section of its own in the file, [`SECTION`], of [`BYTES`] bytes. It also is the mark by which
//! a swapped library is known. This crate knows no ELF, no BLAS names and no files.
#![no_std]
#![forbid(unsafe_code)]

/// With what is before it, as long as any file name of Linux's file systems, which have at most 255 bytes.
macro_rules! filler {
    () => {
        concat!(
            "________________________________________________________________________________",
            "________________________________________________________________________________",
            "______________________________________________________________________"
        )
    };
}

/// The section that holds the block.
pub const SECTION: &str = ".gpu_offload_fit";
/// Length of the block: two paths of the longest kind, with names.
pub const BYTES: usize = 8192;
/// The block begins with this; the number changes with its format.
pub const MAGIC: &[u8] = b"gpu-offload wheel fit 1\0";
/// The names of the ready-made library's entries begin with this, then `lp64_` or `ilp64_`.
pub const ENTRY_PREFIX: &str = "gpu_offload_wheel_";
/// SONAME of the ready-made library: room for the wheel's, in place.
pub const SONAME_ROOM: &str = concat!("gpu-offload-wheel-soname-", filler!());
/// The ready-made library NEEDs this: room for the name of the renamed original.
pub const ORIGINAL_ROOM: &str = concat!("gpu-offload-wheel-original-", filler!());
/// What the file name of the renamed original begins with. threadpoolctl knows libraries by the first
/// letters of their names, so that it sees one OpenBLAS and not two.
pub const ORIGINAL_PREFIX: &str = "orig-";

/// A block before its installation: the mark and nothing else.
pub const EMPTY: [u8; BYTES] = {
    let mut block = [0; BYTES];
    let mut i = 0;
    while i < MAGIC.len() {
        block[i] = MAGIC[i];
        i += 1;
    }
    block
};

/// The library's place: which OpenBLAS it stands before, and where the engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit<'a> {
    /// File name of the renamed original, in the same folder.
    pub original: &'a str,
    /// SHA-256 of the original, in hexadecimal digits.
    pub original_sha256: &'a str,
    /// Absolute path of the engine.
    pub engine: &'a str,
    /// What the original's names begin with, such as `scipy_`.
    pub prefix: &'a str,
    /// What its names end with: `64_` where integers have 8 bytes, else nothing.
    pub suffix: &'a str,
    /// Version of the tool that fitted it.
    pub version: &'a str,
}

impl Fit<'_> {
    /// The block; `None` if it is too long or a field holds a NUL.
    pub fn encode(&self) -> Option<[u8; BYTES]> {
        let mut block = EMPTY;
        let mut at = MAGIC.len();
        for field in [
            self.original,
            self.original_sha256,
            self.engine,
            self.prefix,
            self.suffix,
            self.version,
        ] {
            if field.bytes().any(|b| b == 0) {
                return None;
            }
            // One NUL more than the fields have, so that the last one ends.
            let end = at.checked_add(field.len()).filter(|end| *end < BYTES)?;
            block[at..end].copy_from_slice(field.as_bytes());
            at = end + 1;
        }
        (at <= BYTES).then_some(block)
    }
}

/// Whether a block is one of this format, fitted or not.
pub fn is_block(block: &[u8]) -> bool {
    block.len() == BYTES && block.starts_with(MAGIC)
}

/// Reads a block; `None` for one that was never fitted.
pub fn decode(block: &[u8]) -> Option<Fit<'_>> {
    if !is_block(block) {
        return None;
    }
    let mut fields = block
        .get(MAGIC.len()..)?
        .split(|b| *b == 0)
        .map(core::str::from_utf8);
    let mut next = || fields.next()?.ok();
    let fit = Fit {
        original: next()?,
        original_sha256: next()?,
        engine: next()?,
        prefix: next()?,
        suffix: next()?,
        version: next()?,
    };
    (!fit.original.is_empty()).then_some(fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIT: Fit = Fit {
        original: "orig-libscipy_openblas64_-32a4b2a6.so",
        original_sha256: "00ff",
        engine: "/opt/gpu-offload/lib/libgpu_offload.so.0",
        prefix: "scipy_",
        suffix: "64_",
        version: "0.1.0",
    };

    #[test]
    fn a_block_comes_back_as_it_went() {
        assert_eq!(decode(&FIT.encode().unwrap()), Some(FIT));
        let plain = Fit {
            prefix: "",
            suffix: "",
            ..FIT
        };
        assert_eq!(decode(&plain.encode().unwrap()), Some(plain));
    }

    #[test]
    fn every_file_name_has_room() {
        assert!(SONAME_ROOM.len() >= 255 && ORIGINAL_ROOM.len() >= 255);
    }

    #[test]
    fn what_was_never_fitted_or_does_not_fit_is_nothing() {
        assert_eq!(decode(&EMPTY), None);
        assert_eq!(decode(&[0; BYTES]), None);
        assert_eq!(decode(MAGIC), None);
        let nul = Fit {
            prefix: "a\0b",
            ..FIT
        };
        assert_eq!(nul.encode(), None);
        let long = [b'x'; BYTES];
        let engine = core::str::from_utf8(&long).unwrap();
        assert_eq!(Fit { engine, ..FIT }.encode(), None);
    }
}
