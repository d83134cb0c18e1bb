"""One Python host: prints a line of JSON for each partition that it opens or closes and for each event,
until it is killed."""
import json
import os
import threading

from azure.eventhub import EventHubConsumerClient, LoadBalancingStrategy
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

EVERY = int(os.environ["MIXED_CHECKPOINT_EVERY"])
lock = threading.Lock()


def tell(**what):
    with lock:
        print(json.dumps(what), flush=True)


def on_event(context, event):
    tell(partition=context.partition_id, sequence=event.sequence_number, text=event.body_as_str())
    if (event.sequence_number + 1) % EVERY == 0:
        context.update_checkpoint(event)


store = BlobCheckpointStore.from_connection_string(os.environ["EPHOR_STORAGE"], os.environ["MIXED_CONTAINER"])
client = EventHubConsumerClient.from_connection_string(
    os.environ["EPHOR_CONNECTION"], "$Default", eventhub_name=os.environ["MIXED_HUB"], checkpoint_store=store,
    load_balancing_interval=1, partition_ownership_expiration_interval=6,
    load_balancing_strategy=LoadBalancingStrategy(os.environ["MIXED_STRATEGY"]), retry_backoff_factor=0.1)
with client:
    client.receive(
        on_event=on_event, starting_position="-1",
        on_partition_initialize=lambda context: tell(begun=context.partition_id),
        on_partition_close=lambda context, reason: tell(ended=context.partition_id),
        on_error=lambda context, error: tell(error=f"{type(error).__name__}: {error}"))
