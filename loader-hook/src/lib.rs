//! The library for `LD_AUDIT` with which `gpu-offload run` serves a Python wheel without touching it, and with which
//! `gpu-offload doctor -- CMD` sees what a command loads.
//!
//! The loader asks it where to look for each library (`la_objsearch`). Where the answer would be the OpenBLAS of a
//! wheel that the map lists, it names the library of ours that was fitted to it instead; where that one asks for
//! the original under its other name, it names the original. And it is told of each library that was loaded
//! (`la_objopen`), which it writes into the list, if there is one.
//!
//! It must not watch calls: with `la_symbind` or `la_pltenter` the loader would send each call through it. It lives in
//! a namespace of its own before anything of the program does, so it needs no other library, allocates nothing,
//! holds no file open, and says nothing to anybody.
//!
//! Unsafe lives here because the loader passes bare addresses, and because system calls are made without libc.
#![cfg_attr(panic = "abort", no_std)]
#![no_builtins]
// Only the library has a constructor, which uses the rest.
#![cfg_attr(not(panic = "abort"), allow(dead_code))]

#[cfg(panic = "abort")]
mod core_needs;
pub mod map;
mod system;

use core::ffi::{c_char, c_uint};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use map::Map;
use system::Text;

/// Names the map.
pub const MAP_VARIABLE: &str = "GPU_OFFLOAD_HOOK_MAP";
/// Names the list that is written.
pub const LIST_VARIABLE: &str = "GPU_OFFLOAD_HOOK_LIST";

/// The version of the loader's interface that is spoken here; nothing that is used here has changed with 2.
const VERSION: c_uint = 2;

static MAP: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static MAP_BYTES: AtomicUsize = AtomicUsize::new(0);
static LIST: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
/// Where the loader looked last, and the file that it was sent to, if it was. The loader asks under its own lock.
static LAST_PLACE: AtomicU32 = AtomicU32::new(0);
static LAST_FILE: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

#[cfg(panic = "abort")]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(usize, *const *const c_char, *const *const c_char) = start;

/// The loader gives a constructor the program's own environment.
extern "C" fn start(_: usize, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: the loader's array of strings, ended by null, which stays.
    let variable = |name: &str| unsafe { system::variable(environment, name.as_bytes()) };
    if let Some(path) = variable(MAP_VARIABLE)
        && let Some(bytes) = system::contents(path)
    {
        MAP_BYTES.store(bytes.len(), Ordering::Relaxed);
        MAP.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
    }
    if let Some(path) = variable(LIST_VARIABLE) {
        LIST.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
        let mut program = [0; system::PATH_BYTES];
        note(b"program", system::program(&mut program));
    }
}

/// The map, if there is one.
fn map() -> Option<Map<'static>> {
    let bytes = MAP.load(Ordering::Relaxed);
    // SAFETY: `start` stored both; the mapping stays for ever.
    let bytes = (!bytes.is_null()).then(|| unsafe {
        core::slice::from_raw_parts(bytes, MAP_BYTES.load(Ordering::Relaxed))
    })?;
    Some(Map::new(bytes))
}

/// Adds a line to the list: the process, what, the path.
fn note(what: &[u8], path: &[u8]) {
    let list = LIST.load(Ordering::Relaxed);
    if list.is_null() || path.is_empty() {
        return;
    }
    let mut line = Text::new();
    line.number(system::process());
    for part in [b"\t", what, b"\t", path, b"\n"] {
        line.bytes(part);
    }
    // SAFETY: `start` stored a string of the environment.
    system::append(unsafe { core::ffi::CStr::from_ptr(list) }, line.written());
}

/// The loader's first question; the answer is the version that this library speaks.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(loaders: c_uint) -> c_uint {
    loaders.min(VERSION)
}

/// A name that the loader will look for; the answer is the name to look for instead.
///
/// # Safety
/// `name` is a string, as the loader gives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *const usize,
    place: c_uint,
) -> *const c_char {
    LAST_PLACE.store(place, Ordering::Relaxed);
    LAST_FILE.store(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let asked = unsafe { core::ffi::CStr::from_ptr(name) };
    let Some(instead) = map().and_then(|map| map.instead_of(asked.to_bytes(), &system::identity))
    else {
        return name;
    };
    LAST_FILE.store(instead.as_ptr().cast_mut(), Ordering::Relaxed);
    instead.as_ptr()
}

/// The head of the loader's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    _address: usize,
    name: *const c_char,
}

/// A library was loaded; the answer 0 asks the loader for no more than that.
///
/// # Safety
/// `library` is the loader's, alive during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(
    library: *const LinkMap,
    _namespace: isize,
    _cookie: *const usize,
) -> c_uint {
    // SAFETY: the caller's promise; the name is a string or null.
    let name = unsafe { (*library).name };
    let sent = LAST_FILE.swap(core::ptr::null_mut(), Ordering::Relaxed);
    let path = if sent.is_null() {
        name
    } else {
        sent.cast_const()
    };
    if !path.is_null() {
        let place = map::place(LAST_PLACE.swap(0, Ordering::Relaxed));
        // SAFETY: the loader's string, or the map's.
        note(
            place.as_bytes(),
            unsafe { core::ffi::CStr::from_ptr(path) }.to_bytes(),
        );
    }
    0
}
