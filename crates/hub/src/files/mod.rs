//! The file system interface `Files`: the few calls that the hub needs.
//!
//! It is small, so that tests can simulate a disk that loses power: what is not synced may be lost, in part and in any
//! order. [`DiskFiles`] uses the disk, [`MemoryFiles`] the memory of the process.
//!
//! | call | state after a crash |
//! |---|---|
//! | `File::write_at` | any part of it, until `File::sync` returned |
//! | a write whose `File::sync` failed | zeros, also if it is written and synced again, until `File::ensure_on_disk` returned |
//! | `File::set_len` | either length, until `File::sync` returned |
//! | `create`, `rename`, `remove`, `create_folder` | either state, until `sync_folder` of the parent returned |
//!
//! Paths are relative to the data folder. Their parts are separated by `/`; the empty path is the data folder itself.

mod disk;
mod ensure_on_disk;
mod memory;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use disk::{DiskError, DiskFiles};
pub use memory::MemoryFiles;

/// The space of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// The bytes that this process may still use.
    pub free: u64,
    /// The size of the disk.
    pub total: u64,
}

/// The files below one folder.
pub trait Files: Debug + Send + Sync + 'static {
    /// Creates an empty file; fails if it exists.
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;

    /// Lists the names (not paths) of all files and folders in a folder, in order.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Creates a folder, unless it exists.
    fn create_folder(&self, folder: &str) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Renames a file or folder. A file with the new name is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Open handles can still read it.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes a folder and all in it.
    fn remove_folder(&self, folder: &str) -> io::Result<()>;

    /// Returns the length of a file.
    fn length(&self, path: &str) -> io::Result<u64> {
        self.open(path)?.len()
    }

    /// Returns the path as errors and logs show it.
    fn shown(&self, path: &str) -> String;

    /// Returns the space of the disk; none for files that are not on a disk.
    fn space(&self) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }

    /// Whether a read may block.
    fn may_block(&self) -> bool {
        true
    }
}

/// An open file. Any number of threads read it; one thread at a time writes it.
#[expect(clippy::len_without_is_empty, reason = "no caller needs is_empty")]
pub trait File: Debug + Send + Sync + 'static {
    /// Writes all parts, one after the other, from this position on.
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()>;

    /// Reads until the buffer is full or the file ends, and returns the number of bytes.
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Truncates the file to this length, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Returns the length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Allocates disk space up to this length, where the file system can. The file may become that long.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Returns once all that was written, and the length, would survive a power failure.
    fn sync(&self) -> io::Result<()>;

    /// Ensures that a part is on disk after an earlier sync may have failed, which later syncs do not report. Compares it
    /// with the disk, bypassing the page cache where that is possible. Nobody may write meanwhile.
    fn ensure_on_disk(&self, _part: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

/// Whether an error means that the disk, or the quota, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Splits a path into its names; none for the data folder itself.
///
/// Every implementation splits paths here, so that no path leads out of the folder.
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

/// Splits a path into its folder and its name there.
pub fn folder_and_name(path: &str) -> io::Result<(&str, &str)> {
    match path_parts(path)?.last() {
        Some(name) => Ok((path.rsplit_once('/').map_or("", |(folder, _)| folder), name)),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of the data folder itself is not allowed here",
        )),
    }
}
