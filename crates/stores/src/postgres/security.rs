//! Chooses the TLS mode of a connection if neither URL nor environment sets one.
//!
//! The driver's default (`prefer`) accepts any certificate, and a plain connection if the server offers
//! no TLS: a machine in between could read the password. Therefore the default for other machines is
//! `verify-full`; `sslmode` in the URL or `PGSSLMODE` in the environment override it.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::options::InvalidSettings;
use ephor_core::loopback::is_loopback;

/// `environment` is the value of `PGSSLMODE`.
pub(super) fn secure(
    options: PgConnectOptions,
    url: &str,
    environment: Option<&str>,
) -> Result<PgConnectOptions, InvalidSettings> {
    if says_mode(url) {
        return Ok(options);
    }
    // An empty variable counts as unset.
    match environment.filter(|mode| !mode.is_empty()) {
        // The driver would ignore an unknown mode and use its default.
        Some(mode) => match PgSslMode::from_str(mode) {
            Ok(mode) => Ok(options.ssl_mode(mode)),
            Err(_) => Err(InvalidSettings::SslMode { given: mode.chars().take(40).collect() }),
        },
        None if stays_here(&options) => Ok(options),
        None => Ok(options.ssl_mode(PgSslMode::VerifyFull)),
    }
}

fn says_mode(url: &str) -> bool {
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
    let names = parameters.split('&').map(|parameter| parameter.split('=').next().unwrap_or_default());
    names.into_iter().any(|name| matches!(name, "sslmode" | "ssl-mode"))
}

/// Whether the connection uses a Unix socket or the loopback interface.
fn stays_here(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    options.get_socket().is_some() || host.starts_with('/') || is_loopback(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str, environment: Option<&str>) -> PgSslMode {
        let options = PgConnectOptions::from_str(url).unwrap();
        secure(options, url, environment).unwrap().get_ssl_mode()
    }

    fn same(left: PgSslMode, right: PgSslMode) -> bool {
        std::mem::discriminant(&left) == std::mem::discriminant(&right)
    }

    #[test]
    fn off_this_machine_the_server_is_verified_unless_something_else_is_said() {
        for (url, expected) in [
            ("postgres://ada:x@db.example/fleet", PgSslMode::VerifyFull),
            ("postgres://ada:x@db/fleet?sslrootcert=/etc/ca.pem", PgSslMode::VerifyFull),
            ("postgres://ada:x@10.0.0.7/fleet", PgSslMode::VerifyFull),
            ("postgres://ada:x@localhost/fleet?host=db", PgSslMode::VerifyFull),
            ("postgres://ada:x@localhost/fleet?hostaddr=10.0.0.7", PgSslMode::VerifyFull),
            ("postgres://ada:x@db/fleet?sslmode=disable", PgSslMode::Disable),
            ("postgres://ada:x@db/fleet?ssl-mode=prefer", PgSslMode::Prefer),
            ("postgres://ada:x@db/fleet?sslmode=require", PgSslMode::Require),
            ("postgres://ada:x@localhost/fleet", PgSslMode::Prefer),
            ("postgres://ada:x@127.0.0.1/fleet", PgSslMode::Prefer),
            ("postgres://ada:x@[::1]/fleet", PgSslMode::Prefer),
            ("postgres://ada:x@%2Fvar%2Frun%2Fpostgresql/fleet", PgSslMode::Prefer),
            ("postgres://ada@db/fleet?host=/var/run/postgresql", PgSslMode::Prefer),
            ("postgres://ada:x@localhost/fleet?sslmode=verify-full", PgSslMode::VerifyFull),
        ] {
            assert!(same(mode(url, None), expected), "{url}: {:?}", mode(url, None));
        }
    }

    #[test]
    fn the_environment_counts_where_the_url_says_nothing() {
        let url = "postgres://ada:x@db/fleet";
        assert!(same(mode(url, Some("disable")), PgSslMode::Disable));
        assert!(same(mode(url, Some("")), PgSslMode::VerifyFull));
        assert!(same(mode(&format!("{url}?sslmode=require"), Some("disable")), PgSslMode::Require));
        let options = PgConnectOptions::from_str(url).unwrap();
        let error = secure(options, url, Some("verify_full")).expect_err("it is misspelt");
        assert!(
            error.to_string().contains("PGSSLMODE") && error.to_string().contains("verify-full"),
            "{error}"
        );
    }
}
