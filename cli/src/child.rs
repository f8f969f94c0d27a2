//! A command that this program starts and outlives, to say something about it at its end.
//!
//! What ends a program is for the command to answer: a terminal's signals reach it directly, since both are in one
//! group, and are only survived here; those that are sent to one process are passed on.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::process::{Command, ExitStatus};

/// Runs a command to its end.
///
/// # Errors
/// Where it cannot be started.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    // Handlers, which exec resets; ignored signals the command would inherit.
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let mut child = command.spawn()?;
    loop {
        // Before waiting: the child may have ended already, and then its number is nobody's target any more.
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.wait() {
            let passed = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            // Not reaped yet, so that the number is still its own.
            kill_process(Pid::from_child(&child), passed)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::path::Path;
    use std::time::Duration;

    /// Runs a script whose first act is to make the file `$0`, and sends this process a signal when it is there.
    fn signalled(script: &str, signal: Signal, name: &str) -> ExitStatus {
        let mark = std::env::temp_dir().join(format!("gpu-offload-{name}-{}", std::process::id()));
        let watched = mark.clone();
        let sender = std::thread::spawn(move || {
            while !Path::exists(&watched) {
                std::thread::sleep(Duration::from_millis(5));
            }
            kill_process(getpid(), signal).unwrap();
            // The script sees that the signal has been sent.
            std::fs::remove_file(&watched).unwrap();
        });
        let status = status(Command::new("sh").args(["-c", script]).arg(&mark)).unwrap();
        sender.join().unwrap();
        status
    }

    #[test]
    fn a_signal_to_us_alone_is_passed_on_and_the_commands_answer_counts() {
        let script = "trap 'exit 9' TERM; : > \"$0\"; while :; do sleep 0.02; done";
        assert_eq!(signalled(script, Signal::TERM, "term").code(), Some(9));
    }

    #[test]
    fn an_interrupt_is_survived_until_the_command_has_ended() {
        let script = ": > \"$0\"; while [ -e \"$0\" ]; do sleep 0.02; done; exit 5";
        assert_eq!(signalled(script, Signal::INT, "int").code(), Some(5));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let error = status(&mut Command::new("/no such program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
