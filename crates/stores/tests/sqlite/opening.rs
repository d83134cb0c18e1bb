//! Tests of opening a file: files that cannot be a store are refused with the reason and advice, and other
//! users get no access. The last test: a store stops when a later release migrates its tables.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ephor_core::store::{Store, StoreError};
use ephor_stores::sqlite::{OpenError, SqliteStore};

use crate::fixture::{Folder, LEASE, P, claim, group, save, wait};
use crate::small_disk::on_small_disk;

/// The error, and that it names the path and says what to do.
fn refused(path: impl AsRef<Path>, named: &Path, advice: &str) -> OpenError {
    let error = SqliteStore::open(path).expect_err("it cannot be opened");
    let text = error.to_string();
    assert!(text.contains(&named.display().to_string()) && text.contains(advice), "{text}");
    error
}

#[test]
fn a_folder_that_is_not_there() {
    let folder = Folder::new();
    let missing = folder.path().join("data");
    let error = refused(missing.join("ephor.db"), &missing, "create it");
    assert!(matches!(error, OpenError::NoFolder { .. }));
    fs::write(&missing, "a file").unwrap();
    assert!(matches!(refused(missing.join("ephor.db"), &missing, "create it"), OpenError::NoFolder { .. }));
}

#[test]
fn a_folder_a_device_a_dangling_link_and_a_file_with_two_names() {
    let folder = Folder::new();
    let error = refused(folder.path(), folder.path(), "name a file in it");
    assert!(matches!(error, OpenError::IsFolder { .. }));
    refused("/dev/null", Path::new("/dev/null"), "is not a regular file");
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.path().join("nowhere.db"), &link).unwrap();
    refused(&link, &link, "is a symbolic link to a file that does not exist");
    drop(folder.open());
    fs::hard_link(folder.database(), folder.path().join("second.db")).unwrap();
    refused(folder.database(), &folder.database(), "several names");
}

#[test]
fn a_link_leads_to_the_same_store() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let token = claim(&folder.open(), P, "a");
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(folder.database(), &link).unwrap();
    let store = SqliteStore::open(&link).unwrap();
    save(&store, &token, 1).unwrap();
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    assert_eq!(crate::fixture::stored(&folder.open(), P), Some(1));
}

#[test]
fn a_file_that_is_no_database_and_one_of_another_program() {
    let folder = Folder::new();
    fs::write(folder.database(), "partition,offset\n".repeat(1000)).unwrap();
    let error = refused(folder.database(), &folder.database(), "is not a SQLite database");
    assert!(matches!(error, OpenError::NotADatabase { .. }));
    fs::remove_file(folder.database()).unwrap();
    folder.sql().execute_batch("CREATE TABLE notes (text)").unwrap();
    let error = refused(folder.database(), &folder.database(), "of another program");
    assert!(matches!(error, OpenError::OtherProgram { .. }));
    let tables: i64 =
        folder.sql().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1, "nothing was added to it");
}

#[test]
fn a_damaged_file_is_noticed_when_it_is_opened() {
    let folder = Folder::new();
    let store = folder.open();
    for partition in 0..200 {
        claim(&store, ephor_core::ids::PartitionId(partition), "a");
    }
    drop(store);
    folder.sql().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let whole = fs::read(folder.database()).unwrap();
    const PAGE: usize = 4096;
    for page in [1, 3, whole.len() / PAGE - 1] {
        let mut harmed = whole.clone();
        harmed[page * PAGE..page * PAGE + 200].fill(0xA5);
        fs::write(folder.database(), harmed).unwrap();
        let error = refused(folder.database(), &folder.database(), "put a backup in its place");
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    }
    let mut cut = whole.clone();
    cut.truncate(whole.len() / 2);
    fs::write(folder.database(), cut).unwrap();
    assert!(matches!(refused(folder.database(), &folder.database(), "backup"), OpenError::Corrupt { .. }));
    fs::write(folder.database(), whole).unwrap();
    assert_eq!(wait(folder.open().view(&group())).unwrap().leases.len(), 200);
}

/// The number of attempts to mount a disk.
const MAX_MOUNTS: usize = 500;

