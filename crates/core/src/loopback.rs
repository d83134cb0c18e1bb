//! Tells whether what is sent to a host stays on this machine.

use std::net::IpAddr;

/// Whether this name or address is the loopback interface. Only `localhost` counts of all names: what others
/// resolve to is up to the network. An address of version 6 may stand in brackets.
pub fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address: Result<IpAddr, _> = host.parse();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in [
            "localhost",
            "LocalHost",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "0.0.0.0", "::", "10.0.0.1", "db", "localhost.example", "my.localhost", "127.0.0.1.example"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
