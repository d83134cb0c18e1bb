//! Tests of the configuration: the error texts of invalid values, and the files that are read.

use std::path::PathBuf;

use super::*;

fn hub(name: &str) -> HubConfig {
    HubConfig::new(name, 4).unwrap()
}

/// What `validate` says after a change to a namespace of one hub.
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

fn sample(name: &str) -> Result<ConfigFile, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    // Without the folder, which is another on every machine.
    let strip = |error: ConfigFileError| error.to_string().replace(&format!("{}/", folder.display()), "");
    NamespaceConfig::from_file(folder.join(name)).map_err(strip)
}

fn wrong(text: &str) -> String {
    NamespaceConfig::from_json(text).unwrap_err().to_string()
}

/// Which column of a line is named is the JSON reader's own choice, so most tests leave it open.
fn without_position(error: &str) -> &str {
    let (position, said) = error.split_once(": ").unwrap();
    assert!(position.starts_with("configuration, line 1, column "), "{error}");
    said
}

#[test]
fn our_file_says_everything_that_can_be_said() {
    let read = sample("homes.json").unwrap();
    assert!(read.notes.is_empty());
    let homes = HubConfig {
        partitions: 16,
        retention: Retention { age: Some(Duration::from_secs(43_200)), bytes: Some(2 << 30) },
        max_event_bytes: 500_000,
        groups: vec!["alarms".parse().unwrap(), "billing".parse().unwrap()],
        ..hub("homes")
    };
    let audit = HubConfig { retention: Retention { age: None, bytes: None }, ..hub("audit/trail") };
    assert_eq!(
        read.config,
        NamespaceConfig {
            name: "factory.example:5672".parse().unwrap(),
            durability: Durability::PageCache,
            hubs: vec![homes, audit, hub("clicks")],
            segment_bytes: 16 << 20,
            recent_bytes: 8 << 20,
            queue_bytes: 32 << 20,
            vanish_after: Duration::from_secs(90),
            disk_reserve_bytes: Some(2 << 30),
        }
    );
}

#[test]
fn what_a_file_leaves_out_has_its_default() {
    assert_eq!(NamespaceConfig::from_json("\u{feff}{}").unwrap().config, NamespaceConfig::default());
}

#[test]
fn a_wrong_value_is_told_with_file_line_and_path() {
    assert_eq!(
        sample("too-many-partitions.json").unwrap_err(),
        "too-many-partitions.json, line 7, column 24: hubs[2].partitions: 2000 is more than 1024; write a \
         number from 1 to 1024"
    );
    assert_eq!(
        sample("not-json.json").unwrap_err(),
        "not-json.json, line 3, column 24: not JSON: trailing comma"
    );
    assert_eq!(
        sample("absent.json").unwrap_err(),
        "cannot read absent.json: No such file or directory (os error 2)"
    );
}

