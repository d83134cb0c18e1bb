//! Reads arbitrary blobs, as if Ephor or other SDKs had written them, for a fuzz target. Not for
//! applications.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::{Case, Names, group_of};
use crate::azblob::layout::metadata::{Metadata, unescape};
use crate::azblob::legacy;
use crate::azblob::operations::partition_state::read_epoch;
use crate::azblob::records::checkpoint;
use crate::azblob::records::history;
use crate::azblob::records::hosts;
use crate::azblob::records::ownership;
use crate::azblob::renewal::batch::RenewalBatch;
use crate::azblob::service::container::{Blob, Stamp};
use crate::azblob::session::written_group;

const P: PartitionId = PartitionId(7);
const MODIFIED: Timestamp = Timestamp(1_700_000_000_000);
const LATER: Timestamp = Timestamp(1_700_000_031_000);

/// Reads a blob as every kind of record. A record of ours that is read, written and read again is the same.
pub fn blob(name: &str, metadata: &[(&str, &str)], body: &str) {
    let metadata =
        metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned())).collect();
    let blob = stamped(metadata);
    named(name);
    lease(&blob);
    position(&blob);
    renewals(&blob);
    let _ = (
        read_epoch(&blob),
        written_group(&blob),
        hosts::written_at(&blob),
        hosts::is_drained(&blob.metadata),
    );
    legacy::play(name, body);
    history::play(body);
    for text in blob.metadata.values().map(|value| unescape(value)).chain([body.to_owned()]) {
        crate::fuzzing::texts(&text);
    }
}

fn stamped(metadata: Metadata) -> Blob {
    Blob { metadata, stamp: Stamp { etag: "0x1".into(), modified: MODIFIED } }
}

/// The group that a name gives has a blob of that name.
fn named(name: &str) {
    let Some(group) = group_of("", name) else { return };
    // Names are written in lower case.
    if name == name.to_lowercase()
        && let Some(names) = Names::of("", &group, Case::Lower)
    {
        assert!(names.kind(name).is_some(), "{name} is of no group");
    }
}

fn lease(blob: &Blob) {
    let Ok(lease) = ownership::read(P, blob, Epoch::from_stored(5)) else { return };
    let seen = lease.seen_at(LATER);
    assert!(seen.age <= LATER.since(MODIFIED), "{seen:?}");
    if lease.other_sdk_owner.is_none() && blob.metadata.contains_key(ownership::OURS) {
        let again = stamped(ownership::write(&lease.record, lease.batch_renewed));
        assert_eq!(ownership::read(P, &again, Epoch::NONE).as_ref(), Ok(&lease));
    }
}

fn position(blob: &Blob) {
    let fence = checkpoint::fence(blob);
    let Ok(record) = checkpoint::read(blob) else { return };
    assert_eq!(fence.unwrap_or_default(), record.fence);
    let fenced_again = stamped(checkpoint::with_fence(blob, &record, Epoch::from_stored(9)));
    let read = checkpoint::read(&fenced_again);
    let read = read.unwrap_or_else(|why| panic!("a checkpoint with a new fence is unreadable: {why}"));
    let places = [&read, &record].map(|record| record.checkpoint.as_ref().map(|found| &found.position));
    assert_eq!((read.fence, places[0]), (Epoch::from_stored(9), places[1]));
    if let Some(found) = &record.checkpoint {
        let read = checkpoint::read(&stamped(checkpoint::write(None, found, record.fence)));
        let read = read.ok().and_then(|record| record.checkpoint);
        let place = read.map(|read| (read.position, read.log, read.epoch));
        assert_eq!(place, Some((found.position.clone(), found.log.clone(), found.epoch)));
    }
}

fn renewals(blob: &Blob) {
    let Ok(mut batch) = RenewalBatch::read(0, blob) else { return };
    assert_eq!(RenewalBatch::read(0, &stamped(batch.metadata_by_other())).as_ref(), Ok(&batch));
    let _ = (batch.is_blank(), batch.renewal(P, Epoch::from_stored(1)));
    batch.revoke(P, Epoch::from_stored(1));
    batch.revoke_expired(LATER);
    batch.renew(Duration::from_secs(30), [(P, Epoch::from_stored(2))].into_iter(), |_, _| false);
    let read = RenewalBatch::read(0, &stamped(batch.metadata_by_host()));
    assert!(read.is_ok_and(|read| read.holds(P, Epoch::from_stored(2))), "{batch:?}");
}
