//! A second server that follows the first and can take its place, on a clock of its own.

use std::fs;
use std::path::PathBuf;

use super::{ADMIN, PASSWORD, Server};

/// Where Debian keeps the library that gives a process another time, by architecture.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// The library that gives a process another time. `./check` installs it.
fn other_time() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let found = folders.map(|folder| folder.join(LIBRARY)).find(|library| library.exists());
    found.expect("libfaketime is installed: apt-get install libfaketime")
}

impl Server {
    /// A standby that has everything this server has acknowledged: from now on, this server waits for it with
    /// every commit. Its clock is this many seconds ahead of this machine's, or behind it.
    pub fn standby(&self, ahead_seconds: i64) -> Self {
        let mut standby = Self::empty();
        let port = self.port.to_string();
        let arguments = ["-R", "-h", "127.0.0.1", "-p", &port, "-U", ADMIN, "-c", "fast", "--no-sync"];
        let copied = standby.command("pg_basebackup", &arguments).env("PGPASSWORD", PASSWORD).status();
        assert!(copied.unwrap().success(), "pg_basebackup {arguments:?}");
        standby.clock = vec![
            ("LD_PRELOAD", other_time().display().to_string()),
            ("FAKETIME", format!("{ahead_seconds:+}s")),
            // What waits for some time waits by this one, which nobody has set.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            // A process that is forked is not earlier than its parent.
            ("FAKETIME_DONT_RESET", "1".into()),
            ("FAKETIME_DISABLE_SHM", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ];
        standby.run_on_a_free_port();
        self.write_more("data/postgresql.auto.conf", "synchronous_standby_names = '*'\n");
        self.tool("pg_ctl", &["reload"]);
        standby
    }

    /// Makes a standby the server that takes writes.
    pub fn promote(&self) {
        self.tool("pg_ctl", &["promote", "-w", "-t", "60"]);
    }

    fn write_more(&self, name: &str, text: &str) {
        let there = fs::read_to_string(self.folder.join(name)).unwrap();
        self.write(name, &format!("{there}{text}"));
    }
}
