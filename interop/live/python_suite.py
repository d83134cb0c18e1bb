"""Runs the live tests of the Python SDK: sdk/eventhub/azure-eventhub/tests of
Azure/azure-sdk-for-python."""
import json
import os
import subprocess

from clients import TARGET, install_by_pip
from outcomes import Result

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python")
TESTS = "sdk/eventhub/azure-eventhub/tests"
PARTS = {  # the folders of tests that need a hub; the others are unit tests
    "python sync": ("livetest/synctests", "pyamqp_tests/synctests"),
    "python async": ("livetest/asynctests", "pyamqp_tests/asynctests"),
}
HOST = "ephor-live.servicebus.windows.net"  # tests expect more of a name of the public cloud
TEST_SECONDS = 420  # the longest test sleeps for 250 s
AT_ONCE = 8  # tests, each in a process of its own; nearly all of their time they sleep


class PythonSuite:
    needs_storage = True
    hosts = (HOST,)
    groups = ()

    def __init__(self, name, checkout, folder):
        self.name, self.folder = name, folder
        self.tests = os.path.join(checkout, TESTS)
        self.results = os.path.join(folder, "results.jsonl")

    @staticmethod
    def names(checkout):
        return list(PARTS) if os.path.isdir(os.path.join(checkout, TESTS)) else []

    def install(self):
        self.python = install_by_pip("live/python", os.path.join(TARGET, "live-python"))[0]

    def collect(self, keys):
        """Finds the tests without running them."""
        self.keys = keys
        found = os.path.join(self.folder, "tests.json")
        key_file = os.path.join(self.folder, "no-key")
        open(key_file, "w").close()
        environment = {"EPHOR_LIVE_ADDRESS": "", "EPHOR_LIVE_CERTIFICATE": "", "EPHOR_LIVE_KEY_FILE": key_file,
                       "EPHOR_LIVE_RESULTS": found}
        with open(os.path.join(self.folder, "collect.out"), "w") as out:
            process = self.start(["--collect-only", "-q"], environment, out)
            if process.wait():
                raise SystemExit(f"{self.name}: pytest cannot collect the tests; see {out.name}")
        with open(found) as file:
            return json.load(file)

    def hubs(self, tests):
        return tuple(f"{number}:2" for number in range(len(tests)))

    def used_partitions(self):
        return ()

    def play(self, server, storage, out):
        """Starts the tests; the results are in a file when the process has ended."""
        environment = {**storage.environment(), "EPHOR_LIVE_ADDRESS": server.tls_address,
                       "EPHOR_LIVE_CERTIFICATE": server.certificate, "EPHOR_LIVE_KEY_FILE": server.key_file,
                       "EPHOR_LIVE_RESULTS": self.results}
        return self.start(["-n", str(AT_ONCE), "--dist", "worksteal", f"--timeout={TEST_SECONDS}", "-q"], environment, out)

    def start(self, options, environment, out):
        environment = {
            **os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": HERE, "EPHOR_LIVE_HOST": HOST, "EPHOR_LIVE_HUBS": "live",
            # What conftest.py reads before it asks the resource manager.
            "AZURE_SUBSCRIPTION_ID": "none", "EVENTHUB_RESOURCE_GROUP": "none", "EVENT_HUB_NAMESPACE": HOST.split(".")[0],
            "EVENT_HUB_ENDPOINT_SUFFIX": "." + HOST.split(".", 1)[1], "AZURE_STORAGE_ACCOUNT": "none",
            "RECORD_AMQP_PROXY": "false", "USE_FAULTINJECTOR": "false", **environment}
        command = [self.python, "-m", "pytest", "-c", os.path.join(HERE, "pytest.ini"), "--rootdir", self.tests,
                   "--confcutdir", self.tests, "-p", "ephor_live", "-p", "no:cacheprovider", *options]
        if self.keys:
            command += ["-k", " or ".join(self.keys)]
        command += [os.path.join(self.tests, part) for part in PARTS[self.name]
                    if os.path.isdir(os.path.join(self.tests, part))]
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def read_results(self):
        if not os.path.exists(self.results):
            return []
        with open(self.results) as file:
            return [Result(**json.loads(line)) for line in file]
