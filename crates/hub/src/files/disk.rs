//! Implements the file system interface `Files` for a folder on disk.
//!
//! Every error contains its path and keeps its kind; [`DiskError`] inside it keeps the error number of the operating
//! system.

use std::fmt::{Display, Formatter};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ephor_runtime::os::{private_file, read_full_at};

use super::ensure_on_disk::ensure_on_disk;
use super::{DiskSpace, File, Files, folder_and_name, path_parts};
use crate::os;

/// The files below one folder of this machine.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    root: PathBuf,
}

impl DiskFiles {
    /// All paths are relative to `root`, which `create_folder("")` creates if it is missing.
    pub fn new(root: PathBuf) -> DiskFiles {
        DiskFiles { root }
    }

    fn folder(&self, folder: &str) -> io::Result<PathBuf> {
        path_parts(folder)?;
        // Joining nothing would add a slash, and errors would show it.
        Ok(if folder.is_empty() { self.root.clone() } else { self.root.join(folder) })
    }

    /// Returns the path for calls that are not allowed on the data folder itself.
    fn below(&self, path: &str) -> io::Result<PathBuf> {
        folder_and_name(path)?;
        Ok(self.root.join(path))
    }
}

impl Files for DiskFiles {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let path = self.below(path)?;
        let mut options = fs::File::options();
        let opened = private_file(options.read(true).write(true).create_new(true)).open(&path);
        DiskFile::shared(opened.map_err(at("create", &path))?, path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let path = self.below(path)?;
        let opened = fs::File::options().read(true).write(true).open(&path);
        DiskFile::shared(opened.map_err(at("open", &path))?, path)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let path = self.folder(folder)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(at("list", &path))? {
            // A name that is not UTF-8 is not ours, and no path of this interface could lead to it.
            names.extend(entry.map_err(at("list", &path))?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        let path = self.folder(folder)?;
        if folder.is_empty() {
            return create_root(&path, sync_folder_at);
        }
        match os::private_folder().create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            created => created.map_err(at("create folder", &path)),
        }
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        let path = self.folder(folder)?;
        sync_folder_at(&path).map_err(at("sync folder", &path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.below(from)?, self.below(to)?);
        fs::rename(&from, &to).map_err(at("rename", &from))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.below(path)?;
        fs::remove_file(&path).map_err(at("remove", &path))
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        let path = self.below(folder)?;
        fs::remove_dir_all(&path).map_err(at("remove folder", &path))
    }

    fn length(&self, path: &str) -> io::Result<u64> {
        let path = self.below(path)?;
        Ok(fs::metadata(&path).map_err(at("get the length of", &path))?.len())
    }

    fn space(&self) -> io::Result<Option<DiskSpace>> {
        os::space(&self.root).map(Some).map_err(at("get the free disk space of", &self.root))
    }

    fn shown(&self, path: &str) -> String {
        if path.is_empty() {
            self.root.display().to_string()
        } else {
            self.root.join(path).display().to_string()
        }
    }
}

/// Creates the data folder and missing parents, and syncs their names, since nobody else would.
fn create_root(root: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parents = parents_to_sync(root);
    os::private_folder().recursive(true).create(root).map_err(at("create folder", root))?;
    for parent in parents {
        match sync(&parent) {
            // A folder without read permission existed before, and so did the name in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(at("sync folder", &parent))?,
        }
    }
    Ok(())
}

fn sync_folder_at(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Returns the parent of the root, and the parents of the missing folders above it.
fn parents_to_sync(root: &Path) -> Vec<PathBuf> {
    let mut parents = Vec::new();
    for folder in root.ancestors() {
        let Some(parent) = folder.parent() else { break };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        parents.push(parent.to_owned());
        if parent.exists() {
            break;
        }
    }
    parents
}

#[derive(Debug)]
struct DiskFile {
    file: fs::File,
    /// The path when it was opened: a rename does not change it.
    path: PathBuf,
}

impl DiskFile {
    fn shared(file: fs::File, path: PathBuf) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(DiskFile { file, path }))
    }
}

impl File for DiskFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        os::write_parts_at(&self.file, position, parts).map_err(at("write", &self.path))
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        read_full_at(&self.file, into, position).map_err(at("read", &self.path))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length).map_err(at("set the length of", &self.path))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(at("get the length of", &self.path))
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        os::reserve(&self.file, length).map_err(at("allocate space for", &self.path))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(at("sync", &self.path))
    }

    fn ensure_on_disk(&self, part: Range<u64>) -> io::Result<()> {
        ensure_on_disk(&self.path, &self.file, part).map_err(at("ensure on disk", &self.path))
    }
}

