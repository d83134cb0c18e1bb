//! Tests of events and batches that are refused, with their reasons.

use super::*;

#[tokio::test]
async fn a_batch_with_one_bad_event_stores_none() {
    let hub = HubConfig { max_event_bytes: 100, ..homes(1) };
    for (_namespace, hub) in every_kind(&hub) {
        let events = [NewEvent::new("good"), NewEvent::new(vec![0; 200]), NewEvent::new("good")];
        let refused = hub.producer().send_batch(Target::Any, events).await.unwrap_err();
        assert!(matches!(refused, SendError::EventTooLarge { .. }), "{refused}");
        assert_eq!(all(&hub, FIRST).await.len(), 0);
    }
}

#[tokio::test]
async fn an_event_over_the_limit_is_refused_with_its_size_and_the_limit() {
    for (_namespace, hub) in every_kind(&homes(1)) {
        let overhead = {
            let mut batch = hub.producer().batch();
            batch.push(&keyed("home", "")).unwrap();
            batch.push(&NewEvent::new(vec![0; 1_000_000])).unwrap();
            // A long body has a longer length in front.
            11
        };
        let largest = NewEvent { body: vec![7; (1 << 20) - overhead].into(), ..keyed("abc", "") };
        hub.producer().send(largest).await.unwrap();
        let over = NewEvent { body: vec![7; (1 << 20) - overhead + 1].into(), ..keyed("abc", "") };
        let refused = hub.producer().send(over).await.unwrap_err();
        assert!(matches!(refused, SendError::EventTooLarge { size: 1_048_577, limit: 1_048_576 }));
        assert_eq!(
            refused.to_string(),
            "the event has 1048577 bytes; this hub accepts at most 1048576 bytes"
        );
        let far_over = hub.producer().send(NewEvent::new(vec![7; 9 << 20])).await.unwrap_err();
        assert!(matches!(far_over, SendError::EventTooLarge { limit: 1_048_576, .. }), "{far_over}");
        assert_eq!(all(&hub, FIRST).await.len(), 1);
    }
}

