//! The conformance suites for event sources.
//!
//! A source writes a [`SourceFixture`] and runs a suite in one line: one test per property, named as
//! a sentence.
//!
//! | suite | for | properties |
//! |---|---|---|
//! | [`source_conformance!`](crate::source_conformance) | every source | [`reading`], [`positions`], [`retention`], [`gaps`] |
//! | [`event_hubs_conformance!`](crate::event_hubs_conformance) | Event Hubs and hubs that behave like it | [`event_hubs`], [`epochs`] |
//!
//! The properties read no clock, and they allow a source to prefetch, so they hold for a hub in
//! memory and for one across a network alike.

pub mod epochs;
pub mod event_hubs;
pub mod gaps;
pub mod positions;
pub mod reading;
mod receiver_steps;
pub mod retention;

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::source::EventSource;

/// A property that takes longer than this hangs: a task was not woken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub on which the properties run. Every property creates its own.
pub trait SourceFixture: Sized {
    /// A hub with this many empty partitions.
    fn new(partitions: u32) -> impl Future<Output = Self>;

    /// The source under test.
    fn source(&self) -> &dyn EventSource;

    /// A consumer group that exists besides `$Default`.
    fn second_group(&self) -> ConsumerGroup;

    /// Stores an event in this partition. When it returns, the event can be received.
    fn send(&self, partition: PartitionId, event: NewEvent) -> impl Future<Output = ()>;

    /// Stores an event in the partition that its key chooses.
    fn send_with_key(&self, key: &str, body: Bytes) -> impl Future<Output = ()>;

    /// True if [`forget_before`](Self::forget_before) works here.
    fn can_forget(&self) -> bool {
        false
    }

    /// Removes the events before this one, as retention does.
    fn forget_before(&self, partition: PartitionId, sequence: SequenceNumber) -> impl Future<Output = ()> {
        async move { panic!("this fixture cannot delete the events before {sequence:?} of {partition:?}") }
    }

    /// True if [`lose`](Self::lose) works here.
    fn can_lose(&self) -> bool {
        false
    }

    /// Removes events from the middle of a partition, as damage or a compaction does.
    fn lose(&self, partition: PartitionId, numbers: Range<SequenceNumber>) -> impl Future<Output = ()> {
        async move { panic!("this fixture cannot lose the events {numbers:?} of {partition:?}") }
    }

    /// Waits between two checks of something that takes effect soon.
    fn pause(&self) -> impl Future<Output = ()> {
        tokio::task::yield_now()
    }
}

/// Runs one property. A receiver that is never woken fails it instead of hanging the run.
#[expect(clippy::disallowed_methods, reason = "bounds a test that hangs; no property depends on it")]
pub async fn check(property: impl Future<Output = ()>) {
    if tokio::time::timeout(PATIENCE, property).await.is_err() {
        panic!("nothing happened for {PATIENCE:?}: a receiver that waits was not woken");
    }
}

/// Runs every property that all event sources have on a
/// [`SourceFixture`]: one `#[tokio::test]` each. The
/// calling crate needs tokio with `macros` and `rt`.
#[macro_export]
macro_rules! source_conformance {
    ($fixture:ty) => {
        $crate::source_conformance! { @tests $fixture;
            reading:
                the_hub_lists_its_partitions_in_order_and_keeps_its_log_id
                an_empty_partition_begins_at_zero_and_has_no_last_event
                a_filled_partition_tells_its_first_and_its_last_event
                events_come_complete_and_in_order
                partitions_do_not_mix
                no_more_events_come_than_were_asked_for
                a_receive_only_appends
                a_waiting_receive_is_woken_by_news
                dropping_a_waiting_receive_loses_nothing
                dropping_a_ready_receive_loses_nothing
                bodies_are_kept_byte_for_byte
                properties_are_kept_with_names_values_and_order
                keys_are_kept_and_choose_one_partition
                two_groups_each_receive_everything
                the_newest_event_is_told_truthfully_or_not_at_all
                any_epoch_opens_where_nobody_reads
                without_fencing_a_reader_opens_whatever_the_epochs_of_the_others
                unknown_partitions_do_not_exist;
            positions:
                earliest_begins_at_the_first_event
                latest_yields_only_news
                every_sequence_number_can_be_started_at_and_after
                every_offset_can_be_started_at_and_after
                a_start_behind_the_last_event_yields_only_news
                a_start_beyond_the_end_does_not_exist
                an_offset_that_is_none_does_not_exist
                a_start_by_time_begins_at_the_first_event_of_that_time_or_later
                an_empty_partition_can_be_started_at_its_next_event;
            retention:
                forgetting_moves_the_first_event_and_not_the_last
                earliest_begins_at_the_oldest_event_kept
                a_forgotten_start_begins_at_the_oldest_event_kept
                an_overtaken_receiver_goes_on_at_the_oldest_event_kept
                a_partition_that_forgot_everything_counts_on;
            gaps:
                a_gap_is_passed_over_and_the_numbers_show_it
                a_start_inside_a_gap_begins_at_the_next_event
                a_gap_at_the_end_stays_a_gap;
        }
    };
    (@tests $fixture:ty; $($module:ident: $($property:ident)+;)+) => {
        $($(
            #[tokio::test]
            async fn $property() {
                $crate::conformance::source::check(
                    $crate::conformance::source::$module::$property::<$fixture>(),
                )
                .await;
            }
        )+)+
    };
}

/// Runs every property that Event Hubs adds to those of
/// [`source_conformance!`](crate::source_conformance): epochs in the words of the service, consumer
/// groups, the partition of a key, the fields of a message.
#[macro_export]
macro_rules! event_hubs_conformance {
    ($fixture:ty) => {
        $crate::source_conformance! { @tests $fixture;
            event_hubs:
                the_source_says_that_it_fences_readers
                a_key_chooses_the_partition_that_the_service_would_choose
                unknown_groups_do_not_exist
                system_properties_are_kept_with_names_and_values
                offsets_begin_at_zero_and_are_bounds;
            epochs:
                a_higher_epoch_disconnects_the_owner_and_says_who
                an_equal_epoch_disconnects_the_owner_too
                a_lower_epoch_is_refused_and_told_who_is_there
                a_waiting_owner_is_woken_when_it_is_disconnected
                a_disconnected_receiver_stays_disconnected
                what_comes_after_a_takeover_reaches_only_the_new_owner
                closing_a_disconnected_receiver_leaves_its_successor_alone
                a_closed_owner_leaves_room_for_any_epoch
                a_dropped_owner_leaves_room_for_any_epoch
                five_receivers_without_epoch_each_receive_everything
                a_sixth_receiver_without_epoch_is_refused_and_told_the_five
                closing_one_of_five_lets_another_in
                a_receiver_without_epoch_is_refused_beside_an_owner
                a_receiver_without_epoch_opens_once_the_owner_has_left
                an_epoch_disconnects_all_receivers_without_one
                groups_and_partitions_have_owners_of_their_own
                a_receiver_without_a_name_is_shown_as_nil
                a_start_that_does_not_exist_disconnects_nobody;
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_property_is_in_the_list() {
        let list = include_str!("mod.rs");
        for file in [
            include_str!("reading.rs"),
            include_str!("positions.rs"),
            include_str!("retention.rs"),
            include_str!("gaps.rs"),
            include_str!("event_hubs.rs"),
            include_str!("epochs.rs"),
        ] {
            for property in file.split("pub async fn ").skip(1) {
                let name = property.split('<').next().unwrap();
                let listed = list.lines().any(|line| line.trim().trim_end_matches(';') == name);
                assert!(listed, "{name} is not run");
            }
        }
    }
}
