//! Reads and writes a lease as the metadata of its ownership blob.
//!
//! | stored name | value |
//! |---|---|
//! | `ownerid` | the owner, under the name that all SDKs use; empty if there is none |
//! | `ephor` | JSON: `epoch`, `duration_ms`, `acquired_at`, `previous`, `previous_until`, `heir`, `on_roll` |
//!
//! Another SDK writes only `ownerid` and drops the rest, which distinguishes its records from ours. The
//! time of the last write is the blob's Last-Modified in whole seconds; the real time may be up to a
//! second later. If `on_roll` is set, the owner renews in its renewal batch (`renewal/batch.rs`), and a
//! takeover revokes the lease there first.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, HostName, Incarnation, PartitionId};
use ephor_core::lease::{Lease, LeaseToken, LeaseVersion};
use ephor_core::record::LeaseRecord;
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::azblob::CLOCK_RESOLUTION;
use crate::azblob::layout::metadata::{Metadata, escape, pairs, unescape};
use crate::azblob::renewal::batch::RenewalBatch;
use crate::azblob::service::container::Blob;
use crate::record_text::Unreadable;

pub(in crate::azblob) const OWNER: &str = "ownerid";
pub(in crate::azblob) const OURS: &str = "ephor";

#[derive(Serialize, Deserialize)]
struct Fields {
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    acquired_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_until: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heir: Option<String>,
    #[serde(rename = "on_roll", default, skip_serializing_if = "std::ops::Not::not")]
    batch_renewed: bool,
}

/// A lease as its blob and its owner's renewal batch show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct Ownership {
    pub(in crate::azblob) record: LeaseRecord,
    pub(in crate::azblob) etag: String,
    /// The id of its owner, if another SDK wrote it.
    pub(in crate::azblob) other_sdk_owner: Option<String>,
    /// Whether its owner renews it in a batch. Stored as `on_roll`.
    pub(in crate::azblob) batch_renewed: bool,
    /// The beat of its last renewal in the batch.
    pub(in crate::azblob) beat: Option<u64>,
}

impl Ownership {
    /// The version of this state. Renewals in the batch change it; revocations do not, because the process
    /// that revokes is about to write the ownership.
    pub(in crate::azblob) fn version(&self) -> LeaseVersion {
        match self.beat {
            None => LeaseVersion::tag(&self.etag),
            Some(beat) => LeaseVersion::tag(&format!("{};{beat}", self.etag)),
        }
    }

    /// The lease as a view shows it.
    pub(in crate::azblob) fn seen_at(&self, now: Timestamp) -> Lease {
        Lease { version: self.version(), ..self.record.seen_at(now) }
    }

    pub(in crate::azblob) fn is_held_by(&self, token: &LeaseToken) -> bool {
        self.record.owner.as_ref() == Some(&token.owner) && self.record.epoch == token.epoch
    }

    /// Whether this state is later than a lease of this owner in this epoch.
    pub(in crate::azblob) fn supersedes(&self, owner: &HostId, epoch: Epoch) -> bool {
        let here = &self.record;
        here.epoch > epoch || (here.epoch == epoch && here.owner.as_ref() != Some(owner))
    }

    /// The owner, if it renews the lease in a batch.
    pub(in crate::azblob) fn batch_renewed_by(&self) -> Option<&HostId> {
        self.record.owner.as_ref().filter(|_| self.batch_renewed)
    }

    /// Adds the last renewal from its owner's batch.
    pub(in crate::azblob) fn with_renewal_from(mut self, batch: Option<&RenewalBatch>) -> Self {
        let (partition, epoch) = (self.record.partition, self.record.epoch);
        if let Some(batch) = batch.filter(|_| self.batch_renewed)
            && let Some(renewed) = batch.renewal(partition, epoch)
        {
            self.beat = Some(renewed.beat);
            self.record.duration = Some(batch.duration);
            self.record.renewed_at = self.record.renewed_at.max(renewed.at + CLOCK_RESOLUTION);
        }
        self
    }
}

