//! What the program has made and not yet given back, and what it has given back already: the source of
//! the report's leaks and of the complaints about things that are used or freed after their end.

use core::fmt;
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    DeviceMemory,
    PinnedMemory,
    Stream,
    Event,
    BlasHandle,
    SolverHandle,
    SolverParams,
    Context,
}

const KINDS: [Kind; 8] = [
    Kind::DeviceMemory,
    Kind::PinnedMemory,
    Kind::Stream,
    Kind::Event,
    Kind::BlasHandle,
    Kind::SolverHandle,
    Kind::SolverParams,
    Kind::Context,
];

impl Kind {
    /// As in the lines `live NAME COUNT`.
    fn counter(self) -> &'static str {
        match self {
            Self::DeviceMemory => "device_allocations",
            Self::PinnedMemory => "pinned",
            Self::Stream => "streams",
            Self::Event => "events",
            Self::BlasHandle => "blas_handles",
            Self::SolverHandle => "solver_handles",
            Self::SolverParams => "solver_params",
            Self::Context => "contexts",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceMemory => "device memory",
            Self::PinnedMemory => "pinned memory",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::BlasHandle => "cuBLAS handle",
            Self::SolverHandle => "cuSOLVER handle",
            Self::SolverParams => "cuSOLVER parameters",
            Self::Context => "context",
        })
    }
}

struct Object {
    kind: Kind,
    bytes: u64,
    function: &'static str,
    /// Which call of the function made it, from 1.
    nth: u64,
}

/// Everything by its address or handle; these never coincide between kinds.
#[derive(Default)]
pub struct Registry {
    alive: BTreeMap<u64, Object>,
    dead: HashMap<u64, Kind>,
}

/// Most lines of the report that name single objects: what leaks in thousands is known by a hundred.
const MOST_LINES: usize = 100;

impl Registry {
    pub fn born(&mut self, kind: Kind, id: u64, bytes: u64, (function, nth): (&'static str, u64)) {
        let object = Object {
            kind,
            bytes,
            function,
            nth,
        };
        self.dead.remove(&id);
        self.alive.insert(id, object);
    }

    pub fn died(&mut self, id: u64) {
        if let Some(object) = self.alive.remove(&id) {
            self.dead.insert(id, object.kind);
        }
    }

    /// True if this was one and has ended.
    pub fn is_dead(&self, kind: Kind, id: u64) -> bool {
        self.dead.get(&id) == Some(&kind)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Lines `live NAME COUNT` for every kind, then one line `alive …` for each object.
    pub fn report(&self, text: &mut String) {
        let of = |kind| {
            self.alive
                .values()
                .filter(move |object| object.kind == kind)
        };
        for kind in KINDS {
            text.push_str(&format!("live {} {}\n", kind.counter(), of(kind).count()));
        }
        let bytes: u64 = of(Kind::DeviceMemory).map(|object| object.bytes).sum();
        text.push_str(&format!("live device_bytes {bytes}\n"));
        for (id, object) in self.alive.iter().take(MOST_LINES) {
            let Object {
                kind,
                bytes,
                function,
                nth,
            } = object;
            let size = if *bytes > 0 {
                format!(" of {bytes} bytes")
            } else {
                String::new()
            };
            text.push_str(&format!(
                "alive {kind} {id:#x}{size}, made by {function} call {nth}\n"
            ));
        }
        if let Some(more) = self.alive.len().checked_sub(MOST_LINES + 1) {
            text.push_str(&format!("alive {} more\n", more + 1));
        }
    }
}
