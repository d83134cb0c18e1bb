//! Stores for leases and checkpoints, chosen by a URL.
//!
//! | URL | feature | for |
//! |---|---|---|
//! | `sqlite:PATH` | `sqlite` | hosts on one machine: a file, and nothing to install |
//! | `postgres://USER:PASSWORD@HOST/DATABASE` | `postgres` | hosts on several machines |
//! | `azblob://ACCOUNT/CONTAINER` | `azblob` | hosts that share a group with other SDKs' processors, or replace them |
//!
//! Applications reach this crate as `ephor::stores`, with the same features of `ephor`.
//!
//! A store is made in one of three ways:
//!
//! | call | does |
//! |---|---|
//! | `SqliteStore::open`, `PostgresStore::connect`, `BlobStore::connect` | opens the file or connects, and reports at once what an operator must fix |
//! | `…::open_existing`, `…::connect_existing` | the same for tools, which create nothing: none if there is no store |
//! | `PostgresStore::new`, `BlobStore::new`, and `new_existing` for tools | no I/O: the store connects with its first call |
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
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "azblob")),
    allow(dead_code, unused_imports)
)]
mod record_text;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod storage_account;
mod url;

pub use open::{OpenError, open, open_existing};
pub use url::{DEFAULT_CONTAINER, InvalidUrl, StoreUrl};
