//! Heartbeats and timeouts of a connection: sends empty frames, and ends a connection whose peer is silent,
//! does not read, or does not open or close in time. Timeouts of deliveries are in
//! `incomplete_deliveries.rs`.
//!
//! Time is the duration since an arbitrary start, and is passed as an argument. Reads and writes are noted
//! without a clock; the next [`Connection::on_time`] gives them their time.
//!
//! A peer is judged only by what could be observed. Bytes that have come count before they are decoded; no
//! timeout runs against a peer that is not read from; and if `on_time` is called late, because the process
//! was suspended or its runtime was blocked, the peer gets some more time.

use std::time::Duration;

use super::event::{Closed, Event};
use super::{Connection, Phase, Side};
use crate::frame::HEARTBEAT;
use crate::performative::{Error, condition};

/// The shortest interval of heartbeats, even if the peer asks for a shorter one.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// If `on_time` is called this much after its deadline, input of the peer may have been missed.
const LATE: Duration = Duration::from_secs(1);

/// The peer then has at least this long, or all of its time if that is shorter.
const TIME_AFTER_LATE: Duration = Duration::from_secs(5);

/// A peer has to read one of this many parts of the output that waits for it in time, so that a byte now and
/// then is not enough.
const PARTS_TO_READ: usize = 10;

#[derive(Default)]
pub(super) struct Clock {
    /// The time of the last `on_time`.
    pub(super) now: Duration,
    /// The time since which reading is paused, or was until [`Self::resumed`].
    pub(super) paused_since: Option<Duration>,
    /// The sum of all earlier pauses.
    pub(super) paused_for: Duration,
    /// Reading was resumed after the last `on_time`.
    pub(super) resumed: bool,
    /// No deadline before this counts as missed, because `on_time` was called late.
    pub(super) spared_until: Duration,
    /// The deadline for the peer's `open`.
    pub(super) open_by: Duration,
    /// The deadline for the peer's `close`.
    close_by: Option<Duration>,
    /// The time at which the last bytes came.
    received_at: Duration,
    /// A frame has come since then.
    pub(super) received: bool,
    /// The length of the input at the last `on_time`, which was not a whole frame.
    input: usize,
    /// Nothing could be read at the last `on_time`, whatever came.
    unread: bool,
    /// The time at which bytes were last written.
    written_at: Duration,
    /// The time since which output waits, and the peer has not read `to_take` bytes of it.
    pub(super) stuck_since: Option<Duration>,
    /// The bytes that the peer has to read within `time_to_read`.
    to_take: usize,
    /// The interval at which we have to send something.
    pub(super) heartbeat: Option<Duration>,
}

impl Clock {
    pub(super) fn start(now: Duration, time_to_open: Duration) -> Self {
        Self { now, open_by: now + time_to_open, received_at: now, written_at: now, ..Self::default() }
    }

    /// The time without the pauses: it stands still while reading is paused.
    pub(super) fn reading_time(&self) -> Duration {
        self.paused_since.unwrap_or(self.now).saturating_sub(self.paused_for)
    }

    /// Sets the heartbeat interval to half of the peer's idle timeout.
    pub(super) fn set_heartbeat(&mut self, idle_time_out: Option<u32>) {
        let timeout = idle_time_out.filter(|&milliseconds| milliseconds > 0);
        self.heartbeat = timeout
            .map(|milliseconds| (Duration::from_millis(milliseconds.into()) / 2).max(MIN_HEARTBEAT_INTERVAL));
    }
}

impl Connection {
    /// The time at which [`Self::on_time`] has to be called at the latest. Also call it whenever bytes were
    /// read or written.
    pub fn next_deadline(&self) -> Option<Duration> {
        let limits = &self.config.limits;
        let stuck = self.clock.stuck_since.map(|since| since + limits.time_to_read);
        let phase = match self.phase {
            Phase::Header { .. } | Phase::Sasl | Phase::Decision | Phase::Opening => Some(self.clock.open_by),
            Phase::Open => {
                let silent = self.silence().map(|silence| self.clock.received_at + silence);
                let heartbeat = self.clock.heartbeat.map(|every| self.clock.written_at + every);
                let late = self.unended.check_at().filter(|_| !self.paused);
                earliest(earliest(silent, heartbeat), late)
            }
            Phase::Closed if !self.has_output() => return None,
            Phase::Closing | Phase::Broken | Phase::Closed => Some(self.clock.close_by.unwrap_or_default()),
        };
        earliest(stuck, phase)
    }

