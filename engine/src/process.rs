//! The one engine of this process, across forks.
//!
//! A forked child has one thread, and locks that other threads held stay locked for ever. So an engine
//! belongs to the process that made it: a child that meets its parent's engine takes none of its locks.
//! If the parent had begun to start the GPU, the child uses the CPU for ever; else it gets an engine of
//! its own, with the same settings.

use crate::engine::Engine;
use crate::os;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A slot for the engine; the process has one, tests have their own.
pub struct Slot {
    current: AtomicPtr<Engine>,
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

impl Slot {
    /// Empty.
    pub const fn new() -> Self {
        Self {
            current: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    fn load(&self) -> Option<&'static Engine> {
        // SAFETY: null, or a leaked engine that was published by `replace`.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes `new` if `old` is still there; returns what is there now and whether it is `new`.
    /// Engines are never freed: another thread may be in one.
    fn replace(&self, old: Option<&'static Engine>, new: Engine) -> (&'static Engine, bool) {
        let old = old.map_or(core::ptr::null_mut(), |e| core::ptr::from_ref(e).cast_mut());
        let new = Box::into_raw(Box::new(new));
        match self
            .current
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: leaked above, never freed from here on.
            Ok(_) => (unsafe { &*new }, true),
            Err(theirs) => {
                // SAFETY: `new` was never published; `theirs` is a published engine.
                unsafe {
                    drop(Box::from_raw(new));
                    (&*theirs, false)
                }
            }
        }
    }

    /// The engine, made by `make` unless there is one already. The second value says whether it was
    /// made by this call.
    pub fn get_or_make(&self, make: impl FnOnce() -> Engine) -> (&'static Engine, bool) {
        match self.load() {
            Some(engine) => (engine, false),
            None => self.replace(None, make()),
        }
    }

    /// The engine that this process may use; `None` where the CPU must do.
    pub fn usable(&self) -> Option<&'static Engine> {
        let engine = self.load()?;
        if engine.owner() == os::identity() {
            return Some(engine);
        }
        if engine.has_begun() {
            return None;
        }
        Some(self.replace(Some(engine), engine.for_child()).0)
    }

    /// The engine that this process made itself, if any.
    pub fn own(&self) -> Option<&'static Engine> {
        self.load()
            .filter(|engine| engine.owner() == os::identity())
    }
}
