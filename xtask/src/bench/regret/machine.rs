//! Synthetic machines: what a call truly takes. Tables with cliffs, noise and heavy tails, of another
//! functional form than the cost model's curves, so that the model cannot be right by construction.

use super::random::Random;
use routines::{Op, Precision, Shape};

/// A machine. Rates in operations or bytes a second.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: &'static str,
    /// CPU threads that the calibration used.
    pub threads: u32,
    /// float64 multiply-adds a second of one thread.
    thread_madds_per_s: f64,
    /// Bytes a second from the CPU's memory.
    memory_bytes_per_s: f64,
    cache_bytes: f64,
    multiprocessors: f64,
    /// Multiply-adds a second of the device: float32, float64.
    gpu_madds_per_s: [f64; 2],
    /// Bytes a second to the device and back, at best.
    bus_bytes_per_s: [f64; 2],
    /// Fixed time of an offloaded call.
    call_s: f64,
    weather: Weather,
    /// Noise of a quiet machine: standard deviation of the logarithm.
    noise: f64,
    /// Share of calls that something else disturbs.
    disturbed: f64,
}

/// What changes while a program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weather {
    Steady,
    /// Another program has the GPU: everything on it takes 2 to 6 times as long, for a while.
    Bursts,
    /// A hot GPU runs its kernels at 40 %.
    Throttles,
    /// The program sets the CPU library's threads to a quarter, and back.
    Threads,
}

/// The state of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    whole_gpu: f64,
    kernels: f64,
    /// Threads of the CPU library in force.
    pub threads: u32,
}

/// Parts of a call's time on the GPU.
pub struct GpuTime {
    pub upload_s: f64,
    pub kernel_s: f64,
    pub download_s: f64,
    pub whole_s: f64,
}

/// Share of peak by the smallest dimension of a product on the CPU: panels that do not fill registers,
/// then blocks. Stairs, as measured tables have them.
const CPU_SHARE: [(u64, f64); 7] = [
    (4, 0.10),
    (16, 0.18),
    (48, 0.30),
    (128, 0.55),
    (384, 0.74),
    (1536, 0.88),
    (u64::MAX, 0.95),
];

/// Share of the bus by the bytes of a transfer: chunks that do not fill the pipeline.
const BUS_SHARE: [(f64, f64); 6] = [
    (256e3, 0.08),
    (2e6, 0.22),
    (8e6, 0.45),
    (32e6, 0.70),
    (256e6, 0.90),
    (f64::INFINITY, 1.0),
];

impl Machine {
    /// Every machine of the bench.
    pub fn all() -> Vec<Machine> {
        let server = Machine {
            name: "server GPU, 16 threads",
            threads: 16,
            thread_madds_per_s: 18e9,
            memory_bytes_per_s: 120e9,
            cache_bytes: 40e6,
            multiprocessors: 132.0,
            gpu_madds_per_s: [26e12, 30e12],
            bus_bytes_per_s: [46e9, 44e9],
            call_s: 180e-6,
            weather: Weather::Steady,
            noise: 0.05,
            disturbed: 0.02,
        };
        let laptop = Machine {
            name: "laptop GPU, slow float64",
            threads: 8,
            thread_madds_per_s: 14e9,
            memory_bytes_per_s: 45e9,
            cache_bytes: 16e6,
            multiprocessors: 36.0,
            gpu_madds_per_s: [5.5e12, 0.10e12],
            bus_bytes_per_s: [11e9, 10e9],
            call_s: 350e-6,
            weather: Weather::Steady,
            noise: 0.08,
            disturbed: 0.04,
        };
        vec![
            server.clone(),
            Machine {
                name: "server GPU, 64 threads",
                threads: 64,
                memory_bytes_per_s: 300e9,
                cache_bytes: 150e6,
                ..server.clone()
            },
            Machine {
                name: "server GPU, 1 thread",
                threads: 1,
                memory_bytes_per_s: 14e9,
                ..server.clone()
            },
            laptop.clone(),
            Machine {
                name: "slow bus",
                bus_bytes_per_s: [1.6e9, 1.4e9],
                threads: 12,
                ..server.clone()
            },
            Machine {
                name: "shared GPU, bursts",
                weather: Weather::Bursts,
                gpu_madds_per_s: [8e12, 4e12],
                bus_bytes_per_s: [12e9, 12e9],
                ..server.clone()
            },
            Machine {
                name: "throttling GPU",
                weather: Weather::Throttles,
                gpu_madds_per_s: [4e12, 0.35e12],
                ..laptop
            },
            Machine {
                name: "CPU threads change",
                weather: Weather::Threads,
                gpu_madds_per_s: [6e12, 0.6e12],
                bus_bytes_per_s: [12e9, 12e9],
                ..server
            },
        ]
    }

    /// A machine without noise and weather.
    pub fn quiet(&self) -> Machine {
        Machine {
            weather: Weather::Steady,
            noise: 0.01,
            disturbed: 0.0,
            ..self.clone()
        }
    }

    /// The states of `calls` moments one after the other.
    pub fn moments(&self, calls: usize, random: &mut Random) -> Vec<Moment> {
        let calm = Moment {
            whole_gpu: 1.0,
            kernels: 1.0,
            threads: self.threads,
        };
        let mut moments = Vec::with_capacity(calls);
        let mut disturbed = false;
        while moments.len() < calls {
            let moment = match self.weather {
                Weather::Bursts if disturbed => Moment {
                    whole_gpu: 2.0 + 4.0 * random.share(),
                    ..calm
                },
                Weather::Throttles if disturbed => Moment {
                    kernels: 2.5,
                    ..calm
                },
                Weather::Threads if disturbed => Moment {
                    threads: (self.threads / 4).max(1),
                    ..calm
                },
                _ => calm,
            };
            let length = 300 + random.below(900) as usize;
            moments.extend(core::iter::repeat_n(moment, length));
            disturbed = !disturbed;
        }
        moments.truncate(calls);
        moments
    }

