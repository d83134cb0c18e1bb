//! The behaviour of a host with a rule switched off: deliberate bugs for the simulation to find
//! (mutation testing).
//!
//! Nothing here runs while all [`Rules`](ephor_core::rules::Rules) are kept. Bugs that take only a
//! few words are written where the rule is checked.

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

/// The bug: takes our wall clock for the store's clock.
pub(super) fn ages_by_our_clock(view: &View, wall: Timestamp) -> View {
    let mut view = view.clone();
    for lease in &mut view.leases {
        let renewed_at = view.at - lease.age;
        lease.age = wall.since(renewed_at);
    }
    view
}

/// The bug: trusts the partition's properties about its end, and rewinds a checkpoint beyond it.
pub(crate) fn rewind_without_proof(
    found: Result<Resume, LostGround>,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, LostGround> {
    let found = found?;
    match resume::beyond_the_end(&found.start, partition) {
        Some(ground) => resume::replacement(ground, partition, on_invalid),
        None => Ok(found),
    }
}

/// The bug: renews all leases with our name.
pub(super) async fn all_under_our_name(shared: &HostShared) -> Vec<LeaseToken> {
    let store = &shared.store;
    let view = store.call("view", None, store.store().view(store.group())).await;
    let Ok(view) = view else { return served(shared, shared.now()) };
    view.leases.iter().filter_map(Lease::token).filter(|token| token.owner == shared.me).collect()
}

/// The bug: writes the owner's record as we last saw it, as if nobody else wrote it. A want in it
/// names the asker in the place of the owner.
pub(super) async fn ask_in_the_owners_record(shared: &HostShared, view: &View, ask: &Ask) {
    let Some(owner) = view.host(&ask.owner) else { return };
    let mut record = owner.record.clone();
    record.wants.push(Want { owner: shared.me.clone(), ..ask.want() });
    let store = &shared.store;
    // A failure is reported; the request then just gets no answer.
    let _ = store.call("heartbeat", None, store.store().heartbeat(store.group(), &record)).await;
}

/// The requests that others have written into our record, with their askers.
pub(super) fn asked_in_our_record<'a>(view: &'a View, me: &HostId) -> Vec<(&'a HostRecord, &'a Want)> {
    let wants = view.host(me).map_or(&[][..], |entry| &entry.record.wants);
    wants.iter().filter_map(|want| Some((&view.host(&want.owner)?.record, want))).collect()
}
