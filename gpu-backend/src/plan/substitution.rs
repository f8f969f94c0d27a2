//! trmm and trsm that do not fit the device: a panel of the result stays there with the whole order of A,
//! blocks of A pass through a ring of slots, and the other dimension is cut so that it fits.
//!
//! The panel's blocks are treated in two halves, so that half of the panel is always free to go down and
//! be replaced while the other half is computed: within the first half; then between the halves, after
//! which the first half is done with; then within the second half, while the next panel's first half comes
//! up; its second half follows while its first half is computed.

use super::build::{Builder, Held, block};
use super::program::{Area, Buffer, Operand, Program, Tuning};
use super::rates;
use super::sizes::{Sizes, part_counts, ranges};
use super::triangular::Triangular;
use call::{Failure, Level3Call};
use std::ops::Range;

/// Order of a block of A, and the other dimension of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    block: usize,
    panel: usize,
}

/// What the choice of a cut depends on besides the call's sizes.
#[derive(Clone, Copy, Debug)]
struct Machine {
    elem_bytes: usize,
    /// Real operations of one multiplication and addition.
    flops: f64,
    sm_count: usize,
}

/// One kernel: block `own` of the result from block `from` (the same: the diagonal block).
#[derive(Clone, Copy, Debug)]
struct Task {
    own: usize,
    from: usize,
    /// The first task that writes `own`.
    first: bool,
    /// The last one: the block then is the result.
    last: bool,
}

/// The program of a trmm or trsm that does not fit.
///
/// # Errors
/// [`Failure::OutOfMemory`] when the smallest panel and blocks pass the budget.
pub fn out_of_core(
    call: &Level3Call<'_>,
    tuning: &Tuning,
    sizes: &Sizes,
) -> Result<Program, Failure> {
    let triangular = Triangular::new(call);
    let machine = Machine {
        elem_bytes: call.precision.elem_bytes(),
        flops: call.precision.flops_of_madd(),
        sm_count: tuning.sm_count,
    };
    let cut = choose(&triangular, &machine, tuning.budget_bytes, sizes)?;
    let writer = Writer::new(&triangular, &cut, machine.elem_bytes, sizes);
    Ok(writer.write())
}

/// A program that is being written.
struct Writer<'t> {
    triangular: &'t Triangular,
    program: Builder,
    /// Blocks of A's order as they are treated; the first `half` of them are the first half.
    blocks: Vec<Range<usize>>,
    half: usize,
    panels: Vec<Range<usize>>,
    c: usize,
    slots: Vec<usize>,
    /// For each block, the steps that must be over before its place may be overwritten.
    busy_until: Vec<usize>,
    /// For each block, the panel that it was last asked to hold, plus one, and how many chunks of it.
    holds: Vec<(usize, usize)>,
    /// For each block, panels whose last task for it is written.
    finished: Vec<usize>,
    /// Runs of the other dimension in which a block comes up.
    chunks: usize,
}

impl<'t> Writer<'t> {
    fn new(triangular: &'t Triangular, cut: &Cut, elem_bytes: usize, sizes: &Sizes) -> Self {
        let mut blocks = triangular.by_need(ranges(triangular.order, cut.block));
        if !triangular.solves() {
            // In place: a block is overwritten when all that need its old value are done.
            blocks.reverse();
        }
        let block_bytes = (cut.block * elem_bytes).saturating_mul(cut.panel);
        let mut program = Builder::default();
        let c_part = triangular.part(&(0..triangular.order), &(0..cut.panel));
        let c = program.buffer(c_part.rows, c_part.cols);
        let count = slots(triangular, cut, sizes);
        let slots = (0..count)
            .map(|_| program.buffer(cut.block, cut.block))
            .collect();
        Self {
            triangular,
            program,
            half: blocks.len() / 2,
            busy_until: vec![0; blocks.len()],
            finished: vec![0; blocks.len()],
            holds: vec![(0, 0); blocks.len()],
            chunks: (block_bytes / sizes.panel_min_bytes.max(1)).clamp(1, cut.panel),
            blocks,
            panels: ranges(triangular.other, cut.panel),
            c,
            slots,
        }
    }

    fn write(mut self) -> Program {
        let (first_half, second_half) = (0..self.half, self.half..self.blocks.len());
        // trsm needs its second half row by row, trmm is done with its first half row by row: what comes
        // up has two phases' time.
        let (middle, solves) = (self.chunks * self.half.max(1) / 2, self.triangular.solves());
        for panel in 0..self.panels.len() {
            let own = |units| (panel, second_half.start, units);
            let next = |units| (panel + 1, first_half.start, units);
            let own_units = self.chunks * second_half.len();
            let next_units = self.chunks * first_half.len();
            let tasks = self.within(&first_half);
            let in_first = if solves { middle } else { own_units };
            self.phase(panel, &tasks, own(0..in_first));
            let tasks = self.between();
            let meanwhile = if solves {
                own(in_first..own_units)
            } else {
                next(0..middle)
            };
            self.phase(panel, &tasks, meanwhile);
            let tasks = self.within(&second_half);
            let before = if solves { 0 } else { middle.min(next_units) };
            self.phase(panel, &tasks, next(before..next_units));
        }
        self.program.finish(true)
    }

