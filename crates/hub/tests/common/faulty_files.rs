//! Test helper: a simulated file system with power failures, full disks, I/O errors and bit rot on demand.
//!
//! Every call that changes something is one step, counted from 0. The step with the number `crash_at` is interrupted:
//! none, a part or all of it happens, and after it every call fails. `after_crash` returns the file system after the
//! restart. It can be called again with another [`Fate`].
//!
//!     let dry_run = FaultyFiles::new(u64::MAX);
//!     workload(&dry_run)?;
//!     for crash_at in 0..dry_run.operations() {
//!         let files = FaultyFiles::new(crash_at);
//!         let _ = workload(&files);
//!         check(&files.after_crash(Fate::Random(crash_at)));
//!     }
//!
//! It is stricter than the disks we know: a sync of a file does not make its name durable; bytes of a failed sync are not
//! written by a later sync, and new bytes among them are zeros even if they are written and synced again, as on ext4; a
//! failed write has written half. `faulty_disk.rs` has the model.

#![allow(dead_code, unreachable_pub)] // No test file uses all of it.

#[path = "faulty_disk.rs"]
mod disk;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_hub::files::{File, Files, folder_and_name, path_parts};
use rustix::io::Errno;

pub use disk::Fate;
use disk::{Change, Disk, FileNode, FolderNode, NameEdit, Node, ROOT};

/// Clones share the same disk.
#[derive(Debug, Clone)]
pub struct FaultyFiles {
    machine: Arc<Mutex<Machine>>,
}

#[derive(Debug, Default)]
struct Machine {
    disk: Disk,
    steps: u64,
    crash_at: u64,
    is_off: bool,
    failing_writes: u32,
    write_error: i32,
    failing_syncs: u32,
    limit_bytes: Option<usize>,
}

impl FaultyFiles {
    /// An empty disk whose power fails in the step with this number, or never for `u64::MAX`.
    pub fn new(crash_at: u64) -> FaultyFiles {
        FaultyFiles::on(Disk::default(), crash_at)
    }

    fn on(disk: Disk, crash_at: u64) -> FaultyFiles {
        let machine = Machine { disk, crash_at, ..Machine::default() };
        FaultyFiles { machine: Arc::new(Mutex::new(machine)) }
    }

    /// How many steps were taken, the one that was cut included.
    pub fn operations(&self) -> u64 {
        self.machine().steps
    }

    /// Lets the power fail at this step: for a crash during recovery, on what `after_crash` gave.
    pub fn crash_at(&self, step: u64) {
        self.machine().crash_at = step;
    }

    /// Whether the power is off.
    pub fn has_crashed(&self) -> bool {
        self.machine().is_off
    }

    /// Lets the power fail now, between two steps.
    pub fn power_off(&self) {
        self.machine().is_off = true;
    }

    /// A copy of the disk when the power is back: all of it durable, steps counted from 0 again, no faults
    /// ahead. Of a machine that is still on, it is what a failure at this moment would leave.
    pub fn after_crash(&self, fate: Fate) -> FaultyFiles {
        let machine = self.machine();
        FaultyFiles::on(machine.disk.after_crash(fate, machine.steps.saturating_sub(1)), u64::MAX)
    }

    /// The next `count` calls of `write_at`, `set_len` and `reserve` fail with this error of the system;
    /// half of a write is done all the same.
    pub fn fail_next_writes(&self, count: u32, error: Errno) {
        let mut machine = self.machine();
        (machine.failing_writes, machine.write_error) = (count, error.raw_os_error());
    }

    /// The next `count` calls of `sync` and `sync_folder` fail with an I/O error.
    pub fn fail_next_syncs(&self, count: u32) {
        self.machine().failing_syncs = count;
    }

    /// All files together have room for this many bytes; a write that does not fit is done as far as it does.
    pub fn limit_bytes(&self, total: usize) {
        self.machine().limit_bytes = Some(total);
    }

    /// There is room for everything again.
    pub fn lift_limit(&self) {
        self.machine().limit_bytes = None;
    }

    /// Bit rot: one bit of a file changes, as if it had always been so. Panics where there is no such byte.
    pub fn flip_bit(&self, path: &str, position: usize, bit: u8) {
        let mut machine = self.machine();
        let node = machine.find(path).expect("flip_bit needs a file that exists");
        let file = machine.file(node).expect("flip_bit needs a file");
        assert!(position < file.current.len(), "flip_bit: {path} has only {} bytes", file.current.len());
        file.flip_bit(position, bit);
    }

