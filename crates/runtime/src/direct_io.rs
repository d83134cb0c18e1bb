//! Direct I/O: reads a file from the page cache and, separately, from the disk, and writes to the disk
//! without the page cache.
//!
//! A failed write leaves pages in the page cache that no later sync writes. Writing the same bytes again
//! does not always help: ext4 keeps a block that was new when its first write failed marked as unwritten,
//! and reads it as zeros after a reboot, even if it was written through the cache since. A direct write
//! clears that mark. Callers decide what they compare and when they write.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::os;

/// Offsets, lengths and addresses are multiples of this: enough for every disk.
pub const BLOCK: usize = 4096;
/// The number of bytes that a [`DirectFile`] reads and writes at once.
pub const CHUNK: usize = 64 * BLOCK;

/// A file that is open for direct I/O, with a chunk of it as it is in the cache and as it is on disk.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    cache: Aligned,
    disk: Aligned,
}

impl DirectFile {
    /// Opens a file. Where direct I/O is not offered, this or the first read fails with an error that
    /// [`os::is_direct_io_refused`] recognizes.
    pub fn open(path: &Path) -> io::Result<Self> {
        os::open_direct(path).map(Self::over)
    }

    /// Uses an open file. Tests use another file in place of the disk.
    pub fn over(file: File) -> Self {
        Self { file, cache: Aligned::new(), disk: Aligned::new() }
    }

    /// Reads `wanted` bytes of a chunk through the cache, or up to the end of the file.
    pub fn read_cache(&mut self, cached: &File, at: u64, wanted: usize) -> io::Result<usize> {
        self.cache.read(cached, at, wanted)
    }

    /// Reads `wanted` bytes of a chunk from the disk, or up to the end of the file.
    pub fn read_disk(&mut self, at: u64, wanted: usize) -> io::Result<usize> {
        self.disk.read(&self.file, at, wanted)
    }

    /// The chunk that was read last through the cache.
    pub fn cache(&self) -> &[u8] {
        self.cache.bytes()
    }

    /// The chunk that was read last from the disk.
    pub fn disk(&self) -> &[u8] {
        self.disk.bytes()
    }

    /// Writes the first bytes of the chunk that was read through the cache. A partial last block is
    /// padded with zeros.
    pub fn write_cache_to_disk(&mut self, length: usize, at: u64) -> io::Result<()> {
        let whole = length.next_multiple_of(BLOCK);
        self.cache.bytes_mut()[length..whole].fill(0);
        os::write_all_at(&self.file, &self.cache.bytes()[..whole], at)
    }
}

/// A buffer of one chunk that is aligned for direct I/O.
#[derive(Debug)]
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

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + CHUNK]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + CHUNK]
    }

    fn read(&mut self, file: &File, at: u64, wanted: usize) -> io::Result<usize> {
        let mut read = 0;
        // A partial block is the end of the file.
        while read < wanted && read.is_multiple_of(BLOCK) {
            match os::read_at(file, &mut self.bytes_mut()[read..wanted], at + read as u64) {
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

    #[test]
    fn a_chunk_is_read_from_cache_and_disk_and_its_last_block_padded() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let cached = open("cached", &[7; BLOCK + 10]);
        let mut direct = DirectFile::over(open("stored", &[8; 100]));
        assert_eq!(direct.read_cache(&cached, 0, CHUNK).unwrap(), BLOCK + 10);
        assert_eq!(direct.read_disk(0, CHUNK).unwrap(), 100);
        assert_eq!((direct.cache()[99], direct.disk()[99]), (7, 8));
        direct.write_cache_to_disk(BLOCK + 10, 0).unwrap();
        let stored = std::fs::read(folder.path().join("stored")).unwrap();
        assert_eq!((stored.len(), stored[BLOCK + 9], stored[BLOCK + 10]), (2 * BLOCK, 7, 0));
        assert!(DirectFile::open(folder.path()).is_err(), "a folder is not a file");
    }
}
