//! Tests of sends that wait for a slow disk.

use super::*;

/// A hub on a disk with a gate; this many bytes may wait for it.
fn slow(queue_bytes: u64) -> (LocalNamespace, Hub, Arc<Gate>) {
    let (files, gates) = Gated::new();
    let gate = gates.syncs;
    let config = NamespaceConfig { queue_bytes, ..NamespaceConfig::default() };
    let namespace = LocalNamespace::on(files, config, Ticking::new(1_000, 0)).unwrap();
    let hub = HubConfig { max_event_bytes: queue_bytes.min(1 << 20), ..homes(1) };
    let hub = namespace.create_hub(hub).unwrap();
    (namespace, hub, gate)
}

#[tokio::test]
async fn nobody_sees_an_event_before_it_is_on_disk() {
    let (_namespace, hub, gate) = slow(1 << 20);
    gate.set_shut(true);
    let (producer, mut reader) = (hub.producer(), hub.reader(FIRST, StartPosition::Earliest).await.unwrap());
    let mut send = pin!(producer.send(NewEvent::new("door")));
    let mut receive = pin!(reader.next(1, 1));
    assert!(poll_once(send.as_mut()).is_pending());
    gate.waiting();
    assert!(poll_once(send.as_mut()).is_pending() && poll_once(receive.as_mut()).is_pending());
    assert_eq!(hub.partition_properties(FIRST).await.unwrap().last, None);
    gate.set_shut(false);
    assert_eq!(send.await.unwrap().first.0, 0);
    assert_eq!(receive.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_send_that_is_dropped_while_it_waits_for_the_disk_is_stored_all_the_same() {
    let (_namespace, hub, gate) = slow(1 << 20);
    let producer = hub.producer();
    drop(producer.send(NewEvent::new("never began")));
    gate.set_shut(true);
    {
        let mut first = pin!(producer.send(NewEvent::new("on its way")));
        assert!(poll_once(first.as_mut()).is_pending());
        gate.waiting();
        let mut second = pin!(producer.send(NewEvent::new("in the queue")));
        assert!(poll_once(second.as_mut()).is_pending());
    }
    gate.set_shut(false);
    let receipt = producer.send(NewEvent::new("last")).await.unwrap();
    assert_eq!(receipt.first.0, 2);
    let texts: Vec<_> = all(&hub, FIRST).await.iter().map(|event| event.text().unwrap().to_owned()).collect();
    assert_eq!(texts, ["on its way", "in the queue", "last"]);
}

#[tokio::test]
async fn no_more_bytes_wait_for_the_disk_than_the_queue_may_hold() {
    let (_namespace, hub, gate) = slow(4_096);
    let producer = hub.producer();
    let event = || NewEvent::new(vec![7; 990]);
    gate.set_shut(true);
    {
        let mut first = pin!(producer.send(event()));
        assert!(poll_once(first.as_mut()).is_pending());
        gate.waiting();
        let mut later: Vec<_> = (0..10).map(|_| Box::pin(producer.send(event()))).collect();
        assert!(later.iter_mut().all(|send| poll_once(send.as_mut()).is_pending()));
        // Those in the queue go on without their senders; those before it are gone with them.
    }
    gate.set_shut(false);
    producer.send(event()).await.unwrap();
    assert_eq!(all(&hub, FIRST).await.len(), 4 + 1, "four of about a thousand bytes fit");
}

#[tokio::test]
async fn a_batch_that_is_larger_than_the_queue_goes_alone() {
    let (_namespace, hub, _gate) = slow(4_096);
    let events = (0..100).map(|_| NewEvent::new(vec![7; 1_000]));
    assert_eq!(hub.producer().send_batch(Target::Any, events).await.unwrap().count, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_stores_what_waits_and_answers_everybody() {
    let (namespace, hub, gate) = slow(4_096);
    gate.set_shut(true);
    let producer = hub.producer();
    let mut first = Box::pin(producer.send(NewEvent::new(vec![7; 990])));
    assert!(poll_once(first.as_mut()).is_pending());
    gate.waiting();
    let mut sends: Vec<_> = (0..10).map(|_| Box::pin(producer.send(NewEvent::new(vec![7; 990])))).collect();
    assert!(sends.iter_mut().all(|send| poll_once(send.as_mut()).is_pending()));
    let close = tokio::task::spawn_blocking(move || namespace.close());
    // Whoever has no place in the queue learns at once that there will be none.
    let mut refused = 0;
    for send in sends.drain(3..) {
        refused += usize::from(matches!(send.await, Err(SendError::Closed(_))));
    }
    gate.set_shut(false);
    close.await.unwrap().unwrap();
    first.await.unwrap();
    for send in sends {
        send.await.unwrap();
    }
    assert_eq!(refused, 7);
}
