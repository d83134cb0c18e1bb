//! A host's roll: the leases of up to 256 partitions, which it renews with one write; as metadata.
//!
//! | name | value |
//! |---|---|
//! | `beat` | how often the host has renewed here |
//! | `duration` | how long a renewal lasts, in milliseconds |
//! | `leases` | what was renewed last: `PLACE:EPOCH,…`, where the place is the partition's in its 256 |
//! | `left` | what was renewed before and not since: `PLACE:EPOCH:BEAT:SECONDS,…`, all in the base of 36, so that they fit |
//! | `struck` | what somebody takes away, written like `left`: the host never renews it again |
//! | `at` | when the host renewed, if somebody else has written since; in milliseconds |
//!
//! There is one line for each partition, that of its highest epoch: what was before it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::time::Timestamp;

use super::CLOCK_RESOLUTION;
use super::container::Blob;
use super::metadata::{Metadata, number, pairs};
use crate::text::Unreadable;

/// So many partitions share a roll.
const BUCKET: u32 = 256;

const BEAT: &str = "beat";
const DURATION: &str = "duration";
const LEASES: &str = "leases";
const LEFT: &str = "left";
const STRUCK: &str = "struck";
const AT: &str = "at";

/// When a lease was renewed, and with which beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Renewed {
    /// Counts from one.
    pub(super) beat: u64,
    /// As the service dates it.
    pub(super) at: Timestamp,
}

/// Stands for a lease that was struck before its first renewal.
const NEVER: Renewed = Renewed { beat: 0, at: Timestamp(0) };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Renewed with the last beat.
    Fresh,
    Left(Renewed),
    Struck(Renewed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    epoch: Epoch,
    state: State,
}

/// A roll as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roll {
    bucket: u32,
    beat: u64,
    pub(super) duration: Duration,
    /// When the host renewed last.
    at: Timestamp,
    lines: BTreeMap<PartitionId, Line>,
}

/// Which roll of its owner a partition is in.
pub(super) fn bucket(partition: PartitionId) -> u32 {
    partition.0 / BUCKET
}

impl Roll {
    /// One on which nothing stands yet.
    pub(super) fn empty(bucket: u32) -> Self {
        let (duration, at) = (Duration::ZERO, Timestamp(0));
        Self { bucket, beat: 0, duration, at, lines: BTreeMap::new() }
    }

    /// Whether nothing was ever written here that can be read.
    pub(super) fn is_blank(&self) -> bool {
        self.beat == 0 && self.lines.is_empty()
    }

    pub(super) fn read(bucket: u32, blob: &Blob) -> Result<Self, Unreadable> {
        let metadata = &blob.metadata;
        let told = |name: &str| format!("{name} is {:?}", metadata.get(name).map_or("", String::as_str));
        let mut roll = Self {
            beat: number(metadata, BEAT).ok_or_else(|| told(BEAT))?,
            duration: Duration::from_millis(number(metadata, DURATION).ok_or_else(|| told(DURATION))?),
            at: number(metadata, AT).map_or(blob.stamp.modified, Timestamp),
            ..Self::empty(bucket)
        };
        for (name, radix) in [(LEASES, 10), (LEFT, 36), (STRUCK, 36)] {
            let text = metadata.get(name).map_or("", String::as_str);
            for line in text.split(',').filter(|line| !line.is_empty()) {
                let numbers: Option<Vec<u64>> =
                    line.split(':').map(|number| u64::from_str_radix(number, radix).ok()).collect();
                let line = numbers.and_then(|numbers| roll.line(name, &numbers));
                let (partition, line) = line.ok_or_else(|| told(name))?;
                roll.lines.insert(partition, line);
            }
        }
        Ok(roll)
    }

