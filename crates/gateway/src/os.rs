//! The services of the operating system that the gateway needs. Linux only; a port replaces this file, and
//! `os.rs` of `ephor-runtime`.
//!
//! | a port provides | the gateway needs it for |
//! |---|---|
//! | [`open_file_limit`], [`raise_open_file_limit`] | the number of connections |
//! | [`reuse_address`] | a restart while connections of the last run time out |
//! | [`limit_segment_size`] | clients on loopback with a small receive buffer |
//! | [`file_for_all_readers`], [`make_private`] | the files of a certificate and of its key |

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpSocket;

/// Raises the number of files that this process may have open to the hard limit, and returns it; `None` if
/// there is no limit. Call it at the start of a program that serves a gateway: many systems begin with 1,024,
/// for the sake of programs that cannot handle more.
pub fn raise_open_file_limit() -> io::Result<Option<u64>> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(open_file_limit())
}

/// The number of files that this process may have open; `None` if there is no limit.
pub(crate) fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Lets a socket listen on an address whose earlier connections are in TIME_WAIT, as the standard library does.
pub(crate) fn reuse_address(socket: &TcpSocket) -> io::Result<()> {
    socket.set_reuseaddr(true)
}

/// Limits the size of the segments of the connections that a socket accepts.
pub(crate) fn limit_segment_size(socket: &TcpSocket, bytes: u32) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_mss(bytes)
}

/// Lets everybody read a file that these options create, and only its owner write it.
pub(crate) fn file_for_all_readers(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o644)
}

/// Removes the permissions of group and others.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o600);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}
