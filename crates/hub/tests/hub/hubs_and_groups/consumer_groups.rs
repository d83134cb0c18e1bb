//! Tests of consumer groups: they are created, found regardless of case, and deleted.

use super::*;

#[tokio::test]
async fn the_default_group_is_always_there_and_cannot_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        assert_eq!(groups(&hub), ["$Default"]);
        for name in ["$Default", "$DEFAULT", "$default"] {
            assert_eq!(hub.create_group(name).unwrap().as_str(), "$Default");
            let refused = "consumer group \"$Default\" always exists and cannot be deleted";
            assert_eq!(error(hub.delete_group(name)), refused);
            let _receiver = hub.receiver(request(name)).await.unwrap();
        }
        assert_eq!(groups(&hub), ["$Default"]);
    }
}

#[tokio::test]
async fn groups_are_created_found_without_case_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        let missing = hub.receiver(request("alarms")).await.unwrap_err().to_string();
        assert_eq!(missing, "consumer group \"alarms\" of hub \"homes\" does not exist");
        assert_eq!(hub.create_group("Alarms").unwrap().as_str(), "Alarms");
        assert_eq!(hub.create_group("alarms").unwrap().as_str(), "Alarms", "the one that is there");
        hub.create_group("billing").unwrap();
        assert_eq!(groups(&hub), ["$Default", "Alarms", "billing"]);
        hub.delete_group("ALARMS").unwrap();
        assert_eq!(groups(&hub), ["$Default", "billing"]);
        let gone = "hub \"homes\" has no consumer group \"ALARMS\"";
        assert_eq!(error(hub.delete_group("ALARMS")), gone);
    }
}

#[test]
fn names_of_groups_are_checked_and_told_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        for (name, said) in [
            ("", "is empty"),
            ("a b", "contains ' '"),
            ("$mine", "begins with \"$\", which is reserved for the service; rename it"),
            (&"g".repeat(51), "50"),
        ] {
            let told = error(hub.create_group(name));
            assert!(told.contains(said), "{name:?}: {told}");
        }
        assert_eq!(groups(&hub), ["$Default"]);
    }
}

#[tokio::test]
async fn deleting_a_group_tells_its_receivers_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        hub.create_group("alarms").unwrap();
        let mut told = hub.receiver(request("alarms")).await.unwrap();
        let mut untouched = hub.receiver(request("$Default")).await.unwrap();
        let waiting = async {
            let (error, ()) = tokio::join!(told.next(1, 1), async { hub.delete_group("alarms").unwrap() });
            let text = "the hub is not available: consumer group \"alarms\" of hub \"homes\" was deleted";
            assert_eq!(error.unwrap_err().to_string(), text);
        };
        check(waiting).await;
        hub.producer().send(NewEvent::new("door")).await.unwrap();
        assert_eq!(untouched.next(1, 1).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_group_that_is_made_anew_knows_nothing_of_its_predecessor() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        hub.create_group("alarms").unwrap();
        let old = hub.receiver(OpenRequest { epoch: Some(owner(9)), ..request("alarms") }).await.unwrap();
        hub.delete_group("alarms").unwrap();
        hub.create_group("alarms").unwrap();
        let new = OpenRequest { epoch: Some(owner(1)), ..request("alarms") };
        let _new = hub.receiver(new).await.unwrap();
        drop(old);
        assert_eq!(hub.receivers().len(), 1, "the old one takes no place of the new ones with it");
    }
}

fn owner(epoch: u64) -> ephor_core::epoch::Epoch {
    ephor_core::epoch::Epoch::from_stored(epoch)
}
