"""The hosts of a fleet of several SDKs, each in a process of its own, and a sender."""
import collections
import json
import os
import subprocess
import sys
import threading
import time

from azure.eventhub import EventData, EventHubProducerClient

HUB = "mixed-fleet"
PARTITIONS = [str(number) for number in range(8)]
CONTAINER = "mixed-fleet"
CHECKPOINT_EVERY = 5
BATCH = 10  # events that a host takes at a time at most
PATIENCE = 90  # seconds until something that should happen counts as failed
STRATEGIES = ["greedy"]  # of the other SDKs' processors: one round of kills with each
REST = 4  # seconds without a move: ownership has come to rest
if os.environ.get("EPHOR_LONG"):
    STRATEGIES, REST = ["greedy", "balanced", "greedy"], 10
HERE = os.path.dirname(os.path.abspath(__file__))

# How a host of each kind is started, and how many of it there are. Each prints what host.py prints: a line with
# `begun` or `ended` and a partition, a line with `partition`, `sequence` and `text` for an event, a line with `error`;
# it finds hub and storage in the variables that host.py reads.
KINDS = {
    "python": (1, [sys.executable, os.path.join(HERE, "host.py")]),
    "javascript": (1, ["node", os.path.join(os.environ["EPHOR_INSTALLED"], "host.js")]),
    "ephor": (2, [os.environ["EPHOR_OUR_HOST"]]),
}


def wait(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s for {what() if callable(what) else what}")
        time.sleep(0.05)


class Member:
    def __init__(self, kind, number, strategy):
        self.kind, self.name = kind, f"{kind} {number}"
        self.owned, self.errors = set(), []
        self.disorder = []  # what came out of order
        self.events = collections.defaultdict(list)  # by partition, in the order in which they came
        environment = {**os.environ, "MIXED_HUB": HUB, "MIXED_CONTAINER": CONTAINER,
                       "MIXED_CHECKPOINT_EVERY": str(CHECKPOINT_EVERY), "MIXED_STRATEGY": strategy, "RUST_LOG": "trace"}
        self.process = subprocess.Popen(KINDS[kind][1], stdout=subprocess.PIPE, text=True, env=environment)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        last = {}  # by partition, since it was begun
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of it
            told = json.loads(line)
            if "begun" in told:
                self.owned.add(told["begun"])
                last.pop(told["begun"], None)
            elif "ended" in told:
                self.owned.discard(told["ended"])
            elif "error" in told:
                self.errors.append(told["error"])
            else:
                assert told["text"] == str(told["sequence"]), told
                partition, number = told["partition"], told["sequence"]
                # An owner begins behind a checkpoint, and then skips nothing; a batch whose checkpoint failed comes again.
                previous = last.get(partition, number - 1)
                if not previous - BATCH < number <= previous + 1:
                    self.disorder.append(f"{self.name}, partition {partition}: {number} behind {last[partition]}")
                last[partition] = number
                self.events[partition].append(number)

    def kill(self):
        """Gives back what it owned as far as it told."""
        self.process.kill()
        self.process.wait()
        self.thread.join()
        owned, self.owned = sorted(self.owned), set()
        return owned


class Sender:
    """Sends to every partition while it runs; the text of an event is its sequence number.

    In bursts: the Python host stays with a partition until 300 events have come or none for 0.2 s, and leaves all its
    others alone meanwhile. With an event every 0.1 s that is half a minute.
    """
    BURST, PAUSE = 7, 0.7

    def __init__(self):
        self.sent, self.going, self.failed = 0, True, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            with EventHubProducerClient.from_connection_string(os.environ["EPHOR_CONNECTION"], eventhub_name=HUB) as client:
                while self.going:
                    burst = [EventData(str(self.sent + number)) for number in range(self.BURST)]
                    for partition in PARTITIONS:
                        client.send_batch(burst, partition_id=partition)
                    self.sent += self.BURST
                    time.sleep(self.PAUSE)
        except Exception as error:  # told by whoever waits
            self.failed = error

    def stop(self):
        self.going = False
        self.thread.join()
        if self.failed:
            raise self.failed
