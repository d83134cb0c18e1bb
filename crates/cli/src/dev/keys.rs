//! The shared access keys of `ephor dev`: the public development key, or the user's own.
//!
//! The user's own keys come from a file and never from the command line, which everybody on the machine could
//! read. Nothing here prints a key.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use ephor_core::BoxError;
use ephor_gateway::keys::{MAX_KEY_LENGTH, MAX_KEYS};
use ephor_gateway::{SharedKey, development_key, parse_key, parse_keys};
use ephor_hub::LocalNamespace;

use crate::arguments::Dev;
use crate::secret_file;

/// Names the file with the key, if no option does.
const ENVIRONMENT: &str = "EPHOR_KEY_FILE";

/// The maximum size of a list: as many keys as are allowed, each with a long name, a long hub and a comment.
const MAX_LIST_LENGTH: usize = MAX_KEYS * 2048;

/// The keys, and their origin.
pub(super) struct Keys {
    pub(super) keys: Vec<SharedKey>,
    pub(super) from: Source,
}

/// The origin of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The development key, which everybody knows.
    Development,
    /// One key, in a file that contains nothing else.
    KeyFile(PathBuf),
    /// A list of keys.
    List(PathBuf),
}

impl Keys {
    /// The keys that the options name, or else the development key.
    pub(super) fn chosen(options: &Dev) -> Result<Self, BoxError> {
        // The command line takes precedence over the environment.
        let (option, key_file) = match &options.key_file {
            Some(file) => ("--key-file", Some(file.clone())),
            None => (
                ENVIRONMENT,
                std::env::var_os(ENVIRONMENT).filter(|file| !file.is_empty()).map(PathBuf::from),
            ),
        };
        match (&options.keys, key_file) {
            (Some(file), _) => {
                let keys = read(file, MAX_LIST_LENGTH, parse_keys);
                let keys = keys.map_err(|error| format!("--keys {error}"))?;
                Ok(Self { keys, from: Source::List(file.clone()) })
            }
            (None, Some(file)) => {
                // Room for the end of the line and blanks.
                let key = read(&file, MAX_KEY_LENGTH + 16, parse_key);
                let key = key.map_err(|error| format!("{option} {error}"))?;
                let keys = vec![SharedKey { key, ..development_key() }];
                Ok(Self { keys, from: Source::KeyFile(file) })
            }
            (None, None) => Ok(Self { keys: vec![development_key()], from: Source::Development }),
        }
    }

    /// Notes for the author of the list: a key for a hub that does not exist grants nothing.
    pub(super) fn notes(&self, namespace: &LocalNamespace) -> Vec<String> {
        let missing = |key: &SharedKey| {
            let hub = key.hub.as_ref().filter(|hub| namespace.hub(hub.as_str()).is_err())?;
            Some(format!(
                "the key {:?} is for the hub {hub:?}, which does not exist: correct the name, or create the \
                 hub",
                key.name
            ))
        };
        self.keys.iter().filter_map(missing).collect()
    }
}

fn read<T, E: Display>(
    file: &Path,
    longest: usize,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, String> {
    let text = secret_file::read(file, longest)?;
    parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}
