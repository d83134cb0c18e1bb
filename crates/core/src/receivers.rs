//! Admits receivers of one consumer group to a partition, and disconnects those that a new one replaces
//! (fencing): of a lower or equal epoch, or without one.
//!
//! ```text
//!   nobody ──epoch e──► one owner (e) ──epoch ≥ e──► another owner
//!      └─no epoch─► up to five readers ──any epoch──► one owner
//! ```
//!
//! A receiver that is disconnected learns the name and epoch of its successor. No state outlives
//! the receivers: once the owner has left, any epoch is admitted, as with the service. A receiver
//! that vanished without closing counts until [`Receivers::forget_vanished`] removes it.

mod admission;
pub mod error_texts;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use self::admission::Ending;
pub use self::admission::{Admission, WaitingGuard};
use crate::epoch::Epoch;
use crate::source::OpenError;
use crate::time::Monotonic;

/// The most receivers without an epoch that may read a partition in one group.
pub const MAX_RECEIVERS_WITHOUT_EPOCH: usize = 5;

/// The most characters of a receiver's name that count, as with the service.
pub const MAX_NAME_CHARACTERS: usize = 64;

/// A receiver's name as a hub keeps it: a longer one is cut.
pub fn known_name(name: &str) -> &str {
    name.char_indices().nth(MAX_NAME_CHARACTERS).map_or(name, |(end, _)| &name[..end])
}

/// The time without a sign of life after which a receiver counts as vanished.
pub const DEFAULT_VANISH_AFTER: Duration = Duration::from_secs(10 * 60);

/// The receivers of one group on one partition: one owner, or a few without an epoch.
#[derive(Default, Debug)]
pub struct Receivers(Vec<Arc<Admission>>);

impl Receivers {
    /// Checks that a receiver with this epoch may attach. The check disconnects nobody.
    pub fn admit(&self, name: &str, epoch: Option<Epoch>) -> Result<(), OpenError> {
        match (self.owner(), epoch) {
            (Some((owner, current)), Some(epoch)) if epoch < current => Err(OpenError::Refused {
                epoch: Some(current),
                by: known_by(owner.name()),
                message: error_texts::lower_epoch(owner.name(), current, name, epoch),
            }),
            (Some((owner, current)), None) => Err(OpenError::Refused {
                epoch: Some(current),
                by: known_by(owner.name()),
                message: error_texts::no_epoch_beside_an_epoch(current),
            }),
            (None, None) if self.0.len() >= MAX_RECEIVERS_WITHOUT_EPOCH => {
                let names = self.iter().map(|admission| admission.name());
                Err(OpenError::TooManyReceivers { message: error_texts::too_many(names) })
            }
            _ => Ok(()),
        }
    }

    /// Adds an admitted receiver, and disconnects those that it replaces.
    pub fn enter(&mut self, name: String, epoch: Option<Epoch>, now: Monotonic) -> Arc<Admission> {
        if let Some(epoch) = epoch {
            for admission in self.0.drain(..) {
                let message = error_texts::stolen(&name, epoch, admission.name(), admission.epoch());
                admission.end(Ending::Stolen { epoch, by: known_by(&name), message });
            }
        }
        let admission = Arc::new(Admission::new(name, epoch, now));
        self.0.push(admission.clone());
        admission
    }

    /// Removes a receiver. One that was disconnected is removed already, and its successor stays.
    pub fn leave(&mut self, admission: &Arc<Admission>) {
        self.0.retain(|present| !Arc::ptr_eq(present, admission));
    }

    /// Disconnects all receivers, as if their links were lost.
    pub fn disconnect_all(&mut self, message: &Arc<str>) {
        for admission in self.0.drain(..) {
            admission.end(Ending::Lost(message.clone()));
        }
    }

    /// Removes the receivers without a sign of life for longer than `after`, and returns their
    /// number. If one of them comes back, its error says why it has to open again.
    pub fn forget_vanished(&mut self, now: Monotonic, after: Duration) -> usize {
        let before = self.0.len();
        self.0.retain(|admission| {
            let silence = admission.silence(now);
            if silence <= after {
                return true;
            }
            admission.end(Ending::Lost(error_texts::vanished(admission.name(), silence).into()));
            false
        });
        before - self.0.len()
    }

    /// True if there are no receivers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The receivers, in the order in which they attached.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Admission>> {
        self.0.iter()
    }

    fn owner(&self) -> Option<(&Admission, Epoch)> {
        self.0.iter().find_map(|admission| Some((&**admission, admission.epoch()?)))
    }
}

fn known_by(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}
