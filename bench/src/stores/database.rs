//! The PostgreSQL database of a benchmark: a given one, or one on a server that is started for it.

use ephor_testkit::postgres_server::Server;

/// Default server settings: every commit is on disk before it is answered.
const AS_USUAL: &str = "fsync = on\nfull_page_writes = on\nmax_connections = 100\n";

/// A database, and its server if it was started here.
pub(crate) struct Database {
    pub(crate) url: String,
    _server: Option<Server>,
}

impl Database {
    /// Finds the database; none if no URL was given and no server is installed.
    pub(crate) fn find(named: Option<&str>) -> Option<Self> {
        if let Some(url) = named {
            return Some(Self { url: url.to_owned(), _server: None });
        }
        if !Server::is_installed() {
            return None;
        }
        let server = Server::start_with(AS_USUAL);
        Some(Self { url: server.url("postgres"), _server: Some(server) })
    }

    pub(crate) fn is_ours(&self) -> bool {
        self._server.is_some()
    }
}

/// Printed if there is no database.
pub(crate) const NOT_INSTALLED: &str =
    "PostgreSQL is not installed: run apt-get install postgresql, or use a database with --postgres URL";
