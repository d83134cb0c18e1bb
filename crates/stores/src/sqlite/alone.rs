//! Mends the files of a store at its start, while nobody has them open.
//!
//! What a failed sync has left behind is mended past the page cache (`direct.rs`), and whoever reads meanwhile may see what was
//! on disk before: a reader would take it for a page, and a checkpoint would copy it. SQLite has no lock against both that another
//! part of this process could take. So the lock of the database file is taken before SQLite opens it: everybody who has it open holds
//! a shared one. It also lets the database itself be looked at, whose blocks can be lost in a checkpoint as those of the log can.
//!
//! Where others have the file open, it is only compared, and a file that the disk has lost a part of is refused: all of them have to
//! end before it can be mended.
//!
//! A process that closes a handle loses all its locks of that file. So nothing is opened here while any part of this process has it
//! open, and no store of this process opens it meanwhile. (Code of the user that opens it by itself has to keep to that: see
//! `SqliteStore::open`.)

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, fcntl_lock};

use super::direct::Direct;
use super::holder;
use super::open::connect;
use super::open_error::OpenError;
use super::place::Place;

/// Held from the look whether this process has the file open until it has.
static OPENING: Mutex<()> = Mutex::new(());

/// How long a write by another process is waited for before the next look at it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

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
        return compare(place, &database, past_cache);
    }
    if let Ok(log) = writable(&place.log) {
        mend_file(place, &place.log, &log, past_cache)?;
    }
    // To close it gives the lock back, and so it comes last.
    mend_file(place, &place.database, &database, past_cache).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "a write by another process takes real time")]
fn pause() {
    std::thread::sleep(BETWEEN_LOOKS);
}

/// Refuses a database of which a part is not on disk, while others have it open.
fn compare(place: &Place, database: &File, past_cache: PastCache<'_>) -> Result<(), OpenError> {
    // Whoever has it alone mends it just now, and looks by itself whether that has succeeded.
    if fcntl_lock(database, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(());
    }
    let told = |error| place.other(error);
    let Some(mut direct) = past_cache(&place.database).map_err(told)? else { return Ok(()) };
    match direct.agrees_in_the_end(database, pause).map_err(told)? {
        true => Ok(()),
        false => Err(OpenError::NotStored { path: place.database.clone() }),
    }
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
    use std::io::{BufRead, BufReader, Read};
    use std::path::PathBuf;
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::sync::mpsc::{self, RecvTimeoutError};

    use super::super::SqliteStore;
    use super::*;

    /// Where the child finds the file.
    const CHILD: &str = "EPHOR_TEST_HOLDS";

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

    /// Not a test of its own: a process that has the file open until it is told to end.
    #[test]
    #[expect(clippy::print_stdout, reason = "the parent reads it")]
    fn hold_as_a_child() {
        if let Some(path) = std::env::var_os(CHILD) {
            let _store = SqliteStore::open(path).unwrap();
            println!("\nopen");
            let _ = io::stdin().read_line(&mut String::new());
        }
    }

    fn another_process(place: &Place) -> (Child, BufReader<ChildStdout>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::alone::tests::hold_as_a_child", "--nocapture"])
            .env(CHILD, &place.database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(child.stdout.take().unwrap());
        assert!(words.by_ref().lines().any(|line| line.unwrap() == "open"));
        (child, words)
    }

    #[test]
    fn a_database_that_is_not_on_disk_is_refused_while_another_process_has_it_open() {
        let (_folder, place) = store();
        wait_until_closed(&place);
        let (mut child, _words) = another_process(&place);
        lose(&place);
        let refused = mend_by(&place, OpenFlags::empty(), &past_cache);
        assert!(
            matches!(&refused, Err(OpenError::NotStored { path }) if *path == place.database),
            "{refused:?}"
        );
        assert!(!is_whole(&place.database), "nothing is written");
        fs::copy(&place.database, on_disk(&place.database)).unwrap();
        mend_by(&place, OpenFlags::empty(), &past_cache).expect("the database is on disk");
        drop(child.stdin.take());
        child.wait().unwrap();
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
