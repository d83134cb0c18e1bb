//! Measures a plain TCP stream from another process, whose content is ignored: the upper limit for every
//! protocol on TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use ephor::BoxError;

use super::our_client::Run;
use crate::machine::{cpu_time, now, since};

/// The size of a write or read: the same as our driver's under load.
const PIECE: usize = 128 << 10;

/// Reads `bytes` bytes that another process writes.
pub(crate) fn read(bytes: u64, events: u64) -> Result<Run, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    let mut writer = Command::new(std::env::current_exe()?)
        .args(["gateway", "stream", &port, &bytes.to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    let (mut stream, _) = listener.accept()?;
    let (own, began) = (cpu_time(std::process::id()), now());
    let (mut piece, mut left) = (vec![0; PIECE], bytes);
    while left > 0 {
        match stream.read(&mut piece)? {
            0 => return Err("the stream ended early".into()),
            count => left = left.saturating_sub(count as u64),
        }
    }
    let took = since(began);
    // The writer waits for us, so that its CPU time can be read.
    let theirs = cpu_time(writer.id());
    let ours = cpu_time(std::process::id()).saturating_sub(own);
    drop(writer.stdin.take());
    writer.wait()?;
    Ok(Run { events, took, server: theirs, client: ours })
}

/// The other process: writes, and then waits for the end of its input.
pub(crate) fn write(port: u16, bytes: u64) -> Result<(), BoxError> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let (piece, mut left) = (vec![7; PIECE], bytes);
    while left > 0 {
        let count = left.min(PIECE as u64);
        stream.write_all(&piece[..count as usize])?;
        left -= count;
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
