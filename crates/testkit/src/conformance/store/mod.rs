//! The conformance suite for stores.
//!
//! A backend provides a [`StoreFixture`] and runs every property in one line
//! ([`store_conformance!`](crate::store_conformance)); each is a test of its own, so that a failure
//! has a name. Features that a store does not declare in its
//! [`Capabilities`](ephor_core::store::Capabilities) are not tested.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed property")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::ids::GroupId;
use ephor_core::store::Store;

mod first_calls;
mod two_stores;

pub use two_stores::TwoStores;

#[doc(hidden)]
pub mod checkpoints;
#[doc(hidden)]
pub mod claims;
#[doc(hidden)]
pub mod groups;
#[doc(hidden)]
pub mod history;
#[doc(hidden)]
pub mod hosts;
#[doc(hidden)]
pub mod positions;
#[doc(hidden)]
pub mod seeks;
#[doc(hidden)]
pub mod times;
#[doc(hidden)]
pub mod tokens;
#[doc(hidden)]
pub mod wakes;

/// Gives the suite access to a store. Every property gets a fixture of its own.
pub trait StoreFixture {
    /// The store. It need not be empty: every property uses groups of its own.
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>>;

    /// Lets this much time pass on the store's clock: a virtual clock is set forward, a real one is
    /// waited for. The suite asks for a few multiples of the store's clock resolution, and for at
    /// most tenths of a second if that is fine.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// A group that was never used, in this run or in any before.
    fn group(&self) -> GroupId {
        let random = RandomState::new().build_hasher().finish();
        GroupId {
            namespace: format!("{random:016x}.example.net").parse().unwrap(),
            hub: "conformance".parse().unwrap(),
            group: "$Default".parse().unwrap(),
        }
    }
}

/// Runs one property to its end. Called by [`store_conformance!`](crate::store_conformance).
#[doc(hidden)]
pub fn run(property: impl Future<Output = ()>) {
    run_boxed(Box::pin(property));
}

/// Not generic, so that it is compiled once and not for each property of each suite.
fn run_boxed(property: Pin<Box<dyn Future<Output = ()> + '_>>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(property);
}

