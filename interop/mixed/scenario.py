"""Tests a fleet of several SDKs that share one consumer group, step by step. Prints one line for each step:
name, `ok` or `failed`, text, seconds. Each step depends on the one before: after a failure the rest is
skipped.
"""
import base64
import datetime
import hashlib
import hmac
import os
import time
import urllib.request

from fleet import CHECKPOINT_EVERY, CONTAINER, KINDS, PARTITIONS, REST, STRATEGIES, Member, Sender, wait

members, gone = [], []


def make_container():
    """Signed by hand: the SDKs of the members have no need of one for it."""
    fields = dict(part.split("=", 1) for part in os.environ["EPHOR_STORAGE"].strip(";").split(";"))
    account, key = fields["AccountName"], base64.b64decode(fields["AccountKey"])
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    version = "2019-07-07"
    text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{now}\nx-ms-version:{version}\n/{account}/{account}/{CONTAINER}\nrestype:container"
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": now, "x-ms-version": version, "Authorization": f"SharedKey {account}:{signature}", "Content-Length": "0"}
    address = f"{fields['BlobEndpoint']}/{CONTAINER}?restype=container"
    urllib.request.urlopen(urllib.request.Request(address, method="PUT", headers=headers)).close()


def owners():
    return ", ".join(f"{member.name}: {' '.join(sorted(member.owned)) or 'nothing'}" for member in members)


def is_even():
    """Every partition with one member, and no member with two more than another."""
    shares = [member.owned.copy() for member in members]
    counts = [len(share) for share in shares]
    return sum(counts) == len(PARTITIONS) == len(set().union(*shares)) and max(counts) - min(counts) <= 1


def comes_to_rest():
    since, last = time.monotonic(), None

    def rests():
        nonlocal since, last
        now = owners()
        if now != last or not is_even():
            since, last = time.monotonic(), now
        return time.monotonic() - since > REST
    wait(lambda: f"an even share at rest; {owners()}", rests)
    return owners()


def all_processed(sender):
    """Each event that was sent was handed to somebody."""
    def missing():
        seen = {partition: set() for partition in PARTITIONS}
        for member in members + gone:
            for partition, numbers in list(member.events.items()):
                seen[partition].update(numbers)
        return sum(len(set(range(sender.sent)) - seen[partition]) for partition in PARTITIONS)
    wait(lambda: f"all events, of which {missing()} did not come", lambda: not missing())


def start(kind, strategy):
    for number in range(KINDS[kind][0]):
        members.append(Member(kind, number + 1, strategy))


def share():
    for kind in KINDS:
        start(kind, STRATEGIES[0])
    return comes_to_rest()


def everybody():
    """Each member is given events."""
    def counts():
        return {member.name: sum(map(len, list(member.events.values()))) for member in members}
    wait(lambda: f"events for everybody: {counts()}", lambda: all(counts().values()))
    return ", ".join(f"{name}: {count}" for name, count in counts().items())


def killed(kind):
    return "; ".join(killed_once(kind, strategy) for strategy in STRATEGIES)


def killed_once(kind, strategy):
    """The others take over from its checkpoints; then it comes back, and gets its share."""
    moved = {}
    for member in [member for member in members if member.kind == kind]:
        for partition in member.kill():
            moved[partition] = max((number for each in members + gone for number in each.events[partition]), default=-1)
        members.remove(member)
        gone.append(member)
    before = {member.name: {partition: len(member.events[partition]) for partition in PARTITIONS} for member in members}
    comes_to_rest()
    for partition, last in moved.items():
        def firsts():
            return [member.events[partition][before[member.name][partition]] for member in members
                    if len(member.events[partition]) > before[member.name][partition]]
        wait(f"somebody to go on with {partition}", firsts)
        first = min(firsts())
        assert first <= last + 1, f"{partition} ended with {last} and went on with {first}"
        assert first % CHECKPOINT_EVERY == 0, f"{partition} went on with {first}, which is behind no checkpoint"
    start(kind, strategy)
    comes_to_rest()
    everybody()
    for member in gone:
        member.errors.clear()
    return f"{len(moved)} partitions went on from its checkpoints; then {owners()}"


def finish():
    sender = senders[0]
    sender.stop()
    all_processed(sender)
    for member in members[:]:
        member.kill()
    disorder = [told for member in members + gone for told in member.disorder]
    assert not disorder, f"out of order: {disorder[:5]}"
    return f"{sender.sent} in each partition"


senders = []
STEPS = {"hosts of all kinds share the partitions, and come to rest": share, "nobody starves": everybody}
for each in KINDS:
    STEPS[f"the {each} hosts are killed: the others go on, and they come back to their share"] = lambda kind=each: killed(kind)
STEPS["every event is processed, and by each owner in order"] = finish

make_container()
senders.append(Sender())
try:
    for name, step in STEPS.items():
        begin, result = time.monotonic(), "ok"
        try:
            text = step() or ""
        except Exception as error:
            result = "failed"
            errors = [told for member in members + gone for told in member.errors[-2:]]
            text = " ".join(f"{type(error).__name__}: {error} {errors}".split())[:600]
        print(name, result, text, f"{time.monotonic() - begin:.1f}", sep="\t", flush=True)
        if result == "failed":
            break
finally:
    for member in members:
        member.process.kill()
