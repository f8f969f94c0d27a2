//! What has been learnt, in a file that many processes share.
//!
//! `learned-ID.txt` in `gpu-offload` of the user's state directory ([`dir`]); ID stands for the profile that the
//! corrections belong to, so that another profile finds another file. A file is replaced in one step by a process
//! that holds `learned.lock`; nobody waits for that lock for long, and nobody writes in a directory that does
//! not belong to the effective user. Must not know what an entry means.
//!
//! # Format
//! Lines of ASCII. The first: `gpu-offload-learned SCHEMA ID ENTRIES CHECKSUM`, where ID and CHECKSUM (FNV-1a of
//! all that follows the line) have 16 hexadecimal digits. Then an entry a line: place, CPU's word, GPU's word, in
//! hexadecimal digits.

use crate::config::{Environment, user_dir};
use crate::files::{ReadError, read_trusted};
use cost_model::{Entry, LEARNED_SCHEMA, MOST_ENTRIES, Profile, merge};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: &str = "gpu-offload-learned";

/// Files that are kept: one a profile. A home that machines share has one for each kind of machine.
const MOST_FILES: usize = 8;

/// How long a writer tries to get the lock. Writing takes about a millisecond; who comes after a hundred others
/// leaves without having written.
const LOCK_LIMIT: Duration = Duration::from_millis(100);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Directories from a home down to ours (.local, state, gpu-offload).
const BELOW_HOME: usize = 3;

/// FNV-1a.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn add(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self
    }
}

/// What corrections belong to: a calibrated profile with all its times, an estimate by its machine (each
/// process probes anew, and the probe differs a little) and the version that estimates.
pub fn identity(profile: &Profile, source: &str) -> u64 {
    let hash = Hash::new()
        .add(env!("CARGO_PKG_VERSION").as_bytes())
        .add(&LEARNED_SCHEMA.to_le_bytes());
    if source == ESTIMATE {
        let measured = profile.measurements();
        return hash
            .add(format!("{:?}", measured.fingerprint).as_bytes())
            .add(&measured.cpu_threads.to_le_bytes())
            .0;
    }
    hash.add(profile.to_toml().as_bytes()).0
}

/// The source of a profile that nobody measured.
pub(crate) const ESTIMATE: &str = "estimate";

/// Where files of the user lie; `None` without a home.
pub fn dir(env: Environment<'_>) -> Option<PathBuf> {
    user_dir(env, "STATE", ".local/state")
}

/// The file of a profile.
pub fn file(dir: &Path, identity: u64) -> PathBuf {
    dir.join(format!("learned-{identity:016x}.txt"))
}

/// Every such file in a directory, oldest first.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("learned-") && name.ends_with(".txt")
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn text(identity: u64, entries: &[Entry]) -> String {
    let body: String = entries
        .iter()
        .map(|e| format!("{:x} {:x} {:x}\n", e.place, e.sides[0], e.sides[1]))
        .collect();
    let sum = Hash::new().add(body.as_bytes()).0;
    format!(
        "{MAGIC} {LEARNED_SCHEMA} {identity:016x} {} {sum:016x}\n{body}",
        entries.len()
    )
}

/// Reads a text; `None` if it is damaged, of another version or of another profile.
fn parse(text: &str, identity: u64) -> Option<Vec<Entry>> {
    let (head, body) = text.split_once('\n')?;
    let sum = Hash::new().add(body.as_bytes()).0;
    let lines = body.lines().count();
    let expected = format!("{MAGIC} {LEARNED_SCHEMA} {identity:016x} {lines} {sum:016x}");
    if head != expected || lines > MOST_ENTRIES {
        return None;
    }
    body.lines()
        .map(|line| {
            let mut words = line.split(' ').map(|w| u64::from_str_radix(w, 16).ok());
            let (place, cpu, gpu) = (words.next()??, words.next()??, words.next()??);
            let place = u32::try_from(place).ok()?;
            words.next().is_none().then_some(Entry {
                place,
                sides: [cpu, gpu],
            })
        })
        .collect()
}

/// What the file of a profile holds; empty where there is none.
///
/// # Errors
/// The one line for the user, if the file is not believed or cannot be understood.
pub fn read(dir: &Path, identity: u64) -> Result<Vec<Entry>, String> {
    let path = file(dir, identity);
    match read_trusted(&path) {
        Ok(text) => parse(&text, identity).ok_or_else(|| {
            format!(
                "{}: is damaged; accepted: what this library wrote; learning starts afresh",
                path.display()
            )
        }),
        Err(ReadError::Absent | ReadError::OutOfReach(_)) => Ok(Vec::new()),
        Err(ReadError::Refused(line)) => Err(format!("{line}; learning starts afresh")),
    }
}

