//! A cost model of running a program: one link each way, one queue of kernels, tiles in waves. It ranks
//! panel sizes and shows stalls; it measures nothing.

use crate::plan::program::{Area, Kernel, Program, Rectangle};
use call::{Level3Call, Precision};

/// The machine.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Bytes per second to the device, alone.
    pub up: f64,
    /// Bytes per second from the device, alone.
    pub down: f64,
    /// Bytes per second each way when both are busy.
    pub both: f64,
    /// Seconds that a step's transfer takes besides its bytes.
    pub transfer_s: f64,
    /// Seconds that a kernel takes besides its arithmetic.
    pub kernel_s: f64,
    /// Multiprocessors.
    pub sm_count: f64,
    /// Real operations per second of all of them.
    pub flops: f64,
    /// Bytes per second of device memory.
    pub memory: f64,
}

impl Rates {
    /// An H200 behind PCIe 5 x16 with 8 staging threads (2026-12-01).
    pub fn h200(precision: Precision) -> Self {
        let single = matches!(precision, Precision::S | Precision::C);
        Self {
            up: 47e9,
            down: 44e9,
            both: 38e9,
            transfer_s: 15e-6,
            kernel_s: 8e-6,
            sm_count: 132.0,
            flops: if single { 50e12 } else { 62e12 },
            memory: 4e12,
        }
    }
}

/// Shares of the peak rate that kernels other than gemm reach on large matrices. Guessed: syrk and kin
/// 0.9, symm 0.8, trmm 0.7, trsm 0.6.
const SYRK: f64 = 0.9;
const SYMM: f64 = 0.8;
const TRMM: f64 = 0.7;
const TRSM: f64 = 0.6;

