//! The services of the operating system that the files of a hub need. Linux only; a port replaces this file,
//! and `os.rs` of `ephor-runtime`.
//!
//! | a port provides | the hub needs it for |
//! |---|---|
//! | [`write_parts_at`]: one write from several buffers | commits |
//! | [`reserve`]: disk space ahead of writes | segments that a full disk cannot tear |
//! | [`space`]: free and total bytes of a disk | the disk reserve |
//! | [`private_folder`]: a folder for this user only | the data folder |
//! | [`try_lock`], [`unlock`]: a lock that ends with its process | one process per data folder |

use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::files::DiskSpace;

/// The most parts in one call on Linux (`IOV_MAX`).
const MAX_PARTS: usize = 1024;

/// Writes all parts, one after the other, from a position on.
pub(crate) fn write_parts_at(file: &File, mut position: u64, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let written = match rustix::io::pwritev(file, &rest[..rest.len().min(MAX_PARTS)], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        position += written as u64;
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// Allocates the first `length` bytes of a file, where the file system can. The file grows to that length.
pub(crate) fn reserve(file: &File, length: u64) -> io::Result<()> {
    // The system refuses to allocate 0 bytes.
    if length == 0 {
        return Ok(());
    }
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
            Err(Errno::INTR) => {}
            // A file system that cannot allocate ahead can still be written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Returns the space of the disk that a folder is on.
pub(crate) fn space(folder: &Path) -> io::Result<DiskSpace> {
    let found = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskSpace { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
}

/// A builder of folders that only the user of this process may read and write.
pub(crate) fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Locks a file for this handle alone, until the handle and its copies in child processes are closed, or until
/// [`unlock`]. Returns false if another handle has the lock. Never waits.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Frees the lock of a file.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_parts_than_one_call_takes_are_all_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many");
        let file = File::create(&path).unwrap();
        let bytes: Vec<u8> = (0..3 * MAX_PARTS).map(|index| index as u8).collect();
        let parts: Vec<&[u8]> = bytes.chunks(1).collect();
        write_parts_at(&file, 5, &parts).unwrap();
        let read = std::fs::read(&path).unwrap();
        assert_eq!(read[..5], [0; 5]);
        assert_eq!(read[5..], bytes);
    }
}
