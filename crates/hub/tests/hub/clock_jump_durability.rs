//! Tests that a clock jump is recorded on disk before the first event with the new time: a crash in between
//! must not expire older events.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use ephor_hub::files::{File, Files, MemoryFiles};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig, NewEvent};

use crate::clocked_hub::{DAY, FIRST, HOUR, TwoClocks};

/// The calls so far, in order: "write", "sync", "rename" or "sync folder", and the path.
type Done = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Files that note what is done to them.
#[derive(Debug, Default)]
struct Noted {
    files: MemoryFiles,
    done: Done,
}

#[derive(Debug)]
struct NotedFile {
    file: Arc<dyn File>,
    path: String,
    done: Done,
}

impl Noted {
    fn noted(&self, file: Arc<dyn File>, path: &str) -> Arc<dyn File> {
        Arc::new(NotedFile { file, path: path.to_owned(), done: self.done.clone() })
    }

    fn note(&self, what: &'static str, path: &str) {
        self.done.lock().unwrap().push((what, path.to_owned()));
    }
}

impl Files for Noted {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.files.create(path).map(|file| self.noted(file, path))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.files.open(path).map(|file| self.noted(file, path))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.files.create_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.note("sync folder", folder);
        self.files.sync_folder(folder)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note("rename", to);
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

impl File for NotedFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.done.lock().unwrap().push(("write", self.path.clone()));
        self.file.write_at(position, parts)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(position, into)
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
        self.done.lock().unwrap().push(("sync", self.path.clone()));
        self.file.sync()
    }
}

#[tokio::test]
async fn a_jump_is_on_disk_before_the_first_event_of_the_new_time() {
    let files = Arc::new(Noted::default());
    let clock = Arc::new(TwoClocks { passed: AtomicI64::new(0), off: AtomicI64::new(0) });
    let config =
        NamespaceConfig { hubs: vec![HubConfig::new("homes", 1).unwrap()], ..NamespaceConfig::default() };
    let namespace = LocalNamespace::on(files.clone(), config, clock.clone()).unwrap();
    let producer = namespace.hub("homes").unwrap().producer();
    producer.send_to(FIRST, NewEvent::new("before")).await.unwrap();
    for jump in 1..=20 {
        clock.pass(HOUR);
        files.done.lock().unwrap().clear();
        clock.off.store(jump * 8 * DAY, Ordering::SeqCst);
        producer.send_to(FIRST, NewEvent::new("after")).await.unwrap();
        let done = files.done.lock().unwrap().clone();
        let stored = done.iter().position(|(what, path)| *what == "write" && path.ends_with(".log")).unwrap();
        let before: Vec<_> = done[..stored].iter().filter(|(_, path)| !path.ends_with("mark")).collect();
        let steps: Vec<&str> = before.iter().map(|(what, _)| *what).collect();
        // The committer may have written the time at rest, too, just before.
        assert!(steps.ends_with(&["write", "sync", "rename", "sync folder"]), "jump {jump}: {before:?}");
        assert!(before[before.len() - 2].1.ends_with("/time"), "{before:?}");
    }
}
