//! The operating-system service that the client needs: limits the unsent bytes in the buffer of a socket.
//! Linux only; a port replaces this file, and `os.rs` of `ephor-runtime`.
//!
//! A port provides [`limit_unsent_bytes`], or does nothing where there is no such limit: progress on a slow connection
//! is then seen later.

use std::io;

use tokio::net::TcpStream;

/// Limits the bytes in a socket's buffer that are not on their way.
pub(crate) fn limit_unsent_bytes(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(bytes)
}
