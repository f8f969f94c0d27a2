//! Workloads: the shapes that programs call.

use super::machine::Machine;
use super::random::Random;
use routines::{Gate, Op, Precision, Shape, family};

/// A workload: its name, and what makes its calls.
pub struct Workload {
    pub name: &'static str,
    pub make: fn(&Machine, usize, &mut Random) -> Vec<Shape>,
}

/// Every workload of the bench.
pub const ALL: [Workload; 9] = [
    Workload {
        name: "random shapes, all families",
        make: random_shapes,
    },
    Workload {
        name: "k-means",
        make: k_means,
    },
    Workload {
        name: "LU panels",
        make: lu_panels,
    },
    Workload {
        name: "tall QR",
        make: tall_qr,
    },
    Workload {
        name: "NumPy lines",
        make: numpy_lines,
    },
    Workload {
        name: "R benchmark",
        make: r_benchmark,
    },
    Workload {
        name: "phases",
        make: phases,
    },
    Workload {
        name: "at break-even",
        make: at_break_even,
    },
    Workload {
        name: "around break-even",
        make: around_break_even,
    },
];

/// A call of a level-3 family. Where the result is a triangle, m is n.
pub fn call(op: Op, precision: Precision, [m, n, k]: [u64; 3]) -> Shape {
    let triangle = matches!(family(op).gate, Some(Gate::Product(["n", ..])));
    Shape {
        op,
        precision,
        m: if triangle { n } else { m }.max(1),
        n: n.max(1),
        k: k.max(1),
        right: false,
        beta_zero: true,
        letters: [0; 4],
    }
}

fn dgemm(m: u64, n: u64, k: u64) -> Shape {
    call(Op::Gemm, Precision::D, [m, n, k])
}

fn random_shapes(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    (0..calls)
        .map(|_| {
            loop {
                let (op, precision) = (random.pick(&Op::LEVEL3), random.pick(&Precision::ALL));
                if family(op).routine(precision).is_some() {
                    break call(
                        op,
                        precision,
                        [(); 3].map(|()| random.log_uniform(16, 6000)),
                    );
                }
            }
        })
        .collect()
}

/// Distances of blocks of samples to few centres, as scikit-learn asks for them, and whole sets.
fn k_means(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    (0..calls)
        .map(|_| match random.below(4) {
            0..=2 => dgemm(256, 16, 30),
            _ => dgemm(random.log_uniform(20_000, 200_000), 16, 30),
        })
        .collect()
}

/// The updates of a blocked LU factorisation: a triangular solve and a product with thin k.
fn lu_panels(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    let mut shapes = Vec::with_capacity(calls + 1);
    while shapes.len() < calls {
        let (n, block) = (
            random.pick(&[1024, 2048, 4096]),
            random.pick(&[64, 128, 256]),
        );
        for at in (block..n).step_by(block as usize) {
            let rest = n - at;
            shapes.push(call(Op::Trsm, Precision::D, [block, rest, 1]));
            shapes.push(dgemm(rest, rest, block));
        }
    }
    shapes.truncate(calls);
    shapes
}

/// The updates of a QR factorisation of a tall matrix by blocks of 32.
fn tall_qr(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    let mut shapes = Vec::with_capacity(calls + 1);
    while shapes.len() < calls {
        let (rows, cols) = (
            random.log_uniform(5_000, 100_000),
            random.pick(&[96, 256, 640]),
        );
        for at in (32..cols).step_by(32) {
            let rest = cols - at;
            shapes.push(dgemm(32, rest, rows));
            shapes.push(call(Op::Trmm, Precision::D, [32, rest, 1]));
            shapes.push(dgemm(rows, rest, 32));
        }
    }
    shapes.truncate(calls);
    shapes
}

fn numpy_lines(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    (0..calls)
        .map(|_| {
            let n = random.pick(&[500, 1000, 2000, 4000]);
            match random.below(6) {
                0 => call(Op::Gemm, Precision::S, [n, n, n]),
                1 => call(Op::Syrk, Precision::D, [n, n, 2 * n]),
                2 => call(Op::Trsm, Precision::D, [n, n, 1]),
                3 => dgemm(n, 10, n),
                _ => dgemm(n, n, n),
            }
        })
        .collect()
}

fn r_benchmark(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    (0..calls)
        .map(|_| {
            let n = random.pick(&[400, 800, 1600, 2800]);
            match random.below(4) {
                0 => dgemm(n, n, n),
                1 => call(Op::Syrk, Precision::D, [n, n, n]),
                2 => call(Op::Trsm, Precision::D, [n, n / 2, 1]),
                _ => dgemm(n, n, 64),
            }
        })
        .collect()
}

/// Long stretches of one call each.
fn phases(_: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    let mut shapes = Vec::with_capacity(calls);
    while shapes.len() < calls {
        let precision = random.pick(&Precision::ALL);
        let op = random.pick(&[Op::Gemm, Op::Syrk, Op::Trsm]);
        let shape = call(
            op,
            precision,
            [(); 3].map(|()| random.log_uniform(64, 4000)),
        );
        let length = 200 + random.below(400) as usize;
        shapes.extend(core::iter::repeat_n(shape, length));
    }
    shapes.truncate(calls);
    shapes
}

/// The edge of the cube that takes equally long on both sides; 700 where one side always wins.
fn break_even_n(machine: &Machine, precision: Precision, random: &mut Random) -> u64 {
    let moment = machine.quiet().moments(1, random)[0];
    let ratio = |n: u64| {
        let shape = call(Op::Gemm, precision, [n; 3]);
        machine.cpu_s(&shape, &moment) / machine.gpu_s(&shape, &moment).whole_s
    };
    (32..4000).find(|n| ratio(*n) > 1.0).unwrap_or(700)
}

/// One product over and over, for which the sides differ by a few per cent.
fn at_break_even(machine: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    let n = break_even_n(machine, Precision::D, random);
    vec![dgemm(n, n, n); calls]
}

/// Products from half to twice that edge, in two precisions.
fn around_break_even(machine: &Machine, calls: usize, random: &mut Random) -> Vec<Shape> {
    let edges = [Precision::S, Precision::D].map(|p| (p, break_even_n(machine, p, random)));
    (0..calls)
        .map(|_| {
            let (precision, edge) = random.pick(&edges);
            let n = random.log_uniform((edge / 2).max(16), edge * 2);
            call(Op::Gemm, precision, [n, n, n])
        })
        .collect()
}
