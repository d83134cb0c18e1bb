"""A proxy in front of a storage account that records the time, method and target of each request."""
import re
import socket
import threading
import time


class Counter:
    def __init__(self, connection):
        """In front of the account in this connection string; `connection` is then that of the proxy."""
        host, port = re.search(r"BlobEndpoint=http://([^:]+):(\d+)", connection).groups()
        self.account = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        here = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.connection = connection.replace(f"{host}:{port}", here)
        self.noted = []  # time, method, path with query
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        """One request, and the connection ends: Azurite closes idle ones after 5 s, and a call that comes at that moment would
        be made again, and counted twice."""
        try:
            with client, socket.create_connection(self.account) as server:
                head, body = self.read(client)
                server.sendall(head + body)
                while part := server.recv(65536):
                    client.sendall(part)
        except OSError:
            pass  # one of the two has gone

    def read(self, client):
        """The request, with the wish to close added to it."""
        have = b""
        while b"\r\n\r\n" not in have:
            have += some(client)
        head, body = have.split(b"\r\n\r\n", 1)
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        self.noted.append((time.monotonic(), method, path))
        size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        while len(body) < (int(size.group(1)) if size else 0):
            body += some(client)
        return re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head) + b"\r\nConnection: close\r\n\r\n", body

    def between(self, start, end):
        return [(method, path) for when, method, path in list(self.noted) if start <= when < end]

    def last_write(self):
        return next((when for when, method, _ in reversed(self.noted) if method == "PUT"), 0.0)


def some(client):
    part = client.recv(65536)
    if not part:
        raise ConnectionError("it has gone in the middle of a request")
    return part
