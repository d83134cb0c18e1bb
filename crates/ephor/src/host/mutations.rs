//! The mutated behaviour of a host with a rule switched off, for the simulation to detect (mutation
//! testing). Only with the feature `mutations`.
//!
//! Mutations that take only a few words are written where the rule is checked.

use std::borrow::Cow;

use ephor_core::handover::Ask;
use ephor_core::host_record::{HostRecord, Want};
use ephor_core::ids::HostId;
use ephor_core::lease::{Lease, LeaseToken};
use ephor_core::resume::{self, LostGround, OnInvalidPosition, Resume};
use ephor_core::rules::Rules;
use ephor_core::source::PartitionProperties;
use ephor_core::store::View;

use super::renewer::served;
use super::shared::HostShared;

/// The view as it is judged. The mutation takes our wall clock for the store's clock.
pub(super) fn judged<'a>(view: &'a View, shared: &HostShared) -> Cow<'a, View> {
    if shared.rules.ages_are_the_stores() {
        return Cow::Borrowed(view);
    }
    let (mut view, wall) = (view.clone(), shared.environment.wall());
    for lease in &mut view.leases {
        let renewed_at = view.at - lease.age;
        lease.age = wall.since(renewed_at);
    }
    Cow::Owned(view)
}

/// The position as it is believed. The mutation trusts the partition's properties about its end,
/// and rewinds a checkpoint beyond it.
pub(crate) fn rewind_without_proof(
    rules: &Rules,
    found: Result<Resume, LostGround>,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, LostGround> {
    let found = found?;
    if rules.rewinds_need_proof() {
        return Ok(found);
    }
    match resume::beyond_the_end(&found.start, partition) {
        Some(ground) => resume::replacement(ground, partition, on_invalid),
        None => Ok(found),
    }
}

/// The mutation: renews all leases with our name.
pub(super) async fn all_under_our_name(shared: &HostShared) -> Vec<LeaseToken> {
    let store = &shared.store;
    let view = store.call("view", None, store.store().view(store.group())).await;
    let Ok(view) = view else { return served(shared, shared.now()) };
    view.leases.iter().filter_map(Lease::token).filter(|token| token.owner == shared.me).collect()
}

/// The mutation: writes the owner's record as we last saw it, as if nobody else wrote it. A want in it
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
