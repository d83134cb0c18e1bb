"""Runs `ephor dev` with its output in files: starts it, kills it, and starts it again on the same data and
ports."""
import os
import random
import socket
import subprocess

from clients import CLIENTS, ROOT

EPHOR = os.path.join(ROOT, "target/debug/ephor")
OUR_HOST = os.path.join(ROOT, "target/debug/examples/mixed_host")  # a host of ours, as a program
PATIENCE = 10  # seconds for one of our own commands


def address_with(port):
    """A loopback address on which nobody listens on this port; any port will do on the usual one."""
    while port:
        address = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        with socket.socket() as free:
            if free.connect_ex((address, port)):
                return address
    return "127.0.0.1"


class Server:
    def __init__(self, name, folder, key_file, running, client=None):
        self.name, self.folder, self.key_file, self.running = name, folder, key_file, running
        self.client = client or CLIENTS[name]
        self.port, self.tls_port = self.client.port, self.client.tls_port
        self.address, self.tls_address = address_with(self.port), address_with(self.tls_port)
        self.start()

    def start(self):
        command = [EPHOR, "dev", "--data", os.path.join(self.folder, "data"), "--key-file", self.key_file,
                   "--amqp", f"{self.address}:{self.port}", "--amqps", f"{self.tls_address}:{self.tls_port}",
                   "--http", "127.0.0.1:0"]
        for hub in self.client.hubs:
            command += ["--hub", f"{self.name}-{hub}"]
        for group in self.client.groups:
            command += ["--group", f"{self.name}-{group}"]
        for host in self.client.hosts:
            command += ["--name", host]
        self.log = open(os.path.join(self.folder, "server.log"), "ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, "RUST_LOG": self.client.log})
        self.running.append(self.process)
        with open(os.path.join(self.folder, "server.out"), "a") as out:
            for line in self.process.stdout:
                out.write(line)
                self.read(line.strip())
                if line.startswith("ready"):
                    return
        raise SystemExit(f"ephor dev did not start: {self.process.wait()}; see {self.log.name}")

    def read(self, line):
        """One line of the banner. The string to paste has no key in it, since the key is our own."""
        name, _, value = line.partition(" ")
        value = value.strip()
        if line.startswith("Endpoint=") and "UseDevelopmentEmulator" in line:
            with open(self.key_file) as file:
                self.connection = line.replace("SharedAccessKey=hidden", "SharedAccessKey=" + file.read().strip())
        elif name in ("amqp", "amqps"):
            setattr(self, "port" if name == "amqp" else "tls_port", int(value.rsplit(":", 1)[1]))
        elif name == "trust":
            self.certificate = value.split(",")[0]
        elif name == "health":
            self.http_port = int(value.split(":")[2].split("/")[0])

    def environment(self):
        """What a client has to know."""
        connection = self.connection.replace(":5672", "") if self.client.port else self.connection
        return {"EPHOR_CONNECTION": connection, "EPHOR_TLS": f"{self.tls_address}:{self.tls_port}",
                "EPHOR_CA": self.certificate, self.client.trust: self.certificate}

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def restart(self):
        self.kill()
        self.start()

    def ask_over_http(self, key):
        """Keeps every answer, also to those who write the key into their request."""
        requests = [b"GET /health HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /nothing HTTP/1.1\r\n\r\n",
                    f"GET /{key}?key={key} HTTP/1.1\r\nauthorization: {key}\r\n\r\n".encode(),
                    f"POST /health HTTP/1.1\r\ncontent-length: {len(key)}\r\n\r\n{key}".encode(),
                    b"AMQP\x00\x01\x00\x00\r\n\r\n", f"{key}\r\n\r\n".encode()]
        with open(os.path.join(self.folder, "http.out"), "wb") as out:
            for request in requests:
                with socket.create_connection(("127.0.0.1", self.http_port), PATIENCE) as connection:
                    connection.sendall(request)
                    while answer := connection.recv(4096):
                        out.write(answer)

    def use_our_commands(self, key):
        """`ephor send` and `ephor tail`, as they should be and with everything that can be wrong."""
        hub = f"{self.name}-{self.client.hubs[0].partition(':')[0]}"
        host = "localhost" if self.tls_address == "127.0.0.1" else self.tls_address
        secure = f"Endpoint=sb://{host}:{self.tls_port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"
        trust = ["--trust", self.certificate]
        plays = [
            (0, ["send", hub, "hello"], self.connection),
            (0, ["send", hub, "hello", *trust], secure),
            (0, ["tail", hub, "--from-beginning", "-n", "1"], self.connection),
            (0, ["tail", hub, "--from-beginning", "-n", "1", *trust], secure),
            (1, ["send", hub, "not trusted"], secure),
            (1, ["send", "nowhere", "hello"], self.connection),
            (1, ["tail", hub, "--group", "nobody"], self.connection),
            (1, ["send", hub, "hello"], self.connection.replace("RootManage", "No")),
            (1, ["send", hub, "hello"], self.connection.replace("SharedAccessKeyName=", "SharedAccesKeyName=")),
            (1, ["send", hub, "hello"], self.connection.replace("SharedAccessKey=", "SharedAccessSignature=")),
            (1, ["send", hub, "hello"], key),
            (1, ["send", hub, "hello"], f"Endpoint={key};SharedAccessKeyName=x;SharedAccessKey={key}"),
        ]
        with open(os.path.join(self.folder, "commands.out"), "ab") as out:
            for expected, arguments, connection in plays:
                environment = {**os.environ, "RUST_LOG": "trace", "EPHOR_CONNECTION": connection}
                out.write(f"== ephor {' '.join(arguments)}\n".encode())
                out.flush()
                done = subprocess.run([EPHOR, *arguments], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                      env=environment, timeout=PATIENCE, check=False)
                if done.returncode != expected:
                    raise SystemExit(f"ephor {' '.join(arguments)} ended with {done.returncode}; see {out.name}")
