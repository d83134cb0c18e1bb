//! The inputs that are kept: files of `corpus/`, a folder a target.
//!
//! Those called `seed-…` are written by the tests, the others were found because they reach code that no other does.

use std::path::PathBuf;

/// The folder of a target.
pub fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "corpus", target].iter().collect()
}

/// Its inputs, with the names of their files, in the order of the names.
pub fn read(target: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder(target))? {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}
