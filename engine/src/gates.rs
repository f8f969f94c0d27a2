//! The thresholds of every routed routine, and which shims know them.
//!
//! No lock: a process may fork, and calls arrive on any thread. Must not know how a threshold is found.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use cost_model::DEFAULT_THRESHOLD_WORK;
use engine_abi::HostTable;
use routines::{Op, Precision, routed};

/// One routine's threshold.
struct Gate {
    op: Op,
    precision: Precision,
    flops_per_work: f64,
    work: AtomicU64,
}

/// The generation that one shim was told.
#[derive(Default)]
struct Told {
    /// Address of the shim's table; 0 for nobody. Never changes once it is set.
    host: AtomicUsize,
    generation: AtomicU64,
}

/// Shims that are remembered: libblas.so.3 and liblapack.so.3, and a reloaded one of each. Any other is
/// told everything at each of its calls.
const REMEMBERED: usize = 4;

/// Codes of families are below this.
const CODES: usize = 64;

/// Place of a routine among all, routed or not.
fn slot(op: Op, precision: Precision) -> usize {
    let precision = match precision {
        Precision::S => 0,
        Precision::D => 1,
        Precision::C => 2,
        Precision::Z => 3,
    };
    op as usize * 4 + precision
}

/// All thresholds.
pub(crate) struct Gates {
    gates: Vec<Gate>,
    /// By [`slot`], where a routine's gate is: each heavy call of LAPACK asks.
    places: [Option<u16>; 4 * CODES],
    /// Counts changes, from 1.
    generation: AtomicU64,
    told: [Told; REMEMBERED],
}

impl Gates {
    /// Every routed routine's threshold at its default.
    pub(crate) fn new() -> Self {
        let gate = |(family, precision, _): (&routines::Family, Precision, String)| Gate {
            op: family.op,
            precision,
            flops_per_work: family.flops_per_work(precision),
            work: AtomicU64::new(DEFAULT_THRESHOLD_WORK),
        };
        let gates: Vec<Gate> = routed().map(gate).collect();
        let mut places = [None; 4 * CODES];
        for (i, gate) in (0..).zip(&gates) {
            places[slot(gate.op, gate.precision)] = Some(i);
        }
        Self {
            gates,
            places,
            generation: AtomicU64::new(1),
            told: Default::default(),
        }
    }

    /// Sets every threshold to what `work` says of a routine and its flops a unit of work.
    pub(crate) fn set(&self, mut work: impl FnMut(Op, Precision, f64) -> u64) {
        for gate in &self.gates {
            let work = work(gate.op, gate.precision, gate.flops_per_work);
            gate.work.store(work, Ordering::Relaxed);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// One routine's threshold; out of reach for a routine that is not routed.
    pub(crate) fn work(&self, op: Op, precision: Precision) -> u64 {
        self.places[slot(op, precision)].map_or(u64::MAX, |i| {
            self.gates[usize::from(i)].work.load(Ordering::Relaxed)
        })
    }

    /// Tells a shim every threshold.
    pub(crate) fn publish(&self, host: &HostTable) {
        // Read first: a change meanwhile makes this telling an old one, and the next call tells again.
        let generation = self.generation.load(Ordering::Acquire);
        for gate in &self.gates {
            let work = gate.work.load(Ordering::Relaxed);
            (host.set_threshold)(gate.op as u32, u32::from(gate.precision as u8), work);
        }
        if let Some(told) = self.told(host) {
            told.generation.store(generation, Ordering::Release);
        }
    }

    /// Tells a shim every threshold unless it knows them.
    pub(crate) fn publish_changes(&self, host: &HostTable) {
        let generation = self.generation.load(Ordering::Acquire);
        let known = self
            .told(host)
            .is_some_and(|told| told.generation.load(Ordering::Acquire) == generation);
        if !known {
            self.publish(host);
        }
    }

    /// Where it stands what this shim was told; `None` if too many others are remembered. A shim that is
    /// loaded again at an old one's address registers, and is told everything then.
    fn told(&self, host: &HostTable) -> Option<&Told> {
        let address = core::ptr::from_ref(host).addr();
        self.told.iter().find(|told| {
            let taken = told
                .host
                .compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok() || taken == Err(address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_char;

    static STORES: AtomicU64 = AtomicU64::new(0);
    static LAST_TRSM: AtomicU64 = AtomicU64::new(0);

    extern "C" fn set_threshold(op: u32, precision: u32, work: u64) {
        STORES.fetch_add(1, Ordering::Relaxed);
        if (op, precision) == (Op::Trsm as u32, u32::from(b'Z')) {
            LAST_TRSM.store(work, Ordering::Relaxed);
        }
    }

    extern "C" fn cpu_threads() -> i32 {
        1
    }

    extern "C" fn rest(_begins: i32) {}

    extern "C" fn cpu_config() -> *const c_char {
        c"".as_ptr()
    }

    fn host() -> HostTable {
        HostTable {
            abi_version: 0,
            struct_bytes: 0,
            set_threshold,
            cpu_threads,
            cpu_config,
            rest,
        }
    }

    #[test]
    fn a_shim_is_told_once_a_change_and_too_many_shims_each_time() {
        let (gates, hosts) = (Gates::new(), [(); 5].map(|()| host()));
        let all = gates.gates.len() as u64;
        let stores = |tell: &dyn Fn()| {
            let before = STORES.load(Ordering::Relaxed);
            tell();
            STORES.load(Ordering::Relaxed) - before
        };
        for (i, host) in hosts.iter().enumerate() {
            assert_eq!(stores(&|| gates.publish_changes(host)), all);
            let again = if i < REMEMBERED { 0 } else { all };
            assert_eq!(stores(&|| gates.publish_changes(host)), again);
            assert_eq!(
                stores(&|| gates.publish(host)),
                all,
                "a shim that registers"
            );
        }
        gates.set(|op, precision, flops_per_work| {
            assert!(op != Op::Trsm || precision != Precision::Z || flops_per_work == 4.0);
            slot(op, precision) as u64
        });
        for (family, precision, name) in routed() {
            let work = slot(family.op, precision) as u64;
            assert_eq!(gates.work(family.op, precision), work, "{name}");
        }
        assert_eq!(gates.work(Op::Symm, Precision::S), Op::Symm as u64 * 4);
        assert_eq!(
            gates.work(Op::Hemm, Precision::S),
            u64::MAX,
            "no such routine"
        );
        assert_eq!(stores(&|| gates.publish_changes(&hosts[0])), all);
        assert_eq!(LAST_TRSM.load(Ordering::Relaxed), Op::Trsm as u64 * 4 + 3);
        assert_eq!(stores(&|| gates.publish_changes(&hosts[0])), 0);
    }
}
