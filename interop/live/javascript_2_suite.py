"""Runs the live tests of the old JavaScript SDK, @azure/event-hubs 2.x: client/tests of
Azure/azure-event-hubs-node.

They are run with the published package, which is newer than they are.
"""
import json
import os
import re
import subprocess

from clients import TARGET, install_by_npm
from javascript_suite import HOST, connection_string
from outcomes import Result, known

TESTS = "client/tests"
PARTITIONS = 4
TEST_SECONDS = 65  # as their own script gives them
AT_ONCE = 4  # specs, each in a process of its own


class JavaScript2Suite:
    needs_storage = False
    hosts = (HOST,)
    groups = ()

    def __init__(self, name, checkout, folder):
        self.name, self.folder = name, folder
        self.tests = os.path.join(os.path.realpath(os.path.join(checkout, TESTS)), "")
        self.results = os.path.join(folder, "results.json")

    @staticmethod
    def names(checkout):
        return ["javascript 2"] if os.path.exists(os.path.join(checkout, TESTS, "hubruntime.spec.ts")) else []

    def install(self):
        install_by_npm("live/javascript-2")
        self.packages = os.path.join(TARGET, "live/javascript-2")

    def collect(self, keys):
        """Finds the tests without running them. A spec that is listed as a whole is left out as a whole."""
        self.keys = keys
        specs = sorted(name for name in os.listdir(self.tests) if name.endswith(".spec.ts"))
        self.left_out = [spec for spec in specs if spec in known(self.name)]
        self.chosen = [spec for spec in specs if spec not in self.left_out]
        found = os.path.join(self.folder, "tests.json")
        with open(os.path.join(self.folder, "collect.out"), "w") as out:
            if self.start(["--dry-run"], {"EVENTHUB_CONNECTION_STRING": "Endpoint=sb://none/;SharedAccessKeyName=none;SharedAccessKey=none"}, found, out).wait():
                raise SystemExit(f"{self.name}: mocha cannot collect the tests; see {out.name}")
        return [*(test.test for test in self.read(found)), *self.left_out]

    def hubs(self, _tests):
        return tuple(f"{number}:{PARTITIONS}" for number in range(len(self.chosen)))

    def used_partitions(self):
        """Hub and partition where a test begins after the first event, which has offset 0, without having sent any."""
        return [(f"live-{self.chosen.index(spec)}", 0) for spec in self.chosen if spec == "receiver.spec.ts"] * 2

    def play(self, server, _storage, out):
        """Starts the tests; the results are in a file when the process has ended."""
        environment = {"EPHOR_LIVE_ADDRESS": server.tls_address, "EVENTHUB_CONNECTION_STRING": connection_string(server),
                       "NODE_EXTRA_CA_CERTS": server.certificate}
        return self.start(["--parallel", "--jobs", str(AT_ONCE), "--exit"], environment, self.results, out)

    def start(self, options, environment, results, out):
        environment = {**os.environ, "EPHOR_LIVE_TESTS": self.tests, "EPHOR_LIVE_SPECS": json.dumps(self.chosen),
                       "EPHOR_LIVE_HOST": HOST, **environment}
        names = ["--grep", "|".join(map(re.escape, self.keys))] if self.keys else []
        command = ["node", os.path.join(self.packages, "node_modules/mocha/bin/mocha.js"), *options, *names,
                   "--no-config", "--no-package", "--timeout", str(TEST_SECONDS * 1000),
                   "--require", os.path.join(self.packages, "preload.js"),
                   "--reporter", "json", "--reporter-option", f"output={results}",
                   *(os.path.join(self.tests, spec) for spec in self.chosen)]
        return subprocess.Popen(command, cwd=self.packages, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def read_results(self):
        return [*(Result(spec, "skipped") for spec in self.left_out), *self.read(self.results)]

    def read(self, results):
        if not os.path.exists(results):
            return []
        with open(results) as file:
            report = json.load(file)
        skipped = {one["fullTitle"] for one in report["pending"]}
        for one in report["tests"]:
            error = one["err"].get("stack") or one["err"].get("message")
            outcome = "failed" if one["err"] else "skipped" if one["fullTitle"] in skipped else "passed"
            test = f"{os.path.basename(one['file'])} > {one['fullTitle']}"
            yield Result(test, outcome, error or "", (one.get("duration") or 0) / 1000)
