//! The key that clients have to know: the one for development, which everybody knows, or one's own.
//!
//! One's own comes from a file and never from the command line, where everybody on the machine could read it.
//! Nothing here, and nothing that is printed, repeats it.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ephor_core::BoxError;
use ephor_gateway::{Key, SharedKey, development_key};

/// A shorter key could be guessed.
const SHORTEST: usize = 16;
/// A longer file is not a key.
const LONGEST: usize = 1024;
const ADVICE: &str = "make one with: openssl rand -base64 32";

/// The key in the file, or that for development; for the whole namespace.
pub(super) fn chosen(file: Option<&Path>) -> Result<SharedKey, BoxError> {
    let Some(file) = file else { return Ok(development_key()) };
    let wrong = |why: &dyn Display| format!("--key-file {}: {why}", file.display());
    let text = read(file).map_err(|error| wrong(&error))?;
    let key = valid(&text).map_err(|why| wrong(&why))?;
    Ok(SharedKey { key, ..development_key() })
}

/// What whoever started it should know about the file.
pub(super) fn note(file: Option<&Path>) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let file = file?;
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    let shown = file.display();
    (mode & 0o077 != 0).then(|| format!("others on this machine can read {shown}; chmod 600 {shown}"))
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(LONGEST as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn valid(text: &str) -> Result<Key, String> {
    let key = text.trim();
    if text.len() > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes and no key; {ADVICE}"));
    }
    if key.len() < SHORTEST {
        return Err(format!("the key has to have at least {SHORTEST} characters; {ADVICE}"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';') {
        return Err(format!("the key has to be one line of letters, digits and signs without ';'; {ADVICE}"));
    }
    Ok(Key::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_word_that_cannot_be_guessed() {
        assert_eq!(valid("  abcdefghijklmnop=\n").unwrap().reveal(), "abcdefghijklmnop=");
        for bad in
            ["", "\n", "short-canary", "canary canary canary", "canary;canary;canary", &"canary".repeat(200)]
        {
            let error = valid(bad).unwrap_err();
            assert!(error.contains("openssl rand"), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn without_a_file_it_is_the_key_for_development() {
        assert_eq!(chosen(None).unwrap().key.reveal(), "SAS_KEY_VALUE");
        assert_eq!(note(None), None);
        let error = chosen(Some(Path::new("/nowhere/x.key"))).unwrap_err().to_string();
        assert!(error.starts_with("--key-file /nowhere/x.key: "), "{error}");
    }
}
