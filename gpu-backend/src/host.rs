//! What the host says about its memory: how much is there, and which pages of a range exist.
//!
//! Unsafe lives here because mincore and madvise take addresses. Every answer is a hint: where the host
//! does not answer, the caller goes on without.

use core::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of a page (x86-64).
const PAGE_BYTES: usize = 4096;

/// Bytes of a huge page (x86-64).
const HUGE_BYTES: usize = 2 << 20;

/// Pages that are looked at to tell fresh memory from used.
const SAMPLES: usize = 4;

/// Bytes that this process may still take: what the system has available, and what its control groups
/// leave. `None` if the system does not say.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let system = meminfo_available(&text)?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = group_dirs(&groups)
        .into_iter()
        .filter_map(|dir| group_left(&dir));
    Some(left.fold(system, u64::min))
}

fn meminfo_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Folders of this process's memory control groups, from its own up to the root.
fn group_dirs(groups: &str) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let base = match names {
            "" => Path::new("/sys/fs/cgroup"),
            names if names.split(',').any(|n| n == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let mut dir = base.join(path.trim_start_matches('/'));
        loop {
            dirs.push(dir.clone());
            if dir == base || !dir.pop() {
                break;
            }
        }
    }
    dirs
}

/// What a group leaves; `None` without a limit. Version 2 and version 1 have different files. Pages of
/// files count as used, although they can go: the figure is cautious.
fn group_left(dir: &Path) -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(dir.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let limit = read("memory.max").or_else(|| read("memory.limit_in_bytes"))?;
    let used = read("memory.current").or_else(|| read("memory.usage_in_bytes"))?;
    Some(limit.saturating_sub(used))
}

/// True if none of a few pages of the range exists: the memory was never written.
pub fn is_fresh(range: &Range<usize>) -> bool {
    let pages = whole(range, PAGE_BYTES);
    let count = pages.len() / PAGE_BYTES;
    if count == 0 {
        return false;
    }
    (0..SAMPLES.min(count)).all(|sample| {
        let page = pages.start + sample * (count / SAMPLES.min(count)) * PAGE_BYTES;
        let mut state = 1u8;
        // SAFETY: one page inside a range that is mapped; writes one byte. An error leaves the 1.
        unsafe {
            let address = core::ptr::with_exposed_provenance_mut(page);
            libc::mincore(address, PAGE_BYTES, &raw mut state);
        }
        state & 1 == 0
    })
}

/// Asks for huge pages in the interior of a range, and cuts it into ranges of one huge page each.
pub fn huge_pages(range: &Range<usize>) -> Vec<Vec<Range<usize>>> {
    let interior = whole(range, HUGE_BYTES);
    if interior.is_empty() {
        return Vec::new();
    }
    // SAFETY: advice on whole pages of the range; it changes no content, and an error changes nothing.
    unsafe {
        let address = core::ptr::with_exposed_provenance_mut(interior.start);
        libc::madvise(address, interior.len(), libc::MADV_HUGEPAGE);
    }
    let starts = interior.clone().step_by(HUGE_BYTES);
    starts
        .map(|start| core::iter::once(start..start + HUGE_BYTES).collect())
        .collect()
}

/// The whole pages inside the parts of a triangle's columns, gathered into lists of about `HUGE_BYTES`. Ordinary
/// pages: a huge one would also make the memory of the other triangle.
pub fn pages_of_columns(columns: impl Iterator<Item = Range<usize>>) -> Vec<Vec<Range<usize>>> {
    let mut lists = Vec::new();
    let (mut list, mut bytes) = (Vec::new(), 0);
    for pages in columns.map(|column| whole(&column, PAGE_BYTES)) {
        if pages.is_empty() {
            continue;
        }
        bytes += pages.len();
        list.push(pages);
        if bytes >= HUGE_BYTES {
            lists.push(core::mem::take(&mut list));
            bytes = 0;
        }
    }
    lists.extend(Some(list).filter(|list| !list.is_empty()));
    lists
}

/// The largest range of whole pages inside a range.
fn whole(range: &Range<usize>, page_bytes: usize) -> Range<usize> {
    let start = range.start.next_multiple_of(page_bytes);
    let end = range.end / page_bytes * page_bytes;
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_its_groups_are_read() {
        let text = "MemTotal:  100 kB\nMemFree: 3 kB\nMemAvailable:     42 kB\n";
        assert_eq!(meminfo_available(text), Some(42 << 10));
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let dirs = group_dirs("4:memory:/a/b\n2:cpu:/x\n0::/c\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/c",
            "/sys/fs/cgroup",
        ];
        assert_eq!(dirs, expected.map(PathBuf::from));
    }

    #[test]
    fn a_group_leaves_its_limit_less_what_is_used() {
        let dir = std::env::temp_dir().join(format!("gpu-backend-group-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
        write("memory.max", "max\n");
        write("memory.current", "10\n");
        assert_eq!(group_left(&dir), None);
        write("memory.max", "100\n");
        assert_eq!(group_left(&dir), Some(90));
        write("memory.current", "101\n");
        assert_eq!(group_left(&dir), Some(0));
        std::fs::remove_dir_all(&dir).expect("the folder");
    }

    #[test]
    fn columns_of_a_triangle_give_their_whole_pages() {
        // 3 columns of 3 pages and a half; the lower triangle begins one page later in each.
        let (ld, base) = (7 * 2048, 1 << 20);
        let columns = (0..3).map(|j| base + j * ld + j * 4096..base + (j + 1) * ld);
        let lists = pages_of_columns(columns);
        let page = |first: usize, end: usize| base + first * 4096..base + end * 4096;
        assert_eq!(lists, [vec![page(0, 3), page(5, 7), page(9, 10)]]);
        let long = (0..4).map(|j| j * HUGE_BYTES..(j + 1) * HUGE_BYTES - 1);
        assert_eq!(pages_of_columns(long).len(), 2, "two columns a list");
        assert!(pages_of_columns(core::iter::once(5..4100)).is_empty());
    }

    #[test]
    fn fresh_memory_is_told_from_used() {
        let bytes = 8 << 20;
        // SAFETY: a new mapping, written and unmapped here.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let read_write = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(core::ptr::null_mut(), bytes, read_write, flags, -1, 0);
            assert!(base != libc::MAP_FAILED);
            let range = base.expose_provenance()..base.expose_provenance() + bytes;
            assert!(is_fresh(&range));
            let cut = huge_pages(&range);
            let cut = cut.concat();
            assert!(cut.len() >= 3 && cut.iter().all(|r| r.len() == HUGE_BYTES));
            assert!(cut[0].start >= range.start && cut[cut.len() - 1].end <= range.end);
            base.cast::<u8>().write_bytes(1, bytes);
            assert!(!is_fresh(&range));
            libc::munmap(base, bytes);
        }
        assert!(!is_fresh(&(4097..4200)), "no whole page");
    }
}
