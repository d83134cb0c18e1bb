//! The folder of a demo: made anew with every start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ephor::BoxError;

/// Stands in every folder of a demo: only such a folder is replaced.
const MARK: &str = "ephor-demo.txt";
const WORDS: &str = "Everything in this folder belongs to a demo of Ephor, and is replaced by the next.\n";

/// Makes the folder. What an earlier demo left there is removed; anything else is not touched.
pub(crate) fn prepare(folder: &Path) -> Result<PathBuf, BoxError> {
    let failed = |what: &str, error: io::Error| format!("cannot {what} {}: {error}", folder.display());
    if folder.join(MARK).is_file() {
        fs::remove_dir_all(folder).map_err(|error| failed("remove", error))?;
    } else if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!(
            "{} is not empty and was not made by a demo; name another folder with --data",
            folder.display()
        )
        .into());
    }
    fs::create_dir_all(folder).map_err(|error| failed("make", error))?;
    fs::write(folder.join(MARK), WORDS).map_err(|error| failed("write to", error))?;
    Ok(std::path::absolute(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_demo_left_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("demo");
        prepare(&folder).unwrap();
        fs::write(folder.join("old"), "x").unwrap();
        prepare(&folder).unwrap();
        assert!(!folder.join("old").exists());
        fs::write(place.path().join("mine"), "x").unwrap();
        let error = prepare(place.path()).unwrap_err().to_string();
        assert!(error.contains("was not made by a demo"), "{error}");
        assert!(place.path().join("mine").exists());
    }
}
