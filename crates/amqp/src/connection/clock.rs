//! What happens because time passes: heartbeats, and patience that ends.
//!
//! Time is how long ago an arbitrary start is, and comes as an argument. Whether bytes came or
//! went is noted without looking at a clock; the next [`Connection::on_time`] gives it its time.
//!
//! A peer is judged by what we could see of it. Bytes that have come count before anybody has looked into them;
//! nothing counts against a peer that is not read from; and who has not looked for long, because the
//! process was stopped or its runtime was blocked, looks again before it judges.

use std::time::Duration;

use super::event::{Closed, Event};
use super::{Connection, Phase};
use crate::frame::HEARTBEAT;
use crate::performative::{Error, condition};

/// A peer that wants to hear something more often than this is not served faster.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(100);

/// Whoever looks this much later than it wanted to may have missed what the peer did.
const LATE: Duration = Duration::from_secs(1);

/// Then the peer has at least this long, or all of its time if that is shorter.
const TIME_AFTER_LATE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Clock {
    /// The time that was told last.
    pub(super) now: Duration,
    /// Since when nothing is read, or was not until [`Self::resumed`].
    pub(super) paused_since: Option<Duration>,
    /// How long nothing was read, in all pauses before.
    pub(super) paused_for: Duration,
    /// Reading has gone on since somebody last told the time.
    pub(super) resumed: bool,
    /// Nothing that was due before this counts as late: nobody looked.
    pub(super) spared_until: Duration,
    /// The peer's `open` has to be here by then.
    pub(super) open_by: Duration,
    /// The peer's `close` has to be here by then.
    close_by: Option<Duration>,
    /// When the last bytes came.
    heard_at: Duration,
    /// A frame has come since.
    pub(super) heard: bool,
    /// How much of the input had come by then, and was not a whole frame.
    input: usize,
    /// Nothing was read then, whatever came.
    unread: bool,
    /// When bytes last went.
    written_at: Duration,
    /// Since when bytes wait and none go.
    stuck_since: Option<Duration>,
    /// How often the peer wants to hear something.
    pub(super) heartbeat: Option<Duration>,
}

impl Clock {
    pub(super) fn start(now: Duration, time_to_open: Duration) -> Self {
        Self { now, open_by: now + time_to_open, heard_at: now, written_at: now, ..Self::default() }
    }

    /// The time without the pauses: it stands still while nothing is read.
    pub(super) fn reading_time(&self) -> Duration {
        self.paused_since.unwrap_or(self.now).saturating_sub(self.paused_for)
    }

    /// Half of what the peer says is its patience.
    pub(super) fn set_heartbeat(&mut self, idle_time_out: Option<u32>) {
        let patience = idle_time_out.filter(|&milliseconds| milliseconds > 0);
        self.heartbeat = patience
            .map(|milliseconds| (Duration::from_millis(milliseconds.into()) / 2).max(SHORTEST_HEARTBEAT));
    }
}

impl Connection {
    /// When [`Self::on_time`] has to be called at the latest; also, call it whenever bytes were read or
    /// written.
    pub fn next_deadline(&self) -> Option<Duration> {
        let limits = &self.config.limits;
        let stuck = self.clock.stuck_since.map(|since| since + limits.time_to_read);
        let phase = match self.phase {
            Phase::Header { .. } | Phase::Sasl | Phase::Decision | Phase::Opening => Some(self.clock.open_by),
            Phase::Open => {
                let silent = self.silence().map(|silence| self.clock.heard_at + silence);
                let heartbeat = self.clock.heartbeat.map(|every| self.clock.written_at + every);
                let late = self.held.look_at().filter(|_| !self.paused);
                earliest(earliest(silent, heartbeat), late)
            }
            Phase::Closed if !self.has_output() => return None,
            Phase::Closing | Phase::Broken | Phase::Closed => Some(self.clock.close_by.unwrap_or_default()),
        };
        earliest(stuck, phase)
    }

