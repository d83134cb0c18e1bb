//! A model of the lease protocol, searched exhaustively by a model checker. It calls the decision code of `ephor-core`.
//!
//! ```text
//!   State: hosts (slots, asks, answers) + the store (leases, fences, positions) + messages in flight
//!     │
//!     ├─ a tick passes ─ at any moment, for all hosts
//!     ├─ a host scans ─► LivenessTracker ─► Fleet ─► plan ─► adopt, release, answer, ask, steal, claim
//!     ├─ a host renews; a pump delivers, saves, gives away, or reaches its deadline
//!     ├─ an operator seeks; a host stops
//!     └─ a message arrives, times out and arrives later, or is lost; an answer arrives or does not
//!              │
//!              ▼
//!     ephor_core::record::{claim, renew, transfer, release, seek, save}
//! ```
//!
//! The code of `ephor-core` decides: who may write, which host is dead, which host should own a partition, when a
//! partition may be stolen, when an owner must stop. The model adds only a thin shell: the order in which a host calls it.
//! The simulation runs the real shell on chosen seeds; the model tries all orders of a small one.
//!
//! The search is finite because the state has only what matters. Time is relative: an age grows until nothing depends on
//! it any more, so that any number of ticks may pass. The version of a lease is only "current" or "outdated".
//! [`bounds::Bounds`] limits the rest: changes of owner, messages in flight, events of a partition, seeks and stops.
//!
//! | to read about | open |
//! |---|---|
//! | the limits of the search, and the durations in ticks | [`bounds`] |
//! | the state: hosts, store, messages | [`state`] |
//! | the possible actions in a state | [`action`] |
//! | one step: an action and its effects | [`step`] |
//! | the store: it carries out requests | [`store`] |
//! | what a host sees in a scan, and the plan for it | [`host_view`] |
//! | the scan of a host: reconcile, answer, ask, claim | [`scan`] |
//! | pumps and the renewer | [`pump`] |
//! | state reduction: time, and equivalent states | [`state_reduction`] |
//! | partial-order reduction: steps that are taken at once | [`eager_steps`] |
//! | the properties that must hold | [`properties`] |
//! | the recovery from every state | [`recovery`] |
//! | the model that the checker searches | [`protocol`] |
//! | a search and its findings | [`search`] |
//! | a counterexample as text | [`counterexample`] |
//! | the rules that can be switched off | [`mutations`] |

pub mod action;
pub mod bounds;
pub mod counterexample;
pub mod eager_steps;
pub mod host_view;
pub mod mutations;
pub mod properties;
pub mod protocol;
pub mod pump;
pub mod recovery;
pub mod scan;
pub mod search;
pub mod state;
pub mod state_reduction;
pub mod step;
pub mod store;
