//! Decides whether a host name or address is the loopback interface of this machine.

use std::net::IpAddr;

/// True if this name or address is the loopback interface. Of all names only `localhost` counts,
/// because the network decides how others resolve. An IPv6 address may be in brackets.
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
