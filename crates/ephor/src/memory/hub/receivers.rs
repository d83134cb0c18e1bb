//! Who reads a partition within one consumer group, and who must give way.
//!
//!   nobody ──epoch e──► one owner (e) ──epoch ≥ e──► another owner
//!      └─no epoch─► up to five readers ──any epoch──► one owner
//!
//! Whoever gives way is told by whom. Nothing outlives the receivers: once the
//! owner has left, every epoch may come, as with the service.

use std::sync::{Arc, OnceLock};

use ephor_core::epoch::Epoch;
use ephor_core::source::{OpenError, ReceiveError, SourceError};

/// So many receivers without epoch may read a partition within one group.
const MOST_WITHOUT_EPOCH: usize = 5;

/// A receiver's place among the others. It is alive until an ending is written into it.
pub(super) struct Place {
    name: String,
    epoch: Option<Epoch>,
    ending: OnceLock<Ending>,
}

/// Why a receiver came to its end.
pub(super) enum Ending {
    /// Another receiver took the partition.
    Stolen { epoch: Epoch, by: Option<String>, message: String },
    /// The link is gone.
    Lost(Arc<str>),
}

/// An answer of a hub that cannot be reached.
pub(super) fn unavailable(message: &str) -> SourceError {
    SourceError::Unavailable(message.into())
}

impl Place {
    /// The error that this receiver gets from now on, if it came to its end.
    pub(super) fn error(&self) -> Option<ReceiveError> {
        self.ending.get().map(|ending| match ending {
            Ending::Stolen { epoch, by, message } => {
                ReceiveError::Disconnected { epoch: Some(*epoch), by: by.clone(), message: message.clone() }
            }
            Ending::Lost(message) => unavailable(message).into(),
        })
    }

    fn end(&self, ending: Ending) {
        // The first ending is the true one: whoever is gone cannot be told twice.
        let _ = self.ending.set(ending);
    }
}

/// The receivers of one group on one partition: one owner, or a few without epoch.
#[derive(Default)]
pub(super) struct Receivers(Vec<Arc<Place>>);

impl Receivers {
    /// Whether a receiver with this epoch may come in; nobody is disconnected by asking.
    pub(super) fn admit(&self, name: &str, epoch: Option<Epoch>) -> Result<(), OpenError> {
        match (self.owner(), epoch) {
            (Some((owner, current)), Some(epoch)) if epoch < current => Err(OpenError::Refused {
                epoch: Some(current),
                by: told(&owner.name),
                message: texts::lower_epoch(&owner.name, current, name, epoch),
            }),
            (Some((owner, current)), None) => Err(OpenError::Refused {
                epoch: Some(current),
                by: told(&owner.name),
                message: texts::no_epoch_beside_an_epoch(current),
            }),
            (None, None) if self.0.len() >= MOST_WITHOUT_EPOCH => {
                let names = self.0.iter().map(|place| place.name.as_str());
                Err(OpenError::TooManyReceivers { message: texts::too_many(names) })
            }
            _ => Ok(()),
        }
    }

    /// Lets an admitted receiver in, and disconnects those that must give way.
    pub(super) fn enter(&mut self, name: String, epoch: Option<Epoch>) -> Arc<Place> {
        if let Some(epoch) = epoch {
            for place in self.0.drain(..) {
                let message = texts::stolen(&name, epoch, &place.name, place.epoch);
                place.end(Ending::Stolen { epoch, by: told(&name), message });
            }
        }
        let place = Arc::new(Place { name, epoch, ending: OnceLock::new() });
        self.0.push(place.clone());
        place
    }

    /// Frees a place. A receiver that was disconnected has none any more, and its successor stays.
    pub(super) fn leave(&mut self, place: &Arc<Place>) {
        self.0.retain(|present| !Arc::ptr_eq(present, place));
    }

    /// Cuts the links of all receivers.
    pub(super) fn cut(&mut self, message: &Arc<str>) {
        for place in self.0.drain(..) {
            place.end(Ending::Lost(message.clone()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn owner(&self) -> Option<(&Place, Epoch)> {
        self.0.iter().find_map(|place| Some((&**place, place.epoch?)))
    }
}

fn told(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// What the service says, to the letter, without the tracking ids behind it.
mod texts {
    use super::{Epoch, MOST_WITHOUT_EPOCH};

    /// What the service shows for a name or an epoch that was not given.
    const NOT_GIVEN: &str = "nil";

    fn shown(name: &str) -> &str {
        if name.is_empty() { NOT_GIVEN } else { name }
    }

    pub(super) fn stolen(new: &str, epoch: Epoch, old: &str, old_epoch: Option<Epoch>) -> String {
        let old_epoch = old_epoch.map_or_else(|| NOT_GIVEN.to_owned(), |epoch| epoch.to_string());
        format!(
            "New receiver '{}' with higher epoch of '{epoch}' is created hence current receiver '{}' with \
             epoch '{old_epoch}' is getting disconnected. If you are recreating the receiver, make sure a \
             higher epoch is used.",
            shown(new),
            shown(old)
        )
    }

    pub(super) fn lower_epoch(present: &str, current: Epoch, new: &str, epoch: Epoch) -> String {
        format!(
            "Receiver '{}' with a higher epoch '{current}' already exists. Receiver '{}' with epoch {epoch} \
             cannot be created. Make sure you are creating receiver with increasing epoch value to ensure \
             connectivity, or ensure all old epoch receivers are closed or disconnected.",
            shown(present),
            shown(new)
        )
    }

    pub(super) fn no_epoch_beside_an_epoch(current: Epoch) -> String {
        format!(
            "At least one receiver for the endpoint is created with epoch of '{current}', and so non-epoch \
             receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch receivers \
             are closed or disconnected."
        )
    }

    pub(super) fn too_many<'a>(names: impl Iterator<Item = &'a str>) -> String {
        let names: Vec<&str> = names.map(shown).collect();
        format!(
            "Exceeded the maximum number of allowed receivers per partition in a consumer group which is \
             {MOST_WITHOUT_EPOCH}. List of connected receivers - {}.",
            names.join(", ")
        )
    }
}
