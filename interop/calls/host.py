"""One Python host with default settings except the load-balancing interval: prints a line of JSON for each
partition that it opens or closes."""
import json
import os

from azure.eventhub import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

INTERVAL = float(os.environ["MIXED_INTERVAL"])
store = BlobCheckpointStore.from_connection_string(os.environ["EPHOR_STORAGE"], os.environ["MIXED_CONTAINER"])
store._container_client.create_container()  # the SDK expects one
client = EventHubConsumerClient.from_connection_string(
    os.environ["EPHOR_CONNECTION"], "$Default", eventhub_name=os.environ["MIXED_HUB"], checkpoint_store=store,
    load_balancing_interval=INTERVAL, partition_ownership_expiration_interval=6 * INTERVAL)
with client:
    client.receive(
        on_event=lambda context, event: None,
        on_partition_initialize=lambda context: print(json.dumps({"begun": context.partition_id}), flush=True),
        on_partition_close=lambda context, reason: print(json.dumps({"ended": context.partition_id}), flush=True),
        on_error=lambda context, error: print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True))
