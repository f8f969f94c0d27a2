//! The locks, condition variables and counters of what several threads share: parking_lot's and the
//! standard library's, or with the feature `model` those of shuttle, under which a test runs the threads
//! in every order that chance finds. Only model tests switch that on; nothing else may.

#[cfg(feature = "model")]
pub use model::*;
#[cfg(not(feature = "model"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "model"))]
pub use std::sync::atomic::{AtomicBool, AtomicU64};

use std::time::Duration;

/// How long a thread spins before it sleeps: not at all in a model, where time stands still.
pub const fn spin_for(time: Duration) -> Duration {
    if cfg!(feature = "model") {
        Duration::ZERO
    } else {
        time
    }
}

#[cfg(feature = "model")]
mod model {
    use core::ops::{Deref, DerefMut};
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    use std::time::Instant;

    /// As parking_lot's.
    #[derive(Default, Debug)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// As parking_lot's.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        /// Unlocked.
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        /// Waits for it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("no thread of a model panics")))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("held but in a wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("held but in a wait")
        }
    }

    /// As parking_lot's, but that no time passes: a wait with a limit ends only when somebody wakes it, so
    /// that a wake-up that is lost shows.
    #[derive(Default, Debug)]
    pub struct Condvar(shuttle::sync::Condvar);

    /// Never.
    pub struct WaitTimeoutResult;

    impl WaitTimeoutResult {
        /// Never.
        pub fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        /// Nobody waits.
        pub fn new() -> Self {
            Self::default()
        }

        /// Waits for a wake-up.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("held but in a wait");
            guard.0 = Some(self.0.wait(held).expect("no thread of a model panics"));
        }

        /// Waits for a wake-up.
        pub fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            _: Instant,
        ) -> WaitTimeoutResult {
            self.wait(guard);
            WaitTimeoutResult
        }

        /// Wakes one.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
