"""The pytest plugin that directs the SDK's live tests to `ephor dev`, and writes a line for each result.

Host names other than the hub's and loopback are not resolved, so no test reaches the internet.
"""
import ipaddress
import json
import os
import socket
import uuid

import certifi
import pytest

import resource_manager

ADDRESS = os.environ["EPHOR_LIVE_ADDRESS"]
RESULTS = os.environ["EPHOR_LIVE_RESULTS"]
HUBS = os.environ["EPHOR_LIVE_HUBS"]  # what the names of the prepared hubs begin with
MAX_TEXT = 2000  # characters of a failure

resource_manager.install()
certifi.where = lambda: os.environ["EPHOR_LIVE_CERTIFICATE"]
resolve = socket.getaddrinfo


def resolve_only_loopback(host, *arguments, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if name == resource_manager.HOST:
        return resolve(ADDRESS, *arguments, **options)
    try:
        known = name in (None, "localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        known = False
    if not known:
        raise socket.gaierror(socket.EAI_NONAME, f"{name!r} is not resolved: the live tests stay on this machine")
    return resolve(host, *arguments, **options)


socket.getaddrinfo = resolve_only_loopback


@pytest.hookimpl(trylast=True)  # after -k has chosen
def pytest_collection_modifyitems(config, items):
    """Numbers the tests: each has the hub of its number. All processes collect in the same order."""
    items.sort(key=lambda item: item.nodeid)
    for number, item in enumerate(items):
        item.ephor_hub = f"{HUBS}-{number}"
    if config.option.collectonly:
        with open(RESULTS, "w") as file:
            json.dump([item.nodeid for item in items], file)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    resource_manager.current_hub = item.ephor_hub


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Gives the tests a checkpoint store in Azurite, whose address and key the fixture of conftest.py cannot take."""
    if fixturedef.argname not in ("checkpoint_store", "checkpoint_store_aio"):
        return None
    if fixturedef.argname == "checkpoint_store":
        from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
    else:
        from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore
    store = BlobCheckpointStore.from_connection_string(os.environ["EPHOR_STORAGE"], f"live{uuid.uuid4()}")
    fixturedef.cached_result = (store, fixturedef.cache_key(request), None)
    return store


class Outcomes:
    """One line of JSON for each test that has ended, written by the process that hands the tests out."""

    def __init__(self):
        self.reports = {}

    def pytest_runtest_logreport(self, report):
        self.reports.setdefault(report.nodeid, []).append(report)
        if report.when == "teardown":
            self.write(report.nodeid)

    def pytest_sessionfinish(self):
        for test in list(self.reports):  # those whose process ended while they ran
            self.write(test)

    def write(self, test):
        reports = self.reports.pop(test)
        bad = [report for report in reports if report.failed]
        skipped = [report for report in reports if report.skipped]
        outcome, text = ("failed", bad[0].longreprtext) if bad else ("passed", "")
        if skipped and not bad:
            reason = skipped[0].longrepr
            outcome, text = "skipped", reason[2] if isinstance(reason, tuple) else str(reason)
        line = {"test": test, "outcome": outcome, "text": text[-MAX_TEXT:],
                "seconds": sum(report.duration for report in reports)}
        with open(RESULTS, "a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config):
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Outcomes())
