"""Receives events with the official Python client, to compare with: receive.py CONNECTION HUB EVENTS.

Reads partition 0 from its beginning and prints `EVENTS SECONDS`, counted from the first batch on.
"""
import sys
import threading
import time

from azure.eventhub import EventHubConsumerClient

connection, hub, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen, begun, ended = 0, None, None
done = threading.Event()


def on_batch(_, events):
    global seen, begun, ended
    if begun is None:
        begun = time.monotonic()  # the first batch is not counted: its time is not known
        return
    if ended is None:
        seen += len(events)
        if seen >= wanted:
            ended = time.monotonic()
            done.set()


client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name=hub)
threading.Thread(daemon=True, target=lambda: client.receive_batch(
    on_batch, partition_id="0", starting_position="-1", max_batch_size=1000, prefetch=3000)).start()
if not done.wait(120):
    sys.exit(f"only {seen} events within two minutes")
print(seen, ended - begun, flush=True)
client.close()
