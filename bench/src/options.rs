//! The options of `ephor-bench hub`, `gateway` and `homes`, and the folder for their data.

use std::path::{Path, PathBuf};

use ephor::BoxError;
use tempfile::TempDir;

use crate::machine;

/// Options of a benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    dir: PathBuf,
    any_filesystem: bool,
    /// Smaller sizes, for little disk space or little time.
    pub(crate) small: bool,
    /// The duration of a soak test.
    pub(crate) minutes: u64,
    /// Megabytes for each run, if the benchmark lets it be chosen.
    pub(crate) mib: Option<u64>,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, BoxError> {
        let dir = std::env::temp_dir();
        let mut options = Self { dir, any_filesystem: false, small: false, minutes: 10, mib: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match *word {
                "--dir" => options.dir = value()?.into(),
                "--any-filesystem" => options.any_filesystem = true,
                "--small" => options.small = true,
                "--minutes" => options.minutes = value()?.parse()?,
                "--mib" => options.mib = Some(value()?.parse()?),
                _ => return Err(format!("unknown option {word}").into()),
            }
        }
        Ok(options)
    }

    /// Creates a folder on a disk with this much free space; it is removed on drop.
    pub(crate) fn folder(&self, needed: u64) -> Result<TempDir, BoxError> {
        let dir = &self.dir;
        if !self.any_filesystem && machine::is_in_memory(dir)? {
            return Err(format!(
                "{} is in memory, where a sync costs nothing: use a folder on a disk with --dir, or add \
                 --any-filesystem",
                dir.display()
            )
            .into());
        }
        self.check_room(dir, needed)?;
        Ok(tempfile::Builder::new().prefix("ephor-bench-").tempdir_in(dir)?)
    }

    fn check_room(&self, dir: &Path, needed: u64) -> Result<(), BoxError> {
        let free = machine::free_bytes(dir)?;
        if free >= needed {
            return Ok(());
        }
        let [needed, free] = [needed, free].map(|bytes| bytes >> 20);
        Err(format!(
            "{} has {free} MiB of free space, and this benchmark needs {needed} MiB: free some, or use \
             another folder with --dir",
            dir.display()
        )
        .into())
    }
}