#[test]
#[expect(clippy::disallowed_methods, reason = "a disk is busy for a moment of real time")]
fn a_disk_that_is_mounted_read_only() {
    on_small_disk("opening::a_disk_that_is_mounted_read_only", 2 << 20, |disk| {
        fs::create_dir(disk.data()).unwrap();
        let path = disk.data().join("ephor.db");
        drop(SqliteStore::open(&path).unwrap());
        // The threads of a store that was dropped close its file a moment later: until then the disk is busy.
        let mount = |mode| {
            let root = disk.data().parent().unwrap().to_owned();
            let mounted = (0..MAX_MOUNTS).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                let mut mount = std::process::Command::new("mount");
                mount.args(["-o", mode]).arg(&root).stderr(Stdio::null()).status().unwrap().success()
            });
            assert!(mounted, "{mode}: the disk stays busy");
        };
        mount("remount,ro");
        let error = refused(&path, &path, "read-only");
        assert!(matches!(error, OpenError::ReadOnly { .. }));
        let error = refused(disk.data().join("new.db"), &disk.data(), "read-only");
        assert!(matches!(error, OpenError::ReadOnly { .. }));
        mount("remount,rw");
        SqliteStore::open(&path).unwrap();
    });
}

/// Root may do anything: the check runs as nobody then, in a process of its own.
#[test]
fn a_file_or_folder_that_this_user_may_not_write() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(folder.open());
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
    }
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    if !rustix::process::geteuid().is_root() {
        return check_permissions(folder.path());
    }
    // Where a copy of this program can be run by anybody.
    let program = folder.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = std::os::unix::process::CommandExt::uid(&mut std::process::Command::new(&program), 65_534)
        .args(["--exact", "opening::permissions_as_a_child", "--nocapture"])
        .env("EPHOR_TEST_NOBODY", folder.path())
        .current_dir("/")
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && said.contains("permissions are checked"), "{said}");
}

/// Not a test of its own: what the process of another user does.
#[test]
fn permissions_as_a_child() {
    if let Some(folder) = std::env::var_os("EPHOR_TEST_NOBODY") {
        check_permissions(&PathBuf::from(folder));
    }
}

fn check_permissions(folder: &Path) {
    let (file, closed) = (folder.join("ephor.db"), folder.join("closed"));
    let error = refused(&file, &file, "give this user access");
    assert!(matches!(error, OpenError::Permission { .. }));
    let error = refused(closed.join("ephor.db"), &closed, "give this user access");
    assert!(matches!(error, OpenError::Permission { .. }));
    println!("permissions are checked");
}

fn modes(folder: &Folder) -> Vec<String> {
    let files = ["db", "db-wal", "db-shm"].map(|ending| folder.database().with_extension(ending));
    files
        .iter()
        .map(|file| format!("{:o}", fs::metadata(file).unwrap().permissions().mode() & 0o777))
        .collect()
}

#[test]
fn other_users_can_neither_read_nor_lock_what_is_created() {
    let folder = Folder::new();
    let store = folder.open();
    claim(&store, P, "a");
    assert_eq!(modes(&folder), ["600"; 3]);
}

#[test]
fn of_files_that_are_there_other_users_keep_only_what_was_given_to_them_on_purpose() {
    let folder = Folder::new();
    for (before, after) in [(0o644, "600"), (0o664, "660"), (0o660, "660")] {
        let store = folder.open();
        let token = claim(&store, P, "a");
        for ending in ["db", "db-wal", "db-shm"] {
            let file = folder.database().with_extension(ending);
            fs::set_permissions(file, fs::Permissions::from_mode(before)).unwrap();
        }
        let again = folder.open();
        assert_eq!(modes(&folder), [after; 3]);
        save(&again, &token, 1).unwrap();
    }
}

/// A later release has changed the tables while this one runs: it must not go on as if nothing were.
#[test]
fn a_host_of_an_earlier_release_stops_when_the_tables_become_newer() {
    let folder = Folder::new();
    let store = folder.open();
    let token = claim(&store, P, "a");
    save(&store, &token, 1).unwrap();
    let other = rusqlite::Connection::open(folder.database()).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    let error = save(&store, &token, 2).unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("version 99"), "{error}");
    let renewed = wait(store.renew(&group(), LEASE, std::slice::from_ref(&token)));
    assert!(renewed.is_err(), "{renewed:?}");
}
