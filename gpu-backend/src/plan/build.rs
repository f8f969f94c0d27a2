//! Writes a program step by step, and the arithmetic of blocks that all planners share. No policy.

use super::program::{
    Area, Buffer, Download, Kernel, Operand, Place, Program, Rectangle, Step, Upload,
};
use call::{Trans, Uplo};
use std::ops::Range;

/// The rectangle of the given rows and columns.
pub fn block(rows: &Range<usize>, cols: &Range<usize>) -> Rectangle {
    Rectangle {
        row0: rows.start,
        rows: rows.len(),
        col0: cols.start,
        cols: cols.len(),
    }
}

/// The part of X, as stored, that is the given rows and columns of op(X).
pub fn op_block(trans: Trans, rows: &Range<usize>, cols: &Range<usize>) -> Rectangle {
    match trans {
        Trans::N => block(rows, cols),
        Trans::T | Trans::C => block(cols, rows),
    }
}

/// The elements of a block that lie in the triangle `uplo` of its matrix, without the diagonal if
/// `strict`.
pub fn triangle(uplo: Uplo, at: &Rectangle, strict: bool) -> Area {
    // Row row0 + i, column col0 + j: i <= j + (col0 - row0) is the upper triangle.
    let shift = at.col0 as isize - at.row0 as isize;
    match uplo {
        Uplo::U => Area::Upper {
            shift: shift - isize::from(strict),
        },
        Uplo::L => Area::Lower {
            shift: shift + isize::from(strict),
        },
    }
}

/// A device matrix that holds an operand (or part of it) at the operand's own indices minus `origin`.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Whose.
    pub operand: Operand,
    /// Index in the program's buffers.
    pub buffer: usize,
    /// Row and column of the operand that stand at the buffer's corner.
    pub origin: (usize, usize),
}

impl Held {
    /// Where a part of the operand, as stored, has its corner on the device.
    pub fn place(&self, at: &Rectangle) -> Place {
        Place {
            buffer: self.buffer,
            row0: at.row0 - self.origin.0,
            col0: at.col0 - self.origin.1,
        }
    }
}

/// A program that is being written.
#[derive(Default)]
pub struct Builder {
    program: Program,
    step: Step,
}

impl Builder {
    /// A new device matrix.
    pub fn buffer(&mut self, rows: usize, cols: usize) -> usize {
        self.program.buffers.push(Buffer::new(rows, cols));
        self.program.buffers.len() - 1
    }

    /// A new device matrix that mirrors a whole operand, given as stored.
    pub fn mirror(&mut self, operand: Operand, stored: Rectangle) -> Held {
        Held {
            operand,
            buffer: self.buffer(stored.rows, stored.cols),
            origin: (0, 0),
        }
    }

    /// Uploads a part of an operand.
    pub fn upload(&mut self, to: &Held, rectangle: Rectangle, area: Area) {
        let to_place = to.place(&rectangle);
        self.step.uploads.push(Upload {
            from: to.operand,
            rectangle,
            area,
            to: to_place,
        });
    }

    /// Uploads a part of an operand, unless none of its elements takes part (the strict triangle of a
    /// 1 x 1 block).
    pub fn upload_some(&mut self, to: &Held, rectangle: Rectangle, area: Area) {
        if (0..rectangle.cols).any(|j| area.rows_of(j, rectangle.rows).1 > 0) {
            self.upload(to, rectangle, area);
        }
    }

    /// Launches kernels.
    pub fn kernels(&mut self, kernels: impl IntoIterator<Item = Kernel>) {
        self.step.kernels.extend(kernels);
    }

    /// Downloads a part of the result.
    pub fn download(&mut self, from: &Held, rectangle: Rectangle, area: Area) {
        let place = from.place(&rectangle);
        self.step.downloads.push(Download {
            to: Operand::C,
            from: place,
            rectangle,
            area,
        });
    }

    /// Nothing of the current step begins before the steps before number `count` are over.
    pub fn after(&mut self, count: usize) {
        self.step.after = self.step.after.max(count);
    }

    /// Number of the current step.
    pub fn number(&self) -> usize {
        self.program.steps.len()
    }

    /// Ends the current step and begins the next one.
    pub fn next(&mut self) {
        self.program.steps.push(std::mem::take(&mut self.step));
    }

    /// The program; a step that was begun and is empty is left out.
    pub fn finish(mut self, finite_only: bool) -> Program {
        if self.step != Step::default() {
            self.next();
        }
        self.program.finite_only = finite_only;
        self.program
    }
}
