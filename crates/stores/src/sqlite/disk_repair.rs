//! Repairs the database file and its write-ahead log before SQLite opens them, if a failed sync left blocks
//! of them unwritten.
//!
//! The repair writes past the page cache (`disk_comparison.rs`). A concurrent reader could see the old blocks,
//! and a concurrent checkpoint could copy them. SQLite offers no lock against both, so this takes an
//! exclusive lock on the database file before SQLite opens it: every process that has the database
//! open holds a shared lock. The database is repaired like the log, because a checkpoint can lose
//! blocks as well.
//!
//! While other processes have the file open, it is only compared with the disk. If they differ,
//! opening fails: all processes must close the file before it can be repaired.
//!
//! A process that closes a handle loses all its locks on that file. Therefore nothing is opened here
//! while this process has the file open, and no store of this process opens it meanwhile. (The user's
//! own code must respect that, too: see `SqliteStore::open`.)

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::database_paths::DatabasePaths;
use super::disk_comparison::DiskComparison;
use super::open::connect;
use super::open_error::OpenError;
use super::os::{self, LockKind};

/// Held while a store of this process checks whether the file is open, repairs it and opens it.
static OPENING: Mutex<()> = Mutex::new(());

/// The pause before a block that another process may be writing is compared again.
const COMPARISON_PAUSE: Duration = Duration::from_millis(5);

/// Opens a file for direct I/O; none where the file system does not offer it. Tests use another function.
type OpenDirect<'a> = &'a dyn Fn(&Path) -> io::Result<Option<DiskComparison>>;

/// Repairs what the disk has lost, if that is possible, and connects.
pub(super) fn repair_and_connect(paths: &DatabasePaths, more: OpenFlags) -> Result<Connection, OpenError> {
    repair_with(paths, more, &DiskComparison::open)
}

/// Connects without a repair, after any repair that another store of this process has begun.
pub(super) fn connect_without_repair(paths: &DatabasePaths, more: OpenFlags) -> rusqlite::Result<Connection> {
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    connect(paths, more)
}

fn repair_with(
    paths: &DatabasePaths,
    more: OpenFlags,
    open_direct: OpenDirect<'_>,
) -> Result<Connection, OpenError> {
    let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    repair(paths, open_direct)?;
    let connection = connect(paths, more).map_err(|error| OpenError::of_sqlite(error, &paths.database));
    drop(opening);
    connection
}

fn repair(paths: &DatabasePaths, open_direct: OpenDirect<'_>) -> Result<(), OpenError> {
    let Ok(metadata) = fs::metadata(&paths.database) else { return Ok(()) };
    // This process has compared the file when it opened it.
    if os::is_open_in_this_process(&metadata) {
        return Ok(());
    }
    // SQLite reports the error when it opens the file.
    let Ok(database) = writable(&paths.database) else { return Ok(()) };
    if os::try_lock(&database, LockKind::Exclusive).is_err() {
        return compare(paths, &database, open_direct);
    }
    if let Ok(log) = writable(&paths.log) {
        repair_file(paths, &paths.log, &log, open_direct)?;
    }
    // Closing the database releases the lock: it comes last.
    repair_file(paths, &paths.database, &database, open_direct).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "a write by another process takes real time")]
fn pause() {
    std::thread::sleep(COMPARISON_PAUSE);
}

/// Refuses a database that differs from the disk while other processes have it open.
fn compare(paths: &DatabasePaths, database: &File, open_direct: OpenDirect<'_>) -> Result<(), OpenError> {
    // Another process holds the exclusive lock: it repairs the file and checks the result itself.
    if os::try_lock(database, LockKind::Shared).is_err() {
        return Ok(());
    }
    let io_error = |error| paths.other(error);
    let Some(mut direct) = open_direct(&paths.database).map_err(io_error)? else { return Ok(()) };
    match direct.matches_disk_eventually(database, pause).map_err(io_error)? {
        true => Ok(()),
        false => Err(OpenError::NeedsExclusiveRepair { path: paths.database.clone() }),
    }
}