    /// The path and length of every file, in order.
    pub fn files(&self) -> Vec<(String, usize)> {
        let mut files = Vec::new();
        self.machine().walk(ROOT, "", &mut |path, file| files.push((path.to_owned(), file.current.len())));
        files.sort_unstable();
        files
    }

    /// The bytes of a file, shared and not copied; none if there is no such file.
    pub fn read(&self, path: &str) -> Option<Arc<Vec<u8>>> {
        let mut machine = self.machine();
        let node = machine.find(path).ok()?;
        machine.file(node).ok().map(|file| Arc::clone(&file.current))
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For calls that change nothing.
    fn look<T>(&self, act: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
        let mut machine = self.machine();
        machine.check_power()?;
        act(&mut machine)
    }

    /// For calls that change something: one step, which the power failure may cut. It is done as if it had
    /// succeeded even then, since nothing that is not synced counts: its fate is decided with all the others.
    fn step<T>(&self, act: impl FnOnce(&mut Machine, u64) -> io::Result<T>) -> io::Result<T> {
        let mut machine = self.machine();
        machine.check_power()?;
        let step = machine.steps;
        machine.steps += 1;
        machine.is_off = step >= machine.crash_at;
        let done = act(&mut machine, step);
        machine.check_power()?;
        done
    }

    fn handle(&self, node: usize) -> Arc<dyn File> {
        Arc::new(FaultyFile { files: self.clone(), node })
    }
}

impl Machine {
    fn check_power(&self) -> io::Result<()> {
        if self.is_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn folder(&self, node: usize) -> io::Result<&FolderNode> {
        match &self.disk.nodes[node] {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&mut self, node: usize) -> io::Result<&mut FileNode> {
        match &mut self.disk.nodes[node] {
            Node::File(file) => Ok(file),
            Node::Folder(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn find(&self, path: &str) -> io::Result<usize> {
        let mut node = ROOT;
        for part in path_parts(path)? {
            node = *self.folder(node)?.current.get(part).ok_or(ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    /// The folder that a path is in, the name there, and what it leads to now.
    fn place(&self, path: &str) -> io::Result<(usize, String, Option<usize>)> {
        let (folder, name) = folder_and_name(path)?;
        let folder = self.find(folder)?;
        Ok((folder, name.to_owned(), self.folder(folder)?.current.get(name).copied()))
    }

    fn walk(&self, node: usize, path: &str, visit: &mut impl FnMut(&str, &FileNode)) {
        match &self.disk.nodes[node] {
            Node::File(file) => visit(path, file),
            Node::Folder(folder) => {
                for (name, node) in &folder.current {
                    let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    self.walk(*node, &inner, visit);
                }
            }
        }
    }

    /// How many more bytes there is room for.
    fn room(&self) -> usize {
        let Some(limit) = self.limit_bytes else { return usize::MAX };
        let mut used = 0;
        self.walk(ROOT, "", &mut |_, file| used += file.current.len());
        limit.saturating_sub(used)
    }

    fn create(&mut self, step: u64, path: &str, node: Node) -> io::Result<usize> {
        let (folder, name, existing) = self.place(path)?;
        if existing.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if self.room() == 0 {
            return Err(Errno::NOSPC.into());
        }
        let node = self.disk.add(node);
        self.disk.change_names(step, vec![NameEdit { folder, name, node: Some(node) }]);
        Ok(node)
    }

    fn rename(&mut self, step: u64, from: &str, to: &str) -> io::Result<()> {
        let (from_folder, from_name, node) = self.place(from)?;
        let (to_folder, to_name, replaced) = self.place(to)?;
        let node = node.ok_or(ErrorKind::NotFound)?;
        if from == to {
            return Ok(());
        }
        let is_folder = self.folder(node).is_ok();
        if is_folder && to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(ErrorKind::InvalidInput.into());
        }
        match replaced.map(|replaced| &self.disk.nodes[replaced]) {
            Some(Node::File(_)) if is_folder => return Err(ErrorKind::NotADirectory.into()),
            Some(Node::Folder(_)) if !is_folder => return Err(ErrorKind::IsADirectory.into()),
            Some(Node::Folder(inner)) if !inner.current.is_empty() => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            Some(_) | None => {}
        }
        let gone = NameEdit { folder: from_folder, name: from_name, node: None };
        let new = NameEdit { folder: to_folder, name: to_name, node: Some(node) };
        self.disk.change_names(step, vec![gone, new]);
        Ok(())
    }

    /// Name by name, in an order of the system's own: a crash leaves any part of the folder.
    fn remove_all(&mut self, step: u64, folder: usize) -> io::Result<()> {
        let mut inner: Vec<(String, usize)> = self.folder(folder)?.current.clone().into_iter().collect();
        fastrand::Rng::with_seed(step).shuffle(&mut inner);
        for (name, node) in inner {
            if self.folder(node).is_ok() {
                self.remove_all(step, node)?;
            }
            self.disk.change_names(step, vec![NameEdit { folder, name, node: None }]);
        }
        Ok(())
    }

    fn change(&mut self, step: u64, node: usize, change: Change) -> io::Result<()> {
        if self.failing_writes > 0 {
            self.failing_writes -= 1;
            self.file(node)?.change_in_part(step, change, |_, written| written / 2);
            return Err(io::Error::from_raw_os_error(self.write_error));
        }
        let length = self.file(node)?.current.len();
        let longest = length.saturating_add(self.room());
        if change.length_after(length) > longest {
            self.file(node)?.change_in_part(step, change, |position, _| longest.saturating_sub(position));
            return Err(Errno::NOSPC.into());
        }
        self.file(node)?.change(step, change);
        Ok(())
    }

    /// Whether a sync works this time; one that the power failure cuts does nothing that counts.
    fn may_sync(&mut self) -> io::Result<bool> {
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(Errno::IO.into());
        }
        Ok(!self.is_off)
    }
}

impl Files for FaultyFiles {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let node = self.step(|machine, step| machine.create(step, path, Node::File(FileNode::default())))?;
        Ok(self.handle(node))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        folder_and_name(path)?;
        let node = self.look(|machine| {
            let node = machine.find(path)?;
            machine.file(node).map(|_| node)
        })?;
        Ok(self.handle(node))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.look(|machine| Ok(machine.folder(machine.find(folder)?)?.current.keys().cloned().collect()))
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.step(|machine, step| match machine.find(folder) {
            Ok(node) if machine.folder(node).is_ok() => Ok(()),
            _ => machine.create(step, folder, Node::Folder(FolderNode::default())).map(|_| ()),
        })
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.step(|machine, _| {
            let node = machine.find(folder)?;
            machine.folder(node)?;
            if machine.may_sync()? {
                machine.disk.sync_folder(node);
            }
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step(|machine, step| machine.rename(step, from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.step(|machine, step| {
            let (folder, name, node) = machine.place(path)?;
            machine.file(node.ok_or(ErrorKind::NotFound)?)?;
            machine.disk.change_names(step, vec![NameEdit { folder, name, node: None }]);
            Ok(())
        })
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        self.step(|machine, step| {
            let (folder, name, node) = machine.place(path)?;
            machine.remove_all(step, node.ok_or(ErrorKind::NotFound)?)?;
            machine.disk.change_names(step, vec![NameEdit { folder, name, node: None }]);
            Ok(())
        })
    }

    fn shown(&self, path: &str) -> String {
        format!("{path} on a faulty disk")
    }

    fn may_block(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct FaultyFile {
    files: FaultyFiles,
    node: usize,
}

impl File for FaultyFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        let change = Change::Write { position: position as usize, bytes: parts.concat() };
        self.files.step(|machine, step| machine.change(step, self.node, change))
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.files.look(|machine| {
            let rest = machine.file(self.node)?.current.get(position as usize..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.files.step(|machine, step| machine.change(step, self.node, Change::SetLen(length as usize)))
    }

    fn len(&self) -> io::Result<u64> {
        self.files.look(|machine| Ok(machine.file(self.node)?.current.len() as u64))
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.files.step(|machine, step| machine.change(step, self.node, Change::Reserve(length as usize)))
    }

    fn sync(&self) -> io::Result<()> {
        self.files.step(|machine, _| match machine.may_sync() {
            Ok(true) => machine.file(self.node).map(FileNode::sync),
            Ok(false) => Ok(()),
            Err(error) => machine.file(self.node).map(FileNode::fail_sync).and(Err(error)),
        })
    }

    fn ensure_on_disk(&self, part: Range<u64>) -> io::Result<()> {
        let part = part.start as usize..part.end as usize;
        self.files.step(|machine, _| {
            if machine.may_sync()? {
                machine.file(self.node)?.ensure_on_disk(part);
            }
            Ok(())
        })
    }
}
