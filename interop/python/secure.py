"""Interoperability tests over TLS, with the certificate that the server generated.

This client takes a port from a connection string only without TLS, hence the custom endpoint; that in turn means
WebSockets unless the transport is named.
"""
import os

from azure.eventhub import EventData, TransportType

from client import CONNECTION, Receiver, consumer, equal, producer, raises

HUB = "python-tls"
PORT = os.environ["EPHOR_TLS"].rsplit(":", 1)[1]
FIELDS = dict(part.split("=", 1) for part in CONNECTION.strip(";").split(";"))


def options(host="localhost", **more):
    trust = {"connection_verify": os.environ["EPHOR_CA"]}
    return {"transport_type": TransportType.Amqp, "custom_endpoint_address": f"sb://{host}:{PORT}", **trust, **more}


def connection(host="localhost"):
    name, key = FIELDS["SharedAccessKeyName"], FIELDS["SharedAccessKey"]
    return f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={key}"


def sender(host="localhost", **more):
    return producer(HUB, connection(host), **options(host, **more))


def received(after, count):
    with Receiver(HUB, after, connection=connection(), options=options()) as receiver:
        return [b"".join(event.body) for event in receiver.take(count)]


def last():
    with sender() as client:
        return client.get_partition_properties("0")["last_enqueued_sequence_number"]


def describe():
    for host in ("localhost", "127.0.0.1"):
        with sender(host) as client:
            equal(client.get_eventhub_properties()["partition_ids"], ["0"], "partitions:")
            equal(client.get_partition_properties("0")["id"], "0", "partition:")
    with consumer(HUB, connection=connection(), **options()) as client:
        equal(client.get_partition_ids(), ["0"], "partitions:")


def send_and_receive():
    before = last()
    with sender() as client:
        batch = client.create_batch(partition_id="0")
        for number in range(100):
            batch.add(EventData(f"event {number}"))
        client.send_batch(batch)
    equal(received(before, 100), [b"event %d" % number for number in range(100)], "received:")


def megabyte():
    before, body = last(), bytes(n * 7 % 256 for n in range(1000)) * 1048
    with sender() as client:
        client.send_event(EventData(body), partition_id="0")
    equal(received(before, 1)[0] == body, True, "same bytes:")


def untrusted():
    def act():
        with sender(connection_verify=None) as client:
            client.get_eventhub_properties()
    raises("ConnectError", "certificate verify failed", act=act)


OPERATIONS = {
    "over TLS: describe the hub": describe,
    "over TLS: send a batch and receive it": send_and_receive,
    "over TLS: an event of 1 MB both ways": megabyte,
    "over TLS: a certificate that is not trusted": untrusted,
}
