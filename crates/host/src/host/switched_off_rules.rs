//! The wrong behaviour of a host whose protocol rule a mutation switched off: the simulation must detect
//! it. Not in release builds (feature `mutations`). The rules are `ages_are_the_stores`,
//! `only_the_served_is_renewed` and `asks_stand_in_the_askers_record`.
//!
//! Mutations that take only a few words are written where the rule is checked.

use ephor_core::expiry::Liveness;
use ephor_core::handover::PendingHandoverRequest;
use ephor_core::host_record::{HandoverRequest, HostRecord};
use ephor_core::ids::HostId;
use ephor_core::lease::{Lease, LeaseToken};
use ephor_core::store::View;

use super::renewer::served;
use super::running_host::RunningHost;

/// The leases that have expired. The mutation takes our wall clock for the store's clock, whatever we
/// saw before.
pub(super) fn expire_by_our_clock(mut liveness: Liveness, view: &View, running: &RunningHost) -> Liveness {
    if running.rules.ages_are_the_stores() {
        return liveness;
    }
    let wall = running.environment.wall();
    let age = |lease: &Lease| wall.since(view.at - lease.age);
    let old =
        |lease: &&Lease| lease.owner.is_some() && lease.duration.is_some_and(|lasts| age(lease) >= lasts);
    liveness.expired = view.leases.iter().filter(old).map(|lease| lease.partition).collect();
    liveness
}

/// The mutation: renews all leases with our name.
pub(super) async fn all_under_our_name(running: &RunningHost) -> Vec<LeaseToken> {
    let Ok(view) = running.store.view().await else { return served(running, running.now()) };
    view.leases.iter().filter_map(Lease::token).filter(|token| token.owner == running.me).collect()
}

/// The mutation: writes the owner's record as we last saw it, as if nobody else wrote it. A want in it
/// names the asker in the place of the owner.
pub(super) async fn ask_in_the_owners_record(
    running: &RunningHost,
    view: &View,
    ask: &PendingHandoverRequest,
) {
    let Some(owner) = view.host(&ask.owner) else { return };
    let mut record = owner.record.clone();
    record.wants.push(HandoverRequest { owner: running.me.clone(), ..ask.request() });
    // A failure is reported; the request then just gets no answer.
    let _ = running.store.heartbeat(&record).await;
}

/// The requests that others have written into our record, with their askers.
pub(super) fn asked_in_our_record<'a>(
    view: &'a View,
    me: &HostId,
) -> Vec<(&'a HostRecord, &'a HandoverRequest)> {
    let wants = view.host(me).map_or(&[][..], |entry| &entry.record.wants);
    wants.iter().filter_map(|want| Some((&view.host(&want.owner)?.record, want))).collect()
}
