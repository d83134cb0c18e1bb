//! Test helper: files whose reads or syncs block while a gate is shut, or fail on demand. They simulate a
//! slow disk.
#![allow(dead_code, reason = "each test uses its own part")]

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use ephor_hub::files::{File, Files, MemoryFiles};

/// Shut it, and whoever comes waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// How many wait before it.
    waiting: usize,
    /// How many of those who come through fail.
    failing: usize,
    /// The reads so far, in order.
    reads: Vec<Read>,
}

/// One read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) length: usize,
    /// The byte in the middle: where events are long and of one byte each, it tells whose event was read.
    pub(crate) middle: u8,
}

impl Gate {
    pub(crate) fn set_shut(&self, shut: bool) {
        self.state.lock().unwrap().shut = shut;
        self.moved.notify_all();
    }

    /// The next one who comes through fails.
    pub(crate) fn fail_next(&self) {
        self.state.lock().unwrap().failing += 1;
    }

    /// Calls that were to fail and have not come yet succeed.
    pub(crate) fn fail_no_more(&self) {
        self.state.lock().unwrap().failing = 0;
    }

    /// Waits until somebody waits, and tells how many do.
    pub(crate) fn waiting(&self) -> usize {
        self.moved.wait_while(self.state.lock().unwrap(), |state| state.waiting == 0).unwrap().waiting
    }

    /// The reads since the last call, in order.
    pub(crate) fn take_reads(&self) -> Vec<Read> {
        std::mem::take(&mut self.state.lock().unwrap().reads)
    }

    fn pass(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.moved.notify_all();
        let mut state = self.moved.wait_while(state, |state| state.shut).unwrap();
        state.waiting -= 1;
        if state.failing > 0 {
            state.failing -= 1;
            return Err(io::Error::other("the gate lets this one fail"));
        }
        Ok(())
    }
}

/// The gates of one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    pub(crate) reads: Arc<Gate>,
    pub(crate) syncs: Arc<Gate>,
    /// Replacing the file `time`, which a hub does while it rests.
    pub(crate) times: Arc<Gate>,
}

#[derive(Debug)]
pub(crate) struct Gated<T>(T, Gates);

impl Gated<Arc<dyn Files>> {
    /// In memory.
    pub(crate) fn new() -> (Arc<Self>, Gates) {
        Self::over(Arc::new(MemoryFiles::default()))
    }

    pub(crate) fn over(files: Arc<dyn Files>) -> (Arc<Self>, Gates) {
        let gates = Gates::default();
        (Arc::new(Self(files, gates.clone())), gates)
    }
}

impl Gated<Arc<dyn Files>> {
    /// The gates of files are those of the log. The time is written whenever a hub rests, and does not wait for them.
    fn gate(&self, path: &str, file: Arc<dyn File>) -> io::Result<Arc<dyn File>> {
        let is_time = path.ends_with("/time") || path.ends_with("/time.new");
        Ok(if is_time { file } else { Arc::new(Gated(file, self.1.clone())) })
    }
}

impl Files for Gated<Arc<dyn Files>> {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.gate(path, self.0.create(path)?)
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.gate(path, self.0.open(path)?)
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
        if to.ends_with("/time") {
            self.1.times.pass()?;
        }
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
        self.1.reads.pass()?;
        let length = self.0.read_at(position, into)?;
        if let Some(middle) = into[..length].get(length / 2) {
            self.1.reads.state.lock().unwrap().reads.push(Read { length, middle: *middle });
        }
        Ok(length)
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
        self.1.syncs.pass()?;
        self.0.sync()
    }
    fn ensure_on_disk(&self, part: std::ops::Range<u64>) -> io::Result<()> {
        self.0.ensure_on_disk(part)
    }
}
