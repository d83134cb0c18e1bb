//! Seeds for the fuzz corpus: configuration files, and the stored description of a hub (`hub.json`).

use crate::Seeds;
use crate::texts::numbered;

const OURS: &str = r#"{
    "name": "localhost",
    "durability": "disk",
    "segment_bytes": "64MiB",
    "recent_bytes": 16777216,
    "queue_bytes": "64MiB",
    "vanish_after": "10m",
    "hubs": [
        { "name": "homes",
          "partitions": 16,
          "retention": { "age": "7d", "bytes": "20GiB" },
          "max_event_bytes": "1MiB",
          "groups": ["alarms", "billing"] },
        { "name": "audit", "retention": { "age": null } }
    ]
}"#;

const EMULATORS: &str = r#"{
    "UserConfig": {
        "NamespaceConfig": [
            { "Type": "EventHub",
              "Name": "emulatorNs1",
              "Entities": [
                  { "Name": "eh1",
                    "PartitionCount": "2",
                    "ConsumerGroups": [ { "Name": "cg1" } ] } ] }
        ],
        "LoggingConfig": { "Type": "File" }
    }
}"#;

const RECORD: &str = r#"{
  "created_at_ms": 1700000000000,
  "groups": [
    "alarms"
  ],
  "log_id": "00000000000000ab",
  "max_event_bytes": 1048576,
  "name": "homes",
  "partitions": 4,
  "retention_age_ms": 604800000,
  "retention_bytes": null,
  "version": 1
}
"#;

pub(crate) fn configs() -> Seeds {
    numbered([OURS, EMULATORS, "{}", "\u{feff}{\"hubs\":[]}", r#"{"hubs":[{"name":"a"},{"name":"A"}]}"#])
}

pub(crate) fn catalogs() -> Seeds {
    let later = RECORD.replace("\"version\": 1", "\"version\": 2, \"more\": [{}]");
    let unlimited = RECORD.replace("604800000", "null").replace("\"alarms\"", "");
    numbered([RECORD, &later, &unlimited, "{\"version\":1}\n", ""])
}
