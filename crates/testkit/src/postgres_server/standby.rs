//! Starts a standby of a PostgreSQL server, which replicates every commit and has a clock of its own, and
//! promotes it.

use std::fs;

use super::{ADMIN, PASSWORD, Server};
use crate::faketime;

impl Server {
    /// A synchronous standby with everything that this server has acknowledged: from now on, this
    /// server waits for it with every commit. Its clock is this many seconds ahead of this
    /// machine's, or behind it if negative.
    pub fn standby(&self, ahead_seconds: i64) -> Self {
        let mut standby = Self::empty();
        let port = self.port.to_string();
        let arguments = ["-R", "-h", "127.0.0.1", "-p", &port, "-U", ADMIN, "-c", "fast", "--no-sync"];
        let copied = standby.command("pg_basebackup", &arguments).env("PGPASSWORD", PASSWORD).status();
        assert!(copied.unwrap().success(), "pg_basebackup {arguments:?}");
        standby.clock = faketime::variables(ahead_seconds);
        standby.run_on_a_free_port();
        self.write_more("data/postgresql.auto.conf", "synchronous_standby_names = '*'\n");
        self.tool("pg_ctl", &["reload"]);
        standby
    }

    /// Promotes a standby to the server that accepts writes.
    pub fn promote(&self) {
        self.tool("pg_ctl", &["promote", "-w", "-t", "60"]);
    }

    fn write_more(&self, name: &str, text: &str) {
        let there = fs::read_to_string(self.folder.join(name)).unwrap();
        self.write(name, &format!("{there}{text}"));
    }
}