/// Proves that a store keeps the promises of [`Store`]: one test for each.
///
/// Give it an expression that creates a [`StoreFixture`]; it is evaluated again for every test,
/// inside a tokio runtime.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use ephor::memory::MemoryStore;
/// use ephor_core::BoxFuture;
/// use ephor_core::store::Store;
/// use ephor_testkit::conformance::store::StoreFixture;
///
/// #[derive(Default)]
/// struct InMemory(MemoryStore);
///
/// impl StoreFixture for InMemory {
///     fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
///         let store = self.0.clone();
///         Box::pin(async move { Arc::new(store) as Arc<dyn Store> })
///     }
///     fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
///         Box::pin(tokio::time::sleep(time))
///     }
/// }
///
/// ephor_testkit::store_conformance!(InMemory::default());
/// ```
///
/// To run it twice in one file, give each run a module of its own.
#[macro_export]
macro_rules! store_conformance {
    (@theme $fixture:expr; $theme:ident: $($property:ident)*) => {
        mod $theme {
            #[allow(unused_imports, reason = "the fixture may be named by its full path")]
            use super::*;

            $(
                #[test]
                fn $property() {
                    $crate::conformance::store::run(async {
                        $crate::conformance::store::$theme::$property(&$fixture).await;
                    });
                }
            )*
        }
    };
    ($fixture:expr $(,)?) => {
        $crate::store_conformance! { @theme $fixture; claims:
            a_first_claim_wins_in_epoch_one_or_more
            a_claim_with_a_stale_version_loses_and_says_who_holds_it
            a_claim_that_saw_no_record_loses_to_the_one_that_is_there
            a_claim_that_saw_a_record_where_there_is_none_loses
            a_claim_goes_above_the_epoch_it_is_told
            no_owner_and_no_seek_has_an_epoch_beyond_the_highest
            a_host_may_claim_its_own_partition_anew
            of_many_first_claims_at_once_exactly_one_wins
            of_many_takeovers_at_once_exactly_one_wins
            of_a_steal_and_a_transfer_at_once_exactly_one_succeeds
            of_a_takeover_and_a_renewal_at_once_exactly_one_succeeds
            a_steal_leaves_a_takeover_delay_for_the_previous_owner
            a_takeover_delay_ends
            a_claim_on_an_expired_owner_leaves_no_takeover_delay
            a_takeover_delay_outlasts_a_release_and_the_next_claim
        }
        $crate::store_conformance! { @theme $fixture; tokens:
            every_change_of_owner_raises_the_epoch_and_none_is_used_twice
            a_token_whose_epoch_is_over_changes_nothing
            a_token_of_another_incarnation_changes_nothing
            a_token_of_an_epoch_to_come_changes_nothing
            a_token_of_an_unknown_partition_changes_nothing
            a_renewal_changes_the_version_and_no_ownership
            one_renewal_answers_for_each_token_in_order
            a_transfer_gives_the_lease_to_its_new_owner
            a_release_leaves_the_partition_to_nobody
            a_release_names_its_successor_until_the_next_claim
        }
        $crate::store_conformance! { @theme $fixture; checkpoints:
            the_owner_saves_and_everybody_reads
            a_save_never_moves_back
            a_rewind_moves_back_for_the_owner_alone
            a_save_does_not_fall_behind_where_a_person_said_to_start
            a_start_ahead_of_what_is_finished_is_saved
            an_equal_save_is_fine
            in_another_log_there_is_no_back
            a_save_leaves_the_lease_alone
            a_late_save_of_an_earlier_owner_is_fenced
            a_save_in_an_epoch_to_come_is_fenced
            a_save_for_an_unknown_partition_is_fenced
            a_checkpoint_outlives_every_change_of_owner
            after_a_release_its_epoch_still_saves_until_the_next_claim
            a_claim_reads_the_checkpoint_after_the_fence
        }
        $crate::store_conformance! { @theme $fixture; positions:
            every_position_that_is_saved_reads_back
            every_position_that_is_sought_reads_back
            log_ids_read_back
        }
        $crate::store_conformance! { @theme $fixture; seeks:
            a_seek_takes_a_new_epoch_and_leaves_no_owner
            a_seek_may_move_back
            a_seek_names_who_may_still_be_at_work
            a_seek_on_a_partition_without_records_is_fine
            of_a_seek_and_a_save_at_once_the_seek_stands
        }
        $crate::store_conformance! { @theme $fixture; hosts:
            a_heartbeat_reads_back_field_by_field
            a_heartbeat_replaces_the_one_before
            every_state_and_odd_text_reads_back
            extreme_figures_read_back
            two_incarnations_under_one_name_are_two_hosts
            who_retires_is_gone_and_keeps_its_leases
            a_desired_state_reaches_its_host_with_the_next_heartbeat
            a_desired_state_for_an_unknown_host_is_refused
            a_desired_state_does_not_outlive_its_host
        }
        $crate::store_conformance! { @theme $fixture; times:
            ages_grow_and_a_renewal_resets_them
            a_heartbeat_makes_its_record_fresh
            changes_are_dated_by_the_clock_of_the_store
        }
        $crate::store_conformance! { @theme $fixture; groups:
            a_group_without_records_is_empty_and_not_listed
            groups_with_records_are_listed
            a_view_is_sorted
            the_first_origin_stays
            of_many_origins_at_once_one_stays
            groups_that_differ_in_one_name_are_independent
            groups_whose_names_join_to_the_same_text_are_never_mixed_up
            groups_that_differ_only_in_case_are_never_mixed_up
            the_longest_names_are_kept_apart
        }
        $crate::store_conformance! { @theme $fixture; history:
            every_kind_of_change_is_remembered
            history_is_newest_first_and_no_longer_than_asked
            history_of_one_partition_names_no_other
            what_was_refused_is_no_history
        }
        $crate::store_conformance! { @theme $fixture; wakes:
            a_transfer_wakes_the_new_owner
            a_want_wakes_the_owner_when_it_is_new
            a_release_wakes_the_successor
            a_seek_wakes_the_owner
            a_desired_state_wakes_its_host
            a_change_between_two_calls_is_not_missed
            who_already_waits_is_woken
            nobody_else_is_woken
            a_store_that_cannot_wake_leaves_everybody_waiting
        }
    };
}

#[cfg(test)]
mod tests {
    /// A property that is not in the list would never run, and nobody would notice.
    #[test]
    fn the_macro_lists_every_property() {
        let suite = include_str!("mod.rs");
        let (_, list) = suite.split_once("@theme $fixture; claims").unwrap();
        let listed: Vec<&str> = list.split_whitespace().collect();
        let themes = [
            include_str!("checkpoints.rs"),
            include_str!("claims.rs"),
            include_str!("groups.rs"),
            include_str!("history.rs"),
            include_str!("hosts.rs"),
            include_str!("positions.rs"),
            include_str!("seeks.rs"),
            include_str!("times.rs"),
            include_str!("tokens.rs"),
            include_str!("wakes.rs"),
        ];
        for theme in themes {
            for rest in theme.split("\npub async fn ").skip(1) {
                let (property, _) = rest.split_once('(').unwrap();
                assert!(listed.contains(&property), "{property} is not in store_conformance!");
            }
        }
    }
}
