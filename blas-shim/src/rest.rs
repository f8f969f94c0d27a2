//! OpenBLAS's idle threads sleep while a call runs on the GPU.
//!
//! After a call OpenBLAS's threads look for work without a pause, for 2^26 cycles (32 ms at 2.1 GHz), and with as
//! many of them as processors the threads that move a matrix to the GPU wait for a turn: dgemm n = 1300 took 7.8
//! ms after a call on the CPU instead of 1.6, n = 4000 19.8 instead of 7.8 (H200, 16 cores, 2026-12-02). Before and
//! after, nothing changes.
//!
//! Unsafe lives here because the limit is a variable of OpenBLAS's.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

unsafe extern "C" {
    /// OpenBLAS's limit in cycles, `unsigned int`, which its threads read at each look; aligned, so that a store
    /// is whole. Set while the library is loaded, from OPENBLAS_THREAD_TIMEOUT.
    #[link_name = "gpu_offload_private_thread_timeout"]
    safe static TIMEOUT: AtomicU32;
}

/// The limit during a call on the GPU: the smallest that OPENBLAS_THREAD_TIMEOUT could set.
const AT_ONCE: u32 = 1 << 4;

/// Calls that are on the GPU now.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// What the limit was before the first of them; 0 before it is known.
static BEFORE: AtomicU32 = AtomicU32::new(0);

/// See `HostTable::rest`. Exported, since liblapack.so.3's calls go to the GPU too; its first routed call tells
/// of itself by this, too.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gpu_offload_v1_rest(begins: i32) {
    if begins != 0 {
        crate::exit::notice();
        // Nobody else changes it once the library is loaded, and no call of ours has yet.
        let _ = BEFORE.compare_exchange(0, TIMEOUT.load(SeqCst), SeqCst, SeqCst);
        CALLS.fetch_add(1, SeqCst);
        TIMEOUT.store(AT_ONCE, SeqCst);
    } else if CALLS.fetch_sub(1, SeqCst) == 1 {
        TIMEOUT.store(BEFORE.load(SeqCst), SeqCst);
        // A call that has begun meanwhile may have stored before that.
        if CALLS.load(SeqCst) > 0 {
            TIMEOUT.store(AT_ONCE, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_short_during_calls_and_openblas_s_own_afterwards() {
        let own = TIMEOUT.load(SeqCst);
        assert!(own > AT_ONCE);
        let (threads, calls) = (4, 2000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..calls {
                        gpu_offload_v1_rest(1);
                        gpu_offload_v1_rest(0);
                    }
                });
            }
        });
        assert_eq!(TIMEOUT.load(SeqCst), own, "after all calls");
        gpu_offload_v1_rest(1);
        gpu_offload_v1_rest(1);
        gpu_offload_v1_rest(0);
        assert_eq!(TIMEOUT.load(SeqCst), AT_ONCE, "one call is left");
        gpu_offload_v1_rest(0);
        assert_eq!(TIMEOUT.load(SeqCst), own);
    }
}
