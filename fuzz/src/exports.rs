//! Fuzzes exported files of checkpoints, which a person may have edited, and all records that stores keep
//! as text.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::time::Timestamp;
use ephor_stores::export;
use ephor_stores::fuzzing::texts;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    texts(text);
    let read = match export::read(text) {
        Ok(read) => read,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    let checkpoint = |found: &export::Exported| {
        let (position, log) = (found.position.clone(), found.log.clone());
        (found.partition, Checkpoint { position, log, epoch: Epoch::NONE, saved_at: Timestamp(0) })
    };
    let checkpoints: Vec<_> = read.checkpoints.iter().map(checkpoint).collect();
    assert_eq!(export::read(&export::write(&read.group, &checkpoints)), Ok(read));
}
