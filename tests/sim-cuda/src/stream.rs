//! Streams are threads that run their work in order, each piece after a delay; events are numbered
//! recordings.

use crate::delay::{Delays, Load};
use crate::state::{self, RELEASED, STICKY};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct EventState {
    /// Counted from 1 in the order of creation.
    pub number: u64,
    pub timed: bool,
    inner: Mutex<Recordings>,
    changed: Condvar,
}

#[derive(Default)]
struct Recordings {
    asked: u64,
    done: u64,
    at: Option<Instant>,
    /// A recording that was ignored on demand, and when: it counts as done from then on.
    pretended: Option<(u64, Instant)>,
}

impl Recordings {
    fn is_done(&self) -> bool {
        self.done >= self.asked
    }

    fn pretends(&self) -> bool {
        self.pretended
            .is_some_and(|(number, _)| number == self.asked)
    }
}

impl EventState {
    pub fn new(number: u64, timed: bool) -> Self {
        Self {
            number,
            timed,
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Numbers a new recording.
    pub fn ask(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.asked += 1;
        inner.asked
    }

    /// The last recording; 0 if there was none.
    pub fn asked(&self) -> u64 {
        self.inner.lock().asked
    }

    pub fn complete(&self, number: u64) {
        let mut inner = self.inner.lock();
        inner.done = inner.done.max(number);
        inner.at = Some(Instant::now());
        self.changed.notify_all();
    }

    /// From now on the recording counts as done, although it is not.
    pub fn pretend(&self, number: u64) {
        self.inner.lock().pretended = Some((number, Instant::now()));
    }

    pub fn happened(&self) -> bool {
        let inner = self.inner.lock();
        inner.is_done() || inner.pretends()
    }

    /// True if the event only pretends to have happened.
    pub fn lies(&self) -> bool {
        let inner = self.inner.lock();
        inner.pretends() && !inner.is_done()
    }

    /// When the last recording happened, if one was made and has.
    pub fn time(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        match inner.pretended.filter(|_| inner.pretends()) {
            Some((_, at)) => Some(at),
            None => (inner.asked > 0 && inner.is_done())
                .then_some(inner.at)
                .flatten(),
        }
    }

    /// Waits until a recording has happened, or the device is lost.
    pub fn await_number(&self, number: u64) {
        let mut inner = self.inner.lock();
        // A lost device completes nothing any more; the wait ends with it.
        while inner.done < number && STICKY.load(Ordering::Acquire) == 0 && !released() {
            self.changed.wait_for(&mut inner, Duration::from_millis(1));
        }
    }
}

/// True while the device runs what is queued.
fn works() -> bool {
    STICKY.load(Ordering::Acquire) == 0 && !released()
}

fn released() -> bool {
    RELEASED.load(Ordering::Acquire)
}

/// Pieces of work that run now.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// No work begins any more; waits until what runs is over, at most for a second.
pub fn stop_at_exit() {
    RELEASED.store(true, Ordering::SeqCst);
    let start = Instant::now();
    while RUNNING.load(Ordering::SeqCst) > 0 && start.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What a stream does at its turn.
pub type Work = Box<dyn FnOnce() -> Result<(), String> + Send>;

pub enum Task {
    /// Runs unless the device is lost; an error loses it.
    Run(Load, Work),
    /// As `Run`; the first piece runs before the delay.
    Split(Load, Box<dyn FnOnce() + Send>, Work),
    Record(Arc<EventState>, u64),
    Wait(Arc<EventState>, u64),
    Hang,
}

impl Task {
    fn load(&self) -> Load {
        match self {
            Self::Run(load, _) | Self::Split(load, ..) => *load,
            Self::Record(..) | Self::Wait(..) | Self::Hang => Load::Mark,
        }
    }
}

pub struct StreamState {
    queue: Mutex<Queue>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Queue {
    tasks: VecDeque<Task>,
    busy: bool,
    closed: bool,
}

impl StreamState {
    pub fn start() -> Arc<Self> {
        let queue = Queue {
            tasks: VecDeque::new(),
            busy: false,
            closed: false,
        };
        let stream = Arc::new(Self {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let mut delays = Delays::new();
        let body = {
            let stream = Arc::clone(&stream);
            move || stream.run(&mut delays)
        };
        let thread = std::thread::Builder::new()
            .name("sim-stream".into())
            .spawn(body);
        *stream.thread.lock() = Some(thread.expect("sim-cuda: a thread for a stream"));
        stream
    }

    pub fn push(&self, task: Task) {
        self.queue.lock().tasks.push_back(task);
        self.changed.notify_all();
    }

    /// Waits until everything queued has run.
    pub fn drain(&self) {
        let mut queue = self.queue.lock();
        while (queue.busy || !queue.tasks.is_empty()) && !released() {
            self.changed.wait_for(&mut queue, Duration::from_millis(1));
        }
    }

    /// True if everything queued has run.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        !queue.busy && queue.tasks.is_empty()
    }

    /// No more work comes; the thread ends when the queue is empty.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.changed.notify_all();
    }

    /// True if it was closed and everything has run.
    pub fn has_ended(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn close_and_join(&self) {
        self.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn run(&self, delays: &mut Delays) {
        loop {
            let task = {
                let mut queue = self.queue.lock();
                queue.busy = false;
                self.changed.notify_all();
                loop {
                    if let Some(task) = queue.tasks.pop_front() {
                        queue.busy = true;
                        break task;
                    }
                    if queue.closed {
                        return;
                    }
                    self.changed.wait(&mut queue);
                }
            };
            let load = task.load();
            let task = match task {
                Task::Split(load, begin, work) => {
                    if works() {
                        begin();
                    }
                    Task::Run(load, work)
                }
                task => task,
            };
            delays.pause(load);
            match task {
                Task::Run(_, work) | Task::Split(_, _, work) => {
                    RUNNING.fetch_add(1, Ordering::SeqCst);
                    let done = if works() { work() } else { Ok(()) };
                    RUNNING.fetch_sub(1, Ordering::SeqCst);
                    if let Err(why) = done {
                        state::lock().lose(why);
                    }
                }
                Task::Record(event, number) => event.complete(number),
                Task::Wait(event, number) => event.await_number(number),
                Task::Hang => {
                    while !released() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        }
    }
}
