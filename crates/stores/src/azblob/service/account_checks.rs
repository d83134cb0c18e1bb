//! Finds settings of the storage account that are unsuitable for leases (hierarchical namespace, soft delete,
//! blob versions), and returns a warning for each. `session.rs` logs them.

use crate::azblob::session::Session;

const FOLDERS: &str = "this account has a hierarchical namespace, which makes every request more expensive: use an \
                       account without one (it cannot be switched off)";
const DELETED: &str = "this account keeps deleted blobs (soft delete), among them records of dead hosts and every version of \
                       the history: switch soft delete off, or use a separate account for leases";
pub(in crate::azblob) const VERSIONS: &str = "this account keeps versions of blobs: every renewal and every checkpoint adds one that is \
                                   never deleted. Switch versioning off, or use a separate account for leases";

impl Session {
    /// Warnings about settings that an operator should change.
    pub(in crate::azblob) async fn account_warnings(&self) -> Vec<String> {
        let (has_folders, keeps_deleted) =
            futures_util::join!(self.container.has_folders(), self.container.keeps_deleted());
        let found =
            [(has_folders, FOLDERS), (keeps_deleted, DELETED), (self.container.keeps_versions(), VERSIONS)];
        found.iter().filter(|(found, _)| *found).map(|(_, words)| (*words).to_owned()).collect()
    }
}
