//! Tests of the host on a hub in memory, mostly in virtual time, one file per subject. One test binary, to
//! save build time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

// The name by which applications know it.
extern crate ephor_host as ephor;

mod blocked_thread;
mod checkpoint_policies;
mod checkpoints;
mod closing;
mod common;
mod concurrent_checkpoints;
mod foreign_readers_and_leaving_hosts;
mod gaps;
mod handles;
mod handover;
mod hanging_and_panicking_processors;
mod hub_trouble;
mod hubs_of_the_same_name;
mod lifecycle;
mod link_faults;
mod memory_hub;
mod memory_store;
mod migration_guide;
mod ownership;
mod ownership_races;
mod panicking_store;
mod positions;
mod positions_gone;
mod processor_failures;
mod rate_limited_checkpoints;
mod recording_processor;
mod renewals;
mod rewinds;
mod seek_drain_and_pause;
mod signals;
mod slow_shutdowns;
mod snapshots_and_changes;
mod start_information;
mod start_timeout;
mod starting;
mod stopping;
mod store_costs;
mod store_trouble;
mod switched_off_rules;
mod takeover;
mod timeouts;
mod unfenced_readers;
mod unhealthy_hosts;
