"""Runs the live tests of the JavaScript SDK: sdk/eventhub/event-hubs/test of Azure/azure-sdk-for-js.

They are run with the published package, of which the checkout's sources are only a little newer. Specs that make no client
are unit tests, and are not run.
"""
import json
import os
import re
import subprocess

from clients import TARGET, install_by_npm
from outcomes import Result, known

SDK = "sdk/eventhub/event-hubs"
HOST = "ephor-live.servicebus.windows.net"
KEY_NAME = "RootManageSharedAccessKey"
PARTITIONS = 4  # as many as their own resources have
TEST_SECONDS = 180
AT_ONCE = 4  # specs, each in a process of its own
MAX_TEXT = 2000  # characters of uncaught exceptions


def connection_string(server):
    with open(server.key_file) as file:
        return f"Endpoint=sb://{HOST}/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={file.read().strip()}"


class JavaScriptSuite:
    needs_storage = False
    hosts = (HOST,)
    groups = ()

    def __init__(self, name, checkout, folder):
        self.name, self.folder = name, folder
        self.sdk = os.path.realpath(os.path.join(checkout, SDK))
        self.results = os.path.join(folder, "results.json")

    @staticmethod
    def names(checkout):
        return ["javascript"] if os.path.isdir(os.path.join(checkout, SDK, "test")) else []

    def install(self):
        install_by_npm("live/javascript")
        self.packages = os.path.join(TARGET, "live/javascript")

    def collect(self, keys):
        """Finds the tests without running them. A spec that is listed as a whole is left out as a whole."""
        self.keys = keys
        specs = sorted(self.specs())
        self.left_out = [spec for spec in specs if spec in known(self.name)]
        self.chosen = [spec for spec in specs if spec not in self.left_out]
        found = os.path.join(self.folder, "tests.json")
        with open(os.path.join(self.folder, "collect.out"), "w") as out:
            if self.start(["list", f"--json={found}"], {}, out).wait():
                raise SystemExit(f"{self.name}: vitest cannot collect the tests; see {out.name}")
        with open(found) as file:
            tests = [f"{self.relative(test['file'])} > {test['name']}" for test in json.load(file)]
        return [*(test for test in tests if self.wanted(test)), *self.left_out]

    def specs(self):
        top = os.path.join(self.sdk, "test")
        for folder in ("internal", "internal/node", "public", "public/node"):
            for name in os.listdir(os.path.join(top, folder)):
                path = os.path.join(top, folder, name)
                if name.endswith(".spec.ts"):
                    with open(path) as file:
                        if re.search(r"utils/(clients|vars)\.js", file.read()):
                            yield os.path.relpath(path, top)

    def relative(self, path):
        return os.path.relpath(os.path.realpath(path), os.path.join(self.sdk, "test"))

    def wanted(self, test):
        return not self.keys or any(key in test for key in self.keys)

    def hubs(self, _tests):
        return tuple(f"{number}:{PARTITIONS}" for number in range(len(self.chosen)))

    def used_partitions(self):
        return ()

    def play(self, server, _storage, out):
        """Starts the tests; the results are in a file when the process has ended."""
        names = ["--testNamePattern", "|".join(map(re.escape, self.keys))] if self.keys else []
        return self.start(["run", "--reporter=default", "--reporter=json", f"--outputFile.json={self.results}", *names],
                          {"EPHOR_LIVE_ADDRESS": server.tls_address, "EPHOR_LIVE_CONNECTION": connection_string(server),
                           "NODE_EXTRA_CA_CERTS": server.certificate}, out)

    def start(self, options, environment, out):
        specs = os.path.join(self.folder, "specs.json")
        with open(specs, "w") as file:
            json.dump(self.chosen, file)
        environment = {**os.environ, "EPHOR_LIVE_SDK": self.sdk, "EPHOR_LIVE_SPECS": specs, "EPHOR_LIVE_HOST": HOST,
                       "EPHOR_LIVE_TEST_MS": str(TEST_SECONDS * 1000), "EPHOR_LIVE_AT_ONCE": str(AT_ONCE), **environment}
        command = ["node", os.path.join(self.packages, "node_modules/vitest/vitest.mjs"), *options,
                   "--config", os.path.join(self.packages, "vitest.config.js")]
        return subprocess.Popen(command, cwd=self.packages, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def read_results(self):
        results = [Result(spec, "skipped") for spec in self.left_out]
        if not os.path.exists(self.results):
            return results
        with open(self.results) as file:
            specs = json.load(file)["testResults"]
        for spec in specs:
            for one in spec["assertionResults"]:
                test = " > ".join([self.relative(spec["name"]), *one["ancestorTitles"], one["title"]])
                outcome = one["status"] if one["status"] in ("passed", "failed") else "skipped"
                if self.wanted(test):
                    results.append(Result(test, outcome, "\n".join(one["failureMessages"]), (one.get("duration") or 0) / 1000))
        return [*results, *self.uncaught()]

    def uncaught(self):
        """Exceptions that no test caught, which would have ended a user's process; vitest only prints them."""
        with open(os.path.join(self.folder, "tests.out")) as file:
            _, found, text = file.read().partition("Unhandled Errors")
        if found:
            yield Result("no exception is uncaught", "failed", re.sub(r"\x1b\[[0-9;]*m", "", text)[:MAX_TEXT])