/// Whether [`write`] could write there now, or why not.
///
/// # Errors
/// The reason in words.
pub fn may_write(dir: &Path) -> Result<(), String> {
    // The nearest directory that exists: ours, or one that it is made in. A home itself is not made.
    let base = dir
        .ancestors()
        .take(1 + BELOW_HOME)
        .find(|d| d.is_dir())
        .ok_or_else(|| format!("there is no directory above {}", dir.display()))?;
    let shown = base.display();
    let info = std::fs::metadata(base).map_err(|e| format!("{shown}: {e}"))?;
    let user = crate::os::effective_user();
    if info.uid() != user {
        // A home kept by sudo, or none at all: files of root's there would be in the user's way.
        return Err(format!(
            "{shown} belongs to user {}, not to user {user}",
            info.uid()
        ));
    }
    if crate::os::is_writable(base) {
        Ok(())
    } else {
        Err(format!("{shown} is not writable"))
    }
}

/// What became of a writing.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// The file holds these entries.
    Entries(Vec<Entry>),
    /// Others were writing all the time.
    Busy,
    /// The directory cannot be written.
    Nowhere,
}

/// Puts what this process has learnt since `base` into the file, together with what others have put there since.
pub fn write(dir: &Path, identity: u64, base: &[Entry], mine: &[Entry]) -> Written {
    if may_write(dir).is_err() {
        return Written::Nowhere;
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let Some(lock) = made.ok().and_then(|()| open(&dir.join("learned.lock"))) else {
        return Written::Nowhere;
    };
    let began = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(std::fs::TryLockError::WouldBlock) if began.elapsed() < LOCK_LIMIT => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(std::fs::TryLockError::WouldBlock) => return Written::Busy,
            Err(std::fs::TryLockError::Error(_)) => return Written::Nowhere,
        }
    }
    let written = replace(dir, identity, base, mine);
    // By name and not by closing: a child that was forked meanwhile has the same lock open.
    let _ = lock.unlock();
    written.map_or(Written::Nowhere, Written::Entries)
}

fn open(path: &Path) -> Option<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
        .ok()
}

/// Under the lock.
fn replace(dir: &Path, identity: u64, base: &[Entry], mine: &[Entry]) -> Option<Vec<Entry>> {
    // A damaged file was said when it was read; it is replaced.
    let theirs = read(dir, identity).unwrap_or_default();
    let merged = merge(base, mine, &theirs);
    let (path, temporary) = (file(dir, identity), dir.join("learned.tmp"));
    let written = (|| {
        // One name for all: it belongs to whoever holds the lock, and a killed writer's is overwritten.
        let mut to = open(&temporary)?;
        to.set_len(0).ok()?;
        to.write_all(text(identity, &merged).as_bytes()).ok()?;
        std::fs::rename(&temporary, &path).ok()
    })();
    if written.is_none() {
        let _ = std::fs::remove_file(&temporary);
        return None;
    }
    let all = files(dir);
    for old in all.iter().rev().skip(MOST_FILES) {
        let _ = std::fs::remove_file(old);
    }
    Some(merged)
}

