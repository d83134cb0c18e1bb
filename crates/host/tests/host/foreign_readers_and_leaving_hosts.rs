//! Tests of hosts that leave while a foreign reader has one of their partitions: the lease is given back at
//! once, or when the host hears that it is to drain.

use std::sync::Arc;

use crate::common::action_recorder::{
    ActionRecorder, P0, What, events, millis, owner, seconds, send, start, until_finished,
};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use crate::takeover::intrude;
use ephor::{CloseReason, Epoch, PumpState, Receiver};
use ephor_core::history::ChangeReason;
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_testkit::TestFleet;

/// Two hosts with a partition each. A foreign reader is about to take the partition of `owner`.
struct Fleet {
    fleet: TestFleet,
    recorder: ActionRecorder,
    store: FaultyStore,
    owner: String,
    other: String,
}

impl Fleet {
    async fn balanced() -> Self {
        let fleet = TestFleet::new(2).unwrap();
        let recorder = ActionRecorder::new(&fleet);
        let store = FaultyStore::new(Arc::new(recorder.store()));
        let mut fleet = fleet.with_store(Arc::new(store.clone()));
        for name in ["a", "b"] {
            start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
        }
        fleet.until_balanced().await.unwrap();
        send(&fleet, P0, 5);
        until_finished(&fleet, &recorder, P0, 4).await;
        fleet.pass(seconds(30)).await;
        let owner = owner(&fleet, P0).await.unwrap();
        let other = if owner == "a" { "b" } else { "a" }.to_owned();
        recorder.clear();
        Self { fleet, recorder, store, owner, other }
    }

    /// A foreign reader takes the partition, and the pump of its owner has ended.
    async fn displaced() -> (Self, Box<dyn Receiver>) {
        let balanced = Self::balanced().await;
        let reader = intrude(&balanced.fleet, 50).await;
        balanced.fleet.pass(millis(10)).await;
        assert_eq!(balanced.recorder.closings(P0), [CloseReason::Disconnected]);
        assert_eq!(balanced.owner_in_store().await, Some(balanced.owner.clone()), "the lease is kept");
        (balanced, reader)
    }

    async fn owner_in_store(&self) -> Option<String> {
        owner(&self.fleet, P0).await
    }

    fn was_changed(&self, reason: &ChangeReason) -> bool {
        let changed = What::Changed(reason.clone());
        self.recorder.first(|entry| entry.partition == P0 && entry.what == changed).is_some()
    }

    /// The partition goes to the other host within seconds, by no steal and no expiry, and is read there.
    async fn is_read_by_the_other_host(&self) {
        let began = self.recorder.now();
        send(&self.fleet, P0, 5);
        until_finished(&self.fleet, &self.recorder, P0, 9).await;
        let took = self.recorder.now().since(began);
        assert!(took < seconds(12), "{took:?}");
        assert_eq!(self.owner_in_store().await, Some(self.other.clone()));
        assert!(self.recorder.delivered_to(&self.other, P0).ends_with(&events(5, 9)));
        for cause in [ClaimCause::Unresponsive, ClaimCause::Expired] {
            assert!(!self.was_changed(&ChangeReason::Claimed(cause)), "{:?}", self.recorder.of(P0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_host_gives_back_at_once_what_a_foreign_reader_took() {
    let (fleet, reader) = Fleet::displaced().await;
    let began = fleet.recorder.now();
    fleet.fleet.admin().drain(&fleet.owner).await.unwrap();
    let released = ChangeReason::Released(ReleaseCause::Unserved);
    fleet.fleet.until("not released", || fleet.was_changed(&released)).await.unwrap();
    let took = fleet.recorder.now().since(began);
    assert!(took < millis(500), "{took:?}");
    fleet.is_read_by_the_other_host().await;
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_gives_back_what_a_foreign_reader_took() {
    let (mut fleet, reader) = Fleet::displaced().await;
    let owner = fleet.owner.clone();
    let began = fleet.recorder.now();
    let report = fleet.fleet.stop(&owner).await;
    let took = fleet.recorder.now().since(began);
    assert!(took < seconds(2), "{took:?}");
    assert!(report.abandoned.is_empty(), "{report}");
    assert_ne!(fleet.owner_in_store().await, Some(owner));
    fleet.is_read_by_the_other_host().await;
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_drained_host_hands_over_a_held_partition_that_a_foreign_reader_took() {
    let fleet = Fleet::balanced().await;
    fleet.fleet.host(&fleet.owner).pause(P0);
    fleet.fleet.pass(millis(10)).await;
    let reader = intrude(&fleet.fleet, 50).await;
    fleet.fleet.pass(seconds(10)).await;
    assert_eq!(fleet.fleet.snapshot(&fleet.owner).partitions[0].state, PumpState::Paused);
    assert!(fleet.recorder.closings(P0).is_empty(), "a held partition reads nothing, and notices nothing");
    fleet.fleet.admin().drain(&fleet.owner).await.unwrap();
    fleet.is_read_by_the_other_host().await;
    assert_eq!(fleet.recorder.closings(P0).first(), Some(&CloseReason::Handover));
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_was_taken_and_then_held_is_given_back_by_a_drained_host() {
    let (fleet, reader) = Fleet::displaced().await;
    fleet.fleet.host(&fleet.owner).pause(P0);
    fleet.fleet.admin().drain(&fleet.owner).await.unwrap();
    fleet.is_read_by_the_other_host().await;
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_hear_of_its_drain_takes_the_partition_back_and_hands_it_over_later() {
    let (fleet, reader) = Fleet::displaced().await;
    fleet.store.trouble(Op::Heartbeat, Trouble::Fails);
    fleet.fleet.admin().drain(&fleet.owner).await.unwrap();
    send(&fleet.fleet, P0, 5);
    until_finished(&fleet.fleet, &fleet.recorder, P0, 9).await;
    assert!(fleet.recorder.delivered_to(&fleet.owner, P0).ends_with(&events(5, 9)), "only heartbeats fail");
    assert!(fleet.recorder.context(P0).epoch() > Epoch::from_stored(50));
    fleet.store.heal();
    fleet
        .fleet
        .until("not drained", || fleet.fleet.snapshot(&fleet.owner).partitions.is_empty())
        .await
        .unwrap();
    fleet.fleet.pass(seconds(2)).await;
    assert_eq!(fleet.owner_in_store().await, Some(fleet.other.clone()));
    assert!(fleet.was_changed(&ChangeReason::HandedOver));
    assert!(!fleet.was_changed(&ChangeReason::Claimed(ClaimCause::Unresponsive)));
    drop(reader);
}
