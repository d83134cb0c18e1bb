//! The seam to the disk: all that the hub asks of a file system, and no more.
//!
//! It is small so that tests can stand in for a disk that loses power: what is
//! not synced may be lost, in part and in any order. [`DiskFiles`] is the real
//! one, [`MemoryFiles`] keeps nothing.
//!
//! | call | what a crash leaves |
//! |---|---|
//! | `File::write_at` | any part of it, until `File::sync` returned |
//! | what a failed `File::sync` left | zeros, also if it is written and synced again, until `File::ensure_on_disk` returned |
//! | `File::set_len` | either length, until `File::sync` returned |
//! | `create`, `rename`, `remove`, `create_folder` | either state, until `sync_folder` of the parent returned |
//!
//! Paths are relative to the data folder; their parts are separated by `/`, and
//! the empty path is the data folder itself.

mod direct;
mod disk;
mod memory;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use disk::{DiskError, DiskFiles};
pub use memory::MemoryFiles;

/// The size of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// What this process may still use.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// A folder full of files.
pub trait Files: Debug + Send + Sync + 'static {
    /// Creates an empty file; fails if there is one.
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;

    /// The names (not paths) of all files and folders in a folder, in order.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Creates a folder; one that is there is fine.
    fn create_folder(&self, folder: &str) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Gives a file or folder another name; a file that has that name is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. One that is open can still be read by those who have it.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes a folder and all in it.
    fn remove_folder(&self, folder: &str) -> io::Result<()>;

    /// How long a file is.
    fn length(&self, path: &str) -> io::Result<u64> {
        self.open(path)?.len()
    }

    /// How errors and logs name this path.
    fn shown(&self, path: &str) -> String;

    /// How much room there is on the disk below; none where there is no disk to run full.
    fn space(&self) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }

    /// Whether a read may have to wait for a disk.
    fn may_block(&self) -> bool {
        true
    }
}

/// An open file. Everyone who has it may read it; one thread at a time writes it.
#[expect(clippy::len_without_is_empty, reason = "nobody asks an open file whether it is empty")]
pub trait File: Debug + Send + Sync + 'static {
    /// Writes all parts, one behind the other, from this position on.
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()>;

    /// Reads until the buffer is full or the file ends, and tells how much it read.
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Cuts the file to this length, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// How long the file is.
    fn len(&self) -> io::Result<u64>;

    /// Asks for room up to this length beforehand, where the file system can; the file may become that long.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Returns once all that was written, and the length, would survive a power failure.
    fn sync(&self) -> io::Result<()>;

    /// For a part that an earlier sync may have failed to write, which no later one tells: returns once it is on disk as
    /// it is read, looked at past the caches of the system where that is possible. Nobody writes meanwhile.
    fn ensure_on_disk(&self, _part: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

/// Whether an error of this seam says that the disk, or what we may use of it, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The names that a path consists of, none for the data folder itself.
///
/// Every implementation takes paths apart here, so that none of them leaves its folder.
pub fn path_parts(path: &str) -> io::Result<Vec<&str>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        let message = format!("{path:?} is not a path below the data folder");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(parts)
}

/// The folder that a path is in, and its name there.
pub fn folder_and_name(path: &str) -> io::Result<(&str, &str)> {
    match path_parts(path)?.last() {
        Some(name) => Ok((path.rsplit_once('/').map_or("", |(folder, _)| folder), name)),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "the data folder itself has no name")),
    }
}