pub(in crate::azblob) fn write(record: &LeaseRecord, batch_renewed: bool) -> Metadata {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fields = Fields {
        epoch: record.epoch.get(),
        duration_ms: record.duration.map(millis),
        acquired_at: record.acquired_at.0,
        previous: record.previous_owner.as_ref().map(ToString::to_string),
        previous_until: (record.previous_owner_until.0 != 0).then_some(record.previous_owner_until.0),
        heir: record.successor.as_ref().map(ToString::to_string),
        batch_renewed,
    };
    let owner = record.owner.as_ref().map(|owner| escape(&owner.to_string())).unwrap_or_default();
    // Plain structures with text keys: nothing in them can fail.
    let ours = escape(&serde_json::to_string(&fields).unwrap_or_default());
    pairs([(OWNER, owner), (OURS, ours)])
}

/// Reads a lease. `taken` is the highest epoch ever taken: records of other SDKs have none.
pub(in crate::azblob) fn read(
    partition: PartitionId,
    blob: &Blob,
    taken: Epoch,
) -> Result<Ownership, Unreadable> {
    let owner = blob.metadata.get(OWNER).map(String::as_str).unwrap_or_default();
    let etag = blob.stamp.etag.clone();
    let modified = blob.stamp.modified;
    let Some(ours) = blob.metadata.get(OURS) else {
        let record = LeaseRecord {
            partition,
            owner: (!owner.is_empty()).then(|| other_sdk_host(owner)),
            epoch: taken,
            duration: None,
            acquired_at: modified,
            renewed_at: modified + CLOCK_RESOLUTION,
            revision: 0,
            previous_owner: None,
            previous_owner_until: Timestamp(0),
            successor: None,
        };
        let other_sdk_owner = (!owner.is_empty()).then(|| owner.to_owned());
        return Ok(Ownership { record, etag, other_sdk_owner, batch_renewed: false, beat: None });
    };
    let fields: Fields = serde_json::from_str(&unescape(ours)).map_err(|error| error.to_string())?;
    let record = LeaseRecord {
        partition,
        owner: host(Some(unescape(owner)).filter(|owner| !owner.is_empty()))?,
        epoch: Epoch::from_stored(fields.epoch),
        duration: fields.duration_ms.map(Duration::from_millis),
        acquired_at: Timestamp(fields.acquired_at),
        renewed_at: modified + CLOCK_RESOLUTION,
        revision: 0,
        previous_owner: host(fields.previous)?,
        previous_owner_until: Timestamp(fields.previous_until.unwrap_or_default()),
        successor: host(fields.heir)?,
    };
    Ok(Ownership { record, etag, other_sdk_owner: None, batch_renewed: fields.batch_renewed, beat: None })
}

fn host(text: Option<String>) -> Result<Option<HostId>, Unreadable> {
    text.map(|text| text.parse().map_err(|_| format!("{text:?} is not a host id"))).transpose()
}

