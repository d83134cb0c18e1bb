"""Helpers of every operation: clients with short timeouts, and a receiver that runs in the background."""
import os
import threading
import time

from azure.eventhub import EventHubConsumerClient, EventHubProducerClient

CONNECTION = os.environ["EPHOR_CONNECTION"]
PATIENCE = 20  # seconds until something that should happen counts as failed
FAST = {"retry_total": 0, "retry_backoff_factor": 0.05, "retry_backoff_max": 0.2}


def producer(hub, connection=CONNECTION, **options):
    return EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, **{**FAST, **options})


def consumer(hub, group="$Default", connection=CONNECTION, **options):
    return EventHubConsumerClient.from_connection_string(
        connection, group, eventhub_name=hub, **{**FAST, **options}
    )


def wait(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.01)


def last(hub, partition="0"):
    """The sequence number of the last event, -1 if there is none."""
    with producer(hub) as client:
        return client.get_partition_properties(partition)["last_enqueued_sequence_number"]


def equal(found, expected, what=""):
    if found != expected:
        raise AssertionError(f"{what} expected {expected!r:.200}, found {found!r:.200}".strip())


class Receiver:
    """One partition, received in a thread of its own: `events` and `errors` grow."""

    def __init__(self, hub, position, partition="0", group="$Default", inclusive=False, level=None,
                 connection=CONNECTION, options=None, track=False):
        self.events, self.errors, self.opened = [], [], threading.Event()
        self.client = consumer(hub, group, connection, **(options or {}))
        self.thread = threading.Thread(
            target=self.client.receive,
            kwargs={
                "on_event": lambda _, event: self.events.append(event) if event else self.opened.set(),
                "on_error": lambda _, error: self.errors.append(error),
                "partition_id": partition,
                "owner_level": level,
                "starting_position": position,
                "starting_position_inclusive": inclusive,
                "track_last_enqueued_event_properties": track,
                "max_wait_time": 0.1,
            },
            daemon=True,
        )
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.thread.join(PATIENCE)

    def take(self, count):
        wait(f"{count} events", lambda: self.errors or len(self.events) >= count)
        if self.errors:
            raise self.errors[0]
        equal(len(self.events), count, "number of events:")
        return self.events

    def attached(self):
        """Until the link is open: the client does not say so, hence a look at its handler."""
        def ready():
            processors = list(self.client._event_processors.values())
            return self.errors or any(c.handler_ready for p in processors for c in p._consumers.values())
        wait("a receiver to open", ready)
        if self.errors:
            raise self.errors[0]
        return self

    def error(self):
        wait("an error", lambda: self.errors)
        return self.errors[0]


def is_error(error, kind, *words):
    equal(type(error).__name__, kind, f"{error}:"[:300])
    for word in words:
        if word not in str(error):
            raise AssertionError(f"{word!r} is not in: {error}"[:400])


def raises(kind, *words, act):
    try:
        act()
    except Exception as error:  # whatever the client raises is what we look at
        is_error(error, kind, *words)
        return
    raise AssertionError(f"no {kind} was raised")
