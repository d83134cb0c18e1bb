//! The nouns, the decisions and the seams of Ephor.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time and
//! chance are arguments. That is what lets the simulation, the model checker
//! and the real host run the very same decisions.
//!
//! | to read about | open |
//! |---|---|
//! | who and where | [`ids`], [`epoch`], [`time`] |
//! | events and places in a log | [`event`], [`position`], [`resume`] |
//! | who owns a partition, and who may write | [`lease`], [`record`] |
//! | when an owner is dead | [`expiry`] |
//! | who should own what, and of which hub | [`balance`], [`handover`], [`same_hub`] |
//! | how far a group has come | [`checkpoint`], [`progress`] |
//! | who may read beside whom, and what a key chooses | [`receivers`], [`partition_key`] |
//! | what to do when user code fails, or a task panics | [`failure`], [`panics`] |
//! | what a backend implements | [`store`], [`source`] |

pub mod balance;
pub mod checkpoint;
pub mod epoch;
pub mod event;
pub mod expiry;
pub mod failure;
pub mod handover;
pub mod history;
pub mod host_record;
pub mod ids;
pub mod lease;
pub mod loopback;
pub mod panics;
pub mod partition_key;
pub mod position;
pub mod progress;
pub mod receivers;
pub mod record;
pub mod resume;
pub mod rules;
pub mod same_hub;
pub mod source;
pub mod store;
pub mod time;

/// A boxed future that can be sent between threads: what the seams return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any error, for causes that come from outside.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
