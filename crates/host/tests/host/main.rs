//! Tests of the host on a memory hub and virtual time, one file per subject. One program, so that
//! it is built once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

// The name by which applications know it.
extern crate ephor_host as ephor;

mod blocked_thread;
mod checkpoint_policies;
mod checkpoints;
mod closing;
mod common;
mod crossed_purposes;
mod epochless;
mod failures;
mod gaps;
mod handover;
mod hub_trouble;
mod lifecycle;
mod link_faults;
mod long_stops;
mod lost_ground;
mod memory_hub;
mod memory_store;
mod migration;
mod mutations;
mod observing;
mod operating;
mod own_commits;
mod ownership;
mod panicking_store;
mod poor_processors;
mod positions;
mod recorder;
mod renewing;
mod rewinds;
mod signals;
mod sought;
mod spaced_checkpoints;
mod starting;
mod stopping;
mod store_costs;
mod store_trouble;
mod takeover;
mod timeouts;
mod two_hubs;
mod unhealthy;
