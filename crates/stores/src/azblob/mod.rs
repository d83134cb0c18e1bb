//! A store in an Azure Storage account, in the blobs that the other SDKs' checkpoint stores use.
//!
//! ```text
//!   BlobStore ── session.rs: what is known, used as a condition
//!      │   read (standing.rs) ── decide by ephor_core::record ── write, if it is still as it was read
//!      └── container.rs: one request, one condition ── signing.rs ──► the service
//! ```
//!
//! # Why it is safe
//!
//! The service changes one blob at a time, on the condition that it is in a certain state (its ETag). A partition has three
//! that count, and its owner has a fourth, its *roll* (`roll.rs`), on which it renews up to 256 leases with one write. Every
//! change of owner writes them in this order:
//!
//! ```text
//!            0. owner's roll     1. epoch          2. ownership            3. checkpoint
//!   claim    struck, if owned ─► take the next ──► we own it, in it ─────► sealed with it, and only now read ──► Won
//!   transfer (the owner knows)   take the next ──► the heir owns it ─────► sealed with it
//!   release  (the owner knows)                     nobody owns it
//!   seek     (3) struck ◄─────── take the next     (4) nobody owns it      (2) sealed with it, at the new position
//!   renew    written anew
//!   save                                                                   the new position, if it is sealed with our epoch
//! ```
//!
//! 1. *An epoch is taken once.* Each step 1 is one compare-and-set on a number that only grows, in a blob that no other
//!    SDK knows. Whoever stops after it leaves a gap. A record that another SDK rewrites in step 2's blob loses its epoch, and the
//!    number is still there.
//! 2. *Ownership changes once.* Step 2 is one compare-and-set against the very state that was read before the epoch was
//!    taken. So a later owner has a later epoch: its epoch was taken after it read the earlier owner's record, and that one's
//!    epoch was taken before that record was written. Whoever loses here has changed nothing but the number, and the roll.
//! 3. *The seal follows, and only rises.* Between 2 and 3 the old owner may still save; the new one has not read yet. Step 3
//!    is one compare-and-set of the seal around whatever position is there, and what it was set around is what the new owner begins
//!    with. From then on a save of an earlier epoch is refused, for it is itself conditional on the state that the seal changed. Whoever
//!    dies between 2 and 3 leaves a lease that nobody serves; whoever looks next raises the seal in its place (`views.rs`).
//!    A claim must not seal before it owns: it would lock out a living owner and then lose.
//! 4. *A seek is one step*: the checkpoint. With it the owner is locked out and the new position stands, for every claim that seals
//!    later. That the lease is then taken away only makes the owner notice sooner; if the seeker dies before, the owner
//!    notices at its next save.
//! 5. *A renewal and a taking away meet at the roll.* Step 0 is one compare-and-set on it, against the state that the lease was
//!    judged by: what was renewed meanwhile is not struck. Every renewal is one, too: what was struck meanwhile is not renewed. So
//!    step 2 is only taken when its owner can be told no more that it has renewed. The version of a lease is the state of its
//!    ownership and the beat of its last renewal: strikes of other leases do not spoil a claim, and no renewal goes unseen.
//! 6. *A strike stands until it is needed no more*: its owner drops it from the roll once it has seen a later state of the ownership, and the roll
//!    is removed with its host once no lease names that. Whoever dies between 0 and 2 leaves a lease that nobody can renew: it keeps the
//!    age it has (each struck line says when it was renewed), its owner gives it back when it notices, and else it runs out.
//!
//! What an owner writes on its roll by heart is what it wrote itself, or has read since, and nobody has struck. Whoever gives away its own
//! lease need not strike: it is the one that renews. It says nothing of a lease while a write of its own is in doubt, but looks (`shelf.rs`). Another SDK or a person that
//! writes over an ownership strikes nothing: the owner notices with its next view. Beside other SDKs (`neighbours = sdk`) there are no
//! rolls, for those look when the ownership itself was written: a renewal writes that anew, and meets every claim there. Each ownership says
//! whether its owner has a roll, so that hosts of both kinds take from each other by the right rule.
//!
//! Renewals write the roll alone (or the ownership), saves the checkpoint alone: neither stands in the other's way, and a save is no
//! sign of life. Nor is a strike: whoever writes on another's roll writes down when that one renewed. An answer that was lost is looked up: a
//! write whose condition is refused reads the blob, and finds what it wrote itself.
//!
//! # Time
//!
//! is the service's, in whole seconds: the age of a record is the Date of the answer less the blob's Last-Modified. Both
//! are rounded down, so that the difference may be a second too much; it is taken a second too little, for nobody shall
//! be found dead too early. No record carries a time of this machine.

mod address;
mod advice;
mod changes;
mod checkpoint;
mod container;
mod credential;
mod entra;
mod eph;
mod expiry;
mod failure;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod history;
mod hosts;
mod metadata;
mod names;
mod options;
mod ownership;
mod raises;
mod renewals;
mod roll;
mod roll_call;
mod saves;
mod seals;
mod session;
mod shelf;
mod signing;
mod standing;
mod store;
mod strikes;
mod views;

use std::time::Duration;

pub use crate::url::DEFAULT_CONTAINER;
pub use address::{BlobAddress, Layout};
pub use credential::{AccountKey, BlobCredential, Sas};
pub use eph::OldFleet;
pub use names::Case;
pub use options::{
    BlobOptions, ConnectError, DEFAULT_AT_ONCE, DEFAULT_CALL_LIMIT, DEFAULT_SERVICE_VERSION, Neighbours,
};
pub use store::BlobStore;

/// What a credential of one's own gives out: see [`BlobCredential::Entra`].
pub use azure_core::credentials::TokenCredential;

/// The service's times are whole seconds.
const CLOCK_RESOLUTION: Duration = Duration::from_secs(1);