/// Removes every file of the user: what was learnt of old profiles is of no use to a new one.
///
/// # Errors
/// If one cannot be removed.
pub fn remove(dir: &Path) -> std::io::Result<()> {
    files(dir).iter().try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir()
                .join(format!("gpu-offload-learned-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).expect("temporary directory");
            Self(dir)
        }

        fn dir(&self) -> PathBuf {
            self.0.join("state/gpu-offload")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(0o700));
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn entry(place: u32, word: u64) -> Entry {
        Entry {
            place,
            sides: [word, 0],
        }
    }

    #[test]
    fn what_is_written_is_read_and_merged() {
        let place = Place::new("merged");
        let (a, b) = (entry(1, 1 << 56 | 7), entry(2, 1 << 56 | 9));
        assert_eq!(read(&place.dir(), 5), Ok(vec![]));
        assert_eq!(write(&place.dir(), 5, &[], &[a]), Written::Entries(vec![a]));
        assert_eq!(
            write(&place.dir(), 5, &[], &[b]),
            Written::Entries(vec![a, b])
        );
        assert_eq!(read(&place.dir(), 5), Ok(vec![a, b]));
        assert_eq!(read(&place.dir(), 6), Ok(vec![]), "another profile");
        let mode = std::fs::metadata(file(&place.dir(), 5)).expect("there");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        remove(&place.dir()).expect("removable");
        assert_eq!(read(&place.dir(), 5), Ok(vec![]));
    }

    #[test]
    fn any_damage_gives_one_line_and_nothing_of_the_file_is_believed() {
        let place = Place::new("damage");
        write(
            &place.dir(),
            5,
            &[],
            &[entry(1, 1 << 56 | 7), entry(2, 1 << 56 | 9)],
        );
        let path = file(&place.dir(), 5);
        let whole = std::fs::read(&path).expect("there");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("writable");
            let line = read(&place.dir(), 5).expect_err("cut");
            assert!(
                line.contains("damaged") && line.contains("afresh"),
                "{line}"
            );
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).expect("writable");
            read(&place.dir(), 5).expect_err("changed");
        }
        // The next writer mends it.
        let mended = write(&place.dir(), 5, &[], &[entry(3, 1 << 56 | 1)]);
        assert_eq!(mended, Written::Entries(vec![entry(3, 1 << 56 | 1)]));
        assert!(read(&place.dir(), 5).is_ok());
    }

    #[test]
    fn a_killed_writers_rest_does_no_harm() {
        let place = Place::new("killed");
        let a = entry(1, 1 << 56 | 7);
        write(&place.dir(), 5, &[], &[a]);
        let rest = "rubbish, longer than what will be written ".repeat(100);
        std::fs::write(place.dir().join("learned.tmp"), rest).expect("writable");
        assert_eq!(read(&place.dir(), 5), Ok(vec![a]));
        let b = entry(2, 1 << 56 | 9);
        assert_eq!(
            write(&place.dir(), 5, &[], &[b]),
            Written::Entries(vec![a, b])
        );
        assert_eq!(read(&place.dir(), 5), Ok(vec![a, b]));
    }

    #[test]
    fn many_writers_leave_a_file_with_what_all_of_them_wrote() {
        let place = Place::new("many");
        let (dir, writers) = (place.dir(), 16);
        let left_out: usize = std::thread::scope(|scope| {
            let all: Vec<_> = (0..writers)
                .map(|i| {
                    let dir = &dir;
                    let mine = [entry(i + 1, 1 << 56 | 1)];
                    scope.spawn(move || {
                        (0..20)
                            .filter(|_| write(dir, 5, &[], &mine) == Written::Busy)
                            .count()
                            == 20
                    })
                })
                .collect();
            all.into_iter()
                .map(|t| usize::from(t.join().expect("no panic")))
                .sum()
        });
        let entries = read(&dir, 5).expect("whole");
        assert_eq!(entries.len() + left_out, writers as usize, "{entries:?}");
    }

    #[test]
    fn who_finds_the_lock_taken_leaves_soon() {
        let place = Place::new("busy");
        write(&place.dir(), 5, &[], &[entry(1, 1 << 56 | 7)]);
        let lock = open(&place.dir().join("learned.lock")).expect("there");
        lock.lock().expect("free");
        let began = Instant::now();
        let mine = [entry(2, 1 << 56 | 9)];
        assert_eq!(write(&place.dir(), 5, &[], &mine), Written::Busy);
        assert!(began.elapsed() < Duration::from_secs(5));
        lock.unlock().expect("held");
        assert!(matches!(
            write(&place.dir(), 5, &[], &mine),
            Written::Entries(_)
        ));
    }

    #[test]
    fn the_number_of_files_is_bounded_and_the_newest_stay() {
        let place = Place::new("bounded");
        for identity in 0..20 {
            write(&place.dir(), identity, &[], &[entry(1, 1 << 56 | 7)]);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(files(&place.dir()).len(), MOST_FILES);
        assert_eq!(files(&place.dir()).pop(), Some(file(&place.dir(), 19)));
    }

    #[test]
    fn a_directory_of_somebody_else_is_left_alone() {
        // Root may write everywhere, so the owner decides, not the permission.
        let place = Place::new("foreign");
        if crate::os::effective_user() == 0 {
            std::os::unix::fs::chown(&place.0, Some(12345), None).expect("root may");
        } else {
            std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o500))
                .expect("ours");
        }
        let mine = [entry(1, 1 << 56 | 7)];
        assert_eq!(write(&place.dir(), 5, &[], &mine), Written::Nowhere);
        assert!(!place.0.join("state").exists());
        may_write(&place.dir()).expect_err("not ours");
    }

    #[test]
    fn a_calibrated_profile_is_known_by_its_times_and_an_estimate_by_its_machine() {
        let machine = |name: &str| cost_model::Fingerprint {
            cpu_model: name.to_owned(),
            ..cost_model::Fingerprint::default()
        };
        let prior =
            |name: &str, threads| Profile::prior(machine(name), &cost_model::CpuFacts { threads });
        let (p, q) = (prior("one", 4), prior("two", 4));
        assert_ne!(identity(&p, ESTIMATE), identity(&q, ESTIMATE));
        assert_ne!(identity(&p, ESTIMATE), identity(&prior("one", 2), ESTIMATE));
        assert_eq!(identity(&p, "/a"), identity(&p, "/b"));
        assert_ne!(identity(&p, "/a"), identity(&q, "/a"));
        assert_ne!(identity(&p, "/a"), identity(&p, ESTIMATE));
    }
}
