//! Resolves the paths of the database's files, and refuses paths that SQLite cannot use safely.
//!
//! Nothing here opens the file: `lock_holder.rs` explains why.

use std::io;
use std::path::{Path, PathBuf};

use super::open_error::OpenError;
use super::os;

/// The paths of the database and of the two files that SQLite keeps beside it.
#[derive(Clone, Debug)]
pub(super) struct DatabasePaths {
    pub(super) database: PathBuf,
    pub(super) log: PathBuf,
    pub(super) shared_memory: PathBuf,
}

impl DatabasePaths {
    /// Resolves a path and checks it. The file need not exist; its folder must.
    pub(super) fn find(path: &Path, network_allowed: bool) -> Result<Self, OpenError> {
        let database = resolve(path)?;
        let paths =
            Self { log: beside(&database, "-wal"), shared_memory: beside(&database, "-shm"), database };
        paths.check_file()?;
        paths.check_file_system(network_allowed)?;
        paths.check_access()?;
        Ok(paths)
    }

    pub(super) fn folder(&self) -> &Path {
        self.database.parent().unwrap_or(Path::new("/"))
    }

    /// The device and inode of the database file. They change if the file is replaced.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        Ok(os::file_id(&std::fs::metadata(&self.database)?))
    }

    fn check_file(&self) -> Result<(), OpenError> {
        let Ok(metadata) = std::fs::metadata(&self.database) else { return Ok(()) };
        let path = self.database.clone();
        match () {
            () if metadata.is_dir() => Err(OpenError::IsFolder { path }),
            () if !metadata.is_file() => {
                Err(OpenError::NoFile { path, what: "is not a regular file".into() })
            }
            // SQLite derives the log's name from the file's name: two names would have two logs.
            () if os::name_count(&metadata) > 1 => {
                Err(OpenError::NoFile { path, what: "has several names (hard links)".into() })
            }
            // A container that mounts only the file keeps a log of its own.
            () if os::is_mounted(&path) => Err(OpenError::Mounted { path }),
            () => Ok(()),
        }
    }

    fn check_file_system(&self, network_allowed: bool) -> Result<(), OpenError> {
        match os::network_file_system(self.folder()).map_err(|error| self.other(error))? {
            Some(kind) if !network_allowed => Err(OpenError::Network { path: self.database.clone(), kind }),
            _ => Ok(()),
        }
    }

    fn check_access(&self) -> Result<(), OpenError> {
        let files = [&self.database, &self.log, &self.shared_memory];
        for file in files.into_iter().filter(|file| file.exists()) {
            self.may_use(file)?;
        }
        self.may_use(self.folder())
    }

    fn may_use(&self, path: &Path) -> Result<(), OpenError> {
        os::check_access(path).map_err(|error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path: path.to_owned() },
            io::ErrorKind::PermissionDenied => OpenError::Permission { path: path.to_owned() },
            _ => self.other(error),
        })
    }

    pub(super) fn other(&self, source: io::Error) -> OpenError {
        OpenError::Other { path: self.database.clone(), source: source.into() }
    }
}

/// The path without symbolic links, so that all processes use the same log.
fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(OpenError::Permission { path: path.to_owned() });
        }
        Err(_) if path.is_symlink() => {
            let what = "is a symbolic link to a file that does not exist".into();
            return Err(OpenError::NoFile { path: path.to_owned(), what });
        }
        Err(_) => {}
    }
    let Some(name) = path.file_name() else {
        return Err(OpenError::IsFolder { path: path.to_owned() });
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match folder.canonicalize() {
        Ok(folder) if folder.is_dir() => Ok(folder.join(name)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(OpenError::Permission { path: folder.to_owned() })
        }
        _ => Err(OpenError::NoFolder { folder: folder.to_owned() }),
    }
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
