//! A host's renewal batch: the leases of up to 256 partitions, which the host renews with one write.
//!
//! It is stored as metadata. The code and the stored names differ:
//!
//! | stored name | value |
//! |---|---|
//! | `beat` | the number of renewals by the host |
//! | `duration` | how long a renewal lasts, in milliseconds |
//! | `leases` | renewed with the last beat: `INDEX:EPOCH,…`, where the index is that of the partition in its 256 |
//! | `left` | renewed with an earlier beat: `INDEX:EPOCH:BEAT:SECONDS,…`, in base 36, so that 256 entries fit |
//! | `struck` | revoked by a process that takes the lease, written like `left`: the host never renews it again |
//! | `at` | when the host renewed, if another process has written since; in milliseconds |
//!
//! There is one entry for each partition, that of its highest epoch.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::time::Timestamp;

use crate::azblob::CLOCK_RESOLUTION;
use crate::azblob::layout::metadata::{Metadata, number, pairs};
use crate::azblob::service::container::Blob;
use crate::record_text::Unreadable;

/// The number of partitions that share a batch.
const PARTITIONS_PER_BATCH: u32 = 256;

const BEAT: &str = "beat";
const DURATION: &str = "duration";
const LEASES: &str = "leases";
const EARLIER: &str = "left";
const REVOKED: &str = "struck";
const AT: &str = "at";

/// The time and the beat of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct LastRenewal {
    /// Counts from one.
    pub(in crate::azblob) beat: u64,
    /// By the service's clock.
    pub(in crate::azblob) at: Timestamp,
}

/// The last renewal of a lease that was revoked before its first.
const NEVER: LastRenewal = LastRenewal { beat: 0, at: Timestamp(0) };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Renewed with the last beat.
    Latest,
    /// Renewed with an earlier beat.
    Earlier(LastRenewal),
    /// Revoked by another process.
    Revoked(LastRenewal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    epoch: Epoch,
    state: State,
}

/// A renewal batch in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct RenewalBatch {
    batch_number: u32,
    beat: u64,
    pub(in crate::azblob) duration: Duration,
    /// The time of the host's last renewal.
    at: Timestamp,
    entries: BTreeMap<PartitionId, Entry>,
}

/// The number of the batch that contains a partition.
pub(in crate::azblob) fn batch_number(partition: PartitionId) -> u32 {
    partition.0 / PARTITIONS_PER_BATCH
}

impl RenewalBatch {
    /// A batch without entries.
    pub(in crate::azblob) fn empty(batch_number: u32) -> Self {
        let (duration, at) = (Duration::ZERO, Timestamp(0));
        Self { batch_number, beat: 0, duration, at, entries: BTreeMap::new() }
    }

    /// Whether nothing readable was ever written to the batch.
    pub(in crate::azblob) fn is_blank(&self) -> bool {
        self.beat == 0 && self.entries.is_empty()
    }

    pub(in crate::azblob) fn read(batch_number: u32, blob: &Blob) -> Result<Self, Unreadable> {
        let metadata = &blob.metadata;
        let unreadable =
            |name: &str| format!("{name} is {:?}", metadata.get(name).map_or("", String::as_str));
        let mut batch = Self {
            beat: number(metadata, BEAT).ok_or_else(|| unreadable(BEAT))?,
            duration: Duration::from_millis(number(metadata, DURATION).ok_or_else(|| unreadable(DURATION))?),
            at: number(metadata, AT).map_or(blob.stamp.modified, Timestamp),
            ..Self::empty(batch_number)
        };
        for (name, radix) in [(LEASES, 10), (EARLIER, 36), (REVOKED, 36)] {
            let text = metadata.get(name).map_or("", String::as_str);
            for entry in text.split(',').filter(|entry| !entry.is_empty()) {
                let numbers: Option<Vec<u64>> =
                    entry.split(':').map(|number| u64::from_str_radix(number, radix).ok()).collect();
                let entry = numbers.and_then(|numbers| batch.entry(name, &numbers));
                let (partition, entry) = entry.ok_or_else(|| unreadable(name))?;
                batch.entries.insert(partition, entry);
            }
        }
        Ok(batch)
    }

