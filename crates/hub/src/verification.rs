//! Verifies a data folder that no process has open: reads the record of each hub and every segment of its
//! log, and checks their checksums. Changes nothing but the process id in the file `LOCK`.

use std::path::Path;

use ephor_core::ids::{HubName, LogId};

use crate::catalog::{HubRecord, is_deleted};
use crate::error::HubError;
use crate::files::{DiskFiles, Files};
use crate::hub::identity;
use crate::journal::verify::{LogVerification, verify};
use crate::lock::FolderLock;
use crate::namespace::{HUBS, is_unfinished};

/// The result of [`verify_folder`] for one hub.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HubVerification {
    /// The hub; none if its record cannot be read.
    pub hub: Option<HubName>,
    /// Its folder.
    pub folder: String,
    /// Whether its record is intact; otherwise what is wrong.
    pub record: Result<(), String>,
    /// The result for its log; or why it cannot be read at all.
    pub log: Result<LogVerification, String>,
}

impl HubVerification {
    /// Whether the record and the log are intact.
    pub fn is_intact(&self) -> bool {
        self.record.is_ok() && self.log.as_ref().is_ok_and(|log| log.damage.is_empty())
    }
}

/// Verifies a data folder that no process has open. Changes nothing but the process id in the file `LOCK`.
pub fn verify_folder(folder: impl AsRef<Path>) -> Result<Vec<HubVerification>, HubError> {
    let folder = folder.as_ref();
    let _lock = FolderLock::acquire(folder)?;
    verify_files(&DiskFiles::new(folder.to_owned()))
}

/// Verifies these files. Changes nothing.
pub fn verify_files(files: &dyn Files) -> Result<Vec<HubVerification>, HubError> {
    let list = files.list(HUBS).map_err(HubError::disk("could not list the hubs"))?;
    let verified = list.iter().filter(|name| !is_deleted(name)).filter_map(|name| {
        let folder = format!("{HUBS}/{name}");
        let shown = files.shown(&folder);
        Some(match HubRecord::load(files, &folder) {
            // An unfinished creation; the next start removes it.
            Err(crate::catalog::CatalogError::Missing { .. }) if is_unfinished(files, &folder) => {
                return None;
            }
            Ok(record) => HubVerification {
                folder: shown,
                record: Ok(()),
                log: verify(files, &folder, identity(&record.log_id)).map_err(|error| error.to_string()),
                hub: Some(record.name),
            },
            Err(error) => {
                // The log id is part of the folder's name, so the log can be verified without the record.
                let log_id = name.rsplit_once('.').map_or("", |(_, log_id)| log_id);
                let log = verify(files, &folder, identity(&LogId::new(log_id)));
                HubVerification {
                    hub: None,
                    folder: shown,
                    record: Err(error.to_string()),
                    log: log.map_err(|error| error.to_string()),
                }
            }
        })
    });
    Ok(verified.collect())
}
