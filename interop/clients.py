"""Lists the clients of the interoperability tests, and installs each by its lock file into a folder of its
own."""
import dataclasses
import filecmp
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = os.path.join(ROOT, "target", "interop")
INSTALL_AZURITE = os.path.join(ROOT, "demo/homes/azurite/install")


def install_by_pip(name, folder):
    """The command that starts its scenario, if it has one, with the packages that it needs."""
    wanted, have = os.path.join(HERE, name, "requirements.txt"), os.path.join(folder, "requirements.txt")
    if not (os.path.exists(have) and filecmp.cmp(wanted, have, shallow=False)):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [os.path.join(folder, "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "-r", wanted], check=True)
        shutil.copy(wanted, have)
    return [os.path.join(folder, "bin/python"), os.path.join(HERE, name, "scenario.py")]


def install_by_npm(name):
    source, folder = os.path.join(HERE, name), os.path.join(TARGET, name)
    wanted, have = os.path.join(source, "package-lock.json"), os.path.join(folder, "installed.json")
    if not (os.path.exists(have) and filecmp.cmp(wanted, have, shallow=False)):
        os.makedirs(folder, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(source, file), folder)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel", "error"], cwd=folder, check=True)
        shutil.copy(wanted, have)
    for file in os.listdir(source):  # beside node_modules, where imports are looked up
        if file.endswith(".js"):
            shutil.copy(os.path.join(source, file), folder)
    return ["node", os.path.join(folder, "scenario.js")]


def install_by_cargo(name):
    folder = os.path.join(TARGET, "cargo")  # shared: what two clients have in common is built once
    manifest = os.path.join(HERE, name, "Cargo.toml")
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", folder],
                   check=True)
    return [os.path.join(folder, f"debug/ephor-interop-{name}")]


def install_eph():
    subprocess.run([INSTALL_AZURITE], check=True)
    return install_by_npm("eph-js")


def install_mixed():
    subprocess.run([INSTALL_AZURITE], check=True)
    install_by_npm("mixed")
    return install_by_pip("mixed", os.path.join(TARGET, "mixed-python"))


def install_calls():
    """With the Python host of the mixed fleet."""
    python = install_mixed()[0]
    os.makedirs(os.path.join(TARGET, "calls"), exist_ok=True)
    return [python, os.path.join(HERE, "calls", "scenario.py")]


HUBS = ("sending:4", "positions:2", "values:1", "ownership:1", "refusals:4", "tls:1", "restart:2")


@dataclasses.dataclass
class Client:
    title: str
    install: callable  # gives the command to start it
    hubs: tuple = HUBS
    groups: tuple = ("ownership/six",)
    operations: str = "operations.txt"  # and so the table that it is in
    storage: bool = False  # whether it needs an Azurite
    trust: str = "EPHOR_CA"  # the variable that names the certificate to trust
    alone: bool = False  # whether it measures, and is played only when it is asked for
    port: int = 0  # any, unless the client cannot be told one
    tls_port: int = 0  # the same with TLS
    hosts: tuple = ()  # names by which it calls the hub, for the certificate
    log: str = "trace"  # the level at which the hub logs


CLIENTS = {
    "python": Client("Python azure-eventhub 5.15.1", lambda: install_by_pip("python", os.path.join(TARGET, "python"))),
    "javascript": Client("JavaScript @azure/event-hubs 6.0.4", lambda: install_by_npm("javascript"),
                         trust="NODE_EXTRA_CA_CERTS"),
    "rust-sdk": Client("Rust azure_messaging_eventhubs 0.16.0", lambda: install_by_cargo("rust-sdk"),
                       (*HUBS, "processors:4"), trust="SSL_CERT_FILE"),
    "fe2o3": Client("Rust fe2o3-amqp 0.18.4, a generic AMQP client", lambda: install_by_cargo("fe2o3")),
    "eph-js": Client("JavaScript @azure/event-processor-host 2.1.1", install_eph, ("leases:8",), (), "processors.txt",
                     storage=True, trust="NODE_EXTRA_CA_CERTS", tls_port=5671),
    # Python names the port in its blobs, JavaScript does not: without one they meet.
    "mixed": Client("Python, JavaScript and Ephor in one group", install_mixed, ("fleet:8",), (), "mixed.txt", storage=True,
                    port=5672),
    "calls": Client("a host at rest beside the Python SDK's", install_calls,
                    tuple(f"{kind}-{size}:{size}" for kind in ("python", "sdk", "none") for size in (16, 256)), (), "calls.txt",
                    storage=True, alone=True),
}
