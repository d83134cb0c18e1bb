//! Seeds for the fuzz corpus: data folders of a hub, whole and cut short, with repaired checksums, and with
//! forged frames.

use std::sync::Arc;

use ephor_core::ids::PartitionId;
use ephor_fuzz::logs::{FILES, FOLDER, Stopped, config, encode};
use ephor_hub::files::{Files, MemoryFiles};
use ephor_hub::{LocalNamespace, NewEvent, Target};

use crate::Seeds;

const RECORD: &str = r#"{
  "created_at_ms": 1700000000000,
  "groups": ["alarms"],
  "log_id": "3f9c0a6b1d2e4f50",
  "max_event_bytes": 1048576,
  "name": "homes",
  "partitions": 2,
  "retention_age_ms": 604800000,
  "retention_bytes": null,
  "version": 1
}
"#;

/// A hub with this many events of this many bytes.
fn folder(events: usize, bytes: usize) -> Arc<MemoryFiles> {
    let files = Arc::new(MemoryFiles::default());
    files.create_folder("hubs").unwrap();
    files.create_folder(FOLDER).unwrap();
    let record = files.create(&format!("{FOLDER}/hub.json")).unwrap();
    let checksum = format!("{{\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(RECORD.as_bytes()));
    record.write_at(0, &[RECORD.as_bytes(), checksum.as_bytes()]).unwrap();
    let namespace = LocalNamespace::on(files.clone(), config(), Arc::new(Stopped)).unwrap();
    let hub = namespace.hub("homes").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for index in 0..events {
            let to = Target::Partition(PartitionId(index as u32 % 2));
            hub.producer().send_batch(to, [NewEvent::new(vec![index as u8 + 1; bytes])]).await.unwrap();
        }
    });
    files
}

/// Requests repaired checksums for every file.
fn repaired(mut seed: Vec<u8>) -> Vec<u8> {
    (0..FILES.len() as u8).for_each(|file| seed.extend([file | 0x80, 0, 0, 0, 0]));
    seed
}

/// Changes the header of the first segment's first frame at this offset, with valid checksums: a frame that
/// no hub writes.
fn forged(files: &MemoryFiles, at: u64, bytes: [u8; 8]) -> Vec<u8> {
    /// After two copies of a header without partitions.
    const FIRST_FRAME: u64 = 4_096 + 64;
    const FIRST_SEGMENT: u8 = 3;
    let mut seed = encode(files);
    seed.push(FIRST_SEGMENT | 0x80);
    seed.extend((((FIRST_FRAME + at) / 8) as u16).to_le_bytes());
    seed.extend(8_u16.to_le_bytes());
    seed.extend(bytes);
    seed
}

pub(crate) fn folders() -> Seeds {
    let (small, two) = (folder(3, 20), folder(5, 1_500));
    let mut seeds = vec![
        ("empty".into(), encode(&folder(0, 0))),
        ("small".into(), encode(&small)),
        ("two-segments".into(), encode(&two)),
    ];
    let whole = encode(&two);
    seeds.push(("torn".into(), whole[..whole.len() / 2].to_vec()));
    let again: Seeds =
        seeds.iter().map(|(name, seed)| (format!("{name}-repaired"), repaired(seed.clone()))).collect();
    seeds.extend(again);
    // A frame's header contains the partition and the number of events, and the first sequence number.
    seeds.push(("no-events".into(), forged(&small, 16, [0; 8])));
    seeds.push(("more-events-than-bytes".into(), forged(&small, 16, [0, 0, 0, 0, 255, 255, 255, 255])));
    seeds.push(("highest-number".into(), forged(&small, 24, (u64::MAX / 16).to_le_bytes())));
    seeds
}
