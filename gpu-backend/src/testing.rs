//! Hooks of this crate's own tests: calls that become programs of many small steps, and orders that are
//! left out one at a time, to see that a test notices.
//!
//! Without the feature `testing`, which only the crate's tests switch on, every hook is a constant and
//! nothing is left of it. Nothing else may use them.

/// An order that the engine makes on the host, between what it does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// A step begins, with its uploads, after the steps that must be over.
    BeginAfterSteps,
    /// A step is over only when its downloads are.
    OverAfterDownloads,
    /// A step is over only when its kernels have run.
    OverAfterKernels,
    /// A step's kernels are launched when its uploads are queued.
    KernelsAfterUploads,
    /// A step's downloads begin when its kernels have run.
    DownloadsAfterKernels,
    /// The caller's old result is overwritten when everything has succeeded.
    CopiesAfterSuccess,
    /// The caller's old result is downloaded over when everything has succeeded.
    DeliveryAfterSuccess,
    /// The caller's old result is downloaded over when it is kept.
    DeliveryAfterKeeps,
    /// A chunk is filled again when its last transfer is over.
    FillAfterTransfer,
    /// A chunk is emptied when it has arrived.
    EmptyAfterTransfer,
    /// What a failed call used is lent again when its transfers are over.
    LendAfterTransfers,
    /// What a failed call used is lent again when its kernels have run.
    LendAfterKernels,
}

#[cfg(not(feature = "testing"))]
mod hooks {
    use super::Gate;
    use crate::plan::sizes::Sizes;

    /// Never.
    pub const fn left_out(_: Gate, _: impl FnOnce() -> bool + Copy) -> bool {
        false
    }

    /// The planners' constants.
    pub const fn sizes() -> Sizes {
        Sizes::DEFAULT
    }

    /// By what it costs.
    pub const fn keeps(pays: bool) -> bool {
        pays
    }

    /// The libraries as they are.
    pub const fn is_older() -> bool {
        false
    }

    /// Nothing.
    pub const fn before_keep() {}

    /// Nothing.
    pub const fn note_put_back() {}

    /// cuBLAS's workspace as it is.
    pub const fn workspace_bytes(bytes: u64) -> u64 {
        bytes
    }
}

#[cfg(feature = "testing")]
mod hooks {
    use super::Gate;
    use crate::plan::sizes::Sizes;
    use parking_lot::Mutex;
    use std::collections::BTreeSet;

    struct Hooks {
        tile: Option<usize>,
        left_out: Option<Gate>,
        watching: bool,
        mattered: BTreeSet<Gate>,
        keeps: Option<bool>,
        keep_s: f64,
        put_back: u64,
        older: bool,
    }

    static HOOKS: Mutex<Hooks> = Mutex::new(Hooks {
        tile: None,
        left_out: None,
        watching: false,
        mattered: BTreeSet::new(),
        keeps: None,
        keep_s: 0.0,
        put_back: 0,
        older: false,
    });

    /// True if the order is to be left out now, where it would have held something up (`matters`).
    pub fn left_out(gate: Gate, matters: impl FnOnce() -> bool) -> bool {
        let mut hooks = HOOKS.lock();
        let chosen = hooks.left_out == Some(gate);
        if (chosen || hooks.watching) && matters() {
            hooks.mattered.insert(gate);
            return chosen;
        }
        false
    }

    /// The planners' constants, or those that [`set_tile`] asks for.
    pub fn sizes() -> Sizes {
        let Some(tile) = HOOKS.lock().tile else {
            return Sizes::DEFAULT;
        };
        Sizes {
            tile,
            panel_min_bytes: 1,
            inner_max: 2 * tile,
            block_max: 2 * tile,
            lead_from_percent: 0,
            symm_first_from_percent: 0,
            ..Sizes::DEFAULT
        }
    }

    /// Whether results of LAPACK that are read are kept, or what [`set_keeps`] asks for.
    pub fn keeps(pays: bool) -> bool {
        HOOKS.lock().keeps.unwrap_or(pays)
    }

    /// The libraries lack what only newer ones have.
    pub fn is_older() -> bool {
        HOOKS.lock().older
    }

    /// Makes the libraries old: without cuSOLVER's Xgeev and cuBLAS's geam.
    pub fn set_older(older: bool) {
        HOOKS.lock().older = older;
    }

    /// Waits as long as [`set_keep_delay`] says.
    pub fn before_keep() {
        let keep_s = HOOKS.lock().keep_s;
        if keep_s > 0.0 {
            std::thread::sleep(std::time::Duration::from_secs_f64(keep_s));
        }
    }

    /// What a failed delivery has overwritten is put back.
    pub fn note_put_back() {
        HOOKS.lock().put_back += 1;
    }

    /// How often that happened.
    pub fn put_back() -> u64 {
        HOOKS.lock().put_back
    }

    /// Results of LAPACK that are read are kept, or go through scratch; `None` for what costs less.
    pub fn set_keeps(keeps: Option<bool>) {
        HOOKS.lock().keeps = keeps;
    }

    /// Keeping a piece takes so long at least.
    pub fn set_keep_delay(time: std::time::Duration) {
        HOOKS.lock().keep_s = time.as_secs_f64();
    }

    /// cuBLAS's workspace, or a small one for small panels: the simulation fills all memory with NaN.
    pub fn workspace_bytes(bytes: u64) -> u64 {
        HOOKS.lock().tile.map_or(bytes, |_| SMALL_WORKSPACE_BYTES)
    }

    /// Workspace of small panels.
    pub const SMALL_WORKSPACE_BYTES: u64 = 64 << 10;

    /// Panels and blocks of about `tile` rows, so that small calls have many steps; `None` for the
    /// planners' own.
    pub fn set_tile(tile: Option<usize>) {
        HOOKS.lock().tile = tile;
    }

    /// Leaves out one order from now on.
    pub fn leave_out(what: Option<Gate>) {
        let mut hooks = HOOKS.lock();
        hooks.left_out = what;
        hooks.watching = false;
        hooks.mattered.clear();
    }

    /// Leaves nothing out and notes from now on which orders hold something up.
    pub fn watch() {
        let mut hooks = HOOKS.lock();
        hooks.left_out = None;
        hooks.watching = true;
    }

    /// The orders that held something up, or would have.
    pub fn mattered() -> BTreeSet<Gate> {
        HOOKS.lock().mattered.clone()
    }
}

pub use hooks::*;
