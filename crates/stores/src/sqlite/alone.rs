//! Mends the files of a store at its start, while nobody has them open.
//!
//! What a failed sync has left behind is mended past the page cache (`direct.rs`), and whoever reads meanwhile may see what was
//! on disk before: a reader would take it for a page, and a checkpoint would copy it. SQLite has no lock against both that another
//! part of this process could take. So the lock of the database file is taken before SQLite opens it: everybody who has it open holds
//! a shared one. It also lets the database itself be looked at, whose blocks can be lost in a checkpoint as those of the log can.
//!
//! A process that closes a handle loses all its locks of that file. So nothing is opened here while any part of this process has it
//! open.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, fcntl_lock};

use super::direct::Direct;
use super::holder;
use super::open::connect;
use super::open_error::OpenError;
use super::place::Place;

/// Held from the look whether this process has the file open until it has.
static OPENING: Mutex<()> = Mutex::new(());

/// Connects, and before that mends what the disk has lost, if that can be done.
pub(super) fn mend_and_connect(place: &Place, more: OpenFlags) -> Result<Connection, OpenError> {
    let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    mend(place)?;
    let connection = connect(place, more).map_err(|error| OpenError::of_sqlite(error, &place.database));
    drop(opening);
    connection
}

fn mend(place: &Place) -> Result<(), OpenError> {
    let Ok(metadata) = fs::metadata(&place.database) else { return Ok(()) };
    if holder::is_open_here(&metadata) {
        return Ok(());
    }
    // What is wrong with the file SQLite tells better.
    let Ok(database) = writable(&place.database) else { return Ok(()) };
    if fcntl_lock(&database, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    if let Ok(log) = writable(&place.log) {
        mend_file(place, &place.log, &log)?;
    }
    // To close it gives the lock back, and so it comes last.
    mend_file(place, &place.database, &database).map(drop)
}

fn writable(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Gives its handle back: as long as that is open, so is the lock.
fn mend_file(place: &Place, path: &Path, cached: &File) -> Result<Option<Direct>, OpenError> {
    let told = |error| place.other(error);
    let Some(mut direct) = Direct::open(path).map_err(told)? else { return Ok(None) };
    if !direct.agrees(cached).map_err(told)? {
        tracing::warn!(file = %path.display(), "a part is not on disk, after a failure of it: it is written again");
        direct.mend(cached).map_err(told)?;
        cached.sync_data().map_err(told)?;
        if !direct.agrees(cached).map_err(told)? {
            return Err(OpenError::NotKept { path: path.to_owned() });
        }
    }
    Ok(Some(direct))
}
