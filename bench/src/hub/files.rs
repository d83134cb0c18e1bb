//! A file system wrapper that counts the commits, syncs, bytes read and files opened of a hub on disk.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor_hub::files::{DiskFiles, File, Files};

/// The disk operations since the last call of [`CountingFiles::take`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// The number of writes after the header of a segment: each of them is one commit.
    pub(crate) commits: u64,
    pub(crate) commit_bytes: u64,
    /// Syncs of files and of folders.
    pub(crate) syncs: u64,
    pub(crate) bytes_read: u64,
    pub(crate) opens: u64,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    commit_bytes: AtomicU64,
    syncs: AtomicU64,
    bytes_read: AtomicU64,
    opens: AtomicU64,
}

/// Files on disk, with counters.
#[derive(Clone, Debug)]
pub(crate) struct CountingFiles {
    files: DiskFiles,
    counters: Arc<Counters>,
}

impl CountingFiles {
    pub(crate) fn new(root: &Path) -> Self {
        Self { files: DiskFiles::new(root.to_owned()), counters: Arc::default() }
    }

    /// Returns the counts, and resets them.
    pub(crate) fn take(&self) -> Counted {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        let Counters { commits, commit_bytes, syncs, bytes_read, opens } = &*self.counters;
        Counted {
            commits: take(commits),
            commit_bytes: take(commit_bytes),
            syncs: take(syncs),
            bytes_read: take(bytes_read),
            opens: take(opens),
        }
    }

    fn counted(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        self.counters.add(&self.counters.opens, 1);
        Arc::new(CountingFile { file, is_log: path.ends_with(".log"), counters: self.counters.clone() })
    }
}

impl Counters {
    fn add(&self, counter: &AtomicU64, much: u64) {
        counter.fetch_add(much, Ordering::Relaxed);
    }
}

impl Files for CountingFiles {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.counted(path, self.files.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.counted(path, self.files.open(path)?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.files.create_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.counters.add(&self.counters.syncs, 1);
        self.files.sync_folder(folder)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.remove(path)
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        self.files.remove_folder(folder)
    }

    fn shown(&self, path: &str) -> String {
        self.files.shown(path)
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    is_log: bool,
    counters: Arc<Counters>,
}

impl File for CountingFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        if self.is_log && position > 0 {
            self.counters.add(&self.counters.commits, 1);
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            self.counters.add(&self.counters.commit_bytes, bytes as u64);
        }
        self.file.write_at(position, parts)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(position, into)?;
        self.counters.add(&self.counters.bytes_read, read as u64);
        Ok(read)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.file.reserve(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.counters.add(&self.counters.syncs, 1);
        self.file.sync()
    }
}
