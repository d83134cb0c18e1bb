//! The behaviour of a pump with a rule switched off: a deliberate bug for the simulation to find
//! (mutation testing), as in `host/planted.rs`.

use ephor_core::resume::{self, LostGround, OnInvalidPosition, Resume};
use ephor_core::source::PartitionProperties;

/// The bug: trusts the partition's properties about its end, and rewinds a checkpoint beyond it.
pub(super) fn rewind_without_proof(
    found: Result<Resume, LostGround>,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, LostGround> {
    let found = found?;
    match resume::beyond_the_end(&found.start, partition) {
        Some(ground) => resume::replacement(ground, partition, on_invalid),
        None => Ok(found),
    }
}
