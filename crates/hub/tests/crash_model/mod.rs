//! What the tests of crashes and of bit rot share: a workload, what it was promised, and how that is checked.
//!
//!   script ─► life: a namespace on watched files, until it ends ─► model: what was promised
//!                 ending: the power fails, or the process dies ─► the next life checks the model
//!
//! | file | owns |
//! |---|---|
//! | `stage.rs` | the clock: it also tells when a committer rests, and holds it back |
//! | `watched.rs` | the files: they count steps, end with a process, and let readers look before a sync |
//! | `event.rs` | bodies that say which event they are |
//! | `model.rs` | what was promised, and whether it is kept |
//! | `script.rs` | what a life does; the variants |
//! | `life.rs` | one life of a process |
//! | `reading.rs` | reading all that a hub serves |
//! | `point.rs` | one crash: where, and what it leaves |
//! | `workers.rs` | many of them at once |
//! | `folder.rs` | a small folder to damage, and what is expected of it |
#![allow(dead_code, unreachable_pub, reason = "each test uses its own part")]

#[path = "../common/faulty_files.rs"]
pub mod faulty_files;

pub mod event;
pub mod folder;
pub mod life;
pub mod model;
pub mod point;
pub mod reading;
pub mod script;
pub mod stage;
pub mod watched;
pub mod workers;

/// What went wrong, in words.
pub type Checked<T = ()> = Result<T, String>;
