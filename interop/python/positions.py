"""Interoperability tests that receive from every kind of start position."""
import time

from azure.eventhub import EventData

from client import Receiver, equal, last, producer

HUB = "python-positions"
COUNT = 6


def numbers(events):
    return [event.sequence_number for event in events]


def filled():
    """Six events in partition 0, each at a time of its own, as they are received from the start."""
    if last(HUB) < 0:
        with producer(HUB) as client:
            for number in range(COUNT):
                client.send_event(EventData(f"event {number}"), partition_id="0")
                time.sleep(0.02)
    with Receiver(HUB, "-1") as receiver:
        return receiver.take(COUNT)


def after(position, expected, inclusive=False):
    with Receiver(HUB, position, inclusive=inclusive) as receiver:
        equal(numbers(receiver.take(len(expected))), expected, f"after {position} (inclusive: {inclusive}):")


def earliest():
    equal(numbers(filled()), list(range(COUNT)), "all:")
    with Receiver(HUB, {"0": "-1"}) as receiver:
        receiver.take(COUNT)


def latest():
    before = last(HUB, "1")
    with Receiver(HUB, "@latest", "1") as receiver:
        receiver.attached()
        with producer(HUB) as client:
            client.send_event(EventData("new"), partition_id="1")
        equal(numbers(receiver.take(1)), [before + 1], "after latest:")
    with Receiver(HUB, "@latest", "1", inclusive=True) as receiver:
        equal(numbers(receiver.take(1)), [before + 1], "from latest, inclusive:")


def sequence_number():
    filled()
    after(2, [3, 4, 5])
    after(2, [2, 3, 4, 5], inclusive=True)
    after(0, [0, 1, 2, 3, 4, 5], inclusive=True)


def offset():
    events = filled()
    after(events[2].offset, [3, 4, 5])
    after(events[2].offset, [2, 3, 4, 5], inclusive=True)


def enqueued_time():
    events = filled()
    after(events[2].enqueued_time, [3, 4, 5])
    after(events[2].enqueued_time, [2, 3, 4, 5], inclusive=True)


def all_partitions():
    filled()
    with producer(HUB) as client:
        client.send_event(EventData("other"), partition_id="1")
    expected = last(HUB, "0") + last(HUB, "1") + 2
    with Receiver(HUB, "-1", None) as receiver:
        receiver.take(expected)


def tracking():
    events = filled()
    with Receiver(HUB, "-1", track=True) as receiver:
        processor = None
        for _ in receiver.take(COUNT):
            processor = next(iter(receiver.client._event_processors.values()))
        found = processor._partition_contexts["0"].last_enqueued_event_properties
    equal(found["sequence_number"], events[-1].sequence_number, "sequence number:")
    equal(found["offset"], events[-1].offset, "offset:")
    equal(found["enqueued_time"], events[-1].enqueued_time, "time:")
    equal(found["retrieval_time"] >= events[-1].enqueued_time, True, "retrieval time:")


OPERATIONS = {
    "receive from earliest": earliest,
    "receive from latest": latest,
    "receive from a sequence number": sequence_number,
    "receive from an offset": offset,
    "receive from an enqueued time": enqueued_time,
    "receive all partitions at once": all_partitions,
    "know the last enqueued event while receiving": tracking,
}
