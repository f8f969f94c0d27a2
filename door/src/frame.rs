//! The saved arguments of one call, and the way to call OpenBLAS with them again.
//!
//! Unsafe lives here because a call's arguments are raw words of the System V x86-64 calling
//! convention: six integer registers, then stack words above the return address.

use crate::Entry;
use core::ffi::c_void;

/// What a stub saves before it calls [`crate::pass`]: the argument registers, with the caller's
/// return address and stack arguments following them in memory. The layout is fixed by the generated
/// stubs ([`Frame::BYTES`] below the return address).
#[derive(Clone)]
#[repr(C)]
pub struct Frame {
    /// rdi, rsi, rdx, rcx, r8, r9.
    ints: [u64; 6],
    /// Low halves of xmm0 and xmm1.
    floats: [u64; 2],
    padding: u64,
    return_address: u64,
}

/// A CPU routine whose signature only its stub knows.
pub type CpuRoutine = unsafe extern "C" fn();

impl Frame {
    /// Bytes that a stub reserves on the stack: registers and padding, 8 modulo 16 so that the call
    /// out of the stub is aligned.
    pub const BYTES: usize = 72;

    /// The `index`-th word of the integer class: a register, then stack words.
    ///
    /// # Safety
    /// The call has that many integer-class arguments, none of which is a stack float.
    pub unsafe fn int(&self, index: usize) -> u64 {
        if let Some(word) = self.ints.get(index) {
            return *word;
        }
        // SAFETY: stack arguments follow the return address; the caller vouches for the index.
        unsafe {
            (&raw const *self)
                .add(1)
                .cast::<u64>()
                .add(index - 6)
                .read()
        }
    }

    /// The `index`-th argument as a pointer.
    ///
    /// # Safety
    /// As for [`Frame::int`].
    pub unsafe fn pointer<T>(&self, index: usize) -> *mut T {
        // SAFETY: forwarded.
        unsafe { self.int(index) as usize as *mut T }
    }

    /// The `index`-th argument as a C int passed by value.
    ///
    /// # Safety
    /// As for [`Frame::int`].
    pub unsafe fn int32(&self, index: usize) -> i32 {
        // SAFETY: forwarded. The upper half of the word is unspecified by the ABI.
        unsafe { self.int(index) as i32 }
    }

    /// The integer that the `index`-th argument points to.
    ///
    /// # Safety
    /// As for [`Frame::int`], and the argument is a valid pointer to an INTEGER.
    pub unsafe fn fortran_int(&self, index: usize) -> i32 {
        // SAFETY: forwarded; INTEGER arguments need not be aligned by every caller.
        unsafe { self.pointer::<i32>(index).read_unaligned() }
    }

    /// The letter that the `index`-th argument points to.
    ///
    /// # Safety
    /// As for [`Frame::int`], and the argument is a valid pointer to a CHARACTER.
    pub unsafe fn letter(&self, index: usize) -> u8 {
        // SAFETY: forwarded.
        unsafe { self.pointer::<u8>(index).read() }
    }

    /// The `index`-th double passed by value (0 or 1).
    pub fn f64(&self, index: usize) -> f64 {
        f64::from_bits(self.floats[index])
    }

    /// The `index`-th float passed by value (0 or 1).
    pub fn f32(&self, index: usize) -> f32 {
        f32::from_bits(self.floats[index] as u32)
    }
}

/// Reads a scalar through a pointer: real and imaginary part as f64.
///
/// # Safety
/// `pointer` is valid for a scalar of `precision` (its upper-case letter).
pub(crate) unsafe fn scalar_at(pointer: *const c_void, precision: u8) -> [f64; 2] {
    // SAFETY: the caller vouches for the pointer; alignment is not assumed.
    unsafe {
        let f32_at = |i: usize| f64::from(pointer.cast::<f32>().add(i).read_unaligned());
        let f64_at = |i: usize| pointer.cast::<f64>().add(i).read_unaligned();
        match precision {
            b'S' => [f32_at(0), 0.0],
            b'D' => [f64_at(0), 0.0],
            b'C' => [f32_at(0), f32_at(1)],
            _ => [f64_at(0), f64_at(1)],
        }
    }
}

impl Frame {
    /// Changes the `index`-th word of the integer class, one of those in registers, for the CPU routine.
    ///
    /// # Panics
    /// If the word is on the stack: it is the caller's.
    pub fn set_register(&mut self, index: usize, word: u64) {
        self.ints[index] = word;
    }

    /// The scalar that the `index`-th argument points to.
    ///
    /// # Safety
    /// As for [`Frame::int`], and the argument points to a scalar of `precision`.
    pub unsafe fn scalar(&self, index: usize, precision: u8) -> [f64; 2] {
        // SAFETY: forwarded.
        unsafe { scalar_at(self.pointer::<c_void>(index), precision) }
    }
}

/// The most stack words of a routine that is called with changed words: zheevr has 23 arguments and three
/// hidden lengths, of which six are in registers. A multiple of two.
const MAX_STACK_WORDS: usize = 24;

