//! Linux's system calls for x86-64, without libc, and text without an allocator.
//!
//! Unsafe lives here because a system call takes and gives bare words.

use crate::map::Identity;
use core::ffi::{CStr, c_char};

/// The longest path that Linux takes.
pub const PATH_BYTES: usize = 4096;

const READ_ONLY_CLOEXEC: usize = 0o2000000;
const APPEND_CLOEXEC: usize = 0o2000000 | 0o2000 | 0o1;
const PROT_READ: usize = 1;
const MAP_PRIVATE: usize = 2;

/// Numbers of the calls.
mod nr {
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const STAT: usize = 4;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const GETPID: usize = 39;
    pub const READLINK: usize = 89;
    #[cfg(panic = "abort")]
    pub const EXIT_GROUP: usize = 231;
}

/// A system call; negative results are errors.
///
/// # Safety
/// The arguments are what that call takes.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention; it changes rax, rcx, r11 and what the arguments lead to.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

fn succeeded(result: isize) -> Option<usize> {
    usize::try_from(result).ok()
}

/// Text on the stack; what does not fit is left out.
pub struct Text {
    room: [u8; 2 * PATH_BYTES],
    used: usize,
}

impl Text {
    /// Empty.
    pub fn new() -> Self {
        Self {
            room: [0; 2 * PATH_BYTES],
            used: 0,
        }
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.room.get_mut(self.used) {
                *place = *byte;
                self.used += 1;
            }
        }
    }

    /// Adds a number in decimal digits.
    pub fn number(&mut self, number: usize) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.bytes(&[b'0' + (number % 10) as u8]);
    }

    /// What was added.
    pub fn written(&self) -> &[u8] {
        self.room.get(..self.used).unwrap_or_default()
    }
}

/// The value of a variable.
///
/// # Safety
/// `environment` is an array of strings that is ended by null, or null; both stay for ever.
pub unsafe fn variable(
    mut environment: *const *const c_char,
    name: &[u8],
) -> Option<&'static CStr> {
    if environment.is_null() {
        return None;
    }
    loop {
        // SAFETY: the caller's promise; null ends the array.
        let entry = unsafe { environment.read() };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let entry = unsafe { CStr::from_ptr(entry) };
        let text = entry.to_bytes_with_nul();
        if text.len() > name.len()
            && text[name.len()] == b'='
            && crate::map::equal(&text[..name.len()], name)
        {
            return CStr::from_bytes_with_nul(&text[name.len() + 1..]).ok();
        }
        // SAFETY: this was not the last one.
        environment = unsafe { environment.add(1) };
    }
}

/// The kernel's `struct stat`, as words.
type Stat = [u64; 18];

fn identity_of(stat: &Stat) -> Identity {
    Identity {
        device: stat[0],
        inode: stat[1],
        bytes: stat[6],
        seconds: stat[11],
        nanoseconds: stat[12],
    }
}

/// The identity of a file: a folder with a slash at its end, and a name.
pub fn identity(folder: &[u8], name: &[u8]) -> Option<Identity> {
    let mut path = Text::new();
    for part in [folder, name, b"\0"] {
        path.bytes(part);
    }
    let path = CStr::from_bytes_with_nul(path.written()).ok()?;
    let mut stat: Stat = [0; 18];
    let arguments = [path.as_ptr() as usize, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: a string, and room for what the kernel writes.
    succeeded(unsafe { call(nr::STAT, arguments) })?;
    Some(identity_of(&stat))
}

/// A file's bytes, mapped for ever.
pub fn contents(path: &CStr) -> Option<&'static [u8]> {
    let open = [path.as_ptr() as usize, READ_ONLY_CLOEXEC, 0, 0, 0, 0];
    // SAFETY: a string.
    let file = succeeded(unsafe { call(nr::OPEN, open) })?;
    let mapped = (|| {
        let mut stat: Stat = [0; 18];
        let arguments = [file, (&raw mut stat) as usize, 0, 0, 0, 0];
        // SAFETY: an open file, and room for what the kernel writes.
        succeeded(unsafe { call(nr::FSTAT, arguments) })?;
        let bytes = usize::try_from(identity_of(&stat).bytes).ok()?;
        // SAFETY: new memory; an empty file is refused.
        let at = succeeded(unsafe { call(nr::MMAP, [0, bytes, PROT_READ, MAP_PRIVATE, file, 0]) })?;
        // SAFETY: the kernel has mapped as many bytes there. The file is written once, under another name, and
        // then renamed, so that nobody cuts it.
        Some(unsafe { core::slice::from_raw_parts(at as *const u8, bytes) })
    })();
    // SAFETY: an open file that is not used any more.
    unsafe { call(nr::CLOSE, [file, 0, 0, 0, 0, 0]) };
    mapped
}

