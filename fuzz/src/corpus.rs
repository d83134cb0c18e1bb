//! The corpus of stored inputs: files in `corpus/`, one folder per target.
//!
//! Files called `seed-…` are written by the tests; the others were found because they reach code that no
//! other does.

use std::path::PathBuf;

/// The folder of a target.
pub fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "corpus", target].iter().collect()
}

/// The inputs of a target with their file names, sorted by name.
pub fn read(target: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder(target))? {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}
