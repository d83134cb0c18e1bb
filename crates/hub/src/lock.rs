//! Locks a data folder, so that only one process at a time has it open.
//!
//! The lock is an `flock` on the file `LOCK`: it is freed when its process ends, however it ends, and a second hub in the
//! same process is refused too. The file contains the process id of the holder in decimal, for people only. It is empty
//! when nobody holds the lock, stale after a crash, and never removed, or two processes could lock different files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ephor_runtime::os::{private_file, read_full_at, write_all_at};

use crate::os;

const FILE_NAME: &str = "LOCK";

/// Longer than any process id.
const MAX_DIGITS: usize = 20;

/// The lock of a data folder, held until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process, or another hub of this process, has it open.
    #[error("the data folder {} is in use by {}; stop it or choose another folder", .folder.display(), named(.holder))]
    InUse {
        /// The data folder.
        folder: PathBuf,
        /// The process that has it. None if it has taken the lock just now.
        holder: Option<u32>,
    },
    /// There is no such folder.
    #[error("the data folder {} does not exist; create it or choose another folder", .folder.display())]
    Missing {
        /// The data folder.
        folder: PathBuf,
    },
    /// This user has no permission to write there.
    #[error("no permission to write the file {} in the data folder {}; change the permissions or choose another folder", FILE_NAME, .folder.display())]
    Denied {
        /// The data folder.
        folder: PathBuf,
    },
    /// The operating system refused for another reason.
    #[error("cannot lock the data folder {}: {cause}", .folder.display())]
    Failed {
        /// The data folder.
        folder: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
}

fn named(holder: &Option<u32>) -> String {
    match holder {
        Some(process) if *process == std::process::id() => format!("process {process} (this process)"),
        Some(process) => format!("process {process}"),
        None => "another process".to_owned(),
    }
}

impl FolderLock {
    /// Locks a folder, or fails with the process that has it. Never waits.
    pub fn acquire(root: &Path) -> Result<FolderLock, LockError> {
        let failed = |cause: io::Error| {
            let folder = root.to_owned();
            match cause.kind() {
                io::ErrorKind::NotFound => LockError::Missing { folder },
                io::ErrorKind::PermissionDenied => LockError::Denied { folder },
                _ => LockError::Failed { folder, cause },
            }
        };
        let mut options = File::options();
        private_file(options.read(true).write(true).create(true).truncate(false));
        let file = options.open(root.join(FILE_NAME)).map_err(failed)?;
        if !os::try_lock(&file).map_err(failed)? {
            return Err(LockError::InUse { folder: root.to_owned(), holder: holder(&file) });
        }
        let lock = FolderLock { file };
        // The process id is for people only: on a full disk the hubs can still be read without it.
        let _ = lock.sign();
        Ok(lock)
    }

    fn sign(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        write_all_at(&self.file, std::process::id().to_string().as_bytes(), 0)
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Errors are ignored, since closing the file frees the lock as well. It is freed here because a child process
        // that is just being started may hold a copy of the file for a moment longer.
        let _ = self.file.set_len(0);
        let _ = os::unlock(&self.file);
    }
}

fn holder(file: &File) -> Option<u32> {
    let mut digits = [0; MAX_DIGITS];
    let count = read_full_at(file, &mut digits, 0).ok()?;
    std::str::from_utf8(&digits[..count]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Tells the test binary, started again by itself, which folder to lock.
    const FOLDER_OF_CHILD: &str = "EPHOR_TEST_LOCK_FOLDER";

    #[test]
    fn a_second_hub_in_the_same_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderLock::acquire(folder.path()).unwrap();
        let message = FolderLock::acquire(folder.path()).unwrap_err().to_string();
        let expected = format!(
            "the data folder {} is in use by process {} (this process); stop it or choose another folder",
            folder.path().display(),
            std::process::id()
        );
        assert_eq!(message, expected);
        drop(first);
        FolderLock::acquire(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_given_back_leaves_no_name_behind() {
        let folder = tempfile::tempdir().unwrap();
        drop(FolderLock::acquire(folder.path()).unwrap());
        assert_eq!(std::fs::read(folder.path().join(FILE_NAME)).unwrap(), b"");
    }

    #[test]
    fn the_holder_is_named_and_its_death_frees_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = child_with_lock(folder.path());
        let message = FolderLock::acquire(folder.path()).unwrap_err().to_string();
        let expected = format!(
            "the data folder {} is in use by process {}; stop it or choose another folder",
            folder.path().display(),
            child.id()
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(message, expected);
        FolderLock::acquire(folder.path()).unwrap();
    }

    fn child_with_lock(folder: &Path) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lock::tests::hold_the_lock_as_a_child", "--nocapture"])
            .env(FOLDER_OF_CHILD, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap().ends_with("locked")), "the child could not lock");
        child
    }

    /// Not a test of its own: what the child does, until it is killed or its input ends.
    #[test]
    fn hold_the_lock_as_a_child() {
        let Some(folder) = std::env::var_os(FOLDER_OF_CHILD) else { return };
        let _lock = FolderLock::acquire(Path::new(&folder)).unwrap();
        std::io::stdout().write_all(b"locked\n").unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn a_missing_folder_is_said_to_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let message = FolderLock::acquire(&missing).unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "the data folder {} does not exist; create it or choose another folder",
                missing.display()
            )
        );
    }

    #[test]
    fn a_path_that_is_no_folder_is_refused_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = FolderLock::acquire(file.path()).unwrap_err();
        assert!(matches!(error, LockError::Failed { .. }), "{error}");
        assert!(error.to_string().contains("Not a directory"), "{error}");
    }
}
