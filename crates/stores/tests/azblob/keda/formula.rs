//! Test helper: the formula of KEDA's scaler for Event Hubs, implemented from its description
//! (`checkpointStrategy: blobMetadata`).
//!
//! It reads one blob for each partition and the partition's properties from `$management`, and knows nothing else.

use std::collections::BTreeMap;

use ephor_core::source::PartitionProperties;

/// `stalePartitionInfoThreshold`, as KEDA sets it.
const STALE: i64 = 10_000;

/// The name of the blob: namespace and hub as the trigger names them, the group in small letters.
pub(crate) fn blob_of(namespace: &str, hub: &str, group: &str, partition: u32) -> String {
    format!("{namespace}/{hub}/{}/checkpoint/{partition}", group.to_lowercase())
}

/// The events of a partition that are not processed; an error stops the whole scaler.
pub(crate) fn backlog(
    partition: &PartitionProperties,
    blob: Option<&BTreeMap<String, String>>,
) -> Result<i64, String> {
    let first = i64::try_from(partition.first.0).unwrap();
    let last = partition.last.as_ref().map_or(-1, |last| i64::try_from(last.sequence.0).unwrap());
    if last == -1 {
        return Ok(0);
    }
    let Some(metadata) = blob else {
        let counted = first != last || last == 0;
        return Ok(if counted { last - first + 1 } else { 0 });
    };
    let text = metadata.get("sequencenumber").ok_or("no sequencenumber")?;
    let finished: i64 = text.parse().map_err(|_| format!("{text:?} is no sequence number"))?;
    let ahead = if last >= finished { last - finished } else { i64::MAX - finished + last };
    Ok(if ahead > i64::MAX - STALE { 0 } else { ahead })
}

#[test]
fn the_formula_is_the_one_that_is_described() {
    use ephor_core::ids::PartitionId;
    use ephor_core::position::{Offset, SequenceNumber};
    use ephor_core::source::LastEnqueued;
    use ephor_core::time::Timestamp;
    let kept = |first: u64, last: Option<u64>| {
        let last = last.map(|last| LastEnqueued {
            sequence: SequenceNumber(last),
            offset: Offset::number(last),
            enqueued_at: Timestamp(0),
        });
        PartitionProperties::without_gap(PartitionId(0), SequenceNumber(first), last)
    };
    let at = |text: &str| BTreeMap::from([("sequencenumber".to_owned(), text.to_owned())]);
    for (first, last, blob, expected) in [
        (0, None, None, 0),
        (0, None, Some("7"), 0),
        (0, Some(0), None, 1),
        (5, Some(5), None, 0), // Its own mistake: there is one.
        (5, Some(9), None, 5),
        (10, Some(9), None, 0),
        (0, Some(9), Some("-1"), 10),
        (0, Some(9), Some("9"), 0),
        (0, Some(9), Some("12"), 0), // What it knows of the partition is old.
    ] {
        let blob = blob.map(at);
        let counted = backlog(&kept(first, last), blob.as_ref());
        assert_eq!(counted, Ok(expected), "{first} {last:?} {blob:?}");
    }
    assert!(backlog(&kept(0, Some(9)), Some(&at(""))).is_err());
}
