//! A store in an Azure Storage account, in the same blobs that the checkpoint stores of other SDKs use.
//!
//! ```text
//!   BlobStore ── session.rs: cached records, used as conditions
//!      │   read (operations/partition_state.rs) ── decide by ephor_core::record ── write, if it is unchanged
//!      └── service/: one request, one condition, signed ──► the service
//! ```
//!
//! # The blobs of a partition
//!
//! The service changes one blob at a time, on the condition that it is in a certain state (its ETag):
//! a compare-and-set. A partition has three blobs that count; its owner may have a fourth.
//!
//! | blob | holds | written by |
//! |---|---|---|
//! | epoch | the highest epoch ever taken | every change of owner but a release |
//! | ownership | owner and epoch | every change of owner; in the second way of renewing every renewal |
//! | checkpoint | position and fence: the epoch that may save | saves, and every change of owner but a release |
//! | renewal batch | the renewals of one host, for up to 256 partitions | its host's renewals, and revocations |
//!
//! # Two ways of renewing
//!
//! | | in batches (`shared-with = ephor`, the default) | one by one (`shared-with = other-sdks`) |
//! |---|---|---|
//! | for | groups that only Ephor's hosts own | groups that are shared with other SDKs' processors |
//! | a renewal writes | the host's renewal batch: one request for up to 256 leases | the ownership blob: one request for each lease |
//! | requests of a host at rest | 16 to 18 a minute, with up to 256 leases | 106 a minute with 16 leases, 1,546 with 256 |
//! | a renewal and a takeover conflict at | the renewal batch | the ownership blob |
//! | a takeover first | revokes the lease in its owner's batch, then writes the ownership | writes the ownership |
//! | the version of a lease | ETag of the ownership, and the beat of its last renewal in the batch | ETag of the ownership |
//! | the age of a lease | time of its last renewal in the batch, or of the ownership if that is later | Last-Modified of the ownership |
//! | other SDKs see | leases that look expired, because the ownership blob does not change | leases that are renewed |
//! | code | `renewal/batched.rs`, `renewal/batch.rs`, `renewal/revocations.rs` | `renewal/renew.rs` |
//!
//! The reason for the second way: other SDKs judge a lease by when its ownership blob was written.
//! Each ownership blob says whether its owner renews in a batch (`on_roll`, a stored name). Hosts of both
//! kinds therefore take leases from each other by the right rule, also while the option is changed.
//!
//! An owner renews from its cache only leases that it wrote itself or has read since, and that are not
//! revoked. While the outcome of one of its own writes is unknown, it reads the lease first
//! (`records/record_cache.rs`). An owner that gives its own lease away need not revoke it, because it is the
//! one that renews. Another SDK or a person that overwrites an ownership blob revokes nothing: the owner
//! notices with its next view.
//!
//! # Why it is safe
//!
//! Every change of owner writes the blobs in this order:
//!
//! ```text
//!            0. owner's batch    1. epoch          2. ownership         3. checkpoint
//!   claim    revoke, if owned ─► take the next ──► we own it ─────────► raise the fence, then read ──► Won
//!   transfer (by the owner)      take the next ──► the successor owns ► raise the fence
//!   release  (by the owner)                        nobody owns it
//!   seek     (3) revoke ◄─────── take the next     (4) nobody owns it   (2) raise the fence, new position
//!   renew    write again
//!   save                                                                new position, if the fence is our epoch
//! ```
//!
//! 1. *An epoch is taken once.* Step 1 is one compare-and-set on a number that only grows, in a blob that
//!    no other SDK knows. A process that stops after it leaves a gap. If another SDK overwrites the
//!    ownership blob, that blob loses its epoch, and the number remains.
//! 2. *Ownership changes once.* Step 2 is one compare-and-set against the state that was read before the
//!    epoch was taken. So a later owner has a later epoch: it took its epoch after it read the earlier
//!    owner's record, which was written after the earlier epoch was taken. A process that loses here has
//!    changed only the number and the batch.
//! 3. *The fence follows, and only rises.* Between 2 and 3 the old owner may still save; the new one has
//!    not read yet. Step 3 is one compare-and-set that raises the fence and keeps the position, and that
//!    position is where the new owner starts. From then on a save of an earlier epoch fails, because it is
//!    conditional on the state before the fence was raised. A process that dies between 2 and 3 leaves a
//!    lease that nobody serves; the next view raises the fence for it (`operations/fence_repairs.rs`). A claim must
//!    not raise the fence before it owns the lease: it would lock out a live owner and might then lose.
//! 4. *A seek is one step*: the write of the checkpoint. It locks the owner out and sets the position for
//!    every later claim. Removing the owner from the lease only lets it notice sooner; if the seeking
//!    process dies before, the owner notices at its next save.
//! 5. *A renewal and a takeover conflict at the batch.* Step 0 is one compare-and-set against the state by
//!    which the lease was judged, so it fails if the lease was renewed meanwhile. Every renewal is one,
//!    too, so it fails if the lease was revoked meanwhile. Therefore step 2 runs only when no renewal of
//!    the owner can succeed any more. The version of a lease consists of the ETag of its ownership and the
//!    beat of its last renewal: revocations of other leases do not fail a claim, and every renewal does.
//! 6. *A revocation stays as long as it is needed*: its owner drops it from the batch after it has seen a
//!    later state of the ownership, and a batch is deleted only if its host has no record, no lease names
//!    that host, and nobody has written it for an hour: by then every host reads a lease again before it
//!    renews it in a new batch. A process that dies between 0 and 2 leaves a lease that nobody can renew: it keeps its
//!    age (each revoked entry has the time of its last renewal), its owner releases it when it notices,
//!    and otherwise it expires.
//!
//! Renewals write only the batch or the ownership, saves only the checkpoint: they do not conflict, and
//! a save is no sign of life. Neither is a revocation: it stores when the owner renewed last. If an
//! answer is lost, the next conditional write is refused, reads the blob, and finds its own write.
//!
//! # Time
//!
//! Times are the service's, in whole seconds. The age of a record is the Date of the answer minus the
//! blob's Last-Modified. Both are rounded down, so the difference may be a second too large; one second
//! is subtracted, so that no owner counts as dead too early. No record contains a time of this machine.

mod address;
mod address_values;
mod layout;
mod legacy;
mod operations;
mod options;
mod records;
mod renewal;
mod service;
mod session;
mod store;

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::time::Duration;

pub use crate::url::DEFAULT_CONTAINER;
pub use address::{BlobAddress, Layout};
pub use layout::blob_names::Case;
pub use legacy::LegacyContainer;
pub use options::{
    BlobOptions, DEFAULT_CALL_LIMIT, DEFAULT_MAX_CONCURRENT_REQUESTS, DEFAULT_SERVICE_VERSION,
    InvalidSettings, SharedWith,
};
pub use service::credential::{AccountKey, BlobCredential, Sas};
pub use store::BlobStore;

/// The trait of credentials for [`BlobCredential::Entra`].
pub use azure_core::credentials::TokenCredential;

/// The service's times are whole seconds.
const CLOCK_RESOLUTION: Duration = Duration::from_secs(1);
