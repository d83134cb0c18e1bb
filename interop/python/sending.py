"""Interoperability tests that send events, and that read the runtime properties of hub and partitions."""
from azure.eventhub import EventData

from client import Receiver, consumer, equal, last, producer

HUB = "python-sending"


def bodies(events):
    return [event.body_as_str() for event in events]


def everywhere():
    return [last(HUB, partition) for partition in "0123"]


def send_one():
    before = everywhere()
    with producer(HUB) as client:
        client.send_event(EventData("alone"))
    equal(sum(everywhere()) - sum(before), 1, "stored:")


def send_batch():
    before = everywhere()
    with producer(HUB) as client:
        batch = client.create_batch()
        for number in range(100):
            batch.add(EventData(f"event {number}"))
        client.send_batch(batch)
        client.send_batch([EventData("in a list"), EventData("of two")])
    equal(sum(everywhere()) - sum(before), 102, "stored:")


def send_with_key():
    before = everywhere()
    with producer(HUB) as client:
        for _ in range(2):
            batch = client.create_batch(partition_key="a key")
            for number in range(10):
                batch.add(EventData(f"event {number}"))
            client.send_batch(batch)
        client.send_event(EventData("alone"), partition_key="a key")
    after = everywhere()
    changed = [n for n in range(4) if after[n] != before[n]]
    equal(len(changed), 1, "partitions of one key:")
    partition = changed[0]
    with Receiver(HUB, before[partition], str(partition)) as receiver:
        events = receiver.take(21)
        equal({event.partition_key for event in events}, {b"a key"}, "key:")
        equal(bodies(events), [f"event {n}" for n in range(10)] * 2 + ["alone"], "order:")


def send_to_partition():
    before = last(HUB, "2")
    with producer(HUB) as client:
        batch = client.create_batch(partition_id="2")
        for number in range(10):
            batch.add(EventData(f"event {number}"))
        client.send_batch(batch)
        client.send_event(EventData("alone"), partition_id="2")
    with Receiver(HUB, before, "2") as receiver:
        events = receiver.take(11)
        equal(bodies(events), [f"event {n}" for n in range(10)] + ["alone"], "order:")
        equal([event.sequence_number for event in events], list(range(before + 1, before + 12)), "sequence:")
        equal({event.partition_key for event in events}, {None}, "key:")


def send_buffered():
    before = everywhere()
    sent, failed = [], []
    client = producer(HUB, buffered_mode=True, max_wait_time=1,
                      on_success=lambda events, partition: sent.extend(events),
                      on_error=lambda events, partition, error: failed.append(error))
    with client:
        for number in range(100):
            client.send_event(EventData(f"event {number}"), partition_key=f"key {number % 7}")
        client.flush()
    equal((len(sent), failed), (100, []), "told:")
    equal(sum(everywhere()) - sum(before), 100, "stored:")


def describe_hub():
    for make in (producer, consumer):
        with make(HUB) as client:
            found = client.get_eventhub_properties()
            equal(found["eventhub_name"], HUB, "name:")
            equal(found["partition_ids"], ["0", "1", "2", "3"], "partitions:")
            equal(found["created_at"].year >= 2024, True, "created:")
            equal(client.get_partition_ids(), ["0", "1", "2", "3"], "partitions:")


def describe_partition():
    with producer(HUB) as client:
        client.send_batch([EventData("one"), EventData("two")], partition_id="3")
        found = client.get_partition_properties("3")
    with Receiver(HUB, "-1", "3") as receiver:
        event = receiver.take(found["last_enqueued_sequence_number"] + 1)[-1]
    equal(found["eventhub_name"], HUB, "name:")
    equal(found["id"], "3", "partition:")
    equal(found["beginning_sequence_number"], 0, "first:")
    equal(found["last_enqueued_sequence_number"], event.sequence_number, "last sequence number:")
    equal(found["last_enqueued_offset"], event.offset, "last offset:")
    equal(found["last_enqueued_time_utc"], event.enqueued_time, "last time:")
    equal(found["is_empty"], False, "empty:")


OPERATIONS = {
    "send one event": send_one,
    "send a batch without a key": send_batch,
    "send a batch with a key": send_with_key,
    "send a batch to a partition": send_to_partition,
    "send through the client's buffer": send_buffered,
    "describe the hub": describe_hub,
    "describe a partition": describe_partition,
}
