//! Refuses a server that acknowledges a commit before it is on its disk.
//!
//! With `synchronous_commit = off` a crash of the server forgets the last commits that it acknowledged: epochs
//! would be given out twice, and checkpoints go back. It is a setting of the session, so a user of the store
//! can have it on whatever holds for others. `fsync = off` is for the whole server, and test servers: it costs
//! nothing but after a power failure, and is only warned of.

use ephor_core::store::StoreError;

use super::failure::{Failure, damaged};
use super::rows::text;
use super::session::Session;

const SETTINGS: &str =
    "SELECT current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync";

impl Session {
    pub(super) async fn check_durability(&self) -> Result<(), Failure> {
        let rows = self.only(SETTINGS).await?;
        let row = rows.first().ok_or_else(|| damaged("the server has no settings".into()))?;
        let setting = |name| text(row, name).map_err(damaged);
        if setting("synchronous_commit")? == "off" {
            let message = format!(
                "{}: synchronous_commit is off, so that the server acknowledges leases and checkpoints that a crash \
                 takes away: ALTER ROLE … SET synchronous_commit = on, for the user in this URL",
                self.place
            );
            return Err(StoreError::Refused { message }.into());
        }
        if setting("fsync")? == "off" {
            tracing::warn!(
                store = %self.place,
                "fsync is off on the server: a power failure there can take leases and checkpoints away"
            );
        }
        Ok(())
    }
}
