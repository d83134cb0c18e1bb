//! The parts of the test that kills processes.
//!
//! | file | owns |
//! |---|---|
//! | `chain.rs` | events that prove their place by a hash of all before them |
//! | `myself.rs` | starting this binary again, as another process |
//! | `words.rs` | what parent and child tell each other |
//! | `sender.rs` | what the process does that will be killed |
//! | `ledger.rs` | what must be found again, and whether it is |
//!
//! `small_disk.rs` belongs to the tests of the full disk, which share nothing else.

pub(crate) mod chain;
pub(crate) mod ledger;
pub(crate) mod myself;
pub(crate) mod sender;
pub(crate) mod words;
