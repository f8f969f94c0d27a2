//! The device's memory as several processes share it: a file of slots, one a process, that says how much
//! each one uses. What a dead process used counts no more.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// pid, its start time (a pid may be used again) and its bytes, each eight bytes.
const SLOT_BYTES: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    pid: u64,
    started: u64,
    used_bytes: u64,
}

pub struct Ledger {
    file: File,
}

/// Clock ticks from boot to the start of a process that lives; `None` if it does not, or is a zombie.
fn start_of(pid: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // Field 22 of proc_pid_stat(5); the state was field 3.
    fields.nth(18)?.parse().ok()
}

impl Slot {
    fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.started)
    }
}

impl Ledger {
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(Self { file })
    }

    /// Takes `bytes` for this process, if all processes together then use at most `limit_bytes`.
    pub fn reserve(&self, bytes: u64, limit_bytes: u64) -> bool {
        self.change(|used_by_all, own| {
            let fits = used_by_all
                .checked_add(bytes)
                .is_some_and(|used| used <= limit_bytes);
            (fits, if fits { own + bytes } else { own })
        })
    }

    pub fn release(&self, bytes: u64) {
        self.change(|_, own| ((), own.saturating_sub(bytes)));
    }

    /// Gives back everything that this process has.
    pub fn clear(&self) {
        self.change(|_, _| ((), 0));
    }

    pub fn used_by_all(&self) -> u64 {
        self.change(|used_by_all, own| (used_by_all, own))
    }

    /// Runs `body` with the bytes that all and this process use, and stores what it says for this
    /// process. The file is locked meanwhile; the system unlocks it if the process dies.
    fn change<T>(&self, body: impl FnOnce(u64, u64) -> (T, u64)) -> T {
        self.file
            .lock()
            .expect("sim-cuda: the shared file is locked");
        let pid = u64::from(std::process::id());
        let started = start_of(pid).expect("sim-cuda: /proc says when this process started");
        let mut slots = self.read();
        let own = slots
            .iter()
            .position(|slot| slot.pid == pid && slot.started == started);
        let index = own.unwrap_or_else(|| {
            let free = slots.iter().position(|slot| !slot.is_alive());
            let index = free.unwrap_or(slots.len());
            let slot = Slot {
                pid,
                started,
                used_bytes: 0,
            };
            slots.resize(slots.len().max(index + 1), slot);
            slots[index] = slot;
            index
        });
        let alive = slots.iter().filter(|slot| slot.is_alive());
        let used_by_all = alive.map(|slot| slot.used_bytes).sum();
        let (result, used_bytes) = body(used_by_all, slots[index].used_bytes);
        self.write(
            index,
            Slot {
                used_bytes,
                ..slots[index]
            },
        );
        self.file
            .unlock()
            .expect("sim-cuda: the shared file is unlocked");
        result
    }

    fn read(&self) -> Vec<Slot> {
        let length = self
            .file
            .metadata()
            .expect("sim-cuda: the shared file")
            .len() as usize;
        let mut bytes = vec![0; length / SLOT_BYTES * SLOT_BYTES];
        self.file
            .read_exact_at(&mut bytes, 0)
            .expect("sim-cuda: the shared file is read");
        let slot = |bytes: &[u8]| {
            let word = |at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            Slot {
                pid: word(0),
                started: word(8),
                used_bytes: word(16),
            }
        };
        bytes.chunks(SLOT_BYTES).map(slot).collect()
    }

    fn write(&self, index: usize, slot: Slot) {
        let words = [slot.pid, slot.started, slot.used_bytes].map(u64::to_le_bytes);
        let at = (index * SLOT_BYTES) as u64;
        self.file
            .write_all_at(&words.concat(), at)
            .expect("sim-cuda: the shared file is written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use std::process::{Command, Stdio};

    fn fresh_file(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("sim-cuda-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn arenas_of_one_device_share_its_memory() {
        let path = fresh_file("arenas");
        let open = || Arena::shared(1 << 20, Some(Ledger::open(&path).expect("a file")));
        let mut first = open();
        let all = first.alloc(1 << 19).expect("half fits");
        let second = open();
        assert_eq!(second.free_bytes(), 1 << 19);
        assert!(first.free(all));
        assert_eq!(second.free_bytes(), 1 << 20);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn what_a_dead_process_used_is_free_again() {
        let path = fresh_file("dead");
        let ledger = Ledger::open(&path).expect("a file");
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        let pid = u64::from(child.id());
        let started = start_of(pid).expect("it lives");
        let slot = Slot {
            pid,
            started,
            used_bytes: 700,
        };
        ledger.write(0, slot);
        assert!(!ledger.reserve(301, 1000));
        assert!(ledger.reserve(300, 1000));
        child.kill().expect("killed");
        // Not yet waited for: a zombie has no memory.
        while start_of(pid).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(ledger.used_by_all(), 300);
        child.wait().expect("its end");
        // The pid in use again is another process.
        let reused = Slot {
            pid: u64::from(std::process::id()),
            started: 1,
            used_bytes: 700,
        };
        ledger.write(0, reused);
        assert_eq!(ledger.used_by_all(), 300);
        std::fs::remove_file(path).expect("removed");
    }

    const CHILD: &str = "SIM_CUDA_TEST_LEDGER";
    const LIMIT_BYTES: u64 = 8 << 10;
    const PIECE_BYTES: u64 = 1 << 10;

    const PIECES: u32 = 100;

    /// Takes and gives back pieces until it has had so many, however long others keep all that there is;
    /// the most that it ever saw in use must stay within the limit.
    fn child(path: &str) {
        let ledger = Ledger::open(Path::new(path)).expect("the file");
        let mut taken = 0;
        while taken < PIECES {
            if ledger.reserve(PIECE_BYTES, LIMIT_BYTES) {
                taken += 1;
                assert!(ledger.used_by_all() <= LIMIT_BYTES, "more than there is");
                if taken % 3 != 0 {
                    ledger.release(PIECE_BYTES);
                }
            } else {
                ledger.clear();
                std::thread::yield_now();
            }
        }
        // Dies with what it still has.
    }

    #[test]
    fn sixteen_processes_never_use_more_than_there_is() {
        if let Ok(path) = std::env::var(CHILD) {
            return child(&path);
        }
        let path = fresh_file("sixteen");
        let spawn = |_| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args([
                "--nocapture",
                "--exact",
                "shared::tests::sixteen_processes_never_use_more_than_there_is",
            ]);
            command
                .env(CHILD, &path)
                .stdout(Stdio::null())
                .spawn()
                .expect("a child")
        };
        let children: Vec<_> = (0..16).map(spawn).collect();
        for mut child in children {
            assert!(child.wait().expect("its end").success());
        }
        let ledger = Ledger::open(&path).expect("the file");
        assert_eq!(ledger.used_by_all(), 0, "the dead keep memory");
        std::fs::remove_file(path).expect("removed");
    }
}
