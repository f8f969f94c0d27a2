//! Runs a program on host arrays in some legal order, and checks what a program must never do.
//!
//! The order is only what `program.rs` promises: nothing is done "in time" because it usually is.

use super::complex::Complex;
use super::kernels::{self, Matrix};
use crate::plan::program::{Area, Operand, Place, Program, Rectangle};

/// In which legal order.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Uploads and downloads as early as they may run.
    Eager,
    /// Uploads as late as possible, downloads only when nothing else can go on.
    Lazy,
    /// Uploads as early, downloads as late as possible.
    EarlyUpLateDown,
    /// By chance.
    Random(u64),
}

/// The operands of a call in host memory.
pub struct Host {
    pub a: Matrix,
    pub b: Option<Matrix>,
    pub c: Matrix,
    /// The elements of an operand that the call may read.
    pub readable: Box<dyn Fn(Operand, usize, usize) -> bool>,
    /// The elements of the result that belong to the call.
    pub writable: Box<dyn Fn(usize, usize) -> bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Upload(usize, usize),
    Kernels(usize),
    Download(usize, usize),
}

struct State<'p> {
    program: &'p Program,
    uploads_left: Vec<usize>,
    downloads_left: Vec<usize>,
    kernels_done: usize,
    /// Steps that are over, counted from the first without a gap.
    over: usize,
    pending: Vec<Action>,
}

impl<'p> State<'p> {
    fn new(program: &'p Program) -> Self {
        let mut pending = Vec::new();
        for (s, step) in program.steps.iter().enumerate() {
            pending.extend((0..step.uploads.len()).map(|i| Action::Upload(s, i)));
            pending.push(Action::Kernels(s));
            pending.extend((0..step.downloads.len()).map(|i| Action::Download(s, i)));
        }
        let mut state = Self {
            program,
            uploads_left: program.steps.iter().map(|s| s.uploads.len()).collect(),
            downloads_left: program.steps.iter().map(|s| s.downloads.len()).collect(),
            kernels_done: 0,
            over: 0,
            pending,
        };
        state.advance();
        state
    }

    fn ready(&self, action: Action) -> bool {
        match action {
            Action::Upload(s, _) => self.program.steps[s].after <= self.over,
            Action::Kernels(s) => {
                s == self.kernels_done
                    && self.program.steps[s].after <= self.over
                    && self.uploads_left[..=s].iter().all(|&left| left == 0)
            }
            // A step without kernels promises nothing about those of the steps before.
            Action::Download(s, _) => {
                self.program.steps[s].after <= self.over
                    && (self.kernels_done > s || self.program.steps[s].kernels.is_empty())
            }
        }
    }

    fn done(&mut self, action: Action) {
        self.pending.retain(|&other| other != action);
        match action {
            Action::Upload(s, _) => self.uploads_left[s] -= 1,
            Action::Kernels(_) => self.kernels_done += 1,
            Action::Download(s, _) => self.downloads_left[s] -= 1,
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.over < self.kernels_done && self.downloads_left[self.over] == 0 {
            self.over += 1;
        }
    }

    fn choose(&self, order: Order, chance: &mut u64) -> Action {
        let ready: Vec<Action> = self
            .pending
            .iter()
            .copied()
            .filter(|&a| self.ready(a))
            .collect();
        assert!(
            !ready.is_empty(),
            "a program that cannot go on: {:?}",
            self.pending.first()
        );
        let up = |a: &Action| matches!(a, Action::Upload(..));
        let down = |a: &Action| matches!(a, Action::Download(..));
        let now = |a: &Action| matches!(a, Action::Upload(s, _) if *s <= self.kernels_done);
        let kernels = |a: &Action| matches!(a, Action::Kernels(_));
        let first = |which: &[&dyn Fn(&Action) -> bool]| {
            let pick = which.iter().find_map(|f| ready.iter().find(|a| f(a)));
            *pick.unwrap_or(&ready[0])
        };
        match order {
            Order::Eager => first(&[&up, &down]),
            Order::Lazy => first(&[&kernels, &now, &down]),
            Order::EarlyUpLateDown => first(&[&up, &kernels]),
            Order::Random(_) => {
                *chance = chance
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                ready[(*chance >> 33) as usize % ready.len()]
            }
        }
    }
}

fn elements(r: &Rectangle, area: Area) -> impl Iterator<Item = (usize, usize)> {
    let rows = r.rows;
    (0..r.cols).flat_map(move |j| {
        let (first, count) = area.rows_of(j, rows);
        (first..first + count).map(move |i| (i, j))
    })
}

fn inside(buffer: &Matrix, at: Place, r: &Rectangle) {
    assert!(r.rows > 0 && r.cols > 0, "an empty transfer: {r:?}");
    assert!(
        at.row0 + r.rows <= buffer.rows && at.col0 + r.cols <= buffer.cols,
        "{r:?} at {at:?} leaves its buffer"
    );
}

/// The result after the program has run.
pub fn run(program: &Program, host: &Host, order: Order) -> Matrix {
    let poison = |b: &crate::plan::program::Buffer| Matrix::filled(b.rows, b.cols, Complex::POISON);
    let mut device: Vec<Matrix> = program.buffers.iter().map(poison).collect();
    let mut result = host.c.clone();
    let mut written = vec![false; result.data.len()];
    let mut chance = if let Order::Random(seed) = order {
        seed
    } else {
        0
    };
    let mut state = State::new(program);
    while !state.pending.is_empty() {
        let action = state.choose(order, &mut chance);
        match action {
            Action::Upload(s, i) => {
                let upload = &program.steps[s].uploads[i];
                let from = match upload.from {
                    Operand::A => &host.a,
                    Operand::B => host.b.as_ref().expect("an operand that the call has"),
                    Operand::C => &host.c,
                    Operand::Vector(_) => unreachable!("not of level 3"),
                };
                let r = &upload.rectangle;
                inside(&device[upload.to.buffer], upload.to, r);
                for (i, j) in elements(r, upload.area) {
                    let (row, col) = (r.row0 + i, r.col0 + j);
                    assert!(
                        (host.readable)(upload.from, row, col),
                        "{:?} ({row}, {col}) is not the call's to read",
                        upload.from
                    );
                    let x = from.at(row, col);
                    device[upload.to.buffer].set(upload.to.row0 + i, upload.to.col0 + j, x);
                }
            }
            Action::Kernels(s) => {
                for kernel in &program.steps[s].kernels {
                    kernels::run(&mut device, kernel);
                }
            }
            Action::Download(s, i) => {
                let download = &program.steps[s].downloads[i];
                let r = &download.rectangle;
                inside(&device[download.from.buffer], download.from, r);
                for (i, j) in elements(r, download.area) {
                    let (row, col) = (r.row0 + i, r.col0 + j);
                    assert!(
                        (host.writable)(row, col),
                        "C ({row}, {col}) is not the call's"
                    );
                    let at = col * result.rows + row;
                    assert!(!written[at], "C ({row}, {col}) comes back twice");
                    written[at] = true;
                    let from = &device[download.from.buffer];
                    let x = from.at(download.from.row0 + i, download.from.col0 + j);
                    result.set(row, col, x);
                }
            }
        }
        state.done(action);
    }
    for j in 0..result.cols {
        for i in 0..result.rows {
            let mine = (host.writable)(i, j);
            assert_eq!(
                written[j * result.rows + i],
                mine,
                "C ({i}, {j}) comes back"
            );
        }
    }
    result
}
