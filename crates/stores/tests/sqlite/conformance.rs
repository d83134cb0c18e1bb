//! Runs the conformance suite on the SQLite store: in one process, and in two processes by turns.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::store::Store;
use ephor_stores::sqlite::SqliteStore;
use ephor_testkit::conformance::store::StoreFixture;

use crate::fixture::Folder;
use crate::two_processes::TwoProcesses;

struct OneProcess {
    store: SqliteStore,
    _folder: Folder,
}

impl OneProcess {
    fn new() -> Self {
        let folder = Folder::new();
        Self { store: folder.open(), _folder: folder }
    }
}

struct InTurns {
    store: Arc<TwoProcesses>,
    _folder: Folder,
}

impl InTurns {
    fn new() -> Self {
        let folder = Folder::new();
        Self { store: Arc::new(TwoProcesses::start(folder.path())), _folder: folder }
    }
}

#[expect(clippy::disallowed_methods, reason = "the store's clock is the machine's own")]
fn pass(time: Duration) -> BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(time))
}

impl StoreFixture for OneProcess {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(self.store.clone()) as Arc<dyn Store> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        pass(time)
    }
}

impl StoreFixture for InTurns {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.store.clone() as Arc<dyn Store> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        pass(time)
    }
}

mod in_one_process {
    use super::*;
    ephor_testkit::store_conformance!(OneProcess::new());
}

mod in_two_processes_by_turns {
    use super::*;
    ephor_testkit::store_conformance!(InTurns::new());
}
