//! Tests of the faults that the hub in memory simulates: restarts, outages, cut links.

use super::*;

#[track_caller]
fn assert_unavailable(received: Option<Result<Vec<Event>, ReceiveError>>, message: &str) {
    match received {
        Some(Err(ReceiveError::Source(error @ SourceError::Unavailable(_)))) => {
            assert_eq!(error.to_string(), format!("the hub is not available: {message}"));
        }
        other => panic!("not unavailable, but {other:?}"),
    }
}

#[tokio::test]
async fn a_hub_made_anew_is_empty_and_has_another_log() {
    let hub = MemoryHub::new("homes", 2).unwrap();
    let alarms = hub.create_group("alarms").unwrap();
    hub.send(HERE, "a").unwrap();
    let mut receiver = open(&hub, StartPosition::Latest).await;
    let before = hub.hub_properties().await.unwrap();
    hub.recreate(3);
    let after = hub.hub_properties().await.unwrap();
    assert_ne!(after.log, before.log);
    assert_eq!(after.partitions.len(), 3);
    assert_eq!(hub.partition_properties(HERE).await.unwrap().last, None);
    assert_unavailable(now(&mut receiver), "hub \"homes\" was created again");
    let start = StartPosition::after(SequenceNumber(0));
    let error = hub.open(request(start, None)).await.err().unwrap();
    assert!(matches!(error, OpenError::InvalidPosition { .. }), "{error}");
    hub.open(OpenRequest { group: alarms, ..request(StartPosition::Earliest, None) }).await.unwrap();
}

#[tokio::test]
async fn a_restart_cuts_all_links_and_forgets_epochs_but_no_event() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    hub.send(HERE, "a").unwrap();
    let log = hub.hub_properties().await.unwrap().log;
    let mut old = open(&hub, StartPosition::Earliest).await;
    hub.restart();
    let mut new = hub.open(request(StartPosition::Earliest, Some(1))).await.unwrap();
    assert_unavailable(now(&mut old), "the hub was restarted");
    drop(old);
    assert_eq!(texts(&now(&mut new).unwrap().unwrap()), ["a"]);
    assert_eq!(hub.hub_properties().await.unwrap().log, log);
}

#[tokio::test]
async fn a_hub_that_fails_answers_nobody_until_it_recovers() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    let mut receiver = open(&hub, StartPosition::Earliest).await;
    hub.fail(Some("on fire"));
    hub.grow(2);
    assert!(matches!(hub.send(PartitionId(1), "x"), Err(SourceError::Unavailable(_))));
    assert!(matches!(hub.hub_properties().await, Err(SourceError::Unavailable(_))));
    assert!(matches!(hub.partition_properties(HERE).await, Err(SourceError::Unavailable(_))));
    let error = hub.open(request(StartPosition::Earliest, None)).await.err().unwrap();
    assert!(matches!(error, OpenError::Source(SourceError::Unavailable(_))), "{error}");
    assert_unavailable(now(&mut receiver), "on fire");
    hub.fail(None);
    hub.send(HERE, "a").unwrap();
    assert_eq!(texts(&now(&mut receiver).unwrap().unwrap()), ["a"]);
}

#[tokio::test]
async fn a_cut_link_reaches_its_own_partition_only_and_stays_cut() {
    let hub = MemoryHub::new("homes", 2).unwrap();
    let mut cut = open(&hub, StartPosition::Earliest).await;
    let elsewhere = OpenRequest { partition: PartitionId(1), ..request(StartPosition::Earliest, None) };
    let mut whole = hub.open(elsewhere).await.unwrap();
    hub.disconnect(HERE).unwrap();
    hub.send(HERE, "a").unwrap();
    assert_unavailable(now(&mut cut), "the link was cut");
    assert_unavailable(now(&mut cut), "the link was cut");
    assert!(now(&mut whole).is_none());
    let mut anew = hub.open(request(StartPosition::Earliest, Some(1))).await.unwrap();
    drop(cut);
    assert_eq!(texts(&now(&mut anew).unwrap().unwrap()), ["a"]);
}

/// Each fault, while a receiver waits: it is polled again only because it was woken.
#[tokio::test]
async fn a_waiting_receiver_is_woken_by_every_fault() {
    let faults: [fn(&MemoryHub); 4] = [
        |hub| hub.restart(),
        |hub| hub.recreate(1),
        |hub| hub.fail(Some("on fire")),
        |hub| hub.disconnect(HERE).unwrap(),
    ];
    for fault in faults {
        check(async move {
            let hub = MemoryHub::new("homes", 1).unwrap();
            let mut receiver = open(&hub, StartPosition::Earliest).await;
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(async move { receiver.receive(&mut Vec::new(), 1).await });
            tokio::task::yield_now().await;
            fault(&hub);
            let result = tasks.join_next().await.unwrap().unwrap();
            assert!(matches!(result, Err(ReceiveError::Source(SourceError::Unavailable(_)))), "{result:?}");
        })
        .await;
    }
}
