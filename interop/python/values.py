"""Interoperability tests that send every kind of value (sizes, properties, bodies) and receive it
unchanged."""
import datetime
import uuid

from azure.eventhub import EventData
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from client import Receiver, equal, last, producer, raises

HUB = "python-values"
MEGABYTE = 1_048_000  # of the 1,048,576 that the link takes, with room for the rest of the message


def through(*events):
    """The same events after a way through the hub."""
    before = last(HUB)
    with producer(HUB) as client:
        for event in events:
            client.send_event(event, partition_id="0")
    with Receiver(HUB, before) as receiver:
        return receiver.take(len(events))


def megabyte():
    body = bytes(n * 7 % 256 for n in range(1000)) * (MEGABYTE // 1000)
    before = last(HUB)
    with producer(HUB) as client:
        batch = client.create_batch(partition_id="0")
        batch.add(EventData(body))
        client.send_batch(batch)
        client.send_event(EventData(body), partition_id="0")
    with Receiver(HUB, before) as receiver:
        for event in receiver.take(2):
            equal(b"".join(event.body) == body, True, "same bytes:")


def too_large():
    before = last(HUB)
    event = EventData(bytes(1_048_577))
    with producer(HUB) as client:
        batch = client.create_batch(partition_id="0")
        raises("ValueError", "size limit", act=lambda: batch.add(event))
        raises("EventDataSendError", "exceeds the limit", act=lambda: client.send_event(event, partition_id="0"))
        client.send_event(EventData("after it"), partition_id="0")
    equal(last(HUB), before + 1, "last:")


def largest_batch():
    before = last(HUB)
    with producer(HUB) as client:
        def batch_of(size):
            """A batch of one event; none if the client has no room for it."""
            batch = client.create_batch(partition_id="0")
            try:
                batch.add(EventData(bytes(size)))
            except ValueError:
                return None
            return batch

        largest, too_large = 0, 1_048_577
        while too_large - largest > 1:
            middle = (largest + too_large) // 2
            largest, too_large = (middle, too_large) if batch_of(middle) else (largest, middle)
        for size in (largest - 1, largest):
            client.send_batch(batch_of(size))
    with Receiver(HUB, before) as receiver:
        equal([sum(map(len, event.body)) for event in receiver.take(2)], [largest - 1, largest], "sizes:")


def properties():
    # This client gives strings back as bytes and sends whole numbers as 32 bits; so it does with every server.
    when = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=datetime.timezone.utc)
    sent = {
        "string": "grün", "empty": "", "long string": "x" * 1000, "int": 42, "negative": -7, "largest": 2**31 - 1,
        "smallest": -(2**31), "float": 0.1, "true": True, "false": False, "uuid": uuid.UUID(int=12345),
        "bytes": b"\x00\xff", "datetime": when, "nothing": None,
    }
    event = EventData("typed")
    event.properties = dict(sent)
    found = through(event)[0].properties
    expected = {k: v.encode() if isinstance(v, str) else v for k, v in sent.items()}
    expected["datetime"] = int(when.timestamp() * 1000)
    found = {k.decode(): v for k, v in found.items()}
    equal(sorted(found), sorted(expected), "names:")
    for name, value in expected.items():
        equal((type(found[name]), found[name]), (type(value), value), name)


def system_properties():
    event = EventData("described")
    event.content_type, event.message_id, event.correlation_id = "text/x-test", "message 1", "correlation 1"
    full = AmqpAnnotatedMessage(
        data_body=b"full",
        properties={"message_id": "m", "user_id": b"u", "to": "t", "subject": "s", "reply_to": "r",
                    "correlation_id": "c", "content_type": "ct", "content_encoding": "ce", "group_id": "g",
                    "group_sequence": 3, "reply_to_group_id": "rg"},
    )
    simple, found = through(event, full)
    equal((simple.content_type, simple.message_id, simple.correlation_id),
          ("text/x-test", "message 1", "correlation 1"))
    properties = found.raw_amqp_message.properties
    for name, value in full.properties.items():
        if value is not None:
            other = getattr(properties, name)
            plain = lambda v: v.encode() if isinstance(v, str) else v
            equal(plain(other), plain(value), name)
    equal(sorted(key for key in simple.system_properties if key.startswith(b"x-opt")),
          [b"x-opt-enqueued-time", b"x-opt-offset", b"x-opt-sequence-number", b"x-opt-sequence-number-epoch"], "annotations:")


def kinds_of_bodies():
    data = AmqpAnnotatedMessage(data_body=[b"one", b"", b"three"])
    value = AmqpAnnotatedMessage(value_body={b"a": [1, 2, True, b"x"]})
    sequence = AmqpAnnotatedMessage(sequence_body=[[1, b"two"], [3.5]])
    empty = EventData(b"")
    found = [event.raw_amqp_message for event in through(data, value, sequence, empty)]
    equal([message.body_type for message in found],
          [AmqpMessageBodyType.DATA, AmqpMessageBodyType.VALUE, AmqpMessageBodyType.SEQUENCE,
           AmqpMessageBodyType.DATA], "kinds:")
    equal(list(found[0].body), [b"one", b"", b"three"], "data:")
    equal(found[1].body, {b"a": [1, 2, True, b"x"]}, "value:")
    equal(list(found[2].body), [[1, b"two"], [3.5]], "sequence:")
    equal(b"".join(found[3].body), b"", "empty:")


OPERATIONS = {
    "an event of 1 MB both ways": megabyte,
    "an event beyond the limit is refused": too_large,
    "the largest batch, and one byte less and more": largest_batch,
    "all types of properties unchanged": properties,
    "system properties unchanged": system_properties,
    "all kinds of bodies unchanged": kinds_of_bodies,
}