    fn entry(&self, name: &str, numbers: &[u64]) -> Option<(PartitionId, Entry)> {
        let renewed = |beat, seconds: u64| {
            let millis = i64::try_from(seconds).ok()?.checked_mul(1_000)?;
            Some(LastRenewal { beat, at: Timestamp(millis) })
        };
        let (index, epoch, state) = match (name, numbers) {
            (LEASES, [index, epoch]) => (index, epoch, State::Latest),
            (EARLIER, [index, epoch, beat, at]) => (index, epoch, State::Earlier(renewed(*beat, *at)?)),
            (REVOKED, [index, epoch, beat, at]) => (index, epoch, State::Revoked(renewed(*beat, *at)?)),
            _ => return None,
        };
        let index = u32::try_from(*index).ok().filter(|index| *index < PARTITIONS_PER_BATCH)?;
        let partition = PartitionId(self.batch_number.checked_mul(PARTITIONS_PER_BATCH)?.checked_add(index)?);
        Some((partition, Entry { epoch: Epoch::from_stored(*epoch), state }))
    }

    /// The metadata that its host writes when it renews. The time is that of the write.
    pub(in crate::azblob) fn metadata_by_host(&self) -> Metadata {
        let duration = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let mut metadata = pairs([(BEAT, self.beat.to_string()), (DURATION, duration.to_string())]);
        for (partition, Entry { epoch, state }) in &self.entries {
            let (index, epoch) = (partition.0 % PARTITIONS_PER_BATCH, epoch.get());
            let (name, entry) = match state {
                State::Latest => (LEASES, format!("{index}:{epoch}")),
                State::Earlier(renewed) => (EARLIER, entry_text(index, epoch, *renewed)),
                State::Revoked(renewed) => (REVOKED, entry_text(index, epoch, *renewed)),
            };
            let text = metadata.entry(name.to_owned()).or_default();
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&entry);
        }
        metadata
    }

    /// The metadata that another process writes. It stores the time of the host's last renewal, because
    /// this write is no sign of life.
    pub(in crate::azblob) fn metadata_by_other(&self) -> Metadata {
        let mut metadata = self.metadata_by_host();
        metadata.insert(AT.into(), self.at.0.to_string());
        metadata
    }

    fn of(&self, partition: PartitionId, epoch: Epoch) -> Option<State> {
        self.entries.get(&partition).filter(|entry| entry.epoch == epoch).map(|entry| entry.state)
    }

    /// The last renewal of a lease.
    pub(in crate::azblob) fn renewal(&self, partition: PartitionId, epoch: Epoch) -> Option<LastRenewal> {
        match self.of(partition, epoch)? {
            State::Latest => Some(self.last()),
            State::Earlier(renewed) | State::Revoked(renewed) => (renewed != NEVER).then_some(renewed),
        }
    }

    fn last(&self) -> LastRenewal {
        LastRenewal { beat: self.beat, at: self.at }
    }

    /// Whether the host has renewed a lease that is not revoked.
    pub(in crate::azblob) fn holds(&self, partition: PartitionId, epoch: Epoch) -> bool {
        matches!(self.of(partition, epoch), Some(State::Latest | State::Earlier(_)))
    }

    pub(in crate::azblob) fn is_revoked(&self, partition: PartitionId, epoch: Epoch) -> bool {
        matches!(self.of(partition, epoch), Some(State::Revoked(_)))
    }

    /// Whether a lease can no longer be renewed: it is revoked, or there is an entry of a later epoch.
    pub(in crate::azblob) fn forbids(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let later = self.entries.get(&partition).is_some_and(|entry| entry.epoch > epoch);
        later || self.is_revoked(partition, epoch)
    }

    /// Revokes a lease. An entry of a later epoch is not changed.
    pub(in crate::azblob) fn revoke(&mut self, partition: PartitionId, epoch: Epoch) {
        if self.forbids(partition, epoch) {
            return;
        }
        let renewed = self.renewal(partition, epoch).unwrap_or(NEVER);
        self.entries.insert(partition, Entry { epoch, state: State::Revoked(renewed) });
    }

    /// The number of renewals by the host.
    pub(in crate::azblob) fn beat(&self) -> u64 {
        self.beat
    }

    /// Revokes all expired leases, so that the claims of a dead host's other leases need no write of their own.
    pub(in crate::azblob) fn revoke_expired(&mut self, now: Timestamp) {
        let (last, duration) = (self.last(), self.duration);
        for entry in self.entries.values_mut() {
            let renewed = match entry.state {
                State::Latest => last,
                State::Earlier(renewed) => renewed,
                State::Revoked(_) => continue,
            };
            if now.since(renewed.at + CLOCK_RESOLUTION) >= duration {
                entry.state = State::Revoked(renewed);
            }
        }
    }

    /// Renews these leases with a new beat. Drops the entries for which `is_past` is true.
    pub(in crate::azblob) fn renew(
        &mut self,
        duration: Duration,
        leases: impl Iterator<Item = (PartitionId, Epoch)>,
        is_past: impl Fn(PartitionId, Epoch) -> bool,
    ) {
        let last = self.last();
        self.entries.retain(|partition, entry| !is_past(*partition, entry.epoch));
        for entry in self.entries.values_mut().filter(|entry| entry.state == State::Latest) {
            entry.state = State::Earlier(last);
        }
        for (partition, epoch) in leases {
            self.entries.insert(partition, Entry { epoch, state: State::Latest });
        }
        // Another program may have set it to the highest number.
        self.beat = self.beat.saturating_add(1);
        self.duration = duration;
    }

    /// The batch after its host's write at this time.
    pub(in crate::azblob) fn dated(self, at: Timestamp) -> Self {
        Self { at, ..self }
    }
}

