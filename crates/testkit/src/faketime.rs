//! Returns the environment variables with which a server runs on another clock, by libfaketime.

#![allow(clippy::unwrap_used, reason = "a test whose server does not start fails by a panic")]

use std::fs;
use std::path::PathBuf;

/// The path of libfaketime on Debian, below the folder of the architecture.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// The library that gives a process another clock. `./check` installs it.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let found = folders.map(|folder| folder.join(LIBRARY)).find(|library| library.exists());
    found.expect("libfaketime is installed: apt-get install libfaketime")
}

/// The variables for a clock that is this many seconds ahead of this machine's, or behind it if
/// negative.
pub(crate) fn variables(ahead_seconds: i64) -> Vec<(&'static str, String)> {
    vec![
        ("LD_PRELOAD", library().display().to_string()),
        ("FAKETIME", format!("{ahead_seconds:+}s")),
        // Waits use the monotonic clock, which stays unchanged.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        // A forked process continues the clock of its parent.
        ("FAKETIME_DONT_RESET", "1".into()),
        ("FAKETIME_DISABLE_SHM", "1".into()),
        ("NO_FAKE_STAT", "1".into()),
    ]
}
