//! What the planners assume about the machine where a choice weighs kernels against transfers: an H200
//! behind PCIe 5 x16 with 8 staging threads (2026-12-01). On another machine the programs stay right and
//! only lose some of their speed.

/// Bytes per second to the device.
pub const UP_BYTES_PER_S: f64 = 47e9;
/// Bytes per second from the device.
pub const DOWN_BYTES_PER_S: f64 = 44e9;
/// Bytes per second each way when both are busy.
pub const BOTH_BYTES_PER_S: f64 = 38e9;
/// Bytes per second from scratch to the caller by all staging threads: what getrf 8192 took besides its transfers
/// and kernels (14 ms for 512 MB, 2026-12-02).
pub const COPY_BYTES_PER_S: f64 = 37e9;
/// Bytes per second from the caller to scratch by half of the threads. Chosen: two thirds of all of them.
pub const KEEP_BYTES_PER_S: f64 = 25e9;
/// Seconds that a step's uploads take besides their bytes. Chosen, as the launch of a kernel and the wait
/// for an event.
pub const STEP_S: f64 = 20e-6;
/// Real operations per second of large kernels: dgemm 62e12, sgemm 50e12.
pub const KERNEL_FLOPS_PER_S: f64 = 60e12;
/// The k with which a gemm kernel reaches half its rate, since it also reads and writes C. Chosen: 512
/// then has 89 % of the rate.
pub const HALF_RATE_K: f64 = 64.0;
