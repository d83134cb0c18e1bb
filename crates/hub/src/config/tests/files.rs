//! Tests of configuration files: Ephor's own, and the emulator's.

use super::*;

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
             \"page-cache\" (a power failure may lose the newest events), or \"memory\" (keeps nothing)",
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
