"""Runs Azurite, the emulator of Azure Blob Storage, with its data in a folder of the run."""
import os
import socket
import subprocess
import time

from clients import ROOT

PROGRAM = os.path.join(ROOT, "target/azurite/node_modules/azurite/dist/src/blob/main.js")
ACCOUNT = "devstoreaccount1"
# The key that every Azurite has. It is public.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE = 60  # seconds until it answers


class Storage:
    def __init__(self, folder, running):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = open(os.path.join(folder, "azurite.log"), "ab")
        command = ["node", PROGRAM, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1",
                   "--blobPort", str(self.port), "--location", os.path.join(folder, "azurite")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        running.append(self.process)
        self.wait_until_it_answers()

    def wait_until_it_answers(self):
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"Azurite does not answer; see {self.log.name}")

    def environment(self):
        """What a client has to know."""
        endpoint = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        connection = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        return {"EPHOR_STORAGE": connection}

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
