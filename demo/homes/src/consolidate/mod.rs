//! From readings to the state of each home, and to alarms. Pure: the log decides everything.
//!
//! ```text
//! event (sequence, reading) ─fold─► Homes | Desk ─take_update─► small update ─apply─► the same state elsewhere
//!                                        └─serialised whole: a snapshot
//! ```
//!
//! What is folded twice is counted once: an event that is delivered again is known by its sequence number, a reading that a sensor sent
//! again by its own number. Whoever applies all updates in order, or reads a snapshot that was taken right after `take_update`, has
//! what the folding side has, and may go on folding from there.
//!
//! For readers:
//! - [`Homes::iter`], [`Homes::home`], [`Homes::time`], [`Homes::today`], [`Homes::totals`]; then [`Home`] and [`SensorState`] with their
//!   fields, [`Home::is_active`], [`Home::is_silent`], [`Home::in_danger`] and [`Home::alarms`]. [`HomesUpdate::homes`] names those that
//!   an update touches.
//! - [`Desk::newest`] and [`DeskUpdate::alarms`] with [`Told`]; [`Alarm::what`] says it for people.

mod alarm;
mod clock;
mod desk;
mod home;
mod homes;
mod seen;
mod today;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod scenes;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::reading::Reading;

pub use alarm::{Alarm, AlarmKind, CARBON_MONOXIDE_ALARM};
pub use clock::WRONG_CLOCK;
pub use desk::{Desk, DeskUpdate, Told};
pub use home::{Home, SensorState};
pub use homes::{Homes, HomesUpdate, SILENCE, Totals};
pub use today::Today;

/// A state that is made of a partition's events, in the order of the log.
pub trait Consolidation: Default + Serialize + DeserializeOwned + Send + 'static {
    /// What changed, for those who have the state as it was before.
    type Update: Serialize + DeserializeOwned + Send;

    /// The reading of event `sequence`. One that was folded before changes nothing but the count of replays.
    fn fold(&mut self, sequence: u64, reading: &Reading);

    /// An event that is no reading: counted, and the sequence moves on.
    fn skip(&mut self, sequence: u64);

    /// What changed since the last call; none if nothing did that a reader or the next owner must know.
    fn take_update(&mut self) -> Option<Self::Update>;

    /// The reader's side: what `take_update` gave, in the same order.
    fn apply(&mut self, update: Self::Update);

    /// The last event folded or applied.
    fn last(&self) -> Option<u64>;
}

/// How far into the log a state has come.
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
