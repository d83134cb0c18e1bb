//! Creates the database file for its user only, and takes the access to existing database files from other
//! users who may read but not write.
//!
//! A new database is accessible to its user only (0600), and SQLite gives the files beside it the same
//! mode. On an existing file, users lose access who may read and not write: they cannot run a host, but
//! they can lock the file and so keep hosts from writing. Users who may write keep their access: it was
//! granted on purpose (`chmod 660` for hosts of several users in one group).

use std::path::Path;

use super::database_paths::DatabasePaths;
use super::os;

const OTHERS_WRITE: u32 = 0o002;
/// The shifts of the permission bits of group and others.
const CLASSES: [u32; 2] = [3, 0];

/// Creates the database if it does not exist, without opening it (see `lock_holder.rs`). If this fails,
/// SQLite tries next and reports the error.
pub(super) fn create(database: &Path) {
    let _ = os::create_private(database);
}

/// Removes the access that no host needs from the existing files.
pub(super) fn tighten(paths: &DatabasePaths) {
    for file in [&paths.database, &paths.log, &paths.shared_memory] {
        let Ok(found) = std::fs::metadata(file) else { continue };
        let mode = os::mode(&found);
        let wanted = private(mode);
        if wanted & OTHERS_WRITE != 0 {
            tracing::warn!(file = %file.display(), mode = %octal(wanted), "every user of this machine may write to the store; restrict the mode of the file");
        }
        if wanted == mode {
            continue;
        }
        let (before, after) = (octal(mode), octal(wanted));
        match os::set_mode(file, wanted) {
            Ok(()) => {
                tracing::info!(file = %file.display(), %before, %after, "removed the read access of other users")
            }
            // The file belongs to another user, whose hosts restrict it.
            Err(error) => {
                tracing::warn!(file = %file.display(), mode = %before, %error, "other users may read the store and so lock it; restrict the mode of the file");
            }
        }
    }
}

fn private(mode: u32) -> u32 {
    let may_only_read = |class: &u32| mode >> class & 0o2 == 0;
    CLASSES.iter().filter(|class| may_only_read(class)).fold(mode, |mode, class| mode & !(0o7 << class))
}

fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_only_read_loses_it_and_who_may_write_keeps_it() {
        for (mode, wanted) in [
            (0o600, 0o600),
            (0o644, 0o600),
            (0o640, 0o600),
            (0o755, 0o700),
            (0o660, 0o660),
            (0o664, 0o660),
            (0o666, 0o666),
            (0o646, 0o606),
            (0o400, 0o400),
        ] {
            assert_eq!(octal(private(mode)), octal(wanted), "of {mode:o}");
        }
    }
}
