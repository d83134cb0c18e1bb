//! The error messages of Azure Event Hubs about receivers, word for word, without the tracking ids
//! after them; and Ephor's own for a receiver that vanished.

use std::time::Duration;

use super::MAX_RECEIVERS_WITHOUT_EPOCH;
use crate::epoch::Epoch;
use crate::position::{Offset, SequenceNumber};

/// The text that the service prints for a name that was not given. For an epoch it prints nothing.
pub const NOT_GIVEN: &str = "nil";

/// The sequence number and the offset that the service prints for the last event of a partition
/// that never had one.
const NOTHING_STORED: &str = "-1";

fn shown(name: &str) -> &str {
    if name.is_empty() { NOT_GIVEN } else { name }
}

/// For a receiver that is disconnected by one with this epoch.
pub fn stolen(new: &str, epoch: Epoch, old: &str, old_epoch: Option<Epoch>) -> String {
    let old_epoch = old_epoch.map_or_else(String::new, |epoch| epoch.to_string());
    format!(
        "New receiver '{}' with higher epoch of '{epoch}' is created hence current receiver '{}' with epoch \
         '{old_epoch}' is getting disconnected. If you are recreating the receiver, make sure a higher epoch \
         is used.",
        shown(new),
        shown(old)
    )
}

/// For a receiver with a lower epoch than the owner's.
pub fn lower_epoch(present: &str, current: Epoch, new: &str, epoch: Epoch) -> String {
    format!(
        "Receiver '{}' with a higher epoch '{current}' already exists. Receiver '{}' with epoch {epoch} \
         cannot be created. Make sure you are creating receiver with increasing epoch value to ensure \
         connectivity, or ensure all old epoch receivers are closed or disconnected.",
        shown(present),
        shown(new)
    )
}

/// For a receiver without an epoch while there is an owner.
pub fn no_epoch_beside_an_epoch(current: Epoch) -> String {
    format!(
        "At least one receiver for the endpoint is created with epoch of '{current}', and so non-epoch \
         receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch receivers \
         are closed or disconnected."
    )
}

/// For a receiver without an epoch when the limit is reached, with the names of the present ones.
pub fn too_many<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.map(shown).collect();
    format!(
        "Exceeded the maximum number of allowed receivers per partition in a consumer group which is \
         {MAX_RECEIVERS_WITHOUT_EPOCH}. List of connected receivers - {}.",
        names.join(", ")
    )
}

/// For a receiver that asks for a sequence number that the partition has not reached. `-1` stands
/// for the last one of a partition that never had an event.
pub fn invalid_sequence_number(asked: SequenceNumber, last: Option<SequenceNumber>) -> String {
    let last = last.map_or_else(|| NOTHING_STORED.to_owned(), |last| last.to_string());
    format!(
        "The supplied sequence number '{asked}' is invalid. The last sequence number in the system is \
         '{last}'"
    )
}

/// For a receiver that asks for an offset beyond the last one. Programs read the last one from it.
pub fn invalid_offset(asked: &Offset, last: Option<&Offset>) -> String {
    let last = last.map_or_else(|| NOTHING_STORED.to_owned(), ToString::to_string);
    format!("The supplied offset '{asked}' is invalid. The last offset in the system is '{last}'")
}

/// For a receiver that comes back after it was removed. The wording is ours, not the service's.
pub fn vanished(name: &str, silence: Duration) -> String {
    let (name, seconds) = (shown(name), silence.as_secs());
    format!("no sign of life from receiver '{name}' for {seconds} s; it was removed")
}
