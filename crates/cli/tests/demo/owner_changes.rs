//! Test helper: counts the changes of owner by their cause, from the store of a demo.

use std::path::Path;

use ephor_core::history::ChangeReason;
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_stores::StoreUrl;

/// Changes of owners in the group `consolidate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Planned: handed over, or released by an owner that shut down.
    pub(crate) planned: u64,
    /// Unplanned: taken over from an unresponsive owner, or released by one that could not continue.
    pub(crate) unplanned: u64,
}

/// More changes than a store's history keeps.
const EVERYTHING: usize = 100_000;

pub(crate) fn moves(folder: &Path) -> Moves {
    let url: StoreUrl = format!("sqlite:{}", folder.join("ephor.db").display()).parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (changes, epochs) = runtime.block_on(async {
        let store = ephor_stores::open(&url).await.unwrap();
        let groups = store.groups().await.unwrap();
        let group = groups.iter().find(|group| group.group.as_str() == "consolidate").unwrap();
        let epochs: u64 = store.view(group).await.unwrap().leases.iter().map(|lease| lease.epoch.get()).sum();
        (store.history(group, None, EVERYTHING).await.unwrap(), epochs)
    });
    // Every change takes an epoch. Changes that are no longer in the history may have been of any kind.
    let mut moves = Moves { planned: 0, unplanned: epochs.saturating_sub(changes.len() as u64) };
    for change in changes {
        match change.reason {
            ChangeReason::HandedOver | ChangeReason::Released(ReleaseCause::Shutdown) => moves.planned += 1,
            // A partition without an owner had been released, or was never owned.
            ChangeReason::Claimed(ClaimCause::Unowned) => {}
            _ => moves.unplanned += 1,
        }
    }
    moves
}
