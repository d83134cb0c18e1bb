// One host of the legacy JavaScript library as a child process: reports the events, leases and checkpoints
// that it has to its parent, and stops on request.
import host from "@azure/event-processor-host";
import { CHECKPOINT_EVERY, CONNECTION, CONTAINER, HUB, STORAGE } from "./fleet.js";

const tell = (message) => process.connected && process.send(message);

// The shortest lease there is; scans as often as it takes to be done soon.
const options = {
  eventHubPath: HUB,
  leaseDuration: 15,
  leaseRenewInterval: 5,
  startupScanDelay: 1,
  fastScanInterval: 1,
  slowScanInterval: 1,
  onEphError: (told) => tell({ error: `${told.action}: ${told.error?.message ?? told.error}` }),
};
const processor = host.EventProcessorHost.createFromConnectionString(process.argv[2], STORAGE, CONTAINER, CONNECTION, options);

/** It is not awaited by the library, which hands out the next event at once and stores checkpoints one by one. */
async function onMessage(context, event) {
  const { partitionId: partition } = context;
  const { sequenceNumber: sequence, offset } = event;
  tell({ event: { partition, sequence, offset, text: event.body.toString() } });
  if ((sequence + 1) % CHECKPOINT_EVERY) return;
  try {
    await context.checkpointFromEventData(event);
  } catch (error) {
    tell({ error: `partition ${partition} at ${sequence}: ${error.message}` });
  }
}

let owned = "";
setInterval(() => {
  const now = processor.receivingFromPartitions.sort();
  if (now.join() !== owned) tell({ owned: now });
  owned = now.join();
}, 50);

process.on("disconnect", () => process.exit(1));
process.on("message", async () => {
  await processor.stop();
  process.exit(0);
});
await processor.start(onMessage, (error) => tell({ error: error.message }));