    /// True time on the CPU, without noise.
    pub fn cpu_s(&self, shape: &Shape, moment: &Moment) -> f64 {
        let [m, n, k] = shape.product();
        let least = m.min(n).min(k);
        let work = m as f64 * n as f64 * k as f64 * share(shape.op);
        // OpenBLAS uses one thread below a size, and threads that have little to do wait for each other.
        let threads = match work {
            w if w < 3e5 => 1.0,
            w if w < 3e7 => f64::from(moment.threads).min(4.0),
            _ => f64::from(moment.threads),
        };
        let weight = match shape.precision {
            Precision::S => 0.5,
            Precision::D => 1.0,
            Precision::C => 2.05,
            Precision::Z => 4.1,
        };
        let of_peak = stair(&CPU_SHARE, least) * cpu_family(shape.op);
        let compute_s = work * weight
            / (self.thread_madds_per_s * of_peak * threads * (1.0 - 0.003 * (threads - 1.0)));
        let bytes = shape.bytes_in() + shape.bytes_out();
        let memory = if bytes > self.cache_bytes { 1.0 } else { 4.0 };
        let memory_s = bytes / (self.memory_bytes_per_s * memory);
        compute_s.max(memory_s) + 1.2e-6 * threads.ln_1p() + 4e-7
    }

    /// True time on the GPU, without noise.
    pub fn gpu_s(&self, shape: &Shape, moment: &Moment) -> GpuTime {
        let [m, n, k] = shape.product().map(|size| size as f64);
        let weight = match shape.precision {
            Precision::S | Precision::D => 1.0,
            Precision::C | Precision::Z => 4.0,
        };
        let peak = self.gpu_madds_per_s[usize::from(
            shape.precision.elem_bytes() / (if shape.precision.is_complex() { 2 } else { 1 }) == 8,
        )];
        // Tiles of 128 x 128 in whole waves; a long k is split where there are too few tiles.
        let tiles = (m / 128.0).ceil() * (n / 128.0).ceil();
        let splits = (self.multiprocessors / tiles)
            .floor()
            .clamp(1.0, (k / 512.0).ceil());
        let waves = (tiles * splits / self.multiprocessors).ceil();
        let tile_s = 128.0 * 128.0 * (k / splits).max(32.0) * weight * self.multiprocessors / peak;
        let kernel_s =
            (9e-6 + waves * tile_s * share(shape.op) * gpu_family(shape.op)) * moment.kernels;
        let transfer = |bytes: f64, rate: f64| {
            if bytes > 0.0 {
                12e-6 + bytes / (rate * bus_stair(bytes))
            } else {
                0.0
            }
        };
        let upload_s = transfer(shape.bytes_in(), self.bus_bytes_per_s[0]);
        let download_s = transfer(shape.bytes_out(), self.bus_bytes_per_s[1]);
        // Big calls hide the shorter of upload and kernels, small ones do not.
        let hidden = if shape.bytes_in() > 64e6 { 0.85 } else { 0.3 };
        let beside_s = upload_s + kernel_s - hidden * upload_s.min(kernel_s);
        GpuTime {
            upload_s,
            kernel_s,
            download_s,
            whole_s: (self.call_s + beside_s + 0.8 * download_s) * moment.whole_gpu,
        }
    }

    /// A factor for one call's time: quiet noise, and now and then something heavy-tailed.
    pub fn disturbance(&self, random: &mut Random) -> f64 {
        let quiet = (self.noise * random.normal()).exp();
        if random.share() < self.disturbed {
            // Pareto with index 1.5: a mean, but no variance.
            quiet * (1.0 - random.share()).powf(-1.0 / 1.5).min(50.0)
        } else {
            quiet
        }
    }
}

fn stair(table: &[(u64, f64)], size: u64) -> f64 {
    table
        .iter()
        .find(|(up_to, _)| size <= *up_to)
        .map_or(1.0, |step| step.1)
}

fn bus_stair(bytes: f64) -> f64 {
    BUS_SHARE
        .iter()
        .find(|(up_to, _)| bytes <= *up_to)
        .map_or(1.0, |step| step.1)
}

/// Share of the product's work.
fn share(op: Op) -> f64 {
    match op {
        Op::Gemmtr | Op::Gemmt | Op::Syrk | Op::Herk | Op::Trmm | Op::Trsm => 0.5,
        _ => 1.0,
    }
}

/// How well the CPU does a family beside the product.
fn cpu_family(op: Op) -> f64 {
    match op {
        Op::Gemm => 1.0,
        Op::Gemm3m => 1.2,
        Op::Symm | Op::Hemm => 0.95,
        Op::Syrk | Op::Herk => 0.85,
        Op::Syr2k | Op::Her2k => 0.80,
        Op::Trmm => 0.75,
        _ => 0.60,
    }
}

/// How much longer the GPU takes for a family's share of the work.
fn gpu_family(op: Op) -> f64 {
    match op {
        Op::Gemm | Op::Gemm3m => 1.0,
        Op::Symm | Op::Hemm => 1.15,
        Op::Syrk | Op::Herk | Op::Syr2k | Op::Her2k => 1.25,
        Op::Trmm => 1.3,
        _ => 1.9,
    }
}
