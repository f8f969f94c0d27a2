//! The machine code of a routed symbol, as one macro that the generated entries use.

/// Defines one routed symbol as a naked stub.
///
/// `$sizes` are instructions that load the first gate size into eax and the others into r10d, without
/// touching any argument register or xmm0/xmm1. The product is exact or the call takes the heavy way:
/// sizes are zero-extended, so that a negative one looks huge, and a signed overflow is taken as huge
/// too; the decoder then sees the truth.
///
/// Below the threshold that is ten instructions and a jump into OpenBLAS with stack, registers and
/// hidden lengths as they came. Above it the argument registers are saved into a [`crate::Frame`].
#[macro_export]
macro_rules! routed_symbol {
    (
        $(#[$doc:meta])*
        $name:ident => $cpu:ident, $entry:ident, $word:ident,
        [$first:literal, $second:literal, $third:literal]
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments of the routine of this name; this declaration does not show them because
        /// the stub only passes them on.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $first,
                $second,
                "imul rax, r10",
                "jo 2f",
                $third,
                "imul rax, r10",
                "jo 2f",
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
