//! Time limits and attempt limits that the host and its pumps share.

use std::time::Duration;

use ephor_core::failure_policy::Backoff;

/// The time that `close` gets even if the time for the call in flight is used up.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(3);
/// The number of times that a partition is taken back from a foreign reader before it is left
/// alone.
pub(crate) const MAX_FOREIGN_ATTEMPTS: u32 = 5;
/// The backoff before a partition is taken back from a foreign reader.
pub(crate) const FOREIGN_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), max: Duration::from_secs(8) };
/// The time without a failure of a partition after which its earlier failures are forgotten.
pub(crate) const FAILURES_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
