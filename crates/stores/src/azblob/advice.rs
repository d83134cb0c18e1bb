//! What of an account is not good for ownership, as far as it can be found out.

use super::session::Session;

const FOLDERS: &str = "this account has a hierarchical namespace, where records are files in folders and cost more: use \
                       an account without (it cannot be switched off)";
const DELETED: &str = "this account keeps deleted blobs (soft delete): records of dead hosts and every line of the history \
                       are kept with them. Switch it off, or use an account of its own for leases";
pub(super) const VERSIONS: &str = "this account keeps versions of blobs: every renewal and every checkpoint adds one, for \
                                   ever. Switch versioning off, or use an account of its own for leases";

impl Session {
    /// What a person should change about the account.
    pub(super) async fn advice(&self) -> Vec<String> {
        let (has_folders, keeps_deleted) =
            futures_util::join!(self.container.has_folders(), self.container.keeps_deleted());
        let found =
            [(has_folders, FOLDERS), (keeps_deleted, DELETED), (self.container.keeps_versions(), VERSIONS)];
        found.iter().filter(|(found, _)| *found).map(|(_, words)| (*words).to_owned()).collect()
    }
}
