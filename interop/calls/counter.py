"""A proxy in front of a storage account that notes each request: when it came, its method, and what it was about."""
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
        """Requests of one connection, one after the other; answers go back as they come."""
        with client, socket.create_connection(self.account) as server:
            threading.Thread(target=pass_on, args=(server, client), daemon=True).start()
            try:
                rest = b""
                while True:
                    head, rest = self.read_head(client, rest)
                    if head is None:
                        return
                    size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                    body = int(size.group(1)) if size else 0
                    while len(rest) < body:
                        part = client.recv(65536)
                        if not part:
                            return
                        rest += part
                    server.sendall(head + rest[:body])
                    rest = rest[body:]
            except OSError:
                pass  # one of the two has gone

    def read_head(self, client, have):
        while b"\r\n\r\n" not in have:
            part = client.recv(65536)
            if not part:
                return None, b""
            have += part
        head, rest = have.split(b"\r\n\r\n", 1)
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        self.noted.append((time.monotonic(), method, path))
        return head + b"\r\n\r\n", rest

    def between(self, start, end):
        return [(method, path) for when, method, path in list(self.noted) if start <= when < end]

    def last_write(self):
        return next((when for when, method, _ in reversed(self.noted) if method == "PUT"), 0.0)


def pass_on(server, client):
    try:
        while part := server.recv(65536):
            client.sendall(part)
    except OSError:
        pass  # one of the two has gone
    finally:
        try:
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
