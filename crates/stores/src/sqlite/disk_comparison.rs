//! Compares a file in the page cache with the disk, and writes differing blocks to the disk by direct I/O.
//!
//! A failed write can leave the disk without a block that the cache has; `direct_io.rs` of `ephor-runtime`
//! explains why writing it again through the cache does not help.

use std::fs::File;
use std::io;
use std::path::Path;

use ephor_runtime::direct_io::{BLOCK, CHUNK, DirectFile};
use ephor_runtime::os::is_direct_io_refused;

/// The number of times a chunk is compared that other processes may be writing.
const MAX_COMPARISONS: usize = 20;

/// Compares one file with the disk.
pub(super) struct DiskComparison(DirectFile);

impl DiskComparison {
    /// Opens a file; none where the file system does not offer direct I/O.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        // Some file systems refuse only the first read.
        let tried = DirectFile::open(path).and_then(|mut direct| direct.read_disk(0, CHUNK).map(|_| direct));
        match tried {
            Ok(direct) => Ok(Some(Self(direct))),
            Err(error) if is_direct_io_refused(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Compares with another file in place of the disk.
    #[cfg(test)]
    pub(super) fn over(file: File) -> Self {
        Self(DirectFile::over(file))
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
            let length = self.0.read_cache(cached, at, CHUNK)?;
            let whole = length.next_multiple_of(BLOCK);
            if whole > length {
                cached.set_len(at + whole as u64)?;
            }
            self.0.write_cache_to_disk(length, at)?;
            from = at + CHUNK as u64;
        }
        Ok(())
    }

    /// The offset of the first chunk that differs.
    fn difference(&mut self, cached: &File, mut at: u64) -> io::Result<Option<u64>> {
        loop {
            let cached = self.0.read_cache(cached, at, CHUNK)?;
            let stored = self.0.read_disk(at, CHUNK)?;
            if self.0.cache()[..cached] != self.0.disk()[..stored] {
                return Ok(Some(at));
            }
            if cached < CHUNK {
                return Ok(None);
            }
            at += CHUNK as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Two files that stand in for the cache and the disk of one file.
    fn files(cached: &[u8], stored: &[u8]) -> (tempfile::TempDir, File, DiskComparison) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (cached, stored) = (open("cached", cached), open("stored", stored));
        (folder, cached, DiskComparison::over(stored))
    }

    #[test]
    fn what_is_not_on_disk_is_found_and_written_wherever_it_is() {
        let whole: Vec<u8> = (0..2 * CHUNK + 1234).map(|n| (n % 251) as u8 + 1).collect();
        for hole in [0..BLOCK, CHUNK - BLOCK..CHUNK + BLOCK, 2 * CHUNK..whole.len(), 0..whole.len()] {
            let mut stored = whole.clone();
            stored[hole.clone()].fill(0);
            let (folder, cached, mut direct) = files(&whole, &stored);
            assert!(!direct.matches_disk(&cached).unwrap(), "{hole:?}");
            direct.repair(&cached).unwrap();
            let repaired = std::fs::read(folder.path().join("stored")).unwrap();
            assert!(repaired[..whole.len()] == whole, "{hole:?}");
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
    fn a_file_that_cannot_be_opened_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(DiskComparison::open(folder.path()).is_err());
    }

    #[test]
    fn a_file_that_was_just_written_is_on_disk_past_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; CHUNK + 100]).unwrap();
        let cached = File::open(&path).unwrap();
        // There are file systems without.
        if let Some(mut direct) = DiskComparison::open(&path).unwrap() {
            assert!(direct.matches_disk(&cached).unwrap());
            direct.repair(&cached).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), vec![7; CHUNK + 100]);
        }
    }
}
