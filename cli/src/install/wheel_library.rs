//! The OpenBLAS inside a wheel, known by its symbols, and the library of ours that is fitted to it.
//!
//! Fitting happens in place: the ready-made library has room for the longest names, and its hash table is one
//! that does not order the symbols. No section moves.

use super::elf::Library;
use anyhow::{Context, Result, ensure};
use object::elf::DT_SONAME;
use std::collections::HashSet;
use std::ops::Range;

/// What spells out OpenBLAS's name of its own configuration.
const CONFIG: &str = "openblas_get_config";
/// Names that an OpenBLAS has, in the spelling of that one.
const SIGNS: [&str; 3] = ["openblas_get_num_threads", "dgemm_", "cblas_dgemm"];
/// In the configuration of one whose integers have 8 bytes.
const WIDE: &str = "USE64BITINT";
/// What the configuration begins with, in the file.
const VERSION: &[u8] = b"OpenBLAS ";

/// An OpenBLAS in a wheel.
#[derive(Debug, PartialEq)]
pub struct OpenBlas<'a> {
    /// The name by which extension modules need it.
    pub soname: &'a str,
    /// What its names begin with.
    pub prefix: &'a str,
    /// What they end with.
    pub suffix: &'a str,
    /// Whether its integers have 8 bytes.
    pub wide: bool,
    /// Its version, such as `0.3.31`.
    pub version: &'a str,
    /// All that it defines.
    names: HashSet<&'a str>,
}

impl<'a> OpenBlas<'a> {
    /// Recognises a library; `None` if it is no OpenBLAS.
    ///
    /// # Errors
    /// Where it is one, but none that another library can stand before.
    pub fn recognise(bytes: &'a [u8]) -> Result<Option<Self>> {
        let Ok(library) = Library::parse(bytes) else {
            return Ok(None);
        };
        let names: HashSet<&str> = library.defined().collect();
        let spelling = names.iter().find_map(|name| {
            let (prefix, suffix) = name.split_once(CONFIG)?;
            let spelt = |sign: &&str| names.contains(format!("{prefix}{sign}{suffix}").as_str());
            SIGNS.iter().all(spelt).then_some((prefix, suffix))
        });
        let Some((prefix, suffix)) = spelling else {
            return Ok(None);
        };
        let config = configuration(bytes).context(
            "an OpenBLAS that does not hold its own configuration; its integers are unknown",
        )?;
        let wide = config.contains(WIDE);
        ensure!(
            wide || suffix.is_empty(),
            "an OpenBLAS whose names end in {suffix}, but whose configuration ({config}) has no {WIDE}"
        );
        Ok(Some(Self {
            soname: library.soname().context("an OpenBLAS without a SONAME")?,
            prefix,
            suffix,
            wide,
            version: config.split(' ').nth(1).unwrap_or_default(),
            names,
        }))
    }
}

/// OpenBLAS's configuration as it lies in the file: `OpenBLAS 0.3.31 USE64BITINT …`.
fn configuration(bytes: &[u8]) -> Option<&str> {
    let starts = bytes
        .windows(VERSION.len() + 1)
        .enumerate()
        .filter(|(_, window)| {
            window.starts_with(VERSION) && window[VERSION.len()].is_ascii_digit()
        });
    for (at, _) in starts {
        let text = &bytes[at..bytes.len().min(at + 512)];
        let end = text.iter().position(|b| *b == 0)?;
        if let Ok(text) = core::str::from_utf8(&text[..end]) {
            return Some(text);
        }
    }
    None
}

/// The block of a library of ours: `None` where it is not ours, or was never fitted.
pub fn fit_of(bytes: &[u8]) -> Option<wheel_fit::Fit<'_>> {
    let library = Library::parse(bytes).ok()?;
    wheel_fit::decode(bytes.get(library.section(wheel_fit::SECTION)?)?)
}

/// A fitted library.
pub struct Fitted {
    /// The file.
    pub bytes: Vec<u8>,
    /// How many routines it routes.
    pub routines: usize,
}

