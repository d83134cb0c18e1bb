"""What is refused, and as which error."""
import base64
import hashlib
import hmac
import re
import time
import urllib.parse

from azure.eventhub import EventData

from client import CONNECTION, Receiver, consumer, is_error, producer, raises

HUB = "python-sending"
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


def unknown_hub():
    words = ("The messaging entity", "could not be found")
    receive(*words, kind="ConnectionLostError", hub="nowhere")
    # Before it sends, this client asks for the partitions; of a refusal there it shows the number only.
    raises("ConnectError", "Status code: 404", act=lambda: send(hub="nowhere"))
    raises("ConnectError", "Status code: 404", act=lambda: describe(hub="nowhere"))


def unknown_group():
    receive("The messaging entity", "could not be found", kind="ConnectionLostError", group="nobody")


def unknown_partition():
    words = ("The specified partition is invalid", "between 0 and 3")
    receive(*words, kind="ConnectError", partition="4")
    raises("ConnectError", "Invalid partition 4", act=lambda: send(partition="4"))  # said by the client itself
    with producer(HUB) as client:
        raises("ConnectError", act=lambda: client.get_partition_properties("4"))


OPERATIONS = {
    "a bad key": bad_key,
    "an expired token": expired,
    "an unknown hub": unknown_hub,
    "an unknown group": unknown_group,
    "an unknown partition": unknown_partition,
}
