//! What must be known of a library's file to stand before it: its SONAME and the names that it defines.
//!
//! Reads the section table, which every linker writes and every stripping keeps.

use anyhow::{Context, Result, ensure};
use object::LittleEndian as LE;
use object::elf::{DT_SONAME, Dyn64, EM_X86_64, FileHeader64, Sym64};
use object::read::elf::{Dyn as _, FileHeader as _, SectionHeader as _, SectionTable, Sym as _};
use std::ops::Range;

/// A shared library for x86-64, as its file holds it.
pub struct Library<'a> {
    bytes: &'a [u8],
    sections: SectionTable<'a, FileHeader64<LE>>,
    dynamic: &'a [Dyn64<LE>],
    symbols: &'a [Sym64<LE>],
    strings: Range<usize>,
}

impl<'a> Library<'a> {
    /// Reads the tables.
    ///
    /// # Errors
    /// Where it is no shared library for x86-64.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let header = FileHeader64::<LE>::parse(bytes).context("not a 64-bit ELF file")?;
        ensure!(
            header.is_little_endian() && header.e_machine(LE) == EM_X86_64,
            "not a library for x86-64"
        );
        let sections = header.sections(LE, bytes)?;
        let (dynamic, _) = sections
            .dynamic(LE, bytes)?
            .context("not a shared library")?;
        let (at, table) = sections
            .iter()
            .enumerate()
            .find(|(_, section)| section.sh_type(LE) == object::elf::SHT_DYNSYM)
            .context("a library without dynamic symbols")?;
        let strings = sections.section(object::SectionIndex(table.sh_link(LE) as usize))?;
        Ok(Self {
            bytes,
            symbols: table
                .data_as_array(LE, bytes)
                .with_context(|| format!("section {at} holds no symbols"))?,
            strings: range(strings).context("the strings are not in the file")?,
            sections,
            dynamic,
        })
    }

    /// Where a section lies in the file.
    pub fn section(&self, name: &str) -> Option<Range<usize>> {
        let (_, section) = self.sections.section_by_name(LE, name.as_bytes())?;
        range(section)
    }

    /// The string at an offset of the table of dynamic strings.
    pub fn string(&self, at: u64) -> Option<&'a str> {
        let strings = self.bytes.get(self.strings.clone())?;
        let string = strings.get(usize::try_from(at).ok()?..)?;
        let end = string.iter().position(|b| *b == 0)?;
        core::str::from_utf8(&string[..end]).ok()
    }

    /// Where that table lies in the file.
    pub fn strings(&self) -> Range<usize> {
        self.strings.clone()
    }

    /// Offsets of the strings that entries of the dynamic section name, with the entry's tag.
    pub fn dynamic_strings(&self) -> impl Iterator<Item = (u64, u64)> {
        self.dynamic
            .iter()
            .filter(|entry| entry.is_string(LE))
            .map(|entry| (entry.d_tag(LE), entry.d_val(LE)))
    }

    /// The name by which the loader knows it.
    pub fn soname(&self) -> Option<&'a str> {
        self.dynamic_strings()
            .find(|(tag, _)| *tag == u64::from(DT_SONAME))
            .and_then(|(_, at)| self.string(at))
    }

    /// Number of dynamic symbols, the empty first one included.
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// All dynamic symbols with their indices: offset of the name, and whether it is defined here.
    pub fn symbols(&self) -> impl Iterator<Item = (usize, u64, bool)> {
        let described = |(i, symbol): (usize, &Sym64<LE>)| {
            let defined = !symbol.is_undefined(LE) && symbol.is_definition(LE);
            (i, u64::from(symbol.st_name(LE)), defined)
        };
        self.symbols.iter().enumerate().skip(1).map(described)
    }

    /// The names that it defines.
    pub fn defined(&self) -> impl Iterator<Item = &'a str> {
        self.symbols()
            .filter(|(_, _, defined)| *defined)
            .filter_map(|(_, at, _)| self.string(at))
    }
}

fn range(section: &object::elf::SectionHeader64<LE>) -> Option<Range<usize>> {
    let (at, size) = section.file_range(LE)?;
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(usize::try_from(size).ok()?)?)
}
