//! A model of the pool: several calls and the housekeeper's trim in every order that chance finds. The
//! budget is never exceeded, nothing is lent twice, nothing is lost.

use super::{Block, Budget, DeviceMemory, GRAIN_BYTES, Pool};
use crate::device::Health;
use crate::error::CudaError;
use crate::result::DeviceAddress;
use call::Failure;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The budget, in grains.
const LIMIT: u64 = 10;

/// A device that counts what it has given, with a switch of threads inside each call.
#[derive(Default)]
struct Counted {
    given: Mutex<BTreeMap<DeviceAddress, u64>>,
    next: Mutex<DeviceAddress>,
}

impl DeviceMemory for Counted {
    fn memory_bytes(&self) -> Result<(u64, u64), CudaError> {
        shuttle::thread::yield_now();
        Ok((1 << 40, 1 << 41))
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceAddress, CudaError> {
        shuttle::thread::yield_now();
        let address = {
            let mut next = self.next.lock().expect("no poison");
            *next += 1 << 30;
            *next
        };
        let mut given = self.given.lock().expect("no poison");
        given.insert(address, bytes as u64);
        let held: u64 = given.values().sum();
        assert!(held <= LIMIT * GRAIN_BYTES, "{held} bytes are held");
        Ok(address)
    }

    unsafe fn free(&self, address: DeviceAddress) -> Result<(), CudaError> {
        shuttle::thread::yield_now();
        let freed = self.given.lock().expect("no poison").remove(&address);
        assert!(freed.is_some(), "{address:#x} is given back twice");
        Ok(())
    }
}

/// One thread's calls: blocks of so many grains, one after the other.
fn use_blocks(
    pool: &Pool,
    device: &Counted,
    health: &Health,
    lent: &Mutex<Vec<u64>>,
    sizes: &[u64],
) {
    for grains in sizes {
        match pool.take(device, health, grains * GRAIN_BYTES) {
            Ok(block) => {
                {
                    let mut lent = lent.lock().expect("no poison");
                    assert!(!lent.contains(&block.address), "lent twice");
                    lent.push(block.address);
                }
                shuttle::thread::yield_now();
                lent.lock()
                    .expect("no poison")
                    .retain(|&a| a != block.address);
                pool.put(Block { ..block });
            }
            Err(Failure::OutOfMemory { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn pool_under_load() {
    let pool = Arc::new(Pool::new(Budget {
        limit_bytes: LIMIT * GRAIN_BYTES,
        reserve_bytes: 0,
    }));
    let shared = (Arc::new(Counted::default()), Arc::new(Health::new()));
    let lent = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = [vec![6, 2], vec![8, 2], vec![2, 6]]
        .into_iter()
        .map(|sizes: Vec<u64>| {
            let (pool, lent) = (Arc::clone(&pool), Arc::clone(&lent));
            let (device, health) = (Arc::clone(&shared.0), Arc::clone(&shared.1));
            shuttle::thread::spawn(move || use_blocks(&pool, &device, &health, &lent, &sizes))
        })
        .collect();
    pool.trim(&*shared.0, &shared.1, 2 * GRAIN_BYTES)
        .expect("nothing fails");
    for thread in threads {
        thread.join().expect("no panic");
    }
    // Everything is cached now, and counted so.
    let held: u64 = shared.0.given.lock().expect("no poison").values().sum();
    assert_eq!(pool.counts().2, held);
    pool.trim(&*shared.0, &shared.1, 0).expect("nothing fails");
    assert!(shared.0.given.lock().expect("no poison").is_empty());
    // A pool that nobody uses has its whole budget again.
    let all = pool.take(&*shared.0, &shared.1, LIMIT * GRAIN_BYTES);
    assert!(all.is_ok(), "{all:?}");
}

#[test]
fn model_the_budget_is_kept_and_nothing_is_lent_twice() {
    shuttle::check_random(pool_under_load, 3000);
    shuttle::check_pct(pool_under_load, 3000, 3);
}