fn entry_text(index: u32, epoch: u64, renewed: LastRenewal) -> String {
    let seconds = u64::try_from(renewed.at.0 / 1_000).unwrap_or_default();
    [u64::from(index), epoch, renewed.beat, seconds].map(base_36).join(":")
}

fn base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        // Below 36: it fits.
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
    use super::*;
    use crate::azblob::layout::metadata::MAX_METADATA;
    use crate::azblob::service::container::Stamp;

    const LEASE: Duration = Duration::from_secs(30);
    const P: PartitionId = PartitionId(700);

    fn epoch(number: u64) -> Epoch {
        Epoch::from_stored(number)
    }

    fn read_at(metadata: Metadata, modified: i64) -> Result<RenewalBatch, Unreadable> {
        let stamp = Stamp { etag: "0x1".into(), modified: Timestamp(modified) };
        RenewalBatch::read(batch_number(P), &Blob { metadata, stamp })
    }

    /// A batch that has renewed these at this time.
    fn renewed(batch: &RenewalBatch, at: i64, leases: &[(u32, u64)]) -> RenewalBatch {
        let mut batch = batch.clone();
        let leases = leases.iter().map(|(partition, number)| (PartitionId(*partition), epoch(*number)));
        batch.renew(LEASE, leases, |_, _| false);
        batch.dated(Timestamp(at))
    }

    #[test]
    fn every_line_reads_back_with_its_time() {
        let mut batch = renewed(&RenewalBatch::empty(2), 1_000, &[(700, 3), (701, 4), (702, 5)]);
        batch = renewed(&batch, 2_000, &[(700, 3), (702, 5)]);
        batch = renewed(&batch, 3_000, &[(700, 3)]);
        batch.revoke(PartitionId(702), epoch(5));
        batch.revoke(PartitionId(703), epoch(9));
        let metadata = batch.metadata_by_other();
        let of = |name: &str| metadata.get(name).map(String::as_str);
        assert_eq!((of(LEASES), of(EARLIER)), (Some("188:3"), Some("59:4:1:1")));
        assert_eq!(of(REVOKED), Some("5a:5:2:2,5b:9:0:0"));
        // The revocation is no sign of life, and the host's next renewal is one.
        let read = read_at(metadata, 50_000).unwrap();
        assert_eq!(read, batch);
        assert_eq!(read.renewal(P, epoch(3)), Some(LastRenewal { beat: 3, at: Timestamp(3_000) }));
        assert_eq!(read.renewal(PartitionId(703), epoch(9)), None);
        assert!(read.holds(PartitionId(701), epoch(4)) && !read.holds(PartitionId(702), epoch(5)));
        let next = read_at(renewed(&read, 0, &[(700, 3)]).metadata_by_host(), 60_000).unwrap();
        assert_eq!(next.renewal(P, epoch(3)), Some(LastRenewal { beat: 4, at: Timestamp(60_000) }));
        assert!(next.is_revoked(PartitionId(702), epoch(5)));
    }

    #[test]
    fn an_earlier_epoch_neither_counts_nor_strikes() {
        let mut batch = renewed(&RenewalBatch::empty(2), 1_000, &[(700, 3)]);
        assert_eq!(batch.renewal(P, epoch(2)), None);
        assert!(batch.forbids(P, epoch(2)) && !batch.forbids(P, epoch(3)) && !batch.forbids(P, epoch(4)));
        batch.revoke(P, epoch(2));
        assert!(batch.holds(P, epoch(3)));
        batch.revoke(P, epoch(4));
        assert!(batch.is_revoked(P, epoch(4)));
    }

    #[test]
    fn only_what_has_run_out_is_struck_with_the_rest() {
        let batch = renewed(&RenewalBatch::empty(2), 10_000, &[(700, 3), (701, 4)]);
        let batch = renewed(&batch, 20_000, &[(701, 4)]);
        for (now, expected) in [(40_999, (false, false)), (41_000, (true, false)), (51_000, (true, true))] {
            let mut batch = batch.clone();
            batch.revoke_expired(Timestamp(now));
            let revoked = (batch.is_revoked(P, epoch(3)), batch.is_revoked(PartitionId(701), epoch(4)));
            assert_eq!(revoked, expected, "at {now}");
        }
    }

    #[test]
    fn a_host_renews_however_high_its_beat_was_made() {
        let mut metadata = renewed(&RenewalBatch::empty(2), 1_000, &[(700, 3)]).metadata_by_host();
        metadata.insert(BEAT.into(), u64::MAX.to_string());
        let batch = renewed(&read_at(metadata, 2_000).unwrap(), 3_000, &[(700, 3)]);
        assert_eq!(batch.renewal(P, epoch(3)), Some(LastRenewal { beat: u64::MAX, at: Timestamp(3_000) }));
    }

    #[test]
    fn what_is_past_is_dropped() {
        let mut batch = renewed(&RenewalBatch::empty(2), 1_000, &[(700, 3), (701, 4)]);
        batch.revoke(P, epoch(3));
        batch.renew(LEASE, std::iter::empty(), |partition, number| partition == P && number == epoch(3));
        assert!(!batch.is_revoked(P, epoch(3)) && batch.holds(PartitionId(701), epoch(4)));
    }

    /// The service takes eight thousand bytes of metadata.
    #[test]
    fn all_256_fit_whatever_stands_behind_them() {
        const EPOCH: u64 = 9_999_999_999;
        let all: Vec<(u32, u64)> = (512..768).map(|partition| (partition, EPOCH)).collect();
        let size = |batch: &RenewalBatch| -> usize {
            batch.metadata_by_other().iter().map(|(name, value)| name.len() + value.len()).sum()
        };
        let mut batch = RenewalBatch { beat: 1_000_000_000, ..RenewalBatch::empty(2) };
        batch = renewed(&batch, 4_000_000_000_000, &all);
        assert!(size(&batch) <= MAX_METADATA, "{}", size(&batch));
        batch = renewed(&batch, 4_000_000_010_000, &[]);
        assert!(size(&batch) <= MAX_METADATA, "{}", size(&batch));
        batch.revoke_expired(Timestamp(5_000_000_000_000));
        assert!(size(&batch) <= MAX_METADATA, "{}", size(&batch));
        assert!(all.iter().all(|(partition, _)| batch.is_revoked(PartitionId(*partition), epoch(EPOCH))));
        assert_eq!(read_at(batch.metadata_by_other(), 0).unwrap(), batch);
    }

    #[test]
    fn damage_is_told() {
        let whole = renewed(&RenewalBatch::empty(2), 1_000, &[(700, 3)]).metadata_by_host();
        assert!(read_at(whole.clone(), 0).is_ok());
        for (name, value) in [
            (BEAT, ""),
            (DURATION, "x"),
            (LEASES, "1"),
            (LEASES, "256:1"),
            (EARLIER, "1:1"),
            (REVOKED, "?:1:1:1"),
        ] {
            let mut metadata = whole.clone();
            metadata.insert(name.into(), value.into());
            assert!(read_at(metadata, 0).is_err(), "{name} {value}");
        }
    }
}
