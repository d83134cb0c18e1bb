//! Tests of the configuration: defaults, ranges, and the error texts of invalid values. Tests of
//! configuration files are in `tests/files.rs`.

mod files;

use std::path::PathBuf;

use super::*;

fn hub(name: &str) -> HubConfig {
    HubConfig::new(name, 4).unwrap()
}

/// The error of `validate` after a change to a namespace of one hub.
fn said(change: impl FnOnce(&mut NamespaceConfig)) -> String {
    let mut config = NamespaceConfig { hubs: vec![hub("homes")], ..NamespaceConfig::default() };
    assert_eq!(config.validate(), Ok(()));
    change(&mut config);
    config.validate().unwrap_err().to_string()
}

#[test]
fn the_defaults_are_what_their_documentation_says() {
    let config = NamespaceConfig::default();
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(config.name.as_str(), "localhost");
    assert_eq!(config.durability, Durability::Disk);
    assert_eq!(
        (config.segment_bytes, config.recent_bytes, config.queue_bytes),
        (64 << 20, 16 << 20, 64 << 20)
    );
    assert_eq!(config.vanish_after, Duration::from_secs(600));
    let hub = hub("homes");
    assert_eq!(hub.retention, Retention { age: Some(Duration::from_secs(604_800)), bytes: None });
    assert_eq!((hub.max_event_bytes, hub.groups.len(), DEFAULT_PARTITIONS), (1 << 20, 0, 4));
}

#[test]
fn numbers_out_of_range_are_told_the_range() {
    assert_eq!(
        said(|c| c.segment_bytes = 4095),
        "segment_bytes: 4095B is less than 4KiB; write a size from 4KiB to 1GiB"
    );
    assert_eq!(
        said(|c| c.segment_bytes = 2 << 30),
        "segment_bytes: 2GiB is more than 1GiB; write a size from 4KiB to 1GiB"
    );
    assert_eq!(
        said(|c| c.vanish_after = Duration::ZERO),
        "vanish_after: 0s is less than 1s; write a duration from 1s to 1d"
    );
    assert_eq!(
        said(|c| c.vanish_after = Duration::from_secs(172_800)),
        "vanish_after: 2d is more than 1d; write a duration from 1s to 1d"
    );
    assert_eq!(
        said(|c| c.hubs[0].partitions = 0),
        "hubs[0].partitions: 0 is less than 1; write a number from 1 to 1024"
    );
    assert_eq!(
        said(|c| c.hubs[0].partitions = 1025),
        "hubs[0].partitions: 1025 is more than 1024; write a number from 1 to 1024"
    );
    assert_eq!(
        said(|c| c.hubs[0].retention.age = Some(Duration::from_secs(59))),
        "hubs[0].retention.age: 59s is less than 1m; write a duration from 1m to 36500d"
    );
    assert_eq!(
        said(|c| c.hubs[0].retention.age = Some(Duration::MAX)),
        "hubs[0].retention.age: 18446744073709551615999ms is more than 36500d; write a duration from 1m to \
         36500d"
    );
    assert_eq!(
        said(|c| c.hubs[0].max_event_bytes = 0),
        "hubs[0].max_event_bytes: 0B is less than 1B; write a size from 1B to 16MiB"
    );
    assert_eq!(
        said(|c| c.hubs[0].max_event_bytes = 17 << 20),
        "hubs[0].max_event_bytes: 17MiB is more than 16MiB; write a size from 1B to 16MiB"
    );
}

#[test]
fn both_ends_of_every_range_are_allowed() {
    let mut config = NamespaceConfig { hubs: vec![hub("homes")], ..NamespaceConfig::default() };
    for segment_bytes in [MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES] {
        config.segment_bytes = segment_bytes;
        config.hubs[0].retention.bytes = Some(4 * segment_bytes);
        assert_eq!(config.validate(), Ok(()));
    }
    for (partitions, age, bytes) in [(1, MIN_RETENTION_AGE, 1), (MAX_PARTITIONS, MAX_RETENTION_AGE, 16 << 20)]
    {
        config.hubs[0].partitions = partitions;
        config.hubs[0].retention.age = Some(age);
        config.hubs[0].max_event_bytes = bytes;
        config.queue_bytes = bytes;
        assert_eq!(config.validate(), Ok(()));
    }
}

#[test]
fn a_retention_size_of_few_segments_says_which_number_to_change() {
    assert_eq!(
        said(|c| c.hubs[0].retention.bytes = Some(100 << 20)),
        "hubs[0].retention.bytes: 100MiB is less than 4 segments of 64MiB (segment_bytes); write at least \
         256MiB, or lower segment_bytes to 25MiB or less"
    );
    assert_eq!(
        said(|c| c.hubs[0].retention.bytes = Some(16 << 10)),
        "hubs[0].retention.bytes: 16KiB is less than 4 segments of 64MiB (segment_bytes); write at least \
         256MiB, or lower segment_bytes to 4KiB or less"
    );
    assert_eq!(
        said(|c| c.hubs[0].retention.bytes = Some(1000)),
        "hubs[0].retention.bytes: 1kB is less than 4 segments of 64MiB (segment_bytes); write at least 256MiB"
    );
}

