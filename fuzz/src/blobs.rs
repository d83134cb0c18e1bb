//! Fuzzes blobs of a container that is shared with other SDKs: Ephor's leases, checkpoints, renewals,
//! epochs, hosts and histories, leases and checkpoints of other SDKs, and those of the legacy Event
//! Processor Host.

use ephor_stores::fuzzing::blob;

/// Runs one input: the blob's name in a line, `name=value` of its metadata in a line each, an empty line, its
/// body.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let name = lines.next().unwrap_or_default();
    let metadata: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once('=')).collect();
    blob(name, &metadata, body);
}
