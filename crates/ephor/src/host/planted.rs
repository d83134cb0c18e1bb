//! What a host does when a rule is taken away: bugs for the simulation to find.
//!
//! Nothing here runs while all [`Rules`](ephor_core::rules::Rules) are kept. The bugs that take no
//! more than a word stand where they are asked for.

use ephor_core::handover::Ask;
use ephor_core::host_record::{HostRecord, Want};
use ephor_core::ids::HostId;
use ephor_core::lease::{Lease, LeaseToken};
use ephor_core::resume::{self, LostGround, OnInvalidPosition, Resume};
use ephor_core::source::PartitionProperties;
use ephor_core::store::View;
use ephor_core::time::Timestamp;

use super::renewer::served;
use super::shared::HostShared;

/// Believes that the clock on our wall and the store's show the same.
pub(super) fn ages_by_our_clock(view: &View, wall: Timestamp) -> View {
    let mut view = view.clone();
    for lease in &mut view.leases {
        let renewed_at = view.at - lease.age;
        lease.age = wall.since(renewed_at);
    }
    view
}

/// Believes that a partition ends where its properties say, and that a checkpoint behind it is wrong.
pub(crate) fn rewind_without_proof(
    found: Result<Resume, LostGround>,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, LostGround> {
    let found = found?;
    match resume::beyond_the_end(&found.start, partition) {
        Some(ground) => resume::instead(ground, partition, on_invalid),
        None => Ok(found),
    }
}

/// Believes that whatever is under our name is worth keeping.
pub(super) async fn all_under_our_name(shared: &HostShared) -> Vec<LeaseToken> {
    let store = &shared.store;
    let view = store.call("view", None, store.store().view(store.group())).await;
    let Ok(view) = view else { return served(shared, shared.now()) };
    view.leases.iter().filter_map(Lease::token).filter(|token| token.owner == shared.me).collect()
}

/// Believes that the owner's record is as we saw it, and that nobody else writes into it. A want in it names
/// the asker in the place of the owner.
pub(super) async fn ask_in_the_owners_record(shared: &HostShared, view: &View, ask: &Ask) {
    let Some(owner) = view.host(&ask.owner) else { return };
    let mut record = owner.record.clone();
    record.wants.push(Want { owner: shared.me.clone(), ..ask.want() });
    let store = &shared.store;
    // A failure is reported, and silence is what follows.
    let _ = store.call("heartbeat", None, store.store().heartbeat(store.group(), &record)).await;
}

/// What others have written into our record: who asks, and for what.
pub(super) fn asked_in_our_record<'a>(view: &'a View, me: &HostId) -> Vec<(&'a HostRecord, &'a Want)> {
    let wants = view.host(me).map_or(&[][..], |entry| &entry.record.wants);
    wants.iter().filter_map(|want| Some((&view.host(&want.owner)?.record, want))).collect()
}
