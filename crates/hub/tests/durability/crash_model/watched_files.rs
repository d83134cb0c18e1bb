//! Files that count the file operations of a simulated process, fail after it is killed, and let readers
//! read right before a sync.
//!
//! They wrap [`FaultyFiles`], which is the machine: a process may be killed while the machine runs on, with everything
//! that is not synced still in its page cache.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_hub::files::{File, Files};

use crate::common::faulty_files::FaultyFiles;

/// When a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// At this step of its process run.
    pub step: u64,
    /// Whether the step is still done.
    pub done: bool,
}

/// Looks at what readers see.
pub type Look = Box<dyn FnMut() + Send>;

/// Clones are the same process.
#[derive(Clone)]
pub struct Watched {
    pub files: FaultyFiles,
    death: Option<Death>,
    process: Arc<Mutex<Process>>,
    /// Called before a log is synced: what a reader sees then is not on disk by this sync.
    before_sync: Arc<Mutex<Option<Look>>>,
}

#[derive(Debug, Default)]
struct Process {
    is_dead: bool,
    /// How many parts each step has that a power failure can tear apart: bytes, or names.
    parts: Vec<usize>,
}

impl Watched {
    pub fn new(files: &FaultyFiles, death: Option<Death>) -> Watched {
        let (process, before_sync) = Default::default();
        Watched { files: files.clone(), death, process, before_sync }
    }

    /// Whether this process run is over, or the power off.
    pub fn is_down(&self) -> bool {
        self.process().is_dead || self.files.has_crashed()
    }

    /// Lets the process die now.
    pub fn die(&self) {
        self.process().is_dead = true;
    }

    /// The parts of each step.
    pub fn parts(&self) -> Vec<usize> {
        self.process().parts.clone()
    }

    pub fn look_before_syncs(&self, look: Option<Look>) {
        *self.before_sync.lock().unwrap_or_else(PoisonError::into_inner) = look;
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.process().is_dead { Err(dead()) } else { act() }
    }

    fn step<T>(&self, parts: usize, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let dies = {
            let mut process = self.process();
            if process.is_dead {
                return Err(dead());
            }
            let step = process.parts.len() as u64;
            process.parts.push(parts);
            let dies = self.death.filter(|death| death.step == step);
            process.is_dead = dies.is_some();
            dies
        };
        match dies {
            None => act(),
            Some(death) => {
                if death.done {
                    let _ = act();
                }
                Err(dead())
            }
        }
    }

    fn handle(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(WatchedFile { watched: self.clone(), is_log: path.ends_with(".log"), file })
    }
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("death", &self.death).finish_non_exhaustive()
    }
}

impl Files for Watched {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.step(1, || self.files.create(path)).map(|file| self.handle(path, file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.look(|| self.files.open(path)).map(|file| self.handle(path, file))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.look(|| self.files.list(folder))
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.step(1, || self.files.create_folder(folder))
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.step(0, || self.files.sync_folder(folder))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step(1, || self.files.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.step(1, || self.files.remove(path))
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        let names = self.look(|| self.files.list(folder))?.len();
        self.step(names + 1, || self.files.remove_folder(folder))
    }

    fn shown(&self, path: &str) -> String {
        path.to_owned()
    }

    fn may_block(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct WatchedFile {
    watched: Watched,
    is_log: bool,
    file: Arc<dyn File>,
}

impl File for WatchedFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.watched.step(bytes, || self.file.write_at(position, parts))
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.watched.look(|| self.file.read_at(position, into))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.watched.step(1, || self.file.set_len(length))
    }

    fn len(&self) -> io::Result<u64> {
        self.watched.look(|| self.file.len())
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.watched.step(1, || self.file.reserve(length))
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_log && !self.watched.is_down() {
            let look = self.watched.before_sync.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut look) = look {
                look();
                self.watched.look_before_syncs(Some(look));
            }
        }
        self.watched.step(0, || self.file.sync())
    }

    fn ensure_on_disk(&self, part: Range<u64>) -> io::Result<()> {
        self.watched.step(0, || self.file.ensure_on_disk(part))
    }
}
