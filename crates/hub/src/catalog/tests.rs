//! Tests of the stored description of a hub: `hub.json` is read as it was written, or its damage is
//! detected; folder names are unique.

use std::sync::{Arc, Mutex};

use super::*;
use crate::files::{File, MemoryFiles};
use proptest::prelude::*;

fn record() -> HubRecord {
    let mut config = HubConfig::new("homes/north", 4).unwrap();
    config.retention.bytes = Some(1 << 30);
    config.groups = vec!["alarms".parse().unwrap(), "Billing".parse().unwrap()];
    HubRecord::new(&config, LogId::new("00000000000000ab"), Timestamp(1_700_000_000_000))
}

fn folder() -> MemoryFiles {
    let files = MemoryFiles::default();
    files.create_folder("h").unwrap();
    files
}

fn content(files: &MemoryFiles) -> Vec<u8> {
    read(files, "h/hub.json").unwrap()
}

fn put(files: &MemoryFiles, bytes: &[u8]) {
    let _ = files.remove("h/hub.json");
    files.create("h/hub.json").unwrap().write_at(0, &[bytes]).unwrap();
}

fn put_with_checksum(files: &MemoryFiles, content: &str) {
    put(files, &[content.as_bytes(), checksum_line(content.as_bytes()).as_bytes()].concat());
}

fn error(files: &MemoryFiles) -> String {
    HubRecord::load(files, "h").unwrap_err().to_string()
}

#[test]
fn a_record_reads_back_as_it_was_stored() {
    let files = folder();
    let mut record = record();
    record.store(&files, "h").unwrap();
    assert_eq!(HubRecord::load(&files, "h").unwrap(), record);
    record.partitions = 8;
    record.retention = Retention { age: None, bytes: None };
    record.store(&files, "h").unwrap();
    assert_eq!(HubRecord::load(&files, "h").unwrap(), record);
    assert_eq!(files.list("h").unwrap(), ["hub.json"]);
}

/// Later versions have to read it: change it and say a new version.
#[test]
fn the_layout_of_version_1_stays_as_it_is() {
    let files = folder();
    record().store(&files, "h").unwrap();
    assert_eq!(
        String::from_utf8(content(&files)).unwrap(),
        r#"{
  "created_at_ms": 1700000000000,
  "groups": [
    "alarms",
    "Billing"
  ],
  "log_id": "00000000000000ab",
  "max_event_bytes": 1048576,
  "name": "homes/north",
  "partitions": 4,
  "retention_age_ms": 604800000,
  "retention_bytes": 1073741824,
  "version": 1
}
{"crc32c":"a62218ef"}
"#
    );
}

#[test]
fn a_leftover_of_a_crash_is_neither_read_nor_in_the_way() {
    let files = folder();
    let leftover = || files.create("h/hub.json.new").unwrap().write_at(0, &[b"torn"]).unwrap();
    leftover();
    assert_eq!(error(&files), "h/hub.json in memory does not exist");
    record().store(&files, "h").unwrap();
    leftover();
    assert_eq!(HubRecord::load(&files, "h").unwrap(), record());
    record().store(&files, "h").unwrap();
    assert_eq!(files.list("h").unwrap(), ["hub.json"]);
}

#[test]
fn every_flipped_bit_and_every_cut_is_detected() {
    let files = folder();
    record().store(&files, "h").unwrap();
    let whole = content(&files);
    for position in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[position] ^= 1 << bit;
            put(&files, &bytes);
            let error = error(&files);
            assert!(error.starts_with("h/hub.json in memory is damaged: its checksum is "), "{error}");
        }
        put(&files, &whole[..position]);
        assert!(error(&files).contains("is damaged: "), "cut at {position}");
    }
}

#[test]
fn damage_is_told_with_both_checksums() {
    let files = folder();
    put(&files, b"short");
    assert_eq!(
        error(&files),
        "h/hub.json in memory is damaged: it has only 5 bytes and no checksum; restore it from a backup; nothing was \
         changed"
    );
    put(&files, b"{}\n{\"crc32c\":\"00000000\"}\n");
    let right = format!("{:08x}", crc32c::crc32c(b"{}\n"));
    assert_eq!(
        error(&files),
        format!(
            "h/hub.json in memory is damaged: its checksum is {right}, and its last line says \
                 \"{{\\\"crc32c\\\":\\\"00000000\\\"}}\"; restore it from a backup; nothing was changed"
        )
    );
}

#[test]
fn a_record_that_no_program_wrote_is_refused() {
    let files = folder();
    record().store(&files, "h").unwrap();
    let text = String::from_utf8(content(&files)).unwrap();
    let text = &text[..text.len() - CHECKSUM_LINE_BYTES];
    for (from, to, problem) in [
        ("\"partitions\": 4", "\"partitions\": 0", "it has 0 partitions, and a hub has 1 to 1024"),
        ("homes/north", "", "hub name \"\" is empty"),
        (
            "alarms",
            "a b",
            "consumer group \"a b\" contains ' '; allowed are letters, digits, dots, hyphens, \
                 underscores and the dollar sign",
        ),
        ("\"version\"", "\"vision\"", "missing field `version` at line 14 column 1"),
    ] {
        put_with_checksum(&files, &text.replace(from, to));
        let expected = format!(
            "h/hub.json in memory is damaged: {problem}; restore it from a backup; nothing was changed"
        );
        assert_eq!(error(&files), expected);
    }
}

