//! Lowers the configured connection limits so that connections take at most half of the files that the
//! process may have open.
//!
//! Every connection is an open file, and so is every segment of a log. If connections could take all of them,
//! the hub could begin no new segment, and nothing could be stored.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::GatewayLimits;

/// One file in this many may be a connection; the others are for the hubs.
const FILES_PER_CONNECTION: u64 = 2;
/// One connection in this many may be one that has not put a token yet.
const CONNECTIONS_PER_UNAUTHENTICATED: usize = 4;

/// Lowers the limits to the number of connections that there are files for.
pub(crate) fn within(limits: GatewayLimits, files: Option<u64>) -> GatewayLimits {
    let Some(files) = files else { return limits };
    let sockets = usize::try_from(files / FILES_PER_CONNECTION).unwrap_or(usize::MAX);
    let unauthenticated = limits.unauthenticated.min(sockets / CONNECTIONS_PER_UNAUTHENTICATED).max(1);
    let connections = limits.connections.min(sockets.saturating_sub(unauthenticated)).max(1);
    // One limit holds for all gateways of a process, so one log line is enough.
    static LOGGED: AtomicBool = AtomicBool::new(false);
    let fewer = connections < limits.connections || unauthenticated < limits.unauthenticated;
    if fewer && !LOGGED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            files,
            connections,
            unauthenticated,
            configured = limits.connections,
            "fewer connections are allowed than configured, because of the limit of open files, half of which \
             is for the hubs; raise the limit of open files (ulimit -n, LimitNOFILE=) for more"
        );
    }
    GatewayLimits { connections, unauthenticated, ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(files: Option<u64>) -> (usize, usize) {
        let limits = within(GatewayLimits::default(), files);
        (limits.connections, limits.unauthenticated)
    }

    #[test]
    fn half_of_the_files_are_left_for_the_hubs() {
        assert_eq!(allowed(None), (4_096, 256));
        assert_eq!(allowed(Some(1 << 20)), (4_096, 256));
        assert_eq!(allowed(Some(1_024)), (512 - 128, 128));
        assert_eq!(allowed(Some(4_096)), (2_048 - 256, 256));
        assert_eq!(allowed(Some(0)), (1, 1));
        for files in 8..10_000 {
            let (connections, unauthenticated) = allowed(Some(files));
            assert!((connections + unauthenticated) as u64 <= files / 2, "{files}");
        }
    }

    #[test]
    fn a_configured_limit_that_is_low_enough_is_kept() {
        let few = GatewayLimits { connections: 10, unauthenticated: 5, ..GatewayLimits::default() };
        assert_eq!(within(few.clone(), Some(1_024)), few);
    }
}
