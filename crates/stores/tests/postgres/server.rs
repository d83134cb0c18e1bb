//! Test helper: the PostgreSQL server that all tests of this binary share.

use std::sync::OnceLock;

pub(crate) use ephor_testkit::postgres_server::{PASSWORD, Server, TLS_ONLY};

pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}
