"""Searches all output and data of a run for the secret key of its server, which must not appear anywhere.

Everything that a run leaves is read: logs at their finest level, what programs print, answers over HTTP, the data.
"""
import base64
import os
import re
import secrets
import urllib.parse

KEY_FILE = "canary.key"  # the only file that may have it


def new_key():
    """As the service makes keys; until it has signs that change when it is encoded for a URL."""
    while True:
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        if "+" in key and "/" in key:
            return key


def forms(key):
    """Every way of writing the key that a careless line could use."""
    raw, decoded = key.encode(), base64.b64decode(key)
    quoted = urllib.parse.quote(key, safe="")
    numbers = lambda data: ", ".join(map(str, data)).encode()
    return {
        "the key": raw,
        "the key without its end": raw.rstrip(b"="),
        "the key in a URL": quoted.encode(),
        "the key in a URL, lower case": re.sub("%..", lambda m: m.group().lower(), quoted).encode(),
        "the key in JSON": key.replace("/", "\\/").encode(),
        "the key in hexadecimal": raw.hex().encode(),
        "the key in base64": base64.b64encode(raw).rstrip(b"="),
        "the key as numbers": numbers(raw),
        "the bytes of the key": decoded,
        "the bytes of the key in hexadecimal": decoded.hex().encode(),
        "the bytes of the key as numbers": numbers(decoded),
        "the bytes of the key in a URL alphabet": base64.urlsafe_b64encode(decoded).rstrip(b"="),
    }


# What a token looks like, whoever made it; the texts that explain tokens have no signature in them.
TOKENS = {
    "a signature": re.compile(rb"sig=[0-9A-Za-z%+/]{30}"),
    "a token": re.compile(rb"SharedAccessSignature sr=[0-9A-Za-z%]{8}"),
    "a private key": re.compile(rb"BEGIN [A-Z ]*PRIVATE KEY"),
}


def found(data, key):
    """What is in these bytes that must not be."""
    places = [name for name, form in forms(key).items() if form in data]
    return places + [name for name, pattern in TOKENS.items() if pattern.search(data)]


def search(folder, key):
    """What was found in which file. The server's own TLS key is in its folder, where only its owner reads it."""
    leaks, files, size = [], 0, 0
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            if name == KEY_FILE or (name.endswith(".key") and os.stat(file).st_mode & 0o077 == 0):
                continue
            with open(file, "rb") as opened:
                data = opened.read()
            files, size = files + 1, size + len(data)
            leaks += [f"{what} in {os.path.relpath(file, folder)}" for what in found(data, key)]
    return leaks, files, size


def test():
    """The search finds each form, and nothing in what is harmless."""
    key = new_key()
    for name, form in forms(key).items():
        assert name in found(b"before " + form + b" after", key), name
    token = b"SharedAccessSignature sr=sb%3a%2f%2flocalhost%2fx&sig=" + b"A" * 43 + b"%3d&se=1&skn=x"
    assert found(token, key) == ["a signature", "a token"]
    harmless = f"SharedAccessKey=hidden; SharedAccessSignature sr=…&sig=…&se=…&skn=…; {new_key()}"
    assert found(harmless.encode(), key) == []
