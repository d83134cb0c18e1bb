//! Keeps the files from other users of the machine.
//!
//! A new database is its user's alone (0600), and SQLite gives the files beside it the same mode. Of a file that
//! is there, those lose access who may read it and not write it: no host can be run that way, but whoever may
//! read can lock, and so keep hosts from writing. Whoever may write was let in on purpose (`chmod 660` for hosts
//! of several users in one group) and stays.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};

use super::place::Place;

const ALL: u32 = 0o777;
const OTHERS_WRITE: u32 = 0o002;
/// Group and others: where their three bits begin.
const CLASSES: [u32; 2] = [3, 0];

/// Creates the database if it is not there. It is not opened: see `holder.rs`. Where this fails SQLite tries
/// next, and says why it cannot.
pub(super) fn create(database: &Path) {
    let _ = rustix::fs::mknodat(CWD, database, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0);
}

/// Takes away what no host needs, from the files that are there.
pub(super) fn tighten(place: &Place) {
    for file in [&place.database, &place.log, &place.shared_memory] {
        let Ok(found) = std::fs::metadata(file) else { continue };
        let mode = found.permissions().mode() & ALL;
        let wanted = private(mode);
        if wanted & OTHERS_WRITE != 0 {
            tracing::warn!(file = %file.display(), mode = %octal(wanted), "every user of this machine may write to the store");
        }
        if wanted == mode {
            continue;
        }
        let (before, after) = (octal(mode), octal(wanted));
        match std::fs::set_permissions(file, Permissions::from_mode(wanted)) {
            Ok(()) => {
                tracing::info!(file = %file.display(), %before, %after, "took read access away from other users")
            }
            // It belongs to another user, whose hosts do it.
            Err(error) => {
                tracing::warn!(file = %file.display(), mode = %before, %error, "other users may read the store, and so keep hosts from writing");
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
