//! The operating-system service that the command needs: tells whether a file with a secret is open to other
//! users. Linux only; a port replaces this file, and `os.rs` of `ephor-runtime`.
//!
//! A port provides [`mode_open_to_others`].

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::StatVfsMountFlags;

/// The mode of a stored file of this user that other users can read or change; none for any other file, and for one
/// on a read-only mount, where no mode can be changed.
pub(crate) fn mode_open_to_others(file: &File) -> io::Result<Option<u32>> {
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o777;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let open = metadata.is_file() && ours && mode & 0o077 != 0 && !is_read_only(file);
    Ok(open.then_some(mode))
}

/// True if the file is on a file system that is mounted read-only.
fn is_read_only(file: &File) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}