#[tokio::test]
async fn properties_and_keys_count_towards_the_limit() {
    let hub = HubConfig { max_event_bytes: 100, ..homes(1) };
    for (_namespace, hub) in every_kind(&hub) {
        let long: String = "x".repeat(120);
        let properties = Properties::from_iter([("note", &*long)]);
        let large = [
            NewEvent { properties: properties.clone(), ..NewEvent::default() },
            NewEvent { system_properties: properties, ..NewEvent::default() },
            NewEvent { partition_key: Some(long.as_str().into()), ..NewEvent::default() },
        ];
        for event in large {
            let refused = hub.producer().send(event).await.unwrap_err();
            assert!(
                matches!(refused, SendError::EventTooLarge { size, limit: 100 } if size >= 120),
                "{refused}"
            );
        }
    }
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_refused_and_keeps_what_it_had() {
    for (_namespace, hub) in every_kind(&homes(1)) {
        let mut batch = hub.producer().batch();
        let event = NewEvent::new(vec![7; 1_000_000]);
        let refused = loop {
            if let Err(refused) = batch.push(&event) {
                break refused;
            }
        };
        assert!(matches!(refused, SendError::BatchTooLarge { .. }), "{refused}");
        let said = refused.to_string();
        assert!(said.ends_with("bytes; a batch has at most 20971520 bytes; split it"), "{said}");
        assert_eq!(batch.len(), 20);
        assert!(batch.bytes() <= MAX_BATCH_BYTES);
        let receipt = hub.producer().send_encoded(Target::Any, batch).await.unwrap();
        assert_eq!(receipt.count, 20);
    }
}

#[tokio::test]
async fn an_empty_batch_is_refused() {
    for (_namespace, hub) in every_kind(&homes(1)) {
        let producer = hub.producer();
        for refused in [
            producer.send_batch(Target::Any, []).await.unwrap_err(),
            producer.send_encoded(Target::Partition(FIRST), producer.batch()).await.unwrap_err(),
        ] {
            assert_eq!(refused.to_string(), "the batch is empty");
        }
    }
}

#[tokio::test]
async fn a_partition_that_is_not_there_is_refused_with_the_number_of_those_that_are() {
    for (_namespace, hub) in every_kind(&homes(4)) {
        let refused = hub.producer().send_to(PartitionId(4), NewEvent::new("door")).await.unwrap_err();
        assert_eq!(refused.to_string(), "hub \"homes\" has no partition 4; it has 4 in all, numbered from 0");
    }
}

#[tokio::test]
async fn a_key_of_more_than_128_characters_is_refused_and_quoted_in_part() {
    for (_namespace, hub) in every_kind(&homes(4)) {
        hub.producer().send(keyed(&"é".repeat(128), "door")).await.unwrap();
        let long = "k".repeat(129);
        let said = format!("partition key {:?}… has 129 characters; at most 128 are allowed", "k".repeat(80));
        for refused in [
            hub.producer().send(keyed(&long, "door")).await.unwrap_err(),
            hub.producer().send_batch(Target::Key(&long), [NewEvent::new("door")]).await.unwrap_err(),
            hub.producer().batch().push_message(Some(&long), &message()).unwrap_err(),
        ] {
            assert_eq!(refused.to_string(), said);
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused_and_leave_the_batch_as_it_was() {
    for (_namespace, hub) in every_kind(&homes(1)) {
        let mut batch = hub.producer().batch();
        batch.push_message(None, &message()).unwrap();
        let bytes = batch.bytes();
        let whole = message();
        let torn = &whole[..whole.len() - 1];
        for bad in [b"".as_slice(), b"door", torn] {
            let refused = batch.push_message(None, bad).unwrap_err();
            assert!(refused.to_string().starts_with("the event cannot be stored: "), "{refused}");
        }
        assert_eq!((batch.len(), batch.bytes()), (1, bytes));
        let receipt = hub.producer().send_encoded(Target::Any, batch).await.unwrap();
        assert_eq!(receipt.count, 1);
    }
}

#[tokio::test]
async fn what_amqp_cannot_say_is_refused_by_its_name() {
    for (_namespace, hub) in every_kind(&homes(1)) {
        let twice = Properties::from_iter([("level", 1), ("level", 2)]);
        let refused = hub.producer().send(NewEvent { properties: twice, ..NewEvent::default() }).await;
        let said = refused.unwrap_err().to_string();
        assert!(
            said.starts_with("the event cannot be stored: property \"level\" cannot be sent: "),
            "{said}"
        );
        let hubs_own = Properties::from_iter([("x-opt-offset", "12")]);
        let refused =
            hub.producer().send(NewEvent { system_properties: hubs_own, ..NewEvent::default() }).await;
        let said = refused.unwrap_err().to_string();
        assert!(said.ends_with("the hub writes this annotation itself"), "{said}");
    }
}

#[tokio::test]
async fn a_closed_hub_refuses_what_comes_later() {
    for (namespace, hub) in every_kind(&homes(1)) {
        hub.producer().send(NewEvent::new("in time")).await.unwrap();
        namespace.close().unwrap();
        let refused = hub.producer().send(NewEvent::new("too late")).await.unwrap_err();
        assert!(matches!(refused, SendError::Closed(_)));
        assert_eq!(refused.to_string(), "the hub is closed");
    }
}

#[tokio::test]
async fn a_body_that_is_nested_too_deeply_is_refused() {
    // An amqp-value of lists in lists: each says how long it is, so the innermost is written first.
    let nested = |levels: usize| {
        let mut value = vec![0x45];
        for _ in 0..levels {
            let size = u32::try_from(value.len() + 4).unwrap();
            let mut outer = vec![0xd0];
            outer.extend_from_slice(&size.to_be_bytes());
            outer.extend_from_slice(&1u32.to_be_bytes());
            outer.append(&mut value);
            value = outer;
        }
        [&[0x00, 0x53, 0x77][..], &value].concat()
    };
    let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
    let hub = namespace.create_hub(homes(1)).unwrap();
    let mut batch = hub.producer().batch();
    batch.push_message(None, &nested(10)).unwrap();
    let refused = batch.push_message(None, &nested(2_000)).unwrap_err();
    assert!(matches!(refused, SendError::Unencodable(_)), "{refused}");
    assert_eq!(batch.len(), 1);
}
