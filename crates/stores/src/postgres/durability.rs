//! Refuses a PostgreSQL server that acknowledges a commit before it is on disk.
//!
//! With `synchronous_commit = off` a crash of the server loses the last commits that it acknowledged:
//! epochs would be used twice, and checkpoints would move back. It is a setting of the session, so the
//! store's user can have it on independently of others. `fsync = off` applies to the whole server and is
//! meant for test servers; it loses data only in a power failure, so the store only warns.

use ephor_core::store::{RefusalCause, StoreError};

use super::error_mapping::{Failure, damaged};
use super::rows::text;
use super::session::Session;

const SETTINGS: &str =
    "SELECT current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync";

impl Session {
    pub(super) async fn check_durability(&self) -> Result<(), Failure> {
        let rows = self.run_only(SETTINGS).await?;
        let row = rows.first().ok_or_else(|| damaged("the server returned no settings".into()))?;
        let setting = |name| text(row, name).map_err(damaged);
        if setting("synchronous_commit")? == "off" {
            let message = format!(
                "{}: synchronous_commit is off, so a crash of the server loses leases and checkpoints that it has \
                 acknowledged: ALTER ROLE … SET synchronous_commit = on, for the user in this URL",
                self.place
            );
            return Err(StoreError::refused(RefusalCause::Other, message).into());
        }
        if setting("fsync")? == "off" {
            tracing::warn!(
                store = %self.place,
                "fsync is off on the server: a power failure there can lose leases and checkpoints"
            );
        }
        Ok(())
    }
}
