"""The clients: what each is called, and how it is installed by its lock file into a folder of its own."""
import filecmp
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(os.path.dirname(HERE), "target", "interop")


def install_python():
    folder = os.path.join(TARGET, "python")
    wanted, have = os.path.join(HERE, "python/requirements.txt"), os.path.join(folder, "requirements.txt")
    if not (os.path.exists(have) and filecmp.cmp(wanted, have, shallow=False)):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [os.path.join(folder, "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "-r", wanted], check=True)
        shutil.copy(wanted, have)
    return [os.path.join(folder, "bin/python"), os.path.join(HERE, "python/scenario.py")]


def install_javascript():
    folder = os.path.join(TARGET, "javascript")
    wanted, have = os.path.join(HERE, "javascript/package-lock.json"), os.path.join(folder, "installed.json")
    if not (os.path.exists(have) and filecmp.cmp(wanted, have, shallow=False)):
        os.makedirs(folder, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(HERE, "javascript", name), folder)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel", "error"], cwd=folder, check=True)
        shutil.copy(wanted, have)
    for name in os.listdir(os.path.join(HERE, "javascript")):  # beside node_modules, where imports are looked up
        if name.endswith(".js"):
            shutil.copy(os.path.join(HERE, "javascript", name), folder)
    return ["node", os.path.join(folder, "scenario.js")]


def install_fe2o3():
    folder = os.path.join(TARGET, "fe2o3")
    manifest = os.path.join(HERE, "fe2o3/Cargo.toml")
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", folder],
                   check=True)
    return [os.path.join(folder, "debug/ephor-interop-fe2o3")]


CLIENTS = {
    "python": ("Python azure-eventhub 5.15.1", install_python),
    "javascript": ("JavaScript @azure/event-hubs 6.0.4", install_javascript),
    "fe2o3": ("Rust fe2o3-amqp 0.18.4, a generic AMQP client", install_fe2o3),
}