    /// Advances the time. `now` never goes back. True if that led to an event, bytes to write, or the end.
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
            self.clock.received = true;
        }
        let reads = self.wants_input();
        let unread = std::mem::replace(&mut self.clock.unread, !reads);
        self.clock.received |= self.input.len() > self.clock.input || !reads || unread;
        self.clock.input = self.input.len();
        if was_late {
            self.give_time_after_late(now);
        }
        if std::mem::take(&mut self.clock.received) {
            self.clock.received_at = now;
        }
        let progressed = std::mem::take(&mut self.output.progressed);
        if progressed {
            self.clock.written_at = now;
        }
        let limits = &self.config.limits;
        match self.clock.stuck_since {
            _ if !self.has_output() => self.clock.stuck_since = None,
            Some(since) if self.output.taken < self.clock.to_take => {
                if now >= since + limits.time_to_read {
                    let (timeout, waiting) = (limits.time_to_read, self.output.len());
                    return self.lose(match self.output.taken {
                        0 => format!("the peer has read nothing for {timeout:?}"),
                        taken => format!(
                            "the peer has read only {taken} bytes in {timeout:?}, and {waiting} wait for it"
                        ),
                    });
                }
            }
            _ => {
                self.clock.stuck_since = Some(now);
                self.clock.to_take = self.output.len().div_ceil(PARTS_TO_READ).max(1);
                self.output.taken = 0;
            }
        }
        match self.phase {
            Phase::Header { .. } | Phase::Sasl | Phase::Decision | Phase::Opening => {
                if now >= self.clock.open_by {
                    let timeout = self.config.limits.time_to_open;
                    let description = format!("no open within {timeout:?} of connecting");
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

    /// Gives the peer some time from now on, whatever it has missed.
    fn give_time_after_late(&mut self, now: Duration) {
        let since = |timeout: Duration| (now + TIME_AFTER_LATE.min(timeout)).saturating_sub(timeout);
        if let Some(silence) = self.silence() {
            self.clock.received_at = self.clock.received_at.max(since(silence));
        }
        let limits = &self.config.limits;
        self.clock.spared_until = self.clock.spared_until.max(since(limits.time_to_finish));
        if let Some(stuck) = &mut self.clock.stuck_since {
            *stuck = (*stuck).max(since(limits.time_to_read));
        }
    }

    fn keep_alive(&mut self, now: Duration) {
        if let Some(silence) = self.silence()
            && now >= self.clock.received_at + silence
        {
            return self.fail_idle(silence);
        }
        if let Some(every) = self.clock.heartbeat
            && now >= self.clock.written_at + every
        {
            // Output that waits to be written serves as a heartbeat as well.
            if !self.has_output() {
                self.output.bytes().extend_from_slice(&HEARTBEAT);
            }
            self.clock.written_at = now;
        }
    }

    /// Ends the connection of a peer that is silent. A server does it in the words and with the frames of
    /// Event Hubs: every link is detached and every session ended before the `close`, because some clients
    /// take only the end of a link for a reason to attach it again.
    fn fail_idle(&mut self, silence: Duration) {
        let Side::Server(_) = self.side else {
            let description = format!("the peer has been silent for {silence:?}, twice its idle-time-out");
            return self.fail(Error::new(condition::CONNECTION_FORCED, description));
        };
        let description = format!(
            "The connection was inactive for more than the allowed {} milliseconds and is closed by container '{}'.",
            silence.as_millis(),
            self.config.container_id
        );
        let error = Error::new(condition::CONNECTION_FORCED, description);
        self.end_everything(&error);
        self.fail(error);
    }

    /// The time for which the peer may be silent; `None` while reading is paused.
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
