//! The thread that polls the database file for changes by other processes, and wakes waiting hosts.
//!
//! Every 50 ms it asks SQLite whether any process has committed (`PRAGMA data_version`, which reads
//! shared memory), and only then reads which hosts of this store were woken. It starts with the first
//! call that waits, and ends with the store.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ephor_core::panics;
use rusqlite::{Connection, OpenFlags};

use super::database_paths::DatabasePaths;
use super::disk_repair::connect_without_repair;
use super::open::configure;
use super::records::last_wake;
use super::waiting_hosts::Wakers;

/// The interval between two polls.
const INTERVAL: Duration = Duration::from_millis(50);

/// Ends the thread when it is dropped.
pub(super) struct Watcher {
    _ends: Sender<()>,
}

impl Watcher {
    pub(super) fn start(paths: DatabasePaths, wakers: Arc<Wakers>) -> io::Result<Self> {
        let (ends, end) = channel();
        std::thread::Builder::new().name("ephor-sqlite-watch".into()).spawn(move || {
            watch(&paths, &wakers, &end);
        })?;
        Ok(Self { _ends: ends })
    }
}

fn watch(paths: &DatabasePaths, wakers: &Wakers, end: &Receiver<()>) {
    let mut watch = Watch::default();
    while matches!(end.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
        let looked = panics::caught(|| watch.look(paths, wakers)).unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "the watcher of the store panicked; continuing with a new connection");
            watch = Watch::default();
            Ok(())
        });
        match looked {
            Ok(()) => watch.failed = false,
            // A wake is a hint. Calls of the store report its errors.
            Err(error) if !std::mem::replace(&mut watch.failed, true) => {
                tracing::warn!(%error, "cannot watch the store for changes; retrying");
            }
            Err(_) => {}
        }
    }
}

#[derive(Default)]
struct Watch {
    connection: Option<Connection>,
    version: Option<i64>,
    failed: bool,
}

impl Watch {
    fn look(&mut self, paths: &DatabasePaths, wakers: &Wakers) -> rusqlite::Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(open(paths)?),
        };
        let version = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if !wakers.take_newly_registered() && self.version == Some(version) {
            return Ok(());
        }
        self.version = None;
        for key in wakers.keys() {
            let (group, host) = &key;
            wakers.notify_if_new(&key, last_wake(connection, group, host)?);
        }
        self.version = Some(version);
        Ok(())
    }
}

fn open(paths: &DatabasePaths) -> rusqlite::Result<Connection> {
    let connection = connect_without_repair(paths, OpenFlags::empty())?;
    configure(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}
