// Receives events with the official JavaScript client, to compare with: receive.js CONNECTION HUB EVENTS.
//
// Reads partition 0 from its beginning and prints `EVENTS SECONDS`, counted from the first batch on.

const { EventHubConsumerClient, earliestEventPosition } = require("@azure/event-hubs");

const [connection, hub, wanted] = process.argv.slice(2);
const client = new EventHubConsumerClient("$Default", connection, hub);
let seen = 0;
let begun;

const subscription = client.subscribe("0", {
  async processEvents(events) {
    if (begun === undefined) {
      begun = process.hrtime.bigint(); // the first batch is not counted: its time is not known
      return;
    }
    if (seen >= Number(wanted)) return;
    seen += events.length;
    if (seen >= Number(wanted)) {
      console.log(seen, Number(process.hrtime.bigint() - begun) / 1e9);
      await subscription.close();
      await client.close();
      process.exit(0);
    }
  },
  async processError(error) {
    console.error(error);
    process.exit(1);
  },
}, { startPosition: earliestEventPosition, maxBatchSize: 1000, prefetchCount: 3000 });

setTimeout(() => { console.error(`only ${seen} events within two minutes`); process.exit(1); }, 120_000).unref();
