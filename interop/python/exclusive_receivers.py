"""Interoperability tests with several receivers of one partition: which of them the hub admits, and which
it disconnects."""
from azure.eventhub import EventData

from client import Receiver, equal, is_error, last, producer

HUB = "python-ownership"
STOLEN = "ConnectionLostError"


def goes_on(receiver):
    """It still receives what is sent now."""
    count = len(receiver.events)
    with producer(HUB) as client:
        client.send_event(EventData("go on"), partition_id="0")
    receiver.take(count + 1)


def steal(first_level, second_level):
    with Receiver(HUB, "@latest", level=first_level) as first:
        first.attached()
        goes_on(first)
        with Receiver(HUB, "@latest", level=second_level) as second:
            second.attached()
            is_error(first.error(), STOLEN, "New receiver", f"higher epoch of '{second_level}'")
            goes_on(second)


def refused(first_level, second_level, *words):
    with Receiver(HUB, "@latest", level=first_level) as first:
        first.attached()
        with Receiver(HUB, "@latest", level=second_level) as second:
            is_error(second.error(), STOLEN, *words)
        goes_on(first)
    with Receiver(HUB, "@latest", level=second_level) as second:
        goes_on(second.attached())


def higher():
    steal(3, 4)
    steal(None, 0)


def sixth():
    five = [Receiver(HUB, "@latest", group="six") for _ in range(5)]
    try:
        for receiver in five:
            receiver.attached()
        with Receiver(HUB, "@latest", group="six") as receiver:
            is_error(receiver.error(), "ConnectionLostError", "maximum number of allowed receivers", "which is 5")
        with producer(HUB) as client:
            client.send_event(EventData("for five"), partition_id="0")
        for receiver in five:
            equal(receiver.take(1)[0].body_as_str(), "for five")
        five.pop().__exit__()
        with Receiver(HUB, last(HUB) - 1, group="six") as receiver:
            receiver.take(1)
    finally:
        for receiver in five:
            receiver.__exit__()


OPERATIONS = {
    "an equal owner level steals": lambda: steal(0, 0),
    "a higher owner level steals": higher,
    "a lower owner level is refused": lambda: refused(5, 4, "with a higher epoch '5' already exists"),
    "no owner level beside one is refused": lambda: refused(1, None, "non-epoch receiver is not allowed"),
    "the sixth receiver without owner level is refused": sixth,
}
