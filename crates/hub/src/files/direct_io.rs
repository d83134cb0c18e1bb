//! Direct I/O: compares a part of a file in the page cache with the disk, and writes what differs again.
//!
//! A failed write leaves pages in the page cache that no later sync writes. Writing the same bytes again is not always
//! enough: ext4 keeps a block whose first write failed marked as never written, and reads it as zeros after a restart,
//! whatever was written to it through the cache since. A write that bypasses the cache (`O_DIRECT`) makes the block
//! durable.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// The alignment of offsets, lengths and addresses: enough for every disk.
const BLOCK: usize = 4096;
const CHUNK: usize = 64 * BLOCK;

/// Ensures that the part is on disk as it is in the cache. Does nothing where the file system offers no direct I/O.
/// Nobody may write meanwhile.
pub(super) fn ensure_on_disk(path: &Path, cached: &File, part: Range<u64>) -> io::Result<()> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let opened = File::options().read(true).write(true).custom_flags(flags).open(path);
    let ensured = opened.and_then(|file| Direct::over(file).ensure(cached, part));
    match ensured {
        // Some file systems have no direct I/O, or larger blocks.
        Err(error) if is_not_offered(&error) => Ok(()),
        ensured => ensured,
    }
}

/// Whether the error means that the file system offers no direct I/O.
fn is_not_offered(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// A file opened for direct I/O, and two buffers.
struct Direct {
    file: File,
    disk: Aligned,
    cache: Aligned,
}

impl Direct {
    fn over(file: File) -> Self {
        Self { file, disk: Aligned::new(), cache: Aligned::new() }
    }

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
            let read = self.cache.read(cached, at, wanted)?;
            let same = match self.disk.read(&self.file, at, wanted) {
                Ok(stored) => {
                    let same = stored >= read && self.cache.bytes()[..read] == self.disk.bytes()[..read];
                    found.differs |= !same;
                    same
                }
                Err(error) if is_not_offered(&error) => return Err(error),
                Err(error) => {
                    found.unread = Some(error.kind());
                    false
                }
            };
            if !same {
                let whole = read.next_multiple_of(BLOCK);
                self.cache.bytes()[read..whole].fill(0);
                self.file.write_all_at(&self.cache.bytes()[..whole], at)?;
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

/// A buffer with the alignment for direct I/O.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new() -> Self {
        let memory = vec![0; CHUNK + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Self { memory, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + CHUNK]
    }

    /// Reads `wanted` bytes, or up to the end of the file.
    fn read(&mut self, file: &File, at: u64, wanted: usize) -> io::Result<usize> {
        let mut read = 0;
        // A partial block is the end of the file.
        while read < wanted && read.is_multiple_of(BLOCK) {
            match file.read_at(&mut self.bytes()[read..wanted], at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Two files, in place of the cache and the disk of one.
    fn files(cached: &[u8], stored: &[u8]) -> (tempfile::TempDir, File, Direct) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (cached, stored) = (open("cached", cached), open("stored", stored));
        (folder, cached, Direct::over(stored))
    }

    #[test]
    fn what_is_not_on_disk_of_a_part_is_written_and_nothing_else() {
        let whole: Vec<u8> = (0..2 * CHUNK + 1234).map(|n| (n % 251) as u8 + 1).collect();
        let parts = [0..whole.len(), 10_000..20_000, CHUNK - 5..CHUNK + 5, 2 * CHUNK + 1_000..whole.len()];
        for part in parts {
            let (folder, cached, mut direct) = files(&whole, &vec![0; whole.len()]);
            direct.ensure(&cached, part.start as u64..part.end as u64).unwrap();
            let stored = std::fs::read(folder.path().join("stored")).unwrap();
            assert!(stored[part.clone()] == whole[part.clone()], "{part:?}");
            let before = part.start - part.start % BLOCK;
            assert!(stored[..before].iter().all(|byte| *byte == 0), "{part:?}");
            assert_eq!(cached.metadata().unwrap().len(), whole.len() as u64);
        }
    }

    #[test]
    fn a_disk_that_keeps_nothing_is_an_error() {
        let (folder, cached, mut direct) = files(&[7; BLOCK], &[0; BLOCK]);
        direct.file = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let error = direct.ensure(&cached, 0..BLOCK as u64).unwrap_err();
        assert!(error.to_string().contains("does not store"), "{error}");
        drop(folder);
    }

    #[test]
    fn a_part_that_cannot_be_read_past_the_cache_is_written_again() {
        let (folder, cached, mut direct) = files(&[7; BLOCK], &[0; BLOCK]);
        // It can be written, and not be read.
        direct.file = File::options().write(true).open(folder.path().join("stored")).unwrap();
        direct.ensure(&cached, 0..BLOCK as u64).unwrap();
        assert_eq!(std::fs::read(folder.path().join("stored")).unwrap(), [7; BLOCK]);
    }

    #[test]
    fn a_file_system_that_offers_no_way_past_its_cache_is_not_asked() {
        for number in [Errno::INVAL.raw_os_error(), Errno::OPNOTSUPP.raw_os_error()] {
            assert!(is_not_offered(&io::Error::from_raw_os_error(number)), "{number}");
        }
        assert!(!is_not_offered(&io::Error::from_raw_os_error(Errno::IO.raw_os_error())));
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
