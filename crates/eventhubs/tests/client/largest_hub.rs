//! Tests that one client reads every partition of the largest possible hub, on one connection.

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