/// Fits the ready-made library to an OpenBLAS.
///
/// # Errors
/// Where `ready` is not that library, or a name of the wheel's does not fit into it.
pub fn fit(ready: &[u8], to: &OpenBlas, block: &wheel_fit::Fit) -> Result<Fitted> {
    let library = Library::parse(ready).context("the ready-made library")?;
    let mut bytes = ready.to_vec();
    let block = block.encode().context("the paths are too long")?;
    let place = library
        .section(wheel_fit::SECTION)
        .filter(|place| ready.get(place.clone()) == Some(&wheel_fit::EMPTY))
        .context("not the ready-made library: it has no empty block")?;
    bytes[place].copy_from_slice(&block);

    let original = wheel_fit::decode(&block)
        .context("a block that cannot be read")?
        .original;
    let mut taken = Vec::new();
    for (tag, at) in library.dynamic_strings() {
        let old = library.string(at).context("a name outside its table")?;
        if tag == u64::from(DT_SONAME) {
            ensure!(
                old == wheel_fit::SONAME_ROOM,
                "not the ready-made library: its SONAME is {old}"
            );
            taken.push(rename(&mut bytes, &library, at, to.soname)?);
        } else if old == wheel_fit::ORIGINAL_ROOM {
            taken.push(rename(&mut bytes, &library, at, original)?);
        }
    }
    ensure!(
        taken.len() == 2,
        "not the ready-made library: it has no room for the original's name"
    );

    let model = if to.wide { "ilp64_" } else { "lp64_" };
    let mut entries = Vec::new();
    for (index, at, defined) in library.symbols() {
        let name = library.string(at).context("a name outside its table")?;
        let routine = name
            .strip_prefix(wheel_fit::ENTRY_PREFIX)
            .and_then(|rest| rest.strip_prefix(model));
        let Some(routine) = routine.filter(|_| defined) else {
            continue;
        };
        let spelt = format!("{}{routine}{}", to.prefix, to.suffix);
        // A routine that the original lacks must stay missing.
        if to.names.contains(spelt.as_str()) {
            taken.push(rename(&mut bytes, &library, at, &spelt)?);
            entries.push((index, spelt));
        }
    }
    ensure!(
        !entries.is_empty(),
        "this OpenBLAS has none of the routines that can be routed"
    );
    // A linker may let one name be the end of another one.
    let all = library
        .symbols()
        .map(|(_, at, _)| at)
        .chain(library.dynamic_strings().map(|(_, at)| at));
    for at in all {
        ensure!(
            !taken.iter().any(|range| range.start < at && at < range.end),
            "not the ready-made library: its names overlap"
        );
    }
    let table = library.section(".hash").context("no table of names")?;
    write_hash(&mut bytes[table], library.symbol_count(), &entries)?;
    Ok(Fitted {
        bytes,
        routines: entries.len(),
    })
}

/// Writes a name over another one that is no shorter; returns the room, in the table of strings.
fn rename(bytes: &mut [u8], library: &Library, at: u64, new: &str) -> Result<Range<u64>> {
    let room = library.string(at).map_or(0, str::len);
    ensure!(
        new.len() <= room,
        "{new}: longer than the {room} bytes that there is room for"
    );
    let start = library.strings().start + usize::try_from(at)?;
    let place = &mut bytes[start..start + room];
    place.fill(0);
    place[..new.len()].copy_from_slice(new.as_bytes());
    Ok(at..at + room as u64)
}

/// Writes the table of names anew, with these entries only: what is not in it cannot be found.
fn write_hash(table: &mut [u8], symbols: usize, entries: &[(usize, String)]) -> Result<()> {
    let word = |table: &[u8], i: usize| -> Option<u32> {
        let bytes = table.get(4 * i..4 * i + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let buckets = word(table, 0).context("an empty table of names")? as usize;
    ensure!(
        buckets > 0
            && word(table, 1) == Some(u32::try_from(symbols)?)
            && table.len() == 4 * (2 + buckets + symbols),
        "not the ready-made library: its table of names has another form"
    );
    table[8..].fill(0);
    for (index, name) in entries {
        let bucket = 2 + sysv_hash(name) as usize % buckets;
        let first = word(table, bucket).context("a bucket outside the table")?;
        let chain = 2 + buckets + index;
        table[4 * chain..4 * chain + 4].copy_from_slice(&first.to_le_bytes());
        table[4 * bucket..4 * bucket + 4].copy_from_slice(&u32::try_from(*index)?.to_le_bytes());
    }
    Ok(())
}

/// The hash function of DT_HASH (System V ABI, chapter 5).
fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}
