//! Loads the newest state from a log of results: the last snapshot, and the updates after it.

use super::log::{Log, LogError};
use crate::consolidate::Consolidation;

/// The most attempts while other writers are faster.
const TRIES: u32 = 20;

/// The state of a log.
#[derive(Debug)]
pub(super) struct Loaded<C> {
    pub(super) state: C,
    /// The last update.
    pub(super) number: u64,
    /// The snapshot that it began with, or 0.
    pub(super) snapshot: u64,
    /// The highest epoch that was seen, and its owner.
    pub(super) epoch: u64,
    pub(super) owner: String,
}

impl<C: Default> Default for Loaded<C> {
    fn default() -> Self {
        Self { state: C::default(), number: 0, snapshot: 0, epoch: 0, owner: String::new() }
    }
}

impl<C> Loaded<C> {
    fn seen(&mut self, epoch: u64, owner: String) {
        if epoch > self.epoch {
            (self.epoch, self.owner) = (epoch, owner);
        }
    }
}

/// Reads the newest snapshot and all updates after it.
pub(super) async fn load<C: Consolidation>(log: &Log) -> Result<Loaded<C>, LogError> {
    for _ in 0..TRIES {
        let Some(loaded) = load_once::<C>(log).await? else { continue };
        // Whatever was read is what was written first, if nothing so new was ever deleted.
        if log.floor().await? <= loaded.snapshot {
            return Ok(loaded);
        }
    }
    Err(LogError::Restless { log: log.name().to_owned(), tries: TRIES })
}

/// None if the snapshot was deleted meanwhile: there is a newer one.
async fn load_once<C: Consolidation>(log: &Log) -> Result<Option<Loaded<C>>, LogError> {
    let mut loaded = Loaded::default();
    if let Some(newest) = log.snapshots().await?.last() {
        let Some(snapshot) = log.snapshot::<C>(*newest).await? else { return Ok(None) };
        loaded.seen(snapshot.epoch, snapshot.owner);
        (loaded.state, loaded.number, loaded.snapshot) = (snapshot.state, *newest, *newest);
    }
    while let Some(entry) = log.update::<C::Update>(loaded.number + 1).await? {
        loaded.seen(entry.epoch, entry.owner);
        loaded.state.apply(entry.update);
        loaded.number += 1;
    }
    Ok(Some(loaded))
}
