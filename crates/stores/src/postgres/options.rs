//! How a database is reached.

use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

/// [`PostgresOptions::schema`].
pub const DEFAULT_SCHEMA: &str = "ephor";
/// [`PostgresOptions::connections`].
pub const DEFAULT_CONNECTIONS: usize = 4;
/// [`PostgresOptions::call_limit`].
pub const DEFAULT_CALL_LIMIT: Duration = Duration::from_secs(10);
/// [`PostgresOptions::lock_wait`].
pub const DEFAULT_LOCK_WAIT: Duration = Duration::from_secs(2);
/// [`PostgresOptions::transaction_idle`].
pub const DEFAULT_TRANSACTION_IDLE: Duration = Duration::from_secs(5);

/// A schema's name is also the name of a channel, with a few letters behind it.
const LONGEST_SCHEMA: usize = 50;

/// How a database is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The schema that holds the tables. It is created if it is not there.
    pub schema: String,
    /// At most so many connections serve the calls of all hosts that share the store; one more listens.
    pub connections: usize,
    /// A call that takes longer fails: whether it was carried out is then unknown.
    pub call_limit: Duration,
    /// A call waits this long for a row that another transaction holds, and then fails. Who holds one for so
    /// long is a transaction that used [`save_in`](super::PostgresStore::save_in).
    pub lock_wait: Duration,
    /// A transaction that used [`save_in`](super::PostgresStore::save_in) and then does nothing for this long
    /// is ended by the server: until then nobody can take its partition over.
    pub transaction_idle: Duration,
    /// Whether to listen for wakes. Without, everything goes on at the pace of the scans.
    pub listen: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: DEFAULT_SCHEMA.to_owned(),
            connections: DEFAULT_CONNECTIONS,
            call_limit: DEFAULT_CALL_LIMIT,
            lock_wait: DEFAULT_LOCK_WAIT,
            transaction_idle: DEFAULT_TRANSACTION_IDLE,
            listen: true,
        }
    }
}

/// Why a store cannot be made of a URL and options. It shows no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL names no database.
    #[error(
        "the URL of the PostgreSQL store cannot be read ({problem}): write \
         postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password as %XX"
    )]
    Url {
        /// What is wrong.
        problem: String,
    },
    /// The schema's name would need quoting everywhere.
    #[error(
        "the schema {given:?} cannot be used: write a small letter, then small letters, digits and underscores, \
         at most {LONGEST_SCHEMA}"
    )]
    Schema {
        /// What was given.
        given: String,
    },
    /// A limit of zero.
    #[error("{what} is zero: nothing could ever be done")]
    Zero {
        /// Which.
        what: &'static str,
    },
}

impl PostgresOptions {
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = self.schema.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || self.schema.len() > LONGEST_SCHEMA || !self.schema.chars().all(letters) {
            return Err(ConnectError::Schema { given: self.schema.chars().take(80).collect() });
        }
        let zero = [
            ("connections", self.connections == 0),
            ("call_limit", self.call_limit.is_zero()),
            ("lock_wait", self.lock_wait.as_millis() == 0),
            ("transaction_idle", self.transaction_idle.as_millis() == 0),
        ];
        match zero.iter().find(|(_, zero)| *zero) {
            Some((what, _)) => Err(ConnectError::Zero { what }),
            None => Ok(()),
        }
    }
}

/// What the driver needs to know.
pub(super) fn connect_options(url: &str) -> Result<PgConnectOptions, ConnectError> {
    let problem = |problem: &str| ConnectError::Url { problem: problem.to_owned() };
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("postgres" | "postgresql")) {
        return Err(problem("it does not begin with postgres://"));
    }
    // The driver's own words may repeat a part of the URL.
    let options = PgConnectOptions::from_str(url).map_err(|_| problem("some part of it is malformed"))?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("ephor"),
    };
    // Nothing that a pooler would have to know of.
    Ok(options.extra_float_digits(None).statement_cache_capacity(0).disable_statement_logging())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_nonsense_is_refused() {
        assert_eq!(PostgresOptions::default().check(), Ok(()));
        let long = "a".repeat(LONGEST_SCHEMA + 1);
        for schema in ["", "Ephor", "a b", "a\"b", "1a", "_a", "é", &long] {
            let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
            assert!(matches!(options.check(), Err(ConnectError::Schema { .. })), "{schema}");
        }
        let options = PostgresOptions { connections: 0, ..PostgresOptions::default() };
        assert_eq!(options.check(), Err(ConnectError::Zero { what: "connections" }));
        let options = PostgresOptions { lock_wait: Duration::from_micros(9), ..PostgresOptions::default() };
        assert_eq!(options.check(), Err(ConnectError::Zero { what: "lock_wait" }));
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in [
            "mysql://ada:canary@db/fleet",
            "postgres://ada:canary@db:canary/fleet",
            "postgres://ada:canary@db/fleet?sslmode=canary",
            "canary",
        ] {
            let error = connect_options(url).expect_err(url).to_string();
            assert!(error.contains("postgres://USER") && !error.contains("canary"), "{error}");
        }
        for url in ["postgresql://ada:canary@db:5432/fleet?sslmode=require", "Postgres://db/fleet"] {
            connect_options(url).unwrap();
        }
    }
}
