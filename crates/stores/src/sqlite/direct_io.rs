//! Compares the page cache of a file with the disk by direct I/O, and writes blocks that differ.
//!
//! A failed write leaves pages in the cache that no later sync writes. Writing the same bytes again
//! does not always help: ext4 keeps a block that was new when its first write failed marked as
//! unwritten, and reads it as zeros after a reboot, even if it was written through the cache since.
//! A direct write clears that mark.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Offsets, lengths and addresses are multiples of this: enough for every disk.
const BLOCK: usize = 4096;
const CHUNK: usize = 64 * BLOCK;

/// The number of times a chunk is compared that other processes may be writing.
const MAX_COMPARISONS: usize = 20;

/// A file that is open for direct I/O.
pub(super) struct DirectFile {
    file: File,
    disk: Aligned,
    cache: Aligned,
}

impl DirectFile {
    /// Opens a file; none where the file system does not offer direct I/O.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(path);
        // Some file systems refuse only the first read.
        let tried = opened.and_then(|file| {
            let mut direct = Self::over(file);
            direct.disk.read(&direct.file, 0).map(|_| direct)
        });
        match tried {
            Ok(direct) => Ok(Some(direct)),
            Err(error) if is_not_offered(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn over(file: File) -> Self {
        Self { file, disk: Aligned::new(), cache: Aligned::new() }
    }

    /// Whether cache and disk agree. While other processes write, they may differ for a moment.
    pub(super) fn matches_disk(&mut self, cached: &File) -> io::Result<bool> {
        Ok(self.difference(cached, 0)?.is_none())
    }

    /// Whether cache and disk agree while other processes write: a chunk that differs is compared again
    /// after a pause.
    pub(super) fn matches_disk_eventually(
        &mut self,
        cached: &File,
        mut pause: impl FnMut(),
    ) -> io::Result<bool> {
        let (mut from, mut comparisons) = (0, 0);
        while let Some(at) = self.difference(cached, from)? {
            // Everything before it agreed when it was compared.
            comparisons = if at == from { comparisons + 1 } else { 1 };
            if comparisons > MAX_COMPARISONS {
                return Ok(false);
            }
            from = at;
            pause();
        }
        Ok(true)
    }

    /// Writes the blocks in which disk and cache differ. No other process may write meanwhile; readers may
    /// see the old blocks for a moment. A partial last block is padded with zeros.
    pub(super) fn repair(&mut self, cached: &File) -> io::Result<()> {
        let mut from = 0;
        while let Some(at) = self.difference(cached, from)? {
            let length = self.cache.read(cached, at)?;
            let whole = length.next_multiple_of(BLOCK);
            self.cache.bytes()[length..whole].fill(0);
            if whole > length {
                cached.set_len(at + whole as u64)?;
            }
            self.file.write_all_at(&self.cache.bytes()[..whole], at)?;
            from = at + CHUNK as u64;
        }
        Ok(())
    }

    /// The offset of the first chunk that differs.
    fn difference(&mut self, cached: &File, mut at: u64) -> io::Result<Option<u64>> {
        loop {
            let cached = self.cache.read(cached, at)?;
            let stored = self.disk.read(&self.file, at)?;
            if self.cache.bytes()[..cached] != self.disk.bytes()[..stored] {
                return Ok(Some(at));
            }
            if cached < CHUNK {
                return Ok(None);
            }
            at += CHUNK as u64;
        }
    }
}

/// Whether an error means that direct I/O is not offered, and not that the disk fails.
fn is_not_offered(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// A buffer that is aligned for direct I/O.
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

    /// Reads a chunk, or up to the end of the file.
    fn read(&mut self, file: &File, at: u64) -> io::Result<usize> {
        let mut read = 0;
        // A partial block is the end of the file.
        while read < CHUNK && read.is_multiple_of(BLOCK) {
            match file.read_at(&mut self.bytes()[read..], at + read as u64) {
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
    use super::*;

    /// Two files that stand in for the cache and the disk of one file.
    fn files(cached: &[u8], stored: &[u8]) -> (tempfile::TempDir, File, DirectFile) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (cached, stored) = (open("cached", cached), open("stored", stored));
        (folder, cached, DirectFile::over(stored))
    }

    #[test]
    fn what_is_not_on_disk_is_found_and_written_wherever_it_is() {
        let whole: Vec<u8> = (0..2 * CHUNK + 1234).map(|n| (n % 251) as u8 + 1).collect();
        for hole in [0..BLOCK, CHUNK - BLOCK..CHUNK + BLOCK, 2 * CHUNK..whole.len(), 0..whole.len()] {
            let mut stored = whole.clone();
            stored[hole.clone()].fill(0);
            let (_folder, cached, mut direct) = files(&whole, &stored);
            assert!(!direct.matches_disk(&cached).unwrap(), "{hole:?}");
            direct.repair(&cached).unwrap();
            let mut repaired = vec![0; whole.len()];
            direct.file.read_exact_at(&mut repaired, 0).unwrap();
            assert!(repaired == whole, "{hole:?}");
        }
        let (_folder, cached, mut direct) = files(&whole, &whole);
        assert!(direct.matches_disk(&cached).unwrap());
    }

    #[test]
    fn a_chunk_that_is_just_being_written_is_not_lost() {
        let whole = vec![7; 3 * CHUNK];
        let (folder, cached, mut direct) = files(&whole, &vec![0; 3 * CHUNK]);
        let stored = File::options().write(true).open(folder.path().join("stored")).unwrap();
        let mut pauses = 0;
        let write_slowly = || {
            // One chunk in five pauses.
            pauses += 1;
            if pauses % 5 == 0 {
                stored.write_all_at(&whole[..CHUNK], (pauses / 5 - 1) * CHUNK as u64).unwrap();
            }
        };
        assert!(direct.matches_disk_eventually(&cached, write_slowly).unwrap());
        assert_eq!(pauses, 15);
        cached.write_all_at(&[8], CHUNK as u64).unwrap();
        assert!(!direct.matches_disk_eventually(&cached, || ()).unwrap());
    }

    #[test]
    fn what_the_disk_has_not_at_all_is_written_too_and_the_last_block_filled_up() {
        let (folder, cached, mut direct) = files(&[7; BLOCK + 10], &[7; 100]);
        direct.repair(&cached).unwrap();
        assert!(direct.matches_disk(&cached).unwrap());
        let stored = std::fs::read(folder.path().join("stored")).unwrap();
        assert_eq!((stored.len(), stored[BLOCK + 9], stored[BLOCK + 10]), (2 * BLOCK, 7, 0));
    }

    #[test]
    fn who_does_not_offer_it_is_told_from_a_disk_that_fails() {
        let error = |errno: rustix::io::Errno| io::Error::from(errno);
        assert!(is_not_offered(&error(rustix::io::Errno::INVAL)));
        assert!(is_not_offered(&error(rustix::io::Errno::OPNOTSUPP)));
        assert!(!is_not_offered(&error(rustix::io::Errno::IO)));
        let folder = tempfile::tempdir().unwrap();
        assert!(DirectFile::open(folder.path()).is_err(), "a file that cannot be opened is an error");
    }

    #[test]
    fn a_file_that_was_just_written_is_on_disk_past_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; CHUNK + 100]).unwrap();
        let cached = File::open(&path).unwrap();
        // There are file systems without.
        if let Some(mut direct) = DirectFile::open(&path).unwrap() {
            assert!(direct.matches_disk(&cached).unwrap());
            direct.repair(&cached).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), vec![7; CHUNK + 100]);
        }
    }
}
