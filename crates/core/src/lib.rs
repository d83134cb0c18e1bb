//! The core of Ephor: its types, its decisions as pure functions, and the traits of stores, sources and
//! producers.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time and randomness are
//! arguments. So the simulation, the model checker and the real host run the very same decisions.
//!
//! | to read about | open |
//! |---|---|
//! | names, epochs, clocks | [`ids`], [`epoch`], [`time`] |
//! | events, and positions in a log | [`event`], [`position`], [`resume`] |
//! | ownership of partitions, and the rules of writing | [`lease`], [`record`], [`history`] |
//! | liveness of hosts, expiry of leases | [`host_record`], [`expiry`] |
//! | balance, handover, hosts that read different hubs | [`balance`], [`handover`], [`hub_tracker`] |
//! | checkpoints and lag | [`checkpoint`], [`progress`] |
//! | concurrent receivers, partition keys | [`receivers`], [`partition_key`] |
//! | retries and failure policies, panics, messages of errors | [`failure_policy`], [`panics`], [`causes`] |
//! | loopback addresses, rules that tests switch off | [`loopback`], [`rules`] |
//! | values as text, for serde | `duration_setting`, `serde_text` |
//! | traits that a backend implements | [`store`], [`source`], [`producer`] |

pub mod balance;
pub mod causes;
pub mod checkpoint;
#[cfg(feature = "serde")]
pub mod duration_setting;
pub mod epoch;
pub mod event;
pub mod expiry;
pub mod failure_policy;
pub mod handover;
pub mod history;
pub mod host_record;
pub mod hub_tracker;
pub mod ids;
pub mod lease;
pub mod loopback;
pub mod panics;
pub mod partition_key;
pub mod position;
pub mod producer;
pub mod progress;
pub mod receivers;
pub mod record;
pub mod resume;
pub mod rules;
#[cfg(feature = "serde")]
mod serde_text;
pub mod source;
pub mod store;
pub mod time;

/// A boxed future that can be sent between threads, as the methods of [`store`], [`source`] and
/// [`producer`] return it.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any error, for causes that come from outside this crate.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
