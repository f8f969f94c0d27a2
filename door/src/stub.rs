//! The machine code of a routed symbol, as one macro that the generated entries use.

/// Defines one routed symbol as a naked stub, with its [`crate::Entry`].
///
/// The gate is a list of instructions that load sizes: the first into eax, the others into r10d, without
/// touching any argument register or xmm0/xmm1. `product` multiplies its three sizes; `sided` has two, m
/// and n, and multiplies both and the larger one. The product is exact or the call takes the heavy way:
/// sizes are zero-extended, so that a negative one looks huge, and a signed overflow is taken as huge
/// too; the decoder then sees the truth.
///
/// Below the threshold that is nine instructions (`sided`: eleven) and a jump into OpenBLAS with stack,
/// registers and hidden lengths as they came. Above it the argument registers are saved into a
/// [`crate::Frame`].
///
/// A routine of LAPACK has `lapack` before its fields, and a [`crate::DecodeLapack`] for its reader.
///
/// `heavy_if` stands before the gate where [`crate::Entry::mend`] is wanted: instructions that jump to 2f for
/// the calls it is for, using rax, r10 and r11 only. A symbol whose every call is for it has `always` in the
/// gate's place.
#[macro_export]
macro_rules! routed_symbol {
    ($name:ident => $cpu:ident, $entry:ident(lapack $($field:expr),*), $word:ident,
     product [$first:literal, $second:literal, $third:literal] $(, heavy_if [$($test:literal),*])?) => {
        $crate::routed_symbol!(@stub Lapack $name => $cpu, $entry($($field),*), $word, [
            $($($test,)*)? $first, $second, "imul rax, r10", "jo 2f", $third, "imul rax, r10", "jo 2f"
        ]);
    };
    ($name:ident => $cpu:ident, $entry:ident($($field:expr),*), $word:ident,
     product [$first:literal, $second:literal, $third:literal] $(, heavy_if [$($test:literal),*])?) => {
        $crate::routed_symbol!(@stub Level3 $name => $cpu, $entry($($field),*), $word, [
            $($($test,)*)? $first, $second, "imul rax, r10", "jo 2f", $third, "imul rax, r10", "jo 2f"
        ]);
    };
    ($name:ident => $cpu:ident, $entry:ident($($field:expr),*), $word:ident,
     sided [$first:literal, $second:literal] $(, heavy_if [$($test:literal),*])?) => {
        $crate::routed_symbol!(@stub Level3 $name => $cpu, $entry($($field),*), $word, [
            $($($test,)*)? $first, $second, "mov r11, rax", "cmp r10, rax", "cmova r11, r10",
            "imul rax, r10", "jo 2f", "imul rax, r11", "jo 2f"
        ]);
    };
    ($name:ident => $cpu:ident, $entry:ident($($field:expr),*), $word:ident, always) => {
        $crate::routed_symbol!(@stub Level3 $name => $cpu, $entry($($field),*), $word, ["jmp 2f"]);
    };
    (@stub $kind:ident $name:ident => $cpu:ident, $entry:ident($shim:expr, $threshold:expr, $stack_words:expr, $decode:expr,
     $mend:expr),
     $word:ident, [$($gate:literal),*]) => {
        static $entry: $crate::Entry = $crate::Entry {
            shim: $shim,
            threshold: $threshold,
            cpu: $cpu,
            stack_words: $stack_words,
            decode: $crate::Decode::$kind($decode),
            mend: $mend,
        };

        #[doc = concat!("`", stringify!($name), "`: calls OpenBLAS or passes the door.")]
        ///
        /// # Safety
        /// The arguments of the routine of this name; this declaration does not show them because
        /// the stub only passes them on.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $($gate,)*
                "cmp rax, [rip + {word}]",
                "ja 2f",
                "jmp {cpu}",
                "2:",
                "sub rsp, {frame}",
                ".cfi_adjust_cfa_offset {frame}",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "movsd [rsp + 48], xmm0",
                "movsd [rsp + 56], xmm1",
                "lea rdi, [rip + {entry}]",
                "mov rsi, rsp",
                "call {pass}",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "movsd xmm0, [rsp + 48]",
                "movsd xmm1, [rsp + 56]",
                "add rsp, {frame}",
                ".cfi_adjust_cfa_offset -{frame}",
                "test rax, rax",
                "jnz 3f",
                "jmp {cpu}",
                "3:",
                "ret",
                ".cfi_endproc",
                word = sym $word,
                cpu = sym $cpu,
                entry = sym $entry,
                pass = sym $crate::pass,
                frame = const $crate::Frame::BYTES,
            )
        }
    };
}
