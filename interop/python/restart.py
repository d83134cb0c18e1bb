"""Interoperability tests while the server is killed and started again on the same data and port."""
import sys
import threading

from azure.eventhub import EventData

from client import Receiver, equal, last, producer, wait

HUB = "python-restart"
PATIENT = {"retry_total": 100, "retry_backoff_factor": 0.05, "retry_backoff_max": 0.2}


def restart_server():
    """Asks the runner, which owns the server, and waits until it is back."""
    print("restart", flush=True)
    equal(sys.stdin.readline().strip(), "restarted")


def idle():
    """Both clients live through it; every event arrives once."""
    with Receiver(HUB, "-1", "0", options=PATIENT) as receiver, producer(HUB, **PATIENT) as client:
        for number in range(20):
            client.send_event(EventData(str(number)), partition_id="0")
        receiver.take(20)
        restart_server()
        for number in range(20, 40):
            client.send_event(EventData(str(number)), partition_id="0")
        events = receiver.take(40)
    equal([event.body_as_str() for event in events], [str(n) for n in range(40)], "events:")
    equal([event.sequence_number for event in events], list(range(40)), "sequence:")


def busy():
    """Killed three times. Repeats come only from the client: a sender that tries again, a receiver's buffer."""
    acknowledged, stop, failed = [], threading.Event(), []

    def send():
        number = 0
        try:
            with producer(HUB, **PATIENT) as client:
                while not stop.is_set():
                    client.send_event(EventData(str(number)), partition_id="1")
                    acknowledged.append(number)
                    number += 1
        except Exception as error:  # told by the main thread
            failed.append(error)

    kills = 3
    with Receiver(HUB, "-1", "1", options=PATIENT) as receiver:
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for _ in range(kills):
            count = len(acknowledged)
            wait("50 sends", lambda: failed or len(acknowledged) >= count + 50)
            restart_server()
        count = len(acknowledged)
        wait("sends after the last restart", lambda: failed or len(acknowledged) >= count + 50)
        stop.set()
        sender.join()
        if failed:
            raise failed[0]
        end = last(HUB, "1")
        seen = lambda: {event.sequence_number for event in receiver.events}
        wait("all events", lambda: receiver.errors or len(seen()) > end)
        if receiver.errors:
            raise receiver.errors[0]
        handed = [event.sequence_number for event in receiver.events]
    with Receiver(HUB, "-1", "1") as again:
        stored = [int(event.body_as_str()) for event in again.take(end + 1)]
    equal(sorted(set(stored)), acknowledged, "stored and acknowledged:")
    if len(stored) - len(acknowledged) > kills:
        raise AssertionError(f"{len(stored) - len(acknowledged)} events stored twice by {kills} kills")
    equal(stored, sorted(stored), "order:")
    equal(sorted(set(handed)), list(range(end + 1)), "handed out:")
    return (f"{len(acknowledged)} sent, {len(stored) - len(acknowledged)} stored twice by a retry, "
          f"{len(handed) - len(set(handed))} handed out twice")


OPERATIONS = {
    "killed and restarted while idle": idle,
    "killed and restarted while sending and receiving": busy,
}