    /// The tasks among the blocks of one half. trsm: each block takes what those before it give, then is
    /// solved. trmm: each block is multiplied, then takes what those behind it give (in the first half as
    /// soon as they are there, so that they may still be on their way).
    fn within(&self, half: &Range<usize>) -> Vec<Task> {
        let solves = self.triangular.solves();
        let second = half.start == self.half;
        let mut tasks = Vec::new();
        for own in half.clone() {
            if solves {
                tasks.extend((half.start..own).map(|from| (own, from)));
                tasks.push((own, own));
            } else if second {
                tasks.push((own, own));
                tasks.extend((own + 1..half.end).map(|from| (own, from)));
            } else {
                tasks.extend((half.start..own).map(|earlier| (earlier, own)));
                tasks.push((own, own));
            }
        }
        tasks
            .into_iter()
            .map(|(own, from)| self.task(own, from))
            .collect()
    }

    /// The tasks between the halves: trsm's second half takes from the first, trmm's first from the second.
    fn between(&self) -> Vec<Task> {
        let (first, second) = (0..self.half, self.half..self.blocks.len());
        let (to, from) = if self.triangular.solves() {
            (second, first)
        } else {
            (first, second)
        };
        let pairs = to.flat_map(|own| from.clone().map(move |from| (own, from)));
        pairs.map(|(own, from)| self.task(own, from)).collect()
    }

    fn task(&self, own: usize, from: usize) -> Task {
        let all = self.blocks.len();
        if self.triangular.solves() {
            let first = if own == 0 { from == own } else { from == 0 };
            Task {
                own,
                from,
                first,
                last: from == own,
            }
        } else {
            Task {
                own,
                from,
                first: from == own,
                last: from == all - 1,
            }
        }
    }

    /// Writes tasks, one a step, and meanwhile brings up chunks of blocks, from the first unit to the last
    /// spread over the steps: (panel, first block, units).
    fn phase(
        &mut self,
        panel: usize,
        tasks: &[Task],
        (next_panel, first, units): (usize, usize, Range<usize>),
    ) {
        for (i, task) in tasks.iter().enumerate() {
            for block in [task.own, task.from] {
                self.bring(block, panel, self.chunks, true);
            }
            let due = units.start + (units.len() * (i + 1)).div_ceil(tasks.len());
            if next_panel < self.panels.len() {
                for unit in (0..due).step_by(self.chunks) {
                    let chunks = self.chunks.min(due - unit);
                    self.bring(first + unit / self.chunks, next_panel, chunks, false);
                }
            }
            self.step(panel, task);
        }
    }

    fn held(&self, panel: usize) -> Held {
        let corner = self.triangular.part(&(0..1), &self.panels[panel]);
        Held {
            operand: Operand::C,
            buffer: self.c,
            origin: (corner.row0, corner.col0),
        }
    }

    /// Uploads the first so many chunks of a block of the result, unless they are there; if not `now`, only
    /// if that holds nobody back.
    fn bring(&mut self, block: usize, panel: usize, chunks: usize, now: bool) {
        let patience = (self.program.number() + 1).saturating_sub(self.slots.len());
        let (held_panel, held_chunks) = self.holds[block];
        let there = if held_panel == panel + 1 {
            held_chunks
        } else {
            0
        };
        let waits = !now && (self.finished[block] < panel || self.busy_until[block] > patience);
        if held_panel > panel + 1 || there >= chunks || waits {
            return;
        }
        self.holds[block] = (panel + 1, chunks);
        self.program.after(self.busy_until[block]);
        let other = &self.panels[panel];
        let width = other.len().div_ceil(self.chunks);
        let at = |chunk: usize| other.end.min(other.start + chunk * width);
        let run = at(there)..at(chunks);
        if !run.is_empty() {
            let part = self.triangular.part(&self.blocks[block], &run);
            let held = self.held(panel);
            self.program.upload(&held, part, Area::Full);
        }
    }