/// Adds text at the end of a file that is there, in one piece.
pub fn append(path: &CStr, text: &[u8]) {
    let open = [path.as_ptr() as usize, APPEND_CLOEXEC, 0, 0, 0, 0];
    // SAFETY: a string.
    let Some(file) = succeeded(unsafe { call(nr::OPEN, open) }) else {
        return;
    };
    // SAFETY: an open file and bytes of this length; then it is closed.
    unsafe {
        call(
            nr::WRITE,
            [file, text.as_ptr() as usize, text.len(), 0, 0, 0],
        );
        call(nr::CLOSE, [file, 0, 0, 0, 0, 0]);
    }
}

/// This process's number.
pub fn process() -> usize {
    // SAFETY: no arguments.
    succeeded(unsafe { call(nr::GETPID, [0; 6]) }).unwrap_or(0)
}

/// The path of this process's program; empty without /proc.
pub fn program(room: &mut [u8; PATH_BYTES]) -> &[u8] {
    let link = c"/proc/self/exe".as_ptr() as usize;
    let arguments = [link, room.as_mut_ptr() as usize, PATH_BYTES, 0, 0, 0];
    // SAFETY: a string, and room of this length.
    let length = succeeded(unsafe { call(nr::READLINK, arguments) });
    length
        .and_then(|length| room.get(..length))
        .unwrap_or_default()
}

/// Ends the process: something here is wrong, and there is nobody to tell.
#[cfg(panic = "abort")]
pub fn exit() -> ! {
    loop {
        // SAFETY: a status.
        unsafe { call(nr::EXIT_GROUP, [127, 0, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn files_are_seen_as_the_standard_library_sees_them() {
        let folder = std::env::temp_dir().join(format!("gpu-offload-hook-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("list");
        std::fs::write(&path, "one\n").unwrap();
        let spelt = CString::new(path.to_str().unwrap()).unwrap();
        append(&spelt, b"two\n");
        assert_eq!(contents(&spelt), Some(&b"one\ntwo\n"[..]));
        let (own, meta) = (
            identity(format!("{}/", folder.display()).as_bytes(), b"list").unwrap(),
            std::fs::metadata(&path).unwrap(),
        );
        assert_eq!(
            (own.device, own.inode, own.bytes),
            (meta.dev(), meta.ino(), 8)
        );
        assert_eq!(own.seconds, meta.mtime() as u64);
        assert_eq!(own.nanoseconds, meta.mtime_nsec() as u64);
        let absent = folder.join("absent");
        append(&CString::new(absent.to_str().unwrap()).unwrap(), b"x");
        assert!(!absent.exists() && identity(b"/", b"no such file").is_none());
        std::fs::remove_dir_all(&folder).unwrap();
        let mut room = [0; PATH_BYTES];
        let exe = std::env::current_exe().unwrap();
        assert_eq!(program(&mut room), exe.to_str().unwrap().as_bytes());
        assert_eq!(process(), std::process::id() as usize);
    }

    #[test]
    fn variables_are_found_by_their_whole_names() {
        let entries = [c"AB=1", c"A=2", c"A=3"].map(CStr::as_ptr);
        let list = [entries[0], entries[1], entries[2], core::ptr::null()];
        // SAFETY: an array of static strings, ended by null.
        let value = |name: &[u8]| unsafe { variable(list.as_ptr(), name) };
        assert_eq!(value(b"A"), Some(c"2"));
        assert_eq!(value(b"AB"), Some(c"1"));
        assert_eq!(value(b"B"), None);
        let mut text = Text::new();
        text.number(20_304);
        text.bytes(&[b'x'; 3 * PATH_BYTES]);
        assert!(text.written().starts_with(b"20304x") && text.written().len() == 2 * PATH_BYTES);
    }
}
