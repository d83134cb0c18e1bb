//! Fuzzes `hub.json`, the stored description of a hub: arbitrary content is read or refused.

use std::sync::Arc;

use ephor_hub::files::{Files, MemoryFiles};
use ephor_hub::{Durability, LocalNamespace, NamespaceConfig, verify_files};
use ephor_runtime::environment::SystemClock;

const FOLDER: &str = "hubs/homes.00000000000000ab";
const RECORD: &str = "hubs/homes.00000000000000ab/hub.json";
/// The maximum number of partitions; a hub with more takes too long to open for one case.
const MAX_PARTITIONS: u32 = 64;

/// Runs one input: as a whole file, and with the checksum that it should have.
pub fn run(data: &[u8]) {
    found_on_disk(data);
    let checksum = format!("{{\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(data));
    found_on_disk(&[data, checksum.as_bytes()].concat());
}

/// A record is parsed, or the hub is reported as broken and its files are left unchanged.
fn found_on_disk(record: &[u8]) {
    let files = Arc::new(MemoryFiles::default());
    for folder in ["hubs", FOLDER] {
        files.create_folder(folder).expect("a folder in memory");
    }
    let file = files.create(RECORD).expect("a file in memory");
    file.write_at(0, &[record]).expect("a write in memory");
    let found = verify_files(&*files).expect("the folder can be listed");
    assert_eq!(found.len(), 1);
    assert_eq!(content(&files), record, "verifying changes nothing");
    let understood = found[0].record.is_ok();
    assert!(found[0].record.as_ref().is_ok_and(|()| found[0].hub.is_some()) || !understood);
    if understood && partitions(record) > u64::from(MAX_PARTITIONS) {
        return;
    }
    let config = NamespaceConfig { durability: Durability::Memory, ..NamespaceConfig::default() };
    let opened = LocalNamespace::on(files.clone(), config, Arc::new(SystemClock));
    let namespace = opened.expect("the others are served although one hub is damaged");
    assert_eq!(namespace.hubs_open().len() + namespace.broken().len(), 1);
    if !understood {
        assert_eq!(content(&files), record, "an unreadable record is not changed");
        assert_eq!(namespace.broken().len(), 1);
    }
    namespace.close().expect("files in memory can be closed");
}

/// The number of partitions in a valid record.
fn partitions(record: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(record);
    let behind = text.rsplit("\"partitions\"").next().unwrap_or_default();
    let digits: String =
        behind.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(u64::MAX)
}

fn content(files: &MemoryFiles) -> Vec<u8> {
    let file = files.open(RECORD).expect("the record still exists");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    let count = file.read_at(0, &mut bytes).expect("a read in memory");
    bytes.truncate(count);
    bytes
}
