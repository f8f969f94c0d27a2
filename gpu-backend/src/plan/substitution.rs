//! trmm and trsm that do not fit the device: a panel of the result stays there with the whole order of A,
//! blocks of A pass through a ring of slots, and the other dimension is cut so that it fits.
//!
//! The panel's blocks are treated in two halves, so that half of the panel is always free to go down and
//! be replaced while the other half is computed: within the first half; then between the halves, after
//! which the first half is done with; then within the second half, while the next panel's first half comes
//! up; its second half follows while its first half is computed.

use super::build::{Builder, Held, block};
use super::program::{Area, Buffer, Operand, Program};
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
    budget_bytes: u64,
    sizes: &Sizes,
) -> Result<Program, Failure> {
    let triangular = Triangular::new(call);
    let elem_bytes = call.precision.elem_bytes();
    let flops = rates::flops_of_one(call.precision);
    let cut = choose(&triangular, (elem_bytes, flops), budget_bytes, sizes)?;
    let writer = Writer::new(&triangular, &cut, sizes);
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
    /// For each block, the panel that it holds or was last asked to hold, plus one.
    holds: Vec<usize>,
}

impl<'t> Writer<'t> {
    fn new(triangular: &'t Triangular, cut: &Cut, sizes: &Sizes) -> Self {
        let mut blocks = triangular.by_need(ranges(triangular.order, cut.block));
        if !triangular.solves() {
            // In place: a block is overwritten when all that need its old value are done.
            blocks.reverse();
        }
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
            holds: vec![0; blocks.len()],
            blocks,
            panels: ranges(triangular.other, cut.panel),
            c,
            slots,
        }
    }

    fn write(mut self) -> Program {
        let (first_half, second_half) = (0..self.half, self.half..self.blocks.len());
        for panel in 0..self.panels.len() {
            let within_first = self.within(&first_half);
            self.phase(panel, &within_first, (panel, second_half.clone()));
            let between = self.between();
            self.phase(panel, &between, (panel, 0..0));
            let within_second = self.within(&second_half);
            self.phase(panel, &within_second, (panel + 1, first_half.clone()));
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

    /// Writes tasks, one a step, and meanwhile brings up the blocks `next` (of the panel it names), spread
    /// over the steps.
    fn phase(&mut self, panel: usize, tasks: &[Task], (next_panel, next): (usize, Range<usize>)) {
        for (i, task) in tasks.iter().enumerate() {
            let due = next.start + (next.len() * (i + 1)).div_ceil(tasks.len());
            for block in [task.own, task.from] {
                self.bring(block, panel, true);
            }
            if next_panel < self.panels.len() {
                (next.start..due).for_each(|block| self.bring(block, next_panel, false));
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

    /// Uploads a block of the result, unless it is there; if not `now`, only if that holds nobody back.
    fn bring(&mut self, block: usize, panel: usize, now: bool) {
        let patience = (self.program.number() + 1).saturating_sub(self.slots.len());
        if self.holds[block] > panel || (!now && self.busy_until[block] > patience) {
            return;
        }
        self.holds[block] = panel + 1;
        self.program.after(self.busy_until[block]);
        let part = self
            .triangular
            .part(&self.blocks[block], &self.panels[panel]);
        let held = self.held(panel);
        self.program.upload(&held, part, Area::Full);
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
    let c_bytes = Buffer {
        rows: part.rows,
        cols: part.cols,
    }
    .bytes(elem_bytes);
    let slot_bytes = Buffer {
        rows: cut.block,
        cols: cut.block,
    }
    .bytes(elem_bytes);
    let count = slots(triangular, cut, sizes) as u64;
    c_bytes.saturating_add(slot_bytes.saturating_mul(count))
}

/// Predicted seconds of a cut: the longer one of uploads and kernels, and what nothing overlaps at the
/// beginning and the end.
fn seconds(triangular: &Triangular, elem_bytes: usize, flops: f64, cut: &Cut) -> f64 {
    let (order, other) = (triangular.order as f64, triangular.other as f64);
    let panels = triangular.other.div_ceil(cut.panel) as f64;
    let block_order = cut.block as f64;
    let c_bytes = order * other * elem_bytes as f64;
    let a_bytes = panels * order * (order + block_order) / 2.0 * elem_bytes as f64;
    let up_s = (a_bytes + c_bytes) / rates::BOTH_BYTES_PER_S;
    let kernel_flops = order * (order + block_order) / 2.0 * other * flops;
    let kernels_s =
        kernel_flops / rates::KERNEL_FLOPS_PER_S * (block_order + rates::HALF_RATE_K) / block_order;
    let ends = 2.0 * block_order * cut.panel as f64 * elem_bytes as f64;
    up_s.max(kernels_s) + ends / rates::DOWN_BYTES_PER_S
}

/// The fastest cut that fits.
fn choose(
    triangular: &Triangular,
    (elem_bytes, flops): (usize, f64),
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
            (bytes(triangular, elem_bytes, &cut, sizes) <= budget_bytes).then_some(cut)
        });
        if let Some(cut) = widest {
            let time_s = seconds(triangular, elem_bytes, flops, &cut);
            if best.is_none_or(|(best_s, _)| time_s < best_s) {
                best = Some((time_s, cut));
            }
        }
        if block <= least.block {
            break;
        }
        block = (block / 2).max(least.block);
    }
    best.map(|(_, cut)| cut).ok_or(Failure::OutOfMemory {
        needed_bytes: bytes(triangular, elem_bytes, &least, sizes),
        budget_bytes,
    })
}
