//! The data folder of a demo: created again at every start, and locked while the demo runs.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use ephor::BoxError;

/// Stands in every folder of a demo: only such a folder is replaced.
const MARK: &str = "ephor-demo.txt";
const WORDS: &str = "This folder belongs to a demo of Ephor. The next demo replaces everything in it.\n";

/// The folder of a demo that runs. No other demo takes it before this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// The mark, locked. The system lets go of it however the demo ends.
    _held: File,
}

/// Makes the folder. What an earlier demo left there is removed, if that has ended; anything else is not touched.
pub(crate) fn prepare(folder: &Path) -> Result<Folder, BoxError> {
    let failed = |what: &str, error: io::Error| format!("cannot {what} {}: {error}", folder.display());
    let mark = folder.join(MARK);
    if mark.is_file() {
        let _earlier = hold(&mark, folder)?;
        fs::remove_dir_all(folder).map_err(|error| failed("remove", error))?;
    } else if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!(
            "{} is not empty and was not created by a demo; use another folder with --data",
            folder.display()
        )
        .into());
    }
    fs::create_dir_all(folder).map_err(|error| failed("create", error))?;
    fs::write(&mark, WORDS).map_err(|error| failed("write to", error))?;
    Ok(Folder { path: std::path::absolute(folder)?, _held: hold(&mark, folder)? })
}

/// Locks the mark. Where the file system has no locks, nothing prevents a second demo.
fn hold(mark: &Path, folder: &Path) -> Result<File, BoxError> {
    let file = File::open(mark).map_err(|error| format!("cannot read {}: {error}", mark.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(format!(
            "another demo is running in {}; stop it, or use another folder with --data",
            folder.display()
        )
        .into()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_demo_left_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("demo");
        drop(prepare(&folder).unwrap());
        fs::write(folder.join("old"), "x").unwrap();
        prepare(&folder).unwrap();
        assert!(!folder.join("old").exists());
        fs::write(place.path().join("mine"), "x").unwrap();
        let error = prepare(place.path()).unwrap_err().to_string();
        assert!(error.contains("was not created by a demo"), "{error}");
        assert!(place.path().join("mine").exists());
    }

    #[test]
    fn a_demo_that_runs_keeps_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("demo");
        let running = prepare(&folder).unwrap();
        fs::write(folder.join("results"), "x").unwrap();
        let error = prepare(&folder).unwrap_err().to_string();
        assert!(error.starts_with("another demo is running in ") && error.contains("--data"), "{error}");
        assert!(folder.join("results").exists(), "nothing of it was removed");
        drop(running);
        prepare(&folder).unwrap();
        assert!(!folder.join("results").exists());
    }
}
