//! Implements the file system interface `Files` in the memory of the process.
//!
//! As on Unix, open handles keep a file when its name is removed, replaced or changed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::{File, Files, folder_and_name, path_parts};

/// Files in memory, which are gone with this value.
#[derive(Debug, Default)]
pub struct MemoryFiles {
    root: Mutex<Folder>,
}

type Folder = BTreeMap<String, Node>;

#[derive(Debug)]
enum Node {
    Folder(Folder),
    File(Arc<MemoryFile>),
}

impl MemoryFiles {
    fn root(&self) -> MutexGuard<'_, Folder> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn folder_at<'a>(root: &'a mut Folder, path: &str) -> io::Result<&'a mut Folder> {
    let mut folder = root;
    for part in path_parts(path)? {
        folder = match folder.get_mut(part) {
            Some(Node::Folder(inner)) => inner,
            Some(Node::File(_)) => return Err(failure(ErrorKind::NotADirectory, path)),
            None => return Err(failure(ErrorKind::NotFound, path)),
        };
    }
    Ok(folder)
}

fn failure(kind: ErrorKind, path: &str) -> io::Error {
    io::Error::new(kind, format!("{path} in memory: {kind}"))
}

impl Files for MemoryFiles {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (folder, name) = folder_and_name(path)?;
        let mut root = self.root();
        let folder = folder_at(&mut root, folder)?;
        if folder.contains_key(name) {
            return Err(failure(ErrorKind::AlreadyExists, path));
        }
        let file = Arc::new(MemoryFile::default());
        folder.insert(name.to_owned(), Node::File(Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (folder, name) = folder_and_name(path)?;
        match folder_at(&mut self.root(), folder)?.get(name) {
            Some(Node::File(file)) => Ok(Arc::clone(file) as Arc<dyn File>),
            Some(Node::Folder(_)) => Err(failure(ErrorKind::IsADirectory, path)),
            None => Err(failure(ErrorKind::NotFound, path)),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(folder_at(&mut self.root(), folder)?.keys().cloned().collect())
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        if folder.is_empty() {
            return Ok(());
        }
        let (parent, name) = folder_and_name(folder)?;
        let mut root = self.root();
        match folder_at(&mut root, parent)?.entry(name.to_owned()).or_insert(Node::Folder(Folder::new())) {
            Node::Folder(_) => Ok(()),
            Node::File(_) => Err(failure(ErrorKind::AlreadyExists, folder)),
        }
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        folder_at(&mut self.root(), folder).map(|_| ())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from_folder, from_name) = folder_and_name(from)?;
        let (to_folder, to_name) = folder_and_name(to)?;
        let mut root = self.root();
        let is_folder = match folder_at(&mut root, from_folder)?.get(from_name) {
            Some(node) => matches!(node, Node::Folder(_)),
            None => return Err(failure(ErrorKind::NotFound, from)),
        };
        if from == to {
            return Ok(());
        }
        if is_folder && to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(failure(ErrorKind::InvalidInput, to));
        }
        match folder_at(&mut root, to_folder)?.get(to_name) {
            Some(Node::File(_)) if is_folder => return Err(failure(ErrorKind::NotADirectory, to)),
            Some(Node::Folder(_)) if !is_folder => return Err(failure(ErrorKind::IsADirectory, to)),
            Some(Node::Folder(inner)) if !inner.is_empty() => {
                return Err(failure(ErrorKind::DirectoryNotEmpty, to));
            }
            Some(_) | None => {}
        }
        if let Some(node) = folder_at(&mut root, from_folder)?.remove(from_name) {
            folder_at(&mut root, to_folder)?.insert(to_name.to_owned(), node);
        }
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (folder, name) = folder_and_name(path)?;
        let mut root = self.root();
        let folder = folder_at(&mut root, folder)?;
        match folder.get(name) {
            Some(Node::File(_)) => {
                folder.remove(name);
                Ok(())
            }
            Some(Node::Folder(_)) => Err(failure(ErrorKind::IsADirectory, path)),
            None => Err(failure(ErrorKind::NotFound, path)),
        }
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        let (parent, name) = folder_and_name(folder)?;
        let mut root = self.root();
        folder_at(&mut root, folder)?;
        folder_at(&mut root, parent)?.remove(name);
        Ok(())
    }

    fn shown(&self, path: &str) -> String {
        format!("{path} in memory")
    }

    fn may_block(&self) -> bool {
        false
    }
}

#[derive(Debug, Default)]
struct MemoryFile {
    /// Grows by doubling, so that an append costs what it writes.
    bytes: RwLock<Vec<u8>>,
}

impl MemoryFile {
    fn change(&self, act: impl FnOnce(&mut Vec<u8>)) {
        act(&mut self.bytes.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn with_bytes<T>(&self, act: impl FnOnce(&[u8]) -> T) -> T {
        act(&self.bytes.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl File for MemoryFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut start = in_memory(position)?;
        self.change(|bytes| {
            for part in parts.iter().filter(|part| !part.is_empty()) {
                if bytes.len() < start {
                    bytes.resize(start, 0);
                }
                // The part after the end is appended, so that no zeros are written first.
                let over = part.len().min(bytes.len() - start);
                bytes[start..start + over].copy_from_slice(&part[..over]);
                bytes.extend_from_slice(&part[over..]);
                start += part.len();
            }
        });
        Ok(())
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let start = in_memory(position)?;
        Ok(self.with_bytes(|bytes| {
            let rest = bytes.get(start..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            count
        }))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = in_memory(length)?;
        self.change(|bytes| bytes.resize(length, 0));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.with_bytes(|bytes| bytes.len() as u64))
    }

    fn reserve(&self, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn in_memory(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| ErrorKind::FileTooLarge.into())
}
