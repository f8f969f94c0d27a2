//! A call of level 3 or of LAPACK, for tests that do the same to both.

use super::Matrix;
use super::family::Family;
use super::lapack::Case;
use call::{Failure, Op, Timing};
use gpu_backend::{Gpu, testing};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A call.
#[derive(Clone)]
pub enum Subject {
    Level3 {
        family: Family,
        /// A result that was held against the definition, which takes longer than the call.
        right: Option<Matrix>,
    },
    Lapack {
        case: Case,
        /// Results in place are downloaded over what is kept, instead of going through scratch.
        keeps: bool,
        /// What comes of it.
        right: Option<Box<Case>>,
    },
}

impl Subject {
    pub fn level3(family: Family) -> Self {
        Subject::Level3 {
            family,
            right: None,
        }
    }

    pub fn lapack(case: Case, keeps: bool) -> Self {
        Subject::Lapack {
            case,
            keeps,
            right: None,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Subject::Level3 { family, .. } => family.name(),
            Subject::Lapack { case, keeps, .. } => {
                let way = if *keeps { "kept" } else { "in scratch" };
                format!("{} {way}", case.name())
            }
        }
    }

    pub fn op(&self) -> Op {
        match self {
            Subject::Level3 { family, .. } => family.op,
            Subject::Lapack { case, .. } => case.op,
        }
    }

    /// Runs it on the device.
    pub fn run(&mut self, gpu: &Gpu) -> Result<Timing, Failure> {
        match self {
            Subject::Level3 { family, .. } => family.run(gpu),
            Subject::Lapack { case, keeps, .. } => {
                testing::set_keeps(Some(*keeps));
                case.run(gpu)
            }
        }
    }

    /// Learns what is right from a run without faults and delays: kernels of LAPACK give the same bits in each.
    pub fn learn(&mut self, gpu: &Gpu) {
        let mut done = self.clone();
        let ran = done.run(gpu);
        assert!(ran.is_ok(), "{}: {ran:?}", self.name());
        assert!(self.is_right(&done), "{}: a wrong result", self.name());
        match (self, done) {
            (Subject::Lapack { right, .. }, Subject::Lapack { case, .. }) => {
                *right = Some(Box::new(case));
            }
            (Subject::Level3 { right, .. }, Subject::Level3 { family, .. }) => {
                *right = Some(family.c);
            }
            _ => {}
        }
    }

    /// True if `done` is what comes of this call.
    pub fn is_right(&self, done: &Self) -> bool {
        let check = || match (self, done) {
            (Subject::Level3 { family, right }, Subject::Level3 { family: done, .. }) => {
                family.assert_only_result_differs(done);
                // Other bits may be right as well: those of smaller tiles, say.
                let known = right.as_ref().is_some_and(|c| c.bytes == done.c.bytes);
                if !known {
                    family.check(&done.c);
                }
            }
            (Subject::Lapack { right, .. }, Subject::Lapack { case, .. }) => {
                if let Some(right) = right {
                    case.assert_is(right);
                }
            }
            _ => panic!("another call"),
        };
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    }

    /// Fails unless everything that is read is as it was.
    pub fn assert_kept(&self, done: &Self, what: &str) {
        match (self, done) {
            (Subject::Level3 { family: before, .. }, Subject::Level3 { family: done, .. }) => {
                before.assert_only_result_differs(done);
                let kept = !before.reads_result() || done.c.bytes == before.c.bytes;
                assert!(kept, "{what}: C was written");
            }
            (Subject::Lapack { case: before, .. }, Subject::Lapack { case: done, .. }) => {
                done.assert_inputs_are_those_of(before, what);
            }
            _ => panic!("another call"),
        }
    }
}
