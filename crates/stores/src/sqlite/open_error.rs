//! Why a file cannot be a store, and what to do about it.

use std::path::{Path, PathBuf};

use ephor_core::BoxError;

use super::clock::OtherMachine;
use super::failure::{self, Kind};

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder is not there.
    #[error("there is no folder {}: create it, or name a file elsewhere", .folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// It is a folder.
    #[error("{0} is a folder: name a file in it, such as {0}/ephor.db", .path.display())]
    IsFolder {
        /// The path.
        path: PathBuf,
    },
    /// It is something else than a file with one name.
    #[error("{} {what}: name an ordinary file", .path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// A container was given the file without its folder.
    #[error(
        "{} is mounted by itself, apart from the log that belongs beside it: mount its folder instead",
        .path.display()
    )]
    Mounted {
        /// The file.
        path: PathBuf,
    },
    /// This user may not.
    #[error(
        "this user may not read and write {0}: SQLite writes the file and two more beside it, so give this \
         user access to the file and to its folder. Whoever creates the file creates it for one user alone (0600): \
         for hosts of several users give file and folder a group that all of them are in (chgrp; chmod 660 for the \
         file, 2770 for the folder, whose setgid bit hands the group on to what is created in it), or ACLs that let \
         each of them write", .path.display()
    )]
    Permission {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file or its disk cannot be written.
    #[error(
        "{} cannot be written, it is read-only: name a file on a disk that can be written, or mount this one \
         so", .path.display()
    )]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// Other machines may write there.
    #[error(
        "{} is on {kind}, where SQLite cannot keep processes apart: use a disk of this machine, or PostgreSQL \
         for hosts on several machines", .path.display()
    )]
    Network {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// It is something else.
    #[error("{} is no SQLite database: name another file, or move this one away", .path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another program.
    #[error("{} is a database of another program: name another file", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error(
        "{0} is damaged ({what}): stop all hosts, move it aside together with {0}-wal and {0}-shm, and put a \
         backup in its place; without one a new file begins, and its groups at their initial positions",
        .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The disk has lost a part of the log that a process which still runs has written.
    #[error(
        "of the {counted} pages in {} only {found} can be read, the disk has lost the others before they were \
         acknowledged: look at the disk (dmesg), end every process that has the file open, then start again",
        .path.display()
    )]
    LogLost {
        /// The log.
        path: PathBuf,
        /// How many pages can be read.
        found: u64,
        /// How many there should be.
        counted: u64,
    },
    /// The disk has lost a part that can be written again, and others have the file open.
    #[error(
        "a part of {} is not on disk, after a failure of it, and can be written again only while nobody has the file \
         open: look at the disk (dmesg), end every process that has the file open, then start again",
        .path.display()
    )]
    NotStored {
        /// The log or the database.
        path: PathBuf,
    },
    /// The disk takes the log without an error, and does not have it afterwards.
    #[error("the disk does not keep what is written to {}: look at the disk (dmesg)", .path.display())]
    NotKept {
        /// The log or the database.
        path: PathBuf,
    },
    /// A later release wrote it.
    #[error(
        "{} has tables of version {found}, and this release of Ephor knows them up to {known}: use the later \
         release that wrote it", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        found: usize,
        /// The latest that is known here.
        known: usize,
    },
    /// An earlier release wrote it, and whoever only looks does not change it.
    #[error(
        "{} has tables of version {found}, and this release of Ephor has {known}: use the tools of the release \
         that the hosts run; the first host of this release brings the tables up to date, and hosts of the \
         earlier one are refused from then on", .path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        found: usize,
        /// The version of this release.
        known: usize,
    },
    /// There is nothing, and whoever only looks makes nothing.
    #[error("there is no store at {} yet: the hosts make it when they first start", .path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
    },
    /// Another machine uses it.
    #[error("{}: {source}", .path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// When it did.
        source: OtherMachine,
    },
    /// Another process kept it locked.
    #[error("{} is locked: {holder}", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// By whom, as far as that can be told.
        holder: String,
    },
    /// There is no room.
    #[error("the disk that holds {} is full: make room", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot open {}: {source}", .path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: BoxError,
    },
}

impl OpenError {
    pub(super) fn of_sqlite(error: rusqlite::Error, path: &Path) -> Self {
        let path = path.to_owned();
        match failure::kind(&error) {
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
