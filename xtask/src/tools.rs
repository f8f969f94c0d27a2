//! Small helpers of all tasks: where the workspace is, how a command is run, how progress is shown.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The folder of the workspace's `Cargo.toml`.
pub fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Where cargo puts what it builds; a relative `CARGO_TARGET_DIR` counts from the workspace.
pub fn target_dir() -> PathBuf {
    let dir = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace().join(dir)
}

/// The cargo that runs this task, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Stated, since the user's own cargo configuration may name another folder or target.
    command
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", target_dir())
        .env_remove("CARGO_BUILD_TARGET");
    command
}

/// Runs a command quietly; its output appears only in the error.
pub fn quiet(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", show(command)))?;
    if !output.status.success() {
        bail!(
            "{} failed ({})\n{}{}",
            show(command),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command whose output the user sees.
pub fn loud(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", show(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", show(command));
    }
    Ok(())
}

fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args().take(4) {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    if command.get_args().len() > 4 {
        text.push_str(" …");
    }
    text
}

/// Whether a program of this name is on the search path.
pub fn has_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// A line with a spinner for a step of unknown length; it is removed when dropped.
pub fn step(text: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(text.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    if bar.is_hidden() {
        // Not a terminal (a log, CI): one plain line instead of the spinner.
        eprintln!("{text}");
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A bar for a step of known length.
pub fn bar(text: &str, len: u64) -> ProgressBar {
    let bar = ProgressBar::new(len).with_message(text.to_owned());
    if bar.is_hidden() {
        eprintln!("{text}");
    }
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

/// Does `work` for every item, as many at once as there are processors, and returns the results in the items' order.
///
/// # Errors
/// The first one in that order; items that were not begun by then are left.
pub fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let worker = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { break };
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((number, result));
        }
        done
    };
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, Result<R>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("no worker panics"))
            .collect()
    });
    all.sort_by_key(|&(number, _)| number);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::side_by_side;
    use anyhow::ensure;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let squares = side_by_side(&items, |&i| Ok(i * i)).expect("no error");
        assert_eq!(squares, items.iter().map(|i| i * i).collect::<Vec<_>>());
        let of_none: &[usize] = &[];
        assert!(side_by_side(of_none, |_| Ok(())).expect("none").is_empty());
    }

    #[test]
    fn the_first_error_in_the_items_order_is_returned() {
        let items: Vec<usize> = (0..100).collect();
        let all = side_by_side(&items, |&i| {
            ensure!(i < 7, "{i}");
            Ok(())
        });
        // Item 7 is begun before any later one can fail.
        assert_eq!(all.expect_err("an error").to_string(), "7");
    }
}