/// Seconds of an m x n x k product of which a `share` of the tiles is computed: the best of three tile
/// shapes, in whole waves.
fn product_s(rates: &Rates, (m, n, k): (usize, usize, usize), ops: f64, share: f64) -> f64 {
    let (m, n, k) = (m as f64, n as f64, k as f64);
    let shapes = [(128.0, 128.0, 1.0), (128.0, 64.0, 0.9), (64.0, 64.0, 0.75)];
    let times = shapes.map(|(rows, cols, rate): (f64, f64, f64)| {
        let tiles = ((m / rows).ceil() * (n / cols).ceil() * share).ceil();
        let waves = (tiles / rates.sm_count).ceil();
        waves * rows * cols * (k + 32.0) * ops / (rates.flops / rates.sm_count * rate)
    });
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Seconds of a kernel.
pub fn kernel_s(rates: &Rates, kernel: &Kernel, precision: Precision) -> f64 {
    let ops = precision.flops_of_madd();
    let bytes = precision.elem_bytes() as f64;
    let (arithmetic_s, elements) = match *kernel {
        Kernel::Gemm {
            size: (m, n, k), ..
        } => (
            product_s(rates, (m, n, k), ops, 1.0),
            m * k + k * n + 2 * m * n,
        ),
        Kernel::Syrk { size: (n, k), .. } => (
            product_s(rates, (n, n, k), ops, half(n)) / SYRK,
            n * k + n * n,
        ),
        Kernel::Syr2k { size: (n, k), .. } => (
            2.0 * product_s(rates, (n, n, k), ops, half(n)) / SYRK,
            2 * n * k + n * n,
        ),
        Kernel::Symm {
            side, size: (m, n), ..
        } => {
            let k = if side == call::Side::L { m } else { n };
            (
                product_s(rates, (m, n, k), ops, 1.0) / SYMM,
                k * k / 2 + 3 * m * n,
            )
        }
        Kernel::Trmm {
            side, size: (m, n), ..
        } => {
            let k = if side == call::Side::L { m } else { n };
            (
                0.5 * product_s(rates, (m, n, k), ops, 1.0) / TRMM,
                k * k / 2 + 2 * m * n,
            )
        }
        Kernel::Trsm {
            side, size: (m, n), ..
        } => {
            let k = if side == call::Side::L { m } else { n };
            // Blocks of 128 one after the other.
            let serial_s = k as f64 / 128.0 * 10e-6;
            (
                0.5 * product_s(rates, (m, n, k), ops, 1.0) / TRSM + serial_s,
                k * k / 2 + 2 * m * n,
            )
        }
        Kernel::Solver(_) => unreachable!("not of level 3"),
    };
    rates.kernel_s + arithmetic_s.max(elements as f64 * bytes / rates.memory)
}

fn half(n: usize) -> f64 {
    let tiles = (n as f64 / 128.0).ceil();
    0.5 * (1.0 + 1.0 / tiles)
}

/// Elements of a rectangle that take part.
pub fn elements(r: &Rectangle, area: Area) -> u128 {
    match area {
        Area::Full => r.rows as u128 * r.cols as u128,
        _ => (0..r.cols).map(|j| area.rows_of(j, r.rows).1 as u128).sum(),
    }
}

/// One transfer direction: bytes left of the step at its head.
struct Link {
    bytes: Vec<f64>,
    head: usize,
    left: f64,
}

impl Link {
    fn new(bytes: Vec<f64>) -> Self {
        let left = bytes.first().copied().unwrap_or(0.0);
        Self {
            bytes,
            head: 0,
            left,
        }
    }

    fn pop(&mut self) {
        self.head += 1;
        self.left = self.bytes.get(self.head).copied().unwrap_or(0.0);
    }
}

/// Seconds from the first upload to the last download, and seconds of all kernels.
pub fn simulate(program: &Program, call: &Level3Call<'_>, rates: &Rates) -> (f64, f64) {
    let elem_bytes = call.precision.elem_bytes() as f64;
    let steps = &program.steps;
    let link = |latency: f64, bytes: f64| if bytes > 0.0 { bytes + latency } else { 0.0 };
    let mut up = Link::new(
        steps
            .iter()
            .map(|s| {
                let sum: u128 = s
                    .uploads
                    .iter()
                    .map(|u| elements(&u.rectangle, u.area))
                    .sum();
                link(rates.transfer_s * rates.up, sum as f64 * elem_bytes)
            })
            .collect(),
    );
    let mut down = Link::new(
        steps
            .iter()
            .map(|s| {
                let sum: u128 = s
                    .downloads
                    .iter()
                    .map(|d| elements(&d.rectangle, d.area))
                    .sum();
                link(rates.transfer_s * rates.down, sum as f64 * elem_bytes)
            })
            .collect(),
    );
    let kernels: Vec<f64> = steps
        .iter()
        .map(|s| {
            s.kernels
                .iter()
                .map(|k| kernel_s(rates, k, call.precision))
                .sum()
        })
        .collect();
    let (mut now, mut kernel, mut kernel_left) =
        (0.0f64, 0usize, kernels.first().copied().unwrap_or(0.0));
    let after = |s: usize| steps.get(s).map_or(usize::MAX, |s| s.after);
    loop {
        let over = down.head.min(kernel);
        // A step without a download is over with its kernels.
        while down.head < kernel && down.left == 0.0 {
            down.pop();
        }
        if down.head.min(kernel) != over {
            continue;
        }
        while up.head < steps.len() && up.left == 0.0 {
            up.pop();
        }
        let upping = up.head < steps.len() && after(up.head) <= over;
        let computing = kernel < steps.len() && up.head > kernel && after(kernel) <= over;
        let downing = down.head < kernel;
        if !(upping || computing || downing) {
            assert!(down.head == steps.len(), "a program that cannot go on");
            return (now, kernels.iter().sum());
        }
        let (up_rate, down_rate) = if upping && downing {
            (rates.both, rates.both)
        } else {
            (rates.up, rates.down)
        };
        let when = |on: bool, left: f64, rate: f64| if on { left / rate } else { f64::INFINITY };
        let wait = when(upping, up.left, up_rate)
            .min(when(computing, kernel_left, 1.0))
            .min(when(downing, down.left, down_rate));
        now += wait;
        let ends = |left: f64, rate: f64| left / rate <= wait * (1.0 + 1e-12);
        if upping {
            if ends(up.left, up_rate) {
                up.pop()
            } else {
                up.left -= wait * up_rate
            }
        }
        if computing {
            if ends(kernel_left, 1.0) {
                kernel += 1;
                kernel_left = kernels.get(kernel).copied().unwrap_or(0.0);
            } else {
                kernel_left -= wait;
            }
        }
        if downing {
            if ends(down.left, down_rate) {
                down.pop()
            } else {
                down.left -= wait * down_rate
            }
        }
    }
}