    fn line(&self, name: &str, numbers: &[u64]) -> Option<(PartitionId, Line)> {
        let renewed = |beat, seconds: u64| {
            let millis = i64::try_from(seconds).ok()?.checked_mul(1_000)?;
            Some(Renewed { beat, at: Timestamp(millis) })
        };
        let (place, epoch, state) = match (name, numbers) {
            (LEASES, [place, epoch]) => (place, epoch, State::Fresh),
            (LEFT, [place, epoch, beat, at]) => (place, epoch, State::Left(renewed(*beat, *at)?)),
            (STRUCK, [place, epoch, beat, at]) => (place, epoch, State::Struck(renewed(*beat, *at)?)),
            _ => return None,
        };
        let place = u32::try_from(*place).ok().filter(|place| *place < BUCKET)?;
        let partition = PartitionId(self.bucket.checked_mul(BUCKET)?.checked_add(place)?);
        Some((partition, Line { epoch: Epoch::from_stored(*epoch), state }))
    }

    /// As its host writes it when it renews: the time is that of the write.
    pub(super) fn written_by_its_host(&self) -> Metadata {
        let duration = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let mut metadata = pairs([(BEAT, self.beat.to_string()), (DURATION, duration.to_string())]);
        for (partition, Line { epoch, state }) in &self.lines {
            let (place, epoch) = (partition.0 % BUCKET, epoch.get());
            let (name, line) = match state {
                State::Fresh => (LEASES, format!("{place}:{epoch}")),
                State::Left(renewed) => (LEFT, past(place, epoch, *renewed)),
                State::Struck(renewed) => (STRUCK, past(place, epoch, *renewed)),
            };
            let text = metadata.entry(name.to_owned()).or_default();
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&line);
        }
        metadata
    }

    /// As anybody else writes it: that is no sign of life.
    pub(super) fn written_by_another(&self) -> Metadata {
        let mut metadata = self.written_by_its_host();
        metadata.insert(AT.into(), self.at.0.to_string());
        metadata
    }

    fn of(&self, partition: PartitionId, epoch: Epoch) -> Option<State> {
        self.lines.get(&partition).filter(|line| line.epoch == epoch).map(|line| line.state)
    }

    /// The last renewal of a lease here.
    pub(super) fn renewal(&self, partition: PartitionId, epoch: Epoch) -> Option<Renewed> {
        match self.of(partition, epoch)? {
            State::Fresh => Some(self.last()),
            State::Left(renewed) | State::Struck(renewed) => (renewed != NEVER).then_some(renewed),
        }
    }

    fn last(&self) -> Renewed {
        Renewed { beat: self.beat, at: self.at }
    }

    /// Whether its host has had it, and nobody has struck it.
    pub(super) fn holds(&self, partition: PartitionId, epoch: Epoch) -> bool {
        matches!(self.of(partition, epoch), Some(State::Fresh | State::Left(_)))
    }

    pub(super) fn has_struck(&self, partition: PartitionId, epoch: Epoch) -> bool {
        matches!(self.of(partition, epoch), Some(State::Struck(_)))
    }

    /// Whether a renewal may not be written any more: it was struck, or a later epoch stands here.
    pub(super) fn is_over(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let later = self.lines.get(&partition).is_some_and(|line| line.epoch > epoch);
        later || self.has_struck(partition, epoch)
    }

    /// The roll with one lease struck. A later epoch is left alone.
    pub(super) fn strike(&mut self, partition: PartitionId, epoch: Epoch) {
        if self.is_over(partition, epoch) {
            return;
        }
        let renewed = self.renewal(partition, epoch).unwrap_or(NEVER);
        self.lines.insert(partition, Line { epoch, state: State::Struck(renewed) });
    }

    /// Which of its host's writes this is.
    pub(super) fn beat(&self) -> u64 {
        self.beat
    }

    /// Strikes everything that has run out: the claims of a dead host's leases need no more of their own.
    pub(super) fn strike_expired(&mut self, now: Timestamp) {
        let (last, duration) = (self.last(), self.duration);
        for line in self.lines.values_mut() {
            let renewed = match line.state {
                State::Fresh => last,
                State::Left(renewed) => renewed,
                State::Struck(_) => continue,
            };
            if now.since(renewed.at + CLOCK_RESOLUTION) >= duration {
                line.state = State::Struck(renewed);
            }
        }
    }

    /// The roll after one more renewal, of these; what `is_past` says is dropped.
    pub(super) fn renew(
        &mut self,
        duration: Duration,
        leases: impl Iterator<Item = (PartitionId, Epoch)>,
        is_past: impl Fn(PartitionId, Epoch) -> bool,
    ) {
        let last = self.last();
        self.lines.retain(|partition, line| !is_past(*partition, line.epoch));
        for line in self.lines.values_mut().filter(|line| line.state == State::Fresh) {
            line.state = State::Left(last);
        }
        for (partition, epoch) in leases {
            self.lines.insert(partition, Line { epoch, state: State::Fresh });
        }
        // However often somebody else says that it was.
        self.beat = self.beat.saturating_add(1);
        self.duration = duration;
    }

    /// After its host's own write.
    pub(super) fn dated(self, at: Timestamp) -> Self {
        Self { at, ..self }
    }
}

