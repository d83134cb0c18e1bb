//! Reads frames that were stored before every section of a message was validated.
//!
//! Readers get every event of them, and of each event what they can decode: what is invalid is left out
//! ([`keep_valid`]). Frames that say that they were validated never come here. The look costs as much as the one
//! when a message is stored, and ends when retention has freed the old frames.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use ephor_amqp::Malformed;
use ephor_amqp::validate::keep_valid;
use ephor_core::ids::PartitionId;

use super::{RECORD_HEADER, record_length, record_parts};
use crate::journal::Frame;

/// Events of one partition that the log names. Of more it is silent: readers come again and again.
const MAX_NAMED: usize = 1_000;

/// The records of a frame, valid whatever is stored; and each event of which something was left out.
pub(super) fn valid_records(frame: &Frame) -> (Bytes, Vec<(u64, Malformed)>) {
    let mut left_out = Vec::new();
    let mut valid = Vec::new();
    let mut at = 0;
    for number in frame.first..frame.end() {
        let record = &frame.payload[at..];
        let record = &record[..record_length(record)];
        let Some((key, message)) = record_parts(record) else { break };
        let (kept, malformed) = keep_valid(message);
        if let Some(malformed) = malformed {
            if left_out.is_empty() {
                valid.extend_from_slice(&frame.payload[..at]);
            }
            left_out.push((number, malformed));
        }
        if !left_out.is_empty() {
            valid.extend_from_slice(&(kept.len() as u32).to_le_bytes());
            valid.extend_from_slice(&record[4..RECORD_HEADER]);
            valid.extend_from_slice(key.unwrap_or_default());
            valid.extend_from_slice(&kept);
        }
        at += record.len();
    }
    let records = if left_out.is_empty() { frame.payload.clone() } else { valid.into() };
    (records, left_out)
}

/// Logs of which events of a partition something was left out: once each, however often they are read.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(Mutex<BTreeSet<u64>>);

impl LeftOut {
    pub(super) fn report(&self, partition: PartitionId, number: u64, malformed: Malformed) {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= MAX_NAMED || !named.insert(number) {
            return;
        }
        tracing::warn!(
            %partition, sequence = number, %malformed,
            "an event was stored before every section was validated; what cannot be decoded is left out"
        );
        if named.len() == MAX_NAMED {
            tracing::warn!(%partition, "further events of this partition of which something is left out are not named");
        }
    }
}
