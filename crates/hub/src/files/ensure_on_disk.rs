//! Ensures that a range of a file is on disk: compares the disk with the page cache, and writes the
//! differing blocks again.
//!
//! A failed write leaves the disk without it, whatever is written through the cache since; `direct_io.rs` of
//! `ephor-runtime` explains why.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use ephor_runtime::direct_io::{BLOCK, CHUNK, DirectFile};
use ephor_runtime::os::is_direct_io_refused;

/// Ensures that the part is on disk as it is in the cache. Does nothing where the file system offers no direct I/O.
/// Nobody may write meanwhile.
pub(super) fn ensure_on_disk(path: &Path, cached: &File, part: Range<u64>) -> io::Result<()> {
    let opened = DirectFile::open(path);
    let ensured = opened.and_then(|direct| Repair { direct }.ensure(cached, part));
    match ensured {
        // Some file systems have no direct I/O, or larger blocks.
        Err(error) if is_direct_io_refused(&error) => Ok(()),
        ensured => ensured,
    }
}

/// A repair of a file that is open for direct I/O.
struct Repair {
    direct: DirectFile,
}

impl Repair {
    fn ensure(&mut self, cached: &File, part: Range<u64>) -> io::Result<()> {
        if self.mend(cached, part.clone())? == Found::default() {
            return Ok(());
        }
        tracing::warn!("the disk did not have everything that was written to the log; wrote it again");
        cached.sync_data()?;
        let Found { differs, unread } = self.mend(cached, part)?;
        if differs {
            return Err(io::Error::other("the disk does not store what is written to it; replace it"));
        }
        if let Some(error) = unread {
            tracing::warn!(%error, "wrote a part of the log again, but could not read it from the disk to verify it");
        }
        Ok(())
    }

    /// Writes the chunks that differ on disk, or cannot be read there, and returns what it found.
    fn mend(&mut self, cached: &File, part: Range<u64>) -> io::Result<Found> {
        let length = cached.metadata()?.len();
        let mut found = Found::default();
        let mut at = part.start - part.start % BLOCK as u64;
        while at < part.end.min(length) {
            let wanted = (part.end - at).next_multiple_of(BLOCK as u64).min(CHUNK as u64) as usize;
            let read = self.direct.read_cache(cached, at, wanted)?;
            let same = match self.direct.read_disk(at, wanted) {
                Ok(stored) => {
                    let same = stored >= read && self.direct.cache()[..read] == self.direct.disk()[..read];
                    found.differs |= !same;
                    same
                }
                Err(error) if is_direct_io_refused(&error) => return Err(error),
                Err(error) => {
                    found.unread = Some(error.kind());
                    false
                }
            };
            if !same {
                self.direct.write_cache_to_disk(read, at)?;
            }
            at += wanted as u64;
        }
        if found != Found::default() {
            // The last block may have been padded with zeros.
            cached.set_len(length)?;
        }
        Ok(found)
    }
}

/// Why chunks were written again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// The disk had other bytes.
    differs: bool,
    /// The disk could not be read.
    unread: Option<io::ErrorKind>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files, in place of the cache and the disk of one.
    fn files(cached: &[u8], stored: &[u8]) -> (tempfile::TempDir, File, Repair) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (cached, stored) = (open("cached", cached), open("stored", stored));
        (folder, cached, Repair { direct: DirectFile::over(stored) })
    }

    #[test]
    fn what_is_not_on_disk_of_a_part_is_written_and_nothing_else() {
        let whole: Vec<u8> = (0..2 * CHUNK + 1234).map(|n| (n % 251) as u8 + 1).collect();
        let parts = [0..whole.len(), 10_000..20_000, CHUNK - 5..CHUNK + 5, 2 * CHUNK + 1_000..whole.len()];
        for part in parts {
            let (folder, cached, mut repair) = files(&whole, &vec![0; whole.len()]);
            repair.ensure(&cached, part.start as u64..part.end as u64).unwrap();
            let stored = std::fs::read(folder.path().join("stored")).unwrap();
            assert!(stored[part.clone()] == whole[part.clone()], "{part:?}");
            let before = part.start - part.start % BLOCK;
            assert!(stored[..before].iter().all(|byte| *byte == 0), "{part:?}");
            assert_eq!(cached.metadata().unwrap().len(), whole.len() as u64);
        }
    }

    #[test]
    fn a_disk_that_keeps_nothing_is_an_error() {
        let (folder, cached, mut repair) = files(&[7; BLOCK], &[0; BLOCK]);
        let zeros = File::options().read(true).write(true).open("/dev/zero").unwrap();
        repair.direct = DirectFile::over(zeros);
        let error = repair.ensure(&cached, 0..BLOCK as u64).unwrap_err();
        assert!(error.to_string().contains("does not store"), "{error}");
        drop(folder);
    }

    #[test]
    fn a_part_that_cannot_be_read_past_the_cache_is_written_again() {
        let (folder, cached, mut repair) = files(&[7; BLOCK], &[0; BLOCK]);
        // It can be written, and not be read.
        let unreadable = File::options().write(true).open(folder.path().join("stored")).unwrap();
        repair.direct = DirectFile::over(unreadable);
        repair.ensure(&cached, 0..BLOCK as u64).unwrap();
        assert_eq!(std::fs::read(folder.path().join("stored")).unwrap(), [7; BLOCK]);
    }

    #[test]
    fn a_file_that_was_just_written_is_on_disk_past_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; CHUNK + 100]).unwrap();
        let cached = File::options().read(true).write(true).open(&path).unwrap();
        ensure_on_disk(&path, &cached, 50..CHUNK as u64 + 100).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; CHUNK + 100]);
    }
}
