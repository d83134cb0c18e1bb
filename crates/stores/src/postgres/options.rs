//! The options of a PostgreSQL store, and the check of its URL.

use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use super::security;

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

/// The schema's name, followed by a few letters, is also the name of a channel.
const MAX_SCHEMA_LENGTH: usize = 50;

/// The URL parameters that the driver reads, besides `options[…]`.
const PARAMETERS: [&str; 17] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// The options of a PostgreSQL store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The schema that holds the tables. It is created if it does not exist.
    pub schema: String,
    /// The maximum number of connections for the calls of all hosts that share the store. One more is
    /// reserved for renewals and heartbeats, one for views and changes of ownership, and one listens.
    pub connections: usize,
    /// The time limit of a call. After it the call fails, and its outcome is unknown.
    pub call_limit: Duration,
    /// How long a call waits for a row that another transaction has locked before it fails. Only
    /// transactions that used [`save_in`](super::PostgresStore::save_in) hold one that long.
    pub lock_wait: Duration,
    /// The server ends a transaction that used [`save_in`](super::PostgresStore::save_in) and is then idle
    /// for this long. Until then no host can take its partition over.
    pub transaction_idle: Duration,
    /// Whether to listen for wakes. Without them hosts notice changes with their next scan.
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

/// Why a URL or options cannot be used. It shows no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSettings {
    /// The URL is invalid.
    #[error(
        "the URL of the PostgreSQL store cannot be read ({problem}): write \
         postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password as %XX"
    )]
    Url {
        /// The problem.
        problem: String,
    },
    /// The schema's name is invalid.
    #[error(
        "the schema {given:?} cannot be used: write a lower-case letter, then lower-case letters, digits and \
         underscores, at most {MAX_SCHEMA_LENGTH} characters"
    )]
    Schema {
        /// The given value.
        given: String,
    },
    /// `PGSSLMODE` is invalid.
    #[error(
        "PGSSLMODE={given:?} cannot be used: write verify-full, verify-ca, require, prefer or disable, or leave \
         it out"
    )]
    SslMode {
        /// The given value.
        given: String,
    },
    /// A limit of zero.
    #[error("{what} is zero: set a value above zero")]
    Zero {
        /// The option.
        what: &'static str,
    },
}

impl PostgresOptions {
    pub(super) fn check(&self) -> Result<(), InvalidSettings> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = self.schema.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || self.schema.len() > MAX_SCHEMA_LENGTH || !self.schema.chars().all(letters) {
            return Err(InvalidSettings::Schema { given: self.schema.chars().take(80).collect() });
        }
        let zero = [
            ("connections", self.connections == 0),
            ("call_limit", self.call_limit.is_zero()),
            ("lock_wait", self.lock_wait.as_millis() == 0),
            ("transaction_idle", self.transaction_idle.as_millis() == 0),
        ];
        match zero.iter().find(|(_, zero)| *zero) {
            Some((what, _)) => Err(InvalidSettings::Zero { what }),
            None => Ok(()),
        }
    }
}

/// The driver's options from a URL.
pub(super) fn connect_options(url: &str) -> Result<PgConnectOptions, InvalidSettings> {
    let problem = |problem: &str| InvalidSettings::Url { problem: problem.to_owned() };
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("postgres" | "postgresql")) {
        return Err(problem("it does not begin with postgres://"));
    }
    let url = known_part(url)?;
    // The driver's message may repeat a part of the URL.
    let options = PgConnectOptions::from_str(&url).map_err(|_| problem("a part of it is malformed"))?;
    let options = security::secure(options, &url, std::env::var("PGSSLMODE").ok().as_deref())?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("ephor"),
    };
    // No session state that a pooler would have to keep.
    Ok(options.extra_float_digits(None).statement_cache_capacity(0).disable_statement_logging())
}

/// The URL without parameters that the driver does not know: it would log them, and one may be a password.
fn known_part(url: &str) -> Result<String, InvalidSettings> {
    let problem = || InvalidSettings::Url { problem: "there is a ? or # in the wrong place".to_owned() };
    // The part after a # is the rest of a password.
    if url.contains('#') {
        return Err(problem());
    }
    let Some((place, parameters)) = url.split_once('?') else { return Ok(url.to_owned()) };
    let is_known = |parameter: &&str| {
        let name = parameter.split('=').next().unwrap_or_default();
        PARAMETERS.contains(&name) || name.starts_with("options[")
    };
    let (known, unknown): (Vec<&str>, Vec<&str>) = parameters.split('&').partition(is_known);
    if unknown.iter().any(|parameter| parameter.contains('@')) {
        return Err(problem());
    }
    if !unknown.is_empty() {
        let known = PARAMETERS.join(", ");
        tracing::warn!(
            "ignored {} unknown parameters of the store's URL; known parameters: {known}",
            unknown.len()
        );
    }
    Ok(format!("{place}?{}", known.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_nonsense_is_refused() {
        assert_eq!(PostgresOptions::default().check(), Ok(()));
        let long = "a".repeat(MAX_SCHEMA_LENGTH + 1);
        for schema in ["", "Ephor", "a b", "a\"b", "1a", "_a", "é", &long] {
            let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
            assert!(matches!(options.check(), Err(InvalidSettings::Schema { .. })), "{schema}");
        }
        let options = PostgresOptions { connections: 0, ..PostgresOptions::default() };
        assert_eq!(options.check(), Err(InvalidSettings::Zero { what: "connections" }));
        let options = PostgresOptions { lock_wait: Duration::from_micros(9), ..PostgresOptions::default() };
        assert_eq!(options.check(), Err(InvalidSettings::Zero { what: "lock_wait" }));
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in [
            "mysql://ada:canary@db/fleet",
            "postgres://ada:canary@db:canary/fleet",
            "postgres://ada:canary@db/fleet?sslmode=canary",
            "canary",
            "postgres://ada:12#canary@db/fleet",
            "postgres://ada:12?canary@db/fleet",
            "postgres://ada:12?x=canary@db/fleet",
        ] {
            let error = connect_options(url).expect_err(url).to_string();
            assert!(error.contains("postgres://USER") && !error.contains("canary"), "{error}");
        }
        for url in ["postgresql://ada:canary@db:5432/fleet?sslmode=require", "Postgres://db/fleet"] {
            connect_options(url).unwrap();
        }
    }
    #[test]
    fn the_driver_sees_no_parameter_that_it_would_log() {
        let place = "postgres://ada:a%23b@db/fleet";
        for (given, left) in [
            ("", ""),
            ("?sslmode=require", "?sslmode=require"),
            ("?sslpassword=canary&channel_binding=require", "?"),
            ("?connect_timeout=3&user=a&password=b@c&options[a]=b", "?user=a&password=b@c&options[a]=b"),
        ] {
            assert_eq!(known_part(&format!("{place}{given}")), Ok(format!("{place}{left}")));
            connect_options(&format!("{place}{given}")).unwrap();
        }
    }
}
