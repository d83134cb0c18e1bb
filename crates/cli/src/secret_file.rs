//! Reads files that hold secrets, and refuses files that other users can read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::os;

/// Reads a file of at most `longest` bytes.
///
/// A file of this user that others can read is refused, as `ssh` does: changing its mode silently would hide
/// that the secret may be known by now. The protection of a file that belongs to another user, or that is on
/// a read-only mount, as in containers, is up to its provider.
pub(crate) fn read(path: &Path, longest: usize) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("{shown}: {error}");
    let file = open(path)?;
    let mut text = String::new();
    file.take(longest as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > longest {
        return Err(format!("{shown} is longer than {longest} bytes: is it the right file?"));
    }
    Ok(text)
}

/// Checks a file that other code reads.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    open(path).map(drop)
}

/// Checks the opened file, not its name: it cannot be replaced in between.
fn open(path: &Path) -> Result<File, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("{shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    // Pipes and terminals are not stored. Secrets in a container are on a read-only mount.
    if let Some(mode) = os::mode_open_to_others(&file).map_err(failed)? {
        return Err(format!(
            "{shown} contains a secret, but other users of this machine can read or change it (mode \
             {mode:04o}); run chmod 600 {shown}, and replace the secret if somebody may have seen it"
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_others_can_read_is_refused_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "canary").unwrap();
        for (mode, is_private) in
            [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)]
        {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let read = read(&file, 100);
            assert_eq!(read.is_ok(), is_private, "{mode:o}: {read:?}");
            if let Err(error) = read {
                assert!(error.contains("chmod 600") && !error.contains("canary"), "{error}");
            }
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&file, 5).unwrap_err().contains("longer than 5 bytes"));
        assert_eq!(read(Path::new("/dev/null"), 5).unwrap(), "");
        assert!(read(&folder.path().join("none"), 5).unwrap_err().contains("No such file"));
    }
}
