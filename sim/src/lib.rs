//! Whole fleets on virtual time and a seed, on the real host code.
//!
//! ```text
//!   seed ─► Executor ─ picks one ready task at random, polls it; nothing ready: time moves on
//!             │
//!             ├─ machine "host-0" ─ SimEnvironment ─► a host, its pumps, its processors
//!             ├─ machine "host-1" ─ SimEnvironment      │           │
//!             │      each may pause, crash, drift       ▼           ▼
//!             └─ the world ◄───────────────────── FaultyStore   SlowSource
//!                  requests on their way, store, hub: they go on when a caller is gone
//! ```
//!
//! One seed is one run: the same interleaving, the same faults, the same bytes
//! in the [`history`]. A failing seed tells its story by being run again.
//!
//! | to read about | open |
//! |---|---|
//! | who runs next, pausing and crashing, virtual time | [`executor`] |
//! | clocks that are off, drift or jump | [`clock`] |
//! | what a simulated host runs on | [`environment`] |
//! | what can go wrong on the way | [`faults`] |
//! | a call that outlives its caller | `network` |
//! | a store behind a bad network | [`store`] |
//! | a hub behind a bad network | [`source`] |
//! | everything that can go wrong | [`menu`] |
//! | what a seed stands for | [`scenario`] |
//! | carrying it out, and undoing it | `acts` |
//! | the user's code, and how it fails | [`processor`] |
//! | playing a seed | [`run`] |
//! | a play that may panic | [`attempt`] |
//! | the least that still fails | [`reduce`] |
//! | a failure in words | [`story`] |
//! | how many moves a change takes, and how long nobody reads | [`moves`] |
//! | how a fleet grows, and what that costs | [`scale`] |
//! | what must hold, always | [`judge`] |
//! | a processor or a store of your own in all this | [`kit`], `guest`, `watched` |
//! | bugs that it must notice | [`plants`] |
//! | which fault hit what | [`coverage`] |
//! | what happened, line by line | [`history`] |
//! | comparing two runs | [`fingerprint`] |

mod acts;
pub mod attempt;
pub mod clock;
pub mod coverage;
pub mod environment;
mod events;
pub mod executor;
pub mod faults;
pub mod fingerprint;
mod fleet;
mod guest;
pub mod history;
pub mod judge;
pub mod kit;
pub mod menu;
pub mod moves;
mod network;
pub use ephor_core::rules::plants;
pub mod processor;
pub mod reduce;
pub mod run;
pub mod scale;
pub mod scenario;
pub mod source;
mod stopping;
pub mod store;
pub mod story;
mod watched;
