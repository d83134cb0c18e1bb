//! Test helper: the Azurite server that all tests of this binary share, a container for each test, and stores
//! that are opened there.

use std::sync::atomic::{AtomicUsize, Ordering};

use ephor_stores::azblob::{BlobOptions, BlobStore};
pub(crate) use ephor_testkit::azurite_server::Azurite;

/// One for all: a test that stops or slows it starts its own. It lives until the process ends.
pub(crate) fn shared() -> &'static Azurite {
    static SHARED: std::sync::OnceLock<Azurite> = std::sync::OnceLock::new();
    SHARED.get_or_init(Azurite::start)
}

/// A connection string with a container of its own.
pub(crate) fn place() -> String {
    place_on(shared())
}

pub(crate) fn place_on(server: &Azurite) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}Container=test-{number}", server.connection_string())
}

pub(crate) fn open(place: &str) -> BlobStore {
    open_with(place, BlobOptions::default())
}

pub(crate) fn open_with(place: &str, options: BlobOptions) -> BlobStore {
    BlobStore::new(place, options).unwrap()
}
