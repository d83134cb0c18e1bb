//! Test helper: mounts a small disk that a test may fill.
//!
//! It is a tmpfs. Where this process may not mount one, the test runs again under `unshare`, as the root of
//! a user namespace of its own; where that is not allowed either, it fails and says so.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::copies::copy_while_in_use;

/// Tells the second run that it is one.
const UNSHARED: &str = "EPHOR_TEST_UNSHARED";

const PAGE: usize = 4096;

/// A mounted disk. It is gone when the test ends, however it ends.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

/// Runs the test of this name on a disk of this many bytes.
pub(crate) fn on_small_disk(test: &str, bytes: u64, run: impl FnOnce(&SmallDisk)) {
    /// A process that is just being started holds copies of all open files for a moment; room that another
    /// test has just freed would not be free yet.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match SmallDisk::mount(bytes) {
        Ok(disk) => run(&disk),
        Err(why) if std::env::var_os(UNSHARED).is_some() => {
            panic!("cannot mount a tmpfs even as root: {why}")
        }
        Err(why) => {
            let again = Command::new("unshare")
                .arg("-Urm")
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(UNSHARED, "1")
                .output();
            let output = again.unwrap_or_else(|error| {
                panic!("this test needs a small disk; no mount: {why}; and no unshare: {error}")
            });
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            // A name that no test has would succeed as well.
            assert!(
                output.status.success() && said[0].contains("1 passed"),
                "this test needs a small disk; no mount here: {why}; and under `unshare -Urm`: {}",
                said.concat()
            );
        }
    }
}

impl SmallDisk {
    fn mount(bytes: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Self { folder }),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Where a hub may keep its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Another folder, with what is in the first one now.
    pub(crate) fn copy_of_data(&self) -> PathBuf {
        let copy = self.folder.path().join("copy");
        copy_while_in_use(&self.data(), &copy);
        copy
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }

    /// Fills the disk until only this many bytes are left, in whole pages.
    pub(crate) fn fill_but(&self, left: usize) {
        let mut ballast = fs::File::options().create(true).append(true).open(self.ballast()).unwrap();
        while ballast.write_all(&[1; PAGE]).is_ok() {}
        let length = ballast.metadata().unwrap().len() / PAGE as u64 * PAGE as u64;
        ballast.set_len(length.checked_sub(left as u64).expect("the hub has taken the whole disk")).unwrap();
    }

    /// Makes room again.
    pub(crate) fn clear(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have files open.
        let unmounted = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("could not unmount {}", self.folder.path().display());
        }
    }
}

/// All names below a folder, for stories about what is left behind.
pub(crate) fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            let name = names.last().unwrap().clone();
            names.extend(names_below(&entry.path()).into_iter().map(|below| format!("{name}/{below}")));
        }
    }
    names.sort();
    names
}