fn past(place: u32, epoch: u64, renewed: Renewed) -> String {
    let seconds = u64::try_from(renewed.at.0 / 1_000).unwrap_or_default();
    [u64::from(place), epoch, renewed.beat, seconds].map(base_36).join(":")
}

fn base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        // One of 36: it fits.
        let digit = u8::try_from(number % 36).unwrap_or_default();
        digits.push(char::from(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::Stamp;
    use super::super::metadata::MOST_METADATA;
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const P: PartitionId = PartitionId(700);

    fn epoch(number: u64) -> Epoch {
        Epoch::from_stored(number)
    }

    fn read_at(metadata: Metadata, modified: i64) -> Result<Roll, Unreadable> {
        let stamp = Stamp { etag: "0x1".into(), modified: Timestamp(modified) };
        Roll::read(bucket(P), &Blob { metadata, stamp })
    }

    /// A roll that has renewed these at this time.
    fn renewed(roll: &Roll, at: i64, leases: &[(u32, u64)]) -> Roll {
        let mut roll = roll.clone();
        let leases = leases.iter().map(|(partition, number)| (PartitionId(*partition), epoch(*number)));
        roll.renew(LEASE, leases, |_, _| false);
        roll.dated(Timestamp(at))
    }

    #[test]
    fn every_line_reads_back_with_its_time() {
        let mut roll = renewed(&Roll::empty(2), 1_000, &[(700, 3), (701, 4), (702, 5)]);
        roll = renewed(&roll, 2_000, &[(700, 3), (702, 5)]);
        roll = renewed(&roll, 3_000, &[(700, 3)]);
        roll.strike(PartitionId(702), epoch(5));
        roll.strike(PartitionId(703), epoch(9));
        let metadata = roll.written_by_another();
        let of = |name: &str| metadata.get(name).map(String::as_str);
        assert_eq!((of(LEASES), of(LEFT)), (Some("188:3"), Some("59:4:1:1")));
        assert_eq!(of(STRUCK), Some("5a:5:2:2,5b:9:0:0"));
        // The strike is no sign of life, and the host's next renewal is one.
        let read = read_at(metadata, 50_000).unwrap();
        assert_eq!(read, roll);
        assert_eq!(read.renewal(P, epoch(3)), Some(Renewed { beat: 3, at: Timestamp(3_000) }));
        assert_eq!(read.renewal(PartitionId(703), epoch(9)), None);
        assert!(read.holds(PartitionId(701), epoch(4)) && !read.holds(PartitionId(702), epoch(5)));
        let next = read_at(renewed(&read, 0, &[(700, 3)]).written_by_its_host(), 60_000).unwrap();
        assert_eq!(next.renewal(P, epoch(3)), Some(Renewed { beat: 4, at: Timestamp(60_000) }));
        assert!(next.has_struck(PartitionId(702), epoch(5)));
    }

    #[test]
    fn an_earlier_epoch_neither_counts_nor_strikes() {
        let mut roll = renewed(&Roll::empty(2), 1_000, &[(700, 3)]);
        assert_eq!(roll.renewal(P, epoch(2)), None);
        assert!(roll.is_over(P, epoch(2)) && !roll.is_over(P, epoch(3)) && !roll.is_over(P, epoch(4)));
        roll.strike(P, epoch(2));
        assert!(roll.holds(P, epoch(3)));
        roll.strike(P, epoch(4));
        assert!(roll.has_struck(P, epoch(4)));
    }

    #[test]
    fn only_what_has_run_out_is_struck_with_the_rest() {
        let roll = renewed(&Roll::empty(2), 10_000, &[(700, 3), (701, 4)]);
        let roll = renewed(&roll, 20_000, &[(701, 4)]);
        for (now, expected) in [(40_999, (false, false)), (41_000, (true, false)), (51_000, (true, true))] {
            let mut roll = roll.clone();
            roll.strike_expired(Timestamp(now));
            let struck = (roll.has_struck(P, epoch(3)), roll.has_struck(PartitionId(701), epoch(4)));
            assert_eq!(struck, expected, "at {now}");
        }
    }

    #[test]
    fn a_host_renews_however_high_its_beat_was_made() {
        let mut metadata = renewed(&Roll::empty(2), 1_000, &[(700, 3)]).written_by_its_host();
        metadata.insert(BEAT.into(), u64::MAX.to_string());
        let roll = renewed(&read_at(metadata, 2_000).unwrap(), 3_000, &[(700, 3)]);
        assert_eq!(roll.renewal(P, epoch(3)), Some(Renewed { beat: u64::MAX, at: Timestamp(3_000) }));
    }

    #[test]
    fn what_is_past_is_dropped() {
        let mut roll = renewed(&Roll::empty(2), 1_000, &[(700, 3), (701, 4)]);
        roll.strike(P, epoch(3));
        roll.renew(LEASE, std::iter::empty(), |partition, number| partition == P && number == epoch(3));
        assert!(!roll.has_struck(P, epoch(3)) && roll.holds(PartitionId(701), epoch(4)));
    }

    /// The service takes eight thousand bytes of metadata.
    #[test]
    fn all_256_fit_whatever_stands_behind_them() {
        const EPOCH: u64 = 9_999_999_999;
        let all: Vec<(u32, u64)> = (512..768).map(|partition| (partition, EPOCH)).collect();
        let size = |roll: &Roll| -> usize {
            roll.written_by_another().iter().map(|(name, value)| name.len() + value.len()).sum()
        };
        let mut roll = Roll { beat: 1_000_000_000, ..Roll::empty(2) };
        roll = renewed(&roll, 4_000_000_000_000, &all);
        assert!(size(&roll) <= MOST_METADATA, "{}", size(&roll));
        roll = renewed(&roll, 4_000_000_010_000, &[]);
        assert!(size(&roll) <= MOST_METADATA, "{}", size(&roll));
        roll.strike_expired(Timestamp(5_000_000_000_000));
        assert!(size(&roll) <= MOST_METADATA, "{}", size(&roll));
        assert!(all.iter().all(|(partition, _)| roll.has_struck(PartitionId(*partition), epoch(EPOCH))));
        assert_eq!(read_at(roll.written_by_another(), 0).unwrap(), roll);
    }

    #[test]
    fn damage_is_told() {
        let whole = renewed(&Roll::empty(2), 1_000, &[(700, 3)]).written_by_its_host();
        assert!(read_at(whole.clone(), 0).is_ok());
        for (name, value) in [
            (BEAT, ""),
            (DURATION, "x"),
            (LEASES, "1"),
            (LEASES, "256:1"),
            (LEFT, "1:1"),
            (STRUCK, "?:1:1:1"),
        ] {
            let mut metadata = whole.clone();
            metadata.insert(name.into(), value.into());
            assert!(read_at(metadata, 0).is_err(), "{name} {value}");
        }
    }
}