/// A frame with the stack words that follow it, as [`call_with_frame`] reads them.
#[repr(C)]
struct Replay {
    frame: Frame,
    stack: [u64; MAX_STACK_WORDS],
}

impl Entry {
    /// Calls the CPU routine with the words of `frame`, some of them replaced: (index, word). The caller's own
    /// words stay as they are. False, and nothing is called, where the routine has too many words.
    ///
    /// # Safety
    /// The frame holds the arguments of a call of this symbol, and with the replaced words it is a legal call.
    pub unsafe fn call_cpu_with(&self, frame: *const Frame, replaced: &[(usize, u64)]) -> bool {
        if self.stack_words > MAX_STACK_WORDS {
            return false;
        }
        let mut replay = Replay {
            // SAFETY: the caller's frame.
            frame: unsafe { (*frame).clone() },
            stack: [0; MAX_STACK_WORDS],
        };
        for (i, word) in replay.stack[..self.stack_words].iter_mut().enumerate() {
            // SAFETY: as many stack words follow the frame. Hidden lengths that a caller in C has left out are
            // other words of its stack, which are mapped: the frames of whoever called it lie there.
            *word = unsafe { frame.add(1).cast::<u64>().add(i).read() };
        }
        for &(index, word) in replaced {
            let place = match index.checked_sub(replay.frame.ints.len()) {
                None => &mut replay.frame.ints[index],
                Some(on_stack) => &mut replay.stack[on_stack],
            };
            *place = word;
        }
        let frame = (&raw const replay).cast::<Frame>();
        // SAFETY: the frame is followed by the routine's stack words; the caller vouches for what they say.
        unsafe { call_with_frame(self.cpu, frame, self.stack_words) };
        true
    }
}

/// What the engine hands back to have the CPU routine run.
pub(crate) struct CpuContext {
    pub entry: &'static Entry,
    pub frame: *mut Frame,
}

/// Runs the CPU routine of a [`CpuContext`] with the caller's own arguments.
///
/// # Safety
/// `context` is the pointer that `offer` put into the call, still alive.
pub(crate) unsafe extern "C" fn run_cpu(context: *const c_void) {
    // SAFETY: the caller vouches for the pointer.
    let context = unsafe { &*context.cast::<CpuContext>() };
    // SAFETY: the frame holds the arguments of a call of exactly this routine, and nothing else uses it
    // while the engine waits for this function.
    unsafe {
        if !context.entry.mended(&mut *context.frame) {
            call_with_frame(context.entry.cpu, context.frame, context.entry.stack_words);
        }
    }
}

/// Calls `routine` with the registers and `stack_words` stack words of `frame`.
///
/// # Safety
/// `frame` holds the arguments of a call with `routine`'s signature, which returns nothing.
#[unsafe(naked)]
unsafe extern "C" fn call_with_frame(routine: CpuRoutine, frame: *const Frame, stack_words: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov r11, rsi",
        // Room for the words, a multiple of 16 bytes.
        "lea rcx, [rdx*8 + 15]",
        "and rcx, -16",
        "sub rsp, rcx",
        "2:",
        "test rdx, rdx",
        "jz 3f",
        "mov r10, [r11 + rdx*8 + {above}]",
        "mov [rsp + rdx*8 - 8], r10",
        "dec rdx",
        "jmp 2b",
        "3:",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov rcx, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "movsd xmm0, [r11 + 48]",
        "movsd xmm1, [r11 + 56]",
        "call rax",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        // Stack word i (1-based in the loop) lies above the frame and the return address.
        above = const Frame::BYTES + 8 - 8,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static SEEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

    extern "C" fn nine_words(
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        e: u64,
        f: u64,
        g: u64,
        h: u64,
        i: u64,
    ) {
        *SEEN.lock().expect("not poisoned") = vec![a, b, c, d, e, f, g, h, i];
    }

    #[test]
    fn a_routine_gets_every_register_and_stack_word_back() {
        assert_eq!(size_of::<Frame>(), Frame::BYTES + 8);
        #[repr(C)]
        struct WithStack {
            frame: Frame,
            stack: [u64; 3],
        }
        let saved = WithStack {
            frame: Frame {
                ints: [1, 2, 3, 4, 5, 6],
                floats: [0; 2],
                padding: 0,
                return_address: 0,
            },
            stack: [7, 8, 9],
        };
        // SAFETY: the frame is followed by three stack words, as nine_words takes them; a function
        // pointer's type does not change its address.
        unsafe {
            let routine = core::mem::transmute::<
                extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64),
                CpuRoutine,
            >(nine_words);
            let frame = (&raw const saved).cast::<Frame>();
            call_with_frame(routine, frame, 3);
            assert_eq!((*frame).int(8), 9);
        }
        assert_eq!(
            *SEEN.lock().expect("not poisoned"),
            [1, 2, 3, 4, 5, 6, 7, 8, 9]
        );
    }
}