#[test]
fn an_event_that_could_never_be_sent_says_which_number_to_change() {
    assert_eq!(
        said(|c| c.queue_bytes = 500_000),
        "hubs[0].max_event_bytes: 1MiB is more than queue_bytes (500kB), so the largest event could never \
         be sent; lower it, or raise queue_bytes to at least 1MiB"
    );
}

#[test]
fn names_that_differ_only_in_case_are_told_with_both() {
    assert_eq!(
        said(|c| c.hubs.extend([hub("audit"), hub("Homes")])),
        "hubs[2].name: the hubs \"homes\" and \"Homes\" differ only in case, which the service does not \
         see; rename one"
    );
    assert_eq!(said(|c| c.hubs.push(hub("homes"))), "hubs[1].name: the hub \"homes\" is listed twice");
    let groups = |names: &[&str]| {
        let groups = names.iter().map(|name| name.parse().unwrap()).collect();
        said(|c| c.hubs[0].groups = groups)
    };
    assert_eq!(
        groups(&["alarms", "Alarms"]),
        "hubs[0].groups[1]: the groups \"alarms\" and \"Alarms\" differ only in case, which the service \
         does not see; rename one"
    );
    assert_eq!(groups(&["a", "b", "a"]), "hubs[0].groups[2]: the group \"a\" is listed twice");
    assert_eq!(groups(&["a", "$default"]), "hubs[0].groups[1]: $Default always exists; leave it out");
    assert_eq!(
        groups(&["$a"]),
        "hubs[0].groups[0]: \"$a\" begins with \"$\", which is reserved for the service; rename it"
    );
    let many: Vec<String> = (0..=MAX_GROUPS).map(|number| format!("g{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(groups(&many), "hubs[0].groups: 1001 groups are more than 1000; list at most 1000");
}

#[test]
fn hub_names_that_break_addresses_are_refused() {
    let said = |name: &str| HubConfig::new(name, 4).unwrap_err().to_string();
    for name in ["/homes", "homes/", "/"] {
        let expected = "begins or ends with a slash, which addresses drop; leave it out";
        assert_eq!(said(name), format!("name: hub name {name:?} {expected}"));
    }
    assert_eq!(said("a//b"), "name: hub name \"a//b\" has two slashes in a row; leave one out");
    assert_eq!(
        said("a/../b"),
        "name: hub name \"a/../b\" has the part \"..\", which addresses resolve away; rename it"
    );
    assert_eq!(said("."), "name: hub name \".\" has the part \".\", which addresses resolve away; rename it");
    for (name, part, word) in [
        ("consumergroups", "consumergroups", "ConsumerGroups"),
        ("a/PARTITIONS/0", "PARTITIONS", "Partitions"),
        ("a/publishers", "publishers", "Publishers"),
    ] {
        assert_eq!(
            said(name),
            format!(
                "name: hub name {name:?} has the part {part:?}: in an address, {word:?} ends the hub's \
                 name; rename it"
            )
        );
    }
    for name in ["$cbs", "$management", "a/$Management"] {
        let expected = "contains '$'; allowed are letters, digits, dots, hyphens, underscores and slashes";
        assert_eq!(said(name), format!("name: hub name {name:?} {expected}"));
    }
    for name in ["a/b", "my-partitions", "a.b/c..d"] {
        assert!(HubConfig::new(name, 4).is_ok(), "{name}");
    }
    assert_eq!(
        HubConfig::new("homes", 0).unwrap_err().to_string(),
        "partitions: 0 is less than 1; write a number from 1 to 1024"
    );
}

#[test]
fn a_hub_that_comes_later_is_held_against_its_namespace() {
    let config = NamespaceConfig { segment_bytes: 1 << 20, ..NamespaceConfig::default() };
    let mut hub = hub("homes");
    hub.retention.bytes = Some(4 << 20);
    assert_eq!(config.validate_hub(&hub), Ok(()));
    hub.retention.bytes = Some(2 << 20);
    assert_eq!(hub.validate(), Ok(()));
    assert_eq!(config.validate_hub(&hub).unwrap_err().place.to_string(), "retention.bytes");
}

#[test]
fn memory_is_never_filled_without_limit() {
    let asked = Retention::default();
    let mut config = NamespaceConfig::default();
    assert_eq!(config.effective_retention(asked), asked);
    config.durability = Durability::Memory;
    assert_eq!(config.effective_retention(asked), Retention { bytes: Some(256 << 20), ..asked });
    config.segment_bytes = 1 << 30;
    assert_eq!(config.effective_retention(asked).bytes, Some(4 << 30));
    let asked = Retention { age: None, bytes: Some(8 << 30) };
    assert_eq!(config.effective_retention(asked), asked);
}
