//! Builds the parts of error messages that depend on several values.

use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::resume::PositionGone;
use ephor_core::time::duration_text;

/// The command that lets a halted partition go on: at the next event if that is known, otherwise at
/// the earliest.
pub(super) fn seek_command(group: &GroupId, partition: PartitionId, cause: &PositionGone) -> String {
    let to = match cause {
        PositionGone::EventsGone { oldest, .. } => format!("seq:{oldest}"),
        _ => "earliest".to_owned(),
    };
    let GroupId { hub, group, .. } = group;
    // In quotes, because the default group is $Default.
    format!("ephor checkpoint seek '{hub}/{group}' --partition {partition} --to {to}")
}

/// The part of a message about events that exist and are skipped.
pub(super) fn skipped_before(resumes_at: SequenceNumber, skipped: u64) -> String {
    let last = resumes_at.0.saturating_sub(1);
    let which = match skipped {
        0 => return String::new(),
        1 => format!("1 event that the hub keeps ({last}) is"),
        _ => format!("{skipped} events that the hub keeps ({} to {last}) are", resumes_at.0 - skipped),
    };
    format!(", and {which} skipped, because on_invalid_position is Latest")
}

/// The message about two hosts of one group that read two hubs, with the remedy.
pub(crate) fn another_hub(ours: &ReadHub, host: &HostId, theirs: &ReadHub) -> String {
    format!(
        "this host reads the hub {} (log {}), but host {host} of the same group reads {} (log {}); they share one set \
         of leases, so each would read only a part of its hub: point both at one hub, or give one of them another \
         store or consumer group",
        ours.endpoint, ours.log, theirs.endpoint, theirs.log
    )
}

/// How long a store has been failing, in words.
pub(super) fn since_when(failing_for: Duration) -> String {
    // In whole seconds: the exact moment of the first failure is not known.
    match Duration::from_secs(failing_for.as_secs()) {
        Duration::ZERO => "has just begun to fail".to_owned(),
        seconds => format!("has been failing for {}", duration_text(seconds)),
    }
}