/// Another SDK's owner as a host: its id as the name, and incarnation 0.
fn other_sdk_host(owner: &str) -> HostId {
    let fits = |c: &char| !c.is_control() && !c.is_whitespace();
    let name: String = owner.chars().filter(fits).take(200).collect();
    let unnamed = || "unnamed".parse::<HostName>();
    match name.parse().or_else(|_| unnamed()) {
        Ok(name) => HostId { name, incarnation: Incarnation(0) },
        Err(error) => unreachable!("a plain word is a name: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azblob::service::container::Stamp;

    const P: PartitionId = PartitionId(7);

    fn blob(metadata: Metadata) -> Blob {
        Blob { metadata, stamp: Stamp { etag: "0x1".into(), modified: Timestamp(5_000) } }
    }

    fn full() -> LeaseRecord {
        LeaseRecord {
            partition: P,
            owner: Some("ж 1#0000000000000001".replace(' ', "").parse().unwrap()),
            epoch: Epoch::from_stored((1 << 53) + 1),
            duration: Some(Duration::from_millis(20_500)),
            acquired_at: Timestamp(3_000),
            renewed_at: Timestamp(6_000),
            revision: 0,
            previous_owner: Some("b#0000000000000002".parse().unwrap()),
            previous_owner_until: Timestamp(9_000),
            successor: Some("c#0000000000000003".parse().unwrap()),
        }
    }

    #[test]
    fn every_field_reads_back() {
        let bare = LeaseRecord {
            owner: None,
            duration: None,
            previous_owner: None,
            previous_owner_until: Timestamp(0),
            successor: None,
            ..full()
        };
        for (record, batch_renewed) in [(full(), true), (bare, false)] {
            let read = read(P, &blob(write(&record, batch_renewed)), Epoch::NONE).unwrap();
            assert_eq!((read.record, read.other_sdk_owner, read.etag.as_str()), (record, None, "0x1"));
            assert_eq!(read.batch_renewed, batch_renewed);
        }
    }

    #[test]
    fn what_is_stored_stays_readable() {
        let metadata = pairs([
            (OWNER, "a#0000000000000001".into()),
            (OURS, r#"{"epoch":3,"duration_ms":30000,"acquired_at":1000,"zone":"b"}"#.into()),
        ]);
        let read = read(P, &blob(metadata), Epoch::from_stored(9)).unwrap();
        assert_eq!(read.record.epoch, Epoch::from_stored(3));
        assert_eq!(read.record.owner, Some("a#0000000000000001".parse().unwrap()));
        assert_eq!(read.seen_at(Timestamp(8_000)).age, Duration::from_secs(2));
        assert!(!read.batch_renewed);
    }

    #[test]
    fn a_roll_counts_only_where_the_record_says_so() {
        let mut batch = RenewalBatch::empty(0);
        batch.renew(Duration::from_secs(60), [(P, full().epoch)].into_iter(), |_, _| false);
        let batch = batch.dated(Timestamp(20_000));
        let lease = |batch_renewed| read(P, &blob(write(&full(), batch_renewed)), Epoch::NONE).unwrap();
        let renewed = lease(true).with_renewal_from(Some(&batch));
        assert_eq!(renewed.record.renewed_at, Timestamp(21_000));
        assert_eq!(renewed.seen_at(Timestamp(25_000)).age, Duration::from_secs(4));
        assert_eq!(renewed.record.duration, Some(Duration::from_secs(60)));
        assert_eq!(renewed.version(), LeaseVersion::tag("0x1;1"));
        for other in [lease(false).with_renewal_from(Some(&batch)), lease(true).with_renewal_from(None)] {
            assert_eq!(
                (other.record.renewed_at, other.version()),
                (Timestamp(6_000), LeaseVersion::tag("0x1"))
            );
        }
    }

    #[test]
    fn records_of_other_sdks_are_read_with_the_epoch_that_was_taken() {
        let taken = Epoch::from_stored(4);
        let id = "7f6e5d4c-uuid";
        let read_one = |metadata| read(P, &blob(metadata), taken).unwrap();
        let owned = read_one(pairs([(OWNER, id.into())]));
        assert_eq!(owned.other_sdk_owner.as_deref(), Some(id));
        assert_eq!(owned.record.owner.as_ref().map(|owner| owner.name.as_str()), Some(id));
        assert_eq!((owned.record.epoch, owned.record.duration), (taken, None));
        // Given back, and never written: nobody owns it.
        for metadata in [pairs([(OWNER, String::new())]), Metadata::new()] {
            let free = read_one(metadata);
            assert_eq!((free.record.owner, free.other_sdk_owner), (None, None));
        }
        let odd = read_one(pairs([(OWNER, " \t".into())]));
        assert!(odd.record.owner.is_some());
    }

    #[test]
    fn damage_is_told() {
        for (owner, ours) in [("nobody", r#"{"epoch":3,"acquired_at":1}"#), ("", "{}"), ("", "nonsense")] {
            let metadata = pairs([(OWNER, owner.into()), (OURS, ours.into())]);
            assert!(read(P, &blob(metadata), Epoch::NONE).is_err(), "{owner} {ours}");
        }
    }
}