    fn step(&mut self, panel: usize, task: &Task) {
        let number = self.program.number();
        let (own, from) = (
            self.blocks[task.own].clone(),
            self.blocks[task.from].clone(),
        );
        let other = self.panels[panel].clone();
        self.program
            .after((number + 1).saturating_sub(self.slots.len()));
        let slot = self.slots[number % self.slots.len()];
        let c = self.held(panel);
        let diagonal = task.own == task.from;
        let part = if diagonal {
            block(&own, &own)
        } else {
            self.triangular.a_part(&own, &from)
        };
        let area = if diagonal {
            self.triangular.a_area(&part)
        } else {
            Area::Full
        };
        let a = Held {
            operand: Operand::A,
            buffer: slot,
            origin: (part.row0, part.col0),
        };
        self.program.upload_some(&a, part, area);
        let kernel = if diagonal {
            let scaled = self.triangular.solves() && !task.first;
            self.triangular.diagonal((&own, &other), &a, &c, &c, scaled)
        } else {
            self.triangular
                .off_diagonal((&own, &from, &other), &a, &c, &c, task.first)
        };
        self.program.kernels([kernel]);
        if task.last {
            self.finished[task.own] = panel + 1;
            let part = self.triangular.part(&own, &other);
            self.program.download(&c, part, Area::Full);
        }
        self.busy_until[task.own] = number + 1;
        self.busy_until[task.from] = number + 1;
        self.program.next();
    }
}

/// Slots of the ring: never more than blocks of A pass.
fn slots(triangular: &Triangular, cut: &Cut, sizes: &Sizes) -> usize {
    let blocks = triangular.order.div_ceil(cut.block);
    let panels = triangular.other.div_ceil(cut.panel);
    let steps = blocks.saturating_mul(blocks + 1) / 2;
    sizes.slots.min(steps.saturating_mul(panels)).max(1)
}

/// Device bytes of a cut.
fn bytes(triangular: &Triangular, elem_bytes: usize, cut: &Cut, sizes: &Sizes) -> u64 {
    let part = triangular.part(&(0..triangular.order), &(0..cut.panel));
    let c_bytes = Buffer::new(part.rows, part.cols).bytes(elem_bytes);
    let slot_bytes = Buffer::new(cut.block, cut.block).bytes(elem_bytes);
    let count = slots(triangular, cut, sizes) as u64;
    c_bytes.saturating_add(slot_bytes.saturating_mul(count))
}

/// Predicted seconds of a cut: the longer one of uploads and kernels, and what nothing overlaps at the
/// beginning and the end.
fn seconds(triangular: &Triangular, call: &Machine, cut: &Cut, sizes: &Sizes) -> f64 {
    let (order, other) = (triangular.order as f64, triangular.other as f64);
    let panels = triangular.other.div_ceil(cut.panel) as f64;
    let block_order = cut.block as f64;
    let elem_bytes = call.elem_bytes as f64;
    let c_bytes = order * other * elem_bytes;
    let a_bytes = panels * order * (order + block_order) / 2.0 * elem_bytes;
    let steps = panels * (order / block_order).ceil().powi(2) / 2.0;
    let up_s = (a_bytes + c_bytes) / rates::BOTH_BYTES_PER_S + steps * rates::STEP_S;
    let kernel_flops = order * (order + block_order) / 2.0 * other * call.flops;
    let inner_rate = block_order / (block_order + rates::HALF_RATE_K);
    let tiles = cut.block.div_ceil(sizes.tile) * cut.panel.div_ceil(sizes.tile);
    let waves = tiles.div_ceil(call.sm_count.max(1)) * call.sm_count.max(1);
    let wave_rate = tiles as f64 / waves as f64;
    let kernels_s = kernel_flops / (rates::KERNEL_FLOPS_PER_S * inner_rate * wave_rate);
    let ends = 2.0 * block_order * cut.panel as f64 * elem_bytes;
    up_s.max(kernels_s) + ends / rates::DOWN_BYTES_PER_S
}

/// The fastest cut that fits.
fn choose(
    triangular: &Triangular,
    call: &Machine,
    budget_bytes: u64,
    sizes: &Sizes,
) -> Result<Cut, Failure> {
    let mut best: Option<(f64, Cut)> = None;
    let smallest = |length: usize| length.min(sizes.tile.max(1));
    let least = Cut {
        block: smallest(triangular.order),
        panel: smallest(triangular.other),
    };
    let mut block = sizes.block_max.min(triangular.order).max(least.block);
    loop {
        let widest = part_counts(triangular.other.div_ceil(least.panel)).find_map(|parts| {
            let panel = triangular.other.div_ceil(parts).max(least.panel);
            let cut = Cut { block, panel };
            (bytes(triangular, call.elem_bytes, &cut, sizes) <= budget_bytes).then_some(cut)
        });
        if let Some(cut) = widest {
            let time_s = seconds(triangular, call, &cut, sizes);
            if best.is_none_or(|(best_s, _)| time_s < best_s) {
                best = Some((time_s, cut));
            }
        }
        if block <= least.block {
            break;
        }
        // Three quarters, in whole tiles.
        let smaller = (block / 4 * 3).min(block - 1) / sizes.tile.max(1) * sizes.tile.max(1);
        block = smaller.max(least.block);
    }
    best.map(|(_, cut)| cut).ok_or(Failure::OutOfMemory {
        needed_bytes: bytes(triangular, call.elem_bytes, &least, sizes),
        budget_bytes,
    })
}
