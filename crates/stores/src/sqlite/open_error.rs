//! The errors of opening a SQLite file as a store, each with advice.

use std::path::{Path, PathBuf};

use ephor_core::BoxError;

use super::clock::OtherMachine;
use super::error_mapping::{self, Kind};

/// Why a file cannot be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder does not exist.
    #[error("there is no folder {}: create it, or name a file elsewhere", .folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The path is a folder.
    #[error("{0} is a folder: name a file in it, such as {0}/ephor.db", .path.display())]
    IsFolder {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a regular file with a single name.
    #[error("{} {what}: name a regular file", .path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
        /// The kind of thing that it is, as a predicate.
        what: String,
    },
    /// The file is mounted into a container without its folder.
    #[error(
        "{} is mounted without its folder, which must also hold its log: mount the folder instead",
        .path.display()
    )]
    Mounted {
        /// The file.
        path: PathBuf,
    },
    /// This user lacks access.
    #[error(
        "this user may not read and write {0}: SQLite writes the file and two more beside it, so give this \
         user access to the file and to its folder. A new file is accessible to its creator only (0600): for hosts \
         of several users give file and folder a group that all of them are in (chgrp; chmod 660 for the file, 2770 \
         for the folder, whose setgid bit passes the group on to new files), or ACLs that let each of them write",
        .path.display()
    )]
    Permission {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file or its file system is read-only.
    #[error(
        "{} is read-only: name a file on a writable disk, or mount this one read-write", .path.display()
    )]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file is on a network file system.
    #[error(
        "{} is on {kind}, where SQLite's locks do not work: use a disk of this machine, or PostgreSQL for hosts \
         on several machines", .path.display()
    )]
    Network {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The file is not a database.
    #[error("{} is not a SQLite database: name another file, or move this one away", .path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error("{} is a database of another program: name another file", .path.display())]
    OtherProgram {
        /// The file.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error(
        "{0} is damaged ({what}): stop all hosts, move it aside together with {0}-wal and {0}-shm, and put a \
         backup in its place; without a backup the hosts create a new file, and their groups start at the initial \
         positions",
        .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damage that SQLite reports.
        what: String,
    },
    /// The disk has lost a part of the log that a running process has written.
    #[error(
        "only {found} of the {counted} pages in {} can be read: the disk has lost the others before they were \
         acknowledged. Check the disk (dmesg), stop every process that has the file open, then start again",
        .path.display()
    )]
    LogLost {
        /// The log.
        path: PathBuf,
        /// The number of pages that can be read.
        found: u64,
        /// The number of pages that SQLite counts.
        counted: u64,
    },
    /// The disk has lost a part of a file that other processes have open. A repair needs exclusive access.
    #[error(
        "after a disk failure a part of {} is not on disk, and it can be written again only while no process has \
         the file open: check the disk (dmesg), stop every process that has the file open, then start again",
        .path.display()
    )]
    NeedsExclusiveRepair {
        /// The log or the database.
        path: PathBuf,
    },
    /// The disk accepts writes without an error and loses them.
    #[error("the disk loses what is written to {}: check the disk (dmesg)", .path.display())]
    DiskLosesWrites {
        /// The log or the database.
        path: PathBuf,
    },
    /// A later release wrote the tables.
    #[error(
        "{} has tables of version {found}, and this release of Ephor knows them up to {known}: use the later \
         release that wrote it", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        found: usize,
        /// The latest version that this release knows.
        known: usize,
    },
    /// An earlier release wrote the tables, and this open must not migrate them.
    #[error(
        "{} has tables of version {found}, and this release of Ephor has {known}: use the tools of the release \
         that the hosts run; the first host of this release migrates the tables, and then refuses hosts of the \
         earlier release", .path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        found: usize,
        /// The version of this release.
        known: usize,
    },
    /// There is no store, and this open must not create one.
    #[error("there is no store at {} yet: the first host creates it", .path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
    },
    /// Another machine uses it.
    #[error("{}: {source}", .path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// The time of its last write.
        source: OtherMachine,
    },
    /// Another process holds the lock.
    #[error("{} is locked: {holder}", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// The process that holds the lock, as far as it is known.
        holder: String,
    },
    /// The disk is full.
    #[error("the disk that holds {} is full: free some space", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Another error.
    #[error("cannot open {}: {source}", .path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: BoxError,
    },
}

impl OpenError {
    pub(super) fn of_sqlite(error: rusqlite::Error, path: &Path) -> Self {
        let path = path.to_owned();
        match error_mapping::kind(&error) {
            Kind::Busy => Self::Busy { path, holder: "another process holds the write lock".into() },
            Kind::Full => Self::Full { path },
            Kind::ReadOnly => Self::ReadOnly { path },
            Kind::Permission => Self::Permission { path },
            Kind::NotADatabase => Self::NotADatabase { path },
            Kind::Corrupt => Self::Corrupt { path, what: error.to_string() },
            Kind::Other => Self::Other { path, source: error.into() },
        }
    }
}
