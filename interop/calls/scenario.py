"""Counts the storage requests of one idle host that owns all partitions: the Python SDK's, and Ephor's with
and without sharing (`shared-with`), at the same interval, each on a hub and a container of its own. Prints
one line for each size: name, `ok` or `failed`, text, seconds; and a table, which is also written to the
folder of the installed client.
"""
import collections
import json
import os
import subprocess
import sys
import threading
import time

from counter import Counter

INTERVAL = 10  # seconds
INTERVALS = 6  # that are counted: a minute
SIZES = (16, 256)
PATIENCE = 240  # seconds until a host has all partitions
QUIET = 2  # seconds without a write: between the renewals of two intervals
HERE = os.path.dirname(os.path.abspath(__file__))
OURS = [os.environ["EPHOR_OUR_HOST"]]
KINDS = {  # how it is started, with which variables, and what it is called
    "python": ([sys.executable, os.path.join(HERE, "host.py")], {}, "Python"),
    "other-sdks": (OURS, {"MIXED_SHARED_WITH": "other-sdks"}, "Ephor, `shared-with = other-sdks`"),
    "ephor": (OURS, {"MIXED_SHARED_WITH": "ephor"}, "Ephor, `shared-with = ephor`"),
}
running = []


class Member:
    """A host, and the proxy between it and its storage account."""

    def __init__(self, kind, partitions):
        self.kind, self.partitions = kind, partitions
        self.counter = Counter(os.environ["EPHOR_STORAGE"])
        command, more, _ = KINDS[kind]
        name = f"calls-{kind}-{partitions}"
        environment = {**os.environ, **more, "EPHOR_STORAGE": self.counter.connection, "MIXED_HUB": name,
                       "MIXED_CONTAINER": name, "MIXED_CHECKPOINT_EVERY": "1", "MIXED_INTERVAL": str(INTERVAL)}
        self.owned, self.errors = set(), []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        running.append(self.process)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            told = json.loads(line)
            if "begun" in told:
                self.owned.add(told["begun"])
            elif "ended" in told:
                self.owned.discard(told["ended"])
            elif "error" in told:
                self.errors.append(told["error"])

    def count(self):
        """The requests of the counted intervals. They begin where all partitions have been its own for an interval, between
        the renewals of two."""
        self.wait(lambda: len(self.owned) == self.partitions)
        time.sleep(INTERVAL)
        self.wait(lambda: time.monotonic() - self.counter.last_write() > QUIET)
        start = time.monotonic()
        time.sleep(INTERVAL * INTERVALS)
        self.requests = self.counter.between(start, start + INTERVAL * INTERVALS)
        # A call that failed and was made again is counted, and no matter.
        assert len(self.owned) == self.partitions, f"{self.kind}: {self.errors[-2:]}"

    def wait(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"{self.kind} has ended: {self.errors[-2:]}"
            assert time.monotonic() < end, f"{self.kind}: {len(self.owned)} of {self.partitions} after {PATIENCE} s, {self.errors[-2:]}"
            time.sleep(0.1)


def sort_of(request):
    method, path = request
    return "list" if "comp=list" in path else "write" if method == "PUT" else method.lower()


def measure(partitions):
    members = [Member(kind, partitions) for kind in KINDS]
    failed = []

    def count(member):
        try:
            member.count()
        except Exception as error:  # told by the one who waits for all
            failed.append(error)
    threads = [threading.Thread(target=count, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for member in members:
        member.process.kill()
    if failed:
        raise failed[0]
    return {member.kind: member.requests for member in members}


def judge(partitions, requests):
    """What is promised: not more than the other SDK needs and two for the fleet's own records; fewer where no other SDK shares the group."""
    each = {kind: len(made) / INTERVALS for kind, made in requests.items()}
    assert each["other-sdks"] <= partitions + 2, f"{each['other-sdks']:.1f} an interval, of {partitions} partitions"
    assert each["ephor"] < each["other-sdks"], f"{each['ephor']:.1f} an interval among hosts of Ephor, {each['other-sdks']:.1f} beside other SDKs"
    assert each["ephor"] < each["python"], f"{each['ephor']:.1f} an interval among hosts of Ephor, Python {each['python']:.1f}"


def rows(partitions, requests):
    for kind, (_, _, title) in KINDS.items():
        made = requests[kind]
        sorts = collections.Counter(map(sort_of, made))
        what = ", ".join(f"{count} {sort}" for sort, count in sorted(sorts.items(), key=lambda pair: -pair[1]))
        ratio = len(made) / len(requests["python"])
        yield (f"| {partitions} | {title} | {len(made) * 60 / (INTERVAL * INTERVALS):.0f} ({what}) | "
               f"{len(made) / INTERVALS:.1f} | {ratio:.2f} |")


table = [f"| partitions | host | calls in a minute | calls in {INTERVAL} s | beside Python |", "|---|---|---|---|---|"]
try:
    for size in SIZES:
        begin, result, text = time.monotonic(), "ok", ""
        try:
            counted = measure(size)
            table += rows(size, counted)
            judge(size, counted)
            text = ", ".join(f"{kind}: {len(made)}" for kind, made in counted.items())
        except Exception as error:
            result, text = "failed", " ".join(f"{type(error).__name__}: {error}".split())[:600]
        print(f"{size} partitions: no more calls than promised", result, text, f"{time.monotonic() - begin:.1f}", sep="\t", flush=True)
finally:
    for process in running:
        process.kill()
print(*table, sep="\n", flush=True)
with open(os.path.join(os.environ["EPHOR_INSTALLED"], "table.md"), "w") as file:
    print(*table, sep="\n", file=file)
