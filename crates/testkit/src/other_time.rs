//! Another time for a process: what its environment must say.

#![allow(clippy::unwrap_used, reason = "a test whose server does not start shall fail right there")]

use std::fs;
use std::path::PathBuf;

/// Where Debian keeps the library that gives a process another time, by architecture.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// The library that gives a process another time. `./check` installs it.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let found = folders.map(|folder| folder.join(LIBRARY)).find(|library| library.exists());
    found.expect("libfaketime is installed: apt-get install libfaketime")
}

/// For a clock that is this many seconds ahead of this machine's, or behind it.
pub(crate) fn variables(ahead_seconds: i64) -> Vec<(&'static str, String)> {
    vec![
        ("LD_PRELOAD", library().display().to_string()),
        ("FAKETIME", format!("{ahead_seconds:+}s")),
        // What waits for some time waits by this one, which nobody has set.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        // A process that is forked is not earlier than its parent.
        ("FAKETIME_DONT_RESET", "1".into()),
        ("FAKETIME_DISABLE_SHM", "1".into()),
        ("NO_FAKE_STAT", "1".into()),
    ]
}