#[test]
fn a_newer_version_is_refused_and_left_alone() {
    let files = folder();
    put_with_checksum(&files, "{\"version\": 2, \"partitions\": \"of another kind\"}\n");
    let before = content(&files);
    assert_eq!(
        error(&files),
        "h/hub.json in memory has version 2, and this program reads versions up to 1; use the \
             newer program that wrote it; nothing was changed"
    );
    assert_eq!(content(&files), before);
}

#[test]
fn fields_of_a_later_writer_are_kept() {
    let files = folder();
    record().store(&files, "h").unwrap();
    let text = String::from_utf8(content(&files)).unwrap();
    let text = &text[..text.len() - CHECKSUM_LINE_BYTES];
    put_with_checksum(&files, &text.replace("\"name\"", "\"colour\": {\"of\": [1, null]},\n  \"name\""));
    let mut record = HubRecord::load(&files, "h").unwrap();
    record.partitions = 16;
    record.store(&files, "h").unwrap();
    let again = HubRecord::load(&files, "h").unwrap();
    assert_eq!(again, record);
    assert_eq!(again.other["colour"], serde_json::json!({"of": [1, null]}));
}

#[test]
fn a_failing_file_system_is_told_with_the_file() {
    let files = MemoryFiles::default();
    let error = record().store(&files, "gone").unwrap_err().to_string();
    assert!(error.starts_with("cannot create gone/hub.json.new in memory: "), "{error}");
    assert_eq!(
        HubRecord::load(&files, "gone").unwrap_err().to_string(),
        "gone/hub.json in memory does not exist"
    );
}

#[test]
fn folder_names_are_readable_and_short() {
    let name = |name: &str, id| folder_name(&name.parse().unwrap(), &LogId::new(id));
    assert_eq!(name("homes", "3f9c0a6b1d2e4f50"), "homes.3f9c0a6b1d2e4f50");
    assert_eq!(name("a/B.c_d-e", "0f"), "a%2FB.c_d-e.0f");
    assert_eq!(name("a", "deleted"), "a.de%6Ce%74ed");
    let deleted = deleted_folder_name(&name("homes", "0f"));
    assert_eq!(deleted, "homes.0f.deleted");
    assert!(is_deleted(&deleted) && !is_deleted(&name("homes", "0f")) && !is_deleted(&name("a", "deleted")));
    let long = deleted_folder_name(&name(&"a/".repeat(128), "3f9c0a6b1d2e4f50"));
    assert!(long.len() <= 143, "{long} has {} bytes", long.len());
    assert!(long.ends_with("~.3f9c0a6b1d2e4f50.deleted"), "{long}");
}

/// Writes down what is asked of the disk, in order.
#[derive(Debug)]
struct Recorder<T>(T, Arc<Mutex<Vec<String>>>);

impl<T> Recorder<T> {
    fn note(&self, call: String) -> &T {
        self.1.lock().unwrap().push(call);
        &self.0
    }
}

impl Files for Recorder<MemoryFiles> {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let file = self.note(format!("create {path}")).create(path)?;
        Ok(Arc::new(Recorder(file, Arc::clone(&self.1))))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.0.open(path)
    }
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }
    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.0.create_folder(folder)
    }
    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.note(format!("sync folder {folder}")).sync_folder(folder)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(format!("rename {from} to {to}")).rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.note(format!("remove {path}")).remove(path)
    }
    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        self.0.remove_folder(folder)
    }
    fn shown(&self, path: &str) -> String {
        self.0.shown(path)
    }
}

impl File for Recorder<Arc<dyn File>> {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.note("write".into()).write_at(position, parts)
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(position, into)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.note("set length".into()).set_len(length)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn reserve(&self, length: u64) -> io::Result<()> {
        self.0.reserve(length)
    }
    fn sync(&self) -> io::Result<()> {
        self.note("sync".into()).sync()
    }
}

#[test]
fn a_record_is_on_disk_before_it_has_its_name_and_its_name_before_store_returns() {
    let files = Recorder(folder(), Arc::default());
    record().store(&files, "h").unwrap();
    let calls = files.1.lock().unwrap().clone();
    assert_eq!(
        calls,
        [
            "remove h/hub.json.new",
            "create h/hub.json.new",
            "write",
            "sync",
            "rename h/hub.json.new to h/hub.json",
            "sync folder h",
        ]
    );
}

/// Reads back what `folder_name` wrote: what can be read back is not written for two.
fn decode(folder: &str) -> (String, String) {
    let plain = |text: &str| {
        let mut parts = text.split('%');
        let mut plain = parts.next().unwrap().to_owned();
        for part in parts {
            plain.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
            plain.push_str(&part[2..]);
        }
        plain
    };
    let (name, log_id) = folder.rsplit_once('.').unwrap();
    (plain(name), plain(log_id))
}

proptest! {
    #[test]
    fn a_folder_name_is_never_written_for_two_hubs(
        name in "[a-zA-Z0-9._/-]{1,33}", log_id in "[0-9a-f]{16}|[ -~]{1,20}|deleted",
    ) {
        let folder = folder_name(&name.parse().unwrap(), &LogId::new(&log_id));
        prop_assert!(!is_deleted(&folder) && !folder.contains('/'));
        prop_assert_eq!(decode(&folder), (name, log_id));
    }

    #[test]
    fn long_names_are_told_apart_by_their_log_ids(name in "[a-z/]{101,256}", one: u64, other: u64) {
        let name: HubName = name.parse().unwrap();
        let folder = |id: u64| folder_name(&name, &LogId::new(&format!("{id:016x}")));
        prop_assert_eq!(folder(one) == folder(other), one == other);
        prop_assert!(deleted_folder_name(&folder(one)).len() <= 143);
    }
}
