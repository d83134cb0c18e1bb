//! The lease protocol, searched to its end by a model checker, on the decisions of the real code.
//!
//! ```text
//!   State: hosts (slots, asks, answers) + the store (leases, seals, positions) + messages on their way
//!     │
//!     ├─ time passes ─ at any moment, for everybody alike
//!     ├─ a host looks ─► Watch ─► Fleet ─► plan ─► adopt, release, answer, ask, rob, claim
//!     ├─ a host renews; a pump delivers, saves, gives away, or finds its time over
//!     ├─ a person seeks; a host stops
//!     └─ a message lands, is given up and lands later, or is lost; an answer arrives or does not
//!              │
//!              ▼
//!     ephor_core::record::{claim, renew, transfer, release, seek, save}
//! ```
//!
//! What decides is the code of `ephor-core`: who may write, who is dead, who should own what, when silence
//! permits theft, when an owner must stop. What is written anew here is the thin shell around it: the order in
//! which a host asks. The simulation runs the real shell on chosen seeds; this runs all orders of a small one.
//!
//! The search is finite because nothing is counted that does not matter. Time is relative: an age grows until
//! nothing depends on it any more, so that any number of ticks may pass. A version of a lease is only "as it is
//! now" or "older". What is bounded is named in [`bounds::Bounds`]: changes of owner, messages on their way,
//! events of a partition, seeks and stops.
//!
//! | to read about | open |
//! |---|---|
//! | what is bounded, and how long a lease lasts | [`bounds`] |
//! | what a state is made of | [`state`] |
//! | what can happen | [`action`] |
//! | one step under way | [`turn`] |
//! | what the store does with a request | [`store`] |
//! | what a host sees when it looks | [`outlook`] |
//! | what a look leads to | [`scan`] |
//! | what pumps and the renewer do | [`pump`] |
//! | what is forgotten, and which states are alike | [`fold`] |
//! | what may as well happen at once | [`haste`] |
//! | what must hold, always | [`promises`] |
//! | that it comes right again from everywhere | [`recovery`] |
//! | the model that the checker searches | [`protocol`] |
//! | a search and what it found | [`search`] |
//! | a counterexample in words | [`story`] |
//! | bugs to plant | [`plants`] |

pub mod action;
pub mod bounds;
pub mod fold;
pub mod haste;
pub mod outlook;
pub mod plants;
pub mod promises;
pub mod protocol;
pub mod pump;
pub mod recovery;
pub mod scan;
pub mod search;
pub mod state;
pub mod store;
pub mod story;
pub mod turn;
