//! Files in memory whose reads or syncs wait while a gate is shut: a disk that takes its time.
#![allow(dead_code, reason = "each test uses its own part")]

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use ephor_hub::files::{File, Files, MemoryFiles};

/// Shut it, and whoever comes waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Whether it is shut, and how many wait before it.
    state: Mutex<(bool, usize)>,
    moved: Condvar,
}

impl Gate {
    pub(crate) fn set_shut(&self, shut: bool) {
        self.state.lock().unwrap().0 = shut;
        self.moved.notify_all();
    }

    /// Waits until somebody waits, and tells how many do.
    pub(crate) fn waiting(&self) -> usize {
        self.moved.wait_while(self.state.lock().unwrap(), |state| state.1 == 0).unwrap().1
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.moved.notify_all();
        let mut state = self.moved.wait_while(state, |state| state.0).unwrap();
        state.1 -= 1;
    }
}

/// The gates of one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    pub(crate) reads: Arc<Gate>,
    pub(crate) syncs: Arc<Gate>,
}

#[derive(Debug)]
pub(crate) struct Gated<T>(T, Gates);

impl Gated<MemoryFiles> {
    pub(crate) fn new() -> (Arc<Self>, Gates) {
        let gates = Gates::default();
        (Arc::new(Self(MemoryFiles::default(), gates.clone())), gates)
    }
}

impl Files for Gated<MemoryFiles> {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Gated(self.0.create(path)?, self.1.clone())))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Gated(self.0.open(path)?, self.1.clone())))
    }
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }
    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.0.create_folder(folder)
    }
    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.0.sync_folder(folder)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }
    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        self.0.remove_folder(folder)
    }
    fn shown(&self, path: &str) -> String {
        self.0.shown(path)
    }
}

impl File for Gated<Arc<dyn File>> {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.0.write_at(position, parts)
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.1.reads.pass();
        self.0.read_at(position, into)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn reserve(&self, length: u64) -> io::Result<()> {
        self.0.reserve(length)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.syncs.pass();
        self.0.sync()
    }
}