#[test]
fn every_mistake_in_our_file_is_told_in_its_own_words() {
    for (text, expected) in [
        ("", "not JSON: EOF while parsing a value"),
        ("[]", "expected an object, in braces, found a list"),
        (r#"{"hubs": [], "hubs": []}"#, "the field \"hubs\" is given twice; leave one out"),
        (
            r#"{"hub": []}"#,
            "hub: there is no field \"hub\"; the fields are name, durability, segment_bytes, \
             recent_bytes, queue_bytes, vanish_after, disk_reserve_bytes, hubs",
        ),
        (
            r#"{"hubs": [{"name": "a", "partition": 4}]}"#,
            "hubs[0].partition: there is no field \"partition\"; the fields are name, partitions, \
             retention, max_event_bytes, groups",
        ),
        (
            r#"{"hubs": [{"name": "a", "retention": {"size": 4}}]}"#,
            "hubs[0].retention.size: there is no field \"size\"; the fields are age, bytes",
        ),
        (r#"{"hubs": [{"partitions": 4}]}"#, "hubs[0].name: this hub has no name; every hub needs one"),
        (
            r#"{"hubs": [{"name": "a/"}]}"#,
            "hubs[0].name: hub name \"a/\" begins or ends with a slash, which addresses drop; \
             leave it out",
        ),
        (
            r#"{"hubs": [{"name": "a", "partitions": "4"}]}"#,
            "hubs[0].partitions: expected a whole number, found the text \"4\"",
        ),
        (
            r#"{"hubs": [{"name": "a", "partitions": -4}]}"#,
            "hubs[0].partitions: expected a whole number, found -4",
        ),
        (
            r#"{"hubs": [{"name": "a", "partitions": 9000000000}]}"#,
            "hubs[0].partitions: 9000000000 is more than 1024; write a number from 1 to 1024",
        ),
        (r#"{"hubs": {}}"#, "hubs: expected a list, in brackets, found an object"),
        (r#"{"name": null}"#, "name: expected a text, in quotes, found null"),
        (
            r#"{"durability": "fast"}"#,
            "durability: \"fast\" is not a durability; write \"disk\" (acknowledged from disk), \
             \"page-cache\" or \"relaxed\" (a power failure may lose the newest events), or \"memory\" \
             (keeps nothing)",
        ),
        (
            r#"{"segment_bytes": 1.5}"#,
            "segment_bytes: expected a size such as \"64MiB\", or a whole number of bytes, found 1.5",
        ),
        (
            r#"{"segment_bytes": "64M"}"#,
            "segment_bytes: \"64M\" has the unknown unit \"M\"; write one of B, kB, KiB, MB, MiB, \
             GB, GiB, TB, TiB",
        ),
        (
            r#"{"vanish_after": true}"#,
            "vanish_after: expected a duration such as \"7d\", or a whole number of seconds, found \
             true",
        ),
        (
            r#"{"vanish_after": "soon"}"#,
            "vanish_after: \"soon\" is not a duration; write a whole number and a unit, such as 7d \
             or 90m",
        ),
        (
            r#"{"hubs": [{"name": "a", "groups": ["b", "B"]}]}"#,
            "hubs[0].groups[1]: the groups \"b\" and \"B\" differ only in case, which the service \
             does not see; rename one",
        ),
    ] {
        assert_eq!(without_position(&wrong(text)), expected, "{text}");
    }
}

#[test]
fn the_emulators_file_is_read_with_our_retention() {
    let read = sample("emulator.json").unwrap();
    let meters = HubConfig {
        partitions: 2,
        groups: vec!["invoices".parse().unwrap(), "outages".parse().unwrap()],
        ..hub("meters")
    };
    let doors = HubConfig { partitions: 32, ..hub("doors") };
    let config = NamespaceConfig {
        name: "emulatorNs1".parse().unwrap(),
        hubs: vec![meters, doors],
        ..NamespaceConfig::default()
    };
    assert_eq!(read.config, config);
    assert_eq!(
        read.notes,
        [
            "UserConfig.NamespaceConfig[0].Entities[0].ConsumerGroups[1].Name is \"$default\", which always exists"
        ]
    );
}

#[test]
fn keys_of_the_emulator_have_any_case_and_unknown_ones_are_noted() {
    let read = sample("emulator-any-case.json").unwrap();
    let meters = HubConfig { partitions: 3, ..hub("meters") };
    assert_eq!(read.config, NamespaceConfig { hubs: vec![meters], ..NamespaceConfig::default() });
    assert_eq!(
        read.notes,
        [
            "$schema is unknown and was ignored",
            "userConfig.loggingConfig.level is unknown and was ignored",
            "userConfig.namespaceConfig[0] is of Type \"ServiceBus\" and was ignored",
            "userConfig.namespaceConfig[1].entities[0].captureTo is unknown and was ignored",
        ]
    );
}

#[test]
fn every_mistake_in_the_emulators_file_is_told_where_the_file_has_it() {
    let hubs = |hubs: &str| {
        let error = wrong(&format!(r#"{{"UserConfig": {{"NamespaceConfig": [{{"Entities": [{hubs}]}}]}}}}"#));
        without_position(&error).replace("UserConfig.NamespaceConfig[0].Entities", "…")
    };
    assert_eq!(hubs("{}"), "…[0].Name: this hub has no name; every hub needs one");
    assert_eq!(
        hubs(r#"{"Name": "a", "PartitionCount": "2000"}"#),
        "…[0].PartitionCount: 2000 is more than 1024; write a number from 1 to 1024"
    );
    assert_eq!(
        hubs(r#"{"Name": "a", "PartitionCount": "four"}"#),
        "…[0].PartitionCount: expected a whole number, found the text \"four\"; write one from 1 on"
    );
    assert_eq!(
        hubs(r#"{"Name": "a"}, {"name": "A"}"#),
        "…[1].name: the hubs \"a\" and \"A\" differ only in case, which the service does not see; rename one"
    );
    assert_eq!(
        hubs(r#"{"Name": "a", "ConsumerGroups": [{"Name": "b"}, {"Name": "$Default"}, {"Name": "B"}]}"#),
        "…[0].ConsumerGroups[2].Name: the groups \"b\" and \"B\" differ only in case, which the service \
         does not see; rename one"
    );
    assert_eq!(
        hubs(r#"{"Name": "a", "ConsumerGroups": [{}]}"#),
        "…[0].ConsumerGroups[0].Name: this consumer group has no name; every group needs one"
    );
}

#[test]
fn the_emulators_file_has_one_namespace_of_event_hubs() {
    assert_eq!(
        without_position(&wrong(
            r#"{"UserConfig": {"NamespaceConfig": [{"Type": "EventHub"}, {"Type": "eventhub"}]}}"#
        )),
        "UserConfig.NamespaceConfig: 2 namespaces are of Type EventHub, and only one can \
         be served; leave one"
    );
    let none =
        "UserConfig.NamespaceConfig: no namespace is of Type EventHub; write one, with its hubs as Entities";
    for text in [r#"{"UserConfig": {"NamespaceConfig": [{"Type": "ServiceBus"}]}}"#, r#"{"UserConfig": {}}"#]
    {
        assert_eq!(without_position(&wrong(text)), none);
    }
}