    /// Lets time pass. `now` never goes back. Says whether something came of it: an event, bytes to write,
    /// or the end.
    pub fn on_time(&mut self, now: Duration) -> bool {
        let before = (self.phase, self.events.len(), self.output.len());
        self.pass(now);
        before != (self.phase, self.events.len(), self.output.len())
    }

    fn pass(&mut self, now: Duration) {
        let was_late = self.next_deadline().is_some_and(|due| now >= due.max(self.clock.now) + LATE);
        self.clock.now = now;
        if std::mem::take(&mut self.clock.resumed) {
            let paused_again = self.paused.then_some(now);
            let since = std::mem::replace(&mut self.clock.paused_since, paused_again);
            self.clock.paused_for += now - since.unwrap_or(now);
            self.clock.heard = true;
        }
        let reads = self.wants_input();
        let unread = std::mem::replace(&mut self.clock.unread, !reads);
        self.clock.heard |= self.input.len() > self.clock.input || !reads || unread;
        self.clock.input = self.input.len();
        if was_late {
            self.give_time_after_late(now);
        }
        if std::mem::take(&mut self.clock.heard) {
            self.clock.heard_at = now;
        }
        let progressed = std::mem::take(&mut self.output.progressed);
        if progressed {
            self.clock.written_at = now;
        }
        let limits = &self.config.limits;
        match self.clock.stuck_since {
            _ if !self.has_output() => self.clock.stuck_since = None,
            Some(since) if !progressed => {
                if now >= since + limits.time_to_read {
                    let patience = limits.time_to_read;
                    return self.lose(format!("the peer has read nothing for {patience:?}"));
                }
            }
            _ => self.clock.stuck_since = Some(now),
        }
        match self.phase {
            Phase::Header { .. } | Phase::Sasl | Phase::Decision | Phase::Opening => {
                if now >= self.clock.open_by {
                    let patience = self.config.limits.time_to_open;
                    let description = format!("no open within {patience:?} of connecting");
                    self.fail(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, description));
                }
            }
            Phase::Open => {
                self.give_up_late_deliveries(now);
                self.keep_alive(now);
            }
            Phase::Closed if !self.has_output() => {}
            Phase::Closing | Phase::Broken | Phase::Closed => {
                let by = *self.clock.close_by.get_or_insert(now + self.config.limits.time_to_close);
                if now >= by {
                    if self.phase == Phase::Closing {
                        self.events.push_back(Event::Closed(Closed::ByUs));
                    }
                    self.phase = Phase::Closed;
                    self.output.discard();
                }
            }
        }
    }

    /// Leaves the peer some time from now on, whatever it should have done by now.
    fn give_time_after_late(&mut self, now: Duration) {
        let since = |patience: Duration| (now + TIME_AFTER_LATE.min(patience)).saturating_sub(patience);
        if let Some(silence) = self.silence() {
            self.clock.heard_at = self.clock.heard_at.max(since(silence));
        }
        let limits = &self.config.limits;
        self.clock.spared_until = self.clock.spared_until.max(since(limits.time_to_finish));
        if let Some(stuck) = &mut self.clock.stuck_since {
            *stuck = (*stuck).max(since(limits.time_to_read));
        }
    }

    fn keep_alive(&mut self, now: Duration) {
        if let Some(silence) = self.silence()
            && now >= self.clock.heard_at + silence
        {
            let description = format!("the peer has been silent for {silence:?}, twice its idle-time-out");
            return self.fail(Error::new(condition::CONNECTION_FORCED, description));
        }
        if let Some(every) = self.clock.heartbeat
            && now >= self.clock.written_at + every
        {
            // Bytes that wait to be written will be heard as well.
            if !self.has_output() {
                self.output.bytes().extend_from_slice(&HEARTBEAT);
            }
            self.clock.written_at = now;
        }
    }

    /// How long the peer may be silent, unless nobody listens.
    fn silence(&self) -> Option<Duration> {
        self.config.idle_time_out.filter(|_| !self.paused).map(|time| time * 2)
    }
}

fn earliest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
