//! The thread that notices what other processes change.
//!
//! It asks SQLite every 50 ms whether anybody has committed (`PRAGMA data_version`: a look into shared memory)
//! and only then reads who of this process was woken. It is started when somebody first waits, and ends with
//! the store.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ephor_core::panics;
use rusqlite::{Connection, OpenFlags};

use super::alone::connect_in_turn;
use super::bells::Bells;
use super::open::configure;
use super::place::Place;
use super::records::last_wake;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// Ends the thread when it is dropped.
pub(super) struct Watcher {
    _ends: Sender<()>,
}

impl Watcher {
    pub(super) fn start(place: Place, bells: Arc<Bells>) -> io::Result<Self> {
        let (ends, end) = channel();
        std::thread::Builder::new().name("ephor-sqlite-watch".into()).spawn(move || {
            watch(&place, &bells, &end);
        })?;
        Ok(Self { _ends: ends })
    }
}

fn watch(place: &Place, bells: &Bells, end: &Receiver<()>) {
    let mut watch = Watch::default();
    while matches!(end.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
        let looked = panics::caught(|| watch.look(place, bells)).unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "the watcher of the store panicked, and goes on with a new connection");
            watch = Watch::default();
            Ok(())
        });
        match looked {
            Ok(()) => watch.failed = false,
            // A wake is a hint. Whoever uses the store hears of what is wrong with it.
            Err(error) if !std::mem::replace(&mut watch.failed, true) => {
                tracing::warn!(%error, "cannot watch the store for changes; trying on");
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
    fn look(&mut self, place: &Place, bells: &Bells) -> rusqlite::Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(open(place)?),
        };
        let version = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if !bells.take_fresh() && self.version == Some(version) {
            return Ok(());
        }
        self.version = None;
        for key in bells.keys() {
            let (group, host) = &key;
            bells.look(&key, last_wake(connection, group, host)?);
        }
        self.version = Some(version);
        Ok(())
    }
}

fn open(place: &Place) -> rusqlite::Result<Connection> {
    let connection = connect_in_turn(place, OpenFlags::empty())?;
    configure(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}
