//! A model of the start: callers, the starting thread and a forked child in every order that chance finds.
//! There is one start, nobody sees its end too early or waits for it in vain, and a child waits for no lock
//! of its parent.

use super::{Body, Start, StartFailure, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Time stands still in a model: who waits so long has not been woken.
const LONG: Duration = Duration::from_secs(3600);

fn failure() -> StartFailure {
    StartFailure {
        quiet: true,
        line: "no GPU in a model".to_owned(),
    }
}

fn new() -> &'static Start {
    Box::leak(Box::default())
}

fn spawn(body: Body) -> std::io::Result<()> {
    drop(shuttle::thread::spawn(body));
    Ok(())
}

fn has_ended(start: &Start) -> bool {
    matches!(start.state(), State::Unusable(_) | State::Ready(_))
}

fn three_callers() {
    let (start, starts) = (new(), Arc::new(AtomicUsize::new(0)));
    let finished = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (starts, finished) = (Arc::clone(&starts), Arc::clone(&finished));
            shuttle::thread::spawn(move || {
                let done = Arc::clone(&finished);
                let body = move || {
                    starts.fetch_add(1, Ordering::SeqCst);
                    shuttle::thread::yield_now();
                    done.store(true, Ordering::SeqCst);
                    Err(failure())
                };
                start.begin_on(spawn, body, |_, _| {});
                assert!(start.has_begun());
                if has_ended(start) {
                    assert!(finished.load(Ordering::SeqCst), "ended too early");
                }
                start.wait(LONG);
                assert!(has_ended(start) && finished.load(Ordering::SeqCst));
            })
        })
        .collect();
    for caller in callers {
        caller.join().expect("no panic");
    }
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

/// The process may start no thread: who waits already must hear of it.
fn no_thread() {
    let start = new();
    let waiter = shuttle::thread::spawn(move || {
        if start.has_begun() {
            start.wait(LONG);
            assert!(has_ended(start));
        }
    });
    let refuse = |_: Body| {
        shuttle::thread::yield_now();
        Err(std::io::Error::other("no more threads"))
    };
    start.begin_on(refuse, || Err(failure()), |_, _| {});
    assert!(matches!(start.state(), State::Unusable(line) if line.contains("no more threads")));
    waiter.join().expect("no panic");
}

/// A child sees what its parent's threads had in their hands at the fork, and no one who puts it back.
fn child_of_a_fork() {
    let start = new();
    let parent = shuttle::thread::spawn(move || {
        // The starting thread is not in the child, and the lock that this one holds stays locked there.
        start.begin_on(|_| Ok(()), || Err(failure()), |_, _| {});
        core::mem::forget(start.waiters.lock());
    });
    let child = shuttle::thread::spawn(move || {
        // What `Slot::usable` and a call ask before they leave the engine alone.
        let begun = start.has_begun();
        let state = start.state();
        assert!(begun || !matches!(state, State::Ready(_)));
    });
    parent.join().expect("no panic");
    child.join().expect("a child waits for its parent's lock");
}

fn check(model: fn()) {
    shuttle::check_random(model, 2000);
    shuttle::check_pct(model, 2000, 3);
}

#[test]
fn model_there_is_one_start_and_everybody_hears_of_its_end() {
    check(three_callers);
}

#[test]
fn model_a_thread_that_cannot_be_made_is_heard_of() {
    check(no_thread);
}

#[test]
fn model_a_child_waits_for_no_lock_of_its_parent() {
    check(child_of_a_fork);
}
