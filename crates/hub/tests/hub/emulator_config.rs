//! Tests that a configuration file, Ephor's own or the `Config.json` of Microsoft's emulator, leads to
//! running hubs, and that errors in it are told with their place.

use std::path::PathBuf;

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_hub::config::ConfigFile;
use ephor_hub::{Durability, LocalNamespace, NamespaceConfig, NewEvent};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(name)
}

fn running(name: &str) -> (LocalNamespace, Vec<String>) {
    let ConfigFile { config, notes } = NamespaceConfig::from_file(path(name)).unwrap();
    (LocalNamespace::in_memory(config).unwrap(), notes)
}

fn hubs(namespace: &LocalNamespace) -> Vec<(String, u32, Vec<String>)> {
    let describe = |hub: &ephor_hub::Hub| {
        let description = hub.describe();
        let groups = description.groups.iter().map(ToString::to_string).collect();
        (description.name.to_string(), description.partitions, groups)
    };
    namespace.hubs_open().iter().map(describe).collect()
}

fn hub(name: &str, partitions: u32, groups: &[&str]) -> (String, u32, Vec<String>) {
    (name.to_owned(), partitions, groups.iter().map(|group| (*group).to_owned()).collect())
}

/// Writes a file and yields what is said about it, without the folder's name.
fn said(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Config.json");
    std::fs::write(&file, text).unwrap();
    let said = NamespaceConfig::from_file(&file).unwrap_err().to_string();
    said.replace(&format!("{}/", folder.path().display()), "")
}

#[tokio::test]
async fn a_config_file_of_the_emulator_leads_to_running_hubs() {
    let (namespace, notes) = running("emulator.json");
    assert_eq!(namespace.name().as_str(), "emulatorNs1");
    let meters = hub("meters", 2, &["$Default", "invoices", "outages"]);
    assert_eq!(hubs(&namespace), [hub("doors", 32, &["$Default"]), meters]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].ends_with("is \"$default\", which always exists"), "{notes:?}");
    let hub = namespace.hub("meters").unwrap();
    hub.producer().send_to(PartitionId(1), NewEvent::new("12 kWh")).await.unwrap();
    let group = "Outages".parse().unwrap();
    let probe = OpenRequest::probe(&group, PartitionId(1), "test");
    let mut receiver = hub.receiver(OpenRequest { start: StartPosition::Earliest, ..probe }).await.unwrap();
    assert_eq!(receiver.next(1, 1).await.unwrap().len(), 1);
}

#[test]
fn keys_in_any_case_and_unknown_ones_are_taken_and_noted() {
    let (namespace, notes) = running("emulator-any-case.json");
    assert_eq!(hubs(&namespace), [hub("meters", 3, &["$Default"])]);
    assert!(notes.iter().any(|note| note.contains("captureTo")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("ServiceBus")), "{notes:?}");
}

#[tokio::test]
async fn our_own_file_leads_to_running_hubs() {
    let (namespace, notes) = running("homes.json");
    assert_eq!(notes, [""; 0]);
    assert_eq!(namespace.config().durability, Durability::Memory, "in memory, whatever the file says");
    let homes = hub("homes", 16, &["$Default", "alarms", "billing"]);
    assert_eq!(
        hubs(&namespace),
        [hub("audit/trail", 4, &["$Default"]), hub("clicks", 4, &["$Default"]), homes]
    );
    let large = namespace.hub("homes").unwrap().producer().send(NewEvent::new(vec![0; 500_001])).await;
    assert_eq!(
        large.unwrap_err().to_string(),
        "the event has 500001 bytes; this hub accepts at most 500000 bytes"
    );
}

#[tokio::test]
async fn our_own_file_leads_to_hubs_on_disk_that_a_restart_finds() {
    let folder = tempfile::tempdir().unwrap();
    let config = NamespaceConfig::from_file(path("homes.json")).unwrap().config;
    for expected in [0, 1] {
        let namespace = LocalNamespace::open(folder.path(), config.clone()).unwrap();
        assert_eq!(namespace.hubs_open().len(), 3);
        let hub = namespace.hub("homes").unwrap();
        let receipt = hub.producer().send_to(PartitionId(3), NewEvent::new("door")).await.unwrap();
        assert_eq!((receipt.first.0, receipt.durability), (expected, Durability::PageCache));
        assert_eq!(EventSource::namespace(&hub).as_str(), "factory.example:5672");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let said = NamespaceConfig::from_file(path("nowhere.json")).unwrap_err().to_string();
    assert!(said.starts_with(&format!("cannot read {}: ", path("nowhere.json").display())), "{said}");
}

#[test]
fn a_file_that_is_no_json_is_told_with_line_and_column() {
    let said = NamespaceConfig::from_file(path("not-json.json")).unwrap_err().to_string();
    assert!(said.contains("not-json.json, line 3, column "), "{said}");
    assert!(said.contains("not JSON: "), "{said}");
}

#[test]
fn a_value_that_cannot_be_used_is_told_with_its_line_and_what_to_write() {
    let said = NamespaceConfig::from_file(path("too-many-partitions.json")).unwrap_err().to_string();
    assert!(said.contains("too-many-partitions.json, line 7, column "), "{said}");
    assert!(
        said.ends_with("hubs[2].partitions: 2000 is more than 1024; write a number from 1 to 1024"),
        "{said}"
    );
}

#[test]
fn a_misspelt_field_of_ours_is_an_error() {
    let said = said(r#"{ "hubs": [ { "name": "homes", "partition": 4 } ] }"#);
    assert!(said.starts_with("Config.json, line 1, column "), "{said}");
    assert!(said.contains("hubs[0].partition"), "{said}");
    assert!(said.contains("partitions"), "it lists the known values: {said}");
}

#[test]
fn what_is_wrong_in_an_emulators_file_is_told_in_its_own_names() {
    let with = |entities: &str| {
        said(&format!(
            r#"{{ "UserConfig": {{ "NamespaceConfig": [ {{ "Type": "EventHub", "Entities": {entities} }} ] }} }}"#
        ))
    };
    let place = "UserConfig.NamespaceConfig[0].Entities";
    for (entities, expected) in [
        (
            r#"[ { "Name": "homes", "PartitionCount": "many" } ]"#,
            "[0].PartitionCount: expected a whole number, found",
        ),
        (r#"[ { "PartitionCount": 2 } ]"#, "[0].Name: this hub has no name; every hub needs one"),
        (
            r#"[ { "Name": "homes" }, { "Name": "Homes" } ]"#,
            "[1].Name: the hubs \"homes\" and \"Homes\" differ only in case",
        ),
        (
            r#"[ { "Name": "homes", "ConsumerGroups": [ { "Name": "a" }, { "Name": "a" } ] } ]"#,
            "[0].ConsumerGroups[1].Name: the group \"a\" is listed twice",
        ),
    ] {
        let told = with(entities);
        assert!(told.contains(&format!("{place}{expected}")), "{told}");
    }
}

#[test]
fn an_emulators_file_without_event_hubs_says_what_to_write() {
    let other = said(r#"{ "UserConfig": { "NamespaceConfig": [ { "Type": "ServiceBus" } ] } }"#);
    assert!(
        other.ends_with("no namespace is of Type EventHub; write one, with its hubs as Entities"),
        "{other}"
    );
    let two = said(
        r#"{ "UserConfig": { "NamespaceConfig": [ { "Type": "EventHub" }, { "Type": "EventHub" } ] } }"#,
    );
    assert!(
        two.ends_with("2 namespaces are of Type EventHub, and only one can be served; leave one"),
        "{two}"
    );
}
