//! Reads log frames that older versions wrote without validating every section of a message, or by laxer
//! rules.
//!
//! Readers get every event, and of each event the sections that can be decoded ([`keep_valid`]); invalid ones are left
//! out. Frames with the flag `validated` of today's rules skip this. It costs as much as the validation of a send, until
//! retention has freed the old frames.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use ephor_amqp::Malformed;
use ephor_amqp::validate::keep_valid;
use ephor_core::ids::PartitionId;

use super::{RECORD_HEADER, record_length, record_parts};
use crate::journal::Frame;

/// The most events of one partition that are logged, since readers may read them again and again.
const MAX_NAMED: usize = 1_000;

/// Returns the records of a frame without invalid sections, and the events of which something was left out.
pub(super) fn valid_records(frame: &Frame) -> (Bytes, Vec<(u64, Malformed)>) {
    let mut omitted = Vec::new();
    let mut valid = Vec::new();
    let (mut at, mut changed) = (0, false);
    for number in frame.first..frame.end() {
        let record = &frame.payload[at..];
        let record = &record[..record_length(record)];
        let Some((key, message)) = record_parts(record) else { break };
        let (kept, malformed) = keep_valid(message);
        omitted.extend(malformed.map(|malformed| (number, malformed)));
        if matches!(kept, Cow::Owned(_)) && !changed {
            valid.extend_from_slice(&frame.payload[..at]);
            changed = true;
        }
        if changed {
            valid.extend_from_slice(&(kept.len() as u32).to_le_bytes());
            valid.extend_from_slice(&record[4..RECORD_HEADER]);
            valid.extend_from_slice(key.unwrap_or_default());
            valid.extend_from_slice(&kept);
        }
        at += record.len();
    }
    let records = if changed { valid.into() } else { frame.payload.clone() };
    (records, omitted)
}

/// Logs the events of a partition of which something was left out: each once, however often it is read.
#[derive(Debug, Default)]
pub(crate) struct OmissionLog(Mutex<BTreeSet<u64>>);

impl OmissionLog {
    pub(super) fn report(&self, partition: PartitionId, number: u64, malformed: Malformed) {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= MAX_NAMED || !named.insert(number) {
            return;
        }
        tracing::warn!(
            %partition, sequence = number, %malformed,
            "an event has invalid sections, which an older version accepted; readers get it without them"
        );
        if named.len() == MAX_NAMED {
            tracing::warn!(%partition, "more events of this partition have invalid sections; they are not logged any more");
        }
    }
}