fn writable(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Repairs one file. Returns its handle, which the caller keeps open to keep the lock.
fn repair_file(
    paths: &DatabasePaths,
    path: &Path,
    cached: &File,
    open_direct: OpenDirect<'_>,
) -> Result<Option<DiskComparison>, OpenError> {
    let io_error = |error| paths.other(error);
    let Some(mut direct) = open_direct(path).map_err(io_error)? else { return Ok(None) };
    if !direct.matches_disk(cached).map_err(io_error)? {
        tracing::warn!(file = %path.display(), "a part of the file is not on disk after a disk failure; writing it again");
        direct.repair(cached).map_err(io_error)?;
        cached.sync_data().map_err(io_error)?;
        if !direct.matches_disk(cached).map_err(io_error)? {
            return Err(OpenError::DiskLosesWrites { path: path.to_owned() });
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

    /// The variable with the path for the child process.
    const CHILD: &str = "EPHOR_TEST_HOLDS";

    /// A store whose database and log are not empty, and which no process has open.
    fn store() -> (tempfile::TempDir, DatabasePaths) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ephor.db");
        let _ = SqliteStore::open(&path).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE more (x);").unwrap();
        // The last connection copies the log into the database when it closes.
        let paths = DatabasePaths::find(&path, false).unwrap();
        let log = fs::read(&paths.log).unwrap();
        drop(connection);
        fs::write(&paths.log, log).unwrap();
        (folder, paths)
    }

    /// A file that stands in for the disk's copy.
    fn on_disk(path: &Path) -> PathBuf {
        path.with_extension("on-disk")
            .with_file_name(format!("{}.on-disk", path.file_name().unwrap().to_str().unwrap()))
    }

    fn open_direct(path: &Path) -> io::Result<Option<DiskComparison>> {
        writable(&on_disk(path)).map(DiskComparison::over).map(Some)
    }

    /// Loses the first block of both files on disk.
    fn lose(paths: &DatabasePaths) {
        for file in [&paths.database, &paths.log] {
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

    /// Waits until this process has closed the file: a store is closed by its own thread.
    #[expect(clippy::disallowed_methods, reason = "the system does not notify of a closed file")]
    fn wait_until_closed(paths: &DatabasePaths) {
        while os::is_open_in_this_process(&fs::metadata(&paths.database).unwrap()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_the_disk_has_lost_of_database_and_log_is_written_before_sqlite_opens_them() {
        let (_folder, paths) = store();
        wait_until_closed(&paths);
        lose(&paths);
        let connection = repair_with(&paths, OpenFlags::empty(), &open_direct).unwrap();
        assert!(is_whole(&paths.database) && is_whole(&paths.log));
        let tables: i64 = connection.query_row("SELECT count(*) FROM more", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 0);
    }

    #[test]
    fn nothing_is_written_past_the_cache_while_another_part_of_this_process_has_it_open() {
        let (_folder, paths) = store();
        wait_until_closed(&paths);
        lose(&paths);
        let _open = connect(&paths, OpenFlags::empty()).unwrap();
        repair_with(&paths, OpenFlags::empty(), &open_direct).unwrap();
        assert!(!is_whole(&paths.database) && !is_whole(&paths.log));
    }

    /// Not a test of its own: a child process that keeps the file open until its input ends.
    #[test]
    #[expect(clippy::print_stdout, reason = "the parent reads it")]
    fn hold_as_a_child() {
        if let Some(path) = std::env::var_os(CHILD) {
            let _store = SqliteStore::open(path).unwrap();
            println!("\nopen");
            let _ = io::stdin().read_line(&mut String::new());
        }
    }

    fn another_process(paths: &DatabasePaths) -> (Child, BufReader<ChildStdout>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::disk_repair::tests::hold_as_a_child", "--nocapture"])
            .env(CHILD, &paths.database)
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
        let (_folder, paths) = store();
        wait_until_closed(&paths);
        let (mut child, _words) = another_process(&paths);
        lose(&paths);
        let refused = repair_with(&paths, OpenFlags::empty(), &open_direct);
        assert!(
            matches!(&refused, Err(OpenError::NeedsExclusiveRepair { path }) if *path == paths.database),
            "{refused:?}"
        );
        assert!(!is_whole(&paths.database), "nothing is written");
        fs::copy(&paths.database, on_disk(&paths.database)).unwrap();
        repair_with(&paths, OpenFlags::empty(), &open_direct).expect("the database is on disk");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn no_store_of_this_process_opens_the_file_while_another_one_mends_it() {
        let (_folder, paths) = store();
        let (tell, told) = mpsc::channel();
        let repairing = OPENING.lock().unwrap();
        let path = paths.database.clone();
        let tool = std::thread::spawn(move || {
            let tool = SqliteStore::open_existing(path).unwrap();
            tell.send(tool.is_some()).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_millis(500)), Err(RecvTimeoutError::Timeout));
        drop(repairing);
        assert_eq!(told.recv(), Ok(true));
        tool.join().unwrap();
    }
}
