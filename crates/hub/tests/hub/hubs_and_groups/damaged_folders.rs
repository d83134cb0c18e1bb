//! Tests of data folders with damaged, unfinished and deleted hubs.

use super::*;

#[test]
fn what_is_left_of_a_deleted_hub_is_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path());
    namespace.create_hub(config("homes", 1)).unwrap();
    drop(namespace);
    let homes = hub_folders(folder.path()).remove(0);
    // As a crash leaves it between the new name and the removal.
    std::fs::rename(&homes, homes.with_extension("0123456789abcdef.deleted")).unwrap();
    let namespace = open(folder.path());
    assert_eq!(names(&namespace), [""; 0]);
    assert_eq!((namespace.broken(), hub_folders(folder.path()).len()), (vec![], 0));
    namespace.create_hub(config("homes", 1)).unwrap();
}

#[test]
fn a_creation_that_was_cut_short_is_none() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let hubs = folder.path().join("hubs");
    std::fs::create_dir(hubs.join("empty.0000000000000001")).unwrap();
    std::fs::create_dir(hubs.join("torn.0000000000000002")).unwrap();
    std::fs::write(hubs.join("torn.0000000000000002/hub.json.new"), "{ \"na").unwrap();
    let namespace = open(folder.path());
    assert_eq!(names(&namespace), [""; 0]);
    assert_eq!((namespace.broken(), hub_folders(folder.path()).len()), (vec![], 0));
    namespace.create_hub(config("torn", 1)).unwrap();
}

#[tokio::test]
async fn a_creation_that_got_as_far_as_its_record_is_a_hub() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path());
    namespace.create_hub(config("homes", 2)).unwrap();
    drop(namespace);
    for file in std::fs::read_dir(&hub_folders(folder.path())[0]).unwrap() {
        let path = file.unwrap().path();
        if !path.ends_with("hub.json") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let namespace = open(folder.path());
    let hub = namespace.hub("homes").unwrap();
    assert_eq!(hub.producer().send(NewEvent::new("door")).await.unwrap().first.0, 0);
}

/// Three hubs; the record of "homes" is damaged. Yields the damaged file.
fn with_a_broken_record(folder: &Path) -> PathBuf {
    let namespace = open(folder);
    for name in ["farms", "homes", "offices"] {
        namespace.create_hub(config(name, 1)).unwrap();
    }
    drop(namespace);
    let record = hub_folders(folder)[1].join("hub.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replace("\"partitions\": 1", "\"partitions\": 2")).unwrap();
    record
}

#[tokio::test]
async fn a_hub_whose_record_is_damaged_is_named_and_the_others_work() {
    let folder = tempfile::tempdir().unwrap();
    let record = with_a_broken_record(folder.path());
    let damaged = std::fs::read(&record).unwrap();
    let namespace = open(folder.path());
    assert_eq!(names(&namespace), ["farms", "offices"]);
    namespace.hub("offices").unwrap().producer().send(NewEvent::new("door")).await.unwrap();
    let broken = namespace.broken();
    assert_eq!(broken.len(), 1);
    assert!(broken[0].0.starts_with("homes"), "{broken:?}");
    let said = format!("{} is damaged: its checksum is ", record.display());
    assert!(broken[0].1.starts_with(&said), "{broken:?}");
    assert_eq!(std::fs::read(&record).unwrap(), damaged, "nothing of it was changed");
}

#[test]
fn a_hub_that_is_damaged_is_neither_missing_nor_replaced_by_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    with_a_broken_record(folder.path());
    let namespace = open(folder.path());
    for refused in [
        namespace.hub("Homes").unwrap_err(),
        namespace.create_hub(config("homes", 1)).unwrap_err(),
        namespace.ensure_hub(&config("homes", 1)).unwrap_err(),
        namespace.delete_hub("homes").unwrap_err(),
    ] {
        assert!(matches!(refused, HubError::Broken { .. }), "{refused}");
        assert!(refused.to_string().starts_with("hub \"homes"), "{refused}");
    }
    // Names that only begin alike are others.
    assert_eq!(error(namespace.hub("home")), "hub \"home\" does not exist");
    namespace.create_hub(config("homes.north", 1)).unwrap();
}

#[test]
fn a_damaged_hub_that_is_configured_keeps_no_other_from_opening() {
    let folder = tempfile::tempdir().unwrap();
    with_a_broken_record(folder.path());
    let hubs = ["homes", "offices", "schools"].map(|name| config(name, 1)).to_vec();
    let settings = NamespaceConfig { hubs, ..NamespaceConfig::default() };
    let namespace = LocalNamespace::open(folder.path(), settings).unwrap();
    assert_eq!(names(&namespace), ["farms", "offices", "schools"]);
    assert_eq!(namespace.broken().len(), 1);
}

#[test]
fn of_two_folders_with_one_name_one_is_opened_and_the_other_named() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path());
    namespace.create_hub(config("homes", 1)).unwrap();
    drop(namespace);
    let first = hub_folders(folder.path()).remove(0);
    let second = folder.path().join("hubs/homes.ffffffffffffffff");
    std::fs::create_dir(&second).unwrap();
    std::fs::copy(first.join("hub.json"), second.join("hub.json")).unwrap();
    let namespace = open(folder.path());
    assert_eq!(names(&namespace), ["homes"]);
    let broken = namespace.broken();
    assert_eq!(broken.len(), 1);
    assert_eq!(broken[0].0, "homes");
    assert!(broken[0].1.contains(&second.display().to_string()), "{broken:?}");
    assert!(broken[0].1.ends_with("and the second one is open; move one of the folders away"), "{broken:?}");
    assert!(namespace.hub("homes").is_ok(), "the one that is open is found");
}
