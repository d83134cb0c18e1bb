//! Mends the files of a store at its start, while nobody has them open.
//!
//! What a failed sync has left behind is mended past the page cache (`direct.rs`), and whoever reads meanwhile may see what was
//! on disk before: a reader would take it for a page, and a checkpoint would copy it. SQLite has no lock against both that another
//! part of this process could take. So the lock of the database file is taken before SQLite opens it: everybody who has it open holds
//! a shared one. It also lets the database itself be looked at, whose blocks can be lost in a checkpoint as those of the log can.
//!
//! A process that closes a handle loses all its locks of that file. So nothing is opened here while any part of this process has it
//! open, and no store of this process opens it meanwhile. (Code of the user that opens it by itself has to keep to that: see
//! `SqliteStore::open`.)

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

/// Opens a file past the page cache; None where that is not offered. Tests bring a disk of their own.
type PastCache<'a> = &'a dyn Fn(&Path) -> io::Result<Option<Direct>>;

/// Connects, and before that mends what the disk has lost, if that can be done.
pub(super) fn mend_and_connect(place: &Place, more: OpenFlags) -> Result<Connection, OpenError> {
    mend_by(place, more, &Direct::open)
}

/// Connects without a look at the disk, and not while another part of this process has handles open that it is about to close.
pub(super) fn connect_in_turn(place: &Place, more: OpenFlags) -> rusqlite::Result<Connection> {
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    connect(place, more)
}

fn mend_by(place: &Place, more: OpenFlags, past_cache: PastCache<'_>) -> Result<Connection, OpenError> {
    let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    mend(place, past_cache)?;
    let connection = connect(place, more).map_err(|error| OpenError::of_sqlite(error, &place.database));
    drop(opening);
    connection
}

fn mend(place: &Place, past_cache: PastCache<'_>) -> Result<(), OpenError> {
    let Ok(metadata) = fs::metadata(&place.database) else { return Ok(()) };
    // That part has looked when it opened it.
    if holder::is_open_here(&metadata) {
        return Ok(());
    }
    // What is wrong with the file SQLite tells better.
    let Ok(database) = writable(&place.database) else { return Ok(()) };
    if fcntl_lock(&database, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    if let Ok(log) = writable(&place.log) {
        mend_file(place, &place.log, &log, past_cache)?;
    }
    // To close it gives the lock back, and so it comes last.
    mend_file(place, &place.database, &database, past_cache).map(drop)
}

fn writable(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Gives its handle back: as long as that is open, so is the lock.
fn mend_file(
    place: &Place,
    path: &Path,
    cached: &File,
    past_cache: PastCache<'_>,
) -> Result<Option<Direct>, OpenError> {
    let told = |error| place.other(error);
    let Some(mut direct) = past_cache(path).map_err(told)? else { return Ok(None) };
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::Duration;

    use super::super::SqliteStore;
    use super::*;

    /// A store whose database and log are not empty, and which nobody has open.
    fn store() -> (tempfile::TempDir, Place) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ephor.db");
        let _ = SqliteStore::open(&path).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE more (x);").unwrap();
        // Whoever closes last would copy the log into the database.
        let place = Place::find(&path, false).unwrap();
        let log = fs::read(&place.log).unwrap();
        drop(connection);
        fs::write(&place.log, log).unwrap();
        (folder, place)
    }

    /// What the disk has of a file, in place of what it really has.
    fn on_disk(path: &Path) -> PathBuf {
        path.with_extension("on-disk")
            .with_file_name(format!("{}.on-disk", path.file_name().unwrap().to_str().unwrap()))
    }

    fn past_cache(path: &Path) -> io::Result<Option<Direct>> {
        writable(&on_disk(path)).map(Direct::over).map(Some)
    }

    /// The disk has lost the first block of both.
    fn lose(place: &Place) {
        for file in [&place.database, &place.log] {
            let mut bytes = fs::read(file).unwrap();
            assert!(!bytes.is_empty(), "{}", file.display());
            let lost = bytes.len().min(4096);
            bytes[..lost].fill(0);
            fs::write(on_disk(file), bytes).unwrap();
        }
    }

    fn is_whole(file: &Path) -> bool {
        let (cached, stored) = (fs::read(file).unwrap(), fs::read(on_disk(file)).unwrap());
        stored.starts_with(&cached)
    }

    /// Waits until nobody here has it open: a store is closed by its own thread.
    #[expect(clippy::disallowed_methods, reason = "the system tells nobody when a file is closed")]
    fn wait_until_closed(place: &Place) {
        while holder::is_open_here(&fs::metadata(&place.database).unwrap()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_the_disk_has_lost_of_database_and_log_is_written_before_sqlite_opens_them() {
        let (_folder, place) = store();
        wait_until_closed(&place);
        lose(&place);
        let connection = mend_by(&place, OpenFlags::empty(), &past_cache).unwrap();
        assert!(is_whole(&place.database) && is_whole(&place.log));
        let tables: i64 = connection.query_row("SELECT count(*) FROM more", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 0);
    }

    #[test]
    fn nothing_is_written_past_the_cache_while_another_part_of_this_process_has_it_open() {
        let (_folder, place) = store();
        wait_until_closed(&place);
        lose(&place);
        let _open = connect(&place, OpenFlags::empty()).unwrap();
        mend_by(&place, OpenFlags::empty(), &past_cache).unwrap();
        assert!(!is_whole(&place.database) && !is_whole(&place.log));
    }

    #[test]
    fn no_store_of_this_process_opens_the_file_while_another_one_mends_it() {
        let (_folder, place) = store();
        let (tell, told) = mpsc::channel();
        let mending = OPENING.lock().unwrap();
        let path = place.database.clone();
        let tool = std::thread::spawn(move || {
            let tool = SqliteStore::open_existing(path).unwrap();
            tell.send(tool.is_some()).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_millis(500)), Err(RecvTimeoutError::Timeout));
        drop(mending);
        assert_eq!(told.recv(), Ok(true));
        tool.join().unwrap();
    }
}
