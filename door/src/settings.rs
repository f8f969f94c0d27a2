//! The few variables that a shim reads by itself, once, before the engine is loaded. A value that it does not
//! understand loads the engine, which reports it.
//!
//! Everything else (files, level, profile, log) is the engine's business. Reading is idempotent and
//! takes no lock: threads that arrive together publish the same values.

use crate::{Shim, library};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CStr;

/// Work in multiply-adds at or below which no call reaches the engine before a profile says better:
/// a product of n = 128 takes OpenBLAS about 20 microseconds on one core, less than one kernel launch
/// with its copies takes on any PCIe device (facts: copy latency about 10 microseconds each way).
pub const DEFAULT_THRESHOLD_WORK: u64 = 128 * 128 * 128;

static PUBLISHED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    // glibc's; not in the libc crate. Answers null in a setuid program.
    fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
}

/// A variable as the C library sees it now; `None` when unset or in a setuid program.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is NUL-terminated. The value is read at once by our caller; a host that calls
    // setenv from another thread meanwhile breaks every reader of the environment alike.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// Publishes the thresholds of a shim unless that was done already.
pub(crate) fn publish_once(shim: &'static Shim) {
    if PUBLISHED.load(Ordering::Acquire) {
        return;
    }
    // This library's copy of std is ours alone, so the host's hooks are not affected; a panic in the
    // door becomes the CPU result and must not print.
    std::panic::set_hook(Box::new(|_| {}));
    (shim.first_call)();
    // SAFETY: getauxval has no preconditions.
    let setuid = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let mode = variable(c"GPU_OFFLOAD").unwrap_or_default().trim_ascii();
    let off = setuid || mode == b"off";
    let threshold = variable(c"GPU_OFFLOAD_THRESHOLD")
        .unwrap_or_default()
        .trim_ascii();
    let threshold_flops = parse_flops(threshold);
    for t in shim.thresholds {
        let work = match (off, threshold_flops) {
            (true, _) => u64::MAX,
            (false, Some(flops)) => (flops / t.flops_per_work as f64) as u64,
            (false, None) => DEFAULT_THRESHOLD_WORK,
        };
        t.word.store(work, Ordering::Relaxed);
    }
    PUBLISHED.store(true, Ordering::Release);
    // The engine has the words for what is not understood. It would say them at the first heavy call, which
    // may never come: somebody who sees every call stay on the CPU would not learn why.
    let understood = MODES.contains(&mode) && (threshold.is_empty() || threshold_flops.is_some());
    if !off && !understood {
        library::engine(shim);
    }
}

/// The values of `GPU_OFFLOAD` that the engine understands; empty is as good as none. A value that is missing
/// here loads the engine early and does no other harm.
const MODES: [&[u8]; 6] = [b"", b"auto", b"off", b"force", b"deterministic", b"verify"];

fn parse_flops(text: &[u8]) -> Option<f64> {
    let flops: f64 = core::str::from_utf8(text).ok()?.trim().parse().ok()?;
    (flops >= 0.0 && flops.is_finite()).then_some(flops)
}

#[cfg(test)]
mod tests {
    use super::parse_flops;

    #[test]
    fn only_non_negative_numbers_are_thresholds() {
        assert_eq!(parse_flops(b"0"), Some(0.0));
        assert_eq!(parse_flops(b"2e9"), Some(2e9));
        for bad in [&b"-1"[..], b"nan", b"inf", b"ten", b"", b"\xff"] {
            assert_eq!(parse_flops(bad), None, "{bad:?}");
        }
    }
}
