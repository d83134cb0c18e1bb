"""Interoperability tests of operations that the hub refuses, and the error that the client gets."""
import base64
import hashlib
import hmac
import re
import time
import urllib.parse

from azure.eventhub import EventData

from client import CONNECTION, Receiver, consumer, is_error, producer, raises

HUB = "python-refusals"
FIELDS = dict(part.split("=", 1) for part in CONNECTION.strip(";").split(";"))


def send(hub=HUB, connection=CONNECTION, partition=None):
    with producer(hub, connection) as client:
        client.send_event(EventData("refused"), partition_id=partition)


def describe(hub=HUB, connection=CONNECTION):
    with consumer(hub, connection=connection) as client:
        client.get_eventhub_properties()


def receive(*words, kind, **options):
    with Receiver(**{"hub": HUB, "position": "-1", **options}) as receiver:
        is_error(receiver.error(), kind, *words)


def at_links(kind, *words, hub=HUB, partition="0"):
    """The sender and the receiver alone, which the public ways open only after asking for the partitions."""
    with producer(hub) as client:
        link = client._create_producer(partition_id=partition)
        raises(kind, *words, act=lambda: link.send(EventData("refused"), timeout=5))
    with consumer(hub) as client:
        link = client._create_consumer("$Default", partition, "-1", lambda event: None)

        def open_link():
            for _ in range(100):
                link.receive()
        raises(kind, *words, act=open_link)


def everything_refused(connection):
    raises("AuthenticationError", act=lambda: send(connection=connection))
    raises("AuthenticationError", act=lambda: describe(connection=connection))
    receive(kind="AuthenticationError", connection=connection)


def bad_key():
    everything_refused(re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=bm90IHRoZSBrZXk=", CONNECTION))
    everything_refused(re.sub("SharedAccessKeyName=[^;]*", "SharedAccessKeyName=nobody", CONNECTION))


def signature(expiry):
    resource = urllib.parse.quote_plus(FIELDS["Endpoint"].rstrip("/") + "/" + HUB)
    text = f"{resource}\n{expiry}".encode()
    digest = hmac.new(FIELDS["SharedAccessKey"].encode(), text, hashlib.sha256).digest()
    sign = urllib.parse.quote_plus(base64.b64encode(digest))
    token = f"SharedAccessSignature sr={resource}&sig={sign}&se={expiry}&skn={FIELDS['SharedAccessKeyName']}"
    return f"Endpoint={FIELDS['Endpoint']};SharedAccessSignature={token};UseDevelopmentEmulator=true"


def expired():
    send(connection=signature(int(time.time()) + 600))
    everything_refused(signature(int(time.time()) - 600))


def runs_out():
    """Whoever sees it first, this client or the hub: the receiver ends as one that may not receive."""
    with Receiver(HUB, "-1", "3", connection=signature(int(time.time()) + 8)) as receiver:
        receiver.attached()
        is_error(receiver.error(), "AuthenticationError")


def unknown_hub():
    # The token is refused, and of that this client shows neither the status nor the text.
    words = ("CBS Token authentication failed",)
    at_links("AuthenticationError", *words, hub="nowhere")
    receive(*words, kind="AuthenticationError", hub="nowhere")
    raises("AuthenticationError", *words, act=lambda: send(hub="nowhere"))
    raises("AuthenticationError", *words, act=lambda: describe(hub="nowhere"))


def unknown_group():
    receive("The messaging entity", "could not be found", kind="ConnectionLostError", group="nobody")


def unknown_partition():
    words = ("The specified partition is invalid", "between 0 and 3")
    at_links("ConnectError", *words, partition="4")
    # The public ways ask for the partitions first, and say so themselves.
    receive("Wrong partition id:4", kind="ValueError", partition="4")
    raises("ConnectError", "Invalid partition 4", act=lambda: send(partition="4"))
    with producer(HUB) as client:
        raises("ConnectError", act=lambda: client.get_partition_properties("4"))



OPERATIONS = {
    "a bad key": bad_key,
    "an expired token": expired,
    "a token that runs out while receiving": runs_out,
    "an unknown hub": unknown_hub,
    "an unknown group": unknown_group,
    "an unknown partition": unknown_partition,
}
