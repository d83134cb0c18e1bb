//! Tests of the results with slow, dead, stale and paused owners, with damaged objects, and in a folder.

pub(crate) mod faulty_store;
mod folder;
mod order_sensitive_state;
mod owners;
mod stale_owners;

use std::sync::Arc;

use ephor::PartitionId;
use object_store::ObjectStore;

use self::order_sensitive_state::OrderSensitiveState;
use super::*;
use crate::consolidate::Consolidation;
use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

fn log_in(store: &Arc<dyn ObjectStore>) -> Log {
    ResultStore::of(store.clone(), "test").log("homes", PartitionId(3))
}

/// Any reading will do: a tape writes down sequences.
fn reading(sequence: u64) -> Reading {
    Reading {
        home: 1,
        sensor: Sensor::Motion,
        number: 1,
        at: CityTime(0),
        pushed: 1_000 + sequence,
        value: 0,
        armed: false,
        battery: 1,
    }
}

fn fold(writer: &mut ResultWriter<OrderSensitiveState>, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        writer.fold(sequence, &reading(sequence));
    }
}

async fn open(log: &Log, epoch: u64) -> ResultWriter<OrderSensitiveState> {
    ResultWriter::open(log.clone(), epoch, &format!("host-{epoch}")).await.unwrap()
}