/// The inner error of the `io::Error`s of [`DiskFiles`]: available by `get_ref()` and a downcast.
#[derive(Debug)]
pub struct DiskError {
    action: &'static str,
    path: PathBuf,
    cause: io::Error,
}

impl DiskError {
    /// Returns the error number of the operating system.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

impl Display for DiskError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "cannot {} {}: {}", self.action, self.path.display(), self.cause)
    }
}

// The cause is part of the message; with a `source` it would be printed twice.
impl std::error::Error for DiskError {}

fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |cause| io::Error::new(cause.kind(), DiskError { action, path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::io::Errno;

    use super::*;
    use crate::files::is_disk_full;

    #[test]
    fn an_error_names_the_path_and_keeps_the_number_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let files = DiskFiles::new(folder.path().to_owned());
        let error = files.open("missing").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let shown = format!("cannot open {}: No such file", folder.path().join("missing").display());
        assert!(error.to_string().starts_with(&shown), "{error}");
        let inside = error.get_ref().unwrap().downcast_ref::<DiskError>().unwrap();
        assert_eq!(inside.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }

    #[test]
    fn a_full_disk_is_recognised_behind_the_path() {
        // This device refuses every write for lack of room.
        let full = DiskFiles::new(PathBuf::from("/dev")).open("full").unwrap();
        let error = full.write_at(0, &[b"x"]).unwrap_err();
        assert!(is_disk_full(&error), "{error}");
        let quota = at("write", Path::new("x"))(Errno::DQUOT.into());
        assert!(is_disk_full(&quota));
        let broken = at("write", Path::new("x"))(Errno::IO.into());
        assert!(!is_disk_full(&broken));
    }

    #[test]
    fn files_and_folders_are_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let files = DiskFiles::new(folder.path().join("data"));
        files.create_folder("").unwrap();
        files.create_folder("inner").unwrap();
        files.create("inner/file").unwrap();
        let mode = |path: &str| fs::metadata(files.shown(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(""), mode("inner"), mode("inner/file")], [0o700, 0o700, 0o600]);
    }

    #[test]
    fn the_name_of_a_new_data_folder_is_made_durable_with_all_that_had_to_be_made_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let root = here.join("a/b/data");
        let above = [here.join("a/b"), here.join("a"), here.to_owned()];
        for synced in [&above[..], &above[..1]] {
            let mut seen = Vec::new();
            let sync = |folder: &Path| {
                assert!(root.is_dir(), "the name is there when it is synced");
                seen.push(folder.to_owned());
                Ok(())
            };
            create_root(&root, sync).unwrap();
            assert_eq!(seen, synced);
        }
        let failed = create_root(&root, |_| Err(Errno::IO.into())).unwrap_err();
        let shown = format!("cannot sync folder {}: ", above[0].display());
        assert!(failed.to_string().starts_with(&shown), "{failed}");
        DiskFiles::new(root).create_folder("").unwrap();
        assert_eq!(parents_to_sync(Path::new("data")), [Path::new(".")]);
        assert_eq!(parents_to_sync(Path::new("/")), Vec::<PathBuf>::new());
    }

    #[test]
    fn reserving_room_for_more_than_the_disk_has_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = DiskFiles::new(folder.path().to_owned()).create("big").unwrap();
        file.reserve(0).unwrap();
        file.reserve(4096).unwrap();
        assert!(file.reserve(u64::MAX).is_err());
    }
}
