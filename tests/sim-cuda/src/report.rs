//! The report: what is alive, how often each function was called, what was wrong.

use crate::state::{STATE, State, lock};
use std::time::Duration;

impl State {
    fn report(&self) -> String {
        let mut text = String::new();
        self.registry.report(&mut text);
        text.push_str(&format!(
            "live primary_retained {}\n",
            self.primary_retained
        ));
        for (name, count) in &self.calls {
            text.push_str(&format!("calls {name} {count}\n"));
        }
        for ((name, event), count) in &self.calls_of_events {
            text.push_str(&format!("calls_of_event {name}@{event} {count}\n"));
        }
        for (name, count) in &self.ignored {
            text.push_str(&format!("ignored {name} {count}\n"));
        }
        text.push_str(&format!("pageable_copies {}\n", self.pageable_copies));
        for complaint in &self.complaints {
            text.push_str(&format!("complaint {complaint}\n"));
        }
        text
    }
}

/// Writes the report into `buffer` (NUL-terminated if it fits) and returns its length.
///
/// # Safety
/// `buffer` has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuda_report(buffer: *mut u8, bytes: usize) -> usize {
    let text = lock().report();
    if text.len() < bytes {
        // SAFETY: the caller's promise; the text and its NUL fit.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len());
            *buffer.add(text.len()) = 0;
        }
    }
    text.len()
}

/// Ends the work of all streams, and writes the report to the file that SIM_CUDA_REPORT names; runs at exit.
pub extern "C" fn at_exit() {
    // The destructor of the OpenBLAS in here comes next, and unmaps what running work would use.
    crate::stream::stop_at_exit();
    if let Some(path) = std::env::var_os("SIM_CUDA_REPORT") {
        let text = STATE
            .try_lock_for(Duration::from_secs(1))
            .map(|s| s.report());
        let text = text.unwrap_or_else(|| "complaint locked at exit\n".into());
        let _ = std::fs::write(path, text);
    }
}
