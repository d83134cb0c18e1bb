// One JavaScript host: prints a line of JSON for each partition that it opens or closes and for each event,
// until it is killed.
import { earliestEventPosition, EventHubConsumerClient } from "@azure/event-hubs";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { ContainerClient } from "@azure/storage-blob";

const { EPHOR_CONNECTION, EPHOR_STORAGE, MIXED_HUB, MIXED_CONTAINER, MIXED_CHECKPOINT_EVERY, MIXED_STRATEGY } = process.env;
const tell = (what) => process.stdout.write(JSON.stringify(what) + "\n");

const store = new BlobCheckpointStore(new ContainerClient(EPHOR_STORAGE, MIXED_CONTAINER));
const client = new EventHubConsumerClient("$Default", EPHOR_CONNECTION, MIXED_HUB, store, {
  retryOptions: { retryDelayInMs: 100, maxRetries: 3, timeoutInMs: 10000 },
  loadBalancingOptions: {
    strategy: MIXED_STRATEGY,
    updateIntervalInMs: 1000,
    partitionOwnershipExpirationIntervalInMs: 6000,
  },
});

client.subscribe(
  {
    processEvents: async (events, context) => {
      for (const event of events) {
        const sequence = event.sequenceNumber;
        tell({ partition: context.partitionId, sequence, text: String(event.body) });
        if ((sequence + 1) % Number(MIXED_CHECKPOINT_EVERY) === 0) await context.updateCheckpoint(event);
      }
    },
    processInitialize: async (context) => tell({ begun: context.partitionId }),
    processClose: async (_, context) => tell({ ended: context.partitionId }),
    processError: async (error, context) => tell({ error: `${error.code ?? error.name}: ${error.message} (${context.partitionId})` }),
  },
  { startPosition: earliestEventPosition, maxBatchSize: 10, maxWaitTimeInSeconds: 1 },
);
