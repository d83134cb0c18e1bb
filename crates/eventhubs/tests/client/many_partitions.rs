//! Tests that many partitions share one connection of a client, also all those of the largest possible hub.

use ephor_core::ids::PartitionId;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_hub::NewEvent;
use ephor_hub::config::MAX_PARTITIONS;

use crate::common::{TestHub, receive, request, texts, within};

#[tokio::test]
async fn every_partition_of_the_largest_hub_is_read_by_one_client() {
    let test_hub = TestHub::new(MAX_PARTITIONS);
    let served = test_hub.serve().await;
    let client = served.client();
    let mut receivers = Vec::new();
    for partition in (0..MAX_PARTITIONS).map(PartitionId) {
        let request = OpenRequest { partition, ..request("host", Some(1)) };
        receivers.push(client.open(request).await.unwrap_or_else(|error| panic!("{partition}: {error}")));
    }
    let last = PartitionId(MAX_PARTITIONS - 1);
    assert_eq!(client.partition_properties(last).await.unwrap().last, None, "beside them it is asked");
    test_hub.hub.producer().send_to(last, NewEvent::new("the last")).await.unwrap();
    let events = within(30, receive(receivers.last_mut().unwrap(), 1)).await;
    assert_eq!(texts(&events), ["the last"]);
    served.stop().await;
}

#[tokio::test]
async fn many_partitions_share_a_connection() {
    let test_hub = TestHub::new(100);
    let served = test_hub.serve().await;
    let client = served.client();
    let mut receivers = Vec::new();
    for id in 0..100 {
        let request = OpenRequest { partition: PartitionId(id), ..request("reader", Some(1)) };
        receivers.push(client.open(request).await.unwrap());
        client.producer().send_to(PartitionId(id), NewEvent::new(id.to_string())).await.unwrap();
    }
    for (id, receiver) in receivers.iter_mut().enumerate() {
        assert_eq!(texts(&within(20, receive(receiver, 1)).await), [id.to_string()]);
    }
    assert_eq!(client.hub_properties().await.unwrap().partitions.len(), 100);
}
