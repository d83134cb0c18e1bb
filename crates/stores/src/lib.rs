//! Stores for leases and checkpoints, chosen by a URL.
//!
//! | URL | feature | for |
//! |---|---|---|
//! | `sqlite:PATH` | `sqlite` | hosts on one machine: a file, and nothing to install |
//! | `postgres://USER:PASSWORD@HOST/DATABASE` | `postgres` | hosts on several machines |
//! | `azblob://ACCOUNT/CONTAINER` | `azblob` | hosts that share a group with other SDKs' processors, or replace them |
//!
//! Each store keeps the guarantees of [`Store`](ephor_core::store::Store) and runs the conformance suite of
//! `ephor-testkit`. The rules of ownership are in `ephor_core::record`, the same for all stores; a store
//! applies them in one atomic step.

#[cfg(feature = "azblob")]
pub mod azblob;
pub mod export;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod storage_account;
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "azblob")),
    allow(dead_code, unused_imports)
)]
mod text;
mod url;

pub use open::{OpenError, open, open_existing};
pub use url::{DEFAULT_CONTAINER, InvalidUrl, StoreUrl};
