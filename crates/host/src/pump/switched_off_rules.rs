//! The wrong behaviour of a pump if a mutation switches off the rule `rewinds_need_proof`: the simulation
//! must detect it. Not in release builds (feature `mutations`). `host/switched_off_rules.rs` has the rules
//! of the host.

use ephor_core::resume::{self, OnInvalidPosition, PositionGone, Resume};
use ephor_core::rules::Rules;
use ephor_core::source::PartitionProperties;

/// The position as it is believed. The mutation trusts the partition's properties about its end,
/// and rewinds a checkpoint beyond it.
pub(super) fn rewind_without_proof(
    rules: &Rules,
    found: Result<Resume, PositionGone>,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, PositionGone> {
    let found = found?;
    if rules.rewinds_need_proof() {
        return Ok(found);
    }
    match resume::beyond_the_end(&found.start, partition) {
        Some(cause) => resume::replacement(cause, partition, on_invalid),
        None => Ok(found),
    }
}
