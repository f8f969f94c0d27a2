//! Runs with GPU_OFFLOAD=force are only worth something if calls really ran on the device: the
//! engine's JSON log says where each one went, and every fallback to the CPU must be an expected one.

use super::Tally;
use super::client_run::Client;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Why the CPU may run a call although the GPU was asked for: a part of the logged reason, and what
/// makes it right. Everything else fails the run. Empty: calls that only scale C (alpha = 0, k = 0)
/// never reach the engine, and the suites have no other reason today.
const EXPECTED_FALLBACKS: &[(&str, &str)] = &[];

/// `client`, with every decision logged to `log`.
pub fn logged(client: Client, log: &Path) -> Client {
    client
        .env("GPU_OFFLOAD_LOG", "decisions")
        .env("GPU_OFFLOAD_LOG_FILE", log)
}

/// Reads the log of a force run: for each routine device calls must have happened, and each fallback
/// must be an expected one.
pub fn judge(log: &Path, routines: &[&str]) -> Result<Tally> {
    let text = fs::read_to_string(log)
        .with_context(|| format!("a force run left no log at {}", log.display()))?;
    let mut device_calls: BTreeMap<String, u64> = BTreeMap::new();
    let mut fallbacks: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let entry: Value = serde_json::from_str(line)
            .with_context(|| format!("line {} of the log is no JSON: {line}", number + 1))?;
        if entry["event"] != "call" {
            continue;
        }
        let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        if field("route") == "gpu" {
            *device_calls.entry(field("routine")).or_default() += 1;
        } else {
            let reason = format!("{} {}", field("reason"), field("detail"));
            *fallbacks
                .entry((field("routine"), reason.trim().to_owned()))
                .or_default() += 1;
        }
    }
    let mut tally = Tally::default();
    for routine in routines {
        let calls = device_calls.get(*routine).copied().unwrap_or(0);
        println!("  {routine}: {calls} calls on the device");
        tally.check(calls > 0);
    }
    for ((routine, reason), count) in &fallbacks {
        let expected = EXPECTED_FALLBACKS
            .iter()
            .find(|(part, _)| reason.to_lowercase().contains(part));
        match expected {
            Some((_, why)) => println!("  {routine}: {count} calls on the CPU: {reason} ({why})"),
            None => println!("  {routine}: {count} calls on the CPU, UNEXPECTED: {reason}"),
        }
        tally.check(expected.is_some());
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::judge;

    fn judged(log: &str) -> super::Tally {
        let path = std::env::temp_dir().join(format!(
            "gpu-offload-forced-{}-{:?}.jsonl",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, log).expect("write a log");
        let tally = judge(&path, &["dgemm"]).expect("a readable log");
        let _ = std::fs::remove_file(&path);
        tally
    }

    #[test]
    fn a_run_without_device_calls_or_with_an_unknown_reason_fails() {
        assert_eq!(judged("").failed, 1);
        let gpu = r#"{"event":"call","routine":"dgemm","route":"gpu","reason":"forced"}"#;
        assert_eq!(judged(gpu).failed, 0);
        let lost = r#"{"event":"call","routine":"dgemm","route":"cpu","reason":"failed-on-gpu","detail":"GPU lost"}"#;
        assert_eq!(judged(&format!("{gpu}\n{lost}")).failed, 1);
    }
}
