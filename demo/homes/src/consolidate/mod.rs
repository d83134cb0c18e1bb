//! Consolidates sensor readings into the state of each home, and into alarms. Pure functions of the events.
//!
//! ```text
//! event (sequence, reading) ─fold─► Homes | OpenAlarms ─take_update─► small update ─apply─► the same state elsewhere
//!                                        └─serialised whole: a snapshot
//! ```
//!
//! Idempotent: an event that is delivered again is recognised by its sequence number, a reading that a sensor sent again by its own
//! number. A reader that applies all updates in order, or reads a snapshot that was taken right after `take_update`, has the same
//! state as the writer, and may continue folding.
//!
//! For readers:
//! - [`Homes::iter`], [`Homes::home`], [`Homes::time`], [`Homes::today`], [`Homes::totals`]; then [`Home`] and [`SensorState`] with their
//!   fields, [`Home::is_active`], [`Home::is_silent`], [`Home::in_danger`] and [`Home::alarms`]. [`HomesUpdate::homes`] names those that
//!   an update touches.
//! - [`OpenAlarms::newest`] and [`OpenAlarmsUpdate::alarms`] with [`AlarmEntry`]; [`Alarm::what`] describes it.

mod alarm;
mod clock;
mod home;
mod homes;
mod open_alarms;
mod seen_numbers;
mod today;

#[cfg(test)]
mod measure;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::reading::Reading;

pub use alarm::{Alarm, AlarmKind, CARBON_MONOXIDE_ALARM};
pub use clock::WRONG_CLOCK;
pub use home::{Home, SensorState};
pub use homes::{Homes, HomesUpdate, SILENCE, Totals};
pub use open_alarms::{AlarmEntry, OpenAlarms, OpenAlarmsUpdate};
pub use today::Today;

/// A state that is made of a partition's events, in the order of the log.
pub trait Consolidation: Default + Serialize + DeserializeOwned + Send + 'static {
    /// A change, to be applied to the state before it.
    type Update: Serialize + DeserializeOwned + Send;

    /// The reading of event `sequence`. One that was folded before changes nothing but the count of replays.
    fn fold(&mut self, sequence: u64, reading: &Reading);

    /// An event that is no reading: counted, and the sequence moves on.
    fn skip(&mut self, sequence: u64);

    /// Returns the change since the last call; none if there is none that a reader or the next owner needs.
    fn take_update(&mut self) -> Option<Self::Update>;

    /// Applies a change of `take_update`, in the same order.
    fn apply(&mut self, update: Self::Update);

    /// The last event folded or applied.
    fn last(&self) -> Option<u64>;
}

/// The position of a state in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
struct Progress {
    last: Option<u64>,
    replayed: u64,
    skipped: u64,
}

impl Progress {
    /// Whether the event is a new one.
    fn step(&mut self, sequence: u64) -> bool {
        let new = self.last.is_none_or(|last| sequence > last);
        if new {
            self.last = Some(sequence);
        } else {
            self.replayed += 1;
        }
        new
    }

    fn skip(&mut self, sequence: u64) {
        if self.step(sequence) {
            self.skipped += 1;
        }
    }
}
