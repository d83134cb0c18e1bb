//! Deterministic simulation of whole fleets on virtual time, from a seed, with the real host code.
//!
//! ```text
//!   seed ─► Executor ─ picks one ready task at random, polls it; nothing ready: time moves on
//!             │
//!             ├─ machine "host-0" ─ SimEnvironment ─► a host, its pumps, its processors
//!             ├─ machine "host-1" ─ SimEnvironment      │           │
//!             │      each may pause, crash, drift       ▼           ▼
//!             └─ the world ◄───────────────────── FaultyStore   FaultySource
//!                  requests in flight, store, hub: they go on when a caller is gone
//! ```
//!
//! One seed is one run: the same interleaving, the same faults, the same bytes in the [`history`]. Running a
//! failing seed again reports its failure.
//!
//! | to read about | open |
//! |---|---|
//! | scheduling, pausing and crashing, virtual time | [`executor`] |
//! | clocks that are off, drift or jump | [`clock`] |
//! | the environment of a simulated host | [`environment`] |
//! | the faults that one call can meet | [`call_faults`] |
//! | a call that outlives its caller | `network` |
//! | a store behind a bad network | [`store`] |
//! | a hub behind a bad network | [`source`] |
//! | the catalogue of faults | [`fault_catalog`] |
//! | the scenario that a seed stands for | [`scenario`] |
//! | fault injection | `injection` |
//! | the simulated user code, and how it fails | [`processor`] |
//! | playing a seed | [`run`] |
//! | a run that may panic | [`run_result`] |
//! | shrinking a failing scenario | [`shrink`] |
//! | a failure in words | [`failure_report`] |
//! | the moves that a change takes, and the time without a reader | [`rebalance_cost`] |
//! | fleets of growing size, and their cost | [`scale`] |
//! | the promises that must always hold | [`judge`] |
//! | a processor or a store of your own in all this | [`testing`], `user_code`, `observed_processor` |
//! | mutations that the judge must notice | [`mutations`] |
//! | which fault hit which state | [`coverage`] |
//! | the log of a run, line by line | [`history`] |
//! | comparing two runs | [`fingerprint`] |

pub mod call_faults;
pub mod clock;
pub mod coverage;
pub mod environment;
mod events;
pub mod executor;
pub mod fault_catalog;
pub mod fingerprint;
mod fleet;
pub mod history;
mod injection;
pub mod judge;
mod network;
mod observed_processor;
pub mod rebalance_cost;
pub mod run_result;
pub mod testing;
pub use ephor_core::rules::mutations;
pub mod failure_report;
pub mod processor;
pub mod run;
pub mod scale;
pub mod scenario;
pub mod shrink;
pub mod source;
mod starting;
mod stopping;
pub mod store;
mod user_code;
