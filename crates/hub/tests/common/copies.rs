//! Test helper: copies the folder of a hub, whether it is a golden folder, closed, or in use.
#![allow(dead_code, reason = "each test uses its own part")]

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// So many copies may be spoilt by files that are replaced meanwhile.
const MAX_COPIES: usize = 100;

/// The path of a data folder in `golden/`, which an earlier version wrote.
pub(crate) fn golden_folder(name: &str) -> PathBuf {
    // Tests of other crates use it, too.
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../hub/tests/golden").join(name)
}

/// A copy of a data folder in `golden/`, to be opened: opening may write.
pub(crate) fn copy_of_golden(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&golden_folder(name), folder.path()).unwrap();
    folder
}

/// Copies what is in a folder, with all folders below, into one that is there and empty.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            std::fs::create_dir(&to)?;
            copy_folder(&path, &to)?;
        } else {
            std::fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

/// Copies a folder as the next process would find it if this one died now, into one that is empty or not there. A namespace that is at work
/// puts a new file in place of an old one now and then: a copy that meets this begins again.
pub(crate) fn copy_while_in_use(from: &Path, to: &Path) {
    for _ in 0..MAX_COPIES {
        std::fs::create_dir_all(to).unwrap();
        match copy_folder(from, to) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => std::fs::remove_dir_all(to).unwrap(),
            Err(error) => panic!("copy of {}: {error}", from.display()),
        }
    }
    panic!("a file of {} was replaced during each of {MAX_COPIES} copies", from.display());
}
