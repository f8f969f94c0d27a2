//! The jumps from LAPACK names to OpenBLAS's own kernels, which live in libblas.so.3.
//!
//! Every forwarder is one jump through a slot. The loader resolves weak references to the kernels; when
//! the process's libblas.so.3 is ours they are all found and the constructor puts them into the slots.
//! When it is somebody else's, a slot's first call opens the libblas.so.3 that lies beside this library's
//! real path. No lock is taken: filling a slot twice stores the same address.
//!
//! Unsafe lives here because the loader deals in untyped addresses.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::path::PathBuf;

include!(concat!(env!("OUT_DIR"), "/names.rs"));

core::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/forward.s")));

// The way of a slot's first call: the slot's number comes in r11. Everything that may carry an argument
// is kept, hidden lengths on the stack included, since only addresses below the caller's are used.
core::arch::global_asm!(
    ".globl gpu_offload_private_lazy",
    ".hidden gpu_offload_private_lazy",
    ".type gpu_offload_private_lazy, @function",
    "gpu_offload_private_lazy:",
    ".cfi_startproc",
    "sub rsp, 184",
    ".cfi_adjust_cfa_offset 184",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov [rsp + 48], rax",
    "movups [rsp + 56], xmm0",
    "movups [rsp + 72], xmm1",
    "movups [rsp + 88], xmm2",
    "movups [rsp + 104], xmm3",
    "movups [rsp + 120], xmm4",
    "movups [rsp + 136], xmm5",
    "movups [rsp + 152], xmm6",
    "movups [rsp + 168], xmm7",
    "mov edi, r11d",
    "call {resolve}",
    "mov r11, rax",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov rcx, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "mov rax, [rsp + 48]",
    "movups xmm0, [rsp + 56]",
    "movups xmm1, [rsp + 72]",
    "movups xmm2, [rsp + 88]",
    "movups xmm3, [rsp + 104]",
    "movups xmm4, [rsp + 120]",
    "movups xmm5, [rsp + 136]",
    "movups xmm6, [rsp + 152]",
    "movups xmm7, [rsp + 168]",
    "add rsp, 184",
    ".cfi_adjust_cfa_offset -184",
    "jmp r11",
    ".cfi_endproc",
    ".size gpu_offload_private_lazy, . - gpu_offload_private_lazy",
    resolve = sym resolve,
);

unsafe extern "C" {
    /// Where each forwarder jumps.
    #[link_name = "gpu_offload_private_slots"]
    safe static TARGETS: [AtomicPtr<c_void>; SLOTS];
    /// What the loader found for each name in the process; null where no library defines it.
    #[link_name = "gpu_offload_private_found"]
    safe static FOUND: [AtomicPtr<c_void>; SLOTS];
}

/// Our own libblas.so.3, opened because the process's is somebody else's.
static OWN_BLAS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = fill;

/// Puts what the loader found into the slots.
extern "C" fn fill() {
    for (target, found) in TARGETS.iter().zip(&FOUND) {
        let address = found.load(Ordering::Relaxed);
        if !address.is_null() {
            target.store(address, Ordering::Relaxed);
        }
    }
}

/// Finds the target of one slot in our own libblas.so.3.
///
/// Without it no right result exists: the routine's code is not in this process. The one line says which
/// file is missing, and the process ends, as it would have at its start had the loader missed a library.
extern "C" fn resolve(slot: usize) -> *mut c_void {
    match std::panic::catch_unwind(|| find(slot)) {
        Ok(Ok(address)) => address,
        Ok(Err(line)) => end(&line),
        Err(_) => end("liblapack.so.3: internal error while opening libblas.so.3"),
    }
}

fn end(line: &str) -> ! {
    let text = format!("gpu-offload: {line}\n");
    // SAFETY: the buffer is valid for its length. The result does not matter.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

fn find(slot: usize) -> Result<*mut c_void, String> {
    let (Some(target), Some(name)) = (TARGETS.get(slot), SOUGHT.get(slot)) else {
        return Err(format!("liblapack.so.3 has no kernel number {slot}"));
    };
    let mut library = OWN_BLAS.load(Ordering::Acquire);
    let path = own_blas()?;
    if library.is_null() {
        // Its names must not shadow those of the process's libblas.
        library = door::load_file(&path).map_err(|why| {
            format!(
                "liblapack.so.3 needs the libblas.so.3 that belongs to it at {}: {why}",
                path.display()
            )
        })?;
        OWN_BLAS.store(library, Ordering::Release);
    }
    // SAFETY: a live handle, which is never closed, and a NUL-terminated name.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(format!(
            "{} lacks {}: it is not the libblas.so.3 that belongs to this liblapack.so.3; install both \
             of one version in one folder",
            path.display(),
            name.to_string_lossy()
        ));
    }
    target.store(address, Ordering::Relaxed);
    Ok(address)
}

/// The libblas.so.3 beside this library's real path (links of update-alternatives resolved).
fn own_blas() -> Result<PathBuf, String> {
    let path = door::file_of(own_blas as *const c_void)
        .ok_or("liblapack.so.3 cannot find its own path")?;
    let real = path.canonicalize().map_err(|e| {
        format!(
            "liblapack.so.3 cannot resolve its own path {}: {e}",
            path.display()
        )
    })?;
    Ok(real.with_file_name("libblas.so.3"))
}
