//! The entries of the library for Python wheels: every routed routine in both widths of integers, under names
//! that the installation replaces by those of the wheel's OpenBLAS.

use super::{HEADER, REGISTERS, Symbol, Thresholds, spellings};
use anyhow::{Context, Result};
use routines::{Library, routed_in};
use std::fmt::Write as _;

/// The libraries whose routines have entries.
const LIBRARIES: [Library; 2] = [Library::Blas, Library::Lapack];

/// The source of `wheel-shim/src/generated.rs`.
pub(super) fn entries() -> Result<String> {
    let mut thresholds = Thresholds::default();
    let (mut names, mut originals, mut symbols) = (String::new(), String::new(), String::new());
    let mut slots = 0;
    for (f, precision, routine) in LIBRARIES.into_iter().flat_map(routed_in) {
        let (word, index) = thresholds.add(f, precision, &routine)?;
        for spelling in spellings(f) {
            let symbol = Symbol::new(f, precision, &routine, spelling);
            writeln!(names, "c\"{}\",", symbol.name)?;
            writeln!(originals, "original!(original_{}, {slots});", symbol.name)?;
            for wide in [false, true] {
                writeln!(symbols, "{}", stub(&symbol, index, &word, wide)?)?;
            }
            slots += 1;
        }
    }
    Ok(format!(
        "//! {HEADER}\n//!\n//! Two stubs, one for each width of integers, for every routed symbol.\n\n\
         use crate::{{SHIM, original}};\nuse core::ffi::CStr;\nuse core::sync::atomic::AtomicU64;\n\
         use door::{{Threshold, routed_symbol}};\nuse reader::{{lapack, level3}};\n\n{}\n\
         /// How the routines are called in a library without prefix and suffix, in the order of the slots.\n\
         pub(crate) static NAMES: [&CStr; {slots}] = [\n{names}];\n\n{originals}\n{symbols}",
        thresholds.source()
    ))
}

fn stub(symbol: &Symbol, threshold: usize, word: &str, wide: bool) -> Result<String> {
    let (kind, sizes) = symbol.gate()?;
    let targets = if wide {
        ["rax", "r10", "r10"]
    } else {
        ["eax", "r10d", "r10d"]
    };
    let loads = sizes
        .iter()
        .zip(targets)
        .map(|(size, target)| {
            let load = if wide {
                wide_load(symbol, size, target)?
            } else {
                symbol.load(size, target)?
            };
            Ok(format!("\"{load}\""))
        })
        .collect::<Result<Vec<_>>>()?
        .join(", ");
    let model = if wide { "ilp64" } else { "lp64" };
    let (mark, reader) = symbol.reader(wide);
    let name = &symbol.name;
    Ok(format!(
        "routed_symbol!(\n    gpu_offload_wheel_{model}_{name} => original_{name}, \
         {}_{}ENTRY({mark}&SHIM, &THRESHOLDS[{threshold}], {}, {reader}, None),\n    {word}, {kind} [{loads}]\n);\n",
        model.to_uppercase(),
        // A Fortran name ends with an underscore already.
        if name.ends_with('_') {
            name.to_uppercase()
        } else {
            format!("{}_", name.to_uppercase())
        },
        symbol.stack_words()
    ))
}

/// The instruction that loads one size of 8 bytes. A negative product looks huge as it does with 4 bytes; where
/// two negative sizes make a small one, the CPU library gets the call at once, which reports it.
fn wide_load(symbol: &Symbol, size: &str, target: &str) -> Result<String> {
    let load = symbol.load(size, target)?;
    let (instruction, source) = load.split_once(", ").context("a load has two operands")?;
    let source = REGISTERS
        .iter()
        .find(|(_, narrow)| *narrow == source)
        .map_or(source, |(wide, _)| wide);
    Ok(format!("{instruction}, {source}"))
}

#[cfg(test)]
mod tests {
    use super::super::Spelling;
    use super::*;
    use routines::{Op, family};

    #[test]
    fn sizes_of_eight_bytes_come_from_whole_registers_and_words() {
        let precision = routines::Precision::D;
        let of = |op, spelling, size| {
            let symbol = Symbol::new(family(op), precision, "name", spelling);
            wide_load(&symbol, size, "rax").unwrap()
        };
        assert_eq!(of(Op::Gemm, Spelling::Fortran, "m"), "mov rax, [rdx]");
        assert_eq!(of(Op::Gemm, Spelling::Cblas, "m"), "mov rax, rcx");
        assert_eq!(of(Op::Gemm, Spelling::Cblas, "k"), "mov rax, r9");
        // The seventh word of the integer class is the first on the stack.
        assert_eq!(of(Op::Trmm, Spelling::Cblas, "n"), "mov rax, [rsp + 8]");
    }
}
